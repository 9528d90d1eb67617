import errno
import os
import pickle
from pathlib import Path

import pytest

from equipoise.data.atomic_writing import WriteError, write_atomically
from equipoise.errors import EquipoiseError


def files_in(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()], ids=["error", "interrupt"])
def test_a_write_that_fails_midway_leaves_the_old_file_and_nothing_else(tmp_path, error):
    path = tmp_path / "page.html"
    path.write_bytes(b"old")

    def write(file):
        file.write(b"half of the ne")
        file.flush()
        assert path.read_bytes() == b"old"  # a reader sees the old one all the while
        raise error

    with pytest.raises(type(error)):
        write_atomically(path, write)
    assert path.read_bytes() == b"old"
    assert files_in(tmp_path) == ["page.html"]


def test_a_full_disk_is_told_with_the_files_name_and_the_systems_reason(tmp_path, monkeypatch):
    def full_disk(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(
        WriteError, match=r"page\.html' must be writable, but got: No space left on device\. Make"
    ) as info:
        write_atomically(tmp_path / "page.html", lambda file: file.write(b"new"))
    assert info.value.strerror == "No space left on device"
    assert isinstance(info.value, EquipoiseError)
    assert str(pickle.loads(pickle.dumps(info.value))) == str(info.value)  # it may come from another process
    assert files_in(tmp_path) == []


def test_what_a_link_points_to_is_replaced_and_the_link_stays(tmp_path):
    (tmp_path / "real").mkdir()
    real, link = tmp_path / "real" / "page.html", tmp_path / "page.html"
    link.symlink_to(real)
    for content in (b"new", b"newer"):
        write_atomically(link, lambda file, content=content: file.write(content))
        assert real.read_bytes() == content
    assert link.is_symlink()
    assert files_in(tmp_path / "real") == ["page.html"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="a system without pipes that have names")
def test_devices_and_pipes_are_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path(os.devnull)):
        with pytest.raises(OSError, match="a device or a pipe"):
            write_atomically(path, lambda file: file.write(b"new"))
        assert not path.is_file()
    assert files_in(tmp_path) == ["pipe"]


def test_the_file_appears_only_when_it_is_whole(tmp_path):
    path, seen = tmp_path / "page.html", []

    def write(file):
        file.write(b"new")
        file.flush()
        seen.append(path.exists())

    write_atomically(path, write)
    assert seen == [False]
    assert path.read_bytes() == b"new"
    assert files_in(tmp_path) == ["page.html"]


def test_bytes_are_on_the_disk_before_the_file_is_moved(tmp_path, monkeypatch):
    order = []
    for name in ("fsync", "replace"):
        real = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *args, name=name, real=real: (order.append(name), real(*args)))
    write_atomically(tmp_path / "page.html", lambda file: file.write(b"new"))
    assert order == ["fsync", "replace"]
