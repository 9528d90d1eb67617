"""The commands together: help without waiting, exit codes, errors in one sentence, completion, plain text in pipes."""

import gc
import importlib.metadata
import json
import os
import subprocess
import sys

import pytest

from equipoise.app.commands import main

COMMANDS = ["init", "check", "fit", "predict", "evaluate", "reconcile", "report", "info", "tune", "export"]

# What a person who asks for help does not want to wait for.
HELP_PROBE = """
import contextlib, io, json, sys
from equipoise.app.commands import main

said = {}
for words in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        code = main(words)
    said[" ".join(words)] = [code, out.getvalue()]
print(json.dumps([said, sorted({"torch", "pandas", "numpy", "sklearn"} & set(sys.modules))]))
"""


def test_help_and_version_import_nothing_slow():
    asked = [["--help"], ["--version"], *([command, "--help"] for command in COMMANDS)]
    probe = [sys.executable, "-c", HELP_PROBE, json.dumps(asked)]
    run = subprocess.run(probe, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (0, "")
    printed, slow = json.loads(run.stdout)
    assert slow == []
    assert {code for code, _ in printed.values()} == {0}
    assert all(f"\n  {command} " in printed["--help"][1] for command in COMMANDS)
    assert "Exit codes: 0 done, 1 a balance does not hold (check), 2" in printed["--help"][1]
    assert printed["--version"][1] == f"equipoise {importlib.metadata.version('equipoise')}\n"
    for command in COMMANDS:
        assert printed[f"{command} --help"][1].startswith(f"Usage: equipoise {command} [OPTIONS]")


def test_the_short_word_for_help_is_understood_by_every_command(capsys):
    assert main(["-h"]) == 0
    whole = capsys.readouterr().out
    assert (main(["--help"]), capsys.readouterr().out) == (0, whole)
    assert main(["fit", "-h"]) == 0
    assert "--quick" in capsys.readouterr().out


def test_no_words_at_all_show_the_help(capsys):
    assert main([]) == 0
    shown = capsys.readouterr().out
    assert main(["--help"]) == 0
    assert shown == capsys.readouterr().out
    assert shown.startswith("Usage: equipoise [OPTIONS] COMMAND [ARGS]...\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["ceck"], "No such command 'ceck'. Did you mean 'check'?"),
        (["check", "cell.toml", "--fast"], "No such option: --fast"),
        (["check"], "Missing argument 'job'"),
        (["predict", "m.safetensors", "cell.csv"], "Missing option '--output'"),
        (["fit", "cell.toml", "--seed", "-1"], "Invalid value for '--seed'"),
        (["predict", "m.safetensors", "cell.csv", "-o", "out.csv", "--samples", "-1"], "Invalid value for '--samples'"),
    ],
)
def test_a_line_that_cannot_be_understood_is_refused_in_one_sentence(refused, words, message):
    assert message in refused(*words)


def test_debug_shows_where_an_error_comes_from(folder, capsys):
    assert main(["--debug", "check", "nowhere.toml"]) == 2
    with_debug = capsys.readouterr().err
    assert main(["check", "nowhere.toml"]) == 2
    without = capsys.readouterr().err
    assert with_debug.startswith("Traceback (most recent call last):")
    assert "JobError: A job file must exist" in with_debug
    assert with_debug.endswith(without)
    assert without.startswith("equipoise: A job file must exist, but got 'nowhere.toml'")
    assert len(without.splitlines()) == 1


def test_an_error_that_nobody_raised_on_purpose_is_called_a_bug_and_its_traceback_is_kept(
    monkeypatch, folder, capsys, tmp_path
):
    def mistaken(*_):
        raise KeyError("x")

    monkeypatch.setattr("equipoise.app.commands.check.diagnose_job", mistaken)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert main(["check", "cell.toml"]) == 70
    printed = capsys.readouterr().err
    assert printed.startswith("equipoise: This is a bug in equipoise, not in its input (KeyError: 'x').")
    assert len(printed.splitlines()) == 1
    (report,) = tmp_path.glob("equipoise-*.txt")
    assert f"the traceback in '{report}'" in printed
    assert "in mistaken" in report.read_text("utf-8")


@pytest.mark.parametrize("error", [OSError("disk"), ValueError("x"), RuntimeError("x"), ImportError("x")])
def test_errors_of_the_same_builtin_kinds_are_bugs_unless_they_were_raised_on_purpose(
    monkeypatch, folder, capsys, tmp_path, error
):
    def mistaken(*_):
        raise error

    monkeypatch.setattr("equipoise.app.commands.check.diagnose_job", mistaken)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert main(["check", "cell.toml"]) == 70
    assert "This is a bug in equipoise" in capsys.readouterr().err


def test_garbage_is_looked_for_as_often_as_before_unless_the_process_is_the_commands_own(monkeypatch):
    often, at_exit = gc.get_threshold(), []
    monkeypatch.setattr("atexit.register", at_exit.append)
    main(["--version"])
    assert (gc.get_threshold(), at_exit) == (often, [])
    monkeypatch.setattr(sys, "argv", ["equipoise", "--version"])
    try:
        assert main() == 0
        assert (gc.get_threshold()[0], at_exit) == (10_000, [gc.freeze])
    finally:
        gc.set_threshold(*often)


def test_the_hook_for_uncaught_exceptions_stays_the_callers():
    before = sys.excepthook
    main(["--version"])
    assert sys.excepthook is before


def test_a_package_that_is_missing_is_asked_for_in_one_sentence(monkeypatch, refused):
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert "Tuning needs Optuna, but it is not installed. Run: pip install 'equipoise[tune]'." in refused(
        "tune", "cell.toml"
    )


def test_bash_gets_its_completion():
    environment = {**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}  # the shell is the one named
    words = [sys.executable, "-m", "equipoise", "--show-completion", "bash"]
    run = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (0, "")
    assert "complete -o default -F _equipoise_completion equipoise" in run.stdout


@pytest.mark.parametrize(
    ("typed", "completed"), [("equipoise pre", ["predict"]), ("equipoise fit --re", ["--resume"]), ("equipoise x", [])]
)
def test_words_are_completed(monkeypatch, capsys, typed, completed):
    monkeypatch.setenv("_EQUIPOISE_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", typed)
    monkeypatch.setenv("COMP_CWORD", str(len(typed.split()) - 1))
    assert main([]) == 0
    assert capsys.readouterr().out.split() == completed
