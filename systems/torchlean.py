"""TorchLean under test: the literal definitions of `spec` over ℝ and over Lean's Float, and their
corrected revision.

The implementations take one sequence at a time and small sizes only, because definitions are slow.
The seed revision declares each law that it breaks, with the Lean name of the wrong definition;
`spec.errata` has the smallest witness of each mistake.

Source: lean-dojo/TorchLean, `NN/Spec/Layers/Attention.lean` and
`NN/Spec/Layers/PositionalEncoding.lean`, at revision `spec.lean.LITERAL` (seed) and in the form of
`spec.corrected` (revised).
"""

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import mpmath
import numpy as np

from oracles import Conventions
from properties.contract.implementation import Implementation
from spec import FLOAT64, MPF, Context, attention, corrected
from spec.activation import softmax_spec
from spec.positional_encoding import (
    PositionalEncodingSpec,
    add_positional_encoding_spec,
    posenc_angle_spec,
    rope_apply_heads_spec,
    rope_apply_spec,
    rope_cos_lastdim_spec,
    rope_sin_lastdim_spec,
    sinusoidal_positional_encoding_spec,
)
from spec.tensor_core import Array, stack, tabulate
from systems.attention_arguments import Projections, with_projections

__all__ = ["IMPLEMENTATIONS"]

_LARGEST = 9  # rows and columns: larger sizes take too long
_WIDTH, _MODEL = 8, 24  # columns of a head, and of a model of three heads
_DIGITS = 40  # decimal digits of the arithmetic over ℝ


def _few(n: int) -> bool:
    return n <= _LARGEST


def _require(largest: int, *sizes: int) -> None:
    if max(sizes, default=0) > largest:
        raise ValueError(f"The sizes are {sizes}, but should be at most {largest}.")


# -- The definitions as operations -----------------------------------------------------------------


@dataclass(frozen=True)
class _Revision:
    """A revision of the attention definitions, the scalar that they run over, and the sizes that it
    takes.

    `width` is the largest number of columns, `heads` has the numbers of heads, `tokens` is the
    smallest number of tokens.
    """

    definitions: ModuleType
    softmax: Callable[..., Array]
    forward: Callable[..., Array]
    scalar: Context
    width: int = _LARGEST
    heads: tuple[int, ...] = (1, 2, 3)
    tokens: int = 1

    def _context(self, q: Array, k: Array, v: Array, mask: Array | None) -> attention.AttentionContext:
        _require(_LARGEST, len(q), len(k))
        _require(self.width, k.shape[1])
        whole = None if mask is None else np.broadcast_to(mask, (len(q), len(k)))
        return attention.AttentionContext(q, k, v, whole, scalar=self.scalar)

    def sdpa(self, q: Array, k: Array, v: Array, mask: Array | None = None) -> Array:
        """Attention of one sequence."""
        out: Array = self.definitions.scaled_dot_product_attention(self._context(q, k, v, mask))
        return out

    def sdpa_vjp(self, q: Array, k: Array, v: Array, mask: Array | None, grad_out: Array) -> tuple[Array, Array, Array]:
        """(dQ, dK, dV) by the definition of the backward."""
        gradients: tuple[Array, Array, Array] = self.definitions.scaled_dot_product_attention_backward(
            self._context(q, k, v, mask), grad_out
        )
        return gradients

    def sdpa_jvp(self, q: Array, k: Array, v: Array, mask: Array | None, *tangents: Array) -> Array:
        """The output's tangent by the definition of the JVP, for the tangents (dQ, dK, dV)."""
        tangent: Array = self.definitions.scaled_dot_product_attention_jvp(self._context(q, k, v, mask), *tangents)
        return tangent

    def causal(self, q: Array, k: Array, v: Array) -> Array:
        """Attention under the causal mask."""
        return self.sdpa(q, k, v, _causal_mask(len(q), len(k)))

    def weights(self, scores: Array, mask: Array | None = None) -> Array:
        """The attention weights, with or without a mask."""
        _require(_LARGEST, *scores.shape)
        if mask is None:
            return softmax_spec(scores, self.scalar)
        return self.softmax(scores, np.broadcast_to(mask, scores.shape), self.scalar)

    def weights_vjp(self, scores: Array, mask: Array | None, grad_weights: Array) -> Array:
        """The gradient of the scores, computed from the weights."""
        return attention.softmax_backward_from_weights_spec(self.weights(scores, mask), grad_weights, self.scalar)

    def _heads(self, weights: Projections, num_heads: int) -> attention.MultiHeadAttention:
        width = len(weights.wo) // num_heads
        _require(_MODEL, len(weights.wq))
        _require(_WIDTH, width)
        if num_heads not in self.heads:
            raise ValueError(f"num_heads={num_heads}, but should be one of {self.heads}.")
        return attention.MultiHeadAttention(*weights, num_heads, width, scalar=self.scalar)

    def _shared(self, x: Array, mask: Array | None) -> Array | None:
        """The mask that all heads share."""
        _require(_LARGEST, len(x))
        if len(x) < self.tokens:
            raise ValueError(f"x has {len(x)} tokens, but should have at least {self.tokens}.")
        return None if mask is None else np.broadcast_to(mask, (len(x), len(x)))

    def mha(self, x: Array, weights: Projections, num_heads: int, mask: Array | None = None) -> Array:
        """Multi-head self-attention of one sequence."""
        return self.forward(self._heads(weights, num_heads), x, self._shared(x, mask))

    def mha_vjp(
        self, x: Array, weights: Projections, num_heads: int, mask: Array | None, grad_out: Array
    ) -> tuple[Array, ...]:
        """(dx, dWq, dWk, dWv, dWo) by the definition of the backward."""
        backward = self.definitions.multi_head_attention_backward
        gradients: tuple[Array, ...] = backward(self._heads(weights, num_heads), x, self._shared(x, mask), grad_out)
        return gradients

    def mha_jvp(
        self, x: Array, weights: Projections, num_heads: int, mask: Array | None, dx: Array, *tangents: Array
    ) -> Array:
        """The output's tangent by the definition of the JVP, for the tangents (dWq, dWk, dWv, dWo)."""
        heads, moved = self._heads(weights, num_heads), self._heads(Projections(*tangents), num_heads)
        tangent: Array = self.definitions.multi_head_attention_jvp(heads, moved, x, dx, self._shared(x, mask))
        return tangent


