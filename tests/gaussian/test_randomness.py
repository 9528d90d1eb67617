"""Random numbers for a part of a batch, against those of the whole batch."""

import pytest
import torch

from equipoise.balances.linear import LinearConstraint
from equipoise.data.rows import Rows
from equipoise.gaussian import randomness
from equipoise.gaussian.conditioning import ConditioningLayer
from equipoise.gaussian.randomness import BatchGenerator, antithetic_normal, flat_antithetic_normals, random_keys
from equipoise.network.mlp import BayesianMLP
from equipoise.network.model import ConstrainedBNN
from equipoise.training.objective import Objective


def generator_of(rows, total, seed=3):
    generator = BatchGenerator()
    generator.manual_seed(seed)
    generator.rows, generator.total = rows, total
    return generator


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("rows", [slice(0, 0), slice(0, 3), slice(3, 7), slice(0, 7)])
def test_rows_have_the_numbers_of_the_whole_batch_draw_after_draw(rows, dtype):
    whole, part_generator = torch.Generator().manual_seed(3), generator_of(rows, 7)
    for width in (5, 1, 40):
        expected = antithetic_normal((7, width), whole, dtype)[rows]
        normals = antithetic_normal((rows.stop - rows.start, width), part_generator, dtype)
        assert normals.dtype == dtype
        assert torch.equal(normals, expected)


@pytest.mark.parametrize("n", [0, 1, 2, 5, 6])
def test_the_second_half_of_a_batch_has_the_opposite_numbers_of_the_first(n):
    normals, half = antithetic_normal((n, 3), torch.Generator().manual_seed(3)), (n + 1) // 2
    assert len(normals.unique()) == 2 * 3 * half - (3 if n % 2 else 0)
    assert torch.equal(normals[half:], -normals[: n - half])


def test_numbers_of_several_widths_are_those_of_one_width_after_the_other():
    """The numbers differ from those drawn array by array, since they share a key; they do not depend on the part."""
    whole = flat_antithetic_normals(7, (5, 1, 4), torch.Generator().manual_seed(3))
    parts = [part.view(7, -1) for part in whole.split([35, 7, 28])]
    assert all(torch.equal(part[4:], -part[:3]) for part in parts)
    assert len(whole.abs().unique()) == 4 * (5 + 1 + 4)
    rows = flat_antithetic_normals(3, (5, 1, 4), generator_of(slice(2, 5), 7))
    assert torch.equal(rows, torch.cat([part[2:5].flatten() for part in parts]))


def test_keys_one_by_one_are_those_drawn_together():
    """A compiled step draws the keys of network, tolerances and sensors at once."""
    one, all_of_them = (torch.Generator().manual_seed(3) for _ in range(2))
    assert [random_keys(1, one)[0] for _ in range(3)] == random_keys(3, all_of_them)


def test_rows_of_a_half_and_columns_are_independent_standard_normals():
    """Moments of 20,000 numbers, and their correlations, within five standard errors of the truth."""
    normals = antithetic_normal((10_000, 4), torch.Generator().manual_seed(5), torch.float64)[:5_000]
    assert normals.mean().abs() < 5 / 20_000**0.5
    assert (normals.square().mean() - 1).abs() < 5 * (2 / 20_000) ** 0.5
    correlations = torch.corrcoef(normals.T) - torch.eye(4)
    assert correlations.abs().max() < 5 / 5_000**0.5
    assert (normals[1:] * normals[:-1]).mean().abs() < 5 / 20_000**0.5


def test_paired_noise_leaves_the_expected_loss_as_it_is():
    """The mean loss over many paired batches is that over independent ones, to the standard error of both."""
    network = BayesianMLP(2, 3, (4,), generator=torch.Generator().manual_seed(0), init_std=0.4)
    model = ConstrainedBNN(network, ConditioningLayer(LinearConstraint([[1.0, 1.0, -1.0]])))
    random = torch.Generator().manual_seed(1)
    x, y = torch.randn(1, 2, generator=random), torch.randn(1, 3, generator=random, dtype=torch.float64)
    row = Rows(x, y, torch.zeros(1, 1, dtype=torch.float64))
    one, many = row.take(torch.zeros(1, dtype=torch.long)), row.take(torch.zeros(4_000, dtype=torch.long))
    with torch.no_grad():
        alone = torch.stack([model.negative_elbo(one, 1, random).nll for _ in range(2_000)])  # one row has no partner
        paired = torch.stack([model.negative_elbo(many, 1, random).nll for _ in range(20)])
    error = (alone.var() / len(alone) + paired.var() / len(paired)).sqrt()
    assert (alone.mean() - paired.mean()).abs() < 4 * error


def test_gradients_of_shares_weighted_by_their_rows_are_that_of_the_batch():
    """Network, tolerances and offsets all draw for the rows that they see."""
    n, total = 11, 200
    network = BayesianMLP(2, 3, (5,), generator=torch.Generator().manual_seed(0), init_std=0.3)
    model = ConstrainedBNN(network, ConditioningLayer(LinearConstraint([[1.0, 1.0, -1.0]]), offset=True)).double()
    random = torch.Generator().manual_seed(1)
    x, y = (torch.randn(n, k, generator=random, dtype=torch.float64) for k in (2, 3))
    rows = Rows(x, y, torch.zeros(n, 1, dtype=torch.float64))

    def gradient(share):
        nll = Objective(model).backward(rows.take(share), total, generator_of(share, n))
        return torch.cat([nll.reshape(1), *(p.grad.flatten() for p in model.parameters())])

    parts = [(share.stop - share.start) / n * gradient(share) for share in (slice(0, 4), slice(4, 11))]
    whole = gradient(slice(0, n))
    torch.testing.assert_close(sum(parts), whole, rtol=0.0, atol=1e-11 * float(whole.abs().max()))  # terms cancel


def test_numbers_of_any_shape_are_paired_by_their_first_axis():
    for shape in ((6,), (6, 2, 2)):
        normals = antithetic_normal(shape, torch.Generator().manual_seed(3))
        assert normals.shape == shape
        assert torch.equal(normals[3:], -normals[:3])


def test_on_a_gpu_numbers_come_from_the_generator_and_rows_of_a_part_have_those_of_the_whole(monkeypatch):
    """On the processor in the place of the GPU."""
    monkeypatch.setattr(randomness, "_is_counted", lambda _: False)
    half = torch.randn(3, 2, generator=torch.Generator().manual_seed(3))
    whole = antithetic_normal((6, 2), torch.Generator().manual_seed(3), device=torch.device("cpu"))
    assert torch.equal(whole, torch.cat([half, -half]))
    part = antithetic_normal((3, 2), generator_of(slice(2, 5), 6), device=torch.device("cpu"))
    assert torch.equal(part, whole[2:5])
    assert randomness.random_scheme(torch.device("cpu")) == "torch.Generator on cpu"


def test_without_compiled_code_they_are_the_same_to_single_precision(monkeypatch):
    drawn = antithetic_normal((40, 3), torch.Generator().manual_seed(3))
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
    plain = antithetic_normal((40, 3), torch.Generator().manual_seed(3))
    torch.testing.assert_close(plain, drawn, rtol=1e-5, atol=1e-6)
