"""Where torch computes, as asked for on the command line or in a job file."""

from __future__ import annotations

from typing import Any


def check_device(name: Any) -> None:
    """Raise unless torch can compute there; None is the processor.

    Example:
        >>> check_device("cpu")
    """
    import torch

    from equipoise.artifact import ArtifactError

    try:
        torch.empty(0, device=name or "cpu")
    except (AssertionError, RuntimeError) as error:  # the former where torch was built without that device
        reason = str(error).partition("\n")[0].rstrip(".")
        raise ArtifactError(f"device must be one that torch can use here, but got '{name}' ({reason}).") from error
