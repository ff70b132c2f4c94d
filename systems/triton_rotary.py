"""A fused rotary embedding in Triton, and its gradient, written for this repository.

Each program rotates a block of the rows of one sequence of one head. Channel i and channel i + d/2 are a
pair. The tables of cosines and sines have d/2 columns, one for each pair. The gradient rotates in the
opposite direction, by the same kernel.
"""

from functools import cache
from typing import Any

import torch

from oracles import FLOAT32, Conventions
from properties.contract.implementation import Implementation
from properties.interpreters import is_interpreting
from systems.torch_attention import NO_CUDA
from systems.torch_cuda import flushing
from systems.triton_attention import NO_TRITON, power_of_two

__all__ = ["IMPLEMENTATIONS"]

_BLOCK = 32
"""The number of rows in a block."""


@cache
def _kernel() -> Any:
    """The kernel, which is compiled at its first call."""
    import triton
    import triton.language as tl

    @triton.jit  # type: ignore[untyped-decorator]
    def rotate(  # type: ignore[no-untyped-def]
        x, cos, sin, out, x_sequence, x_row, n, d, half,
        backward: tl.constexpr, block: tl.constexpr, width: tl.constexpr,
    ):  # fmt: skip
        sequence = tl.program_id(1).to(tl.int64)
        rows = tl.program_id(0) * block + tl.arange(0, block)[:, None]
        pairs = tl.arange(0, width)
        exists = (rows < n) & (pairs < half)
        table = rows * half + pairs
        c = tl.load(cos + table, mask=exists, other=0.0)
        s = tl.load(sin + table, mask=exists, other=0.0)
        if backward:
            s = -s
        low, high = pairs, pairs + half
        row = x + sequence * x_sequence + rows * x_row
        first, second = tl.load(row + low, mask=exists, other=0.0), tl.load(row + high, mask=exists, other=0.0)
        out_row = out + (sequence * n + rows) * d
        tl.store(out_row + low, first * c - second * s, mask=exists)
        tl.store(out_row + high, second * c + first * s, mask=exists)

    return rotate


def _rotate(x: Any, cos: Any, sin: Any, backward: bool = False) -> torch.Tensor:
    """x (…, n, d), rotated by the angles of tables (n, d / 2)."""
    (*_, n, d), half = x.shape, x.shape[-1] // 2
    rows = x.flatten(end_dim=-3)
    rows = rows if rows.stride(-1) == 1 else rows.contiguous()
    cos, sin = cos.contiguous(), sin.contiguous()
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    _kernel()[-(-n // _BLOCK), len(rows)](
        rows, cos, sin, out, *rows.stride()[:2], n, d, half, backward, _BLOCK, power_of_two(half)
    )
    return out


def _gradient(x: Any, cos: Any, sin: Any, grad_out: Any) -> torch.Tensor:
    return _rotate(grad_out, cos, sin, backward=True)


IMPLEMENTATIONS = [
    Implementation(
        "Triton CUDA rotary float32",
        {"apply_rotary": _rotate, "apply_rotary_vjp": _gradient},
        arithmetic=flushing(FLOAT32),
        arrays="torch",
        device="cuda",
        conventions=Conventions(rope_pairing="half"),
        batch_ranks=(1, 2),
        supports=["half tables", "positive sizes", {"head_dim": lambda d: d % 2 == 0}],
        unavailable=NO_TRITON if is_interpreting() else NO_CUDA or NO_TRITON,
    )
]
