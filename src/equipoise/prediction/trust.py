"""Trust in balances and sensors after a fit: tolerances, biases, sensor noise, and how far data determine them."""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from equipoise.balances import Equality, Residual, ToleranceEvidence, verdict
from equipoise.data import PIECE, AnyRows, Comoments, Rows, Standardizer, Table, mean_sensor_var, pieces
from equipoise.gaussian import GaussianOffset, VariancePosterior
from equipoise.network import ConstrainedBNN, NetworkGaussian

Array = NDArray[np.float64]
HALF_WIDTH = 1.959964  # of a 95 % interval, in standard errors: the meaning of ± in notes and tables
EVIDENCE_WORK = 2**22  # rows × draws × grid points × balances at most, over which log-likelihoods are evaluated
EVIDENCE_DRAWS = 4  # weight draws over which log-likelihoods are averaged
MOST_ROWS = 100_000  # over which averages are computed, evenly spaced
AT_ONCE = PIECE // EVIDENCE_DRAWS  # rows


def residuals(constraint: Equality, X: Table, Y: Table, relative_rounding: float) -> list[Residual]:
    """Compute the systematic residual of each balance over all rows in which all its outputs were measured (Z1).

    Args:
        constraint: The balances, in the user's units.
        X, Y: Inputs and measured outputs, in the user's units.
        relative_rounding: Largest residual, relative to the sum of a balance's absolute terms, that is rounding alone.
    Returns:
        For each balance the mean residual, its standard error, and its dependence on the inputs.
    """
    largest = [np.nanmax(constraint.magnitude(x, y), axis=0, initial=0.0) for x, y in pieces(X, Y)]
    rounding = relative_rounding * np.max(largest, axis=0)
    together = [Comoments.over(_beside(constraint, k, X, Y)) for k in range(constraint.n_balances)]
    return [_residual(each, constraint.columns, float(rounding[k])) for k, each in enumerate(together)]


def _beside(constraint: Equality, k: int, X: Table, Y: Table) -> Iterator[Array]:
    """Yield the residual of balance number k beside the inputs, shape `(n, 1 + n_x)`, for rows where it is known."""
    for x, y in pieces(X, Y):
        z = constraint.residual(x, y)[:, k]
        seen = ~np.isnan(z)
        yield np.column_stack([z[seen], x[seen]])


def _residual(comoments: Comoments, columns: tuple[str, ...], rounding: float) -> Residual:
    n = int(comoments.count[0])
    if n < 3:
        return Residual(math.nan, math.nan, math.nan, n, rounding=rounding)
    mean, std, error = (float(each[0]) for each in (comoments.mean, comoments.std, comoments.standard_error))
    if not columns or std <= rounding:
        return Residual(mean, error, std, n, rounding=rounding)
    correlation = comoments.correlation[1:]
    worst = int(np.abs(correlation).argmax())
    r = float(np.clip(correlation[worst], -1 + 1e-12, 1 - 1e-12))
    z_value = r * math.sqrt((n - 2) / (1 - r * r))
    slope = r * math.sqrt(comoments.var[0])
    return Residual(mean, error, std, n, columns[worst], slope, z_value, rounding, len(columns))


