"""`equipoise fit`: the model that a job describes, in one file, also by processes that are killed."""

import contextlib
import io
import json
import os
import signal

import handmade_table
import numpy as np
import pytest
from handmade_table import FULL_JOB, INPUTS, JOB, OUTPUTS, cell, contents
from process_group import one_server, together
from safetensors.numpy import load_file

from equipoise.app.commands import fit, main
from equipoise.app.job import Job
from equipoise.artifact import model_file as artifact
from equipoise.training.checkpoint import Checkpoint
from equipoise.training.loop import TrainingRun

pytestmark = pytest.mark.usefixtures("long_training")

EPOCHS = 10  # of JOB: 5 of means, 4 of the ELBO, 1 of noise
NO_BALANCES = JOB.replace('[balances]\nvoltage = "Voltage = OCV - Loss"\n', "")


# --- What is fitted ---------------------------------------------------------------------------------------------------


def test_the_model_is_that_of_the_same_estimator_in_python(whole, epochs):
    model, table = artifact.load(whole / "cell.safetensors"), cell()
    expected = Job.load(whole / "cell.toml").estimator().fit(table[list(INPUTS)], table[list(OUTPUTS)])
    new = cell(5, seed=1)[list(INPUTS)]
    np.testing.assert_array_equal(model.predict(new), expected.predict(new))
    assert model.tolerances_["tol_std"].tolist() == expected.tolerances_["tol_std"].tolist()
    assert epochs(whole / "cell.run.jsonl") == [
        {name: value for name, value in record.items() if name != "seconds"} for record in expected.history_.epochs
    ]


def test_the_summary_tells_the_fit_of_held_out_rows_and_the_tolerances(folder, capsys):
    assert main(["fit", "cell.toml", "-o", "model.safetensors"]) == 0
    out = capsys.readouterr().out
    model, table = artifact.load("model.safetensors"), cell()
    assert "6 rows held out to decide when to stop" in out
    notes = artifact.describe("model.safetensors").notes
    held_out = Job.load("cell.toml").estimator().fit(table[list(INPUTS)], table[list(OUTPUTS)]).held_out_
    error = model.predict(table.loc[held_out, list(INPUTS)]).to_numpy() - table.loc[held_out, list(OUTPUTS)].to_numpy()
    for j, name in enumerate(OUTPUTS):
        rmse = np.sqrt(np.mean(error[:, j] ** 2))
        assert notes[f"held-out rmse of {name}"] == pytest.approx(rmse, rel=1e-6)
        assert any(line.startswith(f" {name} ") and f" {rmse:.3g} " in line for line in out.splitlines())
    assert str(model.tolerances_["verdict"].iloc[0]) in out
    assert "10 epochs in " in out
    assert f"kept the state of epoch {model.history_.best_epoch}." in out
    assert "Written: model.safetensors, model.run.jsonl" in out


def test_the_seed_of_the_command_line_takes_the_place_of_the_jobs(folder, whole):
    assert main(["fit", "cell.toml", "--seed", "3", "-o", "seeded.safetensors"]) == 0
    handmade_table.write(folder, job=f"{JOB}seed = 3\n")
    assert main(["fit", "cell.toml"]) == 0
    seeded, job, other = map(load_file, ("seeded.safetensors", "cell.safetensors", whole / "cell.safetensors"))
    weights = "model.network.posterior.loc"
    assert all(np.array_equal(seeded[name], job[name]) for name in job)
    assert not np.array_equal(seeded[weights], other[weights])


def test_a_job_may_ask_for_the_papers_training(folder):
    handmade_table.write(folder, job=f'{JOB}start = "prior"\n')
    assert main(["fit", "cell.toml"]) == 0
    model = artifact.load("cell.safetensors")
    assert (model.start, model.plan_.temperature) == ("prior", 1.0)
    assert [record["phase"] for record in model.history_.epochs] == EPOCHS * ["elbo"]


