"""Computes the certified values of the outputs of programs of cache steps."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypedDict, Unpack

import numpy as np

import oracles
from oracles import Arithmetic, Conventions, Enclosure
from oracles.ball import Array
from oracles.rotated_attention import rotated_attention
from properties.contract.cache_programs import parse
from properties.contract.cache_states import Attend, attends
from properties.contract.caches import left_bound
from properties.contract.wording import shown

__all__ = ["batched_decode", "decode"]


class CacheOptions(TypedDict, total=False):
    """The options of the caches, and two options that every oracle has. A capacity changes no value."""

    window: int | None
    capacity: int | None
    prefix: int | None
    causal: bool | None
    scale: float | None
    softcap: float | None
    sink: Any
    alibi: Any
    rotates: bool | None
    arithmetic: Arithmetic | str | None
    conventions: Conventions | None


_OF_ATTENTION = ("scale", "softcap", "sink", "arithmetic")
"""The options that `oracles.attention` has too."""


def decode(q: Any, k: Any, v: Any, steps: str, **options: Unpack[CacheOptions]) -> tuple[Enclosure, Enclosure]:
    """The certified values of attention through caches of one head: each query sees the keys and
    values that earlier steps left in its cache.

    This is `batched_decode` with one row and one head. If the cache `rotates`, queries and keys are
    rotated by their positions. Raises ValueError for text that is not a program.
    """
    out, lse = batched_decode(q[None], k[None], v[None], 1, steps, **options)
    return _of_one_head(out), _of_one_head(lse)


def batched_decode(
    q: Any, k: Any, v: Any, batch: int, steps: str, **options: Unpack[CacheOptions]
) -> tuple[Enclosure, Enclosure]:
    """The certified values of attention through caches with `batch` rows: each query sees the keys
    and values that earlier steps left in its row.

    Each row of each "attend" step is `oracles.attention` on everything that was appended to the row
    and not rolled back, under the mask of the visible positions. The mask applies under all
    conventions. ALiBi is the bias −alibi[h]·|p − j|.

    Raises ValueError for text that is not a program, for a window with causal=False, and for slopes
    that are not powers of two: the products of all others are rounded, which no error limit covers.
    """
    window, slopes = options.get("window"), options.get("alibi")
    if options.get("causal") is False and window is not None:
        raise ValueError(f"causal=False with window={window}, but causal=False has no window.")
    if slopes is not None and not np.isin(np.frexp(slopes)[0], (0.0, 0.5)).all():
        raise ValueError(f"alibi={slopes}, but slopes should be 0 or powers of two.")
    enclosures = [
        _attended((q, k, v), attend, options) for attend in attends(parse(steps), batch, options.get("prefix") or 0)
    ]
    if not enclosures:
        raise ValueError(f"The program {shown(steps)} asks nothing: add a step such as 'attend 1'.")
    outputs, log_sum_exps = zip(*enclosures, strict=True)
    return _whole(outputs, -2), _whole(log_sum_exps, -1)


def _attended(arrays: tuple[Any, Any, Any], attend: Attend, options: CacheOptions) -> tuple[Enclosure, Enclosure]:
    """The certified values of the queries of one row in one "attend" step."""
    conventions = options.get("conventions") or Conventions()
    conventions = replace(conventions, causal_with_mask="compose", mask_polarity="true_allows")
    keys, queries = [*attend.held.keys], slice(attend.queries.start, attend.queries.stop)
    slopes, left = options.get("alibi"), left_bound(options.get("window"), conventions)
    features: dict[str, Any] = {name: options.get(name) for name in _OF_ATTENTION}
    features |= {
        "mask": _visible(attend, left, options.get("causal") is not False),
        "bias": None if slopes is None else _biases(attend, slopes),
        "conventions": conventions,
    }
    rows = [array[..., part, :] for array, part in zip(arrays, (queries, keys, keys), strict=True)]
    if options.get("rotates"):
        return rotated_attention(*rows, offset=len(keys) - len(attend.queries), **features)
    return oracles.attention(*rows, **features)


def _positions(attend: Attend) -> tuple[Any, Any]:
    """Return the positions of the queries, as a column, and of the keys of one row."""
    end = attend.held.end
    return np.arange(end - len(attend.queries), end)[:, None], np.arange(end)


def _visible(attend: Attend, left: int | None, causal: bool) -> Any:
    """Return True where a query of one row sees a position of the row."""
    p, j = _positions(attend)
    near = (not causal) | ((j <= p) & (j >= p - (attend.held.end if left is None else left)))
    return (j < attend.held.prefix) | ((j >= attend.held.first) & near)


def _biases(attend: Attend, slopes: Array) -> Array:
    """Return the bias of ALiBi for each head, query and position of one row."""
    p, j = _positions(attend)
    return np.asarray(-slopes[:, None, None] * np.abs(p - j))


def _whole(parts: Sequence[Enclosure], axis: int) -> Enclosure:
    """Return the enclosures of several problems, concatenated along an axis. The result is vacuous
    (it accepts any value) if all of them are.
    """
    return Enclosure(
        *(np.concatenate([getattr(part, name) for part in parts], axis) for name in ("mid", "rad")),
        format=parts[0].format,
        vacuous=all(enclosure.vacuous for enclosure in parts),
        judged=all(enclosure.judged for enclosure in parts),
    )


def _of_one_head(enclosure: Enclosure) -> Enclosure:
    return replace(enclosure, mid=enclosure.mid[0], rad=enclosure.rad[0])
