"""Twins of a case: other arguments of the same shapes, whose results follow from those of the case.

A memory that is keyed by too little answers for the twin what it knows of the case. Keys are taken in reverse order, with their values and
their columns of the mask; rows move by a position; and what is linear is negated.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from properties.implementation import Implementation
from properties.operations import OPERATIONS, sizes_of

__all__ = ["Part", "twin"]

Part = Callable[[Any], Any]
Relation = tuple[Part, Part]
"""What of the case's result, and what of the twin's, are the same."""


def _reversed(x: Any, *axes: int) -> Any:
    """An array, or none, from back to front along those of the axes that it has."""
    return None if x is None else np.flip(x, tuple(axis for axis in axes if -axis <= x.ndim))


def _whole(x: Any) -> Any:
    return x


def _negated(x: Any) -> Any:
    return -x


def _rows_reversed(x: Any) -> Any:
    return x[..., ::-1, :]


def _columns_reversed(x: Any) -> Any:
    return x[..., ::-1]


_SAME, _BACKWARDS, _OPPOSITE = (_whole, _whole), (_whole, _rows_reversed), (_whole, _negated)
_MOVED: Relation = (lambda x: x[..., 1:, :], lambda x: x[..., :-1, :])


def _keys(q: Any, k: Any, v: Any, mask: Any, *more: Any) -> tuple[Any, ...]:
    """Keys in reverse order; of three tangents those of the keys and values too."""
    turned = (more[0], *(_reversed(x, -2) for x in more[1:])) if len(more) == 3 else more
    return q, _reversed(k, -2), _reversed(v, -2), _reversed(mask, -1), *turned


def _tokens(x: Any, wq: Any, wk: Any, wv: Any, wo: Any, num_heads: int, mask: Any, *more: Any) -> tuple[Any, ...]:
    """Tokens in reverse order, with their cotangents or tangents, which come first."""
    return _reversed(x, -2), wq, wk, wv, wo, num_heads, _reversed(mask, -1, -2), *(_reversed(y, -2) for y in more[:1]), *more[1:]


def _later(*arguments: Any) -> tuple[Any, ...]:
    """Rows one position later, of which the first is a new one."""
    *arrays, start_pos = arguments
    return *(np.roll(x, -1, axis=-2) for x in arrays), start_pos + 1


_TWINS: dict[str, tuple[Callable[..., tuple[Any, ...]], tuple[Relation, ...]]] = {
    "scaled_dot_product_attention": (_keys, (_SAME,)),
    "scaled_dot_product_attention_vjp": (_keys, (_SAME, _BACKWARDS, _BACKWARDS)),
    "scaled_dot_product_attention_jvp": (_keys, (_SAME,)),
    "causal_attention": (lambda q, k, v: (q, k, -v), (_OPPOSITE,)),
    "grouped_query_attention": (_keys, (_SAME,)),
    "multi_head_attention": (_tokens, (_BACKWARDS,)),
    "multi_head_attention_vjp": (_tokens, (_BACKWARDS, *[_SAME] * 4)),
    "multi_head_attention_jvp": (_tokens, (_BACKWARDS,)),
    "hard_masked_softmax": (lambda s, mask: (_reversed(s, -1), _reversed(mask, -1)), ((_whole, _columns_reversed),)),
    "hard_masked_softmax_vjp": (lambda *xs: tuple(_reversed(x, -1) for x in xs), ((_whole, _columns_reversed),)),
    "causal_mask": (lambda n_q, n_k: (n_q + 1, n_k + 1), ((_whole, lambda x: x[:-1, :-1]),)),
    "padding_mask": (lambda lengths, max_len: (lengths[::-1], max_len), (_BACKWARDS,)),
    "combine_masks": (lambda *masks: tuple(_reversed(x, -1) for x in masks), ((_whole, _columns_reversed),)),
    "sinusoidal_positional_encoding": (lambda n, d, start: (n, d, start + 1), (_MOVED,)),
    "add_positional_encoding": (lambda x, pos: (-x, -pos), (_OPPOSITE,)),
    "learned_positional_encoding": (lambda table, n, start: (table[::-1], n, len(table) - n - start), (_BACKWARDS,)),
    "table_lookup": (lambda table, indices: (-table, _reversed(indices, -1)), ((_whole, lambda x: -x[..., ::-1, :]),)),
    "rope": (_later, (_MOVED,)),
    "rope_vjp": (_later, (_MOVED,)),
    "apply_rotary": (lambda x, cos, sin: (x, -cos, -sin), (_OPPOSITE,)),
    "apply_rotary_vjp": (lambda x, cos, sin, grad_out: (x, -cos, -sin, grad_out), (_OPPOSITE,)),
    "rotate_half": (lambda x: (-x,), (_OPPOSITE,)),
    "inv_freq": (lambda d: (2 * d,), ((_whole, lambda x: x[::2]),)),
    "rope_angles": (lambda n, d, start: (n, d, start + 1), (_MOVED,)),
    "rope_tables": (lambda n, d, start: (n, d, start + 1), (_MOVED, _MOVED)),
}


def twin(operation: str, i: Implementation, arguments: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[Relation, ...]]:
    """The arguments of a case's twin, and how its results are related to those of the case, for each of them.

    Where a size or a position of the twin's is not supported, the case is its own twin.
    """
    make, relations = _TWINS[operation]
    found = make(*arguments)
    sizes = sizes_of(OPERATIONS[operation], found)
    return (found, relations) if i.allows(**sizes) else (arguments, (_SAME,) * len(relations))
