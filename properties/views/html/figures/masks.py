"""Masks: which key a query may look at."""

import numpy as np
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from numpy.typing import NDArray

import oracles
from properties.views.html.figures.drawing import INK, PAPER, RULE, SERIES, Picture, Table, drawn

__all__ = ["masks"]


def masks() -> Picture:
    """The causal mask in both alignments, the future, and padding."""
    bottom = oracles.Conventions(causal="bottom_right")
    shown: dict[str, NDArray[np.bool_]] = {
        "causal: j ≤ i": oracles.causal_mask(6, 8),
        "causal, bottom right": oracles.causal_mask(6, 8, conventions=bottom),
        "future: j > i": ~oracles.causal_mask(6, 8),
        "padding: 5 keys of 8": np.broadcast_to(oracles.padding_mask([5], 8), (6, 8)),
    }

    def draw(figure: Figure) -> None:
        for axes, (title, mask) in zip(figure.subplots(2, 2).flat, shown.items(), strict=True):
            axes.pcolormesh(np.where(mask, 1.0, np.nan), cmap=ListedColormap([SERIES[0]]), edgecolors=PAPER, linewidth=1.5)
            for i, j in np.argwhere(~mask):
                axes.plot(j + 0.5, i + 0.5, "x", color=RULE, markersize=3.5)
            axes.set_title(title)
            axes.set(xlim=(0, 8), ylim=(6, 0), aspect="equal", xticks=np.arange(8) + 0.5, yticks=np.arange(6) + 0.5)
            axes.set_xticklabels([str(j) for j in range(8)])
            axes.set_yticklabels([str(i) for i in range(6)])
            axes.tick_params(length=0)
            axes.spines[:].set_visible(False)
            axes.set_xlabel("key j", color=INK)
            axes.set_ylabel("query i", color=INK)

    rows = tuple(
        (title, str(i), " ".join("1" if allowed else "·" for allowed in row)) for title, mask in shown.items() for i, row in enumerate(mask)
    )
    return Picture(
        "masks",
        "Masks",
        "Six queries, eight keys; a filled square is a key that the query may look at. The two alignments differ whenever there are more "
        "keys than queries: the first is the default here, the second is usual where the queries are the last of a sequence.",
        "Four grids of six queries by eight keys. Causal: query i is allowed the keys 0 to i. Causal from the bottom right: the keys 0 to "
        "i + 2. Future: the complement of the first. Padding: every query is allowed the first five keys.",
        drawn("masks", draw, height=4.6),
        Table(("mask", "query", "keys 0 to 7, 1 allowed"), rows),
    )
