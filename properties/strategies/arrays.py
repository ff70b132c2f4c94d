"""Arrays, masks, sizes and positions: what every strategy is made of.

An array holds multiples of 1/16 up to 8: its first entries are bytes, those after them come from a seed, of which 0 means zeros, and some
entries are drawn by themselves. It is fast to draw, and shrinks to zeros and the entries that matter, whatever its size. Or it holds
normally distributed numbers with all the bits that the format has. All are numbers of the implementation's format, in float64.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any
from zlib import crc32

import numpy as np
from hypothesis import strategies as st

from oracles.ball import Array
from oracles.formats import BINARY64, Format
from properties.implementation import Implementation

__all__ = [
    "BROAD",
    "LENGTHS",
    "POSITIONS",
    "SEVERAL",
    "SHORT",
    "TILES",
    "WIDTHS",
    "Draw",
    "UnsupportedError",
    "also",
    "batches",
    "bits",
    "cuts",
    "fixed_points",
    "grids",
    "live_masks",
    "masks_or_none",
    "numbers",
    "orders",
    "rounded",
    "sizes",
]

Draw = st.DrawFn

_FIRST = 64  # entries of an array that are drawn one by one
_DRAWN = st.binary(min_size=2 + _FIRST + 9, max_size=2 + _FIRST + 9)  # a seed, the first entries, and three more with their places
SHORT = (1, 2, 3, 4, 5, 6, 8, 9, 16, 17, 33)
"""Lengths of everyday cases."""

WIDTHS = (1, 2, 3, 4, 5, 7, 8, 12, 16)
"""Widths of everyday heads."""

TILES = (7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 96, 100, 127, 128, 129, 130, 191, 192, 193, 255, 256, 257, 300)
"""Lengths around the tiles of kernels: powers of two and their neighbours, and lengths that leave tails."""

LENGTHS = (1, 1, 2, *SHORT, *SHORT, *TILES)
"""Lengths of every kind: about as many everyday ones as such around tiles. The length 1 is a special case of its own."""

SEVERAL = tuple(n for n in LENGTHS if n > 1)
"""Lengths of every kind for keys of which some are to be blocked."""

BROAD = (*WIDTHS, *WIDTHS, 9, 20, 24, 32, 63, 64, 65, 80, 96, 128)
"""Widths of every kind, most of them everyday ones: kernels have paths for multiples of 8, and for widths that models have."""

_BOUNDARIES = (
    127,
    128,
    255,
    256,
    257,
    511,
    512,
    1023,
    1024,
    2047,
    2048,
    2049,
    4095,
    4096,
    8192,
    32767,
    32768,
    65535,
    65536,
    2**17 + 1,
    2**20,
)
POSITIONS = st.integers(0, 16) | st.sampled_from(_BOUNDARIES) | st.integers(0, 2**20)
"""Start positions to 2²⁰: small ones, those around which integers, caches and formats of few bits end, and any."""


class UnsupportedError(ValueError):
    """An implementation supports no case of the kind that is to be drawn; the message says why in a sentence."""


def rounded(x: Array, target: Format) -> Array:
    """The nearest numbers of a format, ties to even: multiples of 2ᵉ⁻ᵖ for 2ᵉ⁻¹ ≤ |x| < 2ᵉ, p = −log₂ of the unit roundoff."""
    if target == BINARY64:
        return x
    unit = np.maximum(np.ldexp(target.unit_roundoff, np.frexp(x)[1]), target.smallest_subnormal)
    return np.asarray(np.clip(np.rint(x / unit) * unit, -target.largest, target.largest))


def sizes(i: Implementation, name: str, among: Sequence[int], minus: tuple[str, int] | None = None) -> st.SearchStrategy[int]:
    """One of some sizes, the first the simplest, that the implementation supports under the name.

    With `minus`, another size's name and value, the difference is to be supported as well; then the other's value is often chosen, for
    squares are cases of their own.
    Raises UnsupportedError if none is supported.
    """

    def supported(n: int) -> bool:
        return i.allows(**{name: n}) and (minus is None or i.allows(**{f"{name}_minus_{minus[0]}": n - minus[1]}))

    found = [n for n in (*among, *([minus[1]] * (1 + len(among) // 3) if minus else [])) if supported(n)]
    if not found:
        raise UnsupportedError(f"{i.name} supports no {name} among {list(among)}.")
    return st.sampled_from(found)


def cuts(n: int, supported: Callable[[int], bool]) -> st.SearchStrategy[int]:
    """A length below n at which an axis of length n can be cut, by preference next to a tile; n itself where none is supported."""
    return st.sampled_from([m for m in sorted({*SHORT, *TILES, n // 2, n - 1} - {0}) if m < n and supported(m)] or [n])


def orders(n: int) -> st.SearchStrategy[Any]:
    """Orders of n things, the simplest from last to first."""

    def build(seed: int) -> Any:
        return np.random.default_rng(seed).permutation(n) if seed else np.arange(n)[::-1]

    return st.integers(0, 2**16).map(build)


@st.composite
def also(draw: Draw, cases: st.SearchStrategy[tuple[Any, ...]], more: Callable[..., st.SearchStrategy[Any]]) -> tuple[Any, ...]:
    """The cases with one entry more, drawn from `more` of their entries."""
    case = draw(cases)
    return *case, draw(more(*case))


def batches(i: Implementation, least: int = 0, among: Sequence[int] = (1, 2, 3)) -> st.SearchStrategy[tuple[int, ...]]:
    """Leading axes, at least so many: of the ranks that the implementation takes, each of size 1 to 3, mostly none."""
    ranks = sorted(r for r in i.batch_ranks if r >= least)
    if not ranks:
        raise UnsupportedError(f"{i.name} takes {i.batch_ranks} leading axes, but at least {least} are needed.")
    axis = sizes(i, "batch", among)
    return st.sampled_from([ranks[0], *ranks]).flatmap(lambda rank: st.tuples(*[axis] * rank))


def grids(shape: tuple[int, ...], step: float = 1 / 16) -> st.SearchStrategy[Array]:
    """Multiples of a power of two, from −128 to 127 times it; the same is drawn for every shape, so that sizes shrink too."""
    size = math.prod(shape)

    def build(drawn: bytes) -> Array:
        seed = int.from_bytes(drawn[:2], "big")
        x = np.random.default_rng(seed).integers(-128, 128, size, np.int8) if seed and size > _FIRST else np.zeros(size, np.int8)
        x[:_FIRST] = np.frombuffer(drawn, np.int8, min(size, _FIRST), offset=2)
        for high, low, whole in zip(*[iter(drawn[2 + _FIRST :])] * 3, strict=True) if size else ():
            place = (256 * high + low) % size
            x[place] = (16 if whole % 2 else -16) * (whole // 32) or x[place]
        return np.asarray(x.reshape(shape) * step, np.float64)

    return _DRAWN.map(build)


def fixed_points(i: Implementation, shape: tuple[int, ...]) -> st.SearchStrategy[Array]:
    """Numbers up to 8 whose sums and differences of two are numbers of the inputs' format too; all of its bits but one are in use.

    They are multiples of 8 units in the last place of 1, or, as in a grid, of 1/16.
    """
    bits = round(-math.log2(i.rounding.inputs.unit_roundoff)) - 1

    def build(seed: int) -> Array:
        whole = np.random.default_rng(seed).integers(-(2**bits), 2**bits, shape, endpoint=True)
        return np.asarray(np.ldexp(whole.astype(np.float64), 3 - bits))

    return st.builds(lambda x, whole: build(crc32(x.tobytes())) if whole and x.any() else x, grids(shape), st.booleans())


@st.composite
def numbers(draw: Draw, i: Implementation, shape: tuple[int, ...], scales: Sequence[float] = (1.0,), target: Format | None = None) -> Array:
    """An array of numbers of the inputs' format (or another), of size about 1 times one of the scales, which are powers of two."""
    x = draw(grids(shape))
    if draw(st.booleans()) and x.any():
        x = np.random.default_rng(crc32(x.tobytes())).standard_normal(shape)
    return rounded(x * draw(st.sampled_from(list(scales))), target or i.rounding.inputs)


