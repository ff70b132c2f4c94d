"""One operation of one implementation under examination: cases are drawn once, and every law about
it is put to some of them.

A case is called once, and judged by the budget: that is the operation's agreement with the oracle.
Of the other laws of its domain a few are put to it, by turns, each of which calls the operation on
other inputs too; those calls are judged as well. A violation stops nothing.
"""

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import ceil, inf
from random import Random
from typing import Any

from properties.contract import interpreter
from properties.contract.exchange import UngivenError
from properties.contract.implementation import Implementation
from properties.contract.operations import OPERATIONS
from properties.contract.results import BrokenError, Call
from properties.contract.subject import Subject
from properties.contract.support import OutsideError
from properties.laws.agreement import AGREEMENT
from properties.laws.commuting_squares import Square
from properties.laws.law import Law
from properties.strategies.cases import Cases, UnsupportedError
from properties.strategies.domains import DOMAINS, QUIRKS
from properties.verifier.drawing import by_profile
from properties.verifier.failures import failure
from properties.verifier.report import Outcome, reason_for
from properties.verifier.trial import FAILED, TIME, Evidence, Trial, not_applicable, unknown

__all__ = ["Examination", "Observer"]

Observer = Callable[[str, tuple[Any, ...], str], None]

_TURNS = 2  # laws that are put to a case, besides agreement
_FEWEST = 20  # a domain gets at least one of so many cases, however small its share
_PATIENCE = 10  # times as many cases for a law too few of whose cases were informative, or whose declared deviation has not been seen
_SILENT = 2  # of those, after which a law that has said nothing of any case is let go
_LOOKS = 40  # cases of which one is put to finer presets
_LINES = 4  # cases of which one is put to the statistical line
_SEEDS = 2**24 - 1


