"""Errors of job files: one sentence with the file, the key and the value that is wrong."""

from __future__ import annotations

import reprlib
from collections.abc import Iterator, Mapping, Sequence

from pydantic import BaseModel, ValidationError

from equipoise.app.job.options import LearnedTolerance
from equipoise.balances import did_you_mean
from equipoise.errors import EquipoiseError

_RULES = {
    "bool_type": "must be true or false",
    "dict_type": "must be a section of keys and values",
    "float_type": "must be a number",
    "int_type": "must be a whole number",
    "model_type": "must be a section of keys and values",
    "path_type": "must be the name of a file, in quotes",
    "string_too_short": "must not be blank",
    "string_type": "must be text, in quotes",
    "too_short": "must not be empty",
    "tuple_type": "must be a list, in brackets",
}


class JobError(EquipoiseError, ValueError):
    """A job file that cannot be used; the message says why."""


class MissingJobError(JobError, FileNotFoundError):
    """A job file that does not exist."""


def validation_message(error: ValidationError, job: type[BaseModel]) -> str:
    """Write the first of pydantic's errors as a sentence, without the name of the file.

    Args:
        error: The errors.
        job: The class that the job file was validated against.
    """
    errors = error.errors(include_url=False)
    unknown = [
        record for record in errors if record["type"] == "extra_forbidden"
    ]  # a key that is missing may be misspelt
    first = unknown[0] if unknown and errors[0]["type"] == "missing" else errors[0]
    kind, path, got = first["type"], _key_path(first["loc"]), reprlib.repr(first["input"])
    if kind == "missing":
        return f"{_key_in_words(path)} must be given, but got none. Add it."
    if kind == "extra_forbidden":
        return f"keys must be known, but got {_key_in_words(path)}. {did_you_mean(path[-1], _keys(path[:-1], job))}"
    reason = first.get("ctx", {}).get("error")
    if reason is not None and not path:  # of a check across keys, which is a sentence already
        return str(reason)
    rule = str(reason or _RULES.get(kind) or first["msg"].replace("Input should be", "must be"))
    return f"{_key_in_words(path)} {rule}, but got {got}. {_advice(kind, path, job)}"


def misplaced_columns(places: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Iterate over the columns that stand in two places of a job, as sentences.

    Args:
        places: Names of columns by place, such as `"inputs"` and `"outputs"`.
    Example:
        >>> list(misplaced_columns({"inputs": ["SOC"], "outputs": ["OCV", "SOC"]}))
        ["columns must have one place each, but got 'SOC' in 'inputs' and in 'outputs'. Remove one of them."]
    """
    seen: dict[str, str] = {}
    for place, names in places.items():
        for name in names:
            if name in seen:
                where = f"twice in {place!r}" if seen[name] == place else f"in {seen[name]!r} and in {place!r}"
                yield f"columns must have one place each, but got {name!r} {where}. Remove one of them."
            seen[name] = place


def _key_path(location: tuple[int | str, ...]) -> list[str]:
    """Return the keys that lead to an error, without positions in lists and names that pydantic adds."""
    keys = [key for key in location if isinstance(key, str) and key != "[key]"]
    return [key for depth, key in enumerate(keys) if not (keys[0] == "tolerances" and depth == 2)]


def _key_in_words(path: list[str]) -> str:
    """Name a key and its section.

    Example:
        >>> _key_in_words(["inputs"]), _key_in_words(["model", "hidden"])
        ("'inputs'", "'hidden' in [model]")
    """
    section = ".".join(path[:-1])
    return f"{path[-1]!r} in [{section}]" if section else repr(path[-1])


def _keys(section: list[str], job: type[BaseModel]) -> list[str]:
    """List the keys that a section may have."""
    fields = job.model_fields
    if not section:
        return list(fields)
    if section[0] == "tolerances":
        return list(LearnedTolerance.model_fields)
    return list(getattr(fields[section[0]].annotation, "model_fields", {}))


def _advice(kind: str, path: list[str], job: type[BaseModel]) -> str:
    if kind == "too_short" and len(path) == 1:
        return "Put names of columns into it."
    if len(path) == 2 and path[-1] in job.model_fields:
        return f"Did you mean the list {path[-1]!r}? Then move it above the first [section]."
    return "Correct it, or leave it out." if len(path) > 1 else "Correct it."
