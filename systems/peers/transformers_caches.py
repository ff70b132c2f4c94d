"""transformers: the layers of `DynamicCache` and `StaticCache`, with and without a sliding window,
under masks made from `get_mask_sizes`.

A layer says which keys its next `update` will return, a mask is made for these keys, and
scaled_dot_product_attention computes attention. So keys come in the call of their queries. This
cache keeps the appended pieces, and `attend` gives them to a new layer in the same pieces; the
positions of the queries come last, in one piece. A window counts keys. With a window of 1 a layer
returns all keys, and the adapter takes the last of them: see the findings.
"""

from functools import partial
from typing import Any

from oracles import Conventions
from properties.contract.caches import Decoder
from properties.contract.implementation import Implementation
from systems.peers.library import Library

__all__ = ["IMPLEMENTATIONS"]

_LIBRARY = Library("transformers")
_LONGEST = 1024


class _Cache:
    """One layer of one head; the length of a static layer is its capacity."""

    def __init__(
        self, d: int, d_v: int, window: int | None = None, capacity: int | None = None, *, static: bool = False
    ) -> None:
        from transformers import cache_utils

        kind = f"{'Static' if static else 'Dynamic'}{'' if window is None else 'SlidingWindow'}Layer"
        longest = {"max_cache_len": capacity or _LONGEST} if static else {}
        self.make = partial(
            getattr(cache_utils, kind), **longest, **({} if window is None else {"sliding_window": window})
        )
        self.window, self.capacity = window, capacity or _LONGEST
        self.pieces: list[tuple[Any, Any]] = []

    def append(self, k: Any, v: Any) -> None:
        """Add positions."""
        held = sum(len(piece) for piece, _ in self.pieces)
        if held + len(k) > self.capacity:
            raise ValueError(f"{held} positions and {len(k)} more exceed the capacity {self.capacity}.")
        self.pieces.append((k, v))

    def attend(self, q: Any) -> Any:
        """The output of the last positions' queries."""
        from torch.nn.functional import scaled_dot_product_attention
        from transformers import masking_utils as utils

        first, layer, seen = sum(len(k) for k, _ in self.pieces) - len(q), self.make(), 0
        if first < 0:
            raise ValueError(f"q has {len(q)} queries, but the cache has {first + len(q)} positions.")
        last: list[tuple[Any, Any]] = []
        for k, v in self.pieces:
            before = min(max(first - seen, 0), len(k))
            if before:
                layer.update(k[None, None, :before], v[None, None, :before])
            last.append((k[before:], v[before:]))
            seen += len(k)
        length, offset = layer.get_mask_sizes(len(q))
        returned = layer.update(*(_joined(pieces)[None, None] for pieces in zip(*last, strict=True)))
        keys, values = (x[..., -length:, :] for x in returned)
        pattern = (
            utils.causal_mask_function
            if self.window is None
            else utils.sliding_window_causal_mask_function(self.window)
        )
        mask = utils.sdpa_mask(
            1, len(q), length, q_offset=first, kv_offset=offset, mask_function=pattern, allow_is_causal_skip=False
        )
        return scaled_dot_product_attention(q[None, None], keys, values, attn_mask=mask)[0, 0]


def _joined(pieces: Any) -> Any:
    import torch

    return torch.cat(list(pieces))


IMPLEMENTATIONS = [
    Implementation(
        name=_LIBRARY.called(f"{name} float32"),
        operations={"decode": Decoder(partial(_Cache, static=static))},
        arithmetic="float32",
        conventions=Conventions(window="count"),
        arrays="torch",
        supports="positive sizes",
        caches=("window", "capacity"),
        unavailable=_LIBRARY.unavailable,
        known_deviations={}
        if static
        else {"unsupported sizes are refused": "A cache of keys without channels has no positions"},
    )
    for name, static in (("DynamicCache's layers", False), ("StaticCache's layers", True))
]
