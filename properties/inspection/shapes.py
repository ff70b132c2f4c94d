"""The shape of one call: its sizes and its options, and zeros of that shape."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np

from properties.contract.operations import BATCH, Arguments, Operation
from properties.contract.support import SIZES
from properties.inspection.array import Array

__all__ = ["CHOSEN", "Shape", "shape_of"]

CHOSEN = (
    *("q", "k", "v", "x", "scores", "wq", "wk", "wv", "wo", "grad_out", "grad_weights"),
    *("k_pages", "v_pages"),
    *("dq", "dk", "dv", "dx", "dwq", "dwk", "dwv", "dwo", "out_a", "lse_a", "out_b", "lse_b"),
)
"""The arrays that the instruments choose."""

_OF_PAIRS = {"inv_freq", "rotary_dim", "sections"}


@dataclass(frozen=True)
class Shape:
    """The sizes of one call, by the names of the operation's axes, and its options.

    `batch` has the sizes of the leading axes. `arguments` are the parameters that the instruments
    do not choose, by name: masks in the spec's polarity, options, a first position.
    """

    sizes: Mapping[str, int]
    batch: tuple[int, ...] = ()
    arguments: Mapping[str, Any] = field(default_factory=dict)

    @property
    def lead(self) -> tuple[str, ...]:
        """The names of the leading axes. The last of several is the axis of heads, unless the operation
        has its own.
        """
        has_own = bool(self.sizes.keys() & {"num_heads", "heads_width"})
        heads = ("head",) if len(self.batch) > 1 and not has_own else ()
        return (*["batch"] * (len(self.batch) - len(heads)), *heads)

    def zeros(self, operation: Operation, parameter: str) -> Array:
        """The array of zeros that `parameter` is in a call of this shape."""
        axes = operation.axes[parameter]
        return np.zeros([size for axis in axes for size in (self.batch if axis == BATCH else (self.sizes[axis],))])

    def call(self, operation: Operation, **arrays: Any) -> Arguments:
        """The arguments of a call of this shape: zeros, except for what is given."""
        zeros = {name: self.zeros(operation, name) for name in CHOSEN if name in operation.parameters}
        given: dict[str, Any] = {**zeros, **self.arguments, **arrays}
        return tuple(given.get(parameter) for parameter in operation.parameters)

    def rows(self, operation: Operation, parameter: str) -> tuple[int, ...]:
        """The sizes of all axes of `parameter` but the last: one entry for each of its rows."""
        return self.zeros(operation, parameter).shape[:-1]

    def changed(self, operation: Operation, batch: tuple[int, ...] | None = None, **sizes: int) -> "Shape":
        """The shape with other sizes, of those that the operation has. Arrays among the options are
        repeated, or cut, along the axes whose size changes. Options of pairs of channels fix the
        width.
        """
        fixed = {"head_dim"} if self.arguments.keys() & _OF_PAIRS else set()
        known = {name: size for name, size in sizes.items() if name in self.sizes.keys() - fixed}
        other = replace(self, sizes={**self.sizes, **known}, batch=self.batch if batch is None else batch)
        return replace(other, arguments={name: self._option(operation, name, other) for name in self.arguments})

    def _option(self, operation: Operation, name: str, other: "Shape") -> Any:
        """An option as another shape needs it."""
        value = self.arguments[name]
        if not isinstance(value, np.ndarray):
            return value
        if name == "positions" and "sections" in self.arguments:  # time, height and width come first
            return np.stack([_resized(each, self, other, operation.axes[name]) for each in value])
        array = _resized(value, self, other, operation.axes[name])
        full = _lengths(other, operation.axes[name])
        is_whole = not operation.broadcasts(name) and BATCH in operation.axes[name]
        return np.broadcast_to(array, full) if is_whole else array

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
    sizes, wanted = (_lengths(shape, axes)[::-1] for shape in (old, new))
    for place, (size, length) in enumerate(zip(sizes, wanted, strict=False), 1):
        if place <= array.ndim and array.shape[-place] == size:
            array = np.take(array, np.arange(length), -place, mode="wrap")
    return array.reshape(-1, *array.shape[-len(wanted) :])[0] if array.ndim > len(wanted) else array


def _lengths(shape: Shape, axes: Sequence[str]) -> list[int]:
    """The sizes of some axes; an axis that only an option has has size 0, which no array has."""
    return [size for axis in axes for size in (shape.batch if axis == BATCH else (shape.sizes.get(axis, 0),))]


def shape_of(operation: Operation, arguments: Sequence[Any]) -> Shape:
    """The shape of a call, with everything that the instruments do not choose as an option."""
    axes = {axis for name in CHOSEN if name in operation.parameters for axis in operation.axes[name]}
    sizes = operation.sizes(tuple(arguments))
    return Shape(
        {name: sizes[name] for name in (*SIZES, "heads_width") if name in axes and name in sizes},
        operation.lead(tuple(arguments)),
        {name: value for name, value in operation.named(arguments).items() if name not in CHOSEN and value is not None},
    )
