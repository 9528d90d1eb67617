"""Reference posteriors of small constrained networks whose variances are frozen, by NUTS.

`reference_laplace.json` has problems that `python -m benchmarks.linearised --fit` wrote: rows in standardized units, a
network at weights θ*, the precisions Δ of its prior, tolerances r and sensor variances w. This script adds moments of
the network's means, before and after conditioning, under the exact posterior of the weights that posterior="laplace"
linearises. It shares no code with the library and is not part of the test run. To add them again, which takes some
fifteen minutes on one core (numpyro brings jax; `--only NAME` takes one problem; 300 and 400 instead of 600 and 1,000
steps of each chain are enough for the last three)::

    pip install numpyro
    python tests/reference_laplace.py
    python -m benchmarks.linearised           # the table of docs/defaults.md

Model: all variances v(x) are those of the network at θ*, whose variance head does not vary, and::

    θ ~ N(0, Δ⁻¹),  y | θ ~ N(μ(x; θ), diag(v(x))) conditioned on B y + ε = t,  ε ~ N(0, diag(r)),
    y_obs = y + e,  e ~ N(0, diag(w))

There is one precision for the weights of each input, one for the biases of the first layer, and then one for weights
and one for biases of each further layer, in this order. With P = 1 − K B the conditioned Gaussian is
N(P μ + K t, Σ_C) (C1 to C4 in docs/math.md), so that the measured outputs o of a row have the density
N(y_o; (P μ + K t)_o, (Σ_C)_oo + diag(w_o)), which is (L2) and is written here with dense matrices.

That is quadratic in μ, with the same matrices for all θ. Given the hidden layers the last one thus has an exact normal
posterior: NUTS draws the hidden layers from their marginal posterior, and each draw gets a last layer from its
conditional. One chain starts at θ*, the others at draws from the prior. Units of a network may swap and change sign, so
convergence is judged on means at the points alone.
"""

import argparse
import json
import time
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from numpyro.diagnostics import effective_sample_size, split_gelman_rubin
from numpyro.infer import MCMC, NUTS

jax.config.update("jax_enable_x64", True)

FILE = Path(__file__).with_suffix(".json")
LOG_VAR_BOUND = 20.0
ACTIVATIONS = {"tanh": jnp.tanh, "silu": lambda a: a / (1 + jnp.exp(-a))}


class Network:
    """A network of a problem: hidden layers that NUTS draws, and a last layer that is integrated out.

    Hidden weights are in units of their prior standard deviations.
    """

    def __init__(self, problem):
        self.sizes, self.activation = problem["sizes"], ACTIVATIONS[problem["activation"]]
        self.n_y = self.sizes[-1] // 2
        self.layers = self.split(np.array(problem["weights"]))
        precisions = list(problem["precisions"])
        n_x = self.sizes[0]
        self.spreads = [(np.array(precisions[:n_x])[:, None] ** -0.5, precisions[n_x] ** -0.5)]
        rest = precisions[n_x + 1 :]
        self.spreads += [(rest[i] ** -0.5, rest[i + 1] ** -0.5) for i in range(0, len(rest), 2)]
        shapes = list(zip(self.sizes[:-2], self.sizes[1:-1], strict=True))
        self.n_hidden_weights = sum(a * b + b for a, b in shapes)
        last_weights, last_biases = self.spreads[-1]
        spread = np.full((self.sizes[-2] + 1, self.n_y), last_weights)
        spread[-1] = last_biases
        self.last_precision = jnp.asarray(spread.ravel() ** -2)

    def split(self, flat):
        """Weights and biases of each layer in a flat vector that has some of the first layers."""
        layers, start = [], 0
        for a, b in zip(self.sizes[:-1], self.sizes[1:], strict=True):
            if start < len(flat):
                stop = start + a * b
                layers.append((flat[start:stop].reshape(a, b), flat[stop : stop + b]))
                start = stop + b
        return layers

    def units(self, xi, x):
        """Units of the last hidden layer and a one, for hidden weights ξ in units of their prior."""
        h = x
        for (W, bias), (weight, of_bias) in zip(self.split(xi), self.spreads[:-1], strict=True):
            h = self.activation(h @ (W * weight) + bias * of_bias)
        return jnp.concatenate([h, jnp.ones_like(x[:, :1])], axis=1)

    def at_point(self, x):
        """Means and variances at θ*."""
        h = x
        for W, bias in self.layers[:-1]:
            h = self.activation(h @ W + bias)
        W, bias = self.layers[-1]
        out = h @ W + bias
        return out[:, : self.n_y], jnp.exp(LOG_VAR_BOUND * jnp.tanh(out[:, self.n_y :] / LOG_VAR_BOUND))

    @property
    def hidden_point(self):
        """Hidden weights of θ* in units of their prior."""
        parts = [
            np.concatenate([(W / weight).ravel(), bias / of_bias])
            for (W, bias), (weight, of_bias) in zip(self.layers[:-1], self.spreads[:-1], strict=True)
        ]
        return np.concatenate(parts)


