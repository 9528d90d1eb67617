"""The whole comparison in miniature: methods, seeds, files, and going on where it stopped."""

import csv
import pickle
import shutil
from dataclasses import replace

import joblib
import pytest

from equipoise.app.job import Job
from equipoise.rivals.cases.case import CaseError
from equipoise.rivals.cases.collection import named_case, write_case
from equipoise.rivals.comparison.comparison import CaseFacts, Comparison, as_case, compare
from equipoise.rivals.comparison.trial import Trial
from equipoise.rivals.methods import qp_layer
from equipoise.rivals.methods.catalogue import DEFAULT, Method, MethodError
from equipoise.training.plan import TrainingPlan

TINY = {"hidden": (4,), "n_draws": 8, "training": TrainingPlan(max_epochs=4, batch_size=64)}
SOME = ("vi+none", "ensemble+projection", "vi+learned")


def tiny(name="few"):
    case = named_case(name)
    return replace(case, options=case.options | TINY)


@pytest.mark.usefixtures("long_training")
def test_every_default_method_is_scored_on_the_same_rows(monkeypatch):
    monkeypatch.setattr(qp_layer, "ROWS", 16)
    found = compare(replace(tiny(), split=_small), DEFAULT, seeds=1)
    assert [line.method for line in found.lines] == list(DEFAULT)
    reasons = {line.method: line.failures for line in found.lines if line.failures}
    assert all("cvxpylayers" in failure for failures in reasons.values() for failure in failures)
    assert {line.cells["rmse"].n for line in found.lines if line.method not in reasons} == {1}


@pytest.mark.usefixtures("long_training")
def test_a_run_writes_its_files_and_goes_on_where_it_stopped(tmp_path, monkeypatch):
    case, calls, run = replace(tiny(), split=_small), [], Trial._run

    def counted(self, split):
        calls.append((self.method.name, self.seed))
        if len(calls) == 4:
            raise KeyboardInterrupt
        return run(self, split)

    monkeypatch.setattr(Trial, "_run", counted)
    with pytest.raises(KeyboardInterrupt):
        compare(case, SOME, seeds=2, folder=tmp_path)
    assert not (tmp_path / "compare.json").exists()
    found = compare(case, SOME, seeds=2, folder=tmp_path)
    assert len(calls) == 7  # three before the interruption, the interrupted one, and the three that were left
    assert {file.name for file in tmp_path.iterdir()} == {
        "compare.csv", "compare.json", "compare.md", "few.svg", "trials",
    }  # fmt: skip
    assert Comparison.load(tmp_path / "compare.json").model_dump_json() == found.model_dump_json()
    with open(tmp_path / "compare.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["method"], row["seed"]) for row in rows] == [(name, str(s)) for name in SOME for s in range(2)]
    assert float(rows[0]["rmse"]) == found.trials[0].scores["rmse"]
    (copy := tmp_path / "copy").mkdir()
    shutil.copy(tmp_path / "compare.json", copy)  # enough to go on from
    assert len(compare(case, SOME, seeds=3, folder=copy).trials) == 9
    assert calls[7:] == [(name, 2) for name in SOME]


@pytest.mark.usefixtures("long_training")
def test_workers_of_joblib_find_the_same_scores_whatever_its_backend():
    case = replace(tiny(), split=_small)
    one = compare(case, ["deterministic"], seeds=2)
    with joblib.parallel_config(backend="threading"):
        two = compare(case, ["deterministic"], seeds=2, n_jobs=2)
    assert [t.scores["rmse"] for t in one.trials] == pytest.approx([t.scores["rmse"] for t in two.trials], rel=1e-6)


@pytest.mark.usefixtures("long_training")
def test_a_users_own_job_file_is_compared_on(tmp_path):
    path = write_case("few", tmp_path)
    text = path.read_text().replace("hidden = [32, 32]", "hidden = [3]\nmax_epochs = 2\nn_draws = 4")
    path.write_text(text)
    found = compare(path, ["vi+projection"], seeds=[4])
    assert (found.cases[0].name, found.cases[0].rows_fitted, found.cases[0].rows_tested) == ("few", 128, 32)
    assert found.lines[0].cells["residual_of_mean"].mean < 1e-12
    assert as_case(Job.load(path)).name == "few"


@pytest.mark.parametrize("name", ["few", "tank", "battery"])
def test_a_trial_can_be_sent_to_another_process(name):
    trial = pickle.loads(pickle.dumps(Trial(named_case(name), Method("vi", "learned"), 3)))
    assert trial.case.constraint == named_case(name).constraint
    assert trial.case.options == named_case(name).options


def test_comparisons_are_merged_with_the_commands_that_made_them():
    facts = CaseFacts(name="line", title="a line", inputs=1, outputs=3, balances=1, rows_fitted=30, rows_tested=10)
    one = Comparison(command="compare a", versions={"torch": "2"}, cases=(facts,))
    other = Comparison(command="compare b", versions={"torch": "2"}, cases=(facts.model_copy(update={"name": "b"}),))
    merged = Comparison.merged([one, other])
    assert merged.command == "compare a; compare b"
    assert [case.name for case in merged.cases] == ["line", "b"]
    with pytest.raises(CaseError, match="made with the same versions, but got torch 2 and torch 3"):
        Comparison.merged([one, other.model_copy(update={"versions": {"torch": "3"}})])
    with pytest.raises(CaseError, match="different cases, but got 'line' twice"):
        Comparison.merged([one, one])


def _small(seed):
    """Few rows of the flash, so that scoring takes no time."""
    split = named_case("few").split(seed)
    return replace(split, test=split.test.take(list(range(12))))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (("few", ["vi+projecton"]), MethodError, "Did you mean 'projection'"),
        (("fleu", ["vi"]), CaseError, "got 'fleu'"),
        (([], ["vi"]), CaseError, "got 0 cases, 1 methods and 3 seeds"),
        ((["few", "few"], ["vi"]), CaseError, "different names, but got 'few' twice"),
    ],
)
def test_what_cannot_be_compared_is_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        compare(*arguments)


def test_a_file_in_place_of_the_folder_is_refused_before_anything_is_fitted(tmp_path):
    (tmp_path / "out").write_text("")
    with pytest.raises(CaseError, match="must go into a folder, but got the file"):
        compare("few", ["vi"], folder=tmp_path / "out")


def test_a_file_that_holds_no_comparison_is_refused_with_its_name(tmp_path):
    (tmp_path / "compare.json").write_text('{"cases": 3}')
    with pytest.raises(CaseError, match=r"compare\.json' must hold a comparison, but got 'cases'"):
        Comparison.load(tmp_path / "compare.json")
    with pytest.raises(CaseError, match=r"nothing\.json' must be readable"):
        Comparison.load(tmp_path / "nothing.json")
