"""Caches of keys and values: what they offer, how a program of steps is run on two of them, and
what each of its attends should give.

    Cache(d, d_v, window=None, capacity=None)   window by `Conventions.window`; keys and queries come rotated
    append(k, v)                                n more positions: k (n, d), v (n, d_v)
    attend(q)                                   out (n, d_v), or (out, lse), of q (n, d) at the last n positions
    rollback(n), evict(n), poison(value)        where it offers them: see `properties.contract.cache_programs`
    ring = True                                 says that with a window and a capacity the newest positions take the places of the oldest,
                                                which are gone; without it more positions than the
                                                capacity are refused
    rotates = True                              says that it rotates keys and queries itself, by their positions, as `oracles.rope` does

A query sees the positions up to its own, within the window, that are not evicted. Positions are
absolute: neither evict nor rollback numbers others anew. ValueError, and nothing changed, for more
queries than positions, more than the capacity, and positions that are gone.
"""

import inspect
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

import oracles
from oracles import Arithmetic, Conventions, Enclosure
from oracles.rotated_attention import rotated_attention
from properties.contract.cache_programs import Held, Step, attends, parse, played
from properties.contract.results import BrokenError, RaisedError
from properties.contract.wording import raised, shown

__all__ = ["CACHES", "Decoder", "admitted", "decode", "held_of", "left_bound", "offered", "require_refused"]

_PARAMETERS = ("window", "capacity")
CACHES = (*_PARAMETERS, "ring", "rotates", "rollback", "evict", "poison")
"""What a cache may offer besides `append` and `attend`: parameters of what makes it, attributes, and methods."""


def offered(make: Any) -> frozenset[str]:
    """What the caches offer that something makes: a window and a capacity are parameters, all else
    is an attribute of a class.
    """
    inner = make.func if isinstance(make, partial) else make
    try:
        named: Collection[str] = inspect.signature(make).parameters
    except (TypeError, ValueError):
        named = ()
    return frozenset(
        x for x in CACHES if (x in named if x in _PARAMETERS else isinstance(inner, type) and getattr(inner, x, None))
    )


def admitted(given: Any) -> tuple[Callable[..., Any], frozenset[str]]:
    """The operation `decode` of a class of caches, of a `Decoder`, or of what runs programs, and
    what the caches offer by themselves. Raises TypeError for what else makes caches: it does not
    say what they are."""
    if isinstance(given.func if isinstance(given, partial) else given, type):
        given = Decoder(given)
    elif not isinstance(given, Decoder) and not _runs_programs(given):
        raise TypeError(
            f"operations['decode']={shown(given)}, but should be a class of caches, or properties.Decoder(…) of what makes them."
        )
    return given, offered(given.make) if isinstance(given, Decoder) else frozenset()


def _runs_programs(function: Callable[..., Any]) -> bool:
    """Whether a function names steps, and can be called as `decode` is written, with a program:
    what makes caches does not.
    """
    try:
        signature = inspect.signature(function)
        signature.bind("q", "k", "v", "steps", window=None, capacity=None, rotates=None)
    except (TypeError, ValueError):
        return False
    return "steps" in signature.parameters


def held_of(window: int | None, capacity: int | None, offers: Collection[str], conventions: Conventions) -> Held:
    """What a new cache of such a window and capacity holds."""
    return Held(left_bound(window, conventions), capacity, "ring" in offers)


def left_bound(window: int | None, conventions: Conventions) -> int | None:
    """How many positions before its own a query looks back, by a window on the left."""
    return None if window is None else window - (conventions.window == "count")


@dataclass(frozen=True)
class Decoder:
    """The operation `decode` of what makes caches: a program is run on two of them side by side,
    and each step is as it should be.
    """

    make: Callable[..., Any]

    def __call__(
        self,
        q: Any,
        k: Any,
        v: Any,
        steps: str,
        *,
        window: int | None = None,
        capacity: int | None = None,
        rotates: bool | None = None,
    ) -> tuple[Any, Any]:
        """What the attends gave, one after the other, and their log-sum-exps, or None; a cache
        knows itself whether it rotates. Raises BrokenError for a step that went wrong."""
        given = {name: x for name, x in (("window", window), ("capacity", capacity)) if x is not None}
        make = partial(self.make, q.shape[-1], v.shape[-1], **given)
        caches = {False: make(), True: make()}
        arrays: dict[str, tuple[Any, ...]] = {"append": (k, v), "attend": (q,)}
        used = dict.fromkeys(arrays, 0)
        found: list[tuple[Any, Any]] = []
        for place, step in enumerate(parse(steps), 1):
            if step.name == "restart":
                del caches[step.other]
                caches[step.other] = make()
                continue
            handed: tuple[Any, ...] = (step.number if step.name == "poison" else step.n,)
            if step.name in arrays:
                rows = _rows(step, used[step.name], len(arrays[step.name][0]))
                handed = tuple(x[rows] for x in arrays[step.name])
                used[step.name] += 0 if step.refused else step.n
            returned = _made(getattr(caches[step.other], step.name), handed, place, step)
            if step.name == "attend" and not step.refused:
                found.append(_parts(returned, (step.n, v.shape[-1]), f"step {place}, {step},"))
        if not found:
            raise ValueError(f"The program {shown(steps)} asks nothing, but should have an attend.")
        outs, lses = [out for out, _ in found], [lse for _, lse in found]
        if len({lse is None for lse in lses}) > 1:
            raise BrokenError("attend returned a log-sum-exp in some steps only, but should in all or in none.")
        return _joined(outs), None if lses[0] is None else _joined(lses)


