"""A flash-attention forward in Triton, written for this repository: one pass over blocks of keys,
with a running maximum and a running sum.

Each program computes a block of the queries of one head. For each block of keys it computes the
scores in base 2, s = (q·kᵀ)·scale·log₂ e, updates the maximum m to m', and rescales its results:
with α = 2^(m − m') the sum becomes l·α + Σ 2^(s − m'), and the output o·α + 2^(s − m')·v, where the
weights enter the product in the inputs' type. At the end out = o / l, and the log-sum-exp is (m +
log₂ l)·ln 2. Sums are in float32. A query without keys has out 0 and log-sum-exp −∞. Query heads
share heads of keys in groups. Causality is aligned top left, a window shows the keys from i − left to
i + right to query i, and a mask is boolean, with all its entries.

Triton is imported at the first call of the kernel: it comes with PyTorch's builds for CUDA. Without a
device, `attnspec verify systems/triton_attention.py:IMPLEMENTATIONS --interpret` runs the kernel in
Triton's interpreter.
"""

from collections.abc import Callable
from functools import cache, partial
from importlib.util import find_spec
from math import e, log2
from typing import Any

import torch

from oracles import BFLOAT16_TENSOR_CORE, FLOAT16_TENSOR_CORE, FLOAT32, TF32, Arithmetic
from properties.contract.implementation import Implementation
from properties.interpreters import is_interpreting
from systems.attention_arguments import AttentionOptions
from systems.torch_attention import NO_CUDA
from systems.torch_cuda import flushing

__all__ = ["IMPLEMENTATIONS", "NO_TRITON", "OPEN", "power_of_two"]

NO_TRITON = "" if find_spec("triton") else "Triton is not installed."

_BLOCK = 32
"""The number of queries, and of keys, in a block."""

OPEN = 2**30
"""The bound of a window that is open on a side."""


@cache
def _kernel() -> Any:
    """The kernel, which is compiled at its first call.

    Arrays have shapes (heads, rows, columns), and offsets count elements. All but k are contiguous.
    A window that is open on a side has a bound there that no distance exceeds.
    """
    import triton
    import triton.language as tl

    @triton.jit  # type: ignore[untyped-decorator]
    def attend(  # type: ignore[no-untyped-def]
        q, k, v, mask, out, lse, n_q, n_k, d, d_v, k_head, k_row, group, scale, left, right,
        masked: tl.constexpr, causal: tl.constexpr, precision: tl.constexpr,
        block: tl.constexpr, width: tl.constexpr, width_v: tl.constexpr,
    ):  # fmt: skip
        head = tl.program_id(1).to(tl.int64)
        rows = tl.program_id(0) * block + tl.arange(0, block)
        columns, columns_v = tl.arange(0, width), tl.arange(0, width_v)
        row_exists = rows[:, None] < n_q
        queries = tl.load(q + (head * n_q + rows[:, None]) * d + columns, mask=row_exists & (columns < d), other=0.0)
        first = head // group * n_k
        highest = tl.full((block,), float("-inf"), tl.float32)
        total = tl.zeros((block,), tl.float32)
        output = tl.zeros((block, width_v), tl.float32)
        for start in range(0, n_k, block):
            key_places = start + tl.arange(0, block)
            key_exists = key_places[:, None] < n_k
            keys = tl.load(
                k + head // group * k_head + key_places[:, None] * k_row + columns,
                mask=key_exists & (columns < d),
                other=0.0,
            )
            values = tl.load(
                v + (first + key_places[:, None]) * d_v + columns_v, mask=key_exists & (columns_v < d_v), other=0.0
            )
            ahead = key_places - rows[:, None]
            visible = row_exists & (key_places < n_k) & (ahead >= -left) & (ahead <= right)
            if causal:
                visible = visible & (ahead <= 0)
            if masked:
                visible = visible & (
                    tl.load(mask + (head * n_q + rows[:, None]) * n_k + key_places, mask=visible, other=0) != 0
                )
            scores = tl.where(
                visible, tl.dot(queries, tl.trans(keys), input_precision=precision) * scale, float("-inf")
            )
            higher = tl.maximum(highest, tl.max(scores, 1))
            reference = tl.where(higher == float("-inf"), 0.0, higher)
            weights, shrink = tl.exp2(scores - reference[:, None]), tl.exp2(highest - reference)
            total = total * shrink + tl.sum(weights, 1)
            output = output * shrink[:, None] + tl.dot(weights.to(values.dtype), values, input_precision=precision)
            highest = higher
        output = output / tl.where(total == 0, 1.0, total)[:, None]
        tl.store(
            out + (head * n_q + rows[:, None]) * d_v + columns_v,
            output.to(out.dtype.element_ty),
            mask=row_exists & (columns_v < d_v),
        )
        tl.store(lse + head * n_q + rows, (highest + tl.log2(total)) * 0.6931471805599453, mask=rows < n_q)

    return attend


