"""Draws programs for caches (texts of steps such as "append 3; attend 2") in which every step is
possible, and finds shorter programs.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np

from properties.contract.cache_programs import Held, Step, is_legal, parse, rows_of_part, written
from properties.contract.caches import held_of
from properties.contract.implementation import Implementation
from properties.strategies.choices import Choices

__all__ = ["fill", "shorter"]

_WINDOWS = (2, 1, 3, 4, 5, 8, 16)
_CHUNKS = (1, 2, 3, 4, 1, 2, 5, 8, 15, 16, 17, 32)
_LONG = (1, 16, 32, 63, 64, 65, 128, 257)
_MANY = 100  # chunks are long if more rows than this are left
_LENGTHS = (2, 5, 6, 8, 10, 12)
_SHARES = {"append": 6, "attend": 6, "rollback": 3, "evict": 2, "poison": 1, "restart": 1, "refused": 3}
"""How often each kind of step is chosen, if it is possible."""

_OF_FIRST, _OF_SECOND = False, True


def fill(implementation: Implementation, case: dict[str, Any], needed: tuple[str, ...], choose: Choices) -> None:
    """Choose the window, the capacity and the program of steps of a case (test input). Cut its
    arrays, which were drawn at full length, to the rows that the program uses.

    If the input family needs rings (caches that overwrite their oldest positions), they are short.
    """
    offers, rings = implementation.of_caches, "ring" in needed
    case["window"] = (
        choose.among(_WINDOWS[: 3 if rings else None])
        if rings or ("window" in offers and choose.happens(0.6))
        else None
    )
    chunk = choose.among(_CHUNKS)
    minimum = chunk if case["window"] is None else case["window"] + choose.among((1, 2, 3 if rings else chunk))
    case["capacity"] = (
        minimum + choose.integer(0, 0 if rings else 3)
        if rings or ("capacity" in offers and choose.happens(0.6))
        else None
    )
    poison = float("nan") if implementation.resolved_conventions.blocked_values == "unread" else 64.0
    empty_cache = held_of(case["window"], case["capacity"], offers, implementation.resolved_conventions)
    steps = tuple(_steps(offers, empty_cache, len(case["k"]), len(case["q"]), poison, choose))
    case["steps"], case["rotates"] = written(steps), True if "rotates" in offers else None
    if case["rotates"] and case["q"].shape[1] % 2:  # programs do not test a channel without a partner
        case["q"], case["k"] = (np.concatenate([array, array[:, :1]], 1) for array in (case["q"], case["k"]))
    case |= _cut(case, rows_of_part(steps, list(enumerate(steps))))


def _steps(
    offers: frozenset[str], empty: Held, keys: int, queries: int, poison: float, choose: Choices
) -> Iterator[Step]:
    """Yield steps of both caches, each possible at its place. The last step asks the first cache
    for an output.
    """
    caches = {is_second: replace(empty) for is_second in (_OF_FIRST, _OF_SECOND)}
    for _ in range(choose.among(_LENGTHS)):
        is_second = choose.happens(0.35)
        options = [*_possible(offers, caches[is_second], keys - 1, queries - 1, poison, choose)]
        if caches[is_second].end == 0 and choose.happens(0.8):  # an empty cache shows little
            options = [step for step in options if step.name == "append"]
        if not options:
            continue
        step = choose.among(
            [step for step in options for _ in range(_SHARES["refused" if step.refused else step.name])]
        )
        yield replace(step, other=is_second)
        if not step.refused:
            caches[is_second].take(step)
            keys, queries = keys - step.n * (step.name == "append"), queries - step.n * (step.name == "attend")
    attend_once = Step("attend", 1)
    if caches[_OF_FIRST].refuses(attend_once):
        yield from (replace(attend_once, refused=True), Step("restart"), Step("append", 1))
    yield attend_once


def _possible(
    offers: frozenset[str], held: Held, keys: int, queries: int, poison: float, choose: Choices
) -> Iterator[Step]:
    """Yield one possible step of each kind. `held` is the state of the cache."""
    held_count, space = held.end - held.first, held.capacity if held.capacity is not None else keys
    space = space if held.is_ring or held.capacity is None else space - held_count
    chunk = choose.among(_LONG if keys > _MANY else _CHUNKS)
    counts = {
        "append": (min(chunk, keys, space),),
        "attend": (min(choose.among((1, chunk, held_count)), queries), 1),
        "rollback": (min(choose.among((1, 2, 3, held.most)), held.most),),
        "evict": (min(choose.among((1, 2, chunk)), held.most),),
    }
    for name, numbers in counts.items():
        steps = [
            Step(name, count)
            for count in numbers
            if count > 0 and _is_offered(name, offers) and (name != "attend" or count <= queries)
        ]
        yield from [step for step in steps if held.is_plain(step) and not held.refuses(step)][:1]
    first_refused = next(count for count in range(1, held_count + 2) if held.refuses(Step("attend", count)))
    beyond = {
        "append": (space + 1,),
        "attend": (first_refused, held_count + 1),
        "rollback": (held.most + 1,),
        "evict": (held.most + 1,),
    }
    steps = [
        Step(name, count, refused=True)
        for name, numbers in beyond.items()
        for count in numbers
        if count > 0 and _is_offered(name, offers)
    ]
    steps = [step for step in steps if held.is_plain(step) and held.refuses(step)]
    yield from [choose.among(steps)] if steps else []
    yield from [
        step for step in steps if step.name == "attend" and step.n <= held_count
    ]  # a ring has lost these positions
    if "poison" in offers:
        yield Step("poison", poison)
    if held.end:
        yield Step("restart")


def _is_offered(name: str, offers: frozenset[str]) -> bool:
    return name in ("append", "attend") or name in offers


def shorter(implementation: Implementation, case: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield cases (test inputs) with shorter programs of steps, the largest cuts first, and with
    simpler windows and capacities. In each of them the same steps are refused.
    """
    steps = parse(case["steps"])
    kept_steps = list(enumerate(steps))
    settings: list[dict[str, Any]] = [
        {},
        *({name: value} for name in ("capacity", "window") for value in _less(case[name])),
    ]
    for fewer_steps in (*_fewer(kept_steps), kept_steps):
        for setting in settings if len(fewer_steps) == len(kept_steps) else settings[:1]:
            program = written([step for _, step in fewer_steps])
            changed = {**case, **setting, "steps": program, **_cut(case, rows_of_part(steps, fewer_steps))}
            if (setting or program != case["steps"]) and _is_legal(implementation, changed):
                yield changed


