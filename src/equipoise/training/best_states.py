"""The best state of each member of a training so far, by its loss on held-out rows."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn


class BestStates:
    """The best state of each member, and what they share in the epoch with the best mean over members.

    Args:
        n_members: Number of members.

    Attributes:
        values: Least loss of each member.
        since: Epochs without improvement of each member.
        state: The kept tensors by their names in the model's `state_dict`; None before the first.
    """

    def __init__(self, n_members: int = 1):
        self.values = torch.full((n_members,), torch.inf, dtype=torch.float64)
        self.since = torch.zeros(n_members, dtype=torch.long)
        self.together = torch.inf
        self.state: dict[str, Tensor] | None = None

    def keep(
        self,
        values: Float[Tensor, " n_members"],
        model: nn.Module,
        own: Sequence[str] = (),
        patience: int | None = None,
        counts: bool = True,
    ) -> bool:
        """Keep the states of one epoch that are better than before.

        A member whose patience has run out keeps its state for good.

        Args:
            values: Loss of each member on the held-out rows.
            model: Has the states.
            own: Names of tensors with an axis of members; all others are shared.
            patience: Epochs without improvement after which a member stops; None for no end.
            counts: Whether this epoch counts as one without improvement where there is none.
        Returns: Whether the mean over members is better.
        """
        better = values < self.values
        if patience is not None:
            better &= self.since < patience
        improved, current = float(values.mean()) < self.together, model.state_dict()
        if self.state is None:
            self.state = {name: value.clone() for name, value in current.items()}
        for name, value in current.items():
            if name in own:
                self.state[name][better] = value[better]
            elif improved:
                self.state[name] = value.clone()
        self.values = torch.where(better, values, self.values)
        self.since = torch.where(better, 0, self.since + int(counts))
        self.together = min(self.together, float(values.mean()))
        return improved

    def restore(self, model: nn.Module) -> None:
        """Return a model to the best states, if there are any."""
        if self.state is not None:
            model.load_state_dict(self.state)

    def again(self) -> "BestStates":
        """Return the same states, whose patience is whole again."""
        other = BestStates(len(self.values))
        other.values, other.together, other.state = self.values, self.together, self.state
        return other

    def is_exhausted(self, patience: int) -> bool:
        """Return whether no member has improved for `patience` epochs."""
        return not bool((self.since < patience).any())

    def progress(self) -> dict:
        """Return the states for a checkpoint."""
        values = {"best_value": self.values.tolist(), "best_mean": self.together, "since_best": self.since.tolist()}
        return values | {"best_state": self.state}

    def restore_progress(self, progress: dict) -> None:
        """Continue from a checkpoint; those of earlier versions have a number where others have one for each member."""
        self.values = torch.as_tensor(progress["best_value"], dtype=torch.float64).reshape(-1)
        self.since = torch.as_tensor(progress["since_best"]).reshape(-1)
        self.together = progress.get("best_mean", float(self.values.mean()))
        self.state = progress["best_state"]
