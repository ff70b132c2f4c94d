"""LitGPT: the rotation of its models by `build_rope_cache` and `apply_rope`, and attention with its
`KVCache` under the masks of `GPT`.

A cache has a fixed length; the mask masks its positions that are not filled, which are zeros.
"""

from functools import cache
from typing import Any

from oracles import Conventions
from properties.contract.caches import Decoder
from properties.contract.implementation import Implementation
from systems.peers.library import Library
from systems.peers.narrow import KERNEL

__all__ = ["IMPLEMENTATIONS"]

_LIBRARY = Library("litgpt")
_LONGEST = 1024


def _even(dim: int) -> None:
    """Refuse an odd width, for which LitGPT drops the last channel, and width 0."""
    if dim % 2 or not dim:
        raise ValueError(f"head_dim={dim}, but should be even and positive.")


def _tables(seq_len: int, head_dim: int, start_pos: int = 0) -> Any:
    from litgpt.model import build_rope_cache

    _even(head_dim)
    return tuple(x[start_pos:] for x in build_rope_cache(start_pos + seq_len, head_dim))


def _apply(x: Any, cos: Any, sin: Any) -> Any:
    from litgpt.model import apply_rope

    _even(x.shape[-1])
    return apply_rope(x.reshape(-1, *x.shape[-2:]), cos[None], sin[None]).reshape(x.shape)


def _rope(x: Any, start_pos: int = 0) -> Any:
    """x rotated by tables in the type of x, as in a model of 16 bits."""
    return _apply(x, *(table.to(x.dtype) for table in _tables(x.shape[-2], x.shape[-1], start_pos)))


@cache
def _module(head_size: int) -> Any:
    """The attention of a model with one head of this size, and its scale."""
    import torch
    from litgpt.config import Config
    from litgpt.model import CausalSelfAttention

    with torch.device("meta"):
        return CausalSelfAttention(
            Config(n_layer=1, n_head=1, n_embd=head_size, head_size=head_size, padded_vocab_size=1), 0
        )


def _attend(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
    """Attention under a mask; without one it gets a mask of all keys, because LitGPT then is
    causal.
    """
    import torch

    visible = torch.ones(1, dtype=torch.bool) if mask is None else mask
    whole = visible.expand(*q.shape[:-1], k.shape[-2])
    return _module(q.shape[-1]).scaled_dot_product_attention(q, k, v, whole).transpose(1, 2)


def _causal(q: Any, k: Any, v: Any) -> Any:
    return _module(q.shape[-1]).scaled_dot_product_attention(q, k, v).transpose(1, 2)


class _Cache:
    """`KVCache` of one head, with the rows of `build_mask_cache` that `GPT` selects by position."""

    def __init__(self, d: int, d_v: int, capacity: int | None = None) -> None:
        import torch
        from litgpt.model import KVCache, build_mask_cache

        self.size = capacity or _LONGEST
        self.cache = KVCache((1, 1, self.size, d), (1, 1, self.size, d_v), dtype=torch.float32)
        self.mask = build_mask_cache(self.size)
        self.end = 0

    def append(self, k: Any, v: Any) -> None:
        """Add positions."""
        import torch

        if self.end + len(k) > self.size:
            raise ValueError(f"{self.end} positions and {len(k)} more exceed the capacity {self.size}.")
        self.kept = self.cache(torch.arange(self.end, self.end + len(k)), k[None, None], v[None, None])
        self.end += len(k)

    def attend(self, q: Any) -> Any:
        """The output of the last positions' queries."""
        if len(q) > self.end:
            raise ValueError(f"q has {len(q)} queries, but the cache has {self.end} positions.")
        mask = self.mask[:, :, self.end - len(q) : self.end]
        return _module(q.shape[-1]).scaled_dot_product_attention(q[None, None], *self.kept, mask)[0, :, 0]


def _implementation(name: str, arithmetic: str, operations: Any, *supports: Any, **promises: Any) -> Implementation:
    return Implementation(
        name=_LIBRARY.called(f"{name} {arithmetic}"),
        operations=operations,
        arithmetic=KERNEL.get(arithmetic, arithmetic),
        arrays="torch",
        supports=["positive sizes", *supports],
        refuses=(RuntimeError, ValueError, IndexError, ZeroDivisionError),
        unavailable=_LIBRARY.unavailable,
        **promises,
    )


_ROTARY = {"rope": _rope, "apply_rotary": _apply}
_WITH_TABLES = _ROTARY | {"rope_tables": _tables}

IMPLEMENTATIONS = [
    *(
        _implementation(
            "build_rope_cache", arithmetic, operations,
            {"head_dim": lambda d: d > 0 and d % 2 == 0, "start_pos": lambda p: p <= 4096},
            conventions=Conventions(rope_pairing="half", odd_lane="reject"),
        )
        for arithmetic, operations in (("float32", _WITH_TABLES), ("bfloat16-elementwise", _ROTARY))
    ),
    *(
        _implementation(
            "CausalSelfAttention", arithmetic, {"scaled_dot_product_attention": _attend, "causal_attention": _causal},
            {"n_k_minus_n_q": [0]}, batch_ranks=(2,),
        )
        for arithmetic in ("float32", "bfloat16")
    ),
    _implementation("KVCache", "float32", {"decode": Decoder(_Cache)}),
]  # fmt: skip
