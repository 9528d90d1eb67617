"""Slow, obvious versions of the maths, written line by line from the equations; the library must agree with them.

One row of data at a time, NumPy arrays in, NumPy arrays out; nothing here imports the package.
"""

import math
from dataclasses import astuple, dataclass, replace

import mpmath
import numpy as np
import scipy.linalg
import scipy.stats
from scipy.optimize import brentq

EPS = np.finfo(float).eps


# --- Problems to try them on ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Problem:
    """One row: `y ~ N(mean, diag(var))`, `B y + ε = target`, `ε ~ N(0, diag(tol_var))`."""

    mean: np.ndarray
    var: np.ndarray
    B: np.ndarray
    target: np.ndarray
    tol_var: np.ndarray

    def __iter__(self):
        return iter(astuple(self))

    def in_units(self, output_scale, balance_scale):
        """The same problem for `y · output_scale`, with each balance multiplied by its `balance_scale`."""
        s, c = np.asarray(output_scale), np.asarray(balance_scale)
        B = c[:, None] * self.B / s
        return Problem(self.mean * s, self.var * s**2, B, self.target * c, self.tol_var * c**2)

    def permuted(self, outputs, balances):
        B = self.B[np.ix_(balances, outputs)]
        return Problem(self.mean[outputs], self.var[outputs], B, self.target[balances], self.tol_var[balances])

    @property
    def condition_number(self):
        return condition_number(self.var, self.B, self.tol_var)

    def without(self, balance):
        kept = np.arange(len(self.B)) != balance
        return replace(self, B=self.B[kept], target=self.target[kept], tol_var=self.tol_var[kept])


def random_problem(seed, n=6, m=3, *, density=0.4, exact=0.5, nearness=None, decades=0.0):
    """A random problem with independent balances and a mean that misses them.

    Args:
        density: Chance of a coefficient to be other than zero; every balance and the rank keep what they need.
        exact: Chance of a balance to have tolerance 0.
        nearness: Size of the difference between the last two balances, if there are two.
        decades: Range of the units of outputs and balances.
    """
    rng = np.random.default_rng(seed)
    pattern = rng.random((m, n)) < density
    pattern[np.arange(m), rng.permutation(n)[:m]] = True
    B = pattern * rng.uniform(0.5, 2.0, (m, n)) * rng.choice([-1.0, 1.0], (m, n))
    if nearness is not None and m > 1:
        B[-1] = B[-2] + nearness * B[-1]
    mean, var = 3.0 * rng.normal(size=n), rng.uniform(0.1, 2.0, n)
    tol_var = np.where(rng.random(m) < exact, 0.0, 10.0 ** rng.uniform(-3.0, 1.0, m))
    target = B @ (mean + np.sqrt(var) * rng.normal(size=n)) + np.sqrt(tol_var) * rng.normal(size=m)
    units = [10.0 ** rng.uniform(-decades / 2, decades / 2, size) for size in (n, m)]
    return Problem(mean, var, B, target, tol_var).in_units(*units)


# --- Conditioning (C1-C5) ---------------------------------------------------------------------------------------------


def conditioned(mean, var, B, target, tol_var):
    """C1-C4 with explicit matrices: `(μ_C, Σ_C)`."""
    return conditioned_dense(mean, np.diag(var), B, target, tol_var)


def conditioned_dense(mean, cov, B, target, tol_var):
    """C1-C4 for a Gaussian with any covariance, so that balances can be applied one after the other."""
    R = np.diag(tol_var)
    S = B @ cov @ B.T + R  # C1
    K = cov @ B.T @ np.linalg.inv(S)  # C2
    return mean + K @ (target - B @ mean), cov - K @ S @ K.T  # C3, C4


def conditioned_with_inputs(mean, var, B, target, tol_var, A, input_var):
    """C5: uncertain inputs add `A diag(input_var) Aᵀ` to S."""
    V = np.diag(var)
    S = B @ V @ B.T + np.diag(tol_var) + A @ np.diag(input_var) @ A.T
    K = V @ B.T @ np.linalg.inv(S)
    return mean + K @ (target - B @ mean), V - K @ S @ K.T


