"""The evidence by sums over groups of rows: against the evidence by all rows, and its gradient against differences."""

import numpy as np
import pytest
import torch
from linearised_members import evidence_by_all_rows, member_of, model_and_rows, normal

from equipoise.training.collapsed_evidence import CollapsedEvidence


def _collapsed(model, member, w, seed=7):
    c = normal(w, member.basis.columns.shape[1], seed=seed)
    return CollapsedEvidence(model, [member.sums(c)])


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("sensor_std", [None, 0.3])
def test_the_evidence_is_that_of_all_rows_up_to_one_constant(missing, sensor_std):
    model, weights, rows = model_and_rows(missing=missing, sensor_std=sensor_std)
    member, precisions = member_of(model, weights, rows)
    values = member.start + normal(6, len(member.start), seed=8)
    ours = _collapsed(model, member, 6)(values)[0].numpy()
    evidence = evidence_by_all_rows(model, weights, rows, precisions)
    exact = np.array([evidence(each) for each in values.numpy()])
    # the basis leaves out some thousandths of the noise's variance, which are worth as many nats per mean
    np.testing.assert_allclose(ours - ours[0], exact - exact[0], atol=0.15)
    assert np.ptp(exact) > 5.0


def test_the_gradient_is_that_of_differences_and_the_centre_decides_nothing():
    model, weights, rows = model_and_rows(missing=True)
    member, _ = member_of(model, weights, rows)
    values = member.start + normal(4, len(member.start), seed=9)
    evidence, other = _collapsed(model, member, 4), _collapsed(model, member, 4, seed=10)
    value, gradient = evidence(values)
    torch.testing.assert_close(other(values)[0], value, rtol=0, atol=1e-8)
    for i in range(values.shape[1]):
        step = torch.zeros(values.shape[1], dtype=torch.float64)
        step[i] = 1e-4
        difference = (evidence(values + step)[0] - evidence(values - step)[0]) / 2e-4
        torch.testing.assert_close(gradient[:, i], difference, rtol=1e-5, atol=1e-5)


def test_members_with_other_numbers_of_groups_are_computed_side_by_side():
    model, weights, rows = model_and_rows()
    _, _, incomplete = model_and_rows(missing=True)
    parts = [member_of(model, weights, each)[0] for each in (rows, incomplete)]
    values = parts[0].start + normal(4, len(parts[0].start), seed=11)
    c = [normal(2, each.basis.columns.shape[1], seed=12) for each in parts]
    together = CollapsedEvidence(model, [each.sums(own) for each, own in zip(parts, c, strict=True)])
    apart = [CollapsedEvidence(model, [each.sums(own)]) for each, own in zip(parts, c, strict=True)]
    value, gradient = together(values)
    for i, each in enumerate(apart):
        own = slice(2 * i, 2 * i + 2)
        alone = each(values[own])
        torch.testing.assert_close(value[own], alone[0], rtol=0, atol=1e-8)
        torch.testing.assert_close(gradient[own], alone[1], rtol=1e-8, atol=1e-8)
