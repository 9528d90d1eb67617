"""Endings from outside: Ctrl-C, SIGTERM and a pipe that nobody reads, each with its code and its words."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import handmade_table
import pytest

from equipoise.app.commands import exit_codes, main

MODEL = str(Path(__file__).parents[2] / "models" / "format_1.safetensors")
NO_UNITS = 'data = "cell.csv"\ninputs = ["x"]\noutputs = ["a", "b"]\n[balances]\nsum = "a = b + x"\n'

# A command that is terminated while it writes a file.
TERMINATED = """
import os, signal, sys
from pathlib import Path
from equipoise.data.atomic_writing import write_atomically
from equipoise.app.commands import check, main

def half(file):
    file.write(b"half of it")
    os.kill(os.getpid(), signal.SIGTERM)
    for _ in range(1000):
        pass

check.load_training_job = lambda *_: write_atomically(Path("page.html"), half)
sys.exit(main(["check", "cell.toml"]))
"""


def test_ctrl_c_is_told_in_a_word(monkeypatch, folder, capsys):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("equipoise.app.commands.check.diagnose_job", interrupted)
    assert main(["check", "cell.toml"]) == exit_codes.INTERRUPTED == 130
    assert capsys.readouterr() == ("", "equipoise: interrupted\n")


def test_a_command_that_is_terminated_takes_away_what_is_half_written(folder):
    before = sorted(os.listdir())
    run = subprocess.run([sys.executable, "-c", TERMINATED], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout, run.stderr) == (143, "", "equipoise: terminated\n")
    assert sorted(os.listdir()) == before


def unread(words, unbuffered=""):
    """Exit code and complaints of a command whose output nobody reads."""
    read, write = os.pipe()
    os.close(read)
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    command = [sys.executable, "-m", "equipoise", *words]
    run = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, env=environment, check=False)
    os.close(write)
    return run.returncode, run.stderr


@pytest.mark.parametrize("unbuffered", ["", "1"])  # complains when all is said, or at the first line
@pytest.mark.parametrize("words", [["info", MODEL], ["--help"]])
def test_a_pipe_that_nobody_reads_ends_a_command_silently(words, unbuffered):
    assert unread(words, unbuffered) == (141, b"")


def test_a_pipe_that_nobody_reads_is_not_taken_for_a_balance_that_does_not_hold(folder):
    handmade_table.write(folder, "x,a,b\n1,2,5\n2,3,1\n3,7,4\n", NO_UNITS)
    assert main(["check", "cell.toml"]) == 1
    assert unread(["check", "cell.toml"]) == (141, b"")


def test_handlers_of_signals_stay_the_callers(monkeypatch):
    inside = []
    monkeypatch.setattr(
        "equipoise.app.commands.command_line._parser", lambda: lambda *_, **__: inside.append(handler())
    )

    def handler():
        return signal.getsignal(signal.SIGTERM)

    assert handler() is signal.SIG_DFL
    main(["--version"])
    monkeypatch.setenv("WORLD_SIZE", "2")
    main(["--version"])
    monkeypatch.delenv("WORLD_SIZE")
    thread = threading.Thread(target=main, args=(["--version"],))
    thread.start()
    thread.join()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    main(["--version"])
    assert handler() is signal.SIG_IGN
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    assert inside == [exit_codes._terminate, signal.SIG_DFL, signal.SIG_DFL, signal.SIG_IGN]
