"""What is put under test: an implementation of some of the operations, and what it is known to do differently."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from properties.bounds import Roundoff

__all__ = ["Implementation"]


@dataclass(frozen=True)
class Implementation:
    """A named implementation.

    `operations` maps an operation's name to a function of NumPy arrays of `dtype`, which it leaves unwritten; `arithmetic` is what it is
    held to. `known_deviations` maps the name of a law that it breaks to the reason; a law declared there must really fail. `even_dims` and
    `unit_last_stride` say that it takes only even widths, or only arrays whose last axis is contiguous.
    """

    name: str
    dtype: str
    arithmetic: Roundoff
    operations: Mapping[str, Callable[..., Any]]
    known_deviations: Mapping[str, str] = field(default_factory=dict)
    even_dims: bool = False
    unit_last_stride: bool = False
