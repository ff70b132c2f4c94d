"""Slips in rotating by given tables, and in the gradients of rotations."""

from collections.abc import Callable

import numpy as np

from oracles.ball import Array
from properties.bugs.bug import Register
from properties.reference import apply_rotary, apply_rotary_vjp, rope, rope_vjp, rotary_tables, rotated

bug = Register()
equivalent = Register()
"""Changes that change nothing: no law may see them."""


def _sine_after_rotation(x: Array, cos: Array, sin: Array, grad_out: Array) -> Array:
    """grad_out ⊙ cos − rotated(grad_out) ⊙ sin; the unpaired lane of an odd width as it should be."""
    pairs = x.shape[-1] // 2 * 2
    back = rotated(grad_out) * sin
    back[..., :pairs] *= -1
    return np.asarray(grad_out * cos + back)


@bug(
    "apply_rotary_vjp",
    effect="Gradients are wrong for tables whose two entries of a pair differ.",
    repair="Multiply by the sines first, then rotate: the transpose of a product is the product of the transposes, exchanged.",
    citation="PaddlePaddle/Paddle#74716",
    law="apply rotary and its vjp are adjoint",
    requires=("tables that are not rotations",),
    public=True,
)
def rope_vjp_sin_after_rotate(x: Array, cos: Array, sin: Array, grad_out: Array) -> Array:
    """The gradient is g ⊙ cos − rotated(g) ⊙ sin instead of g ⊙ cos − rotated(g ⊙ sin)."""
    return _sine_after_rotation(x, cos, sin, grad_out)


@equivalent(
    "rope_vjp",
    effect="None: both lanes of a pair have the same sine.",
    repair="None is needed.",
    citation="PaddlePaddle/Paddle#74716",
    law="",
)
def rope_vjp_sin_after_rotate_of_rotations(x: Array, grad_out: Array, start_pos: int = 0) -> Array:
    """The gradient is g ⊙ cos − rotated(g) ⊙ sin with the tables of rotations."""
    return _sine_after_rotation(x, *rotary_tables(start_pos, *x.shape[-2:]), grad_out)


# -- Rotating by tables ----------------------------------------------------------------------------------------------------------


@bug(
    "apply_rotary",
    effect="Every second entry of the tables is ignored.",
    repair="Read an entry for each lane.",
    citation="none: the tables of rotations hold everything twice, so half of them seems to do",
    law="apply rotary is within its budget",
    requires=("tables that are not rotations",),
)
def apply_rotary_reads_half_the_tables(x: Array, cos: Array, sin: Array) -> Array:
    """Both lanes of a pair use the entries of the first lane."""
    return apply_rotary(x, *(np.repeat(t[..., 0::2], 2, axis=-1)[..., : x.shape[-1]] for t in (cos, sin)))


@bug(
    "apply_rotary",
    effect="Queries and keys lose their lengths, and scores are cosines of angles.",
    repair="Turn x as it is; normalise where the model does.",
    citation="none: models that normalise queries and keys fuse the two steps into one kernel, which others then call",
    law="turning is linear",
)
def apply_rotary_normalizes(x: Array, cos: Array, sin: Array) -> Array:
    """Each row is divided by its root mean square before it is turned, unless it is 0."""
    size = np.sqrt(np.square(x).sum(-1, keepdims=True) / max(x.shape[-1], 1))
    return apply_rotary(x / np.where(size == 0, 1.0, size), cos, sin)


@bug(
    "apply_rotary",
    effect="Each lane is mixed in with the sine of its partner.",
    repair="Rotate first, then multiply by the sines.",
    citation="none: the forward's form of the exchange that PaddlePaddle/Paddle#74716 is about in the backward",
    law="apply rotary is within its budget",
    requires=("tables that are not rotations",),
)
def apply_rotary_sine_before_rotation(x: Array, cos: Array, sin: Array) -> Array:
    """The result is x ⊙ cos + rotated(x ⊙ sin)."""
    return np.asarray(x * cos + rotated(x * sin))


@bug(
    "apply_rotary",
    effect="Pairs are reflected and stretched instead of turned.",
    repair="Negate the second lane where it goes to the first.",
    citation="none: lanes are exchanged and the sign is forgotten",
    law="apply rotary is within its budget",
)
def apply_rotary_without_minus(x: Array, cos: Array, sin: Array) -> Array:
    """The lanes of a pair are exchanged without the minus."""
    return np.asarray(x * cos + rotated(x) * rotated(np.ones(x.shape[-1])) * sin)


@bug(
    "apply_rotary",
    effect="Sequences that are as long as the head is wide are turned by the transposed tables.",
    repair="Do not guess an axis from its length.",
    citation="none: tables come in both layouts, and shapes tell them apart but for squares",
    law="apply rotary is within its budget",
)
def apply_rotary_square_tables_transposed(x: Array, cos: Array, sin: Array) -> Array:
    """Tables whose first axis is as long as the head is wide are taken for transposed ones."""
    return apply_rotary(x, *(t.T if len(t) == x.shape[-1] and t.T.shape == x.shape[-2:] else t for t in (cos, sin)))


