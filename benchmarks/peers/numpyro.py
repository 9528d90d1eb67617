"""NumPyro: the same constrained model with a mean-field guide, compiled by JAX; single precision, as is its default.

Its guide draws the weights once per step for all rows of a batch, which costs half the matrix products of our local
reparameterisation, and gradients that are noisier.
"""

import os

# Before JAX is imported: one thread, as for everyone else.
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_cpu_multi_thread_eigen=false"
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import itertools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import torch
from numpyro import distributions as dist
from numpyro.infer import SVI, Predictive, TraceMeanField_ELBO, init_to_value
from numpyro.infer.autoguide import AutoNormal

from benchmarks.bayes import LOG_2PI, Draws, Task
from equipoise.network.mlp import LOG_VAR_BOUND

SCAN = 50  # steps per call of the compiled loop
jax.config.update("jax_enable_x64", False)  # the battery's simulator switches double precision on, where it is imported


def network(weights, x, sizes):
    """Mean and variance `(n, n_y)` of the rows for one draw of all weights."""
    h, start = x, 0
    for fan_in, fan_out in itertools.pairwise(sizes):
        end = start + fan_in * fan_out
        h = h @ weights[start:end].reshape(fan_in, fan_out) + weights[end : end + fan_out]
        start = end + fan_out
        h = jax.nn.silu(h) if start < len(weights) else h
    mean, raw = jnp.split(h, 2, axis=-1)
    return mean, jnp.exp(LOG_VAR_BOUND * jnp.tanh(raw / LOG_VAR_BOUND))


def marginal(B, mean, var, target, r, y):
    """`log p(y)` per row of the paper's likelihood, balances that share no output."""
    mean, var = conditioned(B, mean, var, target, r)
    return -0.5 * (jnp.square(y - mean) / var + jnp.log(var) + LOG_2PI).sum(-1)


def conditioned(B, mean, var, target, r):
    """Conditioned mean and variance; a division per balance, not a factorisation."""
    S = var @ jnp.square(B).T + r
    gain = ((target - mean @ B.T) / S) @ B
    return mean + var * gain, jnp.maximum(var - jnp.square(var) * ((1.0 / S) @ jnp.square(B)), 1e-7 * var)


def joint(B, mean, var, target, r, y, w):
    """`log p(y)` per row of the joint likelihood with sensor variances `w`, by Bayes' rule as in the library."""
    d, e, B2 = var + w, y - mean, jnp.square(B)
    before, after = var @ B2.T + r, (var * w / d) @ B2.T + r
    innovation = target - mean @ B.T
    left = innovation - (var * e / d) @ B.T
    quadratic = (jnp.square(e) / d).sum(-1) + (jnp.square(left) / after - jnp.square(innovation) / before).sum(-1)
    logs = jnp.log(d).sum(-1) + jnp.log(after / before).sum(-1)
    return -0.5 * (quadratic + logs + y.shape[-1] * LOG_2PI)


class Constrained:
    """The model, its guide and its state, for the data of a task."""

    def __init__(self, task: Task, learning_rate: float | Callable = 1e-5):
        self.task = task
        self.B = _array(task.B)
        start = {"weights": _array(task.weights), "rho": jnp.full(len(task.B), task.prior[0])}
        start["omega"] = jnp.full(task.y.shape[-1], task.prior[0])
        guide = AutoNormal(self.model, init_loc_fn=init_to_value(values=start), init_scale=task.init_std)
        optimizer = numpyro.optim.Adam(learning_rate)
        self.svi, self.guide = SVI(self.model, guide, optimizer, TraceMeanField_ELBO()), guide

    def model(self, x, target, y):
        """Weights, tolerances and sensors from their priors; the likelihood of a batch stands for all rows."""
        task = self.task
        weights = numpyro.sample("weights", dist.Normal(jnp.zeros(len(task.weights)), 1.0).to_event(1))
        mean, var = network(weights, x, task.sizes)
        scale = task.n_rows / len(x)
        if task.likelihood == "none":
            loss = -0.5 * (jnp.square(y - mean) / var + jnp.log(var) + LOG_2PI).sum()
            return numpyro.factor("likelihood", scale * loss)
        prior_mean, prior_std = task.prior
        rho = numpyro.sample("rho", dist.Normal(prior_mean * jnp.ones(len(self.B)), prior_std).to_event(1))
        if task.likelihood == "marginal":
            return numpyro.factor("likelihood", scale * marginal(self.B, mean, var, target, jnp.exp(rho), y).sum())
        omega = numpyro.sample("omega", dist.Normal(prior_mean * jnp.ones(y.shape[-1]), prior_std).to_event(1))
        density = joint(self.B, mean, var, target, jnp.exp(rho), y, jnp.exp(omega))
        return numpyro.factor("likelihood", scale * density.sum())

    def init(self, seed: int = 0):
        batch = tuple(part[: self.task.batch] for part in self.rows())
        return self.svi.init(jax.random.PRNGKey(seed), *batch)

    def rows(self):
        """Inputs, targets and outputs of all rows."""
        return _array(self.task.x), _array(self.task.target), _array(self.task.y)


