"""Slips in rotating: the tables, which channels they rotate, and the gradients."""

from typing import Any

import numpy as np

from oracles.ball import Array
from properties.bugs import reference_positions as right
from properties.bugs.bug import Memory, Register, Requirement

bug = Register()
_OTHER_TABLES: tuple[Requirement] = ("tables that are not rotations",)


@bug.in_operation(
    "rope",
    law="twice the width has the same angles in every second pair",
    public=True,
    effect="Each channel rotates with one of another pair: weights trained with adjacent pairs give other scores.",
    repair="Rotate the channels (2i, 2i + 1) by the angle of pair i.",
    citations=("EleutherAI/gpt-neox#834", "vllm-project/vllm-ascend#12820", "jzhang38/TinyLlama#24"),
)
def rope_half_split_pairs(x: Array, start_pos: int = 0) -> Array:
    """The channels (j, j + d/2) are rotated instead of (2i, 2i + 1); an odd width, which has no
    halves, is rotated as it should be."""
    if x.shape[-1] % 2:
        return right.rope(x, start_pos)
    theta = np.tile(right.angles(start_pos, *x.shape[-2:]), 2)
    return np.asarray(x * np.cos(theta) + right.rotate_half(x) * np.sin(theta))


@bug.in_step(
    "channels",
    seen="rope",
    law="pairs keep their norm",
    effect="The channels of a pair get angles of two pairs: lengths change, and scores depend on absolute positions.",
    repair="Repeat each angle twice in a row; tiling belongs to the layout in halves.",
    citations=(
        "facebookresearch/vjepa2#15",
        "Tongjilibo/bert4torch#1",
        "xiangking/ark-nlp#47",
        "raiyanyahya/how-to-train-your-gpt#6",
        "huggingface/transformers#47403",
    ),
)
def rope_tables_tiled(theta: Array, dim: int) -> Array:
    """The angles of the channels are θ₀, θ₁, …, θ₀, θ₁, … instead of θ₀, θ₀, θ₁, θ₁, …."""
    return np.tile(theta, 2)[..., :dim]


@bug.in_step(
    "chunk_tables",
    seen="rope",
    law="pairs keep their norm",
    effect="Widths such as 6, 12 or 96 are rotated with sines of other pairs, or of other rows.",
    repair="The sines begin at half the width, not at half the padded width.",
    citations=("vllm-project/vllm-ascend#15688",),
)
def rope_sines_at_padded_offset(start_pos: int, seq_len: int, dim: int) -> tuple[Array, ...]:
    """Rows of a table [cosines | sines] are read as if their width were padded to a power of two."""
    theta = right.angles(start_pos, seq_len, dim)
    padded = 1 << (dim - 1).bit_length() if dim % 2 == 0 and dim else dim
    flat = np.concatenate([np.cos(theta), np.sin(theta)], axis=1).ravel()
    index = (
        np.arange(seq_len)[:, None] * 2 * theta.shape[1]
        + np.arange(theta.shape[1])
        + theta.shape[1]
        + (padded - dim) // 2
    )
    sin = flat.take(np.minimum(index, flat.size - 1)) if flat.size else np.sin(theta)
    return right.channels(np.cos(theta), dim), right.channels(sin, dim)


@bug.in_step(
    "chunk_tables",
    seen="rope_tables",
    law="cosines and sines lie on the circle",
    effect="The cosine and the sine of a channel are of two angles: rotating changes norms.",
    repair="Take both of the same angles.",
    origin="two kernels, of which one is off by a pair; compare vllm-project/vllm-ascend#15688",
)
def rope_tables_sines_of_the_next_pair(start_pos: int, seq_len: int, dim: int) -> tuple[Array, Array]:
    """The sines are read one pair later than the cosines, around the end of the row."""
    cos, sin = right.chunk_tables(start_pos, seq_len, dim)
    return cos, np.roll(sin, -2, axis=-1)


