"""Files of the study are there as a whole or not at all."""

import os

import numpy as np
import pytest

from studies.battery.files import write_arrays, write_bytes, write_text


def test_text_and_arrays_are_read_as_they_were_written(tmp_path):
    write_text(tmp_path / "a.txt", "η₊\n")
    assert (tmp_path / "a.txt").read_bytes() == "η₊\n".encode()
    write_arrays(tmp_path / "a.npz", {"x": np.arange(3.0)})
    with np.load(tmp_path / "a.npz") as file:
        assert file["x"].tolist() == [0.0, 1.0, 2.0]


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    write_bytes(tmp_path / "a", b"old")

    def full(descriptor):
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        write_bytes(tmp_path / "a", b"new")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("a", b"old")]


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "a")
    write_bytes(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "a").read_bytes() == b"new"
