"""Results of a run of the battery study: the documented content of results.json, and its summary over seeds.

Tables, figures and the report read only this file and the arrays beside it. Scores are over the test rows, and all but
`coverage`, `joint_nll` and the violations are normalised by the standard deviations of the training outputs,
`output_std`: those of y by `s`, those of y² by `s²`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args

import numpy as np
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from equipoise import EquipoiseError
from studies.battery.files import write_text

NAMES = {
    "bnn": "BNN",
    "paper": "Paper's method",
    "bnn_residuals": "BNN from residuals",
    "paper_residuals": "Paper's method from residuals",
    "equipoise": "Equipoise",
}
MODELS = tuple(NAMES)
WITH_BALANCES = ("paper", "paper_residuals", "equipoise")
VOLTAGES = ("V", "V_OCV", "eta_p", "eta_n", "dV_IR")
HEATS = ("Q_tot", "Q_rev", "Q_irr")

T = TypeVar("T")
Model = TypeVar("Model", bound=BaseModel)
OutputKey = Literal["V", "V_OCV", "eta_p", "eta_n", "dV_IR", "Q_tot", "Q_rev", "Q_irr"]
KEYS = get_args(OutputKey)


class ResultsError(EquipoiseError, ValueError):
    """A file that does not hold results."""


def _every_output(values: dict[OutputKey, T]) -> dict[OutputKey, T]:
    missing = [key for key in KEYS if key not in values]
    if missing:
        raise ValueError(f"every output must have a value, but got none for {', '.join(missing)}")
    return values


PerOutput = Annotated[dict[OutputKey, T], AfterValidator(_every_output)]


class _Record(BaseModel):
    """A record that cannot be changed and has no other keys; NaN and ∞ are written as JSON's usual extensions."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")


# --- One model --------------------------------------------------------------------------------------------------------


class ScoreByOutput(_Record):
    """A number for each output, and their average."""

    overall: float = Field(description="Mean over the outputs.")
    sd_over_outputs: float = Field(description="Standard deviation over the outputs (ddof 1), for 'mean ± 1.96 sd'.")
    by_output: PerOutput[float] = Field(description="The score of each output.")

    @classmethod
    def of(cls, by_output: Mapping[Any, float]) -> ScoreByOutput:
        """Average the scores of the outputs."""
        values = list(by_output.values())
        return cls(overall=np.mean(values).item(), sd_over_outputs=np.std(values, ddof=1).item(), by_output=by_output)  # type: ignore[arg-type]


class Violation(_Record):
    """Magnitudes of residuals over posterior draws and test rows."""

    mean: float = Field(description="Mean over draws and rows.")
    median: float = Field(description="Median over draws and rows, from a histogram with bins of 0.02 decades.")
    sd_over_draws: float = Field(description="Standard deviation over the draws of each draw's mean over the rows.")


class Violations(_Record):
    """Sizes of the balances' residuals, in their own units (V and W/m³) and relative to their scales `c_k`."""

    overall: Violation = Field(
        description="Violation of both balances: the mean of their |residuals|, in the data's own units."
    )
    voltage: Violation = Field(description="Violation of the voltage balance: its |residual| in V.")
    heat: Violation = Field(description="Violation of the heat balance: its |residual| in W/m³.")
    overall_relative: Violation = Field(description="Violation of both balances: the mean of their |residual| / c_k.")
    voltage_relative: Violation = Field(description="Violation of the voltage balance: its |residual| / c_k.")
    heat_relative: Violation = Field(description="Violation of the heat balance: its |residual| / c_k.")


class CoverageRecord(_Record):
    """Shares of the test rows with measured values inside intervals of given probabilities."""

    levels: tuple[float, ...] = Field(description="Nominal probabilities of central intervals.")
    coverage: PerOutput[tuple[float, ...]] = Field(
        description="Share of rows inside these intervals, one number for each level."
    )
    pit_counts: PerOutput[tuple[int, ...]] = Field(
        description="Rows in each of 20 equal bins of F(y), the predictive distribution function at the measured value."
    )


