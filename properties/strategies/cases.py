"""The everyday cases of each operation, for laws about every operation."""

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from properties.implementation import Implementation
from properties.strategies import attention, masks, multi_head, positional
from properties.strategies.arrays import also, sizes

__all__ = ["CASES"]

_FEW = (1, 2, 3, 4, 5, 6)

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
    "causal_mask": lambda i: also(st.tuples(sizes(i, "n_q", _FEW)), lambda n: sizes(i, "n_k", _FEW, minus=("n_q", n))),
    "padding_mask": masks.lengths_of_sequences,
    "combine_masks": masks.two_masks,
    "sinusoidal_positional_encoding": positional.sinusoid,
    "add_positional_encoding": positional.added,
    "learned_positional_encoding": positional.learned,
    "table_lookup": positional.lookups,
    "rope": positional.rotary,
    "rope_vjp": positional.rotary_vjp,
    "apply_rotary": positional.rotary_tables,
    "apply_rotary_vjp": positional.rotary_tables_vjp,
    "rotate_half": positional.halves,
    "inv_freq": positional.frequencies,
    "rope_angles": positional.turning,
    "rope_tables": positional.turning,
}
