"""The two short lists: how the weights are inferred, and how the balances are imposed. A method is one of each.

Light: nothing here imports torch, so that the command line can list methods at once.
"""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from equipoise.errors import EquipoiseError


class MethodError(EquipoiseError, ValueError):
    """A method that does not exist, or a pair that makes no sense."""


@dataclass(frozen=True)
class Inference:
    """How the weights are inferred.

    Args:
        title: For tables.
        source: Whose idea.
        by: The training behind it: the core's, or that of members.
        tied: Whether it can be trained while balances tie the outputs together.
    """

    title: str
    source: str
    by: Literal["posterior", "members"]
    tied: bool = True


@dataclass(frozen=True)
class Imposition:
    """How the balances are imposed.

    Args:
        title: For tables.
        source: Whose idea.
        in_training, in_prediction: Whether balances act there.
        likelihood: Of the training: "joint" (L2) or "marginal" (L1).
        predicts: The kind of joint distribution that is predicted: "joint" draws whole vectors, "marginal" each output.
        way: How a Gaussian meets the balances, or None for conditioning.
        tolerance: "exact", "paper" (its prior), "given" (exact where none is), "scalar" (one, tuned) or "learned".
        sensors: Whether sensor noise is told from the truth.
    """

    title: str
    source: str
    in_training: bool = True
    in_prediction: bool = True
    likelihood: Literal["joint", "marginal"] = "marginal"
    predicts: Literal["joint", "marginal"] = "joint"
    way: Literal["penalty", "projection", "completion", "qp"] | None = None
    tolerance: Literal["exact", "paper", "given", "scalar", "learned"] = "exact"
    sensors: bool = False


INFERENCES: Mapping[str, Inference] = {
    "vi": Inference("mean-field VI", "Graves 2011, Blundell et al. 2015", "posterior"),
    "deterministic": Inference("one network", "maximum a posteriori", "members"),
    "ensemble": Inference("deep ensemble", "Lakshminarayanan et al. 2017", "members"),
    "dropout": Inference("MC dropout", "Gal & Ghahramani 2016", "members"),
    "laplace": Inference("last-layer Laplace", "Daxberger et al. 2021", "members", tied=False),
}
IMPOSITIONS: Mapping[str, Imposition] = {
    "none": Imposition("no balance", "", in_training=False, in_prediction=False, predicts="marginal"),
    "penalty": Imposition(
        "soft penalty", "Raissi et al. 2019", in_prediction=False, predicts="marginal", way="penalty"
    ),
    "projection": Imposition("projection", "KKT-hPINN, Chen et al. 2024", way="projection"),
    "completion": Imposition("completion", "DC3, Donti et al. 2021", way="completion"),
    "qp": Imposition("QP layer", "OptNet 2017, cvxpylayers 2019", in_training=False, way="qp"),
    "posthoc": Imposition("post-hoc, exact", "ProbConserv, Hansen et al. 2023", in_training=False),
    "posthoc-scalar": Imposition(
        "post-hoc, one tolerance", "ProbConserv, Hansen et al. 2023", in_training=False, tolerance="scalar"
    ),
    "fixed": Imposition("conditioning, given tolerance", "ours", likelihood="joint", tolerance="given", sensors=True),
    "paper": Imposition("learned tolerance, diagonal", "the paper (L1)", predicts="marginal", tolerance="paper"),
    "learned": Imposition(
        "learned tolerance, joint, sensors", "ours (L2)", likelihood="joint", tolerance="learned", sensors=True
    ),
}
OURS = "vi+learned"
DEFAULT = (
    "vi+none",
    "dropout+none",
    "deterministic+none",
    "ensemble+none",
    "laplace+none",
    "vi+penalty",
    "vi+projection",
    "dropout+projection",
    "vi+completion",
    "deterministic+qp",
    "vi+posthoc",
    "vi+posthoc-scalar",
    "vi+fixed",
    "vi+paper",
    "vi+learned",
    "ensemble+learned",
)


@dataclass(frozen=True)
class Method:
    """One inference with one imposition.

    Example:
        >>> Method.named("ensemble+learned").title
        'deep ensemble, learned tolerance, joint, sensors'
        >>> Method.named("ensemble").name
        'ensemble+none'
    """

    inference: str
    imposition: str

    def __post_init__(self):
        _known("inference", self.inference, INFERENCES)
        _known("imposition", self.imposition, IMPOSITIONS)
        if reason := self.objection():
            raise MethodError(reason)

    @classmethod
    def named(cls, name: str) -> "Method":
        """From `inference+imposition`, or from an inference alone, without balances."""
        inference, _, imposition = name.strip().partition("+")
        return cls(inference.strip(), imposition.strip() or "none")

    @property
    def name(self) -> str:
        return f"{self.inference}+{self.imposition}"

    @property
    def title(self) -> str:
        return f"{INFERENCES[self.inference].title}, {IMPOSITIONS[self.imposition].title}"

    def objection(self) -> str:
        """Why this pair makes no sense; nothing if it does."""
        inference, imposition = INFERENCES[self.inference], IMPOSITIONS[self.imposition]
        if imposition.way == "qp" and (inference.by == "posterior" or not inference.tied):
            rule = "The QP layer is solved for every row, weight draw and step and must have one weight vector a member"
            advice = "Use 'deterministic', 'ensemble' or 'dropout', or 'projection', the same map in closed form."
            return f"{rule}, but got {self.inference!r}. {advice}"
        if imposition.in_training and not inference.tied:
            rule = "Last-layer Laplace must start from heads that were trained on their own, as its curvature assumes"
            advice = "Use 'none', 'posthoc' or 'posthoc-scalar'."
            return f"{rule}, but got {self.imposition!r}, which ties outputs together in training. {advice}"
        return ""


def sensible_pairs() -> list[Method]:
    """Every inference with every imposition that it works with."""
    pairs = []
    for inference in INFERENCES:
        for imposition in IMPOSITIONS:
            try:
                pairs.append(Method(inference, imposition))
            except MethodError:
                continue
    return pairs


def methods_named(names: Iterable[str]) -> tuple[Method, ...]:
    """Methods by their names, each once; "all" stands for every sensible pair and "default" for `DEFAULT`."""
    groups = {"all": [pair.name for pair in sensible_pairs()], "default": list(DEFAULT)}
    listed = [name for said in names for name in groups.get(said.strip(), [said])]
    return tuple(dict.fromkeys(Method.named(name) for name in listed))


def _known(what: str, name: str, names: Mapping) -> None:
    if name not in names:
        near = difflib.get_close_matches(name, names, n=1)
        advice = f"Did you mean {near[0]!r}?" if near else f"Choose one of: {', '.join(names)}."
        raise MethodError(f"{what} must be the name of a way to {_PURPOSE[what]}, but got {name!r}. {advice}")


_PURPOSE = {"inference": "infer weights", "imposition": "impose balances"}
