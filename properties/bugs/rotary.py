"""Known bugs of rotations of pairs of channels: their tables, their channels, and their gradients."""

from functools import partial
from typing import Any

import numpy as np

from oracles.ball import Array
from properties.bugs import reference_positions as right
from properties.bugs.bug import Memory, Register, Requirement

bug = Register()
in_apply_rotary = partial(bug.in_step, "apply_rotary")
in_rotate_half = partial(bug.in_operation, "rotate_half")
in_apply_rotary_vjp = partial(bug.in_step, "apply_rotary_vjp")
_OTHER_TABLES: tuple[Requirement] = ("tables that are not rotations",)


@bug.in_operation(
    "rope",
    law="pair 2i at width 2d has the same angle as pair i at width d",
    public=True,
    effect="Each channel has a partner of another pair, so weights trained with adjacent pairs give other scores.",
    repair="Rotate the channels (2i, 2i + 1) by the angle of pair i.",
    citations="EleutherAI/gpt-neox#834; vllm-project/vllm-ascend#12820; jzhang38/TinyLlama#24",
)
def rope_half_split_pairs(x: Array, start_pos: int = 0) -> Array:
    """The code rotates the channels (j, j + d/2) instead of (2i, 2i + 1) if the width is even."""
    if x.shape[-1] % 2:
        return right.rope(x, start_pos)
    theta = np.tile(right.angles(start_pos, *x.shape[-2:]), 2)
    return x * np.cos(theta) + right.rotate_half(x) * np.sin(theta)


@bug.in_step(
    "channels",
    seen="rope",
    law="rotation keeps the norm of each pair",
    effect="The two channels of a pair get different angles: norms change, and scores depend on absolute positions.",
    repair="Repeat each angle twice in a row; tiling belongs to the half-split layout.",
    citations=(
        "facebookresearch/vjepa2#15; Tongjilibo/bert4torch#1; xiangking/ark-nlp#47; "
        "raiyanyahya/how-to-train-your-gpt#6; huggingface/transformers#47403"
    ),
)
def rope_tables_tiled(theta: Array, dim: int) -> Array:
    """The angles of the channels repeat as θ₀, θ₁, θ₀, θ₁ instead of θ₀, θ₀, θ₁, θ₁."""
    return np.tile(theta, 2)[..., :dim]


@bug.in_step(
    "chunk_tables",
    seen="rope",
    law="rotation keeps the norm of each pair",
    effect="Widths such as 6, 12 or 96 use sines of other pairs or other rows.",
    repair="Start the sines at half of the width, not half of the padded width.",
    citations="vllm-project/vllm-ascend#15688",
)
def rope_sines_at_padded_offset(start_pos: int, seq_len: int, dim: int) -> tuple[Array, ...]:
    """The code reads rows of a table [cosines | sines] as if their width were padded to a power of
    two."""
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
    law="cos**2 + sin**2 = 1",
    effect="The cosine and the sine of a channel belong to different angles, so the rotation changes norms.",
    repair="Use the same angle for both.",
    origin="one of two kernels is off by a pair; compare vllm-project/vllm-ascend#15688",
)
def rope_tables_sines_of_the_next_pair(start_pos: int, seq_len: int, dim: int) -> tuple[Array, Array]:
    """The code reads each sine from the next pair."""
    cos, sin = right.chunk_tables(start_pos, seq_len, dim)
    return cos, np.roll(sin, -2, axis=-1)


@bug.in_step(
    "chunk_tables",
    seen="rope_tables",
    law="position 0 rotates by angle 0",
    effect="At position 0, every pair is rotated by a right angle.",
    repair="Return the cosines first.",
    origin="the sinusoidal encoding has this order",
)
def rope_tables_sine_first(start_pos: int, seq_len: int, dim: int) -> tuple[Array, ...]:
    """The code returns the tables in the order sine, cosine."""
    return right.chunk_tables(start_pos, seq_len, dim)[::-1]


