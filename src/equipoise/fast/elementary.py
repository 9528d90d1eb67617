"""Exponential, logarithm and hyperbolic tangent that the compiler can vectorise, in single and double precision.

A loop that calls the system's mathematical library is not vectorised. The functions here are accurate to two units in
the last place, which the tests measure against 50-digit arithmetic. NaN stays NaN, overflow is infinite. The tangent in
double precision is the system's, since networks usually work in single precision.
"""

import math

import numpy as np
from numba import types
from numba.extending import overload

from equipoise.fast.compilation import inlined

_F4, _I4, _I8 = np.float32, np.int32, np.int64

# Adding one and a half times 2^(bits of the mantissa) rounds to an integer and stores it in the lowest bits.
_MAGIC32, _MAGIC64 = _F4(1.5 * 2.0**23), 1.5 * 2.0**52
_LOG2E32, _LOG2E = _F4(1.0 / math.log(2.0)), 1.0 / math.log(2.0)
# log 2 in two parts, the first with so few bits that its product with an exponent is exact
_LN2_HIGH32, _LN2_LOW32 = _F4(0.693359375), _F4(math.log(2.0) - 0.693359375)
_LN2_HIGH, _LN2_LOW = 0.693147180369123816490, 1.90821492927058770002e-10
_ROOT_HALF32, _ROOT_HALF = _F4(math.sqrt(0.5)), math.sqrt(0.5)


def exp(x):
    """Compute `eˣ` of a float32 or float64; for compiled code only."""
    raise TypeError("exp is for compiled code.")


def log(x):
    """Compute `log x` of a float32 or float64, except of subnormal numbers; for compiled code only."""
    raise TypeError("log is for compiled code.")


def tanh(x):
    """Compute `tanh x` of a float32 or float64; for compiled code only."""
    raise TypeError("tanh is for compiled code.")


@inlined
def _exp32(x):
    """Compute `eˣ = 2ⁿ eʳ`, `|r| ≤ ½ log 2`, `eʳ` by its Taylor series; 2ⁿ is two factors for the ends of the range."""
    x = _F4(150.0) if x > _F4(150.0) else x
    x = _F4(-150.0) if x < _F4(-150.0) else x
    shifted = x * _LOG2E32 + _MAGIC32
    n = shifted - _MAGIC32
    r = (x - n * _LN2_HIGH32) - n * _LN2_LOW32
    p = _F4(1.0 / 5040.0)
    p = p * r + _F4(1.0 / 720.0)
    p = p * r + _F4(1.0 / 120.0)
    p = p * r + _F4(1.0 / 24.0)
    p = p * r + _F4(1.0 / 6.0)
    p = p * r + _F4(0.5)
    p = (p * (r * r) + r) + _F4(1.0)
    k = _I4(_I4(_F4(shifted).view(_I4) << 9) >> 9)  # the lower 23 bits, with their sign
    half = _I4(k >> 1)
    return p * _power32(half) * _power32(_I4(k - half))


@inlined
def _power32(k):
    return _I4(_I4(k + _I4(127)) << _I4(23)).view(_F4)


@inlined
def _exp64(x):
    x = 1400.0 if x > 1400.0 else x
    x = -1400.0 if x < -1400.0 else x
    shifted = x * _LOG2E + _MAGIC64
    n = shifted - _MAGIC64
    r = (x - n * _LN2_HIGH) - n * _LN2_LOW
    p = 1.0 / 6227020800.0
    p = p * r + 1.0 / 479001600.0
    p = p * r + 1.0 / 39916800.0
    p = p * r + 1.0 / 3628800.0
    p = p * r + 1.0 / 362880.0
    p = p * r + 1.0 / 40320.0
    p = p * r + 1.0 / 5040.0
    p = p * r + 1.0 / 720.0
    p = p * r + 1.0 / 120.0
    p = p * r + 1.0 / 24.0
    p = p * r + 1.0 / 6.0
    p = p * r + 0.5
    p = (p * (r * r) + r) + 1.0
    k = _I8(_I8(np.float64(shifted).view(_I8) << 12) >> 12)
    half = _I8(k >> 1)
    return p * _power64(half) * _power64(_I8(k - half))


