"""The change of units of a density, by the lengths and areas that it is a density over."""

import numpy as np
import pytest
import torch
from handmade import NAN, predictive, standardizer, variances

from equipoise.network.likelihood import marginal
from equipoise.prediction.density_units import log_density_units

STD = np.array([2.0, 0.1, 30.0])
SUM = [[1.0, 1.0, 0.0]]


def units_of(Y, *, tolerance, sensor_var=0.0, B=SUM, **settings):
    s = standardizer(B, y_mean=np.zeros(3), y_std=STD)
    model = predictive(s, tolerance=variances(tolerance), **settings).model
    return log_density_units(model, s, np.atleast_2d(Y), sensor_var)


def test_every_measured_output_brings_its_unit():
    Y = [[1.0, 2.0, 3.0], [NAN, 2.0, 3.0], [NAN, NAN, NAN]]
    expected = [-np.log(STD).sum(), -np.log(STD[1:]).sum(), 0.0]
    np.testing.assert_allclose(units_of(Y, tolerance=[0.1]), expected, rtol=1e-13)


@pytest.mark.parametrize("settings", [{"likelihood": marginal}, {"sensor_var": 1.0}], ids=["marginal", "with sensors"])
def test_an_exact_balance_counts_only_where_outputs_are_known_to_obey_it(settings):
    got = units_of([1.0, -1.0, 3.0], tolerance=[0.0], **settings)
    np.testing.assert_allclose(got, -np.log(STD).sum(), rtol=1e-13)


def test_on_the_line_of_an_exact_balance_lengths_are_measured_along_it():
    """One step along `y₀ + y₁ = t` has length 1 in the user's units and `√((1/s₀² + 1/s₁²) / 2)` in standardized."""
    along = np.sqrt((STD[0] ** -2 + STD[1] ** -2) / 2)
    np.testing.assert_allclose(units_of([1.0, -1.0, 3.0], tolerance=[0.0]), np.log(along) - np.log(STD[2]), rtol=1e-12)


def test_an_output_that_was_not_measured_leaves_its_balance():
    np.testing.assert_allclose(units_of([NAN, -1.0, 3.0], tolerance=[0.0]), -np.log(STD[1:]).sum(), rtol=1e-12)


def test_rows_with_other_outputs_measured_or_noisy_have_units_of_their_own():
    Y = np.array([[1.0, -1.0, 3.0], [NAN, -1.0, 3.0], [1.0, -1.0, 3.0]])
    noise = torch.tensor([[0.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.1, 0.0, 0.0]])
    got = units_of(Y, tolerance=[0.0], sensor_var=noise)
    each = [units_of(y, tolerance=[0.0], sensor_var=w)[0] for y, w in zip(Y, noise, strict=True)]
    np.testing.assert_allclose(got, each, rtol=1e-13)
    assert abs(got[0] - got[2]) > 0.1
