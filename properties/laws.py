"""The laws: on every case of a domain, an operation's results are within the oracle's enclosures of them."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from hypothesis import strategies as st

import oracles
from oracles import Enclosure
from properties import cases
from properties.implementation import Implementation

__all__ = ["LAWS", "Law"]


@dataclass(frozen=True)
class Law:
    """`name` is the law as a sentence. On each case that `cases(implementation)` draws, the implementation's `operation` returns arrays
    that lie in the enclosures `oracle(*case, arithmetic=…, conventions=…)`: the budgets of its arithmetic around the
    exact values.
    """

    name: str
    operation: str
    cases: Callable[[Implementation], st.SearchStrategy[Any]]
    oracle: Callable[..., Enclosure | tuple[Enclosure, ...]]


def _causal_attention(q: Any, k: Any, v: Any, **options: Any) -> Enclosure:
    return oracles.scaled_dot_product_attention(q, k, v, is_causal=True, **options)


_SDPA = "scaled_dot_product_attention"
_MASKED = {"none": "without a mask", "mixed": "under a mask that allows each query some key"}

LAWS = [
    *(
        Law(
            f"attention {_MASKED[masked]} is exact within its budget",
            _SDPA,
            partial(cases.attention_cases, masked=masked),
            oracles.scaled_dot_product_attention,
        )
        for masked in _MASKED
    ),
    Law("causal attention is attention under the causal mask", "causal_attention", cases.causal_cases, _causal_attention),
    Law(
        "a query that may attend to no key gets zero",
        _SDPA,
        partial(cases.attention_cases, masked="dead rows"),
        oracles.scaled_dot_product_attention,
    ),
    Law(
        "attention of width zero has no columns",
        _SDPA,
        partial(cases.attention_cases, masked="some", width=0),
        oracles.scaled_dot_product_attention,
    ),
    Law(
        "the VJP of attention is exact within its budget",
        f"{_SDPA}_vjp",
        partial(cases.attention_vjp_cases, masked="some"),
        oracles.scaled_dot_product_attention_vjp,
    ),
    Law(
        "a query that may attend to no key has and gives no gradient",
        f"{_SDPA}_vjp",
        partial(cases.attention_vjp_cases, masked="dead rows"),
        oracles.scaled_dot_product_attention_vjp,
    ),
    Law(
        "the JVP of attention is exact within its budget",
        f"{_SDPA}_jvp",
        partial(cases.attention_jvp_cases, masked="some"),
        oracles.scaled_dot_product_attention_jvp,
    ),
    Law(
        "a query that may attend to no key has tangent zero",
        f"{_SDPA}_jvp",
        partial(cases.attention_jvp_cases, masked="dead rows"),
        oracles.scaled_dot_product_attention_jvp,
    ),
    Law(
        "multi-head attention is the sum of its heads",
        "multi_head_attention",
        partial(cases.multi_head_cases, masked="some"),
        oracles.multi_head_attention,
    ),
    Law(
        "a token that may attend to no token contributes zero",
        "multi_head_attention",
        partial(cases.multi_head_cases, masked="dead rows"),
        oracles.multi_head_attention,
    ),
    Law(
        "the sinusoidal encoding is exact within its budget",
        "sinusoidal_positional_encoding",
        cases.sinusoid_cases,
        oracles.sinusoidal_positional_encoding,
    ),
    Law(
        "a sinusoidal encoding without rows or columns is empty",
        "sinusoidal_positional_encoding",
        partial(cases.sinusoid_cases, empty=True),
        oracles.sinusoidal_positional_encoding,
    ),
    Law("RoPE is exact within its budget", "rope", cases.rope_cases, oracles.rope),
    Law("RoPE of nothing is nothing", "rope", partial(cases.rope_cases, empty=True), oracles.rope),
]
