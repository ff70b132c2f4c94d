"""Attention over packed sequences and its gradients in NumPy: a part of the reference.

`properties.bugs.reference` has the other operations and explains steps.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from oracles.ball import Array
from properties.bugs.declared import declared
from properties.bugs.reference_attention import attention, attention_vjp, first_position
from properties.bugs.reference_quantised import sequence_scales

__all__ = [
    "Packing",
    "added",
    "heads_first",
    "key_rows",
    "lse_layout",
    "options_of_sequence",
    "packed_attention",
    "packed_attention_vjp",
    "packed_scales_of",
    "packing_of",
    "put",
    "query_offset",
    "query_rows",
    "sequence_numbers",
    "sequence_of",
    "sink_total",
]


class Packing(NamedTuple):
    """The lengths in a call of packed attention: the boundaries of sequences, how many rows they use,
    the longest lengths, and the numbers of all rows.
    """

    cu_q: Any
    cu_k: Any
    used_q: Any
    used_k: Any
    longest_q: int
    longest_k: int
    total_q: int
    total_k: int

    @property
    def lengths_q(self) -> Any:
        """The number of queries of each sequence."""
        return np.diff(self.cu_q) if self.used_q is None else np.asarray(self.used_q)

    @property
    def lengths_k(self) -> Any:
        """The number of keys of each sequence."""
        return np.diff(self.cu_k) if self.used_k is None else np.asarray(self.used_k)


def packing_of(q: Array, k: Array, cu_q: Any, cu_k: Any, options: dict[str, Any]) -> Packing:
    """Return the lengths of a call, and remove them from the options."""
    used_q, used_k = (options.pop(name, None) for name in ("seqused_q", "seqused_k"))
    longest = [options.pop(f"max_seqlen_{side}", None) for side in "qk"]
    longest_q, longest_k = (
        int(np.diff(cu).max(initial=0)) if given is None else given
        for given, cu in zip(longest, (cu_q, cu_k), strict=True)
    )
    return Packing(cu_q, cu_k, used_q, used_k, longest_q, longest_k, len(q), len(k))


def sequence_numbers(packing: Packing) -> Iterator[int]:
    """Return the numbers of the sequences."""
    return iter(range(len(packing.cu_q) - 1))


def query_rows(packing: Packing, sequence: int) -> Any:
    """Return the rows of the queries of a sequence."""
    return packing.cu_q[sequence] + np.arange(packing.lengths_q[sequence])


def key_rows(packing: Packing, sequence: int) -> Any:
    """Return the rows of the keys of a sequence."""
    return packing.cu_k[sequence] + np.arange(packing.lengths_k[sequence])


def query_offset(packing: Packing, sequence: int) -> int:
    """Return the position of the first query of a sequence among its keys."""
    return first_position(packing.lengths_q[sequence], packing.lengths_k[sequence])


def options_of_sequence(packing: Packing, sequence: int, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of attention for a sequence."""
    return {**options, "offset": query_offset(packing, sequence)}


def sequence_of(q: Array, k: Array, v: Array, packing: Packing, sequence: int) -> tuple[Array, ...]:
    """Return the queries, keys and values of a sequence, with the axis of heads first."""
    rows, keys = query_rows(packing, sequence), key_rows(packing, sequence)
    return heads_first(q[rows]), heads_first(k[keys]), heads_first(v[keys])


def packed_scales_of(packing: Packing, sequence: int, name: str, scale: Array) -> Array:
    """Return the scales of the queries, keys or values of a sequence, with the axis of heads first."""
    return heads_first(scale[(query_rows if name == "q_scale" else key_rows)(packing, sequence)])


def heads_first(x: Array) -> Array:
    """Return rows with the axis of heads first, or heads with the axis of rows first."""
    return x.swapaxes(0, 1)


def lse_layout(lse: Array) -> Array:
    """Return log-sum-exps (total_q, heads) in the layout of the convention, or the reverse."""
    return lse if declared().packed_lse == "rows_first" else np.ascontiguousarray(lse.T)


def put(whole: Array, rows: Any, output_part: Array) -> None:
    """Store the output or the log-sum-exp of a sequence (heads, n, …) at its rows."""
    whole[rows] = heads_first(output_part)


def added(whole: Array, rows: Any, output_part: Array) -> None:
    """Add the gradient of a sequence (heads, n, …) at its rows."""
    np.add.at(whole, rows, heads_first(output_part))


def sink_total(parts: list[Any], sink: Any) -> Any:
    """Return the gradient of the sinks: the sum over all sequences."""
    return None if sink is None else np.sum([np.zeros(sink.shape), *parts], axis=0)


def packed_attention(q: Array, k: Array, v: Array, cu_q: Any, cu_k: Any, **options: Any) -> tuple[Array, Array]:
    """Return the output and the log-sum-exp of the queries of all sequences."""
    packing = packing_of(q, k, cu_q, cu_k, options)
    out, lse = np.zeros((*q.shape[:2], v.shape[-1])), np.zeros(q.shape[:2])
    for sequence in sequence_numbers(packing):
        own = sequence_scales(options, sequence, partial(packed_scales_of, packing))
        output_part, log_sum_exps = attention(
            *sequence_of(q, k, v, packing, sequence), **options_of_sequence(packing, sequence, own)
        )
        put(out, query_rows(packing, sequence), output_part)
        put(lse, query_rows(packing, sequence), log_sum_exps)
    return out, lse_layout(lse)


def packed_attention_vjp(q: Array, k: Array, v: Array, *others: Any, **options: Any) -> tuple[Any, ...]:
    """Return the gradients with respect to q, k, v and the sinks. The others are cu_q, cu_k and the
    gradient of the output.
    """
    cu_q, cu_k, grad_out = others
    packing, of_lse = packing_of(q, k, cu_q, cu_k, options), options.pop("grad_lse", None)
    dq, dk, dv = (np.zeros(x.shape) for x in (q, k, v))
    sinks = list[Any]()
    for sequence in sequence_numbers(packing):
        rows, keys = query_rows(packing, sequence), key_rows(packing, sequence)
        grad_lse = None if of_lse is None else lse_layout(of_lse)[rows].T
        given = {**options_of_sequence(packing, sequence, options), "grad_lse": grad_lse}
        q_b, k_b, v_b = sequence_of(q, k, v, packing, sequence)
        *found, _, of_sink = attention_vjp(q_b, k_b, v_b, heads_first(grad_out[rows]), **given)
        for whole, where, output_part in zip((dq, dk, dv), (rows, keys, keys), found, strict=True):
            added(whole, where, output_part)
        sinks.append(of_sink)
    return dq, dk, dv, sink_total(sinks, options.get("sink"))
