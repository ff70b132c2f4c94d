"""The shape of one call of attention: its sizes and its options, and zeros of that shape."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from oracles.ball import Array
from properties.contract.operations import BATCH, Operation

__all__ = ["Shape"]


@dataclass(frozen=True)
class Shape:
    """The sizes of one call of attention, by the names of the operation's axes, and its options.

    `batch` has the sizes of the leading axes; `arguments` are the parameters that are neither q, k
    nor v, by name, masks in the spec's polarity.
    """

    sizes: Mapping[str, int]
    batch: tuple[int, ...] = ()
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def zeros(self, operation: Operation, parameter: str) -> Array:
        """The array of zeros that `parameter` is in a call of this shape."""
        axes = operation.axes[parameter]
        return np.zeros([size for axis in axes for size in (self.batch if axis == BATCH else (self.sizes[axis],))])

    def call(self, operation: Operation, **arrays: Array) -> tuple[Any, ...]:
        """The arguments of a call of this shape: zeros, except for the arrays that are given."""
        given: dict[str, Any] = {p: self.zeros(operation, p) for p in ("q", "k", "v") if p in operation.parameters}
        given |= {**self.arguments, **arrays}
        return tuple(given.get(p) for p in operation.parameters)

    def rows(self, operation: Operation, parameter: str) -> tuple[int, ...]:
        """The sizes of all axes of `parameter` but the last: one entry for each of its rows."""
        return self.zeros(operation, parameter).shape[:-1]

    def __str__(self) -> str:
        """The shape in words: "batch 2, num_heads 4, n_q 8"."""
        parts = [f"batch {prod(self.batch)}"] if self.batch else []
        parts += [f"{name} {size}" for name, size in self.sizes.items()]
        parts += [f"{name} {value}" for name, value in self.arguments.items() if not isinstance(value, np.ndarray)]
        return ", ".join(parts)