def step(task: Task) -> tuple[Callable[[], object], int]:
    """A compiled loop of steps on one batch, and how many they are."""
    peer = Constrained(task)
    state, batch = peer.init(), tuple(part[: task.batch] for part in peer.rows())

    @jax.jit
    def loop(state):
        return jax.lax.scan(lambda s, _: peer.svi.update(s, *batch), state, None, length=SCAN)[0]

    kept = [loop(state)]

    def call():
        kept[0] = jax.block_until_ready(loop(kept[0]))

    return call, SCAN


def log_prob(task: Task, weights: torch.Tensor, tol_var: torch.Tensor, sensor_var: torch.Tensor) -> np.ndarray:
    """`log p(y)` of the first rows at given weights, tolerances and sensors, to be checked."""
    peer = Constrained(task)
    x, target, y = (part[: task.batch] for part in peer.rows())
    mean, var = network(_array(weights), x, task.sizes)
    if task.likelihood == "marginal":
        return np.asarray(marginal(peer.B, mean, var, target, _array(tol_var), y))
    return np.asarray(joint(peer.B, mean, var, target, _array(tol_var), y, _array(sensor_var)))


def train(task: Task, epochs: int, peak: float, seed: int = 0) -> tuple[Callable[[], object], Callable[[], Draws]]:
    """Training with shuffled batches and a cosine schedule: what to time (it is compiled already), and its result.

    The whole run is one compiled loop over steps; the rows of a batch are gathered inside.
    """
    n, batch = len(task.x), task.batch
    steps = epochs * (n // batch)
    peer = Constrained(task, lambda i: peak * (0.01 + 0.495 * (1.0 + jnp.cos(math.pi * jnp.minimum(i / steps, 1.0)))))
    rows = peer.rows()

    @jax.jit
    def epoch(state, key):
        order = jax.random.permutation(key, n)[: (n // batch) * batch].reshape(-1, batch)
        return jax.lax.scan(lambda s, i: peer.svi.update(s, *(part[i] for part in rows)), state, order)[0]

    keys, kept = jax.random.split(jax.random.PRNGKey(seed), epochs), [peer.init(seed)]
    epoch(kept[0], keys[0])  # compiled before the clock starts

    def call():
        for key in keys:
            kept[0] = epoch(kept[0], key)
        jax.block_until_ready(kept[0])

    return call, lambda: peer_draws(peer, kept[0])


def peer_draws(peer: Constrained, state, n: int = 64) -> Draws:
    """Draws from the trained guide."""
    found = peer.guide.sample_posterior(jax.random.PRNGKey(1), peer.svi.get_params(state), sample_shape=(n,))
    tensors = {name: torch.as_tensor(np.array(value)) for name, value in found.items()}
    return Draws(tensors["weights"], tensors["rho"].double().exp(), tensors["omega"].double().exp())


def predictors(task: Task, n_draws: int) -> dict[str, Callable[[], tuple[np.ndarray, np.ndarray]]]:
    """Mean and variance of the mixture over draws from the guide, at all rows of the task, by `Predictive`."""
    peer = Constrained(task)
    params, (x, target, _) = peer.svi.get_params(peer.init()), peer.rows()
    params["rho_auto_scale"] = jnp.full(len(peer.B), task.prior[1])  # as ours, which start at the prior

    def model():
        weights = numpyro.sample("weights", dist.Normal(jnp.zeros(len(task.weights)), 1.0).to_event(1))
        rho = numpyro.sample("rho", dist.Normal(task.prior[0] * jnp.ones(len(peer.B)), task.prior[1]).to_event(1))
        mean, var = conditioned(peer.B, *network(weights, x, task.sizes), target, jnp.exp(rho))
        numpyro.deterministic("mean", mean)
        numpyro.deterministic("var", var)

    def predict(parallel: bool) -> Callable[[], tuple[np.ndarray, np.ndarray]]:
        draw = Predictive(model, guide=_guide_of(peer), params=params, num_samples=n_draws, parallel=parallel)

        @jax.jit
        def moments(key):
            found = draw(key)
            return found["mean"].mean(0), found["var"].mean(0) + found["mean"].var(0)

        return lambda: tuple(np.asarray(part) for part in moments(jax.random.PRNGKey(0)))

    return {"NumPyro, draw by draw": predict(False), "NumPyro, all draws at once": predict(True)}


def _guide_of(peer: Constrained) -> Callable[[], object]:
    """The guide without its data: prediction gives it none."""
    batch = tuple(part[:1] for part in peer.rows())
    return lambda: peer.guide(*batch)


def _array(values) -> jnp.ndarray:
    return jnp.asarray(np.asarray(values), dtype=jnp.float32)
