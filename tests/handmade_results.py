"""Made-up results of the battery study, complete and of realistic size, for tests of whatever reads them."""

import numpy as np

from equipoise.rivals.cases.battery.cell import KEYS
from studies.battery.results import (
    HEATS,
    MODELS,
    VOLTAGES,
    CoverageRecord,
    LedgerTerms,
    ModelResults,
    ModelsResults,
    ModelsTolerances,
    ObservationStd,
    Results,
    Scales,
    ScoreByOutput,
    SplitSizes,
    Tolerance,
    Tolerances,
    TrainingRecord,
    Variable,
    Versions,
    Violation,
    Violations,
)

OUTPUT_STD = dict(zip(KEYS, (0.28, 0.26, 0.021, 0.017, 0.043, 52_000.0, 9_300.0, 48_000.0), strict=True))
TRUE_STD = {key: 0.0036 if key in VOLTAGES else 0.0405 for key in KEYS}
SCALES = Scales(voltage=0.387, heat=71_400.0)
LEVELS = (0.5, 0.8, 0.9, 0.95, 0.99)
TEST_ROWS = 4_200

# By model: how its numbers differ from one another.
MSE_TRUE = {"bnn": 1.9e-4, "paper": 1.6e-4, "bnn_residuals": 1.8e-4, "paper_residuals": 1.5e-4, "equipoise": 1.2e-4}
WIDTH = {"bnn": 0.31, "paper": 0.29, "bnn_residuals": 0.305, "paper_residuals": 0.3, "equipoise": 0.27}
NLL = {"bnn": 6.1, "paper": 5.8, "bnn_residuals": 5.1, "paper_residuals": 4.8, "equipoise": -0.9}
MEANS = {
    "bnn": (4.1e-3, 260.0),
    "paper": (3.2e-5, 2.1e-3),
    "bnn_residuals": (4.0e-3, 250.0),
    "paper_residuals": (1.2e-3, 2.5),
    "equipoise": (6.4e-6, 0.9),
}
DRAWS = {
    "bnn": (8.2e-3, 610.0),
    "paper": (7.9e-3, 590.0),
    "bnn_residuals": (8.1e-3, 600.0),
    "paper_residuals": (7.8e-3, 580.0),
    "equipoise": (2.3e-4, 1.7),
}
SENSOR = {"bnn": 0.0, "paper": 0.0, "bnn_residuals": 0.0, "paper_residuals": 0.0, "equipoise": 0.98}


def example(seed: int = 0) -> Results:
    """Results of one run; other seeds give slightly other numbers."""
    rng = np.random.default_rng(seed)
    models = ModelsResults(**{name: model(name, rng) for name in MODELS})
    observed = ObservationStd(true=TRUE_STD, learned=models.equipoise.observation_std)
    return Results(
        seed=seed,
        models=models,
        tolerances=ModelsTolerances(
            paper=paper_tolerances(rng), paper_residuals=paper_tolerances(rng), equipoise=our_tolerances(rng)
        ),
        observation_std=observed,
        sensor_std=models.equipoise.sensor_std,
        output_std=OUTPUT_STD,
        scales=SCALES,
        input_output_table=variables(),
        rows=SplitSizes(train=12_600, validation=4_200, test=TEST_ROWS),
        config={"data": {"seed": seed, "split": [0.6, 0.2, 0.2]}, "hidden": [64, 64, 64], "max_epochs": 500},
        seconds={"data": 3.4, "bnn": 88.0, "paper": 101.0, "equipoise": 109.0, "evaluation": 120.0, "total": 421.4},
        versions=Versions(python="3.11.7", torch="2.13.0", numpy="2.4.6", pybamm="26.10.1.1", equipoise="0.1.0"),
    )


def model(name: str, rng: np.random.Generator) -> ModelResults:
    noise = {key: TRUE_STD[key] / OUTPUT_STD[key] for key in KEYS}
    mse_true = jittered(dict.fromkeys(KEYS, MSE_TRUE[name]), rng, 0.3)
    observed = jittered(TRUE_STD, rng, 0.05)
    return ModelResults(
        mse_noisy=ScoreByOutput.of({key: mse_true[key] + noise[key] ** 2 for key in KEYS}),
        mse_true=ScoreByOutput.of(mse_true),
        mse_true_voltages=float(np.mean([mse_true[key] for key in VOLTAGES])),
        mse_true_heats=float(np.mean([mse_true[key] for key in HEATS])),
        coverage=ScoreByOutput.of(jittered(dict.fromkeys(KEYS, 0.955), rng, 0.005)),
        interval_width=ScoreByOutput.of(jittered(dict.fromkeys(KEYS, WIDTH[name]), rng, 0.1)),
        aleatoric=ScoreByOutput.of(jittered({key: noise[key] + 1e-3 for key in KEYS}, rng, 0.05)),
        epistemic=ScoreByOutput.of(jittered(dict.fromkeys(KEYS, 0.3 * MSE_TRUE[name] ** 0.5), rng, 0.1)),
        crps=ScoreByOutput.of({key: 0.56 * (mse_true[key] + noise[key] ** 2) ** 0.5 for key in KEYS}),
        joint_nll=NLL[name] + 0.05 * rng.normal(),
        energy_score=0.11 * WIDTH[name] / 0.3,
        violation_of_means=violations(*MEANS[name], rng),
        violation_of_draws=violations(*DRAWS[name], rng),
        observation_std=observed,
        sensor_std={key: SENSOR[name] * value for key, value in observed.items()},
        calibration=calibration(rng),
        ledger={key: ledger(name, noise[key] ** 2) for key in KEYS},
        history=TrainingRecord(epochs=500, best_epoch=482, seconds=95.0 + rng.normal(), stopped="all epochs run"),
    )


