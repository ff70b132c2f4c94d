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
    reasons: dict[str, list[tuple[Implementation, str]]] = {}
    for implementation in (implementation for group in GROUPS.values() for implementation in group):
        for law in plan(implementation):
            if reason := implementation.known_deviations.get(law.id) or implementation.known_deviations.get(law.name):
                reasons.setdefault(reason, []).append((implementation, law.id))
    return reasons


def _smallest(implementation: Implementation, law: str) -> Outcome:
    """How a declared deviation looks on the smallest input that is found."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (chosen,) = find(law)
        reasons = check(chosen, implementation, _EXAMPLES)
        return (
            replace(reasons, violation=smallest(implementation, chosen, reasons.violation))
            if reasons.violation
            else reasons
        )


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
    for system in dict.fromkeys(finding.library for finding in FINDINGS):
        yield f"\n## {system}"
        for finding in (finding for finding in FINDINGS if finding.library == system):
            yield f"\n### {finding.title}\n"
            yield f"{finding.detail}\n"
            yield from _rows(
                {
                    "promised": finding.promised,
                    "input": finding.input,
                    "expected": finding.expected,
                    "actual": finding.actual,
                    "source": finding.source,
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
    for erratum in ERRATA.values():
        broken, kept = erratum.law(erratum.literal), erratum.law(erratum.corrected)
        yield f"\n### {erratum.id}\n"
        yield f"{erratum.law_says} Corrected in {erratum.fixed}.\n"
        values = {"promised": erratum.says, "input": broken.witness}
        numbers = {"expected": broken.expected, "actual": broken.actual, "corrected": kept.actual}
        yield from _rows(
            values
            | {name: ", ".join(f"{x:.6g}" for x in numbers_of) for name, numbers_of in numbers.items()}
            | {"source": erratum.declaration}
        )
