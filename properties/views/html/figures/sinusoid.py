"""Draws the sinusoidal encoding as a heat map, in both layouts."""

from typing import Literal

from matplotlib.figure import Figure

import oracles
from properties.views.html.figures.drawing import QUIET, Picture, Table, drawn

__all__ = ["sinusoid"]

_LENGTH, _WIDTH = 64, 64


def sinusoid() -> Picture:
    """Return the picture of the sinusoidal encoding in two layouts: sine and cosine columns
    alternate, or all sines come first.
    """
    layouts: tuple[Literal["interleaved"], Literal["concatenated"]] = ("interleaved", "concatenated")
    tables = {
        layout: oracles.sinusoidal_positional_encoding(
            _LENGTH, _WIDTH, conventions=oracles.Conventions(sinusoid_layout=layout)
        ).mid
        for layout in layouts
    }

    def draw(figure: Figure) -> None:
        for axes, (layout, table) in zip(figure.subplots(1, 2, sharey=True), tables.items(), strict=True):
            image = axes.imshow(table, cmap="RdBu", vmin=-1, vmax=1, interpolation="nearest")
            axes.set_title(layout)
            axes.set(xlabel="column", xticks=(0, 31, 63), yticks=(0, 31, 63))
            axes.tick_params(color=QUIET)
        figure.axes[0].set_ylabel("position")
        figure.colorbar(image, ax=figure.axes, shrink=0.8, ticks=(-1, 0, 1)).outline.set_visible(False)

    some = (0, 1, 2, 3, 31, 32, 33, 62, 63)
    rows = tuple(
        (layout, str(position), *(f"{tables[layout][position, column]:.4f}" for column in some))
        for layout in layouts
        for position in (0, 1, 2, 3, 8, 16, 32, 63)
    )
    return Picture(
        "sinusoid",
        "The sinusoidal encoding, in two layouts",
        "The same numbers in another order of columns: alternating sine and cosine, as in the paper, or all sines "
        "before all "
        "cosines, as in many libraries. Code that takes one for the other runs, and is wrong everywhere.",
        "Two heat maps of 64 positions by 64 columns, values from −1 to 1. Interleaved: stripes that are fast at "
        "the left and "
        "slow at the right. Concatenated: the same stripes once for the sines, at the left half, and again for the "
        "cosines, at "
        "the right half.",
        drawn("sinusoid", draw, height=3.3),
        Table(("layout", "position", *(f"column {column}" for column in some)), rows),
    )
