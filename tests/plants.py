"""Plants with published answers, random ones, and reconciliation done slowly by another route; for the tests of it.

The slow route never eliminates a variable. It writes everything that obeys the balances as `z = z₀ + N t`, with a basis
N of the null space of the coefficients, and fits t to the measurements by weighted least squares.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property

import mpmath
import numpy as np
import scipy.linalg

from equipoise.balances.linear import LinearConstraint

NAN = float("nan")

# --- Published examples -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Example:
    """Measured values, standard deviations and printed answers."""

    constraint: LinearConstraint
    values: np.ndarray
    std: np.ndarray
    reconciled: tuple[float, ...]
    inputs: np.ndarray | None = None
    printed: dict = field(default_factory=dict)


def vdi_2048() -> Example:
    """A steam turbine's heat circuit, VDI 2048 part 1 (October 2000).

    Values, 95 % half-widths (1.96 standard deviations) and answers as OpenModelica prints them, which solves it too
    (test suite, dataReconciliation/VDI2048Example_Corrected). Its local tests are divided by 1.96; left out here are
    those of mD, mA5, mA6 and mV, for which VDI 2048 replaces a small variance by a tenth of that of the measurement.
    """
    names = ["mD", "mHDNK", "mA5", "mA6", "mA7", "mHK", "mV", "mSPLL", "mSPL", "mFDKELL", "mFDKEL"]
    texts = {
        "feed water": "mFDKEL + mFDKELL - 0.2*mV = mSPL + mSPLL - 0.6*mV",
        "condensate": "mSPL + mSPLL - 0.6*mV = mHK + mA7 + mA6 + mA5 + 0.4*mV",
        "bleed steam": "mA7 + mA6 + mA5 = mHDNK",
    }
    values = [2.092, 18.498, 4.391, 3.744, 10.364, 69.978, 0.525, 44.319, 44.575, 45.668, 46.241]
    half = np.array([0.272, 0.205, 0.058, 0.058, 0.168, 0.854, 0.105, 0.532, 0.535, 2.5, 2.5])
    answers = (2.092, 18.49904, 4.391, 3.744, 10.364, 69.997, 0.524194, 44.3818, 44.6385, 44.1188, 44.6918)
    after = (0.272, 0.137122, 0.0566957, 0.0566957, 0.133016, 0.566796, 0.104563, 0.469808, 0.471702, 1.78991, 1.78991)
    local = {"mHDNK": 0.00684795, "mA7": 0.000342739, "mHK": 0.0297734, "mSPLL": 0.251487, "mSPL": 0.251487}
    local |= {"mFDKELL": 0.887628, "mFDKEL": 0.887628}
    constraint = LinearConstraint.from_equations(texts, outputs=names)
    printed = {"half_widths": after, "statistic": 3.0602, "threshold": 7.8147, "local": local}
    return Example(constraint, np.array(values), half / 1.96, answers, printed=printed)


EXCHANGER = {"splitter": "F1 = F2 + F3", "exchanger": "F2 = F4", "valve": "F3 = F5", "mixer": "F4 + F5 = F6"}


def heat_exchanger(measured: str = "123456", gross_error: float = 0.0) -> Example:
    """A heat exchanger with bypass, the first example of Narasimhan and Jordache, Data Reconciliation and Gross Error
    Detection (Gulf, 2000), chapter 1: all six flows measured, or some; or stream 2 read 4 too high (chapter 7).
    """
    constraint = LinearConstraint.from_equations(EXCHANGER, outputs=[f"F{k}" for k in range(1, 7)])
    values = np.array([101.91, 64.45 + gross_error, 34.65, 64.20, 36.44, 98.88])
    values[[str(k) not in measured for k in range(1, 7)]] = np.nan
    answers = {
        "123456": (100.22, 64.50, 35.72, 64.50, 35.72, 100.22),
        "1256": (100.49, 64.25, 36.24, 64.25, 36.24, 100.49),
    }
    printed = {"residuals": (-1.19, 4.25, -1.79, 1.76), "nodal": (0.6870, 3.0052, 1.2657, 1.0161), "statistic": 16.674}
    return Example(constraint, values, np.ones(6), answers[measured], printed=printed)


def levelling() -> Example:
    """Four heights from eight levelled differences, one height known: a network adjusted by GNU Gama 1.5.

    The heights are not measured, point 1a is given; www.vrmapper.com/gama/1doutput.html prints the adjusted heights and
    differences in m, their standard deviations and 95 % intervals in mm, [pvv] = 146.625 for m₀ = 5 mm and 5 degrees of
    freedom, and that observation 6 has the largest normalized residual, 1.68.
    """
    legs = [("1a", "4"), ("4", "3"), ("3", "2"), ("2", "1a"), ("1a", "2"), ("2", "3"), ("3", "4"), ("4", "1a")]
    observed = [-1.225, -0.848, 1.342, 0.720, -0.724, -1.335, 0.842, 1.231]
    outputs = [f"h{k} [m]" for k in range(1, 9)] + ["z4 [m]", "z3 [m]", "z2 [m]"]
    equations = {f"leg {k}": f"h{k} = z{end} - z{start}" for k, (start, end) in enumerate(legs, start=1)}
    constraint = LinearConstraint.from_equations(equations, inputs=["z1a [m]"], outputs=outputs)
    answers = (-1.22488, -0.84187, 1.34163, 0.72513, -0.72513, -1.34163, 0.84187, 1.22488)
    heights = (998.77513, 997.93325, 999.27487)
    printed = {"std": (*[0.0031] * 8, 0.0031, 0.0035, 0.0031), "half_widths": (*[0.0060] * 8, 0.0060, 0.0069, 0.0060)}
    printed |= {"statistic": 146.625 / 25, "freedom": 5, "largest": ("h6 [m]", 1.68)}
    values = np.array([*observed, NAN, NAN, NAN])
    return Example(constraint, values, np.full(11, 0.005), (*answers, *heights), np.array([1000.0]), printed)


def four_flows() -> Example:
    """Split into halves and joined again: OpenModelica's test dataReconciliation/FourFlows, printed to 6 digits."""
    texts = ["Q2 = 0.5*Q1", "Q1 = Q2 + Q3", "Q4 = Q2 + Q3"]
    constraint = LinearConstraint.from_equations(texts, outputs=["Q1", "Q2", "Q3", "Q4"])
    half = np.array([1.96, 1.91, 1.91, 1.91])
    printed = {"half_widths": (1.22035, 0.610173, 0.610173, 1.22035)}
    answers = (2.04897, 1.02449, 1.02449, 2.04897)
    return Example(constraint, np.array([2.1, 1.1, 0.95, 2.0]), half / 1.96, answers, printed=printed)


