"""`equipoise info`: the description of a model in its file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from equipoise.app.commands.console import format_number, print_json, print_text
from equipoise.app.commands.model_summary import HELD_OUT, print_scores, print_tolerances, scores_in_notes
from equipoise.app.commands.shared_options import ModelFile

if TYPE_CHECKING:
    from equipoise.artifact import Description


def run(
    model: ModelFile,
    json: Annotated[bool, typer.Option("--json", help="For programs: all of it, as JSON.")] = False,
    job: Annotated[bool, typer.Option("--job", help="The job file that it was fitted with, as it was.")] = False,
) -> None:
    """Show what a model was trained on, with what, and how far its balances can be trusted. Runs nothing."""
    from equipoise.artifact import model_file as artifact, parse_description

    content, raw = artifact.read_checked(model)
    description = parse_description(content, model)
    if json:
        print_json(description.model_dump(mode="json"))
        return
    if job:
        print_text(description.job or f"# {model} was not fitted from a job file.\n", end="")  # to the byte
        return
    print_text(f"{model}: {'a network with balances' if description.balances else 'a network without balances'}")
    _print_columns(description, _input_ranges(raw, description.columns.inputs))
    _print_training(description)
    if scores := scores_in_notes(description.notes):
        print_scores("Rows held out to decide when to stop", scores)
    print_tolerances([dict(record) for record in description.tolerances])


def _print_columns(description: Description, ranges: list[str]) -> None:
    """Print columns, ranges of the inputs in the training data, and balances."""
    columns = description.columns
    print_text(f"  inputs:   {', '.join(columns.inputs)}")
    if ranges:
        print_text(f"  seen:     {', '.join(ranges)}")
    if columns.known:
        print_text(f"  known:    {', '.join(columns.known)}")
    print_text(f"  outputs:  {', '.join(columns.outputs)}")
    for balance in description.balances:
        print_text(f"  balance:  {balance.name}: {balance.text}")


def _print_training(description: Description) -> None:
    """Print network, training, notes without the scores among them, and versions of the software."""
    configuration, training = description.configuration, description.training
    print_text(f"  network:  {' × '.join(map(str, configuration.hidden)) or 'linear'}, {configuration.activation}")
    print_text(f"  training: {len(training.epochs)} epochs, {training.stopped}")
    for key, value in description.notes.items():
        if not key.startswith(HELD_OUT):
            print_text(f"  {key}: {value}")
    print_text(f"  versions: {', '.join(f'{name} {version}' for name, version in description.versions.items())}")


def _input_ranges(raw: bytes, inputs: tuple[str, ...]) -> list[str]:
    """Return the range of each input in the training data; nothing from older model files, which do not keep it.

    Args:
        raw: The bytes of the model file.
        inputs: Names of the inputs.
    """
    import safetensors.numpy

    tensors = safetensors.numpy.load(raw)
    bounds = [tensors.get(f"standardizer.{name}", ()) for name in ("x_lowest", "x_highest")]
    return [
        f"{name} from {format_number(low, 6)} to {format_number(high, 6)}"
        for name, low, high in zip(inputs, *bounds, strict=False)
    ]
