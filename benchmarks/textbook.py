"""Conditioning as a textbook writes it, row by row in dense matrices, differentiated by autograd."""

import torch
from torch import Tensor


def by_cholesky(mean: Tensor, var: Tensor, B: Tensor, target: Tensor, tol_var: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance, with all of `Σ_C` for the sake of its diagonal."""
    mean, covariance = conditioned(mean, var, B, target, tol_var)
    return mean, covariance.diagonal(dim1=-2, dim2=-1)


def conditioned(mean: Tensor, var: Tensor, B: Tensor, target: Tensor, tol_var: Tensor) -> tuple[Tensor, Tensor]:
    """`μ_C` and `Σ_C`, `n_y × n_y` for each row, by a Cholesky factor of `S` and the gain `K`."""
    BV, S = _covariances(var, B, tol_var)
    K = torch.cholesky_solve(BV, torch.linalg.cholesky(S)).mT
    return _updated(mean, K, B, target), torch.diag_embed(var) - K @ S @ K.mT


def by_solve(mean: Tensor, var: Tensor, B: Tensor, target: Tensor, tol_var: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance with `K` from `torch.linalg.solve`; of `Σ_C` only the diagonal, `v − Σ_k K_jk (B diag(v))_kj`.

    A better use of dense matrices than the textbook's: no `n_y × n_y` matrix.
    """
    BV, S = _covariances(var, B, tol_var)
    K = torch.linalg.solve(S, BV).mT
    return _updated(mean, K, B, target), var - (K * BV.mT).sum(-1)


def by_diagonal(mean: Tensor, var: Tensor, B: Tensor, target: Tensor, tol_var: Tensor) -> tuple[Tensor, Tensor]:
    """The same with `K` from a Cholesky factor of `S`."""
    BV, S = _covariances(var, B, tol_var)
    K = torch.cholesky_solve(BV, torch.linalg.cholesky(S)).mT
    return _updated(mean, K, B, target), var - (K * BV.mT).sum(-1)


def _covariances(var: Tensor, B: Tensor, tol_var: Tensor) -> tuple[Tensor, Tensor]:
    """`B diag(v)` and `S = B diag(v) Bᵀ + diag(r)` for each row."""
    BV = B * var.unsqueeze(-2)
    return BV, BV @ B.mT + torch.diag_embed(tol_var)


def _updated(mean: Tensor, K: Tensor, B: Tensor, target: Tensor) -> Tensor:
    """`μ + K (t − B μ)`."""
    return mean + (K @ (target - mean @ B.mT).unsqueeze(-1)).squeeze(-1)
