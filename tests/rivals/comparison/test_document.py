"""The page says what was found: numbers, marks, losses, failures, prices."""

import math

from equipoise.rivals.comparison.__main__ import main, write_page
from equipoise.rivals.comparison.comparison import CaseFacts, Comparison
from equipoise.rivals.comparison.document import page
from equipoise.rivals.comparison.summary import summarise
from equipoise.rivals.comparison.trial import TrialResult

FACTS = CaseFacts(name="line", title="a line", inputs=1, outputs=3, balances=1, rows_fitted=30, rows_tested=10)


def comparison(scores, n_seeds=2, extra=(), **said):
    trials = [
        TrialResult(case="line", method=method, seed=seed, scores={"rmse": value[seed], "joint_nll": math.nan})
        for method, value in scores.items()
        for seed in range(n_seeds)
    ]
    trials += list(extra)
    return Comparison(cases=(FACTS,), trials=tuple(trials), lines=tuple(summarise(trials)), **said)


def test_a_loss_is_told_with_its_size_and_error():
    text = page(comparison({"vi+learned": [0.5, 0.6], "vi+none": [0.38, 0.46]}))
    assert "`vi+learned` is beaten by more than 2 standard errors" in text
    assert "- RMSE: vi+none (-0.13 ± 0.01)" in text


def test_a_difference_within_noise_is_no_loss():
    text = page(comparison({"vi+learned": [0.5, 0.6], "vi+none": [0.4, 0.65]}))
    assert "No method beats `vi+learned` by more than 2 standard errors in any score." in text


def test_one_seed_claims_nothing():
    text = page(comparison({"vi+learned": [0.5], "vi+none": [0.1]}, n_seeds=1))
    assert "One seed cannot tell differences from noise" in text
    assert "No method beats" not in text


def test_the_table_marks_the_best_and_leaves_out_scores_that_nobody_has():
    text = page(comparison({"vi+learned": [0.5, 0.6], "vi+none": [0.38, 0.46]}))
    assert "| vi+none | **0.42 ± 0.04** |" in text
    assert "| vi+learned | 0.55 ± 0.05 |" in text
    assert "| method | RMSE |" in text


def test_failures_and_times_of_steps_are_listed():
    failed = TrialResult(case="line", method="laplace+none", seed=0, failure="no solver")
    qp = {"qp": 0.08, "closed form": 0.004}
    priced = TrialResult(case="line", method="deterministic+qp", seed=0, scores={"rmse": 1.0}, step_seconds=qp)
    text = page(comparison({"vi+learned": [0.5, 0.6]}, extra=(failed, priced)))
    assert "- laplace+none: no solver" in text
    assert "deterministic+qp takes 80 ms by the solver and 4 ms by the closed form" in text


def test_origin_reading_and_sources_are_on_the_page():
    found = comparison({"vi+learned": [0.5, 0.6]}, command="equipoise compare line", versions={"torch": "2"})
    text = page(found, "Ours is slow here.", "figures/compare-")
    assert "](figures/compare-line.svg)" in text
    assert "Made by `equipoise compare line` (torch 2)." in text
    assert text.index("Ours is slow here.") < text.index("## line: a line")
    assert "- `vi+learned`: mean-field VI, learned tolerance, joint, sensors (Graves 2011" in text
    assert "2 seeds; 30 rows fitted, 10 tested; 1 inputs, 3 outputs, 1 balance." in text


def test_the_page_of_kept_results_is_written_with_its_figures(tmp_path):
    found = comparison({"vi+learned": [0.5, 0.6]}, versions={"torch": "2"})
    (tmp_path / "compare.json").write_text(found.model_dump_json())
    (tmp_path / "reading.md").write_text("Ours is slow here.")
    write_page([tmp_path / "compare.json"], tmp_path / "docs" / "comparison.md", tmp_path / "reading.md")
    text = (tmp_path / "docs" / "comparison.md").read_text()
    assert "Ours is slow here." in text
    assert text == page(found, "Ours is slow here.", "figures/compare-")
    assert (tmp_path / "docs" / "figures" / "compare-line.svg").exists()


def test_a_file_that_is_missing_is_wrong_input_and_an_unexpected_error_is_a_bug(tmp_path, monkeypatch, capsys):
    missing = str(tmp_path / "compare.json")
    words = [missing, "-o", str(tmp_path / "page.md")]
    assert main(words) == 2
    assert capsys.readouterr().err.startswith(f"python -m equipoise.rivals.comparison: '{missing}' must be readable")
    assert main(["--fast"]) == 2
    assert "No such option: --fast" in capsys.readouterr().err

    def mistaken(_):
        raise FileNotFoundError("inside the library")

    monkeypatch.setattr(Comparison, "load", mistaken)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert main(words) == 70
    assert "This is a bug in equipoise" in capsys.readouterr().err
