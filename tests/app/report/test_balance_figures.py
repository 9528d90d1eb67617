"""Figures of balances: what they draw is what was found, and their text alternatives carry the numbers."""

from dataclasses import replace
from functools import cache
from xml.etree import ElementTree

import numpy as np
import pytest
from handmade_findings import made_up, normal_summary, residuals, tolerance

from equipoise.app.report import balance_figures, charts
from equipoise.app.report.balance_residuals import (
    DATA,
    DRAWS_AFTER,
    DRAWS_BEFORE,
    MEANS_AFTER,
    MEANS_BEFORE,
    ONE_BY_ONE,
    WITHOUT,
)
from equipoise.app.report.charts import BLUE, GREEN, ORANGE, QUIET
from equipoise.app.report.formatting import SPACE

SVG = "{http://www.w3.org/2000/svg}"
DRAW = (balance_figures.residuals, balance_figures.tolerances, balance_figures.variance_reductions)


def words(figure) -> list[str]:
    return ["".join(element.itertext()) for element in ElementTree.fromstring(figure.svg).iter(f"{SVG}text")]


def only(figures):
    (figure,) = figures
    return figure


@pytest.fixture
def axes(monkeypatch):
    """Axes of all drawings that a test makes, after they were drawn."""
    found, draw_svg = [], charts.svg

    def svg(name, height, draw):
        return draw_svg(name, height, lambda canvas: (draw(canvas), found.extend(canvas.axes))[0])

    monkeypatch.setattr(charts, "svg", svg)
    return found


@cache
def usual(draw):
    """The figure of the usual findings, drawn once."""
    return only(draw(made_up()))


@pytest.mark.parametrize("draw", DRAW)
def test_a_figure_has_words_and_a_model_without_balances_has_none(draw):
    figure = usual(draw)
    assert figure.caption.endswith(".")
    assert len(figure.alt) > 40
    assert "sum" in words(figure)
    assert draw(made_up(balances=())) == []


def test_residuals_are_bars_between_their_quantiles(axes):
    figure = only(balance_figures.residuals(made_up()))
    whole, half = axes[0].containers[:2]
    sizes = [0.5, 1.0, 2.0, 0.01, 0.02]
    for bars, z in ((whole, 1.96), (half, 0.674)):
        assert [bar.get_x() for bar in bars] == pytest.approx([-z * size for size in sizes])
        assert [bar.get_width() for bar in bars] == pytest.approx([2 * z * size for size in sizes])
    assert {DATA, MEANS_BEFORE, DRAWS_AFTER, "residual [kg/s]", "0.98", "3.9", "0.039"} <= set(words(figure))


def test_text_alternatives_of_residuals_carry_the_sizes():
    alt = usual(balance_figures.residuals).alt.replace(SPACE, " ")
    assert alt.endswith(
        "do not exceed: measured rows 0.980 kg/s; means, before 1.96 kg/s; draws, before 3.92 kg/s; "
        "means, after 0.0196 kg/s; draws, after 0.0392 kg/s."
    )


def test_what_could_not_be_measured_is_left_out():
    usual = residuals()
    unseen = replace(usual, summaries={**usual.summaries, DATA: replace(normal_summary(1.0), n=0)})
    assert DATA not in words(only(balance_figures.residuals(made_up(residuals=(unseen,)))))


def test_colours_tell_before_from_after():
    kinds = {DATA: QUIET, MEANS_BEFORE: ORANGE, DRAWS_BEFORE: ORANGE, MEANS_AFTER: BLUE, DRAWS_AFTER: BLUE}
    kinds |= {WITHOUT: GREEN, ONE_BY_ONE: GREEN}
    assert {kind: balance_figures.residual_color(kind) for kind in kinds} == kinds


def test_prior_and_posterior_are_drawn_in_the_balances_unit(axes):
    figure = only(balance_figures.tolerances(made_up()))
    prior, posterior = (patch.get_xy() for patch in axes[0].patches)
    assert prior[prior[:, 1].argmax(), 0] == pytest.approx(np.exp(-3.0))
    assert posterior[posterior[:, 1].argmax(), 0] == pytest.approx(0.1)
    assert prior[:, 1].max() / posterior[:, 1].max() == pytest.approx(0.7 / 3.0)  # densities: wide is low
    assert {"prior", "posterior", "tolerance [kg/s]"} <= set(words(figure))
    assert figure.alt.replace(SPACE, " ").endswith("sum: 0.100 kg/s, 95 % from 0.0500 to 0.200; informed.")


def test_what_was_not_learned_is_not_drawn():
    assert balance_figures.tolerances(made_up(tolerances=(tolerance(kind="exact"),))) == []


def test_many_tolerances_are_spread_over_figures():
    names = tuple(f"k{i}" for i in range(8))
    figures = balance_figures.tolerances(made_up(balances=names))
    assert [word for figure in figures for word in words(figure) if word in names] == list(names)
    assert len(figures) == 2


def test_purchases_are_sorted_and_small_ones_left_out(axes):
    """Before conditioning the variance of true values is 10 − 1."""
    f = made_up(("a [V]", "b", "c"), lost_without=np.array([[0.9, 0.0, 4.5]]))
    figure = only(balance_figures.variance_reductions(f))
    (bars,) = axes[0].containers
    assert [bar.get_width() for bar in bars] == pytest.approx([50.0, 10.0])
    assert [label.get_text() for label in axes[0].get_yticklabels()] == ["c", "a"]
    assert figure.alt.endswith("c 50.0 %; a [V] 10.0 %.")


def test_a_balance_that_buys_nothing_has_no_figure():
    assert balance_figures.variance_reductions(made_up(lost_without=np.zeros((1, 2)))) == []
