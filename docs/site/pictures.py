"""Pictures of definitions: which keys a query sees, and what a cap and a sink make of a row. Their
colours are the page's.
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
    """Windows by both conventions, an offset, and chunks."""
    shown = {
        "window (2, None), a bound, causal": {"causal": True, "window": (2, None)},
        "window (2, None), a count, causal": {"causal": True, "window": (2 - 1, None)},
        "window (1, 1)": {"window": (1, 1)},
        "causal, offset 2: the last rows": {"causal": True, "offset": 2},
        "window (1, 0), offset −2": {"window": (1, 0), "offset": -2},
        "causal in chunks of 3, by a mask": {"causal": True, "mask": _CHUNKS},
    }
    masks = {title: visible_keys(_SHAPE, **given)[0] for title, given in shown.items()}

    return Picture(
        "keys-that-are-seen",
        "Which keys a query sees",
        "Six queries, eight keys; a filled square is a key that the query sees. A window of 2 is one key narrower where it is a count, the "
        "query's own included. An offset moves all rows along the keys: rows before the first key see none.",
        "Six grids of six queries by eight keys. "
        + " ".join(f"{title}: {mask.sum(1).tolist()} keys by row." for title, mask in masks.items()),
        drawn("keys-that-are-seen", lambda figure: draw_grids(figure, masks, (2, 3)), height=4.0),
        Table(("mask", "query", "keys 0 to 7, 1 seen"), rows_of(masks)),
    )


def bent() -> Picture:
    """A row of weights without a cap, with caps, and with a sink."""
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
        "What a cap and a sink make of a row",
        "Nine keys of scores −4 to 4. A cap keeps small scores, and brings large ones closer together: the weights are more alike. A sink "
        "takes a share of every weight alike, and gives nothing for it: they no longer sum to 1.",
        "Two charts over scores from −4 to 4. Left the logits: a line, one that bends towards ±4, and one that levels off at ±1. Right the "
        f"weights, whose sums are {', '.join(f'{x:.3g} ({name})' for name, x in sums.items())}.",
        drawn("a-row-capped", draw),
        Table(
            ("score", *weights),
            tuple((f"{s:g}", *rounded([float(w[i]) for w in weights.values()])) for i, s in enumerate(scores)),
        ),
    )


PICTURES: dict[str, Callable[[], Picture]] = {"visible_keys": visible, "softcap_scores": bent}
"""By the name of the definition on whose page they are."""
