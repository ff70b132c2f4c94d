"""Defines the interface of key-value caches, runs a program of steps on two caches, and computes
the certified values of the outputs.

    Cache(d, d_v, window=None, capacity=None)   window by `Conventions.window`; keys and queries
                                                are already rotated
    append(k, v)                                adds n positions: k (n, d), v (n, d_v)
    attend(q)                                   returns out (n, d_v), or (out, lse), of q (n, d)
                                                at the last n positions
    rollback(n), evict(n), poison(value)        optional: see `properties.contract.cache_programs`
    ring = True                                 a ring: with a window and a capacity the newest
                                                positions overwrite the oldest. Without it, the
                                                cache refuses more positions than the capacity
    rotates = True                              the cache rotates keys and queries itself, by their
                                                positions, as `oracles.rope` does

A query sees the positions up to its own that are in the window and not evicted. Positions are
absolute: evict and rollback do not renumber the other positions. The cache raises ValueError, and
changes nothing, for more queries than positions, for more positions than the capacity, and for
positions that it no longer holds.
"""

import inspect
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

import oracles
from oracles import Conventions, Enclosure
from oracles.rotated_attention import rotated_attention
from properties.contract.cache_programs import Held, Step, attends, parse, played
from properties.contract.results import BrokenError, RaisedError
from properties.contract.wording import raised, shown

__all__ = ["CACHES", "Decoder", "admitted", "decode", "held_of", "left_bound", "offered", "require_refused"]

_PARAMETERS = ("window", "capacity")
CACHES = (*_PARAMETERS, "ring", "rotates", "rollback", "evict", "poison")
"""The optional features of a cache, next to `append` and `attend`: parameters of its constructor,
attributes, and methods.
"""


def offered(make: Any) -> frozenset[str]:
    """Return the names of the optional features of the caches that a constructor makes. A window
    and a capacity are parameters of the constructor. The other features are attributes of the
    class.
    """
    maker = make.func if isinstance(make, partial) else make
    try:
        parameters: Collection[str] = inspect.signature(make).parameters
    except (TypeError, ValueError):
        parameters = ()
    return frozenset(
        feature
        for feature in CACHES
        if (
            feature in parameters
            if feature in _PARAMETERS
            else isinstance(maker, type) and getattr(maker, feature, None)
        )
    )


def admitted(given: Any) -> tuple[Callable[..., Any], frozenset[str]]:
    """Return the operation `decode`, and the names of the optional features of its caches.

    `given` is a class of caches, a `Decoder`, or a function that runs programs. Raises TypeError
    for any other function that makes caches, because such a function does not show the features.
    """
    if isinstance(given.func if isinstance(given, partial) else given, type):
        given = Decoder(given)
    elif not isinstance(given, Decoder) and not _runs_programs(given):
        raise TypeError(
            f"operations['decode']={shown(given)}, but should be a class of caches, "
            "or properties.Decoder(make_cache) with a function that makes one."
        )
    return given, offered(given.make) if isinstance(given, Decoder) else frozenset()


def _runs_programs(function: Callable[..., Any]) -> bool:
    """Return whether a function runs programs: it has a parameter `steps`, and can be called as
    `decode` with a program. A function that makes caches has no such parameter.
    """
    try:
        signature = inspect.signature(function)
        signature.bind("q", "k", "v", "steps", window=None, capacity=None, rotates=None)
    except (TypeError, ValueError):
        return False
    return "steps" in signature.parameters


def held_of(window: int | None, capacity: int | None, offers: Collection[str], conventions: Conventions) -> Held:
    """Return the state of a new cache: the positions that a cache with this window and this
    capacity holds.
    """
    return Held(left_bound(window, conventions), capacity, "ring" in offers)


def left_bound(window: int | None, conventions: Conventions) -> int | None:
    """Return how many positions before its own position a query sees through a left window."""
    return None if window is None else window - (conventions.window == "count")


@dataclass(frozen=True)
class Decoder:
    """The operation `decode`, made from a function that makes caches. It runs a program of steps on
    two caches, and checks what each step returns or raises.
    """

    make: Callable[..., Any]

    def __post_init__(self) -> None:
        if not callable(self.make):
            raise TypeError(f"make={shown(self.make)}, but should be a function or a class that makes a cache.")

    def __call__(
        self,
        q: Any,
        k: Any,
        v: Any,
        steps: str,
        **features: Any,
    ) -> tuple[Any, Any]:
        """Return the outputs of all "attend" steps, concatenated, and their log-sum-exps, or None.

        The constructor gets the window and the capacity. `rotates` is ignored: a cache knows itself
        whether it rotates. Raises BrokenError for a step that returns or raises something wrong.
        """
        options = {name: features[name] for name in _PARAMETERS if features.get(name) is not None}
        make_cache = partial(self.make, q.shape[-1], v.shape[-1], **options)
        caches = {False: make_cache(), True: make_cache()}
        arrays: dict[str, tuple[Any, ...]] = {"append": (k, v), "attend": (q,)}
        rows_used = dict.fromkeys(arrays, 0)
        attended: list[tuple[Any, Any]] = []
        for number, step in enumerate(parse(steps), 1):
            if step.name == "restart":
                del caches[step.other]
                caches[step.other] = make_cache()
                continue
            arguments: tuple[Any, ...] = (step.number if step.name == "poison" else step.n,)
            if step.name in arrays:
                rows = _rows(step, rows_used[step.name], len(arrays[step.name][0]))
                arguments = tuple(value[rows] for value in arrays[step.name])
                rows_used[step.name] += 0 if step.refused else step.n
            returned = _made(getattr(caches[step.other], step.name), arguments, number, step)
            if step.name == "attend" and not step.refused:
                attended.append(_parts(returned, (step.n, v.shape[-1]), f"step {number}, {step},"))
        if not attended:
            raise ValueError(f"The program {shown(steps)} asks nothing: add a step such as 'attend 1'.")
        outputs, log_sum_exps = [output for output, _ in attended], [log_sum_exp for _, log_sum_exp in attended]
        if len({log_sum_exp is None for log_sum_exp in log_sum_exps}) > 1:
            raise BrokenError("attend returned a log-sum-exp in some steps only, but should return it always or never.")
        return _joined(outputs), None if log_sum_exps[0] is None else _joined(log_sum_exps)