def test_quick_takes_its_own_settings_and_says_that_results_need_more(folder, monkeypatch, capsys):
    monkeypatch.setattr(fit, "QUICK", {"hidden": (3,), "max_epochs": 2, "n_draws": 2})
    assert main(["fit", "cell.toml", "--quick"]) == 0
    out, err = capsys.readouterr()
    assert "2 epochs in " in out
    assert "note: --quick is for a first look; fit without it for results." in err
    description = artifact.describe("cell.safetensors")
    assert (description.configuration.hidden, description.configuration.n_draws, description.notes["quick"]) == (
        (3,),
        2,
        True,
    )


def test_known_columns_enter_balances_and_not_the_network(fitted):
    model = artifact.load(fitted)
    assert (model.constraint_.inputs, model.constraint_.known) == (INPUTS, ("Lead [V]",))
    assert model.model_.network.sizes[0] == 2
    assert (fitted.parent / "cell.run.jsonl").exists()


def test_a_job_without_balances_gives_a_plain_network(folder, capsys):
    handmade_table.write(folder, cell().assign(**{"Loss [V]": 0.1}), f"{NO_BALANCES}validation_fraction = 0.0\n")
    assert main(["fit", "cell.toml"]) == 0
    out, err = capsys.readouterr()
    assert "Balances" not in out
    assert "kept the state of the last." in out  # as no rows were held out to find a better one
    assert "note: Column 'Loss [V]' is constant (0.1)." in err
    assert main(["info", "cell.safetensors"]) == 0
    assert "a network without balances" in capsys.readouterr().out
    assert main(["evaluate", "cell.safetensors", "cell.csv", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert (set(printed["outputs"]), printed["balances"]) == (set(OUTPUTS), {})


def test_what_check_would_remark_on_is_said_before_training(folder, capsys):
    handmade_table.write(folder, cell(3), FULL_JOB)
    assert main(["fit", "cell.toml"]) == 0
    assert "note: 'cell.csv' has 3 rows for 4 outputs: too few to learn from." in capsys.readouterr().err
    table = cell(4)
    table.loc[0, "Voltage [V]"] = table.loc[1, "OCV [V]"] = np.nan
    handmade_table.write(folder, table)
    assert main(["fit", "cell.toml"]) == 0
    assert "note: Balance 'voltage' has too few rows" in capsys.readouterr().err


# --- A fit that was cut short -----------------------------------------------------------------------------------------


def test_an_output_that_two_rows_have_is_refused_by_name(folder, refused):
    table = cell(5)
    table.loc[:2, "Loss [V]"] = np.nan
    handmade_table.write(folder, table)
    message = "measured in 3 rows at least that are trained on, but got 2 for 'Loss [V]'. Drop it, or add rows"
    assert message in refused("fit", "cell.toml")


def test_two_rows_are_refused_with_the_number_that_is_needed(folder, refused):
    handmade_table.write(folder, cell(2))
    assert "'cell.csv' must hold 3 rows at least to learn from, but got 2. Add more." in refused("fit", "cell.toml")


def test_outlying_rows_are_called_by_their_lines(folder, capsys):
    table = cell()
    table.loc[40, "Voltage [V]"] += 0.5
    handmade_table.write(folder, table)
    assert main(["fit", "cell.toml"]) == 0
    assert "note: Balance 'voltage': the residual of 1 row stands out (line 42).\n" in capsys.readouterr().err


# --- What cannot be fitted or written ---------------------------------------------------------------------------------


def test_an_output_without_any_value_cannot_be_learned(folder, refused):
    handmade_table.write(folder, cell().assign(**{"Loss [V]": np.nan}))
    assert "Every output must be measured in 3 rows at least that are trained on, but got 0 for 'Loss [V]'" in refused(
        "fit", "cell.toml"
    )


def test_a_constant_output_is_fitted_with_a_remark(folder, capsys):
    handmade_table.write(folder, cell().assign(**{"Loss [V]": 0.1}))
    assert main(["fit", "cell.toml"]) == 0
    assert "note: Column 'Loss [V]' is constant (0.1)." in capsys.readouterr().err
    new = cell(5, seed=1)[list(INPUTS)]
    np.testing.assert_allclose(artifact.load("cell.safetensors").predict(new)["Loss [V]"], 0.1, atol=1e-6)


# --- Processes that are killed, and several of them -------------------------------------------------------------------


def fit_in_group(folder, *options, kill=None):
    """Exit code and voice of a process of `torchrun … -m equipoise fit`, or of one alone; a power cut may end it.

    Every epoch keeps a checkpoint.
    """
    os.chdir(folder)
    epoch, victim = TrainingRun._epoch, kill == int(os.environ["RANK"])

    def counted(run, phase):
        if victim and len(run.history.epochs) == 6:
            os.kill(os.getpid(), signal.SIGKILL)
        return epoch(run, phase)

    TrainingRun._epoch = counted
    Checkpoint.save_if_due = lambda self, state: self.save(state())
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        code = main(["fit", "cell.toml", *options])
    return code, out.getvalue(), err.getvalue()


def killed_in_group(folder, victim):
    return fit_in_group(folder, kill=victim)


@one_server
def test_a_fit_that_was_killed_resumes_to_the_same_file_byte_for_byte(folder, whole, capsys, epochs):
    assert together(killed_in_group, folder, 0, size=1) == ["killed"]
    assert set(contents(folder)) == {"cell.csv", "cell.toml", "cell.safetensors.ckpt", "cell.run.jsonl.part"}
    assert main(["fit", "cell.toml", "--resume"]) == 0
    assert "10 epochs in " in capsys.readouterr().out
    assert (folder / "cell.safetensors").read_bytes() == (whole / "cell.safetensors").read_bytes()
    assert epochs(folder / "cell.run.jsonl") == epochs(whole / "cell.run.jsonl")
    assert set(contents(folder)) == set(contents(whole))


@one_server
def test_a_process_killed_in_a_joint_fit_ends_it_with_one_sentence_and_resuming_leads_to_the_model_of_one(
    folder, whole, epochs
):
    rest, lost = together(killed_in_group, folder, 1)
    assert lost == "killed"
    code, out, err = rest
    assert (code, out) == (2, "")
    assert "but one of them ended before" in err
    line = "torchrun --nproc-per-node 2 -m equipoise fit cell.toml -o cell.safetensors --resume"
    assert err.endswith(f"Go on with: {line}\n")
    assert len(err.splitlines()) == 1
    assert set(contents(folder)) == {"cell.csv", "cell.toml", "cell.safetensors.ckpt", "cell.run.jsonl.part"}
    first, other = together(fit_in_group, folder, "--resume")
    assert (first[0], other) == (0, (0, "", ""))
    assert "10 epochs" in first[1]
    assert set(contents(folder)) == {"cell.csv", "cell.toml", "cell.safetensors", "cell.run.jsonl"}
    weights, expected = load_file(folder / "cell.safetensors"), load_file(whole / "cell.safetensors")
    for name, values in expected.items():
        np.testing.assert_allclose(weights[name], values, rtol=1e-6, atol=2e-5 * np.abs(values).max(initial=0))
    assert [record["epoch"] for record in epochs(folder / "cell.run.jsonl")] == list(range(EPOCHS))


@one_server
def test_the_process_that_is_left_has_the_command_too(folder):
    lost, (code, out, err) = together(killed_in_group, folder, 0)
    assert (lost, code, out) == ("killed", 2, "")
    line = "torchrun --nproc-per-node 2 -m equipoise fit cell.toml -o cell.safetensors --resume"
    assert err.endswith(f"Go on with: {line}\n")


@one_server
def test_what_is_wrong_for_all_processes_is_told_by_one(folder):
    handmade_table.write(folder, job=JOB.replace("cell.csv", "cel.csv"))
    results = together(fit_in_group, folder)
    assert [code for code, _, _ in results] == [2, 2]
    assert sorted(len(err.splitlines()) for _, _, err in results) == [0, 1]
    assert "Did you mean 'cell.csv'" in results[0][2] + results[1][2]
