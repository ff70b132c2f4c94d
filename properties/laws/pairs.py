"""Pairs of lanes, and of a sine and a cosine, as complex numbers made of balls: where an implementation keeps them, and products."""

from collections.abc import Callable
from typing import Any

import numpy as np

from oracles.ball import Array, Ball, ball, exact
from properties.implementation import Implementation
from properties.law import Laws
from properties.subject import Result, Subject

__all__ = ["Pair", "Places", "angles", "both", "conjugate", "distance", "dot", "joined", "lanes", "moved", "of", "times", "turned"]

Pair = tuple[Ball, Ball]
Places = tuple[slice, slice]


def lanes(i: Implementation, dim: int) -> Places:
    """The first and the second lanes of all whole pairs, in the implementation's pairing."""
    if i.reading.rope_pairing == "half":
        return slice(0, dim // 2), slice(dim // 2, None)
    return slice(0, dim // 2 * 2, 2), slice(1, dim // 2 * 2, 2)


def of(x: Any, where: Places) -> Pair:
    """The pairs of a result, a ball, or an exact array."""
    found: Ball = x if isinstance(x, Ball) else x.ball if hasattr(x, "ball") else exact(x)
    return found[..., where[0]], found[..., where[1]]


def angles(i: Implementation, encoding: Any) -> Pair:
    """The cosines and sines of a sinusoidal encoding's whole pairs, in the implementation's layout."""
    found, width = encoding.ball, encoding.value.shape[1]
    if i.reading.sinusoid_layout == "interleaved":
        return found[:, 1::2], found[:, 0 : width // 2 * 2 : 2]
    return found[:, width - width // 2 :], found[:, : width // 2]


def joined(first: Array, second: Array, where: Places) -> Array:
    """The array whose pairs these are."""
    x = np.empty((*first.shape[:-1], 2 * first.shape[-1]))
    x[..., where[0]], x[..., where[1]] = first, second
    return x


def times(a: Pair, b: Pair) -> Pair:
    """The products: turned by each other's angles."""
    return a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]


def conjugate(a: Pair) -> Pair:
    """Reflected, so that it turns the other way."""
    return a[0], -a[1]


def dot(a: Pair, b: Pair) -> Pair:
    """a times the conjugate of b: what a pair adds to a score, and how far it is from b to a."""
    return times(a, conjugate(b))


def moved(x: Ball, bound: Ball) -> Ball:
    """All that is as far from x as the bound, which contains distances, in each entry."""
    return x + ball(np.zeros(bound.mid.shape), (bound.mid + bound.rad) * (1 + 2.0**-40))


def distance(value: Array, x: Ball) -> Ball:
    """How far a number may be from what a ball contains, at most, rounded upwards, in each entry."""
    return exact((np.abs(value - x.mid) + x.rad) * (1 + 2.0**-40))


def both(law: Laws, operation: str, **entry: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The decorator `law` for an operation and, with fewer examples, for its gradient: what is said of turning holds for turning back."""

    def register(body: Callable[..., None]) -> Callable[..., None]:
        effort = entry.pop("effort", 1.0)
        law(operation, effort=effort, **entry)(body)
        return law(f"{operation}_vjp", effort=0.4 * effort, **entry)(body)

    return register


def turned(subject: Subject, x: Any, *by: Any) -> Result:
    """x turned by the law's operation, by a position or tables; where that is a gradient, as a cotangent, for other values of x."""
    if subject.operation.endswith("vjp"):
        arguments = (x[..., ::-1], x, *by) if subject.operation == "rope_vjp" else (x[..., ::-1], *by, x)
    else:
        arguments = (x, *by)
    found: Result = subject(*arguments)
    return found
