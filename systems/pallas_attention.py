"""Attention with a sink and a softcap in JAX Pallas, written for this repository.

Each program computes all queries of one head. It reads keys in blocks of 8, which zeros fill, with a
running maximum and a running sum. The sink of a head is the first score: the maximum begins with it, and
the sum with 1. Causality is aligned top left.

JAX is imported at the first call. Pallas compiles for GPUs and TPUs; `attnspec verify
systems/pallas_attention.py:IMPLEMENTATIONS --interpret` runs the kernel on a CPU.
"""

from functools import partial
from importlib.util import find_spec
from typing import Any

from oracles import FLOAT32
from properties.contract.implementation import Implementation
from properties.interpreters import is_interpreting
from systems.torch_cuda import flushing

__all__ = ["IMPLEMENTATIONS"]

_BLOCK = 8
"""The number of keys in a block."""


def _arrays(x: Any) -> Any:
    import jax.numpy as jnp

    return jnp.asarray(x)


def _kernel(
    q: Any, k: Any, v: Any, sink: Any, out: Any, lse: Any, *, n_k: int, scale: Any, causal: bool, cap: Any
) -> None:
    """Write the output (1, n_q, d_v) and the log-sum-exp (1, n_q) of one head."""
    from jax import lax
    from jax import numpy as jnp
    from jax.experimental import pallas

    queries = q[0]
    rows = lax.broadcasted_iota(jnp.int32, (len(queries), 1), 0)

    def add_block(number: Any, sums: Any) -> Any:
        highest, total, output = sums
        block = pallas.ds(number * _BLOCK, _BLOCK)
        keys, values = k[0, block], v[0, block]
        places = number * _BLOCK + lax.broadcasted_iota(jnp.int32, (1, _BLOCK), 1)
        scores = scale * (queries @ keys.T)
        if cap is not None:
            scores = cap * jnp.tanh(scores / cap)
        visible = places < n_k
        if causal:
            visible = visible & (places <= rows)
        scores = jnp.where(visible, scores, -jnp.inf)
        higher = jnp.maximum(highest, scores.max(1, keepdims=True))
        reference = jnp.where(jnp.isneginf(higher), 0, higher)
        weights, shrink = jnp.exp(scores - reference), jnp.exp(highest - reference)
        return higher, total * shrink + weights.sum(1, keepdims=True), output * shrink + weights @ values

    highest = jnp.full((len(queries), 1), sink[0, 0])
    total = jnp.where(jnp.isneginf(highest), 0.0, 1.0)
    output = jnp.zeros((len(queries), v.shape[-1]))
    highest, total, output = lax.fori_loop(0, k.shape[1] // _BLOCK, add_block, (highest, total, output))
    out[0] = output / jnp.where(total == 0, 1, total)
    lse[0] = (highest + jnp.log(total))[:, 0]


def _attend(
    q: Any, k: Any, v: Any, scale: Any = None, causal: bool = False, softcap: Any = None, sink: Any = None
) -> tuple[Any, Any]:
    """The output, and the log-sum-exp, of q (…, H, n_q, d), k (…, H_kv, n_k, d), v (…, H_kv, n_k, d_v)."""
    import jax
    from jax import numpy as jnp
    from jax.experimental import pallas

    (*lead, heads, n_q, d), (kv_heads, n_k, d_v) = q.shape, v.shape[-3:]
    group, padding = heads // kv_heads, [(0, 0), (0, -n_k % _BLOCK), (0, 0)]
    queries = q.reshape(-1, n_q, d)
    keys, values = (jnp.pad(x.reshape(-1, *x.shape[-2:]), padding) for x in (k, v))
    sinks = jnp.full(heads, -jnp.inf) if sink is None else sink
    of_head, of_group = (lambda head: (head, 0, 0)), (lambda head: (head // group, 0, 0))
    out, lse = pallas.pallas_call(
        partial(_kernel, n_k=n_k, scale=d**-0.5 if scale is None else scale, causal=causal, cap=softcap),
        grid=(len(queries),),
        in_specs=[
            pallas.BlockSpec((1, n_q, d), of_head),
            pallas.BlockSpec((1, *keys.shape[1:]), of_group),
            pallas.BlockSpec((1, *values.shape[1:]), of_group),
            pallas.BlockSpec((1, 1), lambda head: (head % heads, 0)),
        ],
        out_specs=[pallas.BlockSpec((1, n_q, d_v), of_head), pallas.BlockSpec((1, n_q), lambda head: (head, 0))],
        out_shape=[
            jax.ShapeDtypeStruct((len(queries), n_q, d_v), q.dtype),
            jax.ShapeDtypeStruct((len(queries), n_q), q.dtype),
        ],
    )(queries, keys, values, sinks[:, None])
    return out.reshape(*lead, heads, n_q, d_v), lse.reshape(*lead, heads, n_q)


IMPLEMENTATIONS = [
    Implementation(
        "Pallas float32",
        {"attention": _attend},
        arithmetic=flushing(FLOAT32),
        arrays=_arrays,
        batch_ranks=(0, 1),
        supports=["positive sizes", "heads divide", "at most 24 shapes"],
        features=("scale", "causal", "softcap", "sink"),
        unavailable="" if find_spec("jax") and is_interpreting() else "Pallas needs JAX, and a GPU or --interpret.",
    )
]
