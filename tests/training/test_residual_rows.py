"""Compressed residual rows: their density against that of all rows, and how rows are put in groups."""

import pytest
import torch
from linearised_members import N_Y, model_and_rows, normal

from equipoise.gaussian import DiagonalGaussian
from equipoise.training.residual_rows import MOST_KINDS, SAME, ResidualRows, RowKinds, VarianceDensity
from equipoise.training.variance_fit import VarianceHead


def _by_all_rows(model, rows, means, values, slope):
    """The log likelihood of all rows at given means, plus the priors as they are documented, draw by draw."""
    result = []
    for mean, value in zip(means, values, strict=True):
        var = (value[:N_Y] + slope).exp().expand_as(mean)
        gaussian = model.condition(DiagonalGaussian(mean, var), rows.target, value[N_Y : N_Y + 1].exp())
        density = model.likelihood(gaussian, rows.y, value[N_Y + 1 :].exp()).sum()
        prior = ((value[:N_Y] + 8.0) / 3.0).square().sum() + ((value[N_Y:] + 3.0) / 2.0).square().sum()
        result.append(density - 0.5 * prior)
    return torch.stack(result)


@pytest.mark.parametrize("missing", [False, True])
def test_compressed_rows_have_the_density_of_all(missing):
    model, weights, rows = model_and_rows(missing=missing)
    kinds = RowKinds.of(model, rows, VarianceHead.of(model, weights, rows.x))
    means = rows.y.nan_to_num(0.0) + 0.3 * normal(5, *rows.y.shape, seed=1)
    residuals = kinds.residuals(means)
    assert residuals.count.shape[1] < len(rows)
    assert residuals.count.sum(1).tolist() == 5 * [len(rows)]
    values = torch.tensor([-3.0, -2.0, -4.0, -3.0, -2.0, -3.0, -2.5], dtype=torch.float64) + normal(5, 7, seed=2)
    ours = VarianceDensity(model, residuals)(values)
    expected = _by_all_rows(model, rows, means, values, torch.zeros(N_Y, dtype=torch.float64))
    torch.testing.assert_close(ours, expected, rtol=1e-11, atol=1e-9)


def test_rows_of_different_variances_are_in_groups_of_nearly_the_same():
    model, weights, rows = model_and_rows(slopes=0.3)
    head = VarianceHead.of(model, weights, rows.x)
    slope = (head.level + head.units @ head.slopes) - head.level
    assert float(slope.amax(0).max() - slope.amin(0).min()) > 2 * SAME
    kinds = RowKinds.of(model, rows, head)
    assert 1 < len(kinds.groups) <= MOST_KINDS
    assert sorted(torch.cat(kinds.groups).tolist()) == list(range(len(rows)))
    spread = [float((slope[group] - slope[group].mean(0)).square().sum()) for group in kinds.groups]
    assert sum(spread) < 0.3 * float((slope - slope.mean(0)).square().sum())


def test_rows_that_differ_one_by_one_are_not_compressed():
    model, weights, rows = model_and_rows()
    per_row = rows.__class__(rows.x, rows.y, rows.target, sensor_var=torch.ones_like(rows.y))
    assert RowKinds.of(model, per_row, VarianceHead.of(model, weights, rows.x)).groups is None


def test_joined_rows_of_members_keep_their_densities():
    model, weights, rows = model_and_rows()
    _, _, incomplete = model_and_rows(missing=True)
    head = VarianceHead.of(model, weights, rows.x)
    means = 0.3 * normal(2, *rows.y.shape, seed=3)
    parts = [RowKinds.of(model, each, head).residuals(means) for each in (rows, incomplete)]
    values = torch.full((2, 7), -3.0, dtype=torch.float64) + normal(2, 7, seed=4)
    together = VarianceDensity(model, ResidualRows.joined(parts))(values.repeat(2, 1))
    apart = torch.cat([VarianceDensity(model, each)(values) for each in parts])
    torch.testing.assert_close(together, apart, rtol=1e-12, atol=1e-10)
