"""Arrays that are said by a formula instead of their numbers, which are exact in every format."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from oracles.ball import Array

__all__ = ["Formula"]


@dataclass(frozen=True)
class Formula:
    """Entry c of row j, all leading axes taken together, is (((a·j + b·c + s) mod 127) − 63) / 16,
    for factors (a, b, s).

    `first` is what stands in column 0 instead, and `rows` has the rows that are otherwise.
    """

    shape: tuple[int, ...]
    factors: tuple[int, int, int]
    first: float | None = None
    rows: Mapping[int, tuple[float, ...]] = field(default_factory=dict)

    def array(self) -> Array:
        """Its numbers."""
        a, b, s = self.factors
        width = self.shape[-1]
        j, c = np.arange(int(np.prod(self.shape[:-1])))[:, None], np.arange(width)
        found = ((a * j + b * c + s) % 127 - 63) / 16
        if self.first is not None:
            found[:, 0] = self.first
        for row, numbers in self.rows.items():
            found[row] = numbers
        return found.reshape(self.shape)

    def told(self) -> dict[str, Any]:
        """It as JSON."""
        told: dict[str, Any] = {"shape": list(self.shape), "factors": list(self.factors)}
        first = {} if self.first is None else {"first": self.first}
        return (
            told
            | first
            | ({"rows": {str(row): list(numbers) for row, numbers in self.rows.items()}} if self.rows else {})
        )

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> "Formula":
        """What JSON says."""
        rows = {int(row): tuple(numbers) for row, numbers in told.get("rows", {}).items()}
        return cls(tuple(told["shape"]), tuple(told["factors"]), told.get("first"), rows)
