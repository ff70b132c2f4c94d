"""What the page says about a law that is broken, or that said nothing: a text for each part, ready to be laid out."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup, escape

from properties.verifier.report_file import array
from properties.views.violation import SIGNS, shown

__all__ = ["Finding", "finding", "linked"]

_LONGEST = 20_000  # characters of a script: beyond, it is bytes that nobody reads, and the JSON has it
_WIDTH = 84  # characters of a line of an array


@dataclass(frozen=True)
class Finding:
    """A law that did not simply hold: what was got where and what should be, if the violation's
    summary says so; the rest of it; the input; and what else is known.

    `anchor` is the element's id, "finding-3-17": implementation 3, law 17. `others` are the laws
    that the same cause breaks, and `worst` is what it did worst, where this one is its example.
    """

    anchor: str
    status: str
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
    script: str
    shrunk: bool
    others: tuple[str, ...]
    worst: str


def finding(outcome: dict[str, Any], anchor: str, causes: Sequence[dict[str, Any]] = ()) -> Finding:
    """What there is to say about an outcome, as `Outcome.to_dict` writes it, and about its cause,
    one of `Cause.to_dict`'s.
    """
    law = f"{outcome['law']}[{outcome['operation']}]"
    cause = next((c for c in causes if law in c["laws"]), None)
    is_example = cause is not None and law == f"{cause['example']['law']}[{cause['example']['operation']}]"
    v = outcome.get("violation") or {"summary": "", "counterexample": {}, "diagnosis": [], "notes": [], "script": ""}
    compared = re.fullmatch(r"([^=]+)=(.+?), but should be (.+?)(?:[:;] (.+)|\.?)", v["summary"], re.DOTALL)
    where, actual, expected, rest = (
        [part or "" for part in compared.groups()] if compared else ["", "", "", v["summary"]]
    )
    script = v["script"]
    if len(script) > _LONGEST:
        script = f"# {len(script):,} characters, which `attnspec verify --json` writes down."
    return Finding(
        anchor,
        outcome["status"],
        SIGNS[outcome["status"]][0],
        outcome["law"],
        outcome["operation"],
        rest[:1].upper() + rest[1:] if compared else rest,
        where,
        actual,
        expected,
        outcome["reason"],
        tuple((name, shown(array(x), _WIDTH).plain) for name, x in v["counterexample"].items()),
        tuple(v["diagnosis"]),
        tuple(v["notes"]),
        script,
        v.get("shrunk", True),
        tuple(other for other in cause["laws"] if other != law) if cause is not None else (),
        cause["worst"] if cause is not None and is_example else "",
    )


def linked(citation: str) -> Markup:
    """A citation in which every "owner/repository#number" is a link to it."""
    return Markup(
        re.sub(
            r"\b([\w.-]+/[\w.-]+)#(\d+)",
            r'<a href="https://github.com/\1/issues/\2" rel="noreferrer">\g<0></a>',
            str(escape(citation)),
        )
    )
