"""docs/findings.md: every finding with its measurement, every declared deviation with its smallest
input, and the errata of the spec.
"""

import textwrap
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from properties.contract.implementation import Implementation
from properties.laws import find
from properties.verifier.plan import plan
from properties.verifier.report import Outcome
from properties.verifier.shrinking import smallest
from properties.verifier.verify import check
from research.findings.loader import read
from research.findings.system import SystemFinding
from spec.errata import ERRATA
from systems import GROUPS

__all__ = ["FINDINGS", "declared", "errata", "findings", "markdown"]

FINDINGS = read(Path(__file__).parent / "systems", SystemFinding)
"""All findings about systems under test that differ from their documentation."""
_EXAMPLES = 100


def declared() -> dict[str, list[tuple[Implementation, str]]]:
    """{reason: [(implementation, law)]} of everything that is declared not to hold."""
    found: dict[str, list[tuple[Implementation, str]]] = {}
    for i in (i for group in GROUPS.values() for i in group):
        for law in plan(i):
            if reason := i.known_deviations.get(law.id) or i.known_deviations.get(law.name):
                found.setdefault(reason, []).append((i, law.id))
    return found


def _smallest(implementation: Implementation, law: str) -> Outcome:
    """How a declared deviation looks on the smallest input that is found."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (chosen,) = find(law)
        found = check(chosen, implementation, _EXAMPLES)
        return replace(found, violation=smallest(implementation, chosen, found.violation)) if found.violation else found


def markdown() -> str:
    """The page."""
    head = [
        "# Findings",
        "",
        "Written by `make findings`, which computes every number. First: where a system and its documentation differ,",
        "measured on the ports in `systems`, on PyTorch and on ONNX. Then: which laws an implementation is declared to",
        "break, on the smallest input that the suite found. Last: the errata of TorchLean's text.",
    ]
    return "\n".join([*head, *findings(), *_deviations(), *errata(), ""])


def findings() -> Iterator[str]:
    """The findings, system by system."""
    for system in dict.fromkeys(f.library for f in FINDINGS):
        yield f"\n## {system}"
        for f in (f for f in FINDINGS if f.library == system):
            yield f"\n### {f.title}\n"
            yield f"{f.detail}\n"
            yield from _rows(
                {
                    "promised": f.promised,
                    "input": f.input,
                    "expected": f.expected,
                    "actual": f.actual,
                    "source": f.source,
                }
            )


def _rows(fields: dict[str, str]) -> Iterator[str]:
    yield "| | |\n|---|---|"
    for name, text in fields.items():
        yield f"| {name} | {text.replace('|', chr(92) + '|')} |"


def _deviations() -> Iterator[str]:
    yield "\n## Laws that are declared to be broken"
    for reason, where in declared().items():
        implementation, law = where[0]
        outcome = _smallest(implementation, law)
        names = list(dict.fromkeys(i.name for i, _ in where))
        laws = list(dict.fromkeys(law for _, law in where))
        yield f"\n### {names[0]}: {law}\n"
        yield f"{reason}\n"
        if outcome.violation is None:
            raise ValueError(f"{law} is declared to be broken by {implementation.name}, but held.")
        case = ", ".join(f"{name} = {_one_line(x)}" for name, x in outcome.violation.told.items())
        fields = {
            "smallest input": case,
            "seen": outcome.violation.summary,
            "implementations": ", ".join(names),
            "laws": "; ".join(laws),
        }
        yield from _rows(fields)


def _one_line(x: object) -> str:
    return textwrap.shorten(" ".join(str(getattr(x, "tolist", lambda: x)()).split()), 240)


def errata() -> Iterator[str]:
    """What the literal text of TorchLean gives on the smallest witnesses."""
    yield "\n## TorchLean's errata"
    for e in ERRATA.values():
        broken, kept = e.law(e.literal), e.law(e.corrected)
        yield f"\n### {e.id}\n"
        yield f"{e.law_says} Corrected in {e.fixed}.\n"
        values = {"promised": e.says, "input": broken.witness}
        numbers = {"expected": broken.expected, "actual": broken.actual, "corrected": kept.actual}
        yield from _rows(
            values
            | {name: ", ".join(f"{x:.6g}" for x in xs) for name, xs in numbers.items()}
            | {"source": e.declaration}
        )