class LedgerTerms(_Record):
    """The terms of one output's predictive variance: averages over test rows, in units of its training variance.

    `total = aleatoric − reduction + epistemic + shift + interaction + sensor`.
    """

    aleatoric: float = Field(description="The network's own noise before conditioning, E[v].")
    reduction: float = Field(description="Variance that the balances take away, E[diag(K S Kᵀ)]; it is subtracted.")
    epistemic: float = Field(description="Disagreement between weight draws before conditioning, Var[μ].")
    shift: float = Field(description="Variance of the shift of the mean by conditioning, Var[Δ].")
    interaction: float = Field(
        description="Covariance term 2 Cov[μ, Δ]; negative where conditioning undoes disagreement."
    )
    sensor: float = Field(description="Sensor noise, E[w].")
    total: float = Field(description="Variance of measured values, the sum of the terms.")
    before: float = Field(description="Variance of the same network before conditioning.")
    tolerance_share: float = Field(description="The tolerances' own share, E_θ[Var_r μ_C], a part of `shift`.")
    lost_without: dict[str, float] = Field(description="By balance, the reduction lost if it alone were left out.")


class TrainingRecord(_Record):
    """A summary of the training."""

    epochs: int = Field(description="Epochs that were run, both phases together.")
    best_epoch: int = Field(description="Epoch whose weights were kept, from 0; −1 if none was chosen.")
    seconds: float = Field(description="Time spent in epochs.")
    stopped: str = Field(description="Reason for which training ended.")


class ModelResults(_Record):
    """All scores of one model on the test rows."""

    mse_noisy: ScoreByOutput = Field(description="Squared error of predictive means against measured values, over s².")
    mse_true: ScoreByOutput = Field(description="Squared error of predictive means against noise-free values, over s².")
    mse_true_voltages: float = Field(description="Mean of `mse_true` over the five voltages.")
    mse_true_heats: float = Field(description="Mean of `mse_true` over the three heats.")
    coverage: ScoreByOutput = Field(description="Share of measured values inside their central 95 % intervals.")
    interval_width: ScoreByOutput = Field(description="Mean width of these intervals, over s.")
    aleatoric: ScoreByOutput = Field(description="Mean over rows of √(E[v_C] + E[w]), over s.")
    epistemic: ScoreByOutput = Field(description="Mean over rows of √Var[μ_C], over s.")
    crps: ScoreByOutput = Field(description="Mean continuous ranked probability score of measured values, over s.")
    joint_nll: float = Field(description="Mean −log p(y) of whole measured rows, in nats per row, in the data's units.")
    energy_score: float = Field(description="Mean energy score of whole measured rows, outputs divided by s.")
    violation_of_means: Violations = Field(description="Violations by the conditioned mean of each posterior draw.")
    violation_of_draws: Violations = Field(
        description="Violations by a draw of the true outputs from each posterior draw."
    )
    observation_std: PerOutput[float] = Field(
        description="Learned noise √(mean over rows of E[v_C] + E[w]), without epistemic terms, in the output's unit."
    )
    sensor_std: PerOutput[float] = Field(description="Sensor noise alone, in the output's unit; 0 where not modelled.")
    calibration: CoverageRecord = Field(description="Coverage at several levels, and histograms of F(y).")
    ledger: PerOutput[LedgerTerms] = Field(description="The exact account of the variance of measured values.")
    history: TrainingRecord = Field(description="The course of training.")


# --- Balances ---------------------------------------------------------------------------------------------------------


