"""The guides cannot rot: what they tell readers to do is done here, in its order, and must show what the page shows.

Blocks of Python run in one namespace, command lines through `equipoise.app.commands.main`, all in one folder. What is
printed is compared word by word; numbers may differ a little, as they do between machines; `...` stands for any words.
"""

import contextlib
import dataclasses
import io
import json
import math
import re
import shlex
import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import typer
from scipy import stats

import equipoise as eq
from equipoise.app.commands import command_line, main
from equipoise.app.job import Job, ModelOptions
from equipoise.app.report import charts

pytestmark = pytest.mark.xdist_group("deployment")  # as in test_deployment.py: what exports takes long to import
DOCS = Path(__file__).parent.parent / "docs"
GUIDE = (DOCS / "guide.md").read_text("utf-8")
RECONCILIATION = (DOCS / "reconciliation.md").read_text("utf-8")
REFERENCE = (DOCS / "cli.md").read_text("utf-8")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
JOB = "mixer.toml"
NEARLY = 0.25  # by which printed numbers may differ from machine to machine
ROUNDING = 1e-9  # numbers below are rounding, and every machine has its own


# --- Following the guide ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """Something that a reader does, "python", "console" or "toml", and what the page shows of it."""

    kind: str
    text: str
    shown: str = ""


def steps(page: str) -> Iterator[Step]:
    """What a page tells readers to do; a block of kind "text" shows what the one before it prints."""
    blocks = [(match[1], match[2]) for match in BLOCK.finditer(page)]
    for (kind, text), (next_kind, next_text) in zip(blocks, [*blocks[1:], ("", "")], strict=True):
        if kind == "console":
            for command, _, shown in (part.partition("\n") for part in _commands(text)):
                yield Step(kind, command, shown)
        elif kind != "text":
            yield Step(kind, text, next_text if next_kind == "text" else "")


def _commands(block: str) -> list[str]:
    """Each command line in one line, with what it prints below."""
    head, *commands = re.split(r"^\$ ", block.replace("\\\n", " "), flags=re.MULTILINE)
    assert head == ""
    return commands


@dataclass
class Reader:
    """Does what the page says in a folder, and remembers what came of it."""

    folder: Path
    job: str = JOB
    names: dict[str, Any] = field(default_factory=dict)
    printed: list[str] = field(default_factory=list)
    codes: list[int] = field(default_factory=list)

    def do(self, step: Step) -> None:
        """Take a step, with everything it prints in the order of a terminal."""
        screen = io.StringIO()
        with contextlib.redirect_stdout(screen), contextlib.redirect_stderr(screen):
            {"python": self._run, "console": self._call, "toml": self._edit}[step.kind](step.text)
        self.printed.append(screen.getvalue())

    def _run(self, code: str) -> None:
        exec(code, self.names)

    def _call(self, line: str) -> None:
        program, *arguments = shlex.split(line)
        if (program, *arguments) == ("echo", "$?"):
            print(self.codes[-1])
        else:
            assert program == "equipoise"
            self.codes.append(main(arguments))

    def _edit(self, text: str) -> None:
        """A single line replaces the one of the same key, anything longer the whole job file."""
        job, key = self.folder / self.job, text.partition(" =")[0]
        if text.count("\n") == 1:
            text, times = re.subn(rf"^{key} = .*\n", lambda _: text, job.read_text("utf-8"), flags=re.MULTILINE)
            assert times == 1
        job.write_text(text, "utf-8")

    def table(self, name: str) -> pd.DataFrame:
        """A table that was written, cells as they stand."""
        return pd.read_csv(self.folder / name, dtype=str)


def agree(shown: str, printed: str) -> bool:
    """Whether a page shows what was printed: the same words, nearly the same numbers, `...` for what is left out."""
    return _agree(_words(shown), _words(printed))


def _words(text: str) -> list[str]:
    text = re.sub(r"in \d+ s;", "in a moment;", text)
    return [word for word in text.split() if set(word) != {"─"}]


def _agree(shown: list[str], printed: list[str]) -> bool:
    if not shown:
        return not printed
    if shown[0] == "...":
        return any(_agree(shown[1:], printed[i:]) for i in range(len(printed) + 1))
    return bool(printed) and _same(shown[0], printed[0]) and _agree(shown[1:], printed[1:])


def _same(shown: str, printed: str) -> bool:
    if shown == printed:
        return True
    try:
        a, b = (float(word.strip(",;:()")) for word in (shown, printed))
    except ValueError:
        return False
    return math.isclose(a, b, rel_tol=NEARLY, abs_tol=ROUNDING)


# --- What the guide claims --------------------------------------------------------------------------------------------

