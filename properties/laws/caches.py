"""Laws of key-value caches: two programs of steps that leave a cache in the same state give the
same results.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from oracles.ball import Array
from properties.contract.cache_programs import Step, attends, is_legal, parse, rows_of_part, written
from properties.contract.caches import held_of, left_bound
from properties.contract.implementation import Implementation
from properties.contract.results import results_of
from properties.contract.subject import Subject
from properties.laws.law import Laws
from properties.strategies.choices import Choices

law = Laws()
DECODE = "decode"
_RINGS = ("everyday", "rings")


class Decoding(NamedTuple):
    """The arguments of `decode`: arrays, a program of steps such as "append 3; attend 2", and the
    kind of cache.
    """

    q: Array
    k: Array
    v: Array
    steps: str
    window: Any
    capacity: Any
    rotates: Any

    @property
    def program(self) -> list[Step]:
        """The steps of the program, parsed."""
        return list(parse(self.steps))

    def is_legal(self, subject: Subject, steps: Sequence[Step]) -> bool:
        """Return whether a program of these steps is legal for this kind of cache."""
        offered, conventions = subject.implementation.of_caches, subject.conventions
        return is_legal(steps, held_of(self.window, self.capacity, offered, conventions))

    def drawn(self, choose: Choices, count: int) -> tuple[Array, Array, Array]:
        """Return `count` new rows of keys, of values and of queries."""
        key, value, query = (choose.grid((count, rows.shape[1])) for rows in (self.k, self.v, self.q))
        return key, value, query


def _offers(*names: str) -> Callable[[Implementation], str]:
    return lambda implementation: implementation.lacks_of_caches(*names)


def _check_equal(subject: Subject, program: Any, other: Any, rows: Any) -> None:
    """Check that the results of one program at the given rows equal the results of another program."""
    for first, second in zip(results_of(program), results_of(other), strict=True):
        subject.close(first.ball[rows], second, first.name)


@law(DECODE, domains=_RINGS)
def decoding_equals_prefill(subject: Subject, *arguments: Any) -> None:
    """For every program of cache steps: each attend returns the same rows as one attend over all
    positions on a new cache that gets all visible positions at once. So the result depends neither
    on how the positions are split into steps, nor on earlier steps.
    """
    case = Decoding(*arguments)
    decoded = subject(*case)
    subject.informative_if(len(case.k) > 1)
    for attend in attends(case.program):
        keys, count = list(attend.keys[attend.evicted :]), len(attend.queries)
        rows = slice(attend.queries.start, attend.queries.stop)
        queries = np.concatenate([np.zeros((len(keys) - count, case.q.shape[1])), case.q[rows]])
        at_once = f"append {len(keys)}; attend {len(keys)}"
        prefilled = subject(queries, case.k[keys], case.v[keys], at_once, case.window, None, case.rotates)
        for first, second in zip(results_of(decoded), results_of(prefilled), strict=True):
            subject.close(first.ball[rows], second.ball[len(keys) - count :], first.name)


@law(DECODE, domains=_RINGS, exempts=_offers("rollback"), name="a rolled-back append changes nothing")
def a_rolled_back_append_changes_nothing(subject: Subject, *arguments: Any, choose: Choices) -> bool:
    """For every program, and every place in it: positions that are appended there, perhaps attended
    to, and rolled back, do not change any later result.
    """
    case = Decoding(*arguments)
    program, count = case.program, choose.integer(1, 3)
    asks = choose.happens()
    place = choose.integer(0, len(program) - 1)
    detour = [Step("append", count), *([Step("attend", count)] if asks else []), Step("rollback", count)]
    longer = [*program[:place], *detour, *program[place:]]
    if not case.is_legal(subject, longer):
        return False
    appended, asked = (
        sum(step.n for step in program[:place] if step.name == name and not step.refused)
        for name in ("append", "attend")
    )
    key, value, query = case.drawn(choose, count)
    changed = case._replace(
        q=np.insert(case.q, asked, query, 0) if asks else case.q,
        k=np.insert(case.k, appended, key, 0),
        v=np.insert(case.v, appended, value, 0),
        steps=written(longer),
    )
    rows = np.delete(np.arange(len(case.q) + count * asks), np.arange(asked, asked + count * asks))
    _check_equal(subject, subject(*changed), subject(*case), rows)
    later = [step for step in program[place:] if step.name == "attend"]
    subject.informative_if(any(not (step.other or step.refused) for step in later))
    return True


@law(
    DECODE,
    domains=("rings",),
    exempts=_offers("ring", "rollback"),
    effort=0.3,
    name="a ring buffer refuses to attend to overwritten positions",
)
def a_ring_refuses_overwritten_positions(subject: Subject, *arguments: Any, choose: Choices) -> bool:
    """For every ring buffer that has overwritten positions, rolled back until its window reaches
    them: it refuses to attend. After as many positions are appended again, it gives the results of
    a new cache.
    """
    case = Decoding(*arguments)
    left, capacity = left_bound(case.window, subject.conventions), case.capacity
    if left is None or capacity is None or capacity <= left:
        return False
    more, back = choose.integer(1, capacity), choose.integer(capacity - left, capacity)
    count = capacity + more
    key, value, query = case.drawn(choose, count)
    again = slice(count - back, count)
    steps = f"append {capacity}; append {more}; rollback {back}; attend 1 refused; append {back}; attend 1"
    keys, values = np.concatenate([key, key[again]]), np.concatenate([value, value[again]])
    ring = subject(query[-1:], keys, values, steps, case.window, capacity, case.rotates)
    new = subject(query[-1:], key, value, f"append {count}; attend 1", case.window, None, case.rotates)
    _check_equal(subject, new, ring, slice(None))
    return True


@law(DECODE, exempts=_offers("evict"))
def evicted_positions_do_not_change_later_results(subject: Subject, *arguments: Any, choose: Choices) -> bool:
    """For every cut of the positions, and every number of the oldest positions: if they are evicted
    at the cut, later results are the results of a cache that never had them.
    """
    case = Decoding(*arguments)
    count = len(case.k)
    if count < 2:
        return False
    cut = choose.integer(1, count - 1)
    gone = choose.integer(1, cut)
    asked = choose.integer(1, min(count - gone, len(case.q)))
    last = f"append {count - cut}; attend {asked}"
    first = f"append {cut - gone}; " if cut > gone else ""
    evicting = case._replace(q=case.q[:asked], steps=f"append {cut}; evict {gone}; {last}", capacity=None)
    without = evicting._replace(k=case.k[gone:], v=case.v[gone:], steps=first + last)
    _check_equal(subject, subject(*evicting), subject(*without), slice(None))
    return True


@law(DECODE)
def two_caches_share_no_state(subject: Subject, *arguments: Any) -> bool:
    """For every program: the first cache gives the same results without the steps of the second cache."""
    return _check_without(subject, arguments, lambda step: step.other)


@law(DECODE, exempts=_offers("poison"))
def the_content_of_unused_slots_does_not_matter(subject: Subject, *arguments: Any) -> bool:
    """For every program: the results are the same, whether unused slots are overwritten or not."""
    return _check_without(subject, arguments, lambda step: step.name == "poison")


@law(DECODE, domains=_RINGS)
def a_refused_step_changes_nothing(subject: Subject, *arguments: Any) -> bool:
    """For every program: all other steps give the same results without the steps that are refused
    by a ValueError.
    """
    return _check_without(subject, arguments, lambda step: step.refused)


@law(DECODE, domains=_RINGS)
def attending_does_not_change_a_cache(subject: Subject, *arguments: Any) -> bool:
    """For every program: the last attend, and equal ones, give the same results without all other attends."""
    last = [step for step in Decoding(*arguments).program if step.name == "attend" and not step.refused][-1]
    return _check_without(subject, arguments, lambda step: step.name == "attend" and step != last)


@law(DECODE)
def a_restart_empties_the_cache(subject: Subject, *arguments: Any) -> None:
    """For every program, run twice with a restart between the runs: the second run gives the
    results of the first run.
    """
    case = Decoding(*arguments)
    twice = case._replace(
        q=np.concatenate([case.q, case.q]),
        k=np.concatenate([case.k, case.k]),
        v=np.concatenate([case.v, case.v]),
        steps=f"{case.steps}; restart; other restart; {case.steps}",
    )
    _check_equal(subject, subject(*twice), subject(*case), slice(len(case.q), None))


def _check_without(subject: Subject, arguments: tuple[Any, ...], goes: Callable[[Step], bool]) -> bool:
    """Check that a program gives the same results when the steps for which `goes` is true are left
    out.

    Returns False if no step is left out, or if the shorter program is not legal.
    """
    case = Decoding(*arguments)
    remaining = [(place, step) for place, step in enumerate(case.program) if not goes(step)]
    steps = [step for _, step in remaining]
    if len(remaining) == len(case.program) or not case.is_legal(subject, steps):
        return False
    rows = rows_of_part(case.program, remaining)
    appended, asked = rows["append"], rows["attend"]
    shorter = case._replace(q=case.q[asked], k=case.k[appended], v=case.v[appended], steps=written(steps))
    _check_equal(subject, subject(*case), subject(*shorter), asked)
    return True
