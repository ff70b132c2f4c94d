"""Defines the interface of key-value caches, and runs a program of steps on two caches.

    Cache(d, d_v, window=None, capacity=None)   a cache of one head. window by `Conventions.window`;
                                                keys and queries are already rotated
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

A batched cache has rows, one for each sequence, and several heads. All arguments after `num_heads`
are optional, and so are `fork`, `reorder`, `free`, `ring` and the methods above:

    Cache(batch, kv_heads, d, d_v, num_heads, *, window=None, capacity=None, scale=None,
          softcap=None, sink=None, alibi=None, prefix=0, causal=True)
    append(k, v, rows=None)                     adds n positions to each of r rows, by default all
                                                rows: k (r, kv_heads, n, d), v (r, kv_heads, n, d_v)
    attend(q, rows=None)                        returns out (r, num_heads, n, d_v), or (out, lse)
                                                with lse (r, num_heads, n), of q (r, num_heads, n, d)
    rollback(n, rows=None), evict(n, rows=None)
    fork(source, target)                        row target becomes a copy of row source
    reorder(index)                              row b becomes what row index[b] was
    free(row)                                   empties a row

Each row has its own positions, its own capacity and its own window. Positions below `prefix` are
visible to all positions. They do not leave a window, and they are neither evicted nor rolled back:
evict(n) removes the oldest n positions behind them. With causal=False, which has no window, every
query sees all positions that its row holds. ALiBi adds −alibi[h]·|p − j| to the score of key j for
the query at position p. The cache raises ValueError, and changes no row, if one of the rows refuses
the step, is given twice, or does not exist.
"""

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any

import numpy as np

from oracles import Conventions
from properties.contract.cache_programs import MOVED, Step, parse, parts_of_arrays
from properties.contract.cache_states import Held, played
from properties.contract.operation import Arguments
from properties.contract.results import BrokenError, RaisedError
from properties.contract.wording import raised, shown

__all__ = [
    *("CACHES", "OFFERS", "BatchedDecoder", "Decoder", "Runner"),
    *("admitted", "held_of", "left_bound", "offered", "operation_of", "require_refused"),
]

_PARAMETERS = ("window", "capacity", "scale", "softcap", "sink", "alibi", "prefix", "causal")
OFFERS: Mapping[str, tuple[str, ...]] = {
    "decode": ("window", "capacity", "ring", "rotates", "rollback", "evict", "poison"),
    "batched_decode": (*_PARAMETERS, "ring", "rollback", "evict", "poison", *MOVED),
}
"""The optional features of the caches of each operation, next to `append` and `attend`: parameters of
their constructor, attributes, and methods.
"""
CACHES = tuple(dict.fromkeys(chain(*OFFERS.values())))
"""The optional features of all caches."""


def offered(make: Any) -> frozenset[str]:
    """Return the names of the optional features of the caches that a constructor makes. Options such
    as a window are parameters of the constructor. The other features are attributes of the class.
    """
    maker, parameters = make.func if isinstance(make, partial) else make, _parameters_of(make)
    return frozenset(
        feature
        for feature in CACHES
        if (
            feature in parameters
            if feature in _PARAMETERS
            else isinstance(maker, type) and getattr(maker, feature, None)
        )
    )


def _parameters_of(make: Any) -> Collection[str]:
    """Return the names of the parameters of a function or a class; none if Python cannot tell them."""
    try:
        return inspect.signature(make).parameters
    except (TypeError, ValueError):
        return ()


def operation_of(make: Any) -> str:
    """Return the operation that a class of caches offers. A batched cache has a parameter `batch`."""
    return "batched_decode" if "batch" in _parameters_of(make) else "decode"


def admitted(operation: str, given: Any) -> tuple[Callable[..., Any], frozenset[str]]:
    """Return an operation that runs programs, and the names of the optional features of its caches.

    `given` is a class of caches, a `Decoder` or `BatchedDecoder`, or a function that runs programs.
    Raises TypeError for any other function that makes caches, because such a function does not show
    the features.
    """
    decoder = _DECODERS[operation]
    if isinstance(given.func if isinstance(given, partial) else given, type):
        given = decoder(given)
    elif not isinstance(given, Runner) and not _runs_programs(given):
        raise TypeError(
            f"operations[{operation!r}]={shown(given)}, but should be a class of caches, "
            f"or properties.{decoder.__name__}(make_cache) with a function that makes one."
        )
    return given, offered(given.make) if isinstance(given, Runner) else frozenset()


