"""The implementations that come with attnspec, in groups that share a table."""

from properties.implementation import Implementation
from properties.implementations import mpmath_witness, torch_attention, torch_multi_head, torch_positional
from properties.reference import OPERATIONS

__all__ = ["GROUPS"]

GROUPS: dict[str, list[Implementation]] = {
    "every operation": [Implementation("NumPy float64", OPERATIONS)],
    "attention": [*torch_attention.IMPLEMENTATIONS, mpmath_witness.ATTENTION],
    "multi-head attention": torch_multi_head.IMPLEMENTATIONS,
    "positional encodings": [*torch_positional.IMPLEMENTATIONS, mpmath_witness.POSITIONAL],
}
