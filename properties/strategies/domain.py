"""Defines a domain (a family of test inputs) by sizes of named axes, masks and numbers. Also
defines sizes that several domains share.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from properties.contract.implementation import Implementation
from properties.contract.operations import Operation
from properties.strategies import drawn_masks
from properties.strategies.choices import Choices
from properties.strategies.operating_points import Point

__all__ = [
    "BROAD",
    "EDGES",
    "EVEN",
    "LENGTHS",
    "LONG",
    "ODD",
    "OF_MODELS",
    "SHORT",
    "TILES",
    "WIDTHS",
    "Adjustment",
    "Case",
    "Domain",
]

SHORT = (1, 2, 3, 4, 5, 6, 8, 9, 16, 17, 33)
TILES = (7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 96, 100, 127, 128, 129, 130, 191, 192, 193, 255, 256, 257, 300)
"""Lengths around the tiles of kernels: powers of two and their neighbours, and lengths with a
remainder.
"""

LONG = (*TILES[9:], 511, 512, 513, 640, 1000, 1023, 1024, 1025, 1100)
"""Lengths to 1100, past a tile and past a table of 256, 512 or 1024 rows. An error that grows from
row to row is large there.
"""

LENGTHS = (2, 1, 3, *SHORT * 5, *TILES)
"""Lengths of everyday cases, mostly short."""

WIDTHS = (1, 2, 3, 4, 5, 7, 8, 12, 16)
BROAD = (*WIDTHS, *WIDTHS, 9, 20, 24, 32, 63, 64, 65, 80, 96, 128)
EVEN = (2, 4, 6, 8, 2, 4, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64, 80, 96, 128, 192, 256)
ODD = (1, 3, 5, 7, 9, 11, 15, 17, 33, 63, 65, 127)
OF_MODELS = (32, 64, 80, 96, 128, 24, 40, 48, 56, 63, 65, 72, 112, 127, 129, 160, 192, 256, 512, 576)
"""Widths of heads in models, their neighbours, and multiples of 8."""

EDGES = (0, 1, 2, 3, 16, *(2**n + e for n in range(7, 21) for e in (-2, -1, 0, 1)))
"""Positions next to powers of two."""

Case = dict[str, Any]
"""The arguments of one test input, by parameter."""

Adjustment = Callable[[Operation, Implementation, Case, Choices], None]


@dataclass(frozen=True)
class Domain:
    """A family of test inputs.

    sizes       the sizes to draw; a size without an entry is drawn from the everyday ones
    scales      the scales of arrays to draw; an array without an entry gets an everyday scale
    features    the optional features that every test input of the family uses
    mask        a function that draws masks
    masks_are   "loose" if masks have axes of size 1 or fewer axes, "keys" if they mask keys alone
    rotates     whether rope has some of its options; in other families it has none
    rank        the smallest number of leading (batch) axes
    share       how many of the requested test inputs this family gets, relative to others
    adjust      a function that changes the drawn arrays, or fills the arrays of points
    points      fixed cases: the family has these and no others, for every requested number.
                Their arrays are zeros if `adjust` is None
    """

    name: str
    statement: str
    sizes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    scales: Mapping[str, Sequence[float]] = field(default_factory=dict)
    features: tuple[str, ...] = ()
    mask: drawn_masks.Masks = drawn_masks.any_or_none
    masks_are: Literal["", "loose", "keys"] = ""
    rotates: bool = False
    rank: int = 0
    share: float = 1.0
    adjust: Adjustment | None = None
    points: tuple[Point, ...] = ()
