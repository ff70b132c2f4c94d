"""Batched caches with PyTorch's scaled_dot_product_attention: one with a fixed buffer for each row,
one with pages that rows share until one of them writes.
"""

import torch
from torch.nn.functional import scaled_dot_product_attention

from properties.contract.implementation import Implementation

__all__ = ["IMPLEMENTATIONS"]

Tensor = torch.Tensor
_LONGEST = 128
_PAGE = 4


class _Rows:
    """The lengths of the rows, and what the steps of both caches have in common."""

    def __init__(self, batch: int, window: int | None, capacity: int | None, causal: bool) -> None:
        self.lengths, self.window, self.causal = [0] * batch, window, causal
        self.capacity = _LONGEST if capacity is None else capacity

    def chosen(self, rows: list[int] | None) -> list[int]:
        """The rows that take a step."""
        found = [*range(len(self.lengths))] if rows is None else rows
        if len({*found}) < len(found) or not {*found} <= {*range(len(self.lengths))}:
            raise ValueError(f"rows={found}, but should be different rows below {len(self.lengths)}.")
        return found

    def admitted(self, n: int, rows: list[int] | None) -> list[int]:
        """The rows that get n more positions."""
        found = self.chosen(rows)
        if any(self.lengths[row] + n > self.capacity for row in found):
            raise ValueError(f"{n} more positions exceed the capacity {self.capacity}.")
        return found

    def held(self, n: int, rows: list[int] | None) -> list[int]:
        """The rows, each of which has at least n positions."""
        found = self.chosen(rows)
        if any(self.lengths[row] < n for row in found):
            raise ValueError(f"n={n}, but one of the rows has fewer positions.")
        return found

    def indexed(self, index: list[int]) -> list[int]:
        """The rows that a reorder reads."""
        for row in index:
            self.chosen([row])
        if len(index) != len(self.lengths):
            raise ValueError(f"index has {len(index)} rows, but should have {len(self.lengths)}.")
        return index

    def visible(self, row: int, n: int, keys: int) -> Tensor:
        """The mask of the last n queries of a row over its first `keys` slots."""
        end, j = self.lengths[row], torch.arange(keys)
        if not self.causal:
            return (j < end).expand(n, keys)
        behind = torch.arange(end - n, end)[:, None] - j
        return (behind >= 0) if self.window is None else (behind >= 0) & (behind <= self.window)


