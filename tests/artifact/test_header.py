"""The header of a model file: strict JSON that is read without torch; what cannot be read is told in one sentence."""

import json
import math
import pickle
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

from equipoise.artifact.header import ENTRY, FORMAT_VERSION, ArtifactError, Description, describe

FIXTURE = Path(__file__).parents[1] / "models" / "format_2.safetensors"


def entry() -> dict:
    with safe_open(FIXTURE, framework="np") as file:
        return json.loads(file.metadata()[ENTRY])


def written(path: Path, content) -> Path:
    text = content if isinstance(content, str) else json.dumps(content)
    save_file({"tensor": np.zeros(3)}, path, {ENTRY: text})
    return path


def complaint(path: Path) -> str:
    with pytest.raises(ArtifactError) as caught:
        describe(path)
    assert str(path) in str(caught.value)
    return str(caught.value)


def test_numbers_that_json_lacks_come_back(tmp_path):
    description = Description.model_validate(entry() | {"notes": {"a": math.nan, "b": -math.inf, "c": 0.1, "d": "nan"}})
    text = description.to_json()
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    notes = describe(written(tmp_path / "model.safetensors", text)).notes
    assert math.isnan(notes.pop("a"))
    assert notes == {"b": -math.inf, "c": 0.1, "d": "nan"}


def test_the_header_is_read_without_the_tensors(tmp_path):
    """Bytes of the tensors are zeroed: the header still says all it has to say."""
    raw = bytearray(FIXTURE.read_bytes())
    start = 8 + int.from_bytes(raw[:8], "little")
    raw[start:] = bytes(len(raw) - start)
    (tmp_path / "model.safetensors").write_bytes(raw)
    assert describe(tmp_path / "model.safetensors").to_json() == describe(FIXTURE).to_json()


def test_a_field_from_the_future_is_ignored_and_a_missing_one_named(tmp_path):
    content = entry() | {"weather": "fine"}
    assert describe(written(tmp_path / "new", content)).to_json() == describe(FIXTURE).to_json()
    del content["columns"]["outputs"]
    assert "its field 'columns.outputs' is missing" in complaint(written(tmp_path / "cut", content))
    del content["columns"], content["network"]
    older = content | {"format_version": 1}
    assert "its field 'columns' is missing" in complaint(written(tmp_path / "older", older))


def test_a_newer_format_asks_for_an_upgrade(tmp_path):
    content = entry() | {"format_version": FORMAT_VERSION + 1}
    assert "was written by a newer equipoise (format 3); this one reads up to 2" in complaint(
        written(tmp_path / "newer", content)
    )


@pytest.mark.parametrize(
    "content", ["{", "[1]", '{"format": "equipoise model"}', '{"format": "x", "format_version": 1}']
)
def test_an_entry_that_is_no_description_is_called_damaged(tmp_path, content):
    assert "is cut short or damaged" in complaint(written(tmp_path / "model", content))


def test_files_of_other_kinds_are_told_apart(tmp_path):
    file = tmp_path / "model.safetensors"
    assert "does not exist" in complaint(file)
    assert "is a folder" in complaint(tmp_path)
    for content, words in (
        (b"", "is empty"),
        (b"a,b\n1,2\n3,4\n", "is not a safetensors file"),
        (pickle.dumps({"a": 1}), "is not a safetensors file"),
        (FIXTURE.read_bytes()[:40], "is cut short or damaged"),
    ):
        file.write_bytes(content)
        assert words in complaint(file)
    save_file({"weight": np.zeros(3)}, file)
    assert "is a safetensors file, but no model of equipoise" in complaint(file)
