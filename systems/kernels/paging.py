"""Tables of pages in the forms that kernels take."""

from typing import Any

import torch

__all__ = ["lasts", "slots", "starts"]


def starts(lengths: Any) -> torch.Tensor:
    """Return where each sequence starts in a row of all sequences, and where the last one ends."""
    return torch.cat([lengths.new_zeros(1), lengths.cumsum(0)]).int()


def slots(block_table: Any, lengths: Any, page_size: int) -> list[torch.Tensor]:
    """Return the slots of each sequence's keys, numbered through all pages."""
    inside = torch.arange(page_size)
    pages = [row[: -(-length // page_size)] for row, length in zip(block_table, lengths.tolist(), strict=True)]
    return [
        (row[:, None] * page_size + inside).flatten()[:length].long()
        for row, length in zip(pages, lengths.tolist(), strict=True)
    ]


def lasts(cu_q: Any, keys: list[torch.Tensor]) -> list[torch.Tensor]:
    """Return the slots of the keys that belong to the queries: the last ones of each sequence."""
    return [row[len(row) - count :] for row, count in zip(keys, cu_q.diff().tolist(), strict=True)]