def _runs_programs(function: Callable[..., Any]) -> bool:
    """Return whether a function runs programs: it has a parameter `steps`, and takes a window and a
    capacity by keyword. A function that makes caches has no such parameter.
    """
    try:
        signature = inspect.signature(function)
        signature.bind_partial("q", "k", "v", window=None, capacity=None)
    except (TypeError, ValueError):
        return False
    return "steps" in signature.parameters


def held_of(arguments: Mapping[str, Any], offers: Collection[str], conventions: Conventions) -> Held:
    """Return the state of a new row of a cache in a call with these arguments, by name: the
    positions that a row with this window, this capacity and this prefix holds.
    """
    left = left_bound(arguments.get("window"), conventions)
    return Held(left, arguments.get("capacity"), "ring" in offers, arguments.get("prefix") or 0)


def left_bound(window: int | None, conventions: Conventions) -> int | None:
    """Return how many positions before its own position a query sees through a left window."""
    return None if window is None else window - (conventions.window == "count")


@dataclass(frozen=True)
class Runner:
    """An operation that runs a program of steps on two caches, and checks what each step returns or
    raises. `make` is the function that makes caches.
    """

    make: Callable[..., Any]

    def __post_init__(self) -> None:
        if not callable(self.make):
            raise TypeError(f"make={shown(self.make)}, but should be a function or a class that makes a cache.")

    def _run(
        self, arrays: tuple[Any, Any, Any], steps: str, batch: int, make_cache: Callable[[], Any]
    ) -> tuple[Any, Any]:
        """Run a program on two caches. Return the outputs of all "attend" steps, concatenated, and
        their log-sum-exps, or None.
        """
        program, caches = parse(steps), {False: make_cache(), True: make_cache()}
        parts, attended = parts_of_arrays(program, batch), list[tuple[Any, Any]]()
        passed = {"append": arrays[1:], "attend": arrays[:1]}
        for place, step in enumerate(program):
            if step.name == "restart":
                del caches[step.other]
                caches[step.other] = make_cache()
                continue
            arguments: Arguments = (step.number if step.name == "poison" else step.n,)
            rows = step.rows_of(batch)
            if step.name in passed:
                taken = _rows(step, parts.get(place, ()), len(rows), passed[step.name][0].shape[-2])
                arguments = tuple(self._passed(array[..., taken, :], len(rows)) for array in passed[step.name])
            if step.name in MOVED:
                arguments = ([*rows],) if step.name == "reorder" else rows
            elif step.rows:
                arguments = *arguments, [*step.rows]
            returned = _made(getattr(caches[step.other], step.name), arguments, place + 1, step)
            if step.name == "attend" and not step.refused:
                shape = (*arguments[0].shape[:-1], arrays[2].shape[-1])
                attended.append(_parts(returned, shape, f"step {place + 1}, {step},"))
        if not attended:
            raise ValueError(f"The program {shown(steps)} asks nothing: add a step such as 'attend 1'.")
        outputs, log_sum_exps = zip(*attended, strict=True)
        if len({log_sum_exp is None for log_sum_exp in log_sum_exps}) > 1:
            raise BrokenError("attend returned a log-sum-exp in some steps only, but should return it always or never.")
        return (
            _joined([*map(self._returned, outputs)], -2),
            None if log_sum_exps[0] is None else _joined([*map(self._returned, log_sum_exps)], -1),
        )

    def _passed(self, array: Any, rows: int) -> Any:
        """Return the array that a cache gets, from the part of an array that `rows` rows of it share."""
        return array

    def _returned(self, result: Any) -> Any:
        """Return the result of an "attend" step with the axes of a part of the whole result."""
        return result


class Decoder(Runner):
    """The operation `decode`, made from a function that makes caches of one head."""

    def __call__(self, q: Any, k: Any, v: Any, steps: str, **options: Any) -> tuple[Any, Any]:
        """Return the outputs of all "attend" steps, concatenated, and their log-sum-exps, or None.
        `options` are the options of the caches' constructor, by name.

        `rotates` is ignored: a cache knows itself whether it rotates. Raises BrokenError for a step
        that returns or raises something wrong.
        """
        return self._run((q, k, v), steps, 1, partial(self.make, q.shape[-1], v.shape[-1], **_given(options)))


