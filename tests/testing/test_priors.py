"""Checks pass priors of tolerances that keep to the contract, also from outside the package, and name what does not."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from outside import Asinh, HalfNormal

import equipoise as eq
from equipoise import compiled
from equipoise.app.report import findings
from equipoise.app.report.balance_figures import tolerances
from equipoise.artifact import describe
from equipoise.gaussian.variances import PriorMatchedVariance
from equipoise.testing import check_tolerance_prior, tolerance_prior_checks
from equipoise.training.objective import Objective

PRIORS = {
    "log-normal": eq.TolerancePrior(-4.0, 2.0),
    "the paper's": eq.TolerancePrior.paper(),
    "outside": HalfNormal(0.2),
    "outside, by quadrature": HalfNormal(0.2, closed_form=False),
    "outside, own unit": HalfNormal(0.3, relative=False),
    "outside, another posterior": Asinh(0.2),
}
CHECKS = [
    pytest.param(check, id=f"{who}: {name}")
    for who, prior in PRIORS.items()
    for name, check in tolerance_prior_checks(prior)
]
BALANCES = eq.LinearConstraint.from_equations(["total = a + b", "twice = 2 * a"], outputs=["total", "a", "b", "twice"])


@pytest.mark.usefixtures("long_training")
@pytest.mark.parametrize("check", CHECKS)
def test_a_prior_keeps_to_the_contract(check):
    check()


# --- Priors that do not -----------------------------------------------------------------------------------------------


class NotNormalised(HalfNormal):
    name = "not normalised"

    def log_prob(self, rho):
        return super().log_prob(rho) + 0.1


class OfStandardDeviation(HalfNormal):
    """The density of s instead of that of ρ."""

    name = "of s"

    def log_prob(self, rho):
        return super().log_prob(rho) - 0.5 * rho + math.log(2.0)

    def log_moments(self):
        return HalfNormal(self.std).log_moments()


class WrongMoments(HalfNormal):
    name = "wrong moments"

    def log_moments(self):
        mean, std = super().log_moments()
        return mean, 2.0 * std


class WrongExpectation(HalfNormal):
    name = "wrong expectation"

    def expected_log_prob(self, mean, std):
        return self.log_prob(mean)


class ForgetsUnit(HalfNormal):
    name = "forgets its unit"

    def settings(self):
        return {"std": self.std}


class WithPosterior(HalfNormal):
    made: type[PriorMatchedVariance]

    def posterior(self, log_unit, floor):
        return self.made(self, log_unit, floor)


class HalfTheDivergence(WithPosterior):
    name = "half the divergence"

    class made(PriorMatchedVariance):  # noqa: N801
        def kl_terms(self):
            return 0.5 * super().kl_terms()


class NoUnit(WithPosterior):
    name = "no unit"

    def posterior(self, log_unit, floor):
        return PriorMatchedVariance(self, torch.zeros_like(log_unit), floor)


class NoFloor(WithPosterior):
    name = "no floor"

    class made(PriorMatchedVariance):  # noqa: N801
        def at(self, rho):
            return rho.exp() * 0.0 + 0.5 * self.floor


class Decreasing(WithPosterior):
    name = "decreasing"

    class made(PriorMatchedVariance):  # noqa: N801
        def from_normal(self, normal):
            return super().from_normal(-normal)


class Detached(WithPosterior):
    name = "detached"

    class made(PriorMatchedVariance):  # noqa: N801
        def from_normal(self, normal):
            return self.at(self.loc + self.std.detach() * normal)


@pytest.mark.parametrize(
    ("prior", "complaint"),
    [
        (NotNormalised(), "density integrates to one: the density of log r must integrate to 1, but got 1.10"),
        (OfStandardDeviation(), "density integrates to one"),
        (WrongMoments(), r"moments are those of the density: log_moments\(\) must be"),
        (WrongExpectation(), "expectation is that over draws"),
        (ForgetsUnit(0.2, False), r"settings make it again: a copy from settings\(\)"),
        (HalfTheDivergence(), r"posterior starts close to the prior: kl_at_start\(\)"),
        (NoUnit(), "units move the posterior: prior_log_moments must move by log_unit"),
        (NoFloor(), "draws increase and keep the floor: no variance may be below the floor"),
        (Decreasing(), "draws increase and keep the floor: from_normal must increase"),
        (Detached(), "parameters get gradients: draws: each parameter"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, eq.VariancePrior) else "",
)
def test_a_prior_that_does_not_is_told_by_the_name_of_the_check(prior, complaint):
    with pytest.raises(AssertionError, match=f"{type(prior).__name__}: {complaint}"):
        check_tolerance_prior(prior)


def test_a_class_instead_of_an_object_is_told_in_a_sentence():
    with pytest.raises(AssertionError, match=r"must be an object, but got the class. Pass HalfNormal\(\)"):
        check_tolerance_prior(HalfNormal)


# --- Through the estimator --------------------------------------------------------------------------------------------


def table(n=120, miss=0.1):
    """Rows in which the first balance is missed by `miss`, the second by a tenth of that; sensors have 0.02."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (n, 1))
    a, b = np.sin(2 * X[:, 0]), X[:, 0] ** 2
    Y = np.stack([a + b + miss * rng.normal(size=n), a, b, 2 * a + 0.1 * miss * rng.normal(size=n)], 1)
    return X, Y + 0.02 * rng.normal(size=Y.shape)


