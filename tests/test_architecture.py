"""Rooms, doors, equation labels and manners of the package, checked.

Each checker is a function of text or values that returns its complaints, so that a test can show that it complains.
"""

import ast
import importlib
import inspect
import io
import json
import re
import shutil
import subprocess
import sys
import tokenize
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest

import equipoise

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "equipoise"
STUDIES = ROOT / "studies"

TESTS_WITHOUT_MODULE = {
    "architecture.py",
    "benchmarks.py",
    "guide.py",
    "plain_english.py",
    "readme.py",
    "app/commands/session.py",
    "gaussian/gradients.py",
}
LARGEST_FILE = 1_000_000  # bytes
REMOVABLE = "fast"  # the room that may be deleted, and is described all the same


def package_sources() -> dict[str, str]:
    """Return source text by path inside the package, such as `gaussian/conditioning.py`."""
    return {path.relative_to(PACKAGE).as_posix(): path.read_text("utf-8") for path in sorted(PACKAGE.rglob("*.py"))}


def study_sources() -> dict[str, str]:
    """Return source text by path from the root, such as `studies/battery/tasks.py`."""
    return {path.relative_to(ROOT).as_posix(): path.read_text("utf-8") for path in sorted(STUDIES.rglob("*.py"))}


# --- Rooms and doors --------------------------------------------------------------------------------------------------


def rooms() -> list[str]:
    """Return the names at the top of the package: folders and files, without the public face itself."""
    found = {path.split("/")[0].removesuffix(".py") for path in package_sources() if not path.startswith("__")}
    return sorted(found)


def was_removed(path: str) -> bool:
    """Return whether a path inside the package belongs to the room that may be deleted, and it is."""
    return path.startswith(f"{REMOVABLE}/") and not (PACKAGE / REMOVABLE).exists()


def test_the_architecture_page_describes_every_room():
    page = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    described = re.findall(r"^\| `(\w+)(?:\.py|/)` +\|", page, flags=re.MULTILINE)
    assert sorted(described) == sorted({*rooms(), REMOVABLE})


def test_paths_on_the_architecture_page_exist():
    page = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    named = set(re.findall(r"`((?:\w+/)*\w+\.(?:py|toml|md))`", page))
    missing = [name for name in sorted(named) if not any((base / name).exists() for base in (PACKAGE, ROOT))]
    assert [name for name in missing if not was_removed(name)] == []


DOORS = [f"equipoise.{room}" for room in rooms() if (PACKAGE / room / "__init__.pyi").exists()] + ["equipoise"]


@pytest.mark.parametrize("door", DOORS)
def test_every_name_that_a_door_offers_is_there(door):
    room = importlib.import_module(door)
    assert [name for name in room.__all__ if not hasattr(room, name)] == []


@pytest.mark.parametrize("door", DOORS)
def test_every_door_says_what_the_room_holds(door):
    assert len(importlib.import_module(door).__doc__) > 30


BELOW_ALL = {"errors", "compiled"}  # every room may call these


def units() -> dict[str, list[Path]]:
    """Return the files of each room, such as `data` and `app/tables`, whose first one has the room's docstring."""
    folders = [*PACKAGE.glob("*/"), *PACKAGE.glob("app/*/"), *PACKAGE.glob("rivals/*/")]
    doors = {folder.relative_to(PACKAGE).as_posix(): folder / "__init__.py" for folder in folders}
    doors = {name: door for name, door in doors.items() if door.exists() and name not in ("app", "rivals")}
    files = {path.stem: [path] for path in PACKAGE.glob("*.py") if not path.stem.startswith("__")}
    return files | {name: [door, *sorted(door.parent.rglob("*.py"))] for name, door in doors.items()}


def unit_of(module: str) -> str:
    """Return the room of a module, given by its name below the package."""
    first, *rest = module.split(".")
    inner = f"{first}/{rest[0]}" if first in ("app", "rivals") and rest else first
    return inner if (PACKAGE / inner).is_dir() or (PACKAGE / f"{inner}.py").exists() else first


def imported_units(path: Path) -> set[str]:
    """Return the rooms that a file imports from, also those that it imports inside functions or from this folder."""
    package = ["equipoise", *path.relative_to(PACKAGE).parts[:-1]]
    names = []
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            names += [".".join([*base, *([node.module] if node.module else []), alias.name]) for alias in node.names]
    return {unit_of(name.removeprefix("equipoise.")) for name in names if name.startswith("equipoise.")}


