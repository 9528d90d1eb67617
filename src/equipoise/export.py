"""Export of a fitted model as a torch program: from x to mean and standard deviation over stored posterior draws.

The program includes the balances and runs wherever torch is installed, without this library::

    names = {"equipoise.json": ""}                                  # filled by torch
    program = torch.export.load("cell.pt2", extra_files=names).module()
    mean, std = program(x)

`x` is `(n, n_columns)` of float64 in the user's units: the network's inputs, then known columns, as listed in the extra
file `equipoise.json`; n may be any number, but memory grows with n × draws, so pass large tables in pieces.
`mean` and `std` are `(n, n_y)`, of the true values, in the user's units. Unlike a model file, a `.pt2` is a program:
open only those that you trust.

In: a fitted `ConstrainedBNNRegressor` and the path of a file. Out: the file.

Calls: `artifact`, `estimator`, `network`, `prediction`, `data`, `balances`.
"""

import copy
import io
import json
import math
import numbers
import os
from dataclasses import fields
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from equipoise.artifact import ArtifactError, check_fitted, describe_model, write
from equipoise.balances import LinearConstraint
from equipoise.data import Standardizer
from equipoise.estimator import ConstrainedBNNRegressor
from equipoise.network import DRAW_BLOCK, ConstrainedBNN, PosteriorDraws, derived_seed
from equipoise.prediction import MixtureMoments

EXTRA_FILE = "equipoise.json"


def export(model: ConstrainedBNNRegressor, path: str | os.PathLike, n_draws: int = 50) -> None:
    """Write a fitted model as a program that needs only torch.

    Args:
        model: The fitted model.
        path: The file, usually called `….pt2`; replaced if it exists.
        n_draws: Number of posterior draws to store: the first of those that `predict` averages over.
    Raises: ArtifactError, if it is not fitted, if its balances are no `LinearConstraint` or are imposed in a way that
        torch cannot trace, or if the file cannot be written.
    """
    check_fitted(model)
    if not (model.constraint is None or isinstance(model.constraint, LinearConstraint)):
        got = type(model.constraint).__name__
        raise ArtifactError(f"A program can hold the balances of a LinearConstraint only, but got {got}. Use save().")
    if not (isinstance(n_draws, numbers.Integral) and int(n_draws) >= 1):
        raise ArtifactError(f"n_draws must be a whole number of at least 1, but got {n_draws!r}.")
    seed = derived_seed(model.seed_, 7)  # the seed of predict_distribution
    n_draws = model.model_.n_distinct or int(n_draws)
    module = MeanAndStd(model.model_, model.standardizer_, seed, n_draws)
    example = torch.zeros(3, module.n_columns, dtype=torch.float64)  # a single row would fix the number of rows
    any_rows = ({0: torch.export.Dim("n_rows", min=0)},)
    program, buffer = _traced(module, example, any_rows), io.BytesIO()
    torch.export.save(program, buffer, extra_files={EXTRA_FILE: _describe_program(model, n_draws)})
    write(path, lambda file: file.write(buffer.getvalue()))


def _traced(module: "MeanAndStd", example: Tensor, dynamic_shapes: tuple) -> Any:
    """Return the program of a module, or raise ArtifactError if its imposition cannot be traced."""
    imposition = module.model.imposition
    try:
        return torch.export.export(module, (example,), dynamic_shapes=dynamic_shapes)
    except Exception as error:  # by torch or by code of the imposition
        if imposition is None:
            raise
        raise ArtifactError(
            f"A model to be exported must impose its balances by torch operators, but {imposition.name!r} does not "
            f"({str(error).splitlines()[0]}). Save it as a model file instead."
        ) from error


class MeanAndStd(nn.Module):
    """Mean and standard deviation of the true values over stored draws, from and to the user's units (P2).

    Args:
        model: The fitted network in standardized units; it is copied.
        standardizer: Its translation to the user's units.
        seed: Seed of the draws.
        n_draws: Number of draws.
    """

    x_mean: Tensor
    x_std: Tensor
    y_mean: Tensor
    y_std: Tensor
    A: Tensor
    b: Tensor
    B_mean: Tensor
    row_scale: Tensor

    def __init__(self, model: ConstrainedBNN, standardizer: Standardizer, seed: int, n_draws: int):
        super().__init__()
        self.model = copy.deepcopy(model).cpu().eval().requires_grad_(False)
        for name, values in _first_draws(self.model, seed, n_draws).items():
            self.register_buffer(name, values)
        self.draw_names = tuple(self._buffers)
        for name in ("x_mean", "x_std", "y_mean", "y_std"):
            self.register_buffer(name, torch.tensor(getattr(standardizer, name)))
        balances: LinearConstraint | None = standardizer.constraint  # type: ignore[assignment]
        self.n_columns = len(self.x_mean) if balances is None else balances.n_columns
        if balances is not None:
            parts = {"A": balances.A, "b": balances.b, "B_mean": balances.B @ standardizer.y_mean}
            for name, values in (parts | {"row_scale": standardizer.row_scale}).items():
                self.register_buffer(name, torch.tensor(values))

    def forward(self, x: Float[Tensor, "n n_columns"]) -> tuple[Float[Tensor, "n n_y"], Float[Tensor, "n n_y"]]:
        """Predict mean and standard deviation of the true outputs from inputs, then known columns, in user's units."""
        draws = PosteriorDraws(**{name: getattr(self, name) for name in self.draw_names})
        standardized = (x[:, : len(self.x_mean)] - self.x_mean) / self.x_std
        mixture = MixtureMoments()
        mixture.add(draws.log_weight, self.model.at(draws, standardized.to(draws.weights.dtype), self._target(x)))
        return self.y_mean + self.y_std * mixture.mean, self.y_std * mixture.second.sqrt()  # P2

    def _target(self, x: Tensor) -> Tensor | None:
        """Compute the standardized targets `t'` of the balances (Z3); None without balances."""
        if self.model.conditioning is None:
            return None
        return (self.b - x @ self.A.mT - self.B_mean) / self.row_scale


@torch.no_grad()
def _first_draws(model: ConstrainedBNN, seed: int, n_draws: int) -> dict[str, Tensor]:
    """Draw the fields of `PosteriorDraws` that the model has, n_draws on axis 0."""
    blocks = [model.draw(seed, block) for block in range(math.ceil(n_draws / DRAW_BLOCK))]
    parts = {field.name: [getattr(block, field.name) for block in blocks] for field in fields(PosteriorDraws)}
    return {name: torch.cat(part)[:n_draws].clone() for name, part in parts.items() if part[0] is not None}


def _describe_program(model: ConstrainedBNNRegressor, n_draws: int) -> str:
    """Describe inputs, outputs and balances as JSON, for users who have only the program."""
    description = describe_model(model)
    columns = description.columns.model_dump(include={"inputs", "known", "outputs", "units"})
    balances = [balance.model_dump() for balance in description.balances]
    return json.dumps({"n_draws": n_draws, **columns, "balances": balances, "versions": description.versions}, indent=1)
