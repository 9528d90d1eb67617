"""Unexpected errors: the sentence, the file with the traceback, and what happens where no file can be written."""

import pytest

import equipoise
from equipoise.app.bug_report import exit_code_of, print_error, report_bug, traceback_text
from equipoise.errors import InputError


def failure() -> ZeroDivisionError:
    try:
        raise ZeroDivisionError("division by zero")
    except ZeroDivisionError as error:
        return error


def test_the_report_has_versions_the_command_line_and_the_traceback():
    text = traceback_text(failure(), ["predict", "my model.safetensors"])
    assert f"equipoise {equipoise.__version__}" in text
    assert "equipoise predict 'my model.safetensors'" in text
    assert "in failure" in text
    assert "ZeroDivisionError: division by zero" in text


def test_the_report_is_kept_in_a_file_that_the_sentence_names(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert report_bug(failure(), ["info", "x"]) == 70
    (file,) = tmp_path.iterdir()
    shown = capsys.readouterr().err
    assert f"Please report it with the traceback in '{file}'." in shown
    assert "ZeroDivisionError" not in shown.replace("(ZeroDivisionError: division by zero)", "")
    assert file.read_text("utf-8") == traceback_text(failure(), ["info", "x"])


def test_the_traceback_is_shown_where_no_file_can_be_written(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "gone"))
    assert report_bug(failure(), ["info", "x"]) == 70
    shown = capsys.readouterr().err
    assert shown.startswith("equipoise: This is a bug in equipoise")
    assert "in failure" in shown


def test_wrong_input_is_one_line_and_exit_code_2(capsys):
    assert exit_code_of(InputError("x must be 1,\n but got 2."), [], program="make pages", advice="Try again.") == 2
    assert capsys.readouterr() == ("", "make pages: x must be 1, but got 2. Try again.\n")


@pytest.mark.parametrize("error", [ValueError("x"), OSError("x"), ImportError("x"), FileNotFoundError("x")])
def test_errors_that_the_library_did_not_raise_on_purpose_are_bugs(monkeypatch, tmp_path, capsys, error):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert exit_code_of(error, ["a b"], program="python -m pages") == 70
    (file,) = tmp_path.iterdir()
    assert "\npython -m pages 'a b'\n" in file.read_text("utf-8")
    assert capsys.readouterr().err.startswith("python -m pages: This is a bug in equipoise, not in its input (")


def test_with_debug_the_traceback_comes_first(capsys):
    assert exit_code_of(InputError("wrong"), [], debug=True) == 2
    assert capsys.readouterr().err == "equipoise.errors.InputError: wrong\nequipoise: wrong\n"


def test_a_message_is_one_line(capsys):
    print_error("two\n  lines")
    assert capsys.readouterr().err == "equipoise: two lines\n"
