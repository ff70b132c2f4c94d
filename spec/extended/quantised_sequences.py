"""Attention over quantised codes in packed sequences and in pages.

This module is not TorchLean's: see `spec.extended`. `spec.extended.quantised` defines codes, grids and
scales, `spec.extended.packed` sequences, and `spec.extended.paged` pages. The shape of a scale says what shares it:

    ()                          all codes
    (sequences, HKv)            the codes of a head of a sequence; a query head uses its key head's scale
    the shape without channels  the codes of a row and head, or of a slot and head of a page
    the same and blocks         the codes of d / blocks neighbouring channels of it

Sequences that share a page may have different scales per head. A shape that is both (sequences, HKv)
and (total, H) is per head. A scale of an unused row or slot is not read.

Sources: flash-attention, `q_descale`, `k_descale`, `v_descale`; vLLM, FP8 key-value caches
"""

from typing import Any

import numpy as np

from spec.extended.arguments import packed_rows, page_numbers
from spec.extended.packed import packed_attention
from spec.extended.paged import paged_attention
from spec.extended.quantised import GRIDS, dequantised
from spec.lean import definition
from spec.scope import alpha
from spec.tensor_core import Array, Tensor, replicate, tabulate

__all__ = ["quantised_packed_attention", "quantised_paged_attention"]


@definition()
def quantised_packed_attention(
    q: Any, k: Any, v: Any, cu_q: Any, cu_k: Any, **options: Any
) -> tuple[Tensor[Array, "totalQ H dV"], Tensor[Array, "H totalQ"]]:
    """Return (out, lse) of `packed_attention` of the numbers that the codes stand for. The options are
    grid, q_scale, k_scale, v_scale, fp8_scale, and all options of `packed_attention`.

    Edge cases: see `packed_attention` and `dequantised`. An array without a scale holds any numbers.

    >>> from spec import REAL64
    >>> q, k, v = np.zeros((2, 1, 1)), np.zeros((3, 1, 1)), np.array([1.0, 3.0, 5.0]).reshape(3, 1, 1)
    >>> scales = np.array([[0.5], [4.0]])  # of the head of both sequences
    >>> out, _ = quantised_packed_attention(q, k, v, [0, 1, 2], [0, 2, 3], grid="INT8", scalar=REAL64, v_scale=scales)
    >>> out.ravel().round(6).tolist()  # (1 + 3) / 2 · 0.5, and 5 · 4
    [1.0, 20.0]
    """
    scales, convention, grid = _popped(options)
    rows = {side: packed_rows(cu, options.get(f"seqused_{side}"), len(x), side)
            for side, cu, x in (("q", cu_q, q), ("k", cu_k, k))}  # fmt: skip
    q_numbers, k_numbers, v_numbers = (
        _numbers(codes, scales[name], rows[side], grid, convention, k.shape[-2])
        for name, side, codes in (("q", "q", q), ("k", "k", k), ("v", "k", v))
    )
    return packed_attention(q_numbers, k_numbers, v_numbers, cu_q, cu_k, **options)


