import numpy as np
import pytest

from equipoise.balances.linear import LinearConstraint
from equipoise.balances.verdicts import Residual, ToleranceEvidence, verdict
from equipoise.prediction.trust import residuals


@pytest.mark.parametrize(
    ("kl", "information", "shortfall", "expected"),
    [
        (0.2, 2.0, 0.0, "informed"),
        (0.2, 2.0, 2.9, "informed"),
        (0.2, 2.0, 3.1, "not converged"),  # moved, but not to where the data pull it
        (0.05, 2.0, 3.1, "not converged"),  # the data have something to say, the posterior did not listen
        (0.05, 2.0, 0.0, "not informed by the data"),  # they say something far away, but nothing here
        (0.2, 0.5, 0.0, "not converged"),  # moved without a reason
        (0.05, 0.5, 0.0, "not informed by the data"),
        (0.05, 0.5, 9.0, "not converged"),
    ],
)
def test_informed_needs_a_posterior_that_moved_and_data_that_moved_it(kl, information, shortfall, expected):
    assert verdict("learned", kl, ToleranceEvidence(information, shortfall)) == expected


@pytest.mark.parametrize("kind", ["exact", "fixed"])
def test_a_tolerance_that_was_given_is_called_what_it_is(kind):
    assert verdict(kind, 5.0, ToleranceEvidence(9.0, 0.0)) == kind
    assert verdict(kind, 0.0, None) == kind


@pytest.mark.parametrize(
    ("mean", "se", "slope", "z", "rounding", "biased"),
    [
        (0.5, 0.1, 0.0, 0.0, 0.0, True),  # 5 standard errors, half the scatter
        (-0.5, 0.1, 0.0, 0.0, 0.0, True),
        (0.5, 0.2, 0.0, 0.0, 0.0, False),  # not certain
        (0.2, 0.01, 0.0, 0.0, 0.0, False),  # certain, but small beside the scatter
        (0.5, 0.1, 0.0, 0.0, 0.6, False),  # could be rounding
        (0.0, 0.1, 0.5, 5.0, 0.0, True),  # depends on an input
        (0.0, 0.1, -0.5, -5.0, 0.0, True),
        (0.0, 0.1, 0.5, 3.0, 0.0, False),
        (0.0, 0.1, 0.2, 9.0, 0.0, False),
        (0.0, 0.1, 0.5, 9.0, 0.6, False),
    ],
)
def test_a_bias_is_certain_and_material(mean, se, slope, z, rounding, biased):
    residual = Residual(mean, se, 1.0, 100, input="I [A]", input_slope=slope, input_z=z, rounding=rounding)
    assert residual.biased is biased


def test_noise_is_hardly_ever_called_a_bias_however_few_the_rows_and_many_the_inputs():
    """500 tables of pure noise each: at 6e-5 a test, two false alarms among them have a probability below 1e-2."""
    rng = np.random.default_rng(0)
    for n in (3, 5, 20):
        constraint = LinearConstraint([[1.0]], A=np.zeros((1, 10)))
        alarms = [residuals(constraint, rng.normal(size=(n, 10)), rng.normal(size=(n, 1)), 0.0)[0] for _ in range(500)]
        assert sum(alarm.biased for alarm in alarms) <= 1
