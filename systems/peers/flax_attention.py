"""Flax: `dot_product_attention` and the multi-head module of linen and of nnx, their caches, and
linen's functions on masks.

Arrays are (…, sequence, heads, width); a masked score is the smallest number of the type. The
function of nnx calls `jax.nn.dot_product_attention`, unless the caller gives it a module that keeps
the weights: then nnx computes attention itself. A module that decodes, with identities for its
projections, is causal attention of one token after the other; its twin is the function on all
tokens together.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from oracles import Conventions
from properties.contract.implementation import Implementation
from systems.attention_arguments import Projections, with_projections
from systems.peers.jax_arrays import SHAPES, SIZES, arrays, compiled, jvp, vjp
from systems.peers.library import Library

__all__ = ["FLAX", "IMPLEMENTATIONS"]

FLAX = Library("flax")


def _headed(x: Any) -> Any:
    """A mask or a bias with an axis for heads, from one for each sequence of a batch."""
    return x if x is None or x.ndim < 3 else x[..., None, :, :]


def _linen(q: Any, k: Any, v: Any, mask: Any = None, **options: Any) -> Any:
    from flax import linen

    return linen.dot_product_attention(*(x.swapaxes(-2, -3) for x in (q, k, v)), mask=mask, **options).swapaxes(-2, -3)


def _nnx(q: Any, k: Any, v: Any, mask: Any = None, causal: bool = False) -> Any:
    from flax import nnx

    return nnx.dot_product_attention(*(x.swapaxes(-2, -3) for x in (q, k, v)), mask=mask, is_causal=causal).swapaxes(
        -2, -3
    )


def _nnx_weights(q: Any, k: Any, v: Any, mask: Any = None, causal: bool = False) -> Any:
    """Attention by the path of nnx that keeps the weights in a module."""
    from flax import nnx

    arrays = (x.swapaxes(-2, -3) for x in (q, k, v))
    return nnx.dot_product_attention(*arrays, mask=mask, is_causal=causal, module=nnx.Module()).swapaxes(-2, -3)


def _linen_heads(x: Any, weights: Projections, num_heads: int, mask: Any = None, **options: Any) -> Any:
    from flax import linen

    *inputs, wo = weights
    kernels = {
        name: {"kernel": weight.reshape(len(weight), num_heads, -1)}
        for name, weight in zip(("query", "key", "value"), inputs, strict=True)
    }
    params = kernels | {"out": {"kernel": wo.reshape(num_heads, -1, wo.shape[1])}}
    module = linen.MultiHeadDotProductAttention(
        num_heads, qkv_features=weights.wq.shape[1], out_features=wo.shape[1], use_bias=False
    )
    return module.apply({"params": params}, x, mask=_headed(mask), **options)


def _nnx_heads(x: Any, weights: Projections, num_heads: int, mask: Any = None) -> Any:
    from flax import nnx

    *inputs, wo = weights
    (model_dim, width), features = weights.wq.shape, wo.shape[1]
    module = nnx.MultiHeadAttention(
        num_heads, model_dim, width, features, use_bias=False, decode=False, rngs=nnx.Rngs(0)
    )
    for layer, weight in zip((module.query, module.key, module.value), inputs, strict=True):
        layer.kernel.value = weight.reshape(len(weight), num_heads, -1)
    module.out.kernel.value = wo.reshape(num_heads, -1, features)
    return module(x, mask=_headed(mask))


def _linen_decoded(q: Any, k: Any, v: Any) -> Any:
    from flax import linen
    from jax import numpy as jnp
    from jax import random

    width = q.shape[-1]
    module = linen.MultiHeadDotProductAttention(1, qkv_features=width, out_features=width, use_bias=False, decode=True)
    tokens = _tokens(q, k, v)
    cache, outputs = module.init(random.key(0), q, k, v)["cache"], []
    identities = {name: {"kernel": jnp.eye(width).reshape(width, 1, width)} for name in ("query", "key", "value")}
    params = identities | {"out": {"kernel": jnp.eye(width)[None]}}
    for token in tokens:
        out, changed = module.apply({"params": params, "cache": cache}, *token, mutable=["cache"])
        cache = changed["cache"]
        outputs.append(out)
    return jnp.concatenate(outputs, -2)


def _linen_causal(q: Any, k: Any, v: Any) -> Any:
    from flax import linen
    from jax import numpy as jnp

    return _linen(q, k, v, linen.make_causal_mask(jnp.zeros(q.shape[-2])))


def _nnx_decoded(q: Any, k: Any, v: Any) -> Any:
    from flax import nnx
    from jax import numpy as jnp

    width = q.shape[-1]
    module = nnx.MultiHeadAttention(1, width, width, width, use_bias=False, decode=True, rngs=nnx.Rngs(0))
    for layer in (module.query, module.key, module.value):
        layer.kernel.value = jnp.eye(width).reshape(width, 1, width)
    module.out.kernel.value = jnp.eye(width)[None]
    module.init_cache(q.shape)
    return jnp.concatenate([module(*token) for token in _tokens(q, k, v)], -2)


def _tokens(*arrays: Any) -> list[tuple[Any, ...]]:
    """The arrays at one position after the other.

    Raises ValueError if their shapes differ, because all projections are the identity.
    """
    if len({x.shape for x in arrays}) > 1:
        raise ValueError(f"The shapes are {', '.join(str(x.shape) for x in arrays)}, but should be one.")
    return [tuple(x[..., t : t + 1, :] for x in arrays) for t in range(arrays[0].shape[-2])]


def _causal_mask(n_q: int, n_k: int | None = None) -> Any:
    from flax import linen
    from jax import numpy as jnp

    if n_k not in (None, n_q):
        raise ValueError(f"n_q={n_q} and n_k={n_k}, but they should be equal.")
    return linen.make_causal_mask(jnp.zeros((1, n_q)), dtype=bool)[0, 0]


def _combine_masks(first: Any, second: Any) -> Any:
    from flax import linen

    rank = max(first.ndim, second.ndim)  # masks have the same number of axes
    return linen.combine_masks(*(x.reshape((1,) * (rank - x.ndim) + x.shape) for x in (first, second)), dtype=bool)


def _vjp(attend: Callable[..., Any], q: Any, k: Any, v: Any, mask: Any, grad_out: Any) -> Any:
    return vjp(partial(attend, mask=mask), (q, k, v), grad_out)


def _heads_vjp(
    heads: Callable[..., Any], x: Any, weights: Projections, num_heads: int, mask: Any, grad_out: Any
) -> Any:
    return vjp(_of_arrays(heads, num_heads, mask), (x, *weights), grad_out)


def _heads_jvp(
    heads: Callable[..., Any], x: Any, weights: Projections, num_heads: int, mask: Any, *tangents: Any
) -> Any:
    return jvp(_of_arrays(heads, num_heads, mask), (x, *weights), tangents)


def _of_arrays(heads: Callable[..., Any], num_heads: int, mask: Any) -> Callable[..., Any]:
    """Multi-head attention as a function of its differentiable arrays: x, wq, wk, wv and wo."""
    return lambda x, *weights: heads(x, Projections(*weights), num_heads, mask)


def heads_of(heads: Callable[..., Any]) -> dict[str, Callable[..., Any]]:
    """Multi-head attention and its derivatives, compiled, from a function of (x, projections,
    num_heads, mask).

    The number of heads is a Python integer, not an array.
    """

    def of(function: Callable[..., Any]) -> Callable[..., Any]:
        def reordered(x: Any, weights: Projections, mask: Any, *others: Any, num_heads: int) -> Any:
            return function(x, weights, num_heads, mask, *others)

        jitted = compiled(reordered, "num_heads")
        return with_projections(
            lambda x, weights, num_heads, mask, *others: jitted(x, weights, mask, *others, num_heads=num_heads)
        )

    name = "multi_head_attention"
    return {
        name: of(heads),
        f"{name}_vjp": of(partial(_heads_vjp, heads)),
        f"{name}_jvp": of(partial(_heads_jvp, heads)),
    }


def _attention(attend: Callable[..., Any]) -> dict[str, Callable[..., Any]]:
    name = "scaled_dot_product_attention"
    return {name: compiled(attend), f"{name}_vjp": compiled(partial(_vjp, attend))}


def _implementation(
    name: str,
    arithmetic: Any,
    operations: dict[str, Any],
    ranks: tuple[int, ...],
    twins: dict[str, Any] | None = None,
    **sizes: Any,
) -> Implementation:
    return Implementation(
        name=FLAX.called(f"{name} {arithmetic}"),
        operations=operations,
        arithmetic=arithmetic,
        conventions=Conventions(dead_rows="uniform"),
        arrays=arrays,
        batch_ranks=ranks,
        supports=[SHAPES, "positive sizes", SIZES | sizes],
        refuses=(ValueError, TypeError, AssertionError, ZeroDivisionError),
        unavailable=FLAX.unavailable,
        twins=twins or {},
    )


_SQUARE: dict[str, Any] = {"n_k_minus_n_q": [0]}
_DECODING = _SQUARE | {"value_dim_minus_head_dim": [0]}
_IN_EVALUATION = {
    "deterministic, with a dropout_rate": _attention(partial(_linen, dropout_rate=0.5, deterministic=True))
}
_SOWN = {"sow_weights": heads_of(partial(_linen_heads, sow_weights=True))}
_LINEN_AT_ONCE = {"at once": {"causal_attention": compiled(_linen_causal)}}
_NNX_AT_ONCE = {"at once": {"causal_attention": compiled(partial(_nnx, causal=True))}}
_KEPT = {"the weights kept": _attention(_nnx_weights)}

IMPLEMENTATIONS = [
    _implementation("linen attention", "float32", _attention(_linen), (1, 2), _IN_EVALUATION),
    _implementation("linen attention", "float16-eager", {"scaled_dot_product_attention": compiled(_linen)}, (1, 2)),
    _implementation("linen module", "float32", heads_of(_linen_heads), (0, 1), _SOWN),
    _implementation("linen masks", "float32", {"combine_masks": _combine_masks}, (0, 1, 2)),
    _implementation("linen causal mask", "float32", {"causal_mask": _causal_mask}, (0,), **_SQUARE),
    _implementation("nnx attention", "float32", _attention(_nnx), (1, 2), _KEPT, value_dim_minus_head_dim=[0]),
    _implementation("nnx attention with weights", "float32", _attention(_nnx_weights), (1, 2)),
    _implementation("nnx module", "float32", heads_of(_nnx_heads), (0, 1)),
    _implementation(
        "linen module, decoding", "float32", {"causal_attention": _linen_decoded}, (1,), _LINEN_AT_ONCE, **_DECODING
    ),
    _implementation(
        "nnx module, decoding", "float32", {"causal_attention": _nnx_decoded}, (1,), _NNX_AT_ONCE, **_DECODING
    ),
]
