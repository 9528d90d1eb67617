"""Drawing idioms of the reports: figures as SVG with real text, narrow enough for a phone.

Axes and text have the colour of the text around them, `currentColor`, so that a drawing suits light and dark pages.
Hues follow Okabe and Ito, for the colour-blind; what they tell apart is also told by words, place or dashes.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from equipoise.app.report.page import SUPERSCRIPTS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure as Canvas

Array = NDArray[np.float64]

INK, QUIET = "#1c2126", "#8a939c"
BLUE, ORANGE, GREEN = "#1A80BB", "#D55E00", "#009E73"  # stand out on white and on dark
WIDTH = 4.8  # inches
STYLE: dict[Any, Any] = {
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.labelsize": 9,
    "axes.linewidth": 0.7,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 9.5,
    "axes.titley": 1.0,  # looking for a place takes a fifth of the time, and there is nothing in the way
    "axes.unicode_minus": True,
    "font.family": ["DejaVu Sans"],
    "font.size": 9,
    "legend.fontsize": 8.5,
    "legend.frameon": False,
    "legend.handlelength": 1.3,
    "lines.linewidth": 1.4,
    "path.simplify_threshold": 0.3,
    "svg.fonttype": "none",
    "text.color": INK,
    "text.parse_math": False,  # a dollar is a dollar: names of columns are the user's
    "xtick.color": INK,
    "xtick.labelsize": 8.5,
    "ytick.color": INK,
    "ytick.labelsize": 8.5,
}
TERMS = {  # of the ledger, with the sign they enter with, and colours of Okabe and Ito, and of Tol
    "aleatoric": (1, "#E69F00"),
    "sensor": (1, "#999933"),
    "epistemic": (1, "#56B4E9"),
    "shift": (1, "#009E73"),
    "interaction": (1, "#CC79A7"),
    "reduction": (-1, "#8877CC"),
}
COORDINATES = re.compile(r'(?<= d=")[^"]+|(?<= [xy]=")[^"]+')
DECIMALS = re.compile(r"-?\d+\.\d+(?![\d.e])")


def svg(name: str, height: float, draw: Callable[[Canvas], None]) -> str:
    """Draw on a new canvas of `WIDTH`; the same drawing always gives the same text.

    Args:
        name: Tells the drawing's ids from those of others.
        height: Inches.
        draw: Is given the canvas.
    """
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure as Canvas

    with mpl.rc_context({**STYLE, "svg.hashsalt": name}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing", UserWarning)  # the page's font draws the text, not ours
        canvas = Canvas(figsize=(WIDTH, height), dpi=72, layout="constrained")
        FigureCanvasSVG(canvas)
        draw(canvas)
        _lay_out(canvas)
        file = io.StringIO()
        unsaid = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        canvas.savefig(file, format="svg", transparent=True, metadata=unsaid)
    text = file.getvalue()
    text = COORDINATES.sub(_shortened, text[text.index("<svg") :]).replace(INK, "currentColor")
    return text.replace("<svg ", f'<svg style="color: {INK}; background: #ffffff" ', 1)


def _lay_out(canvas: Canvas) -> None:
    """Find the places of axes now: when it saves a canvas, matplotlib would draw all of it once more for that."""
    if (engine := canvas.get_layout_engine()) is not None:
        engine.execute(canvas)
        canvas.set_layout_engine("none")


def _shortened(coordinates: re.Match[str]) -> str:
    """Hundredths of a point are finer than any screen; the rest is only long."""
    plain = " ".join(coordinates[0].split())
    return DECIMALS.sub(lambda digits: f"{float(digits[0]):.2f}".rstrip("0").rstrip("."), plain)


def label(text: str, most: int = 24) -> str:
    """A name as a drawing can bear it: on one line, printable and not too long, for half its width by default.

    Long names are cut in the middle, since it is their ends that tell them apart.

    Example:
        >>> label("Mass flow of the\\n recycled stream 12 [kg/s]")
        'Mass flow o…am 12 [kg/s]'
    """
    plain = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    tail = most // 2
    return plain if len(plain) <= most else plain[: most - 1 - tail] + "…" + plain[-tail:]


# --- Layout -----------------------------------------------------------------------------------------------------------


def groups(items: Sequence[Any], most: int) -> Iterator[Sequence[Any]]:
    """Runs of at most `most` items, of about the same length.

    Example:
        >>> [len(group) for group in groups(range(7), 6)]
        [4, 3]
    """
    n_groups = -(-len(items) // most)
    for some in np.array_split(np.arange(len(items)), max(n_groups, 1)):
        if len(some):
            yield items[some[0] : some[-1] + 1]


def panels(canvas: Canvas, n: int) -> list[Axes]:
    """Axes for `n` small drawings, two beside each other; one has the width for itself."""
    if n == 1:
        return [canvas.subplots()]
    axes = canvas.subplots(-(-n // 2), 2).ravel()
    for empty in axes[n:]:
        empty.remove()
    return list(axes[:n])


def legend(canvas: Canvas, ax: Axes | None = None, columns: int = 4) -> None:
    """Above all axes, from the labels of one of them."""
    handles, labels = (ax or canvas.axes[0]).get_legend_handles_labels()
    canvas.legend(handles, labels, loc="outside upper left", ncols=columns, columnspacing=1.2, borderaxespad=0.1)


def powers_of_ten(axis: Axis, steps: Sequence[float] = (1.0,)) -> None:
    """Labels of a logarithmic axis as plain text, at these steps within a decade."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(subs=steps))
    axis.set_major_formatter(FuncFormatter(lambda value, _: _on_log_axis(value)))
    axis.set_minor_formatter(NullFormatter())


