"""Searches for the input with the largest measured height by hill climbing on arrays. A climb
starts from a drawn input, accepts a mutation that does not reduce the height, and starts again when
no mutation helps.
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
"""How many mutations in a row may fail before a climb ends."""

FLAT = 3
"""How many mutations in a row may fail while the height is still 0."""


@dataclass(frozen=True)
class Height:
    """The measurement of an input: its height, whether the input is a counterexample, and remarks
    that are counted.
    """

    value: float
    violated: bool = False
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Effort:
    """How long to search.

    evaluations  how many inputs all climbs together measure
    draws        how many inputs are drawn before a climb starts at the highest one
    patience     how many mutations in a row may fail before a climb ends
    """

    evaluations: int
    draws: int = 1
    patience: int = PATIENCE


@dataclass(frozen=True)
class Climbed(Generic[P]):
    """The result of all climbs: how many inputs were measured, the input with the largest height,
    and the counterexamples.
    """

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
    """Search until `effort.evaluations` inputs are measured, and return what was found.

    A climb starts at the highest of `effort.draws` drawn inputs. It ends at a counterexample, or
    when its mutations no longer increase the height.
    """
    highest: tuple[Height, P] | None = None
    violations: list[tuple[float, P]] = []
    remarks: list[str] = []
    measured = climbs = 0
    while measured < effort.evaluations:
        climbs += 1
        current = height = None
        failures = drawn = 0
        while (
            failures < (effort.patience if height is None or height.value else FLAT) and measured < effort.evaluations
        ):
            is_drawn = current is None or drawn < effort.draws
            candidate = draw(rng) if current is None or is_drawn else mutate(current, rng)
            result = measure(candidate)
            measured += 1
            drawn += is_drawn
            remarks += result.remarks
            failures = 0 if height is None or is_drawn or result.value > height.value else failures + 1
            if height is None or result.value >= height.value:
                current, height = candidate, result
            if highest is None or result.value > highest[0].value:
                highest = result, candidate
            if result.violated:
                violations.append((result.value, candidate))
                break
    if highest is None:
        raise ValueError(f"evaluations={effort.evaluations}, but should be at least 1.")
    return Climbed(measured, climbs, highest[0], highest[1], tuple(violations), tuple(remarks))


def mutated(x: Array, rng: Generator) -> Array:
    """Return a copy of an array of two axes with one thing changed: an entry, a row, or the scale."""
    changed = x.copy()
    if not changed.size:
        return changed
    implementation, column = (int(rng.integers(length)) for length in changed.shape)
    other = int(rng.integers(len(changed))), int(rng.integers(changed.shape[1]))
    with np.errstate(all="ignore"):
        match int(rng.integers(12)):
            case 0:
                changed[implementation, column] *= 1 + rng.standard_normal() * 2.0 ** -rng.uniform(0, 52)
            case 1:
                changed[implementation, column] = -changed[implementation, column]
            case 2:
                changed[implementation, column] *= 2.0 ** rng.integers(-8, 9)
            case 3:
                mantissa, exponent = np.frexp(changed[implementation, column])
                bits = int(rng.integers(1, 12))
                changed[implementation, column] = np.ldexp(np.rint(np.ldexp(mantissa, bits)), exponent - bits)
            case 4:
                changed[implementation, column] = changed[other]
            case 5:
                changed *= 2.0 ** rng.uniform(-3, 3)
            case 6:
                changed[[implementation, other[0]]] = changed[[other[0], implementation]]
            case 7:
                changed[implementation] = changed[other[0]]
            case 8:
                changed[implementation, column] = rng.choice([0.0, 1.0, -1.0])
            case 9:
                changed[implementation, column] += float(rng.integers(-64, 65)) * np.spacing(
                    changed[implementation, column]
                )
            case 10:
                changed[implementation] *= rng.choice([-1.0, 0.5, 2.0])
            case _:
                changed[implementation, column] = rng.standard_normal() * (np.abs(changed).max() + (not changed.any()))
    return np.where(np.isfinite(changed), changed, x)