def _causal_mask(n_q: int, n_k: int | None = None) -> Array:
    """The first rows and columns of the square causal mask."""
    columns = n_q if n_k is None else n_k
    _require(_LARGEST, n_q, columns)
    return attention.causal_mask(max(n_q, columns))[:n_q, :columns].copy()


def _sinusoid(seq_len: int, embed_dim: int, start_pos: int = 0) -> Array:
    _require(_LARGEST, seq_len, embed_dim)
    return sinusoidal_positional_encoding_spec(seq_len, embed_dim, start_pos, FLOAT64)


def _add(x: Array, pos: Array) -> Array:
    _require(_LARGEST, *x.shape)
    return add_positional_encoding_spec(PositionalEncodingSpec(pos, scalar=FLOAT64), x)


def _rope(x: Array, start_pos: int = 0) -> Array:
    """The rotation of one head (n, d), or of several (heads, n, d)."""
    _require(_LARGEST, *x.shape)
    return (rope_apply_spec if x.ndim == 2 else rope_apply_heads_spec)(x, start_pos, FLOAT64)


def _rope_corrected(x: Array, start_pos: int = 0) -> Array:
    _require(_LARGEST, *x.shape)
    return corrected.rope_apply(x, start_pos, FLOAT64)


def _angles(seq_len: int, head_dim: int, start_pos: int = 0) -> Array:
    _require(_LARGEST, seq_len, head_dim)
    pairs = -(-head_dim // 2)
    return tabulate((seq_len, pairs), lambda p, i: posenc_angle_spec(start_pos + p, i, head_dim, FLOAT64), FLOAT64)


def _tables(seq_len: int, head_dim: int, start_pos: int = 0) -> tuple[Array, ...]:
    _require(_LARGEST, seq_len, head_dim)

    def table(row: Callable[..., Array]) -> Array:
        return stack((seq_len, head_dim), lambda p: row(start_pos + p, head_dim, FLOAT64), FLOAT64)

    return table(rope_cos_lastdim_spec), table(rope_sin_lastdim_spec)


def _rounded(operation: Callable[..., Any]) -> Callable[..., Any]:
    """An operation over `MPF`, with enough digits for ℝ and one rounding of its results."""

    def evaluated(*arguments: Any) -> Any:
        with mpmath.workdps(_DIGITS):
            result = operation(*arguments)
            if isinstance(result, tuple):
                return tuple(part.astype(np.float64) for part in result)
            return result.astype(np.float64)

    return evaluated


# -- The implementations ---------------------------------------------------------------------------

_SEED = attention, attention.hard_masked_softmax_spec, attention.MultiHeadAttention.forward
_REVISED = corrected, corrected.hard_masked_softmax, corrected.multi_head_attention_forward

_EXP = (
    "hardMaskedSoftmaxVecSpec does not subtract the maximum. In Float a score above 709.78 overflows, and a row of "
    "scores below −745.13 underflows to 0/0. See errata masked-overflow, masked-sum-overflow and masked-underflow."
)
_DEAD = (
    "hardMaskedSoftmaxVecSpec divides 0 by 0 in a fully masked row. In Float this NaN reaches dK and dV of every key. "
    "See erratum dead-row."
)
_SPLIT = (
    "splitHeadsSpec reshapes (n, numHeads·headDim) directly to (numHeads, n, headDim), so heads mix tokens. "
    "See errata head-split-inverse, head-split-token-mixing, head-split-causality and multi-head-adjoint."
)
_SOFTMAX, _SDPA, _HEADS = "hard_masked_softmax", "scaled_dot_product_attention", "multi_head_attention"


def _declared(reason: str, *operations: str, names: tuple[str, ...]) -> dict[str, str]:
    """The declared deviations of `operations` from the laws in `names`, all for one reason."""
    return {f"{name}[{operation}]": reason for operation in operations for name in names}


_OVERFLOWING = {
    **_declared(
        _EXP,
        _SOFTMAX,
        names=("softmax is within its error limit", "a single visible key has weight 1, however low its score"),
    ),
    **_declared(
        _EXP,
        _SOFTMAX,
        f"{_SOFTMAX}_vjp",
        names=(
            "scaling up some rows does not affect the others",
            "adding a constant to a row of scores changes nothing",
        ),
    ),
    **_declared(_EXP, _SOFTMAX, f"{_SOFTMAX}_vjp", names=("appending masked scores changes nothing",)),
    **_declared(
        *(_EXP, f"{_SDPA}_vjp", f"{_SDPA}_jvp"),
        names=("appending masked keys changes nothing", "the score of a single visible key does not matter"),
    ),
    **_declared(_EXP, f"{_SOFTMAX}_vjp", f"{_SDPA}_vjp", names=("the VJP is within its error limit",)),
    **_declared(_EXP, f"{_SDPA}_jvp", names=("the JVP is within its error limit",)),
    **_declared(
        _EXP,
        f"{_SDPA}_vjp",
        f"{_SDPA}_jvp",
        names=(
            "scaling up some queries does not affect the others",
            "a vector added to all keys changes nothing",
        ),
    ),
    **_declared(
        _DEAD,
        f"{_SDPA}_vjp",
        names=(
            "a fully masked row follows its convention",
            "packed sequences are computed independently",
        ),
    ),
}
_ROWS = (
    "reordering tokens reorders their results in the same way",
    "the order of heads does not matter",
    "the order of columns within heads does not matter",
    "tokens depend on visible tokens only",
)
_DERIVED = ("the result is the derivative of the forward", "derivatives do not pass through masked entries")
_OF_GRADIENTS = (
    "the VJP is within its error limit",
    "query and key gradients satisfy q.T @ dq = dk.T @ k",
    "value and output gradients satisfy v.T @ dv = out.T @ grad_out",
    "VJP and JVP are adjoint",
    "a fully masked row follows its convention",
)
_OF_OUTPUTS = (
    "multi-head attention is within its error limit",
    "a single visible token returns its projection x @ wv @ wo",
)
_PARTS = "each part of the result has its value"
_OF_SEVERAL_HEADS = {
    **_declared(_SPLIT, _HEADS, names=(*_ROWS, *_OF_OUTPUTS, _PARTS)),
    **_declared(_SPLIT, f"{_HEADS}_vjp", names=(*_ROWS, *_DERIVED, *_OF_GRADIENTS, _PARTS)),
    **_declared(_SPLIT, f"{_HEADS}_jvp", names=(*_ROWS, *_DERIVED, _PARTS, "the JVP is within its error limit")),
}


def _implementation(
    name: str, operations: dict[str, Callable[..., Any]], sizes: str, **promises: Any
) -> Implementation:
    """An implementation that takes at most `_LARGEST` for each size that `sizes` names."""
    supports = dict.fromkeys(sizes.split(), _few) | promises.pop("supports", {})
    return Implementation(
        name=f"TorchLean {name}",
        operations=operations,
        supports=supports,
        refuses=(ValueError,),
        **{"batch_ranks": (0,), **promises},
    )


def _softmax(revision: _Revision) -> dict[str, Callable[..., Any]]:
    return {"hard_masked_softmax": revision.weights, "hard_masked_softmax_vjp": revision.weights_vjp}


def _derivatives(revision: _Revision) -> dict[str, Callable[..., Any]]:
    return {
        "scaled_dot_product_attention_vjp": revision.sdpa_vjp,
        "scaled_dot_product_attention_jvp": revision.sdpa_jvp,
    }


def _attention(
    name: str, revision: _Revision, operations: dict[str, Callable[..., Any]], **promises: Any
) -> Implementation:
    supports = {"head_dim": lambda d: d <= revision.width, "value_dim_minus_head_dim": [0]}
    return _implementation(f"attention, {name}", operations, "n_q n_k", supports=supports, **promises)


def _everything(revision: _Revision) -> dict[str, Callable[..., Any]]:
    attend = {"scaled_dot_product_attention": revision.sdpa, "causal_attention": revision.causal}
    return _softmax(revision) | attend | _derivatives(revision)


def _heads(name: str, revision: _Revision, **promises: Any) -> Implementation:
    operations: dict[str, Callable[..., Any]] = {
        "multi_head_attention": with_projections(revision.mha),
        "multi_head_attention_vjp": with_projections(revision.mha_vjp),
        "multi_head_attention_jvp": with_projections(revision.mha_jvp),
    }
    if revision.scalar == MPF:
        operations = {name: _rounded(operation) for name, operation in operations.items()}
    supports = {
        "num_heads": lambda n: n in revision.heads,
        "head_dim": lambda d: d <= _WIDTH,
        "model_dim": lambda d: d <= _MODEL,
        "seq_len": lambda n: revision.tokens <= n <= _LARGEST,
    }
    return _implementation(f"multi-head attention, {name}", operations, "", supports=supports, **promises)


_OVER_R = _Revision(*_SEED, MPF)
_IN_FLOAT = _Revision(*_SEED, FLOAT64, width=1)  # with one column no score of everyday inputs is near 709
_CORRECTED = _Revision(*_REVISED, FLOAT64)

IMPLEMENTATIONS = [
    _attention("seed, ℝ", _OVER_R, {name: _rounded(operation) for name, operation in _everything(_OVER_R).items()}),
    _attention(
        "seed, Float",
        _IN_FLOAT,
        _softmax(_IN_FLOAT) | _derivatives(_IN_FLOAT),
        conventions=Conventions(dead_rows="nan"),
        known_deviations=_OVERFLOWING,
    ),
    _attention("revised", _CORRECTED, _everything(_CORRECTED)),
    _heads("seed, ℝ, one head", _Revision(*_SEED, MPF, heads=(1,))),
    _heads(
        "seed, ℝ, several heads", _Revision(*_SEED, MPF, heads=(2, 3), tokens=2), known_deviations=_OF_SEVERAL_HEADS
    ),
    _heads("revised", _CORRECTED),
    _implementation("masks", {"causal_mask": _causal_mask}, "n_q n_k"),
    _implementation(
        "encodings",
        {"sinusoidal_positional_encoding": _sinusoid, "add_positional_encoding": _add},
        "seq_len embed_dim",
    ),
    _implementation(
        "rotary, seed",
        {"rope": _rope, "rope_angles": _angles, "rope_tables": _tables},
        "seq_len head_dim batch",
        batch_ranks=(0, 1),
    ),
    _implementation(
        "rotary, revised",
        {"rope": _rope_corrected},
        "seq_len head_dim",
        conventions=Conventions(odd_lane="passthrough"),
    ),
]
