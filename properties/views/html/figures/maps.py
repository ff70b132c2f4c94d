"""Draws maps: what an instrument measured, and what it should be, with the differences marked."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from numpy.typing import NDArray

from properties.portraits.maps import Map
from properties.views.html.figures.drawing import INK, QUIET, RULE, SERIES, Table, drawn

__all__ = ["MapPicture", "picture_of_map"]

_SHADES = (0.04, 0.15, 0.3, 0.5, 0.75, 1.0)
"""The sizes of entries, relative to the largest, that have a colour of their own. Smaller ones are empty."""

_MOST_ENTRIES = 8  # of a row, in the table
_MOST_NAMES = 12  # along an axis
_WIDTH = 3.3  # inches of one picture
_GRID = 20  # rows or columns up to which cells have lines between them


@dataclass(frozen=True)
class MapPicture:
    """A map as a page shows it.

    name          its id
    title         what is shown
    caption       how many entries differ, and how they are marked
    panels        for both pictures what it shows, a text for readers who cannot see it, and the SVG
    table         the entries that are not 0, row by row
    """

    name: str
    title: str
    caption: str
    panels: tuple[tuple[str, str, str], ...]
    table: Table


def picture_of_map(name: str, shown: Map) -> MapPicture:
    """Return the pictures of a map: measured beside expected."""
    wrong = int(shown.wrong.sum())
    differing = f"{wrong} of {shown.wrong.size} entries {'differs' if wrong == 1 else 'differ'}"
    marked = "A frame marks an entry that differs by more than its error limit."
    caption = f"{differing}. {marked}" if wrong else "No entry differs by more than its error limit."
    sides = (("measured", shown.measured, shown.wrong), ("should be", shown.expected, np.zeros_like(shown.wrong)))
    panels = tuple(
        (label, _alternative(shown, label, array), _svg(f"{name}-{number}", shown, array, marks))
        for number, (label, array, marks) in enumerate(sides)
    )
    headings = (shown.axes[0], "measured", "should be", "differs at")
    return MapPicture(name, shown.title, caption, panels, Table(headings, tuple(_rows(shown))))


def _alternative(shown: Map, label: str, array: NDArray[Any]) -> str:
    """A picture in words."""
    size = f"{len(shown.rows)} rows ({shown.axes[0]}) by {len(shown.columns)} columns ({shown.axes[1]})"
    wrong = f"; {int(shown.wrong.sum())} entries differ" if shown.wrong.any() and label == "measured" else ""
    return f"{shown.title}, {label}: {size}, {int((array != 0).sum())} entries are not 0{wrong}. The numbers follow."


def _rows(shown: Map) -> list[tuple[str, str, str, str]]:
    """The entries of each row by column."""
    return [
        (
            row,
            _listed(shown.columns, shown.measured[place]),
            _listed(shown.columns, shown.expected[place]),
            ", ".join(np.asarray(shown.columns)[shown.wrong[place]][:_MOST_ENTRIES]),
        )
        for place, row in enumerate(shown.rows)
    ]


def _listed(columns: Sequence[str], entries: NDArray[Any]) -> str:
    """The entries that are not 0: "0: 0.5, 3: 0.5"."""
    places = np.flatnonzero(entries)
    listed = ", ".join(f"{columns[place]}: {entries[place]:.3g}" for place in places[:_MOST_ENTRIES])
    return (listed or "0") + (" …" if len(places) > _MOST_ENTRIES else "")


def _svg(name: str, shown: Map, array: NDArray[Any], marks: NDArray[np.bool_]) -> str:
    """One picture, with cells that are square unless there are few rows."""
    rows, columns = array.shape
    height = min(max(_WIDTH * rows / max(columns, 1), 0.35), 1.4 * _WIDTH) + 0.65
    largest = max(np.abs(side[np.isfinite(side)]).max(initial=0.0) for side in (shown.measured, shown.expected))

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        _fill(axes, array, largest or 1.0)
        if marks.any():
            axes.add_patch(PathPatch(_squares(marks, 0.08), facecolor="none", edgecolor=INK, linewidth=1.3))
        axes.set(xlim=(0, columns), ylim=(rows, 0), xlabel=shown.axes[1], ylabel=shown.axes[0])
        for axis, names in ((axes.xaxis, shown.columns), (axes.yaxis, shown.rows)):
            places = np.arange(0, len(names), -(-len(names) // _MOST_NAMES))
            axis.set_ticks(places + 0.5, [names[place] for place in places])
        axes.tick_params(length=0)
        axes.spines[:].set_visible(True)
        if max(rows, columns) <= _GRID:
            axes.hlines(np.arange(1, rows), 0, columns, color=RULE, linewidth=0.5, zorder=0)
            axes.vlines(np.arange(1, columns), 0, rows, color=RULE, linewidth=0.5, zorder=0)

    return drawn(name, draw, _WIDTH, height)


def _fill(axes: Axes, array: NDArray[Any], largest: float) -> None:
    """Fill cells by the size of their entries: one colour for positive entries, one for negative
    ones, and stripes for NaN and infinity.
    """
    finite = np.isfinite(array)
    sizes = np.where(finite, np.abs(array) / largest, 0.0)
    for lower, upper in zip(_SHADES, (*_SHADES[1:], np.inf), strict=True):
        for colour, sign in ((SERIES[0], 1), (SERIES[1], -1)):
            cells = (sizes >= lower) & (sizes < upper) & (np.sign(np.where(finite, array, 0.0)) == sign)
            if cells.any():
                axes.add_patch(PathPatch(_squares(cells), facecolor=colour, alpha=min(lower + 0.1, 1.0), linewidth=0))
    if not finite.all():
        axes.add_patch(PathPatch(_squares(~finite), facecolor="none", edgecolor=QUIET, hatch="////", linewidth=0))


def _squares(cells: NDArray[np.bool_], inset: float = 0.0) -> Path:
    """One path around all chosen cells."""
    near, far = inset, 1 - inset
    corners = np.array([(near, near), (far, near), (far, far), (near, far), (near, near)])
    vertices = (np.argwhere(cells)[:, None, ::-1] + corners).reshape(-1, 2)
    codes = np.tile([Path.MOVETO, *[Path.LINETO] * 3, Path.CLOSEPOLY], int(cells.sum()))
    return Path(vertices, codes)
