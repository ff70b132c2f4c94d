"""A part of the reference, in NumPy: positional encodings, rotary and sinusoidal.

The module `properties.bugs.reference` has the other operations and explains steps.
"""

from typing import Any

import numpy as np

from oracles.ball import Array
from properties.bugs.declared import declared
from properties.bugs.reference_attention import first_position
from properties.bugs.reference_frequencies import rotary_frequencies

__all__ = [
    "add_positional_encoding",
    "angles",
    "apply_rotary",
    "apply_rotary_vjp",
    "beside",
    "channels",
    "chunk_tables",
    "distance_buckets",
    "divided",
    "exponents",
    "far_steps",
    "inv_freq",
    "learned_positional_encoding",
    "model_tables",
    "offset_rows",
    "pair_angles",
    "pair_axes",
    "pair_frequencies",
    "position_ids",
    "positions",
    "relative_bias",
    "relative_buckets",
    "relative_position_index",
    "rope",
    "rope_angles",
    "rope_tables",
    "rope_vjp",
    "rotary_embedding",
    "rotary_tables",
    "rotate_half",
    "rotated",
    "rotated_by_kind",
    "rotating_channels",
    "row_positions",
    "scaled_tables",
    "sinusoidal_positional_encoding",
    "table_lookup",
    "tables_of",
    "window_places",
    "with_padding",
]


def positions(start_pos: int, seq_len: int) -> Any:
    """Return the positions of a chunk: `seq_len` of them, from `start_pos` on."""
    return np.arange(start_pos, start_pos + seq_len)


def position_ids(attention_mask: Any) -> Any:
    """Return the number of tokens up to each token, minus 1, and the position of padding elsewhere."""
    return with_padding(np.cumsum(attention_mask, axis=-1) - 1, attention_mask)


def with_padding(of_tokens: Any, attention_mask: Any) -> Any:
    """Return the positions of tokens, and at padding the position that is declared."""
    return np.where(attention_mask == 1, of_tokens, int(declared().padding_position == "one"))


