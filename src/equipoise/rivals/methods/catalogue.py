"""The catalogue of methods: each is one way to infer what predicts combined with one way to impose the balances.

Nothing here imports torch, so that the command line can list methods at once.
"""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from equipoise.errors import EquipoiseError


class MethodError(EquipoiseError, ValueError):
    """A method that does not exist, or a combination that makes no sense."""


@dataclass(frozen=True)
class Inference:
    """A way to infer the weights of the network, or what stands in its place.

    Args:
        title: Name in tables.
        source: Publication that proposed it.
        trains: What is trained: the library's variational "posterior", one weight vector for each of its "members", or,
            without a network, a regression of each of the "outputs" alone.
        impositions: Names of the impositions that it can be combined with; None for all.
        reason: Why it cannot be combined with others, as the beginning of a message.
    """

    title: str
    source: str
    trains: Literal["posterior", "members", "outputs"]
    impositions: tuple[str, ...] | None = None
    reason: str = ""


@dataclass(frozen=True)
class Imposition:
    """A way to impose the balances.

    Args:
        title: Name in tables.
        source: Publication that proposed it.
        in_training, in_prediction: Whether the balances act in training, and in prediction.
        likelihood: Likelihood in training: "joint" (L2) or "marginal" (L1).
        predicts: Likelihood in prediction: "joint" draws whole output vectors, "marginal" each output on its own.
        mechanism: What replaces the conditioning of the network's Gaussian (C1–C4); None for conditioning.
        tolerance: "exact", "paper" (learned, with the paper's prior), "given" (exact where the user gives none),
            "scalar" (one for all balances, tuned) or "learned".
        sensors: Whether the noise of the sensors is modelled apart from the true values.
    """

    title: str
    source: str
    in_training: bool = True
    in_prediction: bool = True
    likelihood: Literal["joint", "marginal"] = "marginal"
    predicts: Literal["joint", "marginal"] = "joint"
    mechanism: Literal["penalty", "projection", "completion", "qp"] | None = None
    tolerance: Literal["exact", "paper", "given", "scalar", "learned"] = "exact"
    sensors: bool = False


AFTERWARDS = ("none", "posthoc", "posthoc-scalar")  # impositions that do not act in training
INFERENCES: Mapping[str, Inference] = {
    "vi": Inference("mean-field VI", "Graves 2011, Blundell et al. 2015", "posterior"),
    "deterministic": Inference("one network", "maximum a posteriori", "members"),
    "ensemble": Inference("deep ensemble", "Lakshminarayanan et al. 2017", "members"),
    "dropout": Inference("MC dropout", "Gal & Ghahramani 2016", "members"),
    "laplace": Inference(
        "last-layer Laplace",
        "Daxberger et al. 2021",
        "members",
        AFTERWARDS,
        "Last-layer Laplace must start from heads that were trained on their own, as its curvature assumes",
    ),
    "gp": Inference(
        "Gaussian process for each output, of at most 2,000 rows",
        "Rasmussen & Williams 2006",
        "outputs",
        (*AFTERWARDS, "fixed", "learned"),
        "Gaussian processes must be fitted to each output on its own",
    ),
    "boosting": Inference(
        "gradient boosting of means and log-variances",
        "Friedman 2001, Ke et al. 2017",
        "outputs",
        AFTERWARDS,
        "Boosted trees must be grown for each output on its own",
    ),
}
IMPOSITIONS: Mapping[str, Imposition] = {
    "none": Imposition("no balance", "", in_training=False, in_prediction=False, predicts="marginal"),
    "penalty": Imposition(
        "soft penalty", "Raissi et al. 2019", in_prediction=False, predicts="marginal", mechanism="penalty"
    ),
    "projection": Imposition("projection", "KKT-hPINN, Chen et al. 2024", mechanism="projection"),
    "completion": Imposition("completion", "DC3, Donti et al. 2021", mechanism="completion"),
    "qp": Imposition("QP layer", "OptNet 2017, cvxpylayers 2019", in_training=False, mechanism="qp"),
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
    "deterministic+learned",
    "ensemble+learned",
    "gp+learned",
    "boosting+none",
    "boosting+posthoc-scalar",
)


