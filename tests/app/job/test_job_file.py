"""A job that was read: its columns, balances, sensors, and the estimator that it describes."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import equipoise
from equipoise import ConstrainedBNNRegressor, LinearConstraint, TolerancePrior, TrainingPlan
from equipoise.app.job import Job, JobError

TEXT = """
data = "tables/cell.csv"
inputs = ["Current [A]", " SOC "]
outputs = ["Voltage [V]", "OCV [V]", "Loss pos [V]", "Power [W]", "Power [hp]"]
known = ["Reference [V]"]
[balances]
voltage = "Voltage = OCV - `Loss pos` + Reference"
power = "`Power [W]` = 735.5*`Power [hp]`"
"""


def complaint(text):
    with pytest.raises(JobError) as caught:
        Job.parse(text, "cell.toml")
    return str(caught.value)


def test_columns_are_read_in_their_order_and_without_surrounding_blanks():
    job = Job.parse(TEXT)
    assert job.columns == (*job.inputs, "Reference [V]", *job.outputs)
    assert job.inputs == ("Current [A]", "SOC")
    assert job.x_columns == ("Current [A]", "SOC", "Reference [V]")


def test_without_balances_known_columns_are_kept_from_the_network():
    job = Job.parse(TEXT.split("[balances]")[0])
    assert job.constraint() is None
    assert job.x_columns == ("Current [A]", "SOC")


def test_the_table_is_found_beside_the_job_file_and_the_text_is_kept(tmp_path):
    path = tmp_path / "cell.toml"
    path.write_bytes(b"\xef\xbb\xbf" + TEXT.encode())  # as Windows' editor writes it
    job = Job.load(path)
    assert job.data == tmp_path / "tables" / "cell.csv"
    assert job.text == TEXT
    assert Job.parse(job.text, path) == job
    elsewhere = TEXT.replace("tables/cell.csv", "/data/cell.csv")
    assert Job.parse(elsewhere, path).data == Path("/data/cell.csv")


def test_balances_become_the_constraint_that_python_builds():
    balances = {"voltage": "Voltage = OCV - `Loss pos` + Reference", "power": "`Power [W]` = 735.5*`Power [hp]`"}
    job = Job.parse(TEXT)
    expected = LinearConstraint.from_equations(balances, inputs=job.inputs, outputs=job.outputs, known=job.known)
    assert job.constraint() == expected
    np.testing.assert_array_equal(expected.A, [[0, 0, -1], [0, 0, 0]])
    np.testing.assert_array_equal(expected.B, [[1, -1, 1, 0, 0], [0, 0, 0, 1, -735.5]])


def test_without_options_the_estimator_is_the_default_one_with_a_seed():
    job = Job.parse(TEXT)
    parameters = job.estimator().get_params()
    default = ConstrainedBNNRegressor(job.constraint(), training=TrainingPlan(), random_state=0).get_params()
    assert parameters == default


def test_every_option_arrives_at_the_estimator():
    text = TEXT + (
        '[sensors]\nVoltage = 0.002\nOCV = "learn"\n"Power [hp]" = 0\n'
        '[tolerances]\nvoltage = { median = 1.0, factor = 2.718281828459045, relative = true }\npower = "paper"\n'
        '[model]\nhidden = [8]\nactivation = "tanh"\nseed = 7\nmax_epochs = 5\nbatch_size = 16\noffset = true\n'
        'start = "prior"\n'
    )
    parameters = Job.parse(text).estimator(verbose=True, n_draws=3).get_params()
    assert parameters["sensor_std"] == {"Voltage [V]": 0.002, "OCV [V]": "learn", "Power [hp]": 0.0}
    assert parameters["tolerance"] == {"voltage": TolerancePrior(0.0, 2.0), "power": TolerancePrior.paper()}
    assert parameters["training"] == TrainingPlan(max_epochs=5, batch_size=16)
    chosen = {
        name: parameters[name]
        for name in ("hidden", "activation", "random_state", "offset", "start", "verbose", "n_draws")
    }
    assert chosen == {
        "hidden": (8,),
        "activation": "tanh",
        "random_state": 7,
        "offset": True,
        "start": "prior",
        "verbose": True,
        "n_draws": 3,
    }


def test_tolerances_may_be_exact_given_or_learned():
    job = Job.parse(TEXT + '[tolerances]\nvoltage = 0\npower = "learn"')
    assert job.estimator().tolerance == {"voltage": 0.0, "power": None}
    assert Job.parse(TEXT + "[tolerances]\nvoltage = 0.5").estimator().tolerance == {"voltage": 0.5}


def test_the_described_estimator_can_be_fitted_and_obeys_its_balance(long_training):
    job = Job.parse('data = "t.csv"\ninputs = ["x"]\noutputs = ["a", "b"]\n[balances]\nsum = "a + b = x"\n')
    x = np.linspace(0, 1, 40)
    table = pd.DataFrame({"b": x - x**2, "a": x**2, "x": x})
    model = job.estimator(max_epochs=3, hidden=(4,), n_draws=4).fit(
        table[list(job.x_columns)], table[list(job.outputs)]
    )
    np.testing.assert_allclose(model.predict(table[["x"]]).sum(axis=1), x, atol=1e-9)


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ("[sensors]\nPower = 0.1", "It fits 'Power [W]' and 'Power [hp]': write the full name."),
        ("[sensors]\nVoltag = 0.1", "[sensors] must name outputs, but got 'Voltag'. Did you mean 'Voltage [V]'?"),
        ("[sensors]\nSOC = 0.1", "[sensors] must name outputs, but got 'SOC', an input."),
        ('[sensors]\nOCV = 1\n"OCV [V]" = 1', "must name each output once, but got 'OCV' and 'OCV [V]'."),
        ('[sensors]\n"a`b = c" = 1', "[sensors] must name outputs, but got 'a`b = c'."),
        ("[tolerances]\nvolta = 0", "[tolerances] must name balances, but got 'volta'. Did you mean 'voltage'?"),
        (
            '[sensors]\nOCV = 0.1\n[model]\nlikelihood = "marginal"',
            "'OCV' in [sensors] must be 0 or 'learn' with likelihood = \"marginal\"",
        ),
    ],
)
def test_what_does_not_fit_together_is_named(extra, message):
    assert message in complaint(TEXT + extra)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ('inputs = ["a", "b"]\noutputs = ["b"]', "got 'b' in 'inputs' and in 'outputs'."),
        ('inputs = ["a", "a"]\noutputs = ["b"]', "got 'a' twice in 'inputs'."),
        ('inputs = ["a"]\nknown = ["b"]\noutputs = ["b "]', "got 'b' in 'known' and in 'outputs'."),
    ],
)
def test_a_column_has_one_place(columns, message):
    assert message in complaint(f'data = "t.csv"\n{columns}')


@pytest.mark.parametrize(
    ("equation", "message"),
    [
        ("Voltge = OCV", "must use known columns only, but got 'Voltge'. Did you mean 'Voltage [V]'?"),
        ("Voltage = OCV * SOC", "must be linear in its columns, but got the product OCV * SOC"),
        ("__import__('os').system('true') = 0", "but got the character"),
        ("Voltage = ", "must have terms on both sides of '='"),
    ],
)
def test_a_balance_that_cannot_be_read_is_named_with_its_text(equation, message):
    found = complaint(TEXT + f'wrong = "{equation}"')
    assert found.startswith(f"cell.toml: 'wrong' in [balances]: Equation {equation.strip()!r}")
    assert message in found


@pytest.mark.parametrize(
    ("equation", "message"),
    [
        ("2*Voltage = 2*OCV - 2*`Loss pos` + 2*Reference", "Balances 'voltage' and 'other' are duplicates"),
        ("Voltage = OCV - `Loss pos` + Reference + 1", "Balances 'voltage' and 'other' contradict each other by 1"),
        ("SOC = 2*`Current [A]`", "Balance 'other' must involve an output, but got only 'Current [A]' and 'SOC'"),
    ],
)
def test_balances_that_cannot_stand_together_can_be_loaded_but_not_used(equation, message):
    job = Job.parse(TEXT + f'other = "{equation}"', "cell.toml")  # so that each can be looked at alone
    with pytest.raises(JobError) as caught:
        job.constraint()
    assert str(caught.value).startswith(f"cell.toml: {message}")


def test_columns_that_the_table_lacks_are_named_with_the_closest():
    job = Job.parse(TEXT, "cell.toml")
    job.check_header([*reversed(job.columns), "extra"])
    with pytest.raises(JobError) as caught:
        job.check_header(["Current [mA]", *job.columns[1:]])
    expected = (
        "cell.toml: 'inputs' must name columns of 'cell.csv', but got 'Current [A]'. Did you mean 'Current [mA]'?"
    )
    assert str(caught.value) == expected


def test_a_missing_job_file_suggests_the_closest_one(tmp_path):
    with pytest.raises(JobError, match=r"A job file must exist, but got '.*cel\.toml'.*'equipoise init'"):
        Job.load(tmp_path / "cel.toml")
    (tmp_path / "cell.toml").touch()
    with pytest.raises(JobError, match=r"Did you mean 'cell\.toml'"):
        Job.load(tmp_path / "cel.toml")


def test_a_table_is_no_job_but_a_job_may_be_named_after_one(tmp_path):
    for name in ("cell.csv", "cell.tsv.gz", "cell.PARQUET"):
        (tmp_path / name).touch()
        with pytest.raises(JobError, match=rf"must be a \.toml file, but got the table '.*{name}'"):
            Job.load(tmp_path / name)
    (tmp_path / "cell.csv.toml").write_text('data = "cell.csv"\ninputs = ["x"]\noutputs = ["y"]\n', "utf-8")
    assert Job.load(tmp_path / "cell.csv.toml").outputs == ("y",)


def test_a_folder_or_another_encoding_is_no_job_file(tmp_path):
    with pytest.raises(JobError, match="must be a file, but got the folder"):
        Job.load(tmp_path)
    (tmp_path / "cell.toml").write_bytes("# °C".encode("latin-1"))
    with pytest.raises(JobError, match=r"must be readable UTF-8 text, but got '.*cell\.toml'"):
        Job.load(tmp_path / "cell.toml")


WITHOUT_HEAVY_LIBRARIES = """
import sys, types
package = types.ModuleType("equipoise")
package.__path__ = [sys.argv[1]]
sys.modules["equipoise"] = package
sys.modules.update(dict.fromkeys(["torch", "numpy", "pandas", "scipy", "sklearn"]))  # cannot be imported
from equipoise.app.job import Job, draft
text = draft(["a", "b"], {}, ["a"], ["b"], balances=[("e", "a = b", "")])
print(Job.parse(text).outputs)
"""


def test_jobs_are_drafted_and_read_without_the_heavy_libraries():
    folder = str(Path(equipoise.__file__).parent)
    probe = [sys.executable, "-c", WITHOUT_HEAVY_LIBRARIES, folder]
    found = subprocess.run(probe, capture_output=True, text=True, check=False)
    assert (found.stdout, found.stderr) == ("('b',)\n", "")
