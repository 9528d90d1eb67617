"""Methods without a network: one regression for each output, and tolerances that are learned when it has been fitted.

A Gaussian process tells the values from their noise. With the imposition "learned" its white noise is that of the
sensors, and the tolerances `r` maximise the joint likelihood (L2) of all rows, each predicted from all others, with
their prior; their posterior is normal in `ρ = log r`, by the curvature there.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float
from scipy.optimize import minimize
from torch import Tensor

from equipoise.data import AnyRows, Rows, mean_sensor_var
from equipoise.network import ConstrainedBNN, NetworkGaussian
from equipoise.rivals.methods.boosting import BoostedTrees
from equipoise.rivals.methods.catalogue import MethodError
from equipoise.rivals.methods.gaussian_process import GaussianProcesses, some_rows
from equipoise.rivals.methods.recipe import MethodRecipe
from equipoise.training import Callback, Fit, History


@dataclass(frozen=True, kw_only=True)
class OutputwiseRecipe(MethodRecipe):
    """The recipe of Gaussian processes and of boosted trees; its arguments are those of `MethodRecipe`.

    Of settings of the network and of training none has an effect. Held-out rows decide how many trees there are; for
    Gaussian processes they decide nothing but the one tolerance of "posthoc-scalar".
    """

    has_sensor_head: ClassVar[bool] = False

    def fit(
        self,
        model: ConstrainedBNN,
        rows: AnyRows,
        validation: Rows | None,
        *,
        checkpoint: object = None,
        verbose: bool = False,
        callback: Callback = None,
    ) -> Fit:
        """Fit a regression to each output, then tolerances; arguments are those of `Recipe.fit`."""
        if not isinstance(rows, Rows):
            raise MethodError(f"{self.method.name!r} needs rows in memory, but got rows that are read from files.")
        if self.method.inference == "boosting":
            trees = BoostedTrees.fit(rows, validation, self.seed)
            draws, n_parameters = trees, trees.n_leaves
        else:
            draws = GaussianProcesses.fit(rows, self.seed)
            n_parameters = draws.kernels.numel()
            if self.imposition.sensors:
                self._separate_noise(model, draws, rows)
        fitted = model.variant(network=model.network.with_posterior(draws))
        final = self.for_prediction(model, fitted, validation, rows)
        if final.conditioning is not None:
            n_parameters += 2 * int(final.conditioning.tolerance.learned.sum())
        attributes = {"penalty_": 0.0, "dropout_": 0.0, "n_parameters_": n_parameters}
        return Fit(final, History(stopped="fitted without epochs"), attributes)

    def _separate_noise(self, model: ConstrainedBNN, draws: GaussianProcesses, rows: Rows) -> None:
        """Give the processes' noise to the sensors as far as these are noisy, and learn the tolerances."""
        noise, kept = draws.noise_var, some_rows(rows, self.seed)
        if model.sensor is not None:
            spread = math.sqrt(2.0 / len(kept))  # of the logarithm of a variance of so many normal errors
            model.sensor.set_log_moments(noise.clamp_min(1e-12).log(), torch.full_like(noise, spread))
        per_row = mean_sensor_var(rows)
        known = torch.zeros_like(noise) if model.sensor is None else model.sensor.median().detach()
        draws.own_var.copy_((noise - (known if per_row is None else per_row.to(noise))).clamp_min(0.0))
        if model.conditioning is not None and bool(model.conditioning.tolerance.learned.any()):
            learn_tolerances(model, draws.leave_one_out(), kept)


def learn_tolerances(model: ConstrainedBNN, predicted: NetworkGaussian, rows: Rows) -> None:
    """Set learned tolerances to the most likely ones under predictions of rows that were not fitted to them.

    Args:
        model: Its conditioning is changed in place.
        predicted: Gaussians of the rows before conditioning, shape `(n, n_y)`.
        rows: The rows, in standardized units.
    """
    q = model.conditioning.tolerance  # type: ignore[union-attr]
    learned = q.learned.nonzero()[:, 0].tolist()
    mean, std = (moment.clone() for moment in q.prior_log_moments())
    w = rows.sensor_var
    if w is None:
        w = 0.0 if model.sensor is None else model.sensor.median().detach().expand_as(rows.y)

    def loss(rho: Float[Tensor, " k"]) -> Tensor:
        tol_var = q.at(torch.where(q.learned, mean.index_put((q.learned,), rho), mean))
        gaussian = model.condition(predicted, rows.target, tol_var.expand(len(rows), -1), B=rows.B)
        prior = sum(q.prior_log_prob(value[None], k)[0] for value, k in zip(rho, learned, strict=True))
        return -model.likelihood(gaussian, rows.y, w).sum() - prior

    def loss_and_gradient(rho: np.ndarray) -> tuple[float, np.ndarray]:
        own = torch.as_tensor(rho).requires_grad_()
        value = loss(own)
        (gradient,) = torch.autograd.grad(value, [own])
        return float(value.detach()), gradient.numpy()

    start = mean[q.learned].detach().numpy()
    best = torch.as_tensor(minimize(loss_and_gradient, start, jac=True, method="L-BFGS-B").x)
    curvature = torch.autograd.functional.hessian(loss, best)
    precision, vectors = torch.linalg.eigh(curvature)  # type: ignore[arg-type]
    least = 1.0 / std[q.learned].square().max()
    spread = (vectors.square() / precision.clamp_min(least)).sum(-1).sqrt()
    mean[q.learned], std[q.learned] = best, spread
    q.set_log_moments(mean, std)
