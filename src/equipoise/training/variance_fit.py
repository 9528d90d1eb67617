"""Variances fitted to the evidence: variance heads, tolerances and sensors, while the weights are integrated out.

A network that has learned its rows by heart leaves residuals that are too small. The evidence of the linearised network
(K6) knows by how much. Its gradient in the variances is that of the expected log likelihood under the posterior of the
means, in which L2 is quadratic: `2 n_y` sigma points beside the mode give that expectation exactly. A head is a linear
map of the last hidden units; its weights have a normal prior whose precision follows from their own evidence, so that a
head without support is a constant.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float
from scipy.optimize import minimize
from torch import Tensor

from equipoise.data import Rows
from equipoise.gaussian import DiagonalGaussian, Gaussian
from equipoise.network import LOG_VAR_BOUND, ConstrainedBNN
from equipoise.training.evidence import LinearEvidence, Measurements, PriorPrecisions, TangentKernel

VARIANCE_PRIOR = (-8.0, 3.0)  # mean and standard deviation of the logarithm of v: sensors explain what they can
HEAD_PRECISIONS = (1e-1, 1e6)


@dataclass
class VarianceHead:
    """A variance head as a linear map of centred hidden units of unit size: `raw = level + units · slopes`.

    Args:
        units: Centred hidden units of the rows, scaled so that the first principal component has variance 1.
        centre, scale: By which they were centred and scaled.
        level: Raw value at the centre, shape `(n_y,)`.
        slopes: Weights, shape `(h, n_y)`.
    """

    units: Float[Tensor, "n h"]
    centre: Float[Tensor, " h"]
    scale: float
    level: Float[Tensor, " n_y"]
    slopes: Float[Tensor, "h n_y"]

    @classmethod
    def of(cls, model: ConstrainedBNN, weights: Float[Tensor, " P"], x: Float[Tensor, "n n_x"]) -> "VarianceHead":
        """Read the head of a weight vector.

        Args:
            model: The model.
            weights: The weight vector.
            x: Rows over which hidden units are centred.
        """
        network, n_y = model.network, model.network.n_outputs
        units = network.features(weights, x.to(weights.dtype)).double()
        W, bias = (part.double() for part in network.layers(weights)[-1])
        centre = units.mean(0)
        largest = float(torch.linalg.matrix_norm(units - centre, 2)) if units.shape[1] else 0.0
        scale = max(largest / len(units) ** 0.5, 1e-12)
        head = slice(n_y, 2 * n_y)
        level = bias[head] + centre @ W[:, head]
        return cls((units - centre) / scale, centre, scale, level, W[:, head] * scale)

    @torch.no_grad()
    def write(self, model: ConstrainedBNN, weights: Float[Tensor, " P"]) -> None:
        """Write the head into a weight vector, in place.

        Args:
            model: The model.
            weights: The weight vector.
        """
        n_y, (W, bias) = model.network.n_outputs, model.network.layers(weights)[-1]
        slopes = self.slopes / self.scale
        W[:, n_y : 2 * n_y] = slopes.to(W)
        bias[n_y : 2 * n_y] = (self.level - self.centre @ slopes).to(bias)

    def var(self) -> Float[Tensor, "n n_y"]:
        """Compute the variances of the rows (V3)."""
        return log_var(self.level + self.units @ self.slopes).exp()

    def nearest_to(self, var: Float[Tensor, "n n_y"], precisions: Float[Tensor, " n_y"]) -> "VarianceHead":
        """Return the head over the same hidden units that comes closest to known variances.

        Least squares of log v count a half for each row, which is Fisher's information of a normal likelihood.

        Args:
            var: The variances of the rows.
            precisions: Prior precision of each output's slopes.
        """
        raw = LOG_VAR_BOUND * torch.atanh((var.log() / LOG_VAR_BOUND).clamp(-0.99, 0.99))
        level, U = raw.mean(0), self.units
        curvature = 0.5 * U.mT @ U + torch.diag_embed(precisions[:, None].expand(-1, U.shape[1]))
        slopes = torch.linalg.solve(curvature, 0.5 * (U.mT @ (raw - level)).mT.unsqueeze(-1)).squeeze(-1).mT
        return replace(self, level=level, slopes=slopes)


def log_var(raw: Tensor) -> Tensor:
    """Compute `log v` from raw units of the variance head (V3)."""
    return LOG_VAR_BOUND * torch.tanh(raw / LOG_VAR_BOUND)


@dataclass(frozen=True)
class FittedMember:
    """A member with all that its evidence depends on beside variances.

    Args:
        weights: The member's weights `θ*`.
        kernel: Its network, linearised.
        precisions: `Δ`.
        covariance: `J Δ⁻¹ Jᵀ`; None if the weights are held at `θ*`, and not integrated out.
        head: Its variance head.
        freedom: Share of the measured numbers that the weights leave free. Where the weights are held, errors are as
            much larger as residuals are smaller for having been fitted.
    """

    weights: Float[Tensor, " P"]
    kernel: TangentKernel
    precisions: PriorPrecisions
    covariance: Float[Tensor, "n_by_n_y n_by_n_y"] | None
    head: VarianceHead
    freedom: float = 1.0


class VarianceFit:
    """Fits variance heads of all members, and the tolerances and sensors that they share, to the evidence.

    Args:
        model: The model; tolerances and sensors are changed in place.
        rows: The rows.
        members: The members.
        head_precision: Prior precision of each head's slopes, shape `(M, n_y)`, changed in place.
        weight: Number of rows of the data set that each row stands for.
    """

    def __init__(
        self,
        model: ConstrainedBNN,
        rows: Rows,
        members: Sequence[FittedMember],
        head_precision: Float[Tensor, "M n_y"],
        weight: float = 1.0,
    ):
        self.model, self.rows, self.members, self.weight = model, rows, list(members), weight
        self.head_precision = head_precision
        self.tolerance = None if model.conditioning is None else model.conditioning.tolerance
        self.sensor = model.sensor

    def run(self, heads: bool = True, steps: int = 12) -> float:
        """Fit, and return the mean log evidence of the members, priors included.

        Args:
            heads: Whether the slopes of the heads are fitted, too; otherwise their levels alone.
            steps: Number of steps of the optimizer.
        """
        start = self._pack(heads)
        value = minimize(
            self._objective, start.numpy(), args=(heads,), jac=True, method="L-BFGS-B", options={"maxiter": steps}
        )
        self._unpack(torch.as_tensor(value.x, device=self.rows.x.device), heads)
        with torch.no_grad():
            for member in self.members:
                member.head.write(self.model, member.weights)
        if heads:
            self._update_head_precisions()
        return -float(value.fun)

    @torch.no_grad()
    def set_spreads(self) -> None:
        """Set the standard deviations of log tolerances and log sensor variances from the curvature of the evidence."""
        start = self._pack(heads=False)
        n_levels = len(self.members) * self.model.network.n_outputs
        n, step = len(start), 1e-3
        if n == n_levels:
            return
        rows = []
        for i in range(n):
            moved = [start.clone(), start.clone()]
            moved[0][i] += step
            moved[1][i] -= step
            above, below = (torch.as_tensor(self._objective(part.numpy(), False)[1]) for part in moved)
            rows.append((above - below) / (2 * step))
        H = torch.stack(rows)
        values, vectors = torch.linalg.eigh(0.5 * (H + H.mT))
        var = (vectors.square() / values.clamp_min(1e-2)).sum(1)[n_levels:].to(self.rows.x.device)
        for posterior in (self.tolerance, self.sensor):
            if posterior is not None and bool(posterior.learned.any()):
                count = int(posterior.learned.sum())
                mean, std = posterior.log_moments()
                largest = posterior.prior_log_moments()[1]
                std = torch.minimum(std.masked_scatter(posterior.learned, var[:count].sqrt()), largest)
                posterior.set_log_moments(mean, std)
                var = var[count:]

    def _pack(self, heads: bool) -> Tensor:
        parts = [member.head.level for member in self.members]
        parts += [part.log_moments()[0][part.learned] for part in (self.tolerance, self.sensor) if part is not None]
        parts += [member.head.slopes.flatten() for member in self.members] if heads else []
        return torch.cat(parts).double().cpu().clone()

    def _split(self, values: Tensor, heads: bool) -> tuple[list[Tensor], dict[str, Tensor], list[Tensor]]:
        n_y, M = self.model.network.n_outputs, len(self.members)
        shared = {"tolerance": self.tolerance, "sensor": self.sensor}
        counts = {name: int(part.learned.sum()) for name, part in shared.items() if part is not None}
        sizes = [n_y] * M + list(counts.values())
        sizes += [member.head.slopes.numel() for member in self.members] if heads else []
        parts = list(values.split(sizes))
        levels, rest = parts[:M], parts[M:]
        slopes = [member.head.slopes for member in self.members]
        if heads:
            slopes = [part.view_as(old) for part, old in zip(rest[len(counts) :], slopes, strict=True)]
        return levels, dict(zip(counts, rest, strict=False)), slopes

    @torch.no_grad()
    def _unpack(self, values: Tensor, heads: bool) -> None:
        levels, shared, slopes = self._split(values, heads)
        for member, level, slope in zip(self.members, levels, slopes, strict=True):
            member.head.level, member.head.slopes = level.clone(), slope.clone()
        for name, part in shared.items():
            posterior = getattr(self, name)
            mean, std = posterior.log_moments()
            posterior.set_log_moments(mean.masked_scatter(posterior.learned, part), std)

    def _objective(self, numbers: np.ndarray, heads: bool) -> tuple[float, np.ndarray]:
        values = torch.tensor(numbers, dtype=torch.float64, device=self.rows.x.device, requires_grad=True)
        with torch.enable_grad():
            value, loss = self._loss(values, heads)
            (gradient,) = torch.autograd.grad(loss, values)
        return value, gradient.cpu().numpy()

    def _loss(self, values: Tensor, heads: bool) -> tuple[float, Tensor]:
        """Return the negative log evidence with priors, and a function of `values` that has its gradient."""
        levels, shared, slopes = self._split(values, heads)
        tol_var = self._variances(self.tolerance, shared.get("tolerance"))
        sensor_var: Tensor | float = 0.0
        if self.rows.sensor_var is not None:
            sensor_var = self.rows.sensor_var
        elif self.sensor is not None:
            sensor_var = self._variances(self.sensor, shared["sensor"])  # type: ignore[assignment]
        prior_mean, prior_std = VARIANCE_PRIOR
        total, value = values.new_zeros(()), 0.0
        for member, level, slope, precision in zip(self.members, levels, slopes, self.head_precision, strict=True):
            var = log_var(level + member.head.units @ slope).exp()
            prior = 0.5 * ((log_var(level) - prior_mean) / prior_std).square().sum()
            prior = prior + 0.5 * (precision * slope.square()).sum()
            points, share, log_evidence = self._expanded(member, var, tol_var, sensor_var)
            density = self.model.likelihood(self._gaussian(points, var, tol_var), self.rows.y, sensor_var).sum(-1)
            total = total - self.weight * (share * density).sum() + prior
            value += float(prior.detach()) - self.weight * log_evidence
        M = len(self.members)
        total, value = total / M, value / M
        for name, part in shared.items():
            posterior = getattr(self, name)
            entries = enumerate(posterior.learned.nonzero().flatten().tolist())
            log_prior = [posterior.prior_log_prob(part[i : i + 1], k) for i, k in entries]
            prior = -torch.cat([part[:0], *log_prior]).sum()
            total, value = total + prior, value + float(prior.detach())
        return value, total

    def _gaussian(self, mean: Tensor, var: Tensor, tol_var: Tensor | None) -> Gaussian:
        offset = None if self.model.conditioning is None else self.model.conditioning.offset
        shift = None if offset is None else offset.loc.detach()
        prior = DiagonalGaussian(mean, var.expand_as(mean))
        return self.model.condition(prior, self.rows.target, tol_var, shift, self.rows.B)

    @torch.no_grad()
    def _expanded(
        self, member: FittedMember, var: Tensor, tol_var: Tensor | None, sensor_var: Tensor | float
    ) -> tuple[Float[Tensor, "n_points n n_y"], Float[Tensor, " n_points"], float]:
        """Return sigma points of the posterior of the means with their weights, and the log evidence (K6)."""
        if member.covariance is None:
            mean, y = member.kernel.head.mean, self.rows.y
            mean = torch.where(y.isnan(), mean, y + (mean - y) / member.freedom**0.5)
            density = self.model.likelihood(self._gaussian(mean, var, tol_var), self.rows.y, sensor_var)
            return mean[None], mean.new_ones(1), float(density.sum())
        evidence = LinearEvidence(
            member.kernel, member.precisions, self._measurements(member, var, tol_var, sensor_var), member.covariance
        )
        mode, steps = evidence.mode, evidence.spreads
        points = torch.cat([mode[None], mode + steps, mode - steps])
        share = torch.full((len(points),), 0.5, dtype=points.dtype, device=points.device)
        share[0] = 1.0 - len(steps)
        return points, share, evidence.log_evidence

    def _measurements(
        self, member: FittedMember, var: Tensor, tol_var: Tensor | None, sensor_var: Tensor | float
    ) -> Measurements:
        return Measurements.of(
            self.model.likelihood,
            lambda mean: self._gaussian(mean, var, tol_var),
            member.kernel.head.mean,
            self.rows.y,
            sensor_var,
        )

    @staticmethod
    def _variances(posterior, learned: Tensor | None) -> Tensor | None:
        if posterior is None:
            return None
        rho = posterior.log_moments()[0].clone()
        if learned is not None and len(learned):
            rho = rho.masked_scatter(posterior.learned, learned)
        return posterior.at(rho)

    @torch.no_grad()
    def _update_head_precisions(self) -> None:
        """Move the prior precision of each head's slopes to MacKay's fixed point, with Fisher's information of `log v`.

        Under a normal likelihood that is `½ (v_j F_jj)²` for output j.
        """
        tol_var = None if self.tolerance is None else self.tolerance.median()
        sensor_var = self.rows.sensor_var if self.rows.sensor_var is not None else 0.0
        if self.rows.sensor_var is None and self.sensor is not None:
            sensor_var = self.sensor.median()
        for m, member in enumerate(self.members):
            var = member.head.var()
            F = self._measurements(member, var, tol_var, sensor_var).root.square().sum(-1)
            share = 0.5 * self.weight * (var * F).square()
            units = member.head.units
            for j in range(self.model.network.n_outputs):
                eigenvalues = torch.linalg.eigvalsh(units.mT @ (share[:, j, None] * units)).clamp_min(0.0)
                gamma = float((eigenvalues / (eigenvalues + self.head_precision[m, j])).sum())
                best = (gamma + 1e-3) / (float(member.head.slopes[:, j].square().sum()) + 1e-9)
                self.head_precision[m, j] = min(max(best, HEAD_PRECISIONS[0]), HEAD_PRECISIONS[1])
