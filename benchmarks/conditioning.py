"""Conditioning, forward and backward, beside dense matrices."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from benchmarks import textbook
from benchmarks.cell import BALANCES
from benchmarks.memory import peak_mb
from benchmarks.results import Result
from benchmarks.timing import race
from equipoise import DiagonalGaussian, condition
from equipoise.gaussian.operator import BalanceOperator

PEERS = {"dense textbook": textbook.by_cholesky, "torch.linalg.solve": textbook.by_solve}
Rule = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


def run(quick: bool) -> Iterator[Result]:
    """Mean and variance, and the gradients of both with respect to mean, variance and tolerance, in float64."""
    small = [(two_disjoint(), 512), (dense(30, 10), 512)]
    large = [(two_disjoint(), 8192), (dense(30, 10), 8192), (dense(100, 50), 512), (hierarchy(555, 251), 32)]
    for B, batch in small if quick else [*small, *large]:
        yield from _beside_peers(B, batch, batch, seconds=0.5 if quick else 8.0)
    if not quick:
        # The textbook's matrices for 512 rows of this would take about 8 GB.
        yield from _beside_peers(hierarchy(555, 251), 512, 32, seconds=0.0)


def _beside_peers(B: Tensor, batch: int, peer_batch: int, seconds: float) -> Iterator[Result]:
    operator = BalanceOperator(B)

    def ours(mean, var, B, target, tol_var):
        conditioned = condition(DiagonalGaussian(mean, var), operator, target, tol_var)
        return conditioned.mean, conditioned.var

    problem, peer_problem = Problem.random(B, batch), Problem.random(B, peer_batch)
    _check_agreement(ours, Problem.random(B, min(peer_batch, 64)))
    calls = {name: _call(rule, peer_problem) for name, rule in PEERS.items()}
    best = race({"ours": _call(ours, problem), **calls}, seconds)
    sizes = {"n_y": B.shape[1], "m": B.shape[0], "batch": batch, "peer_batch": peer_batch, "peak_mb": round(peak_mb())}
    note = f"beside: batch {peer_batch} × {batch // peer_batch}; peak memory {peak_mb():,.0f} MB"
    for peer in PEERS:
        yield Result(
            f"condition ({B.shape[1]}, {B.shape[0]}), batch {batch}",
            peer,
            best["ours"],
            best[peer] * batch / peer_batch,
            sizes,
            "" if peer_batch == batch else note,
        )


@dataclass(frozen=True)
class Problem:
    """A batch of Gaussians to condition, and the gradients that come back from what is done with the result."""

    mean: Tensor
    var: Tensor
    B: Tensor
    target: Tensor
    tol_var: Tensor
    mean_grad: Tensor
    var_grad: Tensor

    @classmethod
    def random(cls, B: Tensor, batch: int) -> "Problem":
        generator = torch.Generator().manual_seed(0)
        m, n_y = B.shape
        widths = (n_y, n_y, m, m, n_y, n_y)
        noise = torch.randn((batch, sum(widths)), generator=generator, dtype=torch.float64).split(widths, dim=-1)
        mean, log_var, target, log_tol, mean_grad, var_grad = (part.contiguous() for part in noise)
        mean, var, tol_var = (part.requires_grad_() for part in (mean, log_var.exp(), (log_tol - 6.0).exp()))
        return cls(mean, var, B, target, tol_var, mean_grad, var_grad)

    def forward_backward(self, rule: Rule) -> tuple[Tensor, ...]:
        """Mean, variance and three gradients."""
        result = rule(self.mean, self.var, self.B, self.target, self.tol_var)
        leaves = (self.mean, self.var, self.tol_var)
        return *result, *torch.autograd.grad(result, leaves, (self.mean_grad, self.var_grad))


def _call(rule: Rule, problem: Problem) -> Callable[[], object]:
    return lambda: problem.forward_backward(rule)


def _check_agreement(ours: Rule, problem: Problem) -> None:
    """A benchmark of a wrong answer is worthless."""
    answer = problem.forward_backward(ours)
    for peer in PEERS.values():
        for mine, theirs in zip(answer, problem.forward_backward(peer), strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-6, atol=1e-8)


def two_disjoint() -> Tensor:
    """The paper's two balances over eight outputs, which share none, rows of norm 1."""
    return _unit_rows(torch.as_tensor(BALANCES.B.copy()))


def dense(n_y: int, m: int) -> Tensor:
    """Balances that all involve all outputs."""
    return _unit_rows(torch.randn((m, n_y), generator=torch.Generator().manual_seed(1), dtype=torch.float64))


def hierarchy(n_y: int, m: int) -> Tensor:
    """A tree of sums: output 0 is the total, and each of the first `m` outputs is the sum of its children."""
    B = torch.zeros((m, n_y), dtype=torch.float64)
    children = torch.arange(1, n_y)
    B[torch.arange(m), torch.arange(m)] = 1.0
    B[(children - 1) * m // (n_y - 1), children] = -1.0
    return _unit_rows(B)


def _unit_rows(B: Tensor) -> Tensor:
    return B / B.norm(dim=-1, keepdim=True)
