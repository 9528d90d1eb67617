"""`python -m benchmarks.mutants`: do the tests still notice the faults that they noticed before?

A mutant is the source code with one small fault: a sum for a difference, `<` for `<=`, another number, a condition the
other way round. `draw` picks mutants by a seed and keeps those that the tests of their module notice in
`benchmarks/mutants.json`. `check` puts each of them into the code as it is now and runs the tests of that module again:
before a test is deleted or merged, and after. A mutant is found again by class, function, kind and number, or by the
shape of its function if that has another name now, so that it survives when code moves and names change; where its
function was rewritten it is called gone and not counted.
"""

import argparse
import ast
import copy
import hashlib
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
KEPT = Path(__file__).with_name("mutants.json")
ROOMS = ("balances", "gaussian", "data", "network", "training", "prediction", "reconciliation", "diagnosis", "artifact")
SECONDS = 300  # until a mutant that runs on for ever counts as noticed

_OPPOSITE: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.And: ast.Or,
    ast.Or: ast.And,
}


class Mutant(NamedTuple):
    """One fault, by where it is in the code rather than by line.

    Args:
        module: Path inside the package, as it was when the mutant was drawn.
        function: Name of the function, after that of its class: `Ledger.merge`.
        kind: Of the changed expression: `BinOp`, `Compare`, `BoolOp`, `Constant` or `If`.
        number: Which expression of this kind in the function, from 0.
        of: How many of this kind there are in the function.
        before, after: The expression, and what takes its place.
        shape: Digest of the function without names and texts.
    """

    module: str
    function: str
    kind: str
    number: int
    of: int
    before: str
    after: str
    shape: str


# --- Faults -----------------------------------------------------------------------------------------------------------


def changed(node: ast.AST) -> ast.AST | None:
    """Return the expression with its fault, or None where this kind of expression is left alone."""
    other = copy.deepcopy(node)
    match other:
        case ast.BinOp() | ast.BoolOp() if type(other.op) in _OPPOSITE:
            other.op = _OPPOSITE[type(other.op)]()  # type: ignore[assignment]
        case ast.Compare(ops=[operator]) if type(operator) in _OPPOSITE:
            other.ops = [_OPPOSITE[type(operator)]()]  # type: ignore[list-item]
        case ast.Constant(value=value) if isinstance(value, int | float) and not isinstance(value, bool):
            other.value = value + 1
        case ast.IfExp():
            other.test = ast.UnaryOp(ast.Not(), other.test)
        case _:
            return None
    return other


def functions(tree: ast.AST, inside: str = "") -> Iterator[tuple[str, ast.FunctionDef]]:
    """Iterate over functions and methods with their names; those inside another function belong to it."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef):
            yield f"{inside}{node.name}", node
        elif isinstance(node, ast.ClassDef):
            yield from functions(node, f"{node.name}.")


def expressions(function: ast.FunctionDef) -> dict[str, list[ast.AST]]:
    """Return the expressions of a function's body that can be changed, by kind; annotations and texts are none."""
    kinds: dict[str, list[ast.AST]] = {}
    pending: list[ast.AST] = list(function.body)
    while pending:
        node = pending.pop(0)
        if isinstance(node, ast.JoinedStr):
            continue
        if changed(node) is not None:
            kinds.setdefault(type(node).__name__, []).append(node)
        skipped = {id(part) for part in (getattr(node, "annotation", None), getattr(node, "returns", None)) if part}
        pending[:0] = [child for child in ast.iter_child_nodes(node) if id(child) not in skipped]
    return kinds


def shape_of(function: ast.FunctionDef) -> str:
    """Return a digest of a function that renaming, moving and other words do not change."""
    parts = []
    for node in ast.walk(ast.Module([part for part in function.body if not _is_text(part)], [])):
        value = getattr(node, "value", None)
        number = value if isinstance(node, ast.Constant) and not isinstance(value, str) else ""
        parts.append(f"{type(node).__name__}{number}")
    return hashlib.sha256(" ".join(parts).encode()).hexdigest()[:12]


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def mutants_of(module: str, source: str) -> list[Mutant]:
    """Return every mutant of a module."""
    return [
        Mutant(
            module, name, kind, i, len(nodes), ast.unparse(node), ast.unparse(changed(node) or node), shape_of(function)
        )
        for name, function in functions(ast.parse(source))
        for kind, nodes in expressions(function).items()
        for i, node in enumerate(nodes)
    ]


def applied(mutant: Mutant, source: str) -> str | None:
    """Return the source with the fault in it, or None where it has no place there any more."""
    named = dict(functions(ast.parse(source)))
    alike = [function for function in named.values() if shape_of(function) == mutant.shape]
    function = named.get(mutant.function, alike[0] if len(alike) == 1 else None)
    nodes = [] if function is None else expressions(function).get(mutant.kind, [])
    for node in nodes[mutant.number : mutant.number + 1]:
        if len(nodes) == mutant.of:
            fault = ast.unparse(changed(node) or node)
            lines = source.encode().splitlines(keepends=True)
            first, last = node.lineno - 1, node.end_lineno - 1  # type: ignore[attr-defined]
            head, tail = lines[first][: node.col_offset], lines[last][node.end_col_offset :]  # type: ignore[attr-defined]
            lines[first : last + 1] = [head + b"(" + fault.encode() + b")" + tail]
            return b"".join(lines).decode()
    return None


