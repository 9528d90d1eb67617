"""Elementary functions of compiled code, against 50-digit arithmetic."""

import mpmath
import numpy as np
import pytest
from numba import njit

from equipoise.fast import elementary


def applied(name: str):
    function = getattr(elementary, name)

    @njit
    def everywhere(x):
        out = np.empty_like(x)
        for i in range(x.size):
            out[i] = function(x[i])
        return out

    return everywhere


FUNCTIONS = {name: applied(name) for name in ("exp", "log", "tanh")}
DTYPES = pytest.mark.parametrize("dtype", [np.float32, np.float64])


def arguments(name: str, dtype) -> np.ndarray:
    """Over the whole range of results that have a full mantissa, and close to where digits are easily lost."""
    rng, far = np.random.default_rng(0), 87.0 if dtype == np.float32 else 708.0
    if name == "log":
        wide, near = np.exp(rng.uniform(-far, far, 1_000)), 1.0 + rng.uniform(-0.35, 0.5, 1_000)
        near[:100] = 1.0 + rng.uniform(-1e-3, 1e-3, 100)
        return np.concatenate([wide, near]).astype(dtype)
    wide = rng.uniform(-far, far, 1_000) if name == "exp" else rng.normal(0.0, 3.0, 1_000)
    return np.concatenate([wide, rng.normal(0.0, 0.4, 1_000), rng.normal(0.0, 1e-4, 100)]).astype(dtype)


@DTYPES
@pytest.mark.parametrize("name", FUNCTIONS)
def test_results_are_off_by_at_most_two_units_in_the_last_place(name, dtype):
    x = arguments(name, dtype)
    values = FUNCTIONS[name](x)
    with mpmath.workdps(50):
        for value, got in zip(x.tolist(), values.tolist(), strict=True):
            exact = getattr(mpmath, name)(mpmath.mpf(value))
            unit = float(np.spacing(dtype(abs(float(exact)))))
            assert abs(mpmath.mpf(got) - exact) <= 2 * unit, f"{name}({value}) = {got}"


SPECIAL = {
    "exp": [(np.nan, np.nan), (np.inf, np.inf), (-np.inf, 0.0), (1e30, np.inf), (-1e30, 0.0), (0.0, 1.0)],
    "log": [(np.nan, np.nan), (np.inf, np.inf), (0.0, -np.inf), (-1.0, np.nan), (1.0, 0.0)],
    "tanh": [(np.nan, np.nan), (np.inf, 1.0), (-np.inf, -1.0), (1e30, 1.0), (-1e30, -1.0), (0.0, 0.0)],
}


@DTYPES
@pytest.mark.parametrize("name", SPECIAL)
def test_the_ends_of_the_range_are_those_of_the_definition(name, dtype):
    x, expected = (np.array(part, dtype) for part in zip(*SPECIAL[name], strict=True))
    np.testing.assert_array_equal(FUNCTIONS[name](x), expected)


@pytest.mark.parametrize(("dtype", "x"), [(np.float32, -95.0), (np.float64, -720.0)])
def test_small_exponentials_lose_digits_gradually(dtype, x):
    tiny = float(FUNCTIONS["exp"](np.array([x], dtype))[0])
    assert 0.0 < tiny < np.finfo(dtype).tiny
    assert tiny == pytest.approx(float(mpmath.exp(x)), rel=1e-3)


def test_they_are_not_for_the_interpreter():
    for name in FUNCTIONS:
        with pytest.raises(TypeError, match="compiled code"):
            getattr(elementary, name)(1.0)
