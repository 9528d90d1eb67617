import math

import numpy as np
import pytest
import scipy.stats
import torch
from torch.distributions import Normal, kl_divergence

from equipoise.gaussian.tolerance import (
    GaussianOffset,
    LogNormalVariance,
    TolerancePrior,
    tolerance_posterior,
)

NAMES = ("mass", "heat", "charge")


def posterior(shift=(0.0, 0.0, 0.0), log_ratio=(0.0, 0.0, 0.0), fixed=(math.nan, math.nan, 0.25), floor=0.0):
    """A posterior with priors N(−6, 3²), N(−2, 1²), moved by `shift`, its standard deviations by `exp(log_ratio)`."""
    prior_mean, prior_std, fixed = (
        torch.tensor(part, dtype=torch.float64) for part in ([-6.0, -2.0, 0.0], [3.0, 1.0, 1.0], fixed)
    )
    q = LogNormalVariance(prior_mean, prior_std, fixed, floor)
    q.loc.data += torch.tensor(shift, dtype=torch.float64)
    q.log_std.data += torch.tensor(log_ratio, dtype=torch.float64)
    return q


# --- The posterior ----------------------------------------------------------------------------------------------------


def test_a_posterior_starts_at_its_prior():
    q = posterior()
    np.testing.assert_allclose(q.kl_terms().detach(), np.zeros(3), atol=1e-13)
    np.testing.assert_allclose(q.median().detach(), [math.exp(-6.0), math.exp(-2.0), 0.25], rtol=1e-13)


def test_the_kl_of_each_tolerance_is_that_of_two_normals_and_zero_where_fixed():
    q = posterior(shift=(2.0, -0.5, 7.0), log_ratio=(-1.0, 0.4, 3.0))
    expected = kl_divergence(Normal(q.loc, q.log_std.exp()), Normal(q.prior_mean, q.prior_std)).detach()
    np.testing.assert_allclose(q.kl_terms().detach()[:2], expected[:2], rtol=1e-13)
    assert q.kl_terms()[2] == 0.0


def test_the_kl_of_each_offset_is_that_to_a_standard_normal():
    q = GaussianOffset(3)
    q.loc.data, q.log_std.data = torch.tensor([[0.0, 2.0, -1.0], [0.0, -3.0, 1.0]], dtype=torch.float64)
    expected = kl_divergence(Normal(q.loc, q.log_std.exp()), Normal(0.0, 1.0))
    np.testing.assert_allclose(q.kl_terms().detach(), expected.detach(), rtol=1e-13)
    assert q.kl_terms()[0] == 0.0


