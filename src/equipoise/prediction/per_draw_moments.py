"""Moments per draw, row and output for one block of draws: by conditioning in general, and in closed form.

Two sets of fields are averaged over draws: `MOMENT_FIELDS` for mean and variance of a prediction, and `LEDGER_FIELDS`
for the ledger of its variance.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from equipoise.gaussian import Gaussian
from equipoise.network import ConstrainedBNN
from equipoise.prediction.running_moments import BlockBuffer, Fields
from equipoise.prediction.weight_draws import ArrangedDraws, Heads, NetworkEvaluator

MOMENT_FIELDS = Fields(("mean", "var"), pairs=(("mean", "mean"),))
LEDGER_FIELDS = Fields(  # in the order that needs few matrix products
    ("tolerance_share", "reduction", "shift", "mu", "aleatoric"),
    pairs=(("mu", "mu"), ("shift", "shift"), ("shift", "mu")),
)


def moment_fields_of(gaussian: Gaussian) -> BlockBuffer:
    """Return `MOMENT_FIELDS` of a block of draws `(n_draws, n, n_y)`: `μ_C` and `v_C` (C3, C4)."""
    return _filled(MOMENT_FIELDS, [gaussian.mean, gaussian.var])


def ledger_fields_of(gaussian: Gaussian, again: Gaussian | None) -> BlockBuffer:
    """Return `LEDGER_FIELDS` of a block of draws `(n_draws, n, n_y)` (D1, D2).

    Args:
        gaussian: The block, conditioned on the balances.
        again: The same block, conditioned with a second draw of the tolerances.
    """
    prior, second = gaussian.prior, gaussian if again is None else again
    share = (gaussian.mean - second.mean).square_().mul_(0.5)  # D2
    return _filled(LEDGER_FIELDS, [share, gaussian.reduction, gaussian.mean - prior.mean, prior.mean, prior.var])


def reduction_lost_of(gaussian: Gaussian) -> Float[Tensor, "m n n_y"]:
    """Return the reduction that is lost without each of the balances, summed over draws (D4)."""
    return gaussian.reduction_lost_without().sum(0).movedim(-2, 0)


def _filled(fields: Fields, values: list[Tensor]) -> BlockBuffer:
    block = BlockBuffer(fields, values[0].new_empty(fields.n_rows, *values[0].shape))
    for name, value in zip(fields.names, values, strict=True):
        block[name].copy_(value)
    return block


class DisjointTerms:
    """The fields of a block in closed form, for balances of which no two share an output, or for none.

    Then `S` has the diagonal `s = B² v + r` and nothing else, and with `c = (t − B μ) / s`::

        Δ = v ⊙ Bᵀ c,   diag(K S Kᵀ) = v² ⊙ (B²)ᵀ (1/s)                             (C3, C4)

    A returned block is a buffer, which the next call for as many draws and rows overwrites.

    Args:
        network: Evaluates the network whose outputs the balances are applied to.
        B: Coefficients, shape `(m, n_y)`; no output has two, and no balance has none.
    """

    def __init__(self, network: NetworkEvaluator, B: Float[Tensor, "m n_y"]):
        self.network, self.B, squares = network, B, B.square()
        self._inward = torch.stack([B, squares])
        self._outward = torch.stack([0.5 * squares, squares, B])
        self._workspaces: dict[tuple[int, torch.Size], _Workspace] = {}

    @classmethod
    def of(cls, model: ConstrainedBNN, sensors: bool) -> "DisjointTerms | None":
        """Return the closed form for a model, None if its balances are coupled or if it redefines conditioning.

        Args:
            model: The model in standardized units.
            sensors: Whether the noise of learned sensors is needed, too.
        """
        layer, weights = model.conditioning, model.network.posterior.loc
        if not model.conditions_by_definition or (layer is not None and layer.coupled):
            return None
        dtype = torch.float32 if weights.device.type == "mps" else torch.float64  # Apple's GPU has no float64
        B = weights.new_zeros(0, model.network.n_outputs) if layer is None else layer.B
        return cls(NetworkEvaluator(model.network, sensors), B.detach().to(dtype))

    def moment_fields(self, heads: Heads, draws: ArrangedDraws, target: Float[Tensor, "m 1 n"] | None) -> BlockBuffer:
        """Return `MOMENT_FIELDS` of a block of draws (C3, C4).

        Args:
            heads: Mean and variance before conditioning, each `(n_draws, n, n_y)`.
            draws: The draws, with their tolerances and offsets.
            target: `t`, balances first; None without balances.
        """
        space = self._workspace(MOMENT_FIELDS, heads)
        if target is not None and self.B.shape[0]:
            self._weigh_innovations(space, draws, target)
            torch.bmm(space.by_draw[1:], self._outward[1:], out=space.flat_outer[1:])
            space.mu.addcmul_(space.var, space.shift)  # C3
            space.var.addcmul_(space.var, space.reduction.mul_(space.var), value=-1.0)  # C4
            space.var.clamp_min_(0.0)  # rounding may subtract more than there is
        return space.block

    def ledger_fields(self, heads: Heads, draws: ArrangedDraws, target: Float[Tensor, "m 1 n"] | None) -> BlockBuffer:
        """Return `LEDGER_FIELDS` of a block of draws (D1, D2); arguments as of `moment_fields`."""
        space = self._workspace(LEDGER_FIELDS, heads)
        if target is None or not self.B.shape[0]:
            space.outer.zero_()
            return space.block
        self._weigh_innovations(space, draws, target)
        torch.sub(space.c_again, space.c, out=space.change).square_()
        torch.bmm(space.by_draw, self._outward, out=space.flat_outer)
        space.outer.mul_(space.var)  # C3
        space.squared.mul_(space.var)  # C4, D2
        return space.block

    def _workspace(self, fields: Fields, heads: Heads) -> "_Workspace":
        """Return memory for a block of these fields, with the network's mean and variance copied into it."""
        key = len(fields.names), heads[0].shape
        if key not in self._workspaces:
            self._workspaces[key] = _Workspace(fields, heads[0].shape, self.B)
        space = self._workspaces[key]
        space.mu.copy_(heads[0])
        space.var.copy_(heads[1])
        return space

    def _weigh_innovations(self, space: "_Workspace", draws: ArrangedDraws, target: Tensor) -> None:
        """Compute `1/s` and `c` of each balance, for both draws of its tolerance (C1)."""
        torch.bmm(self._inward, space.flat_inner, out=space.flat_balances)
        shifted = target if draws.offset is None else target + draws.offset
        torch.sub(shifted, space.innovation, out=space.innovation)
        torch.add(space.s, draws.tolerances, out=space.precisions).reciprocal_()  # type: ignore[arg-type]
        torch.mul(space.innovation, space.precisions, out=space.cs)


