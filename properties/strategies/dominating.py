"""Makes inputs of attention in which a few keys with large scores share all the weight, and the
values show the weights.

A random row of many keys averages a mistake away, while its budget (error limit) grows with its
length. Here the score of a key is one product. A relative error of the product, of the scale or of
an input is then the same relative error of the score. The function exp turns it into a relative
error of the weight that is larger by the factor of the score: a relative error of 1/2¹¹ in a score
of 1024 is half the weight.

A one-hot value shows that weight alone. Its error is compared with a budget that is a share of this
weight, whether the weight is 1/2 or exp(−30). No sum over keys hides the error, for any number of
keys.
"""

import numpy as np

from oracles.ball import Array
from oracles.formats import Arithmetic, Format
from properties.strategies.choices import rounded

__all__ = ["LONG", "MANY", "dominating", "scores_of"]

MANY = (2, 3, 9, 17, 33, 65, 128, 129, 257, 511, 1024, 1025, 2048, 4095, 8191, 8192)
"""Numbers of keys. The first is the simplest."""

LONG = (131072, 131071)
"""Numbers of keys of the long plan."""

_SCORES = (128.0, 1024.0, 8192.0)
# Scores of keys with weight are at most this far below the largest one. Every format except
# binary16 has exp(−30).
_DEPTH = 30.0
# Scores of all other keys are at least this far below it. binary32 has no exp(−98).
_GAP = 128.0
_KEYS = 8  # the largest number of keys with weight


def dominating(
    rng: np.random.Generator, lengths: tuple[int, int], widths: tuple[int, int], score: float, target: Format
) -> tuple[Array, ...]:
    """Return the arrays (q, k, v) in a format, for `lengths` (n_q, n_k) and `widths` of heads and
    of values. Up to 8 keys have scores of about `score`: the last key, and keys at the edges of
    tiles.

    Query i is nonzero only in channel i mod width. Each key has its own number there, which gives
    the drawn score up to the rounding of the number. The keys with weight have one-hot values. If
    there are more such keys than columns, a value of 0 follows each group of columns. All other
    keys have values of 0.
    """
    (n_q, n_k), (width, value_width) = lengths, widths
    edges = {edge for power in range(18) for edge in (2**power - 1, 2**power)}
    other_keys = np.array([key for key in sorted({0, *edges}) if key < n_k - 1], int)
    chosen_keys = np.array([n_k - 1, *rng.permutation(other_keys)[: _KEYS - 1]])
    scores = score - _GAP - score * rng.random((n_k, width))
    scores[chosen_keys] = score - _DEPTH * rng.random((len(chosen_keys), width)) ** 2
    factors = rounded(rng.uniform(8, 16, width) * rng.choice([-1.0, 1.0], width), target)
    q = np.where(np.arange(width) == np.arange(n_q)[:, None] % max(width, 1), factors, 0.0)
    k = rounded(scores * np.sqrt(width) / factors, target)
    v, column = np.zeros((n_k, value_width)), np.arange(len(chosen_keys)) % (value_width + 1)
    v[chosen_keys[column < value_width], column[column < value_width]] = 1.0
    return q, k, v


def scores_of(arithmetic: Arithmetic) -> list[float]:
    """Return the scores at which the budgets (error limits) of an arithmetic still test something.
    Its errors in an exponent are at most a quarter, and the steps of its inputs at most 4.
    """
    stored = [
        number_format.unit_roundoff
        for number_format in (arithmetic.scores, arithmetic.scale_on_inputs)
        if number_format is not None
    ]
    relative_error = 2 * arithmetic.product + 2 * max([0.0, *stored])
    return [
        score for score in _SCORES if score * relative_error <= 0.25 and score * arithmetic.inputs.unit_roundoff <= 4
    ] or [16.0]
