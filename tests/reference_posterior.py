"""Reference posterior of a small constrained Bayesian neural network, by long NUTS chains.

The moments written to `reference_posterior.json` are an oracle for the approximate posteriors of the library. This
script shares no code with the library and is not part of the test run. To make the file again (numpyro brings jax)::

    pip install numpyro
    python tests/reference_posterior.py

Model, in standardized units::

    θ ~ N(0, I),  h = tanh(x W₁ + b₁),  (μ, raw) = h W₂ + b₂,  log v = 20 tanh(raw / 20)
    y | θ ~ N(μ, diag(v)) conditioned on B y = 0,  y_obs = y + e,  e ~ N(0, diag(w))

with θ = (W₁, b₁, W₂, b₂) flattened row by row, weights of shape (in, out), one exact balance y₃ = y₁ + y₂ (r = 0) and
known w. The labels C1 to C4 and L2 are those of docs/math.md. Weights of a network have no unique posterior mode (units
may swap and change sign), so convergence is judged on functions of x only.

Given the other weights, the mean head (μ's columns of W₂ and b₂) has an exact normal posterior. So NUTS draws the other
43 weights from their marginal posterior, and each draw then gets a mean head from its conditional: draws from the same
joint posterior. NUTS on all 70 weights agrees but gives a tenth of the effective draws of log v per second: with one
exact balance, the output with the largest v takes up the residual, its own μ is then free, and the shares v / S hardly
move.

Standard errors of the moments are Monte-Carlo standard errors, sd / √ESS, with the effective sample size taken over
all chains. Two seeds differed by 0.7 to 1.3 of them (root mean square) and by 2.8 at most, so let a test allow five.
Statistics are rounded to six significant digits; the data are rounded to six decimals *before* sampling, so that the
stored data are the data used. The run takes about four minutes on one core.
"""

import argparse
import json
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import jaxlib
import numpy as np
import numpyro
import scipy
from jax.scipy.linalg import solve_triangular
from jax.scipy.stats import norm
from numpyro.diagnostics import effective_sample_size, split_gelman_rubin
from numpyro.distributions import Normal
from numpyro.infer import MCMC, NUTS, init_to_sample

jax.config.update("jax_enable_x64", True)

N_X, N_HIDDEN, N_Y = 1, 8, 3
SHAPES = ((N_X, N_HIDDEN), (N_HIDDEN,), (N_HIDDEN, 2 * N_Y), (2 * N_Y,))
N_WEIGHTS = sum(int(np.prod(shape)) for shape in SHAPES)
B = np.array([[-1.0, -1.0, 1.0]])
SENSOR_STD = 0.15
SENSOR_VAR = np.full(N_Y, SENSOR_STD**2)
X_TEST = np.linspace(-1.5, 1.5, 13)[:, None]
OUTPUT = Path(__file__).with_suffix(".json")


def make_data(n_grid=60, gap=(0.2, 0.7), seed=0):
    """An even grid on [-1.5, 1.5] without the rows inside the gap, and noisy measurements of three outputs."""
    x = np.linspace(-1.5, 1.5, n_grid)
    x = x[(x <= gap[0]) | (x >= gap[1])]
    y1, y2 = 0.8 * np.sin(2 * x), 0.5 * x
    truth = np.stack([y1, y2, y1 + y2], axis=1)
    y_obs = truth + SENSOR_STD * np.random.default_rng(seed).standard_normal(truth.shape)
    return np.round(x[:, None], 6), np.round(y_obs, 6)


def network(theta, x):
    """Mean μ and log variance log v before conditioning, each of shape (rows, n_y)."""
    ends = np.cumsum([int(np.prod(shape)) for shape in SHAPES])[:-1]
    W1, b1, W2, b2 = (part.reshape(shape) for part, shape in zip(jnp.split(theta, ends), SHAPES, strict=True))
    out = jnp.tanh(x @ W1 + b1) @ W2 + b2
    return out[..., :N_Y], 20 * jnp.tanh(out[..., N_Y:] / 20)


def condition(mean, var):
    """Mean and variance given B y = 0 exactly; with a single balance every inverse is a division."""
    S = (B[0] ** 2 * var).sum(-1, keepdims=True)  # C1
    K = var * B[0] / S  # C2
    mean_c = mean - K * (B[0] * mean).sum(-1, keepdims=True)  # C3
    return mean_c, var - K**2 * S  # C4


