"""Draws one row of attention's output: the error limit and the error of each entry."""

import numpy as np
from matplotlib.figure import Figure

import oracles
from properties.views.html.figures.drawing import QUIET, SERIES, Picture, Table, decades, drawn, rounded
from properties.views.html.figures.rounding import attention, stored

__all__ = ["budget_of_a_row"]

_FORMAT, _KEYS, _WIDTH = "bfloat16", 128, 32


def budget_of_a_row() -> Picture:
    """Return the picture of the error limit and the observed error of every entry of an output row
    in bfloat16.
    """
    rng = np.random.default_rng(0)
    q, k, v = (stored(rng.standard_normal((size, _WIDTH)), _FORMAT) for size in (1, _KEYS, _KEYS))
    budget = oracles.scaled_dot_product_attention(q, k, v, arithmetic=_FORMAT)
    found = attention(q, k, v, _FORMAT)
    error, allowed = np.abs(found - budget.mid)[0], budget.rad[0]

    ratios = error / allowed
    worst = float(ratios.max())

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        entries = np.arange(_WIDTH)
        axes.bar(entries, allowed, width=0.8, color=QUIET, alpha=0.28, label="error limit")
        axes.plot(entries, error, "o", color=SERIES[0], label="error")
        decades(axes, "y", range(-6, -1))
        axes.set(
            xlabel="entry of the output row",
            ylabel="distance from the exact value",
            ylim=(1e-6, 0.1),
            xlim=(-0.8, _WIDTH - 0.2),
        )
        axes.legend(loc="upper right", ncols=2, bbox_to_anchor=(1, 1.1))

    rows = tuple(
        (str(entry), *rounded([budget.mid[0, entry], found[0, entry], error[entry], allowed[entry], ratios[entry]]))
        for entry in range(_WIDTH)
    )
    return Picture(
        "budget-of-a-row",
        "The error limit of one row, and the observed error",
        f"Each entry has its own error limit, derived from the inputs and the format. The largest error is "
        f"{worst:.0%} of it.",
        f"For {_WIDTH} entries of an output row in {_FORMAT}, a bar for the error limit, each near "
        f"{np.median(allowed):.1g}, "
        f"and a dot for the error, each within its bar; the largest error is {worst:.2g} of its error limit.",
        drawn("budget-of-a-row", draw, height=2.8),
        Table(("entry", "exact", "observed", "error", "error limit", "error ÷ error limit"), rows),
        f"One query over {_KEYS} keys of width {_WIDTH}, standard normal, seed 0; weights and output stored in "
        f"{_FORMAT}, sums "
        "in float32.",
    )
