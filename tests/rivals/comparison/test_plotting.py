"""The figure has one mark and one name per method, and ours stands out."""

import itertools
import re
import xml.etree.ElementTree as ET

from other_process import digest, digest_elsewhere

from equipoise.app.report.charts import ORANGE
from equipoise.rivals.comparison.comparison import Comparison
from equipoise.rivals.comparison.plotting import figure
from equipoise.rivals.comparison.summary import summarise
from equipoise.rivals.comparison.trial import TrialResult


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
    assert "draws obey to rounding" in drawn
    assert ">0.1<" in drawn  # of the residual that is none of rounding
    assert "CRPS" in drawn


def test_numbers_of_methods_that_score_alike_do_not_stand_on_each_other():
    alike = {f"{inference}+none": {"residual_of_draws": 0.3} for inference in ("vi", "dropout", "ensemble", "laplace")}
    trials = [TrialResult(case="line", method=name, seed=0, scores={"crps": 0.1, **r}) for name, r in alike.items()]
    drawn = figure(Comparison(trials=tuple(trials), lines=tuple(summarise(trials))), "line")
    heights = sorted(float(y) for y in re.findall(r'anchor: start[^>]* y="([\d.]+)"[^>]*>[1-4]</text>', drawn))
    assert len(heights) == 4
    assert all(high - low > 7 for low, high in itertools.pairwise(heights))


def test_a_case_without_results_is_an_empty_drawing():
    drawn = figure(comparison({}), "line")
    assert re.findall(r">\d  ", drawn) == []


def test_the_same_results_give_the_same_bytes_in_every_process():
    drawn = figure(comparison(METHODS), "line")
    assert digest(drawn) == digest_elsewhere(__file__, 'figure(comparison(METHODS), "line")')
    assert "<dc:date>" not in drawn
