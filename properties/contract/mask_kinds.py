"""The kinds of masks that implementations take: their extent and their entries. Laws use booleans
that broadcast.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from oracles.formats import Format

__all__ = ["ENTRIES", "EXTENTS", "Entries", "Extent"]


@dataclass(frozen=True)
class Extent:
    """What a mask can express, and its shape.

    says          the sentence that describes it
    of_keys       whether the mask is the same for all queries: their axis has size 1
    of_sequences  whether the mask has neither that axis nor an axis of heads, which share it too
    is_length     whether the number of leading true entries is passed instead of the mask
    """

    says: str
    of_keys: bool = False
    of_sequences: bool = False
    is_length: bool = False

    def _once(self, axes: tuple[str, ...]) -> list[int]:
        """The positions, counted from the last, of the named axes along which the mask is constant."""
        head_axes = [
            position
            for position, axis_name in enumerate(axes, -len(axes))
            if axis_name == "num_heads" and self.of_sequences
        ]
        return [*head_axes, -2] if self.of_keys else []

    def shape(self, axes: tuple[str, ...], full: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of a mask with some named axes whose written-out size is `full`."""
        constant_axes = self._once(axes)
        return tuple(1 if position in constant_axes else length for position, length in enumerate(full, -len(full)))

    def drawn(self, mask: Any) -> Any:
        """Return a drawn mask, changed to a mask that this extent can express. A length keeps the
        number of true entries, and moves them to the front.
        """
        return np.arange(mask.shape[-1]) < mask.sum(-1, keepdims=True) if self.is_length and mask is not None else mask

    def written(self, mask: Any, shape: tuple[int, ...]) -> Any:
        """Return a mask in a shape, or None if this extent cannot express it."""
        written = mask.reshape((1,) * (len(shape) - mask.ndim) + mask.shape)
        for axis, length in enumerate(shape):
            if length == 1 < written.shape[axis]:
                first_entry = written.take([0], axis)
                if not (written == first_entry).all():
                    return None
                written = first_entry
        if self.is_length and (written != self.drawn(written)).any():
            return None
        return np.broadcast_to(written, shape).copy()

    def handed(self, mask: Any, axes: tuple[str, ...]) -> Any:
        """Return the form in which a mask is passed: masks of sequences lose the axes of heads and
        queries, and lengths become whole numbers.
        """
        squeezed = np.squeeze(mask, tuple(self._once(axes))) if self.of_sequences else mask
        return squeezed.sum(-1).astype(np.int64) if self.is_length else squeezed


EXTENTS: dict[str, Extent] = {
    "full masks": Extent("It takes masks of the full shape only, none with axes of size 1 or with fewer axes."),
    "key masks": Extent("It takes masks of keys only, of shape (…, 1, n_k).", of_keys=True),
    "padding masks": Extent(
        "It takes masks of keys only, of shape (…, n_k), without axes for heads and queries.",
        of_keys=True,
        of_sequences=True,
    ),
    "key lengths": Extent(
        "It takes no masks, but the number of visible keys of each sequence, which come first, of shape (…).",
        of_keys=True,
        of_sequences=True,
        is_length=True,
    ),
    "no masks": Extent("It takes no masks."),
}
"""The extents, by the words of `supports`. Without such a word masks broadcast."""


@dataclass(frozen=True)
class Entries:
    """The entries of a mask that holds numbers: 0 for a visible key, and a `fill`, which depends on
    the format of inputs, for a masked key.
    """

    says: str
    fill: Callable[[Format], float]

    def given(self, allowed: Any, target: Format) -> Any:
        """Return the mask as numbers: 0 for a visible key, and the fill for a masked key."""
        return np.where(allowed, 0.0, self.fill(target))

    def received(self, found: Any, target: Format) -> Any:
        """Return the booleans of a mask of numbers. Raises ValueError for an entry that is neither
        0 nor the fill.
        """
        is_wrong = (found != 0) & (found != self.fill(target))
        if is_wrong.any():
            index = tuple(int(coordinate) for coordinate in np.argwhere(is_wrong)[0])
            raise ValueError(f"{list(index)}={found[index]}, but should be 0 or {self.fill(target)}.")
        return found == 0


ENTRIES: dict[str, Entries] = {
    "additive masks": Entries(
        "It takes masks of numbers that are added to the scores: 0, and −∞ where a key is masked.",
        lambda target: -np.inf,
    ),
    "finite masks": Entries(
        "It takes masks of numbers that are added to the scores: 0, and the least finite number where a key is masked.",
        lambda target: -target.largest,
    ),
}
"""The entries, by the words of `supports`. Without such a word masks hold booleans."""
