"""The files of a fit: model and history at its end, checkpoint and running history of one that was cut short."""

import errno
import os
import shlex

import pytest
from handmade_table import contents

from equipoise.app.commands import fit, main
from equipoise.app.commands.fit_files import EpochLog
from equipoise.artifact import model_file as artifact
from equipoise.data.atomic_writing import WriteError
from equipoise.training.checkpoint import Checkpoint, TrainingError
from equipoise.training.loop import _Run

pytestmark = pytest.mark.usefixtures("long_training")

EPOCHS = 10  # of the job: 5 of means, 4 of the ELBO, 1 of noise


def cut_short(monkeypatch, epoch, error=KeyboardInterrupt, checkpoint=3):
    """Fits end in an epoch, and their last checkpoint is older than that; None for no checkpoint at all."""
    record = EpochLog._record

    def interrupted(self, values):
        record(self, values)
        if values["epoch"] == epoch:
            raise error

    def save_if_early(self, state):
        now = state()
        if checkpoint is not None and len(now["progress"]["history"]["epochs"]) <= checkpoint:
            self.save(now)

    monkeypatch.setattr(EpochLog, "_record", interrupted)
    monkeypatch.setattr(Checkpoint, "save_if_due", save_if_early)


def test_only_model_and_history_are_left_beside_job_and_table(whole):
    assert set(contents(whole)) == {"cell.csv", "cell.toml", "cell.safetensors", "cell.run.jsonl"}


def test_a_first_look_does_not_replace_a_whole_fit(fitted, folder, refused):
    whole = (folder / "whole.safetensors").write_bytes(fitted.read_bytes())
    assert "--quick must not replace a whole fit" in refused("fit", "cell.toml", "--quick", "-o", "whole.safetensors")
    assert (folder / "whole.safetensors").stat().st_size == whole


# --- A fit that was cut short -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("epoch", [1, 7, 9])  # of means, of the ELBO, of the noise
def test_ctrl_c_says_how_to_go_on_and_that_line_leads_to_the_same_bytes(
    folder, whole, monkeypatch, capsys, epoch, epochs
):
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
    description = artifact.describe("my model.safetensors")
    assert (len(description.training.epochs), description.configuration.random_state) == (4, 3)


def test_a_fit_that_is_cut_short_twice_has_every_epoch_once_in_its_running_history(folder, monkeypatch, epochs):
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


# --- What cannot be written -------------------------------------------------------------------------------------------


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
