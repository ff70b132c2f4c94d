"""Calls that must be refused: nothing that could come of them would be right."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from properties.contract.operations import OPERATIONS

__all__ = ["refused"]

_FORMATS = ("float64", "float32")

_EVERYDAY: dict[str, dict[str, Any]] = {
    "scaled_dot_product_attention": {"q": (2, 4), "k": (3, 4), "v": (3, 2)},
    "scaled_dot_product_attention_vjp": {"q": (2, 4), "k": (3, 4), "v": (3, 2), "grad_out": (2, 2)},
    "hard_masked_softmax": {"scores": (2, 3)},
    "attention": {"q": (2, 2, 4), "k": (1, 3, 4), "v": (1, 3, 2)},
    "packed_attention": {
        **{"q": (3, 2, 4), "k": (4, 1, 4), "v": (4, 1, 2)},
        **{"cu_q": np.array([0, 1, 3]), "cu_k": np.array([0, 2, 4])},
    },
    "paged_attention": {
        **{"q": (2, 1, 2, 4), "k_pages": (3, 2, 1, 4), "v_pages": (3, 2, 1, 2)},
        **{"block_table": np.array([[2, 0], [1, -1]]), "lengths": np.array([3, 2])},
    },
    "multi_head_attention": {"x": (3, 4), "wq": (4, 4), "wk": (4, 4), "wv": (4, 4), "wo": (4, 4), "num_heads": 2},
    "rope": {"x": (3, 4), "start_pos": 0},
    "apply_rotary": {"x": (3, 4), "cos": (3, 4), "sin": (3, 4)},
    "learned_positional_encoding": {"table": (4, 2), "seq_len": 3, "start_pos": 0},
    "table_lookup": {"table": (4, 2), "indices": np.array([0, 3])},
    "sinusoidal_positional_encoding": {"seq_len": 3, "embed_dim": 4, "start_pos": 0},
    "causal_mask": {"n_q": 2, "n_k": 3},
    "padding_mask": {"lengths": np.array([1, 3]), "max_len": 3},
    "position_ids": {"attention_mask": np.array([0, 1, 1])},
    "alibi_slopes": {"num_heads": 4},
    "merge_attention": {"out_a": (2, 3), "lse_a": (2,), "out_b": (2, 3), "lse_b": (2,)},
}
"""A call of each operation that is not refused: shapes of arrays of ones, and what is no such array."""

_CHANGES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("scaled_dot_product_attention", "Keys are wider than queries.", {"k": (3, 5)}),
    ("scaled_dot_product_attention", "There are fewer values than keys.", {"v": (2, 2)}),
    ("scaled_dot_product_attention", "The mask is for more keys than there are.", {"mask": np.ones((2, 4), bool)}),
    ("scaled_dot_product_attention_vjp", "The gradient is that of another width.", {"grad_out": (2, 4)}),
    ("hard_masked_softmax", "The mask is for more entries than there are.", {"mask": np.ones((2, 4), bool)}),
    (
        "attention",
        "Heads of queries are not a multiple of heads of keys.",
        {"k": (3, 3, 4), "v": (3, 3, 2), "q": (4, 2, 4)},
    ),
    ("attention", "The left side of the window is negative.", {"window": (-1, None)}),
    ("attention", "The softcap is 0.", {"softcap": 0.0}),
    ("attention", "A sink is ∞.", {"sink": np.array([0.0, np.inf])}),
    ("attention", "A bias is ∞.", {"bias": np.array([[0.0, 0.0, np.inf]] * 2)}),
    ("attention", "A bias is NaN.", {"bias": np.array([[0.0, 0.0, np.nan]] * 2)}),
    ("packed_attention", "A boundary falls.", {"cu_k": np.array([0, 5, 4])}),
    ("packed_attention", "The first sequence does not begin at 0.", {"cu_q": np.array([1, 2, 3])}),
    ("packed_attention", "The last sequence ends beyond the last row.", {"cu_k": np.array([0, 2, 5])}),
    ("packed_attention", "The queries have more sequences than the keys.", {"cu_q": np.array([0, 1, 2, 3])}),
    ("packed_attention", "A sequence uses more keys than it owns.", {"seqused_k": np.array([3, 2])}),
    ("paged_attention", "A row of the table is too short for the length.", {"lengths": np.array([5, 2])}),
    ("paged_attention", "A length is negative.", {"lengths": np.array([3, -1])}),
    ("paged_attention", "A key is in a page after the last.", {"block_table": np.array([[2, 3], [1, -1]])}),
    ("paged_attention", "A key is in a page with a negative number.", {"block_table": np.array([[2, -1], [1, -1]])}),
    ("paged_attention", "The table has fewer rows than there are sequences.", {"block_table": np.array([[2, 0]])}),
    ("multi_head_attention", "The width of all heads is not a multiple of their number.", {"num_heads": 3}),
    ("rope", "The first position is negative.", {"start_pos": -1}),
    ("apply_rotary", "The tables have fewer rows than x.", {"cos": (2, 4), "sin": (2, 4)}),
    ("learned_positional_encoding", "The table ends before the sequence does.", {"start_pos": 2}),
    ("table_lookup", "An index is that of a row after the last.", {"indices": np.array([0, 4])}),
    ("table_lookup", "An index is negative.", {"indices": np.array([0, -1])}),
    ("sinusoidal_positional_encoding", "The first position is negative.", {"start_pos": -1}),
    ("causal_mask", "The number of queries is negative.", {"n_q": -1}),
    ("padding_mask", "A sequence is longer than the longest.", {"lengths": np.array([1, 4])}),
    ("padding_mask", "A length is negative.", {"lengths": np.array([1, -1])}),
    ("position_ids", "An entry of the attention mask is 2.", {"attention_mask": np.array([0, 1, 2])}),
    ("position_ids", "An entry of the attention mask is negative.", {"attention_mask": np.array([-1, 0, 1])}),
    ("alibi_slopes", "There are fewer heads than none.", {"num_heads": -1}),
    ("merge_attention", "A log-sum-exp is for more queries than there are.", {"lse_b": (3,)}),
)
"""What makes a call one that must be refused, in a sentence, and the arguments that it changes."""


def refused(operation: str) -> Iterator[tuple[str, str, tuple[Any, ...]]]:
    """The calls of an operation that must be refused, in each format that says so: why, the format, the arguments."""
    for name, sentence, change in _CHANGES:
        if name == operation:
            for arithmetic in _FORMATS:
                yield sentence, arithmetic, _arguments(operation, change)


def _arguments(operation: str, change: dict[str, Any]) -> tuple[Any, ...]:
    given = _EVERYDAY[operation] | change
    return tuple(_made(parameter, given.get(parameter)) for parameter in OPERATIONS[operation].parameters)


def _made(parameter: str, x: Any) -> Any:
    return np.ones(x) if isinstance(x, tuple) and parameter != "window" else x
