"""How scores are formed from q and k, measured from outside.

Every third row of q is a·e_c, every third key is a·e_c' in some order of channels, the other rows
are 0, and v tells the keys apart.  In a right kernel the last key, which is 0, has score 0, and

    form[row, j] = (log W[row, j] − log W[row, last]) / a² = scale·[channel(row) = channel(j)]   (1)

where a row of zeros has no channel.  Two orders of the keys' channels tell another channel from
another key.  What counts as wrong is the error limit of the weights in each call.
"""

from dataclasses import dataclass
from itertools import product

import numpy as np

from oracles.ball import Array
from properties.contract.caller import Caller
from properties.contract.operations import OPERATIONS
from properties.inspection.shapes import Shape

__all__ = ["ScoreForm", "score_form", "sentences_of_scores"]

NEAR = 0.01
"""The share of the scale up to which a coefficient is described as 0, or as equal to another."""

Product = tuple[int, int, int, int]
"""A channel of q, a channel of k, and how many rows and keys farther those two rows are."""


@dataclass(frozen=True)
class ScoreForm:
    """The scores of one-hot rows, by (1).

    `queries[row]` is the channel of a row of q, and `keys[n, j]` that of key j in call n; −1 is a
    row of zeros.  `measured[n, lane, row, j]` is the left side of (1) for each batch and head,
    `expected` the right side, and `wrong` is where a weight is outside its error limit.
    """

    queries: Array
    keys: Array
    measured: Array
    expected: Array
    wrong: Array

    @property
    def scale(self) -> float:
        """The factor of q·k that should be there."""
        return float(self.expected.flat[np.abs(self.expected).argmax()])


def score_form(caller: Caller, shape: Shape) -> ScoreForm:
    """Measure how scores are formed, in two calls with three rows for each channel.

    Raises BrokenError where the implementation raises, and OutsideError where it does not take the
    shape.
    """
    operation, width = OPERATIONS[caller.operation], shape.sizes["head_dim"]
    queries = np.stack([np.arange(width), *np.full((2, width), -1)], 1).reshape(-1)
    keys = np.stack([queries, np.roll(queries, 3)])
    number = len(queries)
    square = Shape({**shape.sizes, "n_q": number, "n_k": number, "value_dim": number}, shape.batch, shape.arguments)
    amplitude = 2.0 ** round(np.log2(max(1, width)) / 4)
    found = []
    for order in keys:
        q, k, v = (square.zeros(operation, name) for name in ("q", "k", "v"))
        for array, channels in ((q, queries), (k, order)):
            rows = np.flatnonzero(channels >= 0)
            array[..., rows, channels[rows]] = amplitude
        v[...] = np.eye(number)
        (out, *_) = caller.watch(caller.operation, square.call(operation, q=q, k=k, v=v)).results
        value, mid, excess = (x.reshape(-1, number, number) for x in (out.value, out.budget.mid, out.excess))
        with np.errstate(all="ignore"):
            logs = [(np.log(np.abs(x)) - np.log(np.abs(x[..., -1:]))) / amplitude**2 for x in (value, mid)]
        found.append((*logs, excess > 1))
    return ScoreForm(queries, keys, *(np.stack(parts) for parts in zip(*found, strict=True)))


def sentences_of_scores(found: ScoreForm) -> list[str]:
    """What a score form says, in sentences; none where it is right."""
    if not found.wrong.any():
        return []
    lanes = found.wrong.any((0, 2, 3))
    measured, expected = found.measured[:, lanes], found.expected[:, lanes]
    if not np.isfinite(measured).all():
        return ["Weights of one-hot queries and keys are 0 or not finite."]
    near = NEAR * abs(found.scale)
    own = np.abs(expected) > near
    factor = float(np.median(measured[own]))
    if (np.abs(measured - expected * factor / found.scale) < near).all():
        return [f"Scores are {factor:.4g}·q·k, but should be {found.scale:.4g}·q·k."]
    products = [x for x in _candidates(found) if _is_added(found, measured - expected, x, near)]
    explained = expected + sum(_pattern(found, x) * _mean(found, measured - expected, x) for x in products)
    if not products or not (np.abs(measured - explained) < near).all():
        wrong = int((np.abs(measured - expected) > near).sum())
        return [f"{wrong} of {measured.size} products of one-hot queries and keys have another score."]
    return [_sentence(found, x, _mean(found, measured - expected, x)) for x in products]


def _candidates(found: ScoreForm) -> list[Product]:
    """The products of channels of rows and keys near each other, nearest first."""
    width, steps = int(found.queries.max()) + 1, sorted(product((0, 1, -1), repeat=2), key=lambda s: sum(map(abs, s)))
    return [(c, other, row, key) for row, key in steps for c in range(width) for other in range(width)]


def _pattern(found: ScoreForm, of: Product) -> Array:
    """1 at each score to which a product of channels would be added, in each call."""
    c, other, row, key = of
    queries = np.roll(found.queries == c, -row)
    queries[len(queries) - row if row > 0 else 0 : len(queries) if row >= 0 else -row] &= row == 0
    keys = np.roll(found.keys == other, -key, axis=-1)
    keys[:, len(queries) - key if key > 0 else 0 : len(queries) if key >= 0 else -key] &= key == 0
    return (queries[:, None] & keys[:, None, :])[:, None]


def _is_added(found: ScoreForm, difference: Array, of: Product, near: float) -> bool:
    """Whether a product is added, by one coefficient in every call and lane in which it could be."""
    there = np.broadcast_to(_pattern(found, of), difference.shape)
    some = difference[there]
    return bool(some.size and (np.abs(some) > near).all() and np.ptp(some) < near and there.any((1, 2, 3)).all())


def _mean(found: ScoreForm, difference: Array, of: Product) -> float:
    return float(difference[np.broadcast_to(_pattern(found, of), difference.shape)].mean())


def _sentence(found: ScoreForm, of: Product, added: float) -> str:
    c, other, row, key = of
    if (row, key) == (0, 0) and c == other and abs(added + found.scale) < NEAR * abs(found.scale):
        return f"Channel {c} of q and k adds nothing to the score."
    near = {0: "", 1: "the next ", -1: "the previous "}
    return (
        f"Channel {c} of {near[row] + 'query' if row else 'q'} × channel {other} of {near[key] or 'the '}key "
        f"adds {added:.3g} to the score{' besides' if c == other and not row and not key else ''}."
    )
