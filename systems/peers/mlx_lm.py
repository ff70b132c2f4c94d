"""mlx-lm: its caches, `KVCache`, `RotatingKVCache` and `BatchKVCache`, under the masks that they make,
and its `create_causal_mask`.

mlx-lm takes keys in the call of their queries. So this cache keeps the appended pieces, and
`attend` gives them to a new cache of mlx-lm in the same pieces; the positions of the queries come
last, in one piece. The size of a rotating cache is the window.
"""

from typing import Any

import numpy as np

from oracles import Conventions
from properties.contract.caches import BatchedDecoder, Decoder
from properties.contract.implementation import Implementation
from systems.peers.library import Library

__all__ = ["IMPLEMENTATIONS"]

_LIBRARY = Library("mlx-lm", "mlx_lm")


def _mask(n_q: int, n_k: int | None = None) -> Any:
    from mlx_lm.models.base import create_causal_mask

    n_k = n_q if n_k is None else n_k
    if n_k < n_q:
        raise ValueError(f"n_q={n_q}, but should be at most n_k={n_k}.")
    return np.array(create_causal_mask(n_q, offset=n_k - n_q))


class _Cache:
    """A cache of one head; with a window it is a rotating cache."""

    def __init__(self, d: int, d_v: int, window: int | None = None) -> None:
        self.window, self.pieces = window, list[tuple[Any, Any]]()

    def append(self, k: Any, v: Any) -> None:
        """Add positions."""
        self.pieces.append((k, v))

    def attend(self, q: Any) -> Any:
        """The output of the last positions' queries."""
        import mlx.core as mx
        from mlx_lm.models.base import scaled_dot_product_attention
        from mlx_lm.models.cache import KVCache, RotatingKVCache

        first, seen = sum(len(k) for k, _ in self.pieces) - len(q), 0
        if first < 0:
            raise ValueError(f"q has {len(q)} queries, but the cache has {first + len(q)} positions.")
        if 0 in (q.shape[-1], self.pieces[0][1].shape[-1]):
            raise ValueError("A width is 0, but all should be positive.")
        cache = KVCache() if self.window is None else RotatingKVCache(max_size=self.window)
        last: list[tuple[Any, Any]] = []
        for piece in self.pieces:
            before = min(max(first - seen, 0), len(piece[0]))
            if before:
                cache.update_and_fetch(*(mx.array(x[None, None, :before]) for x in piece))
            last.append((piece[0][before:], piece[1][before:]))
            seen += len(piece[0])
        mask = cache.make_mask(len(q), return_array=False, window_size=self.window)
        keys, values = cache.update_and_fetch(
            *(mx.array(np.concatenate(x)[None, None]) for x in zip(*last, strict=True))
        )
        scale = q.shape[-1] ** -0.5
        out = scaled_dot_product_attention(mx.array(q[None, None]), keys, values, cache=cache, scale=scale, mask=mask)
        return np.array(out)[0, 0]


class _BatchedCache:
    """`BatchKVCache`, made by `merge` from one `KVCache` for each row, and cut by `filter` to the rows
    that are asked; it gets the positions of the queries last. The rows keep their keys here.
    """

    def __init__(self, batch: int, kv_heads: int, d: int, d_v: int, num_heads: int) -> None:
        empty = np.zeros((kv_heads, 0, d), np.float32), np.zeros((kv_heads, 0, d_v), np.float32)
        self.rows: list[tuple[Any, ...]] = [empty] * batch

    def append(self, k: Any, v: Any, rows: Any = None) -> None:
        """Add positions to each of the rows."""
        for place, row in enumerate(self._chosen(0, rows)):
            self.rows[row] = tuple(
                np.concatenate([x, y[place]], 1) for x, y in zip(self.rows[row], (k, v), strict=True)
            )

    def attend(self, q: Any, rows: Any = None) -> Any:
        """The outputs of queries at the last positions of each row."""
        import mlx.core as mx
        from mlx_lm.models.base import scaled_dot_product_attention
        from mlx_lm.models.cache import BatchKVCache, KVCache

        n, chosen = q.shape[2], self._chosen(q.shape[2], rows)
        caches = []
        for row, arrays in enumerate(self.rows):
            caches.append(KVCache())
            past = arrays[0].shape[1] - n * (row in chosen)
            if past:
                caches[-1].update_and_fetch(*(mx.array(x[None, :, :past]) for x in arrays))
        cache = BatchKVCache.merge(caches)
        cache.filter(mx.array(chosen))
        mask = cache.make_mask(n, return_array=True)
        newest = (np.stack([self.rows[row][part][:, -n:] for row in chosen]) for part in (0, 1))
        keys, values = cache.update_and_fetch(*map(mx.array, newest))
        scale = q.shape[-1] ** -0.5
        return np.array(scaled_dot_product_attention(mx.array(q), keys, values, cache=cache, scale=scale, mask=mask))

    def rollback(self, n: int, rows: Any = None) -> None:
        """Remove the n newest positions of each row."""
        for row in self._chosen(n, rows):
            self.rows[row] = tuple(x[:, :-n] for x in self.rows[row])

    def reorder(self, index: Any) -> None:
        """Make each row what row index[row] was."""
        for row in index:
            self._chosen(0, [row])
        if len(index) != len(self.rows):
            raise ValueError(f"index has {len(index)} rows, but should have {len(self.rows)}.")
        self.rows = [self.rows[row] for row in index]

    def _chosen(self, n: int, rows: Any) -> list[int]:
        chosen = [*range(len(self.rows))] if rows is None else [*rows]
        if len({*chosen}) < len(chosen) or not {*chosen} <= {*range(len(self.rows))}:
            raise ValueError(f"rows={chosen}, but should be different rows below {len(self.rows)}.")
        if any(self.rows[row][0].shape[1] < n for row in chosen):
            raise ValueError(f"n={n}, but one of the rows has fewer positions.")
        return chosen


IMPLEMENTATIONS = [
    Implementation(
        name=_LIBRARY.called("BatchKVCache float32"),
        operations={"batched_decode": BatchedDecoder(_BatchedCache)},
        arithmetic="float32",
        supports="positive sizes",
        caches=("rollback", "reorder"),
        unavailable=_LIBRARY.unavailable,
    ),
    Implementation(
        name=_LIBRARY.called("caches float32"),
        operations={"decode": Decoder(_Cache)},
        arithmetic="float32",
        conventions=Conventions(window="count"),
        supports="positive sizes",
        unavailable=_LIBRARY.unavailable,
    ),
    Implementation(
        name=_LIBRARY.called("create_causal_mask float32"),
        operations={"causal_mask": _mask},
        arithmetic="float32",
        conventions=Conventions(causal="bottom_right"),
        supports=["positive sizes", {"n_k_minus_n_q": lambda n: n >= 0}],
        unavailable=_LIBRARY.unavailable,
    ),
]
