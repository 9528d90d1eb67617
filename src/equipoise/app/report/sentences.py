"""Findings in words: every sentence that states one is made from the numbers."""

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
from scipy.special import bdtr, bdtrc, ndtr

from equipoise.app.report.closure import DATA, DRAWS_AFTER, DRAWS_BEFORE, WITHOUT, Closure
from equipoise.app.report.confidence import Trust
from equipoise.app.report.evidence import Findings
from equipoise.app.report.page import number, with_unit
from equipoise.app.report.scores import FAR, Score

LEVEL = 0.95
SURE = float(ndtr(-3.0))  # one-sided probability below which a coverage is not chance
DOUBTFUL = float(ndtr(-2.0))  # and below which it may be more than that
MATERIAL = 0.01  # difference of a coverage from its level that matters at all
SPOKEN_BALANCES = 4  # in the summary; more of them are counted


def summary(f: Findings) -> str:
    """The whole report in a few paragraphs."""
    parts = [" ".join(filter(None, [rows(f), extrapolation(f), accuracy(f), expectation(f), coverage(f)]))]
    parts += [balances(f)] if f.closures else []
    parts += [beside(f)] if has_baseline(f) else []
    return "\n\n".join(parts)


def rows(f: Findings) -> str:
    """What is predicted from what, and judged on which rows."""
    known = f" and {counted(len(f.known), 'known column')}" if f.known else ""
    what = f"The model predicts {counted(len(f.scores), 'output')} from {counted(len(f.inputs), 'input')}{known}"
    if f.n_scored == f.n_rows:
        return f"{what} and is judged here on {counted(f.n_rows, 'row')}."
    return f"{what} and is judged here on {f.n_scored:,} of {f.n_rows:,} rows, picked at random."


def extrapolation(f: Findings) -> str:
    """How many rows lie beyond what was trained on, if any."""
    if not f.n_beyond:
        return ""
    lie = "lies" if f.n_beyond == 1 else "lie"
    words = f"{f.n_beyond:,} of {counted(f.n_rows, 'row')} {lie} beyond what was trained on, in {listed(f.beyond)}"
    return f"{words}: neither predictions nor their intervals can be relied on there."


def accuracy(f: Findings) -> str:
    """R² and RMSE, of the best and the worst output where there are several."""
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
    unseen = [score.output for score in f.scores if not score.n]
    words += [f"{listed(unseen)} {'was' if len(unseen) == 1 else 'were'} not measured in these rows."] if unseen else []
    return " ".join(words)


def _r2_and_rmse(score: Score) -> str:
    return f"{number(score.r2)}, for “{score.output}” (root mean squared error {with_unit(score.rmse, score.unit)})"


def expectation(f: Findings) -> str:
    """Errors beside those that the model expects of itself."""
    ratios = [score.rmse / score.expected for score in f.scores if math.isfinite(score.r2) and score.expected > 0]
    return f"{_errors_are(ratios)} as large as the model itself expects." if ratios else ""


def _errors_are(ratios: Sequence[float]) -> str:
    many = ", in the median over outputs," if len(ratios) > 1 else ""
    return f"Errors are{many} {number(float(np.median(ratios)))} times"


# --- Calibration ------------------------------------------------------------------------------------------------------


def coverage(f: Findings) -> str:
    """Coverage of 95 % intervals over all outputs, and those where it is off by more than chance."""
    n, inside = f.calibration.n, f.calibration.at(LEVEL)
    if not n.any():
        return "No output has a distribution that could be judged."
    share = float(np.sum(np.where(n > 0, inside, 0.0) * n) / n.sum())
    words = f"Of the measured values, {number(100 * share)} % lie inside their 95 % intervals"
    verdicts = [calibrated(inside[j], int(n[j])) for j in range(len(n))]
    kinds = [f"{perhaps}{what}" for perhaps in ("", "perhaps ") for what in ("too narrow", "too wide")]
    off = {what: [f.outputs[j] for j in range(len(n)) if verdicts[j] == what] for what in kinds}
    said = [f"{what} for {listed(names)}" for what, names in off.items() if names]
    each = "it is" if len(n) == 1 else "each output is"
    return f"{words}; they are {' and '.join(said)}." if said else f"{words}; {each} within what chance allows."


def calibrated(share: float, n: int, level: float = LEVEL) -> str:
    """Whether intervals that hold a `share` of `n` values are too narrow or too wide, more than chance explains.

    Example:
        >>> calibrated(0.90, 1000), calibrated(0.90, 20), calibrated(1.0, 1000), calibrated(0.945, 100_000)
        ('too narrow', 'as it should be', 'too wide', 'as it should be')
        >>> calibrated(0.80, 30)
        'perhaps too narrow'
    """
    if n == 0:
        return "not judged"
    inside = round(share * n)
    below = bdtr(inside, n, level) if share < level - MATERIAL else 1.0
    above = bdtrc(inside - 1, n, level) if share > level + MATERIAL else 1.0
    if min(below, above) >= DOUBTFUL:
        return "as it should be"
    return f"{'' if min(below, above) < SURE else 'perhaps '}{'too narrow' if below < above else 'too wide'}"


