"""The training plan: all settings of training, and the schedules of its learning rates."""

import math
from dataclasses import dataclass, replace
from numbers import Integral

from equipoise.errors import InputError


@dataclass(frozen=True)
class TrainingPlan:
    """All settings of training.

    Args:
        max_epochs: Upper bound on all epochs together.
        mean_epochs: Epochs of the first phase, at most half of all.
        noise_epochs: Epochs of the last phase, at most a tenth of all.
        batch_size: Rows per step; None chooses it, and how often an epoch passes over the rows, from their number.
        mean_learning_rate: Peak rate of the one-cycle schedule of the first phase.
        learning_rate: Peak rate for the weights in the second phase; cosine decay to a hundredth.
        tolerance_rate: Tolerances, offsets and sensor variances learn this many times faster than the weights.
        std_rate: Standard deviations of the weights learn this many times faster than their means.
        kl_warmup: Share of the second phase over which the weight of all divergences, `kl_weight`, grows from 0 to 1.
        temperature: `T`, a further weight of the divergence of the network's weights alone (E2); 1 is the ELBO, as in
            the paper.
        init_std: Weight standard deviation at the start of the second phase.
        patience: Epochs without improvement on held-out rows before the second phase stops, counted after warm-up.
        max_grad_norm: Gradients of the weights are clipped to this norm.
        validation_draws: Draws per held-out row, with a fixed noise seed; None chooses 2 to 8 from the number of rows.
    Raises:
        InputError: If a setting is out of range.

    Example:
        >>> TrainingPlan(max_epochs=100).epochs_of("means")
        50
    """

    max_epochs: int = 600
    mean_epochs: int = 300
    noise_epochs: int = 60
    batch_size: int | None = None
    mean_learning_rate: float = 2e-2
    learning_rate: float = 6e-3
    tolerance_rate: float = 10.0
    std_rate: float = 3.0
    kl_warmup: float = 0.2
    temperature: float = 0.5
    init_std: float = math.exp(-7)
    patience: int = 100
    max_grad_norm: float = 100.0
    validation_draws: int | None = None

    def __post_init__(self):
        for name in ("max_epochs", "patience"):
            _check(name, getattr(self, name), _is_count(getattr(self, name)))
        rates = ("learning_rate", "mean_learning_rate", "tolerance_rate", "std_rate")
        for name in rates:
            _check(name, getattr(self, name), 0 <= getattr(self, name) < math.inf)
        for name in ("mean_epochs", "noise_epochs"):
            _check(name, getattr(self, name), isinstance(getattr(self, name), int) and getattr(self, name) >= 0)
        for name in ("init_std", "temperature"):
            _check(name, getattr(self, name), 0 < getattr(self, name) < math.inf)
        _check("max_grad_norm", self.max_grad_norm, self.max_grad_norm > 0)
        _check("kl_warmup", self.kl_warmup, 0 <= self.kl_warmup <= 1)
        for name in ("batch_size", "validation_draws"):
            _check(name, getattr(self, name), getattr(self, name) is None or _is_count(getattr(self, name)))

    def of_paper(self) -> "TrainingPlan":
        """Return the plan with which the bound alone is minimised, whole from the first step on, as in the paper.

        Example:
            >>> plan = TrainingPlan(max_epochs=100).of_paper()
            >>> plan.epochs_of("elbo"), plan.temperature
            (100, 1.0)
        """
        return replace(self, mean_epochs=0, noise_epochs=0, kl_warmup=0.0, temperature=1.0)

    def rows_per_step(self, n_rows: int) -> int:
        """Return the batch size: `batch_size`, or 128 to 512, for about 25 steps in an epoch over a large table."""
        return min(n_rows, self.batch_size or max(128, self._share(n_rows)))

    def passes(self, n_rows: int) -> int:
        """Return how often an epoch passes over the rows.

        A small table is passed over several times, for at least as many steps as batches of a twenty-fifth of it would
        take. On a CPU larger batches cost hardly more, and their gradients have less noise.
        """
        return 1 if self.batch_size else math.ceil(self.rows_per_step(n_rows) / self._share(n_rows))

    def draws_per_row(self, n_rows: int) -> int:
        """Return the number of draws for each of `n_rows` held-out rows, larger if there are few rows."""
        return self.validation_draws or max(2, min(8, 2048 // max(n_rows, 1)))

    def _share(self, n_rows: int) -> int:
        """Return a twenty-fifth of the rows, rounded up to a power of two between 32 and 512."""
        return max(32, min(512, 2 ** math.ceil(math.log2(max(n_rows, 2) / 25))))

    def epochs_of(self, phase: str) -> int:
        """Return the number of epochs of a phase: "means", "noise", or "elbo" with all that the others leave."""
        epochs = {
            "means": min(self.mean_epochs, self.max_epochs // 2),
            "noise": min(self.noise_epochs, self.max_epochs // 10),
        }
        return epochs.get(phase, self.max_epochs - sum(epochs.values()))


def _is_count(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= 1


def _check(name: str, value: object, good: bool) -> None:
    if not good:
        raise InputError(f"TrainingPlan.{name} must be a sensible positive number, but got {value!r}.")


def one_cycle(fraction: float, peak_at: float = 0.3) -> float:
    """Return the learning rate relative to its peak: a cosine from 1/25 up, then one down to 0.

    Args:
        fraction: Share of the phase that is done.
        peak_at: Share at which the rate is largest.

    Example:
        >>> [one_cycle(fraction) for fraction in (0.0, 0.3, 1.0)]
        [0.04, 1.0, 0.0]
    """
    if fraction < peak_at:
        return 0.04 + 0.96 * 0.5 * (1 - math.cos(math.pi * fraction / peak_at))
    return 0.5 * (1 + math.cos(math.pi * (fraction - peak_at) / (1 - peak_at)))


def cosine(fraction: float, warmup: float = 0.05) -> float:
    """Return the learning rate relative to its peak: linear up, then a cosine down to a hundredth.

    Args:
        fraction: Share of the phase that is done.
        warmup: Share at which the rate is largest.

    Example:
        >>> [round(cosine(fraction), 2) for fraction in (0.0, 0.05, 1.0)]
        [0.02, 1.0, 0.01]
    """
    if fraction < warmup:
        return (fraction + 1e-3) / (warmup + 1e-3)
    return 0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * (fraction - warmup) / (1 - warmup)))
