"""The report of the study: tables.md, figures and one self-contained report.html.

They are made from results.json and the arrays beside it alone, and every sentence with a finding from the numbers.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from operator import attrgetter
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from equipoise import report
from studies.battery import figures, tabulation
from studies.battery.claims import CLAIMS, violations_of_draws, with_our_training
from studies.battery.figures import Arrays
from studies.battery.files import write_text
from studies.battery.results import MODELS, NAMES, VOLTAGES, Results, ResultsError, read
from studies.battery.seeds import Runs, over_seeds, seeds_in_words, text

TITLE = "The paper's battery study, reproduced and carried further"
Drawings = dict[str, report.Figure]
# Functions that plot arrays, and the names of the arrays they need; the test rows are among our model's arrays.
NEEDED = {
    figures.violations: ("violation_series", "violation_log10_edges", "violation_of_means", "violation_of_draws"),
    figures.calibration: ("calibration_levels", "calibration_coverage", "pit"),
    figures.curves: ("mean", "lower", "upper"),
    figures.training: ("history_phase", "history_validation"),
}
NEEDED_OF_OURS = {figures.curves: ("x_test", "y_test", "truth_test")}


def present(folder: str | os.PathLike, seeds: Sequence[int] | None = None) -> list[Path]:
    """Write `tables.md`, `figures/*.svg` and `report.html` into a folder that holds results.

    Args:
        folder: Folder with `seed-*/results.json`, or `results.json` for a single seed, and
            `arrays-*.npz` of all models beside each; arrays of the first seed are plotted.
        seeds: Seeds to present; None for all whose results are there.
    Returns: Paths of the written files.
    Raises: ResultsError, if there are no results or a file cannot be used.
    """
    folder = Path(folder)
    places = _places(folder, seeds)
    runs, arrays = [read(place / "results.json") for place in places], _read_arrays(places[0])
    page, drawings = make_page(runs, arrays)
    (folder / "figures").mkdir(exist_ok=True)
    texts = {folder / "figures" / f"{name}.svg": figure.svg for name, figure in drawings.items()}
    texts |= {folder / "tables.md": report.markdown(page), folder / "report.html": report.render(page)}
    for path, content in texts.items():
        write_text(path, content)
    return list(texts)


def make_page(runs: Runs, arrays: Arrays) -> tuple[report.Page, Drawings]:
    """Make the page of the report, and its figures by name.

    Args:
        runs: Results of one seed or more.
        arrays: Arrays of the first seed by model and name; a figure whose arrays are missing is left out.
    """
    drawings: Drawings = {}
    sections = [
        part(runs, lambda plot: _figures(plot, arrays, drawings))
        for part in (
            _claims,
            _data,
            _uncertainty,
            _tolerances,
            _performance,
            _violations,
            _scores,
            _calibration,
            _curves,
            _ledgers,
            _noise,
            _run,
        )
    ]
    return report.Page(TITLE, answer(runs), sections), drawings


def answer(runs: Runs) -> str:
    """Summarise the findings in a paragraph."""
    outcomes, ours = (Counter(claim.judge(arm).outcome for claim in CLAIMS) for arm in (runs, with_our_training(runs)))
    counts = (
        f"Of {len(CLAIMS)} claims of the paper, {outcomes['reproduced']} are reproduced with its own method and "
        f"training, {outcomes['not reproduced']} are not, and {outcomes['cannot be as stated']} cannot be as stated; "
        f"with its method and our training {ours['reproduced']} are reproduced ({_seeds(runs)})."
    )
    errors, densities = (
        [_number(runs, attrgetter(f"models.{model}.{path}")) for model in MODELS]
        for path in ("mse_true.overall", "joint_nll")
    )
    of_means, of_paper, of_ours = _factors(runs)
    return (
        f"{counts} Against the truth, predictions have a normalised MSE of {_by_model(errors)}. The median violation "
        f"of the BNN is {of_means} times that of the paper's method where the means of posterior draws are looked at, "
        f"but {of_paper} times where outputs are drawn; it is {of_ours} times that of our joint draws of true values. "
        f"The joint NLL of measured rows is {_by_model(densities)} in nats, and the noise that ours learned for "
        f"voltages is off by at most {report.number(100 * _worst_noise(runs), 2)} %."
    )


# --- Sections ---------------------------------------------------------------------------------------------------------

Plot = Callable[[Callable], tuple[list[report.Figure], list[str]]]


def _claims(runs: Runs, plot: Plot) -> report.Section:
    return report.Section(
        "The paper's claims",
        "Each claim is judged on the paper's own method beside the network without balances, on data as the paper "
        "describes them, both trained as the paper writes: on the evidence lower bound alone, with everything at its "
        "prior at the start. The second table judges the same two models with our training, which fits the means first "
        "and starts variances and tolerances from their residuals. “Cannot be as stated” means that the claim "
        "contradicts the paper's own numbers, or what its method can do on data like these; where that rests on our "
        "cell or our fits, the reason says so.",
        [tabulation.claims(runs), tabulation.claims_with_our_training(runs), tabulation.published_and_ours(runs)],
        notes=[
            "Tables 1 to 4 of the paper are tab:prediction, tab:learned_tolerance, tab:predictive_performance and "
            "tab:constraint_violation; its list of variables, tab:io, is not counted. The ± of its Table 3 is "
            "1.96 standard deviations over the outputs, that of the others we take for the same; it stands in rows of "
            "its own. Our ± is always the standard error over seeds, where there are several.",
        ],
    )


def _data(runs: Runs, plot: Plot) -> report.Section:
    rows = runs[0].rows
    return report.Section(
        "Data",
        "The paper names neither the cell's parameters nor its contact resistance, without which the ohmic drop would "
        f"be zero; the last section lists what was taken. {rows.train:,} rows are for training, {rows.validation:,} "
        f"for validation and {rows.test:,} for the tests below, drawn at random from all discharges.",
        [tabulation.variables(runs)],
    )


def _uncertainty(runs: Runs, plot: Plot) -> report.Section:
    return report.Section(
        "Table 1: aleatoric and epistemic uncertainty",
        "Aleatoric is √(E[v_C] + E[w]) and epistemic √Var[μ_C], both after conditioning, averaged over rows and in "
        "units of the outputs' training standard deviations. Compare our lines with each other: whether the "
        "published level is possible at all with the noise that the paper describes is judged among the claims.",
        [tabulation.uncertainty(runs)],
    )


def _tolerances(runs: Runs, plot: Plot) -> report.Section:
    drawings, notes = plot(lambda: figures.tolerances(runs))
    return report.Section(
        "Table 2: learned tolerances",
        "KL and contraction say what the data taught: a posterior that equals its prior was not learned, whatever its "
        "width. The paper's prior is N(−2, 1) on log r in the balance's own unit; ours is on the tolerance relative to "
        "the balance's scale. “Not separable” means that the data fix the sum of tolerance and sensor noise only.",
        [tabulation.tolerances(runs)],
        drawings,
        notes,
    )


def _performance(runs: Runs, plot: Plot) -> report.Section:
    return report.Section(
        "Table 3: accuracy, interval width and coverage",
        "Of measured values, as in the paper: this MSE contains the noise of the test rows, which nobody can predict; "
        "errors against the truth follow below. Our intervals are central, of 95 %; the paper does not give its level.",
        [tabulation.performance(runs)],
    )


def _violations(runs: Runs, plot: Plot) -> report.Section:
    drawings, notes = plot(figures.violations)
    return report.Section(
        "Table 4: violations of the balances",
        "The paper's reading is of the means of posterior draws. Outputs drawn from the diagonal of Σ_C, which is all "
        "that its likelihood keeps, are another matter: compare the rows “draws of y”. In the mean of both balances "
        f"the heat decides, as its numbers are so much larger; the second table does without units. "
        f"{violations_of_draws(runs)}",
        [tabulation.violations(runs), tabulation.relative_violations(runs)],
        drawings,
        notes,
    )


def _scores(runs: Runs, plot: Plot) -> report.Section:
    return report.Section(
        "Beyond the paper: errors against the truth, and scores",
        "The simulation knows the values without noise, so errors can be measured against them. CRPS judges each "
        "output alone; energy score and joint NLL judge whole rows, and only they depend on how outputs vary together.",
        [tabulation.accuracy(runs), tabulation.scores(runs)],
    )


def _calibration(runs: Runs, plot: Plot) -> report.Section:
    (curves, notes), (histograms, _) = plot(figures.calibration), plot(lambda: figures.pit(runs))
    return report.Section(
        "Beyond the paper: calibration",
        "An interval of 95 % should hold 95 % of the measured values, for each output and not only on average. The "
        "networks' noise is theirs to find: no model was told the noise that was added.",
        [tabulation.coverage(runs)],
        [*curves, *histograms],
        notes,
    )


def _curves(runs: Runs, plot: Plot) -> report.Section:
    drawings, notes = plot(figures.curves)
    return report.Section(
        "Beyond the paper: predicted discharges",
        "Test rows are random rows of curves that the networks were trained on, so this is interpolation. Look at the "
        "deviations: systematic waves are the network's own error, the width of the bands mostly sensor noise.",
        (),
        drawings,
        notes,
    )


def _ledgers(runs: Runs, plot: Plot) -> report.Section:
    drawings, notes = plot(lambda: figures.ledgers(runs))
    return report.Section(
        "Beyond the paper: where the uncertainty comes from",
        "The exact account of the variance, as in the paper's appendix; the sum in its main text is not an identity. "
        "“Reduction” compares the same network before and after conditioning: training makes up for it by larger "
        "variances before, so it is not a gain over the network without balances.",
        tabulation.ledgers(runs),
        drawings,
        notes,
    )


def _noise(runs: Runs, plot: Plot) -> report.Section:
    drawings, notes = plot(lambda: figures.noise(runs))
    return report.Section(
        "Beyond the paper: learned and true noise",
        "The noise that was added is known, so what the models call noise can be checked. Too much of it is error that "
        "was taken for noise, as is to be expected of the heats: their true noise is tiny beside their range.",
        [tabulation.noise(runs)],
        drawings,
        notes,
    )


def _run(runs: Runs, plot: Plot) -> report.Section:
    drawings, notes = plot(figures.training)
    return report.Section(
        "How it was run",
        "All models have the same network, epochs and rates, those of the paper in one phase; settings.toml and "
        "docs/study.md tell how they were found. Figures that are drawn from arrays are of the first seed. "
        f"{_seeds(runs).capitalize()}: each has its own noise, split and training.",
        [tabulation.training(runs), tabulation.times(runs), tabulation.settings(runs)],
        drawings,
        notes,
    )


# --- Files ------------------------------------------------------------------------------------------------------------


def _places(folder: Path, seeds: Sequence[int] | None) -> list[Path]:
    """List the folders of single runs, by default of all in the order of their seeds, or else the folder itself."""
    if seeds is not None:
        return [folder / f"seed-{seed}" for seed in seeds]
    places = [path.parent for path in folder.glob("seed-*/results.json")]
    return sorted(places, key=lambda place: (len(place.name), place.name)) or [folder]


def _read_arrays(place: Path) -> dict[str, dict[str, NDArray]]:
    """Read arrays by model and name; a model without a file has none."""
    return {model: _read_archive(place / f"arrays-{model}.npz") for model in MODELS}


def _read_archive(path: Path) -> dict[str, NDArray]:
    if not path.exists():
        return {}
    try:
        with open(path, "rb") as raw, np.load(raw, allow_pickle=False) as file:
            return dict(file.items())
    except Exception as error:  # a damaged archive fails in many ways
        message = f"'{path}' must hold arrays, but is not readable ({type(error).__name__})"
        raise ResultsError(f"{message}. Delete it and run the study again.") from error


def _figures(plot: Callable, arrays: Arrays, collection: Drawings) -> tuple[list[report.Figure], list[str]]:
    """Plot figures, add them to the collection, and return them, or a sentence on arrays that are missing.

    Args:
        plot: A function of `figures`: a key of `NEEDED`, or one without arguments.
        arrays: Arrays by model and name.
        collection: Figures by name.
    """
    if plot not in NEEDED:
        drawings = plot()
    elif missing := _missing(plot, arrays):
        return [], [f"A figure is left out here, since these arrays are not beside the results: {missing}."]
    else:
        drawings = plot(arrays)
    collection.update(drawings)
    return list(drawings.values()), []


def _missing(plot: Callable, arrays: Arrays) -> str:
    names = [(model, name) for model in MODELS for name in NEEDED[plot]]
    names += [("equipoise", name) for name in NEEDED_OF_OURS.get(plot, ())]
    return ", ".join(f"{name} ({model})" for model, name in names if name not in arrays.get(model, {}))


# --- Numbers ----------------------------------------------------------------------------------------------------------


def _number(runs: Runs, number: Callable[[Results], float]) -> str:
    return text(over_seeds(runs, number))


def _seeds(runs: Runs) -> str:
    return "a single seed" if len(runs) == 1 else f"{seeds_in_words(runs)}, mean ± standard error"


def _by_model(numbers: Sequence[str]) -> str:
    *others, last = (f"{number} ({name})" for number, name in zip(numbers, NAMES.values(), strict=True))
    return f"{', '.join(others)} and {last}"


def _factors(runs: Runs) -> list[str]:
    """Divide the BNN's median violations by those of the paper's means, the paper's draws and our draws."""
    pairs = [("paper", "violation_of_means"), ("paper", "violation_of_draws"), ("equipoise", "violation_of_draws")]
    texts = [[report.number(_factor(runs, *pair, balance), 2) for balance in ("voltage", "heat")] for pair in pairs]
    return [f"{voltage} (voltage) and {heat} (heat)" for voltage, heat in texts]


def _factor(runs: Runs, model: str, kind: str, balance: str) -> float:
    def median(name: str) -> NDArray:
        return np.array([getattr(getattr(getattr(run.models, name), kind), balance).median for run in runs])

    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.exp(np.log(median("bnn") / median(model)).mean()))


def _worst_noise(runs: Runs) -> float:
    """Compute the largest relative error of our model's noise of a voltage, over all seeds."""
    ratios = [[run.observation_std.learned[key] / run.observation_std.true[key] for key in VOLTAGES] for run in runs]
    return float(np.abs(np.array(ratios) - 1).max())
