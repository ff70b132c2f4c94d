"""The operations: what they take, what they return, which conventions they follow, and the oracle that answers for them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import oracles
from oracles import Conventions, Enclosure

__all__ = ["OPERATIONS", "Operation", "sizes_of"]

_NUMBERS = {"num_heads", "n_q", "n_k", "seq_len", "max_len", "embed_dim", "head_dim", "start_pos"}
_MASKS = {"mask", "first", "second"}
_INTEGERS = {"lengths", "indices"}
_TABLES = {"cos", "sin"}
_FREQUENCIES = ("rope_pairing", "odd_lane", "rope_base", "rope_scale")
_ATTENTION = ("dead_rows", "mask_polarity")


@dataclass(frozen=True)
class Operation:
    """An operation: its parameters in order, its results, and the fields of `Conventions` that change them."""

    name: str
    parameters: tuple[str, ...]
    outputs: tuple[str, ...]
    shapes: Callable[..., tuple[tuple[int, ...], ...]]
    oracle: Callable[..., Any]
    conventions: tuple[str, ...] = ()

    @property
    def arrays(self) -> tuple[str, ...]:
        """The parameters that hold numbers of the implementation's format."""
        return tuple(p for p in self.parameters if p not in _NUMBERS | _MASKS | _INTEGERS)

    @property
    def takes_arrays(self) -> bool:
        """Whether it takes an array at all: of numbers, booleans or integers."""
        return not _NUMBERS.issuperset(self.parameters)

    @property
    def returns_booleans(self) -> bool:
        """Whether it builds a mask."""
        return self.outputs == ("mask",)

    def is_mask(self, parameter: str) -> bool:
        """Whether a parameter is a mask, of booleans in the implementation's polarity."""
        return parameter in _MASKS

    def is_integer(self, parameter: str) -> bool:
        """Whether a parameter is an array of integers, which stay integers in every arithmetic."""
        return parameter in _INTEGERS

    def is_table(self, name: str) -> bool:
        """Whether a parameter or a result is a table of cosines or sines, whose format is that of the arithmetic's angles."""
        return name in _TABLES

    def expected(self, arguments: tuple[Any, ...], arithmetic: Any, conventions: Conventions) -> tuple[Enclosure, ...]:
        """The oracle's enclosures of the results, masks in its own polarity; for a mask builder, the mask with radius 0."""
        found = self.oracle(*arguments, arithmetic=arithmetic, conventions=conventions)
        return found if isinstance(found, tuple) else (found,)


def _causal_attention(q: Any, k: Any, v: Any, **options: Any) -> Enclosure:
    return oracles.scaled_dot_product_attention(q, k, v, is_causal=True, **options)


def _first(x: Any, *rest: Any) -> tuple[tuple[int, ...], ...]:
    return (x.shape,)


def _attended(q: Any, k: Any, v: Any, *rest: Any) -> tuple[tuple[int, ...], ...]:
    return ((*q.shape[:-1], v.shape[-1]),)


def _inputs(*arguments: Any) -> tuple[tuple[int, ...], ...]:
    """The inputs' own: all arguments but the mask, the number of heads, and the cotangent, which comes last."""
    return tuple(x.shape for x in arguments[:-1] if isinstance(x, np.ndarray) and x.dtype != np.bool_)


def _rectangle(rows: int, columns: int | None = None, *rest: Any) -> tuple[tuple[int, ...], ...]:
    return ((rows, rows if columns is None else columns),)


def _rows(table: Any, seq_len: int, *rest: Any) -> tuple[tuple[int, ...], ...]:
    return ((seq_len, table.shape[-1]),)


def _looked_up(table: Any, indices: Any) -> tuple[tuple[int, ...], ...]:
    return ((*indices.shape, table.shape[-1]),)


def _padded(lengths: Any, max_len: int) -> tuple[tuple[int, ...], ...]:
    return ((len(lengths), max_len),)


def _broadcast(*masks: Any) -> tuple[tuple[int, ...], ...]:
    return (np.broadcast_shapes(*(mask.shape for mask in masks)),)


