"""`equipoise export`: which program is written, and where; that torch can run it is tested with `deployment.py`."""

import dataclasses
import errno
import os

import numpy as np
import pytest
import torch
from handmade_table import cell, contents

from equipoise.app.commands import main
from equipoise.artifact import model_file as artifact

X = ["Current [A]", "SOC", "Lead [V]"]


@pytest.fixture
def exported(monkeypatch):
    """What torch was to make programs of, for which it would take seconds."""
    modules = []
    monkeypatch.setattr("torch.export.export", lambda module, *_, **__: modules.append(module))
    monkeypatch.setattr("torch.export.save", lambda _, file, **__: file.write(b"a program"))
    return modules


def test_the_program_says_what_the_model_says_of_as_many_draws(exported, fitted, folder, capsys):
    (folder / "my.safetensors").write_bytes(fitted.read_bytes())
    before = contents(folder)
    assert main(["export", "my.safetensors", "--draws", "12"]) == 0
    assert capsys.readouterr().out == "my.pt2: mean and std of Voltage [V], OCV [V], Loss [V], Terminal [V]\n"
    assert contents(folder) == before | {"my.pt2": b"a program"}
    new = cell(7, seed=1)[X]
    mean, std = exported[0](torch.tensor(new.to_numpy()))
    p = dataclasses.replace(artifact.load(fitted).predict_distribution(new), n_draws=12)
    np.testing.assert_allclose(mean, p.mean, rtol=0, atol=1e-6)
    np.testing.assert_allclose(std, p.std, rtol=1e-6, atol=1e-9)
    other = dataclasses.replace(p, n_draws=16)
    assert np.abs(std.numpy() / other.std.to_numpy() - 1).max() > 1e-5  # so that it can be told


def test_what_cannot_be_exported_or_written_is_refused(exported, fitted, monkeypatch, refused):
    assert "'cell.csv' is not a safetensors file" in refused("export", "cell.csv", "-o", "cell.pt2")
    assert "Invalid value for '--draws'" in refused("export", fitted, "-o", "cell.pt2", "--draws", "0")

    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert "'cell.pt2' cannot be written: No space left on device" in refused("export", fitted, "-o", "cell.pt2")
