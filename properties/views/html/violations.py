"""Writes the texts of the page about a law that fails or has no verdict, one text for each part."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup, escape

from properties.verifier.report_file import array
from properties.views.statuses import LABELS, SIGNS
from properties.views.violation import shown

__all__ = ["Finding", "finding", "linked"]

_MAX_SCRIPT = 20_000  # characters; a longer script is compressed bytes, which the JSON has
_WIDTH = 84  # characters of a line of an array


@dataclass(frozen=True)
class Finding:
    """The texts of the page about a law that fails or has no verdict.

    anchor                    the element's id, "finding-3-17": implementation 3, law 17
    label                     the status in words
    where, actual, expected   the wrong entry and both values, if the summary of the violation has
                              them
    summary                   the rest of the summary
    others                    the other laws that fail for the same cause
    largest_error             the largest error of the cause, if this law is its example
    """

    anchor: str
    status: str
    label: str
    sign: str
    law: str
    operation: str
    summary: str
    where: str
    actual: str
    expected: str
    reason: str
    inputs: tuple[tuple[str, str], ...]
    diagnosis: tuple[dict[str, Any], ...]
    notes: tuple[str, ...]
    measured: tuple[str, ...]
    on_earlier_calls: str
    script: str
    shrunk: bool
    others: tuple[str, ...]
    largest_error: str


def finding(outcome: dict[str, Any], anchor: str, causes: Sequence[dict[str, Any]] = ()) -> Finding:
    """Return the finding (the page's texts) for an outcome, as `Outcome.to_dict` writes it.
    `causes` are the causes of the same implementation, as `Cause.to_dict` writes them.
    """
    law = f"{outcome['law']}[{outcome['operation']}]"
    cause = next((each for each in causes if law in each["laws"]), None)
    is_example = cause is not None and law == f"{cause['example']['law']}[{cause['example']['operation']}]"
    nothing: dict[str, Any] = {"summary": "", "counterexample": {}, "diagnosis": [], "notes": [], "script": ""}
    violation: dict[str, Any] = outcome.get("violation") or nothing
    where, actual, expected, rest = _parts_of(violation["summary"])
    script = violation["script"]
    if len(script) > _MAX_SCRIPT:
        script = f"# {len(script):,} characters, which `attnspec verify --json` writes."
    return Finding(
        anchor,
        outcome["status"],
        LABELS[outcome["status"]],
        SIGNS[outcome["status"]][0],
        outcome["law"],
        outcome["operation"],
        rest[:1].upper() + rest[1:] if where else rest,
        where,
        actual,
        expected,
        outcome["reason"],
        tuple((name, shown(array(value), _WIDTH).plain) for name, value in violation["counterexample"].items()),
        tuple(violation["diagnosis"]),
        tuple(violation["notes"]),
        tuple(violation.get("measured", ())),
        violation.get("on_earlier_calls", ""),
        script,
        violation.get("shrunk", True),
        tuple(other for other in cause["laws"] if other != law) if cause is not None else (),
        cause["largest_error"] if cause is not None and is_example else "",
    )


def _parts_of(summary: str) -> tuple[str, str, str, str]:
    """Return the wrong entry, its value, the expected value, and the rest of a summary. If the
    summary compares no entry, return "" three times, and the summary.
    """
    compared = re.fullmatch(r"([^=]+)=(.+?), but should be (.+?)(?:[:;] (.+)|\.?)", summary, re.DOTALL)
    if compared is None:
        return "", "", "", summary
    where, actual, expected, rest = (part or "" for part in compared.groups())
    return where, actual, expected, rest


def linked(citation: str) -> Markup:
    """Return a citation in which every "owner/repository#number" is a link."""
    return Markup(
        re.sub(
            r"\b([\w.-]+/[\w.-]+)#(\d+)",
            r'<a href="https://github.com/\1/issues/\2" rel="noreferrer">\g<0></a>',
            str(escape(citation)),
        )
    )
