"""The closed form of a block's terms against the general one, and against 50-digit arithmetic."""

import mpmath
import numpy as np
import pytest
import torch
from handmade import COUPLED, DISJOINT, NAN, predictive, standardizer, variances

from equipoise.gaussian.distributions import DiagonalGaussian
from equipoise.network.likelihood import marginal
from equipoise.network.model import ConstrainedBNN, PosteriorDraws
from equipoise.prediction.ledger import LedgerAccumulator
from equipoise.prediction.per_draw_moments import (
    LEDGER_FIELDS,
    MOMENT_FIELDS,
    DisjointTerms,
    ledger_fields_of,
    moment_fields_of,
    reduction_lost_of,
)
from equipoise.prediction.weight_draws import ArrangedDraws, NetworkEvaluator
from equipoise.rivals.methods.gains import Projection

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


def heads_of(gaussian):
    return gaussian.mean, gaussian.var


def closed(m, what, prior, draws, target):
    terms = DisjointTerms.of(m, sensors=False)
    return getattr(terms, what)(heads_of(prior), ArrangedDraws.of(draws), target.mT.unsqueeze(1))


@every_case
def test_the_account_in_closed_form_is_the_general_one(case):
    m = case()
    prior, draws, target = block(m)
    with torch.no_grad():
        gaussian = m.condition(prior, target, draws.tol_var, draws.offset)
        again = m.condition(prior, target, draws.tol_var_again, draws.offset)
    got, expected = closed(m, "ledger_fields", prior, draws, target), ledger_fields_of(gaussian, again)
    rounding = 4 * np.finfo(float).eps * float(gaussian.mean.abs().max())  # the general Δ is a difference of means
    for name in LEDGER_FIELDS.names:
        largest, atol = float(expected[name].abs().max()), {"shift": rounding, "tolerance_share": rounding**2}
        atol = atol.get(name, 0.0) + 1e-14 * largest
        np.testing.assert_allclose(got[name], expected[name], rtol=1e-12, atol=atol, err_msg=name)


@every_case
def test_the_moments_in_closed_form_are_the_general_ones(case):
    m = case()
    prior, draws, target = block(m)
    with torch.no_grad():
        expected = moment_fields_of(m.condition(prior, target, draws.tol_var, draws.offset))
    got, rounding = closed(m, "moment_fields", prior, draws, target), 1e-15 * prior.var.double()
    np.testing.assert_allclose(got["mean"], expected["mean"], rtol=1e-12, atol=1e-13)
    assert bool(((got["var"] - expected["var"]).abs() <= rounding).all())
    assert bool((got["var"] >= 0.0).all())


@every_case
def test_what_each_balance_brings_is_all_of_the_reduction_of_its_outputs(case):
    m = case()
    prior, draws, target = block(m)
    with torch.no_grad():
        lost = reduction_lost_of(m.condition(prior, target, draws.tol_var, draws.offset))
    account = LedgerAccumulator(DisjointTerms.of(m, sensors=False).B != 0)
    account.add(closed(m, "ledger_fields", prior, draws, target), 0.0)
    got = account.terms()["lost_without"]
    np.testing.assert_allclose(got, lost / 32, rtol=1e-12, atol=1e-16)


def test_a_tolerance_that_is_not_learned_has_no_share_to_the_last_bit():
    m = model([0.3, NAN])
    share = closed(m, "ledger_fields", *block(m))["tolerance_share"].numpy()
    np.testing.assert_array_equal(share[..., [0, 1, 2, 5]], 0.0)
    assert np.all(share[..., [3, 4]] > 0.0)


def test_an_output_that_its_balance_determines_has_no_variance_and_never_less():
    """`v − v² B² / (B² v)` for 6 × 1,000 variances: to rounding 0, on either side but for the bound."""
    terms = DisjointTerms(NetworkEvaluator(model().network), 0.7 * torch.eye(6, dtype=torch.float64))
    var = torch.rand(2, 500, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    drawn = ArrangedDraws(PosteriorDraws(torch.zeros(2, 1)), torch.zeros(2, 6, 2, 1, dtype=torch.float64), None)
    target = torch.zeros(6, 1, 500, dtype=torch.float64)
    left = terms.moment_fields((torch.zeros_like(var), var), drawn, target)["var"]
    assert bool((left >= 0.0).all())
    assert bool((left <= 4e-16 * var).all())
    assert 0.1 < float((left > 0.0).double().mean()) < 0.9


@pytest.mark.parametrize("layer", [True, False], ids=["no targets", "no balances"])
def test_without_balances_the_network_is_left_as_it_is(layer):
    m = model()
    prior, draws, _ = block(m)
    m = m if layer else ConstrainedBNN(m.network, None, marginal)
    terms, drawn = DisjointTerms.of(m, sensors=False), ArrangedDraws.of(draws)
    account = terms.ledger_fields(heads_of(prior), drawn, None)
    for name, expected in {"mu": prior.mean, "aleatoric": prior.var}.items():
        np.testing.assert_array_equal(account[name], expected, err_msg=name)
    for name in ("tolerance_share", "reduction", "shift"):
        np.testing.assert_array_equal(account[name], torch.zeros_like(prior.mean), err_msg=name)
    moments = terms.moment_fields(heads_of(prior), drawn, None)
    np.testing.assert_array_equal(moments["mean"], prior.mean)
    np.testing.assert_array_equal(moments["var"], prior.var)


def test_the_general_account_without_balances_has_nothing_but_the_network():
    gaussian = DiagonalGaussian(torch.ones(3, 2, 4), torch.full((3, 2, 4), 2.0))
    account = ledger_fields_of(gaussian, None)
    assert [float(account[name].mean()) for name in LEDGER_FIELDS.names] == [0.0, 0.0, 0.0, 1.0, 2.0]
    assert reduction_lost_of(gaussian).shape == (0, 2, 4)


def test_coupled_balances_have_no_closed_form():
    coupled = predictive(standardizer(COUPLED), tolerance=variances([0.1] * 3)).model
    assert DisjointTerms.of(coupled, sensors=False) is None


def test_a_model_that_conditions_in_its_own_way_has_no_closed_form():
    assert DisjointTerms.of(model().variant(imposition=Projection()), sensors=False) is None
    assert DisjointTerms.of(model().variant(), sensors=False) is not None


def test_blocks_of_different_shapes_or_fields_do_not_disturb_each_other():
    m = model()
    terms = DisjointTerms.of(m, sensors=False)
    parts = [block(m, n) for n in (5, 3)]
    made = [
        (getattr(terms, what)(heads_of(prior), ArrangedDraws.of(draws), target.mT.unsqueeze(1)), what, part)
        for part in parts
        for prior, draws, target in [part]
        for what in ("ledger_fields", "moment_fields")
    ]
    for result, what, part in made:
        alone = closed(m, what, *part)
        for name in (LEDGER_FIELDS if what == "ledger_fields" else MOMENT_FIELDS).names:
            np.testing.assert_array_equal(result[name], alone[name], err_msg=name)


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
    terms = DisjointTerms(NetworkEvaluator(model().network), torch.as_tensor(B))
    account = LedgerAccumulator(terms.B != 0)
    for start in range(0, N, 32):
        part = slice(start, start + 32)
        draws = PosteriorDraws(torch.zeros(len(mu[part]), 1), r[part], again[part])
        drawn = ArrangedDraws(draws, torch.stack([r[part], again[part]]).movedim(-1, 1), None)
        account.add(terms.ledger_fields((mu[part], v[part]), drawn, target.mT.unsqueeze(1)), 0.0)
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
