"""The further studies with a tiny configuration, for real."""

import pytest

from equipoise.rivals.cases.battery.settings import Settings
from studies.battery import study as module
from studies.battery.results import MODELS
from studies.battery.study import Study, study, tables, tasks_of

pytestmark = pytest.mark.usefixtures("long_training")


def tiny():
    small = Settings.named("small")
    training = small.training | {"max_epochs": 10, "mean_epochs": 5, "noise_epochs": 1}
    return small.model_copy(update={"training": training, "hidden": (8,), "n_draws": 8, "violation_draws": 16})


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


def test_the_ablation_goes_from_the_papers_model_to_ours(cache):
    models = [model for _, model, _ in tasks_of("ablation", tiny(), cache, cache, (1,))]
    assert models[:4] == ["bnn", "paper", "bnn_residuals", "paper_residuals"]
    assert models[4:] == ["relative", "joint", "sensors", "warm", "equipoise", "exact"]


def test_whole_discharges_are_left_out_in_the_middle_and_at_the_edge(cache):
    keys = tasks_of("discharges", Settings.named("full"), cache, cache, (1,))
    assert list(dict.fromkeys(situation for situation, _, _ in keys)) == [
        "without 1.5 A (middle)",
        "without 298 K (middle)",
        "without 3 A (edge)",
        "without 318 K (edge)",
    ]
    without = keys["without 3 A (edge)", "bnn", 1]
    assert (without.variant.current, without.variant.temperature) == (3.0, None)


def test_a_part_is_run_written_and_told(cache, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "ABLATION", ("bnn", "equipoise"))
    found = study(tiny(), tmp_path, ("ablation",), (1, 2), workers=1, verbose=False)
    assert [(f.model, f.seeds) for f in found.findings] == [("bnn", [1, 2]), ("equipoise", [1, 2])]
    kept = Study.model_validate_json((tmp_path / "study.json").read_text())
    assert kept == found
    assert kept.findings[0].tol_std == [{}, {}]
    assert kept.findings[1].tol_std[0].keys() == {"voltage", "heat"}
    (table,) = tables(found)
    ours = found.findings[1]
    mean = sum(ours.joint_nll) / 2
    cell = dict(zip(table.header, table.rows[1], strict=True))["joint NLL"]
    assert float(cell.split("±")[0].replace("−", "-").replace(",", "")) == pytest.approx(mean, rel=0.1)
    assert "2 seeds" in (tmp_path / "study.md").read_text()
    more = study(tiny(), tmp_path, ("seeds",), (1,), models=("bnn",), workers=1, verbose=False)
    assert [f.part for f in more.findings] == ["ablation", "ablation", "seeds"]  # what was found before stays


def test_one_fit_serves_all_parts_it_stands_in(cache, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "ABLATION", ("bnn",))
    asked = {}

    class EnoughError(Exception):
        pass

    def look(tasks, *rest):
        asked.update(tasks)
        raise EnoughError

    monkeypatch.setattr(module, "finish", look)
    with pytest.raises(EnoughError):
        study(tiny(), tmp_path, ("ablation", "seeds"), (1,), verbose=False)
    assert sorted(task.model for task in asked.values()) == sorted(MODELS)  # bnn stands in both parts
