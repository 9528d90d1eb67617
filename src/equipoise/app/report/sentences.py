"""The sentences of a report on a fitted model, made from its findings."""

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
from scipy.special import bdtr, bdtrc, ndtr

from equipoise.app.report.balance_residuals import DATA, DRAWS_AFTER, DRAWS_BEFORE, WITHOUT, BalanceResiduals
from equipoise.app.report.formatting import counted, listed, number, with_unit
from equipoise.app.report.model_findings import Findings
from equipoise.app.report.scores import FAR, Score
from equipoise.app.report.tolerances import BalanceTolerance

LEVEL = 0.95
SIGNIFICANT = float(ndtr(-3.0))  # one-sided probability below which a deviation of coverage is not chance
DOUBTFUL = float(ndtr(-2.0))  # probability below which it is perhaps not chance
MATERIAL = 0.01  # deviations of coverage from its level up to this size are ignored
DESCRIBED_BALANCES = 4  # the most that the summary describes one by one; of more it counts the verdicts


def summary(f: Findings) -> str:
    """Summarise the whole report in a few paragraphs."""
    parts = [" ".join(filter(None, [scope(f), extrapolation(f), accuracy(f), expected_errors(f), coverage(f)]))]
    parts += [balances(f)] if f.residuals else []
    parts += [baseline_comparison(f)] if has_baseline(f) else []
    return "\n\n".join(parts)


def scope(f: Findings) -> str:
    """State how many outputs are predicted from how many inputs, and how many rows they are judged on."""
    known = f" and {counted(len(f.known), 'known column')}" if f.known else ""
    what = f"The model predicts {counted(len(f.scores), 'output')} from {counted(len(f.inputs), 'input')}{known}"
    if f.n_scored == f.n_rows:
        return f"{what} and is judged here on {counted(f.n_rows, 'row')}."
    return f"{what} and is judged here on {f.n_scored:,} of {f.n_rows:,} rows, picked at random."


def extrapolation(f: Findings) -> str:
    """State how many rows have inputs outside their range in training; empty if there are none."""
    if not f.n_extrapolated:
        return ""
    lie = "lies" if f.n_extrapolated == 1 else "lie"
    where = f"beyond what was trained on, in {listed(f.extrapolated_inputs)}"
    words = f"{f.n_extrapolated:,} of {counted(f.n_rows, 'row')} {lie} {where}"
    return f"{words}: neither predictions nor their intervals can be relied on there."


def accuracy(f: Findings) -> str:
    """State R² and RMSE, of the best and the worst output where there are several."""
    judged = [score for score in f.scores if score.n]
    varying = sorted((score for score in judged if math.isfinite(score.r2)), key=lambda score: score.r2)
    words = []
    if len(varying) == 1:
        words.append(f"R² is {_r2_and_rmse(varying[0])}.")
    elif varying:
        worst, best = varying[0], varying[-1]
        words.append(f"R² is lowest, {_r2_and_rmse(worst)}, and highest, {_r2_and_rmse(best)}.")
    constant = [score.output for score in judged if not math.isfinite(score.r2)]
    words += [f"{listed(constant)} did not vary in these rows, so there is no R²."] if constant else []
    unmeasured = [score.output for score in f.scores if not score.n]
    was = "was" if len(unmeasured) == 1 else "were"
    words += [f"{listed(unmeasured)} {was} not measured in these rows."] if unmeasured else []
    return " ".join(words)


def _r2_and_rmse(score: Score) -> str:
    return f"{number(score.r2)}, for “{score.output}” (root mean squared error {with_unit(score.rmse, score.unit)})"


def expected_errors(f: Findings) -> str:
    """Compare the errors with those that the model expects of itself."""
    ratios = [score.rmse / score.expected for score in f.scores if math.isfinite(score.r2) and score.expected > 0]
    return f"{_median_ratio(ratios)} as large as the model itself expects." if ratios else ""


