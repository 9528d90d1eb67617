"""The file of a journal: after a full disk the search goes on as if nothing had been, and files of others stay."""

import errno
import os

import optuna
import pandas as pd
import pytest
from small_search import BAD, GOOD, known, search

from equipoise.app.tuning import TuningError, optuna_study

pytestmark = pytest.mark.usefixtures("long_training")


def disk_full_at(monkeypatch, call):
    """From one of the entries on there is no room, which is noticed half-way through it."""
    append, calls = optuna.storages.journal.JournalFileBackend.append_logs, []

    def torn(self, logs):
        calls.append(1)
        if len(calls) < call:
            return append(self, logs)
        if len(calls) == call:
            with open(self._file_path, "ab") as file:
                file.write(b'{"op_code":4,"worker_')
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(optuna.storages.journal.JournalFileBackend, "append_logs", torn)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A search that nothing disturbed."""
    return search(tmp_path_factory.mktemp("whole") / "journal", first=[GOOD, BAD])


@pytest.mark.parametrize("call", [3, 9, 12, 14])  # begun, told, asked, and in between
def test_a_study_that_ran_out_of_room_goes_on_as_one_that_did_not(tmp_path, monkeypatch, whole, call):
    with monkeypatch.context() as patched:
        disk_full_at(patched, call)
        with pytest.raises(
            TuningError, match=r"journal '.*cut' must be writable, but got: No space left on device\. Make"
        ):
            search(tmp_path / "cut", first=[GOOD, BAD])
    assert not (tmp_path / "cut").read_bytes().endswith(b"\n")
    ended = optuna_study._this_process()
    monkeypatch.setattr(optuna_study, "_this_process", lambda: "another")
    monkeypatch.setattr(optuna_study, "_is_gone", lambda process: process == ended)
    monkeypatch.setattr(optuna_study, "CLAIM_SECONDS", 0.0)
    pd.testing.assert_frame_equal(known(search(tmp_path / "cut", first=[GOOD, BAD])), known(whole))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cut"]


def test_a_journal_that_cannot_be_begun_leaves_nothing_behind(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(optuna.storages.journal.JournalFileBackend, "append_logs", full)
    with pytest.raises(TuningError, match="No space left on device"):
        search(tmp_path / "journal")
    (tmp_path / "file").write_text("x")
    with pytest.raises(
        TuningError, match=r"The journal '.*journal' must be writable, but got: (Not a dir|File exists)"
    ):
        search(tmp_path / "file" / "journal")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("text", ["SOC,V\n0.1,3.2\n0.2,3.3", '{"a": 1}\n{"a": 2', "[]\nx", "1\n2"])
def test_a_file_that_is_no_journal_stays_as_it_is(tmp_path, text):
    (tmp_path / "cell.csv").write_text(text)
    with pytest.raises(TuningError, match="is not a readable journal"):
        search(tmp_path / "cell.csv")
    assert (tmp_path / "cell.csv").read_text() == text
