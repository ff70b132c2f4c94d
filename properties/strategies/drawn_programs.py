"""Draws programs for caches (texts of steps such as "append 3; attend 2") in which every step is
possible, and finds shorter programs.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np

from properties.contract.cache_programs import COUNTED, Step, parse, rows_of_part, written
from properties.contract.cache_states import Caches, is_legal
from properties.contract.caches import held_of
from properties.contract.implementation import Implementation
from properties.contract.operations import Operation
from properties.strategies import drawn_features
from properties.strategies.choices import Choices

__all__ = ["fill", "shorter"]

_WINDOWS = (2, 1, 3, 4, 5, 8, 16)
_CHUNKS = (1, 2, 3, 4, 1, 2, 5, 8, 15, 16, 17, 32)
_LONG = (1, 16, 32, 63, 64, 65, 128, 257)
_MANY = 100  # chunks are long if more rows than this are left
_LENGTHS = (2, 5, 6, 8, 10, 12)
_SHARES = {"append": 6, "attend": 6, "rollback": 3, "evict": 2, "poison": 1, "restart": 1, "refused": 3} | {
    "fork": 3,
    "reorder": 3,
    "free": 2,
}
"""How often each kind of step is chosen, if it is possible."""

_PATTERNS: tuple[tuple[str, ...], ...] = (
    (),
    ("append", "attend", "reorder"),  # beam search
    ("append", "attend", "rollback"),  # speculative decoding
    ("append", "free", "append", "attend"),  # rows of finished sequences are used again
    ("fork", "append", "attend"),  # several continuations of one prompt
)
"""The kinds of steps that a batched cache takes in turn, if they are possible; () for any."""

_PREFIXES = (1, 2, 4)

_OF_FIRST, _OF_SECOND = False, True


def fill(
    operation: Operation,
    implementation: Implementation,
    case: dict[str, Any],
    needed: tuple[str, ...],
    choose: Choices,
) -> None:
    """Choose the options and the program of steps of a case (test input). Cut its arrays, which were
    drawn at full length, to the rows that the program uses.

    If the input family needs rings (caches that overwrite their oldest positions), they are short.
    """
    offers, rings, batch = implementation.of_caches(operation.name), "ring" in needed, case.get("batch", 1)
    case |= _options(implementation, case, offers, choose)
    crosses = case.get("causal") is False and not rings
    if not crosses and "causal" in case:
        case["causal"] = None
    case["window"] = (
        choose.among(_WINDOWS[: 3 if rings else None])
        if rings or (not crosses and "window" in offers and choose.happens(0.6))
        else None
    )
    chunk = choose.among(_CHUNKS)
    minimum = chunk if case["window"] is None else case["window"] + choose.among((1, 2, 3 if rings else chunk))
    case["capacity"] = (
        minimum + choose.integer(0, 0 if rings else 3) + (case.get("prefix") or 0)
        if rings or ("capacity" in offers and choose.happens(0.6))
        else None
    )
    poison = float("nan") if implementation.resolved_conventions.blocked_values == "unread" else 64.0
    caches = Caches(held_of(case, offers, implementation.resolved_conventions), batch)
    steps = tuple(_steps(offers, caches, case["k"].shape[-2], case["q"].shape[-2], poison, choose))
    case["steps"] = written(steps)
    if "rotates" in operation.parameters:
        case["rotates"] = True if "rotates" in offers else None
    if case.get("rotates") and case["q"].shape[-1] % 2:  # programs do not test a channel without a partner
        case["q"], case["k"] = (np.concatenate([case[step_name], case[step_name][..., :1]], -1) for step_name in "qk")
    case |= _cut(case, rows_of_part(steps, list(enumerate(steps)), batch))


def _options(
    implementation: Implementation, case: Mapping[str, Any], offers: frozenset[str], choose: Choices
) -> dict[str, Any]:
    """Choose the options that only batched caches have. Slopes are powers of two, so that their
    products with distances are not rounded.
    """
    if "batch" not in case:
        return {}
    heads, target = case["q"].shape[:1], implementation.resolved_arithmetic.inputs
    drawn: dict[str, Callable[[], Any]] = {
        "scale": lambda: choose.among(drawn_features.scales(implementation) or [None]),
        "softcap": lambda: choose.among(drawn_features.SOFTCAPS),
        "sink": lambda: drawn_features.sink(heads, target, "grid", choose),
        "alibi": lambda: np.ldexp(1.0, -choose.integers(0, 8, heads)),
        "prefix": lambda: choose.among(_PREFIXES),
        "causal": lambda: False,
    }
    return {
        step_name: draw() if step_name in offers and choose.happens(0.3) else None for step_name, draw in drawn.items()
    }


def _steps(
    offers: frozenset[str], caches: Caches, keys: int, queries: int, poison: float, choose: Choices
) -> Iterator[Step]:
    """Yield steps of both caches, each possible at its place. The last step asks the first cache
    for an output.
    """
    batch = caches.batch
    pattern = choose.among(_PATTERNS) if batch > 1 else ()
    if batch > 1:
        for option in _prompts(caches, keys // 2, choose):
            yield option
            caches.take(option)
            keys -= option.n
    for number in range(choose.among(_LENGTHS)):
        is_second = choose.happens(0.35 if batch == 1 else 0.15)
        turn = Step("poison", poison, is_second, rows=_some_rows(batch, choose))
        shares = len(turn.rows_of(batch))
        options = [*_possible(offers, caches, turn, (keys - batch) // shares, (queries - batch) // shares, choose)]
        if not any(state.end for state in caches.rows[is_second]) and choose.happens(0.8):  # it shows little
            options = [option for option in options if option.name == "append"]
        wanted = pattern[number % len(pattern)] if pattern and not is_second else ""
        options = [option for option in options if option.name == wanted and not option.refused] or options
        if not options:
            continue
        option = choose.among(
            [option for option in options for _ in range(_SHARES["refused" if option.refused else option.name])]
        )
        yield option
        if not option.refused:
            caches.take(option)
            count = option.n * len(option.rows_of(batch))
            keys, queries = keys - count * (option.name == "append"), queries - count * (option.name == "attend")
    yield from _last(caches)


def _prompts(caches: Caches, keys: int, choose: Choices) -> Iterator[Step]:
    """Yield steps that give each row of the first cache a prompt of its own length, near the window
    and the capacity.
    """
    state = caches.rows[_OF_FIRST][0]
    borders = [border + near for border in (state.left, state.capacity) if border is not None for near in (-1, 0, 1)]
    most = min(keys // caches.batch, keys if state.space is None else state.space)
    lengths = [length for length in (1, 2, 3, 5, 8, *borders) if 0 < length <= most]
    for row in range(caches.batch):
        if lengths and choose.happens(0.8):
            length = choose.among(lengths)
            lengths = [other for other in lengths if other != length] or [length]
            yield Step("append", length, rows=(row,))


def _some_rows(batch: int, choose: Choices) -> tuple[int, ...]:
    """Choose some rows of a cache, in any order; () for all of them."""
    if batch == 1 or choose.happens(0.4):
        return ()
    return tuple(map(int, choose.order(batch)[: choose.integer(1, batch)]))


def _last(caches: Caches) -> Iterator[Step]:
    """Yield steps that end with a query of each row of the first cache that accepts one."""
    row_numbers = caches.rows[_OF_FIRST]
    attend = Step("attend", 1)
    taking = tuple(row for row, state in enumerate(row_numbers) if not state.refuses(attend))
    if len(taking) == len(row_numbers):
        yield attend
    elif taking:
        yield replace(attend, rows=taking)
    else:
        yield from (replace(attend, refused=True), Step("restart"), Step("append", 1), replace(attend))


def _possible(
    offers: frozenset[str], caches: Caches, turn: Step, keys: int, queries: int, choose: Choices
) -> Iterator[Step]:
    """Yield one possible step of each kind. `turn` is the poison step of this turn: it has the cache
    and the rows that take the step. Each row may append `keys` and ask `queries`.
    """
    other, row_numbers, chosen = turn.other, turn.rows, caches.of(turn)
    held_count, most = min(state.count for state in chosen), min(state.most for state in chosen)
    space = min(keys if state.space is None else state.space for state in chosen)
    chunk = choose.among(_LONG if keys > _MANY else _CHUNKS)
    counts = {
        "append": (min(chunk, keys, space),),
        "attend": (min(choose.among((1, chunk, held_count)), queries), 1),
        "rollback": (min(choose.among((1, 2, 3, most)), most),),
        "evict": (min(choose.among((1, 2, chunk)), most),),
    }
    for step_name, numbers in counts.items():
        steps = [
            Step(step_name, count, other, rows=row_numbers)
            for count in numbers
            if count > 0 and _is_offered(step_name, offers) and (step_name != "attend" or count <= queries)
        ]
        yield from [option for option in steps if caches.is_plain(option) and not caches.refuses(option)][:1]
    first_refused = next(
        count for count in range(1, held_count + 2) if any(state.refuses(Step("attend", count)) for state in chosen)
    )
    beyond = {
        "append": (space + 1,),
        "attend": (first_refused, held_count + 1),
        "rollback": (most + 1,),
        "evict": (most + 1,),
    }
    steps = [
        Step(step_name, count, other, True, row_numbers)
        for step_name, numbers in beyond.items()
        for count in numbers
        if count > 0 and _is_offered(step_name, offers)
    ]
    if caches.batch > 1:
        steps += [*_impossible(offers, caches.batch, other, choose)]
    steps = [option for option in steps if caches.is_plain(option) and caches.refuses(option)]
    yield from [choose.among(steps)] if steps else []
    yield from [
        option for option in steps if option.name == "attend" and option.n <= held_count
    ]  # a ring has lost these positions
    if "poison" in offers:
        yield replace(turn, rows=())
    if any(state.end for state in caches.rows[other]):
        yield Step("restart", other=other)
        if caches.batch > 1:
            yield from _moves(offers, caches.batch, other, choose)


def _moves(offers: frozenset[str], batch: int, other: bool, choose: Choices) -> Iterator[Step]:
    """Yield one step of each kind that copies or empties whole rows. Beams mostly repeat."""
    first, second = (choose.integer(0, batch - 1) for _ in range(2))
    beam_index = choose.integers(0, batch - 1, batch) if choose.happens(0.7) else choose.order(batch)
    moves = {"fork": (first, second), "reorder": tuple(map(int, beam_index)), "free": (first,)}
    yield from (
        Step(step_name, other=other, rows=row_numbers)
        for step_name, row_numbers in moves.items()
        if step_name in offers
    )


def _impossible(offers: frozenset[str], batch: int, other: bool, choose: Choices) -> Iterator[Step]:
    """Yield steps that name a row twice, a row that does not exist, or too few rows."""
    row = choose.integer(0, batch - 1)
    steps = [
        Step("append", 1, other, True, (row, row)),
        Step("attend", 1, other, True, (row, batch)),
        Step("fork", 0, other, True, (batch, row)),
        Step("reorder", 0, other, True, (row,) * (batch - 1)),
        Step("free", 0, other, True, (batch,)),
    ]
    yield from [option for option in steps if _is_offered(option.name, offers)]


def _is_offered(step_name: str, offers: frozenset[str]) -> bool:
    return step_name in ("append", "attend") or step_name in offers


_Kept = list[tuple[int, Step]]
"""Some steps of a program, each with its place in the whole program."""


def shorter(operation: Operation, implementation: Implementation, case: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield cases (test inputs) with shorter programs of steps, the largest cuts first, with fewer
    rows and heads, and with simpler options. In each of them the same steps are refused.
    """
    steps, batch = parse(case["steps"]), case.get("batch", 1)
    kept_steps = list(enumerate(steps))
    options = [
        step_name for step_name in operation.options if step_name not in ("capacity", "window", "prefix", "rotates")
    ]
    settings: list[dict[str, Any]] = [
        {},
        *({step_name: None} for step_name in options if case[step_name] is not None),
        *({step_name: value} for step_name in ("capacity", "window", "prefix") for value in _less(case.get(step_name))),
    ]
    if "batch" in case and len(case["q"]) > 1:
        of_heads = [name for name in ("q", "k", "v", "sink", "alibi") if case[name] is not None]
        yield {**case, **{name: case[name][:1] for name in of_heads}}
    for row in range(batch if batch > 1 else 0):
        if (remaining := _without_row(kept_steps, row, batch)) is not None:
            program = written([_renumbered(option, row) for _, option in remaining])
            row_numbers = rows_of_part(steps, remaining, batch)
            changed = {**case, "batch": batch - 1, "steps": program, **_cut(case, row_numbers)}
            if _is_legal(operation, implementation, changed):
                yield changed
    for fewer_steps in (*_fewer(kept_steps, batch), kept_steps):
        for setting in settings if len(fewer_steps) == len(kept_steps) else settings[:1]:
            program = written([option for _, option in fewer_steps])
            changed = {**case, **setting, "steps": program, **_cut(case, rows_of_part(steps, fewer_steps, batch))}
            if (setting or program != case["steps"]) and _is_legal(operation, implementation, changed):
                yield changed