def log_likelihood(theta, x, y_obs):
    """L2 of each row, for sensor variance w, target t = 0 and tolerance r = 0."""
    mean, log_var = network(theta, x)
    var = jnp.exp(log_var)
    gain = var / (var + SENSOR_VAR)
    updated = mean + gain * (y_obs - mean)
    S = (B[0] ** 2 * var).sum(-1)  # C1
    S_updated = (B[0] ** 2 * gain * SENSOR_VAR).sum(-1)
    measured = norm.logpdf(y_obs, mean, jnp.sqrt(var + SENSOR_VAR)).sum(-1)
    balance_updated = norm.logpdf(0.0, updated @ B[0], jnp.sqrt(S_updated))
    return measured + balance_updated - norm.logpdf(0.0, mean @ B[0], jnp.sqrt(S))  # L2


def dense_log_likelihood(theta, x, y_obs):
    """The same number, slowly: one n_y × n_y normal per row, N(y_obs; μ_C, Σ_C + diag(w)), by scipy."""
    mean, log_var = (np.asarray(part) for part in network(theta, x))
    rows = []
    for mean_i, var_i, y_i in zip(mean, np.exp(log_var), y_obs, strict=True):
        S = B @ np.diag(var_i) @ B.T  # C1
        K = np.diag(var_i) @ B.T @ np.linalg.inv(S)  # C2
        mean_c = mean_i - K @ B @ mean_i  # C3
        cov_c = np.diag(var_i) - K @ S @ K.T  # C4
        rows.append(scipy.stats.multivariate_normal.logpdf(y_i, mean_c, cov_c + np.diag(SENSOR_VAR)))
    return np.array(rows)


def check_likelihood(x, y_obs, seed=1):
    """Compare L2 with the dense normal at a draw from the prior; the point is stored for tests to use."""
    theta = np.round(np.random.default_rng(seed).standard_normal(N_WEIGHTS), 6)
    fast, dense = np.asarray(log_likelihood(theta, x, y_obs)), dense_log_likelihood(theta, x, y_obs)
    difference = float(np.abs(fast - dense).max())
    print(f"L2 against the dense normal: {fast.sum():.10f} and {dense.sum():.10f}, largest row gap {difference:.1e}")
    if difference > 1e-9:
        raise RuntimeError(f"L2 must equal the dense normal in every row to 1e-9, but differs by {difference:.1e}.")
    return {
        "theta": theta.tolist(),
        "log_likelihood": round(float(dense.sum()), 9),
        "largest_row_difference_l2_dense": six(difference),
    }


def assemble(hidden, mean_head, var_head):
    """The flat θ from (W₁, b₁) and the two heads, each of shape (N_HIDDEN + 1, n_y) with the bias in its last row."""
    heads = jnp.concatenate([mean_head, var_head], axis=1)
    return jnp.concatenate([hidden, heads.ravel()])


def mean_head_posterior(hidden, var_head, x, y_obs):
    """The mean head β integrated out: log p(y_obs | the other weights), and the normal p(β | y_obs, the others).

    μ is linear in β and L2 is quadratic in μ. With a the one row of B, c = a⊙(1 − g), and S⁺ the variance in the middle
    term of L2, collecting powers of μ gives for each row log p = const + ηᵀμ − ½ μᵀ M μ, where::

        M = diag(1 / (v + w)) + c cᵀ / S⁺ − a aᵀ / S,    η = y_obs / (v + w) − c aᵀ(g⊙y_obs) / S⁺
    """
    W1, b1 = jnp.split(hidden, [N_X * N_HIDDEN])
    features = jnp.tanh(x @ W1.reshape(N_X, N_HIDDEN) + b1)
    features = jnp.concatenate([features, jnp.ones_like(x[:, :1])], axis=1)
    var = jnp.exp(20 * jnp.tanh(features @ var_head / 20))
    marginal_var, a = var + SENSOR_VAR, B[0]
    gain = var / marginal_var
    S, S_updated = var @ a**2, (gain * SENSOR_VAR) @ a**2
    c, observed = a * (1 - gain), (gain * y_obs) @ a
    M = jnp.eye(N_Y) / marginal_var[:, None] + c[:, :, None] * (c / S_updated[:, None])[:, None]
    M = M - jnp.outer(a, a) / S[:, None, None]
    eta = y_obs / marginal_var - c * (observed / S_updated)[:, None]
    const = jnp.log(S / S_updated) - observed**2 / S_updated - N_Y * jnp.log(2 * jnp.pi)
    const = const - (jnp.log(marginal_var) + y_obs**2 / marginal_var).sum(-1)
    outer = features[:, :, None] * features[:, None]
    size = (N_HIDDEN + 1) * N_Y
    precision = jnp.einsum("nik,njl->ijkl", outer, M).reshape(size, size) + jnp.eye(size)
    chol = jnp.linalg.cholesky(precision)
    whitened = solve_triangular(chol, (features.T @ eta).ravel(), lower=True)
    log_marginal = 0.5 * const.sum() + 0.5 * whitened @ whitened - jnp.log(jnp.diag(chol)).sum()
    return log_marginal, chol, whitened


