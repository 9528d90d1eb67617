"""Checkpoints: whole or not at all, of the right run, and never a way in for code."""

import os
import pickle
import re
import zipfile

import pytest
import torch

from equipoise.training import checkpoint as module
from equipoise.training.checkpoint import Checkpoint, TrainingError

STATE = {
    "progress": {"phase": "elbo", "epoch": 7, "best_value": float("inf"), "best_state": None},
    "model": {"weights": torch.arange(5, dtype=torch.float64) / 3},
    "history": [{"nll": 0.1, "rho_mean": [1.0, -2.0]}],
}


def same(first, second):
    """Equal bit by bit, container by container."""
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(same(first[key], second[key]) for key in first)
    if isinstance(first, list):
        return len(first) == len(second) and all(map(same, first, second))
    if isinstance(first, torch.Tensor):
        return first.dtype == second.dtype and torch.equal(first, second)
    return type(first) is type(second) and first == second


def files_in(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_state_comes_back_as_it_was_saved(tmp_path):
    keeper = Checkpoint(tmp_path / "run.pt", "abc")
    keeper.save(STATE)
    assert files_in(tmp_path) == ["run.pt"]
    assert same(Checkpoint(tmp_path / "run.pt", "abc").load(), STATE)


def test_a_later_state_replaces_an_earlier_one(tmp_path):
    keeper = Checkpoint(tmp_path / "run.pt", "abc")
    keeper.save({"epoch": 1})
    keeper.save({"epoch": 2})
    assert keeper.load() == {"epoch": 2}
    assert files_in(tmp_path) == ["run.pt"]


def test_without_a_file_there_is_nothing_to_load(tmp_path):
    assert Checkpoint(tmp_path / "run.pt", "abc").load() is None
    assert files_in(tmp_path) == []


def test_without_a_path_nothing_is_kept(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    keeper = Checkpoint(None, "abc", seconds=0.0)
    keeper.save(STATE)
    keeper.save_if_due(lambda: pytest.fail("the state was asked for"))
    assert keeper.load() is None
    assert files_in(tmp_path) == []


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(TrainingError, match=r"folder must exist, but got '.*nowhere'\. Make it first"):
        Checkpoint(tmp_path / "nowhere" / "run.pt", "abc")


def test_a_relative_path_is_one_in_the_current_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Checkpoint("run.pt", "abc").save({"epoch": 1})
    assert files_in(tmp_path) == ["run.pt"]


# --- When due ---------------------------------------------------------------------------------------------------------


def test_a_state_is_saved_only_when_the_time_has_come(tmp_path, monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    keeper = Checkpoint(tmp_path / "run.pt", "abc", seconds=10.0)
    seen = []
    for seconds, epoch in ((0.9, 1), (0.2, 2), (5.0, 3), (5.1, 4)):
        clock[0] += seconds
        keeper.save_if_due(lambda epoch=epoch: {"epoch": epoch})
        seen.append(None if keeper.load() is None else keeper.load()["epoch"])
    assert seen == [None, 2, 2, 4]  # a second from the start, then ten from the last write


def test_a_state_that_cannot_be_saved_leaves_the_old_one(tmp_path):
    keeper = Checkpoint(tmp_path / "run.pt", "abc")
    keeper.save({"epoch": 1})
    with pytest.raises((AttributeError, TypeError, pickle.PicklingError)):
        keeper.save({"epoch": lambda: 2})
    assert keeper.load() == {"epoch": 1}
    assert files_in(tmp_path) == ["run.pt"]


# --- Files that are not ours ------------------------------------------------------------------------------------------


def saved(path, fingerprint="abc"):
    Checkpoint(path, fingerprint).save(STATE)
    return path.read_bytes()


@pytest.mark.parametrize(
    "damage",
    [
        lambda good: b"",
        lambda good: b"not a checkpoint",
        lambda good: good[: len(good) // 2],
        lambda good: good[:-1],
        lambda good: good[100:],
        lambda good: bytes(range(256)) * 8,
    ],
    ids=["empty", "text", "half", "last byte lost", "head lost", "other bytes"],
)
def test_a_damaged_file_is_refused_by_name_and_left_alone(tmp_path, damage):
    path = tmp_path / "run.pt"
    path.write_bytes(damage(saved(path)))
    bad = path.read_bytes()
    message = rf"'{re.escape(str(path))}' is not a readable checkpoint \(.+\)\. Delete it to start anew"
    with pytest.raises(TrainingError, match=message):
        Checkpoint(path, "abc").load()
    assert path.read_bytes() == bad


@pytest.mark.parametrize(
    "content",
    [{"weights": torch.zeros(2)}, torch.zeros(3), [1, 2], {"format": 1}, {"format": 1, "fingerprint": "abc"}],
    ids=["other keys", "a tensor", "a list", "no fingerprint", "no state"],
)
def test_a_torch_file_of_something_else_is_refused_by_name(tmp_path, content):
    path = tmp_path / "run.pt"
    torch.save(content, path)
    with pytest.raises(TrainingError, match="is not a readable checkpoint"):
        Checkpoint(path, "abc").load()


def test_a_folder_in_place_of_the_file_is_refused(tmp_path):
    with pytest.raises(TrainingError, match="is not a readable checkpoint"):
        Checkpoint(tmp_path, "abc").load()


def test_a_checkpoint_of_another_run_is_refused_and_left_alone(tmp_path):
    path = tmp_path / "run.pt"
    before = saved(path, "another run")
    with pytest.raises(TrainingError, match=rf"'{re.escape(str(path))}' belongs to another run .*Delete it.*, or give"):
        Checkpoint(path, "abc").load()
    assert path.read_bytes() == before
    assert files_in(tmp_path) == ["run.pt"]


def test_a_checkpoint_of_another_format_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "FORMAT", 0)
    saved(tmp_path / "run.pt")
    monkeypatch.undo()
    with pytest.raises(TrainingError, match="belongs to another run"):
        Checkpoint(tmp_path / "run.pt", "abc").load()


# --- Code in a file ---------------------------------------------------------------------------------------------------


class Payload:
    """Unpickling it makes a folder."""

    def __init__(self, marker):
        self.marker = str(marker)

    def __reduce__(self):
        return os.mkdir, (self.marker,)


def hidden_in_state(path, payload):
    """A checkpoint with the right format and fingerprint, in the format of torch, with code in its state."""
    torch.save({"format": 1, "fingerprint": "abc", "state": payload}, path)


def plain_pickle(path, payload):
    path.write_bytes(pickle.dumps({"format": 1, "fingerprint": "abc", "state": payload}))


def old_torch_format(path, payload):
    torch.save({"format": 1, "fingerprint": "abc", "state": payload}, path, _use_new_zipfile_serialization=False)


@pytest.mark.parametrize("write", [hidden_in_state, plain_pickle, old_torch_format])
def test_code_in_a_checkpoint_is_not_run(tmp_path, write):
    marker, path = tmp_path / "executed", tmp_path / "run.pt"
    write(path, Payload(marker))
    with pytest.raises(TrainingError, match="is not a readable checkpoint"):
        Checkpoint(path, "abc").load()
    assert not marker.exists()


def test_the_code_in_these_files_would_run_if_it_were_let(tmp_path):
    """The control: a trusting reader makes the folder."""
    marker, path = tmp_path / "executed", tmp_path / "run.pt"
    hidden_in_state(path, Payload(marker))
    assert zipfile.is_zipfile(path)
    torch.load(path, weights_only=False)
    assert marker.is_dir()
