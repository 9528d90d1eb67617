"""Posteriors of variances with priors of any kind: divergences, starts, groups of balances, and numbers for tables."""

import math

import numpy as np
import pytest
import scipy.integrate
import scipy.stats
import torch
from outside import Asinh, HalfNormal

import equipoise as eq
from equipoise.gaussian.tolerance import LogNormalVariance, TolerancePrior, tolerance_posterior
from equipoise.gaussian.variances import PriorMatchedVariance, VariancesByPrior, log_normal_moments


def one(value: float) -> torch.Tensor:
    return torch.tensor([value], dtype=torch.float64)


def half_normal_log_density(rho, std):
    """Scipy's half-normal density of s = exp(ρ / 2), with ds/dρ = s / 2."""
    s = np.exp(0.5 * rho)
    return scipy.stats.halfnorm.logpdf(s, scale=std) + np.log(0.5 * s)


# --- The divergence ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("closed_form", [True, False])
@pytest.mark.parametrize(("mean", "std"), [(-2.0, 0.3), (-7.0, 1.5), (-4.0, 2.5)])
def test_the_divergence_from_a_half_normal_prior_is_that_of_numerical_integration(closed_form, mean, std):
    q = PriorMatchedVariance(HalfNormal(0.2, closed_form=closed_form), one(0.0))
    q.loc.data, q.log_std.data = one(mean), one(math.log(std))

    def integrand(rho):
        log_q = scipy.stats.norm.logpdf(rho, mean, std)
        return np.exp(log_q) * (log_q - half_normal_log_density(rho, 0.2))

    expected, _ = scipy.integrate.quad(integrand, mean - 12 * std, mean + 12 * std, epsabs=1e-11, limit=500)
    assert float(q.kl_terms().detach()) == pytest.approx(expected, rel=1e-6)  # of the integration


