"""Draws arrays of integers: lengths, indices into a table, documents, parents of nodes, and attention masks."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from properties.strategies.choices import Choices

__all__ = ["INTEGERS"]

_FIRST_DOCUMENTS = (0, 0, 1, -2, 126, 254, 2**31 - 1)
"""Numbers of the first document. Kernels store numbers of documents in 8, 16 or 32 bits."""
_BETWEEN_DOCUMENTS = (1, 1, 1, 2**8, 2**16)
"""Differences of the numbers of two documents."""


def _lengths(shape: tuple[int, ...], sizes: Mapping[str, int], choose: Choices) -> Any:
    """Return lengths of sequences. Some are empty, some full, and some one short of full."""
    longest = sizes["max_len"] if "max_len" in sizes else sizes["n"]
    special = (longest, max(longest - 1, 0), 0)
    return np.array([choose.among([choose.integer(0, longest), *special]) for _ in range(shape[0])], np.int64)


def _indices(shape: tuple[int, ...], sizes: Mapping[str, int], choose: Choices) -> Any:
    """Return indices into a table. Some are its last row."""
    last = sizes["rows"] - 1
    chosen = choose.integers(0, last, shape or (choose.integer(1, 8),))
    return np.where(choose.bits(chosen.shape, 0.2), last, chosen).astype(np.int64)


def _documents(shape: tuple[int, ...], sizes: Mapping[str, int], choose: Choices) -> Any:
    """Return the document of each token: mostly runs, whose documents may come back after a gap; or
    any order. The numbers need not begin at 0, and need not be consecutive.
    """
    count = choose.among([2, 3, 1, max(shape[0], 1)])
    starts = choose.bits(shape, 0.3)
    runs = np.cumsum(starts) % (count + 1)
    documents = runs if choose.happens(0.7) else choose.integers(0, count, shape)
    return choose.among(_FIRST_DOCUMENTS) + choose.among(_BETWEEN_DOCUMENTS) * np.asarray(documents, np.int64)


def _parents(shape: tuple[int, ...], sizes: Mapping[str, int], choose: Choices) -> Any:
    """Return the parent of each node, an earlier node, or −1 for a root: one chain, one root with
    children, a tree of pairs, or any trees.
    """
    nodes = np.arange(shape[0])
    trees = (
        nodes - 1,
        np.minimum(nodes - 1, 0),
        (nodes + 1) // 2 - 1,
        np.where(nodes > 0, choose.integers(0, 2**31, shape) % np.maximum(nodes, 1), -1),
    )
    parents = trees[choose.among([3, 2, 3, 1, 0])].astype(np.int64)
    return np.where(choose.bits(shape, 0.1), -1, parents)


def _kept(shape: tuple[int, ...], sizes: Mapping[str, int], choose: Choices) -> Any:
    """Return which weights dropout keeps, as booleans: a share of them, few, or all."""
    return choose.bits(shape)


def _positions(shape: tuple[int, ...], sizes: Mapping[str, int], choose: Choices) -> Any:
    """Return the position of each row: counted from some position, packed, in any order, or far."""
    first = choose.among([0, 1, 7, 2**12, 2**17])
    counted = first + np.arange(shape[0])
    packed = np.arange(shape[0]) % max(shape[0] // 2, 1)
    return (counted, packed, choose.integers(0, 2**17, shape), counted[::-1].copy())[choose.integer(0, 3)]


def _tokens(shape: tuple[int, ...], sizes: Mapping[str, int], choose: Choices) -> Any:
    """Return the attention mask of sequences with padding before, after or between the tokens."""
    *lead, length = shape
    places, longest = np.arange(length), choose.among([length // 4, length, 0])
    before, after = choose.integers(0, longest, (2, *lead, 1))
    return ((places >= before) & (places < length - after) & choose.bits(shape)).astype(np.int64)


INTEGERS: dict[str, Callable[[tuple[int, ...], Mapping[str, int], Choices], Any]] = {
    "lengths": _lengths,
    "indices": _indices,
    "ids_q": _documents,
    "ids_k": _documents,
    "parents": _parents,
    "dropout_mask": _kept,
    "positions": _positions,
    "attention_mask": _tokens,
}
"""The function that draws each parameter of integers."""
