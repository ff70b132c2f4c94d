"""PositionalEmbeddings.jl 0.6.3 in NumPy, and the attention of its example.

The port follows the code where the code and the documentation differ.

Arrays keep Julia's shapes: features first, then positions, then heads and batch in one axis.
Reshapes run through the first axis first. An array (batch, seq, features) in C order is a Julia
array with the axes in reverse, so adapters only transpose.

Source: github.com/mashu/PositionalEmbeddings.jl, src/PositionalEmbeddings.jl, and docs/src/index.md
for the attention.
"""

import math
import operator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from oracles import BINARY32, FLOAT32, FLOAT64, Arithmetic, Conventions
from properties.contract.implementation import Implementation
from spec.tensor_core import Array
from systems.attention_arguments import Projections, with_projections

__all__ = [
    "IMPLEMENTATIONS",
    "AbsolutePE",
    "RoPE",
    "RoPEMultiHeadAttention",
    "compute_frequencies",
    "create_causal_mask",
    "create_padding_mask",
    "neg_half",
]


def compute_frequencies(dim: int, seq_len: int, base: float = 10000.0) -> Array:
    """The angles position·base^(−2i/dim), in radians, in double precision.

    Shapes: (⌈dim/2⌉, seq_len), where the docstring promises (dim, seq_len). Positions count from 0.
    """
    theta = 1.0 / base ** (np.arange(0, dim, 2) / dim)
    return np.outer(theta, np.arange(seq_len))


@dataclass(frozen=True)
class AbsolutePE:
    """A table of positions, (embedding_size, max_length), which a call adds to sequences (seq,
    features, batch).
    """

    embedding_size: int
    max_length: int
    embeddings: Array

    @classmethod
    def sinusoidal(cls, embedding_size: int, max_length: int, base: float = 10000.0) -> "AbsolutePE":
        """A table with sines in the rows 0, 2, … and cosines in the others.

        They are computed in double precision and stored in single precision.

        Edge cases: an odd size has one row of cosines too many, and NumPy raises ValueError, as
        Julia raises an error. Size 1 passes, because one row broadcasts into zero rows.
        """
        angles = compute_frequencies(embedding_size, max_length, base)
        embeddings = np.zeros((embedding_size, max_length), dtype=np.float32)
        embeddings[0::2] = np.sin(angles)
        embeddings[1::2] = np.cos(angles)
        return cls(embedding_size, max_length, embeddings)

    def __call__(self, x: Array) -> Array:
        """x plus the first positions of the table, in the wider type of the two.

        Shapes: x is (seq, features, batch). Raises ValueError for other features than the table's,
        and for a longer sequence.
        """
        seq_len, features, _ = x.shape
        if features != self.embedding_size:
            raise ValueError(f"x has {features} features, but should have {self.embedding_size}.")
        if seq_len > self.max_length:
            raise ValueError(f"x has {seq_len} positions, but should have at most {self.max_length}.")
        return np.asarray(x + self.embeddings[:, :seq_len].T[..., None])


