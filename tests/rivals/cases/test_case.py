"""Cases: the same rows for all methods of a seed, other ones for another seed."""

import numpy as np
import pandas as pd
import pytest
from other_process import digest, digest_elsewhere

from equipoise.app.job import Job
from equipoise.rivals.cases.case import Case, CaseError, CaseTable, SameTable

JOB = """
data = "flows.csv"
inputs = ["x"]
outputs = ["a", "b"]
[balances]
sum = "a + b = x"
[model]
validation_fraction = 0.25
hidden = [3]
max_epochs = 7
"""


def table(n=20):
    x = np.arange(float(n))
    return CaseTable(pd.DataFrame({"x": x}), pd.DataFrame({"a": x / 4, "b": 3 * x / 4}))


def case(rows=None, n_fit=None, text=JOB):
    return Case.from_job(Job.parse(text), SameTable(table() if rows is None else rows), "flows", "flows", n_fit)


def test_every_row_is_either_fitted_or_tested():
    split = case().split(0)
    fitted, tested = split.fit.X["x"].tolist(), split.test.X["x"].tolist()
    assert sorted(fitted + tested) == list(range(20))
    assert (len(fitted), len(tested), len(split.held_out)) == (16, 4, 4)
    assert split.held_out.max() < 16


def test_inputs_and_outputs_stay_together():
    split = case().split(3)
    assert (split.fit.Y.sum(axis=1) == split.fit.X["x"]).all()


def test_a_seed_gives_the_same_split_in_every_process_and_another_seed_another():
    assert digest(case().split(1).digest()) == digest_elsewhere(__file__, "case().split(1).digest()")
    assert case().split(1).digest() != case().split(2).digest()


def test_the_digest_changes_with_a_single_number():
    changed = table()
    changed.Y.loc[5, "a"] += 1e-12
    assert case().split(1).digest() != case(changed).split(1).digest()


def test_options_come_from_the_job():
    options = case().options
    assert options["hidden"] == (3,)
    assert options["training"].max_epochs == 7
    assert not {"likelihood", "constraint", "random_state", "checkpoint"} & set(options)


def test_the_number_of_fitted_rows_can_be_given():
    assert len(case(n_fit=8).split(0).fit.X) == 8


def test_a_job_without_balances_is_refused():
    with pytest.raises(CaseError, match="must have balances, but got none in 'flows'"):
        case(text=JOB.replace('[balances]\nsum = "a + b = x"\n', ""))


def test_too_few_rows_are_refused_with_their_number():
    with pytest.raises(CaseError, match="got 3 rows of which 0 decide when to stop"):
        case(table(3), text=JOB.replace("0.25", "0.1")).split(0)
