"""Elements of the reports' figures: SVG with real text, narrow enough for a phone.

Axes and text have the colour of the surrounding text, `currentColor`, so that a drawing suits light and dark pages.
Hues follow Okabe and Ito, for the colour-blind; every distinction by hue is also made by words, position or dashes.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from equipoise.app.report.formatting import SUPERSCRIPTS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure as Canvas

Array = NDArray[np.float64]

INK, QUIET = "#1c2126", "#8a939c"
BLUE, ORANGE, GREEN = "#1A80BB", "#D55E00", "#009E73"  # readable on white and on dark backgrounds
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
    "axes.titley": 1.0,  # automatic placement takes a fifth of the drawing time, and is not needed
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
    "text.parse_math": False,  # a dollar is a dollar in the names of the user's columns
    "xtick.color": INK,
    "xtick.labelsize": 8.5,
    "ytick.color": INK,
    "ytick.labelsize": 8.5,
}
TERMS = {  # terms of the ledger: the sign with which each enters the variance, and its colour (Okabe and Ito, and Tol)
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
    """Draw a figure and return it as SVG; the same drawing always gives the same text.

    Args:
        name: Name of the drawing; its ids are derived from it.
        height: Height in inches; the width is `WIDTH`.
        draw: Function that draws on the canvas it is called with.
    Returns: Text of an `svg` element.
    """
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure as Canvas

    with mpl.rc_context({**STYLE, "svg.hashsalt": name}), warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", "Glyph .* missing", UserWarning
        )  # the page's font draws the text, not matplotlib's
        canvas = Canvas(figsize=(WIDTH, height), dpi=72, layout="constrained")
        FigureCanvasSVG(canvas)
        draw(canvas)
        _fix_layout(canvas)
        file = io.StringIO()
        no_metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        canvas.savefig(file, format="svg", transparent=True, metadata=no_metadata)
    text = file.getvalue()
    text = COORDINATES.sub(_shorten, text[text.index("<svg") :]).replace(INK, "currentColor")
    return text.replace("<svg ", f'<svg style="color: {INK}; background: #ffffff" ', 1)


def _fix_layout(canvas: Canvas) -> None:
    """Compute the positions of axes now; on saving, matplotlib would draw everything once more to find them."""
    if (engine := canvas.get_layout_engine()) is not None:
        engine.execute(canvas)
        canvas.set_layout_engine("none")


def _shorten(coordinates: re.Match[str]) -> str:
    """Round coordinates of a path to hundredths of a point, which are finer than any screen."""
    plain = " ".join(coordinates[0].split())
    return DECIMALS.sub(lambda digits: f"{float(digits[0]):.2f}".rstrip("0").rstrip("."), plain)


def label(text: str, most: int = 24) -> str:
    """Cut a name for a drawing to one line of printable characters, `most` at most.

    Long names are cut in the middle, since they often differ at their ends. The default fits half the width.

    Args:
        text: The name.
        most: Largest number of characters.
    Example:
        >>> label("Mass flow of the\\n recycled stream 12 [kg/s]")
        'Mass flow o…am 12 [kg/s]'
    """
    plain = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    tail = most // 2
    return plain if len(plain) <= most else plain[: most - 1 - tail] + "…" + plain[-tail:]


# --- Layout -----------------------------------------------------------------------------------------------------------


def groups(items: Sequence[Any], most: int) -> Iterator[Sequence[Any]]:
    """Split items into consecutive groups of at most `most`, of about the same size.

    Args:
        items: The items.
        most: Largest number of items in a group.
    Example:
        >>> [len(group) for group in groups(range(7), 6)]
        [4, 3]
    """
    n_groups = -(-len(items) // most)
    for positions in np.array_split(np.arange(len(items)), max(n_groups, 1)):
        if len(positions):
            yield items[positions[0] : positions[-1] + 1]


def panels(canvas: Canvas, n: int) -> list[Axes]:
    """Add axes for `n` small drawings to a canvas, two in a row; a single one takes the full width.

    Args:
        canvas: The figure.
        n: Number of drawings.
    """
    if n == 1:
        return [canvas.subplots()]
    axes = canvas.subplots(-(-n // 2), 2).ravel()
    for empty in axes[n:]:
        empty.remove()
    return list(axes[:n])


def legend(canvas: Canvas, ax: Axes | None = None, columns: int = 4) -> None:
    """Add a legend above all axes.

    Args:
        canvas: The figure.
        ax: Axes whose labels are listed; the figure's first by default.
        columns: Number of entries in a row.
    """
    handles, labels = (ax or canvas.axes[0]).get_legend_handles_labels()
    canvas.legend(handles, labels, loc="outside upper left", ncols=columns, columnspacing=1.2, borderaxespad=0.1)


def powers_of_ten(axis: Axis, steps: Sequence[float] = (1.0,)) -> None:
    """Label a logarithmic axis in plain text.

    Args:
        axis: The axis.
        steps: Multiples of each power of ten that are labelled.
    """
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(subs=steps))
    axis.set_major_formatter(FuncFormatter(lambda value, _: _log_axis_label(value)))
    axis.set_minor_formatter(NullFormatter())


def _log_axis_label(value: float) -> str:
    if 0.01 <= value <= 100:
        return f"{value:g}"
    return "10" + str(round(np.log10(value))).translate(SUPERSCRIPTS)


def limits(*values: Array) -> tuple[float, float]:
    """Return the limits of an axis that shows all finite values with a margin, also if they are all the same.

    Example:
        >>> limits(np.array([1.0, np.nan]), np.array([2.0])), limits(np.array([np.nan]))
        ((0.95, 2.05), (-1.0, 1.0))
    """
    finite = np.concatenate([np.ravel(array) for array in values])
    finite = finite[np.isfinite(finite)]
    if not len(finite):
        return -1.0, 1.0
    low, high = float(finite.min()), float(finite.max())
    margin = 0.05 * (high - low) if high - low > 1e-9 * abs(high + low) else max(1e-3 * abs(low), 1e-9)
    return low - margin, high + margin


# --- Marks ------------------------------------------------------------------------------------------------------------


def area(ax: Axes, x: Array, y: Array, color: str, **look: Any) -> None:
    """Draw a polygon with a pale interior.

    Args:
        ax: Axes to draw on.
        x, y: Corners of the polygon, in the data's units, shape `(n,)`.
        color: Colour of its edge; the interior has the same one at 18 % opacity.
        **look: Properties of a matplotlib patch.
    """
    ax.fill(x, y, fc=(color, 0.18), ec=color, **look)


def segments(ax: Axes, x: tuple[Array, Array], y: tuple[Array, Array], **look: Any) -> None:
    """Draw straight lines between two arrays of points, all in one path, which keeps the SVG small.

    Args:
        ax: Axes to draw on.
        x, y: Coordinates of both ends, in the data's units.
        **look: Properties of a matplotlib patch; `capstyle="round"` turns lines without length into dots.
    """
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    vertices = np.stack([np.stack(x, -1), np.stack(y, -1)], -1).reshape(-1, 2)
    path = Path(vertices, np.tile([Path.MOVETO, Path.LINETO], len(vertices) // 2))
    path.should_simplify = False
    ax.add_patch(PathPatch(path, fill=False, **look))


def dots(ax: Axes, x: Array, y: Array, size: float = 3.0, **look: Any) -> None:
    """Draw round dots with a diameter of `size` points at x and y, all in one path.

    Args:
        ax: The axes to draw on.
        x, y: Coordinates, shape `(n,)` each.
        size: Diameter in points.
    """
    segments(ax, (x, x), (y, y), lw=size, capstyle="round", **look)


def log_normal(mean: float, std: float) -> tuple[Array, Array]:
    """Compute points of a log-normal density, for a tolerance √r whose log r is normally distributed.

    Args:
        mean, std: Mean and standard deviation of log r.
    Returns: √r, and the density of log √r up to a factor, from −3.5 to 3.5 standard deviations, shape `(121,)`.
    """
    z = np.linspace(-3.5, 3.5, 121)
    return np.exp(0.5 * (mean + std * z)), np.exp(-0.5 * z**2) / max(std, 1e-6)


def stacked_terms(ax: Axes, labels: Sequence[str], shares: Mapping[str, Sequence[float] | Array]) -> None:
    """Draw the terms of variances as stacked bars: terms that add to the right, terms that subtract to the left.

    Args:
        ax: Axes to draw on.
        labels: Labels of the bars, from the top.
        shares: Signed shares of each term, shape `(n_bars,)`, by the names in `TERMS`; a diamond marks their sum.
    """
    positions = np.arange(len(labels))[::-1]
    right, left = np.zeros(len(labels)), np.zeros(len(labels))
    for name, values in shares.items():
        part = np.asarray(values, dtype=float)
        ax.barh(positions, part, left=np.where(part >= 0, right, left), color=TERMS[name][1], label=name, height=0.68)
        right, left = right + part.clip(0), left + part.clip(None, 0)
    ax.plot(right + left, positions, "D", ms=4, mec=INK, mfc="white", mew=0.9, label="total")
    ax.axvline(0, color=INK, lw=0.7)
    ax.set(xlabel="share of the terms that add variance", xlim=(min(left.min(), 0) - 0.03, max(right.max(), 1) + 0.03))
    ax.set_yticks(positions, labels)
