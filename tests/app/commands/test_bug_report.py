"""Unexpected errors: the sentence, the file with the traceback, and what happens where no file can be written."""

import equipoise
from equipoise.app.commands.bug_report import report_bug, traceback_text


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
    said = capsys.readouterr().err
    assert f"Please report it with the traceback in '{file}'." in said
    assert "ZeroDivisionError" not in said.replace("(ZeroDivisionError: division by zero)", "")
    assert file.read_text("utf-8") == traceback_text(failure(), ["info", "x"])


def test_the_traceback_is_shown_where_no_file_can_be_written(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "gone"))
    assert report_bug(failure(), ["info", "x"]) == 70
    said = capsys.readouterr().err
    assert said.startswith("equipoise: This is a bug in equipoise")
    assert "in failure" in said