def conditioned_by_precision(mean, var, B, target, tol_var):
    """Bayes' rule in precision form, for r > 0: `Σ_C⁻¹ = diag(1/v) + Bᵀ R⁻¹ B`."""
    precision = np.diag(1.0 / var) + B.T @ np.diag(1.0 / tol_var) @ B
    cov = np.linalg.inv(precision)
    return cov @ (mean / var + B.T @ (target / tol_var)), cov


def projected(mean, B, target):
    """The point nearest to `mean` with `B y = t`, from the optimality (KKT) conditions of that problem."""
    m, n = B.shape
    kkt = np.block([[np.eye(n), B.T], [B, np.zeros((m, m))]])
    return np.linalg.solve(kkt, np.concatenate([mean, target]))[:n]


def conditioned_50_digits(mean, var, B, target, tol_var):
    """C1-C4 in 50-digit arithmetic: `(μ_C, v_C)`."""
    with mpmath.workdps(50):
        mean_c, cov_c = _conditioned_mp(mean, var, B, target, tol_var)
        return np.array([float(x) for x in mean_c]), np.array([float(cov_c[j, j]) for j in range(len(var))])


def _conditioned_mp(mean, var, B, target, tol_var):
    B, V, R = mpmath.matrix(B.tolist()), mpmath.diag(list(var)), mpmath.diag(list(tol_var))
    mean, target = mpmath.matrix(list(mean)), mpmath.matrix(list(target))
    S = B * V * B.T + R
    K = V * B.T * mpmath.inverse(S)
    return mean + K * (target - B * mean), V - K * S * K.T


def condition_number(var, B, tol_var):
    """Condition number of a square root of S whose columns have unit length, `S = D^½ Mᵀ M D^½`.

    Columns are scaled because units must not matter. It bounds how much a rounding of the data can move `v_C / v`;
    an algorithm that forms S moves it by up to the square of this number.
    """
    M = np.vstack([np.sqrt(var)[:, None] * B.T, np.diag(np.sqrt(tol_var))])
    singular = np.linalg.svd(M / np.linalg.norm(M, axis=0), compute_uv=False)
    return singular[0] / singular[-1]


# --- Likelihoods (L1-L3) ----------------------------------------------------------------------------------------------


def marginal_log_prob(mean, var, y, sensor_var):
    """L1, output by output; missing outputs are left out."""
    return sum(
        scipy.stats.norm.logpdf(y[j], mean[j], math.sqrt(var[j] + sensor_var[j]))
        for j in range(len(y))
        if not math.isnan(y[j])
    )


def joint_log_prob(mean, var, B, target, tol_var, y, sensor_var):
    """L2 as what it stands for, `N(y; μ_C, Σ_C + diag(w))`, with missing outputs dropped by hand.

    Where that covariance is singular (`r = 0` and `w = 0`) the density is the one on its range, −∞ off it.
    """
    mean_c, cov_c = conditioned(mean, var, B, target, tol_var)
    seen = [j for j in range(len(y)) if not math.isnan(y[j])]
    if not seen:
        return 0.0
    cov = (cov_c + np.diag(sensor_var))[np.ix_(seen, seen)]
    return scipy.stats.multivariate_normal(mean_c[seen], cov, allow_singular=True).logpdf(y[seen])


def joint_log_prob_50_digits(mean, var, B, target, tol_var, y, sensor_var):
    """The same in 50-digit arithmetic, for `w > 0`."""
    with mpmath.workdps(50):
        return float(joint_log_prob_mp(mean, var, B, target, tol_var, y, sensor_var))


