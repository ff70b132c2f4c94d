"""torchtune: its `MultiHeadAttention` with masks, its `RotaryPositionalEmbeddings`, and its
`KVCache` under the masks of its generation.

A mask is True at visible keys, (batch, queries, keys), and goes to PyTorch's
scaled_dot_product_attention. A cache has a fixed length; the mask masks its positions that are not
filled, which are zeros.
"""

from functools import partial
from typing import Any

from oracles import Conventions
from properties.contract.caches import Decoder
from properties.contract.implementation import Implementation
from properties.contract.twins import Twin
from systems.attention_arguments import Projections, with_projections
from systems.peers.library import Library
from systems.peers.narrow import KERNEL, ROTATION

__all__ = ["IMPLEMENTATIONS"]

_LIBRARY = Library("torchtune")
_LONGEST = 4096


def _heads(x: Any, weights: Projections, num_heads: int, mask: Any = None, **options: Any) -> Any:
    """The output of a module with these weights, without biases, and not causal.

    All axes before (sequence, width) become one batch axis.
    """
    import torch
    from torchtune.modules import MultiHeadAttention

    def linear(weight: Any) -> Any:
        layer = torch.nn.utils.skip_init(torch.nn.Linear, *weight.shape, bias=False)  # type: ignore[no-untyped-call]
        layer.weight = torch.nn.Parameter(weight.T)
        return layer

    width = weights.wq.shape[1]
    names = ("q_proj", "k_proj", "v_proj", "output_proj")
    module = MultiHeadAttention(
        embed_dim=width,
        num_heads=num_heads,
        num_kv_heads=num_heads,
        head_dim=width // num_heads,
        is_causal=False,
        **{name: linear(weight) for name, weight in zip(names, weights, strict=True)},
        **options,
    ).eval()
    rows = x.reshape(-1, *x.shape[-2:])
    if mask is not None:
        mask = mask.expand(*x.shape[:-1], x.shape[-2]).reshape(len(rows), *2 * x.shape[-2:-1])
    with torch.no_grad():
        return module(rows, rows, mask=mask).reshape(*x.shape[:-1], weights.wo.shape[1])


def _rope(x: Any, start_pos: int = 0, *, counted: bool = False) -> Any:
    """x rotated at given positions, or at the positions that the module counts from 0."""
    import torch
    from torchtune.modules import RotaryPositionalEmbeddings

    rows = x.reshape(-1, *x.shape[-2:])[:, :, None]
    positions = torch.arange(start_pos, start_pos + x.shape[-2]).expand(rows.shape[:2])
    module = RotaryPositionalEmbeddings(x.shape[-1], max_seq_len=2 * _LONGEST)
    return module(rows, input_pos=None if counted else positions).reshape(x.shape)


class _Cache:
    """`KVCache` of one head, with the rows of the causal mask that generation selects by position."""

    def __init__(self, d: int, d_v: int, capacity: int | None = None) -> None:
        import torch
        from torchtune.modules import KVCache

        self.size = capacity or _LONGEST
        self.keys, self.values = (KVCache(1, self.size, 1, width, torch.float32) for width in (d, d_v))
        self.mask = torch.ones(self.size, self.size, dtype=torch.bool).tril()

    def append(self, k: Any, v: Any) -> None:
        """Add positions to two caches: one for keys and one for values, because a cache has one
        width.
        """
        if self.keys.size + len(k) > self.size:
            raise ValueError(f"{self.keys.size} positions and {len(k)} more exceed the capacity {self.size}.")
        for cache, x in ((self.keys, k), (self.values, v)):
            cache.update(x[None, None], x[None, None])

    def attend(self, q: Any) -> Any:
        """The output of the last positions' queries."""
        from torchtune.modules.attention_utils import _sdpa_or_flex_attention

        end = self.keys.size if self.keys.cache_pos.numel() else 0
        if len(q) > end:
            raise ValueError(f"q has {len(q)} queries, but the cache has {end} positions.")
        attention, mask = _sdpa_or_flex_attention(), self.mask[None, end - len(q) : end]
        return attention(
            q[None, None], self.keys.k_cache, self.values.v_cache, mask=mask, dropout_p=0.0, is_causal=False
        )[0, 0]


def _implementation(name: str, arithmetic: str, narrow: Any = KERNEL, **promises: Any) -> Implementation:
    return Implementation(
        name=_LIBRARY.called(f"{name} {arithmetic}"),
        arithmetic=narrow.get(arithmetic, arithmetic),
        arrays="torch",
        unavailable=_LIBRARY.unavailable,
        **{"refuses": (RuntimeError, ValueError, IndexError, ZeroDivisionError), **promises},
    )


_SQUARE = {"model_dim_minus_heads_width": [0]}
_ROTATED = {"head_dim": lambda d: d > 0 and d % 2 == 0, "start_pos": lambda p: 0 <= p <= _LONGEST}
_EVALUATED = {
    "attn_dropout, in evaluation": Twin(
        {"multi_head_attention": with_projections(partial(_heads, attn_dropout=0.5))}, exactly=True
    )
}
_COUNTED = Twin(
    {"rope": partial(_rope, counted=True)}, exactly=True,
    promises={"supports": ["positive sizes", _ROTATED | {"start_pos": [0]}]},
)  # fmt: skip

IMPLEMENTATIONS = [
    *(
        _implementation(
            "MultiHeadAttention", arithmetic, operations={"multi_head_attention": with_projections(_heads)},
            supports=["positive sizes", _SQUARE], twins=_EVALUATED,
        )
        for arithmetic in ("float32", "float64", "bfloat16")
    ),
    *(
        _implementation(
            "RotaryPositionalEmbeddings", arithmetic, ROTATION, operations={"rope": _rope},
            conventions=Conventions(odd_lane="reject"),
            supports=["positive sizes", _ROTATED], twins={"counted from 0": _COUNTED},
        )
        for arithmetic in ("float32", "bfloat16")
    ),
    _implementation("KVCache", "float32", operations={"decode": Decoder(_Cache)}, supports="positive sizes"),
]  # fmt: skip
