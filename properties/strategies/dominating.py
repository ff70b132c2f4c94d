"""Cases that expose: a few keys with large scores share all the weight, and values read the weights
out.

A random row of many keys averages a mistake away, while its budget grows with its length. Here the
score of a key is one product, so that a relative error of a product, of the scale, or of an input
is the same share of a score, and exp makes it as large a share of the weight as the score is large:
1/2¹¹ of a score of 1024 is half the weight. A one-hot value reads out that weight alone, so that
its error is compared with a budget that is a share of the weight itself, of 1/2 and of exp(−30)
alike; no sum over the keys hides it, however many there are.
"""

import numpy as np

from oracles.ball import Array
from oracles.formats import Arithmetic, Format
from properties.strategies.choices import rounded

__all__ = ["LONG", "MANY", "dominating", "scores_of"]

MANY = (2, 3, 9, 17, 33, 65, 128, 129, 257, 511, 1024, 1025, 2048, 4095, 8191, 8192)
"""Numbers of keys, the simplest first."""

LONG = (131072, 131071)
"""Numbers of keys of the long plan."""

_SCORES = (128.0, 1024.0, 8192.0)
_DEPTH = 30.0  # how far below the first, at most, the scores of keys that matter are: exp(−30) is a number of every format but binary16
_GAP = 128.0  # how far below all others are, at least: exp(−98) is no number of binary32
_KEYS = 8  # that matter, at most


def dominating(
    rng: np.random.Generator, lengths: tuple[int, int], widths: tuple[int, int], score: float, target: Format
) -> tuple[Array, ...]:
    """(q, k, v) in a format, in which up to 8 keys, the last and such at the edges of tiles, have
    scores of about `score`.

    Query i is not 0 in channel i mod width alone; there each key has a number of its own, by which
    its score is what was drawn, but for the rounding of the number. The keys that matter have
    one-hot values, one more of them than columns a value of 0, as all others have.
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
    """The scores of which an arithmetic still says something: its errors are at most a quarter in
    an exponent, its inputs' steps 4.
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
