"""What a verification found, as data."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

import numpy as np

from properties.contract.names import parts_of
from properties.contract.operations import OPERATIONS
from properties.contract.results import Call
from properties.verifier.remarks import Seen

__all__ = [
    "VERSION",
    "Cause",
    "Diagnosis",
    "Outcome",
    "Report",
    "Status",
    "Violation",
    "broken",
    "counted",
    "fails",
    "reason_for",
    "with_causes",
]

VERSION = 1
"""Of the report as data: report.schema.json says what it holds."""

Status = Literal["held", "suspicious", "violated", "declared", "vacuous", "not applicable", "not run"]
PASSING = ("held", "suspicious", "declared", "not applicable")


@dataclass(frozen=True)
class Diagnosis:
    """A convention or a known bug that reproduces what was seen, or an arithmetic within whose
    budgets it is.

    `id` is "rope_pairing=half", the bug's, or "scores=float16"; `mechanism` says in a sentence what
    is wrong, `repair` what to do about it, `citation` where a bug was reported, or "none" and why
    it is known, and is "" of what is no bug. `excess` is the largest difference from what was seen
    in units of the budget, or, for an arithmetic, the largest error in units of its own; `explains`
    the share of the wrong calls seen that it reproduces, as it does nearly all right ones. A `hint`
    explains a part of what a cause did, the rest of which nothing known does.
    """

    id: str
    excess: float
    mechanism: str
    citation: str
    repair: str
    explains: float
    hint: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Numbers and strings only."""
        return {key: _plain(value) for key, value in vars(self).items()}


@dataclass(frozen=True)
class Violation:
    """A law that an implementation breaks, and a case that shows it.

    `calls` are those of the case; `right` and `wrong` are some of the operation's calls on all
    cases, by which its cause is found. `summary` says in a sentence what is wrong there;
    `counterexample` maps the names of the case to its arrays and numbers; `excess` is the error in
    units of its budget, ∞ where something else than a number is wrong; `seen` tells of every call
    of the operation whether it was right; `diagnosis` ranks what reproduces it; `notes` say what
    else is known; `script` is Python that shows it again. `shrunk` says that smaller cases were
    tried, as they are for one violation of each cause.
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
    seen: tuple[Seen, ...] = ()
    diagnosis: tuple[Diagnosis, ...] = ()
    notes: tuple[str, ...] = ()
    script: str = ""
    shrunk: bool = True

    @property
    def law_id(self) -> str:
        """The law and its operation: "law[operation]"."""
        return f"{self.law}[{self.operation}]"

    @property
    def likely(self) -> Diagnosis | None:
        """What explains it best; None where nothing known explains its cause as a whole."""
        return next((d for d in self.diagnosis if not d.hint), None)

    def without_calls(self) -> "Violation":
        """Without that by which its cause is found, which is much, when the cause is known or is
        looked for elsewhere.
        """
        return replace(self, calls=(), right=(), wrong=(), seen=())

    @property
    def told(self) -> dict[str, Any]:
        """The case without the options that are not given."""
        options = OPERATIONS[self.operation].options if self.operation in OPERATIONS else ()
        return {name: x for name, x in self.counterexample.items() if x is not None or name not in options}

    @property
    def size(self) -> int:
        """How many numbers the counterexample has."""
        return sum(x.size for x in self.counterexample.values() if isinstance(x, np.ndarray))

    def to_dict(self) -> dict[str, Any]:
        """Numbers, strings, lists and mappings only."""
        return {
            "law": self.law,
            "operation": self.operation,
            "implementation": self.implementation,
            "summary": self.summary,
            "counterexample": {name: _plain(x) for name, x in self.told.items()},
            "excess": _plain(self.excess),
            "diagnosis": [d.to_dict() for d in self.diagnosis],
            "notes": list(self.notes),
            "script": self.script,
            "shrunk": self.shrunk,
        }


@dataclass(frozen=True)
class Cause:
    """What broke some laws, "law[operation]", on an implementation.

    `example` is a violation of one of them, on the smallest input found, and its diagnosis that of
    all; `worst` says in a sentence by what an output was furthest from its budget, and under which
    law, where that is another one. What ended the process cannot be `searched` for.
    """

    implementation: str
    laws: tuple[str, ...]
    example: Violation
    worst: str = ""
    searched: bool = True

    @property
    def diagnosis(self) -> tuple[Diagnosis, ...]:
        """What explains all violations, best first; where nothing known does there are hints at most."""
        return self.example.diagnosis

    @property
    def likely(self) -> Diagnosis | None:
        """What explains them best; None where nothing known explains all."""
        return self.example.likely

    def to_dict(self) -> dict[str, Any]:
        """Numbers, strings, lists and mappings only."""
        return {
            "implementation": self.implementation,
            "laws": list(self.laws),
            "diagnosis": [d.to_dict() for d in self.diagnosis],
            "example": self.example.to_dict(),
            "worst": self.worst,
            "searched": self.searched,
        }


@dataclass(frozen=True)
class Outcome:
    """What became of a law on an implementation.

    Of `examples` cases, `informative` ones could have shown a mistake, and `vacuous` ones had a
    budget that accepts anything. The largest error was `worst_excess` times its budget; where sums
    were long enough for a statistical line it was `worst_line` times that, and `suspicious` cases
    had errors beyond it. `reason` says why the status is what it is, where it is not simply held or
    violated. `unavailable` says that it was not run because the implementation declares that it
    cannot be run here. `defect` says that attnspec itself failed, so that the law has no verdict.
    `undrawn` says which kinds of cases of an agreement were left out, "kind: sentence", because of
    what the implementation takes. `within` names the presets within whose budgets are the
    `looked_at` calls that were put to them, finest first, the declared one last. What is `known`
    failed in the baseline too, and is no failure.
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

    @property
    def law_id(self) -> str:
        """The law and its operation: "law[operation]"."""
        return f"{self.law}[{self.operation}]"

    def to_dict(self) -> dict[str, Any]:
        """Numbers, strings, lists and mappings only."""
        found = {name: _plain(value) for name, value in vars(self).items() if name != "violation"}
        return found | ({"violation": self.violation.to_dict()} if self.violation else {})