@definition()
def quantised_paged_attention(
    q: Any,
    k_pages: Any,
    v_pages: Any,
    block_table: Any,
    lengths: Any,
    **options: Any,
) -> tuple[Tensor[Array, "*batch nQ H dV"], Tensor[Array, "*batch H nQ"]]:
    """Return (out, lse) of `paged_attention` of the numbers that the codes stand for. The options are
    grid, q_scale, k_scale, v_scale, fp8_scale, and all options of `paged_attention`.

    Each sequence reads copies of its pages, which hold its numbers.

    Edge cases: see `paged_attention` and `dequantised`. An array without a scale holds any numbers.

    >>> from spec import REAL64
    >>> q, k = np.zeros((2, 1, 1, 1)), np.zeros((1, 2, 1, 1))
    >>> v, scales = np.array([1.0, 3.0]).reshape(1, 2, 1, 1), np.array([[0.5], [4.0]])
    >>> out, _ = quantised_paged_attention(q, k, v, [[0], [0]], [2, 1], grid="INT8", scalar=REAL64, v_scale=scales)
    >>> out.ravel().round(6).tolist()  # (1 + 3) / 2 · 0.5 and 1 · 4, from a shared page
    [1.0, 4.0]
    >>> each = np.array([2.0, np.nan]).reshape(1, 2, 1)  # of each slot; the sequence reads the first slot alone
    >>> out, _ = quantised_paged_attention(q[:1], k, v, [[0]], [1], grid="INT8", scalar=REAL64, v_scale=each)
    >>> out.ravel().tolist()
    [2.0]
    """
    scales, convention, grid = _popped(options)
    pages, size, key_heads, _ = k_pages.shape
    numbers = page_numbers(block_table, lengths, pages, size)
    places = [[(row[j // size], j % size) for j in range(n)] for row, n in zip(numbers, np.ravel(lengths), strict=True)]

    def own_pages(codes: Array, scale: Array | None) -> Array:
        own = replicate(alpha.zero, (len(places), widest * size, *codes.shape[2:]))
        for b, slots in enumerate(places):
            of_slots = scale is not None and scale.ndim > 2
            of_b = _chosen(scale, slots) if scale is not None and of_slots else _of_heads(scale, b)
            own[b, : len(slots)] = _of_sequence(_chosen(codes, slots), of_b, grid, convention, key_heads)
        return own.reshape(-1, size, *codes.shape[2:])

    widest = max(map(len, numbers), default=0)
    table = np.arange(len(places) * widest).reshape(len(places), widest)
    queries = _numbers(*_rows_of_queries(q, scales["q"], options.get("cu_q")), grid, convention, key_heads)
    own_keys, own_values = (own_pages(x, scales[name]) for name, x in (("k", k_pages), ("v", v_pages)))
    return paged_attention(queries.reshape(q.shape), own_keys, own_values, table, lengths, **options)


def _popped(options: dict[str, Any]) -> tuple[dict[str, Array | None], str, str]:
    """Return the scales of q, k and v, what fp8_scale says, and the grid, and take them out of the
    options. Raises TypeError without a grid.
    """
    if "grid" not in options:
        raise TypeError(f"grid is missing, but should be one of {', '.join(GRIDS)}.")
    given = ((name, options.pop(f"{name}_scale", None)) for name in "qkv")
    scales = {name: None if scale is None else np.asarray(scale) for name, scale in given}
    return scales, options.pop("fp8_scale", "multiply"), options.pop("grid")


def _rows_of_queries(q: Array, scale: Array | None, cu_q: Any) -> tuple[Array, Array | None, list[slice]]:
    """Return queries, and their scale, with one axis of rows, and the rows of each sequence."""
    if cu_q is not None:
        return q, scale, packed_rows(cu_q, None, len(q), "q")
    batch, n_q = q.shape[:2]
    rows = [slice(n_q * b, n_q * (b + 1)) for b in range(batch)]
    flat = scale if scale is None or scale.ndim < 3 else scale.reshape(batch * n_q, *scale.shape[2:])
    return q.reshape(batch * n_q, *q.shape[2:]), flat, rows


def _numbers(codes: Array, scale: Array | None, rows: list[slice], grid: str, fp8_scale: str, key_heads: int) -> Array:
    """Return the numbers of the rows (total, H, d) of all sequences and 0 in unused rows."""
    numbers = replicate(alpha.zero, codes.shape)
    of_rows = scale is not None and scale.shape not in ((), (len(rows), key_heads))
    for b, R in enumerate(rows):
        of_b = scale[R] if scale is not None and of_rows else _of_heads(scale, b)
        numbers[R] = _of_sequence(codes[R], of_b, grid, fp8_scale, key_heads)
    return numbers


def _of_heads(scale: Array | None, b: int) -> Array | None:
    """Return the scale of each head of sequence b, or the one of all codes."""
    return scale if scale is None or not scale.ndim else np.asarray(scale[b])


def _of_sequence(codes: Array, scale: Array | None, grid: str, fp8_scale: str, key_heads: int) -> Array:
    """Return the numbers of the rows (n, H, d) of a sequence, given its scale: (), (HKv,), (n, H), or
    (n, H, blocks).
    """
    if scale is None:
        return tabulate(codes.shape, lambda *index: alpha.lift(float(codes[index])))
    heads_first = np.swapaxes(scale, 0, 1) if scale.ndim > 1 else scale
    return np.swapaxes(dequantised(np.swapaxes(codes, 0, 1), heads_first, grid, fp8_scale, key_heads), 0, 1)


def _chosen(pages: Array, slots: list[tuple[int, int]]) -> Array:
    """Return the rows in these slots of pages."""
    return np.array([pages[slot] for slot in slots], pages.dtype).reshape(len(slots), *pages.shape[2:])
