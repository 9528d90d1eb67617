"""How loops are compiled, and what becomes of compiled code where it cannot be kept."""

import os
import subprocess
import sys

import numpy as np
import pytest

from equipoise.kernels import compilation

SCRIPT = """
import numpy as np
from equipoise.kernels.layers import add_divergence
parts = [np.ones(3) for _ in range(4)]
add_divergence(*parts, 0.5, 2.0)
print(*parts[0])
"""


def test_a_loop_works_where_its_code_cannot_be_kept(tmp_path):
    """A folder that nobody may write to, as in a container without a home."""
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "file" / "cache"), "HOME": str(tmp_path / "file")}
    (tmp_path / "file").write_text("")
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["2.0", "2.0", "2.0"]


def test_dividing_by_zero_is_infinite_as_in_numpy():
    @compilation.compiled
    def inverse(x):
        return 1.0 / x

    assert inverse(0.0) == np.inf


def test_a_product_and_a_sum_are_rounded_once():
    """As `fma` has it: the error of a product is what is left when the product is taken away."""
    if not hasattr(__import__("math"), "fma") and not _has_fma():
        pytest.skip("this processor has no such instruction")

    @compilation.compiled
    def error_of_product(x, y, product):
        return x * y - product

    assert error_of_product(1.0 + 2.0**-30, 1.0 + 2.0**-30, 1.0 + 2.0**-29) == 2.0**-60


def _has_fma() -> bool:
    import llvmlite.binding as llvm

    return bool(llvm.get_host_cpu_features().get("fma"))
