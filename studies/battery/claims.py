"""What the paper claims, and who judges it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from studies.battery import judges
from studies.battery.judges import Verdict
from studies.battery.seeds import Runs


@dataclass(frozen=True)
class Claim:
    """A statement of the paper and how it is judged.

    Args:
        name: A short name.
        statement: In our words.
        label: The LaTeX label of the table it rests on; empty if it stands in the text alone.
        judge: From the results of one or more seeds.
    """

    name: str
    statement: str
    label: str
    judge: Callable[[Runs], Verdict]


CLAIMS = (
    Claim(
        "accuracy",
        "Point predictions with the balances are as accurate as without.",
        "tab:predictive_performance",
        judges.accuracy,
    ),
    Claim("same coverage", "Both networks have identical coverage.", "", judges.same_coverage),
    Claim("coverage", "The coverage is 0.99.", "", judges.coverage_number),
    Claim(
        "width",
        "Intervals are narrower with the balances.",
        "tab:predictive_performance",
        judges.lower("interval_width", "The mean width of 95 % intervals"),
    ),
    Claim(
        "aleatoric",
        "The balances reduce aleatoric uncertainty.",
        "tab:prediction",
        judges.lower("aleatoric", "Aleatoric uncertainty"),
    ),
    Claim(
        "epistemic",
        "The balances reduce epistemic uncertainty.",
        "tab:prediction",
        judges.lower("epistemic", "Epistemic uncertainty"),
    ),
    Claim(
        "voltage violation",
        "The median violation of the voltage balance falls by over two orders of magnitude.",
        "tab:constraint_violation",
        judges.violation_of_means("voltage", "V"),
    ),
    Claim(
        "heat violation",
        "The median violation of the heat balance falls by over four orders of magnitude.",
        "tab:constraint_violation",
        judges.violation_of_means("heat", "W/m³"),
    ),
    Claim(
        "voltage tolerance",
        "The tolerance of the voltage balance is learned, and precisely.",
        "tab:learned_tolerance",
        judges.voltage_tolerance,
    ),
    Claim(
        "heat tolerance",
        "The heat balance retains appreciable slack, calibrated from the data.",
        "tab:learned_tolerance",
        judges.heat_tolerance,
    ),
    Claim(
        "moments", "E[r] and Std[r] of the learned tolerances are as printed.", "tab:learned_tolerance", judges.moments
    ),
    Claim(
        "noise level",
        "Aleatoric uncertainty is 0.0149 of the outputs' spread, with noise of 2–5 mV.",
        "tab:prediction",
        judges.noise_level,
    ),
    Claim("MSE", "The MSE on the noisy test set is 1.13×10⁻⁴.", "tab:predictive_performance", judges.mse_level),
    Claim(
        "MSE spread",
        "The MSE is ± 1.88×10⁻³, 1.96 standard deviations over the outputs.",
        "tab:predictive_performance",
        judges.mse_spread,
    ),
)
