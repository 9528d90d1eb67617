"""Claims have names and places in the paper; verdicts follow the numbers, with one seed and with several."""

import dataclasses
import math
from functools import reduce
from operator import getitem

import numpy as np
import pytest
from handmade_results import OUTPUT_STD, TRUE_STD, example

from equipoise.rivals.cases.battery import KEYS
from studies.battery.claims import CLAIMS, with_our_training
from studies.battery.published import PRINTED, TABLES
from studies.battery.results import Results

JUDGES = {claim.name: claim.judge for claim in CLAIMS}
OF_EXAMPLE = {
    "accuracy": "reproduced",
    "same coverage": "reproduced",
    "coverage": "not reproduced",
    "width": "reproduced",
    "aleatoric": "not reproduced",
    "epistemic": "reproduced",
    "voltage violation": "reproduced",
    "heat violation": "reproduced",
    "voltage tolerance": "reproduced",
    "heat tolerance": "cannot be as stated",
    "moments": "cannot be as stated",
    "noise level": "cannot be as stated",
    "MSE": "cannot be as stated",
    "MSE spread": "cannot be as stated",
}


def changed(results: Results, numbers: dict) -> Results:
    """The same results with other numbers at some paths."""
    tree = results.model_dump()
    for path, value in numbers.items():
        *above, last = path.split(".")
        reduce(getitem, above, tree)[last] = value
    return Results.model_validate(tree)


@pytest.mark.parametrize("name", JUDGES)
def test_verdicts_of_the_example(name):
    verdict = JUDGES[name]([example()])
    assert verdict.outcome == OF_EXAMPLE[name]
    assert "1 seed" in verdict.why
    assert verdict.why.endswith(".")
    assert "nan" not in verdict.why


@pytest.mark.parametrize(
    ("name", "numbers", "outcome"),
    [
        ("accuracy", {"models.paper.mse_true.overall": 1.0}, "not reproduced"),
        ("same coverage", {"models.paper.coverage.overall": 0.93}, "not reproduced"),
        ("coverage", {f"models.{m}.coverage.overall": 0.988 for m in ("bnn", "paper")}, "reproduced"),
        ("width", {"models.paper.interval_width.overall": 0.5}, "not reproduced"),
        ("aleatoric", {"models.paper.aleatoric.overall": 0.01}, "reproduced"),
        ("epistemic", {"models.paper.epistemic.overall": 0.5}, "not reproduced"),
        ("voltage violation", {"models.paper.violation_of_means.voltage.median": 1e-4}, "not reproduced"),
        ("voltage violation", {"models.paper.violation_of_means.voltage.median": 0.0}, "reproduced"),
        ("heat violation", {"models.paper.violation_of_means.heat.median": 0.1}, "not reproduced"),
        ("voltage tolerance", {"tolerances.paper.voltage.kl": 3.0}, "not reproduced"),
        ("heat tolerance", {"tolerances.paper.heat.verdict": "informed"}, "reproduced"),
        ("heat tolerance", {"tolerances.paper.heat.verdict": "not converged"}, "not reproduced"),
    ],
)
def test_a_verdict_turns_when_the_numbers_do(name, numbers, outcome):
    assert JUDGES[name]([changed(example(), numbers)]).outcome == outcome


@pytest.mark.parametrize(
    ("noise", "found", "outcome"),
    [(1e-3, 0.02, "reproduced"), (1e-3, 0.2, "not reproduced"), (0.1, 0.02, "cannot be as stated")],
)
def test_an_uncertainty_below_the_noise_cannot_be(noise, found, outcome):
    numbers = {f"observation_std.true.{key}": noise * OUTPUT_STD[key] for key in KEYS}
    numbers |= {"models.bnn.aleatoric.overall": found, "models.bnn.mse_noisy.overall": found**2 / 4}
    run = changed(example(), numbers)
    assert JUDGES["noise level"]([run]).outcome == outcome
    assert JUDGES["MSE"]([run]).outcome == outcome


def test_the_noise_floor_is_that_of_the_data():
    noise = np.array([TRUE_STD[key] / OUTPUT_STD[key] for key in KEYS])
    assert f"is {noise.mean():.4f} training standard deviations" in JUDGES["noise level"]([example()]).why
    assert f"an MSE of {(noise**2).mean():.4f} against measured values" in JUDGES["MSE"]([example()]).why