class StaticRows(_Rows):
    """A buffer of fixed length for each row; one call computes all rows of a step."""

    def __init__(
        self, batch: int, kv_heads: int, d: int, d_v: int, num_heads: int, *,
        window: int | None = None, capacity: int | None = None, scale: float | None = None, causal: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(batch, window, capacity, causal)
        self.scale = scale
        self.k = torch.zeros(batch, kv_heads, self.capacity, d)
        self.v = torch.zeros(batch, kv_heads, self.capacity, d_v)

    def append(self, k: Tensor, v: Tensor, rows: list[int] | None = None) -> None:
        """Add positions to each of the rows."""
        n = k.shape[2]
        for place, row in enumerate(self.admitted(n, rows)):
            slots = slice(self.lengths[row], self.lengths[row] + n)
            self.k[row, :, slots], self.v[row, :, slots] = k[place], v[place]
            self.lengths[row] += n

    def attend(self, q: Tensor, rows: list[int] | None = None) -> Tensor:
        """The outputs of queries at the last positions of each row."""
        chosen = self.held(q.shape[2], rows)
        mask = torch.stack([self.visible(row, q.shape[2], self.capacity) for row in chosen])[:, None]
        return scaled_dot_product_attention(
            q, self.k[chosen], self.v[chosen], attn_mask=mask, scale=self.scale, enable_gqa=True
        )

    def rollback(self, n: int, rows: list[int] | None = None) -> None:
        """Remove the n newest positions of each row."""
        for row in self.held(n, rows):
            self.lengths[row] -= n

    def fork(self, source: int, target: int) -> None:
        """Copy a row to another one."""
        self.chosen([source])
        self.chosen([target])
        self.k[target], self.v[target] = self.k[source].clone(), self.v[source].clone()
        self.lengths[target] = self.lengths[source]

    def reorder(self, index: list[int]) -> None:
        """Make each row what row index[row] was."""
        self.k, self.v = (x.index_select(0, torch.tensor(self.indexed(index))) for x in (self.k, self.v))
        self.lengths = [self.lengths[row] for row in index]

    def free(self, row: int) -> None:
        """Empty a row."""
        self.chosen([row])
        self.lengths[row] = 0


class PagedRows(_Rows):
    """Pages of a pool with a table for each row. Rows share pages after a fork and a reorder; a row
    copies a shared page before it writes there.
    """

    def __init__(
        self, batch: int, kv_heads: int, d: int, d_v: int, num_heads: int, *,
        window: int | None = None, capacity: int | None = None, causal: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(batch, window, capacity, causal)
        self.pages: list[tuple[Tensor, Tensor]] = []
        self.shapes = (kv_heads, _PAGE, d), (kv_heads, _PAGE, d_v)
        self.tables: list[list[int]] = [[] for _ in range(batch)]

    def append(self, k: Tensor, v: Tensor, rows: list[int] | None = None) -> None:
        """Add positions to each of the rows."""
        for place, row in enumerate(self.admitted(k.shape[2], rows)):
            for i in range(k.shape[2]):
                slot = self.lengths[row] % _PAGE
                page_k, page_v = self._writable(row, fresh=slot == 0)
                page_k[:, slot], page_v[:, slot] = k[place, :, i], v[place, :, i]
                self.lengths[row] += 1

    def _writable(self, row: int, fresh: bool) -> tuple[Tensor, Tensor]:
        """The last page of a row: a free one, or its own one, which is a copy if it was shared."""
        table = self.tables[row]
        if fresh or sum(table[-1] in other for other in self.tables) > 1:
            new = self._taken()
            if fresh:
                table.append(new)
            else:
                for page, old in zip(self.pages[new], self.pages[table[-1]], strict=True):
                    page[:] = old
                table[-1] = new
        return self.pages[table[-1]]

    def _taken(self) -> int:
        """The number of a page that no row has."""
        used = {page for table in self.tables for page in table}
        free = [page for page in range(len(self.pages)) if page not in used]
        if not free:
            self.pages.append((torch.zeros(self.shapes[0]), torch.zeros(self.shapes[1])))
        return free[-1] if free else len(self.pages) - 1

    def attend(self, q: Tensor, rows: list[int] | None = None) -> Tensor:
        """The outputs of queries at the last positions of each row."""
        return torch.stack([self._attended(row, q[place]) for place, row in enumerate(self.held(q.shape[2], rows))])

    def _attended(self, row: int, q: Tensor) -> Tensor:
        k, v = (torch.cat([self.pages[page][part] for page in self.tables[row]], 1) for part in (0, 1))
        mask = self.visible(row, q.shape[1], k.shape[1])
        return scaled_dot_product_attention(q[None], k[None], v[None], attn_mask=mask, enable_gqa=True)[0]

    def rollback(self, n: int, rows: list[int] | None = None) -> None:
        """Remove the n newest positions of each row, and give back the pages that become empty."""
        for row in self.held(n, rows):
            self.lengths[row] -= n
            del self.tables[row][-(-self.lengths[row] // _PAGE) :]

    def fork(self, source: int, target: int) -> None:
        """Share the pages of a row with another one."""
        self.chosen([source])
        self.chosen([target])
        self.tables[target], self.lengths[target] = [*self.tables[source]], self.lengths[source]

    def reorder(self, index: list[int]) -> None:
        """Make each row what row index[row] was."""
        self.tables = [[*self.tables[row]] for row in self.indexed(index)]
        self.lengths = [self.lengths[row] for row in index]

    def free(self, row: int) -> None:
        """Give back the pages of a row."""
        self.chosen([row])
        self.tables[row], self.lengths[row] = [], 0


IMPLEMENTATIONS = [
    Implementation(f"torch {name} float32", {"batched_decode": make}, "float32", arrays="torch")
    for name, make in (("batched cache of fixed buffers", StaticRows), ("batched cache of shared pages", PagedRows))
]
