"""Draws pictures in one style, as SVG inside a page. Text stays selectable, the colours are those
of the page, and ids are unique.
"""

import io
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

__all__ = [
    "INK",
    "MARKERS",
    "PAPER",
    "QUIET",
    "RULE",
    "SERIES",
    "Picture",
    "Table",
    "decades",
    "drawn",
    "power",
    "rounded",
]

INK, QUIET, RULE, PAPER = "#010101", "#777771", "#c8c8c1", "#fefefd"
SERIES = ("#0072b1", "#d55e01", "#009e71", "#aa4491")
"""The colours of text, of secondary text, of lines, of the background, and of four series. The series
are close to the colours of Okabe and Ito, which colour-blind readers can distinguish. The page
replaces them by its own colours, so that a picture is dark in a dark page.
"""

MARKERS = ("o", "s", "^", "D")
"""The markers of the same series, for readers who cannot rely on colour."""

_VARIABLES = {INK: "--ink", QUIET: "--quiet", RULE: "--rule", PAPER: "--paper"} | {
    colour: f"--series-{number}" for number, colour in enumerate(SERIES, 1)
}
_STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "attnspec",
    "font.size": 9.0,
    "text.color": INK,
    "text.parse_math": False,
    "axes.edgecolor": RULE,
    "axes.labelcolor": INK,
    "axes.titlesize": 9.5,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": False,
    "grid.color": RULE,
    "grid.linewidth": 0.5,
    "xtick.color": RULE,
    "ytick.color": RULE,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "lines.linewidth": 1.4,
    "lines.markersize": 4.0,
    "legend.frameon": False,
    "hatch.linewidth": 0.6,
}


@dataclass(frozen=True)
class Table:
    """The numbers of a picture as a table: a heading for each column, and rows."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Picture:
    """A picture as a page shows it.

    name          its id
    title         what is drawn
    caption       what the reader should notice
    alternative   a text for readers who cannot see the picture
    svg           the SVG element
    table         the numbers
    source        where the numbers come from
    """

    name: str
    title: str
    caption: str
    alternative: str
    svg: str
    table: Table
    source: str = ""


def drawn(name: str, draw: Callable[[Figure], None], width: float = 6.8, height: float = 3.2) -> str:
    """Return the SVG element that `draw` draws on an empty figure. `width` and `height` are in
    inches. Equal figures give equal text.
    """
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        draw(figure)
        written = io.StringIO()
        figure.savefig(
            written, format="svg", transparent=True, metadata=dict.fromkeys(("Creator", "Date", "Format", "Type"))
        )
    return _embedded(written.getvalue(), name)


def _embedded(svg: str, name: str) -> str:
    """Return the SVG element without the rest of the file. It scales, has the page's colours, and
    is hidden from screen readers, which read the alternative text.
    """
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->|<defs>\s*<style.*?</style>\s*</defs>", "", svg, flags=re.DOTALL)
    svg = re.sub(
        r'<svg[^>]*?viewBox="([^"]*)"[^>]*>', r'<svg viewBox="\1" aria-hidden="true" focusable="false">', svg, count=1
    )
    # matplotlib hashes coordinates, whose last bits differ between processors
    for number, hashed in enumerate(dict.fromkeys(re.findall(r'\bid="(\w+[0-9a-f]{10})"', svg))):
        svg = svg.replace(hashed, f"shared-{number}")
    svg = re.sub(r'\bid="|url\(#|href="#', lambda found: f"{found[0]}{name}-", svg).replace("xlink:href", "href")
    svg = re.sub(r"font-family: [^;\"]*;?", "", svg)
    svg = re.sub(r"\bfont: ((?:[\w.]+ )*[\d.]+px) [^;\"]*", r"font: \1 var(--sans)", svg)
    svg = re.sub(r' d="[^"]*"', lambda path: re.sub(r"(\.\d\d)\d+", r"\1", path[0]), svg)  # hundredths of a point
    for colour, variable in _VARIABLES.items():
        svg = svg.replace(colour, f"var({variable})")
    return re.sub(r"\n\s*", "\n", svg).strip()


_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def power(base: int, exponent: int) -> str:
    """Return base^exponent as text, such as "2¹⁰"."""
    return f"{base}{str(exponent).translate(_SUPERSCRIPTS)}"


def decades(axes: Axes, axis: str, exponents: Iterable[int], base: int = 10) -> None:
    """Make an axis logarithmic, with ticks at these powers of the base. A vertical axis also gets
    faint lines.
    """
    powers = list(exponents)
    getattr(axes, f"set_{axis}scale")("log", base=base)
    line = getattr(axes, f"{axis}axis")
    line.set_major_locator(FixedLocator([float(base) ** exponent for exponent in powers]))
    line.set_minor_locator(NullLocator())
    names = {float(base) ** exponent: power(base, exponent) if exponent else "1" for exponent in powers}
    line.set_major_formatter(FuncFormatter(lambda x, _: names.get(x, "")))
    if axis == "y":
        axes.grid(axis="y")
    axes.set_axisbelow(True)


def rounded(values: Sequence[float]) -> tuple[str, ...]:
    """Return numbers as texts with three digits."""
    return tuple(f"{value:.3g}" for value in values)