def test_numbers_that_are_not_negative_spread_no_more_than_the_bound_says():
    """1.96 √n times their mean, reached when all but one are 0: the printed spread lies above it."""
    n, mean = len(KEYS), PRINTED["mse"].value("bnn")
    bound = 1.96 * math.sqrt(n) * mean
    samples = np.random.default_rng(0).dirichlet(np.full(n, 0.1), 2000) * n * mean
    assert np.all(1.96 * samples.std(1, ddof=1) <= bound)
    assert 1.96 * np.std(n * mean * np.eye(n)[0], ddof=1) == pytest.approx(bound)
    assert PRINTED["mse_spread"].value("bnn") > 2.9 * bound


def test_printed_moments_of_the_log_normal_would_be_reproduced(monkeypatch):
    for name, digits in (("heat_mean_r", "0.225"), ("heat_std_r", "0.295")):
        monkeypatch.setitem(PRINTED, name, dataclasses.replace(PRINTED[name], paper=digits))
    assert JUDGES["moments"]([example()]).outcome == "reproduced"


def test_a_spread_within_the_bound_would_be_reproduced(monkeypatch):
    monkeypatch.setitem(PRINTED, "mse_spread", dataclasses.replace(PRINTED["mse_spread"], bnn="1.88e-4"))
    assert JUDGES["MSE spread"]([example()]).outcome == "reproduced"


# --- Several seeds ----------------------------------------------------------------------------------------------------


def runs_with(path: str, paper: list[float], bnn: list[float]) -> list[Results]:
    pairs = zip(paper, bnn, strict=True)
    return [
        changed(example(seed), {f"models.paper.{path}": p, f"models.bnn.{path}": b})
        for seed, (p, b) in enumerate(pairs)
    ]


def test_several_seeds_are_counted_and_shown_with_their_error():
    verdict = JUDGES["width"]([example(seed) for seed in range(3)])
    assert "3 seeds" in verdict.why
    assert "±" in verdict.why


@pytest.mark.parametrize(
    ("paper", "outcome"),
    [
        ([0.28, 0.285, 0.29], "reproduced"),
        ([0.29, 0.32, 0.28], "not reproduced"),
        ([0.33, 0.34, 0.32], "not reproduced"),
    ],
)
def test_a_reduction_must_exceed_the_noise_between_seeds(paper, outcome):
    runs = runs_with("interval_width.overall", paper, [0.30, 0.31, 0.31])
    assert JUDGES["width"](runs).outcome == outcome


@pytest.mark.parametrize(
    ("paper", "outcome"),
    [([2e-4, 3e-4, 1e-4], "reproduced"), ([1.9e-4, 2.0e-4, 2.1e-4], "not reproduced"), ([1e-4] * 3, "reproduced")],
)
def test_an_excess_counts_only_beyond_the_noise_between_seeds(paper, outcome):
    runs = runs_with("mse_true.overall", paper, [1.7e-4, 1.8e-4, 1.9e-4])
    assert JUDGES["accuracy"](runs).outcome == outcome


def test_the_median_violation_over_seeds_is_compared_on_the_log_scale():
    runs = runs_with("violation_of_means.voltage.median", [1e-5, 1e-7], [1e-2, 1e-2])
    assert "4.0 ± 1.0 orders of magnitude" in JUDGES["voltage violation"](runs).why


def test_every_claim_has_a_name_of_its_own_and_a_known_place():
    assert len({claim.name for claim in CLAIMS}) == len(CLAIMS)
    assert {claim.label for claim in CLAIMS} <= set(TABLES)


def test_no_two_claims_are_judged_by_the_same_sentence():
    assert len({claim.judge([example()]).why for claim in CLAIMS}) == len(CLAIMS)


def test_with_our_training_the_paper_stands_for_its_models_as_we_train_them():
    run = example()
    (swapped,) = with_our_training([run])
    assert swapped.models.bnn == run.models.bnn_residuals != run.models.bnn
    assert swapped.models.paper == run.models.paper_residuals != run.models.paper
    assert swapped.tolerances.paper == run.tolerances.paper_residuals != run.tolerances.paper
    assert (swapped.models.equipoise, swapped.output_std) == (run.models.equipoise, run.output_std)
