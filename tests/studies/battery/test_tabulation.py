"""The tables of the battery study: their numbers are those of the results, and what stands out is beyond noise."""

import statistics
from operator import attrgetter

import pytest
from handmade_results import example

from equipoise.app.report import number, plus_minus
from equipoise.rivals.cases.battery import KEYS
from studies.battery import tabulation
from studies.battery.claims import CLAIMS
from studies.battery.published import PRINTED
from studies.battery.results import HEATS, MODELS, NAMES, VOLTAGES

ONE, THREE = [example()], [example(seed) for seed in range(3)]
SINGLE = (
    tabulation.claims,
    tabulation.published_and_ours,
    tabulation.variables,
    tabulation.uncertainty,
    tabulation.tolerances,
    tabulation.performance,
    tabulation.violations,
    tabulation.relative_violations,
    tabulation.accuracy,
    tabulation.scores,
    tabulation.coverage,
    tabulation.noise,
    tabulation.training,
    tabulation.times,
    tabulation.settings,
)


def cell(table, row, column):
    """A cell by the beginning of its row, one word or several cells, and the name of its column."""
    wanted = [row] if isinstance(row, str) else list(row)
    (found,) = [line for line in table.rows if list(line[: len(wanted)]) == wanted]
    return found[list(table.header).index(column)]


def shown(runs, of) -> str:
    """Mean ± standard error, computed by hand."""
    values = [of(run) for run in runs]
    if len(values) == 1:
        return number(values[0])
    return plus_minus(statistics.mean(values), statistics.stdev(values) / len(values) ** 0.5)


@pytest.mark.parametrize("make", SINGLE)
@pytest.mark.parametrize("runs", [ONE, THREE])
def test_every_table_has_text_in_all_cells_and_a_markdown_form(make, runs):
    table = make(runs)
    assert all(isinstance(text, str) and text.strip() for row in table.rows for text in row)
    assert not any("nan" in text for row in table.rows for text in row)
    lines = table.to_markdown().splitlines()
    assert len(lines) == 4 + len(table.rows)
    assert {line.replace("\\|", "").count("|") for line in lines[2:]} == {1 + len(table.header)}


@pytest.mark.parametrize("runs", [ONE, THREE])
def test_numbers_are_those_of_the_results(runs):
    expected = [
        (tabulation.uncertainty, "BNN, here", "Aleatoric [training sd]", "models.bnn.aleatoric.overall"),
        (tabulation.uncertainty, "Equipoise, here", "Epistemic [training sd]", "models.equipoise.epistemic.overall"),
        (tabulation.performance, "Paper's method, here", "MSE [training variance]", "models.paper.mse_noisy.overall"),
        (tabulation.performance, "BNN, here", "Coverage of 95 % intervals", "models.bnn.coverage.overall"),
        (tabulation.tolerances, ("heat", "Equipoise, here"), "μ_ρ", "tolerances.equipoise.heat.mu_rho"),
        (tabulation.tolerances, ("voltage", "Paper's method, here"), "E[r]", "tolerances.paper.voltage.mean_r"),
        (
            tabulation.tolerances,
            ("voltage", "Paper's method, here"),
            "exp(μ_ρ)",
            "tolerances.paper.voltage.paper_mean_r",
        ),
        (tabulation.tolerances, ("voltage", "Paper's method, here"), "KL [nats]", "tolerances.paper.voltage.kl"),
        (
            tabulation.violations,
            ("Paper's method, here", "means"),
            "Heat [W/m³], median",
            "models.paper.violation_of_means.heat.median",
        ),
        (
            tabulation.violations,
            ("Equipoise, here", "draws of y"),
            "Voltage [V], mean",
            "models.equipoise.violation_of_draws.voltage.mean",
        ),
        (
            tabulation.relative_violations,
            ("BNN, here", "draws of y"),
            "Both, mean",
            "models.bnn.violation_of_draws.overall_relative.mean",
        ),
        (tabulation.accuracy, "voltages", "BNN", "models.bnn.mse_true_voltages"),
        (tabulation.accuracy, "heats", "Equipoise", "models.equipoise.mse_true_heats"),
        (tabulation.scores, "Joint NLL [nats per row]", "Paper's method", "models.paper.joint_nll"),
        (tabulation.scores, "Energy score [training sd]", "BNN", "models.bnn.energy_score"),
        (tabulation.training, "Time in epochs [s]", "BNN", "models.bnn.history.seconds"),
    ]
    for make, row, column, path in expected:
        assert cell(make(runs), row, column) == shown(runs, attrgetter(path)), path


