"""Docstrings say who does what, and variables are nouns of the field: a check of words, not of meaning.

What other rooms and users may call has its arguments described, too.
"""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]

# First words of docstrings of functions: "Return the conditioned mean ...". Extend the list where a verb is missing.
WORDS = """
    accept accumulate add adjust advance align allocate allow announce answer append apply approximate arrange ask
    assemble assert assign attach average balance bin block bound bracket break bring broadcast build calculate call
    cancel cap cast catch centre change check choose claim clean clear clip close collect colour combine compare compile
    complain complete compose compress compute concatenate condition configure connect continue convert copy correct
    count create cut damp decide declare decode decompose decorate delete derive describe detect determine diagnose
    differentiate discard divide download draft draw drop eliminate embed encode end ensure enter enumerate escape
    estimate evaluate exchange exclude execute exit expand explain export express extend extract factorise fail fetch
    fill filter find finish fit fix flag flatten flush follow forget form format fuse gather generate get give go group
    guess handle have hide highlight hold identify ignore impose include increase indent index infer initialise insert
    install integrate interpolate interpret interrupt introduce invert invoke iterate join judge keep label launch lay
    learn leave let limit linearise link list load locate lock log look lower make map mark marginalise mask match
    measure merge minimise mirror mix model move multiply name negate normalise note number observe offer omit open
    optimise order orthogonalise overwrite pack pad pair parse partition pass perturb pick place plan plot point pool
    precondition predict prefer prepare print process produce project propagate propose prove provide prune pull push
    put quote raise rank read rebuild recognise recommend reconcile record recover reduce refer refit refuse register
    regress reject release remember remove rename render reorder repair repeat replace replay report represent request
    require rescale reserve reset resolve restore restrict resume retain return reverse rewrite round run sample save
    scale scan score search select send separate serialise serve set share shift show shrink shuffle simulate sketch
    skip slice smooth solve sort split stack standardise standardize start state step stop store stream strip
    substitute subtract suggest sum summarise summarize support suppress switch synchronise tabulate take tell
    terminate test tie time track train transform translate transpose traverse treat trim truncate try tune turn typeset
    undo update upgrade use validate verify visit wait walk warm warn watch weigh weight whiten widen work wrap write
    yield zero
"""
VERBS = frozenset(WORDS.split())
# Not nouns: what they stand for has a name of its own.
VAGUE = frozenset(("asked", "found", "given", "into", "meant", "of", "said", "shown", "some", "taken", "told", "those"))

Sources = Mapping[str, str]


def sources(ending: str = "py") -> dict[str, str]:
    """Return the source text of package and studies by path from the root."""
    paths = [path for folder in ("src", "studies") for path in sorted((ROOT / folder).rglob(f"*.{ending}"))]
    return {path.relative_to(ROOT).as_posix(): path.read_text("utf-8") for path in paths}


