"""Defines agreement with the oracle: one law for each operation, on all its domains (input
families) except quirks, on which a convention decides the result.
"""

import inspect
from typing import Any

from properties.contract.operations import OPERATIONS
from properties.contract.subject import Subject
from properties.laws.law import Law
from properties.strategies.domains import DOMAINS, QUIRKS

_NAMES = {
    "attention is within its error limit": "scaled_dot_product_attention",
    "the VJP is within its error limit": (
        "scaled_dot_product_attention_vjp hard_masked_softmax_vjp multi_head_attention_vjp"
    ),
    "the JVP is within its error limit": "scaled_dot_product_attention_jvp multi_head_attention_jvp",
    "attention with options is within its error limit": "attention attention_vjp attention_jvp",
    "attention over packed sequences is within its error limit": "packed_attention packed_attention_vjp",
    "latent attention is within its error limit": "latent_attention",
    "attention over pages is within its error limit": "paged_attention",
    "decoding is within its error limit": "decode batched_decode",
    "merged attention is within its error limit": "merge_attention",
    "ALiBi is within its error limit": "alibi_slopes alibi_bias",
    "causal attention is within its error limit": "causal_attention",
    "grouped-query attention is within its error limit": "grouped_query_attention",
    "multi-head attention is within its error limit": "multi_head_attention",
    "a layer of attention is within its error limit": "attention_layer",
    "softmax is within its error limit": "hard_masked_softmax",
    "a causal mask equals its definition": "causal_mask",
    "a padding mask equals its definition": "padding_mask",
    "a combined mask equals its definition": "combine_masks",
    "a mask of sequences equals its definition": ("left_padding_mask document_mask prefix_mask chunked_mask tree_mask"),
    "positions of tokens equal their definition": "position_ids",
    "the sinusoidal encoding is within its error limit": "sinusoidal_positional_encoding",
    "the sum of x and an encoding is within its error limit": "add_positional_encoding",
    "a learned encoding equals the rows of its table": "learned_positional_encoding",
    "a bias by relative position equals the entries of its table": "relative_bias",
    "an index by relative position equals its definition": "relative_position_index",
    "a lookup returns the rows of its table": "table_lookup",
    "rope is within its error limit": "rope rope_vjp",
    "apply_rotary is within its error limit": "apply_rotary apply_rotary_vjp",
    "rotate_half returns the negated second half, then the first": "rotate_half",
    "frequencies are within their error limit": "inv_freq",
    "queries and keys rotated by a kind are within their error limit": "rotary_embedding",
    "scaled rotary frequencies are within their error limit": "rotary_frequencies",
    "angles and tables are within their error limit": "rope_angles rope_tables rotary_tables",
}
_LEAN = {
    "scaled_dot_product_attention": "Spec.scaledDotProductAttention",
    "hard_masked_softmax": "Spec.hardMaskedSoftmax",
    "multi_head_attention": "Spec.MultiHeadAttention.forward",
    "causal_mask": "Spec.causalMask",
    "rope": "Spec.ropeApplySpec",
    "sinusoidal_positional_encoding": "Spec.sinusoidalPositionalEncoding",
}
_LONG = ("131072 keys",)


def _agrees(subject: Subject, *arguments: Any) -> None:
    """For every test input: each result differs from the exact value by no more than its error
    limit.

    A result that is a mask, or that is integers, is exactly right. All calls that other laws make on inputs without
    quirks are checked in the same way.
    """
    subject(*arguments)
    subject.judge(len(subject.calls) - 1)


def _law(name: str, operation: str, domains: tuple[str, ...]) -> Law:
    statement, lean = inspect.cleandoc(_agrees.__doc__ or ""), _LEAN.get(operation, "")
    return Law(name, operation, _agrees, statement, domains, exact="for masks and integers", agreement=True, lean=lean)


AGREEMENT = [
    _law(name, operation, tuple(domain for domain in DOMAINS[operation] if domain not in (*_LONG, *QUIRKS)))
    for name, operations in _NAMES.items()
    for operation in operations.split()
]
LONG = [
    _law(f"{name} at 131072 keys", operation, _LONG)
    for name, operations in _NAMES.items()
    for operation in operations.split()
    if set(_LONG) <= DOMAINS[operation].keys()
]
"""The laws of the long plan: one case takes seconds, and gigabytes in some kernels."""
assert len(AGREEMENT) == len(OPERATIONS)
