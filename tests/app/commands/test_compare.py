"""`equipoise compare`: a table on the screen, files in a folder, and refusals in one sentence."""

import json

import pytest

from equipoise.app.commands import main

ASKED = ("--methods", "vi+projection,deterministic", "--seeds", "1", "--quick")


@pytest.mark.usefixtures("long_training")
def test_a_job_is_compared_and_the_second_start_reads_what_is_kept(folder, capsys, monkeypatch):
    from equipoise.rivals.methods.regressor import MethodRegressor

    assert main(["compare", "cell.toml", *ASKED, "-o", "out"]) == 0
    first = capsys.readouterr().out
    assert "cell: the table 'cell.csv'" in first
    rows = {line.split()[0]: line.split()[1:] for line in first.splitlines() if "+" in line}
    assert list(rows) == ["vi+projection", "deterministic+none"]
    kept = json.loads((folder / "out" / "compare.json").read_text())
    assert kept["command"] == " ".join(["equipoise", "compare", "cell.toml", *ASKED, "-o", "out"])
    assert {trial["method"] for trial in kept["trials"]} == set(rows)
    monkeypatch.setattr(MethodRegressor, "fit", None)  # nothing is left to fit
    assert main(["compare", "cell.toml", *ASKED, "-o", "out"]) == 0
    assert capsys.readouterr().out == first


def test_an_interruption_says_how_to_go_on(folder, capsys, monkeypatch):
    from equipoise import rivals

    asked = []

    def interrupted(cases, methods, seeds, **options):
        asked.append(list(seeds))
        raise KeyboardInterrupt

    monkeypatch.setattr(rivals, "compare", interrupted)
    for chosen in ("--seeds 2", "--seeds 2 --first-seed 7"):
        assert main(["compare", "cell.toml", *chosen.split(), "-o", "out"]) == 130
        assert f"Go on with: equipoise compare cell.toml {chosen} -o out" in capsys.readouterr().out
    assert asked == [[0, 1], [7, 8]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("cell.toml", "--methods", "vi+lerned", "-o", "out"), "Did you mean 'learned'?"),
        (("cel.toml", "-o", "out"), "'cel.toml', which does not. Did you mean 'cell.toml'?"),
        (("tonk", "-o", "out"), "got 'tonk'. Did you mean 'tank'?"),
        (("cell.toml", "-o", "cell.csv"), "must go into a folder, but got the file 'cell.csv'"),
        (("cell.toml", "--methods", "laplace+paper", "-o", "out"), "Last-layer Laplace"),
    ],
)
def test_what_cannot_be_compared_is_refused_in_one_sentence(refused, arguments, message):
    assert message in refused("compare", *arguments)
