"""`torch.nn.functional.scaled_dot_product_attention`, each backend by itself, with its derivatives.

On the CPU there are two backends, math and flash; those on CUDA are in `torch_cuda`. A flag
`is_causal` is aligned top left in both CPU backends when lengths differ (pytorch/pytorch#108108),
and a row with no allowed key is 0. The flash kernel has no forward-mode derivative
(pytorch/pytorch#128971), so that operation is not offered there. Reverse mode is put under the laws
twice: by `torch.autograd.grad`, and in the entries named "func" by `torch.func.vjp`.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from oracles import BFLOAT16, BFLOAT16_STORED_GRADIENTS, Arithmetic
from properties.contract.implementation import Implementation

__all__ = ["IMPLEMENTATIONS", "NO_CUDA", "equal", "operations"]

NO_CUDA = "" if torch.cuda.is_available() else "There is no CUDA device."
"""Why nothing runs on CUDA here; "" where it does."""


def _as_given(backend: SDPBackend, q: Any, k: Any, v: Any, mask: Any = None, /, **options: Any) -> torch.Tensor:
    with sdpa_kernel(backend):
        return scaled_dot_product_attention(q, k, v, attn_mask=mask, **options)


def _attend(backend: SDPBackend, q: Any, k: Any, v: Any, mask: Any = None, /, **options: Any) -> torch.Tensor:
    """The flash kernel's masks get an axis more where they have one or three, of which it takes none."""
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


def _jvp(backend: SDPBackend, q: Any, k: Any, v: Any, mask: Any, dq: Any, dk: Any, dv: Any) -> torch.Tensor:
    def attend(q: Any, k: Any, v: Any) -> torch.Tensor:
        return _attend(backend, q, k, v, mask)

    out: torch.Tensor = torch.func.jvp(attend, (q, k, v), (dq, dk, dv))[1]
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
    """Some operations by a backend."""
    return {name: partial(_FUNCTIONS[name], backend) for name in names}


def equal(difference: int) -> bool:
    """Whether a difference of sizes is none."""
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


# The flash kernel's masks have two or four axes; the documentation has any that broadcast to the
# weights. Without a choice of a backend three axes lead to the math backend, and one axis to the
# same IndexError.
_BROADCAST = dict.fromkeys(
    ("a broadcast mask gives the same as the full mask", "attention is within its error limit"),
    "The kernel takes masks of two or four axes only: three are refused, and one raises IndexError, also where no backend is chosen. "
    "See check_attn_mask_shape in pytorch/pytorch#115913.",
)
# In 16 bits the flash backward adds dk and dv up in the narrow type.
_FLASH: dict[str, Arithmetic | str] = {
    "float16": "float16-stored-gradients",
    "bfloat16": replace(
        BFLOAT16_STORED_GRADIENTS, flush_to_zero=True
    ),  # as x86's bfloat16 dot products do with subnormal numbers
}


def _flash(dtype: str, names: Sequence[str]) -> Implementation:
    """The flash kernel takes 4-D inputs only, of one width, with unit last strides, and has no
    forward-mode derivative.
    """
    return Implementation(
        name=f"torch flash {dtype}",
        operations=operations(SDPBackend.FLASH_ATTENTION, names),
        arithmetic=_FLASH.get(dtype, dtype),
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


# One kernel serves all types, and one composite: each operation is put under the laws in a wide
# type and in a narrow one.
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
