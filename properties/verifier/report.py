"""Defines the report on a verification, as data."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any, Literal, get_args

import numpy as np

from properties.contract.names import parts_of
from properties.contract.operations import OPERATIONS
from properties.contract.results import Call
from properties.contract.tried_calls import NotTaken
from properties.verifier.call_record import RecordedCall
from properties.verifier.coverage import Coverage, total

__all__ = [
    "VERSION",
    "Cause",
    "Diagnosis",
    "Outcome",
    "Report",
    "Status",
    "TriedSizes",
    "Violation",
    "broken",
    "counted",
    "fails",
    "reason_for",
    "with_causes",
]

VERSION = 2
"""The version of the report as data. report.schema.json says what it contains."""

MOST_WRITTEN = 2**22
"""The most numbers of an array that a report writes. The long plan has three million."""

_FEW_LAWS = 10  # a run of fewer laws is one that the user has chosen

Status = Literal["held", "suspicious", "violated", "declared", "vacuous", "not applicable", "stopped early", "not run"]
PASSING = ("held", "suspicious", "declared", "not applicable")


@dataclass(frozen=True)
class Diagnosis:
    """An explanation of a failure: a convention or a known bug that reproduces the recorded
    results, or an arithmetic (a way to round) whose budgets (error limits) contain them.

    id          "rope_pairing=half", the bug's name, or "scores=float16"
    mechanism   what is wrong, in a sentence
    repair      what to do about it
    reported    where a bug was reported; "" for anything else
    distance    the largest difference from the recorded results, as a multiple of the budget; for
                an arithmetic the largest error as a multiple of that arithmetic's budget
    reproduces  the share of the recorded wrong calls that it reproduces; of the right calls it
                reproduces nearly all
    partial     whether it explains only a part of the cause, and the rest is not recognised
    """

    id: str
    mechanism: str = ""
    repair: str = ""
    reported: str = ""
    distance: float = 0.0
    reproduces: float = 1.0
    partial: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return the diagnosis as numbers and strings, for JSON."""
        return {key: _plain(value) for key, value in vars(self).items()}


@dataclass(frozen=True)
class TriedSizes:
    """The sizes of a case (the arguments of one test), and whether the law passed on it."""

    sizes: dict[str, int]
    passed: bool


@dataclass(frozen=True)
class Violation:
    """A law that fails on an implementation, and a case (the arguments of one test) that shows it.

    summary          what is wrong there, in a sentence
    counterexample   the arrays and numbers of the case, by their names
    excess           error ÷ budget (the error limit); ∞ if the mistake is not in a number
    calls            the calls of the law on the case
    right, wrong     some calls of the operation on all cases, by which attnspec finds the cause
    refused          some calls of the operation that raised, and that an undeclared adapter need not take
    seen             the sizes of every call of the operation, and whether the call was right
    diagnosis        what reproduces the violation, best first
    notes            sentences about the violation
    measured         sentences about what the instruments measured, if no cause is recognised, or only an
                     arithmetic
    script           Python that shows the violation again
    shrunk           whether smaller cases were tried: one violation of each cause is shrunk
    larger           the cases from which it was shrunk, the largest first
    earlier_calls    the calls after which the law fails in a fresh process; () if it fails without them
    on_earlier_calls a sentence on them, or on a law that passes in a fresh process
    """

    law: str
    operation: str
    implementation: str
    summary: str
    counterexample: dict[str, Any]
    excess: float
    calls: tuple[Call, ...] = ()
    right: tuple[Call, ...] = ()
    wrong: tuple[Call, ...] = ()
    refused: tuple[Call, ...] = ()
    seen: tuple[TriedSizes, ...] = ()
    diagnosis: tuple[Diagnosis, ...] = ()
    notes: tuple[str, ...] = ()
    measured: tuple[str, ...] = ()
    script: str = ""
    shrunk: bool = True
    larger: tuple[dict[str, Any], ...] = ()
    earlier_calls: tuple[RecordedCall, ...] = ()
    on_earlier_calls: str = ""

    @property
    def law_id(self) -> str:
        """The law and its operation: "law[operation]"."""
        return f"{self.law}[{self.operation}]"

    @property
    def likely(self) -> Diagnosis | None:
        """The best explanation; None if no known explanation explains the whole cause."""
        return next((one for one in self.diagnosis if not one.partial), None)

    def without_calls(self) -> "Violation":
        """Return the violation without its recorded calls. The calls are large, and only the search
        for the cause needs them.
        """
        return replace(self, calls=(), right=(), wrong=(), refused=(), seen=())

    @property
    def told(self) -> dict[str, Any]:
        """The arguments of the case that shows the violation, without the unused options."""
        options = OPERATIONS[self.operation].options if self.operation in OPERATIONS else ()
        return {name: value for name, value in self.counterexample.items() if value is not None or name not in options}

    @property
    def size(self) -> int:
        """The number of entries of the arrays in the counterexample."""
        return sum(value.size for value in self.counterexample.values() if isinstance(value, np.ndarray))

    @property
    def is_large(self) -> bool:
        """Whether the counterexample is too large to be written, and to be given to each possible cause."""
        return self.size > MOST_WRITTEN

    def to_dict(self) -> dict[str, Any]:
        """Return the violation as numbers, strings, lists and mappings, for JSON."""
        return {
            "law": self.law,
            "operation": self.operation,
            "implementation": self.implementation,
            "summary": self.summary,
            "counterexample": {name: _plain(value) for name, value in self.told.items()},
            "excess": _plain(self.excess),
            "diagnosis": [one.to_dict() for one in self.diagnosis],
            "notes": list(self.notes),
            "measured": list(self.measured),
            "script": self.script,
            "shrunk": self.shrunk,
            "earlier_calls": [
                {
                    "operation": call.operation,
                    "arguments": {name: _plain(value) for name, value in call.given.items()},
                    "layout": call.layout,
                }
                for call in self.earlier_calls
            ],
            "on_earlier_calls": self.on_earlier_calls,
        }