def functions(tree: ast.AST, inside: bool = False) -> Iterator[ast.FunctionDef]:
    """Iterate over the functions and methods of a module; those inside another function have no name to the outside."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef) and not inside:
            yield node
        yield from functions(node, inside or isinstance(node, ast.FunctionDef))


def is_property(function: ast.FunctionDef) -> bool:
    return any(
        ast.unparse(decorator).split(".")[-1] in ("property", "cached_property", "setter", "overload")
        for decorator in function.decorator_list
    )


def without_docstring(source: str) -> list[str]:
    """Names of public functions, methods and classes that have no docstring."""
    tree = ast.parse(source)
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    public = [node for node in [*functions(tree), *classes] if not node.name.startswith("_")]
    return [node.name for node in public if ast.get_docstring(node) is None]


def without_verb(source: str) -> list[str]:
    """Docstrings of functions that do not begin with a verb; a property may be a noun."""
    complaints = []
    for function in functions(ast.parse(source)):
        first = (ast.get_docstring(function) or "return").split()[0]
        if not is_property(function) and first.rstrip(":.,").lower() not in VERBS:
            complaints.append(f"{function.name}: {first} ...")
    return complaints


def vague_names(source: str) -> list[str]:
    """Arguments and variables that are called by a word that could stand for anything."""
    tree = ast.parse(source)
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    names |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    return sorted(name for name in names if name.strip("_") in VAGUE)


def vague_in_tests(source: str) -> list[str]:
    """Variables of tests and benchmarks that are called by what somebody said or told, instead of by what it is."""
    names = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)]
    return sorted({name.id for name in names if isinstance(name.ctx, ast.Store)} & {"said", "told"})


def test_variables_of_tests_and_benchmarks_are_nouns():
    paths = [path for folder in ("tests", "benchmarks") for path in sorted((ROOT / folder).rglob("*.py"))]
    assert {path.name: names for path in paths if (names := vague_in_tests(path.read_text("utf-8")))} == {}


def test_a_variable_of_a_test_that_is_no_noun_is_reported():
    assert vague_in_tests("said = 1\nfor told in (): ...\nprinted = said") == ["said", "told"]


CHECKS = {"no docstring": without_docstring, "no verb first": without_verb, "vague name": vague_names}


def complaints(texts: Sources) -> list[str]:
    """Return what all checks complain of, one line each."""
    return [
        f"{path}: {kind}: {complaint}"
        for path, source in texts.items()
        for kind, check in CHECKS.items()
        for complaint in check(source)
    ]


def test_docstrings_begin_with_a_verb_and_variables_are_nouns():
    assert complaints(sources()) == []


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("def f(): ...", "a.py: no docstring: f"),
        ('def f():\n    """The same, of measured values."""', "a.py: no verb first: f: The ..."),
        ('def _f():\n    """As `g` takes it."""', "a.py: no verb first: _f: As ..."),
        ('class C:\n    """A value."""\n    def f(self): ...', "a.py: no docstring: f"),
        ("said = 1", "a.py: vague name: said"),
        ("for found in (): ...", "a.py: vague name: found"),
        ("def _f(told): ...", "a.py: vague name: told"),
    ],
)
def test_what_is_not_plain_is_reported(source, complaint):
    assert complaints({"a.py": source}) == [complaint]


@pytest.mark.parametrize(
    "source",
    [
        'def f():\n    """Return the conditioned mean."""\n    def inner(): ...',
        'class C:\n    """A value."""\n    @property\n    def mean(self):\n        """The conditioned mean."""',
        "def _private(): ...",
        "rows = 1",
    ],
)
def test_what_is_plain_is_not_reported(source):
    assert complaints({"a.py": source}) == []


# --- Arguments at the doors -------------------------------------------------------------------------------------------

DESCRIBED = re.compile(r"^ *(Args|Attributes):|[Aa]rguments\b[^.]* are those\s+of\s+`", re.MULTILINE)


class Definition(NamedTuple):
    """A function or class at the top of a module.

    Args:
        path: The module's path.
        node: The function or class.
    """

    path: str
    node: ast.FunctionDef | ast.ClassDef


def door_of(folder: PurePosixPath, texts: Sources) -> str | None:
    """Return the path of a package's door: `__init__.pyi`, or `__init__.py` where there is none."""
    return next((path for name in ("pyi", "py") if (path := f"{folder}/__init__.{name}") in texts), None)


def definitions(place: PurePosixPath, names: Iterable[str] | None, texts: Sources) -> Iterator[Definition]:
    """Iterate over the functions and classes that a module or a door offers under these names; all if None."""
    path = f"{place}.py" if f"{place}.py" in texts else door_of(place, texts)
    if path is None:
        return
    wanted = None if names is None else set(names)
    for node in ast.parse(texts[path]).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not path.endswith(".pyi"):
            if node.name in wanted if wanted is not None else not node.name.startswith("_"):
                yield Definition(path, node)
        elif isinstance(node, ast.ImportFrom) and "/__init__." in path:
            imported = [alias.name for alias in node.names if wanted is None or (alias.asname or alias.name) in wanted]
            origin = place if node.level else PurePosixPath("src")
            if node.module:
                yield from definitions(origin.joinpath(*node.module.split(".")), imported, texts)
            else:  # whole modules: from . import metrics
                for name in imported:
                    yield from definitions(place / name, None, texts)


def parameters(function: ast.FunctionDef) -> list[str]:
    """Names of the arguments of a function, `self` and `cls` apart."""
    a = function.args
    every = [*a.posonlyargs, *a.args, *([a.vararg] if a.vararg else []), *a.kwonlyargs, *([a.kwarg] if a.kwarg else [])]
    return [argument.arg for argument in every if argument.arg not in ("self", "cls")]


def fields_of(cls: ast.ClassDef) -> list[str]:
    """Names of the fields of a dataclass."""
    if not any("dataclass" in ast.unparse(decorator) for decorator in cls.decorator_list):
        return []
    fields = [node for node in cls.body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)]
    hidden = [node for node in fields if node.value is not None and "init=False" in ast.unparse(node.value)]
    return [ast.unparse(node.target) for node in fields if node not in hidden]