def _rows(step: Step, start: int, length: int) -> Any:
    """Return the rows of an array that a step gets: the next rows, or some rows from the first one
    on if the cache should refuse the step.
    """
    if step.refused:
        return np.arange(step.n) % max(length, 1)
    if start + step.n > length:
        raise ValueError(f"The step {step} begins at row {start}, but the case has {length} rows.")
    return slice(start, start + step.n)


def _made(method: Callable[..., Any], arguments: tuple[Any, ...], number: int, step: Step) -> Any:
    """Call a method of a cache and return its value. Raises BrokenError if the call raises, or if
    the cache should refuse the step and the call returns.
    """
    position = f"step {number}, {replace(step, refused=False)}"
    try:
        returned = method(*arguments)
    except Exception as error:
        if step.refused and isinstance(error, ValueError):
            return None
        instead = ", which should raise a ValueError." if step.refused else "."
        raise RaisedError(f"{raised(error).rstrip('.')}. It happened in {position}{instead}") from error
    if step.refused:
        raise BrokenError(f"{position}, raised nothing, but should raise a ValueError.")
    return returned


def require_refused(steps: Sequence[Step], empty: Held) -> None:
    """Check that correct caches refuse exactly the steps that are marked "refused". The caches
    start in the state `empty`.

    Raises BrokenError, as a `Decoder` of these caches does, for a step that they refuse without the
    mark, and for a marked step that they accept.
    """

    def attempt(step: Step, held: Held) -> None:
        if held.refuses(step):
            raise ValueError("It is refused.")

    for number, (step, held) in enumerate(played(steps, empty), 1):
        _made(attempt, (step, held), number, step)


def _parts(returned: Any, shape: tuple[int, int], place: str) -> tuple[Any, Any]:
    """Return the output and the log-sum-exp, or None, of one "attend" step. Raises BrokenError for
    a wrong shape.
    """
    output, log_sum_exp = returned if isinstance(returned, tuple) and len(returned) == 2 else (returned, None)
    for result_name, value, expected_shape in (
        ("out", output, shape),
        *([] if log_sum_exp is None else [("lse", log_sum_exp, shape[:1])]),
    ):
        if not hasattr(value, "shape"):
            raise BrokenError(f"{result_name} of {place} has type {type(value).__name__}, but should be an array.")
        if tuple(value.shape) != expected_shape:
            raise BrokenError(
                f"{result_name} of {place} has shape {tuple(value.shape)}, but should have shape {expected_shape}."
            )
    return output, log_sum_exp


def _joined(parts: Sequence[Any]) -> Any:
    """Return the outputs, concatenated. This happens after the last step: if a later step
    overwrites an earlier output, the result shows it.
    """
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
    **options: Any,
) -> tuple[Enclosure, Enclosure]:
    """The certified values of attention through caches: each query sees the keys and values that
    earlier steps left in its cache.

    Each "attend" step is `oracles.attention` on everything that was appended to its cache: causal,
    with the offset, the window, and a mask of the evicted keys. The causal mask and the evicted
    keys both apply, even if the conventions declare something else for `attention` with both. If
    the cache `rotates`, queries and keys are rotated by their positions. The other options are the
    capacity, which changes no value, the arithmetic and the conventions. Raises ValueError for text
    that is not a program.
    """
    enclosures, conventions = [], replace(options.get("conventions") or Conventions(), causal_with_mask="compose")
    attention = rotated_attention if options.get("rotates") else partial(oracles.attention, causal=True)
    for attend in attends(parse(steps)):
        key_rows, key_count = np.array(attend.keys, int), len(attend.keys)
        mask = None if attend.evicted == 0 else np.arange(key_count) >= attend.evicted
        enclosures.append(
            attention(
                *(array[None] for array in (q[attend.queries.start : attend.queries.stop], k[key_rows], v[key_rows])),
                mask=mask,
                offset=key_count - len(attend.queries),
                window=(window, None),
                arithmetic=options.get("arithmetic"),
                conventions=conventions,
            )
        )
    if not enclosures:
        raise ValueError(f"The program {shown(steps)} asks nothing: add a step such as 'attend 1'.")
    outputs, log_sum_exps = zip(*enclosures, strict=True)
    return _whole(outputs), _whole(log_sum_exps)


def _whole(parts: Sequence[Enclosure]) -> Enclosure:
    """Return the enclosures of several problems, concatenated. The result is vacuous (it accepts
    any value) if all of them are.
    """
    return Enclosure(
        *(np.concatenate([getattr(enclosure, field_name)[0] for enclosure in parts]) for field_name in ("mid", "rad")),
        format=parts[0].format,
        vacuous=all(enclosure.vacuous for enclosure in parts),
        judged=all(enclosure.judged for enclosure in parts),
    )
