"""MLX: `mx.fast.scaled_dot_product_attention` and `mx.fast.rope`.

Attention takes (batch, heads, sequence, width), sinks, and either a mask of booleans, a mask of
numbers, or the word "causal", which aligns at the last key. The rotation takes the number of
channels that rotate, one of both pairings, a base or the periods of all pairs, and the first
position.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from oracles import Arithmetic, Conventions
from oracles.formats import preset
from properties.contract.implementation import Implementation
from systems.attention_arguments import AttentionOptions
from systems.peers.library import Library

__all__ = ["IMPLEMENTATIONS"]

MLX = Library("mlx")
_LEAST = -3.4028234663852886e38


def _of_periods(name: str) -> Arithmetic:
    """The arithmetic of a preset, for frequencies that become periods and frequencies again.

    These two divisions add two roundings to the angle.
    """
    arithmetic = preset(name)
    angle = replace(arithmetic.angle, product=2.0**-22)
    return replace(arithmetic, name=f"{arithmetic.name}, frequencies from periods", angle=angle)


def _given(x: Any) -> Any:
    """An MLX array for a NumPy array; any other value unchanged."""
    import mlx.core as mx

    if not isinstance(x, np.ndarray):
        return x

    return mx.array(x) if x.dtype.name != "bfloat16" else mx.array(x.astype(np.float32)).astype(mx.bfloat16)


def _taking(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of NumPy arrays, from a function of MLX arrays."""
    return lambda *arguments, **options: function(
        *map(_given, arguments), **{name: _given(x) for name, x in options.items()}
    )


def _out(x: Any) -> Any:
    """A NumPy array for an MLX array; bfloat16 takes a way through float32, because NumPy cannot
    read it.
    """
    import ml_dtypes
    import mlx.core as mx

    return np.array(x.astype(mx.float32)).astype(ml_dtypes.bfloat16) if x.dtype == mx.bfloat16 else np.array(x)


def _attend(q: Any, k: Any, v: Any, **given: Any) -> Any:
    import mlx.core as mx

    options = AttentionOptions(**given)
    mask, bias = options.mask, options.bias
    if options.causal and (mask is not None or bias is not None):
        raise ValueError("A mask is an array or the word causal, but here it would be both.")
    if 0 in (*q.shape, *k.shape, *v.shape):
        raise ValueError("A size is 0, but all should be positive.")
    if bias is not None:
        mask, bias = (bias > -mx.inf) & (mx.array(True) if mask is None else mask), mx.maximum(bias, _LEAST)
    both = bias if mask is None else mask if bias is None else mx.where(mask, bias, mx.array(_LEAST, bias.dtype))
    scale = max(q.shape[-1], 1) ** -0.5 if options.scale is None else options.scale
    out = mx.fast.scaled_dot_product_attention(
        q, k, v, scale=scale, mask="causal" if options.causal else both, sinks=options.sink
    )
    return _out(out)


def _plain(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
    return _attend(q, k, v, mask=mask)


def _with_mask(q: Any, k: Any, v: Any) -> Any:
    """Causal attention by a mask of booleans with the meaning of the word "causal"."""
    return _attend(q, k, v, mask=_given(np.tri(q.shape[-2], k.shape[-2], k.shape[-2] - q.shape[-2], dtype=bool)))


def _plain_vjp(q: Any, k: Any, v: Any, mask: Any, grad_out: Any) -> Any:
    import mlx.core as mx

    def attend(*given: Any) -> Any:
        return mx.fast.scaled_dot_product_attention(*given, scale=max(q.shape[-1], 1) ** -0.5, mask=mask)

    return tuple(map(_out, mx.vjp(attend, [q, k, v], [grad_out])[1]))


def _rotate(
    traditional: bool, x: Any, start_pos: int = 0, *, inv_freq: Any = None, rotary_dim: int | None = None
) -> Any:
    import mlx.core as mx

    dims = x.shape[-1] if rotary_dim is None else rotary_dim
    if dims % 2:
        raise ValueError(f"{dims} channels should rotate, but their number should be even.")
    rates = {"base": 10000.0} if inv_freq is None else {"base": None, "freqs": 1 / inv_freq}
    return mx.fast.rope(x, dims, traditional=traditional, scale=1.0, offset=start_pos, **rates)


def _rope(traditional: bool, x: Any, start_pos: int = 0, **options: Any) -> Any:
    return _out(_rotate(traditional, x, start_pos, **options))


def _rope_vjp(traditional: bool, x: Any, grad_out: Any, start_pos: int = 0, **options: Any) -> Any:
    import mlx.core as mx

    return _out(mx.vjp(lambda x: _rotate(traditional, x, start_pos, **options), [x], [grad_out])[1][0])


def _attention(name: str, arithmetic: str, twins: dict[str, Any] | None = None, **operations: Any) -> Implementation:
    return Implementation(
        name=MLX.called(f"{name} {arithmetic}"),
        operations={operation: _taking(function) for operation, function in operations.items()},
        arithmetic=arithmetic,
        conventions=Conventions(dead_rows="uniform", causal="bottom_right", causal_with_mask="refuse"),
        batch_ranks=(2,),
        supports=["no log-sum-exp", "positive sizes"],
        features=("mask", "bias", "scale", "sink") if "attention" in operations else (),
        unavailable=MLX.unavailable,
        twins=twins or {},
    )


def _rotation(arithmetic: Arithmetic, traditional: bool) -> Implementation:
    return Implementation(
        name=MLX.called(f"fast rope {'adjacent' if traditional else 'half'} {arithmetic.name}"),
        operations={"rope": _taking(partial(_rope, traditional)), "rope_vjp": _taking(partial(_rope_vjp, traditional))},
        arithmetic=arithmetic,
        conventions=Conventions(rope_pairing="adjacent" if traditional else "half", odd_lane="reject"),
        batch_ranks=(1, 2),
        supports=["positive sizes", {"head_dim": lambda d: d % 2 == 0}],
        features=("inv_freq", "rotary_dim"),
        unavailable=MLX.unavailable,
    )


_PLAIN: dict[str, Any] = {"scaled_dot_product_attention": _plain, "scaled_dot_product_attention_vjp": _plain_vjp}

IMPLEMENTATIONS = [
    _attention(
        "fast attention",
        "float32",
        {"a mask of booleans": {"causal_attention": _taking(_with_mask)}},
        **_PLAIN,
        causal_attention=partial(_attend, causal=True),
        grouped_query_attention=_plain,
    ),
    _attention("fast attention", "float16-eager", scaled_dot_product_attention=_plain),
    _attention("fast attention", "bfloat16-eager", scaled_dot_product_attention=_plain),
    _attention("fast attention with features", "float32", attention=_attend),
    *(_rotation(_of_periods("float32"), traditional) for traditional in (True, False)),
    _rotation(_of_periods("bfloat16-elementwise"), traditional=False),
]
