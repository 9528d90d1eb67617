"""Compilation of loops, and the cache of compiled code."""

import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numba.core.registry import cpu_target

import equipoise.fast
from equipoise.fast import compilation

SCRIPT = """
import numpy as np
from equipoise.fast.compilation import notify_on_compilation
from equipoise.fast.layers import add_divergence
parts, seen = [np.ones(3) for _ in range(4)], []
with notify_on_compilation(lambda: seen.append(1)):
    add_divergence(*parts, 0.5, 2.0)
print(parts[0][0], parts[1][0], len(seen))
"""
RESULT = ["2.0", f"{0.5 + np.exp(2.0)}"]  # grad_loc + ½ · 2 · 1, grad_log_std + e² − ½


@pytest.fixture
def package(tmp_path):
    """Copy the loops alone, so that a test can change them."""
    copy = tmp_path / "source" / "equipoise" / "fast"
    shutil.copytree(Path(equipoise.fast.__file__).parent, copy, ignore=shutil.ignore_patterns("__pycache__"))
    (copy.parent / "__init__.py").write_text("")
    return copy


def run(package, limit=None, **environment):
    """Run the script; return the number it prints, and how often a loop was compiled."""
    environment = os.environ | {"PYTHONPATH": str(package.parents[1])} | environment
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=None if limit is None else lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )
    assert done.returncode == 0, done.stderr
    *numbers, compiled = done.stdout.split()
    assert float(numbers[1]) == pytest.approx(float(RESULT[1]), rel=1e-12)
    return numbers[0], int(compiled)


def test_compiled_code_is_kept_and_belongs_to_all_files_of_the_package(package, tmp_path):
    """A change in a file that the loop only calls into has it compiled again."""
    kept = {"NUMBA_CACHE_DIR": str(tmp_path / "kept")}
    assert run(package, **kept) == ("2.0", 1)
    assert run(package, **kept) == ("2.0", 0)
    elementary = package / "elementary.py"
    elementary.write_text(elementary.read_text("utf-8") + "\n# another word\n", "utf-8")
    assert run(package, **kept) == ("2.0", 1)


def test_damaged_code_is_compiled_again_and_replaced(package, tmp_path):
    kept = {"NUMBA_CACHE_DIR": str(tmp_path / "kept")}
    run(package, **kept)
    for ending in ("*.nbc", "*.nbi"):
        for file in (tmp_path / "kept").rglob(ending):
            file.write_bytes(file.read_bytes()[:50])
        assert run(package, **kept) == ("2.0", 1)
        assert run(package, **kept) == ("2.0", 0)


def test_a_loop_works_where_its_code_cannot_be_kept(package, tmp_path):
    """No folder that may be written to, as in a container without a home; and a disk that is full."""
    (tmp_path / "file").write_text("")
    nowhere = str(tmp_path / "file" / "cache")
    assert run(package, NUMBA_CACHE_DIR=nowhere, HOME=nowhere)[0] == "2.0"
    assert run(package, limit=100, NUMBA_CACHE_DIR=str(tmp_path / "full")) == ("2.0", 1)


def test_dividing_by_zero_is_infinite_as_in_numpy():
    @compilation.compiled
    def inverse(x):
        return 1.0 / x

    assert inverse(0.0) == np.inf


def has_fused_multiply_add() -> bool:
    """Whether numba compiles for a processor that has it: this one, or one with fewer instructions that it pretends."""
    *_, features = cpu_target.target_context.codegen().magic_tuple()
    return "+fma" in features.split(",")


@pytest.mark.skipif(not has_fused_multiply_add(), reason="the processor has no such instruction")
def test_a_product_and_a_sum_are_rounded_once():
    """The error of a product is what is left when the product is taken away."""

    @compilation.compiled
    def error_of_product(x, y, product):
        return x * y - product

    assert error_of_product(1.0 + 2.0**-30, 1.0 + 2.0**-30, 1.0 + 2.0**-29) == 2.0**-60
