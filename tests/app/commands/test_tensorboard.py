"""What is recorded for TensorBoard: the history of the fit; and where it cannot be written the fit goes on."""

import errno
import json
import os
import sys
import threading
from types import SimpleNamespace

import pytest

from equipoise.app.commands import main

pytestmark = pytest.mark.usefixtures("long_training")


class Writer:
    """Stands for TensorBoard's, which writes in a thread; after some numbers the disk is full."""

    written: list
    room = 10**6

    def __init__(self, folder):
        os.makedirs(folder, exist_ok=True)
        self.written.append(folder)

    def add_scalar(self, name, value, step):
        if len(self.written) > self.room:
            full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            thread = threading.Thread(target=self.fail, args=[full])
            thread.start()
            thread.join()
            raise full
        self.written.append((name, value, step))

    def fail(self, error):
        raise error

    def close(self):
        self.written.append("closed")
        if self.room == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture
def board(monkeypatch, folder):
    """TensorBoard with room for so many numbers."""

    def make(room=10**6):
        Writer.written, Writer.room = [], room
        monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", SimpleNamespace(SummaryWriter=Writer))
        return Writer.written

    return make


def test_epochs_are_recorded_for_tensorboard(folder, board):
    written = board()
    assert main(["fit", "cell.toml", "--tensorboard", "board"]) == 0
    assert (written[0], written[-1]) == ("board", "closed")
    recorded = {(name, step): value for name, value, step in written[1:-1]}
    epochs = [json.loads(line) for line in (folder / "cell.run.jsonl").read_text("utf-8").splitlines()]
    assert len(epochs) == 10
    for record in epochs:
        assert recorded["validation", record["epoch"]] == record["validation"]


@pytest.mark.parametrize("room", [0, 5])
def test_a_full_disk_under_tensorboard_does_not_cost_the_fit(folder, board, capsys, room):
    hook = threading.excepthook
    board(room)
    assert main(["fit", "cell.toml", "--tensorboard", "board"]) == 0
    out, err = capsys.readouterr()
    assert "Written: cell.safetensors, cell.run.jsonl" in out
    note = "note: What was recorded for TensorBoard in 'board' is not whole: No space left on device.\n"
    assert err.count("TensorBoard") == err.count(note) == 1
    assert "Traceback" not in err
    assert threading.excepthook is hook


def test_what_is_no_folder_for_tensorboard_is_refused_by_its_name(board, refused):
    hook = threading.excepthook
    board()
    rule = "--tensorboard must name a folder that can be written to"
    assert f"{rule}, but got 'cell.csv': File exists. Give another" in refused(
        "fit", "cell.toml", "--tensorboard", "cell.csv"
    )
    assert threading.excepthook is hook


def test_tensorboard_is_asked_for_where_it_is_missing(monkeypatch, refused):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    assert "--tensorboard needs TensorBoard, but it is not installed. Run: pip install tensorboard." in refused(
        "fit", "cell.toml", "--tensorboard", "board"
    )