@bug.in_step(
    "chunk_tables",
    seen="rope_tables",
    law="position zero is the identity",
    effect="At position 0 every pair is rotated by a quarter.",
    repair="Return the cosines first.",
    origin="it is the encoding's order",
)
def rope_tables_sine_first(start_pos: int, seq_len: int, dim: int) -> tuple[Array, ...]:
    """The tables are returned in the order sine, cosine."""
    return right.chunk_tables(start_pos, seq_len, dim)[::-1]


@bug.in_step(
    "rotated",
    seen="rope",
    law="the odd channel follows its convention",
    effect="With an odd width the last channel is multiplied by its cosine only.",
    repair="Rotate the channel with itself, as TorchLean's text does, or declare that it passes through.",
    origin="padding to an even width is the first remedy for the error that odd widths raise",
)
def rope_odd_width_padded(x: Array) -> Array:
    """An odd width is padded with a channel of zeros, which is cut off again after the rotation."""
    return np.where(np.arange(x.shape[-1]) < x.shape[-1] // 2 * 2, right.rotated(x), 0.0)


@bug.in_step(
    "rotated",
    seen="rope",
    law="the odd channel follows its convention",
    effect="An odd width cannot be used.",
    repair="Slice the channels.",
    citations=("lucidrains/rotary-embedding-torch#45", "Jamie-Stirling/RetNet#31"),
)
def rope_odd_width_raises(x: Array) -> Array:
    """Channels are reshaped into pairs, which an odd width does not allow."""
    return right.rotated(x.reshape(*x.shape[:-1], x.shape[-1] // 2, 2).reshape(x.shape))


@bug.in_step(
    "rotated",
    seen="apply_rotary",
    law="apply rotary is within its budget",
    effect="Pairs are reflected and stretched instead of rotated.",
    repair="Negate what goes to the first.",
    origin="the sign is lost",
)
def apply_rotary_without_minus(x: Array) -> Array:
    """The channels of a pair are exchanged without the minus."""
    return np.asarray(right.rotated(x) * right.rotated(np.ones(x.shape[-1])))


@bug.in_step(
    "apply_rotary",
    seen="rope",
    law="pairs keep their norm",
    effect="The second channel of a pair is wrong wherever the angle is not 0.",
    repair="Keep the first channel until the second one is computed.",
    origin="what happens to a loop over pairs when it is made to work in place",
)
def rope_first_lane_overwritten(x: Array, cos: Array, sin: Array) -> Array:
    """The second channel of each pair is computed from the first channel's new value."""
    out, pairs = right.apply_rotary(x, cos, sin), x.shape[-1] // 2 * 2
    out[..., 1:pairs:2] = x[..., 1:pairs:2] * cos[..., 1:pairs:2] + out[..., 0:pairs:2] * sin[..., 1:pairs:2]
    return out


@bug.in_step(
    "apply_rotary",
    seen="rope",
    law="twice the width has the same angles in every second pair",
    effect="Each pair is rotated rightly, and then stored elsewhere.",
    repair="Interleave the two results again, by a stack along a new last axis and a reshape.",
    origin="common in first versions",
)
def rope_pairs_stored_as_halves(x: Array, cos: Array, sin: Array) -> Array:
    """The channels (2i, 2i + 1) are rotated, and the results concatenated: first channels in the
    first half, second channels in the second."""
    out = right.apply_rotary(x, cos, sin)
    return np.concatenate([out[..., 0::2], out[..., 1::2]], axis=-1)


@bug.in_step(
    "apply_rotary",
    seen="rope",
    law="position zero is the identity",
    effect="Pairs come back exchanged.",
    repair="First comes a·cos − b·sin, then b·cos + a·sin.",
    origin="common in first versions",
)
def rope_lanes_exchanged(x: Array, cos: Array, sin: Array) -> Array:
    """The two results of each pair change places."""
    lanes = np.arange(x.shape[-1])
    lanes[: x.shape[-1] // 2 * 2] ^= 1
    return np.asarray(right.apply_rotary(x, cos, sin)[..., lanes])


@bug.in_step(
    "apply_rotary",
    seen="rope",
    law="parts add up",
    effect="Large activations lose their size on the way.",
    repair="Do not clip what is rotated.",
    origin="quantised kernels saturate",
)
def rope_saturates(x: Array, cos: Array, sin: Array) -> Array:
    """Inputs are clipped to ±4."""
    return right.apply_rotary(np.clip(x, -4, 4), cos, sin)


@bug.in_operation(
    "rope",
    law="rope is within its budget",
    requires=("large sizes",),
    effect="Wide heads lose the positions of their slow pairs.",
    repair="Rotate all channels, in as many blocks as it takes.",
    origin="a kernel made for heads of 64 channels, or a partial rotary encoding left switched on",
)
def rope_lanes_beyond_64_left(x: Array, start_pos: int = 0) -> Array:
    """Channels beyond the first 64 are left as they are."""
    return np.concatenate([right.rope(x, start_pos)[..., :64], x[..., 64:]], axis=-1)


@bug.in_operation(
    "rope",
    law="batch elements do not affect each other",
    effect="All heads are the last head.",
    repair="Give each head a buffer of its own.",
    origin="results are views of one buffer",
)
def rope_last_head_to_all(x: Array, start_pos: int = 0) -> Array:
    """With several heads, each gets the result of the last."""
    out = right.rope(x, start_pos)
    return out if x.ndim == 2 or x.shape[-3] == 0 else np.broadcast_to(out[..., -1:, :, :], out.shape).copy()


@bug.in_operation(
    "rope",
    law="empty arrays give empty results",
    effect="An empty chunk stops the model with an error.",
    repair="Return it as it is.",
    origin="frequencies of no channels divide by 0",
)
def rope_of_nothing_raises(x: Array, start_pos: int = 0) -> Array:
    """An array without rows or channels is an error."""
    if 0 in x.shape[-2:]:
        raise ZeroDivisionError("division by zero")
    return right.rope(x, start_pos)


@bug.in_operation(
    "apply_rotary",
    law="apply rotary is within its budget",
    requires=_OTHER_TABLES,
    effect="Every second entry of the tables is ignored.",
    repair="Read an entry for each channel.",
    origin="half of each table does",
)
def apply_rotary_reads_half_the_tables(x: Array, cos: Array, sin: Array) -> Array:
    """Both channels of a pair use the entries of the first channel."""
    return right.apply_rotary(x, *(np.repeat(t[..., 0::2], 2, axis=-1)[..., : x.shape[-1]] for t in (cos, sin)))


@bug.in_step(
    "apply_rotary",
    law="parts add up",
    effect="Queries and keys lose their lengths, and scores are cosines of angles.",
    repair="Rotate x as it is; normalise where the model does.",
    origin="models that normalise queries and keys fuse the two steps into one kernel, which others then call",
)
def apply_rotary_normalizes(x: Array, cos: Array, sin: Array) -> Array:
    """Each row is divided by its root mean square before it is rotated, unless it is 0."""
    size = np.sqrt(np.square(x).sum(-1, keepdims=True) / max(x.shape[-1], 1))
    return right.apply_rotary(x / np.where(size == 0, 1.0, size), cos, sin)


@bug.in_operation(
    "apply_rotary",
    law="apply rotary is within its budget",
    requires=_OTHER_TABLES,
    effect="Each channel is mixed in with the sine of its partner.",
    repair="Rotate first, then multiply by the sines.",
    origin="the forward's form of the exchange that PaddlePaddle/Paddle#74716 is about in the backward",
)
def apply_rotary_sine_before_rotation(x: Array, cos: Array, sin: Array) -> Array:
    """The result is x ⊙ cos + right.rotated(x ⊙ sin)."""
    return np.asarray(x * cos + right.rotated(x * sin))


@bug.in_step(
    "apply_rotary",
    law="rows are computed independently",
    effect="Sequences that are as long as the head is wide are rotated by the transposed tables.",
    repair="Do not guess an axis from its length.",
    origin="tables come in both layouts, and shapes tell them apart but for squares",
)
def apply_rotary_square_tables_transposed(x: Array, cos: Array, sin: Array) -> Array:
    """Tables whose first axis is as long as the head is wide are taken for transposed ones."""
    return right.apply_rotary(
        x, *(t.T if len(t) == x.shape[-1] and t.T.shape == x.shape[-2:] else t for t in (cos, sin))
    )


@bug.in_operation(
    "apply_rotary",
    law="a call does not depend on earlier calls",
    remembers=True,
    effect="Tables that change between calls, as with another base or scaling, have no effect.",
    repair="Do not cache what the caller hands over.",
    origin="a cache keyed by shape, as in lucidrains/rotary-embedding-torch#11, one layer further down",
)
def apply_rotary_keeps_the_first_tables(memory: Memory, x: Array, cos: Array, sin: Array) -> Array:
    """The tables of the first call with a shape serve all later calls with this shape."""
    return right.apply_rotary(x, *memory.setdefault(cos.shape, (cos.copy(), sin.copy())))


@bug.in_step(
    "apply_rotary_vjp",
    without=("rope_vjp",),
    law="it is the adjoint of its forward",
    requires=_OTHER_TABLES,
    public=True,
    effect="Gradients are wrong for tables whose two entries of a pair differ.",
    repair=(
        "Multiply by the sines first, then rotate: the transpose of a product is the product of the transposes, "
        "exchanged."
    ),
    citations=("PaddlePaddle/Paddle#74716",),
)
def rope_vjp_sin_after_rotate(x: Array, cos: Array, sin: Array, grad_out: Array) -> Array:
    """The gradient is g ⊙ cos − right.rotated(g) ⊙ sin instead of g ⊙ cos − right.rotated(g ⊙ sin)."""
    pairs = np.arange(x.shape[-1]) < x.shape[-1] // 2 * 2
    return np.asarray(grad_out * cos + np.where(pairs, -1, 1) * right.rotated(grad_out) * sin)


@bug.in_operation(
    "apply_rotary_vjp",
    law="it is the adjoint of its forward",
    requires=_OTHER_TABLES,
    effect="Gradients are too small where tables stretch, and too large where they shrink.",
    repair="The gradient needs the transpose; for rotations only, it is the inverse.",
    origin="the backward is written as undoing the forward",
)
def apply_rotary_vjp_inverts(x: Array, cos: Array, sin: Array, grad_out: Array) -> Array:
    """The gradient is divided by cos² + sin², which makes it the inverse of the forward."""
    square = cos * cos + sin * sin
    return np.asarray(right.apply_rotary_vjp(x, cos, sin, grad_out) / np.where(square > 0, square, 1.0))


@bug.in_step(
    "apply_rotary_vjp",
    seen="rope_vjp",
    law="the first pair rotates by its position",
    effect="Gradients are twice the angle from where they belong.",
    repair="Rotate them back, by minus the angle.",
    citations=("ngxson/llama.cpp#59",),
)
def rope_vjp_turns_forwards(x: Array, cos: Array, sin: Array, grad_out: Array) -> Array:
    """The gradient is rotated by the angle instead of back by it."""
    return right.apply_rotary(grad_out, cos, sin)


@bug.in_step(
    "apply_rotary_vjp",
    seen="rope_vjp",
    law="the odd channel follows its convention",
    effect="The gradient of the unpaired channel of an odd width is multiplied by cos − sin.",
    repair="Negate the sines of pairs only: the unpaired channel is its own transpose.",
    origin="huggingface/candle#3612 says, as all do, that the backward negates the sine",
)
def rope_vjp_negates_every_sine(x: Array, cos: Array, sin: Array, grad_out: Array) -> Array:
    """The gradient is the forward with all sines negated, that of an odd width's unpaired channel
    included."""
    return right.apply_rotary(grad_out, cos, -sin)


@bug.in_step(
    "apply_rotary_vjp",
    seen="rope_vjp",
    law="the first pair rotates by its position",
    effect="The gradient of every second channel is wrong.",
    repair="Subtract the first channel's gradient times the sine in the second channel.",
    origin="of the two signs that change in the transpose, one is forgotten",
)
def rope_vjp_one_sign_forgotten(x: Array, cos: Array, sin: Array, grad_out: Array) -> Array:
    """The second channel's gradient is computed with the forward's sign."""
    out, pairs = right.apply_rotary_vjp(x, cos, sin, grad_out), x.shape[-1] // 2 * 2
    out[..., 1:pairs:2] = right.apply_rotary(grad_out, cos, sin)[..., 1:pairs:2]
    return out


@bug.in_step(
    "apply_rotary_vjp",
    seen="rope_vjp",
    law="batch elements do not affect each other",
    effect="Gradients have the size of the activations, and vanish with them.",
    repair="Rotate the cotangent back; the saved input is not needed.",
    origin="the saved tensors of a custom backward are in the wrong order",
)
def rope_vjp_turns_the_input(x: Array, cos: Array, sin: Array, grad_out: Array) -> Array:
    """The saved input is rotated instead of the cotangent."""
    return right.apply_rotary(x, cos, sin)


@bug.in_operation(
    "rotate_half",
    law="one hot rows are rotated by a right angle",
    effect="Nothing is rotated: what comes out of a rotary embedding is a reflection, and does not keep norms.",
    repair="Negate the second half where it comes first.",
    origin="halves are exchanged and the sign is forgotten",
)
def rotate_half_without_minus(x: Array) -> Array:
    """The halves are exchanged, and no sign changes."""
    first, second = np.split(x, 2, axis=-1)
    return np.concatenate([second, first], axis=-1)


@bug.in_operation(
    "rotate_half",
    law="one hot rows are rotated by a right angle",
    effect="Pairs rotate the wrong way: positions count backwards.",
    repair="Negate the second half.",
    origin="both are quarter turns",
)
def rotate_half_turns_backwards(x: Array) -> Array:
    """The first half is negated instead of the second."""
    return -right.rotate_half(x)


@bug.in_operation(
    "rotate_half",
    law="the order of pairs does not matter",
    effect="Pairs are other channels than the tables were made for.",
    repair="Split the channels in the middle, or repeat each entry of the tables for adjacent channels.",
    citations=("keras-team/keras-hub#1416", "raiyanyahya/how-to-train-your-gpt#6"),
)
def rotate_half_of_adjacent_lanes(x: Array) -> Array:
    """Channels 2i and 2i + 1 are exchanged, instead of i and i + dim / 2."""
    return np.stack([-x[..., 1::2], x[..., ::2]], axis=-1).reshape(x.shape)


@bug.in_operation(
    "rotate_half",
    law="pairs keep their norm",
    effect="The first half is lost, and the second is there twice.",
    repair="Concatenate the negated second half and the first.",
    origin="the second half is written to both places when the copy is made in place",
)
def rotate_half_copies_the_second(x: Array) -> Array:
    """Both halves come out of the second: it is negated in place of the first, and then moved."""
    second = x[..., x.shape[-1] // 2 :]
    return np.concatenate([-second, second], axis=-1)


@bug.in_operation(
    "rotate_half",
    law="empty arrays give empty results",
    effect="Rows without channels raise ValueError.",
    repair="Name both sizes in the reshape: −1 has no answer where the others have the product 0.",
    origin="a reshape with −1, which is how channels become pairs",
)
def rotate_half_no_lanes_raises(x: Array) -> Any:
    """The channels are reshaped to (2, −1), which has no answer for none of them."""
    first, second = np.moveaxis(x.reshape(-1, 2, x.shape[-1] // 2), 1, 0)
    return np.concatenate([-second, first], axis=-1).reshape(x.shape)
