"""Attention over keys in pages: blocks of slots that a table assigns to the sequences.

This module is not TorchLean's: see `spec.extended`. Key j of sequence b is in the page
blockTable[b, j div pageSize], in its slot j mod pageSize. With nQ queries, query i of sequence b has
the position p = lengths[b] − nQ + i. A position below 0 is legal and sees no key.

Shapes: kPages is (pages, pageSize, HKv, d), vPages (pages, pageSize, HKv, dV), blockTable (batch,
maxPages), lengths (batch,). q is (batch, nQ, H, d), out (batch, nQ, H, dV) and lse (batch, H, nQ).
With cu_q the sequences have unequal numbers of queries: q, out and lse are those of
`spec.extended.packed`.

Slots and entries of the table beyond a length are not read, so they may be NaN and any integer.
Several sequences may read one page.

Sources: vLLM, PagedAttention; flash-attention, `flash_attn_with_kvcache`; FlashInfer, paged
key-value caches
"""

from typing import Any

import numpy as np

from spec.extended.arguments import page_numbers
from spec.extended.packed import packed_attention
from spec.lean import definition
from spec.tensor_core import Array, Tensor

__all__ = ["paged_attention"]


@definition()
def paged_attention(
    q: Tensor[Array, "*batch nQ H d"],
    k_pages: Tensor[Array, "pages pageSize HKv d"],
    v_pages: Tensor[Array, "pages pageSize HKv dV"],
    block_table: Any,
    lengths: Any,
    **options: Any,
) -> tuple[Tensor[Array, "*batch nQ H dV"], Tensor[Array, "*batch H nQ"]]:
    """Return (out, lse) of the queries of all sequences, each over the keys in its own pages:

        k_b[j] = kPages[blockTable[b, j div pageSize], j mod pageSize]  for j < lengths[b]
        out[b], lse[b] = attention(q[b], k_b, v_b), with query i at the position lengths[b] − nQ + i

    The options are cu_q, causal (True by default), scale, window, softcap, sink, alibi and scalar.

    Edge cases
    - A sequence of length 0 has no keys: its queries are rows without a visible key.
    - More queries than keys are legal: the first queries stand before the first key.

    >>> q, k = np.zeros((2, 1, 1, 1)), np.zeros((3, 2, 1, 1))  # one query for each of two sequences
    >>> v = np.array([5.0, 9.0, 1.0, 3.0, 4.0, 8.0]).reshape(3, 2, 1, 1)  # three pages of two slots
    >>> out, lse = paged_attention(q, k, v, [[1, 0], [2, -1]], [3, 1])
    >>> out.ravel().round(6).tolist(), np.exp(lse).round(6).ravel().tolist()  # (1 + 3 + 5) / 3, then 4 alone
    ([3.0, 4.0], [3.0, 1.0])
    """
    cu_q, of_attention = options.pop("cu_q", None), {"scalar": None, "causal": True} | options
    if q.ndim != (4 if cu_q is None else 3):
        raise ValueError(f"q has shape {q.shape}, but should be (batch, nQ, H, d), or (totalQ, H, d) with cu_q.")
    pages = page_numbers(block_table, lengths, *k_pages.shape[:2])
    of_sequences = q if cu_q is not None else q.reshape(q.shape[0] * q.shape[1], *q.shape[2:])
    cu = [n * q.shape[1] for n in range(len(q) + 1)] if cu_q is None else cu_q
    k, v = (_gathered(x, pages, lengths) for x in (k_pages, v_pages))
    cu_k = np.cumsum([0, *np.ravel(lengths)])
    out, lse = packed_attention(of_sequences, k, v, cu, cu_k, alignment="bottom_right", **of_attention)
    if cu_q is not None:
        return out, lse
    return out.reshape(*q.shape[:3], v.shape[-1]), np.swapaxes(lse.reshape(q.shape[2], *q.shape[:2]), 0, 1)


def _gathered(pages: Array, numbers: list[list[int]], lengths: Any) -> Array:
    """Return the rows of all sequences, one sequence behind the other."""
    size = pages.shape[1]
    rows = [(numbers[b][j // size], j % size) for b, n in enumerate(np.ravel(lengths)) for j in range(n)]
    return np.array([pages[row] for row in rows], pages.dtype).reshape(len(rows), *pages.shape[2:])
