"""Error ÷ budget: where correct code stays, whatever the size, the position and the number format."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

import oracles
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


def error_against_size() -> Picture:
    """The largest error ÷ budget of attention over 1 to 1024 keys."""
    found = {name: [_attention_excess(2**e, name) for e in _SIZES] for name in FORMATS}
    return _picture(
        "error-against-size",
        "Error ÷ budget of attention, by number of keys",
        "Correct code stays below the line at any size: the budget grows with the sum, as its error may. No tolerance is tuned.",
        "keys",
        _SIZES,
        found,
        f"16 queries of width 64, standard normal, {_DRAWS} draws; the largest entry counts. NumPy, seeds 0 to {_DRAWS - 1}.",
    )


def error_against_position() -> Picture:
    """The largest error ÷ budget of RoPE at positions up to 2²⁰."""
    found = {name: [_rope_excess(2**e, name) for e in _POSITIONS] for name in FORMATS}
    return _picture(
        "error-against-position",
        "Error ÷ budget of RoPE, by position",
        "An angle of a million radians is a few hundredths off in 32 bits. The budget knows, and a wrong frequency still shows.",
        "position",
        _POSITIONS,
        found,
        f"Rows of width 64, standard normal, {_DRAWS} draws; the largest entry counts. NumPy, seeds 0 to {_DRAWS - 1}.",
    )


def _attention_excess(n_k: int, name: str) -> float:
    worst = 0.0
    for seed in range(_DRAWS):
        rng = np.random.default_rng(seed)
        q, k, v = (stored(rng.standard_normal((n, 64)), name) for n in (16, n_k, n_k))
        budget = oracles.scaled_dot_product_attention(q, k, v, arithmetic=name)
        worst = max(worst, float(budget.excess(attention(q, k, v, name)).max()))
    return worst


def _rope_excess(position: int, name: str) -> float:
    worst = 0.0
    for seed in range(_DRAWS):
        x = stored(np.random.default_rng(seed).standard_normal((4, 64)), name)
        budget = oracles.rope(x, position, arithmetic=name)
        worst = max(worst, float(budget.excess(rope(x, position, name)).max()))
    return worst


def _picture(
    name: str, title: str, caption: str, axis: str, exponents: Sequence[int], found: dict[str, list[float]], source: str
) -> Picture:
    at = [2.0**e for e in exponents]
    lowest = int(np.floor(np.log10(min(x for values in found.values() for x in values if x > 0))))

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        axes.axhline(1, color=INK, linewidth=1)
        axes.annotate("budget", (at[0], 1), (0, 3), textcoords="offset points")
        for values, colour, marker in zip(found.values(), SERIES, MARKERS, strict=True):
            shown = [x if x > 0 else np.nan for x in values]
            axes.plot(at, shown, color=colour, marker=marker)
        labels = _apart({label: values[-1] for label, values in found.items()}, 0.075 * (0.4 - lowest))
        for (label, y), colour in zip(labels.items(), SERIES, strict=True):
            axes.annotate(
                label, (at[-1], y), (6, 0), textcoords="offset points", va="center", color=colour, annotation_clip=False
            )
        decades(axes, "x", exponents[:: 2 if len(exponents) > 6 and exponents[1] == 1 else 1], 2)
        decades(axes, "y", range(lowest, 1))
        axes.set(
            xlabel=axis, ylabel="largest error ÷ budget", ylim=(10.0**lowest, 2.5), xlim=(at[0] / 1.2, at[-1] * 1.2)
        )
        axes.tick_params(axis="x", color=QUIET)

    most = {label: max(values) for label, values in found.items()}
    rows = tuple((power(2, e), *rounded([values[i] for values in found.values()])) for i, e in enumerate(exponents))
    return Picture(
        name,
        title,
        caption,
        f"Four lines over {axis} from 1 to {power(2, exponents[-1])}, all below 1: the largest are "
        + ", ".join(f"{value:.2g} in {label}" for label, value in most.items())
        + ".",
        drawn(name, draw),
        Table((axis, *found), rows),
        source,
    )


def _apart(values: dict[str, float], step: float) -> dict[str, float]:
    """Heights for labels on a logarithmic axis, at their values or as little higher as keeps them
    so many decades apart.
    """
    placed: dict[str, float] = {}
    lowest = -np.inf
    for label, value in sorted(values.items(), key=lambda pair: pair[1]):
        lowest = max(np.log10(value), lowest + step)
        placed[label] = float(10**lowest)
    return {label: placed[label] for label in values}