class BatchedDecoder(Runner):
    """The operation `batched_decode`, made from a function that makes batched caches."""

    def __call__(self, q: Any, k: Any, v: Any, batch: int, steps: str, **options: Any) -> tuple[Any, Any]:
        """Return the outputs of all "attend" steps, concatenated, and their log-sum-exps, or None.
        `options` are the options of the caches' constructor, by name.

        Raises BrokenError for a step that returns or raises something wrong.
        """
        sizes = batch, k.shape[0], q.shape[-1], v.shape[-1], q.shape[0]
        return self._run((q, k, v), steps, batch, partial(self.make, *sizes, **_given(options)))

    def _passed(self, array: Any, rows: int) -> Any:
        """Return an array of the axes (heads, rows · n, width) with the axes (rows, heads, n, width)."""
        split = array.reshape(array.shape[0], rows, array.shape[1] // rows, array.shape[-1]).swapaxes(0, 1)
        return split.contiguous() if hasattr(split, "contiguous") else split.copy()

    def _returned(self, result: Any) -> Any:
        """Return an array of the axes (rows, heads, n, …) with the axes (heads, rows · n, …)."""
        swapped = result.swapaxes(0, 1)
        return swapped.reshape(swapped.shape[0], swapped.shape[1] * swapped.shape[2], *swapped.shape[3:])


_DECODERS: Mapping[str, type[Runner]] = {"decode": Decoder, "batched_decode": BatchedDecoder}


def _given(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that the constructor of a cache gets."""
    return {name: value for name, value in options.items() if value is not None and name != "rotates"}


def _rows(step: Step, parts: Sequence[range], rows: int, length: int) -> Any:
    """Return the rows of an array that a step gets: the next rows, or some rows from the first one
    on if the cache should refuse the step.
    """
    if step.refused:
        return np.arange(step.n * rows) % max(length, 1)
    if parts[-1].stop > length:
        raise ValueError(f"The step {step} begins at row {parts[0].start}, but the case has {length} rows.")
    return slice(parts[0].start, parts[-1].stop)


def _made(method: Callable[..., Any], arguments: Arguments, number: int, step: Step) -> Any:
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


def require_refused(steps: Sequence[Step], empty: Held, batch: int = 1) -> None:
    """Check that correct caches refuse exactly the steps that are marked "refused". All rows start
    in the state `empty`.

    Raises BrokenError, as a `Decoder` of these caches does, for a step that they refuse without the
    mark, and for a marked step that they accept.
    """

    def attempt(refuses: bool) -> None:
        if refuses:
            raise ValueError("It is refused.")

    for number, (step, caches) in enumerate(played(steps, empty, batch), 1):
        _made(attempt, (caches.refuses(step),), number, step)


def _parts(returned: Any, shape: tuple[int, ...], place: str) -> tuple[Any, Any]:
    """Return the output and the log-sum-exp, or None, of one "attend" step. Raises BrokenError for
    a wrong shape.
    """
    output, log_sum_exp = returned if isinstance(returned, tuple) and len(returned) == 2 else (returned, None)
    for result_name, value, expected_shape in (
        ("out", output, shape),
        *([] if log_sum_exp is None else [("lse", log_sum_exp, shape[:-1])]),
    ):
        if not hasattr(value, "shape"):
            raise BrokenError(f"{result_name} of {place} has type {type(value).__name__}, but should be an array.")
        if tuple(value.shape) != expected_shape:
            raise BrokenError(
                f"{result_name} of {place} has shape {tuple(value.shape)}, but should have shape {expected_shape}."
            )
    return output, log_sum_exp


def _joined(parts: Sequence[Any], axis: int) -> Any:
    """Return the outputs, concatenated along an axis. This happens after the last step: if a later
    step overwrites an earlier output, the result shows it.
    """
    if len(parts) == 1:
        return parts[0]
    if type(parts[0]).__module__.split(".")[0] == "torch":
        import torch

        return torch.cat(list(parts), axis)
    return np.concatenate(parts, axis)