def without_arguments(definition: Definition) -> list[str]:
    """Names of a function, or of a class and its public methods, that take several arguments and do not describe them.

    Arguments of the initialiser are described in the docstring of the class.
    """
    node = definition.node
    callables = [(node.name, parameters(node), ast.get_docstring(node))] if isinstance(node, ast.FunctionDef) else []
    if isinstance(node, ast.ClassDef):
        methods = [each for each in node.body if isinstance(each, ast.FunctionDef) and not is_property(each)]
        made_from = next((parameters(each) for each in methods if each.name == "__init__"), fields_of(node))
        callables = [(node.name, made_from, ast.get_docstring(node))]
        public = [each for each in methods if not each.name.startswith("_")]
        callables += [(f"{node.name}.{each.name}", parameters(each), ast.get_docstring(each)) for each in public]
    return [name for name, arguments, text in callables if len(arguments) > 1 and not DESCRIBED.search(text or "")]


def undescribed(texts: Sources) -> list[str]:
    """Return what is offered by the door of a room or package and takes arguments without a description, one a line."""
    folders = {PurePosixPath(path).parent for path in texts if "/__init__." in path}
    offered = {each.path + each.node.name: each for folder in folders for each in definitions(folder, None, texts)}
    return sorted(f"{each.path}: no arguments: {name}" for each in offered.values() for name in without_arguments(each))


def describes_in_annotations(function: ast.FunctionDef) -> bool:
    """Whether all arguments are options of a command, whose help describes them where they are declared."""
    return function.name == "run" and all(argument.annotation for argument in function.args.args)


def public_without_arguments(source: str) -> list[str]:
    """Names of all public functions and methods that take several arguments and do not describe them."""
    public = [each for each in functions(ast.parse(source)) if not each.name.startswith("_") and not is_property(each)]
    return [
        each.name
        for each in public
        if len(parameters(each)) > 1
        and not DESCRIBED.search(ast.get_docstring(each) or "")
        and not describes_in_annotations(each)
    ]


def test_every_public_function_of_several_arguments_describes_them():
    lacking = {path: names for path, text in sources().items() if (names := public_without_arguments(text))}
    assert lacking == {}


def test_a_public_function_that_does_not_describe_its_arguments_is_reported():
    source = (
        'def add(x, y):\n    """Add."""\ndef _add(x, y): ...\ndef negate(x): ...\nclass C:\n    def f(self, x, y): ...'
    )
    assert public_without_arguments(source) == ["add", "f"]
    assert public_without_arguments('def add(x, y):\n    """Add.\n\n    Args:\n        x, y: Numbers.\n    """') == []


def test_what_a_door_offers_describes_its_arguments():
    lines = undescribed(sources() | sources("pyi"))
    assert list(lines) == []


def test_what_a_door_offers_without_describing_its_arguments_is_reported():
    described = '    """Add.\n\n    Args:\n        x, y: Numbers.\n    """'
    module = f"""
@dataclass
class Pair:
    first: float
    second: float
    def sum(self): ...
    def scaled(self, factor, power): ...
    def _hidden(self, x, y): ...
class Layer:
    def __init__(self, *sizes, **options): ...
def add(x, y):
{described}
def subtract(x, y):
    \"\"\"Subtract; arguments are those of `add`.\"\"\"
def divide(x, y): ...
def negate(x): ...
def inside(x, y): ...
"""
    texts = {
        "src/p/__init__.pyi": "from .room import Pair as Pair",
        "src/p/room/__init__.pyi": "from . import whole as whole\n"
        "from .a import Layer as Layer, Pair as Pair, add as add, divide as divide, negate as negate\n"
        "from .a import subtract as subtract",
        "src/p/room/a.py": module,
        "src/p/room/whole.py": "def f(x, *, y): ...\ndef _g(x, y): ...",
        "src/p/plain/__init__.py": "from p.plain.b import h",
        "src/p/plain/b.py": "def h(x, y): ...\ndef inside(x, y): ...",
    }
    assert undescribed(texts) == [
        "src/p/plain/b.py: no arguments: h",
        "src/p/room/a.py: no arguments: Layer",
        "src/p/room/a.py: no arguments: Pair",
        "src/p/room/a.py: no arguments: Pair.scaled",
        "src/p/room/a.py: no arguments: divide",
        "src/p/room/whole.py: no arguments: f",
    ]


if __name__ == "__main__":  # python tests/test_plain_english.py src/equipoise/gaussian
    import sys

    lines = [*complaints(sources()), *undescribed(sources() | sources("pyi"))]
    print("\n".join(line for line in lines if line.startswith(tuple(sys.argv[1:]) or "")))
