"""Cases of derivatives with what laws change in them: parts of a cotangent, a cut, an order, a shift, an axis of signs."""

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

from oracles.ball import Array
from properties.implementation import Implementation
from properties.strategies.arrays import BROAD, LENGTHS, SHORT, Draw, bits, cuts, fixed_points, live_masks, numbers, orders, rounded, sizes
from properties.strategies.attention import SCALES, attention, attention_jvp, attention_vjp, extreme_attention, softmax
from properties.strategies.masks import dead_masks, padded_masks

__all__ = [
    "LONGER",
    "anywhere_jvp",
    "anywhere_vjp",
    "beside",
    "causal_jvp",
    "causal_vjp",
    "cut_vjp",
    "dead_vjp",
    "directions",
    "exact_jvp",
    "extreme_jvp",
    "extreme_softmax_vjp",
    "extreme_vjp",
    "lanes_vjp",
    "longer_vjp",
    "masks_of_several",
    "more_keys_vjp",
    "partly_jvp",
    "partly_softmax_vjp",
    "partly_vjp",
    "parts",
    "require_small",
    "shifted_vjp",
    "signed_orders",
    "spread_softmax_vjp",
    "steps_vjp",
]

LONGER = (2, 3, 1, 4, 5, 6, 8, 9, 16, 17, 33)
"""Everyday lengths, the simplest of which is 2."""


def anywhere_vjp(i: Implementation, **options: Any) -> st.SearchStrategy[tuple[Any, ...]]:
    """(q, k, v, mask, grad_out) of everyday sizes and of such around tiles; options as for `attention`."""
    return attention_vjp(i, **{"lengths": LENGTHS, "widths": BROAD, **options})


def anywhere_jvp(i: Implementation, **options: Any) -> st.SearchStrategy[tuple[Any, ...]]:
    """(q, k, v, mask, dq, dk, dv) of everyday sizes and of such around tiles; options as for `attention`."""
    return attention_jvp(i, **{"lengths": LENGTHS, "widths": BROAD, **options})


@st.composite
def extreme_vjp(draw: Draw, i: Implementation) -> tuple[Any, ...]:
    """(q, k, v, mask, grad_out) with logits to ±1e4: they vary within a row, or a row's are all large, or differ by everyday numbers.

    Where logits vary by thousands one key has all the weight, and gradients are 0; where a lane that all keys share brings them far from 0
    gradients are those of everyday logits.
    """
    q, k, v, mask = draw(extreme_attention(i, lengths=(*SHORT, 40, 64, 65, 100)))
    if k.shape[-1] > 1 and draw(st.sampled_from([True, True, False])):
        q, k = draw(numbers(i, q.shape, (0.25, 1.0))), draw(numbers(i, k.shape))
        k[..., 0] = draw(st.sampled_from([64.0, 256.0, -256.0]))
        q[..., 0] = rounded(np.clip(q[..., 0] * 64, -128, 128), i.rounding.inputs)
    return q, k, v, mask, draw(numbers(i, (*q.shape[:-1], v.shape[-1]), SCALES))


@st.composite
def extreme_softmax_vjp(draw: Draw, i: Implementation) -> tuple[Any, ...]:
    """(scores, mask, grad_weights) with scores to ±1e4: they vary within a row, or differ by everyday numbers from one far from 0."""
    scores, mask = draw(softmax(i, logits=(1.0, 1024.0), lengths=(*LONGER, 64, 65)))
    if np.abs(scores).max() < 1000:
        far = draw(st.sampled_from([512.0, -512.0, 8192.0, -8192.0]))
        scores = rounded(scores + far, i.rounding.inputs)
    return scores, mask, draw(numbers(i, scores.shape, SCALES))


@st.composite
def beside(draw: Draw, cases: st.SearchStrategy[tuple[Any, ...]], more: Callable[..., st.SearchStrategy[Any]]) -> tuple[Any, ...]:
    """The cases with one entry more before all others, drawn from `more` of them."""
    case = draw(cases)
    return draw(more(*case)), *case


@st.composite
def parts(draw: Draw, shape: tuple[int, ...]) -> Any:
    """Which entries of an array belong to its first part: any of them, whole rows, or whole columns; simplest all."""
    kind = draw(st.sampled_from(["entries", "rows", "columns"]))
    cut = {"entries": shape, "rows": (*shape[:-1], 1), "columns": shape[-1:]}[kind]
    return np.broadcast_to(draw(bits(int(np.prod(cut)))).reshape(cut), shape)


def require_small(i: Implementation, **choices: tuple[int, ...]) -> None:
    """Raise UnsupportedError where none of the choices of a size is supported, before anything is drawn: then a law does not apply."""
    for name, among in choices.items():
        sizes(i, name, among)


