"""Computes with pairs of channels, and with pairs of a cosine and a sine, as complex numbers in
ball arithmetic (intervals value ± radius): their places in a head, and their products.
"""

from typing import Any

import numpy as np

from oracles.ball import Array, Ball, ball, exact
from properties.contract.implementation import Implementation
from properties.contract.operations import OPERATIONS, Arguments
from properties.contract.results import Result
from properties.contract.subject import Subject
from properties.strategies.choices import Choices

__all__ = [
    "Pair",
    "Places",
    "channels_of_pairs",
    "check_pairs",
    "distance",
    "first_position",
    "joined",
    "pairs_at",
    "product",
    "rotated",
    "rotated_input",
    "supported_position",
    "within_distance",
]

Pair = tuple[Ball, Ball]
Places = tuple[slice, slice]


def channels_of_pairs(implementation: Implementation, width: int) -> Places:
    """Return the slices of the first channels and of the second channels of all pairs, in the
    implementation's pairing. An unpaired last channel is left out.
    """
    if implementation.resolved_conventions.rope_pairing == "half":
        return slice(0, width // 2), slice(width // 2, None)
    return slice(0, width // 2 * 2, 2), slice(1, width // 2 * 2, 2)


def pairs_at(x: Any, places: Places) -> Pair:
    """Return the balls of the first channels and of the second channels of a result, of a ball, or
    of an exact array.
    """
    found: Ball = x if isinstance(x, Ball) else x.ball if hasattr(x, "ball") else exact(x)
    return found[..., places[0]], found[..., places[1]]


def joined(first: Array, second: Array, places: Places) -> Array:
    """Return the array that has these numbers in the first and in the second channels of its pairs."""
    result = np.empty((*first.shape[:-1], 2 * first.shape[-1]))
    result[..., places[0]], result[..., places[1]] = first, second
    return result


def product(a: Pair, b: Pair) -> Pair:
    """Return the complex products of two arrays of pairs (x, y), read as x + iy. If b is (cos, sin)
    of an angle, each pair of a is rotated by this angle.
    """
    return a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]


def check_pairs(subject: Subject, actual: Any, expected: Any, *names: str) -> None:
    """Check that the first and the second entries of pairs have the expected values. `names` are
    their names in messages.
    """
    for name, found, wanted in zip(names or ("first channels", "second channels"), actual, expected, strict=True):
        subject.close(found, wanted, name)


def within_distance(x: Ball, bound: Ball) -> Ball:
    """Return a ball that contains, in each entry, every number at most `bound` away from a number
    in x.
    """
    return x + ball(np.zeros(bound.mid.shape), (bound.mid + bound.rad) * (1 + 2.0**-40))


def distance(value: Array, x: Ball) -> Ball:
    """Return, in each entry, the largest distance between a number and the numbers of a ball,
    rounded upwards.
    """
    return exact((np.abs(value - x.mid) + x.rad) * (1 + 2.0**-40))


def rotated_input(subject: Subject, arguments: Arguments) -> Any:
    """Return the argument that the law's operation rotates: x, or in a VJP the cotangent."""
    parameters = OPERATIONS[subject.operation].parameters
    return arguments[parameters.index("grad_out") if subject.operation.endswith("_vjp") else 0]


def first_position(subject: Subject, arguments: Arguments) -> int:
    """Return the position of the first row, the argument `start_pos`."""
    return int(arguments[OPERATIONS[subject.operation].parameters.index("start_pos")])


def rotated(subject: Subject, x: Any, *angles: Any) -> Result:
    """Return x rotated by the law's operation, by a position or by tables.

    A VJP gets x as the cotangent. Its input then has other values.
    """
    other = x[..., ::-1]
    calls = {"rope_vjp": (other, x, *angles), "apply_rotary_vjp": (other, *angles, x)}
    found: Result = subject(*calls.get(subject.operation, (x, *angles)))
    return found


def supported_position(implementation: Implementation, choose: Choices, start_pos: int = 0) -> int:
    """Return a position up to 2²⁰ that the implementation supports, also if `start_pos` is added to
    it. Return 0 if the chosen position is not supported.
    """
    near, edge = choose.integer(0, 16), 2 ** choose.integer(7, 20) - choose.integer(0, 2)
    chosen = choose.among([near, edge, choose.integer(0, 2**20)])
    supported = implementation.allows(start_pos=chosen) and implementation.allows(start_pos=start_pos + chosen)
    return chosen if supported else 0
