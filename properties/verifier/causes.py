"""What broke the laws: violations of one implementation, grouped by what explains them.

One mistake breaks many laws. All calls that are known, right and wrong, make a pool, and a
candidate is put to each once. A candidate is an implementation itself: the oracle in another
convention, or the reference with a known bug in it. It explains a violation if it returns the same,
within the budget of each call, and breaks the law on the same case, which is put to it as it was to
the implementation, in the same order and layouts. And it must return the same on nearly all calls
that are right: a bug shows where it shows, and nowhere else.

What is made of the implementation's own attention, causal attention by a mask, or gradients by δ =
rowsum(g ⊙ out), and is wrong as it is, has the cause of that: see `properties.verifier.possible_causes`.

Other arithmetics are tried besides, as `properties.verifier.arithmetics` says: one that explains
every violation of an operation is named before a candidate that does not reproduce some call.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np

from oracles import Enclosure
from oracles.ball import Array
from properties.contract.caller import Caller
from properties.contract.implementation import Implementation
from properties.contract.operations import OPERATIONS
from properties.contract.results import BrokenError, Call, is_right
from properties.contract.subject import Subject
from properties.laws.law import Law
from properties.verifier.arithmetics import explained
from properties.verifier.possible_causes import (
    FORWARD,
    PossibleCause,
    of_other_tiles,
    of_own_attention,
    possible_causes,
    stand_in_for,
)
from properties.verifier.report import Diagnosis, Violation

__all__ = ["causes"]

_SHOWN = 5  # candidates named at most
_LOOSEST = 2.0**-6  # of the largest result: how far apart results may be where the right ones have no radius
_MOST = 0.95  # the share of right calls that it must reproduce
_HALF = 0.5  # the share of wrong calls that a cause reproduces, or is a hint
_HINT = 0.25  # that of a hint
_ARITHMETIC = 3  # their rank


_Group = tuple[tuple[int, ...], tuple[Diagnosis, ...]]
"""Places of violations, and what explains them."""


@dataclass(frozen=True)
class _Explanation:
    """What may have broken some violations, by their places: a diagnosis, and its rank among
    equals; which wrong calls it reproduces, which it does not, and how many calls it gets wrong in
    another way; whether what is broken is what is expected to see it."""

    diagnosis: Diagnosis
    breaks: frozenset[int]
    rank: int
    repeats: frozenset[int] = frozenset()
    misses: frozenset[int] = frozenset()
    spoils: int = 0
    expected: bool = True

    @property
    def fully(self) -> bool:
        """Whether it reproduces every call."""
        return not (self.spoils or self.misses)

    def share(self, others: frozenset[int]) -> float:
        """How much it reproduces of the wrong calls that no other causes do."""
        misses = len(self.misses - others)
        return len(self.repeats) / (len(self.repeats) + misses) if self.repeats or misses else float(not self.misses)

    def order(self, others: frozenset[int]) -> tuple[float, int, bool, int, float]:
        """The best comes first: what reproduces most of the wrong calls, what gets fewest calls
        wrong in another way, what is expected to be seen so, then by rank, then by how closely;
        arithmetics come narrowest first."""
        return (
            -self.share(others),
            self.spoils,
            not self.expected,
            self.rank,
            0.0 if self.rank == _ARITHMETIC else self.diagnosis.excess,
        )


def causes(implementation: Implementation, violations: Sequence[tuple[Law, Violation]]) -> list[_Group]:
    """The places of the violations that have a cause in common, cause by cause, each with what
    explains them all, best first.

    Greedy: the explanation of most violations is the first cause, that of most of the others the
    second; what reproduces every call of the pool comes before what does not. Tiles of other sizes
    are tried where something is left. Of those that nothing explains each operation has one cause;
    so has each end of the process. What reproduces less than half of the wrong calls that no other
    cause does, or not all and breaks fewer laws of an operation than nothing explains, is no cause,
    but a hint, the diagnosis of the unknown one: where a mask leaks, queries that may read nothing
    take the mean, which follows from the mistake, and is not another.
    """
    pool = _Pool(implementation, violations)
    called = [OPERATIONS[name] for name in dict.fromkeys(call.operation for _, v in violations for call in v.calls)]
    follows = pool.of_own_attention()
    exact = [e for c in possible_causes(called, implementation) if (e := pool.explanation(c))]
    if not _all_of(e.breaks for e in exact if e.fully) >= set(range(len(violations))) - follows:
        exact += [e for c in of_other_tiles(called) if (e := pool.explanation(c))]
    left, found, best_of = set(range(len(violations))) - follows, list[_Group](), list[_Explanation]()
    while left:
        options = [e for e in (*exact, *pool.arithmetics(left)) if e.breaks & left]
        if not options:
            break
        known = _all_of(e.repeats for e in best_of)
        best = min(options, key=lambda e: (e.rank == _ARITHMETIC or not e.fully, -len(e.breaks & left), e.order(known)))
        group = best.breaks & left
        alike: dict[str, Diagnosis] = {}
        likely = (
            e
            for e in options
            if e is best or (e.breaks >= group and e.expected >= best.expected and e.share(known) >= _HALF)
        )
        for e in sorted(likely, key=lambda e: e.order(known)):
            alike.setdefault(e.diagnosis.id, e.diagnosis)
        found.append((tuple(sorted(group)), tuple(alike.values())[:_SHOWN]))
        best_of.append(best)
        left -= group
    shares = [one.share(_all_of(e.repeats for e in best_of if e is not one)) for one in best_of]
    every = _with_the_unexplained([v for _, v in violations], found, shares, left)
    if not follows:
        return every
    first = next(
        i for i, (members, _) in enumerate(every) if any(violations[p][1].operation == FORWARD for p in members)
    )
    return [(tuple(sorted({*members, *follows})) if i == first else members, d) for i, (members, d) in enumerate(every)]


def _all_of(sets: Iterable[frozenset[int]]) -> frozenset[int]:
    return frozenset[int]().union(*sets)


def _with_the_unexplained(
    violations: Sequence[Violation], found: Sequence[_Group], shares: Sequence[float], left: set[int]
) -> list[_Group]:
    """What was found, and a cause for what is left of each operation, in which is told what
    explains a part of it only.
    """
    unknown: dict[tuple[str, str], list[int]] = {}
    for place in sorted(left):
        unknown.setdefault(
            (violations[place].operation, "" if violations[place].calls else violations[place].summary), []
        ).append(place)
    rest = {key: len(members) for key, members in unknown.items()}
    told, hints = list[_Group](), dict[tuple[str, str], tuple[Diagnosis, ...]]()
    for (members, diagnosis), share in zip(found, shares, strict=True):
        keys = dict.fromkeys((violations[place].operation, "") for place in members)
        unexplained = sum(rest.get(key, 0) for key in keys)
        if share < _HALF or (keys.keys() <= rest.keys() and share < 1 and len(members) < unexplained):
            for place in members:
                unknown.setdefault((violations[place].operation, ""), []).append(place)
            if share >= _HINT:
                hints |= {key: (*hints.get(key, ()), replace(diagnosis[0], hint=True)) for key in keys}
        else:
            told.append((members, diagnosis))
    return [*told, *((tuple(sorted(members)), hints.get(key, ())) for key, members in unknown.items())]


class _Pool:
    """Every call that is known, right and wrong, each judged once, and what reproduces them."""

    def __init__(self, implementation: Implementation, violations: Sequence[tuple[Law, Violation]]) -> None:
        self.implementation, self.broken = implementation, violations
        self.right, self.wrong = dict[str, dict[int, Call]](), dict[str, dict[int, Call]]()
        for _, v in violations:
            for calls, found in ((self.right, v.right), (self.wrong, v.wrong)):
                calls.setdefault(v.operation, {}).update((id(call), call) for call in found)
        self._budgets: dict[int, tuple[Enclosure, ...]] = {}

    def explanation(self, c: PossibleCause) -> _Explanation | None:
        """The violations that a candidate reproduces, if it reproduces nearly all calls that are right too."""
        new = partial(stand_in_for, c, self.implementation)
        stand_in_of = new if c.remembers else cache(new)  # one that remembers nothing serves for all violations
        excesses = {
            i: excess for i in range(len(self.broken)) if (excess := self._reproduced(c, i, stand_in_of)) is not None
        }
        if not excesses:
            return None
        right, wrong, spoils = list[bool](), dict[int, bool](), 0
        for operation, calls in self._calls(c.remembers).items():
            if c.operations.isdisjoint(call.operation for call in calls):
                continue
            stand_in = stand_in_of(*dict.fromkeys((operation, *(call.operation for call in calls))))
            for call in calls:
                if call.operation in c.operations:
                    same, was_right = self._repeats(call, stand_in), self._is_right(call, call)
                    spoils += not (same or call.error or (not was_right and self._is_right(stand_in.calls[-1], call)))
                    if was_right:
                        right.append(same)
                    else:
                        wrong[id(call)] = same
        if sum(right) < _MOST * len(right):
            return None
        repeats, misses = (frozenset(call for call, same in wrong.items() if same is which) for which in (True, False))
        share = sum(wrong.values()) / len(wrong) if wrong else 1.0
        diagnosis = Diagnosis(c.id, max(excesses.values()), c.mechanism, c.citation, c.repair, share)
        return _Explanation(
            diagnosis, frozenset(excesses), c.rank, repeats, misses, spoils, self._is_expected(c, excesses)
        )

    def _calls(self, right_alone: bool) -> dict[str, list[Call]]:
        """The calls of each operation that breaks a law: the right ones, and, unless these alone
        are wanted, wrong ones and those of the violations."""
        found = {operation: dict(calls) for operation, calls in self.right.items()}
        for _, v in () if right_alone else self.broken:
            found[v.operation].update({**self.wrong[v.operation], **{id(call): call for call in v.calls}})
        return {operation: list(calls.values()) for operation, calls in found.items()}

    def _is_expected(self, c: PossibleCause, places: Iterable[int]) -> bool:
        """Whether a bug is seen by the law that is expected to see it, or by one that compares
        values alone, as it may be of every bug.

        A law of what a few implementations promise is broken by the reference too, in whatever bug
        it is."""
        laws = [self.broken[place][0] for place in places]
        return not c.law or any(law.agreement or law.name == c.law for law in laws)

    def _is_right(self, found: Call, call: Call) -> bool:
        """Whether what was found in place of a call is right; of what raised, nothing need be defined."""
        return not found.error and is_right(found, self._expected(call))

    def of_own_attention(self) -> set[int]:
        """The violations of operations that are what they would be if they were made of the
        implementation's own attention, where that is broken too: nothing else is wrong with
        them."""
        if all(v.operation != FORWARD for _, v in self.broken):
            return set()
        made = of_own_attention(self.implementation)
        several = {
            name: PossibleCause(name, "", "", "", 1, frozenset([name]), partial(dict, [(name, f)]))
            for name, f in made.items()
        }
        explained = {name: e.breaks for name, c in several.items() if (e := self.explanation(c))}
        follows: set[int] = set()
        for name in several:
            places = {i for i, (_, v) in enumerate(self.broken) if v.operation == name}
            found = explained.get(name, frozenset())
            plain = {i for i in places if self.broken[i][0].agreement}
            if plain <= found and 2 * len(places & found) > len(
                places
            ):  # laws of more calls may add roundings of their own
                follows |= places
        return follows

    def _reproduced(self, c: PossibleCause, place: int, stand_in_of: Callable[..., Subject]) -> float | None:
        """How far a candidate is from what was returned in a violation, in budgets, if it returns
        the same and breaks the law too.
        """
        v = self.broken[place][1]
        if not v.calls or c.operations.isdisjoint(call.operation for call in v.calls):
            return None
        before = (
            [self.right[v.operation].values(), ()] if c.remembers else [()]
        )  # it remembers these, or the law's own calls
        found = (self._repeated(c, place, stand_in_of, calls) for calls in before)
        return next((excess for excess in found if excess is not None), None)

    def _repeated(
        self, c: PossibleCause, place: int, stand_in_of: Callable[..., Subject], before: Iterable[Call]
    ) -> float | None:
        """The same, after some calls."""
        law, v = self.broken[place]
        stand_in = stand_in_of(law.operation, *law.needs)
        for call in before:
            self._repeats(call, stand_in)
        excess = 0.0
        for call in () if c.remembers else v.calls:
            excess = max(excess, self._difference(call, stand_in))
            if excess > 1:
                return None
        stand_in.begin()
        try:
            law.hold(stand_in, v.counterexample)
            return None
        except BrokenError:
            pass
        except Exception:  # a law may stumble over what another implementation never returned
            return None
        if len(stand_in.calls) != len(v.calls):
            return None
        excess = max(excess, *(self._apart(a, b) for a, b in zip(v.calls, stand_in.calls, strict=True)))
        return excess if excess <= 1 else None

    def arithmetics(self, left: set[int]) -> Iterator[_Explanation]:
        """Of each operation the narrowest arithmetic that explains all violations that are left,
        and the narrowest preset that does.
        """
        for operation in dict.fromkeys(self.broken[place][1].operation for place in sorted(left)):
            places = [
                place
                for place in sorted(left)
                if self.broken[place][1].operation == operation and self.broken[place][1].calls
            ]
            broken = [self.broken[place] for place in places]
            right, wrong = (tuple(calls[operation].values()) for calls in (self.right, self.wrong))
            for c, excess in explained(self.implementation, broken, right, wrong) if broken else ():
                mechanism = f"All is within budget as if {c.sentence}."
                repair = (
                    "Round to more bits there, or declare an arithmetic of which this is so, if it is what is meant."
                )
                yield _Explanation(Diagnosis(c.id, excess, mechanism, "", repair, 1.0), frozenset(places), _ARITHMETIC)

    def _expected(self, call: Call) -> tuple[Any, ...]:
        if id(call) not in self._budgets:
            caller = Caller(self.implementation, call.operation)
            self._budgets[id(call)] = caller.expected(OPERATIONS[call.operation], call.arguments)
        return self._budgets[id(call)]

    def _repeats(self, call: Call, stand_in: Subject) -> bool:
        """Whether a candidate returns what the implementation returned in a call."""
        return self._difference(call, stand_in) <= 1

    def _difference(self, call: Call, stand_in: Subject) -> float:
        """How far a candidate's results of a call are from the implementation's, in budgets."""
        with suppress(BrokenError):
            stand_in.call(call.operation, call.arguments, call.layout)
        return self._apart(call, stand_in.calls[-1])

    def _apart(self, a: Call, b: Call) -> float:
        """How far two calls' outputs are apart, in the largest budget of the call: where the right
        value has a small one, the candidate's may be larger. An output rounding is added, and where
        all radii are 0, as nothing should be summed, one for each term of what was.

        Errors are the same if they begin the same, up to a colon. What the first call need not
        give, a log-sum-exp, is not compared.
        """
        if a.operation != b.operation or bool(a.error) != bool(b.error) or len(a.outputs) > len(b.outputs):
            return np.inf
        if a.error:
            return 0.0 if a.error.split(":")[0] == b.error.split(":")[0] else np.inf
        if OPERATIONS[a.operation].returns_booleans:
            return 0.0 if np.array_equal(a.outputs[0], b.outputs[0]) else np.inf
        if any(x.shape != y.shape for x, y in zip(a.outputs, b.outputs, strict=False)):
            return np.inf
        longest = max((n for x in a.arguments if isinstance(x, np.ndarray) for n in x.shape), default=1)
        roundoff = self.implementation.resolved_arithmetic.output.unit_roundoff
        return max(
            _apart(x, y, e.rad, roundoff, longest)
            for x, y, e in zip(a.outputs, b.outputs, self._expected(a), strict=False)
        )


def _apart(x: Array, y: Array, rad: Array, roundoff: float, terms: int) -> float:
    with np.errstate(all="ignore"):
        largest = np.max(rad, where=np.isfinite(rad), initial=0.0)
        if largest == 0:
            largest = min(terms * roundoff, _LOOSEST) * np.max(np.abs(x), where=np.isfinite(x), initial=0.0)
        apart = np.abs(x - y) / (largest + roundoff * np.abs(y))
    same = (x == y) | (np.isnan(x) & np.isnan(y)) | np.isinf(rad)  # where nothing is promised all are the same
    return float(np.where(same, 0.0, np.where(np.isnan(apart), np.inf, apart)).max(initial=0.0))