@dataclass(frozen=True)
class Cause:
    """Why an implementation violates some laws, "law[operation]".

    example    a violation of one of the laws, on the smallest input found, with the diagnosis of
               all
    searched   whether attnspec searched for the cause; False if the process ended
    largest_error   a sentence about the output with the largest error ÷ error limit, its sizes and
               its law, if the example is not the violation with this output
    """

    implementation: str
    laws: tuple[str, ...]
    example: Violation
    searched: bool = True
    largest_error: str = ""

    @property
    def diagnosis(self) -> tuple[Diagnosis, ...]:
        """The explanations of all violations, best first. They are only hints if nothing known
        explains all of them.
        """
        return self.example.diagnosis

    @property
    def likely(self) -> Diagnosis | None:
        """The best explanation; None if nothing known explains all violations."""
        return self.example.likely

    def to_dict(self) -> dict[str, Any]:
        """Return the cause as numbers, strings, lists and mappings, for JSON."""
        return {
            "implementation": self.implementation,
            "laws": list(self.laws),
            "diagnosis": [one.to_dict() for one in self.diagnosis],
            "example": {key: value for key, value in self.example.to_dict().items() if key != "diagnosis"},
            "largest_error": self.largest_error,
            "searched": self.searched,
        }


@dataclass(frozen=True)
class Outcome:
    """The outcome of a law on an implementation. A case is the arguments of one test.

    examples       the number of cases on which the law was checked
    informative    how many of them could have exposed a mistake
    vacuous        how many of them had an error limit that accepts any value
    worst_excess   the largest error ÷ error limit
    suspicious     how many cases had an error beyond the statistical line, which errors almost
                   never exceed if roundings are independent
    worst_line     the largest error ÷ statistical line, where sums were long enough for a line
    reason         why the law has its status, unless it simply passes or fails
    unavailable    whether the law was not run because the adapter declares that the implementation
                   cannot run here
    defect         whether attnspec itself failed, so that the law has no verdict
    within         the presets whose error limits the `looked_at` calls satisfy, finest first, last
                   the declared arithmetic
    undrawn        the kinds of cases of agreement and of measurements that the implementation does
                   not take, each as "kind: sentence"
    coverage       what the calls of all laws of an operation covered; None except for the first law
    known          whether the law also failed in the baseline, so that it does not count as a
                   failure
    not_taken      the calls of the operation that raised, if the adapter declares nothing about what
                   the implementation takes. The first law of the operation has them
    undeclared_features   the features that the signature of the operation's function names and the
                   adapter does not declare. The first law of the operation has them
    is_declared    whether the adapter declares what the implementation takes
    """

    law: str
    operation: str
    implementation: str
    status: Status
    examples: int = 0
    informative: int = 0
    vacuous: int = 0
    worst_excess: float = 0.0
    suspicious: int = 0
    worst_line: float = 0.0
    seconds: float = 0.0
    reason: str = ""
    violation: Violation | None = None
    unavailable: bool = False
    defect: bool = False
    within: tuple[str, ...] = ()
    looked_at: int = 0
    undrawn: tuple[str, ...] = ()
    known: bool = False
    not_taken: tuple[NotTaken, ...] = ()
    undeclared_features: tuple[str, ...] = ()
    is_declared: bool = True
    coverage: Coverage | None = None

    @property
    def law_id(self) -> str:
        """The law and its operation: "law[operation]"."""
        return f"{self.law}[{self.operation}]"

    def to_dict(self) -> dict[str, Any]:
        """Return the outcome as numbers, strings, lists and mappings, for JSON."""
        apart = ("violation", "not_taken", "coverage")
        fields = {name: _plain(value) for name, value in vars(self).items() if name not in apart}
        fields["not_taken"] = [vars(one) | {"sentence": one.sentence} for one in self.not_taken]
        return fields | ({"violation": self.violation.to_dict()} if self.violation else {})


