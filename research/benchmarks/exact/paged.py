"""The exact results of attention over keys in pages: those of attention, sequence by sequence."""

from typing import Any

import flint
import numpy as np

from oracles import Conventions
from research.benchmarks.exact import attention
from research.benchmarks.exact.packed import scale_of_heads
from research.benchmarks.exact.reading import Given
from spec.tensor_core import Array as Balls

__all__ = ["paged_attention"]

_SCALES = ("q_scale", "k_scale", "v_scale")
_SHARED = ("sink", "alibi", "scale", "softcap", "window", "conventions")


def paged_attention(given: Given) -> tuple[Balls, ...]:
    """(out, lse). Rows that no sequence uses are 0."""
    q, cu_q = given["q"], given.get("cu_q")
    out, lse = (np.full(shape, flint.arb(0), dtype=object) for shape in ((*q.shape[:-1], _width(given)), q.shape[:-1]))
    for sequence, length in enumerate(np.asarray(given["lengths"]).tolist()):
        own: Any = sequence if cu_q is None else slice(int(cu_q[sequence]), int(cu_q[sequence + 1]))
        queries = q[own]
        if len(queries):
            problem = {name: given[name] for name in _SHARED if name in given} | {"causal": given.get("causal", True)}
            k, v = (_keys(given, name, sequence, length) for name in ("k_pages", "v_pages"))
            problem |= {"q": queries.swapaxes(0, 1), "k": k, "v": v, "offset": length - len(queries)}
            problem |= {name: _scale(given, name, sequence, own, length) for name in _SCALES if name in given}
            output, log_sum_exp = attention.attention(problem)
            out[own], lse[own] = output.swapaxes(0, 1), log_sum_exp.T
    conventions: Conventions = given.get("conventions") or Conventions()
    stays = cu_q is not None and conventions.packed_lse == "rows_first"
    return out, lse if stays else lse.swapaxes(-1, -2)


def _scale(given: Given, name: str, sequence: int, own: Any, length: int) -> Any:
    """The scale of the codes of a sequence, with the axes of attention."""
    if given[name].ndim < 3:
        return scale_of_heads(given, name, sequence)
    return given[name][own].swapaxes(0, 1) if name == "q_scale" else _keys(given, name, sequence, length)


def _width(given: Given) -> int:
    return int(given["v_pages"].shape[-1])


def _keys(given: Given, name: str, sequence: int, length: int) -> Any:
    """The keys or values of a sequence, with the heads first; one after the other, by page and slot."""
    pages, conventions = given[name], given.get("conventions") or Conventions()
    slots_first = pages.swapaxes(1, 2) if conventions.page_layout == "heads_first" else pages
    size, table = slots_first.shape[1], given["block_table"]
    rows = [slots_first[table[sequence, key // size], key % size] for key in range(length)]
    return np.array(rows, pages.dtype).reshape(length, *slots_first.shape[2:]).swapaxes(0, 1)
