"""Checking laws on an implementation: draw cases, count what they say, and find the causes of what is violated."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import takewhile
from math import ceil
from typing import Any

import numpy as np
from hypothesis import HealthCheck, Phase, given, reject, seed, settings
from hypothesis.errors import Unsatisfiable
from hypothesis.strategies import DrawFn, SearchStrategy, composite

from oracles import Arithmetic, Conventions
from properties.causes import causes
from properties.examination import Examination
from properties.implementation import Implementation, implementation_of
from properties.law import Law
from properties.laws import LAWS, LONG, find
from properties.narrowest import Narrowest
from properties.operations import OPERATIONS, sizes_of
from properties.remarks import Seen, notes
from properties.report import Cause, Diagnosis, Outcome, Report, Violation, counted, with_causes
from properties.script import script
from properties.shrinking import smallest
from properties.strategies.arrays import UnsupportedError
from properties.subject import BrokenError, Call, Subject

__all__ = ["Observer", "causes_of", "check", "plan", "replay", "require_planned", "verify"]

Observer = Callable[[str, tuple[Any, ...], str], None]

_SHRINKS = 10  # cases tried after the first violation for each example asked for; the smallest is shown
_FRESH = 10  # cases that Hypothesis draws afresh; those after them are mostly earlier ones, with parts of them copied elsewhere
_PATIENCE = 10  # more runs of so many cases each, where too few were informative, or a declared deviation has not been seen
_AFTERWARDS = 8  # cases drawn after a violation, for the diagnosis: those that shrank are alike
_LOOKS = 40  # cases of which the first call of one is put to finer presets
_EVIDENCE = 24  # calls kept of other cases, for the diagnosis


class _Trial:
    """One law on one implementation, case after case."""

    def __init__(self, law: Law, implementation: Implementation, observe: Observer | None, seconds_per_call: float, shrinks: int) -> None:
        self.law, self.subject = law, Subject(implementation, law.operation, observe, seconds_per_call)
        self.started = self.examples = self.informative = self.vacuous = 0
        self.suspicious, self.worst, self.worst_line = 0, 0.0, 0.0
        self.evidence: list[Call] = []
        self.narrowest = Narrowest(implementation)
        self.broken: BrokenError | None = None
        self.again = False  # the next case has been tried
        self.case: tuple[Any, ...] = ()
        self.calls: tuple[Call, ...] = ()
        self.shrinks, self.tried = shrinks, 0
        self.unsupported = ""  # why the last draw that was none was none
        self.seen: list[Seen] = []
        self.fresh: list[Call] = []

    def drawn_from(self, cases: SearchStrategy[tuple[Any, ...]]) -> SearchStrategy["_Case"]:
        """The cases, counted; a draw that comes to sizes that are not supported is none."""

        @composite
        def build(draw: DrawFn) -> _Case:
            self.started += 1
            try:
                return _Case(draw(cases))
            except UnsupportedError as unsupported:
                self.unsupported, self.again = str(unsupported), False
                reject()

        return build()

    def hold(self, case: tuple[Any, ...]) -> None:
        """The law on one case. After a violation only some more cases are tried: those left pass, but the smallest violation seen."""
        if self.again:  # the simplest, with which each run of Hypothesis begins
            self.again, self.started = False, self.started - 1
            return
        if self.broken is not None:
            self.tried += 1
            if self.tried > self.shrinks:
                if _same_case(case, self.case):
                    raise self.broken
                return
        subject = self.subject
        subject.begin()
        try:
            self.law.body(subject, *case)
        except BrokenError as broken:
            if self.broken is None:
                self.examples += 1
            elif self.tried <= self.shrinks:
                self._keep()
            self.broken, self.case, self.calls = broken, case, tuple(subject.calls)
            self._see(False)
            raise
        self._see(True)
        self._keep()
        if self.broken is None:
            if self.examples % _LOOKS == 0:
                self.narrowest.look(subject.calls)
            self.examples += 1
            self.informative += subject.informative
            self.vacuous += bool(subject.vacuous)
            self.suspicious += subject.worst_line > 1
            self.worst, self.worst_line = max(self.worst, subject.worst), max(self.worst_line, subject.worst_line)

    def look_on(self, case: "_Case") -> None:
        """The calls of one case more, whether the law holds on it or not."""
        self.subject.begin()
        with suppress(BrokenError):
            self.law.body(self.subject, *case.entries)
        self.fresh += self.subject.calls

    def _see(self, held: bool) -> None:
        if self.subject.calls:
            first = self.subject.calls[0]
            self.seen.append(Seen(sizes_of(OPERATIONS[first.operation], first.arguments), held))

    def _keep(self) -> None:
        if len(self.evidence) < _EVIDENCE:
            self.evidence += self.subject.calls[:1]


class _Case:
    """A case whose representation is short: Hypothesis makes one of a case that fails, which takes long for large arrays."""

    def __init__(self, entries: tuple[Any, ...]) -> None:
        self.entries = entries

    def __repr__(self) -> str:
        return "a case"


def _same_case(a: tuple[Any, ...], b: tuple[Any, ...]) -> bool:
    return all(
        np.array_equal(x, y, equal_nan=True) if isinstance(x, np.ndarray) and x.dtype != bool else np.array_equal(x, y)
        for x, y in zip(a, b, strict=True)
    )


def check(
    law: Law,
    implementation: Implementation,
    max_examples: int | None = 100,
    random_seed: int | None = 0,
    observe: Observer | None = None,
    shrink: bool | None = None,
    seconds_per_call: float = 60.0,
) -> Outcome:
    """What becomes of a law on an implementation, on so many cases times the law's effort, none of whose calls may take longer.

    More are tried where too few of them were informative, or a declared deviation has not been seen among them.
    The same seed draws the same cases; None, as seed or number, takes what the caller's Hypothesis profile says. `observe` is told of every
    call before it is made. Without `shrink` the first violation is reported as it was found, and not diagnosed, which `causes_of` does for
    all laws together; None leaves only those so that were declared.
    """
    if law.domains:
        (found,) = examine([law], implementation, max_examples, random_seed, observe, seconds_per_call)
        if found.status != "violated" or shrink is False or found.violation is None or not found.violation.calls:
            return found
        return replace(found, violation=_explained(implementation, law, found.violation))
    outcome = Outcome(law.name, law.operation, implementation.name, "held")
    declared = {name: implementation.known_deviations.get(name, "") for name in (law.name, law.id)}
    reason = next(filter(None, declared.values()), "")
    if why := law.not_applicable(implementation):
        return replace(outcome, status="not applicable", reason=why)
    if implementation.unavailable:
        return replace(outcome, status="not run", reason=implementation.unavailable, unavailable=True)
    start = time.perf_counter()
    try:
        cases = law.cases(implementation)
    except UnsupportedError as unsupported:
        return _not_applicable(outcome, str(unsupported), declared[law.id])
    shrinks = not reason if shrink is None else shrink
    profile = settings.default or settings()
    number = max_examples or profile.max_examples
    trial = _Trial(law, implementation, observe, seconds_per_call, shrinks=ceil(_SHRINKS * number * min(1.0, 4 * law.effort)))

    def hold(case: _Case) -> None:
        trial.hold(case.entries)

    hold.__name__ = hold.__qualname__ = f"{law.name}_{law.operation}".replace(" ", "_")  # Hypothesis keeps failures by the function's name
    options: dict[str, Any] = {
        "suppress_health_check": list(HealthCheck),  # some cases are slow on a busy machine; nothing is filtered
        "report_multiple_bugs": False,
        "print_blob": False,
        "deadline": None,
    }
    drawn, wanted = trial.drawn_from(cases), max(1, ceil(number * law.effort))
    own = {"phases": (Phase.generate, Phase.shrink) if shrinks else (Phase.generate,), "database": None, "derandomize": False}

    def runs() -> Iterator[tuple[int, str]]:
        """How many cases, and from which seed, "" for the caller's: as many as are wanted, then more while they say too little."""
        if random_seed is None:
            yield wanted, ""
        else:
            yield from ((min(_FRESH, wanted - n), f"{random_seed} {n}") for n in range(0, wanted, _FRESH))
        more = ((_FRESH, f"{random_seed} more {n}") for n in range(_PATIENCE))
        yield from takewhile(lambda _: reason or trial.informative < ceil(law.floor * trial.examples), more)

    try:
        for examples, of in runs():
            trial.again = trial.started > 0
            test = settings(profile, max_examples=examples + trial.again, **(options | own if of else options))(given(drawn)(hold))
            try:
                (seed(of)(test) if of else test)()
            except Unsatisfiable:
                if not trial.unsupported:
                    raise
                if not trial.examples:
                    return _not_applicable(outcome, trial.unsupported, declared[law.id])
    except BrokenError:
        pass
    except BaseException as error:  # Hypothesis says so when a case fails once and passes again, in groups of exceptions too
        if isinstance(error, KeyboardInterrupt | MemoryError) or trial.broken is None:
            raise
        trial.broken = BrokenError(f"{trial.broken} The same case passed when it was tried again.", trial.broken.excess)
    if trial.broken is not None and not reason:
        once = settings(profile, max_examples=min(_AFTERWARDS, wanted), **(options | own | {"phases": (Phase.generate,)}))
        started = trial.started
        with suppress(Exception):  # what was found stands, whatever other cases raise
            seed(f"{random_seed} afterwards")(once(given(drawn)(trial.look_on)))()
        trial.started = started
    found = replace(
        outcome,
        examples=trial.examples,
        informative=trial.informative,
        vacuous=trial.vacuous,
        discarded=max(0, trial.started - trial.examples - trial.tried),
        suspicious=trial.suspicious,
        worst_line=trial.worst_line,
        worst_excess=trial.worst if trial.broken is None else trial.broken.excess,
        seconds=time.perf_counter() - start,
        reason=reason,
        within=trial.narrowest.names,
        looked_at=trial.narrowest.calls,
    )
    return _judged(found, trial, law, shrinks)