class _Workspace:
    """Memory for blocks of one shape and its views: what costs time here is the number of operations.

    Quantities that belong to a balance have balances first: what differs by draw is then constant along rows.

    Args:
        fields: `LEDGER_FIELDS` or `MOMENT_FIELDS`; the last two of either start as the network's mean and variance.
        shape: `(n_draws, n, n_y)`.
        B: Coefficients, shape `(m, n_y)`.
    """

    def __init__(self, fields: Fields, shape: torch.Size, B: Tensor):
        (n_draws, n, _), m = shape, len(B)
        memory = B.new_empty(5 + len(fields.pairs), *shape)
        self.block = BlockBuffer(fields, memory[5 - len(fields.names) :])
        self.outer, self.squared = memory[:3], memory[:2]
        _, self.reduction, self.shift, self.mu, self.var = memory[:5]
        self.flat_outer, self.flat_inner = memory[:3].flatten(1, 2), memory[3:5].flatten(1, 2).mT
        self.flat_balances, flat_scalars = B.new_empty(2, m, n_draws * n), B.new_empty(5, m, n_draws * n)
        self.innovation, self.s = self.flat_balances.unflatten(-1, (n_draws, n))
        self.by_draw, scalars = flat_scalars[:3].mT, flat_scalars.unflatten(-1, (n_draws, n))
        self.change, _, self.c, _, self.c_again = scalars
        self.precisions, self.cs = scalars[1::2], scalars[2::2]
