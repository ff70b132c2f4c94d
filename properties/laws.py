"""The laws: on every case of a domain, an operation is within its error bound of the spec, evaluated over balls.

The spec's value is enclosed by `flint.arb`, so an error is measured against the exact value and not against another rounding of it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from hypothesis import strategies as st

from properties import bounds, cases
from properties.bounds import Roundoff
from properties.implementation import Implementation
from spec import attention, errata, positional_encoding
from spec.attention import AttentionContext, MultiHeadAttention
from spec.context import ARB
from spec.tensor import Array, tensor

__all__ = ["LAWS", "Law"]


@dataclass(frozen=True)
class Law:
    """`name` is the law as a sentence. On each case that `cases(implementation)` draws, the implementation's `operation` returns arrays,
    each within its bound of the exact value: `judge(*case, arithmetic)`, the case's arrays as float64, is a list of (output's name, exact
    value over `ARB`, bound).
    """

    name: str
    operation: str
    cases: Callable[[Implementation], st.SearchStrategy[Any]]
    judge: Callable[..., list[tuple[str, Array, Array]]]


def _context(q: Array, k: Array, v: Array, mask: Array | None) -> AttentionContext:
    return AttentionContext(q, k, v, mask, scalar=ARB)


def _attention(q: Array, k: Array, v: Array, mask: Array | None, a: Roundoff) -> list[tuple[str, Array, Array]]:
    exact = attention.scaled_dot_product_attention(_context(q, k, v, mask))
    return [("out", exact, bounds.attention(q, k, v, mask, a))]


def _causal(q: Array, k: Array, v: Array, a: Roundoff) -> list[tuple[str, Array, Array]]:
    return _attention(q, k, v, attention.causal_mask(len(q)), a)


def _vjp(q: Array, k: Array, v: Array, mask: Array | None, g: Array, a: Roundoff) -> list[tuple[str, Array, Array]]:
    exact = attention.scaled_dot_product_attention_backward(_context(q, k, v, mask), tensor(g, ARB))
    return list(zip(("dq", "dk", "dv"), exact, bounds.attention_vjp(q, k, v, mask, g, a), strict=True))


def _jvp(q: Array, k: Array, v: Array, mask: Array | None, dq: Array, dk: Array, dv: Array, a: Roundoff) -> list[tuple[str, Array, Array]]:
    exact = attention.scaled_dot_product_attention_jvp(_context(q, k, v, mask), tensor(dq, ARB), tensor(dk, ARB), tensor(dv, ARB))
    return [("dout", exact, bounds.attention_jvp(q, k, v, mask, dq, dk, dv, a))]


def _multi_head(
    x: Array, wq: Array, wk: Array, wv: Array, wo: Array, num_heads: int, mask: Array | None, a: Roundoff
) -> list[tuple[str, Array, Array]]:
    """Against the corrected head split: the literal one mixes tokens (`spec.errata`)."""
    mha = MultiHeadAttention(wq, wk, wv, wo, num_heads, wq.shape[1] // num_heads, scalar=ARB)
    exact = errata.multi_head_attention_forward(mha, tensor(x, ARB), mask)
    return [("out", exact, bounds.multi_head(x, wq, wk, wv, wo, num_heads, mask, a))]


def _sinusoid(seq_len: int, embed_dim: int, start_pos: int, a: Roundoff) -> list[tuple[str, Array, Array]]:
    exact = positional_encoding.sinusoidal_positional_encoding_spec(seq_len, embed_dim, start_pos, ARB)
    return [("table", exact, bounds.sinusoid(seq_len, embed_dim, start_pos, a))]


def _rope(x: Array, start_pos: int, a: Roundoff) -> list[tuple[str, Array, Array]]:
    exact = positional_encoding.rope_apply_spec(tensor(x, ARB), start_pos, ARB)
    return [("out", exact, bounds.rope(x, start_pos, a))]


_SDPA = "scaled_dot_product_attention"
_MASKED = {"none": "without a mask", "mixed": "under a mask that allows each query some key"}

LAWS = [
    *(
        Law(f"attention {_MASKED[masked]} is the spec's", _SDPA, partial(cases.attention_cases, masked=masked), _attention)
        for masked in ("none", "mixed")
    ),
    Law("causal attention is attention under the causal mask", "causal_attention", cases.causal_cases, _causal),
    Law("a query that may attend to no key gets zero", _SDPA, partial(cases.attention_cases, masked="dead rows"), _attention),
    Law("the VJP of attention is the spec's", f"{_SDPA}_vjp", partial(cases.attention_vjp_cases, masked="some"), _vjp),
    Law(
        "a query that may attend to no key has and gives no gradient",
        f"{_SDPA}_vjp",
        partial(cases.attention_vjp_cases, masked="dead rows"),
        _vjp,
    ),
    Law("the JVP of attention is the spec's", f"{_SDPA}_jvp", partial(cases.attention_jvp_cases, masked="some"), _jvp),
    Law(
        "a query that may attend to no key has tangent zero",
        f"{_SDPA}_jvp",
        partial(cases.attention_jvp_cases, masked="dead rows"),
        _jvp,
    ),
    Law(
        "multi-head attention is the spec's, with the corrected head split",
        "multi_head_attention",
        partial(cases.multi_head_cases, masked="some"),
        _multi_head,
    ),
    Law(
        "a token that may attend to no token contributes zero",
        "multi_head_attention",
        partial(cases.multi_head_cases, masked="dead rows"),
        _multi_head,
    ),
    Law("the sinusoidal encoding is the spec's", "sinusoidal_positional_encoding", cases.sinusoid_cases, _sinusoid),
    Law("RoPE is the spec's", "rope", cases.rope_cases, _rope),
]
