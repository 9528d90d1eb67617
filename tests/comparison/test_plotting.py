"""The figure has one mark and one name per method, and ours stands out."""

import re
import xml.etree.ElementTree as ET

from equipoise.comparison.plotting import figure
from equipoise.comparison.running import Comparison
from equipoise.comparison.summary import summarise
from equipoise.comparison.trial import TrialResult
from equipoise.report.charts import ORANGE


def comparison(methods):
    trials = [
        TrialResult(case="line", method=name, seed=seed, scores={"crps": 0.1 * (i + 1) + 0.01 * seed, **residual})
        for i, (name, residual) in enumerate(methods.items())
        for seed in range(2)
    ]
    return Comparison(trials=tuple(trials), lines=tuple(summarise(trials)))


METHODS = {"vi+none": {"residual_of_draws": 0.3}, "vi+learned": {"residual_of_draws": 0.0}}


def test_every_method_has_a_numbered_mark():
    drawn = figure(comparison(METHODS), "line")
    ET.fromstring(drawn)
    assert re.findall(r">\d  ([\w+]+)<", drawn) == list(METHODS)
    assert ORANGE.lower() in drawn.lower()


def test_axes_are_labelled_in_plain_text():
    drawn = figure(comparison(METHODS), "line")
    assert "mathdefault" not in drawn
    assert "10⁻¹⁶" in drawn
    assert "CRPS" in drawn


def test_a_case_without_results_is_an_empty_drawing():
    drawn = figure(comparison({}), "line")
    assert re.findall(r">\d  ", drawn) == []


def test_the_same_results_give_the_same_bytes():
    assert figure(comparison(METHODS), "line").splitlines()[:5] == figure(comparison(METHODS), "line").splitlines()[:5]
    assert "<dc:date>" not in figure(comparison(METHODS), "line")
