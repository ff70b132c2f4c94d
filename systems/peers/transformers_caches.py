"""transformers: the layers of `DynamicCache` and `StaticCache`, with and without a sliding window,
under masks made from `get_mask_sizes`; and both layers with several rows.

A layer says which keys its next `update` will return, a mask is made for these keys, and
scaled_dot_product_attention computes attention. So keys come in the call of their queries. The
cache of one head keeps the appended pieces, and `attend` gives them to a new layer in the same
pieces; the positions of the queries come last, in one piece. A window counts keys. With a window of
1 a layer returns all keys, and the adapter takes the last of them: see the findings.
"""

from functools import partial
from typing import Any

from oracles import Conventions
from properties.contract.caches import BatchedDecoder, Decoder
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


class _BatchedCache:
    """One layer for all rows. A row that a step leaves out gets zeros, which its mask hides for ever, as
    a batch with padding does. `held` has the columns of the layer that each row sees.
    """

    def __init__(
        self, batch: int, kv_heads: int, d: int, d_v: int, num_heads: int, *,
        causal: bool = True, static: bool = False,
    ) -> None:  # fmt: skip
        from transformers import cache_utils

        self.layer = cache_utils.StaticLayer(max_cache_len=_LONGEST) if static else cache_utils.DynamicLayer()
        self.held: list[list[int]] = [[] for _ in range(batch)]
        self.columns, self.causal = 0, causal

    def append(self, k: Any, v: Any, rows: Any = None) -> None:
        """Add positions to each of the rows."""
        n, chosen = k.shape[2], self._chosen(0, rows)
        padded = [x.new_zeros(len(self.held), *x.shape[1:]) for x in (k, v)]
        for target, source in zip(padded, (k, v), strict=True):
            target[chosen] = source
        self.layer.update(*padded)
        for row in chosen:
            self.held[row] += range(self.columns, self.columns + n)
        self.columns += n

    def attend(self, q: Any, rows: Any = None) -> Any:
        """The outputs of queries at the last positions of each row."""
        import torch
        from torch.nn.functional import scaled_dot_product_attention

        n, chosen = q.shape[2], self._chosen(q.shape[2], rows)
        mask = torch.zeros(len(chosen), 1, n, self.layer.keys.shape[2], dtype=torch.bool)
        for place, row in enumerate(chosen):
            for query in range(n):
                seen = self.held[row][: len(self.held[row]) - n + query + 1] if self.causal else self.held[row]
                mask[place, 0, query, seen] = True
        keys, values = self.layer.keys[chosen], self.layer.values[chosen]
        return scaled_dot_product_attention(q, keys, values, attn_mask=mask, enable_gqa=True)

    def rollback(self, n: int, rows: Any = None) -> None:
        """Remove the n newest positions of each row; crop the layer by what no row sees any more."""
        for row in self._chosen(n, rows):
            del self.held[row][-n:]
        used = max((columns[-1] + 1 for columns in self.held if columns), default=0)
        if 0 < used < self.columns:
            self.layer.crop(used - self.columns)
            self.columns = used

    def reorder(self, index: Any) -> None:
        """Make each row what row index[row] was."""
        import torch

        for row in index:
            self._chosen(0, [row])
        if len(index) != len(self.held):
            raise ValueError(f"index has {len(index)} rows, but should have {len(self.held)}.")
        self.layer.reorder_cache(torch.tensor(index))
        self.held = [[*self.held[row]] for row in index]

    def free(self, row: int) -> None:
        """Hide the columns of a row."""
        self._chosen(0, [row])
        self.held[row] = []

    def _chosen(self, n: int, rows: Any) -> list[int]:
        chosen = [*range(len(self.held))] if rows is None else [*rows]
        if len({*chosen}) < len(chosen) or not {*chosen} <= {*range(len(self.held))}:
            raise ValueError(f"rows={chosen}, but should be different rows below {len(self.held)}.")
        if any(len(self.held[row]) < n for row in chosen):
            raise ValueError(f"n={n}, but one of the rows has fewer positions.")
        return chosen


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
] + [
    Implementation(
        name=_LIBRARY.called(f"{name}, batched float32"),
        operations={"batched_decode": BatchedDecoder(partial(_BatchedCache, static=static))},
        arithmetic="float32",
        arrays="torch",
        supports="positive sizes",
        caches=("causal", "rollback", "reorder", "free"),
        unavailable=_LIBRARY.unavailable,
    )
    for name, static in (("DynamicCache's layers", False), ("StaticCache's layers", True))
]