def reason_for(deviations: Mapping[str, str], law: str) -> str:
    """Return the declared reason why a law, "law[operation]", is known to fail: the reason for this
    law, or for all laws with its name. Return "" if the adapter does not declare it.
    """
    return deviations.get(law) or deviations.get(parts_of(law)[0], "")


def broken(violation: Violation, declared: str = "", examples: int = 1, seconds: float = 0.0) -> Outcome:
    """Return the outcome of a law that fails. The status is "declared" if the adapter declares a
    reason, else "violated".
    """
    who = violation.law, violation.operation, violation.implementation
    status: Status = "declared" if declared else "violated"
    outcome = Outcome(*who, status, examples, examples, reason=declared, violation=violation)
    return replace(outcome, worst_excess=violation.excess, seconds=seconds)


@dataclass(frozen=True, repr=False)
class Report:
    """All outcomes of a verification, the causes of undeclared violations (failed laws), the
    settings, and the seconds that the verification took (0 if nobody measured them).

    `str` gives the report as `attnspec verify` prints it. A notebook shows it in colours.
    """

    outcomes: tuple[Outcome, ...]
    settings: dict[str, Any] = field(default_factory=dict)
    interrupted: bool = False
    strict: bool = False
    causes: tuple[Cause, ...] = ()
    seconds: float = 0.0

    def __repr__(self) -> str:
        """Return what the report is on, and its verdict."""
        names = ", ".join(dict.fromkeys(outcome.implementation for outcome in self.outcomes))
        return f"<Report on {names}: {_terminal().verdict_of(self)}>"

    def __str__(self) -> str:
        return str(_terminal().text_of(self))

    def _repr_html_(self) -> str:
        return str(_terminal().fragment_of(self))

    @property
    def ok(self) -> bool:
        """Whether the verification succeeded: every law that applies was run to its end, and
        passes, or fails as declared.

        Unless the report is strict, a suspicious law passes; and if the adapter declares nothing, a
        call that raised is not taken, and parameters that no feature declares are not tested. Known
        failures do not count, and neither do implementations that declare to be unavailable. If
        nothing else is left, attnspec checked nothing, and the answer is False.
        """
        applied = [one for one in self.outcomes if one.status != "not applicable" and not one.unavailable]
        passes = all(one.known or not self.fails(one) for one in applied) and not self.undecided
        untested = self.not_taken or any(one.undeclared_features and not one.is_declared for one in applied)
        return bool(applied) and not self.interrupted and passes and not (self.strict and untested)

    def fails(self, outcome: Outcome) -> bool:
        """Return whether an outcome is a failure, whether the baseline has it or not."""
        return fails(outcome.status, outcome.unavailable, self.strict)

    @property
    def not_taken(self) -> dict[str, tuple[NotTaken, ...]]:
        """What each implementation does not take, although its adapter does not declare so."""
        found: dict[str, tuple[NotTaken, ...]] = {}
        for outcome in self.outcomes:
            if outcome.not_taken:
                found[outcome.implementation] = (*found.get(outcome.implementation, ()), *outcome.not_taken)
        return found

    @property
    def is_inconclusive(self) -> bool:
        """Whether nothing is wrong, but some checks are inconclusive: too few inputs could expose a
        mistake. Or nearly no law applies to an implementation.
        """
        failing = {one.status for one in self.outcomes if self.fails(one) and not one.known}
        return failing <= {"vacuous"} and bool(failing or self.undecided) and not self.interrupted

    @property
    def undecided(self) -> dict[str, tuple[int, int]]:
        """The numbers of laws that apply, and of all laws, for each implementation to which fewer than
        one in ten of at least ten laws apply. Such a verdict says almost nothing.
        """
        found = {}
        for name in dict.fromkeys(outcome.implementation for outcome in self.outcomes if not outcome.unavailable):
            statuses = [outcome.status for outcome in self.outcomes if outcome.implementation == name]
            applied = sum(status != "not applicable" for status in statuses)
            if len(statuses) >= _FEW_LAWS and 10 * applied < len(statuses):
                found[name] = applied, len(statuses)
        return found

    @property
    def violations(self) -> tuple[Violation, ...]:
        """The violations (failed laws) that the adapter does not declare."""
        return tuple(
            outcome.violation
            for outcome in self.outcomes
            if outcome.violation is not None and outcome.status == "violated"
        )

    def narrowest(self) -> dict[str, tuple[str, int]]:
        """Return the most precise preset whose error limits all examined calls satisfy, and the
        number of these calls, for each implementation that passes.
        """
        found = {}
        for name in dict.fromkeys(outcome.implementation for outcome in self.outcomes if outcome.looked_at):
            outcomes = [outcome for outcome in self.outcomes if outcome.implementation == name]
            seen = [outcome for outcome in outcomes if outcome.looked_at]
            if all(outcome.status in PASSING for outcome in outcomes):
                common = [preset for preset in seen[0].within if all(preset in each.within for each in seen)]
                if common:  # operations in several number formats have none
                    found[name] = common[0], sum(outcome.looked_at for outcome in seen)
        return found

    @property
    def coverage(self) -> Coverage:
        """What the calls of all laws covered."""
        parts = [outcome.coverage for outcome in self.outcomes if outcome.coverage is not None]
        return total(parts, self.settings.get("shapes", ()))

    def counts(self) -> dict[str, int]:
        """Return the number of outcomes of each status."""
        numbers = Counter(outcome.status for outcome in self.outcomes)
        return {status: numbers[status] for status in get_args(Status)}

    def to_dict(self) -> dict[str, Any]:
        """Return the report as numbers, strings, lists and mappings, for JSON. The file
        report.schema.json describes them.
        """
        return {
            "version": VERSION,
            "ok": self.ok,
            "interrupted": self.interrupted,
            "strict": self.strict,
            "settings": self.settings,
            "seconds": self.seconds,
            "counts": self.counts(),
            "narrowest": {
                name: {"arithmetic": preset, "calls": calls} for name, (preset, calls) in self.narrowest().items()
            },
            "coverage": self.coverage.to_dict(),
            "causes": [cause.to_dict() for cause in self.causes],
            "outcomes": [outcome.to_dict() for outcome in self.outcomes],
        }