def _pairs(head_dim: int) -> tuple[tuple[int, ...], ...]:
    return ((-(-head_dim // 2),),)


def _rows_of_pairs(seq_len: int, head_dim: int, *rest: Any) -> tuple[tuple[int, ...], ...]:
    return ((seq_len, -(-head_dim // 2)),)


def _two_tables(seq_len: int, head_dim: int, *rest: Any) -> tuple[tuple[int, ...], ...]:
    return ((seq_len, head_dim),) * 2


_AXES = {
    "q": ("n_q", "head_dim"),
    "k": ("n_k", "head_dim"),
    "v": ("n_k", "value_dim"),
    "scores": ("n_q", "n_k"),
    "x": ("seq_len", "head_dim"),
}


def sizes_of(operation: Operation, arguments: tuple[Any, ...]) -> dict[str, int]:
    """The sizes and positions of a call by name, as far as its first arguments tell them."""
    found: dict[str, int] = {}
    for parameter, x in zip(operation.parameters, arguments, strict=False):
        if parameter in _NUMBERS and x is not None:
            found[parameter] = int(x)
        elif parameter in _AXES:
            found |= dict(zip(_AXES[parameter], x.shape[-2:], strict=True))
    return found


def _operation(
    name: str,
    parameters: str,
    outputs: str,
    shapes: Callable[..., tuple[tuple[int, ...], ...]],
    *conventions: str,
    oracle: Callable[..., Any] | None = None,
) -> Operation:
    return Operation(name, tuple(parameters.split()), tuple(outputs.split()), shapes, oracle or getattr(oracles, name), conventions)


OPERATIONS: dict[str, Operation] = {
    o.name: o
    for o in (
        _operation("scaled_dot_product_attention", "q k v mask", "out", _attended, *_ATTENTION),
        _operation("scaled_dot_product_attention_vjp", "q k v mask grad_out", "dq dk dv", _inputs, *_ATTENTION),
        _operation("scaled_dot_product_attention_jvp", "q k v mask dq dk dv", "dout", _attended, *_ATTENTION),
        _operation("causal_attention", "q k v", "out", _attended, "causal", "dead_rows", oracle=_causal_attention),
        _operation("grouped_query_attention", "q k v mask", "out", _attended, "kv_heads", *_ATTENTION),
        _operation("multi_head_attention", "x wq wk wv wo num_heads mask", "out", _first, *_ATTENTION),
        _operation("multi_head_attention_vjp", "x wq wk wv wo num_heads mask grad_out", "dx dwq dwk dwv dwo", _inputs, *_ATTENTION),
        _operation("multi_head_attention_jvp", "x wq wk wv wo num_heads mask dx dwq dwk dwv dwo", "dout", _first, *_ATTENTION),
        _operation("hard_masked_softmax", "scores mask", "weights", _first, *_ATTENTION),
        _operation("hard_masked_softmax_vjp", "scores mask grad_weights", "dscores", _first, *_ATTENTION),
        _operation("causal_mask", "n_q n_k", "mask", _rectangle, "causal", "mask_polarity"),
        _operation("padding_mask", "lengths max_len", "mask", _padded, "mask_polarity"),
        _operation("combine_masks", "first second", "mask", _broadcast, "mask_polarity"),
        _operation("sinusoidal_positional_encoding", "seq_len embed_dim start_pos", "encoding", _rectangle, "sinusoid_layout"),
        _operation("add_positional_encoding", "x pos", "out", _first),
        _operation("learned_positional_encoding", "table seq_len start_pos", "encoding", _rows),
        _operation("table_lookup", "table indices", "rows", _looked_up),
        _operation("rope", "x start_pos", "out", _first, *_FREQUENCIES),
        _operation("rope_vjp", "x grad_out start_pos", "dx", _first, *_FREQUENCIES),
        _operation("apply_rotary", "x cos sin", "out", _first, "rope_pairing", "odd_lane"),
        _operation("apply_rotary_vjp", "x cos sin grad_out", "dx", _first, "rope_pairing", "odd_lane"),
        _operation("rotate_half", "x", "out", _first),
        _operation("inv_freq", "head_dim", "frequencies", _pairs, *_FREQUENCIES),
        _operation("rope_angles", "seq_len head_dim start_pos", "angles", _rows_of_pairs, *_FREQUENCIES),
        _operation("rope_tables", "seq_len head_dim start_pos", "cos sin", _two_tables, *_FREQUENCIES),
    )
}
"""All operations by name. Besides those of the oracles there is `causal_attention(q, k, v)`: attention under the causal mask, for code that
takes no mask but a flag."""
