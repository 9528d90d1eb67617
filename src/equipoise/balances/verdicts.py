"""What the data say of a balance: whether its residual is biased, whether its tolerance was learned."""

import math
from dataclasses import dataclass

from scipy.special import ndtr, stdtr


@dataclass(frozen=True)
class Residual:
    """The systematic part of one balance's residual `A x + B y − b` over the measured rows, in the balance's unit.

    Args:
        mean, se, std: Mean, its standard error, and the standard deviation.
        n_rows: Rows in which every output of the balance was measured.
        input: The column that the residual depends on most (linearly), if any does.
        input_slope, input_z: Change of the residual per standard deviation of that column, and its z-value.
        rounding: Largest residual that could be rounding alone.
        n_inputs: How many columns were looked at to find that one.
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
        """A bias is called one when it is certain *and* a quarter of the scatter or more.

        Certain is what 4 standard deviations are to a normal: a two-sided probability below 6e-5, by Student's t, with
        Bonferroni's correction for having looked at every input.
        """
        return self.mean_is_biased or self.slope_is_biased

    @property
    def mean_is_biased(self) -> bool:
        t = abs(self.mean) / self.se if self.se > 0 else math.inf
        return self._material(self.mean) and _certain(t, self.n_rows - 1)

    @property
    def slope_is_biased(self) -> bool:
        return self._material(self.input_slope) and _certain(abs(self.input_z), self.n_rows - 2, self.n_inputs)

    def _material(self, size: float) -> bool:
        return abs(size) > max(0.25 * self.std, self.rounding)


def _certain(t: float, degrees: int, looks: int = 1) -> bool:
    return degrees > 0 and looks * float(stdtr(degrees, -t)) < float(ndtr(-4.0))


@dataclass(frozen=True)
class ToleranceEvidence:
    """What the data can say of one tolerance with the weights held fixed.

    Args:
        information: How much the expected log-likelihood varies over prior mean ± 3 sd, in nats.
        shortfall: How many nats the posterior's mean lies below the best value of log-likelihood plus log prior, in
            nats of the rows that were looked at: their best value differs from that of all rows by chance.
    """

    information: float
    shortfall: float


def verdict(kind: str, kl: float, lesson: ToleranceEvidence | None, separable: bool = True) -> str:
    """`informed`, `not informed by the data` or `not converged`; `exact` and `fixed` were not asked.

    Informed needs both a posterior that moved (KL > 0.1 nat) and a likelihood that has something to say (it varies by
    more than 1 nat over the prior's ± 3 sd). A posterior that lies more than 3 nats below what likelihood and prior
    together want, or that moved although the likelihood says nothing, has not converged. A tolerance that is informed
    only together with the sensors it was learned beside is `not separable from sensor noise`.
    """
    if kind != "learned" or lesson is None:
        return kind
    moved, told = kl > 0.1, lesson.information > 1.0
    if lesson.shortfall >= 3.0 or (moved and not told):
        return "not converged"
    if not moved:
        return "not informed by the data"
    return "informed" if separable else "not separable from sensor noise"