@bug(
    "apply_rotary",
    effect="Tables that change between calls, as with another base or scaling, have no effect.",
    repair="Do not cache what the caller hands over.",
    citation="none: a cache keyed by shape, as in lucidrains/rotary-embedding-torch#11, one layer further down",
    law="a call does not depend on earlier calls",
    requires=("two calls in a row",),
    stateful=True,
)
def apply_rotary_keeps_the_first_tables() -> Callable[..., Array]:
    """The tables of the first call with a shape serve all later calls with this shape."""
    cache: dict[tuple[int, ...], tuple[Array, Array]] = {}

    def cached(x: Array, cos: Array, sin: Array) -> Array:
        return apply_rotary(x, *cache.setdefault(cos.shape, (cos.copy(), sin.copy())))

    return cached


# -- Gradients -------------------------------------------------------------------------------------------------------------------


@bug(
    "apply_rotary_vjp",
    effect="Gradients are too small where tables stretch, and too large where they shrink.",
    repair="The gradient needs the transpose; for rotations only, it is the inverse.",
    citation="none: the backward is written as undoing the forward",
    law="apply rotary and its vjp are adjoint",
    requires=("tables that are not rotations",),
)
def apply_rotary_vjp_inverts(x: Array, cos: Array, sin: Array, grad_out: Array) -> Array:
    """The gradient is divided by cos² + sin², which makes it the inverse of the forward."""
    square = cos * cos + sin * sin
    return np.asarray(apply_rotary_vjp(x, cos, sin, grad_out) / np.where(square > 0, square, 1.0))


@bug(
    "rope_vjp",
    effect="Gradients are turned the same way as the values: twice as far from where they belong.",
    repair="Turn gradients back, by minus the angle.",
    citation="ngxson/llama.cpp#59",
    law="the rope vjp turns back",
)
def rope_vjp_turns_forwards(x: Array, grad_out: Array, start_pos: int = 0) -> Array:
    """The gradient is turned by the angle instead of back by it."""
    return rope(grad_out, start_pos)


@bug(
    "rope_vjp",
    effect="The gradient of the unpaired lane of an odd width is multiplied by cos − sin.",
    repair="Negate the sines of pairs only: the unpaired lane is its own transpose.",
    citation="none: huggingface/candle#3612 says it as everybody does, the backward is the forward with the sine negated",
    law="the odd lane follows its convention",
)
def rope_vjp_negates_every_sine(x: Array, grad_out: Array, start_pos: int = 0) -> Array:
    """The gradient is the forward with all sines negated, that of an odd width's unpaired lane included."""
    cos, sin = rotary_tables(start_pos, *x.shape[-2:])
    return apply_rotary(grad_out, cos, -sin)


@bug(
    "rope_vjp",
    effect="Gradients of chunks that do not begin at 0 are turned by the wrong angles.",
    repair="Save the start position for the backward.",
    citation="none: an argument that the forward does not save has its default in the backward",
    law="the rope vjp turns back",
)
def rope_vjp_ignores_start(x: Array, grad_out: Array, start_pos: int = 0) -> Array:
    """Gradients are turned as if the sequence began at 0."""
    return rope_vjp(x, grad_out)


@bug(
    "rope_vjp",
    effect="The gradient of every second lane is wrong.",
    repair="Subtract the first lane's gradient times the sine in the second lane.",
    citation="none: of the two signs that change in the transpose, one is forgotten",
    law="the rope vjp turns back",
)
def rope_vjp_one_sign_forgotten(x: Array, grad_out: Array, start_pos: int = 0) -> Array:
    """The second lane's gradient is computed with the forward's sign."""
    out, pairs = rope_vjp(x, grad_out, start_pos), x.shape[-1] // 2 * 2
    out[..., 1:pairs:2] = rope(grad_out, start_pos)[..., 1:pairs:2]
    return out


@bug(
    "rope_vjp",
    effect="From row 128 on gradients are turned by angles of the first rows.",
    repair="Add the block's first row to the row within the block.",
    citation="none: the index within a block is what a kernel has at hand",
    law="the rope vjp turns back",
    requires=("large sizes",),
)
def rope_vjp_rows_count_within_blocks(x: Array, grad_out: Array, start_pos: int = 0) -> Array:
    """Rows are counted from 0 in each block of 128."""
    blocks = [grad_out[..., i : i + 128, :] for i in range(0, max(x.shape[-2], 1), 128)]
    return np.concatenate([rope_vjp(g, g, start_pos) for g in blocks], axis=-2)