def exponents(dim: int) -> Array:
    """Return 2i/dim for each pair i of channels. The last channel of an odd width begins a pair
    too.
    """
    return 2.0 * np.arange((dim + 1) // 2) / max(dim, 1)


def inv_freq(head_dim: int) -> Array:
    """Return 10000^(−2i/head_dim) for each pair of channels."""
    return 10000.0 ** -exponents(head_dim)


def angles(start_pos: int, seq_len: int, dim: int) -> Array:
    """Return the angles: the frequency of each pair times each position."""
    return np.asarray(positions(start_pos, seq_len)[:, None] * inv_freq(dim))


def sinusoidal_positional_encoding(seq_len: int, embed_dim: int, start_pos: int = 0) -> Array:
    """Return the sinusoidal encoding: sines in the even columns, cosines in the odd ones."""
    theta = angles(start_pos, seq_len, embed_dim)
    output = np.empty((len(theta), embed_dim))
    output[:, 0::2] = np.sin(theta)
    output[:, 1::2] = np.cos(theta[:, : embed_dim // 2])
    return output


def add_positional_encoding(x: Array, pos: Array) -> Array:
    """Return x + pos."""
    return x + pos


def table_lookup(table: Array, indices: Any) -> Array:
    """Return the row of the table at each index."""
    return np.asarray(table[indices])


def learned_positional_encoding(table: Array, seq_len: int, start_pos: int = 0) -> Array:
    """Return the rows of the table from the start position."""
    return table_lookup(table, np.arange(start_pos, start_pos + seq_len))


def relative_bias(table: Array, n_q: int, n_k: int, bidirectional: bool, max_distance: int) -> Array:
    """Return the entry of the table for the bucket of each key's distance from each query, head by head."""
    ahead = np.arange(n_k) - np.arange(n_q)[:, None] - first_position(n_q, n_k)
    found = table[relative_buckets(ahead, len(table), bidirectional, max_distance)]
    return np.array(np.moveaxis(found, -1, 0))


def relative_buckets(ahead: Any, buckets: int, bidirectional: bool, max_distance: int) -> Any:
    """Return the buckets of distances: half of them for each direction, or all for the keys before."""
    if bidirectional:
        half = buckets // 2
        return np.where(ahead > 0, half, 0) + distance_buckets(np.abs(ahead), half, max_distance)
    return distance_buckets(np.maximum(-ahead, 0), buckets, max_distance)


def distance_buckets(distance: Any, buckets: int, max_distance: int) -> Any:
    """Return the buckets of distances: the first half for one distance each, the others by logarithm."""
    half = buckets // 2
    far = far_steps(distance, half, max_distance) * (buckets - half)
    return np.where(distance < half, distance, np.minimum(half + far.astype(int), buckets - 1))


def far_steps(distance: Any, half: int, max_distance: int) -> Any:
    """Return 0 at the first distance that shares a bucket, and 1 at the largest one that matters."""
    return np.log(np.maximum(distance, half) / half) / np.log(max_distance / half)


def relative_position_index(height: int, width: int) -> Any:
    """Return the row of a table for the offset of each query of a window from each key."""
    y, x = window_places(height, width)
    return offset_rows(y[:, None] - y, x[:, None] - x, height, width)


def window_places(height: int, width: int) -> Any:
    """Return the row and the column of each token of a window, which lie row by row."""
    return np.indices((height, width)).reshape(2, -1)


def offset_rows(down: Any, across: Any, height: int, width: int) -> Any:
    """Return the row of a table for offsets: the smallest ones have row 0."""
    return (down + height - 1) * (2 * width - 1) + across + width - 1


def rope_angles(seq_len: int, head_dim: int, start_pos: int = 0) -> Array:
    """Return the angles of a chunk's positions."""
    return angles(start_pos, seq_len, head_dim)


def channels(theta: Array, dim: int) -> Array:
    """Return the angle of each channel. Both channels of a pair have the same angle."""
    return np.repeat(theta, 2, axis=-1)[..., :dim]


def chunk_tables(start_pos: int, seq_len: int, dim: int) -> tuple[Array, Array]:
    """Return the cosines and sines for each channel."""
    theta = channels(angles(start_pos, seq_len, dim), dim)
    return np.cos(theta), np.sin(theta)


def tables_of(x: Array, start_pos: int) -> tuple[Array, Array]:
    """Return the cosines and sines for the rows of x. The positions run along the last axis but
    one.
    """
    return chunk_tables(start_pos, *x.shape[-2:])


def rope_tables(seq_len: int, head_dim: int, start_pos: int = 0) -> tuple[Array, Array]:
    """Return the cosines and sines of a chunk's positions, for each channel."""
    return chunk_tables(start_pos, seq_len, head_dim)


def rotate_half(x: Array) -> Array:
    """Return the channels as (−second half, first half)."""
    first, second = np.split(x, 2, axis=-1)
    return np.concatenate([-second, first], axis=-1)


def rotated(x: Array) -> Array:
    """Return (−second, first) for each pair of channels. The unpaired last channel of an odd width
    is unchanged.
    """
    output = x.copy()
    pairs = x.shape[-1] // 2 * 2
    output[..., 0:pairs:2], output[..., 1:pairs:2] = -x[..., 1:pairs:2], x[..., 0:pairs:2]
    return output


def apply_rotary(x: Array, cos: Array, sin: Array) -> Array:
    """Return x ⊙ cos + rotated(x) ⊙ sin."""
    return x * cos + rotated(x) * sin


def apply_rotary_vjp(x: Array, cos: Array, sin: Array, grad_out: Array) -> Array:
    """Return grad_out ⊙ cos + rotatedᵀ(grad_out ⊙ sin). The transpose rotates each pair backwards."""
    pairs = x.shape[-1] // 2 * 2
    rotated_back = rotated(grad_out * sin)
    rotated_back[..., :pairs] *= -1
    return grad_out * cos + rotated_back


# -- As models rotate ------------------------------------------------------------------------------


def rotating_channels(dim: int, rotary_dim: int | None) -> int:
    """Return the number of channels that rotate. Without `rotary_dim`, these are all channels."""
    return dim if rotary_dim is None else rotary_dim


def row_positions(shape: tuple[int, ...], start_pos: int, positions: Any, sections: Any) -> Any:
    """Return the position of each row. With sections, return it along the axis of each."""
    if positions is not None:
        return positions
    counted = start_pos + np.arange(shape[-2])
    return counted if sections is None else np.stack([counted] * len(sections))


def pair_frequencies(r: int, inv_freq_: Any) -> Array:
    """Return the given frequencies, or the frequencies of the base."""
    return inv_freq(r) if inv_freq_ is None else inv_freq_


def pair_axes(pairs: int, sections: Any) -> Any:
    """Return the axis of each pair: blocks of pairs for time, height and width."""
    return np.repeat(np.arange(len(sections)), sections)[:pairs]


def pair_angles(at: Any, f: Array, sections: Any) -> Array:
    """Return positions times frequencies. Each pair uses the position along its own axis."""
    if sections is None:
        return np.asarray(at[..., None] * f)
    return np.asarray(np.moveaxis(at, 0, -1)[..., pair_axes(len(f), sections)] * f)


def scaled_tables(theta: Array, attention_factor: float | None) -> tuple[Array, Array]:
    """Return the cosines and sines for each channel, times the attention factor."""
    theta, factor = channels(theta, 2 * theta.shape[-1]), 1.0 if attention_factor is None else attention_factor
    return np.cos(theta) * factor, np.sin(theta) * factor


def model_angles(
    x: Array, start_pos: int, positions: Any = None, inv_freq: Any = None, rotary_dim: Any = None, sections: Any = None
) -> Array:
    """Return the angles of the rows of x, for each pair of channels that rotates."""
    f = pair_frequencies(rotating_channels(x.shape[-1], rotary_dim), inv_freq)
    return pair_angles(row_positions(x.shape, start_pos, positions, sections), f, sections)


def model_tables(x: Array, start_pos: int, attention_factor: float | None = None, **given: Any) -> tuple[Array, Array]:
    """Return the cosines and sines for the rows of x and the channels that rotate."""
    return scaled_tables(model_angles(x, start_pos, **given), attention_factor)


def rotary_tables(
    positions: Any, inv_freq: Array, *, attention_factor: float | None = None, sections: Any = None
) -> tuple[Array, Array]:
    """Return the cosines and sines of positions, for each channel."""
    return scaled_tables(pair_angles(positions, inv_freq, sections), attention_factor)


def beside(turned: Array, x: Array) -> Array:
    """Return the rotated channels, followed by the channels of x that do not rotate."""
    return np.concatenate([turned, x[..., turned.shape[-1] :]], axis=-1)


def rope(x: Array, start_pos: int = 0, **options: Any) -> Array:
    """Return each pair of channels rotated by its angle."""
    if not options:
        return apply_rotary(x, *tables_of(x, start_pos))
    cos, sin = model_tables(x, start_pos, **options)
    return beside(apply_rotary(x[..., : cos.shape[-1]], cos, sin), x)


def divided(f: Array, freq_factors: Any) -> Array:
    """Return frequencies over their factors."""
    return f if freq_factors is None else f / freq_factors


def rotated_by_kind(x: Array, at: Any, f: Array, factor: Any) -> Array:
    """Return x with its first pairs rotated by positions times frequencies."""
    cos, sin = scaled_tables(pair_angles(at, f, None), factor)
    return beside(apply_rotary(x[..., : cos.shape[-1]], cos, sin), x)


def rotary_embedding(
    q: Array, k: Array, positions: Any, kind: str, *, freq_factors: Any = None, **parameters: Any
) -> tuple[Array, Array]:
    """Return queries and keys rotated by the frequencies of a kind, over their factors."""
    f, factor = rotary_frequencies(kind, q.shape[-1], **parameters)
    f = divided(f, freq_factors)
    return rotated_by_kind(q, positions, f, factor), rotated_by_kind(k, positions, f, factor)


def rope_vjp(x: Array, grad_out: Array, start_pos: int = 0, **options: Any) -> Array:
    """Return the gradient of Σ grad_out ⊙ rope(x)."""
    if not options:
        return apply_rotary_vjp(x, *tables_of(x, start_pos), grad_out)
    cos, sin = model_tables(x, start_pos, **options)
    r = cos.shape[-1]
    return beside(apply_rotary_vjp(x[..., :r], cos, sin, grad_out[..., :r]), grad_out)