def _median_ratio(ratios: Sequence[float]) -> str:
    """Make the beginning of a sentence that states the median ratio of errors over outputs."""
    many = ", in the median over outputs," if len(ratios) > 1 else ""
    return f"Errors are{many} {number(float(np.median(ratios)))} times"


# --- Calibration ------------------------------------------------------------------------------------------------------


def coverage(f: Findings) -> str:
    """State the coverage of 95 % intervals over all outputs, and the outputs where it deviates by more than chance."""
    n, inside = f.calibration.n, f.calibration.at(LEVEL)
    if not n.any():
        return "No output has a distribution that could be judged."
    share = float(np.sum(np.where(n > 0, inside, 0.0) * n) / n.sum())
    words = f"Of the measured values, {number(100 * share)} % lie inside their 95 % intervals"
    verdicts = [calibration_verdict(inside[j], int(n[j])) for j in range(len(n))]
    kinds = [f"{perhaps}{what}" for perhaps in ("", "perhaps ") for what in ("too narrow", "too wide")]
    deviating = {what: [f.outputs[j] for j in range(len(n)) if verdicts[j] == what] for what in kinds}
    judgements = [f"{what} for {listed(names)}" for what, names in deviating.items() if names]
    each = "it is" if len(n) == 1 else "each output is"
    if judgements:
        return f"{words}; they are {' and '.join(judgements)}."
    return f"{words}; {each} within what chance allows."


def calibration_verdict(share: float, n: int, level: float = LEVEL) -> str:
    """Decide by a binomial test of their coverage whether intervals are too narrow or too wide.

    Args:
        share: Share of the values that lie inside their intervals.
        n: Number of values.
        level: Share that should lie inside.

    Example:
        >>> [calibration_verdict(share, n) for share, n in ((0.90, 1000), (0.90, 20), (1.0, 1000), (0.945, 100_000))]
        ['too narrow', 'as it should be', 'too wide', 'as it should be']
        >>> calibration_verdict(0.80, 30)
        'perhaps too narrow'
    """
    if n == 0:
        return "not judged"
    inside = round(share * n)
    below = bdtr(inside, n, level) if share < level - MATERIAL else 1.0
    above = bdtrc(inside - 1, n, level) if share > level + MATERIAL else 1.0
    if min(below, above) >= DOUBTFUL:
        return "as it should be"
    return f"{'' if min(below, above) < SIGNIFICANT else 'perhaps '}{'too narrow' if below < above else 'too wide'}"


def outliers(f: Findings) -> str:
    """State how many values lie far from their prediction, and how many would by chance."""
    n_far, n_values = f.outliers.n_far, f.outliers.n_values
    chance = 2 * float(ndtr(-FAR)) * n_values
    is_are = "lies" if n_far == 1 else "lie"
    return (
        f"{n_far:,} of {counted(n_values, 'measured value')} {is_are} more than {FAR:g} predicted standard "
        f"deviations from the prediction; of normally distributed errors {number(chance, 2)} would."
    )


# --- Balances ---------------------------------------------------------------------------------------------------------


def balances(f: Findings) -> str:
    """Describe each balance with its verdict; where there are many, count the verdicts and name the biased balances."""
    descriptions = [balance(*pair) for pair in zip(f.residuals, f.tolerances, strict=True)]
    if len(descriptions) <= DESCRIBED_BALANCES:
        return " ".join(descriptions)
    verdicts = Counter(tolerance.verdict for tolerance in f.tolerances)
    counts = ", ".join(f"{count} “{verdict}”" for verdict, count in verdicts.most_common())
    words = f"Of {len(descriptions)} balances the verdicts are: {counts}."
    biased = [tolerance.balance for tolerance in f.tolerances if tolerance.biased]
    return words + (f" The residuals of {listed(biased)} are biased." if biased else " None of them is biased.")