def conditioning(var, B, tol_var):
    """P = 1 − K B, K and Σ_C of one row."""
    S = B @ np.diag(var) @ B.T + np.diag(tol_var)  # C1
    K = np.diag(var) @ B.T @ np.linalg.inv(S)  # C2
    return np.eye(len(var)) - K @ B, K, np.diag(var) - K @ S @ K.T  # C3, C4


def quadratic(problem, var, y):
    """M and η of each row, with log p(y_obs) = const + ηᵀ μ − ½ μᵀ M μ."""
    B, target, tol_var, sensor_var = (np.array(problem[name]) for name in ("B", "target", "tol_var", "sensor_var"))
    M, eta = [], []
    for v, values in zip(var, y, strict=True):
        P, K, cov = conditioning(v, B, tol_var)
        o = ~np.isnan(values)
        inverse = np.linalg.inv(cov[np.ix_(o, o)] + np.diag(sensor_var[o]))  # L2
        M.append(P[o].T @ inverse @ P[o])
        eta.append(P[o].T @ inverse @ (values[o] - (K @ target)[o]))
    return np.array(M), np.array(eta)


def last_layer(network, xi, x, M, eta):
    """The last layer β integrated out: the log density of the data up to a constant, and p(β | data, ξ)."""
    phi = network.units(xi, x)
    size = phi.shape[1] * network.n_y
    precision = jnp.einsum("ni,nkl,nj->ikjl", phi, M, phi, optimize="optimal").reshape(size, size)
    chol = jnp.linalg.cholesky(precision + jnp.diag(network.last_precision))
    whitened = solve_triangular(chol, (phi.T @ eta).ravel(), lower=True)
    return 0.5 * whitened @ whitened - jnp.log(jnp.diag(chol)).sum(), chol, whitened


def check_last_layer(network, x, M, eta, seed=2):
    """Bayes' rule at one point: likelihood × prior / posterior of a last layer does not depend on the layer."""
    rng = np.random.default_rng(seed)
    xi = network.hidden_point + 0.1 * rng.standard_normal(network.n_hidden_weights)
    log_marginal, chol, whitened = last_layer(network, xi, x, M, eta)
    phi = network.units(xi, x)
    for epsilon in rng.standard_normal((2, len(whitened))):
        beta = solve_triangular(chol, whitened + epsilon, lower=True, trans="T")
        mean = phi @ beta.reshape(-1, network.n_y)
        log_joint = (eta * mean).sum() - 0.5 * jnp.einsum("ni,nij,nj", mean, M, mean)
        log_joint = log_joint - 0.5 * (network.last_precision * beta**2).sum()
        log_posterior = -0.5 * epsilon @ epsilon + jnp.log(jnp.diag(chol)).sum()
        difference = abs(float(log_joint - log_posterior - log_marginal))
        if difference > 1e-6:
            raise RuntimeError(f"The analytic marginal must obey Bayes' rule to 1e-6, but differs by {difference:.1e}.")


def sample(network, x, M, eta, settings):
    """Draws of the hidden weights, shape (chains, draws, P), and the counts that say whether NUTS went well."""

    def potential(xi):
        return 0.5 * xi @ xi - last_layer(network, xi, x, M, eta)[0]

    key, key_start = jax.random.split(jax.random.PRNGKey(settings["seed"]))
    starts = jax.random.normal(key_start, (settings["n_chains"], network.n_hidden_weights))
    starts = starts.at[0].set(network.hidden_point)
    kernel = NUTS(potential_fn=potential, target_accept_prob=settings["target_accept"])
    mcmc = MCMC(
        kernel,
        num_warmup=settings["n_warmup"],
        num_samples=settings["n_draws"],
        num_chains=settings["n_chains"],
        chain_method="sequential",
        progress_bar=False,
    )
    start = time.perf_counter()
    mcmc.run(key, init_params=starts, extra_fields=("diverging", "num_steps", "potential_energy"))
    extra = mcmc.get_extra_fields(group_by_chain=True)
    return mcmc.get_samples(group_by_chain=True), {
        "seconds": round(time.perf_counter() - start),
        "divergences": int(extra["diverging"].sum()),
        "mean_leapfrog_steps": four(extra["num_steps"].mean()),
        "energy_per_chain": four(extra["potential_energy"].mean(1)),
        "energy_at_point": four(potential(network.hidden_point)),
    }


