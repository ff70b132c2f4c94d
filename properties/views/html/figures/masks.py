"""Draws masks: the keys that are visible for each query."""

from collections.abc import Mapping

import numpy as np
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from numpy.typing import NDArray

import oracles
from properties.views.html.figures.drawing import INK, PAPER, RULE, SERIES, Picture, Table, drawn

__all__ = ["draw_grids", "masks", "rows_of"]

Mask = NDArray[np.bool_]


def draw_grids(figure: Figure, shown: Mapping[str, Mask], shape: tuple[int, int]) -> None:
    """Draw for each mask a grid of queries by keys: a filled square for a visible key, a cross for
    a masked key.
    """
    for axes, (title, mask) in zip(figure.subplots(*shape).flat, shown.items(), strict=True):
        queries, keys = mask.shape
        axes.pcolormesh(np.where(mask, 1.0, np.nan), cmap=ListedColormap([SERIES[0]]), edgecolors=PAPER, linewidth=1.5)
        for query, key in np.argwhere(~mask):
            axes.plot(key + 0.5, query + 0.5, "x", color=RULE, markersize=3.0)
        axes.set_title(title, fontsize=7.5)
        axes.set(
            xlim=(0, keys),
            ylim=(queries, 0),
            aspect="equal",
            xticks=np.arange(keys) + 0.5,
            yticks=np.arange(queries) + 0.5,
        )
        axes.set_xticklabels([str(j) for j in range(keys)])
        axes.set_yticklabels([str(i) for i in range(queries)])
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        axes.set_xlabel("key j", color=INK)
        axes.set_ylabel("query i", color=INK)


def rows_of(shown: Mapping[str, Mask]) -> tuple[tuple[str, str, str], ...]:
    """Return the masks as rows of a table: the mask, the query, and its keys as text, 1 for a
    visible key.
    """
    return tuple(
        (title, str(query), " ".join("1" if visible else "·" for visible in row))
        for title, mask in shown.items()
        for query, row in enumerate(mask)
    )


def masks() -> Picture:
    """Return the picture of four masks: the causal mask in both alignments, the future, and
    padding.
    """
    bottom = oracles.Conventions(causal="bottom_right")
    shown: dict[str, Mask] = {
        "causal: j ≤ i": oracles.causal_mask(6, 8),
        "causal, bottom right": oracles.causal_mask(6, 8, conventions=bottom),
        "future: j > i": ~oracles.causal_mask(6, 8),
        "padding: 5 keys of 8": np.broadcast_to(oracles.padding_mask([5], 8), (6, 8)),
    }

    return Picture(
        "masks",
        "Masks",
        "Six queries, eight keys; a filled square is a visible key. The two alignments differ if there are more "
        "keys than "
        "queries. The first is the default here; the second is usual if the queries are the last of a sequence.",
        "Four grids of six queries by eight keys. Causal: the keys 0 to i are visible for query i. Causal from the "
        "bottom "
        "right: the keys 0 to i + 2. Future: the complement of the first. Padding: the first five keys are visible for "
        "every query.",
        drawn("masks", lambda figure: draw_grids(figure, shown, (2, 2)), height=4.6),
        Table(("mask", "query", "keys 0 to 7, 1 visible"), rows_of(shown)),
    )
