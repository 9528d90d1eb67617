"""Sentences: each says what the numbers say, and something else when they do."""

import math
from dataclasses import replace

import numpy as np
import pytest
import scipy.stats
from handmade_findings import made_up, normal_summary, residuals, tolerance

from equipoise.app.report import sentences
from equipoise.app.report.balance_residuals import DATA, DRAWS_AFTER, WITHOUT
from equipoise.app.report.formatting import SPACE, listed
from equipoise.app.report.scores import Calibration, Outliers, Score
from equipoise.training.loop import History

LEVELS = np.linspace(0.05, 0.95, 19)


def with_coverage(*shares: float, n: int = 1000):
    """Findings whose outputs have these coverages at 95 % over n values each."""
    outputs = tuple(f"y{j}" for j in range(len(shares)))
    coverage = np.vstack([np.ones((18, len(shares))), shares])
    counts = np.full((10, len(shares)), n // 10)
    return made_up(outputs, calibration=Calibration(coverage, counts))


def plain(text: str) -> str:
    return text.replace(SPACE, " ")


# --- Rows and errors --------------------------------------------------------------------------------------------------


def test_the_rows_that_were_judged_are_told():
    assert sentences.scope(made_up()) == "The model predicts 2 outputs from 1 input and is judged here on 100 rows."
    thinned = made_up(("y",), n_rows=1_000_000, n_scored=20_000, known=("feed",))
    assert sentences.scope(thinned) == (
        "The model predicts 1 output from 1 input and 1 known column and is judged here on 20,000 of 1,000,000 rows, "
        "picked at random."
    )


def test_rows_beyond_what_was_trained_on_are_told_before_any_score():
    assert sentences.extrapolation(made_up()) == ""
    one, some = (
        made_up(n_extrapolated=1, extrapolated_inputs=("x",)),
        made_up(n_extrapolated=40, extrapolated_inputs=("x", "z")),
    )
    assert sentences.extrapolation(one).startswith("1 of 100 rows lies beyond what was trained on, in “x”: neither")
    text = "40 of 100 rows lie beyond what was trained on, in “x” and “z”: neither predictions nor their intervals can "
    assert sentences.summary(some).index(text) < sentences.summary(some).index("R²")


def test_accuracy_is_told_of_the_worst_and_the_best_output():
    assert plain(sentences.accuracy(made_up(("a [V]", "b", "c")))) == (
        "R² is lowest, 0.880, for “c” (root mean squared error 3.00), and highest, 0.900, for “a [V]” (root mean "
        "squared error 1.00 V)."
    )
    assert plain(sentences.accuracy(made_up(("a [V]",)))) == (
        "R² is 0.900, for “a [V]” (root mean squared error 1.00 V)."
    )


def test_outputs_without_scores_are_named():
    usual = made_up().scores[0]
    constant, unseen = Score("c", None, 9, math.nan, 0.1, 0.0, 1.0), Score("d", None, 0, *[math.nan] * 4)
    sentence = sentences.accuracy(made_up(scores=(usual, constant, unseen)))
    assert "“c” did not vary in these rows, so there is no R²." in sentence
    assert sentence.endswith("“d” was not measured in these rows.")
    assert sentences.accuracy(made_up(scores=(unseen, unseen))).endswith("were not measured in these rows.")


def test_errors_are_compared_with_those_expected_and_constants_left_out():
    constant = Score("c", None, 9, math.nan, 1e-9, 0.0, 1.0)
    assert sentences.expected_errors(made_up(("a",))) == "Errors are 0.500 times as large as the model itself expects."
    several = made_up(scores=(*made_up().scores, constant))
    assert sentences.expected_errors(several) == (
        "Errors are, in the median over outputs, 0.500 times as large as the model itself expects."
    )
    assert sentences.expected_errors(made_up(scores=(constant,))) == ""


# --- Calibration ------------------------------------------------------------------------------------------------------


def test_coverage_within_chance_is_called_so():
    assert sentences.coverage(with_coverage(0.95, 0.94)) == (
        "Of the measured values, 94.5 % lie inside their 95 % intervals; each output is within what chance allows."
    )
    assert sentences.coverage(with_coverage(0.95)).endswith("; it is within what chance allows.")


def test_outputs_with_intervals_too_narrow_or_too_wide_are_named():
    sentence = sentences.coverage(with_coverage(0.80, 0.95, 1.0))
    assert sentence.endswith("they are too narrow for “y0” and too wide for “y2”.")


def test_where_rows_are_too_few_to_tell_the_doubt_is_told():
    """24 of 30 have a probability of 0.0033, 16 of 20 of 0.016 and 27 of 30 of 0.19, by the binomial distribution."""
    words = {(24, 30): "perhaps too narrow", (16, 20): "perhaps too narrow", (27, 30): "as it should be"}
    assert {key: sentences.calibration_verdict(key[0] / key[1], key[1]) for key in words} == words
    assert scipy.stats.binom.cdf([24, 16, 27], [30, 20, 30], 0.95) == pytest.approx([0.0033, 0.016, 0.19], rel=0.05)


def test_coverage_is_weighted_with_the_number_of_values():
    coverage = np.vstack([np.ones((18, 3)), [1.0, 0.9, np.nan]])
    counts = np.array([[30, 10, 0]] * 10)
    sentence = sentences.coverage(made_up(("a", "b", "c"), calibration=Calibration(coverage, counts)))
    assert "97.5 %" in sentence
    nothing = made_up(("a",), calibration=Calibration(np.full((19, 1), np.nan), np.zeros((10, 1), dtype=np.int64)))
    assert sentences.coverage(nothing) == "No output has a distribution that could be judged."


@pytest.mark.parametrize("n", [20, 200, 5000])
def test_chance_alone_is_seldom_called_a_fault(n):
    """Of 4000 coverages that are right, at most 0.27 % are blamed: 5 standard errors above are 0.68 %."""
    shares = np.random.default_rng(n).binomial(n, 0.95, 4000) / n
    sentence = [sentences.calibration_verdict(share, n) for share in shares]
    assert np.mean([each in ("too narrow", "too wide") for each in sentence]) < 0.0068
    assert np.mean([each != "as it should be" for each in sentence]) < 0.056  # 4.55 %, likewise


def test_an_output_that_was_not_judged_is_called_so():
    assert sentences.calibration_verdict(math.nan, 0) == "not judged"


def test_far_values_stand_beside_those_of_chance():
    """Beyond 4 standard deviations lie 6.334e-5 of a normal distribution."""
    found = made_up(outliers=Outliers((), 100_000, 12))
    assert sentences.outliers(found).startswith("12 of 100,000 measured values lie more than 4 predicted standard")
    assert sentences.outliers(found).endswith("6.3 would.")
    assert "1 of 1 measured value lies" in sentences.outliers(made_up(outliers=Outliers((), 1, 1)))


# --- Balances ---------------------------------------------------------------------------------------------------------


def test_a_balance_is_told_with_its_sizes_and_verdict():
    assert plain(sentences.balance(residuals(), tolerance())) == (
        "Of measured rows, 95 % miss “sum” by no more than 0.980 kg/s, of the model's draws by 3.92 kg/s before and "
        "0.0392 kg/s after conditioning; the data determine its tolerance, a standard deviation between 0.0500 and "
        "0.200 kg/s."
    )


def test_a_biased_balance_is_called_so_with_its_note():
    sentence = sentences.balance(residuals(), tolerance(biased=True, note="biased by 0.3 ± 0.01 kg/s"))
    assert sentence.endswith(" It is biased: biased by 0.3 ± 0.01 kg/s.")


def test_a_balance_that_no_row_can_check_is_called_so():
    usual = residuals()
    unseen = replace(usual, summaries={**usual.summaries, DATA: replace(normal_summary(1.0), n=0, most=math.nan)})
    assert plain(sentences.balance(unseen, tolerance())).startswith(
        "No row has all that it takes to check “sum”. Of the model's draws, 95 % miss it by no more than 3.92 kg/s "
        "before and 0.0392 kg/s after conditioning; the data determine"
    )


@pytest.mark.parametrize(
    ("verdict", "words"),
    [
        ("exact", "taken for exact"),
        ("exact to rounding", "obey it to rounding"),
        ("fixed", "was given, 0.100 kg/s"),
        ("informed", "between 0.0500 and 0.200 kg/s"),
        ("not informed by the data", "do not determine its tolerance"),
        ("not converged", "train for longer"),
        (
            "not separable from sensor noise",
            "only the sum of its tolerance and sensor noise, a standard deviation of 0.300 kg/s; give",
        ),
        ("a verdict of tomorrow", "a verdict of tomorrow"),
    ],
)
def test_every_verdict_has_plain_words(verdict, words):
    assert words in plain(sentences.verdict_sentence(tolerance(verdict=verdict)))


def test_many_balances_are_counted_by_verdict():
    names = tuple(f"k{i}" for i in range(6))
    trusts = [tolerance(name, verdict="exact" if i < 2 else "informed", biased=i == 5) for i, name in enumerate(names)]
    sentence = sentences.balances(made_up(balances=names, tolerances=tuple(trusts)))
    assert sentence == ("Of 6 balances the verdicts are: 4 “informed”, 2 “exact”. The residuals of “k5” are biased.")
    assert sentences.balances(made_up(balances=names)).endswith("None of them is biased.")
    assert sentences.balances(made_up(balances=names[:2])).count("Of measured rows") == 2


def test_certainty_is_told_of_the_output_that_gains_most_and_least():
    ledger = {"total": np.array([2.0, 9.0]), "sensor": np.array([1.0, 0.0]), "before": np.array([5.0, 10.0])}
    assert sentences.variance_reduction(made_up(ledger=ledger)) == (
        "The balances take most from the variance of the true “a [V]”, 75.0 %, and least from that of “b”, 10.0 %."
    )
    assert (
        sentences.variance_reduction(made_up(("a",))) == "The balances take 66.7 % from the variance of the true “a”."
    )


# --- Another model, the training, and the whole -----------------------------------------------------------------------


def with_another_model():
    usual = residuals()
    beside = replace(usual, summaries={**usual.summaries, WITHOUT: normal_summary(3.0)})
    scores = tuple(replace(score, baseline_rmse=4 * score.rmse, baseline_r2=0.1) for score in made_up().scores)
    return made_up(scores=scores, residuals=(beside,))


def test_another_model_is_compared_by_errors_and_balances():
    assert not sentences.has_baseline(made_up())
    assert sentences.has_baseline(with_another_model())
    assert plain(sentences.baseline_comparison(with_another_model())) == (
        "Errors are, in the median over outputs, 0.250 times those of the model without balances. Of its draws 95 % "
        "miss “sum” by no more than 5.88 kg/s; here it is 0.0392 kg/s."
    )


def test_training_is_told_with_its_length_and_end():
    assert sentences.training(made_up()) == (
        "Training ran for 3 epochs in 5.00 s, and ended because of: all epochs run. The state after epoch 2 was kept."
    )
    assert sentences.training(made_up(history=History())) == "The model does not remember its training."
    loaded = History([{"epoch": 0}], best_epoch=0)
    assert sentences.training(made_up(history=loaded)) == "Training ran for 1 epoch. The state after epoch 0 was kept."


def test_the_summary_has_a_paragraph_for_outputs_balances_and_another_model():
    parts = sentences.summary(with_another_model()).split("\n\n")
    assert len(parts) == 3
    assert parts[0].startswith("The model predicts 2 outputs")
    assert all(words in parts[0] for words in ("R² is lowest", "Errors are", "lie inside their 95 % intervals"))
    assert "“sum”" in parts[1]
    assert "without balances" in parts[2]
    assert len(sentences.summary(made_up(balances=())).split("\n\n")) == 1


def test_long_lists_of_names_are_cut():
    assert listed([f"y{j}" for j in range(9)]) == "“y0”, “y1”, “y2”, “y3”, “y4”, “y5” and 3 more"
    assert listed(["a"]) == "“a”"


def test_a_draw_that_obeys_exactly_is_told_as_zero():
    usual = residuals()
    exact = replace(usual, summaries={**usual.summaries, DRAWS_AFTER: normal_summary(0.0)})
    assert "and 0 kg/s after" in plain(sentences.balance(exact, tolerance(verdict="exact")))
