"""Caches: two written out in NumPy, and two with PyTorch's scaled_dot_product_attention.

One of the latter concatenates keys, the other is a ring of slots.
"""

from typing import Any

import numpy as np
import torch
from torch.nn.functional import scaled_dot_product_attention

from properties.contract.concatenating import concatenating
from properties.contract.implementation import Implementation

__all__ = ["IMPLEMENTATIONS"]

Tensor = torch.Tensor


class WrittenOut:
    """A cache that keeps rows by position in a dictionary, and computes one query at a time.

    A query sees the rows up to its own position, and within the window.
    """

    def __init__(self, d: int, d_v: int, window: int | None = None, capacity: int | None = None) -> None:
        self.rows: dict[int, tuple[Any, Any]] = {}
        self.end, self.window, self.capacity = 0, window, capacity

    def append(self, k: Any, v: Any) -> None:
        """Add positions."""
        if self.capacity is not None and len(self.rows) + len(k) > self.capacity:
            raise ValueError(f"{len(self.rows)} positions and {len(k)} more exceed the capacity {self.capacity}.")
        self.rows |= {self.end + i: (key.copy(), v[i].copy()) for i, key in enumerate(k)}
        self.end += len(k)

    def attend(self, q: Any) -> tuple[Any, Any]:
        """The output and the log-sum-exp of the last positions' queries."""
        self._require(len(q))
        results = [self._attended(query, self.end - len(q) + i) for i, query in enumerate(q)]
        return np.stack([out for out, _ in results]), np.array([lse for _, lse in results], q.dtype)

    def _attended(self, query: Any, p: int) -> tuple[Any, Any]:
        seen = [row for j, row in self.rows.items() if j <= p and (self.window is None or p - j <= self.window)]
        scores = np.array([key @ query for key, _ in seen], query.dtype) * query.dtype.type(len(query) ** -0.5)
        shares = np.exp(scores - scores.max())
        out = sum(share * value for share, (_, value) in zip(shares, seen, strict=True)) / shares.sum()
        return out, scores.max() + np.log(shares.sum())

    def rollback(self, n: int) -> None:
        """Remove the n newest positions."""
        self._require(n)
        self.end -= n
        self.rows = {j: row for j, row in self.rows.items() if j < self.end}

    def evict(self, n: int) -> None:
        """Remove the n oldest positions."""
        self._require(n)
        for j in sorted(self.rows)[:n]:
            del self.rows[j]

    def _require(self, n: int) -> None:
        if n > len(self.rows):
            raise ValueError(f"n={n}, but should be at most {len(self.rows)}, the number of positions.")


class Rotating(WrittenOut):
    """A cache that also rotates each key and query by its position, with angles in the type of the
    keys.
    """

    rotates = True

    def append(self, k: Any, v: Any) -> None:
        """Add positions, rotated."""
        super().append(self._rotated(k, self.end), v)

    def attend(self, q: Any) -> tuple[Any, Any]:
        """The output and the log-sum-exp of the last positions' queries, rotated."""
        self._require(len(q))
        return super().attend(self._rotated(q, self.end - len(q)))

    @staticmethod
    def _rotated(x: Any, start: int) -> Any:
        pairs = x.reshape(len(x), -1, 2).astype(x.dtype)
        frequencies = 10000.0 ** -np.linspace(0, 1, pairs.shape[1], endpoint=False)
        angles = np.outer(np.arange(start, start + len(x)), frequencies).astype(x.dtype)
        c, s = np.cos(angles), np.sin(angles)
        left, right = pairs[..., 0], pairs[..., 1]
        return np.stack([c * left - s * right, s * left + c * right], -1).reshape(x.shape)


def _attention(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, offset: int, window: Any = (None, None)) -> Tensor:
    """Attention with past keys, under the causal mask at the offset and a window."""
    behind = torch.arange(offset, offset + q.shape[-2])[:, None] - torch.arange(k.shape[-2])
    visible = behind >= 0 if causal else torch.ones_like(behind, dtype=torch.bool)
    visible = visible if window[0] is None else visible & (behind <= window[0])
    return scaled_dot_product_attention(q, k, v, attn_mask=visible)


class TorchRing:
    """A cache of `capacity` slots; `held` has the position in each slot, or −1 for a free slot."""

    ring = True

    def __init__(
        self, d: int, d_v: int, window: int | None = None, capacity: int | None = None, dtype: Any = torch.float32
    ) -> None:
        self.window, self.gives_way = window, window is not None and capacity is not None
        self.limit = capacity
        self.held = torch.full((capacity or 0,), -1)
        self.k, self.v = torch.zeros(capacity or 0, d, dtype=dtype), torch.zeros(capacity or 0, d_v, dtype=dtype)
        self.first = self.end = 0

    def append(self, k: Tensor, v: Tensor) -> None:
        """Add positions, each to its slot."""
        if self.limit is None:
            self.k, self.v = torch.cat([self.k[: self.end], k]), torch.cat([self.v[: self.end], v])
            self.held = torch.cat([self.held[: self.end], torch.full((len(k),), -1)])
        elif len(k) + (0 if self.gives_way else self.end - self.first) > self.limit:
            raise ValueError(f"{len(k)} more positions do not fit into {self.limit} slots.")
        positions = torch.arange(self.end, self.end + len(k))
        slots = positions % len(self.held)
        self.k[slots], self.v[slots], self.held[slots] = k, v, positions
        self.end += len(k)

    def attend(self, q: Tensor) -> Tensor:
        """The output of the last positions' queries."""
        start = self.end - len(q)
        if start < self.first:
            raise ValueError(f"{len(q)} queries, but {self.end - self.first} positions.")
        needed = max(self.first, start if self.window is None else start - self.window)
        if not torch.isin(torch.arange(needed, self.end), self.held).all():
            raise ValueError("The window needs a position that is no longer in the cache.")
        behind = torch.arange(start, self.end)[:, None] - self.held
        visible = (behind >= 0) & (self.held >= self.first)
        visible = visible if self.window is None else visible & (behind <= self.window)
        return scaled_dot_product_attention(q, self.k, self.v, attn_mask=visible)

    def rollback(self, n: int) -> None:
        """Remove the n newest positions, and free their slots."""
        if n > int((self.held >= self.first).sum()):
            raise ValueError(f"n={n}, but the cache holds fewer positions.")
        self.end -= n
        self.held[self.held >= self.end] = -1

    def evict(self, n: int) -> None:
        """Remove the n oldest positions, and free their slots."""
        if n > int((self.held >= self.first).sum()):
            raise ValueError(f"n={n}, but the cache holds fewer positions.")
        self.first += n
        self.held[self.held < self.first] = -1

    def poison(self, value: float) -> None:
        """Fill the free slots with a value."""
        self.k[self.held < 0], self.v[self.held < 0] = value, value


def _implementation(name: str, arrays: Any, decode: Any) -> Implementation:
    return Implementation(f"{name} float32", {"decode": decode}, "float32", arrays=arrays)


IMPLEMENTATIONS = [
    _implementation("NumPy cache written out", "numpy", WrittenOut),
    _implementation("NumPy cache that rotates", "numpy", Rotating),
    _implementation("torch cache of concatenated keys", "torch", concatenating(_attention, torch.cat)),
    _implementation("torch cache as a ring", "torch", TorchRing),
]
