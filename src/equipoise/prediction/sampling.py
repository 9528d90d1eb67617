"""Draws of output vectors from blocks of Gaussians, with noise that depends on the position of the row alone.

This file makes the noise and adds that of the sensors. Matheron's rule (M1), which turns noise into joint draws that
obey the balances, is `ConditionedGaussian.update` in `gaussian/distributions.py`.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from equipoise.gaussian import Gaussian
from equipoise.network import DRAW_BLOCK, Likelihood, derived_seed, joint as joint_likelihood

ROW_BLOCK = 64  # rows that share one seeded stream of sampling noise


def row_noise(seed: int, block: int, rows: slice, width: int) -> Float[Tensor, "n_draws n width"]:
    """Draw standard normal numbers for a block of draws at some rows, from (seed, draw block, row block) alone.

    Args:
        seed: Seed of the noise.
        block: Number of the block of draws.
        rows: Positions of the rows; the first is a multiple of `ROW_BLOCK`.
        width: Numbers for each draw of a row.
    """
    parts = []
    for start in range(rows.start, rows.stop, ROW_BLOCK):
        generator = torch.Generator().manual_seed(derived_seed(seed, block, start // ROW_BLOCK, 1))
        parts.append(torch.randn(DRAW_BLOCK, ROW_BLOCK, width, generator=generator, dtype=torch.float64))
    return torch.cat(parts, 1)[:, : rows.stop - rows.start]


def noise_width(gaussian: Gaussian) -> int:
    """Return how many standard normal numbers `sample` needs for each draw of a row."""
    return 2 * gaussian.mean.shape[-1] + gaussian.n_balances


@torch.no_grad()
def sample(
    gaussian: Gaussian,
    sensor_var: Tensor | float,
    noise: Float[Tensor, "... width"],
    joint: bool,
    likelihood: Likelihood = joint_likelihood,
) -> Float[Tensor, "... n_y"]:
    """Draw the outputs once from each Gaussian, and add sensor noise.

    Args:
        gaussian: Gaussians of shape `(..., n_y)`.
        sensor_var: `w`, broadcast against them.
        noise: Standard normal numbers for the outputs, the sensors and the balances, in this order.
        joint: Joint draws by Matheron's rule (M1, `Gaussian.update`), or independent ones from the diagonal
            of `Σ_C`.
        likelihood: Makes sensor noise of normal numbers.
    Returns: One draw from each Gaussian, shape `(..., n_y)`.
    """
    n_y = gaussian.mean.shape[-1]
    of_y, of_sensor, of_balance = noise.split([n_y, n_y, noise.shape[-1] - 2 * n_y], dim=-1)
    if joint:
        y = gaussian.update(gaussian.prior.mean + gaussian.prior.var.sqrt() * of_y, of_balance)
    else:
        y = gaussian.mean + gaussian.var.sqrt() * of_y
    return y + likelihood.sensor_noise(of_sensor, sensor_var)


def selected_draws(log_weight: Float[Tensor, "n_draws n"], uniform: Float[Tensor, "k n"]) -> Int[Tensor, "k n"]:
    """Select k of the draws for each row with the probabilities of their weights.

    Args:
        log_weight: Logarithms of the weights, up to a constant for each row.
        uniform: Uniform random numbers.
    Returns:
        Positions of the selected draws.
    """
    cumulative = torch.softmax(log_weight, 0).cumsum(0).T.contiguous()
    selected = torch.searchsorted(cumulative, uniform.T.contiguous())
    return selected.clamp_max(len(log_weight) - 1).T


def shared_uniform(seed: int, draws: range) -> Float[Tensor, " n"]:
    """Draw one uniform number for each draw, shared by all rows, from seed and number of the draw alone.

    Args:
        seed: Seed of the numbers.
        draws: Numbers of the draws.
    """
    blocks = range(draws.start // DRAW_BLOCK, -(-draws.stop // DRAW_BLOCK))
    generators = (torch.Generator().manual_seed(derived_seed(seed, block, 5)) for block in blocks)
    uniform = torch.cat([torch.rand(DRAW_BLOCK, generator=g, dtype=torch.float64) for g in generators])
    first = draws.start - DRAW_BLOCK * blocks.start
    return uniform[first : first + len(draws)]
