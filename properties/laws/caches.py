"""Laws of caches: what a program of steps gives is what another one gives that has left the same."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

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


def _offers(*names: str) -> Callable[[Implementation], str]:
    return lambda i: i.lacks_of_caches(*names)


def _is_legal(subject: Subject, steps: Sequence[Step], window: int | None, capacity: int | None) -> bool:
    return is_legal(steps, held_of(window, capacity, subject.implementation.of_caches, subject.conventions))


def _equal(subject: Subject, whole: Any, again: Any, rows: Any) -> None:
    """Some rows of what one program gave are what another one gives."""
    for a, b in zip(results_of(whole), results_of(again), strict=True):
        subject.close(a.ball[rows], b, a.name)


@law(DECODE, domains=_RINGS)
def decoding_equals_prefill(
    subject: Subject, q: Any, k: Any, v: Any, steps: str, window: Any, capacity: Any, rotates: Any
) -> None:
    """For every program: each attend gives what the last rows of all positions give, asked at once
    of a new cache that has been given at once what is visible of them: at every cut, after every
    way to get there. Within budget.
    """
    out = subject(q, k, v, steps, window, capacity, rotates)
    subject.informative_if(len(k) > 1)
    for each in attends(parse(steps)):
        keys, n = list(each.keys[each.evicted :]), len(each.queries)
        asked = np.concatenate([np.zeros((len(keys) - n, q.shape[1])), q[each.queries.start : each.queries.stop]])
        whole = subject(asked, k[keys], v[keys], f"append {len(keys)}; attend {len(keys)}", window, None, rotates)
        rows = slice(each.queries.start, each.queries.stop)
        for a, b in zip(results_of(out), results_of(whole), strict=True):
            subject.close(a.ball[rows], b.ball[len(keys) - n :], a.name)


@law(DECODE, domains=_RINGS, exempts=_offers("rollback"))
def a_rollback_is_as_if_nothing_had_been_appended(
    subject: Subject, q: Any, k: Any, v: Any, steps: str, window: Any, capacity: Any, rotates: Any, choose: Choices
) -> bool:
    """For every program, and place in it: positions that are appended there, asked about, and
    rolled back, change nothing that comes later. Within budget.
    """
    known, n = parse(steps), choose.integer(1, 3)
    asks = choose.happens()
    at = choose.integer(0, len(known) - 1)
    detour = [Step("append", n), *([Step("attend", n)] if asks else []), Step("rollback", n)]
    longer = [*known[:at], *detour, *known[at:]]
    if not _is_legal(subject, longer, window, capacity):
        return False
    before = {name: sum(s.n for s in known[:at] if s.name == name and not s.refused) for name in ("append", "attend")}
    new_k, new_v, new_q = (choose.grid((n, x.shape[1])) for x in (k, v, q))
    start, asked = before["append"], before["attend"]
    changed = subject(
        np.insert(q, asked, new_q, 0) if asks else q, np.insert(k, start, new_k, 0), np.insert(v, start, new_v, 0), written(longer), window,
        capacity, rotates,
    )  # fmt: skip
    kept = np.delete(np.arange(len(q) + n * asks), np.arange(asked, asked + n * asks))
    _equal(subject, changed, subject(q, k, v, steps, window, capacity, rotates), kept)
    subject.informative_if(any(step.name == "attend" and not (step.other or step.refused) for step in known[at:]))
    return True


@law(DECODE, domains=("rings",), exempts=_offers("ring", "rollback"), effort=0.3)
def a_ring_refuses_what_is_gone(
    subject: Subject, q: Any, k: Any, v: Any, steps: str, window: Any, capacity: Any, rotates: Any, choose: Choices
) -> bool:
    """For every ring that has let positions go, rolled back until its window looks back to them: it
    refuses to be asked, and gives what a new cache gives as soon as it has been given as many
    again. Within budget.
    """
    left = left_bound(window, subject.conventions)
    if left is None or capacity is None or capacity <= left:
        return False
    more, back = choose.integer(1, capacity), choose.integer(capacity - left, capacity)
    n = capacity + more
    key, value, query = (choose.grid((n, x.shape[1])) for x in (k, v, q))
    rows = slice(n - back, n)
    ring = subject(
        query[-1:], np.concatenate([key, key[rows]]), np.concatenate([value, value[rows]]),
        f"append {capacity}; append {more}; rollback {back}; attend 1 refused; append {back}; attend 1", window, capacity, rotates,
    )  # fmt: skip
    _equal(subject, subject(query[-1:], key, value, f"append {n}; attend 1", window, None, rotates), ring, slice(None))
    return True


@law(DECODE, exempts=_offers("evict"))
def evicted_positions_leave_no_trace(
    subject: Subject, q: Any, k: Any, v: Any, steps: str, window: Any, capacity: Any, rotates: Any, choose: Choices
) -> bool:
    """For every cut of the positions, and number of the oldest ones: evicted at the cut, they
    change nothing of what comes later against a cache to which they had never been given. Within
    budget.
    """
    n = len(k)
    if n < 2:
        return False
    cut = choose.integer(1, n - 1)
    gone = choose.integer(1, cut)
    asked = choose.integer(1, min(n - gone, len(q)))
    last = f"append {n - cut}; attend {asked}"
    first = f"append {cut - gone}; " if cut > gone else ""
    evicted = subject(q[:asked], k, v, f"append {cut}; evict {gone}; {last}", window, None, rotates)
    _equal(subject, evicted, subject(q[:asked], k[gone:], v[gone:], first + last, window, None, rotates), slice(None))
    return True


@law(DECODE)
def caches_side_by_side_share_nothing(subject: Subject, *case: Any) -> bool:
    """For every program: without the steps of the second cache the first one gives what it gives
    with them. Within budget.
    """
    return _without(subject, case, lambda step: step.other)


@law(DECODE, exempts=_offers("poison"))
def unused_slots_do_not_matter(subject: Subject, *case: Any) -> bool:
    """For every program: unused slots may be filled with anything, or be left as they are. Within budget."""
    return _without(subject, case, lambda step: step.name == "poison")


@law(DECODE, domains=_RINGS)
def what_is_refused_changes_nothing(subject: Subject, *case: Any) -> bool:
    """For every program: without the steps that are refused by a ValueError all others give what
    they give with them. Within budget.
    """
    return _without(subject, case, lambda step: step.refused)


@law(DECODE, domains=_RINGS)
def attending_does_not_change_a_cache(subject: Subject, *case: Any) -> bool:
    """For every program: the last attend, and others alike, give what they give where nothing else
    is asked. Within budget.
    """
    last = [step for step in parse(case[3]) if step.name == "attend" and not step.refused][-1]
    return _without(subject, case, lambda step: step.name == "attend" and step != last)


@law(DECODE)
def a_restart_forgets_everything(
    subject: Subject, q: Any, k: Any, v: Any, steps: str, window: Any, capacity: Any, rotates: Any
) -> None:
    """For every program, run twice with a restart between: the second time gives what the first one
    gives. Within budget.
    """
    twice = f"{steps}; restart; other restart; {steps}"
    both = subject(*(np.concatenate([x, x]) for x in (q, k, v)), twice, window, capacity, rotates)
    _equal(subject, both, subject(q, k, v, steps, window, capacity, rotates), slice(len(q), None))


def _without(subject: Subject, case: tuple[Any, ...], goes: Callable[[Step], bool]) -> bool:
    """Without some of its steps a program gives what it gives with them; false where there are none
    of these, or nothing else is asked.
    """
    q, k, v, steps, window, capacity, rotates = case
    known = parse(steps)
    kept = [(place, step) for place, step in enumerate(known) if not goes(step)]
    fewer = [step for _, step in kept]
    if len(kept) == len(known) or not _is_legal(subject, fewer, window, capacity):
        return False
    rows = rows_of_part(known, kept)
    appended, asked = rows["append"], rows["attend"]
    _equal(
        subject,
        subject(*case),
        subject(q[asked], k[appended], v[appended], written(fewer), window, capacity, rotates),
        asked,
    )
    return True