def test_a_general_posterior_with_a_gaussian_prior_is_the_log_normal_one():
    prior = TolerancePrior(-4.0, 2.0)
    general, closed = PriorMatchedVariance(prior, one(0.7), 1e-9), prior.posterior(one(0.7), one(1e-9))
    assert float(general.kl_at_start()) == pytest.approx(0.0, abs=1e-9)
    for q in (general, closed):
        q.loc.data, q.log_std.data = one(-5.0), one(0.2)
    torch.testing.assert_close(general.kl_terms(), closed.kl_terms(), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(general.prior_log_moments(), closed.prior_log_moments(), rtol=1e-9, atol=1e-9)


# --- The start --------------------------------------------------------------------------------------------------------


def test_the_start_is_the_normal_that_diverges_least_from_a_half_normal_prior():
    """Of s² = 1: KL = −½ log(2πe) − log σ − m / 2 + exp(m + σ²/2) / 2 + ½ log(2π), smallest at m = −1, σ = √2."""
    q = PriorMatchedVariance(HalfNormal(1.0), one(0.3))
    assert float(q.loc.detach()) == pytest.approx(-1.0 + 0.3, abs=1e-4)
    assert float(q.std_at_start()) == pytest.approx(math.sqrt(2.0), abs=1e-4)
    assert float(q.kl_at_start()) == pytest.approx(0.5 - 0.5 * math.log(2.0), abs=1e-7)


def test_moments_of_a_prior_are_those_of_its_distribution():
    """The logarithm of a χ² variable with one degree of freedom has mean ψ(½) + log 2 and variance ψ′(½) = π²/2."""
    mean, std = HalfNormal(0.2).log_moments()
    assert mean == pytest.approx(float(scipy.special.digamma(0.5)) + math.log(2.0) + 2 * math.log(0.2), abs=1e-6)
    assert std == pytest.approx(math.pi / math.sqrt(2.0), rel=1e-6)


@pytest.mark.parametrize(
    "make", [lambda: HalfNormal(0.2).posterior(one(0.0), one(0.0)), lambda: Asinh(0.2).posterior(one(0.0), one(0.0))]
)
def test_starting_values_are_medians_and_at_most_the_priors_centre_where_that_is_asked(make):
    q = make()
    centre = float(q.median().detach())
    q.start_at(one(1e-5), log_std=-1.5, below_prior=True)
    assert float(q.median().detach()) == pytest.approx(1e-5, rel=1e-9)
    q.start_at(one(1e6), below_prior=True)
    assert float(q.median().detach()) == pytest.approx(centre, rel=1e-9)
    q.start_at(one(1e6))
    assert float(q.median().detach()) == pytest.approx(1e6, rel=1e-9)


# --- Balances with different priors -----------------------------------------------------------------------------------


NAMES, SCALE = ("mass", "heat", "charge", "volume"), torch.tensor([0.5, 20.0, 1.0, 3.0], dtype=torch.float64)
MIXED = {"mass": HalfNormal(0.1), "heat": 0.4, "charge": TolerancePrior(-3.0, 1.0), "volume": HalfNormal(0.1, False)}


def test_each_balance_keeps_its_own_prior_unit_and_place():
    q = tolerance_posterior(MIXED, NAMES, SCALE, 1e-10)
    assert isinstance(q, VariancesByPrior)
    assert q.learned.tolist() == [True, False, True, True]
    alone = [tolerance_posterior(MIXED[name], [name], SCALE[k : k + 1], 1e-10) for k, name in enumerate(NAMES)]
    normal = torch.randn(5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    draws = torch.cat([each.from_normal(normal[:, k : k + 1]) for k, each in enumerate(alone)], -1)
    torch.testing.assert_close(q.from_normal(normal), draws, rtol=0.0, atol=0.0)
    torch.testing.assert_close(q.kl_terms(), torch.cat([each.kl_terms() for each in alone]), rtol=0.0, atol=0.0)
    means = torch.cat([each.prior_log_moments()[0] for each in alone])[[0, 2, 3]]
    torch.testing.assert_close(q.prior_log_moments()[0][[0, 2, 3]], means, rtol=0.0, atol=0.0)
    assert [q.summary(k, 2.0) for k in range(4)] == [each.summary(0, 2.0) for each in alone]
    assert [prior and prior.relative for prior in q.priors] == [True, None, None, False]


def test_balances_with_equal_priors_share_a_posterior():
    q = tolerance_posterior({name: HalfNormal(0.1) for name in NAMES}, NAMES, SCALE)
    assert isinstance(q, VariancesByPrior)
    assert [len(part.loc) for part in q.parts] == [4]


def test_log_normal_priors_need_no_groups_whatever_their_numbers():
    q = tolerance_posterior(
        {"mass": TolerancePrior(-3.0, 1.0), "heat": 0, "charge": TolerancePrior.paper()}, NAMES, SCALE
    )
    assert type(q) is LogNormalVariance
    assert q.priors == (None,) * 4


def test_a_prior_in_the_balances_own_unit_does_not_depend_on_its_scale():
    own, relative = (
        tolerance_posterior(HalfNormal(0.2, is_relative), ["mass"], one(7.0)) for is_relative in (False, True)
    )
    assert float(own.median().detach()) * 49.0 == pytest.approx(float(relative.median().detach()), rel=1e-9)


def test_a_prior_with_a_name_of_the_library_or_none_is_refused():
    class Taken(HalfNormal):
        name = "log-normal"

    class Derived(TolerancePrior):
        pass

    class Nameless(eq.VariancePrior):
        def log_prob(self, rho):
            return -rho.square()

    for prior, name in [(Taken(), "Taken"), (Derived(), "Derived"), (Nameless(), "Nameless")]:
        with pytest.raises(eq.EquipoiseError, match=f"{name} must have a name of its own"):
            tolerance_posterior(prior, ["mass"], one(1.0))


# --- Numbers for tables -----------------------------------------------------------------------------------------------


class ByQuadrature(LogNormalVariance):
    """A log-normal variance without its closed forms."""

    log_moments, moments = eq.VariancePosterior.log_moments, eq.VariancePosterior.moments
    _learned_summary = eq.VariancePosterior._learned_summary


def test_numbers_by_quadrature_are_the_closed_forms_of_a_log_normal_variable():
    closed, general = (kind(one(-6.0), one(3.0), one(math.nan)) for kind in (LogNormalVariance, ByQuadrature))
    for q in (closed, general):
        q.loc.data, q.log_std.data = one(-4.0), one(-0.7)
    expected, summary = closed.summary(0, 3.0), general.summary(0, 3.0)
    assert summary.pop("kind") == expected.pop("kind") == "learned"
    assert summary == pytest.approx(expected, rel=1e-9)


def test_the_grid_of_evidence_covers_prior_and_posterior():
    q = LogNormalVariance(one(-6.0), one(3.0), one(math.nan), 1e-3)
    q.loc.data, q.log_std.data = one(-4.0), one(math.log(0.5))
    grid, rho = q.evidence_grid(0, 3), np.array([-15.0, -6.0, 3.0, -5.0, -4.5, -4.0, -3.5, -3.0])
    np.testing.assert_allclose(grid.variances, np.exp(rho) + 1e-3, rtol=1e-13)
    np.testing.assert_allclose(np.diff(grid.log_prior), np.diff(scipy.stats.norm.logpdf(rho, -6.0, 3.0)), atol=1e-12)
    assert (grid.n_over_prior, grid.centre) == (3, 5)


@pytest.mark.parametrize(("mu", "std"), [(0.0, 1.0), (-2.0, 1.0), (-13.6, 0.23), (-6.0, 3.0)])
def test_log_normal_moments_are_those_of_the_distribution(mu, std):
    expected = scipy.stats.lognorm(s=std, scale=math.exp(mu)).stats("mv")
    np.testing.assert_allclose(log_normal_moments(mu, std), [expected[0], math.sqrt(expected[1])], rtol=1e-9)


def test_the_standard_deviation_of_a_nearly_certain_log_normal_keeps_its_digits():
    np.testing.assert_allclose(log_normal_moments(0.0, 1e-9), [1.0, 1e-9], rtol=1e-13)
