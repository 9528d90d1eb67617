"""Figures of outputs: what they draw is what was found, and their text alternatives carry the numbers."""

import re
from dataclasses import replace
from functools import cache
from xml.etree import ElementTree

import numpy as np
import pytest
from handmade_findings import made_up

from equipoise.app.report import output_figures
from equipoise.app.report.charts import BLUE, TERMS
from equipoise.app.report.formatting import SPACE
from equipoise.app.report.scores import Calibration
from equipoise.training.loop import History

SVG = "{http://www.w3.org/2000/svg}"
DRAW = (output_figures.predictions, output_figures.calibration, output_figures.ledgers, output_figures.training)


def words(figure) -> list[str]:
    return ["".join(element.itertext()) for element in ElementTree.fromstring(figure.svg).iter(f"{SVG}text")]


def only(figures):
    (figure,) = figures
    return figure


@cache
def usual(draw):
    """Figures of the usual findings, drawn once."""
    return draw(made_up())


@pytest.mark.parametrize("draw", DRAW)
def test_a_figure_has_words_for_those_who_cannot_see_it(draw):
    for figure in usual(draw):
        assert figure.caption.endswith(".")
        assert len(figure.alt) > 40
        assert len(words(figure)) > 3


def test_predictions_are_dots_and_intervals_of_every_pictured_row():
    figure = only(output_figures.predictions(made_up(("a [V]",))))
    paths = [e.attrib for e in ElementTree.fromstring(figure.svg).iter(f"{SVG}path")]
    drawn = [path["d"] for path in paths if BLUE.lower() in path.get("style", "").lower()]
    intervals, dots = (np.array(re.findall(r"-?\d+\.?\d*", d), dtype=float).reshape(-1, 2, 2) for d in drawn)
    assert len(intervals) == len(dots) == 100
    scale = (intervals[-1, 0, 0] - intervals[0, 0, 0]) / 1.0  # points for a unit of x
    high = (intervals[0, 0, 1] - intervals[-1, 0, 1]) / 1.0  # and of y
    assert intervals[:, 0, 1] - intervals[:, 1, 1] == pytest.approx(np.full(100, 0.2 * high), abs=0.02)
    assert intervals[:, 0, 1] - dots[:, 0, 1] == pytest.approx(np.full(100, 0.11 * high), abs=0.02)
    assert np.diff(dots[:, 0, 0]) == pytest.approx(np.full(99, scale / 99), abs=0.02)
    assert "a [V]" in words(figure)


def test_text_alternatives_of_predictions_carry_the_scores():
    figure = only(usual(output_figures.predictions))
    assert figure.alt.replace(SPACE, " ").endswith("a [V]: R² 0.900, RMSE 1.00 V. b: R² 0.890, RMSE 2.00.")
    assert figure.caption == "a, b: predicted against measured values, 100 rows of each."


def test_an_output_that_was_not_measured_is_called_so():
    f = made_up(("a", "b"))
    hidden = f.plotted.measured.copy()
    hidden[:, 1] = np.nan
    unseen = replace(f.scores[1], n=0)
    f = replace(f, plotted=replace(f.plotted, measured=hidden), scores=(f.scores[0], unseen))
    figure = only(output_figures.predictions(f))
    assert "not measured here" in words(figure)
    assert figure.alt.endswith("b: not measured.")
    assert "0 to 100 rows" in figure.caption


def test_many_outputs_are_spread_over_figures_and_all_of_them_named():
    f = made_up(tuple(f"output {j}" for j in range(5)))
    figures = output_figures.predictions(f)
    assert len(figures) == 2
    assert [word for figure in figures for word in words(figure) if word.startswith("output")] == list(f.outputs)


def test_calibration_shows_coverage_and_histogram():
    f = made_up(("a", "b"))
    coverage = f.calibration.coverage.copy()
    coverage[-1] = [0.97, 0.91]
    figure = only(output_figures.calibration(replace(f, calibration=replace(f.calibration, coverage=coverage))))
    assert figure.alt.endswith("Coverage of 95 % intervals: a 97.0 %; b 91.0 %.")
    assert {"a", "b", "F(measured value)"} <= set(words(figure))


def test_an_output_without_distribution_is_left_out_of_calibration():
    f = made_up(("a", "b"))
    counts = f.calibration.pit_counts.copy()
    counts[:, 0] = 0
    figure = only(output_figures.calibration(replace(f, calibration=replace(f.calibration, pit_counts=counts))))
    assert "a" not in words(figure)
    nothing = Calibration(f.calibration.coverage, np.zeros((10, 2), dtype=np.int64))
    assert output_figures.calibration(replace(f, calibration=nothing)) == []


def test_shares_of_the_ledger_are_of_what_adds_variance_and_empty_terms_are_left_out():
    """6 + 1 + 3 add; 2 and 4 are taken away; 4 remain."""
    shares = output_figures.ledger_shares(made_up(("a",)))
    assert {name: float(values[0]) for name, values in shares.items()} == pytest.approx(
        {"aleatoric": 0.6, "sensor": 0.1, "epistemic": 0.3, "interaction": -0.2, "reduction": -0.4}
    )
    assert sum(values[0] for values in shares.values()) == pytest.approx(4.0 / 10.0)
    assert list(shares) == [name for name in TERMS if name in shares]


def test_text_alternatives_of_the_ledger_carry_the_shares():
    figure = only(output_figures.ledgers(made_up(("a [V]",))))
    assert figure.alt.endswith("a [V]: aleatoric 60, sensor 10, epistemic 30, interaction -20, reduction -40.")
    assert {"a", "total", "aleatoric"} <= set(words(figure))


def test_training_has_a_figure_for_each_kind_of_loss():
    means, distributions = usual(output_figures.training)
    assert means.alt == "Error over 1 epochs, from 0.500 to 0.500."
    assert distributions.alt == "Loss over 2 epochs: 3.00 at first, 2.00 at best, 2.00 at last."
    assert {"trained on", "held out", "kept"} <= set(words(distributions))
    assert output_figures.training(made_up(history=History())) == []


def test_training_without_held_out_rows_is_drawn_from_the_others():
    epochs = [{"epoch": e, "phase": "elbo", "nll": 3.0 - e} for e in range(3)]
    figure = only(output_figures.training(made_up(history=History(epochs))))
    assert "3.00 at first, 1.00 at best" in figure.alt
    assert not {"held out", "kept"} & set(words(figure))
