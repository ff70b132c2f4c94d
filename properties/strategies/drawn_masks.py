"""Draws masks: live masks, in which every query has a visible key, and other masks."""

from collections.abc import Callable
from typing import Any

import numpy as np

from properties.strategies.choices import Choices

__all__ = [
    "OPTIONAL",
    "Masks",
    "any_or_none",
    "dead",
    "live",
    "loose",
    "narrow",
    "none",
    "one",
    "padded",
    "row",
    "sequences",
    "starting",
]

Masks = Callable[[Choices, tuple[int, ...]], Any]
"""A function that draws a mask of a shape (…, n_q, n_k)."""


def live(choose: Choices, shape: tuple[int, ...]) -> Any:
    """Return a mask in which every query has a visible key.

    It is random, causal in either alignment, a prefix or a suffix of the keys, a band, blocks on
    the diagonal, or one row for all queries.
    """
    *lead, n_q, n_k = shape
    query, key = np.arange(n_q)[:, None], np.arange(n_k)
    boundaries = choose.integers(1, max(n_k, 1), (*lead, 1, 1))
    builders: dict[str, Callable[[], Any]] = {
        "bits": lambda: choose.bits(shape),
        "causal": lambda: key <= query,
        "aligned": lambda: key <= query + n_k - n_q,
        "lengths": lambda: key < boundaries,
        "starts": lambda: key >= boundaries - 1,
        "band": lambda: np.abs(query * n_k // max(n_q, 1) - key) <= choose.integer(0, n_k),
        "row": lambda: choose.bits(n_k),
        "blocks": lambda: query * 3 // max(n_q, 1) == key * 3 // max(n_k, 1),
    }
    return _revived(np.broadcast_to(builders[choose.among(list(builders))](), shape).copy())


def _revived(mask: Any) -> Any:
    """Return the mask with one visible key added to each fully masked row, if there are keys. A
    mask of keys has one row, which counts too.
    """
    if n_k := mask.shape[-1]:
        dead = ~mask.any(-1)
        mask[dead, np.flatnonzero(dead) % n_k] = True
    return mask


def any_or_none(choose: Choices, shape: tuple[int, ...]) -> Any:
    """Return no mask, or a live mask, in which every query has a visible key. All leading axes
    share the mask, or each problem has its own.
    """
    kind = choose.among([None, shape[-2:], shape])
    return kind if kind is None else live(choose, kind)


def none(choose: Choices, shape: tuple[int, ...]) -> None:
    """Return None: no mask."""


def padded(choose: Choices, shape: tuple[int, ...]) -> Any:
    """Return a live mask, in which every query has a visible key. Some keys are masked for all
    queries, unless there is only one key.
    """
    kept_keys = choose.bits(shape[-1]) & (np.arange(shape[-1]) != choose.integer(0, shape[-1] - 1))
    kept_keys[choose.integer(0, shape[-1] - 1)] |= not kept_keys.any()
    mask = live(choose, shape) & kept_keys
    mask[~mask.any(-1)] = kept_keys
    return mask


def row(choose: Choices, shape: tuple[int, ...]) -> Any:
    """Return a padding mask that all queries share, with a visible key in it. Each problem of the
    batch has its own, or all share it.
    """
    mask = choose.bits(choose.among([shape[-1:], (*shape[:-2], 1, shape[-1])]))
    return _revived(mask if mask.ndim > 1 else mask[None])


def one(choose: Choices, shape: tuple[int, ...]) -> Any:
    """Return a mask with one visible key for each query. Half of the time, this is the last key."""
    low = choose.among([0, shape[-1] - 1])
    return np.arange(shape[-1]) == choose.integers(low, shape[-1] - 1, shape[:-1])[..., None]


def starting(choose: Choices, shape: tuple[int, ...]) -> Any:
    """Return no mask; a live mask, in which every query has a visible key; or a mask of the keys
    from some position on, as left padding has.
    """
    return (
        np.arange(shape[-1]) >= choose.integers(0, shape[-1] - 1, (*shape[:-1], 1))
        if choose.happens(0.3)
        else any_or_none(choose, shape)
    )


def sequences(choose: Choices, shape: tuple[int, ...]) -> Any:
    """Return one mask for each sequence of a batch. All heads of the sequence use it. Every query
    has a visible key.
    """
    return _revived(choose.bits((*shape[:-3], 1, *shape[-2:])))


def narrow(choose: Choices, shape: tuple[int, ...]) -> Any:
    """Return a mask with axes of size 1, or with fewer axes, such as one mask for all heads of a
    sequence. Every query has a visible key.
    """
    lengths = [length if choose.happens() else 1 for length in shape[:-1]] + [choose.among([shape[-1], shape[-1], 1])]
    lengths = lengths[choose.integer(0, len(lengths) - 1) :]
    if len(shape) > 3 and choose.happens():
        lengths = [*shape[:-3], 1, *shape[-2:]]
    mask = choose.bits(tuple(lengths))
    blocked = choose.integer(0, lengths[-1] - 1)
    mask[..., blocked] = lengths[-1] == 1
    mask[~mask.any(-1), blocked - 1] = True
    return mask


def dead(choose: Choices, shape: tuple[int, ...]) -> Any:
    """Return a mask with fully masked rows: one row, all rows, the rows of one batch element, some,
    or the first ones. The whole batch may share the mask, and all queries may share it.
    """
    mask = live(choose, choose.among([shape, shape[-2:]]))
    query, which = (
        choose.integer(0, shape[-2] - 1),
        choose.among(["one", "all", "element", "some", "first", "for all queries"]),
    )
    if which == "for all queries":
        shared = mask[..., :1, :].copy()
        shared[(0,) * (shared.ndim - 1)] = False
        return shared
    if which == "element":
        mask[(0,) * (mask.ndim - 2)] = False
    elif which == "some":
        mask[choose.bits(mask.shape[:-1], 0.5)] = False
        mask[..., query, :] = False
    else:
        mask[..., {"one": slice(query, query + 1), "all": slice(None), "first": slice(query + 1)}[which], :] = False
    return mask


def loose(choose: Choices, shape: tuple[int, ...]) -> Any:
    """Return any booleans, with axes of size 1 or fewer axes, but at least two axes. Examples are a
    mask of queries for the whole batch, and a padding row for all queries of each element.
    """
    kind = choose.among(["queries", "padding", "any", "any"])
    if kind == "queries":
        return choose.bits(shape[-2:])
    if kind == "padding":
        return choose.bits((*shape[:-2], 1, shape[-1]))
    lengths = tuple(length if choose.happens(0.75) else 1 for length in shape)
    return choose.bits(lengths[choose.integer(0, len(lengths) - 2) :])


OPTIONAL = (any_or_none, none, starting)
"""The functions that may return no mask."""