def draw_mean_head(chol, whitened, normal):
    """A draw of β = Λ⁻¹η + chol⁻ᵀε, given standard normal ε; Λ = chol cholᵀ and whitened = chol⁻¹η."""
    return solve_triangular(chol, whitened + normal, lower=True, trans="T").reshape(N_HIDDEN + 1, N_Y)


def check_mean_head(x, y_obs, seed=2):
    """Bayes' rule at one point: p(y | β) p(β) / p(β | y), by L2, must be the analytic p(y)."""
    rng = np.random.default_rng(seed)
    hidden = rng.standard_normal((N_X + 1) * N_HIDDEN)
    var_head, normal = rng.standard_normal((2, N_HIDDEN + 1, N_Y))
    log_marginal, chol, whitened = mean_head_posterior(hidden, var_head, x, y_obs)
    mean_head = draw_mean_head(chol, whitened, normal.ravel())
    log_joint = log_likelihood(assemble(hidden, mean_head, var_head), x, y_obs).sum() + norm.logpdf(mean_head).sum()
    log_posterior = norm.logpdf(normal).sum() + jnp.log(jnp.diag(chol)).sum()
    difference = abs(float(log_joint - log_posterior - log_marginal))
    print(f"Mean head integrated out: {log_marginal:.10f}, gap to Bayes' rule {difference:.1e}")
    if difference > 1e-8:
        raise RuntimeError(f"The analytic marginal must obey Bayes' rule to 1e-8, but differs by {difference:.1e}.")


def model(x, y_obs):
    """The posterior of all weights but the mean head's, which is integrated out exactly."""
    hidden = numpyro.sample("hidden", Normal(0.0, 1.0).expand([(N_X + 1) * N_HIDDEN]).to_event(1))
    var_head = numpyro.sample("var_head", Normal(0.0, 1.0).expand([N_HIDDEN + 1, N_Y]).to_event(2))
    numpyro.factor("log_marginal", mean_head_posterior(hidden, var_head, x, y_obs)[0])


@jax.jit
def complete(key, draws, x, y_obs):
    """All weights θ, shape (chains, draws, P): to each draw of the others a mean head from its exact conditional."""

    def one(state):
        key, hidden, var_head = state
        _, chol, whitened = mean_head_posterior(hidden, var_head, x, y_obs)
        mean_head = draw_mean_head(chol, whitened, jax.random.normal(key, whitened.shape))
        return assemble(hidden, mean_head, var_head)

    n_chains, n_draws = draws["hidden"].shape[:2]
    flat = [draws[name].reshape(n_chains * n_draws, *draws[name].shape[2:]) for name in ("hidden", "var_head")]
    theta = jax.lax.map(one, (jax.random.split(key, n_chains * n_draws), *flat))
    return theta.reshape(n_chains, n_draws, N_WEIGHTS)


def sample(x, y_obs, settings):
    """Draws of θ, shape (chains, draws, P), with the time spent and the counts that say whether NUTS went well."""
    kernel = NUTS(
        model,
        target_accept_prob=settings["target_accept"],
        max_tree_depth=settings["max_tree_depth"],
        init_strategy=init_to_sample,
    )
    mcmc = MCMC(
        kernel,
        num_warmup=settings["n_warmup"],
        num_samples=settings["n_draws"],
        num_chains=settings["n_chains"],
        chain_method="sequential",
        progress_bar=False,
    )
    key, key_mean_head = jax.random.split(jax.random.PRNGKey(settings["seed"]))
    start = time.perf_counter()
    mcmc.run(key, x, y_obs, extra_fields=("diverging", "num_steps", "accept_prob"))
    theta = complete(key_mean_head, mcmc.get_samples(group_by_chain=True), x, y_obs).block_until_ready()
    extra = mcmc.get_extra_fields(group_by_chain=True)
    counts = {
        "sampling_seconds": round(time.perf_counter() - start),
        "divergences": int(extra["diverging"].sum()),
        "divergences_per_chain": extra["diverging"].sum(1).tolist(),
        "mean_accept_prob": six(extra["accept_prob"].mean()),
        "mean_leapfrog_steps": six(extra["num_steps"].mean()),
        "share_at_max_tree_depth": six((extra["num_steps"] >= 2 ** settings["max_tree_depth"] - 1).mean()),
    }
    return theta, counts