def _less(value: int | None) -> tuple[int | None, ...]:
    """Return None and smaller numbers down to 1. For None, return nothing."""
    return (
        ()
        if value is None
        else (None, *dict.fromkeys(smaller for smaller in (1, value // 2, value - 1) if 0 < smaller < value))
    )


def _is_legal(implementation: Implementation, case: Mapping[str, Any]) -> bool:
    return is_legal(
        parse(case["steps"]),
        held_of(case["window"], case["capacity"], implementation.of_caches, implementation.resolved_conventions),
    )


def _fewer(kept: list[tuple[int, Step]]) -> Iterator[list[tuple[int, Step]]]:
    """Yield parts of a program of steps: without one of the caches, without a run of steps, without
    two steps, and with a step of fewer positions. Each step comes with its position in the whole
    program.
    """
    yield [numbered_step for numbered_step in kept if not numbered_step[1].other]
    yield [(place, replace(step, other=False)) for place, step in kept if step.other]
    length = len(kept)
    while length > 1:
        length = -(-length // 2)
        yield from (kept[:start] + kept[start + length :] for start in range(0, len(kept), length))
    yield from (
        [numbered_step for numbered_step in kept if numbered_step not in removed_pair]
        for removed_pair in combinations(kept, 2)
    )
    for index, (place, step) in enumerate(kept):
        for count in dict.fromkeys((1, step.n // 2, step.n - 1)):
            if 0 < count < step.n:
                yield [*kept[:index], (place, replace(step, number=count)), *kept[index + 1 :]]
    counted = [(index, step) for index, (_, step) in enumerate(kept) if step.n > 1]
    for removed_pair in combinations(counted, 2):
        for decrement in dict.fromkeys((min(step.n for _, step in removed_pair) - 1, 1)):
            smaller = {index: replace(step, number=step.n - decrement) for index, step in removed_pair}
            yield [(place, smaller.get(index, step)) for index, (place, step) in enumerate(kept)]


def _cut(case: Mapping[str, Any], rows: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arrays q, k and v of a case (test input), cut to the given rows."""
    return {"q": case["q"][rows["attend"]], "k": case["k"][rows["append"]], "v": case["v"][rows["append"]]}
