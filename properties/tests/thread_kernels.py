"""Twenty mistakes from public threads, as small kernels. `THREADS` has for each number of a thread a
function that makes the kernel from a flag: with the mistake, or without.
"""

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from oracles import Conventions
from properties import Implementation
from properties.bugs.reference import REFERENCE
from properties.tests.measured_kernels import KERNELS, ONLY_EVEN, SDPA, heads_of, of_attention, scale_of, softmax

__all__ = ["STATEFUL", "THREADS"]

_HALF = Conventions(rope_pairing="half", odd_lane="reject")


def mask_programs(wrong: bool) -> Implementation:
    """Compiled programs; with the mistake, their key has no shape of the mask, whose strides are fixed."""
    programs: dict[Any, Any] = {}

    def attention(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
        shape = None if mask is None else mask.shape
        key = q.shape, k.shape, v.shape, mask is not None, None if wrong else shape
        compiled = programs.setdefault(key, shape)
        return REFERENCE[SDPA](q, k, v, None if mask is None else _buffer(mask, compiled))

    return Implementation("masks", {SDPA: attention})


def _buffer(mask: Any, shape: tuple[int, ...]) -> Any:
    """The buffer of the mask in a shape; False beyond its end."""
    numbers = np.zeros(int(np.prod(shape)), bool)
    numbers[: mask.size] = mask.ravel()[: numbers.size]
    return numbers.reshape(shape)


def position_programs(wrong: bool) -> Implementation:
    """Compiled rotations; with the mistake, the key of one row does not say whether a position is given."""
    programs: dict[Any, bool] = {}

    def rope(x: Any, start_pos: int = 0) -> Any:
        key = x.shape, None if wrong and x.shape[-2] == 1 else start_pos > 0
        adds_position = programs.setdefault(key, start_pos > 0)
        return REFERENCE["rope"](x, start_pos if adds_position else 0)

    return Implementation("positions", {"rope": rope})


def captured_pages(wrong: bool) -> Implementation:
    """A graph for each shape; with the mistake, it reads the keys and values of its first call."""
    graphs: dict[Any, int] = {}
    pages: list[Any] = []

    def attention(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
        pages.append((k.copy(), v.copy()))
        captured = graphs.setdefault((q.shape, k.shape, v.shape), len(pages) - 1)
        return REFERENCE[SDPA](q, *pages[captured if wrong else len(pages) - 1])

    return Implementation("pages", {SDPA: attention}, supports="no masks")


def heads_of_a_warp(wrong: bool) -> Implementation:
    """A rotation of the first channels; with the mistake, from 10240 rows on, every second head gets its
    partners from the head before.
    """

    def rope(x: Any, start_pos: int = 0, *, rotary_dim: Any = None) -> Any:
        width = x.shape[-1] if rotary_dim is None else rotary_dim
        if x.shape[-1] % 2 or width % 2:
            raise ValueError(f"The widths {x.shape[-1]} and {width} should be even.")
        first, second = x[..., : width // 2], x[..., width // 2 : width]
        angles = np.arange(start_pos, start_pos + x.shape[-2])[:, None] * 1e4 ** (
            -np.arange(0, width, 2) / max(width, 1)
        )
        cosines, sines = np.cos(angles), np.sin(angles)
        partner, other = second, first
        if wrong and width < x.shape[-1] and x.ndim > 2 and np.prod(x.shape[:-1]) >= 10240:
            is_late = (np.arange(x.shape[-3]) % 2 == 1)[:, None, None]
            partner, other = (np.where(is_late, np.roll(each, 1, -3), each) for each in (second, first))
        turned = first * cosines - partner * sines, second * cosines + other * sines, x[..., width:]
        return np.concatenate(turned, -1)

    return Implementation("warps", {"rope": rope}, conventions=_HALF, features=("rotary_dim",), supports=ONLY_EVEN)


def last_tile(wrong: bool) -> Implementation:
    """A softmax in tiles of 32; with the mistake, the last one of more than 16 lacks the maximum in the sum."""

    def attends(scores: Any, mask: Any = None) -> Any:
        scores = scores if mask is None else np.where(mask, scores, -np.inf)
        highest = scores.max(-1, keepdims=True, initial=-np.inf)
        shift = np.where(np.isfinite(highest), highest, 0.0)
        number = scores.shape[-1]
        is_last = np.arange(number) >= (number - 1) // 32 * 32
        with np.errstate(over="ignore"):
            terms = np.exp(scores - np.where(is_last & (number > 512) & wrong, 0.0, shift))
        total = terms.sum(-1, keepdims=True)
        return np.exp(scores - shift) / np.where(total == 0, 1, total)

    return Implementation("last tile", {"hard_masked_softmax": attends})


def _added(terms: Any, dtype: Any, axis: int) -> Any:
    """The sum of terms, added one after the other in a type."""
    total = np.zeros_like(terms.take(0, axis), dtype)
    for place in range(terms.shape[axis]):
        total = (total + terms.take(place, axis)).astype(dtype)
    return total


def narrow_rows(wrong: bool) -> Implementation:
    """A softmax of float16 numbers; with the mistake, rows are added up in float16."""

    def attends(scores: Any, mask: Any = None) -> Any:
        scores = scores.astype(np.float32)
        scores = scores if mask is None else np.where(mask, scores, np.float32(-np.inf))
        highest = scores.max(-1, keepdims=True, initial=-np.inf)
        powers = np.exp(scores - np.where(np.isfinite(highest), highest, np.float32(0)))
        powers = powers.astype(np.float16).astype(np.float32) if wrong else powers
        total = _added(powers, np.float16, -1) if wrong and powers.shape[-1] else powers.sum(-1)
        total = np.where(total == 0, 1, total).astype(np.float32)[..., None]
        return (powers / total).astype(np.float16)

    return Implementation("narrow rows", {"hard_masked_softmax": attends}, "float16")


def narrow_values(wrong: bool) -> Implementation:
    """Attention in bfloat16; with the mistake, weighted values are added up in bfloat16."""

    def attention(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
        q, k, v = (x.astype(np.float32) for x in (q, k, v))
        scores = q @ k.swapaxes(-1, -2) * np.float32(scale_of(q))
        scores = scores if mask is None else np.where(mask, scores, np.float32(-np.inf))
        weights = softmax(scores)[0].astype(ml_dtypes.bfloat16).astype(np.float32)
        if not wrong or not k.shape[-2]:
            return (weights @ v).astype(ml_dtypes.bfloat16)
        return _added(weights[..., None] * v[..., None, :, :], ml_dtypes.bfloat16, -2)

    return Implementation("narrow values", {SDPA: attention}, "bfloat16")


def open_tanh(wrong: bool) -> Implementation:
    """A softcap by (e²ˣ − 1) / (e²ˣ + 1); with the mistake, x is not bounded before."""

    def attention(q: Any, k: Any, v: Any, *, scale: Any = None, softcap: Any = None) -> Any:
        single = np.float32
        k, v = heads_of(q, k, v)
        scores = q @ k.swapaxes(-1, -2) * single(scale_of(q) if scale is None else scale)
        if softcap is not None:
            x = scores / single(softcap)
            x = x if wrong else np.clip(x, single(-20), single(20))
            with np.errstate(over="ignore", invalid="ignore"):
                powers = np.exp(single(2) * x)
                scores = single(softcap) * ((powers - single(1)) / (powers + single(1)))
        with np.errstate(invalid="ignore"):
            weights, lse = softmax(scores)
        return weights @ v, lse.astype(single)

    return of_attention("open tanh", attention, "softcap", arithmetic="float32-tanh-by-exponentials")


def _visible(n_q: int, n_k: int, causal: bool, mask: Any) -> Any:
    """The keys that a causal flag and a mask leave visible."""
    visible = np.arange(n_q)[:, None] >= np.arange(n_k) if causal else np.ones((n_q, n_k), bool)
    return visible if mask is None else visible & mask


def lower_tiles(wrong: bool) -> Implementation:
    """Tiles of 16; with the mistake, causal tiles below the diagonal of their first row take no mask."""

    def attention(q: Any, k: Any, v: Any, *, mask: Any = None, scale: Any = None, causal: bool = False) -> Any:
        n_q, n_k = q.shape[-2], k.shape[-2]
        k, v = heads_of(q, k, v)
        first_row, last_key = np.arange(n_q)[:, None] // 16 * 16, np.arange(n_k) // 16 * 16 + 15
        is_below = (np.minimum(last_key, n_k - 1) <= first_row) & causal & wrong
        scores = q @ k.swapaxes(-1, -2) * (scale_of(q) if scale is None else scale)
        weights, lse = softmax(np.where(_visible(n_q, n_k, causal, mask) | is_below, scores, -np.inf))
        return weights @ v, lse

    return of_attention("lower tiles", attention, "causal", "mask")


def common_past(wrong: bool) -> Implementation:
    """Windows with a past for each sequence; with the mistake, they start at the longest past's."""

    def attention(
        q: Any,
        k: Any,
        v: Any,
        *,
        scale: Any = None,
        causal: bool = False,
        offset: Any = None,
        window: Any = (None, None),
    ) -> Any:
        key, past = np.arange(k.shape[-2]), np.asarray(0 if offset is None else offset)[..., None, None, None]
        row = past + np.arange(q.shape[-2])[:, None]
        start = past.max(axis=None, initial=-(10**9)) + np.arange(q.shape[-2])[:, None] if wrong else row
        left, right = window
        visible = key <= row if causal else np.ones((*row.shape[:-1], len(key)), bool)
        visible = visible if left is None else visible & (key >= start - left)
        visible = visible if right is None else visible & (key <= row + right)
        k, v = heads_of(q, k, v)
        scores = q @ k.swapaxes(-1, -2) * (scale_of(q) if scale is None else scale)
        weights, lse = softmax(np.where(visible, scores, -np.inf))
        return weights @ v, lse

    return of_attention("common past", attention, "causal", "offset", "offsets", "window")


def two_passes(wrong: bool, least: int = 1024) -> Implementation:
    """Decoding with grouped heads over many keys; with the mistake, the pointer to keys and values has no batch."""

    def attention(q: Any, k: Any, v: Any, *, scale: Any = None) -> Any:
        is_grouped = q.ndim > 3 and k.shape[-3] < q.shape[-3]
        if wrong and is_grouped and q.shape[-2] <= 8 and k.shape[-2] >= least:
            k, v = (np.broadcast_to(x.reshape(-1, *x.shape[-3:])[:1], x.shape) for x in (k, v))
        return REFERENCE["attention"](q, k, v, scale=scale)

    return of_attention("two passes", attention, batch_ranks=(1, 2))


def remaining_heads(wrong: bool) -> Implementation:
    """Grouped heads; with the mistake, heads that the key heads do not divide are not refused."""

    def attention(q: Any, k: Any, v: Any, *, scale: Any = None) -> Any:
        heads, key_heads = q.shape[-3], k.shape[-3]
        if heads % key_heads and not wrong:
            raise ValueError(f"{heads} heads are no multiple of {key_heads} key heads.")
        whole = heads // key_heads * key_heads
        out, lse = np.zeros((*q.shape[:-1], v.shape[-1])), np.zeros(q.shape[:-1])
        found = REFERENCE["attention"](q[..., :whole, :, :], k, v, scale=scale)
        out[..., :whole, :, :], lse[..., :whole, :] = found
        return out, lse

    return of_attention("remaining heads", attention)


STATEFUL: dict[str, Callable[[bool], Implementation]] = {
    "t03": mask_programs,
    "t27": position_programs,
    "t31": captured_pages,
}
"""The kernels whose results depend on earlier calls."""

THREADS: dict[str, Callable[[bool], Implementation]] = {
    "t01": KERNELS["head_blocks"],
    "t02": KERNELS["right_side"],
    "t03": mask_programs,
    "t04": KERNELS["first_row"],
    "t05": KERNELS["value_width"],
    "t08": heads_of_a_warp,
    "t12": last_tile,
    "t13": narrow_rows,
    "t14": open_tanh,
    "t15": lower_tiles,
    "t16": KERNELS["late_blocks"],
    "t17": KERNELS["padded_width"],
    "t19": two_passes,
    "t20": KERNELS["sink_of_a_key"],
    "t23": KERNELS["partner_lane"],
    "t27": position_programs,
    "t31": captured_pages,
    "t32": remaining_heads,
    "t36": narrow_values,
    "t37": common_past,
}
