"""`equipoise export`: a program for torch alone that gives mean and standard deviation."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from equipoise.app.commands.console import print_text
from equipoise.app.commands.shared_options import ModelFile, check_output


def run(
    model: ModelFile,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="By default model.pt2 beside it.")] = None,
    draws: Annotated[int, typer.Option(help="Posterior draws that it averages over.", min=1)] = 50,
) -> None:
    """Write a program that predicts mean and std with torch alone.

    torch.export.load(FILE).module()(x) gives both. x holds inputs, then known columns, in their own units and in the
    model's order, one row each, as float64.
    """
    from equipoise.app.commands.open_model import open_model
    from equipoise.artifact import model_file as artifact
    from equipoise.export import export

    target = output or model.with_suffix(".pt2")
    check_output(target, model)
    export(open_model(model), target, draws)
    print_text(f"{target}: mean and std of {', '.join(artifact.describe(model).columns.outputs)}")