def directions(*shapes: tuple[int, ...]) -> st.SearchStrategy[list[Array]]:
    """For each of some shapes an array of integers from −4 to 4, none of them all zeros."""

    def build(seed: int) -> list[Array]:
        rng = np.random.default_rng(seed)
        found = [rng.integers(-4, 4, shape, endpoint=True).astype(np.float64) for shape in shapes]
        return [np.where(x.any(), x, 1.0) for x in found]

    return st.integers(0, 2**16).map(build)


@st.composite
def partly_vjp(draw: Draw, i: Implementation) -> tuple[Any, ...]:
    """(q, k, v, mask, grad_out) in which some keys are read by no query whose row of grad_out is not 0."""
    q, k, v, mask, g = draw(anywhere_vjp(i, lengths=(*LONGER, *LENGTHS), masks=padded_masks))
    rows = draw(bits(q.shape[-2])) if draw(st.booleans()) else np.arange(q.shape[-2]) < draw(st.integers(1, q.shape[-2]))
    return q, k, v, mask, np.where(rows[:, None], g, 0.0)


@st.composite
def partly_softmax_vjp(draw: Draw, i: Implementation) -> tuple[Any, ...]:
    """(scores, mask, grad_weights) with blocked entries."""
    scores, mask = draw(softmax(i, lengths=(*LONGER, *LENGTHS), masks=padded_masks))
    return scores, mask, draw(numbers(i, scores.shape, SCALES))


@st.composite
def partly_jvp(draw: Draw, i: Implementation) -> tuple[Any, ...]:
    """(q, k, v, mask, dq, dk, dv) in which some keys are read by no query."""
    return draw(anywhere_jvp(i, lengths=(*LONGER, *LENGTHS), masks=padded_masks))


@st.composite
def extreme_jvp(draw: Draw, i: Implementation) -> tuple[Any, ...]:
    """(q, k, v, mask, dq, dk, dv) with logits to ±1e4, as in `extreme_vjp`."""
    q, k, v, mask, _ = draw(extreme_vjp(i))
    return q, k, v, mask, *(draw(numbers(i, x.shape)) for x in (q, k, v))


@st.composite
def exact_jvp(draw: Draw, i: Implementation, moved: str) -> tuple[Any, ...]:
    """(q, k, v, mask, dq, dk, dv, shift) with a vector that can be added exactly to all of `moved`: "v", or "dk"."""
    q, k, v, mask, dq, dk, dv = draw(
        attention_jvp(i, lengths=(*LONGER, *LENGTHS), widths=BROAD, masks=masks_of_several, logits=(1.0, 0.25))
    )
    v, dk = draw(fixed_points(i, v.shape)), draw(fixed_points(i, dk.shape))
    like = v if moved == "v" else dk
    return q, k, v, mask, dq, dk, dv, draw(fixed_points(i, (*like.shape[:-2], 1, like.shape[-1])))


@st.composite
def causal_jvp(draw: Draw, i: Implementation) -> tuple[Any, ...]:
    """(q, k, v, mask, dq, dk, dv, row) as in `causal_vjp`."""
    q, k, v, mask, _, row = draw(causal_vjp(i))
    return q, k, v, mask, *(draw(numbers(i, x.shape)) for x in (q, k, v)), row


def dead_vjp(i: Implementation) -> st.SearchStrategy[tuple[Any, ...]]:
    """(q, k, v, mask, grad_out) in which some query may read no key."""
    return anywhere_vjp(i, lengths=(*LONGER, *LENGTHS), masks=dead_masks)


def signed_orders(n: int) -> st.SearchStrategy[tuple[Any, Array]]:
    """An order of n lanes and a sign for each."""
    return st.tuples(orders(n), bits(n).map(lambda plus: np.where(plus, 1.0, -1.0)))


def longer_vjp(i: Implementation) -> st.SearchStrategy[tuple[Any, ...]]:
    """(q, k, v, mask, grad_out) of sizes of every kind, mostly with several allowed keys, whose weights differ little."""
    return anywhere_vjp(i, lengths=(*LONGER, *LENGTHS), masks=masks_of_several, logits=(1.0, 0.25))


@st.composite
def more_keys_vjp(draw: Draw, i: Implementation) -> tuple[Any, ...]:
    """(q, k, v, mask, grad_out, count): every query may read one of the first `count` keys, a number of keys that is supported too."""
    q, k, v, _, g = draw(anywhere_vjp(i, lengths=(*LONGER, *LENGTHS), masks=lambda *_: st.none()))
    n_q, n_k = q.shape[-2], k.shape[-2]
    count = draw(cuts(n_k, lambda m: i.allows(n_k=m, n_k_minus_n_q=m - n_q)))
    mask = draw(st.none() | live_masks(n_q, count))
    return q, k, v, mask if mask is None else np.pad(mask, ((0, 0), (0, n_k - count))), g, count