def declared_units(docstring: str) -> set[str]:
    """Return the rooms that the paragraph `Calls:` of a docstring names."""
    _, _, calls = docstring.partition("\nCalls: ")
    return set(re.findall(r"`([\w/]+)`", calls.partition("\n\n")[0]))


@pytest.mark.parametrize("name", units())
def test_every_room_says_what_goes_in_and_out_and_which_rooms_it_calls(name):
    door, *files = units()[name]
    docstring = ast.get_docstring(ast.parse(door.read_text("utf-8"))) or ""
    assert re.search(r"(?m)^In(: | and out: )", docstring)
    assert re.search(r"\bOut: |^In and out: ", docstring, re.MULTILINE)
    called = set().union(*map(imported_units, files or [door])) - BELOW_ALL - {name}
    known = {*units(), REMOVABLE, "app/bug_report", "rivals"}
    assert declared_units(docstring) == called & known


def test_the_rooms_that_a_docstring_names_are_read_from_its_last_paragraph():
    assert declared_units("A `room`.\n\nIn: x. Out: `y`.\n\nCalls: `data`, `app/tables`\n(`save` alone).\n") == {
        "data",
        "app/tables",
        "save",
    }
    assert declared_units("A `room`.\n\nCalls: no other room.") == set()


# --- Equation labels --------------------------------------------------------------------------------------------------

LABEL = r"[A-Z]{1,2}[0-9]{1,2}"
SERIES = rf"{LABEL}(?:(?:\s*[,–-]\s*|\s+and\s+){LABEL})*"  # C1 · C1, C2 · C1–C4 · K2 and K3
IN_TEXT = re.compile(rf"\(({SERIES})\)")
IN_COMMENT = re.compile(rf"^#\s*({SERIES})(?!\w)")
LABEL_LIKE = re.compile(r"(\(|# *)[A-Z]\d")
DEFINITION = re.compile(rf"\*\*\(({LABEL})\)\*\*|\\tag\{{({LABEL})\}}")


def labels_of(series: str) -> Iterator[str]:
    """The labels of a series, ranges filled in: 'C1–C3, L2' has C1, C2, C3 and L2."""
    for part in re.split(r",|\band\b", series):
        first, *rest = re.split(r"[–-]", part.strip())
        last = rest[-1] if rest else first
        family = first.strip().rstrip("0123456789")
        start, stop = (int(re.sub(r"\D", "", end)) for end in (first, last))
        yield from (f"{family}{number}" for number in range(start, stop + 1))


def labels_in_text(text: str) -> set[str]:
    return {label for series in IN_TEXT.findall(text) for label in labels_of(series)}


def labels_in_code(source: str) -> set[str]:
    """Labels in docstrings, as (C1), and in comments, as (C1) or at the beginning, as in `# C1`."""
    if not LABEL_LIKE.search(source):
        return set()  # parsing takes its time
    nodes = ast.walk(ast.parse(source))
    prose = [n.value.value for n in nodes if isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant)]
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    comments = [token.string for token in tokens if token.type == tokenize.COMMENT]
    labels = set().union(*(labels_in_text(text) for text in [*prose, *comments] if isinstance(text, str)))
    return labels.union(*(labels_of(match[1]) for match in map(IN_COMMENT.match, comments) if match))


