"""Likelihoods of measured outputs: the joint one (L2), the paper's, which keeps the diagonal of `Σ_C` (L1), and yours.

A likelihood is a class with the name and the density below. `equipoise.testing.check_likelihood` says whether one keeps
to the contract. It can be passed to `ConstrainedBNNRegressor(likelihood=...)`; training differentiates it by autograd.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from equipoise.errors import InputError, InputTypeError, check_choice
from equipoise.gaussian import Gaussian, hessian_root, independent_log_prob


class Likelihood(ABC):
    """The distribution of a row's measured outputs, given the Gaussian of its true ones.

    Attributes:
        name: Name in messages and model files.
        is_joint: Whether the outputs of a row are taken together, with all of `Σ_C`. Draws then obey the balances
            within their tolerances, and densities of exact balances are those on a subspace (L3).
        has_sensor_noise: Whether measured outputs differ from the true ones by sensor noise, which can be learned where
            balances tell the two apart; otherwise the measured values are taken for the true ones.
        normal_noise: Whether measured outputs are normal given the draw; if not, `sensor_noise` and `measured_cdf` are
            those of the likelihood.
    """

    name: ClassVar[str]
    is_joint: ClassVar[bool]
    has_sensor_noise: ClassVar[bool] = True
    normal_noise: ClassVar[bool] = True

    def __init_subclass__(cls, **options: Any) -> None:
        """Let a curvature serve only the class that has it: a subclass may differ."""
        super().__init_subclass__(**options)
        if "log_prob" in cls.__dict__ and "curvature_root" not in cls.__dict__:
            cls.curvature_root = Likelihood.curvature_root

    @abstractmethod
    def log_prob(
        self,
        gaussian: Gaussian,
        y: Float[Tensor, "... n_y"],
        sensor_var: Tensor | float = 0.0,
    ) -> Float[Tensor, "..."]:
        """Compute the log density of measured outputs.

        Args:
            gaussian: Distribution of the true outputs, conditioned on the balances if there are any, shape
                `(..., n_y)`. Leading axes are draws and rows; they broadcast against those of y.
            y: Measured outputs, NaN where not measured, shape `(..., n_y)`.
            sensor_var: Sensor variances `w ≥ 0`, broadcast against y.
        Returns:
            Log density of each row, in nats, float64, shape `(...)`, differentiable with respect to all that gaussian
            is made of and to `w`. `gaussian.var` and `w` may be 0, for an output that exact balances determine:
            `output_var` keeps the variance above rounding.
        """

    def curvature_root(
        self,
        gaussian: Gaussian,
        y: Float[Tensor, "... n_y"],
        sensor_var: Tensor | float = 0.0,
    ) -> Float[Tensor, "... n_y k"]:
        """Compute a root `L` of the curvature of `−log_prob` in the mean before conditioning, `F = L Lᵀ`.

        By default it is the Hessian by autograd with its negative eigenvalues set to 0, which takes n_y backward
        passes. Define it where there is a closed form. Arguments are those of `log_prob`.
        """
        return hessian_root(
            lambda mean: self.log_prob(gaussian.with_prior_mean(mean), y, sensor_var), gaussian.prior_mean
        )

    def curvature(
        self,
        gaussian: Gaussian,
        y: Float[Tensor, "... n_y"],
        sensor_var: Tensor | float = 0.0,
    ) -> Float[Tensor, "... n_y n_y"]:
        """Compute the curvature of `−log_prob` in the mean before conditioning; arguments are those of `log_prob`.

        Returns:
            Positive semidefinite matrices, shape `(..., n_y, n_y)`.
        """
        root = self.curvature_root(gaussian, y, sensor_var)
        return root @ root.mT

    def sensor_noise(self, normal: Float[Tensor, "... n_y"], sensor_var: Tensor | float) -> Float[Tensor, "... n_y"]:
        """Turn standard normal numbers into sensor noise of variance w; normal by default, `√w` times the numbers.

        Define it where the noise has another distribution, for instance by its quantiles at `Φ(normal)`. Noise is drawn
        independently for each output.

        Args:
            normal: Standard normal numbers.
            sensor_var: `w`, broadcast against them.
        """
        return torch.as_tensor(sensor_var, dtype=normal.dtype, device=normal.device).sqrt() * normal

    def measured_cdf(
        self,
        y: Float[Tensor, "... n_y"],
        mean: Float[Tensor, "... n_y"],
        var: Float[Tensor, "... n_y"],
        sensor_var: Tensor | float,
    ) -> Float[Tensor, "... n_y"]:
        """Compute the distribution function of each measured output, true value plus noise; normal by default.

        Where the noise is not normal, define it, and set `normal_noise` to False.

        Args:
            y: Values.
            mean, var: Moments of the true outputs.
            sensor_var: `w`, broadcast against them.
        """
        return torch.special.ndtr((y - mean) / (var + sensor_var).sqrt().clamp_min(torch.finfo(var.dtype).tiny))

    @staticmethod
    def output_var(gaussian: Gaussian) -> Float[Tensor, "... n_y"]:
        """Return the variances of the true outputs, kept above the rounding of those before conditioning.

        Args:
            gaussian: Distribution of the true outputs.
        """
        return gaussian.var_above_rounding()

    def __call__(
        self,
        gaussian: Gaussian,
        y: Float[Tensor, "... n_y"],
        sensor_var: Tensor | float = 0.0,
    ) -> Float[Tensor, "..."]:
        """Compute the log density of measured outputs; arguments are those of `log_prob`."""
        return self.log_prob(gaussian, y, sensor_var)

    def settings(self) -> dict[str, Any]:
        """Return the arguments with which the class makes this likelihood again, as JSON can hold them."""
        return {}

    def __repr__(self) -> str:
        settings = ", ".join(f"{name}={value!r}" for name, value in self.settings().items())
        return f"{type(self).__name__}({settings})"


class Marginal(Likelihood):
    """The paper's likelihood, which treats outputs as independent given the network's weights.

    ::

        log p(y | t) = Σ_j log N(y_j; μ_C,j , v_C,j + w_j)                         (L1)

    The paper has `w = 0`. `v_C` is kept above the rounding of `v`, so that an output that its balance determines
    completely has a finite density. The terms of outputs that were not measured are dropped.

    Example:
        >>> from equipoise import DiagonalGaussian
        >>> marginal(DiagonalGaussian(torch.zeros(2), torch.ones(2)), torch.tensor([0.0, torch.nan]))
        tensor(-0.9189)
    """

    name, is_joint, has_sensor_noise = "marginal", False, False

    def log_prob(
        self,
        gaussian: Gaussian,
        y: Float[Tensor, "... n_y"],
        sensor_var: Tensor | float = 0.0,
    ) -> Float[Tensor, "..."]:
        """Compute (L1); arguments are those of `Likelihood.log_prob`."""
        return independent_log_prob(y, gaussian.mean, self.output_var(gaussian) + sensor_var)

    def curvature_root(
        self,
        gaussian: Gaussian,
        y: Float[Tensor, "... n_y"],
        sensor_var: Tensor | float = 0.0,
    ) -> Float[Tensor, "... n_y k"]:
        """Compute `(1 − K B)ᵀ diag(v_C + w)^{−½}` (L5); arguments are those of `Likelihood.log_prob`."""
        precision = torch.where(y.isnan(), 0.0, 1.0 / (self.output_var(gaussian) + sensor_var)).sqrt()
        slope = gaussian.B.mT @ gaussian.gain_rows()[..., : precision.shape[-1]]
        kept = torch.eye(precision.shape[-1], dtype=slope.dtype, device=slope.device) - slope
        return kept * precision.unsqueeze(-2)


class Joint(Likelihood):
    """The density of all measured outputs together; outputs that were not measured are marginalised (L2).

    Example:
        >>> from equipoise import DiagonalGaussian
        >>> joint(DiagonalGaussian(torch.zeros(2), torch.ones(2)), torch.zeros(2), sensor_var=1.0)
        tensor(-2.5310)
    """

    name, is_joint = "joint", True

    def log_prob(
        self,
        gaussian: Gaussian,
        y: Float[Tensor, "... n_y"],
        sensor_var: Tensor | float = 0.0,
    ) -> Float[Tensor, "..."]:
        """Compute (L2); arguments are those of `Likelihood.log_prob`."""
        return gaussian.log_prob(y, sensor_var)

    def curvature_root(
        self,
        gaussian: Gaussian,
        y: Float[Tensor, "... n_y"],
        sensor_var: Tensor | float = 0.0,
    ) -> Float[Tensor, "... n_y k"]:
        """Compute a root by m × m algebra (L5); arguments are those of `Likelihood.log_prob`."""
        return gaussian.curvature_root(y, sensor_var)


joint, marginal = Joint(), Marginal()
LIKELIHOODS: Mapping[str, Likelihood] = {"joint": joint, "marginal": marginal}


def as_likelihood(likelihood: Any) -> Likelihood:
    """Return the likelihood that a user names or passes.

    Args:
        likelihood: "joint", "marginal" or a `Likelihood`.
    Raises:
        InputError: For another name, or a class of yours with one of these names.
        InputTypeError: If it is neither a name nor a likelihood, for instance a class instead of an object.

    Example:
        >>> as_likelihood("joint").is_joint
        True
    """
    if isinstance(likelihood, Likelihood):
        name, is_joint = (getattr(likelihood, attribute, None) for attribute in ("name", "is_joint"))
        if not (isinstance(name, str) and name and isinstance(is_joint, bool)):
            rule = f"{type(likelihood).__name__} must have a name, and is_joint must be True or False"
            raise InputError(f"{rule}, but got name={name!r} and is_joint={is_joint!r}. Set them in the class.")
        own = LIKELIHOODS.get(name, likelihood)
        if type(own) is not type(likelihood):
            rule = f"{type(likelihood).__name__} must have a name of its own, but got {likelihood.name!r}"
            raise InputError(f"{rule}, which belongs to the library. Give the class another one.")
        return likelihood
    if not isinstance(likelihood, str):
        advice = "Pass an object of a class that derives from equipoise.Likelihood."
        raise InputTypeError(f"likelihood must be a name or a Likelihood, but got {likelihood!r}. {advice}")
    check_choice("likelihood", likelihood, LIKELIHOODS)
    return LIKELIHOODS[likelihood]