class Tolerance(_Record):
    """The learned tolerance variance r of one balance, in the square of its unit; `ρ = log r`."""

    mu_rho: float = Field(description="Mean of ρ under the posterior.")
    sigma_rho: float = Field(description="Standard deviation of ρ under the posterior.")
    mu_rho_relative: float = Field(description="Mean of log(r / c_k²).")
    mean_r: float = Field(description="Mean E[r] of the log-normal distribution.")
    std_r: float = Field(description="Standard deviation Std[r] of the log-normal distribution.")
    paper_mean_r: float = Field(description="The number exp(μ_ρ), which the paper prints as E[r].")
    paper_std_r: float = Field(description="The number σ_ρ exp(μ_ρ), which the paper prints as Std[r].")
    kl: float = Field(description="Divergence KL(q‖p) of ρ in nats.")
    contraction: float = Field(description="Contraction 1 − var_q / var_p of ρ.")
    informed: bool = Field(description="True if the data informed the posterior.")
    verdict: str = Field(description="Verdict in words on what the data taught about ρ.")
    unit: str = Field(description="Unit of the balance.")
    tol_std: float = Field(description="Standard deviation √r at its median, in the balance's unit.")
    noise_std: float = Field(
        description="Standard deviation of the residual of measured values that the model expects."
    )


class Tolerances(_Record):
    """The tolerance of each balance."""

    voltage: Tolerance = Field(description="Tolerance of the balance V = V_OCV − eta_p − eta_n − dV_IR.")
    heat: Tolerance = Field(description="Tolerance of the balance Q_tot = Q_rev + Q_irr.")


class Scales(_Record):
    """The scale `c_k = sqrt(Σ_j B_kj² s_j²)` of each balance, which makes residuals and tolerances relative."""

    voltage: float = Field(description="Scale of the voltage balance in V.")
    heat: float = Field(description="Scale of the heat balance in W/m³.")


# --- The study --------------------------------------------------------------------------------------------------------


class ModelsResults(_Record):
    """All models, on the same data."""

    bnn: ModelResults = Field(description="The paper's Bayesian network without balances, trained as in the paper.")
    paper: ModelResults = Field(description="The paper's constrained network, trained as in the paper.")
    bnn_residuals: ModelResults = Field(description="The network without balances, with our training.")
    paper_residuals: ModelResults = Field(description="The paper's constrained network, with our training.")
    equipoise: ModelResults = Field(description="Our model: joint likelihood, sensor noise, relative tolerances.")


class ModelsTolerances(_Record):
    """The models that have balances."""

    paper: Tolerances = Field(description="Tolerances under the prior N(−2, 1) on log r in the balance's own unit.")
    paper_residuals: Tolerances = Field(description="Tolerances under the same prior, with our training.")
    equipoise: Tolerances = Field(description="Tolerances under a prior on the relative tolerance.")


class ObservationStd(_Record):
    """Noise of the measurements, in each output's unit."""

    true: PerOutput[float] = Field(description="Noise that was added: root mean square over the test rows.")
    learned: PerOutput[float] = Field(description="Noise that our model learned: its `observation_std`.")


class Variable(_Record):
    """One line of the table of inputs and outputs."""

    role: Literal["input", "output"] = Field(description="Role of the variable in the networks.")
    symbol: str = Field(description="Symbol, as in the keys of this file.")
    description: str = Field(description="Name of the variable in words.")
    unit: str = Field(description="Unit; empty for pure numbers.")
    min: float = Field(description="Least value in the data, without noise.")
    max: float = Field(description="Greatest value in the data, without noise.")


class SplitSizes(_Record):
    """Numbers of rows."""

    train: int = Field(description="Number of rows that weights are fitted to.")
    validation: int = Field(description="Number of rows that decide on stopping and tuning.")
    test: int = Field(description="Number of rows of every score in this file.")


class Versions(_Record):
    """Versions of the packages that the run was made with."""

    python: str = Field(description="Version of Python.")
    torch: str = Field(description="Version of PyTorch.")
    numpy: str = Field(description="Version of NumPy.")
    pybamm: str = Field(description="Version of PyBaMM.")
    equipoise: str = Field(description="Version of this package.")


