from dataclasses import replace

import numpy as np
import pandas as pd
import plants
import pytest
from plants import NAN

from equipoise.balances.linear import LinearConstraint
from equipoise.reconciliation import ReconciliationError, reconcile, serial_elimination

LOOP = LinearConstraint.from_equations(
    {"one": "a = b", "two": "b = c", "three": "c = d"}, outputs=["a [kg/s]", "b [kg/s]", "c [kg/s]", "d [kg/s]"]
)


def names_of(found):
    return [suspect.candidate.name for suspect in found.suspects]


def test_the_gross_error_of_the_heat_exchanger_is_taken_out_and_the_rest_is_in_order():
    plant = plants.heat_exchanger(gross_error=4.0)
    result = reconcile(plant.values, plant.std, plant.constraint)
    found = result.serial_elimination()
    (suspect,) = found.suspects
    assert suspect.candidate.name == "F2"
    assert found.reasons[0] == "the global test passes"
    without = result.without(found)
    assert found.statistic[0] == pytest.approx(without.statistic)
    assert found.degrees_of_freedom[0] == without.degrees_of_freedom == 3
    assert suspect.size == pytest.approx(plant.values[1] - without.values[1])
    assert suspect.size_std == pytest.approx(np.hypot(1.0, without.std[1]))
    assert f"± {1.959964 * suspect.size_std:.4g}" in str(suspect)
    assert without.classes[1] == "unmeasured observable"


def test_taking_out_is_the_same_as_reconciling_without():
    found_any = 0
    for seed in range(24):
        plant = plants.random_plant(seed, n=10, m=5, missing=seed % 2, tolerant=seed % 3, exact=seed % 2)
        rng = np.random.default_rng(seed)
        values = plant.values + np.where(rng.random(10) < 0.25, 12 * plant.std, 0.0)
        plant = replace(plant, values=values)
        result = reconcile(plant.values, plant.std, plant.constraint, tolerance=plant.tolerance)
        found = result.serial_elimination(leaks=seed % 2 == 0)
        without = result.without(found)
        assert found.statistic[0] == pytest.approx(without.statistic, rel=1e-7, abs=1e-9)
        assert found.degrees_of_freedom[0] == without.degrees_of_freedom
        for suspect in found.suspects:
            if suspect.candidate.kind == "sensor":
                j = result.variables.index(suspect.candidate.name)
                assert suspect.size == pytest.approx(plant.values[j] - without.values[j], rel=1e-6, abs=1e-8)
                assert suspect.size_std == pytest.approx(np.hypot(plant.std[j], without.std[j]), rel=1e-6)
            elif not plant.tolerance.any():
                k = plant.constraint.index(suspect.candidate.name)
                assert suspect.size == pytest.approx(without.residuals.after[k], rel=1e-6, abs=1e-8)
        found_any += len(found.suspects)
    assert found_any > 18


def test_each_step_takes_the_largest_statistic_of_what_is_left():
    result = reconcile([10.0, 10.1, 16.0, 30.0], 1.0, LOOP)
    found = result.serial_elimination()
    assert names_of(found) == ["d [kg/s]", "c [kg/s]"]
    first = result.measurement_test()
    assert found.suspects[0].statistic == pytest.approx(first.statistic[3])
    second = result.without("d [kg/s]").measurement_test()
    assert found.suspects[1].statistic == pytest.approx(second.statistic[2])
    np.testing.assert_allclose([s.size for s in found.suspects], [19.95, 5.95])
    assert [s.step for s in found.suspects] == [1, 2]


def test_candidates_that_no_data_can_tell_apart_are_named():
    pair = LinearConstraint.from_equations("a = b", outputs=["a", "b"])
    found = reconcile([10.0, 20.0], 1.0, pair).serial_elimination(leaks=True)
    (suspect,) = found.suspects
    assert suspect.candidate.name == "a"
    assert [other.name for other in suspect.alike] == ["b", "a = b"]
    assert found.reasons[0] == "no redundancy is left"
    assert "it could as well be sensor 'b' or balance 'a = b'" in repr(found)
    lone = reconcile([10.0, 10.1, 16.0, 10.2], 1.0, LOOP).serial_elimination()
    assert lone.suspects[0].alike == ()


