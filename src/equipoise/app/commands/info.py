"""`equipoise info`: what a model file says of itself."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from equipoise.app.commands.screen import as_json, number, say


def run(
    model: Annotated[Path, typer.Argument(help="The model file.", show_default=False)],
    json: Annotated[bool, typer.Option("--json", help="For programs: all of it, as JSON.")] = False,
    job: Annotated[bool, typer.Option("--job", help="The job file that it was fitted with, as it was.")] = False,
) -> None:
    """Show what a model was trained on, with what, and how far its balances can be trusted. Runs nothing."""
    from equipoise.app.commands.evaluate import show_scores
    from equipoise.app.commands.fit import HELD_OUT, scores_in, show_tolerances
    from equipoise.artifact import model_file as artifact, parse_description

    content, raw = artifact.read_checked(model)
    said = parse_description(content, model)
    if json:
        as_json(said.model_dump(mode="json"))
        return
    if job:
        say(said.job or f"# {model} was not fitted from a job file.\n", end="")  # to the byte
        return
    columns = said.columns
    say(f"{model}: {'a network with balances' if said.balances else 'a network without balances'}")
    say(f"  inputs:   {', '.join(columns.inputs)}")
    if ranges := _ranges(raw, columns.inputs):
        say(f"  seen:     {', '.join(ranges)}")
    if columns.known:
        say(f"  known:    {', '.join(columns.known)}")
    say(f"  outputs:  {', '.join(columns.outputs)}")
    for balance in said.balances:
        say(f"  balance:  {balance.name}: {balance.text}")
    configuration = said.configuration
    say(f"  network:  {' × '.join(map(str, configuration.hidden)) or 'linear'}, {configuration.activation}")
    say(f"  training: {len(said.training.epochs)} epochs, {said.training.stopped}")
    for key, value in said.notes.items():
        if not key.startswith(HELD_OUT):
            say(f"  {key}: {value}")
    say(f"  versions: {', '.join(f'{name} {version}' for name, version in said.versions.items())}")
    if scores := scores_in(said.notes):
        show_scores("Rows held out to decide when to stop", scores)
    show_tolerances([dict(balance) for balance in said.tolerances])


def _ranges(raw: bytes, inputs: tuple[str, ...]) -> list[str]:
    """The range of each input that was trained on; older files do not know it."""
    import safetensors.numpy

    tensors = safetensors.numpy.load(raw)
    ends = [tensors.get(f"standardizer.{name}", ()) for name in ("x_lowest", "x_highest")]
    return [f"{name} from {number(a, 6)} to {number(b, 6)}" for name, a, b in zip(inputs, *ends, strict=False)]
