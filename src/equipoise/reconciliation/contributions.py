"""Contributions: what each reading and each balance adds to a reconciled value, starting from the network's own mean.

For one draw, the reconciled value is linear in the innovations of readings and balances, so that it is a sum with one
term for each of them::

    ẑ = μ + Σ_j (1_j − K̃ B_j) g_j (y_j − μ_j) + Σ_k K̃_k (t − B μ)_k        (R14)

with `K̃` the gain after the readings (C2 with ṽ of R10), `B_j` and `K̃_k` columns. Over draws, the terms are averaged
with the weights of the draws. The change of the network's mean by the weights themselves, `Σ_d (π_d − 1/n) μ_d`, is a
further term.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from equipoise.gaussian import Gaussian
from equipoise.prediction import RunningMean, RunningWeights, weighted_mean
from equipoise.reconciliation.assimilation import Assimilated

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[np.float64]
NETWORK, DRAWS, RECONCILED = "network alone", "weights of draws", "reconciled"


@dataclass(frozen=True, eq=False)
class Contributions:
    """The network's own mean and what is added to it; all terms together are the reconciled mean (R14).

    Args:
        network: Mean of the draws before balances and readings, shape `(rows, n_y)`.
        sensors: Contribution of the reading of each output to each output, shape `(rows, n_y, n_y)`: source, then
            target.
        balances: Contribution of each balance, shape `(rows, m, n_y)`.
        draws: Contribution of the weights of the draws, `(rows, n_y)`; 0 where a matched Gaussian replaces the mixture.
        outputs, names: Names of outputs and of balances.
    """

    network: Array
    sensors: Array
    balances: Array
    draws: Array
    outputs: tuple[str, ...]
    names: tuple[str, ...]

    @property
    def total(self) -> Array:
        """Reconciled minus the network's own mean, shape `(rows, n_y)`."""
        return self.sensors.sum(axis=1) + self.balances.sum(axis=1) + self.draws

    def to_frame(self, row: int = 0) -> pd.DataFrame:
        """Return a table with one line for each source and one column for each output.

        Args:
            row: Position of the row.
        """
        import pandas as pd

        terms = [self.network, self.sensors, self.balances, self.draws, self.network + self.total]
        lines = np.vstack([np.atleast_2d(term[row]) for term in terms])
        sensors = [f"sensor {name!r}" for name in self.outputs]
        balances = [f"balance {name!r}" for name in self.names]
        index = pd.Index([NETWORK, *sensors, *balances, DRAWS, RECONCILED], name="source")
        return pd.DataFrame(lines, index=index, columns=list(self.outputs))


def mixture_contributions(
    blocks: Iterable[Assimilated],
) -> tuple[Float[Tensor, "n n_y"], Float[Tensor, "n n_y n_y"], Float[Tensor, "n m n_y"], Float[Tensor, "n n_y"]]:
    """Average the contributions to the mean of a mixture over blocks of draws, in standardized units (R14).

    Args:
        blocks: Blocks of draws, conditioned on readings of n rows.
    Returns: `network`, `sensors`, `balances` and `draws` of `Contributions`.
    """
    weights, earlier_weights = RunningWeights(), RunningWeights()
    network, weighted, sensors, balances = RunningMean(), RunningMean(), RunningMean(), RunningMean()
    for block in blocks:
        weight, share = weights.add(block.updated_log_weight)
        earlier, earlier_share = earlier_weights.add(block.log_weight)
        mean = block.before.prior.mean
        network.add(weighted_mean(mean, earlier), earlier_share)
        weighted.add(weighted_mean(mean, weight), share)
        K = block.after.gain_rows()
        innovation = (weight.unsqueeze(-1) * block.before.innovation).unsqueeze(-1)
        balances.add((K * innovation).sum(0), share)  # R14
        sensors.add(_sensor_contributions(block, K, weight), share)
    return network.value, sensors.value, balances.value, weighted.value - network.value


def _sensor_contributions(
    block: Assimilated, K: Float[Tensor, "n_draws n m n_y"], weight: Float[Tensor, "n_draws n"]
) -> Float[Tensor, "n n_y n_y"]:
    """Return `Σ_d π_d (1_j − K̃ B_j) g_j (y_j − μ_j)`, source first, without a matrix for each draw (R14)."""
    step = weight.unsqueeze(-1) * block.step
    own = torch.diag_embed(step.sum(0))
    source = (step.unsqueeze(-2) * block.after.B).movedim(1, 0).flatten(1, 2)
    return own - source.mT @ K.movedim(1, 0).flatten(1, 2)  # R14


def balance_contributions(gaussian: Gaussian) -> Float[Tensor, "n_draws n m n_y"]:
    """Return the contribution `K_k (t − B μ)_k` of each balance without any readings (R14)."""
    return gaussian.gain_rows() * gaussian.innovation.unsqueeze(-1)
