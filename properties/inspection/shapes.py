"""The shape of one call: its sizes and its options, and zeros of that shape."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np

from properties.contract.operations import BATCH, Operation
from properties.contract.support import SIZES
from properties.inspection.array import Array

__all__ = ["Shape", "shape_of"]

_CHOSEN = ("q", "k", "v", "x", "grad_out")
"""The arrays that the instruments choose."""


@dataclass(frozen=True)
class Shape:
    """The sizes of one call, by the names of the operation's axes, and its options.

    `batch` has the sizes of the leading axes. `arguments` are the parameters that the instruments
    do not choose, by name: masks in the spec's polarity, options, a first position.
    """

    sizes: Mapping[str, int]
    batch: tuple[int, ...] = ()
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def zeros(self, operation: Operation, parameter: str) -> Array:
        """The array of zeros that `parameter` is in a call of this shape."""
        axes = operation.axes[parameter]
        return np.zeros([size for axis in axes for size in (self.batch if axis == BATCH else (self.sizes[axis],))])

    def call(self, operation: Operation, **arrays: Any) -> tuple[Any, ...]:
        """The arguments of a call of this shape: zeros, except for what is given."""
        zeros = {name: self.zeros(operation, name) for name in _CHOSEN if name in operation.parameters}
        given: dict[str, Any] = {**zeros, **self.arguments, **arrays}
        return tuple(given.get(parameter) for parameter in operation.parameters)

    def rows(self, operation: Operation, parameter: str) -> tuple[int, ...]:
        """The sizes of all axes of `parameter` but the last: one entry for each of its rows."""
        return self.zeros(operation, parameter).shape[:-1]

    def changed(self, operation: Operation, batch: tuple[int, ...] | None = None, **sizes: int) -> "Shape":
        """The shape with other sizes, of those that the operation has. Arrays among the options are
        repeated, or cut, along the axes whose size changes.
        """
        known = {name: size for name, size in sizes.items() if name in self.sizes}
        other = replace(self, sizes={**self.sizes, **known}, batch=self.batch if batch is None else batch)
        options = {
            name: _resized(value, self, other, operation.axes[name]) if isinstance(value, np.ndarray) else value
            for name, value in self.arguments.items()
        }
        return replace(other, arguments=options)

    def only(self, *options: str) -> "Shape":
        """The shape without all other options."""
        return replace(self, arguments={name: self.arguments[name] for name in options if name in self.arguments})

    def beside(self, other: "Shape") -> str:
        """The sizes that differ from another shape's, in words: "batch 2, n_q 8"."""
        parts = [f"batch {prod(self.batch)}"] if self.batch != other.batch else []
        return ", ".join(
            [*parts, *(f"{name} {size}" for name, size in self.sizes.items() if size != other.sizes[name])]
        )


def _resized(array: Array, old: Shape, new: Shape, axes: Sequence[str]) -> Array:
    """An option of one shape, repeated or cut for another one. Axes that broadcast stay."""
    if BATCH in axes and array.ndim == len(old.batch) + len(axes) - 1 and len(old.batch) != len(new.batch):
        one = array.reshape(-1, *array.shape[len(old.batch) :])[0]
        array = np.broadcast_to(one, (*new.batch, *one.shape))
        old = replace(old, batch=new.batch)
    for place, (size, now) in enumerate(zip(_lengths(old, axes)[::-1], _lengths(new, axes)[::-1], strict=True), 1):
        if place <= array.ndim and array.shape[-place] == size:
            array = np.take(array, np.arange(now), -place, mode="wrap")
    return array


def _lengths(shape: Shape, axes: Sequence[str]) -> list[int]:
    """The sizes of some axes; an axis that only an option has has size 0, which no array has."""
    return [size for axis in axes for size in (shape.batch if axis == BATCH else (shape.sizes.get(axis, 0),))]


def shape_of(operation: Operation, arguments: Sequence[Any]) -> Shape:
    """The shape of a call, with everything that the instruments do not choose as an option."""
    axes = {axis for name in _CHOSEN if name in operation.parameters for axis in operation.axes[name]}
    sizes = operation.sizes(tuple(arguments))
    return Shape(
        {name: sizes[name] for name in SIZES if name in axes and name in sizes},
        operation.lead(tuple(arguments)),
        {
            name: value
            for name, value in operation.named(arguments).items()
            if name not in _CHOSEN and value is not None
        },
    )
