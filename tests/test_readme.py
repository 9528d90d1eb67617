"""The README's example runs and shows what it says; its paths exist; its test command is the one CI calls."""

import re
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text("utf-8")


def test_the_example_runs_and_its_draws_obey_the_balance(long_training, capsys):
    code = re.search(r"```python\n(.*?)```", README, re.DOTALL)
    assert code is not None
    assert len([line for line in code.group(1).splitlines() if line.strip()]) <= 15
    names: dict = {}
    exec(code.group(1), names)
    draws, model, p = names["draws"], names["model"], names["p"]
    assert draws.shape == (100, 300, 3)
    missed = draws[..., 0] - draws[..., 1] - draws[..., 2]
    tolerance = model.tolerances_.iloc[0]
    assert 0.5 * tolerance.tol_std < np.sqrt((missed**2).mean()) < 2 * tolerance.tol_std_upper
    assert tolerance.verdict == "informed"
    assert not model.tolerances_["biased"].any()
    assert list(p.mean.columns) == ["total", "a", "b"]
    off = names["X"]["hour"].between(7, 17)
    error = np.sqrt(((p.mean["b"] - names["b"])[off] ** 2).mean())
    assert error < 0.5  # b was not measured there, dips by 2 and scatters by 0.3
    assert "informed" in capsys.readouterr().out


@pytest.mark.parametrize("path", sorted(set(re.findall(r"\]\(([^)#]+)\)", README))))
def test_every_link_leads_somewhere(path):
    assert (ROOT / path).exists()


def test_ci_runs_the_test_command_of_the_readme():
    assert "```sh\nmake test\n```" in README
    commands = [line for line in (ROOT / ".ci" / "run").read_text().splitlines() if line and not line.startswith("#")]
    assert commands[-1].strip().removeprefix("exec ") == "make test"
