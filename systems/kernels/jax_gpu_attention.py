"""JAX's attention kernels for GPUs in Pallas (jax 0.10.2): all queries at once, one query each with keys in
splits, and one query each over keys in pages.
"""

from typing import Any

from oracles import Conventions
from properties.contract.implementation import Implementation
from systems.kernels.released import Released

__all__ = ["IMPLEMENTATIONS"]

_FOLDER = "jax/experimental/pallas/ops/gpu"
_ATTENTION, _DECODE, _PAGED = (
    Released("jax", f"{_FOLDER}/{name}.py", whole=True) for name in ("attention", "decode_attention", "paged_attention")
)
_SPLITS = 2


def _array(x: Any) -> Any:
    import jax.numpy as jnp

    return jnp.asarray(x)


def _attend(q: Any, k: Any, v: Any, *, scale: float | None = None, causal: bool | None = None) -> Any:
    """q, k and v (batch, heads, n, d). The kernel takes heads after rows."""
    q, k, v = (x.swapaxes(1, 2) for x in (q, k, v))
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    return _ATTENTION.module.mha(q, k, v, None, sm_scale=scale, causal=bool(causal)).swapaxes(1, 2)


def _decode(q: Any, k: Any, v: Any, *, scale: float | None = None) -> Any:
    """q (batch, heads, 1, d), k and v (batch, heads, n, d)."""
    k, v = (x.swapaxes(1, 2) for x in (k, v))
    return _DECODE.module.gqa(q[:, :, 0], k, v, sm_scale=scale, block_k=16, k_splits=_SPLITS)[:, :, None]


def _paged(q: Any, k_pages: Any, v_pages: Any, block_table: Any, lengths: Any, *, softcap: float | None = None) -> Any:
    """q (sequences, 1, heads, d). The kernel does not scale scores."""
    k_pages, v_pages = (pages.transpose(2, 0, 1, 3) for pages in (k_pages, v_pages))
    return _PAGED.module.paged_attention(
        *(q[:, 0], k_pages, v_pages, block_table, lengths),
        pages_per_compute_block=1,
        k_splits=1,
        attn_logits_soft_cap=softcap or None,
    )[:, None]


def _jax(name: str, operations: dict[str, Any], unavailable: str, *supports: Any, **options: Any) -> Implementation:
    return Implementation(
        f"JAX {name}",
        operations,
        arithmetic="float32",
        arrays=_array,
        supports=["no log-sum-exp", "value_dim = head_dim", "at most 8 shapes", *supports],
        unavailable=unavailable,
        **options,
    )


_HEADS = {name: lambda n: n > 0 for name in ("batch", "num_heads", "kv_heads")}
IMPLEMENTATIONS = [
    _jax(
        *("mha", {"attention": _attend}, _ATTENTION.unavailable, "no masks", "no grouped heads", _HEADS),
        {"n_q": lambda n: 0 < n <= 128, "n_k": lambda n: 0 < n <= 128, "head_dim": lambda d: d > 0},
        features=("scale", "causal"),
        batch_ranks=(2,),
    ),
    _jax(
        *("gqa", {"attention": _decode}, _DECODE.unavailable, "no masks", "heads divide", _HEADS),
        {"n_q": (1,), "n_k": (32, 64), "head_dim": (16, 32)},
        features=("scale",),
        batch_ranks=(2,),
    ),
    _jax(
        *("paged_attention", {"paged_attention": _paged}, _PAGED.unavailable, "heads divide", "valid table entries"),
        {name: lambda n: n > 0 for name in ("sequences", "num_heads", "kv_heads", "n_k", "max_pages")},
        {"n_q": (1,), "page_size": (16, 32), "head_dim": (16, 32)},
        features=("softcap",),
        conventions=Conventions(scale_default="one"),
    ),
]