def fitted(tolerance, **parameters):
    settings = {"sensor_std": 0.02, "hidden": (8,), "max_epochs": 60, "random_state": 0} | parameters
    return eq.ConstrainedBNNRegressor(BALANCES, tolerance=tolerance, **settings).fit(*table())


@pytest.mark.usefixtures("long_training")
@pytest.mark.parametrize("kind", [HalfNormal, Asinh])
def test_a_fit_with_an_outside_prior_learns_reports_and_comes_back_from_a_file(kind, tmp_path):
    prior = kind(0.3, relative=False)
    model = fitted({"total = a + b": prior})
    row, rest = model.tolerances_.loc["total = a + b"], model.tolerances_.loc["twice = 2 * a"]
    assert row["tol_std_lower"] < 0.1 < row["tol_std_upper"] * 1.2
    assert (row["kind"], row["verdict"], rest["kind"]) == ("learned", "informed", "learned")
    assert row.index.tolist() == fitted(None, max_epochs=2).tolerances_.columns.tolist()
    assert len(model.history_.epochs[-1]["rho_mean"]) == len(model.history_.epochs[-1]["kl_tolerance"]) == 2
    model.save(path := tmp_path / "m.safetensors")
    named = describe(path).network.tolerance_priors
    assert [each and (each.prior, each.settings) for each in named] == [(prior.name, prior.settings()), None]
    with pytest.raises(eq.ArtifactError, match=rf"prior of tolerances must be known, but got '{prior.name}'\. Pass"):
        eq.load(path)
    again, X = eq.load(path, implementations=[kind]), table()[0]
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert json.dumps(again.tolerance["total = a + b"].settings()) == json.dumps(prior.settings())
    assert type(again.fit(*table())).__name__ == "ConstrainedBNNRegressor"


@pytest.mark.usefixtures("long_training")
def test_the_report_draws_the_outside_prior_itself():
    model = fitted(HalfNormal(0.3, relative=False), max_epochs=6)
    found = findings(model, *table())
    first, *_ = found.tolerances
    rho = first.prior_mu_rho + first.prior_sigma_rho * np.linspace(-3.5, 3.5, 121)
    expected = HalfNormal(0.3).log_prob(torch.as_tensor(rho)).exp().numpy()
    np.testing.assert_allclose(first.prior_density, expected, rtol=0.02)  # what lies beyond ± 3.5 sd is cut off
    (figure,) = tolerances(found)
    normal = tuple(replace(each, prior_density=None) for each in found.tolerances)
    assert figure.svg != tolerances(replace(found, tolerances=normal))[0].svg


@pytest.mark.usefixtures("long_training")
def test_a_tolerance_that_the_data_do_not_inform_is_not_called_informed():
    """Sensors that are far noisier than the balance hide its tolerance; the closest normal is 0.15 nat off."""
    model = fitted(HalfNormal(0.001), sensor_std=0.5)
    assert (model.tolerances_["kl"] > 0.1).all()
    assert (model.tolerances_["verdict"] == "not informed by the data").all()


@pytest.mark.usefixtures("long_training")
def test_the_laplace_posterior_fits_tolerances_with_an_outside_prior():
    row = fitted(
        {"total = a + b": HalfNormal(0.3, relative=False)}, posterior=eq.Laplace(1), max_epochs=200
    ).tolerances_.iloc[0]
    assert row["tol_std"] == pytest.approx(0.1, rel=0.3)
    assert row["tol_std_lower"] < row["tol_std"] < row["tol_std_upper"]


@pytest.mark.usefixtures("long_training")
def test_a_killed_run_goes_on_only_with_the_same_prior(tmp_path):
    whole = fitted(HalfNormal(0.3), max_epochs=8)
    fitted(HalfNormal(0.3), max_epochs=8, checkpoint=tmp_path / "run")
    again = fitted(HalfNormal(0.3), max_epochs=8, checkpoint=tmp_path / "run")
    np.testing.assert_array_equal(again.predict(table()[0]), whole.predict(table()[0]))
    with pytest.raises(eq.TrainingError, match="belongs to"):
        fitted(HalfNormal(0.3, closed_form=False), max_epochs=8, checkpoint=tmp_path / "run")


@pytest.mark.usefixtures("long_training")
def test_compiled_steps_serve_log_normal_variances_alone():
    models = [fitted(tolerance, max_epochs=1).model_ for tolerance in (None, HalfNormal(0.3), Asinh(0.3))]
    served = [Objective(model)._compiled is not None for model in models]
    assert served == [compiled.is_available(), False, False]
