"""The README's example runs and shows what it says; its paths exist; its test command is the one CI calls."""

import re
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text("utf-8")


def assert_same_words(shown: str, printed: str) -> None:
    """The same words in the same order; numbers may differ by 5 %, as they do between machines."""
    number = re.compile(r"\d+\.\d+")
    assert number.sub("", shown).split() == number.sub("", printed).split()
    values = [[float(value) for value in number.findall(text)] for text in (shown, printed)]
    assert values[0] == pytest.approx(values[1], rel=0.05)


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
    printed, shown = (
        capsys.readouterr().out,
        re.search(r"It takes a few seconds and prints\n\n```\n(.*?)```", README, re.DOTALL),
    )
    assert shown is not None
    assert_same_words(shown[1], printed)
    independent = np.sqrt((p.std.to_numpy() ** 2).sum(1).mean() + ((p.mean @ [1, -1, -1]) ** 2).mean())
    match = re.search(r"The draws miss it by ([\d.]+) .*?would\s+miss it by ([\d.]+)\.", README, re.DOTALL)
    assert match is not None
    assert [float(number) for number in match.groups()] == pytest.approx(
        [np.sqrt((missed**2).mean()), independent], rel=0.05
    )


@pytest.mark.parametrize("path", sorted(set(re.findall(r"\]\(([^)#]+)\)", README))))
def test_every_link_leads_somewhere(path):
    assert (ROOT / path).exists()


def test_ci_runs_lint_types_and_the_test_command_of_the_readme():
    assert "```sh\nmake test\n```" in README
    commands = [line for line in (ROOT / ".ci" / "run").read_text().splitlines() if line and not line.startswith("#")]
    assert commands[-1].strip().removeprefix("exec ") == "make check"
