"""Two reports compared: what broke, what was mended, what is no longer checked, what got slower or
further from its budget.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from properties.verifier.report import Cause, Report, fails

__all__ = ["Change", "Comparison", "Known", "against", "compared"]

_TWICE = 2.0  # of a time or an error, from which a change is told: less is noise on a busy machine, or of other cases
_SECOND = 1.0  # of all examples together, from which it matters that something is slower

Outcome = dict[str, Any]
"""An outcome as `Outcome.to_dict` writes it."""


@dataclass(frozen=True)
class Change:
    """What changed of a law, "law[operation]", or of an operation, on an implementation: what was,
    what is, and why in a few words.
    """

    implementation: str
    what: str
    was: str
    now: str
    why: str = ""


@dataclass(frozen=True)
class Comparison:
    """What changed from one report to another.

    `broke` fails, and did not before, or not so gravely, or for another cause. `mended` failed and
    passes. `unchecked` was checked, and is not any more. An operation is `slower` where an example
    takes twice as long, and a second or more in all; a law that held is `further` where its largest
    error is twice as large. `unlike` says which settings differ, so that other cases were drawn.
    """

    broke: tuple[Change, ...]
    mended: tuple[Change, ...]
    unchecked: tuple[Change, ...]
    slower: tuple[Change, ...]
    further: tuple[Change, ...]
    unlike: tuple[str, ...]


@dataclass(frozen=True)
class Known:
    """The violations of a baseline: of each implementation and law the names of what explained it."""

    explained: Mapping[tuple[str, str], frozenset[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, baseline: dict[str, Any] | None) -> "Known":
        """Those of a report, as `Report.to_dict` writes it; none without one."""
        outcomes = _outcomes(baseline) if baseline is not None else {}
        return cls({key: _explained(o) for key, o in outcomes.items() if o["status"] == "violated"})

    def has(self, implementation: str, law: str) -> bool:
        """Whether a law, "law[operation]", was violated, for whatever cause."""
        return (implementation, law) in self.explained

    def may_be(self, cause: Cause) -> bool:
        """Whether all laws that a cause breaks were violated, for a cause that may be the same."""
        keys, names = (
            [(cause.implementation, law) for law in cause.laws],
            frozenset(d.id for d in cause.diagnosis if not d.hint),
        )
        return all(key in self.explained and _alike(self.explained[key], names) for key in keys)


def compared(before: dict[str, Any], after: dict[str, Any]) -> Comparison:
    """What changed between two reports, as `Report.to_dict` writes them."""
    old, new = _outcomes(before), _outcomes(after)
    both = [(old[key], o) for key, o in new.items() if key in old]
    pairs = [(old.get(key), o) for key, o in new.items() if _fails(o, after)]
    broke = [_change(was, now, _cause(now)) for was, now in pairs if was is None or not _known(was, now)]
    gone = [(o, new.get(key)) for key, o in old.items() if _checked(o) and not _checked(new.get(key))]
    settings = ("arithmetic", "conventions", "laws", "long", "max_examples", "quick", "seed")
    return Comparison(
        broke=tuple(sorted(broke, key=lambda change: change.now != "violated")),  # what was not run comes last
        mended=tuple(
            _change(was, now) for was, now in both if _fails(was, before) and now["status"] in ("held", "suspicious")
        ),
        unchecked=tuple(_change(was, now, now["reason"] if now else "") for was, now in gone),
        slower=tuple(_slower(both)),
        further=tuple(_further(both)),
        unlike=tuple(key for key in settings if before["settings"].get(key) != after["settings"].get(key)),
    )


def against(report: Report, baseline: dict[str, Any]) -> tuple[Report, Comparison]:
    """A report of which what failed in a baseline too is known, and what changed since."""
    found = compared(baseline, report.to_dict())
    new = {(change.implementation, change.what) for change in found.broke}
    outcomes = (replace(o, known=report.fails(o) and (o.implementation, o.law_id) not in new) for o in report.outcomes)
    return replace(report, outcomes=tuple(outcomes)), found


def _outcomes(report: dict[str, Any]) -> dict[tuple[str, str], Outcome]:
    return {(o["implementation"], f"{o['law']}[{o['operation']}]"): o for o in report["outcomes"]}


def _fails(o: Outcome, report: dict[str, Any]) -> bool:
    return fails(o["status"], o.get("unavailable", False), report["strict"])


def _checked(o: Outcome | None) -> bool:
    return o is not None and o["status"] not in ("not applicable", "not run")


def _known(was: Outcome, now: Outcome) -> bool:
    """Whether a law that fails failed before in the same way: as gravely, and for a cause that may be the same."""
    if was["status"] != now["status"]:
        return bool(was["status"] == "violated")
    return not was.get("unavailable") and _alike(_explained(was), _explained(now))


def _explained(o: Outcome) -> frozenset[str]:
    """The names of what explains the violation of an outcome; none where nothing known does."""
    return frozenset(d["id"] for d in o.get("violation", {"diagnosis": ()})["diagnosis"] if not d.get("hint"))


def _alike(was: frozenset[str], now: frozenset[str]) -> bool:
    """Whether the causes that two sets of explanations name may be the same."""
    return not (was and now) or not was.isdisjoint(now)


def _change(was: Outcome | None, now: Outcome | None, why: str = "") -> Change:
    o = now or was
    assert o is not None
    before, after = (x["status"] if x else "not there" for x in (was, now))
    return Change(o["implementation"], f"{o['law']}[{o['operation']}]", before, after, why)


def _cause(o: Outcome) -> str:
    violation = o.get("violation", {"diagnosis": [], "summary": o["reason"]})
    return str(next((d["id"] for d in violation["diagnosis"] if not d.get("hint")), violation["summary"]))


def _slower(pairs: list[tuple[Outcome, Outcome]]) -> Iterator[Change]:
    """Operations, by the laws that were put to examples in both reports."""
    groups: dict[tuple[str, str], list[tuple[Outcome, Outcome]]] = {}
    for was, now in pairs:
        if was["examples"] and now["examples"]:
            groups.setdefault((now["implementation"], now["operation"]), []).append((was, now))
    for (implementation, operation), these in groups.items():
        before, after = (
            sum(o["seconds"] for o in side) / sum(o["examples"] for o in side) for side in zip(*these, strict=True)
        )
        if after >= _TWICE * before and sum(now["seconds"] for _, now in these) >= _SECOND:
            yield Change(
                implementation, operation, f"{1000 * before:.3g} ms", f"{1000 * after:.3g} ms", "for an example"
            )


def _further(pairs: list[tuple[Outcome, Outcome]]) -> Iterator[Change]:
    """Laws that held in both, those nearest to the limit first."""
    held = [
        (float(was["worst_excess"]), float(now["worst_excess"]), now)
        for was, now in pairs
        if was["status"] == now["status"] == "held"
    ]
    for before, after, o in sorted(held, key=lambda each: -each[1]):
        if after >= _TWICE * before and after > 0:
            yield Change(
                o["implementation"],
                f"{o['law']}[{o['operation']}]",
                f"{before:.2g}",
                f"{after:.2g}",
                "max error ÷ budget",
            )