def _on_log_axis(value: float) -> str:
    if 0.01 <= value <= 100:
        return f"{value:g}"
    return "10" + str(round(np.log10(value))).translate(SUPERSCRIPTS)


def limits(*values: Array) -> tuple[float, float]:
    """A range that holds all finite values with some air, also if they are all the same.

    Example:
        >>> limits(np.array([1.0, np.nan]), np.array([2.0])), limits(np.array([np.nan]))
        ((0.95, 2.05), (-1.0, 1.0))
    """
    every = np.concatenate([np.ravel(part) for part in values])
    every = every[np.isfinite(every)]
    if not len(every):
        return -1.0, 1.0
    low, high = float(every.min()), float(every.max())
    air = 0.05 * (high - low) if high - low > 1e-9 * abs(high + low) else max(1e-3 * abs(low), 1e-9)
    return low - air, high + air


# --- Marks ------------------------------------------------------------------------------------------------------------


def area(ax: Axes, x: Array, y: Array, color: str, **look: Any) -> None:
    """A polygon, its inside pale."""
    ax.fill(x, y, fc=(color, 0.18), ec=color, **look)


def segments(ax: Axes, x: tuple[Array, Array], y: tuple[Array, Array], **look: Any) -> None:
    """Straight lines from one array of points to another, all in one path: hundreds take little room.

    Args:
        ax: Where.
        x, y: Beginnings and ends, in the data's units.
        **look: Of a matplotlib patch; `capstyle="round"` makes dots of lines without length.
    """
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    vertices = np.stack([np.stack(x, -1), np.stack(y, -1)], -1).reshape(-1, 2)
    path = Path(vertices, np.tile([Path.MOVETO, Path.LINETO], len(vertices) // 2))
    path.should_simplify = False
    ax.add_patch(PathPatch(path, fill=False, **look))


def dots(ax: Axes, x: Array, y: Array, size: float = 3.0, **look: Any) -> None:
    """Round dots of `size` points, all in one path."""
    segments(ax, (x, x), (y, y), lw=size, capstyle="round", **look)


def log_normal(mean: float, std: float) -> tuple[Array, Array]:
    """√r, and the density of its logarithm (up to a factor), for log r with this mean and standard deviation."""
    z = np.linspace(-3.5, 3.5, 121)
    return np.exp(0.5 * (mean + std * z)), np.exp(-0.5 * z**2) / max(std, 1e-6)


def stacked_terms(ax: Axes, labels: Sequence[str], shares: Mapping[str, Sequence[float] | Array]) -> None:
    """A bar of the ledger's terms for each label, from the top: what adds to the right, what takes to the left.

    Args:
        ax: Where.
        labels: Of the bars.
        shares: Of each term that is to be shown, signed, one number per bar; the diamond is their sum.
    """
    places = np.arange(len(labels))[::-1]
    right, left = np.zeros(len(labels)), np.zeros(len(labels))
    for name, values in shares.items():
        part = np.asarray(values, dtype=float)
        ax.barh(places, part, left=np.where(part >= 0, right, left), color=TERMS[name][1], label=name, height=0.68)
        right, left = right + part.clip(0), left + part.clip(None, 0)
    ax.plot(right + left, places, "D", ms=4, mec=INK, mfc="white", mew=0.9, label="total")
    ax.axvline(0, color=INK, lw=0.7)
    ax.set(xlabel="share of the terms that add variance", xlim=(min(left.min(), 0) - 0.03, max(right.max(), 1) + 0.03))
    ax.set_yticks(places, labels)
