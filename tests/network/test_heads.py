"""Heads, number by number."""

import math

import torch

from equipoise.network.heads import heads_of


def test_units_become_means_variances_and_sensor_factors():
    units = torch.tensor([[1.0, -2.0, 3.0, -50.0, 0.5, 7.0]], dtype=torch.float64)
    gaussian = heads_of(units, 2)
    assert gaussian.mean.tolist() == [[1.0, -2.0]]
    expected = [[math.exp(20 * math.tanh(raw / 20)) for raw in (3.0, -50.0)]]
    torch.testing.assert_close(gaussian.var, torch.tensor(expected, dtype=torch.float64))
    expected = [[math.exp(4 * math.tanh(raw / 4)) for raw in (0.5, 7.0)]]
    torch.testing.assert_close(gaussian.sensor_factor, torch.tensor(expected, dtype=torch.float64))
    assert heads_of(units[:, :4], 2).sensor_factor is None


def test_no_unit_makes_a_variance_zero_or_infinite():
    far = torch.tensor([0.0, 1e30, 1e30]), torch.tensor([0.0, -1e30, -1e30])
    largest, least = (heads_of(units, 1) for units in far)
    assert float(largest.var) == float(torch.tensor(20.0).exp())
    assert float(least.var) == float(torch.tensor(-20.0).exp())
    assert float(largest.sensor_factor) == float(torch.tensor(4.0).exp())
