"""Every sensible pair behind the estimator's face."""

import numpy as np
import pytest
import torch
from sklearn.base import clone

import equipoise as eq
from equipoise.gaussian.conditioning import condition
from equipoise.gaussian.distributions import DiagonalGaussian
from equipoise.rivals.methods.catalogue import IMPOSITIONS, MethodError, sensible_pairs
from equipoise.rivals.methods.regressor import MethodRegressor

BALANCE = eq.LinearConstraint.from_equations("total = a + b + x", inputs=["x", "z"], outputs=["a", "b", "total"])
HARD = {"projection", "completion", "posthoc", "fixed"}
QUICK = {"hidden": (6,), "max_epochs": 8, "n_draws": 32, "random_state": 0, "n_members": 2}


def data(n=80, noise=0.05, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (n, 2))
    a, b = np.sin(2 * x[:, :1]), x[:, 1:] ** 2
    truth = np.hstack([a, b, a + b + x[:, :1]])
    return x, truth + noise * rng.standard_normal(truth.shape)


def fitted(inference, imposition, noise=0.05, **options):
    X, Y = data(noise=noise)
    return MethodRegressor(BALANCE, inference=inference, imposition=imposition, **QUICK | options).fit(X, Y)


@pytest.mark.usefixtures("long_training")
@pytest.mark.parametrize("method", [pair for pair in sensible_pairs() if pair.imposition != "qp"], ids=lambda m: m.name)
def test_every_pair_predicts_and_obeys_as_its_imposition_promises(method):
    model, (X, _) = fitted(method.inference, method.imposition), data(seed=1)
    p = model.predict_distribution(X)
    means, draws = BALANCE.residual(X, np.asarray(p.mean)), BALANCE.residual(X, model.sample_y(X, 40))
    assert np.isfinite(p.mean).all()
    assert (p.std > 0).all()
    if method.imposition in HARD:
        assert max(np.abs(means).max(), np.abs(draws).max()) < 1e-12
    else:
        assert np.abs(draws).max() > 1e-3
    np.testing.assert_allclose(p.ledger().total, np.asarray(p.var), rtol=1e-8)


@pytest.mark.usefixtures("long_training")
def test_learned_conditioning_by_vi_is_the_cores_estimator():
    X, Y = data()
    shared = {"hidden": (6,), "max_epochs": 8, "n_draws": 32, "random_state": 0}
    ours, core = fitted("vi", "learned"), eq.ConstrainedBNNRegressor(BALANCE, **shared).fit(X, Y)
    np.testing.assert_allclose(ours.predict(X), core.predict(X), rtol=1e-12)
    np.testing.assert_allclose(ours.sample_y(X, 5), core.sample_y(X, 5), rtol=1e-12)


@pytest.mark.usefixtures("long_training")
def test_post_hoc_conditioning_is_the_core_applied_to_the_plain_network():
    X, _ = data(seed=1)
    plain, posthoc = fitted("vi", "none"), fitted("vi", "posthoc")
    s, draws = plain.standardizer_, posthoc.model_.draw(3, 0)
    x, target = torch.as_tensor(s.inputs(X), dtype=torch.float32), torch.as_tensor(s.target(X))
    with torch.no_grad():
        before = plain.model_.at(plain.model_.draw(3, 0), x, target)
        after = posthoc.model_.at(draws, x, target)
        wanted = condition(DiagonalGaussian(before.mean, before.var), torch.as_tensor(s.B), target, 0.0)
        np.testing.assert_allclose(after.mean, wanted.mean, atol=1e-10)
        np.testing.assert_allclose(after.var, wanted.var, atol=1e-10)


@pytest.mark.usefixtures("long_training")
def test_the_first_member_of_an_ensemble_is_the_deterministic_network():
    X, _ = data(seed=1)
    one, many = fitted("deterministic", "none"), fitted("ensemble", "none")
    members = many.model_.draw(0, 0).weights[:2]
    np.testing.assert_allclose(one.model_.draw(0, 0).weights[0], members[0], atol=2e-3)  # rounding grows in training
    s = many.standardizer_
    output = many.model_.network.at(members, torch.as_tensor(s.inputs(X), dtype=torch.float32))
    np.testing.assert_allclose(many.predict(X), s.outputs_to_user(output.mean.mean(0).double().numpy()), atol=1e-6)
    assert many.predict_distribution(X).n_draws == 2


@pytest.mark.usefixtures("long_training")
def test_the_penalty_with_the_best_held_out_density_is_taken():
    model = fitted("vi", "penalty", penalties=(1e-3, 1e6))  # the noise alone misses by far more than the second allows
    assert model.penalty_ == 1e-3
    assert fitted("vi", "penalty", penalties=(5.0,)).penalty_ == 5.0


@pytest.mark.usefixtures("long_training")
def test_a_strong_penalty_brings_means_to_the_balance_and_draws_not():
    X, _ = data()
    missed = {}
    for strength in (0.0, 300.0):
        options = {"penalties": (strength,), "max_epochs": 30, "training": eq.TrainingPlan(batch_size=8)}
        p = fitted("vi", "penalty", **options).predict_distribution(X)
        of_mean, of_draws = BALANCE.residual(X, np.asarray(p.mean)), p.residual_of_samples(40)
        missed[strength] = np.abs(of_mean).mean(), np.abs(of_draws).mean()
    assert missed[300.0][0] < 0.5 * missed[0.0][0]
    assert missed[300.0][1] > 0.03