@bug.in_step(
    "rotated",
    seen="rope",
    without=("rotary_embedding",),
    law="the last channel of an odd width follows its convention",
    effect="With an odd width, the code multiplies the last channel by its cosine only.",
    repair="Rotate the channel with itself, as TorchLean defines, or declare that it passes through.",
    origin="padding is the first remedy for the error that odd widths raise",
)
def rope_odd_width_padded(x: Array) -> Array:
    """The code pads an odd width with a channel of zeros and drops it after the rotation."""
    return np.where(np.arange(x.shape[-1]) < x.shape[-1] // 2 * 2, right.rotated(x), 0.0)


@bug.in_step(
    "rotated",
    seen="rope",
    without=("rotary_embedding",),
    law="the last channel of an odd width follows its convention",
    effect="An odd width raises an error.",
    repair="Slice the channels.",
    citations="lucidrains/rotary-embedding-torch#45; Jamie-Stirling/RetNet#31",
)
def rope_odd_width_raises(x: Array) -> Array:
    """The code reshapes channels into pairs, which an odd width does not allow."""
    return right.rotated(x.reshape(*x.shape[:-1], x.shape[-1] // 2, 2).reshape(x.shape))


@bug.in_step(
    "rotated",
    seen="apply_rotary",
    law="apply_rotary is within its error limit",
    effect="The code reflects and stretches pairs instead of rotating them.",
    repair="Negate the channel that goes to the first place.",
    origin="the code loses the sign",
)
def apply_rotary_without_minus(x: Array) -> Array:
    """The code exchanges the channels of a pair without the minus sign."""
    return right.rotated(x) * right.rotated(np.ones(x.shape[-1]))


@bug.in_step(
    "rotated",
    seen="rope",
    law="rotation keeps the norm of each pair",
    effect="The code reflects and stretches pairs instead of rotating them.",
    repair="The second channel is b·cos + a·sin.",
    origin="one of the two lines of a rotation is copied from the other",
)
def rope_second_sign_wrong(x: Array) -> Array:
    """The code subtracts in both channels of a pair (a, b): the second one is b·cos − a·sin."""
    return -np.abs(right.rotated(np.ones(x.shape[-1]))) * right.rotated(x) * right.rotated(np.ones(x.shape[-1]))


@in_apply_rotary(
    seen="rope",
    law="rotation keeps the norm of each pair",
    effect="The second channel of a pair is wrong if the angle is not 0.",
    repair="Keep the old first channel until the second one is computed.",
    origin="a loop over pairs was changed to work in place",
)
def rope_first_lane_overwritten(x: Array, cos: Array, sin: Array) -> Array:
    """The code computes the second channel of each pair from the new value of the first."""
    output, pairs = right.apply_rotary(x, cos, sin), x.shape[-1] // 2 * 2
    output[..., 1:pairs:2] = x[..., 1:pairs:2] * cos[..., 1:pairs:2] + output[..., 0:pairs:2] * sin[..., 1:pairs:2]
    return output


@in_apply_rotary(
    seen="rope",
    law="pair 2i at width 2d has the same angle as pair i at width d",
    effect="Each rotated pair is in the wrong place.",
    repair="Interleave the two results with a stack along a new last axis and a reshape.",
    origin="first versions often concatenate the results",
)
def rope_pairs_stored_as_halves(x: Array, cos: Array, sin: Array) -> Array:
    """The code rotates the channels (2i, 2i + 1), then stores first channels in the first half and
    second channels in the second."""
    output = right.apply_rotary(x, cos, sin)
    return np.concatenate([output[..., 0::2], output[..., 1::2]], axis=-1)


@in_apply_rotary(
    seen="rope",
    law="position 0 rotates by angle 0",
    effect="The two channels of each pair are exchanged.",
    repair="Store a·cos − b·sin first, then b·cos + a·sin.",
    origin="first versions often exchange them",
)
def rope_lanes_exchanged(x: Array, cos: Array, sin: Array) -> Array:
    """The code exchanges the two results of each pair."""
    order = np.arange(x.shape[-1])
    order[: x.shape[-1] // 2 * 2] ^= 1
    return right.apply_rotary(x, cos, sin)[..., order]


@in_apply_rotary(
    seen="rope",
    law="f(a) + f(b) = f(a + b)",
    effect="Activations above 4 lose their size.",
    repair="Do not clip the inputs of the rotation.",
    origin="quantized kernels saturate",
)
def rope_saturates(x: Array, cos: Array, sin: Array) -> Array:
    """The code clips its inputs to ±4."""
    return right.apply_rotary(np.clip(x, -4, 4), cos, sin)


@bug.in_operation(
    "rope",
    law="rope is within its error limit",
    requires=("large sizes",),
    effect="The slow pairs of wide heads carry no position.",
    repair="Rotate all channels, in as many blocks as needed.",
    origin="the kernel was written for heads of 64 channels, or a partial rotation stays on",
)
def rope_lanes_beyond_64_left(x: Array, start_pos: int = 0) -> Array:
    """The code does not rotate channels after the first 64."""
    return np.concatenate([right.rope(x, start_pos)[..., :64], x[..., 64:]], axis=-1)


@bug.in_operation(
    "rope",
    law="scaling up some batch elements does not affect the others",
    effect="All heads equal the last head.",
    repair="Give each head a separate buffer.",
    origin="the results are views of one buffer",
)
def rope_last_head_to_all(x: Array, start_pos: int = 0) -> Array:
    """With several heads, each head gets the result of the last one."""
    output = right.rope(x, start_pos)
    return output if x.ndim == 2 or x.shape[-3] == 0 else np.broadcast_to(output[..., -1:, :, :], output.shape).copy()


@bug.in_operation(
    "rope",
    law="empty arrays give empty results",
    effect="An empty chunk stops the model with an error.",
    repair="Return an empty array.",
    origin="frequencies of a width of 0 divide by 0",
)
def rope_of_nothing_raises(x: Array, start_pos: int = 0) -> Array:
    """An array without rows or without channels raises an error."""
    if 0 in x.shape[-2:]:
        raise ZeroDivisionError("division by zero")
    return right.rope(x, start_pos)


@bug.in_operation(
    "apply_rotary",
    law="apply_rotary is within its error limit",
    requires=_OTHER_TABLES,
    effect="Every second entry of the tables has no effect.",
    repair="Read an entry for each channel.",
    origin="half of each table is enough for rotations",
)
def apply_rotary_reads_half_the_tables(x: Array, cos: Array, sin: Array) -> Array:
    """Both channels of a pair use the table entry of the first channel."""
    return right.apply_rotary(x, *(np.repeat(table[..., 0::2], 2, axis=-1)[..., : x.shape[-1]] for table in (cos, sin)))


@in_apply_rotary(
    law="f(a) + f(b) = f(a + b)",
    effect="Queries and keys lose their norms, and scores become cosines.",
    repair="Rotate x without normalizing; the model does that elsewhere.",
    origin="some models fuse the normalization of queries and keys into this kernel, and others call it",
)
def apply_rotary_normalizes(x: Array, cos: Array, sin: Array) -> Array:
    """The code divides each row by its root mean square before it rotates, unless the row is 0."""
    size = np.sqrt(np.square(x).sum(-1, keepdims=True) / max(x.shape[-1], 1))
    return right.apply_rotary(x / np.where(size == 0, 1.0, size), cos, sin)


@bug.in_operation(
    "apply_rotary",
    law="apply_rotary is within its error limit",
    requires=_OTHER_TABLES,
    effect="The code adds a channel with its own sine, not with the sine of the channel that receives it.",
    repair="Rotate first, then multiply by the sines.",
    origin="PaddlePaddle/Paddle#74716 is the same exchange in the backward",
)
def apply_rotary_sine_before_rotation(x: Array, cos: Array, sin: Array) -> Array:
    """The result is x ⊙ cos + rotated(x ⊙ sin)."""
    return x * cos + right.rotated(x * sin)


@in_apply_rotary(
    law="rows are computed independently",
    effect="Sequences that are as long as the head is wide use transposed tables.",
    repair="Do not guess an axis from its length.",
    origin="both layouts of tables exist, and shapes distinguish them unless the table is square",
)
def apply_rotary_square_tables_transposed(x: Array, cos: Array, sin: Array) -> Array:
    """The code transposes tables whose first axis is as long as the head is wide."""
    return right.apply_rotary(
        x, *(table.T if len(table) == x.shape[-1] and table.T.shape == x.shape[-2:] else table for table in (cos, sin))
    )


@bug.in_operation(
    "apply_rotary",
    law="a call does not depend on earlier calls",
    remembers=True,
    effect="Tables that change between calls, for example with another base, have no effect.",
    repair="Do not cache arguments of the caller.",
    origin="the cache has the shape as its key, like lucidrains/rotary-embedding-torch#11 one layer below",
)
def apply_rotary_keeps_the_first_tables(memory: Memory, x: Array, cos: Array, sin: Array) -> Array:
    """The code uses the tables of the first call with a shape for all later calls with that shape."""
    return right.apply_rotary(x, *memory.setdefault(cos.shape, (cos.copy(), sin.copy())))


@in_apply_rotary_vjp(
    without=("rope_vjp",),
    law="the VJP is the adjoint of the forward",
    requires=_OTHER_TABLES,
    public=True,
    effect="Gradients are wrong if the two table entries of a pair differ.",
    repair="Multiply by the sines first, then rotate: the transpose reverses the order of the factors.",
    citations="PaddlePaddle/Paddle#74716",
)
def rope_vjp_sin_after_rotate(x: Array, cos: Array, sin: Array, grad_out: Array) -> Array:
    """The gradient is g ⊙ cos − rotated(g) ⊙ sin instead of g ⊙ cos − rotated(g ⊙ sin)."""
    pairs = np.arange(x.shape[-1]) < x.shape[-1] // 2 * 2
    return grad_out * cos + np.where(pairs, -1, 1) * right.rotated(grad_out) * sin


@bug.in_operation(
    "apply_rotary_vjp",
    law="the VJP is the adjoint of the forward",
    requires=_OTHER_TABLES,
    effect="Gradients are too small if tables stretch, and too large if they shrink.",
    repair="Use the transpose, which equals the inverse for rotations only.",
    origin="the backward undoes the forward instead of transposing it",
)
def apply_rotary_vjp_inverts(x: Array, cos: Array, sin: Array, grad_out: Array) -> Array:
    """The code divides the gradient by cos² + sin², so it computes the inverse of the forward."""
    square = cos * cos + sin * sin
    return right.apply_rotary_vjp(x, cos, sin, grad_out) / np.where(square > 0, square, 1.0)


@in_apply_rotary_vjp(
    seen="rope_vjp",
    law="at position p the first pair rotates by p radians",
    effect="Gradients are rotated by twice the angle away from their correct direction.",
    repair="Rotate by minus the angle.",
    citations="ngxson/llama.cpp#59",
)
def rope_vjp_turns_forwards(x: Array, cos: Array, sin: Array, grad_out: Array) -> Array:
    """The code rotates the gradient by the angle instead of minus the angle."""
    return right.apply_rotary(grad_out, cos, sin)


@in_apply_rotary_vjp(
    seen="rope_vjp",
    law="the last channel of an odd width follows its convention",
    effect="With an odd width, the gradient of the unpaired channel is multiplied by cos − sin.",
    repair="Negate the sines of pairs only: the unpaired channel is its own transpose.",
    origin="the rule is usually stated without the unpaired channel, as in huggingface/candle#3612",
)
def rope_vjp_negates_every_sine(x: Array, cos: Array, sin: Array, grad_out: Array) -> Array:
    """The gradient is the forward with all sines negated, including the sine of the unpaired
    channel."""
    return right.apply_rotary(grad_out, cos, -sin)


@in_apply_rotary_vjp(
    seen="rope_vjp",
    law="at position p the first pair rotates by p radians",
    effect="The gradient of every second channel is wrong.",
    repair="In the second channel, subtract the gradient of the first channel times the sine.",
    origin="the transpose changes two signs, and the code changes one",
)
def rope_vjp_one_sign_forgotten(x: Array, cos: Array, sin: Array, grad_out: Array) -> Array:
    """The code computes the gradient of the second channel with the sign of the forward."""
    output, pairs = right.apply_rotary_vjp(x, cos, sin, grad_out), x.shape[-1] // 2 * 2
    output[..., 1:pairs:2] = right.apply_rotary(grad_out, cos, sin)[..., 1:pairs:2]
    return output


@in_apply_rotary_vjp(
    seen="rope_vjp",
    law="scaling up some batch elements does not affect the others",
    effect="Gradients are as large as the activations, and are 0 where these are 0.",
    repair="Rotate the cotangent back; the backward does not need the saved input.",
    origin="a custom backward unpacks its saved tensors in the wrong order",
)
def rope_vjp_turns_the_input(x: Array, cos: Array, sin: Array, grad_out: Array) -> Array:
    """The code rotates the saved input instead of the cotangent."""
    return right.apply_rotary(x, cos, sin)


@in_rotate_half(
    law="rotate_half rotates one-hot rows by a right angle",
    effect="A rotary embedding reflects pairs instead of rotating them, and changes norms.",
    repair="Negate the second half, which becomes the first.",
    origin="the code forgets the sign",
)
def rotate_half_without_minus(x: Array) -> Array:
    """The code exchanges the halves without changing a sign."""
    first, second = np.split(x, 2, axis=-1)
    return np.concatenate([second, first], axis=-1)


@in_rotate_half(
    law="rotate_half rotates one-hot rows by a right angle",
    effect="Pairs rotate backwards, as if positions decreased.",
    repair="Negate the second half.",
    origin="both are rotations by a right angle",
)
def rotate_half_turns_backwards(x: Array) -> Array:
    """The code negates the first half instead of the second."""
    return -right.rotate_half(x)


@in_rotate_half(
    law="reordering pairs reorders their results in the same way",
    effect="The pairs do not match the tables.",
    repair="Split the channels in the middle, or repeat each table entry for adjacent channels.",
    citations="keras-team/keras-hub#1416; raiyanyahya/how-to-train-your-gpt#6",
)
def rotate_half_of_adjacent_lanes(x: Array) -> Array:
    """The code exchanges channels 2i and 2i + 1 instead of i and i + dim / 2."""
    return np.stack([-x[..., 1::2], x[..., ::2]], axis=-1).reshape(x.shape)


@in_rotate_half(
    law="rotation keeps the norm of each pair",
    effect="The first half is lost, and the second half appears twice.",
    repair="Concatenate the negated second half and the first.",
    origin="an in-place copy overwrites the first half too early",
)
def rotate_half_copies_the_second(x: Array) -> Array:
    """Both halves of the result come from the second half."""
    second = x[..., x.shape[-1] // 2 :]
    return np.concatenate([-second, second], axis=-1)


@in_rotate_half(
    law="empty arrays give empty results",
    effect="Rows without channels raise ValueError.",
    repair="Name both sizes in the reshape.",
    origin="a reshape with −1 is a common way to make pairs",
)
def rotate_half_no_lanes_raises(x: Array) -> Any:
    """The code reshapes the channels to (2, −1), which fails without channels."""
    first, second = np.moveaxis(x.reshape(-1, 2, x.shape[-1] // 2), 1, 0)
    return np.concatenate([-second, first], axis=-1).reshape(x.shape)
