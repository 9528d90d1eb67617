"""The content of results.json: its promised paths, its way through a file, and its summary over seeds."""

import json
import math
import statistics

import numpy as np
import pytest
from handmade_results import example
from pydantic import ValidationError

from equipoise.rivals.cases.battery import KEYS, balances
from studies.battery import results as module
from studies.battery.results import (
    HEATS,
    MODELS,
    VOLTAGES,
    Estimate,
    Results,
    ResultsError,
    ScoreByOutput,
    SeedSummary,
    headline,
    read,
    write,
)

SCORES = ("mse_noisy", "mse_true", "coverage", "interval_width", "aleatoric", "epistemic", "crps")
TOLERANCE = ("mu_rho", "sigma_rho", "mu_rho_relative", "mean_r", "std_r", "kl", "contraction", "informed", "verdict")


def at(tree, path):
    for key in path.split("."):
        tree = tree[key]
    return tree


def promised_paths():
    """What readers of the file rely on."""
    for model in MODELS:
        for score in SCORES:
            yield f"models.{model}.{score}.overall"
            yield from (f"models.{model}.{score}.by_output.{key}" for key in KEYS)
        yield from (f"models.{model}.{number}" for number in ("joint_nll", "energy_score"))
        for kind in ("violation_of_means", "violation_of_draws"):
            for part in ("overall", "voltage", "heat", "overall_relative"):
                yield from (f"models.{model}.{kind}.{part}.{number}" for number in ("mean", "median"))
    for model in ("paper", "equipoise"):
        for balance in ("voltage", "heat"):
            yield from (f"tolerances.{model}.{balance}.{name}" for name in TOLERANCE)
    for key in KEYS:
        yield from (f"observation_std.true.{key}", f"observation_std.learned.{key}", f"sensor_std.{key}")
    yield from ("seconds", "config", "versions", "seed")


def test_the_file_has_every_promised_path(tmp_path):
    write(example(), tmp_path / "results.json")
    tree = json.loads((tmp_path / "results.json").read_text("utf-8"))
    values = {path: at(tree, path) for path in promised_paths()}
    assert all(isinstance(value, int | float | str | dict) for value in values.values())


def test_every_field_is_documented():
    schema = Results.model_json_schema()
    parts = {"Results": schema, **schema["$defs"]}
    fields = {(name, key): field for name, part in parts.items() for key, field in part["properties"].items()}
    assert [place for place, field in fields.items() if not field.get("description")] == []
    assert [name for name, part in parts.items() if not part.get("description")] == []


def test_keys_are_those_of_the_data():
    assert (*VOLTAGES, *HEATS) == tuple(KEYS)
    assert tuple(module.Scales.model_fields) == tuple(module.Tolerances.model_fields) == balances().names


def test_a_score_is_the_mean_of_its_outputs_with_their_spread():
    values = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 129.0]
    score = ScoreByOutput.of(dict(zip(KEYS, values, strict=True)))
    assert score.overall == 32.0
    assert score.sd_over_outputs == pytest.approx(statistics.stdev(values))
    assert list(score.by_output.values()) == values


def test_an_output_that_is_missing_or_unknown_is_refused():
    values = dict.fromkeys(KEYS, 1.0)
    with pytest.raises(ValidationError, match=r"every output must have a value, but got none for eta_n, Q_rev"):
        ScoreByOutput.of({key: 1.0 for key in values if key not in ("eta_n", "Q_rev")})
    with pytest.raises(ValidationError, match=r"by_output\.X"):
        ScoreByOutput.of(values | {"X": 1.0})


def test_results_cannot_be_changed_and_know_their_keys():
    results = example()
    with pytest.raises(ValidationError, match="frozen"):
        results.seed = 3  # type: ignore[misc]
    with pytest.raises(ValidationError, match="extra_forbidden"):
        Results(**(results.model_dump() | {"more": 1}))


# --- Files ------------------------------------------------------------------------------------------------------------