@st.composite
def spread_softmax_vjp(draw: Draw, i: Implementation, *, shifted: bool = False) -> tuple[Any, ...]:
    """(scores, mask, grad_weights) of everyday scores; with `shifted`, also a number for each row to ±1e4 that adds to them exactly."""
    scores, mask = draw(softmax(i, lengths=(*LONGER, *LENGTHS), masks=masks_of_several, logits=(1.0, 0.25)))
    g = draw(numbers(i, scores.shape, SCALES))
    if not shifted:
        return scores, mask, g
    far = draw(st.sampled_from([16.0, -16.0, 1024.0, -1024.0, 8192.0, -8192.0]))
    step = max(1 / 16, 2 * abs(far) * i.rounding.inputs.unit_roundoff)
    scores = np.rint(scores / step) * step
    return np.clip(scores, -abs(far) / 2, abs(far) / 2), mask, g, np.full((*scores.shape[:-1], 1), far)


@st.composite
def cut_vjp(draw: Draw, i: Implementation) -> tuple[Any, ...]:
    """(q, k, v, mask, grad_out, count) such that the first `count` queries, and the others, are a number of queries that is supported."""
    q, k, v, mask, g = draw(anywhere_vjp(i, lengths=(*LONGER, *LENGTHS)))
    n_q, n_k = q.shape[-2], k.shape[-2]
    return q, k, v, mask, g, draw(cuts(n_q, lambda m: all(i.allows(n_q=n, n_k_minus_n_q=n_k - n) for n in (m, n_q - m))))


@st.composite
def lanes_vjp(draw: Draw, i: Implementation) -> tuple[Any, ...]:
    """(q, k, v, mask, grad_out, lanes, value_lanes): signed orders of the lanes of queries and keys, and of values."""
    case = draw(anywhere_vjp(i))
    return *case, draw(signed_orders(case[0].shape[-1])), draw(signed_orders(case[2].shape[-1]))


@st.composite
def shifted_vjp(draw: Draw, i: Implementation, of_keys: bool) -> tuple[Any, ...]:
    """(q, k, v, mask, grad_out, shift) with a vector that can be added to every key, or else to every value, exactly.

    One added to keys may bring logits to ±1e4, by a lane in which the keys are otherwise 0.
    """
    q, k, v, mask = draw(attention(i, lengths=(*LONGER, *LENGTHS), widths=BROAD, masks=masks_of_several))
    q, k, v = (draw(fixed_points(i, x.shape)) for x in (q, k, v))
    q = q * draw(st.sampled_from([1 / 4, 1 / 16, 1]))
    moved = k if of_keys else v
    shift = draw(fixed_points(i, (*moved.shape[:-2], 1, moved.shape[-1])))
    far = draw(st.sampled_from([0.0, 64.0, 1024.0])) if of_keys and k.shape[-1] > 1 else 0.0
    if far:
        k[..., 0], shift[..., 0] = 0.0, far
    return q, k, v, mask, draw(numbers(i, (*q.shape[:-1], v.shape[-1]), SCALES)), shift


def masks_of_several(n_q: int, n_k: int, lead: tuple[int, ...] = ()) -> st.SearchStrategy[Any]:
    """No mask, or a live one, in which most queries may read more than one key."""
    return st.none() | live_masks(n_q, n_k, lead)


@st.composite
def steps_vjp(draw: Draw, i: Implementation) -> tuple[Any, ...]:
    """(q, k, v, mask, grad_out, powers) of multiples of 1/16, and three powers of two by which they stay numbers of every format."""
    q, k, v, mask = draw(attention(i, lengths=LENGTHS, widths=BROAD))
    q, k, v, g = (draw(_coarse(shape)) for shape in (q.shape, k.shape, v.shape, (*q.shape[:-1], v.shape[-1])))
    return q, k, v, mask, g, tuple(draw(st.sampled_from([1.0, 2.0, 0.25, 4.0])) for _ in range(3))


def _coarse(shape: tuple[int, ...]) -> st.SearchStrategy[Array]:
    def build(seed: int) -> Array:
        return np.random.default_rng(seed).integers(-32, 32, shape, endpoint=True) / 16.0

    return st.integers(1, 2**16).map(build)


@st.composite
def causal_vjp(draw: Draw, i: Implementation) -> tuple[Any, ...]:
    """(q, k, v, mask, grad_out, row) under a causal mask, with a row that is neither the first nor beyond the keys, if there is one."""
    q, k, v, _, g = draw(anywhere_vjp(i, lengths=(*LONGER, *LENGTHS), masks=lambda *_: st.none()))
    n_q, n_k = q.shape[-2], k.shape[-2]
    row = draw(st.integers(1, max(1, min(n_q, n_k) - 1)) | st.sampled_from([max(1, min(n_q, n_k) - 1)]))
    return q, k, v, np.tri(n_q, n_k, dtype=bool), g, row
