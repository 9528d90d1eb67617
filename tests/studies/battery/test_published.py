"""What the paper prints: its digits, and where ours stand."""

import math
from functools import reduce
from operator import getitem

import pytest
import torch
from handmade_results import example

from studies.battery.published import PRINTED, TABLES, kl_from, log_normal_moments


@pytest.mark.parametrize("name", PRINTED)
def test_a_printed_number_knows_its_table_and_ours(name):
    printed, run = PRINTED[name], example()
    assert printed.label in TABLES
    for model in printed.models:
        expected = printed.factor * reduce(getitem, printed.path.format(model=model).split("."), run.model_dump())
        assert printed.ours(run, model) == pytest.approx(expected)
    assert math.isnan(printed.value("bnn")) == ("bnn" not in printed.models)
    assert math.isnan(printed.value("equipoise"))


@pytest.mark.parametrize(
    ("name", "model", "text"),
    [
        ("aleatoric", "paper", "0.0140"),
        ("aleatoric_spread", "bnn", "0.0096"),
        ("voltage_mu_rho", "paper", "−11.21"),
        ("heat_sigma_rho", "paper", "1.00"),
        ("heat_sigma_rho", "bnn", "–"),
        ("voltage_std_r", "paper", "3.19×10⁻⁶"),
        ("width", "bnn", "0.067"),
        ("violation", "bnn", "174.82"),
        ("violation_spread", "paper", "4.3×10⁻⁵"),
    ],
)
def test_printed_numbers_keep_their_digits(name, model, text):
    assert PRINTED[name].text(model) == text


def test_kl_is_that_of_torch():
    prior, learned = torch.distributions.Normal(-6.0, 3.0), torch.distributions.Normal(-17.1, 0.6)
    expected = torch.distributions.kl_divergence(learned, prior).item()
    assert kl_from(-6.0, 3.0, -17.1, 0.6) == pytest.approx(expected, rel=1e-6)


def test_log_normal_moments_are_the_closed_form():
    mean = math.exp(-2.0 + 0.5 * 0.7**2)
    assert log_normal_moments(-2.0, 0.7) == pytest.approx((mean, mean * math.sqrt(math.exp(0.7**2) - 1)), rel=1e-12)
