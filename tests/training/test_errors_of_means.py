"""Errors of means over what was measured."""

import math

import numpy as np
import pytest
import torch

from equipoise.training.errors_of_means import mean_rmse, mean_squares


def test_unmeasured_outputs_do_not_enter_the_errors():
    y = torch.tensor([[1.0, math.nan], [3.0, 4.0]])
    mean = torch.tensor([[0.0, 100.0], [1.0, 1.0]])
    assert float(mean_rmse(mean, y)) == pytest.approx((math.sqrt(2.5) + 3.0) / 2)
    assert float(mean_squares(mean, y)) == pytest.approx((2.5 + 9.0) / 2)


def test_each_member_has_its_own_errors():
    mean, y = torch.zeros(2, 3, 2), torch.ones(2, 3, 2) * torch.tensor([3.0, 5.0])
    y[1, :2, 0] = torch.nan
    y[1, 2, 0] = 7.0
    np.testing.assert_allclose(mean_rmse(mean, y), [4.0, 6.0])
    np.testing.assert_allclose(mean_squares(mean, y), [17.0, 37.0])


def test_a_perfect_fit_has_a_gradient():
    mean = torch.zeros(2, 1, requires_grad=True)
    mean_rmse(mean, torch.zeros(2, 1)).backward()
    assert bool(mean.grad.isfinite().all())