def test_what_is_written_is_read_again(tmp_path):
    path, summary = tmp_path / "results.json", SeedSummary.of([example(0), example(1)])
    write(example(), path)
    assert read(path) == example()
    write(summary, path)
    assert read(path, SeedSummary) == summary
    assert [file.name for file in tmp_path.iterdir()] == ["results.json"]


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_numbers_that_are_not_finite_survive(tmp_path, value):
    results = example()
    model = results.models.paper.model_copy(update={"joint_nll": value})
    models = results.models.model_copy(update={"paper": model})
    write(results.model_copy(update={"models": models}), tmp_path / "r.json")
    np.testing.assert_equal(read(tmp_path / "r.json").models.paper.joint_nll, value)
    np.testing.assert_equal(json.loads((tmp_path / "r.json").read_text())["models"]["paper"]["joint_nll"], value)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("", r"the file as a whole \(Invalid JSON: EOF"),
        ('{"seed": 1', r"the file as a whole \(Invalid JSON"),
        ("[]", r"the file as a whole \(Input should be an object\)"),
        ("whole, but without its seed", r"seed \(Field required\)"),
        ("whole, but a text for a number", r"models\.bnn\.joint_nll \(Input should be a valid number"),
    ],
)
def test_a_broken_file_is_named_with_the_place_of_the_fault(tmp_path, content, complaint):
    if content.startswith("whole"):
        tree = example().model_dump(mode="json")
        if "seed" in content:
            del tree["seed"]
        else:
            tree["models"]["bnn"]["joint_nll"] = "low"
        content = json.dumps(tree)
    (tmp_path / "r.json").write_text(content)
    with pytest.raises(ResultsError, match=rf"r\.json' must hold Results, but got something else at {complaint}") as e:
        read(tmp_path / "r.json")
    assert "\n" not in str(e.value)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ResultsError, match=r"none\.json' cannot be read \(No such file or directory\). Run the study"):
        read(tmp_path / "none.json")


def test_a_write_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "results.json"
    write(example(0), path)
    monkeypatch.setattr("os.replace", lambda *paths: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        write(example(1), path)
    assert read(path) == example(0)
    assert [file.name for file in tmp_path.iterdir()] == ["results.json"]


# --- Several seeds ----------------------------------------------------------------------------------------------------


def test_the_headline_has_every_promised_number_and_no_curves():
    numbers, tree = headline(example()), example().model_dump()
    expected = {path for path in promised_paths() if isinstance(at(tree, path), bool | float)}
    assert expected <= set(numbers)
    assert all(numbers[path] == at(tree, path) for path in numbers)
    assert not any(part in path for path in numbers for part in ("calibration", "ledger", "history"))


def test_a_summary_is_the_mean_with_its_standard_error():
    runs = [example(seed) for seed in (3, 1, 4)]
    summary = SeedSummary.of(runs)
    assert summary.seeds == (3, 1, 4)
    for path in ("models.paper.mse_true.by_output.Q_rev", "tolerances.equipoise.heat.mu_rho"):
        values = [at(run.model_dump(), path) for run in runs]
        estimate = summary.numbers[path]
        assert estimate.mean == pytest.approx(statistics.mean(values))
        assert estimate.standard_error == pytest.approx(statistics.stdev(values) / math.sqrt(3))
        assert estimate.standard_error > 0
    assert summary.numbers["tolerances.paper.heat.informed"].mean == 0
    assert summary.numbers["tolerances.paper.voltage.informed"].mean == 1


def test_one_seed_has_no_standard_error_and_infinite_scores_have_none():
    assert all(math.isnan(estimate.standard_error) for estimate in SeedSummary.of([example()]).numbers.values())
    infinite = Estimate.of([1.0, math.inf])
    assert infinite.mean == math.inf
    assert math.isnan(infinite.standard_error)


@pytest.mark.parametrize("seeds", [(), (2, 2)])
def test_a_summary_needs_runs_of_different_seeds(seeds):
    with pytest.raises(ValueError, match=r"runs of different seeds, but got seeds \("):
        SeedSummary.of([example(seed) for seed in seeds])
