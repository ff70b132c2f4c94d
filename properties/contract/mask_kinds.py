"""Converts the boolean masks that laws use to the kinds of masks that implementations take. A kind
has an extent (such as one mask for all queries) and entries (such as 0 and −∞).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from oracles.formats import Format

__all__ = ["ENTRIES", "EXTENTS", "Entries", "Extent"]


@dataclass(frozen=True)
class Extent:
    """Which masks a kernel's mask argument can express, and the shape of that argument.

    says          the sentence that describes it
    of_keys       whether the mask is the same for all queries: the axis of queries has size 1
    of_sequences  whether the mask has no axis of queries and no axis of heads, so that all queries
                  and all heads share it
    is_length     whether a number is passed instead of the mask: how many leading entries are true
    """

    says: str
    of_keys: bool = False
    of_sequences: bool = False
    is_length: bool = False

    def _once(self, axes: tuple[str, ...]) -> list[int]:
        """Return the positions of the axes along which the mask is constant, counted from the last
        axis.
        """
        head_axes = [
            position
            for position, axis_name in enumerate(axes, -len(axes))
            if axis_name == "num_heads" and self.of_sequences
        ]
        return [*head_axes, -2] if self.of_keys else []

    def shape(self, axes: tuple[str, ...], full: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of a mask argument. `axes` are the names of the mask's last axes, and
        `full` is the shape of a mask that is written out in full.
        """
        constant_axes = self._once(axes)
        return tuple(1 if position in constant_axes else length for position, length in enumerate(full, -len(full)))

    def drawn(self, mask: Any) -> Any:
        """Return a drawn mask, changed so that this extent can express it. For a length, the true
        entries move to the front, and their number stays.
        """
        return np.arange(mask.shape[-1]) < mask.sum(-1, keepdims=True) if self.is_length and mask is not None else mask

    def written(self, mask: Any, shape: tuple[int, ...]) -> Any:
        """Return a mask in the given shape, or None if this extent cannot express the mask."""
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
        """Return a mask in the form in which the kernel gets it. Masks of sequences lose the axes
        of heads and queries. Lengths become whole numbers.
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
"""The extents of masks, by the words of `supports`. Without such a word masks may broadcast."""


@dataclass(frozen=True)
class Entries:
    """The entries of a mask of numbers: 0 for a visible key, and `fill` for a masked key. The fill
    depends on the format of the inputs.
    """

    says: str
    fill: Callable[[Format], float]

    def given(self, allowed: Any, target: Format) -> Any:
        """Return the mask as numbers: 0 for a visible key, and the fill for a masked key."""
        return np.where(allowed, 0.0, self.fill(target))

    def received(self, found: Any, target: Format) -> Any:
        """Return a mask of numbers as booleans. Raises ValueError for an entry that is neither 0
        nor the fill.
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
"""The entries of masks, by the words of `supports`. Without such a word masks are booleans."""