def balance(residuals: BalanceResiduals, tolerance: BalanceTolerance) -> str:
    """State how far data, and draws before and after conditioning, miss a balance, and the verdict on its tolerance.

    Args:
        residuals: Residuals of the balance in data and draws.
        tolerance: Its tolerance and the verdict on it.
    """
    data, before, after = (residuals.summaries[kind] for kind in (DATA, DRAWS_BEFORE, DRAWS_AFTER))
    sizes = [with_unit(summary.most, residuals.unit) for summary in (data, before, after)]
    draws = f"{sizes[1]} before and {sizes[2]} after conditioning"
    name = residuals.balance
    if data.n:
        missed = f"Of measured rows, 95 % miss “{name}” by no more than {sizes[0]}, of the model's draws by {draws}"
    else:
        missed = f"No row has all that it takes to check “{name}”. Of the model's draws, 95 % miss it by no "
        missed += f"more than {draws}"
    bias = f" It is biased: {tolerance.note}." if tolerance.biased else ""
    return f"{missed}; {verdict_sentence(tolerance)}.{bias}"


def verdict_sentence(tolerance: BalanceTolerance) -> str:
    """State the verdict on a balance in plain words."""
    size = with_unit(tolerance.tol_std, tolerance.unit)
    interval = f"between {number(tolerance.tol_std_lower)} and {with_unit(tolerance.tol_std_upper, tolerance.unit)}"
    words = {
        "exact": "it is taken for exact",
        "exact to rounding": "the data obey it to rounding, so it is exact",
        "fixed": f"its tolerance was given, {size}",
        "informed": f"the data determine its tolerance, a standard deviation {interval}",
        "not informed by the data": "the data do not determine its tolerance, which is still the assumed one",
        "not converged": "training ended before its tolerance had settled, so train for longer",
        "not separable from sensor noise": (
            "the data determine only the sum of its tolerance and sensor noise, a standard deviation of "
            f"{with_unit(tolerance.noise_std, tolerance.unit)}; give the meters' accuracy to separate them"
        ),
    }
    return words.get(tolerance.verdict, tolerance.verdict)


def variance_reduction(f: Findings) -> str:
    """State the largest and smallest share of an output's true variance that all balances together take away."""
    gain = 100 * (1 - f.true_var / f.before_var)
    most, least = int(gain.argmax()), int(gain.argmin())
    if most == least:
        return f"The balances take {number(gain[most])} % from the variance of the true “{f.outputs[most]}”."
    return (
        f"The balances take most from the variance of the true “{f.outputs[most]}”, {number(gain[most])} %, and least "
        f"from that of “{f.outputs[least]}”, {number(gain[least])} %."
    )


# --- Another model, and the training ----------------------------------------------------------------------------------


def has_baseline(f: Findings) -> bool:
    """Return whether the findings include scores of a model without balances."""
    return any(math.isfinite(score.baseline_rmse) for score in f.scores)


def baseline_comparison(f: Findings) -> str:
    """Compare errors and residuals of balances with those of a model without balances."""
    ratios = [score.rmse / score.baseline_rmse for score in f.scores if score.baseline_rmse > 0]
    words = [f"{_median_ratio(ratios)} those of the model without balances."] if ratios else []
    for residuals in f.residuals[:DESCRIBED_BALANCES]:
        other, own = (with_unit(residuals.summaries[kind].most, residuals.unit) for kind in (WITHOUT, DRAWS_AFTER))
        words.append(f"Of its draws 95 % miss “{residuals.balance}” by no more than {other}; here it is {own}.")
    return " ".join(words)


def training(f: Findings) -> str:
    """State how long training took, why it ended, and which epoch's state was kept."""
    epochs = f.history.epochs
    if not epochs:
        return "The model does not remember its training."
    seconds = [record["seconds"] for record in epochs if "seconds" in record]  # model files do not store them
    time = f" in {number(sum(seconds))} s" if seconds else ""
    ended = f", and ended because of: {f.history.stopped}" if f.history.stopped else ""
    words = f"Training ran for {counted(len(epochs), 'epoch')}{time}{ended}."
    return words + (f" The state after epoch {f.history.best_epoch} was kept." if f.history.best_epoch >= 0 else "")