@inlined
def _power64(k):
    return _I8(_I8(k + 1023) << 52).view(np.float64)


@inlined
def _log32(x):
    """Compute `log x = k log 2 + log m`, `√½ ≤ m ≤ √2`, by `log m = 2 artanh s`, `s = (m − 1) / (m + 1)`."""
    bits = _F4(x).view(_I4)
    k = _I4(_I4(bits >> 23) - _I4(126))
    m = _I4(_I4(bits & _I4(0x007FFFFF)) | _I4(0x3F000000)).view(_F4)
    low = m < _ROOT_HALF32
    k, m = _I4(k - 1) if low else k, m + m if low else m
    f = m - _F4(1.0)
    s = f / (m + _F4(1.0))
    z = s * s
    p = _F4(2.0 / 9.0)
    p = p * z + _F4(2.0 / 7.0)
    p = p * z + _F4(2.0 / 5.0)
    p = p * z + _F4(2.0 / 3.0)
    # 2 s = f − f s, and f has no rounding in it
    e = _F4(k)
    return _complete_log(x, e * _LN2_HIGH32 + (f - (s * (f - p * z) - e * _LN2_LOW32)))


@inlined
def _log64(x):
    bits = np.float64(x).view(_I8)
    k = _I8(bits >> 52) - 1022
    m = _I8((bits & 0x000FFFFFFFFFFFFF) | 0x3FE0000000000000).view(np.float64)
    low = m < _ROOT_HALF
    k, m = k - 1 if low else k, m + m if low else m
    f = m - 1.0
    s = f / (m + 1.0)
    z = s * s
    p = 2.0 / 21.0
    p = p * z + 2.0 / 19.0
    p = p * z + 2.0 / 17.0
    p = p * z + 2.0 / 15.0
    p = p * z + 2.0 / 13.0
    p = p * z + 2.0 / 11.0
    p = p * z + 2.0 / 9.0
    p = p * z + 2.0 / 7.0
    p = p * z + 2.0 / 5.0
    p = p * z + 2.0 / 3.0
    e = np.float64(k)
    return _complete_log(x, e * _LN2_HIGH + (f - (s * (f - p * z) - e * _LN2_LOW)))


@inlined
def _complete_log(x, value):
    """Return the logarithm `value` of x, replaced by its definition at 0, negative numbers, infinity and NaN."""
    value = -math.inf if x == 0 else value
    value = math.nan if x < 0 else value
    return value if x < math.inf else x


@inlined
def _tanh32(x):
    """Compute `tanh x = 1 − 2 / (e²ˣ + 1)`, but by a polynomial near 0, where this formula loses digits."""
    size = abs(x)
    far = _F4(1.0) - _F4(2.0) / (_exp32(size + size) + _F4(1.0))
    z = x * x
    p = _F4(-5.70498872745e-3)
    p = p * z + _F4(2.06390887954e-2)
    p = p * z + _F4(-5.37397155531e-2)
    p = p * z + _F4(1.33314422036e-1)
    p = p * z + _F4(-3.33332819422e-1)
    near = x + x * z * p
    signed = -far if x < _F4(0.0) else far
    return near if size < _F4(0.625) else signed


@inlined
def _tanh64(x):
    return math.tanh(x)


def _register(name, single, double):
    """Make compiled calls of the function `name` use `single` for float32 and `double` for float64."""

    @overload(name, inline="never")
    def choose(x):
        if x == types.float32:
            return lambda x: single(x)
        return (lambda x: double(x)) if x == types.float64 else None


_register(exp, _exp32, _exp64)
_register(log, _log32, _log64)
_register(tanh, _tanh32, _tanh64)
