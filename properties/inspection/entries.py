"""Entries of a measured array that are not what they should be, and what they have in common."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from properties.inspection.array import Array
from properties.inspection.places import place, placed
from properties.inspection.probe import Reading

__all__ = ["Entries", "sentences_of_entries"]

_NEAR = 0.01  # relative to the largest entry: how near entries follow a rule
_LEAST_INDICES = 2  # of an axis that show a rule about its neighbours

_PLURALS = ("weights", "biases", "slopes", "frequencies", "angles")
_ONE = {"is": "is", "has": "has", "adds": "adds", "it": "it"}
_SEVERAL = {"is": "are", "has": "have", "adds": "add", "it": "they"}
"""The words of a rule, for one array and for arrays whose name is a plural."""


@dataclass(frozen=True)
class Entries:
    """A measured array with its name, and a name for each axis, in the singular. `condition` says for
    which inputs it was measured; "" if nothing needs to be said.
    """

    name: str
    axes: tuple[str, ...]
    reading: Reading
    condition: str = ""

    def sentences(self) -> tuple[str, ...]:
        """What all wrong entries have in common, in a sentence; () if no entry is wrong, or all are
        nearly right.
        """
        rule, where = self._rule() if self.reading.wrong.any() else ("", self.reading.wrong)
        if not rule:
            return ()
        words = _SEVERAL if set(self.name.split()) & set(_PLURALS) else _ONE
        name = f"{self.condition}, {self.name}" if self.condition else self.name
        rows = np.asarray(where.any(-1))
        chosen, axes = (rows, self.axes[:-1]) if (where.all(-1) == rows).all() else (where, self.axes)
        return (placed(f"{name} {rule.format_map(words)}", chosen, axes),)

    def _rule(self) -> tuple[str, Array]:
        """The first rule that all wrong entries follow, and the entries that follow it; "" for errors like
        roundings.
        """
        measured, expected, wrong = self.reading
        actual, correct = measured[wrong], expected[wrong]
        rows = np.broadcast_to(wrong.any(-1, keepdims=True), wrong.shape)
        size = np.abs(correct).max()
        if not np.isfinite(correct).all():
            return self._example(), rows
        if not np.isfinite(actual).all():
            return "{has} NaN or infinite entries" if np.isfinite(actual).any() else "{is} NaN or infinite", rows
        if not actual.any():
            return "{is} 0 where {it} should not be", rows
        if not size:
            return f"{{is}} not 0 where {{it}} should be: at {self._furthest()}", rows
        if np.allclose(actual, correct, rtol=0, atol=_NEAR * size):
            return "", wrong
        factor = float(actual @ correct / (correct @ correct))
        near = _NEAR * abs(factor) * size
        is_clear = abs(factor) > _NEAR and abs(factor - 1) > 2 * _NEAR
        if np.allclose(actual, factor * correct, rtol=0, atol=near) and is_clear:
            is_true = wrong | (np.isclose(measured, factor * expected, rtol=0, atol=near) & rows)
            return f"{{is}} {factor:.4g} times what {{it}} should be", is_true
        if rule := self._neighbour(_NEAR * size):
            return rule, rows
        return self._sums() or (self._example(), rows)

    def _neighbour(self, tolerance: float) -> str:
        """The rule that wrong entries equal a neighbour's; "" if they do not, or too few show it."""
        measured, expected, wrong = self.reading
        for axis, name in enumerate(self.axes):
            for step, word in ((1, "next"), (-1, "previous")):
                edge = wrong.shape[axis] - 1 if step == 1 else 0
                indices = np.unique(np.nonzero(wrong)[axis])
                follows = np.allclose(measured[wrong], np.roll(expected, -step, axis)[wrong], rtol=0, atol=tolerance)
                if follows and (indices != edge).sum() >= _LEAST_INDICES:
                    wrapping = ", from end to end" if edge in indices else ""
                    return f"{{is}} what the {word} {name} should have{wrapping}"
        return ""

    def _sums(self) -> tuple[str, Array] | None:
        """The rule that the weights of rows have another sum than 1, and these rows; None if the entries
        are not weights, or if all sums are right.
        """
        measured, expected, wrong = self.reading
        actual, correct = measured.sum(-1), expected.sum(-1)
        rows = np.asarray(wrong.any(-1) & (np.abs(actual - correct) > _NEAR) & (correct > 0))
        if "weights" not in self.name or not rows.any():
            return None
        smallest, largest = (f"{float(end):.3g}" for end in (actual[rows].min(), actual[rows].max()))
        total = smallest if smallest == largest else f"{smallest} to {largest}"
        where = np.broadcast_to(rows[..., None], wrong.shape)
        return f"{{adds}} up to {total}, should add up to 1", where

    def _example(self) -> str:
        """The number of wrong entries, and one of them."""
        number = f"{int(self.reading.wrong.sum())} of {self.reading.wrong.size}"
        return f"{{is}} wrong in {number} entries: at {self._furthest()}"

    def _furthest(self) -> str:
        """The entry that is furthest from what it should be: "query 1, channel 0 it is 2, should be 1"."""
        measured, expected, wrong = self.reading
        index = np.unravel_index(int(np.where(wrong, np.abs(measured - expected), 0.0).argmax()), wrong.shape)
        actual, correct = (side[index] + 0.0 for side in (measured, expected))
        return f"{place(index, self.axes)} it is {actual:.4g}, should be {correct:.4g}"


def sentences_of_entries(found: Sequence[Entries]) -> tuple[str, ...]:
    """Return the sentences about the first array with wrong entries that follow a rule; () if no
    array has some.
    """
    return next((said for entries in found if (said := entries.sentences())), ())
