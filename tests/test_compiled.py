"""Compiled code is used where it is there and switched on, and nothing else changes but rounding and time."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import equipoise as eq
from equipoise import compiled

SOURCE = Path(eq.__file__).parent
WITHOUT_FAST = """
import importlib.abc, sys

class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[:2] == ["equipoise", "fast"]:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "equipoise.fast" else found(name, *rest)
"""
FIT = """
import numpy as np, sys
import equipoise as eq
rng = np.random.default_rng(0)
X = rng.uniform(-1, 1, (40, 2))
Y = np.stack([X[:, 0], X[:, 1] ** 2, X[:, 0] + X[:, 1] ** 2], 1) + 0.05 * rng.normal(size=(40, 3))
model = eq.ConstrainedBNNRegressor(eq.LinearConstraint([[1.0, 1.0, -1.0]]), hidden=(4,), max_epochs=8, n_draws=40,
                                   random_state=0).fit(X, Y)
p = model.predict_distribution(X)
np.savez(sys.argv[1], mean=p.mean, std=p.std, ledger=p.ledger().total, samples=p.sample(3),
         numba=np.array("numba" in sys.modules))
"""


@pytest.mark.skipif(not compiled.is_available(), reason="compares with compiled code")
def test_without_compiled_code_the_same_numbers_come_out_to_rounding(tmp_path):
    results = []
    for name, script in {"with": FIT, "without": WITHOUT_FAST + FIT}.items():
        subprocess.run([sys.executable, "-c", script, str(tmp_path / f"{name}.npz")], check=True)
        results.append(np.load(tmp_path / f"{name}.npz"))
    fast, plain = results
    assert fast["numba"]
    assert not plain["numba"]
    for name in ("mean", "std", "ledger", "samples"):  # training in single precision lets roundings grow
        np.testing.assert_allclose(plain[name], fast[name], rtol=1e-3, atol=1e-3 * np.abs(fast[name]).max())


def test_numba_can_be_switched_off(monkeypatch):
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
    assert not compiled.is_available()
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "0")
    assert compiled.is_available() == (SOURCE / "fast").exists()