@torch.no_grad()
def tolerance_evidence(
    model: ConstrainedBNN, rows: AnyRows, seed: int, grid_points: int = 13
) -> list[ToleranceEvidence | None]:
    """Measure for each learned tolerance how much the data determine it, and how far training is from its optimum.

    Both follow from the expected log-likelihood as a function of one `ρ`, with the weights fixed and the other
    tolerances at their medians. All values of `ρ` share the same weight draws and rows, so that their differences have
    no sampling noise.

    Args:
        model: The fitted model.
        rows: The rows it was trained on; if there are many, evenly spaced ones are used.
        seed: Seed of the weight draws.
        grid_points: Number of values of `ρ` over prior mean ± 3 standard deviations.
    Returns:
        For each balance its `ToleranceEvidence`, None for a tolerance that is not learned.
    """
    layer = model.conditioning
    if layer is None:
        return []
    q, learned = layer.tolerance, layer.tolerance.learned.tolist()
    if not any(learned):
        return [None] * len(learned)
    index = _spaced(rows, EVIDENCE_WORK // (EVIDENCE_DRAWS * grid_points * sum(learned) ** 2))
    parts = [rows.take(part) for part in index.split(AT_ONCE)]
    priors = [_few_draws(model, part, seed) for part in parts]
    expected = _ExpectedLogLikelihood(model, priors, parts, len(rows) / len(index))
    return [_evidence_of_balance(expected, q, k, grid_points) if learned[k] else None for k in range(len(learned))]


@torch.no_grad()
def balance_residual_var(model: ConstrainedBNN, rows: AnyRows, seed: int) -> Float[Tensor, " m"]:
    """Compute the posterior variance of each balance's relative residual, averaged over rows, tolerances at medians.

    ::

        (B Σ_C Bᵀ)_kk = r_k − r_k² (S⁻¹)_kk                                        (Z4)

    which is `r_k` where the network's own variance is large, and less where that is small. The paper's likelihood takes
    outputs for independent; the variance is then `Σ_j B_kj² v_C,j`.

    Args:
        model: The fitted model.
        rows: Rows to average over; if there are more than `MOST_ROWS`, evenly spaced ones.
        seed: Seed of the weight draws.
    Returns:
        Variances in units of the balances' squared scales `c_k²`, shape `(m,)`.
    """
    layer = model.conditioning
    if layer is None:
        return torch.zeros(0, dtype=torch.float64)
    r = layer.tolerance.median()
    index = _spaced(rows, min(MOST_ROWS, EVIDENCE_WORK // (EVIDENCE_DRAWS * max(1, len(r)) ** 2)))
    sums = [_balance_residual_var_of_rows(model, rows.take(part), r, seed).sum(0) for part in index.split(AT_ONCE)]
    return torch.stack(sums).sum(0) / len(index)


def _balance_residual_var_of_rows(
    model: ConstrainedBNN, rows: Rows, r: Float[Tensor, " m"], seed: int
) -> Float[Tensor, "n m"]:
    """Compute the posterior variance of each balance's relative residual in each row, averaged over draws (Z4)."""
    conditioned = model.condition(_few_draws(model, rows, seed), rows.target, r, B=rows.B)
    if conditioned.n_balances == 0:  # the model imposes balances in another way
        return r.expand(len(rows), -1)
    return conditioned.residual_var(model.likelihood.is_joint).mean(0)  # Z4


@torch.no_grad()
def mean_sensor_var_over_rows(model: ConstrainedBNN, rows: AnyRows, seed: int) -> Float[Tensor, " n_y"]:
    """Average sensor variances over rows, in standardized units: known ones, or `ω κ(x)` with `ω` at its median.

    Args:
        model: The fitted model.
        rows: Rows to average over: all for variances known per row, else at most `MOST_ROWS`, evenly spaced.
        seed: Seed of the weight draws.
    Returns:
        Mean variances `w`, shape `(n_y,)`; 0 without sensors.
    """
    if (known := mean_sensor_var(rows)) is not None:
        return known
    if model.sensor is None:
        return torch.zeros(model.network.n_outputs, dtype=torch.float64)
    index, omega = _spaced(rows, MOST_ROWS), model.sensor.median()
    priors = (_few_draws(model, rows.take(part), seed) for part in index.split(AT_ONCE))
    return torch.stack([model.sensor_var(omega, prior).mean(0).sum(0) for prior in priors]).sum(0) / len(index)


def _spaced(rows: AnyRows, budget: int) -> Tensor:
    """Return the positions of at most `budget` rows, but of 64 at least, evenly spaced."""
    n_rows = int(min(len(rows), max(64, budget)))
    return torch.linspace(0, len(rows) - 1, n_rows, dtype=torch.float64).round().long()


def _few_draws(model: ConstrainedBNN, rows: Rows, seed: int) -> NetworkGaussian:
    """Evaluate the network at a few weight draws for all rows, before conditioning."""
    return model.network.at_draws(model.draw(seed, 0).weights[:EVIDENCE_DRAWS], rows.x)


@dataclass(frozen=True)
class _ExpectedLogLikelihood:
    """The function `Σ_i E_θ log p(y_i | θ, r)` of tolerances `r`, scaled up from a subset of the rows, part by part.

    Args:
        model: The fitted model.
        priors: The network's Gaussians before conditioning, for each part of the rows.
        rows: The parts.
        factor: Number of all rows divided by the number of these.
    """

    model: ConstrainedBNN
    priors: list[NetworkGaussian]
    rows: list[Rows]
    factor: float

    def __call__(self, tol_var: Tensor) -> float:
        parts = zip(self.priors, self.rows, strict=True)
        return self.factor * sum(self._of_part(prior, rows, tol_var) for prior, rows in parts)

    def _of_part(self, prior: NetworkGaussian, rows: Rows, tol_var: Tensor) -> float:
        model, layer = self.model, self.model.conditioning
        offset = None if layer is None or layer.offset is None else layer.offset.loc
        conditioned = model.condition(prior, rows.target, tol_var, offset, rows.B)
        w = rows.sensor_var
        if w is None:
            w = 0.0 if model.sensor is None else model.sensor_var(model.sensor.median(), prior)
        return float(model.likelihood(conditioned, rows.y, w).mean(0).sum())


def _evidence_of_balance(
    expected: _ExpectedLogLikelihood, q: VariancePosterior, k: int, grid_points: int
) -> ToleranceEvidence:
    grid, r = q.evidence_grid(k, grid_points), q.median()

    def value(r_k: Tensor) -> float:
        tol_var = r.clone()
        tol_var[k] = r_k
        return expected(tol_var)

    values = np.array([value(r_k) for r_k in grid.variances])
    over_prior, posterior = values[: grid.n_over_prior], values + grid.log_prior.cpu().numpy()
    shortfall = posterior.max() - posterior[grid.centre]
    return ToleranceEvidence(float(over_prior.max() - over_prior.min()), float(shortfall) / expected.factor)


def tolerance_table(
    model: ConstrainedBNN,
    standardizer: Standardizer,
    evidence_by_balance: list[ToleranceEvidence | None],
    systematic: list[Residual],
    obeyed_to_rounding: NDArray[np.bool_],
    sensor_var: Array,
    residual_var: Array,
) -> pd.DataFrame:
    """Tabulate the balances: tolerance in own unit and relative, how far the data determine it, and residual.

    Args:
        model, standardizer: Fitted model and change of units.
        evidence_by_balance: Result of `tolerance_evidence`, one for each balance; empty without balances.
        systematic: Result of `residuals`.
        obeyed_to_rounding: Which balances the data obey to rounding.
        sensor_var: Result of `mean_sensor_var_over_rows`, shape `(n_y,)`.
        residual_var: Result of `balance_residual_var`, shape `(m,)`.
    Returns:
        One row per balance, empty without balances.
    """
    layer, constraint = model.conditioning, standardizer.constraint
    if layer is None or constraint is None:
        return pd.DataFrame()
    sensor_learned = np.zeros(constraint.n_outputs, dtype=bool)
    if model.sensor is not None:
        sensor_learned = model.sensor.learned.cpu().numpy()
    records, kl_at_start = [], layer.tolerance.kl_at_start()
    for k, name in enumerate(constraint.names):
        record = {"balance": name, "unit": constraint.units[k]}
        record |= layer.tolerance.summary(k, float(standardizer.row_scale[k]))
        if obeyed_to_rounding[k] and record["kind"] == "exact":
            record["kind"] = "exact to rounding"
        evidence = evidence_by_balance[k] if evidence_by_balance else None
        kl = record["kl"] - float(kl_at_start[k])
        record["information"] = math.nan if evidence is None else evidence.information
        both = record["kind"] == "learned" and bool((sensor_learned & constraint.pattern[k]).any())
        record["informed"] = verdict(record["kind"], kl, evidence) == "informed"
        record["separable"] = not both
        record["verdict"] = verdict(record["kind"], kl, evidence, separable=not both)
        record["biased"] = systematic[k].biased
        w = float((standardizer.typical_B[k] ** 2 * sensor_var).sum())
        record["noise_std"] = math.sqrt(float(residual_var[k]) + w) * float(standardizer.row_scale[k])
        record["note"] = _note(record, systematic[k], constraint.units[k])
        record |= {f"residual_{key}": value for key, value in asdict(systematic[k]).items()}
        record |= _offset_record(layer.offset, k, float(standardizer.row_scale[k]))
        records.append(record)
    return pd.DataFrame(records).set_index("balance")


def _offset_record(offset: GaussianOffset | None, k: int, scale: float) -> dict:
    if offset is None:
        return {"offset": 0.0, "offset_std": 0.0}
    return {"offset": float(offset.loc[k].detach()) * scale, "offset_std": float(offset.std[k].detach()) * scale}


def _note(record: dict, residual: Residual, unit: str | None) -> str:
    """Write the remarks on one balance."""
    unit = f" {unit}" if unit else ""
    notes = []
    if not record["separable"]:
        together = f"{record['noise_std']:.3g}{unit}"
        notes.append(f"tolerance not separable from sensor noise: only both together are known, {together}")
    if record["kind"] == "learned" and record["noise_std"] < 0.5 * record["tol_std"]:
        notes.append("the balance hardly acts: its tolerance is wider than the network's own spread")
    if residual.mean_is_biased:
        notes.append(f"biased by {residual.mean:.3g} ± {HALF_WIDTH * residual.se:.2g}{unit}")
    elif record["biased"]:
        notes.append(f"biased: residual changes by {residual.input_slope:.3g}{unit} per sd of '{residual.input}'")
    scatter, explained = residual.std, record["noise_std"]
    margin = 1.0 + 4.0 / math.sqrt(2.0 * max(residual.n_rows, 1))  # 4 standard errors of a standard deviation
    if scatter > max(margin * explained, residual.rounding):
        notes.append(f"the data scatter by {scatter:.3g}{unit}, more than tolerance and sensors explain")
    elif explained > 1.25 * margin * scatter:
        notes.append(f"the data scatter by {scatter:.3g}{unit} only, less than tolerance and sensors together")
    return "; ".join(notes)


def sensor_table(
    model: ConstrainedBNN, standardizer: Standardizer, outputs: tuple[str, ...], sensor_var: Array
) -> pd.DataFrame:
    """Tabulate the sensors: standard deviation in the output's unit, with a 95 % interval where it is learned.

    The interval is that of the level `ω`; the dependence of the noise on the inputs (V4) is taken as learned.

    Args:
        model, standardizer: Fitted model and change of units.
        outputs: Names of the outputs.
        sensor_var: Result of `mean_sensor_var_over_rows`, shape `(n_y,)`.
    Returns:
        One row per output.
    """
    q, index = model.sensor, pd.Index(outputs, name="output")
    std = np.sqrt(sensor_var) * standardizer.y_std
    if q is None:
        kind = np.where(std > 0, "given per row", "none")
        return pd.DataFrame({"std": std, "lower": std, "upper": std, "kl": 0.0, "kind": kind}, index=index)
    with torch.no_grad():
        typical = q.median().clamp_min(torch.finfo(torch.float64).tiny)
        ends = (q.from_normal(torch.full_like(typical, z)) for z in (-1.96, 1.96))
        lower, upper = ((end / typical).sqrt().cpu().numpy() for end in ends)
        kl, learned = q.kl_terms().cpu().numpy(), q.learned.cpu().numpy()
    kind = np.where(learned, "learned", np.where(std > 0, "given", "none"))
    columns = {"std": std, "lower": lower * std, "upper": upper * std, "kl": kl, "kind": kind}
    return pd.DataFrame(columns, index=index)