def _without_row(kept: _Kept, row: int, batch: int) -> _Kept | None:
    """Return the steps of the other rows, with the numbers that these rows have; None if another row
    becomes a copy of this one.
    """
    remaining: _Kept = []
    for place, option in kept:
        if option.name == "fork" and option.rows[0] == row != option.rows[1]:
            return None
        if option.name == "reorder":
            row_numbers = tuple(source for target, source in enumerate(option.rows) if target != row)
            if row in row_numbers:
                return None
        elif option.name == "fork":
            row_numbers = () if row in option.rows else option.rows
        else:
            row_numbers = tuple(each for each in option.rows_of(batch) if each != row)
        if row_numbers or option.name in ("poison", "restart"):
            remaining.append((place, replace(option, rows=() if option.name in ("poison", "restart") else row_numbers)))
    return remaining


def _renumbered(option: Step, row: int) -> Step:
    """Return the same step of a cache that lacks a row."""
    return replace(option, rows=tuple(each - (each > row) for each in option.rows))


def _less(value: int | None) -> tuple[int | None, ...]:
    """Return None and smaller numbers down to 1. For None, return nothing."""
    return (
        ()
        if value is None
        else (None, *dict.fromkeys(smaller for smaller in (1, value // 2, value - 1) if 0 < smaller < value))
    )


def _is_legal(operation: Operation, implementation: Implementation, case: Mapping[str, Any]) -> bool:
    state = held_of(case, implementation.of_caches(operation.name), implementation.resolved_conventions)
    return is_legal(parse(case["steps"]), state, case.get("batch", 1))


def _fewer(kept: _Kept, batch: int) -> Iterator[_Kept]:
    """Yield parts of a program of steps: without one of the caches, without a run of steps, without
    two steps, with a step of fewer rows, and with a step of fewer positions. Each step comes with its
    position in the whole program.
    """
    yield [numbered_step for numbered_step in kept if not numbered_step[1].other]
    yield [(place, replace(option, other=False)) for place, option in kept if option.other]
    length = len(kept)
    while length > 1:
        length = -(-length // 2)
        yield from (kept[:start] + kept[start + length :] for start in range(0, len(kept), length))
    yield from (
        [numbered_step for numbered_step in kept if numbered_step not in removed_pair]
        for removed_pair in combinations(kept, 2)
    )
    for program_index, (place, option) in enumerate(kept):
        for row in option.rows_of(batch) if batch > 1 and option.name in COUNTED else ():
            row_numbers = tuple(each for each in option.rows_of(batch) if each != row)
            if row_numbers:
                yield [*kept[:program_index], (place, replace(option, rows=row_numbers)), *kept[program_index + 1 :]]
        for count in dict.fromkeys((1, option.n // 2, option.n - 1)):
            if 0 < count < option.n:
                yield [*kept[:program_index], (place, replace(option, number=count)), *kept[program_index + 1 :]]
    counted = [(program_index, option) for program_index, (_, option) in enumerate(kept) if option.n > 1]
    for removed_pair in combinations(counted, 2):
        for decrement in dict.fromkeys((min(option.n for _, option in removed_pair) - 1, 1)):
            smaller = {
                program_index: replace(option, number=option.n - decrement) for program_index, option in removed_pair
            }
            yield [(place, smaller.get(program_index, option)) for program_index, (place, option) in enumerate(kept)]


def _cut(case: Mapping[str, Any], row_numbers: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arrays q, k and v of a case (test input), cut to the given rows."""
    parts = {"q": row_numbers["attend"], "k": row_numbers["append"], "v": row_numbers["append"]}
    return {step_name: case[step_name][..., part, :] for step_name, part in parts.items()}