@jax.jit
def functions(theta, x, y_obs):
    """Of each draw: μ_C, v_C and log v at the test inputs, shape (chains, draws, 13, n_y), and the log-likelihood."""

    def one(theta):
        mean, log_var = network(theta, X_TEST)
        mean_c, var_c = condition(mean, jnp.exp(log_var))
        return mean_c, var_c, log_var, log_likelihood(theta, x, y_obs).sum()

    flat = jax.lax.map(one, theta.reshape(-1, N_WEIGHTS), batch_size=1000)
    return tuple(part.reshape(*theta.shape[:2], *part.shape[1:]) for part in flat)


def mean_and_error(values):
    """Mean over chains and draws, and its Monte-Carlo standard error."""
    return values.mean((0, 1)), values.std((0, 1)) / np.sqrt(effective_sample_size(values))


def std_and_error(squares):
    """Root of a mean of squares, and its standard error by the delta method."""
    mean, error = mean_and_error(squares)
    return np.sqrt(mean), error / (2 * np.sqrt(mean))


def summarize(mean_c, var_c, log_var, log_lik):
    """Moments with standard errors, and R-hat and ESS of every function they rest on."""
    mean, mean_error = mean_and_error(mean_c)
    sq_dev = (mean_c - mean) ** 2
    pairs = {
        "mean": (mean, mean_error),
        "epistemic_std": std_and_error(sq_dev),
        "mean_var": mean_and_error(var_c),
        "total_std": std_and_error(var_c + sq_dev),
        "measured_std": std_and_error(var_c + sq_dev + SENSOR_VAR),
        "log_var_mean": mean_and_error(log_var),
        "log_var_std": std_and_error((log_var - log_var.mean((0, 1))) ** 2),
        "log_likelihood_mean": mean_and_error(log_lik),
    }
    moments = {name: six(value) for name, (value, _) in pairs.items()}
    errors = {name: six(error) for name, (_, error) in pairs.items()}
    watched = {"mean": mean_c, "mean_sq_dev": sq_dev, "var": var_c, "log_var": log_var, "log_likelihood": log_lik}
    diagnostics = {
        "max_split_rhat": {name: six(np.max(split_gelman_rubin(values))) for name, values in watched.items()},
        "min_ess": {name: round(float(np.min(effective_sample_size(values)))) for name, values in watched.items()},
        "log_likelihood_per_chain": six(log_lik.mean(1)),
        "largest_balance_residual_of_any_draw": six(np.abs(mean_c @ B[0]).max()),
    }
    return moments, errors, diagnostics


def six(values):
    """Nested lists of floats with six significant digits."""
    values = np.asarray(values)
    return [six(value) for value in values] if values.ndim else float(f"{values:.6g}")


def parse_settings():
    parser = argparse.ArgumentParser(description="Long NUTS chains for the reference posterior.")
    parser.add_argument("--n-chains", type=int, default=6)
    parser.add_argument("--n-warmup", type=int, default=1000)
    parser.add_argument("--n-draws", type=int, default=3000)
    parser.add_argument("--target-accept", type=float, default=0.95)
    parser.add_argument("--max-tree-depth", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=OUTPUT)
    return vars(parser.parse_args())


def main():
    settings = parse_settings()
    output = settings.pop("output")
    x, y_obs = make_data()
    check = check_likelihood(x, y_obs)
    check_mean_head(x, y_obs)
    theta, counts = sample(x, y_obs, settings)
    moments, errors, diagnostics = summarize(*(np.asarray(part) for part in functions(theta, x, y_obs)))
    result = {
        "settings": settings
        | {"sampler": "NUTS, diagonal mass matrix, prior starts; mean head integrated out, then drawn"},
        "versions": {
            "numpyro": numpyro.__version__,
            "jax": jax.__version__,
            "jaxlib": jaxlib.__version__,
            "numpy": np.__version__,
        },
        "model": {
            "layers": [N_X, N_HIDDEN, 2 * N_Y],
            "n_weights": N_WEIGHTS,
            "B": B.tolist(),
            "target": 0.0,
            "tol_var": 0.0,
            "sensor_var": SENSOR_VAR.tolist(),
            "prior": "N(0, 1) on every weight and bias",
        },
        "data": {"n_rows": len(x), "x": x.tolist(), "y_obs": y_obs.tolist()},
        "likelihood_check": check,
        "diagnostics": counts | diagnostics,
        "x_test": X_TEST.tolist(),
        "moments": moments,
        "standard_errors": errors,
    }
    output.write_text(json.dumps(result) + "\n")
    print(json.dumps(result["diagnostics"], indent=2))


if __name__ == "__main__":
    main()
