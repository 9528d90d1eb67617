"""Moments per draw, row and output for one block of draws: what is averaged for a prediction, and for its ledger."""

from torch import Tensor

from equipoise.gaussian import Gaussian
from equipoise.prediction.running_moments import Fields

MOMENT_PAIRS = (("mean", "mean"),)
LEDGER_PAIRS = (("mu", "mu"), ("shift", "shift"), ("shift", "mu"))


def moment_fields_of(gaussian: Gaussian, sensor_var: Tensor | float = 0.0) -> Fields:
    """Return mean and variance of a block of draws `(n_draws, n, n_y)`: `μ_C` and `v_C + w` (C3, C4).

    Args:
        gaussian: The block, conditioned on the balances.
        sensor_var: `w`, broadcast against it; 0 for true values.
    """
    noisy = isinstance(sensor_var, Tensor)
    return {"mean": gaussian.mean, "var": gaussian.var + sensor_var if noisy else gaussian.var}


def ledger_fields_of(gaussian: Gaussian, again: Gaussian | None) -> Fields:
    """Return what the ledger averages, of a block of draws `(n_draws, n, n_y)` (D1, D2).

    Args:
        gaussian: The block, conditioned on the balances.
        again: The same block, conditioned with a second draw of the tolerances.
    """
    prior, shift = gaussian.prior, gaussian.shift
    change = shift - (shift if again is None else again.shift)
    fields = {"tolerance_share": change.square_().mul_(0.5), "reduction": gaussian.reduction}  # D2
    return fields | {"shift": shift, "mu": prior.mean, "aleatoric": prior.var}