@pytest.mark.usefixtures("long_training")
def test_the_qp_layer_fine_tunes_and_tells_its_price():
    pytest.importorskip("cvxpylayers", reason="the extra 'compare' is not installed")
    X, _ = data(seed=1)
    model = fitted("deterministic", "qp")
    assert np.abs(BALANCE.residual(X, model.predict(X))).max() < 1e-12
    assert model.step_seconds_.keys() == {
        "closed form",
        "qp",
    }  # which of them is the longer is told by test_qp_layer.py
    assert min(model.step_seconds_.values()) > 0.0


@pytest.mark.usefixtures("long_training")
@pytest.mark.parametrize("imposition", ["projection", "completion", "posthoc", "learned"])
def test_exact_data_have_a_density_on_the_subspace_and_noisy_ones_have_none_for_hard_methods(imposition):
    X, Y = data(noise=0.0, seed=1)
    model = fitted("vi", imposition, noise=0.0)
    assert np.isfinite(model.predict_distribution(X).log_prob(Y)).all()
    assert (model.predict_distribution(X).log_prob(Y + 0.1) == -np.inf).all()


def test_parameters_are_counted_as_they_are_trained():
    n = (2 * 6 + 6) + (6 * 6 + 6)
    with_sensors = (2 * 6 + 6) + (6 * 9 + 9)
    expected = {("vi", "none"): 2 * n, ("ensemble", "none"): 2 * n, ("laplace", "none"): n}
    expected |= {("vi", "paper"): 2 * n + 2, ("vi", "learned"): 2 * with_sensors + 2 + 6}
    assert {pair: fitted(*pair, max_epochs=2).n_parameters_ for pair in expected} == expected


def test_given_tolerances_are_fixed_and_others_exact():
    model = fitted("vi", "fixed", tolerance={"total = a + b + x": 0.2}, max_epochs=2)
    assert model.tolerances_["tol_std"].item() == pytest.approx(0.2)
    assert fitted("vi", "fixed", max_epochs=2).tolerances_["kind"].item() == "exact"


@pytest.mark.usefixtures("long_training")
def test_the_one_tolerance_after_training_is_that_of_held_out_rows():
    (X, scattered), (_, obeying) = data(noise=0.3), data(noise=1e-3)
    held_out, found = np.arange(60, 80), {}
    for name, mixed in {"obey": np.vstack([scattered[:60], obeying[60:]]), "scatter": scattered}.items():
        model = MethodRegressor(BALANCE, imposition="posthoc-scalar", **QUICK)
        found[name] = model.fit(X, mixed, held_out=held_out).tolerances_["tol_std"].item()
    assert found["obey"] < 0.05 * found["scatter"]  # training rows are the same


@pytest.mark.usefixtures("long_training")
def test_the_probability_of_dropout_is_the_one_that_held_out_rows_like_best():
    model = fitted("dropout", "none", dropout=(0.9, 0.01))
    assert model.dropout_ == model.model_.source.probability == 0.01
    assert fitted("dropout", "none", dropout=0.9).dropout_ == 0.9
    assert fitted("vi", "none", max_epochs=2).dropout_ == 0.0


def test_an_offset_is_for_learned_tolerances_only():
    assert fitted("vi", "learned", offset=True, max_epochs=2).model_.conditioning.offset is not None
    assert fitted("vi", "fixed", offset=True, max_epochs=2).model_.conditioning.offset is None


def test_the_papers_tolerance_is_learned_also_where_rows_obey_to_rounding():
    assert fitted("vi", "paper", noise=0.0, max_epochs=2).tolerances_["kind"].item() == "learned"
    assert fitted("vi", "learned", noise=0.0, max_epochs=2).tolerances_["kind"].item() == "exact to rounding"


def test_one_network_with_learned_sensors_is_averaged_over_their_draws():
    model = fitted("deterministic", "fixed", max_epochs=2, n_draws=16)
    assert model.predict_distribution(data()[0]).n_draws == 16
    assert fitted("deterministic", "none", max_epochs=2, n_draws=16).predict_distribution(data()[0]).n_draws == 1


def test_it_is_cloned_with_its_parameters():
    model = MethodRegressor(BALANCE, inference="dropout", imposition="projection", dropout=0.2)
    assert clone(model).get_params() == model.get_params()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"inference": "laplace", "imposition": "learned"}, "Last-layer Laplace.*'learned'"),
        ({"imposition": "projektion"}, "Did you mean 'projection'"),
        ({"constraint": None, "imposition": "posthoc"}, "'posthoc' must have balances, but got constraint=None"),
        ({"dropout": 1.0}, r"dropout must be a probability in \[0, 1\), or several, but got 1.0"),
        ({"dropout": (0.1, 1.0)}, r"dropout must be a probability in .* but got \(0.1, 1.0\)"),
        ({"dropout": ()}, r"dropout must be a probability in .* but got \(\)"),
        ({"n_members": 0}, "n_members must be a whole number of at least 1, but got 0"),
        ({"penalties": (-1.0,)}, r"penalties must hold numbers ≥ 0, but got \(-1.0,\)"),
    ],
)
def test_wrong_parameters_are_refused_with_their_value(options, message):
    with pytest.raises(MethodError, match=message):
        MethodRegressor(**{"constraint": BALANCE} | options).fit(*data())


def test_saving_is_refused_since_a_file_would_describe_another_model(tmp_path):
    with pytest.raises(MethodError, match="must hold a ConstrainedBNNRegressor, but got MC dropout, projection"):
        MethodRegressor(BALANCE, inference="dropout", imposition="projection").save(tmp_path / "x.safetensors")


def test_all_impositions_are_tried_here():
    assert {pair.imposition for pair in sensible_pairs()} == set(IMPOSITIONS)