def place_of(mutant: Mutant, sources: dict[str, str]) -> str | None:
    """Return the module in which a mutant's function stands now: the only one of its name, or of its shape."""
    homes = [module for module, source in sources.items() if applied(mutant, source) is not None]
    own_name = [home for home in homes if mutant.function in dict(functions(ast.parse(sources[home])))]
    for candidates in ([m for m in own_name if m == mutant.module], own_name, homes):
        if len(candidates) == 1:
            return candidates[0]
    return None


# --- Running the tests ------------------------------------------------------------------------------------------------


def is_noticed(module: str, source: str, scratch: Path) -> bool:
    """Whether the tests of a module fail once its source is replaced, in a copy of package and tests."""
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        tree = Path(folder)
        for part in ("src", "tests", "studies", "benchmarks", "docs"):
            subprocess.run(["cp", "-r", str(ROOT / part), str(tree / part)], check=True)
        for name in ("pyproject.toml", "README.md", "ARCHITECTURE.md", "Makefile"):
            (tree / name).symlink_to(ROOT / name)
        (tree / "src" / "equipoise" / module).write_text(source, "utf-8")
        room, _, file = module.rpartition("/")
        tests = [str(tree / "tests" / room / f"test_{file}"), str(tree / "src" / "equipoise" / module)]
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
        environment = os.environ | {"PYTHONPATH": str(tree / "src"), "OMP_NUM_THREADS": "1"}
        try:
            done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, timeout=SECONDS)
        except subprocess.TimeoutExpired:
            return True
        if done.returncode > 1:  # no tests, or pytest itself failed: collecting a mutant may do that, too
            return b"error" in done.stdout.lower()
        return done.returncode == 1


def sources() -> dict[str, str]:
    """Return the source text of every module of the rooms that are looked at, by path inside the package."""
    package = ROOT / "src" / "equipoise"
    paths = [path for room in ROOMS for path in sorted((package / room).rglob("*.py")) if "__" not in path.name]
    return {path.relative_to(package).as_posix(): path.read_text("utf-8") for path in paths}


def draw(number: int, seed: int, workers: int) -> list[Mutant]:
    """Draw mutants evenly over modules until so many are noticed, and return these."""
    texts, rng = sources(), random.Random(seed)
    pools = {
        module: rng.sample(all_, len(all_)) for module, text in texts.items() if (all_ := mutants_of(module, text))
    }
    order = [pool[turn] for turn in range(50) for _, pool in sorted(pools.items()) if turn < len(pool)]
    rng.shuffle(order)
    noticed: list[Mutant] = []
    for start in range(0, len(order), 2 * workers):
        noticed += [m for m, seen in _tried(order[start : start + 2 * workers], texts, workers) if seen]
        print(f"{len(noticed)} of {number} noticed, {start + 2 * workers} tried", flush=True)
        if len(noticed) >= number:
            break
    return noticed[:number]


def _tried(mutants: Sequence[Mutant], texts: dict[str, str], workers: int) -> list[tuple[Mutant, bool | None]]:
    """Try mutants at the same time: whether each is noticed, or None where it is gone."""

    def verdict(mutant: Mutant) -> bool | None:
        module = place_of(mutant, texts)
        faulty = None if module is None else applied(mutant, texts[module])
        return None if module is None or faulty is None else is_noticed(module, faulty, scratch)

    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(workers) as pool:
        scratch = Path(folder)
        return list(zip(mutants, pool.map(verdict, mutants), strict=True))


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw mutants or check those that are kept; 1 if a mutant that was noticed before is not noticed any more."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mutants", description=__doc__.split("\n")[0])
    parser.add_argument("action", choices=("draw", "check"))
    parser.add_argument("--number", type=int, default=100, help="how many to draw")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args(arguments)
    if options.action == "draw":
        drawn = draw(options.number, options.seed, options.workers)
        KEPT.write_text("[\n" + ",\n".join(f" {json.dumps(m)}" for m in drawn) + "\n]\n", "utf-8")
        return 0
    kept = [Mutant(*entry) for entry in json.loads(KEPT.read_text("utf-8"))]
    verdicts = _tried(kept, sources(), options.workers)
    for word, wanted in (("gone", None), ("not noticed", False)):
        for mutant in (m for m, verdict in verdicts if verdict is wanted):
            print(f"{word}: {mutant.module}, {mutant.function}: {mutant.before} -> {mutant.after}")
    counts = {wanted: sum(verdict is wanted for _, verdict in verdicts) for wanted in (True, False, None)}
    print(f"{counts[True]} noticed, {counts[False]} not noticed, {counts[None]} gone")
    return int(counts[False] > 0)


if __name__ == "__main__":
    sys.exit(main())
