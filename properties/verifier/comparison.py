"""Compares two reports. It finds laws that fail now, laws that pass again, laws that are not
checked any more, and operations that are slower or less accurate.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from properties.verifier.report import Cause, Report, fails

__all__ = ["Change", "Comparison", "Known", "against", "compared", "law_id"]

_MIN_FACTOR = 2.0  # of a time or an error: a smaller change is noise of a busy machine, or of other cases
_MIN_SECONDS = 1.0  # of all cases together: below that it does not matter that an operation is slower

Outcome = dict[str, Any]
"""An outcome as `Outcome.to_dict` writes it."""


@dataclass(frozen=True)
class Change:
    """A change of an implementation between two reports: the law "law[operation]" or the operation,
    the old state, the new state, and the reason in a few words.
    """

    implementation: str
    what: str
    was: str
    now: str
    why: str = ""


@dataclass(frozen=True)
class Comparison:
    """The changes from one report to another.

    broke       laws that fail, and that did not fail before, or less gravely, or for another cause
    mended      laws that failed, and that pass now
    unchecked   laws that were checked, and that are not checked any more
    slower      operations that take twice as long for a case, and a second or more in all
    further     laws that passed, and that pass now with a largest error that is twice as large
    unlike      the settings that differ, so that the test inputs differ
    """

    broke: tuple[Change, ...]
    mended: tuple[Change, ...]
    unchecked: tuple[Change, ...]
    slower: tuple[Change, ...]
    further: tuple[Change, ...]
    unlike: tuple[str, ...]


@dataclass(frozen=True)
class Known:
    """The violations (failed laws) of a baseline report: for each implementation and law, the names
    of the causes that explained the violation.
    """

    explained: Mapping[tuple[str, str], frozenset[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, baseline: dict[str, Any] | None) -> "Known":
        """Return the violations of a baseline report, as `Report.to_dict` writes it. Without a
        report, return no violations.
        """
        outcomes = _outcomes(baseline) if baseline is not None else {}
        return cls({key: _explained(one) for key, one in outcomes.items() if one["status"] == "violated"})

    def has(self, implementation: str, law: str) -> bool:
        """Return whether a law, "law[operation]", was violated, for any cause."""
        return (implementation, law) in self.explained

    def may_be(self, cause: Cause) -> bool:
        """Return whether the baseline has a violation of each law of a cause, for a cause that may
        be the same.
        """
        keys = [(cause.implementation, law) for law in cause.laws]
        names = frozenset(one.id for one in cause.diagnosis if not one.partial)
        return all(key in self.explained and _may_be_same(self.explained[key], names) for key in keys)


def compared(before: dict[str, Any], after: dict[str, Any]) -> Comparison:
    """Return the changes between two reports, as `Report.to_dict` writes them."""
    old, new = _outcomes(before), _outcomes(after)
    both = [(old[key], outcome) for key, outcome in new.items() if key in old]
    pairs = [(old.get(key), outcome) for key, outcome in new.items() if _fails(outcome, after)]
    broke = [_change(was, now, _cause(now)) for was, now in pairs if was is None or not _known(was, now)]
    gone = [(outcome, new.get(key)) for key, outcome in old.items() if _checked(outcome) and not _checked(new.get(key))]
    settings = ("arithmetic", "conventions", "laws", "long", "max_examples", "quick", "seed")
    return Comparison(
        broke=tuple(sorted(broke, key=lambda change: change.now != "violated")),  # laws that were not run come last
        mended=tuple(
            _change(was, now) for was, now in both if _fails(was, before) and now["status"] in ("held", "suspicious")
        ),
        unchecked=tuple(_change(was, now, now["reason"] if now else "") for was, now in gone),
        slower=tuple(_slower(both)),
        further=tuple(_further(both)),
        unlike=tuple(key for key in settings if before["settings"].get(key) != after["settings"].get(key)),
    )


def against(report: Report, baseline: dict[str, Any]) -> tuple[Report, Comparison]:
    """Return the report and its changes since the baseline. In the returned report, failures that
    the baseline also has are marked as known.
    """
    changes = compared(baseline, report.to_dict())
    new = {(change.implementation, change.what) for change in changes.broke}
    outcomes = (
        replace(one, known=report.fails(one) and (one.implementation, one.law_id) not in new) for one in report.outcomes
    )
    return replace(report, outcomes=tuple(outcomes)), changes


def _outcomes(report: dict[str, Any]) -> dict[tuple[str, str], Outcome]:
    return {(one["implementation"], law_id(one)): one for one in report["outcomes"]}


def law_id(outcome: Outcome) -> str:
    """Return the id of an outcome's law, "law[operation]"."""
    return f"{outcome['law']}[{outcome['operation']}]"


