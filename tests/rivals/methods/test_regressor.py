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
    members = many.model_.draw(0, 0).weights[:2].detach()
    alone = one.model_.draw(0, 0).weights[0].detach()
    np.testing.assert_allclose(alone, members[0], atol=2e-3)  # rounding grows in training
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
    assert model.dropout_ == model.model_.network.posterior.probability == 0.01
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


SAVED = ["vi+projection", "vi+completion", "vi+none", "vi+penalty", "vi+posthoc-scalar", "deterministic+fixed"]
SAVED += ["ensemble+none", "ensemble+learned", "dropout+projection", "laplace+posthoc", "deterministic+learned"]
SAVED += ["gp+learned", "gp+none", "boosting+none", "boosting+posthoc-scalar", "deterministic+qp"]


@pytest.mark.usefixtures("long_training")
@pytest.mark.parametrize("name", SAVED)
def test_a_fitted_method_comes_back_from_its_file_to_the_bit(name, tmp_path):
    model, (X, Y) = fitted(*name.split("+"), max_epochs=4), data(seed=1)
    model.save(tmp_path / "a.safetensors")
    again = eq.load(tmp_path / "a.safetensors")
    assert type(again) is MethodRegressor
    assert again.method.name == name
    given = {key: value for key, value in model.get_params().items() if key != "constraint"}
    assert {key: value for key, value in again.get_params().items() if key != "constraint"} == given
    for attribute in ("penalty_", "dropout_", "n_parameters_", "seed_"):
        assert getattr(again, attribute) == getattr(model, attribute)
    p, q = (each.predict_distribution(X) for each in (model, again))
    assert q.n_draws == p.n_draws
    for one, other in [(p.mean, q.mean), (p.std, q.std), (p.sample(3), q.sample(3)), (p.log_prob(Y), q.log_prob(Y))]:
        np.testing.assert_array_equal(one, other)
    again.save(tmp_path / "b.safetensors")
    assert (tmp_path / "b.safetensors").read_bytes() == (tmp_path / "a.safetensors").read_bytes()


@pytest.mark.usefixtures("long_training")
def test_an_ensemble_is_exported_with_each_member_once(tmp_path):
    model, (X, _) = fitted("ensemble", "projection", max_epochs=4, n_members=3), data(seed=1)
    eq.export(model, tmp_path / "ensemble.pt2", n_draws=50)
    mean, std = torch.export.load(tmp_path / "ensemble.pt2").module()(torch.as_tensor(X))
    np.testing.assert_allclose(mean.detach(), model.predict(X), atol=1e-5)
    np.testing.assert_allclose(std.detach(), model.predict(X, return_std=True)[1], rtol=1e-4)


@pytest.mark.usefixtures("long_training")
@pytest.mark.parametrize("inference", ["gp", "boosting"])
def test_what_has_no_network_is_exported_too(inference, tmp_path):
    model, (X, _) = fitted(inference, "posthoc"), data(seed=1)
    eq.export(model, tmp_path / "m.pt2")
    mean, std = torch.export.load(tmp_path / "m.pt2").module()(torch.as_tensor(X))
    np.testing.assert_allclose(mean.detach(), model.predict(X), atol=1e-10)
    np.testing.assert_allclose(std.detach(), model.predict(X, return_std=True)[1], rtol=1e-8)


@pytest.mark.usefixtures("long_training")
def test_one_network_learns_tolerance_and_sensors_by_the_joint_likelihood():
    """A linear truth and network: what is learned is the noise that was added, and no intervals of weights."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (600, 2))
    truth = np.stack([x[:, 0], x[:, 1], x.sum(1) + x[:, 0]], 1)
    Y = truth + 0.05 * rng.normal(size=truth.shape)
    options = {"hidden": (), "max_epochs": 120, "random_state": 0, "training": eq.TrainingPlan(batch_size=64)}
    model = MethodRegressor(BALANCE, inference="deterministic", imposition="learned", **options).fit(x, Y)
    assert np.abs(model.predict(x) - truth).max() < 0.03
    sensors, tolerance = model.sensor_std_["std"].to_numpy(), model.tolerances_["tol_std"].item()
    assert np.sqrt((sensors**2).sum() + tolerance**2) == pytest.approx(0.05 * 3**0.5, rel=0.1)  # of the balance
    assert model.predict_distribution(x).measured().std.mean() == pytest.approx(0.05, rel=0.1)


@pytest.mark.usefixtures("long_training")
@pytest.mark.parametrize("name", ["vi+penalty", "ensemble+learned"])
def test_readings_are_reconciled_and_the_ledger_is_a_table_also_where_predictions_have_no_balances(name):
    model, (X, Y) = fitted(*name.split("+"), max_epochs=4), data(n=5, seed=1)
    assert np.isfinite(np.asarray(model.reconcile(X, Y, 0.1).mean)).all()
    table = model.predict_distribution(X).ledger().to_frame()
    assert any("lost without" in str(column) for column in table) == (name == "ensemble+learned")


def test_what_torch_cannot_trace_is_not_exported(tmp_path):
    model = fitted("vi", "completion", max_epochs=2)
    with pytest.raises(eq.EquipoiseError, match=r"by torch operators, but 'completion' does not .*Save it as a model"):
        eq.export(model, tmp_path / "m.pt2")


def test_all_impositions_are_tried_here():
    assert {pair.imposition for pair in sensible_pairs()} == set(IMPOSITIONS)
