"""Conditioning as a layer, forward and backward, beside the layers a user could take instead."""

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor

from benchmarks import peers, textbook
from benchmarks.conditioning import Problem, Rule, dense, two_disjoint
from benchmarks.targets import Outcome, worse
from benchmarks.timing import laps, repeated
from equipoise import DiagonalGaussian, condition
from equipoise.gaussian.operator import BalanceOperator

BATCH = 512
N_CALLS = 10  # in a row: a call of ours is short, and finds another's memory in the cache
FLOOR = "fixed projection"
OPTIMISERS = {"conditioning_vs_cvxpylayers": "cvxpylayers", "conditioning_vs_qpth": "qpth"}


def run(quick: bool) -> Iterator[Outcome]:
    """Mean and variance with the gradients of both, in float64; of optimisation layers, which have none, the mean."""
    batch, seconds = (32, 0.1) if quick else (BATCH, 10.0)
    yield _beside_fixed_projection(batch, seconds)
    sizes = [(12, 4), (30, 10)] if quick else [(30, 10), (100, 50)]
    yield worse([_beside_textbook(dense(*size), batch, seconds) for size in sizes])
    for name, peer in OPTIMISERS.items():
        yield _beside_optimiser(name, peer, batch, seconds)


def ours(B: Tensor) -> Rule:
    """Conditioning by the library."""
    operator = BalanceOperator(B)

    def rule(mean, var, B, target, tol_var):
        conditioned = condition(DiagonalGaussian(mean, var), operator, target, tol_var)
        return conditioned.mean, conditioned.var

    return rule


def fixed_projection(B: Tensor) -> Rule:
    """The least that a layer for these balances can do: `y → P y + K t` with `K` and `P = I − K B` found once.

    It is conditioning of equal variances on exact balances, `K = Bᵀ (B Bᵀ)⁻¹`: no row has a gain of its own.
    """
    K = torch.linalg.solve(B @ B.mT, B).mT
    P = torch.eye(B.shape[1], dtype=B.dtype) - K @ B
    P_squared = P.square()

    def rule(mean, var, B, target, tol_var):
        return torch.addmm(target @ K.mT, mean, P.mT), var @ P_squared.mT

    return rule


def _beside_fixed_projection(batch: int, seconds: float) -> Outcome:
    B = two_disjoint()
    problem, mine, floor = Problem.random(B, batch), ours(B), fixed_projection(B)
    same = torch.ones_like(problem.var), torch.zeros_like(problem.tol_var)
    for a, b in zip(
        mine(problem.mean, same[0], B, problem.target, same[1]),
        floor(problem.mean, same[0], B, problem.target, same[1]),
        strict=True,
    ):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)
    calls = {"ours": lambda: problem.forward_backward(mine), "fixed projection": _projected(problem, floor)}
    return Outcome.of("conditioning_vs_fixed_projection", laps(calls, seconds), *calls, note=f"batch {batch}")


def _projected(problem: Problem, rule: Rule) -> Callable[[], object]:
    """Forward and backward of a rule that has no use for tolerances."""

    def call():
        result = rule(problem.mean, problem.var, problem.B, problem.target, problem.tol_var)
        return torch.autograd.grad(result, (problem.mean, problem.var), (problem.mean_grad, problem.var_grad))

    return call


def _beside_textbook(B: Tensor, batch: int, seconds: float) -> Outcome:
    problem, mine = Problem.random(B, batch), ours(B)
    expected = problem.forward_backward(textbook.by_diagonal)
    for a, b in zip(problem.forward_backward(mine), expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-8)
    calls = {
        "ours": lambda: problem.forward_backward(mine),
        "Cholesky by autograd": lambda: problem.forward_backward(textbook.by_diagonal),
    }
    note = f"({B.shape[1]}, {B.shape[0]}), batch {batch}; of Σ_C the diagonal only"
    return Outcome.of("conditioning_vs_textbook", laps(calls, seconds), *calls, note=note)


def _beside_optimiser(name: str, peer: str, batch: int, seconds: float) -> Outcome:
    """A peer as it comes, which is the first of its layers; its other settings stand in the note."""
    if (problem := peers.problem(peer)) is not None:
        return Outcome(name, beside=peer, note=problem)
    B = two_disjoint()
    rows, mine, others = Problem.random(B, batch), ours(B), peers.load(peer).layers(B)
    for theirs in others.values():
        for a, b in zip(_mean_and_gradient(rows, mine), _mean_and_gradient(rows, theirs), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)
    calls = {other: partial(_mean_and_gradient, rows, theirs) for other, theirs in others.items()}
    calls = {"ours": lambda: rows.forward_backward(mine), FLOOR: _projected(rows, fixed_projection(B))} | calls
    n_calls = 1 if peer == "cvxpylayers" else N_CALLS
    run = laps({each: repeated(call, n_calls) for each, call in calls.items()}, seconds)
    default, *settings = others
    besides = "".join(
        f"; {other} {run.best(other) / n_calls:.0f} ms, ratio {run.ratio('ours', other):.2g}" for other in settings
    )
    besides += f"; {FLOOR}, the floor, has the ratio {run.ratio(FLOOR, default):.2g}"
    return Outcome.of(
        name, run, "ours", default, per=n_calls, note=f"batch {batch}; {peer} gives the mean only{besides}"
    )


def _mean_and_gradient(problem: Problem, rule: Callable) -> tuple[Tensor, Tensor]:
    mean = rule(problem.mean, problem.var, problem.B, problem.target, problem.tol_var)[0]
    return mean, torch.autograd.grad(mean, problem.mean, problem.mean_grad)[0]
