"""Moments per draw, row and output for one block of draws.

Two sets of fields are averaged over draws: `MOMENT_FIELDS` for mean and variance of a prediction, and `LEDGER_FIELDS`
for the ledger of its variance.
"""

from torch import Tensor

from equipoise.gaussian import Gaussian
from equipoise.prediction.running_moments import BlockBuffer, Fields

MOMENT_FIELDS = Fields(("mean", "var"), pairs=(("mean", "mean"),))
LEDGER_FIELDS = Fields(  # in the order that needs few matrix products
    ("tolerance_share", "reduction", "shift", "mu", "aleatoric"),
    pairs=(("mu", "mu"), ("shift", "shift"), ("shift", "mu")),
)


def moment_fields_of(gaussian: Gaussian, sensor_var: Tensor | float = 0.0) -> BlockBuffer:
    """Return `MOMENT_FIELDS` of a block of draws `(n_draws, n, n_y)`: `μ_C` and `v_C + w` (C3, C4).

    Args:
        gaussian: The block, conditioned on the balances.
        sensor_var: `w`, broadcast against it; 0 for true values.
    """
    block = _filled(MOMENT_FIELDS, [gaussian.mean, gaussian.var])
    block["var"].add_(sensor_var)
    return block


def ledger_fields_of(gaussian: Gaussian, again: Gaussian | None) -> BlockBuffer:
    """Return `LEDGER_FIELDS` of a block of draws `(n_draws, n, n_y)` (D1, D2).

    Args:
        gaussian: The block, conditioned on the balances.
        again: The same block, conditioned with a second draw of the tolerances.
    """
    prior, second = gaussian.prior, gaussian if again is None else again
    share = (gaussian.shift - second.shift).square_().mul_(0.5)  # D2
    return _filled(LEDGER_FIELDS, [share, gaussian.reduction, gaussian.shift, prior.mean, prior.var])


def _filled(fields: Fields, values: list[Tensor]) -> BlockBuffer:
    block = BlockBuffer(fields, values[0].new_empty(fields.n_rows, *values[0].shape))
    for name, value in zip(fields.names, values, strict=True):
        block[name].copy_(value)
    return block
