"""Entries of a measured array that are not what they should be, and what they have in common."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from oracles.ball import Array

__all__ = ["Entries", "places", "spanned"]

NEAR = 0.01
"""The relative difference up to which a factor or a shift describes entries."""


@dataclass(frozen=True)
class Entries:
    """A measured array beside what it should be, and where it is outside its error limit; `axes`
    names each axis in the singular.
    """

    name: str
    axes: tuple[str, ...]
    measured: Array
    expected: Array
    wrong: Array

    def sentences(self) -> list[str]:
        """What all wrong entries have in common, in a sentence; none where nothing is wrong."""
        if not self.wrong.any():
            return []
        where = places(self.wrong, self.axes)
        text = f"{self.name} {self._rule()}"
        return [f"{text}{f': {where}' if where else ''}."]

    def _rule(self) -> str:
        """The first rule that is true of all wrong entries."""
        got, due = self.measured[self.wrong], self.expected[self.wrong]
        if not np.isfinite(got).all():
            return "has NaN or infinite entries" if np.isfinite(got).any() else "is NaN or infinite"
        size = np.abs(due).max(initial=0.0)
        if (np.abs(got) <= NEAR * size).all():
            return "is 0"
        if size == 0:
            return "should be 0"
        factor = float(got @ due / (due @ due))
        if np.allclose(got, factor * due, rtol=0, atol=NEAR * abs(factor) * size):
            return f"is {factor:.4g} times what it should be"
        for axis, name in enumerate(self.axes):
            for step in (1, -1):
                moved = np.roll(self.expected, -step, axis)
                if np.allclose(got, moved[self.wrong], rtol=0, atol=NEAR * size):
                    return f"of {name} i is what {name} i {step:+d} should have"
        return "is something else"


def places(wrong: Array, axes: Sequence[str]) -> str:
    """Where a boolean array is true, by ranges of its axes: "heads 4–7 of 8, queries 16–31"; ""
    for everywhere.  Where that is no product of ranges, one place and their number.
    """
    found = [np.flatnonzero(wrong.any(tuple(a for a in range(wrong.ndim) if a != axis))) for axis in range(wrong.ndim)]
    number = int(wrong.sum())
    if number == prod(len(indices) for indices in found):
        return ", ".join(
            f"{spanned(indices, name)} of {size}"
            for indices, name, size in zip(found, axes, wrong.shape, strict=True)
            if len(indices) < size
        )
    first = np.unravel_index(int(wrong.argmax()), wrong.shape)
    one = ", ".join(f"{name} {index}" for name, index in zip(axes, first, strict=True))
    narrow = [
        f"{spanned(indices, name)} of {size}"
        for indices, name, size in zip(found, axes, wrong.shape, strict=True)
        if len(indices) < size
    ]
    return f"{number} of {wrong.size} entries{f' within {chr(44).join(narrow)}' if narrow else ''}, such as {one}"


def spanned(indices: Sequence[int] | Array, name: str) -> str:
    """Indices in words: "query 3", "queries 16–31", "heads 0, 2, 5"."""
    found = [int(i) for i in indices]
    noun, of, rest = name.partition(" of ")
    plural = {"query": "queries", "batch": "batches"}.get(noun, f"{noun}s") + of + rest
    if len(found) == 1:
        return f"{name} {found[0]}"
    if found == list(range(found[0], found[-1] + 1)):
        return f"{plural} {found[0]}–{found[-1]}"
    return f"{plural} {', '.join(map(str, found[:4]))}{' …' if len(found) > 4 else ''}"