@pytest.mark.parametrize("key", KEYS)
def test_numbers_of_single_outputs_are_those_of_the_results(key):
    name, noise = tabulation.symbol(key), tabulation.noise(THREE)
    assert cell(tabulation.accuracy(THREE), name, "Equipoise") == shown(
        THREE, lambda run: run.models.equipoise.mse_true.by_output[key]
    )
    assert cell(tabulation.scores(THREE), f"CRPS of {name}", "BNN") == shown(
        THREE, lambda run: run.models.bnn.crps.by_output[key]
    )
    assert cell(noise, name, "True") == number(THREE[0].observation_std.true[key])
    assert cell(noise, name, "Paper's method / true") == shown(
        THREE, lambda run: run.models.paper.observation_std[key] / run.observation_std.true[key]
    )


@pytest.mark.parametrize("model", MODELS)
def test_coverage_is_that_of_the_results(model):
    table = tabulation.coverage(THREE)
    for key in KEYS:
        shares = [getattr(run.models, model).calibration.coverage[key][3] for run in THREE]
        assert cell(table, (tabulation.symbol(key), NAMES[model]), "95 %") == shown(shares, float)


@pytest.mark.parametrize("runs", [ONE, THREE])
def test_a_ledger_for_each_model_has_all_terms(runs):
    for model, table in zip(MODELS, tabulation.ledgers(runs), strict=True):
        terms = [getattr(run.models, model).ledger["Q_rev"] for run in runs]
        assert NAMES[model] in table.caption
        assert cell(table, "Q_rev", "Aleatoric") == shown(terms, attrgetter("aleatoric"))
        assert cell(table, "Q_rev", "−\N{NO-BREAK SPACE}Reduction") == shown(terms, attrgetter("reduction"))
        assert cell(table, "Q_rev", "=\N{NO-BREAK SPACE}Total") == shown(terms, attrgetter("total"))
        lost = shown(terms, lambda t: t.lost_without["voltage"]) if not model.startswith("bnn") else "–"
        assert cell(table, "Q_rev", "Lost without voltage") == lost


def test_published_numbers_stand_beside_ours():
    table = tabulation.published_and_ours(ONE)
    assert len(table.rows) == len(PRINTED)
    row = "Mean violation of means, both balances"
    assert cell(table, row, "BNN, published") == "174.82"
    assert cell(table, row, "Constrained, published") == "8.81×10⁻⁴"
    assert cell(table, row, "Paper's method") == number(ONE[0].models.paper.violation_of_means.overall.mean)
    assert cell(table, "Heat: σ_ρ", "BNN") == "–"
    spread = cell(table, "Aleatoric, 1.96 sd over outputs", "Equipoise")
    assert spread == number(1.96 * ONE[0].models.equipoise.aleatoric.sd_over_outputs)


def test_a_published_tolerance_comes_with_what_follows_from_it():
    table = tabulation.tolerances(ONE)
    heat = ("heat", "Paper's method, published")
    assert cell(table, heat, "exp(μ_ρ)") == "0.137"
    assert cell(table, heat, "E[r]") == "0.225"  # exp(−1.99 + ½)
    assert cell(table, heat, "KL [nats]") == "5.00×10⁻⁵"  # ½ 0.01²
    assert cell(table, ("heat", "Paper's method, here"), "Verdict") == "not informed by the data"


def test_verdicts_that_differ_between_seeds_are_counted():
    runs = [example(0), example(1)]
    tree = runs[1].model_dump()
    tree["tolerances"]["paper"]["heat"] |= {"informed": True, "verdict": "informed"}
    table = tabulation.tolerances([runs[0], type(runs[1]).model_validate(tree), example(2)])
    assert cell(table, ("heat", "Paper's method, here"), "Informed") == "no (2), yes (1)"
    assert cell(table, ("heat", "Paper's method, here"), "Verdict") == "not informed by the data (2), informed (1)"


