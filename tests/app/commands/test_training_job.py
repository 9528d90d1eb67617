"""Job files to learn from: the refusal names what a user has to repair first."""

from pathlib import Path

import pytest

from equipoise.app.commands.training_job import load_training_job
from equipoise.app.job import JobError


def test_a_column_that_the_table_lacks_is_told_before_a_balance_is_blamed_for_its_name(folder, refused):
    job = folder / "cell.toml"
    wrong = job.read_text("utf-8").replace('"OCV [V]"', '"OVC [V]"')
    assert wrong.count("OVC") == 1
    job.write_text(wrong, "utf-8")
    message = refused("check", "cell.toml")
    assert "cell.toml: 'outputs' must name columns of 'cell.csv', but got 'OVC [V]'. Did you mean" in message
    assert "'OCV [V]'?" in message
    assert "[balances]" not in message


def test_the_line_for_a_plant_can_be_typed_as_it_stands(folder):
    (folder / "my plant.toml").write_text('data = "a.csv"\noutputs = ["a", "b"]\n[balances]\nsame = "a = b"\n')
    with pytest.raises(JobError, match=r"use: equipoise reconcile 'my plant\.toml'$"):
        load_training_job(Path("my plant.toml"))
