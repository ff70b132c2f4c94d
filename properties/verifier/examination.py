"""Examines one operation of one implementation: attnspec draws cases (arguments of one test) once,
and checks every law about the operation on some of them.

attnspec calls the operation once on each case, and compares the result with the oracle. This is the
law of agreement. On the same case, it also checks a few other laws of the same domain (family of
inputs), which take turns. Such a law calls the operation on other inputs too, and attnspec compares
some of these results as well. A violation does not end the examination.
"""

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import inf
from random import Random
from typing import Any

from properties.contract import process_state
from properties.contract.caller import Observer
from properties.contract.conversion import UngivenError
from properties.contract.implementation import Implementation
from properties.contract.operations import OPERATIONS, Arguments
from properties.contract.results import BrokenError, Call
from properties.contract.subject import Subject
from properties.contract.support import NotTakenError, OutsideError
from properties.contract.tried_calls import NotTaken, not_taken
from properties.contract.wanted_shapes import as_text, concerns
from properties.inspection.signatures import undeclared_features
from properties.laws.agreement import AGREEMENT
from properties.laws.commuting_squares import Square
from properties.laws.law import Law
from properties.laws.refusals import UNSUPPORTED
from properties.strategies.cases import Cases, UnsupportedError
from properties.strategies.domains import DOMAINS, QUIRKS
from properties.strategies.wanted_cases import MOST_PRODUCTS, WantedCases
from properties.verifier.case_drawing import MAX_SEED, by_profile, numbers_of_cases, turns
from properties.verifier.coverage import none_yet
from properties.verifier.first_look import narrowed
from properties.verifier.notes import failure
from properties.verifier.plan import is_quick
from properties.verifier.report import Outcome, Violation, reason_for
from properties.verifier.trial import FAILED, TIME, Evidence, Trial, does_not_apply, unknown

__all__ = ["Examination", "Supervision"]

_LAWS_PER_CASE = 2  # besides agreement
_ROUNDS = 10  # of further cases for a law that had too few informative cases, or whose declared deviation did not occur
_CASES_PER_ROUND = 10  # of each domain
_CASES_OF_ESTIMATE = 8  # by the time of as many cases or more, the time of the others is estimated
_CASES_PER_LAW = 4  # of each domain and in each round, if laws are finished one after the other
_SILENT_ROUNDS = 2  # after these a law that no case could test gets no further cases
_POINTS = "operating points"  # the domain of the instruments that measure at the sizes of their case
_CASES_PER_LOOK = 40  # one case of these is judged by finer presets
_SECONDS_OF_POINTS = 10.0  # of the kernel's calls at operating points; an everyday kernel takes less than one
_TIMES_WITH_COSTS = 3  # as many seconds with `--cost`: it leaves out single slow calls, so the others are cheap
_REPAIR_FIRST = "Other checks of the operation fail. This one is looked at when these pass."
_CASES_PER_LINE = 4  # one case of these is compared with the statistical line


@dataclass(frozen=True)
class Supervision:
    """How an examination is watched, and when it ends.

    observe            is called with every call before it is made
    began              is called with the law that is now checked on the case
    seconds_per_call   the longest time that a call may take
    until              a reading of time.monotonic, after which no case is drawn
    ends               returns whether an undeclared violation of a law ends the drawing of cases
    most_products      the most products in the scores of a call at sizes that the user names
    seconds_of_points  after calls at operating points took so long, the further ones are left out
    draws_line         whether some errors are compared with the statistical line, by which no law fails
    checked            is called with the examination after every case
    """

    observe: Observer | None = None
    began: Callable[[str], None] = lambda law: None
    seconds_per_call: float = 60.0
    until: float = inf
    ends: Callable[[str], bool] = lambda law: False
    most_products: int = MOST_PRODUCTS
    seconds_of_points: float = _SECONDS_OF_POINTS
    draws_line: bool = True
    checked: Callable[["Examination"], None] = lambda examination: None


class _FirstError(Exception):
    """Raised at a violation in pytest: Hypothesis then stops, and keeps the case for the next run."""