def examine(
    laws: Sequence[Law],
    implementation: Implementation,
    max_examples: int | None = 100,
    random_seed: int | None = 0,
    observe: Observer | None = None,
    seconds_per_call: float = 60.0,
    began: Callable[[str], None] = lambda law: None,
) -> list[Outcome]:
    """What becomes of some laws about one operation, in their order: see `properties.examination`."""
    examination = Examination(implementation, laws[0].operation, laws, observe, seconds_per_call, began)
    examination.run(max_examples or (settings.default or settings()).max_examples, random_seed)
    return list(examination.outcomes())


def _explained(implementation: Implementation, law: Law, violation: Violation) -> Violation:
    """A violation on a smaller input, with what explains it."""
    smaller = smallest(implementation, law, violation)
    ((_, diagnosis),) = causes(implementation, [(law, smaller)])
    return replace(smaller, diagnosis=diagnosis)


def _not_applicable(outcome: Outcome, why: str, declared: str) -> Outcome:
    """The outcome of a law without cases; a declaration that this very law is broken is one of nothing, and should go."""
    if not declared:
        return replace(outcome, status="not applicable", reason=why)
    summary = f"is declared to be broken, but does not apply: the declaration should go. {why} It says: {declared}"
    violation = Violation(outcome.law, outcome.operation, outcome.implementation, summary, {}, 0.0)
    return replace(outcome, status="violated", reason=declared, violation=violation)


