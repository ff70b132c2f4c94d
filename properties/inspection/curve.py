"""The weights of two keys as a function of their scores, measured from outside.

The score of key 0 is s, another one in each row of q, and the scores of all other keys are 0. In a
right kernel without a softcap

    log W[row, 0] − log W[row, 1] = s                                                        (1)

and with a softcap c it is c·tanh(s / c). In a second measurement key 0 is the only visible key, so
its weight is 1. If masked keys get a score f instead of no weight, the left side of (1) is s − f.
The error limit of each weight says what is wrong. Where right and wrong scores meet, more scores
are measured between them.
"""

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from properties.contract.support import OutsideError
from properties.inspection.array import Array
from properties.inspection.probe import Probe, Reading, joined
from properties.inspection.shapes import Shape

__all__ = ["Curve", "Points", "curve"]

_EXPONENTS = (*range(-2, 11), 12, 16, 24, 32, 48, 64, 128, 256, 511)
"""The first scores are ± 2 to these powers, as far as the format reaches."""

_ROUNDS = 3  # of scores between right and wrong ones
_ROUNDS_OF_FILLS = 6  # until both weights are neither 0 nor 1
_BETWEEN = 15  # scores between a right one and a wrong one
_NEAR = 0.01  # relative: how near a right weight is to the expected one


@dataclass(frozen=True)
class Points:
    """The weights of keys 0 and 1 in rows with different scores.

    scores    the score of key 0 in each row, ascending
    own       the score of key 1, if it is masked, else 0
    reading   the weights, `[head, row, key]`, with all leading axes and heads as one. If key 1 is
              masked and a key 2 exists, it is measured too
    """

    scores: Array
    own: float
    reading: Reading

    def logs(self, side: Array, key: int = 1) -> Array:
        """The left side of (1) for some key, `[head, row]`; not finite where a weight is 0, NaN or
        infinite.
        """
        with np.errstate(all="ignore"):
            heights = np.log(side)
            return heights[..., 0] - heights[..., key]

    @property
    def states(self) -> Array:
        """For each row 1 if it is wrong in some head, −1 if it is right in all, and 0 if it is neither:
        the error limit of very large scores may allow everything.
        """
        measured, expected, wrong = self.reading
        with np.errstate(invalid="ignore"):
            is_right = (np.abs(measured - expected) <= _NEAR * np.abs(expected)).all((0, 2))
        return np.where(wrong.any((0, 2)), 1, -1 * is_right)


@dataclass(frozen=True)
class Curve:
    """The weights of two visible keys, and the weights of a visible key and masked keys.

    softcap   the softcap of the calls; None without one
    visible   the points where all keys are visible
    masked    the points where key 0 is the only visible key; None if no mask can be given
    """

    softcap: float | None
    visible: Points
    masked: Points | None


def curve(probe: Probe, shape: Shape) -> Curve:
    """Measure weights as a function of scores. Raises as `Probe.results`, and OutsideError for less
    than two keys.
    """
    operation = probe.operation
    largest = np.log2(probe.caller.largest_harmless)
    powers = 2.0 ** np.array([exponent for exponent in _EXPONENTS if exponent <= largest])
    numbers = np.concatenate([-powers[::-1], [0.0], powers])
    plain = probe.plain(shape, "scale", "softcap")
    square = plain.changed(operation, n_q=len(numbers), n_k=len(numbers))
    plain = square if probe.takes(square) else plain
    if plain.sizes["n_k"] < 2:
        raise OutsideError("The implementation takes only one key.")
    masked = None
    if "mask" in operation.parameters:
        visible = np.arange(plain.sizes["n_k"]) == 0
        shown = np.broadcast_to(visible, (*plain.rows(operation, "q"), len(visible)))
        one_key = replace(plain, arguments={**plain.arguments, "mask": shown})
        with suppress(OutsideError):
            masked = _points(probe, one_key, numbers, _ROUNDS_OF_FILLS) if probe.takes(one_key) else None
    return Curve(plain.arguments.get("softcap"), _points(probe, plain, numbers, _ROUNDS), masked)


def _points(probe: Probe, shape: Shape, numbers: Array, rounds: int) -> Points:
    """The weights for some numbers in q, and for more numbers between right and wrong ones."""
    scale = probe.scale(shape)
    power = 2.0 ** -round(np.log2(abs(scale))) if scale else 1.0
    factor, found = scale * power, _weights(probe, shape, numbers, power)
    for _ in range(rounds):
        states = Points(numbers, 0.0, found).states
        more = np.setdiff1d(_between(numbers, states, probe.caller.arithmetic.inputs.unit_roundoff), numbers)
        if not len(more):
            break
        found = joined([found, _weights(probe, shape, more, power)], partial(np.concatenate, axis=1))
        order = np.argsort(numbers := np.concatenate([numbers, more]))
        numbers, found = numbers[order], found.changed(partial(np.take, indices=order, axis=1))
    own = factor if _has_own_score(shape) else 0.0
    if factor < 0:
        numbers, found = numbers[::-1], found.changed(partial(np.flip, axis=1))
    return Points(factor * numbers, own, found)


def _has_own_score(shape: Shape) -> bool:
    """Whether key 1, which is masked, gets a score other than 0."""
    return "mask" in shape.arguments and shape.sizes["head_dim"] > 1 and shape.sizes["n_k"] > 2


def _weights(probe: Probe, shape: Shape, numbers: Array, power: float) -> Reading:
    """The weights of keys 0 and 1, with a number in each row of q and a power of two in key 0.
    If key 1 is masked, the weight of key 2 follows.
    """
    operation, n_q, n_k = probe.operation, shape.sizes["n_q"], shape.sizes["n_k"]
    k, calls = shape.zeros(operation, "k"), []
    k[..., 0, 0] = power
    firsts = np.arange(0, int(np.prod(shape.rows(operation, "v"))), n_k)
    keys = [firsts + key for key in range(3 if _has_own_score(shape) else 2)]
    for start in range(0, len(numbers), n_q):
        some = numbers[start : start + n_q]
        q = shape.zeros(operation, "q")
        q[..., : len(some), 0] = some
        if _has_own_score(shape):
            q[..., 1], k[..., 1, 1] = 1.0, power
        calls.append({"q": q, "k": k})
    parts = [each.changed(lambda side: side.reshape(-1, n_q, len(keys))) for each in probe.weights(shape, keys, *calls)]
    # The rows of the last call that have no number are left out.
    return joined(parts, lambda sides: np.concatenate(sides, 1)[:, : len(numbers)])


def _between(numbers: Array, states: Array, roundoff: float) -> Array:
    """Numbers of a format between right and wrong neighbours, with equal quotients."""
    found = []
    for place in np.flatnonzero(states[1:] * states[:-1] == -1):
        ends = numbers[place : place + 2]
        if not ends.all():
            continue
        exact = ends[0] * (ends[1] / ends[0]) ** (np.arange(1, _BETWEEN + 1) / (_BETWEEN + 1))
        fraction, exponent = np.frexp(exact)
        found.append(np.ldexp(np.round(fraction / (2 * roundoff)) * 2 * roundoff, exponent))
    return np.unique(np.concatenate(found)) if found else np.array([])
