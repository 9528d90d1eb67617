"""Checks pass likelihoods that keep to the contract, also from outside the package, and name what does not."""

import numpy as np
import pytest
import torch
from outside import LaplaceNoise
from scipy import integrate, stats

import equipoise as eq
from equipoise.network.likelihood import Marginal, joint, marginal
from equipoise.testing import check_likelihood, likelihood_checks


class _Wrong(Marginal):
    name = "wrong"


LIKELIHOODS = {"joint": joint, "marginal": marginal, "outside": LaplaceNoise()}


CHECKS = [
    pytest.param(check, id=f"{who}: {name}")
    for who, likelihood in LIKELIHOODS.items()
    for name, check in likelihood_checks(likelihood)
]


class Fragile(_Wrong):
    def log_prob(self, gaussian, y, sensor_var=0.0):
        mean, measured = gaussian.mean, ~y.isnan()
        normal = torch.distributions.Normal(mean, (gaussian.var + sensor_var).sqrt(), validate_args=False)
        return torch.where(measured, normal.log_prob(torch.where(measured, y, mean)), 0.0).sum(-1)


def test_a_density_without_a_floor_is_told_before_a_fit_fails():
    with pytest.raises(AssertionError, match=r"determined outputs have a density: .* by Likelihood\.output_var"):
        check_likelihood(Fragile())


def test_a_likelihood_is_shown_with_its_settings():
    assert repr(LaplaceNoise(1e-9)) == "LaplaceNoise(least=1e-09)"
    assert repr(joint) == "Joint()"


@pytest.mark.usefixtures("long_training")
@pytest.mark.parametrize("check", CHECKS)
def test_a_likelihood_keeps_to_the_contract(check):
    check()


def test_the_outside_density_is_the_convolution_of_a_normal_and_a_laplace_number():
    gaussian = eq.DiagonalGaussian(torch.tensor([0.3]).double(), torch.tensor([0.5]).double())
    y, w = 1.1, 0.8
    expected, _ = integrate.quad(
        lambda e: stats.laplace.pdf(e, scale=np.sqrt(w / 2)) * stats.norm.pdf(y - e, 0.3, np.sqrt(0.5)), -30, 30
    )
    found = LaplaceNoise().log_prob(gaussian, torch.tensor([y]).double(), torch.tensor([w]).double())
    assert float(found) == pytest.approx(np.log(expected), rel=1e-6)  # of the integration


class SumOfRows(_Wrong):
    def log_prob(self, gaussian, y, sensor_var=0.0):
        return super().log_prob(gaussian, y, sensor_var).sum()


class NotNormalised(_Wrong):
    def log_prob(self, gaussian, y, sensor_var=0.0):
        return super().log_prob(gaussian, y, sensor_var) + 0.1 * (~y.isnan()).any(-1)


class MissingIsNaN(_Wrong):
    def log_prob(self, gaussian, y, sensor_var=0.0):
        return super().log_prob(gaussian, y, sensor_var) + 0.0 * y.sum(-1)


class Detached(_Wrong):
    def log_prob(self, gaussian, y, sensor_var=0.0):
        value = super().log_prob(gaussian, y, sensor_var)
        return value.detach() + 0.5 * (value - value.detach())


class FixedWidth(_Wrong):
    """A smooth density with a length of its own, which other units do not share."""

    def log_prob(self, gaussian, y, sensor_var=0.0):
        wider = eq.DiagonalGaussian(gaussian.mean, gaussian.var + 0.2)
        return super().log_prob(wider, y, sensor_var)


class ForgetsSettings(_Wrong):
    def __init__(self, scale=1.0):
        self.scale = scale

    def log_prob(self, gaussian, y, sensor_var=0.0):
        return self.scale * super().log_prob(gaussian, y, sensor_var)


class FalselyJoint(_Wrong):
    is_joint = True


class FalselyIndependent(type(joint)):
    name, is_joint = "falsely independent", False


class NotNormalisedTogether(_Wrong):
    """Right for one output, wrong by 0.1 nats for each further one."""

    def log_prob(self, gaussian, y, sensor_var=0.0):
        measured = (~y.isnan()).sum(-1)
        return super().log_prob(gaussian, y, sensor_var) + 0.1 * (measured - 1).clamp_min(0)


