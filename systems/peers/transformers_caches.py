"""transformers: the layers of `DynamicCache` and `StaticCache`, sliding ones too, under the masks
that are made of `get_mask_sizes`.

A layer tells which keys its next `update` will return, a mask is made for them, and attention is
sdpa's: so keys come in the call of their queries. Here a cache keeps what was appended, and an
attend hands it to a new layer, piece by piece as it came, its queries' own positions last and
together. A window counts keys. One of 1 returns all keys, of which the last are taken here: it is
among the findings.
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
    """One layer of one head; a static one is as long as its capacity."""

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
            raise ValueError(f"{held} positions and {len(k)} more are over {self.capacity}.")
        self.pieces.append((k, v))

    def attend(self, q: Any) -> Any:
        """The output of the last positions' queries."""
        from torch.nn.functional import scaled_dot_product_attention
        from transformers import masking_utils as utils

        first, layer, seen = sum(len(k) for k, _ in self.pieces) - len(q), self.make(), 0
        if first < 0:
            raise ValueError(f"{len(q)} queries are asked, of {first + len(q)} positions.")
        last: list[tuple[Any, Any]] = []
        for k, v in self.pieces:
            before = min(max(first - seen, 0), len(k))
            if before:
                layer.update(k[None, None, :before], v[None, None, :before])
            last.append((k[before:], v[before:]))
            seen += len(k)
        length, offset = layer.get_mask_sizes(len(q))
        keys, values = (
            x[..., -length:, :] for x in layer.update(*(_joined(x)[None, None] for x in zip(*last, strict=True)))
        )
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
