"""Attention on CUDA: each backend of `scaled_dot_product_attention` in each of its types, and
`flex_attention` compiled by Triton.

The rows state the roundings of each backend. A product of float32 has the precision of float32
("highest"), unless the row says TF32, which `torch.set_float32_matmul_precision("high")` selects:
math and flex follow this setting. The memory-efficient kernel does not follow it: on tensor cores
it replaces each product of float32 by three products of TF32, of the operands and of their rounding
errors. Tensor cores truncate sums. Kernels in tiles may be compiled with fast mathematics, as
PyTorch's kernels are, which flushes numbers below 2⁻¹²⁶; numbers of binary16 are not flushed. Flash
and cuDNN get no mask. With causality they get square problems only, so the causal operations are
separate rows. Math in 16 bits computes in float32.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import torch
from torch.nn.attention import SDPBackend, flex_attention

from oracles import BFLOAT16_TENSOR_CORE, FLOAT16_TENSOR_CORE, FLOAT32, TF32, Arithmetic
from properties.contract.implementation import Implementation
from systems.torch_attention import NO_CUDA, equal, operations
from systems.torch_flex import attend, causal

__all__ = ["IMPLEMENTATIONS", "flushing"]

THREE_PRODUCTS = replace(
    FLOAT32,
    name="float32-by-three-tf32",
    product=2.0**-19,
    accumulate=2.0**-22,
    grad_accumulate=2.0**-22,
    flush_to_zero=True,
)
"""The arithmetic of float32 products that are sums of three TF32 products.

The kernel splits x = b + s, where b is x truncated to TF32, with an error of at most 2⁻¹⁰·|x|, and s
is truncated too, with an error of at most 2⁻²⁰·|x|. For x·y it omits s·s'. The three errors
together are at most slightly more than 3·2⁻²⁰·|x·y|. This is less than the error of two operands
that each have an error of 2⁻¹⁹.
"""

Operations = dict[str, Callable[..., Any]]
Arithmetics = dict[str, Arithmetic | str]

_SDPA = "scaled_dot_product_attention"
_ALL = (_SDPA, "causal_attention", "grouped_query_attention", f"{_SDPA}_vjp", f"{_SDPA}_jvp")
_UNGROUPED = (_SDPA, "causal_attention", f"{_SDPA}_vjp")
_UNMASKED = (_SDPA, "grouped_query_attention", f"{_SDPA}_vjp")


def flushing(arithmetic: Arithmetic) -> Arithmetic:
    """The arithmetic with results flushed to 0 below the smallest normal number of binary32."""
    return replace(arithmetic, flush_to_zero=True)


def _at(precision: str, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """The result of a call while the process's precision of float32 products is "highest" or
    "high".
    """
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        return function(*arguments, **options)
    finally:
        torch.set_float32_matmul_precision(before)


# -- flex ------------------------------------------------------------------------------------------


@cache
def _compiled() -> Callable[..., Any]:
    return torch.compile(flex_attention.flex_attention)


def _kernel(*inputs: Any, **options: Any) -> Any:
    """The compiled flex_attention, with room for more programs than PyTorch keeps by default.

    One process needs several programs for each operation, for several shapes each.
    """
    with torch._dynamo.config.patch(recompile_limit=64):
        return _compiled()(*inputs, **options)


def _flex_vjp(q: Any, k: Any, v: Any, mask: Any, grad_out: Any) -> Sequence[torch.Tensor]:
    inputs = q, k, v = [x.requires_grad_() for x in (q, k, v)]
    return torch.autograd.grad(attend(q, k, v, mask, kernel=_kernel), inputs, grad_out)


_FLEX: Operations = {
    _SDPA: partial(attend, kernel=_kernel),
    "causal_attention": partial(causal, kernel=_kernel),
    "grouped_query_attention": partial(attend, kernel=_kernel, enable_gqa=True),
    f"{_SDPA}_vjp": _flex_vjp,
}

# -- The table -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Kernel:
    """A kernel: its operations, its arithmetic for each type, its widths, and other restrictions."""

    name: str
    operations: Operations
    arithmetics: Arithmetics
    width: Callable[[int], bool]
    supports: tuple[Any, ...] = ()


def _multiple_of(n: int) -> Callable[[int], bool]:
    return lambda d: 0 < d <= 128 and d % n == 0


_TENSOR_CORES: Arithmetics = {
    "float16": FLOAT16_TENSOR_CORE,
    "bfloat16": flushing(BFLOAT16_TENSOR_CORE),
}
_SIMPLE: Arithmetics = {"float32": "float32", "TF32": "tf32", "float16": "float16", "bfloat16": "bfloat16"}
_IN_TILES: Arithmetics = {"float32": flushing(FLOAT32), "TF32": flushing(TF32), **_TENSOR_CORES}
_SQUARE = {"n_k_minus_n_q": equal}
_CAUSAL = ("causal_attention",)
_EFFICIENT, _FLASH, _CUDNN = SDPBackend.EFFICIENT_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION

_KERNELS = (
    _Kernel("math", operations(SDPBackend.MATH, _ALL), _SIMPLE, lambda d: 0 < d <= 128),
    _Kernel(
        "memory-efficient",
        operations(_EFFICIENT, _UNGROUPED),
        {"float32": THREE_PRODUCTS, **_TENSOR_CORES},
        _multiple_of(8),
    ),
    _Kernel("flash", operations(_FLASH, _UNMASKED), _TENSOR_CORES, _multiple_of(8), ("no masks",)),
    _Kernel("flash causal", operations(_FLASH, _CAUSAL), _TENSOR_CORES, _multiple_of(8), (_SQUARE,)),
    _Kernel("cuDNN", operations(_CUDNN, _UNMASKED), _TENSOR_CORES, _multiple_of(8), ("no masks",)),
    _Kernel("cuDNN causal", operations(_CUDNN, _CAUSAL), _TENSOR_CORES, _multiple_of(8), (_SQUARE,)),
    _Kernel(
        "flex compiled",
        _FLEX,
        _IN_TILES,
        lambda d: d in (16, 32, 64, 128),
        ("at most 4 shapes", {"batch": lambda n: n > 0}),
    ),
)


def _implementation(kernel: _Kernel, dtype: str, arithmetic: Arithmetic | str) -> Implementation:
    """A kernel in a type, for 4-D inputs of one width; the order of its sums is not stated."""
    precision = "high" if dtype == "TF32" else "highest"
    return Implementation(
        name=f"torch CUDA {kernel.name} {dtype}",
        operations={name: partial(_at, precision, function) for name, function in kernel.operations.items()},
        arithmetic=arithmetic,
        arrays="torch",
        device="cuda",
        batch_ranks=(2,),
        supports=[
            *kernel.supports,
            {"head_dim": kernel.width, "value_dim": kernel.width, "value_dim_minus_head_dim": equal},
        ],
        refuses=(RuntimeError,),
        deterministic=False,
        unavailable=NO_CUDA,
    )


IMPLEMENTATIONS = [
    _implementation(kernel, dtype, arithmetic)
    for kernel in _KERNELS
    for dtype, arithmetic in kernel.arithmetics.items()
]
