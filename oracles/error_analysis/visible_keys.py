"""Which keys are visible to a query row: by a mask, and by a band around its position among the
keys.
"""

from types import EllipsisType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from oracles.error_analysis.grouped_heads import Shared

Mask = NDArray[np.bool_]


class Visible(NamedTuple):
    """Key j is visible to row i where `mask` (…, n_q, n_k) is true or None, and low ≤ j −
    positions[i] ≤ high.

    A None for `low` or `high` means no limit.  `positions` are (n_q,), or (…, n_q) if they differ
    in the batch. No array of all rows and keys is made: a window over a long sequence is evaluated
    tile by tile, and tiles outside it are skipped.
    """

    mask: Shared | None
    positions: NDArray[np.int64]
    low: int | None = None
    high: int | None = None

    @property
    def everything(self) -> bool:
        """Whether all keys are visible to each row, without a mask and without limits."""
        return self.mask is None and self.low is None and self.high is None

    def at(self, batch: tuple[int, ...] | EllipsisType) -> "Visible":
        """Return the visible keys of one element of the batch, or of all."""
        if batch is ...:
            return self
        positions = self.positions if self.positions.ndim == 1 else self.positions[batch]
        return self._replace(mask=None if self.mask is None else self.mask.at(batch), positions=positions)

    def keys(self, rows: slice, n_k: int) -> range:
        """Return the keys from the first to the last that the limits `low` and `high` make visible
        to any of the given rows.
        """
        positions = self.positions[..., rows]
        if not positions.size:
            return range(0)
        first = 0 if self.low is None else int(positions.min()) + self.low
        last = n_k - 1 if self.high is None else int(positions.max()) + self.high
        return range(max(first, 0), min(last + 1, n_k))

    def tile(self, rows: slice, keys: slice) -> Mask | None:
        """Return which of the given keys are visible to each of the given rows: (…, rows, keys);
        None for all.
        """
        visible = None if self.mask is None else self.mask.tile(rows, keys)
        if self.low is None and self.high is None:
            return visible
        offsets = np.arange(keys.start, keys.stop) - self.positions[..., rows, None]
        for within in (
            None if self.high is None else offsets <= self.high,
            None if self.low is None else offsets >= self.low,
        ):
            if within is not None:
                visible = within if visible is None else visible & within
        return visible