def test_logarithms_of_drawn_variances_have_the_moments_of_the_posterior():
    q, N = posterior(shift=(2.0, -0.5, 0.0), log_ratio=(-1.0, 0.4, 0.0)), 40_000
    r = q.draw((N // 4, 4), torch.Generator().manual_seed(0)).detach().numpy()
    assert r.shape == (N // 4, 4, 3)
    np.testing.assert_array_equal(r[..., 2], 0.25)
    rho, std = np.log(r[..., :2]).reshape(N, 2), np.array([3.0 * math.exp(-1.0), math.exp(0.4)])
    # 5 standard errors: std / √N of a mean, std / √(2 N) of a standard deviation, 1 / √N of a correlation.
    assert np.all(abs(rho.mean(0) - [-4.0, -2.5]) <= 5 * std / math.sqrt(N))
    assert np.all(abs(rho.std(0, ddof=1) - std) <= 5 * std / math.sqrt(2 * N))
    assert abs(np.corrcoef(rho.T)[0, 1]) <= 5 / math.sqrt(N)


def test_drawn_offsets_have_the_moments_of_the_posterior():
    q, N = GaussianOffset(2), 40_000
    q.loc.data, q.log_std.data = torch.tensor([[1.0, -3.0], [0.5, -2.0]], dtype=torch.float64)
    draws, std = q.draw((N,), torch.Generator().manual_seed(0)).detach().numpy(), np.exp([0.5, -2.0])
    assert np.all(abs(draws.mean(0) - [1.0, -3.0]) <= 5 * std / math.sqrt(N))
    assert np.all(abs(draws.std(0, ddof=1) - std) <= 5 * std / math.sqrt(2 * N))


@pytest.mark.parametrize("parameter", ["loc", "log_std"])
def test_draws_of_variances_are_reparameterised(parameter):
    q = posterior(shift=(1.0, 0.5, 0.0))

    def draws(values):
        parameters = {"loc": q.loc, "log_std": q.log_std} | {parameter: values}
        noise = torch.randn(2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        return torch.where(q.learned, (parameters["loc"] + parameters["log_std"].exp() * noise).exp(), q.fixed)

    values = getattr(q, parameter).detach().clone().requires_grad_()
    draws(values).sum().backward()
    q.draw((2,), torch.Generator().manual_seed(0)).sum().backward()
    np.testing.assert_allclose(getattr(q, parameter).grad, values.grad, rtol=1e-13)
    assert (values.grad[:2] != 0).all()
    assert values.grad[2] == 0


def test_a_floor_is_added_to_learned_variances_only():
    q = posterior(floor=0.5)
    expected = [math.exp(-6.0) + 0.5, math.exp(-2.0) + 0.5, 0.25]
    np.testing.assert_allclose(q.median().detach(), expected, rtol=1e-13)
    np.testing.assert_allclose(posterior(shift=(-1e3, -1e3, 0.0), floor=0.5).median().detach(), [0.5, 0.5, 0.25])


# --- What the user says of each balance -------------------------------------------------------------------------------

SCALE = torch.tensor([0.5, 20.0, 1.0], dtype=torch.float64)


def relative(tolerance, scale=SCALE, **settings):
    return tolerance_posterior(tolerance, NAMES, scale, **settings)


def test_tolerances_left_open_have_the_default_prior_relative_to_the_scale():
    q = relative(None)
    np.testing.assert_array_equal(q.prior_mean, [-6.0] * 3)
    np.testing.assert_array_equal(q.prior_std, [3.0] * 3)
    assert q.learned.all()


@pytest.mark.parametrize("tolerance", [0, 0.0, 0.3, 2])
def test_a_number_is_a_standard_deviation_in_the_unit_of_each_balance(tolerance):
    q = relative(tolerance)
    assert not q.learned.any()
    np.testing.assert_allclose(q.median().detach() * SCALE**2, [float(tolerance) ** 2] * 3, rtol=1e-13)
    assert torch.equal(q.draw((2,), torch.Generator().manual_seed(0)), q.median().expand(2, 3))


def test_a_mapping_names_some_balances_and_leaves_the_others_open():
    q = relative({"heat": TolerancePrior(-1.0, 0.5), "charge": 0.0})
    assert q.learned.tolist() == [True, True, False]
    np.testing.assert_array_equal(q.prior_mean[:2], [-6.0, -1.0])
    np.testing.assert_array_equal(q.prior_std[:2], [3.0, 0.5])
    assert q.median()[2] == 0.0


def test_the_papers_prior_holds_in_the_unit_of_the_balance():
    q = relative(TolerancePrior.paper())
    np.testing.assert_allclose(q.median().detach() * SCALE**2, [math.exp(-2.0)] * 3, rtol=1e-13)
    np.testing.assert_array_equal(q.prior_std, [1.0] * 3)


def test_one_prior_in_two_units_is_the_same_tolerance():
    """In volts with scale c, in millivolts with scale 1000 c: `log r` differs by `2 log 1000`."""
    volts = relative(TolerancePrior(-2.0, 1.0, relative=False))
    shifted = TolerancePrior(-2.0 + 2 * math.log(1000.0), 1.0, relative=False)
    millivolts = relative(shifted, SCALE * 1000.0)
    draws = [q.draw((5,), torch.Generator().manual_seed(0)).detach() for q in (volts, millivolts)]
    np.testing.assert_allclose(draws[1] * (SCALE * 1000.0) ** 2 / 1000.0**2, draws[0] * SCALE**2, rtol=1e-11)
    np.testing.assert_allclose(millivolts.prior_mean, volts.prior_mean, rtol=1e-13)


def test_the_floor_reaches_the_posterior():
    floor = torch.tensor([0.1, 0.2, 0.3], dtype=torch.float64)
    q = relative({"charge": 0.0}, floor=floor)
    np.testing.assert_allclose(q.median().detach(), [math.exp(-6.0) + 0.1, math.exp(-6.0) + 0.2, 0.0], rtol=1e-13)


@pytest.mark.parametrize(
    ("tolerance", "message"),
    [
        ({"haet": 0.0}, r"but got 'haet'\. Did you mean 'heat'\?"),
        ({"zzz": 0.0}, r"but got 'zzz'\. The balances are: 'mass', 'heat', 'charge'\."),
        ({"heat": -1.0}, r"tolerance of balance 'heat' must be None, 0, a positive standard.*but got -1\.0\."),
        (-0.5, r"balance 'mass'.*but got -0\.5\."),
        (math.nan, r"balance 'mass'.*but got nan\."),
        (math.inf, r"balance 'mass'.*but got inf\."),
        (True, r"balance 'mass'.*but got True\."),
        ({"mass": None, "heat": "tight"}, r"balance 'heat'.*but got 'tight'\."),
    ],
)
def test_a_tolerance_that_makes_no_sense_is_refused_by_the_name_of_its_balance(tolerance, message):
    with pytest.raises(ValueError, match=message):
        relative(tolerance)


@pytest.mark.parametrize(("mean", "std"), [(math.nan, 1.0), (math.inf, 1.0), (0.0, 0.0), (0.0, -1.0), (0.0, math.nan)])
def test_a_prior_needs_a_finite_mean_and_a_positive_spread(mean, std):
    with pytest.raises(
        ValueError, match=rf"but got mean={mean}, std={std}\. For an exact balance pass the tolerance 0"
    ):
        TolerancePrior(mean, std)


def test_normal_numbers_become_quantiles_of_the_posterior():
    """`exp(loc + std z)` is the log-normal quantile at Φ(z), and a fixed variance stays what it is."""
    q = LogNormalVariance(torch.tensor([-1.0, 0.0]), torch.tensor([0.5, 1.0]), torch.tensor([math.nan, 0.25]))
    z = 1.3
    expected = scipy.stats.lognorm(0.5, scale=math.exp(-1.0)).ppf(scipy.stats.norm.cdf(z))
    got = q.from_normal(torch.full((2,), z, dtype=torch.float64)).detach()
    np.testing.assert_allclose(got, [expected, 0.25], rtol=1e-12)
    assert q.n_entries == 2
