"""Settings of the whole test run; they must be in place before the package is first imported."""

import atexit
import gc
import os
import sys
from importlib.util import find_spec
from pathlib import Path

import jaxtyping
import pytest
from hypothesis import HealthCheck, settings
from jaxtyping import install_import_hook

os.environ.setdefault("SCIPY_ARRAY_API", "1")  # scikit-learn skips one of its estimator checks without it
gc.disable()  # while tests are collected: imports leave no garbage, and looking for it takes a quarter of their time
atexit.register(gc.freeze)  # nor is any looked for when a process ends
os.environ["OMP_NUM_THREADS"] = "1"  # for torch: the matrices are small, and a sum has one order

# Shape annotations are executed in tests, and only there; modules without any are imported as they are, and faster.
_SOURCE = Path(__file__).parents[1] / "src"
_SHAPED = [path for path in _SOURCE.rglob("*.py") if "from jaxtyping import" in path.read_text("utf-8")]
install_import_hook(
    [".".join(path.relative_to(_SOURCE).with_suffix("").parts) for path in _SHAPED], "beartype.beartype"
)

# No coin flips: the examples are the same in every run, and a busy machine fails no test.
settings.register_profile(
    "equipoise", max_examples=40, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("equipoise")

# Doctests are looked for in every file, but scripts beside the tests may need packages that the tests do not.
_HERE = Path(__file__).parent
collect_ignore = [str(path.relative_to(_HERE)) for path in _HERE.rglob("*.py") if not path.name.startswith("test_")]
_PACKAGE = Path(find_spec("equipoise").origin).parent
if not (_PACKAGE / "fast").exists():  # the room that may be deleted
    collect_ignore += [str(path.relative_to(_HERE)) for path in _HERE.glob("fast/*.py")]

_LONG = (
    "test_session.py",
    "test_export.py",
    "test_fit.py",
    "test_guide.py",
    "test_model_report.py",
    "test_model_file.py",
)


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist looks for the groups
def pytest_collection_modifyitems(items):
    """A file's tests stay on one worker, which has what they share and need not ask for each of them what is next.

    Files that take long come first, so that in the end no worker waits for another.
    """
    for item in items:
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(item.path.name))
    items.sort(key=lambda item: _LONG.index(item.path.name) if item.path.name in _LONG else len(_LONG))


def _random_states() -> tuple[bytes, str]:
    """State of the global random numbers of torch, where it was imported, and of numpy."""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    state = b"" if torch is None else torch.get_rng_state().numpy().tobytes()
    return state, "" if numpy is None else repr(numpy.random.get_state())


def _watch_random_states(item):
    """Fail a test that draws from global random numbers: its result would depend on the tests before it.

    Tests with the mark `global_random_numbers` may: these are seeded for them, and as before afterwards.
    """
    if item.get_closest_marker("global_random_numbers"):
        import numpy
        import torch

        state = numpy.random.get_state()  # noqa: NPY002
        numpy.random.seed(0)  # noqa: NPY002
        try:
            with torch.random.fork_rng():
                torch.manual_seed(0)
                return (yield)
        finally:
            numpy.random.set_state(state)  # noqa: NPY002
    before = _random_states()
    result = yield
    both = zip(("torch", "numpy"), before, _random_states(), strict=True)
    if changed := [name for name, old, new in both if old and old != new]:
        pytest.fail(
            f"A test must use generators of its own, but it changed the random state of {' and '.join(changed)}."
        )
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item):
    return (yield from _watch_random_states(item))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    return (yield from _watch_random_states(item))


def pytest_collection_finish():
    """From here on garbage is looked for, but not in what was imported."""
    gc.freeze()
    gc.enable()


@pytest.fixture
def long_training():
    """Tests that take thousands of steps do without the executed shape annotations, which cost more than they."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture
def table(tmp_path):
    """Writes the text of a table to a file, and gives its path."""

    def make(text, name="cell.csv"):
        (tmp_path / name).write_text(text, encoding="utf-8", newline="")
        return tmp_path / name

    return make
