"""Opening model files of the core and of other methods."""

import subprocess
import sys
from pathlib import Path

import equipoise as eq

MODELS = Path(__file__).parent / "models"


def test_a_file_is_opened_as_the_estimator_that_wrote_it():
    names = {"format_1": "ConstrainedBNNRegressor", "format_3_ensemble": "MethodRegressor"}
    assert {name: type(eq.load(MODELS / f"{name}.safetensors")).__name__ for name in names} == names


def test_a_model_of_the_core_is_opened_without_other_methods():
    code = f"""
import sys, equipoise as eq
eq.load({str(MODELS / "format_3.safetensors")!r})
print([name for name in sys.modules if name.startswith("equipoise.rivals")])
"""
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"
