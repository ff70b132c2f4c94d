"""Kinds of masks that implementations take: of which extent, and of which entries. Those of laws
are booleans that broadcast.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from oracles.formats import Format

__all__ = ["ENTRIES", "EXTENTS", "Entries", "Extent"]


@dataclass(frozen=True)
class Extent:
    """What a mask can say, and in which shape.

    says          the sentence on it
    of_keys       whether it is the same for all queries, whose axis has size 1
    of_sequences  whether it has neither that axis nor one of heads, for which it is the same too
    is_length     whether it is not handed over itself, but how many of its first entries are true
    """

    says: str
    of_keys: bool = False
    of_sequences: bool = False
    is_length: bool = False

    def _once(self, axes: tuple[str, ...]) -> list[int]:
        """The places, from the last, of the named axes along which it is the same."""
        heads = [place for place, name in enumerate(axes, -len(axes)) if name == "num_heads" and self.of_sequences]
        return [*heads, -2] if self.of_keys else []

    def shape(self, axes: tuple[str, ...], full: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of a mask of some named axes that is of size `full` if it is written out."""
        once = self._once(axes)
        return tuple(1 if place in once else n for place, n in enumerate(full, -len(full)))

    def drawn(self, mask: Any) -> Any:
        """A mask that is chosen, as one that this extent can say: with as many true entries, which come first."""
        return np.arange(mask.shape[-1]) < mask.sum(-1, keepdims=True) if self.is_length and mask is not None else mask

    def written(self, mask: Any, shape: tuple[int, ...]) -> Any:
        """A mask in a shape, or None where it says more than this extent can."""
        found = mask.reshape((1,) * (len(shape) - mask.ndim) + mask.shape)
        for axis, n in enumerate(shape):
            if n == 1 < found.shape[axis]:
                first = found.take([0], axis)
                if not (found == first).all():
                    return None
                found = first
        if self.is_length and (found != self.drawn(found)).any():
            return None
        return np.broadcast_to(found, shape).copy()

    def handed(self, mask: Any, axes: tuple[str, ...]) -> Any:
        """A mask as it is handed over: of sequences without axes for heads and queries, as
        booleans, or as whole numbers.
        """
        kept = np.squeeze(mask, tuple(self._once(axes))) if self.of_sequences else mask
        return kept.sum(-1).astype(np.int64) if self.is_length else kept


EXTENTS: dict[str, Extent] = {
    "full masks": Extent("It takes masks of the full shape only, none with axes of size 1 or with fewer axes."),
    "key masks": Extent("It takes masks of keys only, of shape (…, 1, n_k).", of_keys=True),
    "padding masks": Extent(
        "It takes masks of keys only, of shape (…, n_k), without axes for heads and queries.",
        of_keys=True,
        of_sequences=True,
    ),
    "key lengths": Extent(
        "It takes no masks, but how many of its first keys each sequence may read, of shape (…).",
        of_keys=True,
        of_sequences=True,
        is_length=True,
    ),
    "no masks": Extent("It takes no masks."),
}
"""By the word that `supports` may hold. Without one of them masks broadcast."""


@dataclass(frozen=True)
class Entries:
    """What masks are made of that are no booleans: 0 where a key may be read, and a `fill`, by the
    format of inputs, where not.
    """

    says: str
    fill: Callable[[Format], float]

    def given(self, allowed: Any, target: Format) -> Any:
        """The mask of these numbers."""
        return np.where(allowed, 0.0, self.fill(target))

    def received(self, found: Any, target: Format) -> Any:
        """The booleans of a mask of these numbers; ValueError where an entry is none of the two."""
        wrong = (found != 0) & (found != self.fill(target))
        if wrong.any():
            index = tuple(int(place) for place in np.argwhere(wrong)[0])
            raise ValueError(f"{list(index)}={found[index]}, but should be 0 or {self.fill(target)}.")
        return found == 0


ENTRIES: dict[str, Entries] = {
    "additive masks": Entries(
        "It takes masks of numbers that are added to the scores: 0, and −∞ where a key is masked.", lambda f: -np.inf
    ),
    "finite masks": Entries(
        "It takes masks of numbers that are added to the scores: 0, and the least finite number where a key is masked.",
        lambda f: -f.largest,
    ),
}
"""By the word that `supports` may hold. Without one of them masks are of booleans."""
