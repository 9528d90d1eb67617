"""Sparse products: every pair of balances that share an output, each once, and only where pairs are few."""

from unittest import mock

import numpy as np
import torch
from hypothesis import given, strategies as st

from equipoise.gaussian import sparse_gram
from equipoise.gaussian.operator import BalanceOperator
from equipoise.gaussian.sparse_gram import SparseGram


def pairs_of(pattern):
    """List every pair of balances that share an output, with its block and output."""
    blocks, k, J = pattern.shape
    every = np.ndindex(blocks, k, k, J)
    return {(i, a, b, j) for i, a, b, j in every if pattern[i, a, j] and pattern[i, b, j]}


@given(seed=st.integers(0, 10**6), density=st.floats(0.0, 0.9))
def test_every_pair_is_there_once(seed, density):
    pattern = np.random.default_rng(seed).random((3, 4, 5)) < density
    with mock.patch.object(sparse_gram, "PAIR_COST", 0):
        sparse = SparseGram.from_pattern(pattern)
    block, a, j = np.unravel_index(sparse.first.numpy(), pattern.shape)
    again, b, same = np.unravel_index(sparse.second.numpy(), pattern.shape)
    assert np.array_equal(block, again)
    assert np.array_equal(j, same)
    assert np.array_equal(sparse.columns, block * 5 + j)
    assert np.array_equal(sparse.positions, (block * 4 + a) * 4 + b)
    both = list(zip(block, a, b, j, strict=True))
    assert len(both) == len(set(both))
    assert set(both) == pairs_of(pattern)


def chain(m):
    """Balance k has outputs k and k + 1."""
    return (torch.eye(m + 1)[:-1] - torch.eye(m + 1)[1:]).double()


def test_a_long_chain_has_few_pairs_and_a_dense_matrix_has_not():
    assert SparseGram.from_pattern(chain(200).numpy()[None] != 0) is not None
    assert SparseGram.from_pattern(np.ones((1, 20, 30), dtype=bool)) is None


def test_values_and_gradients_of_a_large_sparse_block_are_those_of_the_dense_formula():
    m, B = 120, chain(120)
    generator = torch.Generator().manual_seed(0)
    v, r, rhs = (torch.rand(3, n, generator=generator, dtype=torch.float64) + 0.1 for n in (m + 1, m, m))
    v.requires_grad_()
    operator = BalanceOperator(B)
    assert operator.groups[0].products is None  # so that pairs are used
    assert operator.layout[0].sparse is not None
    factor = operator.factor(v, r)
    S = (B * v.unsqueeze(-2)) @ B.mT + torch.diag_embed(r)
    solved = torch.linalg.solve(S, rhs)
    of_diag = torch.einsum("ka,nkl,la->na", B, torch.linalg.inv(S), B)
    torch.testing.assert_close(factor.solve(rhs), solved, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(factor.adjoint_diag, of_diag, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(factor.log_det, torch.logdet(S), rtol=1e-11, atol=1e-11)
    (got,) = torch.autograd.grad((factor.solve(rhs).sin() + factor.adjoint_diag[:, :m].cos()).sum(), v)
    (wanted,) = torch.autograd.grad((solved.sin() + of_diag[:, :m].cos()).sum(), v)
    torch.testing.assert_close(got, wanted, rtol=1e-8, atol=1e-10)