STEAM_FLOWS = """0.86 1 111.82 109.95 53.27 112.27 2.32 164.05 0.86 52.41 14.86 67.27 111.27 91.86 60.00 23.64 32.73
16.23 7.95 10.50 87.27 5.45 2.59 46.64 85.45 81.32 70.77 72.23"""
STEAM_NODES = """+1+2+4-3 -5-6+7+8-9 -1+5-10 +10+11-12 +3+13-11-14-15-16-17 -2+6-13 -7+14+18-19-20-21 +15+22-18-23-24
+12+16-22-25 +19+23+27-26 -8+20+26+28"""


def steam_network() -> tuple[LinearConstraint, np.ndarray]:
    """The steam metering network of Serth and Heenan, AIChE J. 32, 733 (1986): 28 flows, 11 nodes, and true flows.

    The printed flows balance to their last digits; here they are made to balance exactly.
    """
    B = np.zeros((11, 28))
    for k, node in enumerate(STEAM_NODES.split()):
        for term in node.replace("+", " +").replace("-", " -").split():
            B[k, abs(int(term)) - 1] = np.sign(int(term))
    printed = np.array(STEAM_FLOWS.split(), float)
    names = [f"F{k}" for k in range(1, 29)]
    constraint = LinearConstraint(B, outputs=names, names=[f"node {k}" for k in range(1, 12)])
    return constraint, printed - np.linalg.pinv(B) @ (B @ printed)