def labels_at_lines(source: str) -> set[str]:
    """The labels of comments, each of which stands at the line that implements its equation."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    comments = [token.string for token in tokens if token.type == tokenize.COMMENT]
    return set().union(*(labels_of(match[1]) for match in map(IN_COMMENT.match, comments) if match))


def labels_defined(markdown: str) -> list[str]:
    return [bold or tag for bold, tag in DEFINITION.findall(markdown)]


def label_faults(defined: list[str], in_source: set[str], elsewhere: Mapping[str, set[str]]) -> list[str]:
    known = set(defined)
    faults = [f"docs/math.md defines ({label}) twice." for label in sorted(known) if defined.count(label) > 1]
    faults += [f"docs/math.md defines ({label}), which no code bears." for label in sorted(known - in_source)]
    for place, used in {"src": in_source, **elsewhere}.items():
        faults += [
            f"{place} speaks of ({label}), which docs/math.md does not define." for label in sorted(used - known)
        ]
    return faults


def test_code_documents_and_tests_share_the_equation_labels():
    defined = labels_defined((ROOT / "docs" / "math.md").read_text("utf-8"))
    sources = [*package_sources().values(), *study_sources().values()]
    in_source = set().union(*map(labels_in_code, sources))
    pages = [ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs").rglob("*.md"))]
    elsewhere = {page.relative_to(ROOT).as_posix(): labels_in_text(page.read_text("utf-8")) for page in pages}
    for test in sorted((ROOT / "tests").rglob("*.py")):
        elsewhere[test.relative_to(ROOT).as_posix()] = labels_in_code(test.read_text("utf-8"))
    assert label_faults(defined, in_source, elsewhere) == []


LABELLED_ROOMS = ("gaussian",)


@pytest.mark.parametrize("room", LABELLED_ROOMS)
def test_every_equation_of_a_docstring_has_a_line_that_implements_it(room):
    sources = {path: text for path, text in package_sources().items() if path.startswith(f"{room}/")}
    in_docstrings = set().union(*map(labels_in_code, sources.values()))
    at_lines = set().union(*map(labels_at_lines, package_sources().values()))
    assert sorted(in_docstrings - at_lines) == []


def test_labels_at_lines_are_read_from_comments_alone():
    assert labels_at_lines('def f():\n    """All of it (L2)."""\n    return 1  # C1, C3') == {"C1", "C3"}


@pytest.mark.parametrize(
    ("source", "labels"),
    [
        ('"""S = B diag(v) Bᵀ   (C1)"""', {"C1"}),
        ('def f():\n    """All of it (C1–C3, L2)."""', {"C1", "C2", "C3", "L2"}),
        ('"""Two KLs (K2 and K3)."""', {"K2", "K3"}),
        ("S = 1  # C1", {"C1"}),
        ("S = 1  # C1, C2: both at once", {"C1", "C2"}),
        ("# The middle term of the joint density (L2).", {"L2"}),
        ('x = "(C1)"', set()),
        ('"""Shape (N, D), or (B, 3), of the SPM or P2D model; v1.2 (2026)."""', set()),
        ("x = 1  # H2O, SPM, float64, then C1", set()),
        ("x = 1  # P2D is another model", set()),
    ],
)
def test_labels_are_read_from_docstrings_and_comments(source, labels):
    assert labels_in_code(source) == labels


def test_definitions_are_read_from_bold_labels_and_tags():
    assert labels_defined("**(C1)** is used in (C2).\n$$x \\tag{M1}$$ **C3** (L1)") == ["C1", "M1"]


@pytest.mark.parametrize(
    ("defined", "in_source", "elsewhere", "complaint"),
    [
        (["C1"], {"C1", "C2"}, {}, "src speaks of (C2)"),
        (["C1", "C2"], {"C1"}, {}, "(C2), which no code bears"),
        (["C1", "C1"], {"C1"}, {}, "(C1) twice"),
        (["C1"], {"C1"}, {"tests/test_x.py": {"L2"}}, "tests/test_x.py speaks of (L2)"),
    ],
)
def test_a_label_without_its_counterpart_is_reported(defined, in_source, elsewhere, complaint):
    (fault,) = label_faults(defined, in_source, elsewhere)
    assert complaint in fault


# --- Manners ----------------------------------------------------------------------------------------------------------

IMPORT_PROBE = """
import importlib, json, logging, os, pkgutil, random, sys, warnings
import numpy, torch

def state():
    return {
        "environment": dict(os.environ),
        "log handlers": list(logging.root.handlers),
        "log level": logging.root.level,
        "numpy error handling": numpy.geterr(),
        "numpy print options": numpy.get_printoptions(),
        "numpy random state": repr(numpy.random.get_state()),
        "python random state": random.getstate(),
        "torch default device": str(torch.get_default_device()),
        "torch default dtype": str(torch.get_default_dtype()),
        "torch determinism": torch.are_deterministic_algorithms_enabled(),
        "torch distributions' validation": torch.distributions.Distribution._validate_args,
        "torch gradients": torch.is_grad_enabled(),
        "torch matmul precision": torch.get_float32_matmul_precision(),
        "torch random state": torch.get_rng_state().tolist(),
        "torch seed": torch.initial_seed(),
        "torch threads": (torch.get_num_threads(), torch.get_num_interop_threads()),
        "warning filters": list(warnings.filters),
    }

folder, third_party = sys.argv[1], json.loads(sys.argv[2])
for statement in third_party:  # what other packages do when they are imported is not our doing
    exec(statement, {})