def _judged(outcome: Outcome, trial: _Trial, law: Law, diagnose: bool) -> Outcome:
    """The outcome with its status."""
    if trial.broken is not None:
        case = dict(zip(law.parameters, trial.case, strict=True))
        law_id, who, broken = (law.name, law.operation), outcome.implementation, trial.broken
        seen = trial.calls, tuple(trial.evidence), tuple(trial.fresh)
        violation = Violation(*law_id, who, str(broken), case, broken.excess, *seen, shrunk=diagnose)
        if outcome.reason:
            return replace(outcome, status="declared", violation=violation)
        implementation = trial.subject.implementation
        violation = replace(violation, notes=notes(violation.calls, implementation, trial.seen))
        if diagnose:
            ((_, diagnosis),) = causes(implementation, [(law, violation)])
            violation = replace(violation, diagnosis=diagnosis)
        return replace(outcome, status="violated", violation=violation)
    if outcome.reason:
        examples = counted(outcome.examples, "example")
        summary = f"is declared to be broken, but held on {examples}: the declaration should go. It says: {outcome.reason}"
        return replace(outcome, status="violated", violation=Violation(law.name, law.operation, outcome.implementation, summary, {}, 0.0))
    least = ceil(law.floor * outcome.examples)
    if outcome.informative < least or not outcome.examples:
        why = f"Only {outcome.informative} of {outcome.examples} examples were informative, but at least {least} should be."
        return replace(outcome, status="vacuous", reason=why)
    if outcome.suspicious:
        where = f"In {outcome.suspicious} of {counted(outcome.examples, 'example')} an error was beyond the statistical line"
        return replace(outcome, status="suspicious", reason=f"{where}, by up to {outcome.worst_line:.3g} times, and within the budget.")
    return outcome


