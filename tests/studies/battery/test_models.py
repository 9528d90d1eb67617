"""The models that the study compares."""

import dataclasses

from equipoise.gaussian.tolerance import TolerancePrior
from equipoise.rivals.cases.battery.settings import Settings
from equipoise.training.plan import TrainingPlan
from studies.battery.models import LABELS, MODELS, estimator


def test_the_papers_model_is_as_in_the_paper():
    paper = estimator(Settings.named("full"), "paper", seed=3)
    assert paper.likelihood == "marginal"
    assert paper.tolerance == TolerancePrior(-2.0, 1.0, relative=False)
    assert paper.prior_std == 1.0
    assert paper.sensor_std is None
    assert paper.random_state == 3
    assert paper.start == estimator(Settings.named("full"), "bnn", seed=3).start == "prior"
    assert paper.recipe(0).plan.epochs_of("elbo") == paper.training.max_epochs
    assert paper.constraint.names == ("voltage", "heat")


def test_the_baseline_has_no_balances_and_all_else_in_common():
    settings = Settings.named("full")
    plain, ours = estimator(settings, "bnn", 1), estimator(settings, "equipoise", 1)
    assert plain.constraint is None
    assert ours.likelihood == "joint"
    assert ours.sensor_std == "learn"
    for name in ("hidden", "activation", "prior_std", "random_state"):
        assert getattr(plain, name) == getattr(ours, name)
    paper = estimator(settings, "paper", 1)
    assert dataclasses.replace(ours.training, temperature=1.0) == plain.training == paper.training
    assert ours.training.temperature == TrainingPlan().temperature < 1


def test_every_model_has_a_label():
    assert list(LABELS) == list(MODELS)
