"""Which keys each query reads, measured from outside.

With q = 0 all scores of a row are equal, so its weights say which keys it may read and nothing
else.  Column c of v is 1 in the rows of one *label* and 0 elsewhere, so column c of the output is
the weight that the row gives to that label:

    out[row, c] = Σ_j W[row, j]·[label(j) = c]                                              (1)

One call measures as many labels as v has columns.  Where there are more keys than a few calls can
tell apart, a label is a block of keys at first.  A block of which some row reads a part is cut into
smaller ones, until each row reads a label wholly or not at all.  The oracle answers the same call, so
what counts as wrong is the error limit of that call, and no other tolerance.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from oracles.ball import Array
from properties.contract.caller import Caller
from properties.contract.operations import OPERATIONS
from properties.inspection.shapes import Shape

__all__ = ["Reads", "reads"]

MOST_CALLS_OF_A_ROUND = 8
MOST_CALLS = 40
LEAST_SHARE = 0.02
"""The share of a label, or of a row's largest weight, from which on it counts as read."""


@dataclass(frozen=True)
class Reads:
    """The weight that each row of the output gives to each label of keys.

    `weights`, `expected` and `wrong` have one row for each row of the output and one column for
    each label; `wrong` is where the weight is outside its error limit.  `keys[c]` are the rows of v
    of label c, as indices into v's rows.  `rows` and `columns` are the sizes of the output's and of
    v's axes but the last.
    """

    shape: Shape
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    keys: tuple[Array, ...]
    weights: Array
    expected: Array
    wrong: Array
    calls: int

    @property
    def is_right(self) -> bool:
        """Whether every row reads what it should."""
        return not self.wrong.any()

    @property
    def complete(self) -> bool:
        """Whether each label is one key, so that the map is known key by key."""
        return all(len(keys) == 1 for keys in self.keys)


def reads(caller: Caller, shape: Shape) -> Reads:
    """Measure which keys each query reads, in calls of the caller's own operation at a shape.

    Raises BrokenError where the implementation raises or returns something else, and OutsideError
    where it does not take the shape.
    """
    operation = OPERATIONS[caller.operation]
    total, width = int(np.prod(shape.rows(operation, "v"))), shape.sizes["value_dim"]
    most = MOST_CALLS_OF_A_ROUND * width
    labels: list[Array] = [keys for keys in np.array_split(np.arange(total), min(total, most)) if len(keys)]
    weights, expected, wrong, calls = _measured(caller, shape, labels)
    while calls < MOST_CALLS and (parts := _parts(labels, weights, wrong)):
        finer = [half for c in parts for half in np.array_split(labels[c], min(len(labels[c]), 8))]
        kept = [c for c in range(len(labels)) if c not in parts]
        *more, further = _measured(caller, shape, finer)
        labels = [*(labels[c] for c in kept), *finer]
        weights, expected, wrong = (
            np.concatenate([old[:, kept], new], 1) for old, new in zip((weights, expected, wrong), more, strict=True)
        )
        calls += further
    order = np.argsort([keys[0] for keys in labels])
    return Reads(
        shape,
        shape.rows(operation, "q"),
        shape.rows(operation, "v"),
        tuple(labels[c] for c in order),
        weights[:, order],
        expected[:, order],
        wrong[:, order],
        calls,
    )


def _parts(labels: Sequence[Array], weights: Array, wrong: Array) -> set[int]:
    """The labels of several keys of which some wrong row reads a part.

    The weights of a row that are not 0 are all equal, so a label that is read wholly weighs as
    much per key as the heaviest label of its row.
    """
    each = weights / [len(keys) for keys in labels]
    with np.errstate(all="ignore"):
        share = np.abs(each) / np.abs(each).max(1, keepdims=True)
    partial = wrong & (share > LEAST_SHARE) & (share < 1 - LEAST_SHARE)
    return {int(c) for c in np.flatnonzero(partial.any(0)) if len(labels[c]) > 1}


def _measured(caller: Caller, shape: Shape, labels: Sequence[Array]) -> tuple[Array, Array, Array, int]:
    """The weight of each label in each row of the output, by (1); what it should be; where it is
    wrong; and the number of calls.
    """
    operation = OPERATIONS[caller.operation]
    width, found = shape.sizes["value_dim"], []
    for start in range(0, len(labels), width):
        some = labels[start : start + width]
        v = shape.zeros(operation, "v")
        for column, keys in enumerate(some):
            v.reshape(-1, width)[keys, column] = 1.0
        (out, *_) = caller.watch(caller.operation, shape.call(operation, v=v)).results
        columns = [x.reshape(-1, width)[:, : len(some)] for x in (out.value, out.budget.mid, out.excess)]
        found.append(columns)
    value, expected, excess = (np.concatenate(parts, 1) for parts in zip(*found, strict=True))
    return value, expected, excess > 1, len(found)
