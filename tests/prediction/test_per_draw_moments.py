"""Terms of a block against dense matrices, and against 50-digit arithmetic."""

import mpmath
import numpy as np
import pytest
import torch
from handmade import DISJOINT, NAN, predictive, standardizer, variances

import references
from equipoise.gaussian.conditioning import condition
from equipoise.gaussian.distributions import DiagonalGaussian
from equipoise.prediction.components import Components
from equipoise.prediction.ledger import LedgerAccumulator
from equipoise.prediction.per_draw_moments import ledger_fields_of, moment_fields_of

LEDGER_NAMES = ("tolerance_share", "reduction", "shift", "mu", "aleatoric")
LEARNED = {"loc": [-1.0, -4.0], "std": [0.7, 0.4]}


def model(fixed=(NAN, NAN), B=DISJOINT, offset=None, **settings):
    s = standardizer(B)
    tolerance = variances(fixed, **{name: values[: len(fixed)] for name, values in LEARNED.items()})
    return predictive(s, tolerance=tolerance, offset=offset, **settings).model


CASES = {
    "learned": model,
    "one balance": lambda: model([NAN], DISJOINT[:1]),
    "fixed and exact": lambda: model([0.0, 0.2]),
    "exact": lambda: model([0.0, 0.0]),
    "of one output": lambda: model([0.0, 1e-8], np.eye(6)[:2]),
    "very loose": lambda: model([1e12, 1e12]),
    "offsets": lambda: model(offset=([0.5, -0.2], [0.1, 0.3])),
    "single precision": lambda: model(double=False),
}
every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def block(m, n=5, seed=3):
    """The network at a block of draws and some rows, the draws, and targets."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 2, generator=generator, dtype=torch.float64).to(m.network.posterior.loc.dtype)
    target = torch.randn(n, len(m.conditioning.names), generator=generator, dtype=torch.float64)
    with torch.no_grad():
        draws = m.draw(seed, 0)
        prior = m.network.at(draws.weights, x)
    return prior, draws, target


@every_case
def test_the_terms_of_a_block_are_those_of_dense_matrices(case):
    m = case()
    prior, draws, target = block(m)
    with torch.no_grad():
        gaussian = m.condition(prior, target, draws.tol_var, draws.offset)
        again = m.condition(prior, target, draws.tol_var_again, draws.offset)
    account, moments = ledger_fields_of(gaussian, again), moment_fields_of(gaussian)
    B, offset = m.conditioning.B.numpy(), 0.0 if draws.offset is None else draws.offset[7, 0]
    for i in range(len(target)):
        mu, v = prior.mean[7, i].double().numpy(), prior.var[7, i].double().numpy()
        t = (target[i] + offset).numpy()
        one = references.conditioned(mu, v, B, t, draws.tol_var[7, 0].numpy())
        two = references.conditioned(mu, v, B, t, draws.tol_var_again[7, 0].numpy())
        expected = {"shift": one[0] - mu, "reduction": v - one[1].diagonal(), "mu": mu, "aleatoric": v}
        expected["tolerance_share"] = 0.5 * (one[0] - two[0]) ** 2
        for name, value in expected.items():
            atol = 1e-9 * np.abs(value).max() + 1e-14
            np.testing.assert_allclose(account[name][7, i], value, rtol=1e-9, atol=atol, err_msg=name)
        np.testing.assert_allclose(moments["mean"][7, i], one[0], rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(moments["var"][7, i], one[1].diagonal(), rtol=1e-9, atol=1e-14 * v.max())


def test_sensor_noise_is_added_to_the_variance_alone():
    gaussian, w = DiagonalGaussian(torch.ones(3, 2, 4), torch.full((3, 2, 4), 2.0)), torch.arange(4.0)
    block = moment_fields_of(gaussian, w)
    assert torch.equal(block["var"], 2.0 + w.expand(3, 2, 4))
    assert torch.equal(block["mean"], gaussian.mean)
    assert float(gaussian.var.max()) == 2.0


@every_case
def test_what_each_balance_brings_is_all_of_the_reduction_of_its_outputs(case):
    m = case()
    prior, draws, target = block(m)
    with torch.no_grad():
        gaussian = m.condition(prior, target, draws.tol_var, draws.offset)
    account = LedgerAccumulator()
    account.add(Components(slice(0, len(target)), gaussian, 0.0))
    terms = account.terms()
    touched = (m.conditioning.B != 0).unsqueeze(1)
    np.testing.assert_allclose(terms["lost_without"], touched * terms["reduction"], rtol=1e-11, atol=1e-15)


def test_a_tolerance_that_is_not_learned_has_no_share_to_the_last_bit():
    m = model([0.3, NAN])
    prior, draws, target = block(m)
    with torch.no_grad():
        pair = [m.condition(prior, target, r, draws.offset) for r in (draws.tol_var, draws.tol_var_again)]
    share = ledger_fields_of(*pair)["tolerance_share"].numpy()
    np.testing.assert_array_equal(share[..., [0, 1, 2, 5]], 0.0)
    assert np.all(share[..., [3, 4]] > 0.0)


def test_an_output_that_its_balance_determines_has_no_variance_and_never_less():
    """`v − v² B² / (B² v)` for 6 × 1,000 variances: to rounding 0, on either side but for the bound."""
    var = torch.rand(2, 500, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    determined = condition(DiagonalGaussian(torch.zeros_like(var), var), 0.7 * torch.eye(6).double(), torch.zeros(6))
    left = moment_fields_of(determined)["var"]
    assert bool((left >= 0.0).all())
    assert bool((left <= 4e-16 * var).all())
    assert 0.1 < float((left > 0.0).double().mean()) < 0.9


def test_the_general_account_without_balances_has_nothing_but_the_network():
    gaussian = DiagonalGaussian(torch.ones(3, 2, 4), torch.full((3, 2, 4), 2.0))
    account = ledger_fields_of(gaussian, None)
    assert [float(account[name].mean()) for name in LEDGER_NAMES] == [0.0, 0.0, 0.0, 1.0, 2.0]
    assert gaussian.reduction_lost_without().shape == (3, 2, 0, 4)


# --- Digits -----------------------------------------------------------------------------------------------------------

N = 200
B = DISJOINT / np.sqrt((DISJOINT**2).sum(1, keepdims=True))


def draws_with_a_spread(spread):
    """Means, variances and tolerances of 200 draws at one row that differ by `spread` of their values; targets."""
    rng = np.random.default_rng(0)
    mu, v = (centre * (1.0 + spread * rng.normal(size=(N, 1, 6))) for centre in (3.0, np.exp(rng.normal(size=6))))
    r, again = (0.1 * np.exp(spread * rng.normal(size=(N, 1, 2))) for _ in range(2))
    return tuple(map(torch.as_tensor, (mu, v, r, again, rng.normal(size=(1, 2)))))


def streamed(mu, v, r, again, target):
    """The ledger's terms, in blocks of 32 draws."""
    account = LedgerAccumulator()
    for start in range(0, N, 32):
        part = slice(start, start + 32)
        pair = (
            condition(DiagonalGaussian(mu[part], v[part]), torch.as_tensor(B), target, tol[part]) for tol in (r, again)
        )
        first, second = pair
        account.add(Components(slice(0, 1), first, 0.0, second))
    return account.terms()


