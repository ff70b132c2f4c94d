"""The weights and the gradients of a masked softmax, measured from outside.

In each row one score is s and the others are 0, with another s in each row, so the weights show the
exponential. Where equal scores give the weights W = 1/n and one entry of the cotangent g is not 0,

    dscores = W ⊙ (g − Σ W·g)                                                                (1)
"""

import numpy as np

from properties.inspection.array import Array
from properties.inspection.entries import Entries
from properties.inspection.gradients import one_hot_rows
from properties.inspection.probe import Probe
from properties.inspection.shapes import Shape

__all__ = ["softmax_gradients", "softmax_weights"]

_SCORES = (0.0, 1.0, -1.0, 8.0, -8.0, 64.0, -64.0, 1024.0, -1024.0, 16384.0, -16384.0)
"""The scores of one key, as far as the format reaches."""


def softmax_weights(probe: Probe, shape: Shape) -> tuple[Entries, ...]:
    """Measure the weights with the score of the first key in call 0, and of the last key in call 1,
    and with these scores for all keys but one. Raises as `Probe.results`.
    """
    numbers = _numbers(probe, shape)
    found = []
    for name, keys in (("of the first key", slice(0, 1)), ("of the last key", slice(-1, None))):
        scores = shape.zeros(probe.operation, "scores")
        scores[..., keys] = numbers[:, None]
        for sign, words in ((1, name), (-1, f"of all keys but {name[3:]}")):
            chosen = scores if sign > 0 else numbers[:, None] - scores
            reading = probe.results(shape, scores=chosen)["weights"]
            found.append(Entries(f"The weights with a score {words}", _axes(shape), reading))
    return tuple(found)


def softmax_gradients(probe: Probe, shape: Shape) -> tuple[Entries, ...]:
    """Measure dscores by (1). Raises as `Probe.results`."""
    arrays = {"grad_weights": one_hot_rows(shape.zeros(probe.operation, "grad_weights"))}
    return (Entries("dscores", _axes(shape), probe.results(shape, **arrays)["dscores"]),)


def _axes(shape: Shape) -> tuple[str, ...]:
    return (*shape.lead, "query", "key")


def _numbers(probe: Probe, shape: Shape) -> Array:
    """A score for each row."""
    largest = probe.caller.largest_harmless
    scores = [score for score in _SCORES if abs(score) <= largest]
    return np.resize(scores, shape.sizes["n_q"])
