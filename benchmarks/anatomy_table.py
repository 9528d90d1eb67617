"""How the time of a training step divides, as lines of a table; without torch, so that pages are written at once."""

from collections.abc import Mapping

Anatomy = dict  # "ms", "operators", and "parts": milliseconds by kind of operator
KINDS = {  # operators by what they do; all others are counted as element by element
    "random numbers": ("normal_",),
    "matrix products": ("mm", "addmm", "bmm", "baddbmm"),
    "Adam": ("Optimizer.step", "_fused_adam_", "_foreach"),
}
ELEMENTWISE = "element by element, sums and copies"


def kind_of(operator: str) -> str:
    """What an operator does.

    Example:
        >>> kind_of("aten::addmm"), kind_of("aten::normal_"), kind_of("aten::mul")
        ('matrix products', 'random numbers', 'element by element, sums and copies')
    """
    name = operator.removeprefix("aten::")
    for kind, names in KINDS.items():
        if name in names or (kind == "Adam" and name.startswith(names)):
            return kind
    return ELEMENTWISE


def rows_of(found: Mapping[str, Anatomy]) -> list[tuple[str, ...]]:
    """Lines of a table: what, before, after."""
    before, after = found["before"], found["after"]
    lines = [(kind, *(f"{each['parts'][kind]:.2f}" for each in (before, after))) for kind in (*KINDS, ELEMENTWISE)]
    lines.append(("whole step [ms]", f"{before['ms']:.2f}", f"{after['ms']:.2f}"))
    return [*lines, ("torch operators called", f"{before['operators']:,}", f"{after['operators']:,}")]
