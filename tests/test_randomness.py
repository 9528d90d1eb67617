"""Random numbers of some rows of a batch, against those of all of them."""

import pytest
import torch

from equipoise.conditioning import ConditioningLayer
from equipoise.constraints import LinearConstraint
from equipoise.gradient import backward
from equipoise.model import ConstrainedBNN, Rows
from equipoise.network import BayesianMLP
from equipoise.randomness import BatchGenerator, standard_normal


def generator_of(rows, total, seed=3):
    generator = BatchGenerator()
    generator.manual_seed(seed)
    generator.rows, generator.total = rows, total
    return generator


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("rows", [slice(0, 0), slice(0, 3), slice(3, 7), slice(0, 7)])
def test_rows_have_the_numbers_of_the_whole_batch_draw_after_draw(rows, dtype):
    whole, some = torch.Generator().manual_seed(3), generator_of(rows, 7)
    for width in (5, 1, 40):
        expected = torch.randn(7, width, generator=whole, dtype=dtype)[rows]
        found = standard_normal((rows.stop - rows.start, width), some, dtype)
        assert found.dtype == dtype
        assert torch.equal(found, expected)


def test_without_a_batch_numbers_are_those_of_torch():
    plain = standard_normal((2, 3), torch.Generator().manual_seed(3))
    assert torch.equal(plain, torch.randn(2, 3, generator=torch.Generator().manual_seed(3)))
    torch.manual_seed(4)
    expected = torch.randn(2)
    torch.manual_seed(4)
    assert torch.equal(standard_normal((2,)), expected)


def test_gradients_of_shares_weighted_by_their_rows_are_that_of_the_batch():
    """Network, tolerances and offsets all draw for the rows that they see."""
    n, total = 11, 200
    network = BayesianMLP(2, 3, (5,), generator=torch.Generator().manual_seed(0), init_std=0.3)
    model = ConstrainedBNN(network, ConditioningLayer(LinearConstraint([[1.0, 1.0, -1.0]]), offset=True)).double()
    random = torch.Generator().manual_seed(1)
    x, y = (torch.randn(n, k, generator=random, dtype=torch.float64) for k in (2, 3))
    rows = Rows(x, y, torch.zeros(n, 1, dtype=torch.float64))

    def gradient(share):
        nll = backward(model, rows.take(share), total, generator_of(share, n))
        return torch.cat([nll.reshape(1), *(p.grad.flatten() for p in model.parameters())])

    parts = [(share.stop - share.start) / n * gradient(share) for share in (slice(0, 4), slice(4, 11))]
    torch.testing.assert_close(sum(parts), gradient(slice(0, n)), rtol=1e-12, atol=1e-14)
