"""`equipoise fit`: the model that a job describes, in one file, also after a fit that was cut short."""

import contextlib
import errno
import io
import json
import os
import shlex
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
from equipoise.data.atomic_writing import WriteError
from equipoise.training.checkpoint import Checkpoint, TrainingError
from equipoise.training.loop import _Run

pytestmark = pytest.mark.usefixtures("long_training")

EPOCHS = 10  # of JOB: 5 of means, 4 of the ELBO, 1 of noise
NO_BALANCES = JOB.replace('[balances]\nvoltage = "Voltage = OCV - Loss"\n', "")


def epochs(path):
    """The epochs in a history file, without times."""
    records = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    return [{name: value for name, value in record.items() if name != "seconds"} for record in records]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The folder of a fit that nothing disturbed."""
    folder = tmp_path_factory.mktemp("whole")
    handmade_table.write(folder)
    assert main(["fit", str(folder / "cell.toml")]) == 0
    return folder


def cut_short(monkeypatch, epoch, error=KeyboardInterrupt, checkpoint=3):
    """Fits end in an epoch, and their last checkpoint is older than that; None for no checkpoint at all."""
    record = fit._recording._record

    def interrupted(self, said):
        record(self, said)
        if said["epoch"] == epoch:
            raise error

    def save_if_early(self, state):
        now = state()
        if checkpoint is not None and len(now["progress"]["history"]["epochs"]) <= checkpoint:
            self.save(now)

    monkeypatch.setattr(fit._recording, "_record", interrupted)
    monkeypatch.setattr(Checkpoint, "save_if_due", save_if_early)


# --- What is fitted ---------------------------------------------------------------------------------------------------


def test_the_model_is_that_of_the_same_estimator_in_python(whole):
    model, table = artifact.load(whole / "cell.safetensors"), cell()
    expected = Job.load(whole / "cell.toml").estimator().fit(table[list(INPUTS)], table[list(OUTPUTS)])
    new = cell(5, seed=1)[list(INPUTS)]
    np.testing.assert_array_equal(model.predict(new), expected.predict(new))
    assert model.tolerances_["tol_std"].tolist() == expected.tolerances_["tol_std"].tolist()
    assert epochs(whole / "cell.run.jsonl") == [
        {name: value for name, value in record.items() if name != "seconds"} for record in expected.history_.epochs
    ]


def test_only_model_and_history_are_left_beside_job_and_table(whole):
    assert set(contents(whole)) == {"cell.csv", "cell.toml", "cell.safetensors", "cell.run.jsonl"}


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


def test_a_first_look_does_not_replace_a_whole_fit(fitted, folder, refused):
    whole = (folder / "whole.safetensors").write_bytes(fitted.read_bytes())
    assert "--quick must not replace a whole fit" in refused("fit", "cell.toml", "--quick", "-o", "whole.safetensors")
    assert (folder / "whole.safetensors").stat().st_size == whole


def test_the_seed_of_the_command_line_takes_the_place_of_the_jobs(folder, whole):
    assert main(["fit", "cell.toml", "--seed", "3", "-o", "seeded.safetensors"]) == 0
    handmade_table.write(folder, job=f"{JOB}seed = 3\n")
    assert main(["fit", "cell.toml"]) == 0
    said, job, other = map(load_file, ("seeded.safetensors", "cell.safetensors", whole / "cell.safetensors"))
    weights = "model.network.posterior.loc"
    assert all(np.array_equal(said[name], job[name]) for name in job)
    assert not np.array_equal(said[weights], other[weights])


def test_quick_takes_its_own_settings_and_says_that_results_need_more(folder, monkeypatch, capsys):
    monkeypatch.setattr(fit, "QUICK", {"hidden": (3,), "max_epochs": 2, "n_draws": 2})
    assert main(["fit", "cell.toml", "--quick"]) == 0
    out, err = capsys.readouterr()
    assert "2 epochs in " in out
    assert "note: --quick is for a first look; fit without it for results." in err
    said = artifact.describe("cell.safetensors")
    assert (said.configuration.hidden, said.configuration.n_draws, said.notes["quick"]) == ((3,), 2, True)


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
    said = json.loads(capsys.readouterr().out)
    assert (set(said["outputs"]), said["balances"]) == (set(OUTPUTS), {})


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


@pytest.mark.parametrize("epoch", [1, 7, 9])  # of means, of the ELBO, of the noise
def test_ctrl_c_says_how_to_go_on_and_that_line_leads_to_the_same_bytes(folder, whole, monkeypatch, capsys, epoch):
    with monkeypatch.context() as patched:
        cut_short(patched, epoch)
        assert main(["fit", "cell.toml"]) == 130
    hint, word = capsys.readouterr().err.splitlines()[-2:]
    assert hint == "note: Go on with: equipoise fit cell.toml -o cell.safetensors --resume"
    assert word == "equipoise: interrupted"
    assert [record["epoch"] for record in epochs(folder / "cell.run.jsonl.part")] == list(range(epoch + 1))
    assert main(shlex.split(hint.partition("equipoise ")[2])) == 0
    assert (folder / "cell.safetensors").read_bytes() == (whole / "cell.safetensors").read_bytes()
    assert [record["epoch"] for record in epochs(folder / "cell.run.jsonl")] == list(range(EPOCHS))
    assert set(contents(folder)) == set(contents(whole))


def test_options_of_the_fit_are_part_of_the_line_that_goes_on(folder, monkeypatch, capsys):
    monkeypatch.setattr(fit, "QUICK", {"max_epochs": 4})
    with monkeypatch.context() as patched:
        cut_short(patched, 2)
        assert main(["fit", "cell.toml", "-o", "my model.safetensors", "--quick", "--seed", "3"]) == 130
    line = capsys.readouterr().err.partition("Go on with: equipoise ")[2].splitlines()[0]
    assert main(shlex.split(line)) == 0
    said = artifact.describe("my model.safetensors")
    assert (len(said.training.epochs), said.configuration.random_state) == (4, 3)


def test_a_fit_that_is_cut_short_twice_has_every_epoch_once_in_its_running_history(folder, monkeypatch):
    for epoch, words in ((7, []), (8, ["--resume"])):  # the second starts again from epoch 3
        with monkeypatch.context() as patched:
            cut_short(patched, epoch)
            assert main(["fit", "cell.toml", *words]) == 130
        running = epochs(folder / "cell.run.jsonl.part")
        assert [record["epoch"] for record in running] == list(range(epoch + 1))


def test_a_checkpoint_that_is_left_is_not_overwritten_without_being_told_to(folder, whole, monkeypatch, refused):
    with monkeypatch.context() as patched:
        cut_short(patched, 5)
        assert main(["fit", "cell.toml"]) == 130
    assert (
        "'cell.safetensors.ckpt' is there from a fit that was cut short. Add --resume to go on with it, or --anew to "
        "start again." in refused("fit", "cell.toml")
    )
    assert "exclude each other" in refused("fit", "cell.toml", "--resume", "--anew")
    assert "belongs to another run" in refused("fit", "cell.toml", "--resume", "--seed", "1")
    assert main(["fit", "cell.toml", "--anew", "--seed", "1"]) == 0
    assert main(["fit", "cell.toml"]) == 0
    assert (folder / "cell.safetensors").read_bytes() == (whole / "cell.safetensors").read_bytes()


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


def test_a_fit_that_is_terminated_says_how_to_go_on(folder, monkeypatch, capsys):
    cut_short(monkeypatch, 5, error=SystemExit(143))
    assert main(["fit", "cell.toml"]) == 143
    hint, word = capsys.readouterr().err.splitlines()[-2:]
    assert hint == "note: Go on with: equipoise fit cell.toml -o cell.safetensors --resume"
    assert word == "equipoise: terminated"


def test_ctrl_c_before_the_first_checkpoint_leaves_nothing_and_says_so(folder, monkeypatch, capsys):
    before = contents(folder)
    cut_short(monkeypatch, 4, checkpoint=None)
    assert main(["fit", "cell.toml"]) == 130
    assert "note: Nothing is kept: no checkpoint was due yet.\nequipoise: interrupted\n" in capsys.readouterr().err
    assert contents(folder) == before


def test_resuming_nothing_is_a_fit_from_the_beginning_and_said_to_be_one(folder, whole, capsys):
    assert main(["fit", "cell.toml", "--resume"]) == 0
    assert "note: there is no 'cell.safetensors.ckpt' to go on from" in capsys.readouterr().err
    assert (folder / "cell.safetensors").read_bytes() == (whole / "cell.safetensors").read_bytes()


def test_a_fit_that_fails_leaves_an_earlier_model_and_its_history_alone(folder, monkeypatch, refused):
    assert main(["fit", "cell.toml"]) == 0
    cut_short(monkeypatch, 4, TrainingError("the loss is not finite"), checkpoint=None)
    assert "the loss is not finite" in refused("fit", "cell.toml", "--seed", "1")


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


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("nowhere/m.safetensors", "The folder of 'nowhere/m.safetensors' must exist, but got none"),
        ("cell.csv/m.safetensors", "The folder of 'cell.csv/m.safetensors' must exist, but got none"),
        (".", "The model's file must not be a folder, but got '.'"),
        (os.devnull, f"The model's file must not be a device or a pipe, but got '{os.devnull}'"),
    ],
)
def test_a_place_that_cannot_be_written_to_is_refused_before_training(refused, output, message):
    assert message in refused("fit", "cell.toml", "-o", output)


def test_a_folder_without_permission_is_refused_before_training(monkeypatch, refused):
    def forbidden(**_):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("tempfile.TemporaryFile", forbidden)
    assert "The folder of 'm.safetensors' must be writable, but got: Permission denied" in refused(
        "fit", "cell.toml", "-o", "m.safetensors"
    )


def full_disk(_):
    raise OSError(errno.ENOSPC, "No space left on device")


def no_room(path, _):
    """Fail as `write` fails on a full disk."""
    raise WriteError(path, "No space left on device")


def test_a_full_disk_leaves_nothing_of_a_fit_behind(monkeypatch, refused):
    monkeypatch.setattr(os, "fsync", full_disk)
    assert refused("fit", "cell.toml").endswith(
        "The fit of 'cell.safetensors' must be kept as it goes, but got: No space left on device. Make room, or give "
        "another place with -o. Nothing is kept: no checkpoint was due yet."
    )


def test_a_disk_that_is_full_when_the_model_is_written_costs_no_training(folder, whole, monkeypatch, capsys):
    with monkeypatch.context() as patched:
        patched.setattr("equipoise.artifact.model_file.write", no_room)
        assert main(["fit", "cell.toml"]) == 2
    assert "No space left on device" in capsys.readouterr().err
    assert not (folder / "cell.safetensors").exists()
    epochs = []
    monkeypatch.setattr(_Run, "_epoch", lambda *_: epochs.append(1))
    assert main(["fit", "cell.toml", "--resume"]) == 0
    assert epochs == []  # none was left to be run
    assert (folder / "cell.safetensors").read_bytes() == (whole / "cell.safetensors").read_bytes()


# --- Processes that are killed, and several of them -------------------------------------------------------------------


def fit_in_group(folder, *options, kill=None):
    """Exit code and voice of a process of `torchrun … -m equipoise fit`, or of one alone; a power cut may end it.

    Every epoch keeps a checkpoint.
    """
    os.chdir(folder)
    epoch, victim = _Run._epoch, kill == int(os.environ["RANK"])

    def counted(run, start, total):
        if victim and len(run.progress.history.epochs) == 6:
            os.kill(os.getpid(), signal.SIGKILL)
        return epoch(run, start, total)

    _Run._epoch = counted
    Checkpoint.save_if_due = lambda self, state: self.save(state())
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        code = main(["fit", "cell.toml", *options])
    return code, out.getvalue(), err.getvalue()


def killed_in_group(folder, victim):
    return fit_in_group(folder, kill=victim)


@one_server
def test_a_fit_that_was_killed_resumes_to_the_same_file_byte_for_byte(folder, whole, capsys):
    assert together(killed_in_group, folder, 0, size=1) == ["killed"]
    assert set(contents(folder)) == {"cell.csv", "cell.toml", "cell.safetensors.ckpt", "cell.run.jsonl.part"}
    assert main(["fit", "cell.toml", "--resume"]) == 0
    assert "10 epochs in " in capsys.readouterr().out
    assert (folder / "cell.safetensors").read_bytes() == (whole / "cell.safetensors").read_bytes()
    assert epochs(folder / "cell.run.jsonl") == epochs(whole / "cell.run.jsonl")
    assert set(contents(folder)) == set(contents(whole))


@one_server
def test_a_process_killed_in_a_joint_fit_ends_it_with_one_sentence_and_resuming_leads_to_the_model_of_one(
    folder, whole
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
