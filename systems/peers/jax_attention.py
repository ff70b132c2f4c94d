"""`jax.nn.dot_product_attention` with its options: masks, lengths, a bias, a scale, causality,
local windows, and grouped heads.

Its arrays are (batch, sequence, heads, width), or without the batch; masks and biases have four
axes. A masked score is −0.7 times the largest number of float32, and the softmax is always in
float32. `implementation` is None by default, which means `xla`.

The adapter writes a bias of −∞ into the mask, and raises smaller entries of the bias to the fill
value: see the findings. In 16 bits it calls the function without jit, because jit raises an error
there on CPUs.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from oracles import Conventions
from properties.contract.implementation import Implementation
from properties.contract.twins import Twin
from systems.attention_arguments import AttentionOptions
from systems.peers.jax_arrays import FEW, JAX, SHAPES, SIZES, arrays, compiled, jvp, vjp

__all__ = ["IMPLEMENTATIONS"]

_FILL = -0.7 * 3.4028234663852886e38


def _four(x: Any) -> Any:
    return None if x is None else x.reshape((1,) * (4 - x.ndim) + x.shape)


def _attend(q: Any, k: Any, v: Any, *, residual: bool = True, **given: Any) -> Any:
    """(out, lse) for arrays (batch, heads, sequence, width), or without the batch.

    An open side of a window becomes as wide as the sequences.
    """
    import jax

    implementation, lengths = given.pop("implementation", None), given.pop("lengths", None)
    options = AttentionOptions(**given)
    mask, bias = options.mask, options.bias
    if bias is not None:
        mask, bias = (bias > -jax.numpy.inf) & (True if mask is None else mask), jax.numpy.maximum(bias, _FILL)
    longest = max(q.shape[-2], k.shape[-2])
    sides = tuple(longest if side is None else side for side in options.window)
    result = jax.nn.dot_product_attention(
        *(x.swapaxes(-2, -3) for x in (q, k, v)),
        _four(bias),
        _four(mask),
        scale=options.scale,
        is_causal=options.causal,
        local_window_size=None if options.window == (None, None) else sides,
        implementation=implementation,
        return_residual=residual,
        key_value_seq_lengths=lengths,
    )
    out, lse = result if residual else (result, None)
    return out.swapaxes(-2, -3), lse if lse is None else lse.swapaxes(-1, -2)


def _plain(q: Any, k: Any, v: Any, mask: Any = None, **options: Any) -> Any:
    return _attend(q, k, v, mask=mask, **options)[0]


def _plain_vjp(q: Any, k: Any, v: Any, mask: Any, grad_out: Any) -> Any:
    return vjp(partial(_plain, mask=mask), (q, k, v), grad_out)


def _plain_jvp(q: Any, k: Any, v: Any, mask: Any, *tangents: Any) -> Any:
    return jvp(partial(_plain, mask=mask), (q, k, v), tangents)


def _of_lengths(q: Any, k: Any, v: Any, *, mask: Any = None, **options: Any) -> Any:
    return _attend(q, k, v, lengths=None if mask is None else mask.astype("int32"), **options)


def _vjp(q: Any, k: Any, v: Any, grad_out: Any, *, bias: Any = None, **options: Any) -> Any:
    def attend(q: Any, k: Any, v: Any, *bias: Any) -> Any:
        return _attend(q, k, v, bias=bias[0] if bias else None, **options)[0]

    gradients = vjp(attend, (q, k, v) if bias is None else (q, k, v, bias), grad_out)
    return (*gradients, *[None] * (5 - len(gradients)))


_STATIC = ("causal", "window", "implementation", "residual")


def _implementation(
    name: str,
    arithmetic: Any,
    operations: dict[str, Callable[..., Any]],
    *supports: str,
    shapes: str = SHAPES,
    **promises: Any,
) -> Implementation:
    return Implementation(
        name=JAX.called(name),
        operations=operations,
        arithmetic=arithmetic,
        arrays=arrays,
        refuses=(ValueError, TypeError, AssertionError, ZeroDivisionError),
        supports=[shapes, *supports, SIZES | {"value_dim_minus_head_dim": [0]}],
        unavailable=JAX.unavailable,
        **{"conventions": Conventions(dead_rows="uniform"), "batch_ranks": (1, 2), **promises},
    )


_PLAIN: dict[str, Callable[..., Any]] = {
    "scaled_dot_product_attention": compiled(_plain, *_STATIC),
    "scaled_dot_product_attention_vjp": compiled(_plain_vjp),
    "scaled_dot_product_attention_jvp": compiled(_plain_jvp),
}
_OTHERS: dict[str, dict[str, Any]] = {
    "implementation='xla'": {"implementation": "xla"},
    "without return_residual": {"residual": False},
}
_TWINS = {
    name: Twin(
        {"scaled_dot_product_attention": partial(_PLAIN["scaled_dot_product_attention"], **options)}, exactly=True
    )
    for name, options in _OTHERS.items()
}
_FEATURES = ("mask", "bias", "scale", "causal", "window")

IMPLEMENTATIONS = [
    _implementation(
        "attention float32",
        "float32",
        _PLAIN | {"causal_attention": partial(_PLAIN["scaled_dot_product_attention"], causal=True)},
        twins=_TWINS,
    ),
    _implementation("attention bfloat16", "bfloat16", {"scaled_dot_product_attention": _plain}, shapes=FEW),
    _implementation("attention float16", "float16", {"scaled_dot_product_attention": _plain}, shapes=FEW),
    _implementation(
        "attention with features float32",
        "float32",
        {"attention": compiled(_attend, *_STATIC), "attention_vjp": compiled(_vjp, *_STATIC)},
        features=_FEATURES,
    ),
    _implementation(
        "attention by lengths float32",
        "float32",
        {"attention": compiled(_of_lengths, *_STATIC)},
        "key lengths",
        batch_ranks=(2,),
        features=("mask", "scale", "causal", "window"),
    ),
]