def causes_of(implementation: Implementation, violations: Sequence[Violation], again: Callable[[Law], Outcome] | None) -> tuple[Cause, ...]:
    """The causes of violations that nobody declared: what explains them, and the smallest input that shows each.

    `again(law)`, if it is given, checks a law again and shrinks what it finds: of each cause one law is, by which the operation itself is
    compared if there is one, else that with the smallest input. What it finds is taken if it has the same cause.
    """
    laws = [find(v.law_id)[0] for v in violations]
    found = []
    for places, diagnosis in causes(implementation, list(zip(laws, violations, strict=True))):
        group = [(laws[place], violations[place]) for place in places]
        law, example = min(group, key=lambda each: (not each[0].agreement, _size(each[1])))
        searched = bool(example.calls)
        if searched and again is not None:
            example = _explained_again(implementation, example, diagnosis, law) if law.domains else _smaller(example, diagnosis, law, again)
        worst = max((v for _, v in group), key=lambda v: v.excess)
        told = f"{worst.summary} ({worst.law})" if worst.excess > example.excess else ""
        kept = replace(example, diagnosis=diagnosis, calls=(), evidence=(), fresh=())
        found.append(Cause(implementation.name, tuple(each.id for each, _ in group), diagnosis, kept, told, searched))
    return tuple(found)


def _explained_again(implementation: Implementation, example: Violation, diagnosis: tuple[Diagnosis, ...], law: Law) -> Violation:
    """The example on a smaller input, if it has the same cause there."""
    smaller = smallest(implementation, law, example)
    ((_, found),) = causes(implementation, [(law, smaller)])
    same = not diagnosis or diagnosis[0].id in {d.id for d in found}
    return smaller if same else example


def _smaller(example: Violation, diagnosis: tuple[Diagnosis, ...], law: Law, again: Callable[[Law], Outcome]) -> Violation:
    """What checking a law again finds if it has the same cause, else the example; where that raises what is no verdict, a note says so."""
    try:
        found = again(law).violation
    except Exception as error:
        said = f"Looking for a smaller input ended with {type(error).__name__}: {error}".rstrip(": ")
        return replace(example, notes=(*example.notes, said))
    same = found is not None and (not diagnosis or diagnosis[0].id in {d.id for d in found.diagnosis})
    return found if found is not None and same else example


def _size(violation: Violation) -> int:
    return sum(x.size for x in violation.counterexample.values() if isinstance(x, np.ndarray))


def require_planned(laws: Iterable[str] | None, planned: Iterable[Law]) -> None:
    """Raise ValueError for the name of a law that is planned for none of what is verified: it would not be looked at, without a word."""
    names = {name for law in planned for name in (law.name, law.id)}
    if missing := [name for name in laws or () if name not in names]:
        raise ValueError(f"{missing[0]!r} is a law about an operation that is not offered; `attnspec explain` says which.")


def plan(implementation: Implementation, laws: Iterable[str] | None = None, long: bool = False) -> list[Law]:
    """The laws to check: all, with those of the long plan where it is asked for, or those named, of operations that are offered.

    Raises ValueError for a name that no law has, and for a declared deviation from a law that does not apply.
    """
    if isinstance(laws, str):
        raise TypeError(f"laws={laws!r}, but should be a collection of names.")
    chosen = [*LAWS, *(LONG if long else ())] if laws is None else list(dict.fromkeys(law for name in laws for law in find(name)))
    applicable = [law for law in (*LAWS, *LONG) if not law.not_applicable(implementation)]
    names = {name for law in applicable for name in (law.name, law.id)}
    if unmatched := sorted(set(implementation.known_deviations) - names):
        raise ValueError(f"{implementation.name} declares to deviate from {unmatched}, but no such law applies to it.")
    return [law for law in chosen if law.operation in implementation.operations]


