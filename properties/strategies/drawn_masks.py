"""Masks, chosen: live ones, in which every query may attend to a key, and others."""

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
"""A mask of a shape (…, n_q, n_k), chosen."""


def live(choose: Choices, shape: tuple[int, ...]) -> Any:
    """A mask in which every query may attend to a key.

    Bits, causal ones of either alignment, keys from or up to a length, a band, blocks on the
    diagonal, one row for all.
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
    """The mask with a key allowed to each query that may read none, if there are keys: a mask of
    keys has a row without them too.
    """
    if n_k := mask.shape[-1]:
        dead = ~mask.any(-1)
        mask[dead, np.flatnonzero(dead) % n_k] = True
    return mask


def any_or_none(choose: Choices, shape: tuple[int, ...]) -> Any:
    """No mask; or a live one, for all of the leading axes together, or for each."""
    kind = choose.among([None, shape[-2:], shape])
    return kind if kind is None else live(choose, kind)


def none(choose: Choices, shape: tuple[int, ...]) -> None:
    """No mask."""


def padded(choose: Choices, shape: tuple[int, ...]) -> Any:
    """A live mask with some keys that no query may attend to, unless there is one key only."""
    kept = choose.bits(shape[-1]) & (np.arange(shape[-1]) != choose.integer(0, shape[-1] - 1))
    kept[choose.integer(0, shape[-1] - 1)] |= not kept.any()
    mask = live(choose, shape) & kept
    mask[~mask.any(-1)] = kept
    return mask


def row(choose: Choices, shape: tuple[int, ...]) -> Any:
    """A live mask that all queries share: of padding, for each problem or for all."""
    mask = choose.bits(choose.among([shape[-1:], (*shape[:-2], 1, shape[-1])]))
    return _revived(mask if mask.ndim > 1 else mask[None])


def one(choose: Choices, shape: tuple[int, ...]) -> Any:
    """A mask that allows each query one key, the last one every other time."""
    low = choose.among([0, shape[-1] - 1])
    return np.arange(shape[-1]) == choose.integers(low, shape[-1] - 1, shape[:-1])[..., None]


def starting(choose: Choices, shape: tuple[int, ...]) -> Any:
    """No mask; a live one; or one of keys from some on, as padding on the left leaves."""
    return (
        np.arange(shape[-1]) >= choose.integers(0, shape[-1] - 1, (*shape[:-1], 1))
        if choose.happens(0.3)
        else any_or_none(choose, shape)
    )


def sequences(choose: Choices, shape: tuple[int, ...]) -> Any:
    """A live mask for each sequence of a batch, shared by its heads."""
    return _revived(choose.bits((*shape[:-3], 1, *shape[-2:])))


def narrow(choose: Choices, shape: tuple[int, ...]) -> Any:
    """A live mask of which axes have size 1, or are not there; one for each sequence, shared by its
    heads, for instance.
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
    """A mask in which some query may attend to no key: one, all, those of one batch element, some,
    or the first ones; it may be for the whole batch, and queries may share it."""
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
    """Any booleans, of which axes have size 1, or are not there, beside at least two; as masks of
    queries and of padding are, for instance: one for the whole batch, and a row for all queries of
    each."""
    kind = choose.among(["queries", "padding", "any", "any"])
    if kind == "queries":
        return choose.bits(shape[-2:])
    if kind == "padding":
        return choose.bits((*shape[:-2], 1, shape[-1]))
    lengths = tuple(length if choose.happens(0.75) else 1 for length in shape)
    return choose.bits(lengths[choose.integer(0, len(lengths) - 2) :])


OPTIONAL = (any_or_none, none, starting)
"""Those that may be no mask at all."""
