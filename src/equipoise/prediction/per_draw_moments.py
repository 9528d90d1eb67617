"""What a block of draws says, per draw, row and output, for moments and ledger: in general, and in closed form."""

import torch
from jaxtyping import Float
from torch import Tensor

from equipoise.gaussian import ConditionedGaussian, DiagonalGaussian
from equipoise.network import ConstrainedBNN
from equipoise.prediction.running_moments import DrawBlock, Fields
from equipoise.prediction.weight_draws import Drawn, DrawnNetwork

MOMENTS = Fields(("mean", "var"), pairs=(("mean", "mean"),))
ACCOUNT = Fields(  # in the order that few matrix products need
    ("tolerance_share", "reduction", "shift", "mu", "aleatoric"),
    pairs=(("mu", "mu"), ("shift", "shift"), ("shift", "mu")),
)

AnyGaussian = DiagonalGaussian | ConditionedGaussian


def moments_of(gaussian: AnyGaussian) -> DrawBlock:
    """`MOMENTS` of a block of draws `(n_draws, n, n_y)`: `μ_C` and `v_C` (C3, C4)."""
    return _filled(MOMENTS, [gaussian.mean, gaussian.var])


def account_of(gaussian: AnyGaussian, again: AnyGaussian | None) -> DrawBlock:
    """`ACCOUNT` of a block of draws `(n_draws, n, n_y)` (D1, D2).

    Args:
        gaussian: As conditioned on the balances.
        again: The same block with a second draw of the tolerances.
    """
    if not isinstance(gaussian, ConditionedGaussian):
        nothing = torch.zeros_like(gaussian.mean)
        return _filled(ACCOUNT, [nothing, nothing, nothing, gaussian.mean, gaussian.var])
    prior, second = gaussian.prior, gaussian if again is None else again
    share = (gaussian.mean - second.mean).square_().mul_(0.5)  # D2
    return _filled(ACCOUNT, [share, gaussian.reduction, gaussian.mean - prior.mean, prior.mean, prior.var])


def lost_of(gaussian: AnyGaussian) -> Float[Tensor, "m n n_y"]:
    """The reduction lost without each of the balances, summed over draws (D4)."""
    if not isinstance(gaussian, ConditionedGaussian):
        return gaussian.mean.new_zeros(0, *gaussian.mean.shape[1:])
    return gaussian.reduction_lost_without().sum(0).movedim(-2, 0)


def _filled(fields: Fields, values: list[Tensor]) -> DrawBlock:
    block = DrawBlock(fields, values[0].new_empty(fields.n_rows, *values[0].shape))
    for name, value in zip(fields.names, values, strict=True):
        block[name].copy_(value)
    return block


