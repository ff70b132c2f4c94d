"""What is put under test: an implementation of some of the operations, and what it is known to do differently."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from oracles import Arithmetic

__all__ = ["Dtype", "Implementation"]

Dtype = Literal["float64", "float32", "float16", "bfloat16"]


@dataclass(frozen=True)
class Implementation:
    """A named implementation.

    `operations` maps an operation's name to a function of NumPy arrays, which it leaves unwritten. They hold numbers of `dtype`; bfloat16,
    which NumPy has not, as float32. `arithmetic` is what it is held to; None holds a high-precision implementation to the oracle's own
    enclosure of the exact value. `known_deviations` maps the name of a law that it breaks to the reason; a law declared there must really
    fail. `even_dims` and `unit_last_stride` say that it takes only even widths, or only arrays whose last axis is contiguous.
    """

    name: str
    dtype: Dtype
    arithmetic: Arithmetic | None
    operations: Mapping[str, Callable[..., Any]]
    known_deviations: Mapping[str, str] = field(default_factory=dict)
    even_dims: bool = False
    unit_last_stride: bool = False
