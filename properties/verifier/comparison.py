"""Two reports compared: what broke, what was mended, what is no longer checked, what got slower or further from its budget."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from properties.verifier.report import Report, fails

__all__ = ["Change", "Comparison", "against", "compared"]

_TWICE = 2.0  # of a time or an error, from which a change is told: less is noise on a busy machine, or of other cases
_SECOND = 1.0  # of all examples together, from which it matters that something is slower

Outcome = dict[str, Any]
"""An outcome as `Outcome.to_dict` writes it."""


@dataclass(frozen=True)
class Change:
    """What changed of a law, "law[operation]", or of an operation, on an implementation: what was, what is, and why in a few words."""

    implementation: str
    what: str
    was: str
    now: str
    why: str = ""


@dataclass(frozen=True)
class Comparison:
    """What changed from one report to another.

    `broke` fails, and did not before, or not so gravely, or for another cause. `mended` failed and passes. `unchecked` was checked, and is
    not any more. An operation is `slower` where an example takes twice as long, and a second or more in all; a law that held is `further`
    where its largest error is twice as large. `unlike` says which settings differ, so that other cases were drawn.
    """

    broke: tuple[Change, ...]
    mended: tuple[Change, ...]
    unchecked: tuple[Change, ...]
    slower: tuple[Change, ...]
    further: tuple[Change, ...]
    unlike: tuple[str, ...]


def compared(before: dict[str, Any], after: dict[str, Any]) -> Comparison:
    """What changed between two reports, as `Report.to_dict` writes them."""
    old, new = _outcomes(before), _outcomes(after)
    both = [(old[key], o) for key, o in new.items() if key in old]
    pairs = [(old.get(key), o) for key, o in new.items() if _fails(o, after)]
    gone = [(o, new.get(key)) for key, o in old.items() if _checked(o) and not _checked(new.get(key))]
    settings = ("arithmetic", "conventions", "laws", "long", "max_examples", "quick", "seed")
    return Comparison(
        broke=tuple(_change(was, now, _cause(now)) for was, now in pairs if was is None or not _known(was, now)),
        mended=tuple(_change(was, now) for was, now in both if _fails(was, before) and now["status"] in ("held", "suspicious")),
        unchecked=tuple(_change(was, now, now["reason"] if now else "") for was, now in gone),
        slower=tuple(_slower(both)),
        further=tuple(_further(both)),
        unlike=tuple(key for key in settings if before["settings"].get(key) != after["settings"].get(key)),
    )


def against(report: Report, baseline: dict[str, Any]) -> tuple[Report, Comparison]:
    """A report of which what failed in a baseline too is known, and what changed since."""
    found = compared(baseline, report.to_dict())
    new = {(change.implementation, change.what) for change in found.broke}
    outcomes = (replace(o, known=report.fails(o) and (o.implementation, f"{o.law}[{o.operation}]") not in new) for o in report.outcomes)
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
    causes = [{d["id"] for d in o["violation"]["diagnosis"]} for o in (was, now) if "violation" in o]
    return not (was.get("unavailable") or (len(causes) == 2 and all(causes) and causes[0].isdisjoint(causes[1])))


def _change(was: Outcome | None, now: Outcome | None, why: str = "") -> Change:
    o = now or was
    assert o is not None
    before, after = (x["status"] if x else "not there" for x in (was, now))
    return Change(o["implementation"], f"{o['law']}[{o['operation']}]", before, after, why)


def _cause(o: Outcome) -> str:
    violation = o.get("violation", {"diagnosis": [], "summary": o["reason"]})
    return str(violation["diagnosis"][0]["id"] if violation["diagnosis"] else violation["summary"])


def _slower(pairs: list[tuple[Outcome, Outcome]]) -> Iterator[Change]:
    """Operations, by the laws that were put to examples in both reports."""
    groups: dict[tuple[str, str], list[tuple[Outcome, Outcome]]] = {}
    for was, now in pairs:
        if was["examples"] and now["examples"]:
            groups.setdefault((now["implementation"], now["operation"]), []).append((was, now))
    for (implementation, operation), these in groups.items():
        before, after = (sum(o["seconds"] for o in side) / sum(o["examples"] for o in side) for side in zip(*these, strict=True))
        if after >= _TWICE * before and sum(now["seconds"] for _, now in these) >= _SECOND:
            yield Change(implementation, operation, f"{1000 * before:.3g} ms", f"{1000 * after:.3g} ms", "for an example")


def _further(pairs: list[tuple[Outcome, Outcome]]) -> Iterator[Change]:
    """Laws that held in both, those nearest to the limit first."""
    held = [(float(was["worst_excess"]), float(now["worst_excess"]), now) for was, now in pairs if was["status"] == now["status"] == "held"]
    for before, after, o in sorted(held, key=lambda each: -each[1]):
        if after >= _TWICE * before and after > 0:
            yield Change(o["implementation"], f"{o['law']}[{o['operation']}]", f"{before:.2g}", f"{after:.2g}", "max error ÷ budget")