def test_a_leak_is_found_where_it_is():
    plant = LinearConstraint.from_equations(
        {"mixer": "a + b = c", "tank": "c = d", "splitter": "d = e + f"}, outputs=list("abcdef")
    )
    found = reconcile([50.0, 50.0, 100.0, 90.0, 45.0, 45.0], 1.0, plant).serial_elimination(leaks=True)
    (suspect,) = found.suspects
    assert suspect.candidate.name == "tank"
    assert suspect.size == pytest.approx(10.0, abs=0.1)
    assert names_of(reconcile([50.0, 50, 100, 90, 45, 45], 1.0, plant).serial_elimination()) != ["tank"]


def test_elimination_stops_for_one_of_five_reasons():
    quiet = reconcile([10.0, 10.1, 9.9, 10.2], 1.0, LOOP)
    assert quiet.serial_elimination().reasons[0] == "no alarm"
    assert quiet.serial_elimination().suspects == ()
    loud = reconcile([10.0, 10.1, 16.0, 30.0], 1.0, LOOP)
    assert loud.serial_elimination().reasons[0] == "the global test passes"
    assert loud.serial_elimination(most=1).reasons[0] == "as many as allowed"
    assert len(loud.serial_elimination(most=1).suspects) == 1
    wild = reconcile([0.0, 20.0, 40.0, 60.0], 1.0, LOOP)
    assert wild.serial_elimination().reasons[0] == "no redundancy is left"
    many = LinearConstraint(np.kron(np.eye(12), [1.0, -1.0]))
    spread = np.tile([2.4, 0.0], 12)  # each balance is 1.7 standard deviations off, none by itself too much
    vague = reconcile(spread, 1.0, many).serial_elimination()
    assert vague.reasons[0] == "no candidate stands out"
    assert vague.suspects == ()


def test_a_table_is_worked_on_row_by_row(monkeypatch, long_training):
    search = serial_elimination._Search
    rng = np.random.default_rng(0)
    plant = plants.random_plant(2, n=10, m=5)
    table = plant.values + rng.standard_normal((16, 10)) + np.where(rng.random((16, 10)) < 0.15, 15, 0.0) * plant.std
    table[rng.random(table.shape) < 0.03] = np.nan
    for std in (plant.std, plant.std * np.exp(0.2 * rng.standard_normal((16, 10)))):
        whole = reconcile(table, std, plant.constraint).serial_elimination(leaks=True)
        parts = []
        with monkeypatch.context() as patched:
            patched.setattr(serial_elimination, "PIECE_NUMBERS", 100)
            patched.setattr(serial_elimination, "_Search", lambda *one, parts=parts: parts.append(one) or search(*one))
            pieces = reconcile(table, std, plant.constraint).serial_elimination(leaks=True)
        assert names_of(pieces) == names_of(whole)
        assert len(parts) >= len({s.row for s in whole.suspects})
        assert {len(whitened) for whitened, *_ in parts} == {1}  # two rows would have more than 100 numbers
        order = [(s.row, s.step) for s in whole.suspects]
        assert order == sorted(order)
        for i in range(16):
            alone = reconcile(table[i], np.broadcast_to(std, table.shape)[i], plant.constraint)
            alone = alone.serial_elimination(leaks=True)
            own = [s for s in whole.suspects if s.row == i]
            assert [s.candidate for s in own] == [s.candidate for s in alone.suspects]
            np.testing.assert_allclose([s.size for s in own], [s.size for s in alone.suspects], rtol=1e-7)
            assert whole.reasons[i] == alone.reasons[0]
            assert whole.statistic[i] == pytest.approx(alone.statistic[0], abs=1e-8)
        assert len(whole.suspects) >= 6