def _rows(step: Step, start: int, length: int) -> Any:
    """The rows that a step is handed: the next ones, or, where it should be refused, any."""
    if step.refused:
        return np.arange(step.n) % max(length, 1)
    if start + step.n > length:
        raise ValueError(f"The program's step {step} begins at row {start}, but there are {length}.")
    return slice(start, start + step.n)


def _made(method: Callable[..., Any], handed: tuple[Any, ...], place: int, step: Step) -> Any:
    """What a step returns; raises BrokenError where it raises, or does not though it should."""
    where = f"step {place}, {replace(step, refused=False)}"
    try:
        returned = method(*handed)
    except Exception as error:
        if step.refused and isinstance(error, ValueError):
            return None
        instead = ", which should raise a ValueError." if step.refused else "."
        raise RaisedError(f"{raised(error).rstrip('.')}. It was in {where}{instead}") from error
    if step.refused:
        raise BrokenError(f"nothing was raised in {where}, but a ValueError should be.")
    return returned


def require_refused(steps: Sequence[Step], empty: Held) -> None:
    """Put steps to right caches that are empty as one is: raises BrokenError, as a `Decoder` of
    them does, where these refuse a step that is not said to be refused, or take one that is."""

    def answer(step: Step, own: Held) -> None:
        if own.refuses(step):
            raise ValueError("It is refused.")

    for place, (step, own) in enumerate(played(steps, empty), 1):
        _made(answer, (step, own), place, step)


def _parts(returned: Any, shape: tuple[int, int], place: str) -> tuple[Any, Any]:
    """The output and the log-sum-exp, or None, of one attend, of the shapes that they should have."""
    out, lse = returned if isinstance(returned, tuple) and len(returned) == 2 else (returned, None)
    for name, x, wanted in (("out", out, shape), *([] if lse is None else [("lse", lse, shape[:1])])):
        if not hasattr(x, "shape"):
            raise BrokenError(f"{name} of {place} has type {type(x).__name__}, but should be an array.")
        if tuple(x.shape) != wanted:
            raise BrokenError(f"{name} of {place} has shape {tuple(x.shape)}, but should have shape {wanted}.")
    return out, lse


def _joined(parts: Sequence[Any]) -> Any:
    """Arrays one after the other, at the end: what a later step has overwritten by then shows."""
    if len(parts) == 1:
        return parts[0]
    if type(parts[0]).__module__.split(".")[0] == "torch":
        import torch

        return torch.cat(list(parts))
    return np.concatenate(parts)


def decode(
    q: Any,
    k: Any,
    v: Any,
    steps: str,
    *,
    window: int | None = None,
    capacity: int | None = None,
    rotates: bool | None = None,
    arithmetic: Arithmetic | str | None = None,
    conventions: Conventions | None = None,
) -> tuple[Enclosure, Enclosure]:
    """Attention through caches, where each query sees the keys and values that earlier steps have
    left.

    Each attend is `oracles.attention` on the whole history of its cache, causal, with the offset
    and the window, and a mask of what is evicted: both hold, whatever is declared of `attention`
    given both. Where the cache `rotates`, queries and keys are rotated by their positions. Raises
    ValueError for a program that is none.
    """
    found, conventions = [], replace(conventions or Conventions(), causal_with_mask="compose")
    attention = rotated_attention if rotates else partial(oracles.attention, causal=True)
    for each in attends(parse(steps)):
        keys, n = np.array(each.keys, int), len(each.keys)
        mask = None if each.evicted == 0 else np.arange(n) >= each.evicted
        found.append(
            attention(
                *(x[None] for x in (q[each.queries.start : each.queries.stop], k[keys], v[keys])),
                mask=mask, offset=n - len(each.queries), window=(window, None), arithmetic=arithmetic, conventions=conventions,
            )
        )  # fmt: skip
    if not found:
        raise ValueError(f"The program {shown(steps)} asks nothing, but should have an attend.")
    out, lse = zip(*found, strict=True)
    return _whole(out), _whole(lse)


def _whole(parts: Sequence[Enclosure]) -> Enclosure:
    """Enclosures of one problem each, one after the other: vacuous where all are."""
    return Enclosure(
        *(np.concatenate([getattr(e, name)[0] for e in parts]) for name in ("mid", "rad")),
        format=parts[0].format,
        vacuous=all(e.vacuous for e in parts),
        judged=all(e.judged for e in parts),
    )
