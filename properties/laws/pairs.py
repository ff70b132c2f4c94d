"""Pairs of channels, and of a cosine and a sine, as complex numbers made of balls: where an
implementation keeps them, and products.
"""

from typing import Any

import numpy as np

from oracles.ball import Array, Ball, ball, exact
from properties.contract.implementation import Implementation
from properties.contract.operations import OPERATIONS
from properties.contract.results import Result
from properties.contract.subject import Subject
from properties.strategies.choices import Choices

__all__ = [
    "Pair",
    "Places",
    "channels",
    "close",
    "distance",
    "first_position",
    "joined",
    "moved",
    "of",
    "position",
    "rotated",
    "times",
    "what_rotates",
]

Pair = tuple[Ball, Ball]
Places = tuple[slice, slice]


def channels(i: Implementation, dim: int) -> Places:
    """The first and the second channels of all whole pairs, in the implementation's pairing."""
    if i.resolved_conventions.rope_pairing == "half":
        return slice(0, dim // 2), slice(dim // 2, None)
    return slice(0, dim // 2 * 2, 2), slice(1, dim // 2 * 2, 2)


def of(x: Any, where: Places) -> Pair:
    """The pairs of a result, a ball, or an exact array."""
    found: Ball = x if isinstance(x, Ball) else x.ball if hasattr(x, "ball") else exact(x)
    return found[..., where[0]], found[..., where[1]]


def joined(first: Array, second: Array, where: Places) -> Array:
    """The array whose pairs these are."""
    x = np.empty((*first.shape[:-1], 2 * first.shape[-1]))
    x[..., where[0]], x[..., where[1]] = first, second
    return x


def times(a: Pair, b: Pair) -> Pair:
    """The products: rotated by each other's angles."""
    return a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]


def close(subject: Subject, actual: Any, expected: Any, *names: str) -> None:
    """Both entries of two pairs have one exact value."""
    for name, a, b in zip(names or ("first channels", "second channels"), actual, expected, strict=True):
        subject.close(a, b, name)


def moved(x: Ball, bound: Ball) -> Ball:
    """All that is as far from x as the bound, which contains distances, in each entry."""
    return x + ball(np.zeros(bound.mid.shape), (bound.mid + bound.rad) * (1 + 2.0**-40))


def distance(value: Array, x: Ball) -> Ball:
    """How far a number may be from what a ball contains, at most, rounded upwards, in each entry."""
    return exact((np.abs(value - x.mid) + x.rad) * (1 + 2.0**-40))


def what_rotates(subject: Subject, arguments: tuple[Any, ...]) -> Any:
    """The array that the law's operation rotates: x, or, where it is a gradient, the cotangent."""
    return arguments[
        OPERATIONS[subject.operation].parameters.index("grad_out") if subject.operation.endswith("_vjp") else 0
    ]


def first_position(subject: Subject, arguments: tuple[Any, ...]) -> int:
    """The position of the first row."""
    return int(arguments[OPERATIONS[subject.operation].parameters.index("start_pos")])


def rotated(subject: Subject, x: Any, *by: Any) -> Result:
    """x rotated by the law's operation, by a position or tables; where that is a gradient, as a
    cotangent, for other values of x.
    """
    other = x[..., ::-1]
    of_gradients = {"rope_vjp": (other, x, *by), "apply_rotary_vjp": (other, *by, x)}
    found: Result = subject(*of_gradients.get(subject.operation, (x, *by)))
    return found


def position(i: Implementation, choose: Choices, start_pos: int = 0) -> int:
    """A position to 2²⁰ that is supported, and so is the one that is farther by `start_pos`; else 0."""
    near, edge = choose.integer(0, 16), 2 ** choose.integer(7, 20) - choose.integer(0, 2)
    found = choose.among([near, edge, choose.integer(0, 2**20)])
    return found if i.allows(start_pos=found) and i.allows(start_pos=start_pos + found) else 0