class DisjointTerms:
    """The same in closed form, where no two balances share an output, or where there are none.

    Then `S` has the diagonal `s = B² v + r` and nothing else, and with `c = (t − B μ) / s`::

        Δ = v ⊙ Bᵀ c,   diag(K S Kᵀ) = v² ⊙ (B²)ᵀ (1/s)                             (C3, C4)

    A block is valid until the next of its shape is asked for: they share their memory.

    Args:
        network: Says what the balances are applied to.
        B: Coefficients, shape `(m, n_y)`; no output has two, and no balance has none.
    """

    def __init__(self, network: DrawnNetwork, B: Float[Tensor, "m n_y"]):
        self.network, self.B, squares = network, B, B.square()
        self._inward = torch.stack([B, squares])
        self._outward = torch.stack([0.5 * squares, squares, B])
        self._rooms: dict[tuple[int, torch.Size], _Room] = {}

    @classmethod
    def of(cls, model: ConstrainedBNN, sensors: bool) -> "DisjointTerms | None":
        """Those of a model; None if its balances are coupled, or if it conditions in a way of its own.

        Args:
            model: In standardized units.
            sensors: Whether it is also asked for the noise of learned sensors.
        """
        layer, weights = model.conditioning, model.network.posterior.loc
        if not model.conditions_by_definition or (layer is not None and layer.coupled):
            return None
        work = torch.float32 if weights.device.type == "mps" else torch.float64  # Apple's GPU has no float64
        B = weights.new_zeros(0, model.network.n_outputs) if layer is None else layer.B
        return cls(DrawnNetwork(model.network, sensors), B.detach().to(work))

    def moments(self, said: DiagonalGaussian, drawn: Drawn, target: Float[Tensor, "m 1 n"] | None) -> DrawBlock:
        """`MOMENTS` of what the network says of a block of draws (C3, C4)."""
        room = self._room(MOMENTS, said)
        if target is not None and self.B.shape[0]:
            self._weigh(room, drawn, target)
            torch.bmm(room.by_draw[1:], self._outward[1:], out=room.flat_outer[1:])
            room.mu.addcmul_(room.var, room.shift)  # C3
            room.var.addcmul_(room.var, room.reduction.mul_(room.var), value=-1.0)  # C4
            room.var.clamp_min_(0.0)  # rounding may take more than there is
        return room.block

    def account(self, said: DiagonalGaussian, drawn: Drawn, target: Float[Tensor, "m 1 n"] | None) -> DrawBlock:
        """`ACCOUNT` of what the network says of a block of draws (D1, D2)."""
        room = self._room(ACCOUNT, said)
        if target is None or not self.B.shape[0]:
            room.outer.zero_()
            return room.block
        self._weigh(room, drawn, target)
        torch.sub(room.c_again, room.c, out=room.change).square_()
        torch.bmm(room.by_draw, self._outward, out=room.flat_outer)
        room.outer.mul_(room.var)  # C3
        room.squared.mul_(room.var)  # C4, D2
        return room.block

    def _room(self, fields: Fields, said: DiagonalGaussian) -> "_Room":
        """Memory for a block of these fields, holding what the network says."""
        key = len(fields.names), said.mean.shape
        if key not in self._rooms:
            self._rooms[key] = _Room(fields, said.mean.shape, self.B)
        room = self._rooms[key]
        room.mu.copy_(said.mean)
        room.var.copy_(said.var)
        return room

    def _weigh(self, room: "_Room", drawn: Drawn, target: Tensor) -> None:
        """`1/s` and `c` of each balance, with both draws of its tolerance (C1)."""
        torch.bmm(self._inward, room.flat_inner, out=room.flat_within)
        wanted = target if drawn.offset is None else target + drawn.offset
        torch.sub(wanted, room.innovation, out=room.innovation)
        torch.add(room.s, drawn.tolerances, out=room.precisions).reciprocal_()  # type: ignore[arg-type]
        torch.mul(room.innovation, room.precisions, out=room.cs)


class _Room:
    """Memory of one shape, seen from all sides: what costs time here is the number of operations.

    What belongs to a balance stands with balances first: what differs by draw is then constant along rows.

    Args:
        fields: `ACCOUNT`, or `MOMENTS`; the last two of either begin as what the network says.
        shape: `(n_draws, n, n_y)`.
        B: Coefficients, shape `(m, n_y)`.
    """

    def __init__(self, fields: Fields, shape: torch.Size, B: Tensor):
        (n_draws, n, _), m = shape, len(B)
        memory = B.new_empty(5 + len(fields.pairs), *shape)
        self.block = DrawBlock(fields, memory[5 - len(fields.names) :])
        self.outer, self.squared = memory[:3], memory[:2]
        _, self.reduction, self.shift, self.mu, self.var = memory[:5]
        self.flat_outer, self.flat_inner = memory[:3].flatten(1, 2), memory[3:5].flatten(1, 2).mT
        self.flat_within, flat_scalars = B.new_empty(2, m, n_draws * n), B.new_empty(5, m, n_draws * n)
        self.innovation, self.s = self.flat_within.unflatten(-1, (n_draws, n))
        self.by_draw, scalars = flat_scalars[:3].mT, flat_scalars.unflatten(-1, (n_draws, n))
        self.change, _, self.c, _, self.c_again = scalars
        self.precisions, self.cs = scalars[1::2], scalars[2::2]