def grouped(laws: Sequence[Law]) -> list[list[Law]]:
    """The laws about one operation together, as they are examined."""
    groups: dict[Any, list[Law]] = {}
    for law in laws:
        groups.setdefault((law.operation, bool(law.domains) or law.id), []).append(law)
    return list(groups.values())


def verify(
    target: Any,
    arithmetic: Arithmetic | str | None = None,
    conventions: Conventions | None = None,
    laws: Iterable[str] | None = None,
    max_examples: int = 100,
    seed: int = 0,
    known_deviations: Mapping[str, str] | None = None,
    *,
    long: bool = False,
    strict: bool = False,
    fail_fast: bool = False,
    progress: Callable[[Outcome], None] | None = None,
) -> Report:
    """Check every law that applies to an implementation, and find the causes of what fails.

    `target` is a mapping, module or object with functions of the operations' names, or an `Implementation`, whose arithmetic (float64
    otherwise), conventions and deviations the arguments replace. `laws` names some laws, "law" or "law[operation]"; `long` adds those of
    the long plan, with 131072 keys. Of each law `max_examples` cases are tried; the same seed draws the same cases. `known_deviations`
    maps laws that are known to be broken to the reason; a declaration that matches no law, or a law that holds, is an error. `progress` is
    told each outcome as it is known. With `strict` the report is not ok either where an error is within its budget and beyond the
    statistical line, which is suspicious and no proof. With `fail_fast` no law is begun after the first violation.

    Interrupting it returns what is known so far. It runs in the caller's process, which a crash or a hang of the implementation takes down:
    the command `attnspec verify` runs it in a process of its own. Raises ValueError and TypeError for arguments that are none of these.
    """
    if isinstance(max_examples, bool) or not isinstance(max_examples, int) or max_examples < 1:
        raise ValueError(f"max_examples={max_examples!r}, but should be a whole number from 1.")
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise TypeError(f"seed has type {type(seed).__name__}, but should be an int.")
    implementation = implementation_of(target, arithmetic, conventions, known_deviations)
    chosen = plan(implementation, laws, long)
    require_planned(laws, chosen)
    outcomes: list[Outcome] = []
    found: tuple[Cause, ...] = ()
    interrupted = False
    try:
        for group in grouped(chosen):
            outcomes += (
                examine(group, implementation, max_examples, seed)
                if group[0].domains
                else [check(group[0], implementation, max_examples, seed, shrink=False)]
            )
            for outcome in outcomes[-len(group) :] if progress is not None else ():
                progress(outcome)
            if fail_fast and any(outcome.status == "violated" for outcome in outcomes):
                why = "After the first violation no law is begun (fail_fast)."
                left = chosen[len(outcomes) :]
                outcomes += [Outcome(w.name, w.operation, implementation.name, "not run", reason=why) for w in left]
                break
        violations = [o.violation for o in outcomes if o.status == "violated" and o.violation is not None]
        found = causes_of(implementation, violations, lambda law: check(law, implementation, max_examples, seed, shrink=True))
    except KeyboardInterrupt:
        interrupted = True
        done = {(o.law, o.operation) for o in outcomes}
        outcomes += [Outcome(w.name, w.operation, implementation.name, "not run") for w in chosen if (w.name, w.operation) not in done]
    name = implementation.rounding.name if arithmetic else None
    told, found = with_causes(outcomes, found, lambda violation: script(violation, arithmetic=name))
    settings_ = {"max_examples": max_examples, "seed": seed, "arithmetic": implementation.rounding.name}
    return Report(told, settings_, interrupted, strict, found)


def replay(law: str, target: Any, **case: Any) -> None:
    """A law, "law[operation]", on one case, by the names of its entries; raises BrokenError, an AssertionError, where it does not hold."""
    found = find(law)
    if len(found) != 1:
        raise ValueError(f"{law!r} is a law of {len(found)} operations, but should name one, as in {found[0].id!r}.")
    subject = Subject(implementation_of(target), found[0].operation)
    found[0].body(subject, *(case[name] for name in found[0].parameters))