def far_values(f: Findings) -> str:
    """How many values lie far out, beside how many would by chance."""
    found = f.outliers
    chance = 2 * float(ndtr(-FAR)) * found.n_values
    is_are = "lies" if found.n_far == 1 else "lie"
    return (
        f"{found.n_far:,} of {counted(found.n_values, 'measured value')} {is_are} more than {FAR:g} predicted standard "
        f"deviations from the prediction; of normally distributed errors {number(chance, 2)} would."
    )


# --- Balances ---------------------------------------------------------------------------------------------------------


def balances(f: Findings) -> str:
    """Each balance with its verdict; of many, how many have which, and those that need attention."""
    spoken = [balance(closure, trust) for closure, trust in zip(f.closures, f.trust, strict=True)]
    if len(spoken) <= SPOKEN_BALANCES:
        return " ".join(spoken)
    verdicts = Counter(trust.verdict for trust in f.trust)
    counts = ", ".join(f"{count} “{verdict}”" for verdict, count in verdicts.most_common())
    words = f"Of {len(spoken)} balances the verdicts are: {counts}."
    biased = [trust.balance for trust in f.trust if trust.biased]
    return words + (f" The residuals of {listed(biased)} are biased." if biased else " None of them is biased.")


def balance(closure: Closure, trust: Trust) -> str:
    """How far a balance is missed, before and after, and how far it can be trusted."""
    data, before, after = (closure.residuals[kind] for kind in (DATA, DRAWS_BEFORE, DRAWS_AFTER))
    sizes = [with_unit(spread.most, closure.unit) for spread in (data, before, after)]
    drawn = f"{sizes[1]} before and {sizes[2]} after conditioning"
    missed = (
        f"Of measured rows, 95 % miss “{closure.balance}” by no more than {sizes[0]}, of the model's draws by {drawn}"
    )
    if not data.n:
        missed = f"No row has all that it takes to check “{closure.balance}”. Of the model's draws, 95 % miss it by no "
        missed += f"more than {drawn}"
    bias = f" It is biased: {trust.note}." if trust.biased else ""
    return f"{missed}; {judgement(trust)}.{bias}"


def judgement(trust: Trust) -> str:
    """The verdict on a balance in plain words."""
    tolerance = with_unit(trust.tol_std, trust.unit)
    interval = f"between {number(trust.tol_std_lower)} and {with_unit(trust.tol_std_upper, trust.unit)}"
    words = {
        "exact": "it is taken for exact",
        "exact to rounding": "the data obey it to rounding, so it is exact",
        "fixed": f"its tolerance was given, {tolerance}",
        "informed": f"the data say how far it holds, within a standard deviation {interval}",
        "not informed by the data": "the data say nothing of its tolerance, which is still what was assumed",
        "not converged": "training ended before its tolerance had settled, so train for longer",
        "not separable from sensor noise": (
            "the data tell tolerance and sensor noise only together, a standard deviation of "
            f"{with_unit(trust.noise_std, trust.unit)}"
        ),
    }
    return words.get(trust.verdict, trust.verdict)


def certainty(f: Findings) -> str:
    """What all balances together take from the variance of true values, of the output that gains most and least."""
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
    """Whether another model was put beside."""
    return any(math.isfinite(score.baseline_rmse) for score in f.scores)


def beside(f: Findings) -> str:
    """Errors and violations relative to those of a model without balances."""
    ratios = [score.rmse / score.baseline_rmse for score in f.scores if score.baseline_rmse > 0]
    words = [f"{_errors_are(ratios)} those of the model without balances."] if ratios else []
    for closure in f.closures[:SPOKEN_BALANCES]:
        other, own = (with_unit(closure.residuals[kind].most, closure.unit) for kind in (WITHOUT, DRAWS_AFTER))
        words.append(f"Of its draws 95 % miss “{closure.balance}” by no more than {other}; here it is {own}.")
    return " ".join(words)


def training(f: Findings) -> str:
    """How long training took, how it ended, and what was kept."""
    epochs = f.history.epochs
    if not epochs:
        return "The model does not remember its training."
    seconds = [record["seconds"] for record in epochs if "seconds" in record]  # a model file has none
    time = f" in {number(sum(seconds))} s" if seconds else ""
    ended = f", and ended because of: {f.history.stopped}" if f.history.stopped else ""
    words = f"Training ran for {counted(len(epochs), 'epoch')}{time}{ended}."
    return words + (f" The state after epoch {f.history.best_epoch} was kept." if f.history.best_epoch >= 0 else "")


# --- Words ------------------------------------------------------------------------------------------------------------


def counted(n: int, noun: str) -> str:
    """A number and its noun.

    Example:
        >>> counted(1, "row"), counted(12_000, "row")
        ('1 row', '12,000 rows')
    """
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def listed(names: Sequence[str], most: int = 6) -> str:
    """Names in quotation marks, at most `most` of them.

    Example:
        >>> listed(["a", "b", "c"]), listed(["a", "b", "c"], most=1)
        ('“a”, “b” and “c”', '“a” and 2 more')
    """
    quoted = [f"“{name}”" for name in names[:most]]
    quoted += [f"{len(names) - most} more"] if len(names) > most else []
    return " and ".join(filter(None, (", ".join(quoted[:-1]), quoted[-1])))
