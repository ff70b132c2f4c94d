"""One operation of one implementation under examination: cases are drawn once, and every law about it is put to some of them.

A case is called once, and judged by the budget: that is the operation's agreement with the oracle. Of the other laws of its domain a few
are put to it, by turns, each of which calls the operation on other inputs too; those calls are judged as well. A violation stops nothing.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import ceil, inf
from random import Random
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from properties.contract import interpreter
from properties.contract.exchange import UngivenError
from properties.contract.implementation import Implementation
from properties.contract.operations import OPERATIONS
from properties.contract.subject import BrokenError, Call, Subject
from properties.contract.support import OutsideError
from properties.laws.agreement import AGREEMENT
from properties.laws.law import Law
from properties.laws.squares import Square
from properties.strategies.domains import DOMAINS, QUIRKS, Cases, UnsupportedError
from properties.verifier.narrowest import Narrowest
from properties.verifier.remarks import Seen, notes
from properties.verifier.report import Outcome, Violation, counted

__all__ = ["Examination", "Observer"]

Observer = Callable[[str, tuple[Any, ...], str], None]

_TURNS = 2  # laws that are put to a case, besides agreement
_FEWEST = 20  # a domain gets at least one of so many cases, however small its share
_ENOUGH = 4  # violations of a law after which it is not put to further cases
_PATIENCE = 10  # times as many cases for a law too few of whose cases were informative, or whose declared deviation has not been seen
_SILENT = 2  # of those, after which a law that has said nothing of any case is let go
_LOOKS = 40  # cases of which one is put to finer presets
_LINES = 4  # cases of which one is put to the statistical line
_EVIDENCE = 24  # calls of other cases that are kept for the diagnosis
_SEEDS = 2**24 - 1


class _FirstError(Exception):
    """A violation after which Hypothesis is to stop, and to keep the case for the next time: in pytest."""


@dataclass
class _Trial:
    """What is known of a law so far."""

    law: Law
    cases: dict[str, Cases]
    reason: str  # why its violation is declared, or ""
    undrawn: tuple[str, ...] = ()
    examples: int = 0
    informative: int = 0
    vacuous: int = 0
    suspicious: int = 0
    worst: float = 0.0
    worst_line: float = 0.0
    seconds: float = 0.0
    credit: float = 0.0
    violations: int = 0
    violation: Violation | None = None
    furthest: str = ""
    failed: str = ""
    cut_short: bool = False  # by the time, before all of its cases were drawn
    untaken: str = ""  # why a case could not be handed over, or is none that the implementation takes

    @property
    def open(self) -> bool:
        """Whether it is put to further cases."""
        return self.violations < _ENOUGH and not self.failed

    @property
    def wants_more(self) -> bool:
        """Whether too few of its cases were informative, or what is declared has not been seen."""
        return self.open and not self.violations and (bool(self.reason) or self.informative < max(1, ceil(self.law.floor * self.examples)))


@dataclass
class Examination:
    """The laws about one operation, put to an implementation case by case."""

    implementation: Implementation
    operation: str
    laws: Sequence[Law]
    observe: Observer | None = None
    seconds_per_call: float = 60.0
    began: Callable[[str], None] = lambda law: None
    until: float = inf  # of time.monotonic, after which no case is drawn
    trials: dict[str, _Trial] = field(default_factory=dict)
    settled: dict[str, Outcome] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.subject = Subject(self.implementation, self.operation, self.observe, self.seconds_per_call)
        self.right: list[Call] = []
        self.wrong: list[Call] = []
        self.seen: list[Seen] = []
        self.narrowest = Narrowest(self.implementation)
        self.cases = 0
        domains: dict[str, Cases | str] = {}
        for law in self.laws:
            self._admit(law, domains)

    def _admit(self, law: Law, domains: dict[str, Cases | str]) -> None:
        """Put a law to trial, or settle why not."""
        i = self.implementation
        outcome = Outcome(law.name, law.operation, i.name, "held")
        declared = {name: i.known_deviations.get(name, "") for name in (law.name, law.id)}
        if why := law.not_applicable(i):
            self.settled[law.id] = replace(outcome, status="not applicable", reason=why)
        elif i.unavailable:
            self.settled[law.id] = replace(outcome, status="not run", reason=i.unavailable, unavailable=True)
        else:
            reasons: dict[str, str] = {}
            cases = {}
            for name in law.domains:
                if name not in domains:
                    try:
                        domains[name] = Cases(OPERATIONS[self.operation], DOMAINS[self.operation][name], i)
                    except UnsupportedError as unsupported:
                        domains[name] = str(unsupported)
                found = domains[name]
                if isinstance(found, str):
                    reasons[name] = found
                else:
                    cases[name] = found
            if cases:
                undrawn = tuple(f"{name}: {why}" for name, why in reasons.items())
                self.trials[law.id] = _Trial(law, cases, next(filter(None, declared.values()), ""), undrawn)
            elif law in AGREEMENT:
                self.settled[law.id] = replace(outcome, status="vacuous", reason=_unknown(i, law.operation, next(iter(reasons.values()))))
            else:
                self.settled[law.id] = not_applicable(outcome, next(iter(reasons.values())), declared[law.id])

    def run(self, number: int, random_seed: int | None) -> None:
        """So many cases, of each domain its share, and more for laws that say too little; what calls change besides is put back."""
        try:
            self._run(number, random_seed)
        finally:
            interpreter.restore(self.subject.original)

    def _run(self, number: int, random_seed: int | None) -> None:
        domains = {name: cases for trial in self.trials.values() for name, cases in trial.cases.items()}
        shares = sum(cases.domain.share for cases in domains.values())
        for name, cases in domains.items():
            group = [trial for trial in self.trials.values() if name in trial.cases]
            few = max(ceil(number * cases.domain.share / shares), ceil(number / _FEWEST))
            self._draw(name, cases, group, few, random_seed, "")
        for trial in self.trials.values():
            for turn in range(_PATIENCE):
                if not trial.wants_more or (turn > _SILENT and not trial.examples):
                    break
                for name, cases in trial.cases.items():
                    self._draw(name, cases, [trial], 10, random_seed, f"{trial.law.name} {turn}")

    def _draw(self, name: str, cases: Cases, group: list[_Trial], number: int, random_seed: int | None, more: str) -> None:
        """Put a group of laws to cases of a domain: of seeds drawn from the caller's, the simplest first, or else drawn by Hypothesis, as
        its profile says, which keeps those that fail."""

        def hold(seed: int) -> None:
            self._case(cases.draw(seed), seed, group, name in QUIRKS)
            if random_seed is None and any(trial.violations for trial in group):
                raise _FirstError

        if random_seed is not None:
            drawn = Random(f"{random_seed} {self.operation} {name} {more}")
            for seed in [*([] if more else [0]), *(drawn.randint(1, _SEEDS) for _ in range(number))][:number]:
                if time.monotonic() >= self.until:
                    for trial in group:
                        trial.cut_short = True
                    return
                hold(seed)
            return
        hold.__name__ = hold.__qualname__ = f"{group[0].law.name}_{self.operation}_{name}".replace(" ", "_")  # by which failures are kept
        quietly = settings(
            settings.default or settings(),
            max_examples=number,
            suppress_health_check=list(HealthCheck),
            deadline=None,
            print_blob=False,
            phases=(Phase.reuse, Phase.generate),
        )
        with suppress(_FirstError):
            quietly(given(st.integers(0, _SEEDS))(hold))()

    def _case(self, arguments: tuple[Any, ...], seed: int, group: list[_Trial], quirk: bool) -> None:
        """A case, its own call, and the laws whose turn it is; of a quirk a law of its own says what should be."""
        subject = self.subject
        subject.begin()
        agreement = [trial for trial in group if trial.law.agreement]
        self.began((agreement or group)[0].law.id)
        try:
            subject.base(arguments)
        except BrokenError:
            pass
        except (UngivenError, OutsideError) as untaken:
            for trial in group:
                trial.untaken = trial.untaken or str(untaken)
            return
        if quirk:
            with suppress(ValueError):  # of what is refused by convention there is no right answer
                self._judge(agreement, 0)
        else:
            self._judge(agreement, 0)
        for trial in group:
            trial.credit += trial.law.effort
        turns = 0
        for trial in group:
            if trial.law.watches and trial.open:
                self._put(trial, arguments, seed, agreement)
        others = (trial for trial in group if not (trial.law.agreement or trial.law.watches) and trial.open)
        for trial in sorted(others, key=lambda trial: -trial.credit):
            if turns == min(_TURNS, len(group)):
                break
            turns += self._put(trial, arguments, seed, agreement)
        self.cases += 1
        if self.cases % _LOOKS == 1 and not quirk:
            self.narrowest.look(subject.calls)

    def _put(self, trial: _Trial, arguments: tuple[Any, ...], seed: int, agreement: list[_Trial]) -> bool:
        """A law on a case; whether it says something of it."""
        subject, law = self.subject, trial.law
        self.began(law.id)
        subject.turn()
        start = time.perf_counter()
        case = law.case(arguments, seed)
        try:
            if not law.hold(subject, case):
                return False
            self._held(trial)
        except BrokenError as broken:
            self._broken(trial, broken, case, tuple(subject.calls))
        except (UngivenError, OutsideError) as untaken:
            trial.untaken = trial.untaken or str(untaken)
            return False
        except Exception as error:  # the others go on
            trial.failed = f"The law itself failed, which says nothing about {self.implementation.name}: {type(error).__name__}: {error}"
        trial.seconds += time.perf_counter() - start
        trial.credit = 0.0
        if isinstance(law.body, Square):
            for place in range(1, len(subject.calls)):
                self._judge(agreement, place)
        return True

    def _judge(self, agreement: list[_Trial], place: int) -> None:
        """A call by itself: the operation's agreement with the oracle."""
        subject, call = self.subject, self.subject.calls[place]
        start = time.perf_counter()
        subject.retell()
        try:
            subject.judge(place, line=place == 0 and self.cases % _LINES == 0)
            broken = None
            if len(self.right) < _EVIDENCE:
                self.right.append(call)
        except BrokenError as found:
            broken = found
            if len(self.wrong) < _EVIDENCE:
                self.wrong.append(call)
        self.seen.append(Seen(OPERATIONS[call.operation].sizes(call.arguments), broken is None))
        for trial in agreement:
            if broken is None:
                self._held(trial)
            else:
                self._broken(trial, broken, trial.law.case(call.arguments, 0), (call,))
            trial.seconds += time.perf_counter() - start

    def _held(self, trial: _Trial) -> None:
        subject = self.subject
        trial.examples += 1
        trial.informative += subject.informative
        trial.vacuous += bool(subject.vacuous)
        trial.suspicious += subject.worst_line > 1
        trial.worst, trial.worst_line = max(trial.worst, subject.worst), max(trial.worst_line, subject.worst_line)

    def _broken(self, trial: _Trial, broken: BrokenError, case: dict[str, Any], calls: tuple[Call, ...]) -> None:
        """A violation: the one on the smallest input is kept, and what is said of the worst."""
        trial.examples += 1
        trial.violations += 1
        found = Violation(trial.law.name, self.operation, self.implementation.name, str(broken), case, broken.excess, calls, shrunk=False)
        if trial.violation is None or found.size < trial.violation.size:
            trial.violation = found
        if broken.excess > trial.worst or not trial.furthest:
            trial.worst, trial.furthest = max(trial.worst, broken.excess), str(broken)

    def outcomes(self) -> Iterator[Outcome]:
        """What became of each law."""
        for law in self.laws:
            if law.id in self.settled:
                yield self.settled[law.id]
                continue
            trial = self.trials[law.id]
            yield self._judged(
                trial,
                Outcome(
                    *(law.name, law.operation, self.implementation.name, "held"),
                    examples=trial.examples,
                    informative=trial.informative,
                    vacuous=trial.vacuous,
                    suspicious=trial.suspicious,
                    worst_line=trial.worst_line,
                    worst_excess=trial.worst,
                    seconds=trial.seconds,
                    reason=trial.reason,
                    within=self.narrowest.names if law.agreement else (),
                    looked_at=self.narrowest.calls if law.agreement else 0,
                    undrawn=trial.undrawn if law.agreement else (),
                ),
            )

    @cached_property
    def unwritten(self) -> str:
        """That the operation is still to be written, if each of its calls says so by a NotImplementedError, and what the first one says."""
        raised = [call.error for call in self.wrong if call.error.startswith("raised NotImplementedError: ")]
        return f"Every call {raised[0]}" if raised and len(raised) == len(self.wrong) and not self.right else ""

    def _judged(self, trial: _Trial, outcome: Outcome) -> Outcome:
        """The outcome with its status."""
        if self.unwritten:
            return replace(outcome, status="not run", examples=0, worst_excess=0.0, reason=self.unwritten)
        if trial.failed and trial.violation is None:
            return replace(outcome, status="not run", reason=trial.failed)
        if trial.violation is not None:
            violation = replace(trial.violation, evidence=tuple(self.right), fresh=tuple(self.wrong), seen=tuple(self.seen))
            if outcome.reason:
                return replace(outcome, status="declared", violation=violation)
            found = replace(violation, notes=notes(violation.calls, self.implementation, self.seen))
            return replace(outcome, status="violated", violation=found)
        if trial.cut_short:
            after = f"after {counted(self.cases, 'case')} of {self.operation}"
            why = f"Time was up {after}: it was cut short, and not seen to be broken. More time should be given, or fewer cases."
            return replace(outcome, status="not run", reason=why)
        if outcome.reason:
            examples = counted(outcome.examples, "example")
            summary = f"is declared to be broken, but held on {examples}: the declaration should go. It says: {outcome.reason}"
            empty = Violation(outcome.law, outcome.operation, outcome.implementation, summary, {}, 0.0)
            return replace(outcome, status="violated", violation=empty)
        if not outcome.examples:
            said = f"It says nothing of any of {counted(self.cases, 'case')} that {self.implementation.name} supports."
            if trial.law in AGREEMENT:
                return replace(outcome, status="vacuous", reason=_unknown(self.implementation, self.operation, trial.untaken or said))
            return replace(outcome, status="not applicable", reason=trial.untaken or said)
        least = ceil(trial.law.floor * outcome.examples)
        if outcome.informative < least and trial.untaken and trial.law not in AGREEMENT:
            return replace(outcome, status="not applicable", reason=trial.untaken)
        if outcome.informative < least:
            why = f"Only {outcome.informative} of {outcome.examples} examples were informative, but at least {least} should be."
            return replace(outcome, status="vacuous", reason=why)
        if outcome.suspicious:
            where = f"In {outcome.suspicious} of {counted(outcome.examples, 'example')} an error was beyond the statistical line"
            return replace(outcome, status="suspicious", reason=f"{where}, by up to {outcome.worst_line:.3g} times, and within the budget.")
        return outcome


def _unknown(implementation: Implementation, operation: str, why: str) -> str:
    """The sentence on an operation that is compared with the oracle on no case at all."""
    return f"{implementation.name} takes no case on which {operation} is compared with the oracle, so that nothing is known of it: {why}"


def not_applicable(outcome: Outcome, why: str, declared: str) -> Outcome:
    """The outcome of a law without cases; a declaration that this very law is broken is one of nothing, and should go."""
    if not declared:
        return replace(outcome, status="not applicable", reason=why)
    summary = f"is declared to be broken, but does not apply: the declaration should go. {why} It says: {declared}"
    violation = Violation(outcome.law, outcome.operation, outcome.implementation, summary, {}, 0.0)
    return replace(outcome, status="violated", reason=declared, violation=violation)