def test_claims_have_a_row_each_with_its_verdict():
    table = tabulation.claims(THREE)
    assert [row[0] for row in table.rows] == [claim.statement for claim in CLAIMS]
    for claim, row in zip(CLAIMS, table.rows, strict=True):
        verdict = claim.judge(THREE)
        assert row[1].endswith(verdict.outcome)
        assert row[2] == verdict.why


def test_a_deterministic_network_is_shown_where_every_seed_has_one():
    with_it = [run.model_copy(update={"deterministic": run.models.bnn.mse_true}) for run in THREE]
    table = tabulation.accuracy(with_it)
    for row, of in {
        "all outputs": lambda score: score.overall,
        "voltages": lambda score: statistics.mean(score.by_output[key] for key in VOLTAGES),
        "heats": lambda score: statistics.mean(score.by_output[key] for key in HEATS),
        "Q_rev": lambda score: score.by_output["Q_rev"],
    }.items():
        assert cell(table, row, "Deterministic network") == shown(with_it, lambda run, of=of: of(run.deterministic))
    assert "Deterministic network" not in tabulation.accuracy([*with_it[:2], THREE[2]]).header


# --- What stands out --------------------------------------------------------------------------------------------------


def test_nothing_stands_out_with_one_seed():
    assert all(not make(ONE).bold for make in SINGLE)
    assert tabulation.best(ONE, attrgetter("joint_nll")) is None


def test_the_best_stands_out_where_seeds_agree():
    assert tabulation.best(THREE, attrgetter("joint_nll")) == "equipoise"
    table = tabulation.scores(THREE)
    row = [line[0] for line in table.rows].index("Joint NLL [nats per row]")
    assert [column for i, column in table.bold if i == row] == [list(table.header).index("Equipoise")]


def test_nothing_stands_out_where_seeds_do_not_agree():
    """Each model is the best of another seed, or of none: differences of either sign between all pairs."""
    values = dict(zip(MODELS, ([5, 1, 3], [4, 2, 2], [3, 3, 4], [2, 4, 1], [1, 5, 5]), strict=True))
    found = {(seed, model): values[model][seed] for seed in range(3) for model in MODELS}
    by_model = {id(getattr(run.models, model)): found[run.seed, model] for run in THREE for model in MODELS}
    assert tabulation.best(THREE, lambda model: float(by_model[id(model)])) is None


def test_violations_stand_out_in_the_rows_of_their_own_kind():
    table = tabulation.violations(THREE)
    for row, column in table.bold:
        rivals = [line for line in table.rows if line[1] == table.rows[row][1] and "published" not in line[0]]
        assert table.rows[row] in rivals
        assert column >= 2
    assert ("Equipoise, here", "draws of y") in {tuple(table.rows[row][:2]) for row, _ in table.bold}


# --- The run ----------------------------------------------------------------------------------------------------------


def test_settings_are_listed_one_by_one():
    table = tabulation.settings(THREE)
    listed = dict(table.rows)
    assert listed["seeds"] == "0, 1, 2"
    assert listed["rows for train"] == "12,600"
    assert listed["version of torch"] == "2.13.0"
    assert listed["data.split"] == "0.6, 0.2, 0.2"
    assert listed["max_epochs"] == "500"


def test_ranges_are_those_of_the_variables():
    table = tabulation.variables(ONE)
    assert [row[2:] for row in table.rows if row[1] == "Q_tot"] == [
        ["Total volumetric heating", "W/m³", "−9,800", "213,000"]
    ]
    assert [row[3:] for row in table.rows if row[1] == "SOC"] == [["–", "0.05", "0.95"]]


def test_captions_tell_the_seeds():
    assert tabulation.performance(ONE).caption.endswith("1 seed.")
    assert tabulation.performance(THREE).caption.endswith("3 seeds, mean ± standard error.")
