"""Which stored rows each query of a cache reads, measured from outside.

All keys and queries are 0, so all visible positions have equal weights. Each row that a program
appends has its own column of v, so a row says its position and its version: a position that is
appended again after a rollback has another row. The error limit of each weight says what is wrong.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np

from properties.contract.cache_programs import Step, is_legal, parse
from properties.contract.caches import held_of
from properties.contract.results import BrokenError
from properties.inspection.places import spanned
from properties.inspection.probe import Probe, Reading
from properties.inspection.reads import LEAST_SHARE
from properties.inspection.shapes import Shape

__all__ = ["Program", "caches", "sentences_of_caches"]

_PROGRAMS: tuple[tuple[tuple[str, ...], dict[str, int], str], ...] = (
    ((), {}, "append 5; attend 5; append 1; attend 1; append 3; attend 2"),
    ((), {}, "append 3; other append 2; other attend 1; append 2; attend 2"),
    ((), {}, "append 3; restart; append 2; attend 2"),
    ((), {}, "append 1; attend 1; restart; append 2; attend 1"),
    (("rollback",), {}, "append 6; rollback 2; append 3; attend 2"),
    (("evict",), {}, "append 6; evict 2; append 1; attend 2"),
    (("evict",), {}, "append 6; evict 1; other append 5; attend 2"),
    (("window",), {"window": 2}, "append 5; attend 4; append 1; attend 1"),
    (
        ("window", "capacity", "ring"),
        {"window": 3, "capacity": 6},
        "append 5; attend 2; append 3; attend 2; append 4; attend 1",
    ),
    (("capacity",), {"capacity": 6}, "append 4; append 3 refused; append 2; attend 2; append 1 refused"),
    (("window", "capacity", "ring"), {"window": 3, "capacity": 6}, "append 6; append 3; attend 4 refused; attend 3"),
    (
        ("window", "capacity", "ring", "rollback"),
        {"window": 3, "capacity": 6},
        "append 6; append 3; rollback 2; attend 2 refused; append 2; attend 2",
    ),
)
"""Programs, each with the features of caches that it needs, and its window and capacity."""

_SIZES = ("window", "capacity")
_MOST_SENTENCES = 3
_NOUNS = {"evict": "eviction"}
_READS, _MISSES, _IS = ("reads", "read"), ("misses", "miss"), ("is", "are")
_NEAR = 0.01  # relative: how near two weights are the same


@dataclass(frozen=True)
class Row:
    """A stored row: the step that appended it, from 1, its cache, and its position there."""

    step: int
    other: bool
    position: int


@dataclass(frozen=True)
class Query:
    """A query: its step, from 1, its number in the step, its cache, and its position there.

    fates   what happened before to each appended row that its cache does not hold any more:
            "rollback", "restart" or "evict"
    """

    step: int
    number: int
    other: bool
    position: int
    fates: dict[int, str]


@dataclass(frozen=True)
class Program:
    """The weight that each query of a program gives to each appended row.

    is_own    whether it is the program of the call
    sizes     its window and its capacity, if it has them
    steps     the steps
    rows      the appended rows, in order
    queries   the queries, in order
    reading   one row for each query, one column for each appended row
    """

    is_own: bool
    sizes: dict[str, int]
    steps: tuple[Step, ...]
    rows: tuple[Row, ...]
    queries: tuple[Query, ...]
    reading: Reading


def caches(probe: Probe, shape: Shape) -> tuple[Program, ...]:
    """Measure what the queries read in the program of a shape, and then in other programs that the
    caches can run, up to a program that fails after a wrong one. Raises as `Probe.results`.
    """
    found: list[Program] = []
    for is_own, program in _shapes(probe, shape):
        steps = parse(program.arguments["steps"])
        rows, queries = _history(steps)
        sizes = {name: program.arguments[name] for name in _SIZES if name in program.arguments}
        try:
            (reading,) = probe.weights(program, [np.array([row]) for row in range(len(rows))], {})
        except BrokenError as broken:
            if any(earlier.reading.wrong.any() for earlier in found):
                break
            raise BrokenError(f"{_start(is_own, sizes, steps)}{broken}", broken.excess) from None
        found.append(Program(is_own, sizes, steps, rows, queries, reading))
    return tuple(found)


def _shapes(probe: Probe, shape: Shape) -> Iterator[tuple[bool, Shape]]:
    """The shapes of the programs that are measured, and whether it is the given one, the first."""
    offered, conventions = probe.caller.implementation.of_caches, probe.caller.conventions
    own = {name: shape.arguments[name] for name in ("steps", *_SIZES) if name in shape.arguments}
    others = [{"steps": text, **sizes} for needs, sizes, text in _PROGRAMS if offered.issuperset(needs)]
    for place, options in enumerate([own, *others]):
        program = _resized(probe, shape, options)
        held = held_of(options.get("window"), options.get("capacity"), offered, conventions)
        if place == 0 or (is_legal(parse(options["steps"]), held) and probe.takes(program)):
            yield place == 0, program


def _resized(probe: Probe, shape: Shape, options: dict[str, Any]) -> Shape:
    """The shape for a program, with a column of v for each row if that is taken."""
    rows, queries = _history(parse(options["steps"]))
    kept = {name: value for name, value in shape.arguments.items() if name == "rotates"}
    sizes = {"n_q": len(queries), "n_k": len(rows)}
    program = replace(shape.changed(probe.operation, None, **sizes), arguments={**kept, **options})
    wider = program.changed(probe.operation, None, value_dim=max(len(rows), program.sizes["value_dim"]))
    return wider if probe.takes(wider) else program


def _history(steps: Sequence[Step]) -> tuple[tuple[Row, ...], tuple[Query, ...]]:
    """The appended rows and the queries of a program."""
    rows: list[Row] = []
    queries: list[Query] = []
    held: dict[bool, list[int]] = {False: [], True: []}
    evicted = {False: 0, True: 0}
    fates: dict[bool, dict[int, str]] = {False: {}, True: {}}
    for number, step in enumerate(steps, 1):
        mine = held[step.other]
        if step.refused or step.name == "poison":
            continue
        if step.name == "append":
            added = range(len(rows), len(rows) + step.n)
            rows += [Row(number, step.other, len(mine) + place) for place in range(step.n)]
            mine += added
        elif step.name == "attend":
            first = len(mine) - step.n
            queries += [
                Query(number, place, step.other, first + place, dict(fates[step.other])) for place in range(step.n)
            ]
        else:
            first = {"rollback": len(mine) - step.n, "evict": evicted[step.other], "restart": 0}[step.name]
            lost = mine[first : first + step.n] if step.name == "evict" else mine[first:]
            fates[step.other] |= dict.fromkeys(lost, step.name)
            if step.name == "evict":
                evicted[step.other] += step.n
            else:
                del mine[first:]
            if step.name == "restart":
                evicted[step.other] = 0
    return tuple(rows), tuple(queries)


def sentences_of_caches(found: Sequence[Program]) -> tuple[str, ...]:
    """What the queries of the first program read otherwise than they should, in sentences; () if no
    query of any program does, or nearly.
    """
    told = (_sentences(program) for program in found if program.reading.wrong.any())
    return tuple(next(filter(None, told), [])[:_MOST_SENTENCES])


def _sentences(program: Program) -> list[str]:
    """The sentences about a program: one for neighbouring queries of a step with the same mistake."""
    wrong = [int(index) for index in np.flatnonzero(program.reading.wrong.any(1))]
    said = [(program.queries[index], told) for index in wrong if (told := _difference(program, index))]
    sentences = []
    for (step, told), pairs in groupby(said, key=lambda pair: (pair[0].step, pair[1])):
        numbers = [query.number for query, _ in pairs]
        predicate = " and ".join(f"{verbs[len(numbers) > 1]} {rest}" for verbs, rest in told)
        sentences.append(f"in step {step} ({program.steps[step - 1]}) {spanned(numbers, 'query')} {predicate}.")
    first = f"{_start(program.is_own, program.sizes, program.steps)}{sentences[0]}" if sentences else ""
    return [f"{each[0].upper()}{each[1:]}" for each in (first, *sentences[1:]) if each]


def _start(is_own: bool, sizes: Mapping[str, int], steps: Sequence[Step]) -> str:
    """The words before a sentence on a program that is not the program of the call."""
    words = "".join(f"{name}={size}, " for name, size in sizes.items())
    return "" if is_own else f"With {words}steps «{'; '.join(map(str, steps))}»: "


def _difference(program: Program, index: int) -> tuple[tuple[tuple[str, str], str], ...]:
    """What a query reads otherwise than it should: verbs, each with what follows; () for errors like
    roundings.
    """
    measured, expected = (side[index] for side in program.reading[:2])
    if not np.isfinite(measured).all():
        return ((_IS, "NaN or infinite"),)
    if np.allclose(measured, expected, rtol=0, atol=_NEAR * expected.max(initial=0.0)):
        return ()
    read, due = (np.flatnonzero(np.abs(side) > LEAST_SHARE * np.abs(side).max()) for side in (measured, expected))
    if not len(read):
        return ((_READS, "no appended row"),)
    surplus, missing = np.setdiff1d(read, due).tolist(), np.setdiff1d(due, read).tolist()
    parts = [
        f"{_positions(program, rows)} {reason}"
        for reason, rows in _by_reason(program, program.queries[index], surplus).items()
    ]
    told = [(_READS, " and ".join(parts))] if parts else []
    told += [(_MISSES, _positions(program, missing))] if missing else []
    if told:
        return tuple(told)
    total = float(measured.sum())
    if abs(total - 1) > _NEAR:
        return ((_READS, f"the right positions, but with weights that add up to {total:.4g}, should be 1"),)
    return ((_READS, "the right positions with other weights"),)


def _positions(program: Program, rows: Sequence[int]) -> str:
    return spanned(sorted({program.rows[row].position for row in rows}), "position")


def _by_reason(program: Program, query: Query, rows: Sequence[int]) -> dict[str, list[int]]:
    """Rows that a query should not read, by the reason, in words after their positions."""
    found: dict[str, list[int]] = {}
    for index in rows:
        row, fate = program.rows[index], query.fates.get(index)
        reason = (
            f"of the {'other' if row.other else 'first'} cache" if row.other != query.other
            else f"from before the {_NOUNS.get(fate, fate)}" if fate
            else "from a later step" if row.step > query.step
            else "after its own position" if row.position > query.position
            else "before its window"
        )  # fmt: skip
        found.setdefault(reason, []).append(index)
    return found
