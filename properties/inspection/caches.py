"""Which stored rows each query of a cache reads, measured from outside.

All keys and queries are 0, so all visible positions have equal weights. Each row of keys that a
program appends has its own column of v, so it says its position and its version: a position that is
appended again after a rollback has another row of keys. The error limit of each weight says what is
wrong.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np

from properties.contract.cache_programs import Step, parse, parts_of_arrays
from properties.contract.cache_states import Caches, Held, is_legal
from properties.contract.caches import held_of
from properties.contract.results import BrokenError
from properties.inspection.places import spanned
from properties.inspection.probe import Probe, Reading
from properties.inspection.reads import LEAST_SHARE
from properties.inspection.shapes import Shape

__all__ = ["Program", "caches", "sentences_of_caches"]

_BEAMS = {"batch": 3}
_PROGRAMS: tuple[tuple[tuple[str, ...], dict[str, Any], str], ...] = (
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
    ((), _BEAMS, "append 2 rows 0; append 5 rows 1; append 1 rows 2; append 1; attend 1; append 2; attend 2"),
    ((), _BEAMS, "append 3; append 2 rows 2 0; attend 1 rows 2 0; append 1 rows 0 1; attend 1"),
    (("reorder",), _BEAMS, "append 3 rows 0; append 2 rows 1; append 1 rows 2; reorder 1 0 0; append 1; attend 1"),
    (("reorder",), _BEAMS, "append 2; attend 1; reorder 2 0 1; attend 1; append 1; reorder 0 0 1; append 1; attend 1"),
    (("fork",), _BEAMS, "append 5 rows 0; append 2 rows 1; fork 0 1; append 1 rows 0 1; attend 1 rows 0 1"),
    (("fork",), _BEAMS, "append 3 rows 1; fork 1 0; append 1 rows 0; append 1 rows 1; attend 1 rows 0"),
    (("free",), _BEAMS, "append 4; free 1; append 2 rows 1; attend 2 rows 1; append 1; attend 1"),
    (("rollback",), _BEAMS, "append 4; append 1 rows 2; rollback 2 rows 0 2; append 1; attend 1; append 1; attend 2"),
    (("rollback",), _BEAMS, "append 1 rows 0; append 4 rows 1 2; rollback 3 refused; attend 1; append 1; attend 1"),
    (("window", "prefix"), {**_BEAMS, "window": 2, "prefix": 2}, "append 4; append 3 rows 1; append 2; attend 2"),
    (
        ("window", "prefix", "capacity", "ring"),
        {**_BEAMS, "window": 2, "prefix": 1, "capacity": 5},
        "append 3; append 2 rows 0; append 3 rows 1; append 1; attend 1; append 4 rows 2; attend 1",
    ),
    (("evict", "prefix"), {**_BEAMS, "prefix": 1}, "append 5; evict 2 rows 1; append 1; attend 1"),
    (("prefix",), {**_BEAMS, "prefix": 3}, "append 4; attend 4"),
    (("causal",), {**_BEAMS, "causal": False}, "append 3; append 2 rows 1; attend 3"),
    (("alibi",), {**_BEAMS, "alibi": np.array([0.25])}, "append 2 rows 0; append 5 rows 1; append 1; attend 1"),
    (("sink",), {**_BEAMS, "sink": np.zeros(1)}, "append 3; attend 3; append 1; attend 1"),
)  # fmt: skip
"""Programs, each with the features of caches that it needs, and the options of the caches. Programs
with `batch` are for batched caches. The others run on both kinds, and then with two rows.
"""

_OF_HEADS = {"alibi", "sink"}
_MOST_SENTENCES = 3
_NOUNS = {"evict": "eviction"}
_READS, _MISSES, _IS = ("reads", "read"), ("misses", "miss"), ("is", "are")
_NEAR = 0.01  # relative: how near two weights are the same


@dataclass(frozen=True)
class Row:
    """A stored row of keys: the step that appended it, from 1, its cache, its row of the cache, and
    its position there.
    """

    step: int
    other: bool
    row: int
    position: int


@dataclass(frozen=True)
class Query:
    """A query: its step, from 1, its number in the step, its cache, its row there, and its position.

    fates   what happened before to each row of keys that its row does not hold any more: "rollback",
            "restart", "evict", "free", "fork" or "reorder"
    owners  the other rows of its cache that hold a row of keys now
    """

    step: int
    number: int
    other: bool
    row: int
    position: int
    fates: dict[int, str]
    owners: dict[int, int]


@dataclass(frozen=True)
class Program:
    """The weight that each query of a program gives to each appended row.

    is_own    whether it is the program of the call
    options   the options of its caches
    steps     the steps
    rows      the appended rows, in order
    queries   the queries, in order
    reading   one row for each query, one column for each appended row
    """

    is_own: bool
    options: dict[str, Any]
    steps: tuple[Step, ...]
    rows: tuple[Row, ...]
    queries: tuple[Query, ...]
    reading: Reading

    @property
    def has_batch(self) -> bool:
        """Whether the caches have several rows."""
        return int(self.options.get("batch", 1)) > 1


def caches(probe: Probe, shape: Shape) -> tuple[Program, ...]:
    """Measure what the queries read in the program of a shape, and then in other programs that the
    caches can run, up to a program that fails after a wrong one. Raises as `Probe.results`.
    """
    found: list[Program] = []
    for is_own, program in _shapes(probe, shape):
        steps = parse(program.arguments["steps"])
        options = {name: value for name, value in program.arguments.items() if name not in ("steps", "rotates")}
        key_rows, queries = _history(steps, options)
        blocks = [
            np.arange(key_row, len(key_rows) * program.sizes.get("kv_heads", 1), len(key_rows))
            for key_row in range(len(key_rows))
        ]
        try:
            (reading,) = probe.weights(program, blocks, {})
        except BrokenError as broken:
            if any(earlier.reading.wrong.any() for earlier in found):
                break
            raise BrokenError(f"{_start(is_own, options, steps)}{broken}", broken.excess) from None
        first_head = Reading(*(array[: len(queries)] for array in reading))
        found.append(Program(is_own, options, steps, key_rows, queries, first_head))
    return tuple(found)


def _shapes(probe: Probe, shape: Shape) -> Iterator[tuple[bool, Shape]]:
    """The shapes of the programs that are measured, and whether it is the given one, the first."""
    operation = probe.operation
    offered, conventions = probe.caller.implementation.of_caches(operation.name), probe.caller.conventions
    yield True, _resized(probe, shape, shape.arguments)
    for needs, options, text in _PROGRAMS:
        if not offered.issuperset(needs) or ("batch" in options and "batch" not in operation.parameters):
            continue
        given = {"steps": text, **({"batch": 2} if "batch" in operation.parameters else {}), **options}
        program = _resized(probe, shape, given)
        held = held_of(given, offered, conventions)
        if is_legal(parse(text), held, given.get("batch", 1)) and probe.takes(program):
            yield False, program


def _resized(probe: Probe, shape: Shape, options: Mapping[str, Any]) -> Shape:
    """The shape for a program, with a column of v for each row if that is taken."""
    key_rows, queries = _history(parse(options["steps"]), options)
    kept = {name: value for name, value in shape.arguments.items() if name == "rotates"}
    sizes = {"n_q": len(queries), "n_k": len(key_rows)}
    is_given = _OF_HEADS & {*options} <= {*shape.arguments}
    heads = {} if is_given else {"num_heads": 1, "kv_heads": 1}
    plain = replace(shape, arguments={})
    program = replace(plain.changed(probe.operation, None, **sizes, **heads), arguments={**kept, **options})
    wider = program.changed(probe.operation, None, value_dim=max(len(key_rows), program.sizes["value_dim"]))
    return wider if probe.takes(wider) else program


def _history(steps: Sequence[Step], options: Mapping[str, Any]) -> tuple[tuple[Row, ...], tuple[Query, ...]]:
    """The appended rows of keys and the queries of a program."""
    batch = options.get("batch", 1)
    caches, parts = Caches(Held(prefix=options.get("prefix") or 0), batch), parts_of_arrays(steps, batch)
    key_rows, queries = list[Row](), list[Query]()
    fates = {(other, key_row): dict[int, str]() for other in (False, True) for key_row in range(batch)}
    for place, step in enumerate(steps):
        if step.refused or step.name == "poison":
            continue
        before, other = caches.rows[step.other], step.other
        for key_row, part in zip(step.rows_of(batch), parts.get(place, ()), strict=False):
            end = before[key_row].end
            if step.name == "append":
                key_rows += [Row(place + 1, other, key_row, end + number) for number in range(len(part))]
            else:
                owners = {key: each for each in range(batch) if each != key_row for key in _kept(before[each])}
                queries += [
                    Query(place + 1, number, other, key_row, end - len(part) + number, fates[other, key_row], owners)
                    for number in range(len(part))
                ]
        caches.take(step, parts.get(place, ()))
        old, source_of = dict(fates), _sources(step)
        for key_row, held in enumerate(caches.rows[other]):
            lost = {*_kept(before[key_row])}.difference(_kept(held))
            kept_fates = old[other, source_of.get(key_row, key_row)]
            fates[other, key_row] = {**kept_fates, **dict.fromkeys(lost, step.name)}
    return tuple(key_rows), tuple(queries)


def _sources(step: Step) -> dict[int, int]:
    """The rows of a cache that become what other rows were, each with the other row."""
    if step.name == "fork":
        return {step.rows[1]: step.rows[0]}
    return dict(enumerate(step.rows)) if step.name == "reorder" else {}


def _kept(held: Held) -> tuple[int, ...]:
    """The rows of keys that a row of a cache holds."""
    return (*held.keys[: held.prefix], *held.keys[held.first :])


def sentences_of_caches(found: Sequence[Program]) -> tuple[str, ...]:
    """What the queries of the first program read otherwise than they should, in sentences; () if no
    query of any program does, or nearly.
    """
    differences = (_sentences(program) for program in found if program.reading.wrong.any())
    return tuple(next(filter(None, differences), [])[:_MOST_SENTENCES])


def _sentences(program: Program) -> list[str]:
    """The sentences about a program: one for neighbouring queries of a step and a row with the same
    mistake.
    """
    wrong = [int(index) for index in np.flatnonzero(program.reading.wrong.any(1))]
    said = [(program.queries[index], differences) for index in wrong if (differences := _difference(program, index))]
    sentences = []
    for (step, key_row, differences), pairs in groupby(said, key=lambda pair: (pair[0].step, pair[0].row, pair[1])):
        numbers = [query.number for query, _ in pairs]
        is_whole = program.has_batch and len(numbers) == program.steps[step - 1].n
        predicate = " and ".join(f"{verbs[len(numbers) > 1 and not is_whole]} {rest}" for verbs, rest in differences)
        queries = spanned(numbers, "query")
        subject = f"row {key_row}" if is_whole else f"{queries} of row {key_row}" if program.has_batch else queries
        sentences.append(f"in step {step} ({program.steps[step - 1]}) {subject} {predicate}.")
    first = f"{_start(program.is_own, program.options, program.steps)}{sentences[0]}" if sentences else ""
    return [f"{each[0].upper()}{each[1:]}" for each in (first, *sentences[1:]) if each]


def _start(is_own: bool, options: Mapping[str, Any], steps: Sequence[Step]) -> str:
    """The words before a sentence on a program that is not the program of the call."""
    words = "".join(
        f"{name}={value.tolist() if isinstance(value, np.ndarray) else value}, " for name, value in options.items()
    )
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
        f"{_positions(program, key_rows)} {reason}"
        for reason, key_rows in _by_reason(program, program.queries[index], surplus).items()
    ]
    differences = [(_READS, " and ".join(parts))] if parts else []
    differences += [(_MISSES, _positions(program, missing))] if missing else []
    if differences:
        return tuple(differences)
    total, due_total = float(measured.sum()), float(expected.sum())
    if abs(total - due_total) > _NEAR:
        return (
            (_READS, f"the right positions, but with weights that add up to {total:.4g}, should be {due_total:.4g}"),
        )
    return ((_READS, "the right positions with other weights"),)


def _positions(program: Program, key_rows: Sequence[int]) -> str:
    return spanned(sorted({program.rows[key_row].position for key_row in key_rows}), "position")


def _by_reason(program: Program, query: Query, key_rows: Sequence[int]) -> dict[str, list[int]]:
    """Rows that a query should not read, by the reason, in words after their positions."""
    found: dict[str, list[int]] = {}
    for index in key_rows:
        key_row, fate = program.rows[index], query.fates.get(index)
        reason = (
            f"of the {'other' if key_row.other else 'first'} cache" if key_row.other != query.other
            else f"from before the {_NOUNS.get(fate, fate)}" if fate
            else f"of row {query.owners[index]}" if index in query.owners
            else "from a later step" if key_row.step > query.step
            else f"of row {key_row.row}, which no row holds any more" if key_row.row != query.row
            else "after its own position" if key_row.position > query.position
            else "before its window"
        )  # fmt: skip
        found.setdefault(reason, []).append(index)
    return found
