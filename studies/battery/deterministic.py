"""DeterministicTask: a network of the same size without any probability, a scale for the accuracy of the others.

It is plain torch: means only, trained by Adam on squared error for as many epochs as the other models. It starts with
the same weights as they do.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from equipoise import battery
from studies.battery.evaluation import Progress, output_std
from studies.battery.files import write_text
from studies.battery.results import ScoreByOutput
from studies.battery.tasks import decisive_settings, digest

START_SEED = 5  # with the seed of the run, as in the library
ACTIVATIONS = {"silu": nn.functional.silu, "tanh": torch.tanh, "relu": torch.relu, "gelu": nn.functional.gelu}


@dataclass(frozen=True)
class DeterministicTask:
    """Train and score the deterministic network; a picklable task for `run_many`.

    Attributes:
        settings: Settings of the study.
        seed: Seed of noise, split, starting weights and shuffling.
        folder: Folder in which the score is kept.
        cache: Folder in which simulations are kept.
    """

    settings: battery.Settings
    seed: int
    folder: Path
    cache: Path

    def __call__(self, progress: Progress) -> ScoreByOutput:
        if (score := self.read()) is None:
            score = self._run(progress)
            self.folder.mkdir(parents=True, exist_ok=True)
            write_text(self._path, score.model_dump_json())
        progress(1.0)
        return score

    def read(self) -> ScoreByOutput | None:
        """Read the kept score; return None if there is none that can be read."""
        try:
            return ScoreByOutput.model_validate_json(self._path.read_text("utf-8"))
        except (OSError, ValueError):
            return None

    @property
    def _path(self) -> Path:
        return self.folder / f"deterministic-{digest(decisive_settings(self.settings), self.seed)[:10]}.json"

    def _run(self, progress: Progress) -> ScoreByOutput:
        data = battery.load(self.settings.data_of(self.seed), self.cache)
        X, Y, truth = (table.to_numpy() for table in (data.X, data.Y, data.truth))
        x, y = (torch.as_tensor(_standardize(v, v[data.train]), dtype=torch.float32) for v in (X, Y))
        network = self._train(x[data.train], y[data.train], progress)
        with torch.no_grad():
            mean = network(x[data.test]).double().numpy()
        fitted = Y[data.train]
        error = ((fitted.mean(0) + _std(fitted) * mean - truth[data.test]) ** 2).mean(0) / output_std(data) ** 2
        return ScoreByOutput.of(dict(zip(battery.KEYS, error.tolist(), strict=True)))

    def _train(self, x: Tensor, y: Tensor, progress: Progress) -> Perceptron:
        plan, seed = self.settings.plan(), _mixed(self.seed, START_SEED)
        generator = torch.Generator().manual_seed(seed)
        sizes = (x.shape[1], *self.settings.hidden, y.shape[1])
        network = Perceptron(sizes, self.settings.activation, generator)
        optimizer = torch.optim.Adam(network.parameters(), fused=True)
        for epoch in range(plan.max_epochs):
            batches = torch.randperm(len(x), generator=generator).split(plan.rows_per_step(len(x)))
            for i, index in enumerate(batches):
                rate = one_cycle((epoch + i / len(batches)) / plan.max_epochs)
                optimizer.param_groups[0]["lr"] = plan.mean_learning_rate * rate
                optimizer.zero_grad()
                (network(x[index]) - y[index]).square().mean().backward()
                optimizer.step()
            progress(0.99 * (epoch + 1) / plan.max_epochs)
        return network


class Perceptron(nn.Module):
    """A multilayer perceptron with all weights in one flat vector.

    The library's networks have as many units again for variances in their last layer. They are here too, without any
    use, so that the starting weights are the same.

    Args:
        sizes: Number of inputs, widths of the hidden layers, number of outputs.
        activation: "silu", "tanh", "relu" or "gelu".
        generator: Randomness of the starting weights.
    """

    def __init__(self, sizes: tuple[int, ...], activation: str, generator: torch.Generator):
        super().__init__()
        *others, self.n_outputs = sizes
        self.shapes = list(itertools.pairwise([*others, 2 * self.n_outputs]))
        self.activate = ACTIVATIONS[activation]
        parts = []
        for fan_in, fan_out in self.shapes:
            parts.append(torch.randn(fan_in * fan_out, generator=generator) / math.sqrt(fan_in))
            parts.append(torch.zeros(fan_out))
        self.weights = nn.Parameter(torch.cat(parts))

    def forward(self, x: Tensor) -> Tensor:
        """Compute the outputs `(n, n_y)` for inputs `(n, n_x)`."""
        parts = self.weights.split([length for a, b in self.shapes for length in (a * b, b)])
        h = x
        for i, ((a, b), W, bias) in enumerate(zip(self.shapes, parts[::2], parts[1::2], strict=True)):
            h = torch.addmm(bias, h, W.view(a, b))
            h = self.activate(h) if i < len(self.shapes) - 1 else h
        return h[:, : self.n_outputs]


def one_cycle(fraction: float) -> float:
    """Return the learning rate relative to its peak at a fraction of the training: cosine from 1/25 up, then to 0.

    Example:
        >>> one_cycle(0.0), one_cycle(0.3)
        (0.04, 1.0)
    """
    if fraction < 0.3:
        return 0.04 + 0.96 * 0.5 * (1 - math.cos(math.pi * fraction / 0.3))
    return 0.5 * (1 + math.cos(math.pi * (fraction - 0.3) / (1 - 0.3)))


def _mixed(*key: int) -> int:
    """Derive one seed from several integers."""
    return int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0] >> np.uint64(1))


def _standardize(values: np.ndarray, fitted: np.ndarray) -> np.ndarray:
    return (values - fitted.mean(0)) / _std(fitted)


def _std(values: np.ndarray) -> np.ndarray:
    std = values.std(0)
    return np.where(std > 0, std, 1.0)
