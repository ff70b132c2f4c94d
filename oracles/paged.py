"""Attention over keys in pages: a table assigns pages, blocks of slots, to the sequences. The keys of
each sequence are gathered, and `oracles.packed_attention` gives the results.

Shapes: k_pages (num_pages, page_size, H_kv, d) and v_pages (num_pages, page_size, H_kv, d_v), or
with the axis of heads before that of slots under `conventions.page_layout` = heads_first.
block_table (batch, max_pages) and lengths (batch,): key j of sequence b is in the page
block_table[b, j div page_size], in its slot j mod page_size. q (batch, n_q, H, d), out (batch, n_q,
H, d_v), lse (batch, H, n_q). With cu_q, q, out and lse have the shapes of packed sequences.

Query i of sequence b has the position lengths[b] − n_q + i, whatever `conventions.causal` says: a
position below 0 is legal, and sees no key. Slots beyond a length, and pages and entries of the
table that no length reaches, are never read, and neither are their scales. Copying does not round,
so the budgets of `oracles.attention` hold.

A scale has one of these shapes: (); (batch, H_kv), per head of a sequence; the shape of q, or of the
pages, without channels; and the same with an axis of blocks.

Raises ValueError or TypeError for shapes, types and values that do not fit, before any work.
Source: vLLM, PagedAttention; flash-attention, `flash_attn_with_kvcache`; FlashInfer, paged
key-value caches.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from oracles import arrays
from oracles.ball import Array
from oracles.conventions import Conventions
from oracles.enclosure import Enclosure
from oracles.options import PagedOptions, answer, takes
from oracles.packed import packed_attention, sequence_rows
from oracles.quantised import codes_of, of_rows


@takes(PagedOptions)
def paged_attention(
    q: Any, k_pages: Any, v_pages: Any, block_table: Any, lengths: Any, **options: Unpack[PagedOptions]
) -> tuple[Enclosure, Enclosure]:
    """Return the output and the log-sum-exp (lse) of attention over keys in pages. The results are
    `Enclosure`s (value ± radius).

    Edge cases: a length may be 0, and a sequence may have more queries than keys. Queries without
    keys are fully masked rows. Sequences may share pages.
    """
    arithmetic, conventions, _ = answer(options)
    given = ((q, "q"), (k_pages, "k_pages"), (v_pages, "v_pages"))
    q, *pages = (codes_of(x, name, arithmetic) for x, name in given)
    k_pages, v_pages = (_slots_first(x, conventions) for x in pages)
    is_batch = options["cu_q"] is None
    _require_shapes(q, k_pages, v_pages, "batch, n_q" if is_batch else "total_q")
    used = arrays.integers(lengths, "lengths", 0, 2**53)
    numbers = page_numbers(block_table, used, *k_pages.shape[:2])
    boundaries = _boundaries(q, len(used), options["cu_q"])
    of_packed: Any = {name: option for name, option in options.items() if name != "cu_q"}
    layout = "heads_first" if is_batch else conventions.packed_lse
    of_packed["conventions"] = replace(conventions, causal="bottom_right", packed_lse=layout)
    k, v = (_gathered(x, numbers, used) for x in (k_pages, v_pages))
    rows = q if not is_batch else _flat(q)
    for name, x in (("q_scale", q), ("k_scale", pages[0]), ("v_scale", pages[1])):
        scale = of_rows(options.get(name), name, x.shape, (len(used), k_pages.shape[2]))
        if scale is not None and scale.ndim == 4:
            scale = _flat(scale) if x is q else _gathered(_slots_first(scale, conventions), numbers, used)
        of_packed[name] = scale
    out, lse = packed_attention(rows, k, v, boundaries, [0, *used.cumsum().tolist()], **of_packed)
    if not is_batch:
        return out, lse
    batch, n_q, heads = q.shape[:3]
    of_batch = _changed(lse, lambda x: np.swapaxes(x.reshape(heads, batch, n_q), 0, 1))
    return _changed(out, lambda x: x.reshape(batch, n_q, heads, v_pages.shape[-1])), of_batch


def page_numbers(block_table: Any, lengths: NDArray[np.int64], num_pages: int, size: int) -> list[NDArray[np.int64]]:
    """Return the numbers of the pages that each sequence uses, given the lengths of the sequences and
    the number and the size of the pages. Raises ValueError and TypeError for a table that does not
    name a page for each key.
    """
    table = arrays.integers(block_table, "block_table", -(2**63), 2**63 - 1)
    if lengths.ndim != 1:
        raise ValueError(f"lengths has shape {lengths.shape}, but should be (batch,).")
    if table.ndim != 2 or len(table) != len(lengths):
        raise ValueError(f"block_table has shape {table.shape}, but should be ({len(lengths)}, max_pages).")
    slots = table.shape[1] * size
    if (lengths > slots).any():
        b = int((lengths > slots).argmax())
        raise ValueError(
            f"lengths[{b}]={lengths[b]}, but should be at most {slots}, the slots of {table.shape[1]} pages."
        )
    numbers = [row[: -(-length // max(size, 1))] for row, length in zip(table, lengths, strict=True)]
    for b, row in enumerate(numbers):
        wrong = (row < 0) | (row >= num_pages)
        if wrong.any():
            place = int(wrong.argmax())
            raise ValueError(f"block_table[{b}, {place}]={row[place]}, but should be from 0 to {num_pages - 1}.")
    return numbers


def page_rows(numbers: list[NDArray[np.int64]], lengths: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """Return the slot of each key of all sequences, one sequence behind the other. Slot `size`·n is the
    first one of page n.
    """
    of_sequences = [
        (row[:, None] * size + np.arange(size)).ravel()[:length] for row, length in zip(numbers, lengths, strict=True)
    ]
    return np.concatenate([np.zeros(0, np.int64), *of_sequences])


def _gathered(pages: Array, numbers: list[NDArray[np.int64]], lengths: NDArray[np.int64]) -> Array:
    """Return the keys or values of all sequences, one sequence behind the other."""
    return _flat(pages)[page_rows(numbers, lengths, pages.shape[1])]


def _slots_first(pages: Array, conventions: Conventions) -> Array:
    """Return pages whose axis of slots comes before the axis of heads."""
    return np.swapaxes(pages, 1, 2) if conventions.page_layout == "heads_first" and pages.ndim == 4 else pages


def _flat(x: Array) -> Array:
    """Return an array with its first two axes as one."""
    return x.reshape(x.shape[0] * x.shape[1], *x.shape[2:])


def _boundaries(q: Array, batch: int, cu_q: Any) -> Any:
    """Return the boundaries of the queries of all sequences in one axis of rows."""
    if cu_q is None:
        if len(q) != batch:
            raise ValueError(f"q has {len(q)} sequences, but should have {batch} like lengths.")
        return [q.shape[1] * b for b in range(batch + 1)]
    sequences = len(sequence_rows(cu_q, None, len(q), "q"))
    if sequences != batch:
        raise ValueError(f"cu_q has {sequences} sequences, but should have {batch} like lengths.")
    return cu_q


def _require_shapes(q: Array, k_pages: Array, v_pages: Array, lead: str) -> None:
    """Raise ValueError unless the axes of q and of the pages fit together. `lead` are the first axes
    of q.
    """
    pages = "num_pages, page_size, H_kv"
    for x, name, axes in (
        (q, "q", f"{lead}, H, d"),
        (k_pages, "k_pages", f"{pages}, d"),
        (v_pages, "v_pages", f"{pages}, d_v"),
    ):
        if x.ndim != axes.count(",") + 1:
            raise ValueError(f"{name} has shape {x.shape}, but should be ({axes}).")
    if v_pages.shape[:3] != k_pages.shape[:3]:
        raise ValueError(f"v_pages has shape {v_pages.shape}, but should begin with {k_pages.shape[:3]} like k_pages.")
    if q.shape[-1] != k_pages.shape[-1]:
        raise ValueError(f"q has {q.shape[-1]} columns, but should have {k_pages.shape[-1]} like k_pages.")
    if k_pages.shape[2] == 0 or q.shape[-2] % k_pages.shape[2]:
        raise ValueError(f"q has {q.shape[-2]} heads, but should have a multiple of k_pages's {k_pages.shape[2]}.")


def _changed(x: Enclosure, change: Callable[[Array], Array]) -> Enclosure:
    """Return an enclosure with its elements in another shape or order."""
    return replace(x, mid=np.ascontiguousarray(change(x.mid)), rad=np.ascontiguousarray(change(x.rad)))
