"""The everyday cases of each operation, for laws about every operation."""

from collections.abc import Callable
from functools import partial
from typing import Any

from hypothesis import strategies as st

from properties.implementation import Implementation
from properties.operations import OPERATIONS
from properties.strategies import attention, multi_head
from properties.strategies.domains import DOMAINS, Cases

__all__ = ["CASES"]


def _from_its_domain(operation: str, i: Implementation) -> st.SearchStrategy[tuple[Any, ...]]:
    """Everyday cases, from their seeds."""
    return st.integers(0, 2**24 - 1).map(Cases(OPERATIONS[operation], DOMAINS[operation]["everyday"], i).draw)


_OF_THEIR_OWN = ("scaled_dot", "causal_attention", "grouped", "multi_head", "hard_masked")

CASES: dict[str, Callable[[Implementation], st.SearchStrategy[tuple[Any, ...]]]] = {
    "scaled_dot_product_attention": attention.attention,
    "scaled_dot_product_attention_vjp": attention.attention_vjp,
    "scaled_dot_product_attention_jvp": attention.attention_jvp,
    "causal_attention": attention.causal_attention,
    "grouped_query_attention": attention.grouped,
    "multi_head_attention": multi_head.multi_head,
    "multi_head_attention_vjp": multi_head.multi_head_vjp,
    "multi_head_attention_jvp": multi_head.multi_head_jvp,
    "hard_masked_softmax": attention.softmax,
    "hard_masked_softmax_vjp": attention.softmax_vjp,
    **{name: partial(_from_its_domain, name) for name in OPERATIONS if not name.startswith(_OF_THEIR_OWN)},
}