def jittered(values: dict, rng: np.random.Generator, relative_std: float) -> dict:
    return {key: float(value * np.exp(relative_std * rng.normal())) for key, value in values.items()}


def violations(voltage: float, heat: float, rng: np.random.Generator) -> Violations:
    voltage, heat = (value * float(np.exp(0.1 * rng.normal())) for value in (voltage, heat))
    relative = (voltage / SCALES.voltage, heat / SCALES.heat)
    means = {"voltage": voltage, "heat": heat, "overall": (voltage + heat) / 2}
    means |= {"voltage_relative": relative[0], "heat_relative": relative[1], "overall_relative": sum(relative) / 2}
    parts = {key: Violation(mean=v, median=0.8 * v, sd_over_draws=0.06 * v) for key, v in means.items()}
    return Violations(**parts)


def calibration(rng: np.random.Generator) -> CoverageRecord:
    shares = {key: tuple(rng.binomial(TEST_ROWS, level) / TEST_ROWS for level in LEVELS) for key in KEYS}
    counts = {key: tuple(rng.multinomial(TEST_ROWS, np.full(20, 0.05)).tolist()) for key in KEYS}
    return CoverageRecord(levels=LEVELS, coverage=shares, pit_counts=counts)


def ledger(name: str, noise_var: float) -> LedgerTerms:
    """The balances take away half of what the network calls noise, in the models that have them."""
    bound = not name.startswith("bnn")
    sensor = SENSOR[name] ** 2 * noise_var
    aleatoric = (noise_var - sensor) * (2.0 if bound else 1.0)
    reduction, epistemic = (0.5 * aleatoric if bound else 0.0), 0.1 * MSE_TRUE[name]
    shift, interaction = (0.04 * MSE_TRUE[name], -0.06 * MSE_TRUE[name]) if bound else (0.0, 0.0)
    return LedgerTerms(
        aleatoric=aleatoric,
        reduction=reduction,
        epistemic=epistemic,
        shift=shift,
        interaction=interaction,
        sensor=sensor,
        total=aleatoric - reduction + epistemic + shift + interaction + sensor,
        before=aleatoric + epistemic + sensor,
        tolerance_share=0.001 * MSE_TRUE[name] if bound else 0.0,
        lost_without={"voltage": 0.9 * reduction, "heat": 0.0} if bound else {},
    )


def paper_tolerances(rng: np.random.Generator) -> Tolerances:
    voltage = tolerance(-11.2 + 0.1 * rng.normal(), 0.23, (-2.0, 1.0), SCALES.voltage, "V", "informed", 8.1e-3)
    unmoved = tolerance(-1.99, 1.0, (-2.0, 1.0), SCALES.heat, "W.m-3", "not informed by the data", 620.0)
    return Tolerances(voltage=voltage, heat=unmoved)


def our_tolerances(rng: np.random.Generator) -> Tolerances:
    scale = SCALES.heat
    words = "not separable from sensor noise"
    voltage = tolerance(-17.1 + 0.1 * rng.normal(), 0.6, (-7.9, 3.0), SCALES.voltage, "V", words, 8.0e-3)
    heat = tolerance(0.4 + 0.1 * rng.normal(), 0.4, (-6.0 + 2 * np.log(scale), 3.0), scale, "W.m-3", words, 1.9)
    return Tolerances(voltage=voltage, heat=heat)


def tolerance(mu, std, prior, scale, unit, verdict, noise_std) -> Tolerance:
    prior_mean, prior_std = prior
    ratio = std / prior_std
    mean_r = float(np.exp(mu + 0.5 * std**2))
    return Tolerance(
        mu_rho=mu,
        sigma_rho=std,
        mu_rho_relative=mu - 2 * float(np.log(scale)),
        mean_r=mean_r,
        std_r=mean_r * float(np.sqrt(np.expm1(std**2))),
        paper_mean_r=float(np.exp(mu)),
        paper_std_r=std * float(np.exp(mu)),
        kl=float(0.5 * (ratio**2 + ((mu - prior_mean) / prior_std) ** 2 - 1) - np.log(ratio)),
        contraction=1 - ratio**2,
        informed=verdict != "not informed by the data",
        verdict=verdict,
        unit=unit,
        tol_std=float(np.exp(0.5 * mu)),
        noise_std=noise_std,
    )


def variables() -> tuple[Variable, ...]:
    lines = (
        ("input", "I", "Applied current", "A", 0.5, 3.0),
        ("input", "SOC", "State of charge", "", 0.05, 0.95),
        ("input", "T", "Ambient temperature", "K", 273.0, 318.0),
        ("output", "V", "Terminal voltage", "V", 2.81, 4.12),
        ("output", "V_OCV", "Open-circuit voltage", "V", 3.05, 4.14),
        ("output", "eta_p", "Positive electrode overpotential", "V", 0.004, 0.11),
        ("output", "eta_n", "Negative electrode overpotential", "V", 0.006, 0.09),
        ("output", "dV_IR", "Ohmic (IR) drop", "V", 0.025, 0.15),
        ("output", "Q_tot", "Total volumetric heating", "W.m-3", -9_800.0, 213_000.0),
        ("output", "Q_rev", "Reversible heating", "W.m-3", -41_000.0, 38_000.0),
        ("output", "Q_irr", "Irreversible heating", "W.m-3", 1_700.0, 205_000.0),
    )
    names = ("role", "symbol", "description", "unit", "min", "max")
    return tuple(Variable(**dict(zip(names, line, strict=True))) for line in lines)