@dataclass(frozen=True)
class Method:
    """One inference combined with one imposition.

    Args:
        inference: A key of `INFERENCES`.
        imposition: A key of `IMPOSITIONS`.
    Raises: MethodError, if a name is unknown or the combination makes no sense.

    Example:
        >>> Method.named("ensemble+learned").title
        'deep ensemble, learned tolerance, joint, sensors'
        >>> Method.named("ensemble").name
        'ensemble+none'
    """

    inference: str
    imposition: str

    def __post_init__(self):
        _check_known("inference", self.inference, INFERENCES)
        _check_known("imposition", self.imposition, IMPOSITIONS)
        if reason := self.objection():
            raise MethodError(reason)

    @classmethod
    def named(cls, name: str) -> "Method":
        """Parse `inference+imposition`, or an inference alone, which is combined with no balances."""
        inference, _, imposition = name.strip().partition("+")
        return cls(inference.strip(), imposition.strip() or "none")

    @property
    def name(self) -> str:
        """The name `inference+imposition`, which `named` parses."""
        return f"{self.inference}+{self.imposition}"

    @property
    def title(self) -> str:
        """The name in words."""
        return f"{INFERENCES[self.inference].title}, {IMPOSITIONS[self.imposition].title}"

    def objection(self) -> str:
        """Explain why this combination makes no sense; return an empty string if it does."""
        inference, imposition = INFERENCES[self.inference], IMPOSITIONS[self.imposition]
        if inference.impositions is not None and self.imposition not in inference.impositions:
            *others, last = map(repr, inference.impositions)
            advice = f"Use {', '.join(others)} or {last}."
            return f"{inference.reason}, but got {self.imposition!r}, which ties outputs together in training. {advice}"
        if imposition.mechanism == "qp" and inference.trains == "posterior":
            rule = "The QP layer is solved for every row, weight draw and step and must have one weight vector a member"
            advice = "Use 'deterministic', 'ensemble' or 'dropout', or 'projection', the same map in closed form."
            return f"{rule}, but got {self.inference!r}. {advice}"
        return ""


def sensible_pairs() -> list[Method]:
    """List every inference with every imposition that it can be combined with."""
    pairs = []
    for inference in INFERENCES:
        for imposition in IMPOSITIONS:
            try:
                pairs.append(Method(inference, imposition))
            except MethodError:
                continue
    return pairs


def methods_named(names: Iterable[str]) -> tuple[Method, ...]:
    """Parse the names of methods; repeated methods are listed once.

    Args:
        names: Such as "vi+none" or "ensemble+learned"; "all" stands for every combination that makes sense, "default"
            for the twenty of `DEFAULT`.
    Returns: The methods, in the order of the names.
    Raises: MethodError, if a name is unknown or a combination makes no sense.

    Example:
        >>> [method.name for method in methods_named(["vi+paper", "ensemble", "vi+paper"])]
        ['vi+paper', 'ensemble+none']
    """
    groups = {"all": [pair.name for pair in sensible_pairs()], "default": list(DEFAULT)}
    expanded = [member for name in names for member in groups.get(name.strip(), [name])]
    return tuple(dict.fromkeys(Method.named(name) for name in expanded))


def _check_known(kind: str, name: str, names: Mapping) -> None:
    if name not in names:
        near = difflib.get_close_matches(name, names, n=1)
        advice = f"Did you mean {near[0]!r}?" if near else f"Choose one of: {', '.join(names)}."
        raise MethodError(f"{kind} must be the name of a way to {_PURPOSE[kind]}, but got {name!r}. {advice}")


_PURPOSE = {"inference": "infer weights", "imposition": "impose balances"}
