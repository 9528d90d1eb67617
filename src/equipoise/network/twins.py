"""Twins: which definitions of this package compiled code knows how to replace.

A twin belongs to one class and to none that derives from it, since a subclass may compute something else. It is listed
here and not declared by the class, so that a class from outside the package cannot claim one.
"""

from collections.abc import Mapping

from equipoise.gaussian import LogNormalVariance
from equipoise.network.likelihood import Joint, Marginal
from equipoise.network.posterior import MeanFieldGaussian

TWINS: Mapping[type, str] = {
    Joint: "joint",
    Marginal: "marginal",
    MeanFieldGaussian: "mean-field",
    LogNormalVariance: "log-normal",
}


def twin_of(definition: object) -> str | None:
    """Return the name of a definition in compiled code; None where there is none.

    Args:
        definition: The likelihood, or the posterior of weights or variances.

    Example:
        >>> class Wider(Joint):
        ...     name = "wider"
        >>> twin_of(Joint()), twin_of(Wider())
        ('joint', None)
    """
    return TWINS.get(type(definition))
