"""Verdicts on a balance after a fit: whether its residual is biased, and whether the data informed its tolerance."""

import math
from dataclasses import dataclass

from scipy.special import ndtr, stdtr


@dataclass(frozen=True)
class Residual:
    """The systematic part of one balance's residual `A x + B y − b` over the measured rows, in the balance's unit.

    Args:
        mean, se, std: Mean, its standard error, and the standard deviation.
        n_rows: Rows in which every output of the balance was measured.
        input: The column on which the residual depends most (linearly); None where that was not tested.
        input_slope, input_z: Change of the residual per standard deviation of that column, and its z-value.
        rounding: Largest residual that could be rounding alone.
        n_inputs: Number of columns that were tested to find `input`.
    """

    mean: float
    se: float
    std: float
    n_rows: int
    input: str | None = None
    input_slope: float = 0.0
    input_z: float = 0.0
    rounding: float = 0.0
    n_inputs: int = 1

    @property
    def biased(self) -> bool:
        """Whether the balance is biased: the mean or the slope is significant *and* at least a quarter of the scatter.

        Significant means a two-sided probability below 6e-5 by Student's t (4 standard deviations of a normal), with
        Bonferroni's correction for testing every input.
        """
        return self.mean_is_biased or self.slope_is_biased

    @property
    def mean_is_biased(self) -> bool:
        """Whether the mean residual is significant and at least a quarter of the scatter."""
        t = abs(self.mean) / self.se if self.se > 0 else math.inf
        return self._is_material(self.mean) and _is_significant(t, self.n_rows - 1)

    @property
    def slope_is_biased(self) -> bool:
        """Whether the residual's slope along `input` is significant and at least a quarter of the scatter."""
        z = abs(self.input_z)
        return self._is_material(self.input_slope) and _is_significant(z, self.n_rows - 2, self.n_inputs)

    def _is_material(self, size: float) -> bool:
        return abs(size) > max(0.25 * self.std, self.rounding)


def _is_significant(t: float, degrees: int, n_tests: int = 1) -> bool:
    return degrees > 0 and n_tests * float(stdtr(degrees, -t)) < float(ndtr(-4.0))


@dataclass(frozen=True)
class ToleranceEvidence:
    """The data's evidence for one log tolerance `ρ`, from its expected log-likelihood with the weights held fixed.

    Args:
        information: Range of the expected log-likelihood over prior mean ± 3 prior standard deviations, in nats.
        shortfall: Log-likelihood plus log prior at their maximum, less the value at the posterior's mean, in nats.
            Where the evidence comes from a part of the rows, these are nats of that part: its maximum differs from
            that of all rows by chance.
    """

    information: float
    shortfall: float


def verdict(kind: str, kl: float, evidence: ToleranceEvidence | None, separable: bool = True) -> str:
    """Judge whether the data informed the tolerance of a balance.

    The verdict is "informed" where both the posterior differs from the prior (KL > 0.1 nat) and the likelihood varies
    by more than 1 nat over prior mean ± 3 sd. It is "not converged" where the posterior's mean lies 3 nats or more
    below the maximum of likelihood and prior, or differs from the prior although the likelihood is flat.

    Args:
        kind: "learned", or another kind of tolerance ("exact", "exact to rounding", "fixed").
        kl: `KL(q(ρ) ‖ p(ρ))` in nats (K2).
        evidence: For a learned tolerance; None where there is none.
        separable: Whether the data determine the tolerance apart from the variance of the sensors.
    Returns:
        "informed", "not informed by the data", "not converged", or "not separable from sensor noise", where only the
        sum of both is informed; `kind` itself unless the tolerance is learned and there is evidence.
    Example:
        >>> verdict("learned", kl=2.0, evidence=ToleranceEvidence(information=20.0, shortfall=0.1))
        'informed'
        >>> verdict("exact", kl=0.0, evidence=None)
        'exact'
    """
    if kind != "learned" or evidence is None:
        return kind
    differs, informative = kl > 0.1, evidence.information > 1.0
    if evidence.shortfall >= 3.0 or (differs and not informative):
        return "not converged"
    if not differs:
        return "not informed by the data"
    return "informed" if separable else "not separable from sensor noise"