class Results(_Record):
    """The content of results.json: one run of the study with one seed."""

    seed: int = Field(description="Seed of noise, split and training.")
    models: ModelsResults = Field(description="All scores, by model.")
    tolerances: ModelsTolerances = Field(description="Learned tolerances of the balances, by model.")
    observation_std: ObservationStd = Field(description="True and learned noise by output.")
    sensor_std: PerOutput[float] = Field(description="Our model's sensor noise alone, in the output's unit.")
    output_std: PerOutput[float] = Field(description="Standard deviations s of the training outputs.")
    scales: Scales = Field(description="Scales c_k of the balances.")
    input_output_table: tuple[Variable, ...] = Field(description="The variables and their ranges.")
    rows: SplitSizes = Field(description="Number of rows in each part of the data.")
    config: dict[str, Any] = Field(description="All settings of the run.")
    seconds: dict[str, float] = Field(
        description="Time of each model's fit and evaluation, their sum 'total', and of 'this start', the last one."
    )
    versions: Versions = Field(description="Versions of everything that numbers depend on.")
    deterministic: ScoreByOutput | None = Field(
        default=None,
        description="Normalised MSE against the truth of the same network on squared error for as many epochs.",
    )


# --- Several seeds ----------------------------------------------------------------------------------------------------


class Estimate(_Record):
    """A number over several seeds."""

    mean: float = Field(description="Mean over the seeds.")
    standard_error: float = Field(description="sd / √n over the seeds (ddof 1); NaN for a single one.")

    @classmethod
    def of(cls, values: Sequence[float]) -> Estimate:
        """Average a number over seeds."""
        n = len(values)
        with np.errstate(invalid="ignore"):  # ∞ − ∞ where a score is infinite: the error is NaN, as it should be
            error = np.std(values, ddof=1).item() / np.sqrt(n).item() if n > 1 else np.nan
        return cls(mean=np.mean(values).item(), standard_error=error)


class SeedSummary(_Record):
    """Mean ± standard error over seeds of every number in the headline tables."""

    seeds: tuple[int, ...] = Field(description="Seeds of the runs.")
    numbers: dict[str, Estimate] = Field(
        description="Estimates by path in results.json, such as 'models.bnn.mse_true.overall'; yes/no counts as 1/0."
    )

    @classmethod
    def of(cls, runs: Sequence[Results]) -> SeedSummary:
        """Average the headline numbers of runs with different seeds."""
        seeds = tuple(run.seed for run in runs)
        if not runs or len(set(seeds)) < len(seeds):
            raise ValueError(f"A summary needs at least one run and runs of different seeds, but got seeds {seeds}.")
        tables = [headline(run) for run in runs]
        return cls(seeds=seeds, numbers={path: Estimate.of([table[path] for table in tables]) for path in tables[0]})


def headline(results: Results) -> dict[str, float]:
    """Return the numbers of the headline tables by their paths in results.json.

    These are the models' scores, violations and noise, the tolerances and the observation noise, but not the
    calibration curves, the ledgers and the course of training.
    """
    detail = {name: {"calibration", "ledger", "history"} for name in MODELS}
    parts = {"models", "tolerances", "observation_std", "sensor_std"}
    return dict(_numbers(results.model_dump(include=parts, exclude={"models": detail}), ""))


def _numbers(tree: Mapping[str, Any], above: str) -> Iterator[tuple[str, float]]:
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from _numbers(value, f"{above}{key}.")
        elif isinstance(value, bool | int | float):
            yield f"{above}{key}", float(value)


# --- Files ------------------------------------------------------------------------------------------------------------


def write(results: BaseModel, path: str | os.PathLike) -> None:
    """Write results, or another record of this module, as JSON.

    Args:
        results: The record.
        path: The file; replaced if it exists.
    """
    write_text(Path(path), results.model_dump_json(indent=2) + "\n")


def read(path: str | os.PathLike, kind: type[Model] = Results) -> Model:
    """Read a file that `write` wrote.

    Args:
        path: The file.
        kind: Class of the record in it.
    Raises: ResultsError, if it is not such a file.
    """
    try:
        return kind.model_validate_json(Path(path).read_bytes())
    except OSError as error:
        raise ResultsError(f"'{path}' cannot be read ({error.strerror}). Run the study first.") from error
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the file as a whole"
        message = f"'{path}' must hold {kind.__name__}, but got something else at {place} ({first['msg']})"
        raise ResultsError(f"{message}. Delete it and run the study again.") from error
