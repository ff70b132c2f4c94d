"""Groups the violations (failed laws) of one implementation by cause: one mistake makes many laws
fail.

attnspec collects all recorded calls, right and wrong, and calls every possible cause once on each.
A possible cause is an implementation itself: the oracle under another convention, or the reference
with a known bug. It explains a violation if two conditions hold:

(1) It returns the same results, within the budget (error limit) of each call. The law fails with it
    on the same case, which it gets in the same order and memory layouts as your kernel. A law that
    measures may choose the sizes of its calls. If your kernel raised at some sizes, this cause is
    also tried at the sizes that trial calls of your kernel show.
(2) It returns the same results on nearly all right calls: a bug changes only the results that it
    affects.

A law about exact inputs fails with results that are within their error limits. There (1) would say
nothing, so a possible cause must explain another violation too.

Some operations can be made from your kernel's own attention: causal attention by a mask, and
gradients by δ = rowsum(g ⊙ out). If your kernel's operations return the same wrong results as
these, they have the same cause as the attention. `possible_causes.of_own_attention` makes them.

attnspec also tries other arithmetics (ways to round), see `arithmetics.py`. An arithmetic that
explains every violation of an operation comes before a possible cause that fails to reproduce some
call.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
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
from properties.verifier.arithmetics import AS_IF, explained
from properties.verifier.first_look import narrowed
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

_MAX_DIAGNOSES = 5  # for one cause
_LOOSEST = 2.0**-6  # of the largest result: how far results may differ where the right results have no radius
_MIN_SHARE_OF_RIGHT_CALLS = 0.95  # a possible cause must reproduce this share
_MIN_SHARE_OF_A_CAUSE = 0.5  # of the wrong calls, which it reproduces
_MIN_SHARE_OF_A_HINT = 0.25
_RANK_OF_ARITHMETICS = 3


_Group = tuple[tuple[int, ...], tuple[Diagnosis, ...]]
"""The places of some violations in a list, and what explains them."""


@dataclass(frozen=True)
class _Explanation:
    """A possible cause or an arithmetic, and what it reproduces of the violations (failed laws).

    diagnosis     the sentences that describe it
    breaks        the places of the violations that it reproduces
    rank          its order among explanations that are equal otherwise
    repeats       the wrong calls that it reproduces
    misses        the wrong calls that it does not reproduce
    spoils        the number of calls that it gets wrong in another way
    is_expected   whether one of the failing laws is expected to detect it
    refuses       how many of the calls that raised, and need not be taken, it refuses too
    """

    diagnosis: Diagnosis
    breaks: frozenset[int]
    rank: int
    repeats: frozenset[int] = frozenset()
    misses: frozenset[int] = frozenset()
    spoils: int = 0
    is_expected: bool = True
    refuses: int = 0

    @property
    def fully(self) -> bool:
        """Whether it reproduces every recorded call."""
        return not (self.spoils or self.misses)

    def share(self, others: frozenset[int]) -> float:
        """Return the share of the wrong calls that it reproduces. Calls that it does not reproduce,
        and that other causes reproduce, do not count.
        """
        misses = len(self.misses - others)
        return len(self.repeats) / (len(self.repeats) + misses) if self.repeats or misses else float(not self.misses)

    def order(self, others: frozenset[int]) -> tuple[float, int, bool, int, int, float]:
        """Return the sort key of this explanation. The best explanation comes first:

        (1) it reproduces the largest share of the wrong calls
        (2) it gets the fewest calls wrong in another way
        (3) a failing law is expected to detect it
        (4) it refuses most of the calls that an undeclared kernel does not take
        (5) it has the lowest rank
        (6) it reproduces the results most closely. Arithmetics are already sorted, narrowest first.
        """
        is_arithmetic = self.rank == _RANK_OF_ARITHMETICS
        closeness = 0.0 if is_arithmetic else self.diagnosis.distance
        return -self.share(others), self.spoils, not self.is_expected, -self.refuses, self.rank, closeness


def causes(implementation: Implementation, violations: Sequence[tuple[Law, Violation]]) -> list[_Group]:
    """Return the violations (failed laws) in groups, one for each cause. Each group comes with the
    diagnoses that explain all of it, best first.

    The choice is greedy: the possible cause that explains most violations is the first cause; the
    possible cause that explains most of the other violations is the second. A possible cause that
    reproduces every recorded call comes before one that does not. Known bugs with other tile sizes
    are tried if some violations have no explanation yet. Violations without an explanation make one
    group for each operation, and one for each end of the process.

    Some explanations are only hints in the diagnosis of a cause that is not recognised:

    (1) an explanation that reproduces less than half of the wrong calls. Calls that other causes
        reproduce do not count.
    (2) an explanation that does not reproduce all wrong calls, and explains fewer laws of an
        operation than are left unexplained.

    Example: where a mask leaks, the rows of fully masked queries may be means. This follows from
    the mistake, and is not a second one.
    """
    pool = _Pool(implementation, violations)
    called = [OPERATIONS[name] for name in dict.fromkeys(call.operation for _, v in violations for call in v.calls)]
    follows = pool.of_own_attention()
    left = set(range(len(violations))) - follows
    if left <= pool.within_limits:
        called = []  # no possible cause can be told from the right results
    exact = [one for cause in possible_causes(called, implementation) if (one := pool.explanation(cause))]
    if not _union(one.breaks for one in exact if one.fully) >= left:
        exact += [one for cause in of_other_tiles(called, implementation) if (one := pool.explanation(cause))]
    groups, bests = list[_Group](), list[_Explanation]()
    while left:
        options = [one for one in (*exact, *pool.arithmetics(left)) if one.breaks & left]
        if not options:
            break
        best, diagnoses = _best(options, left, _union(one.repeats for one in bests))
        group = best.breaks & left
        groups.append((tuple(sorted(group)), diagnoses))
        bests.append(best)
        left -= group
    shares = [one.share(_union(other.repeats for other in bests if other is not one)) for one in bests]
    every = _with_the_unexplained([violation for _, violation in violations], groups, shares, left)
    return _with_what_follows(violations, every, follows)


def _best(
    options: Sequence[_Explanation], left: set[int], known: frozenset[int]
) -> tuple[_Explanation, tuple[Diagnosis, ...]]:
    """Return the best explanation of the violations that are left, and the diagnoses of all
    explanations that may be the same cause. `known` are the wrong calls that earlier causes
    reproduce.
    """
    best = min(
        options,
        key=lambda one: (
            one.rank == _RANK_OF_ARITHMETICS or not one.fully,
            -len(one.breaks & left),
            one.order(known),
        ),
    )
    group = best.breaks & left

    def is_likely(one: _Explanation) -> bool:
        is_as_expected = one.is_expected >= best.is_expected
        return one.breaks >= group and is_as_expected and one.share(known) >= _MIN_SHARE_OF_A_CAUSE

    likely = (one for one in options if one is best or is_likely(one))
    diagnoses: dict[str, Diagnosis] = {}
    for one in sorted(likely, key=lambda one: one.order(known)):
        diagnoses.setdefault(one.diagnosis.id, one.diagnosis)
    return best, tuple(diagnoses.values())[:_MAX_DIAGNOSES]


def _union(sets: Iterable[frozenset[int]]) -> frozenset[int]:
    return frozenset[int]().union(*sets)


def _with_the_unexplained(
    violations: Sequence[Violation], groups: Sequence[_Group], shares: Sequence[float], left: set[int]
) -> list[_Group]:
    """Return the groups that have a cause, and one group for the unexplained violations of each
    operation. Explanations of a part of these violations are their hints.
    """
    unknown: dict[tuple[str, str], list[int]] = {}
    for place in sorted(left):
        violation = violations[place]
        end_of_process = "" if violation.calls else violation.summary
        unknown.setdefault((violation.operation, end_of_process), []).append(place)
    unexplained = {key: len(members) for key, members in unknown.items()}
    recognised, hints = list[_Group](), dict[tuple[str, str], tuple[Diagnosis, ...]]()
    for (members, diagnosis), share in zip(groups, shares, strict=True):
        keys = dict.fromkeys((violations[place].operation, "") for place in members)
        others = sum(unexplained.get(key, 0) for key in keys)
        is_minor = keys.keys() <= unexplained.keys() and share < 1 and len(members) < others
        if share >= _MIN_SHARE_OF_A_CAUSE and not is_minor:
            recognised.append((members, diagnosis))
            continue
        for place in members:
            unknown.setdefault((violations[place].operation, ""), []).append(place)
        if share >= _MIN_SHARE_OF_A_HINT:
            hints |= {key: (*hints.get(key, ()), replace(diagnosis[0], partial=True)) for key in keys}
    return [*recognised, *((tuple(sorted(members)), hints.get(key, ())) for key, members in unknown.items())]


def _with_what_follows(
    violations: Sequence[tuple[Law, Violation]], groups: list[_Group], follows: set[int]
) -> list[_Group]:
    """Return the groups. The first group about attention also gets the violations `follows`, which
    follow from the mistake in attention.
    """
    if not follows:
        return groups
    first = next(
        index
        for index, (members, _) in enumerate(groups)
        if any(violations[place][1].operation == FORWARD for place in members)
    )
    members, diagnosis = groups[first]
    return [*groups[:first], (tuple(sorted({*members, *follows})), diagnosis), *groups[first + 1 :]]


class _Pool:
    """All recorded calls, right and wrong, each judged once, and the search for causes that
    reproduce them.
    """

    def __init__(self, implementation: Implementation, violations: Sequence[tuple[Law, Violation]]) -> None:
        self.implementation, self.broken = implementation, violations
        self.right, self.wrong = dict[str, dict[int, Call]](), dict[str, dict[int, Call]]()
        for _, violation in violations:
            for calls, found in ((self.right, violation.right), (self.wrong, violation.wrong)):
                calls.setdefault(violation.operation, {}).update((id(call), call) for call in found)
        self._budgets: dict[int, tuple[Enclosure, ...]] = {}
        self._at_its_sizes: dict[str, Implementation] = {}

    @cached_property
    def within_limits(self) -> frozenset[int]:
        """The places of the violations of laws that measure whose calls are all within their error
        limits.
        """
        return frozenset(
            place
            for place, (law, violation) in enumerate(self.broken)
            if law.measures and violation.calls and all(self._is_right(call, call) for call in violation.calls)
        )

    def explanation(self, cause: PossibleCause) -> _Explanation | None:
        """Return the violations that a possible cause reproduces. Return None if it reproduces
        none, or not nearly all right calls.
        """

        def new(operation: str, *needs: str, is_narrowed: bool = False) -> Subject:
            implementation = self._narrowed(operation) if is_narrowed else self.implementation
            return stand_in_for(cause, implementation, operation, *needs)

        stand_in_of = new if cause.remembers else cache(new)  # without a memory, one stand-in serves all violations
        excesses = {
            place: excess
            for place in range(len(self.broken))
            if (excess := self._reproduced(cause, place, stand_in_of)) is not None
        }
        if not excesses.keys() - self.within_limits:
            return None
        right, wrong, spoils = list[bool](), dict[int, bool](), 0
        for operation, calls in self._calls(cause.remembers).items():
            if cause.operations.isdisjoint(call.operation for call in calls):
                continue
            stand_in = stand_in_of(*dict.fromkeys((operation, *(call.operation for call in calls))))
            for call in calls:
                if call.operation in cause.operations:
                    same, was_right = self._repeats(call, stand_in), self._is_right(call, call)
                    is_right_here = not was_right and self._is_right(stand_in.calls[-1], call)
                    spoils += not (same or call.error or is_right_here)
                    if was_right:
                        right.append(same)
                    else:
                        wrong[id(call)] = same
        if sum(right) < _MIN_SHARE_OF_RIGHT_CALLS * len(right):
            return None
        repeats, misses = (frozenset(call for call, same in wrong.items() if same is which) for which in (True, False))
        share = sum(wrong.values()) / len(wrong) if wrong else 1.0
        diagnosis = Diagnosis(cause.id, cause.mechanism, cause.repair, cause.reported, max(excesses.values()), share)
        is_expected = self._is_expected(cause, excesses)
        refuses = sum(self._repeats(call, stand_in_of(call.operation)) for call in self._refused(cause))
        return _Explanation(diagnosis, frozenset(excesses), cause.rank, repeats, misses, spoils, is_expected, refuses)

    def _narrowed(self, operation: str) -> Implementation:
        """Return the implementation at the sizes that trial calls show: there a law that measures may
        have chosen other sizes.
        """
        if operation not in self._at_its_sizes:
            self._at_its_sizes[operation] = narrowed(self.implementation, operation)
        return self._at_its_sizes[operation]

    def _refused(self, cause: PossibleCause) -> list[Call]:
        """Return the recorded calls of a cause's operations that raised, and need not be taken."""
        calls = {id(call): call for _, violation in self.broken for call in violation.refused}
        return [call for call in calls.values() if call.operation in cause.operations]

    def _calls(self, right_alone: bool) -> dict[str, list[Call]]:
        """Return the recorded calls of each operation that violates a law: the right calls and,
        unless `right_alone`, the wrong calls and the calls of the violations.
        """
        found = {operation: dict(calls) for operation, calls in self.right.items()}
        for _, violation in () if right_alone else self.broken:
            calls = {id(call): call for call in violation.calls}
            found[violation.operation].update({**self.wrong[violation.operation], **calls})
        return {operation: list(calls.values()) for operation, calls in found.items()}

    def _is_expected(self, cause: PossibleCause, places: Iterable[int]) -> bool:
        """Return whether a failing law is expected to detect a bug. Two kinds of laws are: the
        bug's own law, and a law that only compares values with the oracle, which may detect every
        bug.

        Other laws do not count. With every bug, the reference itself violates a law about something
        that only a few implementations promise.
        """
        laws = [self.broken[place][0] for place in places]
        return not cause.law or any(law.agreement or law.name == cause.law for law in laws)

    def _is_right(self, found: Call, call: Call) -> bool:
        """Return whether the call `found`, made in place of a recorded one, is right. The answer is
        False if it raised, because the expected value may be undefined then.
        """
        return not found.error and is_right(found, self._expected(call))

    def of_own_attention(self) -> set[int]:
        """Return the places of the violations that follow from a mistake in the implementation's
        own attention.

        Their operations return the same results as operations that attnspec makes from this
        attention.
        """
        if all(violation.operation != FORWARD for _, violation in self.broken):
            return set()
        made = of_own_attention(self.implementation)
        alone = {
            name: PossibleCause(name, "", "", "", 1, frozenset([name]), partial(dict, [(name, function)]))
            for name, function in made.items()
        }
        explained = {name: one.breaks for name, cause in alone.items() if (one := self.explanation(cause))}
        follows: set[int] = set()
        for name in alone:
            places = {place for place, (_, violation) in enumerate(self.broken) if violation.operation == name}
            found = explained.get(name, frozenset())
            agreement = {place for place in places if self.broken[place][0].agreement}
            is_most = 2 * len(places & found) > len(places)  # laws of several calls may add roundings of their own
            if agreement <= found and is_most:
                follows |= places
        return follows

    def _reproduced(self, cause: PossibleCause, place: int, stand_in_of: Callable[..., Subject]) -> float | None:
        """Return the largest difference, in budgets (error limits), between a possible cause and
        the results of a violation. Return None unless the possible cause returns the same results
        and fails the law too.
        """
        violation = self.broken[place][1]
        if not violation.calls or cause.operations.isdisjoint(call.operation for call in violation.calls):
            return None
        # what a stand-in remembers may come from earlier right calls, or from the law's own calls
        before = [self.right[violation.operation].values(), ()] if cause.remembers else [()]
        ways = [(stand_in_of, calls) for calls in before]
        if self.broken[place][0].measures and violation.refused:
            ways.append((partial(stand_in_of, is_narrowed=True), ()))
        found = (self._repeated(cause, place, *way) for way in ways)
        return next((excess for excess in found if excess is not None), None)

    def _repeated(
        self, cause: PossibleCause, place: int, stand_in_of: Callable[..., Subject], before: Iterable[Call]
    ) -> float | None:
        """Return the same as `_reproduced`, for a stand-in that first makes some earlier calls. A
        stand-in is an implementation that behaves like the possible cause.
        """
        law, violation = self.broken[place]
        stand_in = stand_in_of(law.operation, *law.needs)
        for call in before:
            self._repeats(call, stand_in)
        excess = 0.0
        for call in () if cause.remembers else violation.calls:
            excess = max(excess, self._difference(call, stand_in))
            if excess > 1:
                return None
        stand_in.begin()
        try:
            law.hold(stand_in, violation.counterexample)
            return None
        except BrokenError:
            pass
        except Exception:  # a law may fail to handle a result that no other implementation returns
            return None
        if len(stand_in.calls) != len(violation.calls):
            return None
        excess = max(excess, *(self._apart(*pair) for pair in zip(violation.calls, stand_in.calls, strict=True)))
        return excess if excess <= 1 else None

    def arithmetics(self, left: set[int]) -> Iterator[_Explanation]:
        """For each operation, yield the narrowest arithmetic (way to round) that explains all its
        violations in `left`, and the narrowest preset that explains them.
        """
        for operation in dict.fromkeys(self.broken[place][1].operation for place in sorted(left)):
            places = [
                place
                for place in sorted(left)
                if self.broken[place][1].operation == operation
                and self.broken[place][1].calls
                and place not in self.within_limits
            ]
            broken = [self.broken[place] for place in places]
            right, wrong = (tuple(calls[operation].values()) for calls in (self.right, self.wrong))
            for other, excess in explained(self.implementation, broken, right, wrong) if broken else ():
                mechanism = f"{AS_IF} {other.sentence}."
                repair = "Keep more bits there, or declare an arithmetic that rounds there if your kernel is right."
                diagnosis = Diagnosis(other.id, mechanism, repair, distance=excess)
                yield _Explanation(diagnosis, frozenset(places), _RANK_OF_ARITHMETICS)

    def _expected(self, call: Call) -> tuple[Any, ...]:
        if id(call) not in self._budgets:
            caller = Caller(self.implementation, call.operation)
            self._budgets[id(call)] = caller.expected(OPERATIONS[call.operation], call.arguments)
        return self._budgets[id(call)]

    def _repeats(self, call: Call, stand_in: Subject) -> bool:
        """Return whether a stand-in, an implementation that behaves like a possible cause, returns
        the recorded results of a call.
        """
        return self._difference(call, stand_in) <= 1

    def _difference(self, call: Call, stand_in: Subject) -> float:
        """Return the largest difference, in budgets (error limits), between the recorded results of
        a call and those of a stand-in, an implementation that behaves like a possible cause.
        """
        with suppress(BrokenError):
            stand_in.call(call.operation, call.arguments, call.layout)
        return self._apart(call, stand_in.calls[-1])

    def _apart(self, call: Call, other: Call) -> float:
        """Return the largest difference between the outputs of two calls, divided by the largest
        budget (error limit) of the recorded call. The budget of another entry may be too small: the
        stand-in's wrong value can have a larger budget than the right value. But where the recorded
        entry is outside its own budget, the difference is divided by less than the recorded error:
        a cause must be nearer to a wrong entry than the right value is.

        One rounding of the output is added to the budget. If all radii are 0, because no sum should
        have terms, one rounding for each term of a sum is allowed. Two errors are equal if they are
        equal up to the first colon. An output that the recorded call need not return, a
        log-sum-exp, is not compared.
        """
        is_unlike = call.operation != other.operation or bool(call.error) != bool(other.error)
        if is_unlike or len(call.outputs) > len(other.outputs):
            return np.inf
        if call.error:
            return 0.0 if call.error.split(":")[0] == other.error.split(":")[0] else np.inf
        if OPERATIONS[call.operation].is_exact:
            return 0.0 if np.array_equal(call.outputs[0], other.outputs[0]) else np.inf
        if any(mine.shape != its.shape for mine, its in zip(call.outputs, other.outputs, strict=False)):
            return np.inf
        sizes = (size for argument in call.arguments if isinstance(argument, np.ndarray) for size in argument.shape)
        terms = max(sizes, default=1)
        roundoff = self.implementation.resolved_arithmetic.output.unit_roundoff
        return max(
            _apart(mine, its, budget, roundoff, terms)
            for mine, its, budget in zip(call.outputs, other.outputs, self._expected(call), strict=False)
        )


def _apart(recorded: Array, other: Array, budget: Enclosure, roundoff: float, terms: int) -> float:
    radius = budget.rad
    with np.errstate(all="ignore"):
        largest = np.max(radius, where=np.isfinite(radius), initial=0.0)
        if largest == 0:
            size = np.max(np.abs(recorded), where=np.isfinite(recorded), initial=0.0)
            largest = min(terms * roundoff, _LOOSEST) * size
        allowed = largest + roundoff * np.abs(other)
        error = np.abs(recorded - budget.mid)
        below = np.nextafter(error, 0.0)  # a stand-in that returns the right value is too far
        allowed = np.where(error > radius, np.minimum(allowed, below), allowed)
        apart = np.abs(recorded - other) / allowed
    # where nothing is promised, every result counts as the same
    same = (recorded == other) | (np.isnan(recorded) & np.isnan(other)) | np.isinf(radius)
    return float(np.where(same, 0.0, np.where(np.isnan(apart), np.inf, apart)).max(initial=0.0))
