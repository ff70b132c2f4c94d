"""Defines arrays that test vectors give by a formula instead of their numbers. The numbers are
exact in every format.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from oracles.ball import Array

__all__ = ["Formula"]


@dataclass(frozen=True)
class Formula:
    """An array given by a formula. Entry c of row j is (((a·j + b·c + s) mod 127) − 63) / 16, for
    factors (a, b, s). Rows are counted over all leading axes together.

    `first` replaces the entries of column 0. `rows` has the rows that are given by their numbers.
    """

    shape: tuple[int, ...]
    factors: tuple[int, int, int]
    first: float | None = None
    rows: Mapping[int, tuple[float, ...]] = field(default_factory=dict)

    def array(self) -> Array:
        """Return the numbers of the array."""
        a, b, s = self.factors
        j, c = np.arange(int(np.prod(self.shape[:-1])))[:, None], np.arange(self.shape[-1])
        array = ((a * j + b * c + s) % 127 - 63) / 16
        if self.first is not None:
            array[:, 0] = self.first
        for row, numbers in self.rows.items():
            array[row] = numbers
        return array.reshape(self.shape)

    def told(self) -> dict[str, Any]:
        """Return the formula as JSON, which `of` reads."""
        content: dict[str, Any] = {"shape": list(self.shape), "factors": list(self.factors)}
        if self.first is not None:
            content["first"] = self.first
        if self.rows:
            content["rows"] = {str(row): list(numbers) for row, numbers in self.rows.items()}
        return content

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> "Formula":
        """Return the formula that JSON describes."""
        rows = {int(row): tuple(numbers) for row, numbers in content.get("rows", {}).items()}
        return cls(tuple(content["shape"]), tuple(content["factors"]), content.get("first"), rows)