Claim = Callable[[Reader], None]
CLAIMS: list[Claim] = []


def claim(check: Claim) -> Claim:
    """Registers what is looked at after the guide was followed: once, since it takes seconds."""
    CLAIMS.append(check)
    return check


def test_a_reader_who_follows_the_guide_sees_what_it_shows_and_gets_what_it_says(tmp_path, monkeypatch, long_training):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(charts, "svg", drawn_once(charts.svg))
    reader = Reader(tmp_path)
    follow(reader, GUIDE)
    for check in CLAIMS:
        check(reader)


def drawn_once(svg: Callable[..., str]) -> Callable[..., str]:
    """Both reports of the guide are of one model and one table: they share their drawings, which take seconds."""
    drawings: dict[str, str] = {}

    def drawn(name: str, height: float, draw: Any) -> str:
        if name not in drawings:
            drawings[name] = svg(name, height, draw)
        return drawings[name]

    return drawn


def follow(reader: Reader, page: str) -> None:
    """Do what a page says, and compare what it shows."""
    for step in steps(page):
        reader.do(step)
        assert agree(step.shown, reader.printed[-1]), f"{step.text}\nprints\n{reader.printed[-1]}"


@claim
def every_command_ends_well_but_the_check_of_the_wrong_sign(reader):
    lines = [step.text for step in steps(GUIDE) if step.kind == "console" and step.text.startswith("equipoise")]
    failing = [line for line, code in zip(lines, reader.codes, strict=True) if code]
    assert failing == [f"equipoise check {JOB}"]
    assert sorted(reader.codes)[-2:] == [0, 1]
    assert {line.split()[1] for line in lines} == set(COMMANDS) - {"tune", "reconcile", "compare"}


@claim
def the_line_that_check_prints_is_the_one_that_repairs_the_job(reader):
    whole, line = (step.text for step in steps(GUIDE) if step.kind == "toml")
    (message,) = (text for text in reader.printed if "does not hold" in text and line.strip() in text)
    assert "flip the sign of `heater`" in message
    assert "- heater" in whole
    constraint = eq.Job.load(reader.folder / JOB).constraint()
    assert constraint is not None
    np.testing.assert_array_equal(constraint.B, [[-1, -1, 1, 0, 0, 0], [0, 0, 0, -1, -1, 1]])
    np.testing.assert_array_equal(constraint.A, [[0, 0, 0], [0, 0, -1]])


@claim
def the_tolerance_found_is_the_storage_that_the_table_was_made_with(reader):
    energy = reader.names["model"].tolerances_.loc["energy"]
    assert energy.verdict == "informed"
    assert energy.tol_std_lower < reader.names["stored"].std() < energy.tol_std_upper


@claim
def predictions_keep_the_table_and_add_four_columns_per_output(reader):
    names, new, out = reader.names, reader.table("new.csv"), reader.table("out.csv")
    added = [f"{name}{suffix}" for name in names["outputs"] for suffix in ("", " std", " lower", " upper")]
    kept = ["tag", *names["inputs"], *(f"{name} measured" for name in names["outputs"])]
    assert list(out.columns) == kept + added
    np.testing.assert_array_equal(out[kept].fillna(""), new.fillna(""))
    mean = out[names["outputs"]].astype(float)
    np.testing.assert_allclose(mean, names["p"].mean, rtol=1e-9)
    np.testing.assert_allclose(out["mixed [kg/s] lower"].astype(float), names["lower"]["mixed [kg/s]"], rtol=1e-6)
    new[["tag", *names["inputs"]]].to_csv(reader.folder / "planned.csv", index=False)
    reader.do(Step("console", "equipoise predict mixer.safetensors planned.csv -o planned-out.csv"))
    pd.testing.assert_frame_equal(reader.table("planned-out.csv")[added], out[added])


@claim
def every_draw_obeys_the_mass_balance_and_misses_the_energy_balance_by_its_tolerance(reader):
    draws = reader.table("draws.csv").drop(columns="tag").astype(float)
    assert len(draws) == 60 * 100
    mass = draws["mixed [kg/s]"] - draws["hot [kg/s]"] - draws["cold [kg/s]"]
    assert mass.abs().max() < 1e-12
    parts = draws["hot_heat [kW]"] + draws["cold_heat [kW]"] + draws["heater [kW]"]
    missed = (draws["mixed_heat [kW]"] - parts).std()
    assert 0.8 < missed / reader.names["model"].tolerances_.loc["energy", "tol_std"] < 1.25
    in_python = reader.names["draws"]
    assert in_python.shape == (100, 60, 6)
    np.testing.assert_allclose(in_python[:, 0], draws[reader.names["outputs"]][:100], rtol=1e-9)


