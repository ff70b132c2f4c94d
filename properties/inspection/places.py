"""Places of an array in words: which entries differ, by ranges of named axes."""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from properties.inspection.array import Array

__all__ = ["place", "placed", "sentence", "spanned"]

_PLURALS = {"query": "queries", "batch": "batches"}
_MOST_INDICES = 4  # of a set that is no range


def spanned(indices: Sequence[int] | Array, name: str, size: int | None = None) -> str:
    """Indices of an axis in words: "query 3", "queries 16–31 of 48", "channels 0, 2, 5 of
    grad_out".
    """
    found = [int(index) for index in indices]
    noun, of, rest = name.partition(" of ")
    words = noun if len(found) == 1 else _PLURALS.get(noun, f"{noun}s")
    return f"{words} {_ranges(found)}{'' if size is None else f' of {size}'}{of}{rest}"


def _ranges(found: Sequence[int]) -> str:
    steps = set(np.diff(found).tolist())
    if len(found) > 1 and steps == {1}:
        return f"{found[0]}–{found[-1]}"
    if len(found) > 3 and len(steps) == 1:
        return f"{found[0]} to {found[-1]} in steps of {steps.pop()}"
    return ", ".join(map(str, found[:_MOST_INDICES])) + (" …" if len(found) > _MOST_INDICES else "")


def place(index: Sequence[Any], axes: Sequence[str]) -> str:
    """One entry in words: "batch 0, head 1, query 3"."""
    return ", ".join(spanned([at], name) for name, at in zip(axes, index, strict=True))


def _places(chosen: Array, axes: Sequence[str]) -> tuple[str, bool]:
    """The chosen entries in words, and whether a verb after them is plural: "heads 4–7 of 8,
    queries 16–31 of 48"; "" for all entries.

    If the entries are not all combinations of some indices, the words give their number in all
    batch entries and heads, and the first.
    """
    others = [tuple(other for other in range(chosen.ndim) if other != axis) for axis in range(chosen.ndim)]
    sets = [np.flatnonzero(chosen.any(rest)) for rest in others]
    number = int(chosen.sum())
    if number != prod(map(len, sets)):
        first = place(np.argwhere(chosen)[0], axes)
        noun = axes[-1].partition(" of ")[0]
        return f"{number} of {chosen.size} {_PLURALS.get(noun, f'{noun}s')}, such as {first}", True
    named = [each for each in zip(sets, axes, chosen.shape, strict=True) if len(each[0]) < each[2]]
    words = ", ".join(spanned(indices, name, size) for indices, name, size in named)
    return words, any(len(indices) > 1 for indices, _, _ in named)


def sentence(chosen: Array, axes: Sequence[str], verbs: tuple[str, str], rest: str) -> str:
    """A sentence about the chosen entries. The verb, singular or plural, agrees with them: "Heads
    4–7 of 8 miss the last key."; "Every query …" for all entries.
    """
    words, several = _places(chosen, axes)
    words = (words or f"every {axes[-1]}") + ("," if words and "such as" in words else "")
    return f"{words[0].upper()}{words[1:]} {verbs[several]} {rest}."


def placed(statement: str, chosen: Array, axes: Sequence[str]) -> str:
    """A statement as a sentence, with the chosen entries in parentheses unless all are chosen."""
    words, _ = _places(chosen, axes)
    return f"{statement}{f' ({words})' if words else ''}."
