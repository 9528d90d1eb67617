"""What is shown: tables that fit, numbers, JSON that every program reads, plain text in pipes of any character set."""

import io
import json
import math
import re
import sys

import numpy as np
import pytest

from equipoise.app.commands import console, main


def test_a_table_is_aligned_plain_text_when_it_is_piped(capsys):
    console.print_table("Two rows", ["name", "RMSE"], [["[b]a[/b]", "0.5"], ["longer name", "12"]])
    out = capsys.readouterr().out
    assert "\x1b" not in out
    title, _, header, _, first, second, *_ = (line.rstrip() for line in out.splitlines())
    assert (title, header.split()) == ("Two rows", ["name", "RMSE"])
    assert first.startswith(" [b]a[/b] ")  # no markup
    assert second.startswith(" longer name ")
    assert len(first) == len(second) == len(header)  # aligned to the right


def test_a_wide_table_keeps_its_lines_whole_when_it_is_piped(capsys):
    names = [f"a column called {j}" for j in range(8)]
    console.print_table("Wide", names, [names])
    assert [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()].count(" ".join(names)) == 2


def test_a_narrow_terminal_gets_the_columns_that_it_has_no_room_for_below_with_the_names_again(capsys, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "40")
    names = [f"column {j}" for j in range(7)]
    console.print_table("Wide", ["meter", *names], [["feed [kg/s]", *(f"{j}.2345" for j in range(7))]])
    lines = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out).splitlines()
    assert max(map(len, lines)) <= 40
    assert [line.split() for line in lines if "feed" in line] == [
        ["feed", "[kg/s]", "0.2345", "1.2345"],
        ["feed", "[kg/s]", "2.2345", "3.2345"],
        ["feed", "[kg/s]", "4.2345", "5.2345"],
        ["feed", "[kg/s]", "6.2345"],
    ]


def test_sentences_go_to_standard_output_and_notes_to_standard_error(capsys):
    console.print_text("[red]told[/red]")
    console.print_note("to know")
    assert capsys.readouterr() == ("[red]told[/red]\n", "note: to know\n")


def test_json_has_null_for_numbers_that_it_lacks_and_plain_ones_for_numpy(capsys):
    console.print_json({"a": [1, math.nan, np.float64("inf")], "b": (np.int64(2), "°C"), "c": {"d": None, "e": True}})
    out = capsys.readouterr().out
    assert json.loads(out) == {"a": [1, None, None], "b": [2, "°C"], "c": {"d": None, "e": True}}
    assert "°C" in out


@pytest.mark.parametrize(
    ("value", "digits", "shown"),
    [(0.0123456, 3, "0.0123"), (12.0, 3, "12"), (-1234567.0, 3, "-1.23e+06"), (None, 3, "–"), (math.nan, 3, "–")],
)
def test_numbers_have_the_digits_that_matter(value, digits, shown):
    assert console.format_number(value, digits) == shown


@pytest.mark.parametrize(("share", "shown"), [(0.9512, "95.1 %"), (1.0, "100.0 %"), (None, "–"), (math.nan, "–")])
def test_shares_are_percent(share, shown):
    assert console.format_percent(share) == shown


def test_a_pipe_with_a_small_character_set_gets_question_marks_instead_of_an_error(folder, monkeypatch):
    (folder / "cell.toml").write_text((folder / "cell.toml").read_text().replace("OCV - Loss", "OCV + Loss"))
    pipe = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", pipe)
    assert main(["check", "cell.toml"]) == 1  # 2 would be an error
    pipe.flush()
    assert "residual 0.2 V ? 0.0029 V" in pipe.buffer.getvalue().decode("ascii")
