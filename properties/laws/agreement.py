"""Agreement with the oracle: one law for each operation, over all of its domains without quirks."""

from typing import Any

from properties.contract.operations import OPERATIONS
from properties.contract.subject import Subject
from properties.laws.law import Law
from properties.strategies.domains import DOMAINS, QUIRKS

_NAMES = {
    "attention is within its budget": "scaled_dot_product_attention",
    "the vjp is within its budget": "scaled_dot_product_attention_vjp hard_masked_softmax_vjp multi_head_attention_vjp",
    "the jvp is within its budget": "scaled_dot_product_attention_jvp multi_head_attention_jvp",
    "attention with its features is within its budget": "attention attention_vjp attention_jvp",
    "decoding is within its budget": "decode",
    "merged attention is within its budget": "merge_attention",
    "alibi is within its budget": "alibi_slopes alibi_bias",
    "causal attention is within its budget": "causal_attention",
    "grouped attention is within its budget": "grouped_query_attention",
    "multi head attention is within its budget": "multi_head_attention",
    "softmax is within its budget": "hard_masked_softmax",
    "a causal mask is its definition": "causal_mask",
    "a padding mask is its definition": "padding_mask",
    "a combined mask is its definition": "combine_masks",
    "the sinusoidal encoding is within its budget": "sinusoidal_positional_encoding",
    "adding an encoding is addition": "add_positional_encoding",
    "a learned encoding is rows of its table": "learned_positional_encoding",
    "a lookup is rows of its table": "table_lookup",
    "rope is within its budget": "rope rope_vjp",
    "apply rotary is within its budget": "apply_rotary apply_rotary_vjp",
    "rotate half is the negated second half and the first": "rotate_half",
    "frequencies are within their budget": "inv_freq",
    "rotary frequencies are within their budget": "rotary_frequencies",
    "angles and their tables are within budget": "rope_angles rope_tables rotary_tables",
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
    """For every case: each result differs from the exact value by no more than its budget, and a
    mask is exact.

    Within budget; masks exact. So are the results of all calls that other laws make on inputs
    without quirks.
    """
    subject(*arguments)
    subject.judge(len(subject.calls) - 1)


def _law(name: str, operation: str, domains: tuple[str, ...]) -> Law:
    statement = " ".join((_agrees.__doc__ or "").split()).replace(" Within budget;", "\n\nWithin budget;")
    return Law(name, operation, _agrees, statement, domains, agreement=True, lean=_LEAN.get(operation, ""))


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
"""Laws of the long plan: seconds for a case, and gigabytes for some kernels."""
assert len(AGREEMENT) == len(OPERATIONS)
