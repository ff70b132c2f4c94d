"""Entries of a measured array that are not what they should be, and what they have in common."""

from dataclasses import dataclass

import numpy as np

from properties.inspection.places import place, placed
from properties.inspection.probe import Reading

__all__ = ["Entries"]

_NEAR = 0.01  # relative to the largest entry: how near entries follow a rule


@dataclass(frozen=True)
class Entries:
    """A measured array with its name, and a name for each axis, in the singular."""

    name: str
    axes: tuple[str, ...]
    reading: Reading

    def sentences(self) -> tuple[str, ...]:
        """What all wrong entries have in common, in a sentence; () if no entry is wrong, or all are
        nearly right.
        """
        rule = self._rule() if self.reading.wrong.any() else ""
        return (placed(f"{self.name} {rule}", np.asarray(self.reading.wrong.any(-1)), self.axes[:-1]),) if rule else ()

    def _rule(self) -> str:
        """The first rule that is true of all wrong entries; "" for errors like roundings."""
        measured, expected, wrong = self.reading
        got, due = measured[wrong], expected[wrong]
        if not np.isfinite(due).all():
            return self._example()
        size = np.abs(due).max()
        if not np.isfinite(got).all():
            return "has NaN or infinite entries" if np.isfinite(got).any() else "is NaN or infinite"
        if not got.any():
            return "is 0 where it should not be"
        if not size:
            return f"is not 0 where it should be: at {self._furthest()}"
        if np.allclose(got, due, rtol=0, atol=_NEAR * size):
            return ""
        factor = float(got @ due / (due @ due))
        if np.allclose(got, factor * due, rtol=0, atol=_NEAR * abs(factor) * size) and abs(factor) > _NEAR:
            return f"is {factor:.4g} times what it should be"
        for axis, name in enumerate(self.axes):
            for step, word in ((1, "next"), (-1, "previous")):
                if np.allclose(got, np.roll(expected, -step, axis)[wrong], rtol=0, atol=_NEAR * size):
                    wraps = wrong.take(-1 if step == 1 else 0, axis).any()
                    return f"is what the {word} {name} should have{', from end to end' if wraps else ''}"
        return self._example()

    def _example(self) -> str:
        """The number of wrong entries, and one of them."""
        return (
            f"is wrong in {int(self.reading.wrong.sum())} of {self.reading.wrong.size} entries: at {self._furthest()}"
        )

    def _furthest(self) -> str:
        """The entry that is furthest from what it should be: "query 1, channel 0 it is 2, should be 1"."""
        measured, expected, wrong = self.reading
        index = np.unravel_index(int(np.where(wrong, np.abs(measured - expected), 0.0).argmax()), wrong.shape)
        return f"{place(index, self.axes)} it is {measured[index]:.4g}, should be {expected[index]:.4g}"
