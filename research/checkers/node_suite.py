"""The calls of ONNX's node suite: Attention, RotaryEmbedding and Softmax, by their shapes,
attributes and draws.

Read at onnx/onnx, revision f7546912001bc31e92a238b17068a21b373d882e, on 2026-11-22:
`onnx/backend/test/case/node/attention.py`, `rotaryembedding.py` and `softmax.py`. Numbers are
uniform on [0, 1). Boolean masks are such numbers converted to booleans, so every key is visible.
Cases of three dimensions have the same numbers as cases of four. Keys of a cache are part of k and
v here, and the queries' offset gives their number. FlexAttention, whose scores a graph modifies, is
left out, and so are the outputs of the product of q and k.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from oracles.formats import BINARY16, BINARY32, Format
from properties.strategies.choices import rounded
from research.checkers.trial import Trial, posed

__all__ = ["trials"]

_PLAIN, _GROUPED, _WIDE = (
    ((2, 3, 4, 8), (2, 3, 6, 8), 8),
    ((2, 9, 4, 8), (2, 3, 6, 8), 8),
    ((2, 3, 4, 8), (2, 3, 6, 8), 10),
)
_KINDS = (_PLAIN, _GROUPED, _WIDE)
_PAST = 12  # keys of the cache, before the six that are new
_BLOCKED = np.where(np.arange(6) < 4, 0.0, -np.inf) * np.ones((4, 1))
_ONE, _NONE = np.array([[True, False], [False, False]]), np.array([[False, False], [True, True]])
_COMPOSED = np.array(
    [
        [[[1, 1, 1, 0, 0, 0], [1, 1, 1, 0, 0, 0], [1, 0, 1, 1, 0, 0]]],
        [[[1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 0, 0], [1, 1, 0, 1, 1, 0]]],
    ],
    bool,
)

_Row = tuple[tuple[int, ...], tuple[int, ...], int, dict[str, Any]]
"""Shape of q, shape of k, width of v, options; a bias is the shape of uniform numbers, or the numbers."""


def _longer(kind: tuple[Any, Any, int]) -> tuple[Any, Any, int]:
    q, (batch, heads, n, width), of_values = kind
    return q, (batch, heads, n + _PAST, width), of_values


def _leading(lengths: list[int], n_k: int) -> Any:
    """A mask of the keys before the padding, for each element of the batch."""
    return np.arange(n_k) < np.array(lengths)[:, None, None, None]


def _cached(lengths: list[int], n_q: int, n_k: int) -> dict[str, Any]:
    """The options of a cache with room for n_k keys, filled up to a number of keys: causal, aligned
    with its last key.
    """
    return {"causal": True, "mask": _leading(lengths, n_k), "offset": np.array(lengths) - n_q}


def _rows() -> Iterator[_Row]:
    for kind in _KINDS:
        for options in ({}, {"scale": 1e-2}, {"causal": True}, {"bias": (4, 6)}, {"softcap": 2.0}, {"softcap": 3.0}):
            yield *kind, options
        yield *_longer(kind), {"bias": (4, 6 + _PAST)}
    shape: tuple[int, ...]
    for shape in ((2, 1, 4, 6), (2, 3, 4, 6)):
        yield *_PLAIN, {"bias": shape}
        yield *_PLAIN, {"bias": shape, "causal": True}
        yield *_longer(_WIDE), {"bias": (*shape[:3], 6 + _PAST)}
        yield *_longer(_PLAIN), {"bias": (*shape[:3], 6 + _PAST)}
        yield *_longer(_PLAIN), {"bias": (*shape[:3], 6 + _PAST), "causal": True, "offset": _PAST}
    for shape in ((4, 6), (2, 3, 4, 6)):
        yield *_PLAIN, {"mask": np.ones(shape, bool)}
    yield *_PLAIN, {"bias": (4, 6), "softcap": 2.0}
    yield *_longer(_PLAIN), {"bias": (4, 6 + _PAST), "softcap": 2.0}
    yield *_WIDE, {"mask": _leading([3, 4], 6)}  # its bias is of four keys, and the rest is padding
    yield (1, 1, 4, 8), (1, 1, 6, 8), 8, {"bias": _BLOCKED, "softcap": 0.5}
    yield (2, 4, 1, 8), (2, 2, 8, 8), 8, _cached([8, 5], 1, 8)
    yield (1, 2, 2, 8), (1, 2, 4, 8), 8, _cached([4], 2, 4)
    yield (1, 2, 4, 8), (1, 2, 4, 8), 8, _cached([2], 4, 4)
    yield (3, 2, 2, 8), (3, 2, 6, 8), 8, _cached([4, 5, 6], 2, 6)
    composed = _cached([4, 5], 3, 6)
    yield (2, 2, 3, 8), (2, 2, 6, 8), 8, composed | {"mask": composed["mask"] & _COMPOSED}
    yield (2, 3, 4, 8), (2, 3, 7, 8), 8, {"causal": True, "offset": 3}
    yield (1, 2, 2, 8), (1, 2, 2, 8), 8, {"causal": True, "mask": _ONE}
    yield (1, 2, 2, 8), (1, 2, 2, 8), 8, {"mask": _NONE}
    yield *_PLAIN, {"causal": True, "window": (2, None)}
    yield *_PLAIN, {"causal": True, "window": (2, None), "mask": np.arange(6) < 4}
    yield (2, 3, 4, 8), (2, 3, 10, 8), 8, {"causal": True, "window": (2, None), "offset": 8}
    for shape in ((3, 4, 8), (2, 1, 4, 8), (1, 8)):
        yield (2, 3, 4, 8), (2, 3, 8, 8), 8, {**_cached([6, 7], 4, 8), "window": (2, None), "bias": shape}
    yield (2, 4, 4, 8), (2, 1, 6, 8), 6, {"causal": True, "window": (2, None)}


def trials() -> Iterator[Trial]:
    """Every call of the suite."""
    rng = np.random.default_rng(0)
    for q, k, width, options in _rows():
        if "bias" in options and isinstance(options["bias"], tuple):
            options = options | {"bias": rounded(rng.random(options["bias"]), BINARY32)}
        formats: tuple[Format, ...] = (BINARY32, BINARY16) if not options else (BINARY32,)
        for target in formats:
            yield from posed((rng.random(q), rng.random(k), rng.random((*k[:3], width))), target, options=options)
    nothing = np.zeros((1, 1, 5, 1))
    yield from posed((nothing, nothing, np.arange(5.0).reshape(1, 1, 5, 1)), BINARY32, options={"window": (1, 2)})
    poisoned = rng.random((1, 1, 6, 8))
    poisoned[:, :, 4:] = 1000.0
    yield from posed(
        (rng.random((1, 1, 4, 8)), rng.random((1, 1, 6, 8)), poisoned),
        BINARY32,
        options={"bias": _BLOCKED, "softcap": 0.5},
    )
    yield from _rotations(rng)
    for x in (np.array([[-1.0, 0, 1]]), np.arange(4) + np.array([[0.0], [10000]])):
        yield _softmax(x)
    for axis in range(3):
        yield _softmax(np.abs(rng.standard_normal((3, 4, 5))).swapaxes(axis, 2))


def _softmax(x: Any) -> Trial:
    return Trial("hard_masked_softmax", (rounded(np.ascontiguousarray(x), BINARY32), None), BINARY32, ("weights",))


def _rotations(rng: np.random.Generator) -> Iterator[Trial]:
    """RotaryEmbedding with caches of uniform numbers: the part that is rotated, pairs side by side,
    each element of the batch apart.
    """
    for width in (8, 8, 8, 4, 4, 8, 8, 4):
        for _ in range(2):
            x, angles = rng.random((4, 3, width)), rng.random((2, 3, width // 2))
            cos, sin = (rounded(table.repeat(2, -1), BINARY32) for table in angles)
            yield Trial("apply_rotary", (rounded(x, BINARY32), cos, sin), BINARY32, ("out",))