@dataclass
class Examination:
    """The laws about one operation, which attnspec checks on an implementation, case by case. A
    case is the arguments of one test. `seen_before` are the inputs that the implementation did not
    take in an earlier look.
    """

    implementation: Implementation
    operation: str
    laws: Sequence[Law]
    supervision: Supervision = field(default_factory=Supervision)
    seen_before: tuple[NotTaken, ...] = ()

    def __post_init__(self) -> None:
        self.coverage = none_yet(self.implementation)
        self.subject = self._subject()
        self.evidence = Evidence(self.implementation, self.operation)
        self.evidence.tried = self.subject.tried
        self.trials: dict[str, Trial] = {}
        self.settled: dict[str, Outcome] = {}
        self.planned = 0  # cases of all rounds but those of laws that want more
        self._domains: dict[str, Cases | str] = {}
        self._is_at_a_point, self._seconds_of_points = False, 0.0
        self._in_turn = False
        self._untried: dict[str, list[str]] = {}
        self._families_of_points: set[str] = set()
        self._wanted = tuple(self._wanted_cases())
        for law in self.laws:
            self._admit(law)

    def _subject(self) -> Subject:
        return Subject(self.implementation, self.operation, self._observe, self.supervision.seconds_per_call)

    def _observe(self, operation: str, arguments: Arguments, layout: str) -> None:
        """Count a call before it is made, and show it to the observer."""
        self.coverage.count(operation, arguments)
        if self.supervision.observe is not None:
            self.supervision.observe(operation, arguments, layout)

    def _admit(self, law: Law) -> None:
        """Open a trial (a count of what happens) for a law. If the law cannot be checked, record
        its outcome at once.
        """
        implementation = self.implementation
        outcome = Outcome(law.name, law.operation, implementation.name, "held")
        if reason := law.not_applicable(implementation):
            self.settled[law.id] = replace(outcome, status="not applicable", reason=reason)
            return
        if implementation.unavailable:
            self.settled[law.id] = replace(
                outcome, status="not run", reason=implementation.unavailable, unavailable=True
            )
            return
        found = {name: self._cases(name) for name in law.domains}
        cases = {name: drawn for name, drawn in found.items() if isinstance(drawn, Cases)}
        reasons = {name: reason for name, reason in found.items() if isinstance(reason, str)}
        if cases:
            domains = DOMAINS[self.operation]  # domains of undeclared options are not reported as left out
            left_out = {name: drawn.left_out for name, drawn in cases.items() if drawn.left_out}
            undrawn = tuple(f"{name}: {why}" for name, why in (reasons | left_out).items() if not domains[name].rotates)
            undrawn += tuple(f"{name}: {why}" for name, why in self.coverage.untried.items())
            self.trials[law.id] = Trial(law, cases, reason_for(implementation.known_deviations, law.id), undrawn)
            return
        first_reason = next(iter(reasons.values()))
        if law in AGREEMENT:
            reason = unknown(implementation, law.operation, first_reason)
            self.settled[law.id] = replace(outcome, status="vacuous", reason=reason)
        else:
            declared = implementation.known_deviations.get(law.id, "")
            self.settled[law.id] = does_not_apply(outcome, first_reason, declared)

    def _wanted_cases(self) -> Iterator[WantedCases]:
        """Yield the cases at each of the sizes that the implementation names, as far as it takes them."""
        operation = OPERATIONS[self.operation]
        for shape in self.implementation.wanted_shapes:
            if concerns(shape, operation):
                try:
                    yield WantedCases(operation, shape, self.implementation, self.supervision.most_products)
                except UnsupportedError as unsupported:
                    self.coverage.untried[as_text(shape)] = str(unsupported)

    def _cases(self, domain: str) -> Cases | str:
        """Return the cases (test inputs) of a domain (family of inputs), or the reason why the
        domain has no case for this implementation.
        """
        if domain not in self._domains:
            try:
                self._domains[domain] = Cases(
                    OPERATIONS[self.operation], DOMAINS[self.operation][domain], self.implementation
                )
            except UnsupportedError as unsupported:
                self._domains[domain] = str(unsupported)
        return self._domains[domain]

    def run(self, number: int, random_seed: int | None) -> None:
        """Draw about `number` cases (test inputs) and check the laws on them. Then draw further
        cases for laws that had too few informative cases, on which they could have failed.

        Process-wide state that calls changed is restored. If attnspec itself fails, the results so
        far are kept.
        """
        try:
            self._run(number, random_seed)
        except Exception as error:
            _fail(self.trials.values(), f"it checked {self.operation}", error)
        finally:
            process_state.restore(self.subject.original)

    def _run(self, number: int, random_seed: int | None) -> None:
        for wanted in self._wanted:
            self._check_at(wanted, random_seed)
        self._draw_round(number, random_seed)
        if self._mostly_raised() and self._narrow():
            self._draw_round(number, random_seed)
        if self._in_turn:
            self._finish_in_turn(random_seed)
        else:
            self._draw_more(random_seed)

    def _finish_in_turn(self, random_seed: int | None) -> None:
        """Finish the laws one after the other, as long as there is time: agreement first, then the laws
        that measure, then those of the quick plan. Then check them at the points that are left.
        """
        order = sorted(
            self.trials.values(),
            key=lambda trial: (not trial.law.agreement, not trial.law.measures, not is_quick(trial.law)),
        )
        fixed = {name: len(cases.fixed) for trial in order for name, cases in trial.cases.items()}
        points = [(name, seed) for name, number in fixed.items() for seed in range(number)]
        for trial in order:
            drawn = {name: [trial] for name, cases in trial.cases.items() if not cases.fixed}
            for round_number in range(_ROUNDS):
                if trial.wants_more and (trial.examples or round_number <= _SILENT_ROUNDS):
                    self._draw(drawn, dict.fromkeys(drawn, _CASES_PER_LAW), random_seed, f"{round_number} in turn")
            for name, seed in points:
                if name in trial.cases and trial.wants_more and not self._over():
                    self._check_at_a_point(name, seed, [trial], name in QUIRKS)
            if not trial.cut_short and trial.wants_more:
                trial.cut_short = self._over()
            self.supervision.checked(self)
        for name, seed in points:
            if not self._over():
                self._check_at_a_point(name, seed, [each for each in order if name in each.cases], name in QUIRKS)
        self._tell_untried({name: [each for each in order if name in each.cases] for name in self._untried})

    def _mostly_raised(self) -> bool:
        """Whether at least half of all calls were not taken."""
        tried = self.subject.tried
        return 2 * sum(bool(call.error) for call in tried) >= max(len(tried), 1)

    def _narrow(self) -> bool:
        """Draw the cases that follow from the sizes that trial calls show. Return whether there are
        such cases.
        """
        process_state.restore(self.subject.original)  # the next subject takes it as the state before all calls
        self.implementation = narrowed(self.implementation, self.operation, self.supervision.observe)
        tried, self.subject = self.subject.tried, self._subject()
        self.subject.tried += tried
        self.evidence.tried = self.subject.tried
        self._domains.clear()
        self._untried.clear()
        self._families_of_points.clear()
        for trial in self.trials.values():
            found = {name: self._cases(name) for name in trial.law.domains}
            trial.cases = {name: drawn for name, drawn in found.items() if isinstance(drawn, Cases)}
        return any(trial.cases for trial in self.trials.values())

    def _draw_round(self, number: int, random_seed: int | None) -> None:
        """Draw about `number` cases (test inputs), and check the laws on them."""
        cases = {name: drawn for trial in self.trials.values() for name, drawn in trial.cases.items()}
        fixed = {name: len(drawn.fixed) for name, drawn in cases.items() if drawn.fixed}
        domains = {name: drawn.domain for name, drawn in cases.items() if name not in fixed}
        groups = {name: [trial for trial in self.trials.values() if name in trial.cases] for name in cases}
        numbers = numbers_of_cases(domains, number) | fixed
        self.planned += sum(numbers.values())
        self._draw(groups, numbers, random_seed)
        self._tell_untried(groups)

    def _draw_more(self, random_seed: int | None) -> None:
        """Draw further cases (test inputs) for laws that had too few informative ones."""
        domains = [
            name
            for name in dict.fromkeys(name for trial in self.trials.values() for name in trial.cases)
            if not next(trial.cases[name] for trial in self.trials.values() if name in trial.cases).fixed
        ]
        for round_number in range(_ROUNDS):
            wanting = [
                trial
                for trial in self.trials.values()
                if trial.wants_more and (trial.examples or round_number <= _SILENT_ROUNDS)
            ]
            again = {name: group for name in domains if (group := [each for each in wanting if name in each.cases])}
            self._draw(again, dict.fromkeys(again, _CASES_PER_ROUND), random_seed, str(round_number))

    def _tell_untried(self, groups: Mapping[str, list[Trial]]) -> None:
        """Record in the trials of each domain the points that were left out because calls are slow."""
        for name, points in self._untried.items():
            slow = f"calls at points took {self._seconds_of_points:.0f} s, so others were left out"
            reason = f"{self.implementation.name} is slow: {slow}: {'; '.join(dict.fromkeys(points))}."
            for trial in groups[name]:
                trial.undrawn += (f"{name}: {reason}",)
                trial.leave_out(reason)

    def _check_at(self, wanted: WantedCases, random_seed: int | None) -> None:
        """Check the laws at sizes that the implementation names: readings on zeros, and agreement on
        numbers. Laws about everyday inputs take turns on the numbers of cheap sizes.
        """
        trials = self.trials.values()
        measuring = [trial for trial in trials if trial.law.measures and _POINTS in trial.cases]
        others = [trial for trial in trials if trial.law.agreement or (wanted.cheap and "everyday" in trial.cases)]
        random = Random(f"{random_seed} {self.operation} {wanted.text}")
        for place, group in enumerate([*[others] * wanted.number, measuring]):
            if reason := self._over():
                for trial in group:
                    trial.cut_short = reason
                self.coverage.untried[wanted.text] = f"{reason}."
            elif group is measuring:
                self.subject.keeps_sizes = True
                self._further(wanted.zeros, 0, [trial for trial in group if trial.open], quirk=True)
                self.subject.keeps_sizes = False
            elif group:
                self._case(wanted.draw(random.randint(1, MAX_SEED), place), random.randint(1, MAX_SEED), group, False)
            if group and not reason and wanted.text not in self.coverage.tried:
                self.coverage.tried.append(wanted.text)

    def _draw(
        self,
        groups: Mapping[str, list[Trial]],
        numbers: Mapping[str, int],
        random_seed: int | None,
        round_name: str = "",
    ) -> None:
        """Check each domain's laws on its number of cases. A domain is a family of inputs, and a
        case is one of them.

        The seeds of the cases follow from `random_seed`. If it is None, Hypothesis draws them. The
        first round has the name "".
        """
        if random_seed is None:
            for name, group in groups.items():
                if group[0].cases[name].fixed:
                    for seed in range(numbers[name]):
                        self._check_on_a_case(name, seed, group, round_name)
                    continue
                for some in [[trial] for trial in group] if round_name else [group]:
                    self._draw_by_profile(name, some, numbers[name], round_name)
            return
        fixed = [name for name, group in groups.items() if group[0].cases[name].fixed]
        before, cases = self.subject.seconds, sum(numbers.values())
        for place, (name, seed) in enumerate(turns(self.operation, groups, numbers, random_seed, round_name, fixed)):
            if not round_name and self._needs_more_time(self.subject.seconds - before, place, cases):
                self._in_turn = True
                return
            if reason := self._over():
                for trial in groups[name]:
                    trial.cut_short = reason
            elif not round_name or any(trial.wants_more for trial in groups[name]):
                self._check_on_a_case(name, seed, groups[name], round_name)
                self.supervision.checked(self)

    def _needs_more_time(self, seconds: float, done: int, cases: int) -> bool:
        """Return whether the calls of all cases will not be done in time, by the seconds of the calls of
        the cases that are done. This is asked only with a limit of costs: without it, all laws take turns.
        """
        if self.implementation.support.costs is None or done < _CASES_OF_ESTIMATE:
            return False
        return time.monotonic() + seconds / done * (cases - done) > self.supervision.until

    def _over(self) -> str:
        """Return the reason why no further case is drawn, or ""."""
        if any(
            trial.violations and not trial.declared and self.supervision.ends(law) for law, trial in self.trials.items()
        ):
            return FAILED
        return TIME if time.monotonic() >= self.supervision.until else ""

    def _draw_by_profile(self, name: str, group: list[Trial], number: int, round_name: str) -> None:
        """Check some laws on cases of a domain (family of inputs) that Hypothesis draws by the
        caller's profile. Hypothesis keeps the cases that fail.
        """

        def hold(seed: int) -> None:
            if not round_name or any(trial.wants_more for trial in group):
                self._check_on_a_case(name, seed, group, round_name)
            if any(trial.violations for trial in group):
                raise _FirstError

        identifier = re.sub(r"[^A-Za-z0-9]+", "_", f"{group[0].law.name} {self.operation} {name}")
        hold.__name__ = hold.__qualname__ = identifier  # Hypothesis keeps failing cases under this name
        with suppress(_FirstError):
            by_profile(hold, number)

    def _check_on_a_case(self, name: str, seed: int, group: list[Trial], round_name: str) -> None:
        """Draw a case (test input) of a domain (family of inputs) and check some laws on it. In the
        first round, these are the laws whose turn it is. In a further round, they are the laws that
        want more cases. On a fixed case all laws are checked.
        """
        cases, quirk = group[0].cases[name], name in QUIRKS
        if cases.fixed:
            self._check_at_a_point(name, seed, group, quirk)
            return
        arguments = cases.draw(seed)
        if not round_name:
            self._case(arguments, seed, group, quirk)
            return
        wanting = [trial for trial in group if trial.wants_more]
        if agreement := [trial for trial in wanting if trial.law.agreement]:
            self._case(arguments, seed, agreement, quirk)
        if others := [trial for trial in wanting if not trial.law.agreement]:
            self._further(arguments, seed, others, quirk)

    def _check_at_a_point(self, name: str, seed: int, group: list[Trial], quirk: bool) -> None:
        """Check some laws at an operating point. If the calls at points before took too long, only the
        first point of each family is tried, and the others are noted.
        """
        cases, before, most = group[0].cases[name], self.subject.seconds, self.supervision.seconds_of_points
        if self.implementation.support.costs is not None:
            most *= _TIMES_WITH_COSTS
        if self._seconds_of_points > most and name in self._families_of_points:
            self._untried.setdefault(name, []).append(cases.names[seed % len(cases.names)])
            return
        self._families_of_points.add(name)
        arguments, self._is_at_a_point = cases.draw(seed), True
        self._further(arguments, seed, [trial for trial in group if trial.open], quirk)
        self._is_at_a_point = False
        self._seconds_of_points += self.subject.seconds - before

    def _case(self, arguments: Arguments, seed: int, group: list[Trial], quirk: bool) -> None:
        """Call the operation on a case (test input), compare the result with the oracle, and check
        the laws whose turn it is.

        A quirk is an input whose result a convention decides. A separate law says what should
        happen, so an exception on a quirk is not judged here. That law may ask for the exception, so
        it is checked even if the call is not taken.
        """
        subject = self.subject
        subject.begin()
        agreement = [trial for trial in group if trial.law.agreement]
        self.supervision.began((agreement or group)[0].law.id)
        try:
            subject.about(arguments)
            subject.seen(arguments)
        except BrokenError:
            pass
        except (UngivenError, OutsideError) as untaken:
            for trial in group:
                trial.leave_out(str(untaken))
            if not isinstance(untaken, NotTakenError):
                return
            self.evidence.refuse(subject.calls[-1])
            if not quirk:
                return
        if not (quirk and subject.calls[0].error):  # the error may be a refusal
            self._judge(agreement, 0, quirk)
        self._take_turns(arguments, seed, group, agreement)
        self.evidence.cases += 1
        if self.evidence.cases % _CASES_PER_LOOK == 1 and not quirk:
            self.evidence.tightest.look(subject.calls)

    def _take_turns(self, arguments: Arguments, seed: int, group: list[Trial], agreement: list[Trial]) -> None:
        """Check on a case (test input) all laws that watch every call, and the few other laws that
        have waited longest.
        """
        for trial in group:
            trial.credit += trial.law.effort
        for trial in group:
            if trial.law.watches and trial.open:
                self._put(trial, arguments, seed, agreement)
        taken = 0
        others = (trial for trial in group if not (trial.law.agreement or trial.law.watches) and trial.open)
        for trial in sorted(others, key=lambda trial: -trial.credit):
            if taken == min(_LAWS_PER_CASE, len(group)):
                break
            taken += self._put(trial, arguments, seed, agreement)

    def _further(self, arguments: Arguments, seed: int, group: list[Trial], quirk: bool) -> None:
        """Check on a case (test input) the laws that had too few informative cases. Many cases
        cannot test such a law. On those, the law calls no operation.

        The law's first call of the operation is compared with the oracle. Usually this is the call
        on the case itself. For a law that is a commuting square, the calls of its other terms are
        also compared.
        """
        subject, judged = self.subject, list[Call]()
        agreement = [] if quirk else [trial for trial in self.trials.values() if trial.law.agreement]
        subject.begin()
        subject.about(arguments)
        for trial in group:
            informative = self._put(trial, arguments, seed, agreement)
            own = [place for place, call in enumerate(subject.calls) if call.operation == self.operation]
            if informative and own and not quirk and not any(subject.calls[own[0]] is call for call in judged):
                judged.append(subject.calls[own[0]])
                self._judge(agreement, own[0])
        self.evidence.cases += 1

    def _put(self, trial: Trial, arguments: Arguments, seed: int, agreement: list[Trial]) -> bool:
        """Check a law on a case (test input), and return whether the case can test the law."""
        subject, law = self.subject, trial.law
        self.supervision.began(law.id)
        subject.turn()
        start = time.perf_counter()
        case = law.case(arguments, seed)
        try:
            if not law.hold(subject, case):
                return False
            trial.passed(subject)
        except BrokenError as broken:
            trial.failed(self.implementation.name, broken, case, tuple(subject.calls))
        except (UngivenError, OutsideError) as untaken:
            trial.leave_out(str(untaken))
            return False
        except Exception as error:  # the other laws go on
            _fail([trial], "it checked this law", error)
        trial.seconds += time.perf_counter() - start
        trial.credit = 0.0
        if isinstance(law.body, Square):
            for place in range(1, len(subject.calls)):
                self._judge(agreement, place)
        return True

    def _judge(self, agreement: list[Trial], place: int, quirk: bool = False) -> None:
        """Compare the result of one call with the oracle. The oracle may refuse a quirk (an input
        whose result a convention decides). Then no result is right or wrong.
        """
        subject, call = self.subject, self.subject.calls[place]
        start = time.perf_counter()
        subject.retell()
        try:
            has_turn = place == 0 and self.evidence.cases % _CASES_PER_LINE == 0
            subject.judge(place, line=self.supervision.draws_line and has_turn)
            broken = None
        except BrokenError as error:
            broken = error
        except Exception as error:
            if not (quirk and isinstance(error, ValueError)):
                _fail(agreement, f"it judged a call of {call.operation}", error)
            return
        self.evidence.add(call, broken is None, self._is_at_a_point)
        for trial in agreement:
            if broken is None:
                trial.passed(subject)
            else:
                trial.failed(self.implementation.name, broken, trial.law.case(call.arguments, 0), (call,))
            trial.seconds += time.perf_counter() - start

    def _follows(self, violation: Violation) -> bool:
        """Whether a violation adds nothing new if another law fails: a size that should be refused, or
        an edge of an undeclared kernel that has returned no right result at all.
        """
        nothing_is_right = not (self.implementation.support.declared or violation.calls or self.evidence.right)
        return violation.law == UNSUPPORTED or (nothing_is_right and bool(self.evidence.wrong))

    def so_far(self) -> Iterator[Outcome]:
        """Yield the outcome of each law, in the order of the laws, if the run were stopped now."""
        for law in self.laws:
            yield self.settled.get(law.id) or self.trials[law.id].so_far(self.evidence)

    def outcomes(self) -> Iterator[Outcome]:
        """Yield the outcome of each law, in the order of the laws. The first one has what the calls
        covered, what the operation does not take, and the features that nobody declares.
        """
        implementation, unwritten = self.implementation, self.evidence.unwritten or self.implementation.unavailable
        if (costs := implementation.support.costs) is not None:
            self.coverage.left_out = costs.left_out.get(self.operation, 0)
        found = () if unwritten else (*self.seen_before, *not_taken(self.subject.tried))
        features = undeclared_features(
            implementation.operations[self.operation], OPERATIONS[self.operation], implementation.features
        )
        fails = any(t.violations and not t.declared for t in self.trials.values() if t.law.name != UNSUPPORTED)
        of_first: dict[str, Any] = {
            "not_taken": found,
            "undeclared_features": features,
            "is_declared": implementation.support.declared,
            "coverage": self.coverage,
        }
        for place, law in enumerate(self.laws):
            settled = self.settled.get(law.id) or self.trials[law.id].outcome(self.evidence)
            if fails and settled.violation is not None and not law.measures and self._follows(settled.violation):
                settled = replace(settled, status="not applicable", violation=None, reason=_REPAIR_FIRST)
            yield replace(settled, **of_first) if not place else settled


def _fail(trials: Iterable[Trial], doing: str, error: Exception) -> None:
    """Record in some trials that attnspec itself failed while it did something. An earlier failure
    is not overwritten.
    """
    for trial in trials:
        trial.defect = trial.defect or failure(doing, error)