class CurvatureOfConditionedMean(_Wrong):
    """The curvature in the mean after conditioning instead of before."""

    def curvature_root(self, gaussian, y, sensor_var=0.0):
        return torch.diag_embed(torch.where(y.isnan(), 0.0, 1.0 / (gaussian.var + sensor_var)).sqrt())


class NoiseGrowsWithTheMean(_Wrong):
    """Relative noise about an origin, which the means of the training data move."""

    def log_prob(self, gaussian, y, sensor_var=0.0):
        return super().log_prob(gaussian, y, sensor_var + 0.25 * gaussian.mean.square())

    def curvature_root(self, gaussian, y, sensor_var=0.0):
        return eq.Likelihood.curvature_root(self, gaussian, y, sensor_var)


class NoiseAboutZero(LaplaceNoise):
    """A distribution function about 0 wherever the mean is."""

    name = "noise about zero"

    def measured_cdf(self, y, mean, var, sensor_var):
        return super().measured_cdf(y, torch.zeros_like(mean), var, sensor_var)


class SensorsOfTheFirstDraw(_Wrong):
    has_sensor_noise = True

    def log_prob(self, gaussian, y, sensor_var=0.0):
        w = torch.as_tensor(sensor_var, dtype=torch.float64)
        return super().log_prob(gaussian, y, w[0] if w.ndim > 2 else w)


class CurvatureOfTheFirstDraw(SensorsOfTheFirstDraw):
    """Right in the density alone."""

    def log_prob(self, gaussian, y, sensor_var=0.0):
        return marginal.log_prob(gaussian, y, sensor_var)

    def curvature_root(self, gaussian, y, sensor_var=0.0):
        w = torch.as_tensor(sensor_var, dtype=torch.float64)
        return marginal.curvature_root(gaussian, y, w[0] if w.ndim > 2 else w)


class MeanOfSensors(LaplaceNoise):
    """One sensor variance for all outputs."""

    name = "mean of sensors"

    def sensor_noise(self, normal, sensor_var):
        return super().sensor_noise(normal, torch.as_tensor(sensor_var).mean())


class SilentlyNormal(LaplaceNoise):
    name = "silently normal"
    sensor_noise, measured_cdf = eq.Likelihood.sensor_noise, eq.Likelihood.measured_cdf


class StdOfNoise(LaplaceNoise):
    name = "std of noise"

    def sensor_noise(self, normal, sensor_var):
        return super().sensor_noise(normal, sensor_var**2)


class NormalSamples(LaplaceNoise):
    name = "normal samples"
    sensor_noise = eq.Likelihood.sensor_noise


class SinglePrecision(_Wrong):
    """The mean passes through float32, which rounds it in other units in another way."""

    def log_prob(self, gaussian, y, sensor_var=0.0):
        rounded = eq.DiagonalGaussian(gaussian.mean.float().double(), self.output_var(gaussian))
        return super().log_prob(rounded, y, sensor_var)


class MaskAfterwards(_Wrong):
    """Right in value, but zero times NaN is in its gradient."""

    def log_prob(self, gaussian, y, sensor_var=0.0):
        var = self.output_var(gaussian) + sensor_var
        return (-0.5 * ((y - gaussian.mean).square() / var + (2 * torch.pi * var).log())).nansum(-1)


class Learns(_Wrong):
    def __init__(self):
        self.log_degrees = torch.nn.Parameter(torch.zeros(()))


class NoFlags(eq.Likelihood):
    name = "no flags"
    is_joint = None

    def log_prob(self, gaussian, y, sensor_var=0.0):
        return marginal(gaussian, y, sensor_var)