def means(network, xi, x, M, eta, points, key):
    """Means at the points for each draw of the hidden weights, with a last layer from its conditional."""

    def one(state):
        xi, key = state
        _, chol, whitened = last_layer(network, xi, x, M, eta)
        beta = solve_triangular(chol, whitened + jax.random.normal(key, whitened.shape), lower=True, trans="T")
        return network.units(xi, points) @ beta.reshape(-1, network.n_y)

    flat = xi.reshape(-1, xi.shape[-1])
    result = jax.jit(partial(jax.lax.map, one))((flat, jax.random.split(key, len(flat))))
    return np.asarray(result).reshape(*xi.shape[:2], len(points), network.n_y)


def conditioned(problem, mean, var):
    """Means after conditioning (C3) at the points."""
    B, target, tol_var = (np.array(problem[name]) for name in ("B", "target", "tol_var"))
    parts = [conditioning(v, B, tol_var) for v in var]
    P, Kt = np.array([P for P, _, _ in parts]), np.array([K @ target for _, K, _ in parts])
    return np.einsum("pij,cdpj->cdpi", P, mean) + Kt


def summary(values):
    """Moments, and convergence of the functions that they rest on."""
    mean, std = values.mean((0, 1)), values.std((0, 1))
    squares = (values - mean) ** 2
    ess = [effective_sample_size(part) for part in (values, squares)]
    rhat = [split_gelman_rubin(part) for part in (values, squares)]
    error = squares.std((0, 1)) / np.sqrt(ess[1]) / (2 * std**2)
    return {
        "mean": four(mean),
        "std": four(std),
        "largest_rhat": four(np.max(rhat)),
        "least_ess": round(float(np.min(ess))),
        "largest_relative_error_of_std": four(error.max()),
        "std_per_chain_over_all": four(np.exp(np.log(values.std(1) / std).mean((-1, -2)))),
    }


def four(values):
    """Nested lists of floats with four significant digits."""
    values = np.asarray(values)
    return [four(value) for value in values] if values.ndim else float(f"{values:.4g}")


def reference(problem, settings):
    """Moments of a problem."""
    network = Network(problem)
    x, points = (np.array(problem[name], dtype=float) for name in ("x", "points"))
    M, eta = quadratic(problem, np.asarray(network.at_point(x)[1]), np.array(problem["y"], dtype=float))
    check_last_layer(network, x, M, eta)
    xi, counts = sample(network, x, M, eta, settings)
    before = means(network, xi, x, M, eta, points, jax.random.PRNGKey(settings["seed"] + 1))
    after = conditioned(problem, before, np.asarray(network.at_point(points)[1]))
    return {"before": summary(before), "after": summary(after), "sampler": settings | counts}


def main():
    parser = argparse.ArgumentParser(description="NUTS on networks whose variances are frozen.")
    parser.add_argument("--only", help="name of a problem; all by default")
    parser.add_argument("--n-chains", type=int, default=4)
    parser.add_argument("--n-warmup", type=int, default=600)
    parser.add_argument("--n-draws", type=int, default=1000)
    parser.add_argument("--target-accept", type=float, default=0.9)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=FILE)
    settings = vars(parser.parse_args())
    only, output = settings.pop("only"), settings.pop("output")
    problems = json.loads(FILE.read_text())
    for name, problem in problems.items():
        if only in (None, name):
            problem["nuts"] = reference(problem, settings)
            parts = {
                part: {k: v for k, v in problem["nuts"][part].items() if k not in ("mean", "std")}
                for part in ("before", "after")
            }
            print(name, json.dumps(parts), json.dumps(problem["nuts"]["sampler"]), flush=True)
            output.write_text(json.dumps(problems) + "\n")


if __name__ == "__main__":
    main()
