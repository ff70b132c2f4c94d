"""Slips of implementations whose promises are not the defaults: another convention, another format, sizes that they refuse."""

import numpy as np

from oracles import Conventions
from oracles.ball import Array
from properties.bugs.bug import Register
from properties.reference import Mask, causal_mask, rope, rotary_tables, scaled_dot_product_attention

bug = Register()

_HALF = Conventions(rope_pairing="half")


@bug(
    "causal_attention",
    effect="Every token sees the next one: training loss falls, generation fails.",
    repair="Allow key j to query i where j ≤ i.",
    citation="none: the diagonal argument of triu and tril is easily one too large.",
    law="the past does not depend on the future",
)
def causal_attention_sees_one_ahead(q: Array, k: Array, v: Array) -> Array:
    """The causal mask reaches one key too far."""
    return scaled_dot_product_attention(q, k, v, np.tri(q.shape[-2], k.shape[-2], 1, dtype=bool))


@bug(
    "causal_attention",
    effect="Rectangular causal attention is aligned differently from what is declared: decoding and prefill disagree.",
    repair="Align the mask as declared: j ≤ i for top left.",
    citation="pytorch/pytorch#108108; Dao-AILab/flash-attention#1778",
    law="a chunk of queries is part of the whole",
)
def causal_attention_aligned_at_the_end(q: Array, k: Array, v: Array) -> Array:
    """With fewer queries than keys the mask is aligned at the bottom right where the contract says top left."""
    n_q, n_k = q.shape[-2], k.shape[-2]
    return scaled_dot_product_attention(q, k, v, np.tri(n_q, n_k, max(n_k - n_q, 0), dtype=bool))


@bug(
    "causal_attention",
    effect="Attention over whole tiles sees the future.",
    repair="Apply the flag whatever the length.",
    citation="keras-team/keras#23038, as a model: the flag is dropped on one path",
    law="causal attention is attention under the causal mask",
)
def causal_attention_dropped_for_whole_tiles(q: Array, k: Array, v: Array) -> Array:
    """The flag is ignored where both lengths are multiples of 8."""
    whole = q.shape[-2] % 8 == k.shape[-2] % 8 == 0
    return scaled_dot_product_attention(q, k, v, None if whole else causal_mask(q.shape[-2], k.shape[-2]))


@bug(
    "scaled_dot_product_attention",
    effect="Values near the largest number of the format become NaN instead of themselves or ±∞.",
    repair="Normalise the weights before the product with the values, or accumulate in a wider format.",
    citation="none: unnormalised sums of float16 values overflow where their average does not, and ∞ − ∞ follows.",
    law="outputs beyond the largest number may overflow",
    promises={"arithmetic": "float16"},
)
def sdpa_overflow_becomes_nan(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """In float16, an output beyond half of the largest number comes out as NaN."""
    out = scaled_dot_product_attention(q.astype(np.float64), k.astype(np.float64), v.astype(np.float64), mask)
    return np.where(np.abs(out) > 32752, np.nan, out).astype(np.float16)


@bug(
    "scaled_dot_product_attention",
    effect="NaN and ±∞ in padding reach every row, although no query may read them.",
    repair="Zero the blocked values before the product, or skip them.",
    citation="pytorch/pytorch#101967",
    law="non finite blocked entries do not matter",
    promises={"conventions": Conventions(blocked_values="unread")},
)
def sdpa_blocked_nan_reaches_the_output(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """Blocked values are multiplied by weights of 0, and 0 times NaN is NaN."""
    with np.errstate(invalid="ignore"):
        return scaled_dot_product_attention(q, k, v, mask)


@bug(
    "rope",
    effect="Large activations lose their size on the way.",
    repair="Do not clip what is turned.",
    citation="none: quantised kernels saturate their inputs.",
    law="rope is linear",
)
def rope_saturates(x: Array, start_pos: int = 0) -> Array:
    """Inputs are clipped to ±4."""
    return rope(np.clip(x, -4, 4), start_pos)


@bug(
    "rope",
    effect="All heads are the last head.",
    repair="Give each head a buffer of its own.",
    citation="none: one buffer is reused in a loop over the heads, and the results are views of it.",
    law="heads do not depend on each other",
)
def rope_last_head_to_all(x: Array, start_pos: int = 0) -> Array:
    """With several heads, each gets the result of the last."""
    out = rope(x, start_pos)
    return out if x.ndim == 2 or x.shape[-3] == 0 else np.broadcast_to(out[..., -1:, :, :], out.shape).copy()


@bug(
    "rope_vjp",
    effect="Gradients have the size of the activations, and vanish with them.",
    repair="Turn the cotangent back; the saved input is not needed.",
    citation="none: the saved tensors of a custom backward are in the wrong order.",
    law="the gradient does not depend on x",
)
def rope_vjp_turns_the_input(x: Array, grad_out: Array, start_pos: int = 0) -> Array:
    """The saved input is turned instead of the cotangent."""
    return rope(x, start_pos)


@bug(
    "rope",
    effect="A model without positions to turn, or an empty chunk, stops with an error.",
    repair="Return what has no entries as it is.",
    citation="none: frequencies of no lanes divide by a width of 0.",
    law="without rows or lanes nothing is turned",
)
def rope_of_nothing_raises(x: Array, start_pos: int = 0) -> Array:
    """An array without rows or lanes is an error."""
    if 0 in x.shape[-2:]:
        raise ZeroDivisionError("division by zero")
    return rope(x, start_pos)


@bug(
    "rope",
    effect="Lanes i and i + d/2 are turned by angles of different pairs: norms and relative positions are lost.",
    repair="Lay the tables out as the pairs are: angles in halves for pairs in halves.",
    citation="none: tables of adjacent pairs (repeat_interleave) are taken with the half turn of the other layout.",
    law="half pairing is adjacent pairing of shuffled lanes",
    promises={"conventions": _HALF, "supports": {"head_dim": lambda d: d % 2 == 0}},
)
def rope_half_with_interleaved_tables(x: Array, start_pos: int = 0) -> Array:
    """Pairs are (i, i + d/2), but the tables are those of pairs (2i, 2i + 1)."""
    if x.shape[-1] % 2:
        raise ValueError(f"head_dim is {x.shape[-1]}, but should be even.")
    cos, sin = rotary_tables(start_pos, *x.shape[-2:])
    first, second = np.split(x, 2, axis=-1)
    return x * cos + np.concatenate([-second, first], axis=-1) * sin


@bug(
    "rope",
    effect="What is documented to be refused gives numbers that nobody defined.",
    repair="Refuse what is not supported.",
    citation="huggingface/transformers#35233, as a model: odd rotary sizes were neither refused nor right",
    law="what is not supported is refused",
    promises={"supports": {"head_dim": lambda d: d % 2 == 0}},
)
def rope_answers_odd_widths(x: Array, start_pos: int = 0) -> Array:
    """Odd widths are declared to be refused, and are answered, with 0 in the last lane."""
    out = rope(x, start_pos)
    out[..., x.shape[-1] // 2 * 2 :] = 0.0
    return out
