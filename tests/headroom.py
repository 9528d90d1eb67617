"""How much room comparisons of floating-point numbers leave: `pytest -p headroom --headroom FILE`.

A band that another processor's order of summation can break shows in one of two ways: what was seen here fills much of
it, or it is narrower than a few hundred roundings of the numbers compared. This plugin writes down both for each line
of a test that compares numbers (`numpy.testing.assert_allclose`, `torch.testing.assert_close`, `pytest.approx`), and
`python tests/headroom.py FILE ...` lists the lines to look at, over as many runs as there are files.
"""

import functools
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

TESTS = Path(__file__).parent
WIDEST = 1e-5  # relative; wider bands are about something else than rounding
FILLED = 0.1  # share of a band
ROUNDINGS = 200.0  # of the largest number compared


class Room(NamedTuple):
    """The largest difference at one line of a test, as shares of its band and in roundings of the largest number."""

    filled: float
    error: float
    band: float


def room(actual: Any, expected: Any, rtol: float, atol: float) -> Room | None:
    """Compare two arrays as `assert_allclose` does; None without numbers, or for a wide band."""
    try:
        actual, expected = np.broadcast_arrays(np.asarray(actual), np.asarray(expected))
        rounding = max(np.finfo(actual.dtype).eps, np.finfo(expected.dtype).eps)
    except (TypeError, ValueError):
        return None
    finite = np.isfinite(actual) & np.isfinite(expected)
    if not finite.any():
        return None
    difference, size = np.abs(actual[finite] - expected[finite]), np.abs(expected[finite])
    band = atol + rtol * size
    largest = max(size.max(), np.finfo(float).tiny)
    if band.max() > WIDEST * largest and rounding < 1e-10:
        return None
    filled = np.divide(difference, band, out=np.where(difference > 0, np.inf, 0.0), where=band > 0).max()
    return Room(float(filled), float(difference.max() / largest / rounding), float(band.min() / largest / rounding))


class Recorder:
    """The least room of every line of the tests that compares numbers."""

    def __init__(self):
        self.lines: dict[str, Room] = {}

    def add(self, actual: Any, expected: Any, rtol: float, atol: float) -> None:
        """Take down one comparison under the line of the test that made it."""
        if (where := _line_of_test()) is None or (seen := room(actual, expected, rtol, atol)) is None:
            return
        before = self.lines.get(where, Room(0.0, 0.0, np.inf))
        larger = map(max, seen[:2], before[:2])
        self.lines[where] = Room(*larger, min(seen.band, before.band))

    def watch(self) -> None:
        """Put this recorder in front of the functions that compare numbers."""
        import torch
        from _pytest.python_api import ApproxScalar

        numpy_close, torch_close, scalar_equal = (
            np.testing.assert_allclose,
            torch.testing.assert_close,
            ApproxScalar.__eq__,
        )

        @functools.wraps(numpy_close)
        def assert_allclose(actual, desired, rtol=1e-7, atol=0, **options):
            __tracebackhide__ = True
            self.add(actual, desired, rtol, atol)
            return numpy_close(actual, desired, rtol, atol, **options)

        @functools.wraps(torch_close)
        def assert_close(actual, expected, *, rtol=None, atol=None, **options):
            __tracebackhide__ = True
            if isinstance(actual, torch.Tensor) and isinstance(expected, torch.Tensor):
                single = torch.float32 in (actual.dtype, expected.dtype)
                bands = (rtol, atol) if rtol is not None else ((1.3e-6, 1e-5) if single else (1e-7, 1e-7))
                self.add(actual.detach().cpu().numpy(), expected.detach().cpu().numpy(), *bands)
            return torch_close(actual, expected, rtol=rtol, atol=atol, **options)

        def equal(scalar, actual):
            if isinstance(scalar.expected, float) and isinstance(actual, float):
                self.add(actual, scalar.expected, 0.0, float(scalar.tolerance))
            return scalar_equal(scalar, actual)

        np.testing.assert_allclose, torch.testing.assert_close = assert_allclose, assert_close
        ApproxScalar.__eq__ = equal


def _line_of_test() -> str | None:
    """Return file and line of the innermost caller that lies in the folder of tests."""
    frame = sys._getframe(2)
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if TESTS in path.parents and path.name != "headroom.py":
            return f"{path.relative_to(TESTS)}:{frame.f_lineno}"
        frame = frame.f_back
    return None


def pytest_addoption(parser) -> None:
    """Add the option that names the file."""
    parser.addoption("--headroom", metavar="FILE", help="append the room that each comparison of numbers leaves")


def pytest_configure(config) -> None:
    """Begin to record, in workers of pytest-xdist too."""
    if config.getoption("--headroom"):
        config.stash["headroom"] = recorder = Recorder()
        recorder.watch()


def pytest_unconfigure(config) -> None:
    """Append what was recorded; every worker writes lines of its own."""
    if (recorder := config.stash.get("headroom", None)) is not None:
        with open(config.getoption("--headroom"), "a", encoding="utf-8") as file:
            file.writelines(
                json.dumps({"line": line, **seen._asdict()}) + "\n" for line, seen in recorder.lines.items()
            )


def narrow(records: Iterable[dict[str, Any]]) -> list[str]:
    """Return the lines whose band is filled too far, or narrower than rounding may need; exact comparisons are not."""
    worst: dict[str, Room] = {}
    for record in records:
        before = worst.get(record["line"], Room(0.0, 0.0, np.inf))
        filled, error = max(record["filled"], before.filled), max(record["error"], before.error)
        worst[record["line"]] = Room(filled, error, min(record["band"], before.band))
    rows = [
        (seen.filled, line, seen)
        for line, seen in worst.items()
        if seen.filled > FILLED or (0.0 < seen.band < ROUNDINGS and seen.error > 0)
    ]
    return [
        f"{line}: band {seen.band:.3g} roundings, filled to {seen.filled:.0%}, error {seen.error:.3g} roundings"
        for _, line, seen in sorted(rows, reverse=True)
    ]


if __name__ == "__main__":
    texts = [Path(name).read_text("utf-8") for name in sys.argv[1:]]
    print("\n".join(narrow(json.loads(line) for text in texts for line in text.splitlines())))