def test_a_table_can_be_reconciled_without_what_was_found_in_each_row():
    table = pd.DataFrame([[10, 10.1, 9.9, 30], [25, 10.1, 9.9, 10], [10, 10, 10, 10.0]], columns=list(LOOP.outputs))
    result = reconcile(table, 1.0, LOOP)
    found = result.serial_elimination()
    clean = result.without(found)
    np.testing.assert_allclose(clean.values, [[10.0] * 4] * 3)
    assert list(clean.degrees_of_freedom) == [2, 2, 3]
    assert not clean.global_test().alarm.any()


def test_lines_have_row_name_unit_and_size():
    rows = [[10, 10.1, 9.9, 30], [10, 10, 10, 10], [10, 10, 10, 28.0]]
    table = pd.DataFrame(rows, columns=list(LOOP.outputs), index=["mon", "tue", "wed"])
    found = reconcile(table, 1.0, LOOP).serial_elimination()
    lines = found.to_frame()
    assert list(lines.index) == ["mon", "wed"]
    assert list(lines["name"]) == ["d [kg/s]"] * 2
    assert list(lines["unit"]) == ["kg/s"] * 2
    np.testing.assert_allclose(lines["size"], [20, 18])
    summary = found.summary()
    assert list(summary["rows"]) == [0, 0, 0, 2]
    assert summary.loc["d [kg/s]", "share"] == pytest.approx(2 / 3)
    assert summary.loc["d [kg/s]", "size"] == pytest.approx(19)
    assert summary.loc["d [kg/s]", "size std"] == pytest.approx(1)
    assert "gross errors in 2 of 3 rows" in repr(found)
    assert "sensor 'd [kg/s]': in 2 rows" in repr(found)
    assert found.summary().index.name == "name"
    assert reconcile([10.0, 10, 10, 10], 1.0, LOOP).serial_elimination().to_frame().empty


def test_two_lying_meters_of_the_steam_network_are_found_and_their_sizes_are_unbiased():
    network, truth = plants.steam_network()
    std = 0.025 * truth
    rng = np.random.default_rng(7)
    rows, biases = 1000, {7: 10 * std[7], 13: -10 * std[13]}
    table = truth + std * rng.standard_normal((rows, 28))
    for j, size in biases.items():
        table[:, j] += size
    found = reconcile(table, std, network).serial_elimination(0.99)
    named = {j: np.array([s.size for s in found.suspects if s.candidate.name == f"F{j + 1}"]) for j in biases}
    for j, size in biases.items():
        assert len(named[j]) > 0.95 * rows
        assert abs(named[j].mean() - size) < 4 * named[j].std() / np.sqrt(len(named[j]))
    assert (found.reasons == "the global test passes").mean() > 0.95
    clean = reconcile(table, std, network).without(found)
    assert np.abs(clean.values[:, 7].mean() - truth[7]) < 4 * clean.std[:, 7].max() / np.sqrt(rows)


def test_the_share_of_rows_with_anything_found_is_at_most_that_of_the_global_test():
    network, truth = plants.steam_network()
    std, rows = 0.025 * truth, 5000
    table = truth + std * np.random.default_rng(8).standard_normal((rows, 28))
    found = reconcile(table, std, network).serial_elimination(0.95)
    assert len({s.row for s in found.suspects}) < rows * 0.05 + 4 * np.sqrt(rows * 0.05 * 0.95)


@pytest.mark.parametrize("most", [0, -1, 1.5, "all"])
def test_a_limit_that_is_no_count_is_refused(most):
    with pytest.raises(ReconciliationError, match="most must be a number ≥ 1, or None, but got"):
        reconcile([10.0, 10, 10, NAN], 1.0, LOOP).serial_elimination(most=most)
