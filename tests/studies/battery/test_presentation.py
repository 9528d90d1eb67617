"""From files to files: the report of the battery study, from one seed and from several, with and without arrays."""

import re

import numpy as np
import pytest
from handmade_arrays import made_up_arrays
from handmade_results import example

from equipoise import report
from studies.battery.claims import CLAIMS, with_our_training
from studies.battery.presentation import answer, make_page, present
from studies.battery.results import MODELS, Results, ResultsError, write

pytestmark = pytest.mark.xdist_group("presentation")  # one worker has what its tests share

DRAWN_FROM_ARRAYS = {
    "violations-voltage",
    "violations-heat",
    "calibration-voltages",
    "calibration-heats",
    "curves-V",
    "curves-Q_rev",
    "training",
}
DRAWN_FROM_RESULTS = {
    "pit",
    *(f"ledger-{model}" for model in MODELS),
    "noise",
    "tolerance-voltage",
    "tolerance-heat",
}


@pytest.fixture(scope="module")
def arrays():
    return made_up_arrays(points=20)


@pytest.fixture(scope="module")
def one_seed(tmp_path_factory, arrays):
    """A folder with the results of one seed, presented."""
    folder = tmp_path_factory.mktemp("one")
    write(example(), folder / "results.json")
    for model, content in arrays.items():
        np.savez(folder / f"arrays-{model}.npz", **content)
    present(folder)
    return folder


@pytest.fixture
def three_seeds(tmp_path, monkeypatch):
    """A folder with the results of three seeds and no arrays, presented with empty drawings, which take no time."""
    monkeypatch.setattr(report, "svg", lambda name, height, draw: f'<svg id="{name}" />')
    for seed in (10, 2, 0):
        (tmp_path / f"seed-{seed}").mkdir()
        write(example(seed), tmp_path / f"seed-{seed}" / "results.json")
    write(example(77), tmp_path / "results.json")
    present(tmp_path)
    return tmp_path


def texts(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_text("utf-8") for path in folder.rglob("*.*") if is_text(path)
    }


def is_text(path):
    return path.suffix in (".svg", ".md", ".html")


def test_one_seed_gives_tables_all_figures_and_a_report(one_seed):
    names = {name for name in texts(one_seed) if not name.startswith("figures/")}
    assert names == {"tables.md", "report.html"}
    assert {path.stem for path in (one_seed / "figures").iterdir()} == DRAWN_FROM_ARRAYS | DRAWN_FROM_RESULTS
    html = (one_seed / "report.html").read_text("utf-8")
    assert html.count("<svg") == len(DRAWN_FROM_ARRAYS | DRAWN_FROM_RESULTS)
    assert "left out" not in html
    assert "1 seed" in html


def test_the_report_loads_nothing_and_its_ids_are_unique(one_seed):
    html = (one_seed / "report.html").read_text("utf-8")
    assert "http" not in html.replace("http-equiv", "")
    assert all(target.startswith("#") for target in re.findall(r'(?:href|src)="([^"]*)"', html))
    ids = re.findall(r'\bid="([^"]*)"', html)
    assert len(ids) == len(set(ids))
    referred = re.findall(r'href="#([^"]*)"', html) + re.findall(r"url\(#([^)]*)\)", html)
    assert set(referred) <= set(ids)


def test_tables_and_report_have_the_same_numbers(one_seed):
    """Every cell of tables.md is in report.html."""
    html = (one_seed / "report.html").read_text("utf-8").replace("&#39;", "'").replace("&gt;", ">")
    lines = (one_seed / "tables.md").read_text("utf-8").splitlines()
    cells = {cell.strip() for line in lines if line.startswith("| ") for cell in re.split(r"(?<!\\)\|", line)}
    assert len(cells) > 300
    assert [cell for cell in cells if cell.replace("\\|", "|").strip("*") not in html] == []


def test_several_seeds_are_found_in_order_and_shown_with_their_error(three_seeds):
    tables = (three_seeds / "tables.md").read_text("utf-8")
    assert "| seeds | 0, 2, 10 |" in tables
    assert "3 seeds, mean ± standard error" in tables


