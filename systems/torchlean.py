"""TorchLean: the literal definitions of `spec` put under test, over ℝ and over Lean's Float, and as
a revision corrects them.

One sequence at a time and small sizes only, as definitions are slow. What the seed revision breaks
is declared, law by law, with the Lean name of the definition at fault; `spec.errata` has a smallest
witness of each.

Source: lean-dojo/TorchLean, `NN/Spec/Layers/Attention.lean` and
`NN/Spec/Layers/PositionalEncoding.lean` at revision `spec.lean.LITERAL` (seed) and as
`spec.corrected` has them (revised)
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

__all__ = ["IMPLEMENTATIONS"]

_MOST = 9  # rows and columns: beyond, it would take too long
_WIDTH, _MODEL = 8, 24  # columns of a head, and of a model of three heads
_DIGITS = 40  # over ℝ


def _few(n: int) -> bool:
    return n <= _MOST


def _require(most: int, *sizes: int) -> None:
    if max(sizes, default=0) > most:
        raise ValueError(f"The sizes are {sizes}, but should be at most {most}.")


# -- The definitions as operations -----------------------------------------------------------------


@dataclass(frozen=True)
class _Text:
    """A revision of the definitions of attention and the scalar that they run over, for so many
    columns, heads and (at least) tokens.
    """

    definitions: ModuleType
    softmax: Callable[..., Array]
    forward: Callable[..., Array]
    scalar: Context
    width: int = _MOST
    heads: tuple[int, ...] = (1, 2, 3)
    tokens: int = 1

    def _context(self, q: Array, k: Array, v: Array, mask: Array | None) -> attention.AttentionContext:
        _require(_MOST, len(q), len(k))
        _require(self.width, k.shape[1])
        whole = None if mask is None else np.broadcast_to(mask, (len(q), len(k)))
        return attention.AttentionContext(q, k, v, whole, scalar=self.scalar)

    def sdpa(self, q: Array, k: Array, v: Array, mask: Array | None = None) -> Array:
        """Attention of one sequence."""
        out: Array = self.definitions.scaled_dot_product_attention(self._context(q, k, v, mask))
        return out

    def sdpa_vjp(self, q: Array, k: Array, v: Array, mask: Array | None, grad_out: Array) -> tuple[Array, Array, Array]:
        """(dQ, dK, dV) by the definition of the backward."""
        found: tuple[Array, Array, Array] = self.definitions.scaled_dot_product_attention_backward(
            self._context(q, k, v, mask), grad_out
        )
        return found

    def sdpa_jvp(self, q: Array, k: Array, v: Array, mask: Array | None, dq: Array, dk: Array, dv: Array) -> Array:
        """The output's tangent by the definition of the JVP."""
        tangent: Array = self.definitions.scaled_dot_product_attention_jvp(self._context(q, k, v, mask), dq, dk, dv)
        return tangent

    def causal(self, q: Array, k: Array, v: Array) -> Array:
        """Attention under the causal mask."""
        return self.sdpa(q, k, v, _causal_mask(len(q), len(k)))

    def weights(self, scores: Array, mask: Array | None = None) -> Array:
        """The weights that attention has with and without a mask."""
        _require(_MOST, *scores.shape)
        if mask is None:
            return softmax_spec(scores, self.scalar)
        return self.softmax(scores, np.broadcast_to(mask, scores.shape), self.scalar)

    def weights_vjp(self, scores: Array, mask: Array | None, grad_weights: Array) -> Array:
        """The backward of the weights, from the weights."""
        return attention.softmax_backward_from_weights_spec(self.weights(scores, mask), grad_weights, self.scalar)

    def _heads(self, wq: Array, wk: Array, wv: Array, wo: Array, num_heads: int) -> attention.MultiHeadAttention:
        _require(_MODEL, len(wq))
        _require(_WIDTH, len(wo) // num_heads)
        if num_heads not in self.heads:
            raise ValueError(f"num_heads={num_heads}, but should be one of {self.heads}.")
        return attention.MultiHeadAttention(wq, wk, wv, wo, num_heads, len(wo) // num_heads, scalar=self.scalar)

    def _shared(self, x: Array, mask: Array | None) -> Array | None:
        """The mask of all heads."""
        _require(_MOST, len(x))
        if len(x) < self.tokens:
            raise ValueError(f"x has {len(x)} tokens, but should have at least {self.tokens}.")
        return None if mask is None else np.broadcast_to(mask, (len(x), len(x)))

    def mha(
        self, x: Array, wq: Array, wk: Array, wv: Array, wo: Array, num_heads: int, mask: Array | None = None
    ) -> Array:
        """Multi-head self-attention of one sequence."""
        return self.forward(self._heads(wq, wk, wv, wo, num_heads), x, self._shared(x, mask))

    def mha_vjp(
        self, x: Array, wq: Array, wk: Array, wv: Array, wo: Array, num_heads: int, mask: Array | None, grad_out: Array
    ) -> tuple[Array, ...]:
        """(dx, dWq, dWk, dWv, dWo) by the definition of the backward."""
        backward, heads = self.definitions.multi_head_attention_backward, self._heads(wq, wk, wv, wo, num_heads)
        found: tuple[Array, ...] = backward(heads, x, self._shared(x, mask), grad_out)
        return found

    def mha_jvp(
        self,
        x: Array,
        wq: Array,
        wk: Array,
        wv: Array,
        wo: Array,
        num_heads: int,
        mask: Array | None,
        dx: Array,
        dwq: Array,
        dwk: Array,
        dwv: Array,
        dwo: Array,
    ) -> Array:
        """The output's tangent by the definition of the JVP."""
        heads, tangents = self._heads(wq, wk, wv, wo, num_heads), self._heads(dwq, dwk, dwv, dwo, num_heads)
        tangent: Array = self.definitions.multi_head_attention_jvp(heads, tangents, x, dx, self._shared(x, mask))
        return tangent


def _causal_mask(n_q: int, n_k: int | None = None) -> Array:
    """The square mask's corner: its first rows and columns."""
    columns = n_q if n_k is None else n_k
    _require(_MOST, n_q, columns)
    return attention.causal_mask(max(n_q, columns))[:n_q, :columns].copy()


def _sinusoid(seq_len: int, embed_dim: int, start_pos: int = 0) -> Array:
    _require(_MOST, seq_len, embed_dim)
    return sinusoidal_positional_encoding_spec(seq_len, embed_dim, start_pos, FLOAT64)


def _add(x: Array, pos: Array) -> Array:
    _require(_MOST, *x.shape)
    return add_positional_encoding_spec(PositionalEncodingSpec(pos, scalar=FLOAT64), x)


def _rope(x: Array, start_pos: int = 0) -> Array:
    """Of one head, or of several."""
    _require(_MOST, *x.shape)
    return (rope_apply_spec if x.ndim == 2 else rope_apply_heads_spec)(x, start_pos, FLOAT64)


def _rope_corrected(x: Array, start_pos: int = 0) -> Array:
    _require(_MOST, *x.shape)
    return corrected.rope_apply(x, start_pos, FLOAT64)


def _angles(seq_len: int, head_dim: int, start_pos: int = 0) -> Array:
    _require(_MOST, seq_len, head_dim)
    pairs = -(-head_dim // 2)
    return tabulate((seq_len, pairs), lambda p, i: posenc_angle_spec(start_pos + p, i, head_dim, FLOAT64), FLOAT64)


def _tables(seq_len: int, head_dim: int, start_pos: int = 0) -> tuple[Array, ...]:
    _require(_MOST, seq_len, head_dim)

    def table(row: Callable[..., Array]) -> Array:
        return stack((seq_len, head_dim), lambda p: row(start_pos + p, head_dim, FLOAT64), FLOAT64)

    return table(rope_cos_lastdim_spec), table(rope_sin_lastdim_spec)


def _rounded(operation: Callable[..., Any]) -> Callable[..., Any]:
    """An operation over `MPF` with enough digits for ℝ, its results rounded once."""

    def evaluated(*arguments: Any) -> Any:
        with mpmath.workdps(_DIGITS):
            found = operation(*arguments)
            return tuple(x.astype(np.float64) for x in found) if isinstance(found, tuple) else found.astype(np.float64)

    return evaluated


# -- The implementations ---------------------------------------------------------------------------

_SEED = attention, attention.hard_masked_softmax_spec, attention.MultiHeadAttention.forward
_REVISED = corrected, corrected.hard_masked_softmax, corrected.multi_head_attention_forward

_EXP = (
    "hardMaskedSoftmaxVecSpec subtracts no maximum: in Float a score above 709.78 overflows, and a row of scores below −745.13 underflows "
    "to 0/0. See errata masked-overflow, masked-sum-overflow and masked-underflow."
)
_DEAD = (
    "hardMaskedSoftmaxVecSpec divides 0 by 0 in a row with no allowed key: in Float its NaN reaches dK and dV of every key. "
    "See erratum dead-row."
)
_SPLIT = (
    "splitHeadsSpec reshapes (n, numHeads·headDim) straight to (numHeads, n, headDim): heads mix tokens. See errata head-split-inverse, "
    "head-split-token-mixing, head-split-causality and multi-head-adjoint."
)
_SOFTMAX, _SDPA, _HEADS = "hard_masked_softmax", "scaled_dot_product_attention", "multi_head_attention"


def _declared(reason: str, *operations: str, names: tuple[str, ...]) -> dict[str, str]:
    """Some laws of some operations, broken for one reason."""
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
        names=("larger rows do not affect the other rows", "adding a constant to a row of scores changes nothing"),
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
        names=("larger queries do not affect the other queries", "a vector added to all keys changes nothing"),
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
    "the order of tokens does not matter",
    "the order of heads does not matter",
    "the order of columns within heads does not matter",
    "tokens depend on visible tokens only",
)
_DERIVED = ("the result is the derivative of the forward", "no derivative passes through the mask")
_OF_GRADIENTS = (
    "the VJP is within its error limit",
    "query and key gradients satisfy qᵀ·dq = dkᵀ·k",
    "value and output gradients satisfy vᵀ·dv = outᵀ·grad_out",
    "VJP and JVP are adjoint",
    "a fully masked row follows its convention",
)
_OF_OUTPUTS = (
    "multi-head attention is within its error limit",
    "a single visible token returns its projection x·wv·wo",
)
_OF_SEVERAL_HEADS = {
    **_declared(_SPLIT, _HEADS, names=(*_ROWS, *_OF_OUTPUTS)),
    **_declared(_SPLIT, f"{_HEADS}_vjp", names=(*_ROWS, *_DERIVED, *_OF_GRADIENTS)),
    **_declared(_SPLIT, f"{_HEADS}_jvp", names=(*_ROWS, *_DERIVED, "the JVP is within its error limit")),
}


def _implementation(
    name: str, operations: dict[str, Callable[..., Any]], sizes: str, **promises: Any
) -> Implementation:
    """An implementation that takes few of what is named in `sizes`."""
    supports = dict.fromkeys(sizes.split(), _few) | promises.pop("supports", {})
    return Implementation(
        name=f"TorchLean {name}",
        operations=operations,
        supports=supports,
        refuses=(ValueError,),
        **{"batch_ranks": (0,), **promises},
    )


def _softmax(text: _Text) -> dict[str, Callable[..., Any]]:
    return {"hard_masked_softmax": text.weights, "hard_masked_softmax_vjp": text.weights_vjp}


def _derivatives(text: _Text) -> dict[str, Callable[..., Any]]:
    return {"scaled_dot_product_attention_vjp": text.sdpa_vjp, "scaled_dot_product_attention_jvp": text.sdpa_jvp}


def _attention(name: str, text: _Text, operations: dict[str, Callable[..., Any]], **promises: Any) -> Implementation:
    supports = {"head_dim": lambda d: d <= text.width, "value_dim_minus_head_dim": [0]}
    return _implementation(f"attention, {name}", operations, "n_q n_k", supports=supports, **promises)


def _everything(text: _Text) -> dict[str, Callable[..., Any]]:
    attend = {"scaled_dot_product_attention": text.sdpa, "causal_attention": text.causal}
    return _softmax(text) | attend | _derivatives(text)


def _heads(name: str, text: _Text, **promises: Any) -> Implementation:
    operations: dict[str, Callable[..., Any]] = {
        "multi_head_attention": text.mha,
        "multi_head_attention_vjp": text.mha_vjp,
        "multi_head_attention_jvp": text.mha_jvp,
    }
    if text.scalar == MPF:
        operations = {name: _rounded(operation) for name, operation in operations.items()}
    supports = {
        "num_heads": lambda n: n in text.heads,
        "head_dim": lambda d: d <= _WIDTH,
        "model_dim": lambda d: d <= _MODEL,
        "seq_len": lambda n: text.tokens <= n <= _MOST,
    }
    return _implementation(f"multi-head attention, {name}", operations, "", supports=supports, **promises)


_OVER_R, _IN_FLOAT = _Text(*_SEED, MPF), _Text(*_SEED, FLOAT64, width=1)  # of one column no everyday score is near 709
_CORRECTED = _Text(*_REVISED, FLOAT64)

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
    _heads("seed, ℝ, one head", _Text(*_SEED, MPF, heads=(1,))),
    _heads("seed, ℝ, several heads", _Text(*_SEED, MPF, heads=(2, 3), tokens=2), known_deviations=_OF_SEVERAL_HEADS),
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