def reason_for(deviations: Mapping[str, str], law: str) -> str:
    """The reason that is declared for breaking a law, "law[operation]": its own, or that of all of
    its name; "" for none.
    """
    return deviations.get(law) or deviations.get(parts_of(law)[0], "")


def broken(violation: Violation, declared: str = "", examples: int = 1, seconds: float = 0.0) -> Outcome:
    """The outcome of a law that was broken: declared, where a reason is, and violated otherwise."""
    who = violation.law, violation.operation, violation.implementation
    found = Outcome(
        *who, "declared" if declared else "violated", examples, examples, reason=declared, violation=violation
    )
    return replace(found, worst_excess=violation.excess, seconds=seconds)


@dataclass(frozen=True)
class Report:
    """All outcomes of a verification, the causes of those violations that nobody declared, and how it was run."""

    outcomes: tuple[Outcome, ...]
    settings: dict[str, Any] = field(default_factory=dict)
    interrupted: bool = False
    strict: bool = False
    causes: tuple[Cause, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether every law that applies was run to its end, said something, and held, or was
        declared not to hold.

        What is suspicious passes, unless the report is strict. What is known does not count, and
        neither do implementations that declare to be unavailable; where there are no others nothing
        was shown, and it is false.
        """
        applied = [o for o in self.outcomes if o.status != "not applicable" and not o.unavailable]
        return bool(applied) and not self.interrupted and all(o.known or not self.fails(o) for o in applied)

    def fails(self, o: Outcome) -> bool:
        """Whether an outcome is one that must not be, known or not."""
        return fails(o.status, o.unavailable, self.strict)

    @property
    def violations(self) -> tuple[Violation, ...]:
        """The violations that nobody declared."""
        return tuple(o.violation for o in self.outcomes if o.violation is not None and o.status == "violated")

    def narrowest(self) -> dict[str, tuple[str, int]]:
        """For each implementation that breaks no law the finest preset within whose budgets it was
        on so many calls that were looked at.
        """
        found = {}
        for name in dict.fromkeys(o.implementation for o in self.outcomes if o.looked_at):
            these = [o for o in self.outcomes if o.implementation == name]
            seen = [o for o in these if o.looked_at]
            if all(o.status in PASSING for o in these):
                finest = next(p for p in seen[0].within if all(p in o.within for o in seen))
                found[name] = finest, sum(o.looked_at for o in seen)
        return found

    def counts(self) -> dict[str, int]:
        """How many outcomes have each status."""
        found = Counter(o.status for o in self.outcomes)
        return {status: found[status] for status in get_args(Status)}

    def to_dict(self) -> dict[str, Any]:
        """All of it as numbers, strings, lists and mappings, for JSON, as report.schema.json says."""
        return {
            "version": VERSION,
            "ok": self.ok,
            "interrupted": self.interrupted,
            "strict": self.strict,
            "settings": self.settings,
            "counts": self.counts(),
            "narrowest": {
                name: {"arithmetic": preset, "calls": calls} for name, (preset, calls) in self.narrowest().items()
            },
            "causes": [c.to_dict() for c in self.causes],
            "outcomes": [o.to_dict() for o in self.outcomes],
        }


def fails(status: str, unavailable: bool, strict: bool) -> bool:
    """Whether an outcome of a status must not be: of what can be run, what does not pass, and if
    strict what is suspicious.
    """
    return not unavailable and (status not in PASSING or (strict and status == "suspicious"))


def with_causes(
    outcomes: Iterable[Outcome], causes: Iterable[Cause], script: Callable[[Violation], str]
) -> tuple[tuple[Outcome, ...], tuple[Cause, ...]]:
    """Outcomes whose violations have the diagnosis of their cause, that of its example the smallest
    input too, and the causes, all with the script that shows them again, where they have none."""

    def scripted(violation: Violation) -> Violation:
        return violation if violation.script else replace(violation, script=script(violation))

    told = tuple(replace(cause, example=scripted(cause.example)) for cause in causes)
    cause_of = {(cause.implementation, law): cause for cause in told for law in cause.laws}
    found = []
    for o in outcomes:
        cause = cause_of.get((o.implementation, o.law_id))
        if cause is not None and o.violation is not None:
            same = cause.example.law_id == o.violation.law_id
            o = replace(o, violation=cause.example if same else replace(o.violation, diagnosis=cause.diagnosis))
        found.append(o if o.violation is None else replace(o, violation=scripted(o.violation)))
    return tuple(found), told


def counted(n: int, noun: str) -> str:
    """So many of something, in words: "1 law", "2 laws"."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def _plain(x: Any) -> Any:
    """Arrays as nested lists, NumPy's numbers as Python's, and what JSON has not, NaN and ±∞, as strings."""
    if isinstance(x, np.ndarray | np.generic):
        x = x.tolist()
    if isinstance(x, float):
        return x if np.isfinite(x) else str(x)
    return [_plain(y) for y in x] if isinstance(x, list | tuple) else x
