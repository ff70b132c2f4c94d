"""Attention over keys in pages in Triton, with the keys of a sequence split among programs, written for
this repository.

A program computes one query of one head over one part of the keys, as `triton_attention` does over all
keys, and stores the output and the log-sum-exp of this part in base 2. A second kernel merges the parts:
with lse = log₂ Σ 2^lseₚ the output is Σ 2^(lseₚ − lse)·outₚ. A part without keys has the log-sum-exp −∞.
The table of pages is read only where a sequence has keys, and queries end at the last key.
"""

from functools import cache
from math import e, log2
from typing import Any

import torch

from oracles import BFLOAT16_TENSOR_CORE, FLOAT32, Arithmetic, Conventions
from properties.contract.implementation import Implementation
from properties.interpreters import is_interpreting
from systems.torch_attention import NO_CUDA
from systems.torch_cuda import flushing
from systems.triton_attention import NO_TRITON, OPEN, power_of_two

__all__ = ["IMPLEMENTATIONS"]

_BLOCK, _PARTS = 32, 4
"""The number of keys in a block, and of parts of the keys of a sequence."""


@cache
def _kernels() -> tuple[Any, Any]:
    """The kernel for a part of the keys, and the kernel that merges parts; both are compiled at their
    first call.
    """
    import triton
    import triton.language as tl

    @triton.jit  # type: ignore[untyped-decorator]
    def attend(  # type: ignore[no-untyped-def]
        q, k, v, table, lengths, out, lse, table_row, n_q, heads, kv_heads, d, d_v, scale, left, right,
        causal: tl.constexpr, parts: tl.constexpr, page_size: tl.constexpr,
        block: tl.constexpr, width: tl.constexpr, width_v: tl.constexpr,
    ):  # fmt: skip
        query, head, part = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2)
        sequence = query // n_q
        length = tl.load(lengths + sequence)
        position = length - n_q + query % n_q
        columns, columns_v = tl.arange(0, width), tl.arange(0, width_v)
        x = tl.load(q + (query * heads + head) * d + columns, mask=columns < d, other=0.0).to(tl.float32)
        highest, total = float("-inf"), 0.0
        output = tl.zeros((width_v,), tl.float32)
        size = tl.cdiv(tl.cdiv(length, parts), block) * block
        for start in range(part * size, tl.minimum(length, (part + 1) * size), block):
            places = start + tl.arange(0, block)
            exists = places < length
            page = tl.load(table + sequence * table_row + places // page_size, mask=exists, other=0).to(tl.int64)
            row = (page * page_size + places % page_size) * kv_heads + head // (heads // kv_heads)
            keys = tl.load(k + row[:, None] * d + columns, mask=exists[:, None] & (columns < d), other=0.0)
            values = tl.load(v + row[:, None] * d_v + columns_v, mask=exists[:, None] & (columns_v < d_v), other=0.0)
            ahead = places - position
            visible = exists & (ahead >= -left) & (ahead <= right)
            if causal:
                visible = visible & (ahead <= 0)
            scores = tl.where(visible, tl.sum(keys.to(tl.float32) * x[None, :], 1) * scale, float("-inf"))
            higher = tl.maximum(highest, tl.max(scores, 0))
            reference = tl.where(higher == float("-inf"), 0.0, higher)
            weights, shrink = tl.exp2(scores - reference), tl.exp2(highest - reference)
            total = total * shrink + tl.sum(weights, 0)
            output = output * shrink + tl.sum(weights[:, None] * values.to(tl.float32), 0)
            highest = higher
        place = (query * heads + head) * parts + part
        tl.store(out + place * d_v + columns_v, output / tl.where(total == 0, 1.0, total), mask=columns_v < d_v)
        tl.store(lse + place, highest + tl.log2(total))

    @triton.jit  # type: ignore[untyped-decorator]
    def merge(  # type: ignore[no-untyped-def]
        outs, lses, out, lse, d_v, parts: tl.constexpr, width_v: tl.constexpr
    ):
        place = tl.program_id(0).to(tl.int64)
        rows, columns = tl.arange(0, parts), tl.arange(0, width_v)
        partial = tl.load(lses + place * parts + rows)
        highest = tl.max(partial, 0)
        weights = tl.exp2(partial - tl.where(highest == float("-inf"), 0.0, highest))
        total = tl.sum(weights, 0)
        exists = columns < d_v
        values = tl.load(outs + (place * parts + rows[:, None]) * d_v + columns, mask=exists[None, :], other=0.0)
        merged = tl.sum(weights[:, None] * values, 0) / tl.where(total == 0, 1.0, total)
        tl.store(out + place * d_v + columns, merged.to(out.dtype.element_ty), mask=exists)
        tl.store(lse + place, (highest + tl.log2(total)) * 0.6931471805599453)

    return attend, merge


def _attend(
    q: Any, k_pages: Any, v_pages: Any, block_table: Any, lengths: Any, **options: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """The output, and the log-sum-exp (sequences, H, n_q), of q (sequences, n_q, H, d) over k_pages
    (num_pages, page_size, H_kv, d) and v_pages (num_pages, page_size, H_kv, d_v).
    """
    (batch, n_q, heads, d), (_, page_size, kv_heads, d_v) = q.shape, v_pages.shape
    q, k_pages, v_pages, block_table = (x.contiguous() for x in (q, k_pages, v_pages, block_table))
    scale, (left, right) = options.get("scale"), options.get("window") or (None, None)
    in_base_2 = (d**-0.5 if scale is None else scale) * log2(e)
    window = (OPEN if bound is None else bound for bound in (left, right))
    outs, lses = (q.new_empty(*q.shape[:-1], _PARTS, *last, dtype=torch.float32) for last in ((d_v,), ()))
    out, lse = q.new_empty(*q.shape[:-1], d_v), q.new_empty(*q.shape[:-1], dtype=torch.float32)
    attend, merge = _kernels()
    attend[batch * n_q, heads, _PARTS](
        *(q, k_pages, v_pages, block_table, lengths, outs, lses, block_table.stride(0)),
        *(n_q, heads, kv_heads, d, d_v, in_base_2, *window),
        *(options.get("causal") is not False, _PARTS, page_size, _BLOCK, power_of_two(d), power_of_two(d_v)),
    )
    merge[(batch * n_q * heads,)](outs, lses, out, lse, d_v, _PARTS, power_of_two(d_v))
    return out, lse.swapaxes(1, 2)


def _paged(dtype: str, arithmetic: Arithmetic) -> Implementation:
    return Implementation(
        f"Triton CUDA pages {dtype}",
        {"paged_attention": _attend},
        arithmetic=arithmetic,
        arrays="torch",
        device="cuda",
        conventions=Conventions(blocked_values="unread"),
        supports=[
            "heads divide",
            {name: lambda n: n > 0 for name in ("sequences", "n_q", "num_heads", "kv_heads")},
            {name: lambda n: 0 < n <= 128 for name in ("head_dim", "value_dim")},
        ],
        features=("scale", "causal", "window"),
        unavailable=NO_TRITON if is_interpreting() else NO_CUDA or NO_TRITON,
    )


IMPLEMENTATIONS = [_paged("float32", flushing(FLOAT32)), _paged("bfloat16", flushing(BFLOAT16_TENSOR_CORE))]
"""One implementation for each type."""
