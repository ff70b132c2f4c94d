"""Records what a call asks of an implementation, and finds the condition under which calls raised."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from properties.contract.operations import BATCH, Arguments, Operation
from properties.contract.wording import printable

__all__ = ["NotTaken", "TriedCall", "not_taken", "tried_call"]


@dataclass(frozen=True)
class TriedCall:
    """What a call asks of an implementation: its sizes and differences of sizes, and what it passes.

    error   the exception, as "ValueError: message"; "" if the call returned
    """

    operation: str
    sizes: Mapping[str, int]
    passes: frozenset[str]
    error: str = ""


@dataclass(frozen=True)
class NotTaken:
    """Some calls that raised.

    condition   what is true of all of them and of no call that returned, in words: "head_dim = 0";
                "" if no simple condition is
    error       the exception of the smallest of them
    calls       how many they are
    smallest    the sizes of the smallest of them, in words
    is_edge     whether the condition is that a size is 0, or smaller than another one
    """

    operation: str
    condition: str
    error: str
    calls: int
    smallest: str = ""
    is_edge: bool = False

    @property
    def where(self) -> str:
        """The condition, or else the number of calls and the smallest one."""
        return self.condition or f"{self.calls} call{'s' * (self.calls > 1)}, the smallest with {self.smallest}"

    @property
    def sentence(self) -> str:
        """The condition or the smallest call, with the exception."""
        return f"{self.where} ({self.error})"


def tried_call(operation: Operation, arguments: Arguments, layout: str, error: str = "") -> TriedCall:
    """Return the record of a call. `error` is the message of its RaisedError."""
    sizes, lead, named = operation.sizes(arguments), operation.lead(arguments), operation.named(arguments)
    sizes = {name: size for name, size in sizes.items() if name != "batch"}
    passes = {f"{name} given" for name, value in named.items() if value is not None and _is_optional(operation, name)}
    if any(BATCH in axes for axes in operation.axes.values()):
        sizes["leading axes"] = len(lead)
        passes |= {"a batch of 0"} if 0 in lead else set()
    scale = named.get("scale")
    passes |= {"a negative scale" if scale < 0 else "a scale of 0"} if scale is not None and scale <= 0 else set()
    passes |= {"arrays that are not contiguous"} if layout != "contiguous" else set()
    for name, mask in named.items():
        if operation.is_mask(name) and isinstance(mask, np.ndarray):
            passes |= set(_kinds_of_mask(mask, len(lead) + len(operation.axes[name]) - 1))
    return TriedCall(operation.name, sizes, frozenset(passes), printable(error.removeprefix("raised ")))


def _kinds_of_mask(mask: Any, axes: int) -> Iterator[str]:
    """Yield what is special about a mask; `axes` is the number of axes of the full mask."""
    if mask.ndim < axes:
        yield "a mask with fewer axes"
    if 1 in mask.shape:
        yield "a mask with an axis of size 1"
    if mask.size and not mask.any(-1).all():
        yield "a fully masked row"


def _is_optional(operation: Operation, name: str) -> bool:
    return name in operation.options or operation.is_mask(name)


def not_taken(tried: Sequence[TriedCall]) -> tuple[NotTaken, ...]:
    """Return what is not taken: as few conditions as describe the calls that raised.

    A condition is true of some calls that raised, and of no call that returned. Each step takes the
    condition that is true of the most calls that are not described yet; among equals, the first of
    `_conditions`. Calls that no condition describes are counted, for each exception; numbers in its
    message, such as sizes, do not count.
    """
    summaries: list[NotTaken] = []
    for operation in dict.fromkeys(call.operation for call in tried):
        of_operation = [call for call in tried if call.operation == operation]
        returned = [call for call in of_operation if not call.error]
        undescribed = [call for call in of_operation if call.error]
        if not returned:
            summaries.append(_summary(operation, "every call", undescribed))
            continue
        conditions = [
            condition for condition in _conditions(undescribed, returned) if not any(map(condition.holds, returned))
        ]
        while undescribed and conditions:
            best = max(conditions, key=lambda condition: sum(map(condition.holds, undescribed)))
            described = [call for call in undescribed if best.holds(call)]
            if not described:
                break
            summaries.append(_summary(operation, best.says, described, best.is_edge))
            undescribed = [call for call in undescribed if not best.holds(call)]
        summaries += [
            _summary(operation, "", [call for call in undescribed if _without_numbers(call) == error])
            for error in dict.fromkeys(map(_without_numbers, undescribed))
        ]
    return tuple(sorted(summaries, key=lambda summary: summary.is_edge))


def _without_numbers(call: TriedCall) -> str:
    return re.sub(r"\d+", "", _brief(call.error))


def _summary(operation: str, condition: str, calls: Sequence[TriedCall], is_edge: bool = False) -> NotTaken:
    smallest = min(calls, key=lambda call: (sum(call.sizes.values()), len(call.passes)))
    words = ", ".join([*(f"{name} {size}" for name, size in smallest.sizes.items()), *sorted(smallest.passes)])
    return NotTaken(operation, condition, _brief(smallest.error), len(calls), words, is_edge)


_LONGEST = 70


def _brief(error: str) -> str:
    """Return the first line of an exception's text, cut to a readable length."""
    line = error.splitlines()[0].rstrip(". ") if error else ""
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST].rstrip()} …"


