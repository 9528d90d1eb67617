"""The town's meters: as many as announced, true demands that add up, noise in proportion."""

import numpy as np

from equipoise.rivals.cases.collection import named_case
from equipoise.rivals.cases.hierarchy import METER, make_hierarchy, meters, sums


def test_true_demands_add_up_at_every_level():
    truth = make_hierarchy(0, 50).truth
    for parent, text in sums().items():
        parts = [f"{name.strip()} [kW]" for name in text.split("=")[1].split("+")]
        np.testing.assert_allclose(truth[parts].sum(axis=1), truth[f"{parent} [kW]"], rtol=1e-12)
    feeders = truth[[name for name in meters() if name.startswith("f")]]
    np.testing.assert_allclose(feeders.sum(axis=1), truth["town [kW]"], rtol=1e-12)


def test_its_job_file_has_these_meters_and_sums():
    constraint = named_case("hierarchy").constraint
    assert constraint.outputs == tuple(meters())
    assert constraint.names == tuple(sums())
    assert (constraint.n_outputs, constraint.n_balances) == (69, 21)


def test_the_town_is_the_same_for_all_seeds_and_the_noise_is_not():
    one, other = make_hierarchy(0, 2000), make_hierarchy(1, 2000)
    np.testing.assert_allclose(one.truth.mean(), other.truth.mean(), rtol=0.05)
    noise = (one.Y - one.truth).to_numpy()
    assert np.abs(noise.std(0) / (METER * one.truth.to_numpy().std(0)) - 1).max() < 5 / np.sqrt(2 * 2000)