def test_seeds_can_be_chosen(three_seeds):
    present(three_seeds, seeds=[10, 2])
    assert "| seeds | 10, 2 |" in (three_seeds / "tables.md").read_text("utf-8")


def test_the_same_files_give_the_same_bytes(three_seeds):
    before = texts(three_seeds)
    written = present(three_seeds)
    assert texts(three_seeds) == before
    assert {path.relative_to(three_seeds).as_posix() for path in written} == set(before)


def test_a_figure_without_its_arrays_is_left_out_with_a_sentence(three_seeds):
    assert {path.stem for path in (three_seeds / "figures").iterdir()} == DRAWN_FROM_RESULTS
    html = (three_seeds / "report.html").read_text("utf-8")
    assert html.count("A figure is left out here") == 4
    assert "violation_series (bnn)" in html
    assert "x_test (equipoise)" in html


def test_only_what_is_missing_is_named(arrays, monkeypatch):
    monkeypatch.setattr(report, "svg", lambda name, height, draw: f'<svg id="{name}" />')
    some = {model: {name: value for name, value in arrays[model].items() if name != "y_test"} for model in MODELS}
    page, drawings = make_page([example()], some)
    notes = [note for section in page.sections for note in section.notes if "left out" in note]
    assert notes == ["A figure is left out here, since these arrays are not beside the results: y_test (equipoise)."]
    assert set(drawings) == (DRAWN_FROM_ARRAYS | DRAWN_FROM_RESULTS) - {"curves-V", "curves-Q_rev"}


def test_a_folder_without_results_says_so(tmp_path):
    with pytest.raises(ResultsError, match=r"results\.json' cannot be read \(No such file"):
        present(tmp_path)
    with pytest.raises(ResultsError, match=r"seed-4/results\.json' cannot be read"):
        present(tmp_path, seeds=[4])


def test_arrays_that_are_not_readable_are_named(tmp_path):
    write(example(), tmp_path / "results.json")
    (tmp_path / "arrays-paper.npz").write_bytes(b"half a fi")
    with pytest.raises(ResultsError, match=r"arrays-paper\.npz' must hold arrays, but is not readable"):
        present(tmp_path)
    assert not (tmp_path / "report.html").exists()


# --- The answer -------------------------------------------------------------------------------------------------------


def test_the_answer_is_made_from_the_numbers():
    found = answer([example()])
    outcomes = [claim.judge([example()]).outcome for claim in CLAIMS]
    assert f"Of {len(CLAIMS)} claims of the paper, {outcomes.count('reproduced')} are reproduced" in found
    with_ours = [claim.judge(with_our_training([example()])).outcome for claim in CLAIMS]
    assert f"with its method and our training {with_ours.count('reproduced')} are reproduced" in found
    assert "a single seed" in found
    nll = f"{example().models.equipoise.joint_nll:.3f}".replace("-", "−")
    assert f"{nll} (Equipoise) in nats" in found
    voltage = example().models
    factor = voltage.bnn.violation_of_means.voltage.median / voltage.paper.violation_of_means.voltage.median
    assert factor == pytest.approx(130, abs=5)
    assert "is 130 (voltage)" in found


def test_the_answer_follows_the_numbers():
    tree = example().model_dump()
    tree["models"]["equipoise"]["joint_nll"] = -31.4
    tree["models"]["paper"]["violation_of_means"]["voltage"]["median"] = 0.0
    tree["observation_std"]["learned"]["eta_n"] = 1.5 * tree["observation_std"]["true"]["eta_n"]
    found = answer([Results.model_validate(tree)])
    assert "−31.4 (Equipoise) in nats" in found
    assert "is ∞ (voltage)" in found
    assert "off by at most 50 %" in found


def test_the_answer_over_seeds_has_errors():
    found = answer([example(seed) for seed in range(3)])
    assert "3 seeds, mean ± standard error" in found
    nll = np.array([example(seed).models.equipoise.joint_nll for seed in range(3)])
    expected = f"{nll.mean():.3f} ± {nll.std(ddof=1) / 3**0.5:.3f} (Equipoise) in nats".replace("-", "−")
    assert expected in found
