"""Laws of key-value caches: two programs of steps that leave a cache in the same state give the
same results.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from oracles.ball import Array
from properties.contract.cache_programs import Step, parse, parts_of_arrays, rows_of_part, written
from properties.contract.cache_states import Caches, Held, attends, is_legal, played
from properties.contract.caches import held_of, left_bound
from properties.contract.implementation import Implementation
from properties.contract.operations import OPERATIONS, Arguments
from properties.contract.results import results_of
from properties.contract.subject import Subject
from properties.laws.law import Body, Laws
from properties.strategies.choices import Choices

law = Laws()
DECODE, BATCHED = "decode", "batched_decode"
_RINGS = ("everyday", "rings")


@dataclass(frozen=True)
class Decoding:
    """The arguments of `decode` or `batched_decode`, by name: arrays, a program of steps such as
    "append 3; attend 2", and the options of the caches.
    """

    subject: Subject
    arguments: dict[str, Any]

    def __getattr__(self, name: str) -> Any:
        return self.arguments[name]

    def changed(self, **arguments: Any) -> "Decoding":
        """Return the same call with other arguments."""
        return Decoding(self.subject, {**self.arguments, **arguments})

    def results(self) -> Any:
        """Make the call, and return its results."""
        return self.subject(*self.arguments.values())

    @property
    def program(self) -> list[Step]:
        """The steps of the program, parsed."""
        return list(parse(self.steps))

    @property
    def rows(self) -> int:
        """The number of rows of each cache; 1 for a cache of one head."""
        return int(self.arguments.get("batch", 1))

    @property
    def first_row(self) -> str:
        """The words after a number of positions in a step of row 0 alone."""
        return " rows 0" if "batch" in self.arguments else ""

    @property
    def empty(self) -> Held:
        """The state of a new row."""
        offers = self.subject.implementation.of_caches(self.subject.operation)
        return held_of(self.arguments, offers, self.subject.conventions)

    def is_legal(self, steps: Sequence[Step]) -> bool:
        """Return whether a program of these steps is legal for this kind of cache."""
        return is_legal(steps, self.empty, self.rows)

    def drawn(self, choose: Choices, count: int) -> tuple[Array, Array, Array]:
        """Return `count` new rows of keys, of values and of queries."""
        key, value, query = (choose.grid((*x.shape[:-2], count, x.shape[-1])) for x in (self.k, self.v, self.q))
        return key, value, query


def _case(subject: Subject, arguments: Arguments) -> Decoding:
    return Decoding(subject, OPERATIONS[subject.operation].named(arguments))


def cache_law(
    *offers: str, of: Sequence[str] = (DECODE, BATCHED), one_is_enough: bool = False, **entry: Any
) -> Callable[[Body], Body]:
    """Return the decorator for a law about caches that have these optional features, or one of them."""

    def exempts(operation: str) -> Callable[[Implementation], str]:
        def lacks(implementation: Implementation) -> str:
            has_one = bool({*offers} & implementation.of_caches(operation))
            return "" if one_is_enough and has_one else implementation.lacks_of_caches(operation, *offers)

        return lacks

    def register(body: Body) -> Body:
        for operation in of:
            law(operation, exempts=exempts(operation), **entry)(body)
        return body

    return register


def _check_equal(subject: Subject, program: Any, other: Any, rows: Any) -> None:
    """Check that the results of one program at the given rows equal the results of another program."""
    for first, second in zip(results_of(program), results_of(other), strict=True):
        subject.close(_at(first, rows), second, first.name)


def _at(result: Any, rows: Any) -> Any:
    """Return the numbers of a result, with their error limits, at some rows."""
    return result.ball[(..., rows) if result.name == "lse" else (..., rows, slice(None))]


@cache_law(domains=_RINGS)
def decoding_equals_prefill(subject: Subject, *arguments: Any) -> bool:
    """For every program of cache steps: each attend returns the same rows as one attend over all
    positions on a new cache that gets all visible positions at once. So the result depends neither
    on how the positions are split into steps, nor on earlier steps. The new cache of a single query
    behind a prefix gets the prefix and the window of the query, and has no window itself.
    """
    decoding = _case(subject, arguments)
    decoded, prefix, left = decoding.results(), decoding.empty.prefix, decoding.empty.left
    compared = 0
    for attend in attends(decoding.program, decoding.rows, prefix):
        start, window = attend.held.first, decoding.window
        if prefix and left is not None and len(attend.queries) == 1:  # it sees the prefix and its window
            start, window = max(start, attend.held.end - 1 - left), None
        if start > prefix > 0 and decoding.arguments.get("alibi") is not None:
            continue  # the distances to the prefix would change
        keys = [*attend.held.keys[:prefix], *attend.held.keys[start:]]
        rows, n = slice(attend.queries.start, attend.queries.stop), len(keys)
        padding = np.zeros((*decoding.q.shape[:-2], n - len(attend.queries), decoding.q.shape[-1]))
        prefilled = decoding.changed(
            q=np.concatenate([padding, decoding.q[..., rows, :]], -2),
            k=decoding.k[..., keys, :],
            v=decoding.v[..., keys, :],
            steps=f"append {n}{decoding.first_row}; attend {n}{decoding.first_row}",
            window=window,
            capacity=None,
        ).results()
        last = slice(n - len(attend.queries), None)
        for first, second in zip(results_of(decoded), results_of(prefilled), strict=True):
            subject.close(_at(first, rows), _at(second, last), first.name)
        compared += 1
    subject.informative_if(decoding.k.shape[-2] > 1)
    return compared > 0


@cache_law("rollback", domains=_RINGS, name="a rolled-back append changes nothing")
def a_rolled_back_append_changes_nothing(subject: Subject, *arguments: Any, choose: Choices) -> bool:
    """For every program, and every place in it: positions that are appended there, perhaps attended
    to, and rolled back, do not change any later result.
    """
    decoding, count = _case(subject, arguments), choose.integer(1, 3)
    asks = choose.happens()
    program_place = choose.integer(0, len(decoding.program) - 1)
    detour = [Step("append", count), *([Step("attend", count)] if asks else []), Step("rollback", count)]
    return _check_detour(decoding, program_place, detour, choose)


@cache_law("free", of=(BATCHED,))
def a_freed_row_is_like_a_new_row(subject: Subject, *arguments: Any, choose: Choices) -> bool:
    """For every program: positions that are first appended to all rows, perhaps attended to, and
    freed, do not change any later result.
    """
    decoding, count = _case(subject, arguments), choose.integer(1, 5)
    asks = [Step("attend", count)] if choose.happens() else []
    frees = [Step("free", rows=(row,)) for row in choose.order(decoding.rows).tolist()]
    return _check_detour(decoding, 0, [Step("append", count), *asks, *frees], choose)


@cache_law("reorder", of=(BATCHED,), domains=_RINGS)
def a_reorder_and_its_inverse_change_nothing(subject: Subject, *arguments: Any, choose: Choices) -> bool:
    """For every program, and every place in it: a permutation of the rows and the inverse permutation
    do not change any later result.
    """
    decoding = _case(subject, arguments)
    program_place, order = choose.integer(0, len(decoding.program) - 1), choose.order(decoding.rows)
    detour = [Step("reorder", rows=tuple(index.tolist())) for index in (order, np.argsort(order))]
    return decoding.rows > 1 and _check_detour(decoding, program_place, detour, choose)


@cache_law("fork", "free", of=(BATCHED,), domains=_RINGS)
def a_fork_shares_no_state_with_its_source(subject: Subject, *arguments: Any, choose: Choices) -> bool:
    """For every program, and every place in it where a row is empty: a copy of another row in the
    empty row, appends to the copy and a free of the copy do not change any later result.
    """
    decoding = _case(subject, arguments)
    places = [
        (program_place, source, target)
        for program_place, (_, caches) in enumerate(played(decoding.program, decoding.empty, decoding.rows))
        for source, held in enumerate(caches.rows[False])
        for target, other in enumerate(caches.rows[False])
        if held.end and not other.end
    ]
    if not places:
        return False
    program_place, source, target = choose.among(places)
    count = choose.integer(1, 3)
    detour = [
        Step("fork", rows=(source, target)),
        Step("append", count, rows=(target,)),
        Step("free", rows=(target,)),
    ]
    return _check_detour(decoding, program_place, detour, choose)


@cache_law("prefix", "causal", of=(BATCHED,), one_is_enough=True)
def the_order_of_positions_that_all_queries_see_does_not_matter(
    subject: Subject, *arguments: Any, choose: Choices
) -> bool:
    """For every prefix, and for all positions with causal=False: the same keys and values in another
    order give the same results, without ALiBi.
    """
    decoding = _case(subject, arguments)
    position_count = min(decoding.k.shape[-2], decoding.q.shape[-2])
    if position_count < 2:
        return False
    offers = subject.implementation.of_caches(BATCHED)
    has_prefix = "prefix" in offers and ("causal" not in offers or choose.happens())
    shared = choose.integer(2, position_count) if has_prefix else position_count
    options = {"prefix": shared, "causal": None} if has_prefix else {"prefix": None, "causal": False, "window": None}
    new_order = [*choose.order(shared).tolist(), *range(shared, position_count)]
    plain = decoding.changed(
        **{name: decoding.arguments[name][..., :position_count, :] for name in "qkv"},
        steps=f"append {position_count} rows 0; attend {position_count} rows 0",
        alibi=None,
        capacity=None,
        **options,
    )
    changed = plain.changed(k=decoding.k[..., new_order, :], v=decoding.v[..., new_order, :])
    _check_equal(subject, plain.results(), changed.results(), slice(None))
    return True


def _check_detour(decoding: Decoding, program_place: int, detour: Sequence[Step], choose: Choices) -> bool:
    """Check that a program gives the same results with some more steps at a place, which leave the
    cache as it was. Returns False if the longer program is not legal.
    """
    program, end = decoding.program, program_place + len(detour)
    longer = [*program[:program_place], *detour, *program[program_place:]]
    if not decoding.is_legal(longer):
        return False
    parts = parts_of_arrays(longer, decoding.rows)
    added: dict[str, list[int]] = {"append": [], "attend": []}
    for position in range(program_place, end):
        for part in parts.get(position, ()):
            added[longer[position].name] += part
    drawn_k, drawn_v, drawn_q = decoding.drawn(choose, max(map(len, added.values())))
    changed = decoding.changed(
        q=_with(decoding.q, drawn_q, added["attend"]),
        k=_with(decoding.k, drawn_k, added["append"]),
        v=_with(decoding.v, drawn_v, added["append"]),
        steps=written(longer),
    )
    count = decoding.q.shape[-2] + len(added["attend"])
    rows = np.setdiff1d(np.arange(count), added["attend"])
    _check_equal(decoding.subject, changed.results(), decoding.results(), rows)
    later = [step for step in program[program_place:] if step.name == "attend"]
    decoding.subject.informative_if(any(not (step.other or step.refused) for step in later))
    return True


def _with(array: Array, drawn: Array, places: Sequence[int]) -> Array:
    """Return an array with some of the drawn rows more, which get these places."""
    count = array.shape[-2] + len(places)
    changed = np.zeros((*array.shape[:-2], count, array.shape[-1]))
    changed[..., places, :] = drawn[..., : len(places), :]
    changed[..., np.setdiff1d(np.arange(count), places), :] = array
    return changed


@cache_law(
    "ring",
    "rollback",
    domains=("rings",),
    effort=0.3,
    name="a ring buffer refuses to attend to overwritten positions",
)
def a_ring_refuses_overwritten_positions(subject: Subject, *arguments: Any, choose: Choices) -> bool:
    """For every ring buffer that has overwritten positions, rolled back until its window reaches
    them: it refuses to attend. After as many positions are appended again, it gives the results of
    a new cache.
    """
    decoding = _case(subject, arguments)
    prefix, row = decoding.empty.prefix, decoding.first_row
    left, capacity = left_bound(decoding.window, subject.conventions), decoding.capacity
    if left is None or capacity is None or capacity - prefix <= left:
        return False
    free = capacity - prefix
    more, back = choose.integer(1, free), choose.integer(free - left, free)
    count = capacity + more
    key, value, query = decoding.drawn(choose, count)
    again = slice(count - back, count)
    steps = (
        f"append {capacity}{row}; append {more}{row}; rollback {back}{row}; attend 1{row} refused; "
        f"append {back}{row}; attend 1{row}"
    )
    keys, values = (np.concatenate([x, x[..., again, :]], -2) for x in (key, value))
    ring = decoding.changed(q=query[..., -1:, :], k=keys, v=values, steps=steps)
    new = decoding.changed(
        q=query[..., -1:, :], k=key, v=value, steps=f"append {count}{row}; attend 1{row}", capacity=None
    )
    _check_equal(subject, new.results(), ring.results(), slice(None))
    return True


@cache_law("evict")
def evicted_positions_do_not_change_later_results(subject: Subject, *arguments: Any, choose: Choices) -> bool:
    """For every cut of the positions, and every number of the oldest positions: if they are evicted
    at the cut, later results are the results of a cache that never had them.
    """
    decoding = _case(subject, arguments)
    count, row = decoding.k.shape[-2], decoding.first_row
    if count < 2 or decoding.empty.prefix:
        return False
    cut = choose.integer(1, count - 1)
    gone = choose.integer(1, cut)
    asked = choose.integer(1, min(count - gone, decoding.q.shape[-2]))
    last = f"append {count - cut}{row}; attend {asked}{row}"
    first = f"append {cut - gone}{row}; " if cut > gone else ""
    evicting = decoding.changed(
        q=decoding.q[..., :asked, :], steps=f"append {cut}{row}; evict {gone}{row}; {last}", capacity=None
    )
    without = evicting.changed(k=decoding.k[..., gone:, :], v=decoding.v[..., gone:, :], steps=first + last)
    _check_equal(subject, evicting.results(), without.results(), slice(None))
    return True


@cache_law()
def two_caches_share_no_state(subject: Subject, *arguments: Any) -> bool:
    """For every program: the first cache gives the same results without the steps of the second cache."""
    return _check_without(subject, arguments, lambda step: step.other)


@cache_law("poison")
def the_content_of_unused_slots_does_not_matter(subject: Subject, *arguments: Any) -> bool:
    """For every program: the results are the same, whether unused slots are overwritten or not."""
    return _check_without(subject, arguments, lambda step: step.name == "poison")


@cache_law(domains=_RINGS)
def a_refused_step_changes_nothing(subject: Subject, *arguments: Any) -> bool:
    """For every program: all other steps give the same results without the steps that are refused
    by a ValueError.
    """
    return _check_without(subject, arguments, lambda step: step.refused)


@cache_law(of=(BATCHED,))
def a_step_that_one_row_refuses_changes_no_row(subject: Subject, *arguments: Any, choose: Choices) -> bool:
    """For every program, and every place in it: steps that some rows accept, and that another row
    refuses after them, do not change any later result.
    """
    decoding = _case(subject, arguments)
    names = ("append", "attend", *sorted(subject.implementation.of_caches(BATCHED) & {"rollback", "evict"}))
    found = [
        (program_place, steps)
        for program_place, (_, caches) in enumerate(played(decoding.program, decoding.empty, decoding.rows))
        if (steps := [step for name in names if (step := _refused_by_one(caches, name)) is not None])
    ]
    if not found:
        return False
    most = max(len(steps) for _, steps in found)
    program_place, steps = choose.among([each for each in found if len(each[1]) == most])
    return _check_detour(decoding, program_place, steps, choose)


def _refused_by_one(caches: Caches, name: str) -> Step | None:
    """Return a step that the last of its rows refuses alone; None if all rows accept the same."""
    held = caches.rows[False]
    most = [row.space if name == "append" else row.count if name == "attend" else row.most for row in held]
    limits = [limit for limit in most if limit is not None]
    accepting = [row for row, limit in enumerate(limits) if limit > min(limits)]
    if not accepting:
        return None
    return Step(name, min(limits) + 1, refused=True, rows=(*accepting, limits.index(min(limits))))


@cache_law(domains=_RINGS)
def attending_does_not_change_a_cache(subject: Subject, *arguments: Any) -> bool:
    """For every program: the last attend, and equal ones, give the same results without all other attends."""
    program = _case(subject, arguments).program
    last = [step for step in program if step.name == "attend" and not step.refused][-1]
    return _check_without(subject, arguments, lambda step: step.name == "attend" and step != last)


@cache_law()
def a_restart_empties_the_cache(subject: Subject, *arguments: Any) -> None:
    """For every program, run twice with a restart between the runs: the second run gives the
    results of the first run.
    """
    decoding = _case(subject, arguments)
    twice = decoding.changed(
        **{name: np.concatenate([decoding.arguments[name]] * 2, -2) for name in "qkv"},
        steps=f"{decoding.steps}; restart; other restart; {decoding.steps}",
    )
    _check_equal(subject, twice.results(), decoding.results(), slice(decoding.q.shape[-2], None))


def _check_without(subject: Subject, arguments: Arguments, goes: Callable[[Step], bool]) -> bool:
    """Check that a program gives the same results when the steps for which `goes` is true are left
    out.

    Returns False if no step is left out, or if the shorter program is not legal.
    """
    decoding = _case(subject, arguments)
    remaining = [(program_place, step) for program_place, step in enumerate(decoding.program) if not goes(step)]
    steps = [step for _, step in remaining]
    if len(remaining) == len(decoding.program) or not decoding.is_legal(steps):
        return False
    rows = rows_of_part(decoding.program, remaining, decoding.rows)
    appended, asked = rows["append"], rows["attend"]
    shorter = decoding.changed(
        q=decoding.q[..., asked, :],
        k=decoding.k[..., appended, :],
        v=decoding.v[..., appended, :],
        steps=written(steps),
    )
    _check_equal(subject, decoding.results(), shorter.results(), asked)
    return True