def _terminal() -> Any:
    """Return the module that prints reports. It imports this module, so it is loaded when it is used."""
    return import_module(f"{__name__.rpartition('.verifier.')[0]}.views.terminal")


def fails(status: str, unavailable: bool, strict: bool) -> bool:
    """Return whether an outcome is a failure. An outcome of an implementation that cannot run here
    never is. Otherwise a status that does not pass is a failure, and "suspicious" if the report is
    strict.
    """
    return not unavailable and (status not in PASSING or (strict and status == "suspicious"))


def with_causes(
    outcomes: Iterable[Outcome], causes: Iterable[Cause], script: Callable[[Violation], str]
) -> tuple[tuple[Outcome, ...], tuple[Cause, ...]]:
    """Return the outcomes and the causes, completed. Each violation gets the diagnosis of its
    cause. The violation that is the example of a cause also gets the smallest input. Each violation
    without a script gets one.
    """

    def scripted(violation: Violation) -> Violation:
        return violation if violation.script else replace(violation, script=script(violation))

    completed = tuple(replace(cause, example=scripted(cause.example)) for cause in causes)
    cause_of = {(cause.implementation, law): cause for cause in completed for law in cause.laws}
    found = []
    for outcome in outcomes:
        cause, violation = cause_of.get((outcome.implementation, outcome.law_id)), outcome.violation
        if cause is not None and violation is not None:
            is_example = cause.example.law_id == violation.law_id
            violation = cause.example if is_example else _like_the_example(violation, cause.example)
        found.append(outcome if violation is None else replace(outcome, violation=scripted(violation)))
    return tuple(found), completed


def _like_the_example(violation: Violation, example: Violation) -> Violation:
    """A violation with the diagnosis of its cause, and the sentence that its script may pass if the
    example needs earlier calls.
    """
    warning = f"It was not replayed in a fresh process. {example.law_id} fails there only after an earlier call."
    return replace(violation, diagnosis=example.diagnosis, on_earlier_calls=warning if example.on_earlier_calls else "")


def counted(number: int, noun: str) -> str:
    """Return a number with its noun in the singular or the plural: "1 law", "2 laws"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _plain(value: Any) -> Any:
    """Return a value for JSON: arrays become nested lists, or a sentence if they are very large, and
    NumPy's numbers become Python's. NaN and ±∞, which JSON lacks, become strings.
    """
    if isinstance(value, np.ndarray) and value.size > MOST_WRITTEN:
        return f"an array of shape {value.shape}, which is too large to be written"
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, float):
        return value if np.isfinite(value) else str(value)
    return [_plain(entry) for entry in value] if isinstance(value, list | tuple) else value