def _fails(outcome: Outcome, report: dict[str, Any]) -> bool:
    return fails(outcome["status"], outcome.get("unavailable", False), report["strict"])


def _checked(outcome: Outcome | None) -> bool:
    return outcome is not None and outcome["status"] not in ("not applicable", "stopped early", "not run")


def _known(was: Outcome, now: Outcome) -> bool:
    """Return whether a failure is known: the law failed before, as gravely, and for a cause that
    may be the same.
    """
    if was["status"] != now["status"]:
        return bool(was["status"] == "violated")
    return not was.get("unavailable") and _may_be_same(_explained(was), _explained(now))


def _explained(outcome: Outcome) -> frozenset[str]:
    """Return the names of the causes that explain the violation of an outcome. The set is empty if
    the cause is not recognised.
    """
    diagnosis = outcome.get("violation", {"diagnosis": ()})["diagnosis"]
    return frozenset(one["id"] for one in diagnosis if not one.get("partial"))


def _may_be_same(was: frozenset[str], now: frozenset[str]) -> bool:
    """Return whether two sets of causes' names may mean the same cause."""
    return not (was and now) or not was.isdisjoint(now)


def _change(was: Outcome | None, now: Outcome | None, why: str = "") -> Change:
    outcome = now or was
    assert outcome is not None
    before, after = (one["status"] if one else "not there" for one in (was, now))
    return Change(outcome["implementation"], law_id(outcome), before, after, why)


def _cause(outcome: Outcome) -> str:
    violation = outcome.get("violation", {"diagnosis": [], "summary": outcome["reason"]})
    return str(next((one["id"] for one in violation["diagnosis"] if not one.get("partial")), violation["summary"]))


def _slower(pairs: list[tuple[Outcome, Outcome]]) -> Iterator[Change]:
    """Yield the operations that are slower. Only laws that had cases (test inputs) in both reports
    count.
    """
    groups: dict[tuple[str, str], list[tuple[Outcome, Outcome]]] = {}
    for was, now in pairs:
        if was["examples"] and now["examples"]:
            groups.setdefault((now["implementation"], now["operation"]), []).append((was, now))
    for (implementation, operation), outcomes in groups.items():
        before, after = (
            sum(one["seconds"] for one in side) / sum(one["examples"] for one in side)
            for side in zip(*outcomes, strict=True)
        )
        seconds = sum(now["seconds"] for _, now in outcomes)
        if after >= _MIN_FACTOR * before and seconds >= _MIN_SECONDS:
            times = f"{1000 * before:.3g} ms", f"{1000 * after:.3g} ms"
            yield Change(implementation, operation, *times, "per test input")


def _further(pairs: list[tuple[Outcome, Outcome]]) -> Iterator[Change]:
    """Yield the laws that pass in both reports, with a larger error than before, largest error
    first.
    """
    passing = [
        (float(was["worst_excess"]), float(now["worst_excess"]), now)
        for was, now in pairs
        if was["status"] == now["status"] == "held"
    ]
    for before, after, outcome in sorted(passing, key=lambda each: -each[1]):
        if after >= _MIN_FACTOR * before and after > 0:
            errors = f"{before:.2g}", f"{after:.2g}"
            yield Change(outcome["implementation"], law_id(outcome), *errors, "max error ÷ error limit")
