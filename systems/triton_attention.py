"""A flash-attention forward in Triton, of our own: one pass over blocks of keys, with a running
maximum and a running sum.

Each program has a block of the queries of one head. Of each block of keys it forms the scores in
base 2, s = (q·kᵀ)·scale·log₂ e, moves its maximum m, and rescales what it has: with α = 2^(m − m')
the sum becomes l·α + Σ 2^(s − m'), and the output o·α + 2^(s − m')·v, where the weights enter the
product in the inputs' type. At last out = o / l, and the log-sum-exp is (m + log₂ l)·ln 2. Sums are
in float32. A query without keys has out 0 and −∞. Query heads share heads of keys by groups.
Causality is aligned top left; a mask is booleans, written out.

Triton is imported when the kernel is first called: it comes with PyTorch's builds for CUDA. Its
interpreter runs the kernel without a device, where TRITON_INTERPRET=1 is set before: in float32 and
float16, for its products of bfloat16 are wrong.
"""

from collections.abc import Callable
from functools import cache, partial
from importlib.util import find_spec
from math import e, log2
from typing import Any

import torch

from oracles import BFLOAT16_TENSOR_CORE, FLOAT16_TENSOR_CORE, FLOAT32, TF32, Arithmetic
from properties.contract.implementation import Implementation
from systems.torch_attention import NO_CUDA
from systems.torch_cuda import flushing

__all__ = ["IMPLEMENTATIONS"]

_NO_TRITON = "" if find_spec("triton") else "Triton is not installed."

_BLOCK = 32
"""Queries, and keys, of a block."""


@cache
def _kernel() -> Any:
    """The kernel, compiled when it is called. Offsets are in elements: arrays are contiguous, of
    shapes (heads, rows, columns).
    """
    import triton
    import triton.language as tl

    @triton.jit  # type: ignore[untyped-decorator]
    def attend(  # type: ignore[no-untyped-def]
        q, k, v, mask, out, lse, n_q, n_k, d, d_v, group, scale,
        masked: tl.constexpr, causal: tl.constexpr, precision: tl.constexpr,
        block: tl.constexpr, width: tl.constexpr, width_v: tl.constexpr,
    ):  # fmt: skip
        head = tl.program_id(1).to(tl.int64)
        rows = tl.program_id(0) * block + tl.arange(0, block)
        columns, columns_v = tl.arange(0, width), tl.arange(0, width_v)
        there = rows[:, None] < n_q
        queries = tl.load(q + (head * n_q + rows[:, None]) * d + columns, mask=there & (columns < d), other=0.0)
        first = head // group * n_k
        highest = tl.full((block,), float("-inf"), tl.float32)
        total = tl.zeros((block,), tl.float32)
        found = tl.zeros((block, width_v), tl.float32)
        for start in range(0, n_k, block):
            those = start + tl.arange(0, block)
            seen = those[:, None] < n_k
            keys = tl.load(k + (first + those[:, None]) * d + columns, mask=seen & (columns < d), other=0.0)
            values = tl.load(v + (first + those[:, None]) * d_v + columns_v, mask=seen & (columns_v < d_v), other=0.0)
            allowed = there & (those < n_k)
            if causal:
                allowed = allowed & (those <= rows[:, None])
            if masked:
                allowed = allowed & (
                    tl.load(mask + (head * n_q + rows[:, None]) * n_k + those, mask=allowed, other=0) != 0
                )
            scores = tl.where(
                allowed, tl.dot(queries, tl.trans(keys), input_precision=precision) * scale, float("-inf")
            )
            higher = tl.maximum(highest, tl.max(scores, 1))
            reference = tl.where(higher == float("-inf"), 0.0, higher)
            weights, kept = tl.exp2(scores - reference[:, None]), tl.exp2(highest - reference)
            total = total * kept + tl.sum(weights, 1)
            found = found * kept[:, None] + tl.dot(weights.to(values.dtype), values, input_precision=precision)
            highest = higher
        found = found / tl.where(total == 0, 1.0, total)[:, None]
        tl.store(
            out + (head * n_q + rows[:, None]) * d_v + columns_v,
            found.to(out.dtype.element_ty),
            mask=there & (columns_v < d_v),
        )
        tl.store(lse + head * n_q + rows, (highest + tl.log2(total)) * 0.6931471805599453, mask=rows < n_q)

    return attend


def _launch(grid: tuple[int, int], *arguments: Any) -> None:
    _kernel()[grid](*arguments)


def _attend(
    precision: str, q: Any, k: Any, v: Any, *, mask: Any = None, scale: float | None = None, causal: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """The output, and the log-sum-exp, of q (…, H, n_q, d), k (…, H_kv, n_k, d), v (…, H_kv, n_k, d_v)."""
    (*lead, n_q, d), n_k, d_v = q.shape, k.shape[-2], v.shape[-1]
    q, k, v = (x.contiguous() for x in (q, k, v))
    if mask is not None:
        mask = mask.expand(*lead, n_q, n_k).contiguous().to(torch.int8)
    out, lse = q.new_empty(*lead, n_q, d_v), q.new_empty(*lead, n_q, dtype=torch.float32)
    heads, in_base_2 = lse.numel() // n_q, (d**-0.5 if scale is None else scale) * log2(e)
    sizes = n_q, n_k, d, d_v, q.shape[-3] // k.shape[-3], in_base_2
    flags = mask is not None, causal, precision, _BLOCK, _width(d), _width(d_v)
    _launch((-(-n_q // _BLOCK), heads), q, k, v, mask, out, lse, *sizes, *flags)
    return out, lse


def _width(n: int) -> int:
    """The least power of two that holds so many columns, and that a product takes."""
    return max(16, 1 << (n - 1).bit_length())


def _plain(precision: str, q: Any, k: Any, v: Any, mask: Any = None) -> torch.Tensor:
    return _attend(precision, q, k, v, mask=mask)[0]


def _causal(precision: str, q: Any, k: Any, v: Any) -> torch.Tensor:
    return _attend(precision, q, k, v, causal=True)[0]


def _triton(dtype: str, arithmetic: Arithmetic, precision: str) -> Implementation:
    operations: dict[str, Callable[..., Any]] = {
        "attention": _attend, "scaled_dot_product_attention": _plain, "grouped_query_attention": _plain, "causal_attention": _causal
    }  # fmt: skip
    return Implementation(
        name=f"Triton CUDA {dtype}",
        operations={name: partial(function, precision) for name, function in operations.items()},
        arithmetic=arithmetic,
        arrays="torch",
        device="cuda",
        batch_ranks=(1, 2),
        supports=["positive sizes", {name: lambda n: n <= 128 for name in ("head_dim", "value_dim")}],
        features=("mask", "scale", "causal"),
        unavailable=NO_CUDA or _NO_TRITON,
    )


IMPLEMENTATIONS = [
    _triton("float32", flushing(FLOAT32), "ieee"),
    _triton("TF32", flushing(TF32), "tf32"),
    _triton("float16", FLOAT16_TENSOR_CORE, "ieee"),
    _triton("bfloat16", flushing(BFLOAT16_TENSOR_CORE), "ieee"),
]
"""One for each type; TF32 is float32 whose products round their operands."""
