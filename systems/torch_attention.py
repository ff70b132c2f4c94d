"""`torch.nn.functional.scaled_dot_product_attention` in one backend at a time, with its
derivatives.

The CPU has two backends, math and flash; those on CUDA are in `torch_cuda`. Both CPU backends align
`is_causal` at the top left when lengths differ (pytorch/pytorch#108108), and return 0 for a fully
masked row. The flash kernel has no forward-mode derivative (pytorch/pytorch#128971), so it does not
offer that operation. The laws test reverse mode twice: by `torch.autograd.grad`, and by
`torch.func.vjp` in the entries named "func".
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from oracles import BFLOAT16, Arithmetic
from properties.contract.implementation import Implementation

__all__ = ["FLASH", "IMPLEMENTATIONS", "NO_CUDA", "equal", "operations"]

NO_CUDA = "" if torch.cuda.is_available() else "There is no CUDA device."
"""Why nothing runs on CUDA here; "" where it does."""


def _as_given(backend: SDPBackend, q: Any, k: Any, v: Any, mask: Any = None, /, **options: Any) -> torch.Tensor:
    with sdpa_kernel(backend):
        return scaled_dot_product_attention(q, k, v, attn_mask=mask, **options)


def _attend(backend: SDPBackend, q: Any, k: Any, v: Any, mask: Any = None, /, **options: Any) -> torch.Tensor:
    """Attention by a backend; the flash kernel, which refuses masks of one or three axes, gets one
    axis more.
    """
    if mask is not None and backend == SDPBackend.FLASH_ATTENTION and mask.ndim % 2:
        mask = mask[None]
    return _as_given(backend, q, k, v, mask, **options)


def _causal(backend: SDPBackend, q: Any, k: Any, v: Any) -> torch.Tensor:
    return _attend(backend, q, k, v, is_causal=True)


def _grouped(backend: SDPBackend, q: Any, k: Any, v: Any, mask: Any = None) -> torch.Tensor:
    return _attend(backend, q, k, v, mask, enable_gqa=True)


def _vjp(backend: SDPBackend, q: Any, k: Any, v: Any, mask: Any, grad_out: Any) -> Sequence[torch.Tensor]:
    inputs = q, k, v = [x.requires_grad_() for x in (q, k, v)]
    return torch.autograd.grad(_attend(backend, q, k, v, mask), inputs, grad_out)


def _functional_vjp(backend: SDPBackend, q: Any, k: Any, v: Any, mask: Any, grad_out: Any) -> Sequence[torch.Tensor]:
    def attend(q: Any, k: Any, v: Any) -> torch.Tensor:
        return _attend(backend, q, k, v, mask)

    gradients: Sequence[torch.Tensor] = torch.func.vjp(attend, q, k, v)[1](grad_out)
    return gradients


def _jvp(backend: SDPBackend, q: Any, k: Any, v: Any, mask: Any, *tangents: Any) -> torch.Tensor:
    def attend(q: Any, k: Any, v: Any) -> torch.Tensor:
        return _attend(backend, q, k, v, mask)

    out: torch.Tensor = torch.func.jvp(attend, (q, k, v), tangents)[1]
    return out


_SDPA = "scaled_dot_product_attention"
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    _SDPA: _attend,
    "causal_attention": _causal,
    "grouped_query_attention": _grouped,
    f"{_SDPA}_vjp": _vjp,
    f"{_SDPA}_jvp": _jvp,
}
_FORWARD, _REVERSE = (_SDPA,), (_SDPA, f"{_SDPA}_vjp")
_ALL = tuple(_FUNCTIONS)
_PLAIN = (_SDPA, "causal_attention", "grouped_query_attention", f"{_SDPA}_vjp")
_FEW = _PLAIN[1:]


def operations(backend: SDPBackend, names: Sequence[str]) -> dict[str, Callable[..., Any]]:
    """The operations of these names, computed by a backend."""
    return {name: partial(_FUNCTIONS[name], backend) for name in names}


def equal(difference: int) -> bool:
    """Whether a difference of sizes is 0."""
    return difference == 0


def _math(dtype: str, names: Sequence[str]) -> Implementation:
    """The composite of matrix products and a softmax, which takes any shape."""
    arithmetic: Arithmetic | str = replace(BFLOAT16, flush_to_zero=True) if dtype == "bfloat16" else dtype
    return Implementation(
        f"torch math {dtype}",
        operations(SDPBackend.MATH, names),
        arithmetic=arithmetic,
        arrays="torch",
        refuses=(RuntimeError,),
    )


# The flash kernel takes masks of two or four axes; the documentation promises all masks that
# broadcast to the weights. If the caller selects no backend, PyTorch uses the math backend for
# three axes, and raises the same IndexError for one axis.
_BROADCAST = dict.fromkeys(
    ("a broadcast mask gives the same as the full mask", "attention is within its error limit"),
    "The kernel takes only masks of two or four axes. It refuses three axes, and one axis raises IndexError, even if "
    "the caller selects no backend. See check_attn_mask_shape in pytorch/pytorch#115913.",
)
# In 16 bits the flash forward takes an exponential of degree 3, and the backward accumulates dk and
# dv in the narrow type. x86's dot products of bfloat16 flush subnormal numbers.
FLASH = {
    "float16": "float16-stored-gradients-fast-exponential",
    "bfloat16": "bfloat16-stored-gradients-fast-exponential-flushing",
}
"""The arithmetic of the flash kernel in the types of 16 bits."""


def _flash(dtype: str, names: Sequence[str]) -> Implementation:
    """The flash kernel, which takes 4-D inputs of one width with unit last strides.

    It has no forward-mode derivative.
    """
    return Implementation(
        name=f"torch flash {dtype}",
        operations=operations(SDPBackend.FLASH_ATTENTION, names),
        arithmetic=FLASH.get(dtype, dtype),
        arrays="torch",
        batch_ranks=(2,),
        supports={"value_dim_minus_head_dim": equal},
        refuses=(RuntimeError,),
    )


def _functional(name: str, backend: SDPBackend, like: Implementation) -> Implementation:
    """Reverse mode by `torch.func.vjp`, with the promises of another implementation."""
    return Implementation(
        name=name,
        operations={f"{_SDPA}_vjp": partial(_functional_vjp, backend)},
        arithmetic=like.arithmetic,
        arrays="torch",
        batch_ranks=like.batch_ranks,
        supports=like.supports,
        refuses=(RuntimeError,),
    )


# One kernel serves all types, and so does one composite. The laws test each operation in a wide type
# and in a narrow type.
_MATH = [_math("float64", _ALL), _math("float32", _FORWARD), _math("float16", _FEW), _math("bfloat16", _FORWARD)]
_FLASHES = [_flash("float64", _FORWARD), _flash("float32", _PLAIN), _flash("float16", _FEW), _flash("bfloat16", _PLAIN)]

_GIVEN = replace(
    _FLASHES[1],
    name="torch flash float32, masks as given",
    operations={_SDPA: partial(_as_given, SDPBackend.FLASH_ATTENTION)},
    known_deviations=_BROADCAST,
)

IMPLEMENTATIONS = [
    *_MATH,
    *_FLASHES,
    _GIVEN,
    _functional("torch math float32 func", SDPBackend.MATH, _MATH[1]),
    _functional("torch flash float64 func", SDPBackend.FLASH_ATTENTION, _FLASHES[0]),
]
