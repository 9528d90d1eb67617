"""Docstrings say who does what, and variables are nouns of the field: a check of words, not of meaning."""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

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


def sources() -> dict[str, str]:
    """Return the source text of package and studies by path from the root."""
    paths = [path for folder in ("src", "studies") for path in sorted((ROOT / folder).rglob("*.py"))]
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


if __name__ == "__main__":  # python tests/test_plain_english.py src/equipoise/gaussian
    import sys

    print("\n".join(line for line in complaints(sources()) if line.startswith(tuple(sys.argv[1:]) or "")))