def neg_half(x: Array, dim: int = 0) -> Array:
    """[−second half; first half] along an axis.

    The original's docstring mentions the negation only; the code also exchanges the halves.

    Edge cases: with an odd size the second half is the longer one.
    """
    first, second = np.split(x, [x.shape[dim] // 2], axis=dim)
    return np.concatenate([-second, first], axis=dim)


@dataclass(frozen=True)
class RoPE:
    """Tables of cosines and sines, (head_size, seq_len), which rotate sequences (head_size, seq,
    heads·batch).
    """

    head_size: int
    cos_cached: Array
    sin_cached: Array

    @classmethod
    def rotations(
        cls, head_size: int, seq_len: int, *, base: float = 10000.0, scale: float = 1.0, dtype: Any = np.float32
    ) -> "RoPE":
        """Cosines and sines of the angles scale·position·base^(−2i/head_size).

        The angles are rounded to the type before the cosine and the sine, and stacked twice: the
        channels of a pair are half a head apart. Positions count from 0. The documentation calls
        the scale the influence of positions; it multiplies their angles, and with 0 no position
        rotates anything. Raises ValueError for an odd head_size.
        """
        if head_size % 2:
            raise ValueError(f"head_size={head_size}, but should be even.")
        angles = (compute_frequencies(head_size, seq_len, base) * scale).astype(dtype)
        stacked = np.concatenate([angles, angles])
        return cls(head_size, np.cos(stacked), np.sin(stacked))

    def __call__(self, x: Array) -> Array:
        """x·cos + neg_half(x)·sin, each position with its column of the tables.

        Shapes: x is (head_size, seq, heads·batch). Raises ValueError for another head_size, and for
        more positions than the tables have.
        """
        head_size, seq_len, _ = x.shape
        if head_size != self.head_size:
            raise ValueError(f"x has head_size {head_size}, but should have {self.head_size}.")
        if seq_len > self.cos_cached.shape[1]:
            raise ValueError(f"x has {seq_len} positions, but should have at most {self.cos_cached.shape[1]}.")
        cos, sin = (table[:, :seq_len, None] for table in (self.cos_cached, self.sin_cached))
        return np.asarray(x * cos + neg_half(x) * sin)


def create_causal_mask(seq_len: int) -> Array:
    """True on and above the diagonal.

    Shapes: (seq_len, seq_len, 1). With axes (key, query), where true marks visible keys, the mask
    is causal. The original's docstring has axes (query, key), where true marks masked keys: then
    query i sees the keys before i, and the first query sees no key.
    """
    return np.triu(np.ones((seq_len, seq_len), dtype=bool))[..., None]


def create_padding_mask(lengths: Array, max_len: int) -> Array:
    """True at padding: at the positions from each length on.

    Shapes: (1, max_len, batch), where the docstring promises (batch, max_len, 1).
    """
    return ~(np.asarray(lengths) >= np.arange(1, max_len + 1)[:, None])[None]


@dataclass(frozen=True)
class RoPEMultiHeadAttention:
    """Self-attention of sequences (d_model, seq, batch) with rotated queries and keys.

    The weights are (d_model, d_model), and multiply from the left.
    """

    Wq: Array
    Wk: Array
    Wv: Array
    Wo: Array
    num_heads: int
    head_dim: int
    scale: Any
    rope: RoPE

    @classmethod
    def of_weights(cls, *weights: Array, num_heads: int, maxlen: int = 1000, **rope: Any) -> "RoPEMultiHeadAttention":
        """The layer with the weights Wq, Wk, Wv and Wo, and with √head_dim and tables of rotations
        in their type.

        `rope` are options of `RoPE.rotations`. Raises ValueError if the weights do not all have one
        square shape, or if num_heads does not divide d_model.
        """
        Wq, Wk, Wv, Wo = weights
        d_model, dtype = len(Wq), Wq.dtype
        for weight in weights:
            if weight.shape != (d_model, d_model):
                raise ValueError(f"A weight has shape {weight.shape}, but should have shape {(d_model, d_model)}.")
        head_dim = d_model // num_heads
        if head_dim * num_heads != d_model:
            raise ValueError(f"d_model={d_model}, but should be divisible by num_heads={num_heads}.")
        rotation = RoPE.rotations(head_dim, maxlen, dtype=dtype, **rope)
        return cls(Wq, Wk, Wv, Wo, num_heads, head_dim, np.sqrt(head_dim).astype(dtype), rotation)

    def __call__(self, x: Array, mask: Array | None = None) -> Array:
        """Wo times the heads' averages of values, with softmax weights over the visible keys.

        Shapes: x is (d_model, seq, batch); the mask broadcasts to (key, query, num_heads·batch),
        with the head first in memory, and true marks visible keys. Edge cases: a fully masked row
        is NaN.
        """
        q, k, v = (self.split_heads(_times(weight, x)) for weight in (self.Wq, self.Wk, self.Wv))
        q, k = self.rope(q), self.rope(k)
        scores = _batched(k.swapaxes(0, 1), q / self.scale)
        if mask is not None:
            scores = np.where(mask, scores, -np.inf).astype(scores.dtype)
        return _times(self.Wo, self.join_heads(_batched(v, _softmax(scores)), x.shape[2]))

    def split_heads(self, x: Array) -> Array:
        """(d_model, seq, batch) as (head_dim, seq, num_heads·batch): heads are blocks of features."""
        _, seq_len, batch = x.shape
        heads = x.reshape((self.head_dim, self.num_heads, seq_len, batch), order="F").transpose(0, 2, 1, 3)
        return heads.reshape((self.head_dim, seq_len, self.num_heads * batch), order="F")

    def join_heads(self, x: Array, batch: int) -> Array:
        """The inverse of `split_heads`."""
        seq_len = x.shape[1]
        heads = x.reshape((self.head_dim, seq_len, self.num_heads, batch), order="F").transpose(0, 2, 1, 3)
        return heads.reshape((self.head_dim * self.num_heads, seq_len, batch), order="F")


def _times(weight: Array, x: Array) -> Array:
    """The product weight·x at each position."""
    return np.tensordot(weight, x, axes=1)


def _batched(a: Array, b: Array) -> Array:
    """The matrix products a·b of the slices along the last axis."""
    return np.moveaxis(np.moveaxis(a, -1, 0) @ np.moveaxis(b, -1, 0), 0, -1)


def _softmax(scores: Array) -> Array:
    """The softmax along the first axis; NaN where all scores are −∞."""
    with np.errstate(invalid="ignore"):
        weights = np.exp(scores - scores.max(axis=0))
    return np.asarray(weights / weights.sum(axis=0))


# The operations.

_POSITIONS = 4096  # the positions of a layer's tables: half for the first position, half for the sequence
_SUPPORTED = dict.fromkeys(("seq_len", "start_pos"), lambda n: 2 * n <= _POSITIONS)


def _julian(x: Array) -> Array:
    """(…, seq, features) as (features, seq, batch)."""
    return x.reshape(math.prod(x.shape[:-2]), *x.shape[-2:]).T


def _sinusoid(dtype: Any, seq_len: int, embed_dim: int, start_pos: int = 0) -> Array:
    """The encoding, which is the sum at the last rows of a longer sequence of zeros."""
    zeros = np.broadcast_to(np.zeros(1, dtype), (start_pos + seq_len, embed_dim, 1))
    return AbsolutePE.sinusoidal(embed_dim, _POSITIONS)(zeros)[start_pos:, :, 0]


def _add(x: Array, pos: Array) -> Array:
    """x + pos, where each sequence has a layer whose table is its encoding."""
    seq_len, features = x.shape[-2:]
    out = np.empty_like(x)
    for batch in np.ndindex(x.shape[:-2]):
        layer = AbsolutePE(features, seq_len, np.broadcast_to(pos, x.shape)[batch].T)
        out[batch] = layer(x[batch][..., None])[..., 0]
    return out


def _rope(options: dict[str, Any], x: Array, start_pos: int = 0) -> Array:
    """x rotated by the columns of the tables from start_pos on."""
    whole = RoPE.rotations(x.shape[-1], _POSITIONS, **options)
    chunk = RoPE(whole.head_size, whole.cos_cached[:, start_pos:], whole.sin_cached[:, start_pos:])
    return chunk(_julian(x)).T.reshape(x.shape)


def _apply_rotary(x: Array, cos: Array, sin: Array) -> Array:
    return RoPE(x.shape[-1], cos.T, sin.T)(_julian(x)).T.reshape(x.shape)


def _attend(x: Array, weights: Projections, num_heads: int, mask: Array | None = None) -> Array:
    """The example's attention without rotation: the scale of its angles is 0."""
    layer = RoPEMultiHeadAttention.of_weights(*(weight.T for weight in weights), num_heads=num_heads, scale=0.0)
    if mask is not None:
        each = np.broadcast_to(mask, (*x.shape[:-1], x.shape[-2])).reshape(-1, x.shape[-2], x.shape[-2])
        mask = np.repeat(each, num_heads, axis=0).T
    return layer(_julian(x), mask).T.reshape(x.shape)


def _causal(n_q: int, n_k: int | None = None) -> Array:
    """The first n_q rows and n_k columns of the square mask, rows for queries and columns for keys."""
    columns = n_q if n_k is None else n_k
    return create_causal_mask(max(n_q, columns))[:n_q, :columns, 0]


def _causal_keys_first(n_q: int, n_k: int | None = None) -> Array:
    """The transpose of the square mask's first n_k rows and n_q columns, rows for keys and columns
    for queries.
    """
    columns = n_q if n_k is None else n_k
    return create_causal_mask(max(n_q, columns))[:columns, :n_q, 0].T


def _padding(lengths: Array, max_len: int) -> Array:
    return create_padding_mask(lengths, max_len).squeeze(0).T


def _inv_freq(head_dim: int) -> Array:
    """The frequencies, which are the angles of position 1."""
    return compute_frequencies(head_dim, 2)[:, 1]


def _last_position(seq_len: int, start_pos: int) -> int:
    if start_pos + seq_len > _POSITIONS:
        raise ValueError(f"start_pos + seq_len = {start_pos} + {seq_len}, but should be at most {_POSITIONS}.")
    return start_pos + seq_len


def _angles(seq_len: int, head_dim: int, start_pos: int = 0) -> Array:
    """The angles of a longer sequence, from start_pos on."""
    return compute_frequencies(head_dim, _last_position(seq_len, start_pos))[:, start_pos:].T


def _tables(options: dict[str, Any], seq_len: int, head_dim: int, start_pos: int = 0) -> tuple[Array, Array]:
    """The tables of a longer sequence, from start_pos on."""
    layer = RoPE.rotations(head_dim, _last_position(seq_len, start_pos), **options)
    return layer.cos_cached[:, start_pos:].T, layer.sin_cached[:, start_pos:].T


# Tables are computed in double precision. RoPE's angles are rounded to the type of its tables,
# AbsolutePE's sines and cosines to single precision.
_STORED = replace(FLOAT64.angle, table=BINARY32)
_ROUNDED = replace(FLOAT32.angle, frequency=FLOAT64.angle.frequency)
_SINGLE = replace(FLOAT32, angle=_ROUNDED)
_MIXED = replace(FLOAT64, angle=_ROUNDED, trig_absolute=FLOAT32.trig_absolute)

_SOURCE = "github.com/mashu/PositionalEmbeddings.jl"
_ODD = (
    "The layer refuses an odd head_size where it computes tables, but not where tables are given. There neg_half "
    "negates the longer half, so each channel past the middle is combined with the partner of the channel before it. "
    f"See RoPE and neg_half in {_SOURCE}."
)
_CAUSAL = (
    "The docstring says that true marks masked keys and that rows are queries. Then query i sees only the keys before "
    f"i, and the first query sees no key. See create_causal_mask in {_SOURCE}."
)
_PADDING = (
    "The mask is true at padding, and the attention takes true for visible: it sees padding only. "
    f"See create_padding_mask in {_SOURCE}, and the attention in its docs/src/index.md."
)
_COMBINED = (
    "The documentation combines masks by .|, and the attention takes true for visible: a key is visible if either "
    f"mask shows it. See create_padding_mask in {_SOURCE}."
)


def _sinusoidal(arithmetic: Arithmetic) -> Implementation:
    """AbsolutePE with the table that it computes, on sequences of a type."""
    return Implementation(
        name=f"PositionalEmbeddings.jl AbsolutePE {arithmetic.name}",
        operations={"sinusoidal_positional_encoding": partial(_sinusoid, np.dtype(arithmetic.name))},
        arithmetic=replace(arithmetic, angle=_STORED, trig_absolute=FLOAT64.trig_absolute),
        supports=_SUPPORTED | {"embed_dim": lambda d: d % 2 == 0 or d == 1},
    )


def _added(arithmetic: str) -> Implementation:
    """AbsolutePE with a given table."""
    return Implementation(
        name=f"PositionalEmbeddings.jl AbsolutePE {arithmetic}, table given",
        operations={"add_positional_encoding": _add},
        arithmetic=arithmetic,
    )


def _rotating(
    name: str, tables: Any, arithmetic: Arithmetic, base: float = 10000.0, scale: float = 1.0
) -> Implementation:
    """RoPE with tables of one type, on sequences in the type of the arithmetic."""
    options = {"base": base, "scale": scale, "dtype": tables}
    return Implementation(
        name=f"PositionalEmbeddings.jl RoPE {name}",
        operations={
            "rope": partial(_rope, options),
            "apply_rotary": _apply_rotary,
            "rotate_half": partial(neg_half, dim=-1),
            "rope_tables": partial(_tables, options),
        },
        arithmetic=arithmetic,
        conventions=Conventions(rope_pairing="half", rope_base=base, rope_scale=scale),
        supports=_SUPPORTED,
        known_deviations={"the last channel of an odd width follows its convention[apply_rotary]": _ODD},
    )


def _attention(arithmetic: str) -> Implementation:
    """The example's attention without its rotation; sequences and weights have one type."""
    return Implementation(
        name=f"PositionalEmbeddings.jl attention {arithmetic}",
        operations={"multi_head_attention": with_projections(_attend)},
        arithmetic=arithmetic,
        conventions=Conventions(dead_rows="nan"),
        supports={
            "seq_len": lambda n: n <= 1000,
            "head_dim": lambda d: d % 2 == 0,
            "model_dim_minus_heads_width": [0],
        },
    )


IMPLEMENTATIONS = [
    _sinusoidal(FLOAT32),
    _sinusoidal(FLOAT64),
    _added("float32"),
    _added("float64"),
    _rotating("float32", np.float32, _SINGLE),
    _rotating("float64", np.float64, FLOAT64),
    _rotating("float64, tables of float32", np.float32, _MIXED),
    _rotating("float32, base 500000", np.float32, _SINGLE, base=500000.0),
    _rotating("float32, scale 1/4", np.float32, _SINGLE, scale=0.25),
    _rotating("float64, base 100, scale 1.5", np.float64, FLOAT64, base=100.0, scale=1.5),
    Implementation(
        name="PositionalEmbeddings.jl compute_frequencies",
        operations={"inv_freq": _inv_freq, "rope_angles": _angles},
        supports=_SUPPORTED,
    ),
    _attention("float32"),
    _attention("float64"),
    Implementation(
        name="PositionalEmbeddings.jl masks as its attention reads them: true keeps, keys first",
        operations={"causal_mask": _causal_keys_first, "padding_mask": _padding, "combine_masks": operator.or_},
        known_deviations={
            "a padding mask equals its definition": _PADDING,
            "a padding mask makes exactly the positions of each sequence visible": _PADDING,
            "a combined mask equals its definition": _COMBINED,
            "all-true masks change nothing, all-false masks mask everything": _COMBINED,
            "causal and padding masks combine by a logical and": _COMBINED,
        },
    ),
    Implementation(
        name="PositionalEmbeddings.jl masks as its docstrings read them: true blocks, queries first",
        operations={"causal_mask": _causal, "padding_mask": _padding, "combine_masks": operator.or_},
        conventions=Conventions(mask_polarity="true_blocks"),
        known_deviations={
            "a causal mask equals its definition": _CAUSAL,
            "each entry of a table has its value": _CAUSAL,
            "each row of a causal mask sees one more key than the row before": _CAUSAL,
            "causal and padding masks combine by a logical and": _CAUSAL,
        },
    ),
]