def in_fifty_digits(mu, v, r, again, target):
    """D1 and D2 with sums over draws in two passes."""
    matrix = np.vectorize(mpmath.mpf, otypes=[object])
    mu, v, target, coefficients = matrix(mu[:, 0]), matrix(v[:, 0]), matrix(target), matrix(B)
    s, s_again = (v @ (coefficients**2).T + matrix(tol[:, 0]) for tol in (r, again))
    innovation = target - mu @ coefficients.T
    shift, second = (v * ((innovation / each) @ coefficients) for each in (s, s_again))
    a, b = mu - mu.mean(0), shift - shift.mean(0)
    return {
        "aleatoric": v.mean(0),
        "reduction": (v**2 * ((1 / s) @ coefficients**2)).mean(0),
        "epistemic": (a**2).mean(0),
        "shift": (b**2).mean(0),
        "interaction": 2 * (a * b).mean(0),
        "tolerance_share": ((shift - second) ** 2).mean(0) / 2,
    }


@pytest.mark.parametrize(("spread", "rtol"), [(0.1, 1e-12), (1e-2, 1e-11), (1e-4, 1e-9)])
def test_every_term_keeps_its_digits_where_draws_differ_little(spread, rtol):
    """Δ is rounded to 1e-16 of its value: where draws differ by 1e-4, their squared differences keep some 1e-11.

    The bands are some hundreds of roundings, divided by the spread.
    """
    parts = draws_with_a_spread(spread)
    with mpmath.workdps(50):
        expected = {name: value.astype(float) for name, value in in_fifty_digits(*parts).items()}
    got = streamed(*parts)
    for name, value in expected.items():
        np.testing.assert_allclose(got[name][0], value, rtol=rtol, err_msg=name)
