"""What is put under test: an implementation of some of the operations, and what it is known to do differently."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from oracles import Arithmetic, Conventions

__all__ = ["Deviation", "Dtype", "Implementation"]

Dtype = Literal["float64", "float32", "float16", "bfloat16"]


@dataclass(frozen=True)
class Deviation:
    """What an implementation does instead, as conventions of the oracle in which the law holds, and the reason."""

    reason: str
    conventions: Conventions


@dataclass(frozen=True)
class Implementation:
    """A named implementation.

    `operations` maps an operation's name to a function of NumPy arrays, which it leaves unwritten. They hold numbers of `dtype`; bfloat16,
    which NumPy has not, as float32. `arithmetic` is what it is held to; None holds a high-precision implementation, which returns mpf, to
    the oracle's own enclosure of the exact value. `known_deviations` maps the name of a law that it breaks to what it does instead; a
    deviation declared there must really happen. `even_dims`, `even_heads` and `unit_last_stride` say that it takes only even widths, only
    even numbers of heads, or only arrays whose last axis is contiguous.
    """

    name: str
    dtype: Dtype
    arithmetic: Arithmetic | None
    operations: Mapping[str, Callable[..., Any]]
    known_deviations: Mapping[str, Deviation] = field(default_factory=dict)
    even_dims: bool = False
    even_heads: bool = False
    unit_last_stride: bool = False

    def conventions(self, law: str) -> Conventions:
        """The conventions in which it keeps a law: the default ones, or those of its declared deviation from it."""
        deviation = self.known_deviations.get(law)
        return deviation.conventions if deviation else Conventions()

    @property
    def input_dtype(self) -> str:
        """The NumPy type of its inputs."""
        return "float32" if self.dtype == "bfloat16" else self.dtype

    @property
    def array_dtype(self) -> str:
        """The NumPy type of what it returns."""
        return "object" if self.arithmetic is None else self.input_dtype
