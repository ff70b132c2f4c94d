"""PositionalEmbeddings.jl 0.6.3: its page against its code."""

import numpy as np

from research.findings.finding import Findings, Seen, outcome, shown
from systems.positional_embeddings_jl import (
    AbsolutePE,
    RoPE,
    RoPEMultiHeadAttention,
    compute_frequencies,
    create_causal_mask,
    create_padding_mask,
    neg_half,
)

__all__ = ["finding"]

finding = Findings("PositionalEmbeddings.jl")
_PAGE = "the package's documentation, page Home"


@finding("A matrix of shape (dim, seq_len).", f"compute_frequencies, {_PAGE}")
def frequencies_have_half_the_rows_that_are_promised() -> Seen:
    """There is one row for each pair of features."""
    return Seen("compute_frequencies(4, 3)", "shape (4, 3)", f"shape {compute_frequencies(4, 3).shape}")


@finding("True marks what is masked, and position i attends to the positions j ≤ i.", f"create_causal_mask, {_PAGE}")
def the_causal_mask_is_causal_only_where_true_keeps() -> Seen:
    """True is on and above the diagonal. The attention of the same page keeps true entries of scores laid out (key, query), and so the mask
    is exactly causal; as its prose reads it, (query, key) with true for masked, no position attends to itself, and the first to nothing.
    The laws hold under the first reading, and are declared to be broken under the second."""
    mask = create_causal_mask(3)[..., 0]
    return Seen("create_causal_mask(3), what may be attended to as the prose reads it", shown(np.tri(3, dtype=bool)), shown(~mask))


@finding("An array of shape (batch_size, max_len, 1).", f"create_padding_mask, {_PAGE}")
def the_padding_mask_has_its_axes_in_another_order() -> Seen:
    """The entries are the printed ones."""
    mask = create_padding_mask(np.array([2, 3]), 4)
    return Seen("create_padding_mask([2, 3], 4)", "shape (2, 4, 1)", f"shape {mask.shape}")


@finding("causal .| padding prevents attending to the future and to padding.", f"Usage with Causal Mask, {_PAGE}")
def causal_or_padding_blocks_no_padded_key() -> Seen:
    """It combines a mask whose true entries keep with one whose true entries drop: padded queries see every key, that is all."""
    combined = (create_causal_mask(4) | create_padding_mask(np.array([2]), 4))[..., 0].T
    right = np.tri(4, dtype=bool) & (np.arange(4) < 2)
    return Seen("one sequence of length 2, padded to 4: what is kept, (query, key)", shown(right), shown(combined))


@finding("Shapes (5, 5, 1) and (2, 5, 1) are combined by .|", f"Usage with Causal Mask, {_PAGE}")
def masks_of_the_printed_shapes_do_not_broadcast() -> Seen:
    """Those that the code builds do: (5, 5, 1) and (1, 5, 2)."""
    causal, padding = create_causal_mask(5), create_padding_mask(np.array([3, 4]), 5)
    return Seen("masks of the printed shapes", "one mask", outcome(lambda: causal | padding.transpose(2, 1, 0)))


@finding("A padding mask keeps padded positions out of attention.", f"create_padding_mask and Flux Integration Example, {_PAGE}")
def a_padding_mask_in_its_attention_leaves_real_tokens_without_keys() -> Seen:
    """It is true at padding, the attention keeps what is true, and its axis is that of queries."""
    layer = RoPEMultiHeadAttention.of_weights(*(np.ones((2, 2)),) * 4, num_heads=1)
    out = layer(np.ones((2, 2, 1)), create_padding_mask(np.array([1]), 2))[0, :, 0]
    return Seen("ones of width 2, a sequence of length 1 padded to 2: its output", "[4., anything]", shown(out))


@finding("The second half is negated along the given dimension.", f"neg_half, {_PAGE}")
def neg_half_also_exchanges_the_halves() -> Seen:
    """This is what a rotation needs; the docstring leaves it out."""
    return Seen("neg_half([1, 2, 3, 4])", "[1, 2, -3, -4]", shown(neg_half(np.array([1, 2, 3, 4]))))


@finding("The scale adjusts the influence of the positional encoding.", f"Usage Examples, {_PAGE}")
def the_scale_of_rope_stretches_positions() -> Seen:
    """It multiplies the angles: with 1/2 position 2 is turned as position 1, and with 0 nothing is turned."""
    x = np.array([1.0, 0.0]).reshape(2, 1, 1).repeat(3, axis=1)
    turned = RoPE.rotations(2, 3, scale=0.5, dtype=np.float64)(x)[:, 2, 0]
    return Seen(
        "(1, 0) at position 2, scale 1/2", f"(1, 0) turned by 2, {shown(np.array([np.cos(2), np.sin(2)]))}, less of it", shown(turned)
    )


@finding("Input of shape (seq_len, features, batch).", f"AbsolutePE, {_PAGE}")
def features_first_pass_through_absolute_encodings_where_there_are_as_many_positions() -> Seen:
    """RoPE of the same package takes features first, AbsolutePE positions first: nothing notices a square in the other's layout."""
    table = AbsolutePE.sinusoidal(2, 2)
    return Seen("zeros (2, 2, 1) with features first", shown(table.embeddings), shown(table(np.zeros((2, 2, 1)))[..., 0]))


@finding("Rotations of single precision, by default.", f"RoPE, {_PAGE}")
def single_precision_angles_lose_digits_with_the_position() -> Seen:
    """Angles are rounded to single precision before their cosine is taken; the budget of such code allows it."""
    single, double = (RoPE.rotations(512, 5000, dtype=dtype).cos_cached.astype(np.float64) for dtype in (np.float32, np.float64))
    worst = np.abs(single - double).max()
    return Seen(
        "cosines of head size 512 at the first 5000 positions",
        "within 6e-8 of the exact ones",
        f"up to {worst:.1e} from those of double precision",
    )