before = state()
sys.path.insert(0, folder)
import equipoise
for module in pkgutil.walk_packages(equipoise.__path__, "equipoise."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
after = state()
print(json.dumps([name for name in before if before[name] != after[name]]))
"""


def third_party_imports(sources: Iterable[str]) -> list[str]:
    """Import statements at the top of modules that reach outside the package."""
    statements = []
    for source in sources:
        for node in ast.parse(source).body:
            if isinstance(node, ast.Import) or (isinstance(node, ast.ImportFrom) and not node.level):
                statements.append(ast.unparse(node))
    return sorted({statement for statement in statements if "equipoise" not in statement.split()[1].split(".")})


def state_changed_by_import(folder: Path, third_party: list[str]) -> list[str]:
    """Names of the global settings that importing `folder/equipoise` in a fresh interpreter changes."""
    probe = subprocess.run(
        [sys.executable, "-c", IMPORT_PROBE, str(folder), json.dumps(third_party)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert probe.returncode == 0, probe.stderr
    return json.loads(probe.stdout.splitlines()[-1])


def test_importing_the_package_changes_no_global_state():
    sources = package_sources().values()
    assert state_changed_by_import(PACKAGE.parent, third_party_imports(sources)) == []


def test_a_package_that_changes_global_state_is_caught(tmp_path):
    (tmp_path / "equipoise").mkdir()
    (tmp_path / "equipoise" / "__init__.py").write_text(
        "import logging, numpy, torch, warnings\n"
        "logging.basicConfig()\n"
        "numpy.random.seed(1)\n"
        "torch.manual_seed(1)\n"
        "torch.set_default_dtype(torch.float64)\n"
        "torch.set_num_threads(torch.get_num_threads() + 1)\n"
        "warnings.simplefilter('ignore')\n"
    )
    assert state_changed_by_import(tmp_path, []) == [
        "log handlers",
        "numpy random state",
        "torch default dtype",
        "torch random state",
        "torch seed",
        "torch threads",
        "warning filters",
    ]


def undocumented(public: Mapping[str, object]) -> list[str]:
    """Public classes, functions and modules without a docstring; the one that a dataclass writes for itself is none."""
    spoken = {n: o for n, o in public.items() if inspect.isclass(o) or inspect.isroutine(o) or inspect.ismodule(o)}
    return [name for name, value in spoken.items() if not value.__doc__ or value.__doc__.startswith(f"{name}(")]


def test_every_public_name_has_a_docstring():
    assert undocumented({name: getattr(equipoise, name) for name in equipoise.__all__}) == []


def test_a_public_name_without_docstring_is_reported():
    def silent(): ...

    def spoken():
        """Say something."""

    assert undocumented({"silent": silent, "spoken": spoken, "__version__": "0.1.0"}) == ["silent"]


def unpaired_tests(tests: Iterable[str], modules: Iterable[str]) -> list[str]:
    """Tests that mirror no module and modules that no test mirrors, by path: `cli/fit.py` by `cli/test_fit.py`."""
    tested, modules = {path.replace("test_", "", 1) for path in tests}, set(modules)
    strays = sorted(tested - modules - TESTS_WITHOUT_MODULE)
    return [f"tests of {path}: no such module" for path in strays] + [
        f"{path} has no tests" for path in sorted(modules - tested)
    ]


def test_tests_mirror_the_modules_one_to_one():
    folder = ROOT / "tests"
    tests = [path.relative_to(folder).as_posix() for path in folder.rglob("test_*.py")]
    modules = [path for path in [*package_sources(), *study_sources()] if "/__" not in f"/{path}"]
    assert unpaired_tests([path for path in tests if not was_removed(path)], modules) == []


def test_a_test_file_without_module_and_a_module_without_tests_are_reported():
    tests = ["test_model.py", "test_misc.py", "test_readme.py", "test_fit.py"]
    assert unpaired_tests(tests, ["model.py", "cli/fit.py"]) == [
        "tests of fit.py: no such module",
        "tests of misc.py: no such module",
        "cli/fit.py has no tests",
    ]


def oversized(paths: Iterable[Path]) -> list[str]:
    sizes = {path: path.stat().st_size for path in paths if path.is_file()}
    return [f"{path.name}: {size} bytes" for path, size in sizes.items() if size > LARGEST_FILE]


def test_no_tracked_file_is_larger_than_a_megabyte():
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listing.returncode:
        pytest.skip("not a git checkout")
    assert oversized(ROOT / name for name in listing.stdout.split("\0") if name) == []


def test_a_large_file_is_reported(tmp_path):
    for name, size in {"small.bin": LARGEST_FILE, "large.bin": LARGEST_FILE + 1}.items():
        (tmp_path / name).write_bytes(bytes(size))
    assert oversized(sorted(tmp_path.iterdir())) == [f"large.bin: {LARGEST_FILE + 1} bytes"]