def bits(size: int) -> st.SearchStrategy[Any]:
    """Booleans, simplest all true; many of them from a seed and a density."""
    if size <= 4 * _FIRST:
        return st.binary(min_size=size, max_size=size).map(lambda b: np.frombuffer(b, np.uint8) % 2 == 0)
    densities = st.sampled_from([1.0, 0.9, 0.5, 0.1])
    return st.builds(lambda p, seed: np.random.default_rng(seed).random(size) < p, densities, st.integers(0, 2**16))


@st.composite
def live_masks(draw: Draw, n_q: int, n_k: int, lead: tuple[int, ...] = ()) -> Any:
    """Masks (…, n_q, n_k) in which every query may attend to a key.

    Bits, causal ones of either alignment, keys from or up to a length, a band, blocks on the diagonal, one row for all.
    """
    kind = draw(st.sampled_from(["bits", "causal", "lengths", "starts", "band", "row", "aligned", "blocks"]))
    i, j = np.arange(n_q)[:, None], np.arange(n_k)
    shape = (*lead, n_q, n_k)
    if kind == "causal":
        found = j <= i
    elif kind == "aligned":
        found = j <= i + n_k - n_q
    elif kind == "blocks":
        count = draw(st.integers(1, 8))
        found = i * count // n_q == j * count // n_k
    elif kind == "band":
        found = np.abs(i * n_k // n_q - j) <= draw(st.integers(0, n_k))
    elif kind == "bits":
        found = draw(bits(math.prod(shape))).reshape(shape)
    elif kind == "row":
        found = draw(bits(n_k))
    else:
        ends = np.reshape(draw(st.lists(st.integers(1, n_k), min_size=math.prod(lead), max_size=math.prod(lead))), (*lead, 1, 1))
        found = j < ends if kind == "lengths" else j >= ends - 1
    mask = np.broadcast_to(found, shape).copy()
    dead = ~mask.any(-1)
    mask[dead, np.flatnonzero(dead) % n_k] = True
    return mask


def masks_or_none(n_q: int, n_k: int, lead: tuple[int, ...] = ()) -> st.SearchStrategy[Any]:
    """No mask, or a live one: for all of the leading axes together, or one for each."""
    return st.none() | live_masks(n_q, n_k) | (live_masks(n_q, n_k, lead) if lead else live_masks(n_q, n_k))