def _launch(grid: tuple[int, int], *arguments: Any) -> None:
    _kernel()[grid](*arguments)


def _attend(precision: str, q: Any, k: Any, v: Any, **given: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """The output, and the log-sum-exp, of q (…, H, n_q, d), k (…, H_kv, n_k, d), v (…, H_kv, n_k,
    d_v).
    """
    options = AttentionOptions(**given)
    mask, scale = options.mask, options.scale
    (*lead, n_q, d), n_k, d_v = q.shape, k.shape[-2], v.shape[-1]
    if q.shape[-3] % k.shape[-3]:
        raise ValueError(f"{q.shape[-3]} heads of queries, but should be a multiple of {k.shape[-3]} heads of keys.")
    q, v, keys = q.contiguous(), v.contiguous(), k.flatten(end_dim=-3)
    keys = keys if keys.stride(-1) == 1 else keys.contiguous()
    left, right = (OPEN if bound is None else bound for bound in options.window)
    if mask is not None:
        mask = mask.expand(*lead, n_q, n_k).contiguous().to(torch.int8)
    out, lse = q.new_empty(*lead, n_q, d_v), q.new_empty(*lead, n_q, dtype=torch.float32)
    heads, in_base_2 = lse.numel() // n_q, (d**-0.5 if scale is None else scale) * log2(e)
    sizes = n_q, n_k, d, d_v, *keys.stride()[:2], q.shape[-3] // k.shape[-3], in_base_2, left, right
    flags = mask is not None, options.causal, precision, _BLOCK, power_of_two(d), power_of_two(d_v)
    _launch((-(-n_q // _BLOCK), heads), q, keys, v, mask, out, lse, *sizes, *flags)
    return out, lse


def power_of_two(n: int) -> int:
    """The smallest power of two that holds n columns; products need at least 16."""
    return max(16, 1 << (n - 1).bit_length())


def _plain(precision: str, q: Any, k: Any, v: Any, mask: Any = None) -> torch.Tensor:
    return _attend(precision, q, k, v, mask=mask)[0]


def _causal(precision: str, q: Any, k: Any, v: Any) -> torch.Tensor:
    return _attend(precision, q, k, v, causal=True)[0]


def _triton(dtype: str, arithmetic: Arithmetic, precision: str) -> Implementation:
    operations: dict[str, Callable[..., Any]] = {
        "attention": _attend,
        "scaled_dot_product_attention": _plain,
        "grouped_query_attention": _plain,
        "causal_attention": _causal,
    }
    return Implementation(
        name=f"Triton CUDA {dtype}",
        operations={name: partial(function, precision) for name, function in operations.items()},
        arithmetic=arithmetic,
        arrays="torch",
        device="cuda",
        batch_ranks=(1, 2),
        supports=["positive sizes", {name: lambda n: n <= 128 for name in ("head_dim", "value_dim")}],
        features=("mask", "scale", "causal", "window"),
        refuses=(ValueError,),
        unavailable=NO_TRITON if is_interpreting() else NO_CUDA or NO_TRITON,
    )


IMPLEMENTATIONS = [
    _triton("float32", flushing(FLOAT32), "ieee"),
    _triton("TF32", flushing(TF32), "tf32"),
    _triton("float16", FLOAT16_TENSOR_CORE, "ieee"),
    _triton("bfloat16", flushing(BFLOAT16_TENSOR_CORE), "ieee"),
]
"""One implementation for each type; TF32 is float32 with products that round their operands."""
