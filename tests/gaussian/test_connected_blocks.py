"""Blocks of balances: the partition against a naive one, their products against explicit matrices."""

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

import references
from equipoise.gaussian import connected_blocks, sparse_gram
from equipoise.gaussian.connected_blocks import block_layout

CHAIN = [[1, 1, 0, 0, 0, 0], [0, 0, 1, 1, 0, 0], [0, 1, 1, 0, 0, 0], [0, 0, 0, 0, 1, 1]]


@given(seed=st.integers(0, 10**6), m=st.integers(1, 8), n=st.integers(1, 8), density=st.floats(0.05, 0.9))
def test_the_layout_is_the_partition_into_connected_blocks(seed, m, n, density):
    rng = np.random.default_rng(seed)
    pattern = (rng.random((m, n)) < density).astype(float)
    layout = block_layout(torch.as_tensor(pattern))
    blocks = [frozenset(block) for group in layout for block in group.rows.tolist()]
    assert set(blocks) == references.connected_blocks(pattern)
    assert sorted(k for block in blocks for k in block) == list(range(m))


def test_balances_of_a_batch_are_apart_only_if_they_are_in_every_row():
    B = torch.tensor([[[1.0, 0.0, 1.0], [0.0, 1.0, 0.0]], [[1.0, 0.0, 0.0], [0.0, 1.0, 1.0]]], dtype=torch.float64)
    assert all(len(block_layout(row)) == 1 and block_layout(row)[0].rows.shape == (2, 1) for row in B)
    assert [group.rows.tolist() for group in block_layout(B)] == [[[0, 1]]]


def group_of(largest: bool, B_batch: tuple[int, ...] = ()) -> tuple[connected_blocks.BlockGroup, np.ndarray]:
    """A block of three balances or of one, and its coefficients as a plain matrix."""
    rng = np.random.default_rng(0)
    B = np.array(CHAIN) * rng.uniform(0.5, 2.0, (*B_batch, 4, 6))
    where = block_layout(torch.as_tensor(B))[int(largest)]
    rows, columns = where.rows[0].numpy(), where.columns[0].numpy()
    return where.gather(torch.as_tensor(B)), B[..., rows, :][..., columns]


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("B_batch", [(), (5,)])
@pytest.mark.parametrize(
    ("max_products", "pair_cost"), [(2**20, 256), (0, 256), (0, 0)], ids=["products", "dense", "sparse"]
)
def test_products_with_a_block_are_those_of_its_matrix(largest, B_batch, max_products, pair_cost, monkeypatch):
    monkeypatch.setattr(connected_blocks, "MAX_PRODUCTS", max_products)
    monkeypatch.setattr(sparse_gram, "PAIR_COST", pair_cost)
    group, B = group_of(largest, B_batch)
    k, J = B.shape[-2:]
    rng = np.random.default_rng(1)
    v, r, X = rng.normal(size=(5, 1, J)), rng.normal(size=(5, 1, k)), rng.normal(size=(5, 1, k, k))
    V, R = v[:, 0, :, None] * np.eye(J), r[:, 0, :, None] * np.eye(k)
    Bt = np.swapaxes(B, -1, -2)
    output_diag, balance_diag = group.diagonals(torch.as_tensor(X))
    for got, expected in [
        (group.gram(torch.as_tensor(v)), B @ V @ Bt),
        (group.S(torch.as_tensor(v), torch.as_tensor(r)), B @ V @ Bt + R),
        (group.adjoint_diag(torch.as_tensor(X)), np.diagonal(Bt @ X[:, 0] @ B, axis1=-2, axis2=-1)),
        (output_diag, np.diagonal(Bt @ X[:, 0] @ B, axis1=-2, axis2=-1)),
        (balance_diag, np.diagonal(X[:, 0], axis1=-2, axis2=-1)),
    ]:
        np.testing.assert_allclose(got[:, 0], expected, rtol=1e-13, atol=1e-13)


def test_outputs_and_balances_go_into_blocks_and_back():
    where = block_layout(torch.tensor(CHAIN, dtype=torch.float64))
    groups = [part.gather(torch.tensor(CHAIN, dtype=torch.float64)) for part in where]
    y, balance = torch.arange(6.0).double(), torch.arange(4.0).double()
    assert [group.rows_of(balance).tolist() for group in groups] == [[[3.0]], [[0.0, 1.0, 2.0]]]
    assert [group.columns_of(y).tolist() for group in groups] == [[[4.0, 5.0]], [[0.0, 1.0, 2.0, 3.0]]]
    assert torch.equal(sum(group.scatter_columns(group.columns_of(y)) for group in groups), y)
    rows = torch.cat([group.scatter_rows(group.B) for group in groups])
    assert torch.equal(rows, torch.tensor(CHAIN, dtype=torch.float64)[[3, 0, 1, 2]])