@claim
def command_line_python_and_a_loaded_file_give_the_same_bits(reader):
    model, X = reader.names["model"], reader.names["new"][reader.names["inputs"]]
    for file in (reader.folder / "mixer.safetensors", reader.folder / "again.safetensors"):
        np.testing.assert_array_equal(eq.load(file).predict(X), model.predict(X))
    np.testing.assert_array_equal(reader.names["again"].predict(X), model.predict(X))


@claim
def a_job_file_describes_the_same_model(reader):
    same, model = (reader.names[name].get_params() for name in ("same", "model"))
    np.testing.assert_array_equal(same["constraint"].B, model["constraint"].B)
    assert same["sensor_std"] == dict(zip(reader.names["outputs"], model["sensor_std"], strict=True))
    for name in ("tolerance", "hidden", "max_epochs", "n_draws", "random_state", "likelihood"):
        assert same[name] == model[name]
    reader.do(Step("console", "equipoise info mixer.safetensors --job"))
    assert reader.printed[-1].strip() == reader.names["job"].text.strip()


@claim
def the_terms_of_the_ledger_add_up_to_the_variance(reader):
    ledger, p = reader.names["ledger"], reader.names["p"]
    terms = ledger.aleatoric - ledger.reduction + ledger.epistemic + ledger.shift + ledger.interaction + ledger.sensor
    np.testing.assert_allclose(terms, np.asarray(p.measured().std) ** 2, rtol=1e-6)
    np.testing.assert_allclose(ledger.sensor, np.tile([1e-4, 1e-4, 1e-4, 1, 1, 1], (60, 1)), rtol=1e-6)


@claim
def most_new_values_lie_in_their_intervals(reader):
    names = reader.names
    lower, upper = names["p"].measured().interval(0.95)
    measured = names["new"][names["outputs"]]
    inside = ((lower <= measured) & (measured <= upper)).to_numpy()[measured.notna().to_numpy()]
    assert inside.mean() > 0.85  # of a first look


@claim
def reports_are_single_pages_that_load_nothing(reader):
    for name in ("mixer.html", "python.html"):
        page = (reader.folder / name).read_text("utf-8")
        assert len(page.encode()) < 2e6
        assert not re.search(r"<script|<link|src=|@import", page)
        assert all(output in page for output in reader.names["outputs"])


@claim
def the_exported_program_says_what_the_model_says(reader):
    names = reader.names
    mean, std = names["program"](torch.tensor(names["new"][names["inputs"]].to_numpy()))
    p = dataclasses.replace(names["p"], n_draws=50)  # as many as it holds
    np.testing.assert_allclose(mean, p.mean, rtol=1e-5)
    np.testing.assert_allclose(std, p.std, rtol=1e-5)
    assert abs(mean[:, 2] - mean[:, 0] - mean[:, 1]).max() < 1e-12


# --- What the guide to reconciliation claims --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def plant(tmp_path_factory):
    """Somebody who followed the guide to reconciliation."""
    reader = Reader(tmp_path_factory.mktemp("plant"), "plant.toml")
    with contextlib.chdir(reader.folder):
        follow(reader, RECONCILIATION)
    return reader


def test_the_lying_meter_and_the_leak_are_found_in_their_hours_and_with_their_sizes(plant):
    names, table = plant.names, plant.table("reconciled.csv")
    for name, hours, error in [("recycle [kg/s]", (12, 18), 0.4), ("reactor", (36, 42), 1.0)]:
        inside = (names["hour"] >= hours[0]) & (names["hour"] < hours[1])
        suspected = (table["suspect"] == name).to_numpy()
        assert suspected[inside].mean() > 0.9
        assert suspected[~inside].mean() < 0.05
        sizes = table.loc[suspected & inside, "suspect error"].astype(float)
        assert abs(sizes.mean() - error) < 0.05
    assert plant.codes == [0]


def test_what_is_reconciled_obeys_the_balances_and_is_closer_to_the_truth(plant):
    names, table = plant.names, plant.table("reconciled.csv")
    flows = {name: table[f"{name} [kg/s] reconciled"].astype(float) for name in names["names"]}
    for left, right in [
        (flows["feed"] + flows["recycle"], flows["charge"]),
        (flows["charge"], flows["effluent"]),
        (flows["effluent"], flows["product"] + flows["bottoms"]),
        (flows["bottoms"], flows["recycle"] + flows["purge"]),
    ]:
        np.testing.assert_allclose(left, right, atol=1e-12)
    well = names["hour"] < 12
    for name, true in zip(names["names"], names["truth"], strict=True):
        measured = names["readings"][f"{name} [kg/s]"].to_numpy()[well]
        assert np.std(flows[name].to_numpy()[well] - true[well]) < np.std(measured - true[well])