@pytest.mark.parametrize(
    ("likelihood", "complaint"),
    [
        (NoFlags(), "its flags are set: is_joint must be True or False"),
        (ForgetsSettings(2.0), r"its settings make it again: a copy from settings\(\)"),
        (SumOfRows(), "rows are independent: without balances: expected one number per row"),
        (MissingIsNaN(), "missing outputs are left out"),
        (NotNormalised(), "its density integrates to one"),
        (NotNormalisedTogether(), "its density of two outputs integrates to one"),
        (FalselyJoint(), "its flag is joint tells how it behaves: is_joint must be False"),
        (FalselyIndependent(), "its flag is joint tells how it behaves: is_joint must be True"),
        (CurvatureOfConditionedMean(), "its curvature is that of the density: with a balance"),
        (SilentlyNormal(), "its noise and quantiles are those of the density: .*define measured_cdf"),
        (StdOfNoise(), "its noise and quantiles are those of the density: sensor_noise must have variance"),
        (NormalSamples(), "its noise and quantiles are those of the density: sensor_noise must have the distribution"),
        (SinglePrecision(), "units shift the log density: .*comes from float32"),
        (MaskAfterwards(), "its gradients are right: the gradient by mean is not finite where an output is missing"),
        (Learns(), "its flags are set: training moves no parameters of a likelihood, but log_degrees requires"),
        (FixedWidth(), "units shift the log density"),
        (NoiseGrowsWithTheMean(), "origins leave the log density: without balances: outputs plus"),
        (NoiseAboutZero(), "its noise and quantiles are those of the density: the derivative of measured_cdf"),
        (
            SensorsOfTheFirstDraw(),
            "draws are independent: without balances: second of two draws, with sensor variances",
        ),
        (CurvatureOfTheFirstDraw(), "draws are independent: .* second of two draws, .* own: curvature"),
        (MeanOfSensors(), "its noise and quantiles are those of the density: sensor_noise must have variance"),
        (Detached(), "its gradients are right"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, eq.Likelihood) else "",
)
def test_a_likelihood_that_does_not_is_told_by_the_name_of_the_check(likelihood, complaint):
    with pytest.raises(AssertionError, match=f"{type(likelihood).__name__}: {complaint}"):
        check_likelihood(likelihood)


@pytest.mark.usefixtures("long_training")
def test_a_model_with_an_outside_likelihood_needs_its_class_to_be_opened(tmp_path):
    rng = np.random.default_rng(0)
    X, Y = rng.uniform(-1, 1, (40, 1)), rng.normal(size=(40, 1))
    model = eq.ConstrainedBNNRegressor(likelihood=LaplaceNoise(1e-9), hidden=(3,), max_epochs=4, random_state=0)
    model.fit(X, Y).save(tmp_path / "m.safetensors")
    with pytest.raises(eq.ArtifactError, match=r"'laplace noise'. Pass its class: load\(path, implementations="):
        eq.load(tmp_path / "m.safetensors")
    again = eq.load(tmp_path / "m.safetensors", implementations=[LaplaceNoise])
    assert again.likelihood.least == again.model_.likelihood.least == 1e-9
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


def test_a_likelihood_without_a_name_is_refused_before_it_is_fitted():
    class Nameless(eq.Likelihood):
        is_joint = False
        log_prob = Marginal.log_prob

    with pytest.raises(eq.EquipoiseError, match=r"Nameless must have a name, .* but got name=None and is_joint=False"):
        eq.ConstrainedBNNRegressor(likelihood=Nameless()).fit(np.zeros((5, 1)), np.zeros((5, 1)))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("jiont", "likelihood must be one of 'joint', 'marginal', but got 'jiont'"),
        (LaplaceNoise, "likelihood must be a name or a Likelihood, but got <class .*Pass an object"),
    ],
)
def test_what_is_no_likelihood_is_refused_with_advice(value, message):
    with pytest.raises(eq.EquipoiseError, match=message):
        eq.ConstrainedBNNRegressor(likelihood=value).fit(np.zeros((5, 1)), np.zeros((5, 1)))


@pytest.mark.usefixtures("long_training")
def test_a_loss_that_is_not_finite_names_the_likelihood_that_may_be_why():
    class Infinite(_Wrong):
        def log_prob(self, gaussian, y, sensor_var=0.0):
            return super().log_prob(gaussian, y, sensor_var) * torch.nan

    model = eq.ConstrainedBNNRegressor(likelihood=Infinite(), hidden=(3,), max_epochs=4, random_state=0)
    with pytest.raises(eq.TrainingError, match=r"check_likelihood tells whether Infinite\(\) may be why"):
        model.fit(np.linspace(0, 1, 20)[:, None], np.linspace(0, 1, 20)[:, None] ** 2)
