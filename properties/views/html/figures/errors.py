"""Draws error ÷ error limit of correct code: the ratio stays below 1 at any size, position and
format.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

import oracles
from oracles.ball import Array
from properties.views.html.figures.drawing import (
    INK,
    MARKERS,
    QUIET,
    SERIES,
    Picture,
    Table,
    decades,
    drawn,
    power,
    rounded,
)
from properties.views.html.figures.rounding import FORMATS, attention, rope, stored

__all__ = ["error_against_position", "error_against_size"]

_DRAWS = 4
_SIZES = range(11)
_POSITIONS = range(0, 21, 2)

_Series = Mapping[str, Sequence[float]]
"""The largest error ÷ budget of each format, for each power of 2."""


def error_against_size() -> Picture:
    """Return the picture of the largest error ÷ error limit of attention over 1 to 1024 keys."""
    found = {name: [_attention_excess(2**exponent, name) for exponent in _SIZES] for name in FORMATS}
    return Picture(
        name="error-against-size",
        title="Error ÷ error limit of attention, by number of keys",
        caption="Correct code stays below the line at any size: the error limit grows with the sum, as the error may. "
        "Nobody tuned a tolerance.",
        alternative=_alternative("keys", _SIZES, found),
        svg=drawn("error-against-size", lambda figure: _draw(figure, "keys", _SIZES, found)),
        table=_table("keys", _SIZES, found),
        source=f"16 queries of width 64, standard normal, {_DRAWS} draws; the largest entry counts. NumPy, seeds 0 to "
        f"{_DRAWS - 1}.",
    )


def error_against_position() -> Picture:
    """Return the picture of the largest error ÷ error limit of RoPE at positions up to 2²⁰."""
    found = {name: [_rope_excess(2**exponent, name) for exponent in _POSITIONS] for name in FORMATS}
    return Picture(
        name="error-against-position",
        title="Error ÷ error limit of RoPE, by position",
        caption="In 32 bits, an angle of a million radians has an error of a few hundredths. The error limit "
        "includes it, "
        "and a wrong frequency is still detected.",
        alternative=_alternative("position", _POSITIONS, found),
        svg=drawn("error-against-position", lambda figure: _draw(figure, "position", _POSITIONS, found)),
        table=_table("position", _POSITIONS, found),
        source=f"Rows of width 64, standard normal, {_DRAWS} draws; the largest entry counts. NumPy, seeds 0 to "
        f"{_DRAWS - 1}.",
    )


def _attention_excess(n_k: int, name: str) -> float:
    worst = 0.0
    for seed in range(_DRAWS):
        rng = np.random.default_rng(seed)
        q, k, v = (stored(rng.standard_normal((size, 64)), name) for size in (16, n_k, n_k))
        budget = oracles.scaled_dot_product_attention(q, k, v, arithmetic=name)
        worst = max(worst, float(budget.excess(attention(q, k, v, name)).max()))
    return worst


def _rope_excess(position: int, name: str) -> float:
    worst = 0.0
    for seed in range(_DRAWS):
        rows: Array = stored(np.random.default_rng(seed).standard_normal((4, 64)), name)
        budget = oracles.rope(rows, position, arithmetic=name)
        worst = max(worst, float(budget.excess(rope(rows, position, name)).max()))
    return worst


def _draw(figure: Figure, axis: str, exponents: Sequence[int], found: _Series) -> None:
    """Draw a line for each format, with its name at the right end."""
    places = [2.0**exponent for exponent in exponents]
    lowest = int(np.floor(np.log10(min(value for values in found.values() for value in values if value > 0))))
    axes = figure.subplots()
    axes.axhline(1, color=INK, linewidth=1)
    axes.annotate("error limit", (places[0], 1), (0, 3), textcoords="offset points")
    for values, colour, marker in zip(found.values(), SERIES, MARKERS, strict=True):
        shown = [value if value > 0 else np.nan for value in values]
        axes.plot(places, shown, color=colour, marker=marker)
    heights = _apart({label: values[-1] for label, values in found.items()}, 0.075 * (0.4 - lowest))
    for (label, height), colour in zip(heights.items(), SERIES, strict=True):
        axes.annotate(
            label,
            (places[-1], height),
            (6, 0),
            textcoords="offset points",
            va="center",
            color=colour,
            annotation_clip=False,
        )
    decades(axes, "x", exponents[:: 2 if len(exponents) > 6 and exponents[1] == 1 else 1], 2)
    decades(axes, "y", range(lowest, 1))
    axes.set(xlabel=axis, ylabel="largest error ÷ error limit")
    axes.set(ylim=(10.0**lowest, 2.5), xlim=(places[0] / 1.2, places[-1] * 1.2))
    axes.tick_params(axis="x", color=QUIET)


def _alternative(axis: str, exponents: Sequence[int], found: _Series) -> str:
    largest = ", ".join(f"{max(values):.2g} in {label}" for label, values in found.items())
    return f"Four lines over {axis} from 1 to {power(2, exponents[-1])}, all below 1: the largest are {largest}."


def _table(axis: str, exponents: Sequence[int], found: _Series) -> Table:
    rows = tuple(
        (power(2, exponent), *rounded([values[index] for values in found.values()]))
        for index, exponent in enumerate(exponents)
    )
    return Table((axis, *found), rows)


def _apart(values: Mapping[str, float], step: float) -> dict[str, float]:
    """Return the heights of labels on a logarithmic axis. A label is at its value, or just so much
    higher that labels are at least `step` decades apart.
    """
    placed: dict[str, float] = {}
    lowest = -np.inf
    for label, value in sorted(values.items(), key=lambda pair: pair[1]):
        lowest = max(np.log10(value), lowest + step)
        placed[label] = float(10**lowest)
    return {label: placed[label] for label in values}