# --- Reconciliation by null space and least squares -------------------------------------------------------------------


@dataclass(frozen=True)
class Plant:
    """One row: values (NaN is not measured), covariance of all of them, balances `C z = b` and their tolerances."""

    C: np.ndarray
    b: np.ndarray
    values: np.ndarray
    V: np.ndarray
    tolerance: np.ndarray

    def in_units(self, of_variables, of_balances):
        """The same plant for `z · of_variables`, with each balance multiplied by its `of_balances`."""
        s, c = np.asarray(of_variables), np.asarray(of_balances)
        V = self.V * s * s[:, None]
        return Plant(c[:, None] * self.C / s, c * self.b, self.values * s, V, self.tolerance * c)

    def permuted(self, variables, balances):
        V = self.V[np.ix_(variables, variables)]
        C = self.C[np.ix_(balances, variables)]
        return Plant(C, self.b[balances], self.values[variables], V, self.tolerance[balances])

    @cached_property
    def constraint(self):
        return LinearConstraint(self.C, b=self.b)

    @property
    def std(self):
        return np.sqrt(np.diagonal(self.V))


@dataclass(frozen=True)
class Fit:
    """What the slow route finds; NaN for what it cannot determine."""

    values: np.ndarray
    covariance: np.ndarray
    statistic: float
    degrees_of_freedom: int
    observable: np.ndarray
    size: float = NAN
    size_std: float = NAN


def fitted(plant: Plant, bias: int | None = None, leak: int | None = None) -> Fit:
    """Reconcile one row; with a free bias of one measurement, or a free leak of one balance, if asked for."""
    C, V = plant.C, plant.V
    m, n = C.shape
    measured = ~np.isnan(plant.values)
    exact = measured & (np.diagonal(V) == 0)
    slack = np.flatnonzero(plant.tolerance > 0)
    columns = [C[:, ~exact], -np.eye(m)[:, slack]] + ([] if leak is None else [-np.eye(m)[:, [leak]]])
    A = np.hstack(columns)
    right = plant.b - C[:, exact] @ plant.values[exact]
    start = np.linalg.lstsq(A, right, rcond=None)[0]
    N = scipy.linalg.null_space(A, rcond=1e-11)
    free = np.flatnonzero(~exact)
    seen = np.flatnonzero(measured[free])
    rows = np.concatenate([seen, len(free) + np.arange(len(slack))])
    F = scipy.linalg.block_diag(np.linalg.cholesky(V[np.ix_(free[seen], free[seen])]), np.diag(plant.tolerance[slack]))
    target = np.concatenate([plant.values[free[seen]], np.zeros(len(slack))]) - start[rows]
    design = np.linalg.solve(F, N[rows])
    if bias is not None:
        own = np.zeros((len(rows), 1))
        own[list(free[seen]).index(bias)] = 1.0
        design = np.hstack([design, np.linalg.solve(F, own)])
    inverse, rank, blind = _inverted(design)
    t = inverse @ np.linalg.solve(F, target)
    moves = np.hstack([N, np.zeros((len(N), design.shape[1] - N.shape[1]))])[: len(free)]
    known = np.abs(moves @ blind).max(axis=1, initial=0.0) < 1e-7
    values, covariance = plant.values.copy(), np.zeros((n, n))
    values[free] = np.where(known, (start[: len(free)] + moves @ t), np.nan)
    own = moves @ inverse
    covariance[np.ix_(free, free)] = own @ own.T
    missed = design @ t - np.linalg.solve(F, target)
    observable = np.ones(n, bool)
    observable[free] = known
    covariance[~observable] = covariance[:, ~observable] = np.nan
    fit = Fit(values, covariance, float(missed @ missed), len(rows) - rank, observable)
    if bias is None and leak is None:
        return fit
    row = np.eye(design.shape[1])[-1] if leak is None else N[-1]  # the error of interest comes last
    size, own = (start[-1] if bias is None else 0.0) + row @ t, row @ inverse
    return replace(fit, size=float(size), size_std=float(np.linalg.norm(own)))


