"""Checks of balances: shapes that agree, unique names, finite coefficients, outputs in every row, independent rows."""

from __future__ import annotations

import numpy as np

from equipoise.balances.coefficients import Coefficients, ConstraintError, check_unique_columns
from equipoise.balances.dependence import Dependence, combine, find_dependence
from equipoise.balances.names import quoted_list


def check_balances(balances: Coefficients) -> None:
    """Raise an error that names what is wrong, unless the balances are usable as a constraint.

    Raises: ConstraintError, if shapes do not agree, a name occurs twice, a coefficient is not finite, a balance
        involves no output, or balances are dependent or contradictory.
    """
    check_unique_columns(balances.inputs, balances.known, balances.outputs)
    _check_shapes(balances)
    for k, name in enumerate(balances.names):
        if balances.names.index(name) < k:
            raise ConstraintError(f"Names of balances must be unique, but got {name!r} twice. Rename or drop one.")
        _check_row(balances, k)
    if (dependence := find_dependence(balances.B)) is not None:
        raise ConstraintError(_dependence_message(balances, dependence))


def _check_shapes(balances: Coefficients) -> None:
    m, n_columns, n_y = len(balances.B), len(balances.columns), len(balances.outputs)
    if m == 0 or n_y == 0:
        got = f"shape {balances.B.shape}"
        raise ConstraintError(f"B must have a balance and an output, but got {got}. Use None for no constraint.")
    for argument, shape in {"names": (m,), "B": (m, n_y), "A": (m, n_columns), "b": (m,)}.items():
        if (got := np.shape(getattr(balances, argument))) != shape:
            counts = f"{m} balances, {n_columns} inputs and known columns, {n_y} outputs"
            raise ConstraintError(f"{argument} must have shape {shape} for {counts}, but got {got}. Make them agree.")


def _check_row(balances: Coefficients, row: int) -> None:
    name = balances.names[row]
    entries = balances.entries(row) | {"its constant b": float(balances.b[row])}
    for column, value in entries.items():
        if value and not 1e-100 <= abs(value) <= 1e100:
            rule = f"Balance {name!r} must have finite coefficients, of size 1e-100 to 1e100"
            raise ConstraintError(f"{rule}, but got {value} for {column!r}. Correct it, or choose other units.")
    if not balances.B[row].any():
        used = [column for column, a in zip(balances.columns, balances.A[row], strict=True) if a]
        got = f"only {quoted_list(used)}" if used else f"no column at all (0 = {balances.b[row]:g})"
        raise ConstraintError(f"Balance {name!r} must involve an output, but got {got}. Check its signs, or drop it.")


def _dependence_message(balances: Coefficients, dependence: Dependence) -> str:
    """Explain a dependence `λᵀ B = 0`: a relation among inputs (`λᵀ A ≠ 0`), a contradiction (`λᵀ b ≠ 0`), or none."""
    weights = dependence.weights
    ranks = f"(rank {dependence.rank} of {len(balances.names)} rows)"
    if not weights.any():  # too few outputs, and rounding hides the combination
        return f"Balances {quoted_list(balances.names)} are linearly dependent {ranks}. Drop one of them."
    weights = weights / weights[np.flatnonzero(weights)[0]]
    involved = [name for name, weight in zip(balances.names, weights, strict=True) if weight]
    inputs = [name for name, a in zip(balances.columns, combine(weights, balances.A), strict=True) if a]
    contradiction = combine(weights, balances.b)
    choice = f"one of: {', '.join(map(repr, involved))}"
    advice = f"Drop {choice}"
    if inputs:
        problem = f"together fix a relation among inputs only, {quoted_list(inputs)}, and leave no output"
        advice = f"Drop {choice}, or make one of these inputs an output"
    elif contradiction:
        problem = f"contradict each other by {abs(contradiction):.6g} in the unit of {involved[0]!r}"
        advice = f"Correct or drop {choice}"
    else:
        problem = "are duplicates, equal up to a factor" if len(involved) == 2 else "are linearly dependent"
    return f"Balances {quoted_list(involved)} {problem} {ranks}. {advice}."
