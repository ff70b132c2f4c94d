"""Hill climbing on arrays: from a drawn input, accept what makes the measured height no lower, and
start again where nothing does.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

__all__ = ["Climbed", "Effort", "Height", "climb", "mutated"]

Array = NDArray[np.float64]
P = TypeVar("P")

PATIENCE = 15
"""Mutations in a row that may fail before a climb ends."""

FLAT = 3
"""The same number while the height is still 0."""


@dataclass(frozen=True)
class Height:
    """What was measured at an input: how high it is, whether it is a counterexample, and anything
    else to be counted.
    """

    value: float
    violated: bool = False
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Effort:
    """How long to climb.

    evaluations  how many inputs all climbs together measure
    draws        how many inputs are drawn before a climb starts at the highest one
    patience     how many mutations in a row may fail before a climb ends
    """

    evaluations: int
    draws: int = 1
    patience: int = PATIENCE


@dataclass(frozen=True)
class Climbed(Generic[P]):
    """What some climbs found: how many inputs were measured, the highest one, and those that are counterexamples."""

    evaluations: int
    climbs: int
    highest: Height
    top: P
    violations: tuple[tuple[float, P], ...]
    remarks: tuple[str, ...]


def climb(
    draw: Callable[[Generator], P],
    mutate: Callable[[P, Generator], P],
    measure: Callable[[P], Height],
    rng: Generator,
    effort: Effort,
) -> Climbed[P]:
    """What climbs found. Climbs follow one another until `effort.evaluations` inputs are measured.

    Each climb starts at the highest of `effort.draws` drawn inputs. It ends at a counterexample, or
    when its mutations no longer increase the height.
    """
    best: tuple[Height, P] | None = None
    violations: list[tuple[float, P]] = []
    remarks: list[str] = []
    spent = climbs = 0
    while spent < effort.evaluations:
        climbs += 1
        here = height = None
        failures = drawn = 0
        while failures < (effort.patience if height is None or height.value else FLAT) and spent < effort.evaluations:
            begins = here is None or drawn < effort.draws
            candidate = draw(rng) if here is None or begins else mutate(here, rng)
            found = measure(candidate)
            spent += 1
            drawn += begins
            remarks += found.remarks
            failures = 0 if height is None or begins or found.value > height.value else failures + 1
            if height is None or found.value >= height.value:
                here, height = candidate, found
            if best is None or found.value > best[0].value:
                best = found, candidate
            if found.violated:
                violations.append((found.value, candidate))
                break
    if best is None:
        raise ValueError(f"evaluations={effort.evaluations}, but should be at least 1.")
    return Climbed(spent, climbs, best[0], best[1], tuple(violations), tuple(remarks))


def mutated(x: Array, rng: Generator) -> Array:
    """A copy of an array of two axes with one thing changed: an entry, a row, or the scale of all."""
    y = x.copy()
    if not y.size:
        return y
    i, j = (int(rng.integers(n)) for n in y.shape)
    other = int(rng.integers(len(y))), int(rng.integers(y.shape[1]))
    with np.errstate(all="ignore"):
        match int(rng.integers(12)):
            case 0:
                y[i, j] *= 1 + rng.standard_normal() * 2.0 ** -rng.uniform(0, 52)
            case 1:
                y[i, j] = -y[i, j]
            case 2:
                y[i, j] *= 2.0 ** rng.integers(-8, 9)
            case 3:
                mantissa, exponent = np.frexp(y[i, j])
                bits = int(rng.integers(1, 12))
                y[i, j] = np.ldexp(np.rint(np.ldexp(mantissa, bits)), exponent - bits)
            case 4:
                y[i, j] = y[other]
            case 5:
                y *= 2.0 ** rng.uniform(-3, 3)
            case 6:
                y[[i, other[0]]] = y[[other[0], i]]
            case 7:
                y[i] = y[other[0]]
            case 8:
                y[i, j] = rng.choice([0.0, 1.0, -1.0])
            case 9:
                y[i, j] += float(rng.integers(-64, 65)) * np.spacing(y[i, j])
            case 10:
                y[i] *= rng.choice([-1.0, 0.5, 2.0])
            case _:
                y[i, j] = rng.standard_normal() * (np.abs(y).max() + (not y.any()))
    return np.where(np.isfinite(y), y, x)
