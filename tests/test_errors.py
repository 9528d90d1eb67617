"""Checks of single parameters: at their borders, with name and value in the message."""

import ast
import builtins
import math
from pathlib import Path

import numpy as np
import pytest

import equipoise as eq
from equipoise.errors import (
    InputError,
    InputTypeError,
    check_choice,
    check_count,
    check_counts,
    check_device,
    check_fraction,
    check_positive,
    own_errors,
)
from equipoise.rivals import Comparison


@pytest.mark.parametrize(
    ("check", "good"),
    [
        (check_count, [1, 10**9, np.int8(1)]),
        (check_counts, [(), (1, 2), [3], np.array([64, 64])]),
        (check_positive, [1e-300, 3, np.float32(0.5)]),
        (check_fraction, [0, 0.0, 0.999, np.float64(0.1)]),
    ],
)
def test_what_is_within_its_borders_is_accepted(check, good):
    for value in good:
        check("parameter", value)


@pytest.mark.parametrize(
    ("check", "rule", "bad"),
    [
        (check_count, "must be a whole number of at least 1", [0, -1, 1.0, "1", None]),
        (check_counts, "must hold positive whole numbers", [8, (0,), (4, 2.5), "44", None]),
        (check_positive, "must be a positive number", [0, -1.0, math.inf, math.nan, "1", None]),
        (check_fraction, r"must be in \[0, 1\)", [1, -1e-9, math.nan, "0.1", None]),
    ],
)
def test_what_is_not_is_refused_with_its_name_and_value(check, rule, bad):
    for value in bad:
        with pytest.raises(ValueError, match=f"^width {rule}, but got ") as caught:
            check("width", value)
        assert repr(value) in str(caught.value)


def test_a_choice_that_is_none_is_refused_with_those_there_are():
    check_choice("color", "red", {"red": 1, "green": 2})
    with pytest.raises(ValueError, match="color must be one of 'red', 'green', but got 'blue'"):
        check_choice("color", "blue", {"red": 1, "green": 2})


@pytest.mark.parametrize("device", [None, "cpu", "cpu:0"])
def test_the_processor_can_always_be_used(device):
    check_device(device)


@pytest.mark.parametrize("error", [AssertionError("Torch not compiled with CUDA\nC++ trace"), RuntimeError("No GPU.")])
def test_a_device_that_torch_lacks_is_named_with_the_reason(monkeypatch, error):
    def lacking(*_, device):
        raise error

    monkeypatch.setattr("torch.empty", lacking)
    reason = str(error).splitlines()[0].rstrip(".")
    with pytest.raises(InputError, match=rf"^device must be .* but got 'cuda' \({reason}\)\.$"):
        check_device("cuda")


@pytest.mark.parametrize(
    ("error", "own"), [(ValueError, InputError), (UnicodeError, InputError), (TypeError, InputTypeError)]
)
def test_errors_of_other_libraries_in_arguments_become_ours_with_their_message(error, own):
    with pytest.raises(own, match=r"^Expected 2D array$") as caught, own_errors():
        raise error("Expected 2D array")
    assert type(caught.value.__cause__) is error


@pytest.mark.parametrize("error", [InputError("ours"), KeyError("a bug"), MemoryError()])
def test_our_errors_and_those_that_are_no_fault_of_an_argument_stay_as_they_are(error):
    with pytest.raises(type(error)) as caught, own_errors():
        raise error
    assert caught.value is error


@pytest.mark.parametrize(
    ("read", "kind"),
    [
        (eq.load, ValueError),
        (eq.tables.read, eq.TableError),
        (eq.tables.header, eq.TableError),
        (eq.Job.load, eq.JobError),
        (eq.Plant.load, eq.JobError),
        (Comparison.load, eq.CaseError),
    ],
)
def test_a_file_that_does_not_exist_raises_an_error_of_the_library_and_of_python(tmp_path, read, kind):
    for error in (eq.EquipoiseError, FileNotFoundError, kind):
        with pytest.raises(error, match=r"'.*gone\.\w+'.*( does not|No such file)"):
            read(tmp_path / ("gone.csv" if read.__module__.startswith("equipoise.app.tables") else "gone.toml"))


def test_a_device_that_torch_lacks_is_refused_before_a_model_is_opened():
    with pytest.raises(eq.EquipoiseError, match="device must be one that torch can use here, but got 'abacus'"):
        eq.load("gone.safetensors", device="abacus")


# --- Errors that are raised on purpose --------------------------------------------------------------------------------

SOURCE = Path(eq.__file__).parent
BUILT_IN = {name for name, value in vars(builtins).items() if isinstance(value, type) and issubclass(value, Exception)}
NOT_FOR_USERS = {
    "app/job/job_file.py": {"ValueError"},  # pydantic asks its validators for it; `JobError` comes of it
    "app/job/options.py": {"ValueError"},
    "app/job/plant.py": {"ValueError"},
    "rivals/cases/battery/cell.py": {"ValueError"},
    "rivals/cases/battery/data.py": {"ValueError"},  # caught there; pydantic
    "app/tables/cells.py": {"ValueError"},  # caught there
    "artifact/network_description.py": {"ValueError"},  # caught in `load`
    "data/atomic_writing.py": {"OSError"},  # caught by those who write
    "fast/elementary.py": {"TypeError"},  # stand-ins that only compiled code replaces
    "fast/training_step.py": {"TypeError"},
    "testing/equalities.py": {"AssertionError"},  # the contract of a check
    "testing/likelihoods.py": {"AssertionError"},
    "testing/priors.py": {"AssertionError"},
    "testing/running.py": {"AssertionError"},
}


def raised(source: str) -> set[str]:
    """Names of the exceptions that a module raises."""
    nodes = [node.exc for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Raise) and node.exc]
    return {ast.unparse(node.func if isinstance(node, ast.Call) else node) for node in nodes}


def test_errors_that_are_raised_on_purpose_are_the_library_s():
    sources = {path.relative_to(SOURCE).as_posix(): path.read_text("utf-8") for path in SOURCE.rglob("*.py")}
    plain = {path: names for path, text in sources.items() if (names := raised(text) & BUILT_IN)}
    there = [path for path in NOT_FOR_USERS if (SOURCE / path).exists() or not path.startswith("fast/")]
    assert plain == {path: NOT_FOR_USERS[path] for path in there}


def test_raised_exceptions_are_read_from_the_source():
    source = "def f():\n    raise KeyError(1)\n    raise own.Error('x') from e\n    raise\n    raise TimeoutError"
    assert raised(source) == {"KeyError", "own.Error", "TimeoutError"}