def joint_log_prob_mp(mean, var, B, target, tol_var, y, sensor_var):
    """The same in mpmath's working precision, as one of its numbers."""
    seen = [j for j in range(len(y)) if not math.isnan(y[j])]
    if not seen:
        return mpmath.mpf(0)
    mean_c, cov_c = _conditioned_mp(mean, var, B, target, tol_var)
    cov = mpmath.matrix([[cov_c[i, j] + (sensor_var[i] if i == j else 0) for j in seen] for i in seen])
    error = mpmath.matrix([mpmath.mpf(y[j]) - mean_c[j] for j in seen])
    quadratic = (error.T * mpmath.inverse(cov) * error)[0]
    return -(quadratic + mpmath.log(mpmath.det(cov)) + len(seen) * mpmath.log(2 * mpmath.pi)) / 2


def subspace_log_prob(mean, var, B, target, tol_var, y):
    """L3: density on `B_e y = t_e` (rows e with r = 0) by a change of variables, `y = y_p + N u`, `Nᵀ N = 1`.

    The columns of N are an orthonormal basis of the null space of `B_e`, so that volumes of u are volumes on the
    subspace.
    """
    mean_c, cov_c = conditioned(mean, var, B, target, tol_var)
    N = scipy.linalg.null_space(B[tol_var == 0])
    return scipy.stats.multivariate_normal(N.T @ mean_c, N.T @ cov_c @ N).logpdf(N.T @ y) if N.size else 0.0


# --- Blocks -----------------------------------------------------------------------------------------------------------


def connected_blocks(B):
    """Sets of balances that share an output, directly or through others, by merging until nothing changes."""
    blocks = [{k} for k in range(len(B))]
    touches = [set(np.flatnonzero(row)) for row in B]
    while True:
        for first in blocks:
            for second in blocks:
                outputs = [set().union(*(touches[k] for k in block)) for block in (first, second)]
                if first is not second and outputs[0] & outputs[1]:
                    blocks = [block for block in blocks if block not in (first, second)] + [first | second]
                    break
            else:
                continue
            break
        else:
            return {frozenset(block) for block in blocks}


# --- Network ----------------------------------------------------------------------------------------------------------

ACTIVATIONS = {
    "silu": lambda z: z / (1.0 + math.exp(-z)),
    "tanh": math.tanh,
    "relu": lambda z: max(z, 0.0),
    "gelu": lambda z: z * scipy.stats.norm.cdf(z),
}


def network(weights, sizes, activation, x):
    """Means and variances `(n_draws, n, n_y)`, one draw, one row and one unit at a time.

    A flat vector holds, layer by layer, the weights from unit to unit (first index: from), then the biases.
    """
    return network_with_sensors(weights, sizes, activation, x, n_heads=2)[:2]


def network_with_sensors(weights, sizes, activation, x, n_heads=3):
    """The same, and the factors on sensor variances if there is a head for them."""
    outputs = np.array([[_one_row(flat, sizes, activation, row) for row in x] for flat in weights])
    mean, raw, *rest = np.split(outputs, n_heads, axis=-1)
    factors = [np.exp(4.0 * np.tanh(part / 4.0)) for part in rest]  # V4
    return mean, np.exp(20.0 * np.tanh(raw / 20.0)), *factors  # V3


def _one_row(flat, sizes, activation, h):
    start = 0
    for layer in range(len(sizes) - 1):
        fan_in, fan_out = sizes[layer], sizes[layer + 1]
        units = []
        for to in range(fan_out):
            z = flat[start + fan_in * fan_out + to]
            for source in range(fan_in):
                z += h[source] * flat[start + source * fan_out + to]
            units.append(z if layer == len(sizes) - 2 else ACTIVATIONS[activation](z))
        h, start = units, start + (fan_in + 1) * fan_out
    return h


def root_quantile(mean, std, probability):
    """Quantile of one mixture by root finding on its distribution function."""

    def excess(x):
        return scipy.stats.norm.cdf(x, mean, std).mean() - probability

    width = 40.0 * np.max(std)
    return brentq(excess, mean.min() - width, mean.max() + width, xtol=1e-14, rtol=1e-14, maxiter=500)