def test_the_page_on_the_plant_names_the_culprits_and_loads_nothing(plant):
    page = (plant.folder / "plant.html").read_text("utf-8")
    assert "Sensor &#39;recycle [kg/s]&#39; is the suspect in" in page
    assert "Balance &#39;reactor&#39; is the suspect in" in page
    assert not re.search(r"<script|<link|src=|@import", page)


# --- The tools of this file -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shown", "printed", "expected"),
    [
        ("mass  0.017 kg/s", "mass 0.018 kg/s", True),
        ("mass  0.017 kg/s", "mass 0.025 kg/s", False),
        ("mass 6.9e-17", "mass 1.2e-16", True),
        ("mass informed", "mass exact", False),
        ("a ... d", "a b c d", True),
        ("a ... d", "a b c", False),
        ("a", "a b", False),
        ("", "printed, but not shown", False),
        ("60 epochs in 3 s; kept", "60 epochs in 17 s; kept", True),
        ("─── 1", "───── 1", True),
    ],
)
def test_a_page_that_shows_something_else_is_found(shown, printed, expected):
    assert agree(shown, printed) is expected


def test_the_steps_of_a_page_are_found_in_order():
    page = "```python\nprint(1)\n```\n\n```text\n1\n```\n\nThen:\n\n"
    page += "```console\n$ equipoise check \\\n  a.toml\nfine\n$ echo $?\n0\n```\n"
    assert list(steps(page)) == [
        Step("python", "print(1)\n", "1\n"),
        Step("console", "equipoise check    a.toml", "fine\n"),
        Step("console", "echo $?", "0\n"),
    ]


# --- The reference ----------------------------------------------------------------------------------------------------

COMMANDS: dict[str, Any] = typer.main.get_command(command_line.app).commands  # type: ignore[attr-defined]


def section(title: str) -> str:
    """A section of the reference, up to the next heading of its level."""
    level, _, rest = REFERENCE.partition(f"# {title}\n")
    hashes = level.rpartition("\n")[2] + "#"
    return re.split(rf"^{hashes} ", rest, flags=re.MULTILINE)[0]


@pytest.mark.parametrize("name", COMMANDS)
def test_the_reference_has_every_option_of_a_command_and_no_other(name):
    options = {option for param in COMMANDS[name].params for option in param.opts if option.startswith("--")}
    first_cells = re.findall(r"^\| (`-.*?) \|", section(name), flags=re.MULTILINE)
    assert {option for cell in first_cells for option in re.findall(r"--[a-z-]+", cell)} == options - {"--help"}


def test_the_reference_has_every_key_of_a_job_with_its_default():
    for name in Job.model_fields:
        assert re.search(rf"^\| `\[?{name}\]?` ", section("The job file"), flags=re.MULTILINE)
    described = dict(re.findall(r"^\| `(\w+)` \| `?([^|`]*)`? \|", section("Options of `[model]`"), flags=re.MULTILINE))
    assert set(described) == set(ModelOptions.model_fields)
    for name, option in ModelOptions.model_fields.items():
        expected = "–" if option.default is None else json.dumps(option.default)
        assert described[name].strip() == expected


@pytest.mark.parametrize("page", [GUIDE, RECONCILIATION, REFERENCE])
def test_every_link_leads_somewhere(page):
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", page)
    assert links
    assert all((DOCS / link).exists() for link in links)


# --- Extending --------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("long_training")
def test_the_page_on_extensions_runs_from_top_to_bottom(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    script = types.ModuleType("script")  # classes of a script can be pickled
    monkeypatch.setitem(sys.modules, "script", script)
    for language, code in BLOCK.findall((DOCS / "extending.md").read_text("utf-8")):
        assert language == "python"
        exec(code, vars(script))
    assert capsys.readouterr().out.split() == ["5.0", "(2,", "3)", "True", "informed", "0.2", "PairRegressor", "True"]


def test_the_t_distribution_on_the_page_is_that_of_scipy():
    names: dict[str, Any] = {}
    exec(BLOCK.findall((DOCS / "extending.md").read_text("utf-8"))[0][1], names)
    y, mean, var, w, nu = 1.3, 0.4, 0.5, 0.2, 6.0
    numbers = (torch.tensor([number], dtype=torch.float64) for number in (mean, var, y))
    found = names["StudentT"](nu).log_prob(eq.DiagonalGaussian(next(numbers), next(numbers)), next(numbers), w)
    assert float(found) == pytest.approx(stats.t.logpdf(y, nu, mean, math.sqrt((var + w) * (nu - 2) / nu)), rel=1e-12)
