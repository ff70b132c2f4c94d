"""Pictures of definitions, in the colours of the page: the keys that a query sees, and the effect
of a softcap and a sink on a row.
"""

from collections.abc import Callable

import numpy as np
from matplotlib.figure import Figure

from properties.views.html.figures.drawing import INK, MARKERS, SERIES, Picture, Table, drawn, rounded
from properties.views.html.figures.masks import draw_grids, rows_of
from spec.extended.attention_steps import softcap_scores, softmax_with_sink, visible_keys

__all__ = ["PICTURES"]

_SHAPE = 1, 6, 8
_CHUNKS = np.arange(6)[:, None] // 3 == np.arange(8) // 3


def visible() -> Picture:
    """The keys that are visible in windows of both conventions, with an offset, and in chunks."""
    shown = {
        "window (2, None), a bound, causal": {"causal": True, "window": (2, None)},
        "window (2, None), a count, causal": {"causal": True, "window": (2 - 1, None)},
        "window (1, 1)": {"window": (1, 1)},
        "causal, offset 2: the last rows": {"causal": True, "offset": 2},
        "window (1, 0), offset −2": {"window": (1, 0), "offset": -2},
        "causal in chunks of 3, by a mask": {"causal": True, "mask": _CHUNKS},
    }
    masks = {title: visible_keys(_SHAPE, **options)[0] for title, options in shown.items()}
    return Picture(
        "keys-that-are-seen",
        "Which keys a query sees",
        "Six queries, eight keys; a filled square is a key that the query sees. A window of 2 is one key narrower "
        "if it is a count, which includes the query's own key. An offset moves all rows along the keys: rows before "
        "the first key see no key.",
        "Six grids of six queries by eight keys. "
        + " ".join(f"{title}: {mask.sum(1).tolist()} keys by row." for title, mask in masks.items()),
        drawn("keys-that-are-seen", lambda figure: draw_grids(figure, masks, (2, 3)), height=4.0),
        Table(("mask", "query", "keys 0 to 7, 1 seen"), rows_of(masks)),
    )


def bent() -> Picture:
    """A row of weights without a softcap, with softcaps, and with a sink."""
    scores = np.arange(9.0) - 4
    logits = {"no cap": scores, "cap 4": softcap_scores(scores, 4.0), "cap 1": softcap_scores(scores, 1.0)}
    every = np.ones(9, bool)
    weights = {name: softmax_with_sink(u, every)[0] for name, u in logits.items()}
    weights["no cap, sink 4"] = softmax_with_sink(scores, every, 4.0)[0]

    def draw(figure: Figure) -> None:
        left, right = figure.subplots(1, 2)
        for axes, series in ((left, logits), (right, weights)):
            for (name, values), colour, marker in zip(series.items(), SERIES, MARKERS, strict=False):
                axes.plot(scores, values, color=colour, marker=marker, label=name)
            axes.set_xlabel("score s", color=INK)
        left.set_ylabel("logit c·tanh(s/c)")
        right.set(ylabel="weight")
        right.legend(loc="upper left")

    sums = {name: float(w.sum()) for name, w in weights.items()}
    return Picture(
        "a-row-capped",
        "The effect of a softcap and a sink on a row",
        "Nine keys with scores −4 to 4. A softcap changes small scores little and brings large scores closer together, "
        "so the weights differ less. A sink takes the same share from every weight and adds nothing to the output: the "
        "weights no longer sum to 1.",
        "Two charts over scores from −4 to 4. The left chart shows the logits: a line, a curve that bends towards ±4, "
        "and a curve that levels off at ±1. The right chart shows the weights. Their sums are "
        f"{', '.join(f'{total:.3g} ({name})' for name, total in sums.items())}.",
        drawn("a-row-capped", draw),
        Table(
            ("score", *weights),
            tuple((f"{s:g}", *rounded([float(w[i]) for w in weights.values()])) for i, s in enumerate(scores)),
        ),
    )


PICTURES: dict[str, Callable[[], Picture]] = {"visible_keys": visible, "softcap_scores": bent}
"""The pictures, by the name of the definition whose page shows them."""