@dataclass(frozen=True)
class _Condition:
    """A condition on a call, in words, and whether it is an edge: a size of 0 or the like."""

    says: str
    size: str = ""
    other: str = ""
    relation: str = ""
    number: int = 0
    is_edge: bool = False

    def holds(self, call: TriedCall) -> bool:
        """Return whether the condition is true of a call."""
        if not self.size:
            return self.says in call.passes
        if self.size not in call.sizes or (self.other and self.other not in call.sizes):
            return False
        size, number = call.sizes[self.size], call.sizes[self.other] if self.other else self.number
        return _RELATIONS[self.relation](size, number)


_RELATIONS: Mapping[str, Callable[[int, int], bool]] = {
    "=": lambda size, number: size == number,
    "≠": lambda size, number: size != number,
    ">": lambda size, number: size > number,
    "<": lambda size, number: size < number,
    "no multiple of": lambda size, number: size % number != 0 if number else size != 0,
    "neither 1 nor": lambda size, number: size not in (1, number),
}

_COMPARED = (
    *(("value_dim", "head_dim", relation) for relation in "≠><"),
    *(("n_q", "n_k", relation) for relation in "≠><"),
    *(("num_heads", "kv_heads", relation) for relation in ("≠", "no multiple of")),
    ("kv_heads", "num_heads", "neither 1 nor"),
)
_MULTIPLES = (2, 4, 8, 16, 32, 64, 128)


def _conditions(raised: Sequence[TriedCall], returned: Sequence[TriedCall]) -> Iterator[_Condition]:
    """Yield the conditions that may describe calls that raised, the simplest first."""
    names = dict.fromkeys(name for call in raised for name in call.sizes)
    yield from (_Condition(f"{name} = 0", name, relation="=", is_edge=True) for name in names if name not in _COUNTS)
    yield from map(_Condition, sorted({special for call in raised for special in call.passes}))
    for size, other, relation in _COMPARED:
        yield _Condition(f"{size} {relation} {other}", size, other, relation)
    for name in names:
        working = sorted({call.sizes[name] for call in returned if name in call.sizes})
        if name in _COUNTS:
            yield from (_Condition(f"{n} {name}", name, relation="=", number=n) for n in range(5) if n not in working)
            continue
        for factor in _MULTIPLES:
            says = f"odd {name}" if factor == 2 else f"{name} no multiple of {factor}"
            yield _Condition(says, name, relation="no multiple of", number=factor)
        if working:
            yield _Condition(f"{name} > {working[-1]}", name, relation=">", number=working[-1])
        if len(working) == 1:
            yield _Condition(f"{name} other than {working[0]}", name, relation="≠", number=working[0])


_COUNTS = ("leading axes",)
