"""Implementations that follow any conventions: the oracle's values, and caches as one writes them."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

import oracles
from oracles import Conventions
from oracles.ball import Array
from oracles.conventions import DEFAULT
from properties.bugs.reference_batched_caches import Slotted
from properties.bugs.reference_caches import Buffered
from properties.contract.caches import left_bound
from properties.contract.operations import OPERATIONS, Operation

__all__ = ["meaning"]


def meaning(operation: Operation, conventions: Conventions) -> Callable[..., Any]:
    """A function that follows the conventions: it returns the oracle's values. Of caches, a class."""
    if operation.is_played:
        return _cache_of(conventions) if operation.name == "decode" else _batched_cache_of(conventions)

    def answer(*arguments: Any, **options: Any) -> Any:
        found = operation.oracle(*arguments, arithmetic="float64", conventions=conventions, **options)
        values = tuple(getattr(x, "mid", x) for x in (found if isinstance(found, tuple) else (found,)))
        return values if isinstance(found, tuple) else values[0]

    return answer


def _batched_cache_of(conventions: Conventions) -> type[Slotted]:
    """A class of batched caches that follow the conventions."""

    class Cache(Slotted):
        def __post_init__(self) -> None:
            super().__post_init__()
            self.left = left_bound(self.window, conventions)

        def attention(self, q: Array, k: Array, v: Array, **features: Any) -> tuple[Array, Array]:
            allowing = replace(conventions, mask_polarity="true_allows")
            out, lse = oracles.attention(q, k, v, conventions=allowing, **features, **self.options)
            return out.mid, lse.mid

    return Cache


def _cache_of(conventions: Conventions) -> type[Buffered]:
    """A class of caches that follow the conventions: their own window decides what they refuse."""
    rotating = any(getattr(conventions, name) != getattr(DEFAULT, name) for name in OPERATIONS["rope"].conventions)

    class Cache(Buffered):
        rotates = rotating

        def __init__(self, d: int, d_v: int, window: int | None = None, capacity: int | None = None) -> None:
            super().__init__(d, d_v, left_bound(window, conventions), capacity)

        def rotated(self, x: Array, start: int) -> Array:
            return np.asarray(oracles.rope(x, start, conventions=conventions).mid) if rotating else x

        def attend(self, q: Array) -> tuple[Array, Array]:
            out, lse = super().attend(q * (math.sqrt(q.shape[1]) if conventions.scale_default == "one" else 1.0))
            return out, lse / (math.log(2.0) if conventions.lse_base == "2" else 1.0)

    return Cache
