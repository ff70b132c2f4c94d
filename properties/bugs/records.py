"""Defines records of the arguments of operations that take many: a mutant (a function with a known
bug) can take the record of a call.
"""

from typing import NamedTuple

from oracles.ball import Array
from properties.bugs.reference import Mask

__all__ = ["MultiHead", "Tangent"]


class MultiHead(NamedTuple):
    """The arguments of `multi_head_attention`."""

    x: Array
    wq: Array
    wk: Array
    wv: Array
    wo: Array
    num_heads: int
    mask: Mask = None

    @property
    def head_width(self) -> int:
        """The width of a head's queries and keys."""
        return int(self.wq.shape[-1] // self.num_heads)


class Tangent(NamedTuple):
    """The arguments of `scaled_dot_product_attention_jvp`."""

    q: Array
    k: Array
    v: Array
    mask: Mask
    dq: Array
    dk: Array
    dv: Array
