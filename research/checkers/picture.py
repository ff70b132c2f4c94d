"""The picture of the page: groups of bugs by checkers, and the share of each that is seen."""

import io
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from research.checkers.counts import Count

__all__ = ["svg"]

_STYLE: Any = {"svg.fonttype": "none", "svg.hashsalt": "attnspec", "font.size": 8.0, "font.family": "sans-serif"}
_DARK = 0.6  # the share from which the text on a cell is white


def svg(counts: dict[str, dict[str, Count]]) -> str:
    """The matrix as a complete SVG file. Equal numbers give equal text."""
    groups, checkers = list(counts), list(next(iter(counts.values())))
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(9.4, 6.2), layout="constrained", facecolor="white")
        axes = figure.subplots()
        shares = [[counts[g][c].share for c in checkers] for g in groups]
        image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1, aspect="auto")
        for row, group in enumerate(groups):
            for column, checker in enumerate(checkers):
                count = counts[group][checker]
                if count.asked:
                    colour = "white" if count.share > _DARK else "black"
                    axes.text(
                        column, row, f"{count.seen}/{count.asked}", ha="center", va="center", color=colour, fontsize=7
                    )
        axes.set_xticks(range(len(checkers)), checkers, rotation=40, ha="left", rotation_mode="anchor")
        axes.set_yticks(range(len(groups)), groups)
        axes.xaxis.tick_top()
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        figure.colorbar(image, ax=axes, label="share of the bugs asked about that is seen", shrink=0.5, pad=0.02)
        written = io.StringIO()
        figure.savefig(written, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    return written.getvalue()