class _FirstError(Exception):
    """A violation after which Hypothesis is to stop, and to keep the case for the next time: in pytest."""


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
    ends: Callable[[str], bool] = lambda law: (
        False
    )  # whether no case is drawn after a violation of a law that nobody declared

    def __post_init__(self) -> None:
        self.subject = Subject(self.implementation, self.operation, self.observe, self.seconds_per_call)
        self.evidence = Evidence(self.implementation, self.operation)
        self.trials: dict[str, Trial] = {}
        self.settled: dict[str, Outcome] = {}
        self._domains: dict[str, Cases | str] = {}
        for law in self.laws:
            self._admit(law)

    def _admit(self, law: Law) -> None:
        """Put a law to trial, or settle why not."""
        i = self.implementation
        outcome = Outcome(law.name, law.operation, i.name, "held")
        if why := law.not_applicable(i):
            self.settled[law.id] = replace(outcome, status="not applicable", reason=why)
            return
        if i.unavailable:
            self.settled[law.id] = replace(outcome, status="not run", reason=i.unavailable, unavailable=True)
            return
        found = {name: self._cases(name) for name in law.domains}
        cases = {name: x for name, x in found.items() if isinstance(x, Cases)}
        reasons = {name: x for name, x in found.items() if isinstance(x, str)}
        if cases:
            domains = DOMAINS[self.operation]  # options that are not declared are none that are left out
            undrawn = tuple(f"{name}: {why}" for name, why in reasons.items() if not domains[name].rotates)
            self.trials[law.id] = Trial(law, cases, reason_for(i.known_deviations, law.id), undrawn)
        elif law in AGREEMENT:
            self.settled[law.id] = replace(
                outcome, status="vacuous", reason=unknown(i, law.operation, next(iter(reasons.values())))
            )
        else:
            self.settled[law.id] = not_applicable(
                outcome, next(iter(reasons.values())), i.known_deviations.get(law.id, "")
            )

    def _cases(self, domain: str) -> Cases | str:
        """The cases of a domain, or why there are none."""
        if domain not in self._domains:
            try:
                self._domains[domain] = Cases(
                    OPERATIONS[self.operation], DOMAINS[self.operation][domain], self.implementation
                )
            except UnsupportedError as unsupported:
                self._domains[domain] = str(unsupported)
        return self._domains[domain]

    def run(self, number: int, random_seed: int | None) -> None:
        """So many cases, of each domain its share, and more for laws that say too little; what
        calls change besides is put back.

        Where attnspec itself fails, what is known by then stays.
        """
        try:
            self._run(number, random_seed)
        except Exception as error:
            _fail(self.trials.values(), f"it checked {self.operation}", error)
        finally:
            interpreter.restore(self.subject.original)

    def _run(self, number: int, random_seed: int | None) -> None:
        domains = {name: cases for trial in self.trials.values() for name, cases in trial.cases.items()}
        shares = sum(cases.domain.share for cases in domains.values())
        groups = {name: [trial for trial in self.trials.values() if name in trial.cases] for name in domains}
        each = {
            name: max(ceil(number * x.domain.share / shares), ceil(number / _FEWEST)) for name, x in domains.items()
        }
        self._draw(groups, each, random_seed)
        for turn in range(_PATIENCE):
            wanting = [
                trial for trial in self.trials.values() if trial.wants_more and (trial.examples or turn <= _SILENT)
            ]
            again = {name: some for name in domains if (some := [trial for trial in wanting if name in trial.cases])}
            self._draw(again, dict.fromkeys(again, 10), random_seed, str(turn))

    def _draw(
        self, groups: Mapping[str, list[Trial]], numbers: Mapping[str, int], random_seed: int | None, more: str = ""
    ) -> None:
        """Put groups of laws to so many cases of each domain: of seeds drawn from the caller's, or
        else drawn by Hypothesis.

        The domains take turns, each in proportion to its number, so that a run that is cut short
        has seen all of them. The turns depend on the numbers alone: what is drawn before an end of
        time is the beginning of what is drawn without one.
        """
        if random_seed is None:
            for name, group in groups.items():
                for some in [[trial] for trial in group] if more else [group]:
                    self._draw_by_profile(name, some, numbers[name], more)
            return
        turns = [
            (n / numbers[name], name, seed)
            for name in groups
            for n, seed in enumerate(self._seeds(name, numbers[name], random_seed, more))
        ]
        for _, name, seed in sorted(turns, key=lambda turn: turn[0]):
            if why := self._over():
                for trial in groups[name]:
                    trial.cut_short = why
            elif not more or any(trial.wants_more for trial in groups[name]):
                self._put_to(name, seed, groups[name], more)

    def _seeds(self, domain: str, number: int, random_seed: int, more: str) -> list[int]:
        """The seeds of so many cases of a domain, drawn from the caller's; the simplest case comes
        first, unless they are some more.
        """
        drawn = Random(f"{random_seed} {self.operation} {domain} {more}")
        return [*([] if more else [0]), *(drawn.randint(1, _SEEDS) for _ in range(number))][:number]

    def _over(self) -> str:
        """Why no further case is drawn, or ""."""
        if any(trial.violations and not trial.declared and self.ends(law) for law, trial in self.trials.items()):
            return FAILED
        return TIME if time.monotonic() >= self.until else ""

    def _draw_by_profile(self, name: str, group: list[Trial], number: int, more: str) -> None:
        """Put a group of laws to cases of a domain, drawn by Hypothesis, as its profile says, which
        keeps those that fail.
        """

        def hold(seed: int) -> None:
            if not more or any(trial.wants_more for trial in group):
                self._put_to(name, seed, group, more)
            if any(trial.violations for trial in group):
                raise _FirstError

        # The identifier by which Hypothesis keeps failures:
        identifier = re.sub(r"[^A-Za-z0-9]+", "_", f"{group[0].law.name} {self.operation} {name}")
        hold.__name__ = hold.__qualname__ = identifier
        with suppress(_FirstError):
            by_profile(hold, number, _SEEDS)

    def _put_to(self, name: str, seed: int, group: list[Trial], more: str) -> None:
        """Put a group of laws to a case of a domain: some of them, by turns, or if it is one more
        those that want it.
        """
        arguments, quirk = group[0].cases[name].draw(seed), name in QUIRKS
        if not more:
            self._case(arguments, seed, group, quirk)
            return
        wanting = [trial for trial in group if trial.wants_more]
        if agreement := [trial for trial in wanting if trial.law.agreement]:
            self._case(arguments, seed, agreement, quirk)
        if others := [trial for trial in wanting if not trial.law.agreement]:
            self._further(arguments, seed, others, quirk)

    def _case(self, arguments: tuple[Any, ...], seed: int, group: list[Trial], quirk: bool) -> None:
        """A case, its own call, and the laws whose turn it is; of a quirk a law of its own says what should be."""
        subject = self.subject
        subject.begin()
        agreement = [trial for trial in group if trial.law.agreement]
        self.began((agreement or group)[0].law.id)
        try:
            subject.about(arguments)
            subject.seen(arguments)
        except BrokenError:
            pass
        except (UngivenError, OutsideError) as untaken:
            for trial in group:
                trial.leave_out(str(untaken))
            return
        if not (quirk and subject.calls[0].error):  # which may be a refusal
            self._judge(agreement, 0, quirk)
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
        self.evidence.cases += 1
        if self.evidence.cases % _LOOKS == 1 and not quirk:
            self.evidence.narrowest.look(subject.calls)

    def _further(self, arguments: tuple[Any, ...], seed: int, group: list[Trial], quirk: bool) -> None:
        """A case for laws that have said too little: of many cases they say nothing, and then
        nothing is called.

        A law's first call of the operation, which mostly is the case's own, is judged as well as
        those of the other terms of a square.
        """
        subject, judged = self.subject, list[Call]()
        agreement = [] if quirk else [trial for trial in self.trials.values() if trial.law.agreement]
        subject.begin()
        subject.about(arguments)
        for trial in group:
            said = self._put(trial, arguments, seed, agreement)
            own = [place for place, call in enumerate(subject.calls) if call.operation == self.operation]
            if said and own and not quirk and not any(subject.calls[own[0]] is call for call in judged):
                judged.append(subject.calls[own[0]])
                self._judge(agreement, own[0])
        self.evidence.cases += 1

    def _put(self, trial: Trial, arguments: tuple[Any, ...], seed: int, agreement: list[Trial]) -> bool:
        """A law on a case; whether it says something of it."""
        subject, law = self.subject, trial.law
        self.began(law.id)
        subject.turn()
        start = time.perf_counter()
        case = law.case(arguments, seed)
        try:
            if not law.hold(subject, case):
                return False
            trial.held(subject)
        except BrokenError as broken:
            trial.broke(self.implementation.name, broken, case, tuple(subject.calls))
        except (UngivenError, OutsideError) as untaken:
            trial.leave_out(str(untaken))
            return False
        except Exception as error:  # the others go on
            _fail([trial], "it checked this law", error)
        trial.seconds += time.perf_counter() - start
        trial.credit = 0.0
        if isinstance(law.body, Square):
            for place in range(1, len(subject.calls)):
                self._judge(agreement, place)
        return True

    def _judge(self, agreement: list[Trial], place: int, quirk: bool = False) -> None:
        """A call by itself: the operation's agreement with the oracle, which may refuse a quirk:
        then there is no right answer.
        """
        subject, call = self.subject, self.subject.calls[place]
        start = time.perf_counter()
        subject.retell()
        try:
            subject.judge(place, line=place == 0 and self.evidence.cases % _LINES == 0)
            broken = None
        except BrokenError as found:
            broken = found
        except Exception as error:
            if not (quirk and isinstance(error, ValueError)):
                _fail(agreement, f"it judged a call of {call.operation}", error)
            return
        self.evidence.add(call, broken is None)
        for trial in agreement:
            if broken is None:
                trial.held(subject)
            else:
                trial.broke(self.implementation.name, broken, trial.law.case(call.arguments, 0), (call,))
            trial.seconds += time.perf_counter() - start

    def outcomes(self) -> Iterator[Outcome]:
        """What became of each law, in their order."""
        for law in self.laws:
            yield self.settled[law.id] if law.id in self.settled else self.trials[law.id].outcome(self.evidence)


def _fail(trials: Iterable[Trial], doing: str, error: Exception) -> None:
    """Note of some laws that attnspec failed while it did something; what comes first is told."""
    for trial in trials:
        trial.failed = trial.failed or failure(doing, error)