def _inverted(design: np.ndarray) -> tuple[np.ndarray, int, np.ndarray]:
    """Pseudo-inverse, rank, and a basis of what the design does not see."""
    U, s, Vt = np.linalg.svd(design)
    rank = int(np.count_nonzero(s > 1e-11 * s.max(initial=0.0)))
    return (Vt[:rank].T / s[:rank]) @ U[:, :rank].T, rank, Vt[rank:].T


def redundant(plant: Plant, j: int) -> bool:
    """Whether variable j would be determined if it were not measured: the definition."""
    values = plant.values.copy()
    values[j] = np.nan
    return bool(fitted(replace(plant, values=values)).observable[j])


def random_plant(
    seed: int, n: int = 9, m: int = 4, *, missing: int = 0, exact: int = 0, tolerant: int = 0, correlated: bool = False
) -> Plant:
    """A sparse random plant; exact values obey the balances, measured ones miss them by their errors."""
    rng = np.random.default_rng(seed)
    while True:
        C = np.where(rng.random((m, n)) < 0.45, rng.choice([-2.0, -1.0, 1.0, 0.5], (m, n)), 0.0)
        if np.linalg.matrix_rank(C) == m:
            break
    truth = 10 * rng.standard_normal(n)
    std = np.exp(rng.standard_normal(n))
    order = rng.permutation(n)
    std[order[missing : missing + exact]] = 0.0
    root = rng.standard_normal((n, n)) / np.sqrt(n) + np.eye(n) if correlated else np.eye(n)
    root = std[:, None] * root / np.linalg.norm(root, axis=1, keepdims=True)
    tolerance = np.zeros(m)
    tolerance[rng.permutation(m)[:tolerant]] = 0.5 + rng.random(tolerant)
    values = truth + root @ rng.standard_normal(n)
    values[order[:missing]] = np.nan
    return Plant(C, C @ truth + tolerance * rng.standard_normal(m), values, root @ root.T, tolerance)


def in_fifty_digits(plant: Plant) -> tuple[np.ndarray, np.ndarray, float]:
    """Values, variances and statistic of one row by the Lagrange equations; everything must be determined."""
    with mpmath.workdps(50):
        m, n = plant.C.shape
        seen = [j for j in range(n) if not np.isnan(plant.values[j])]
        C, b = mpmath.matrix(plant.C.tolist()), mpmath.matrix(plant.b.tolist())
        V = mpmath.matrix(plant.V[np.ix_(seen, seen)].tolist())
        weight = V**-1
        K = mpmath.zeros(n + m)
        right = mpmath.zeros(n + m, 1)
        x = mpmath.matrix([float(plant.values[j]) for j in seen])
        for i, j in enumerate(seen):
            right[j] = (weight[i, :] * x)[0]
            for k, other in enumerate(seen):
                K[j, other] = weight[i, k]
        for k in range(m):
            right[n + k] = b[k]
            K[n + k, n + k] = -(mpmath.mpf(float(plant.tolerance[k])) ** 2)
            for j in range(n):
                K[n + k, j] = K[j, n + k] = C[k, j]
        inverse = K**-1
        z = inverse * right
        moved = mpmath.matrix([z[j] for j in seen]) - x
        slack = [z[n + k] * mpmath.mpf(float(plant.tolerance[k])) for k in range(m)]
        statistic = (moved.T * weight * moved)[0] + mpmath.fsum(s * s for s in slack)
        values = np.array([float(z[j]) for j in range(n)])
        return values, np.array([float(inverse[j, j]) for j in range(n)]), float(statistic)
