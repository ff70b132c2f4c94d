"""Twenty findings about released libraries, drawn by chance, whose expected numbers are computed
once more by mpmath, without the oracles.

The draw takes the findings whose digests come first, among those that expect numbers: not that two
runs agree, a type, a shape or an error. A new finding replaces at most one of them. Each finding
that is drawn has a key `mpmath`: a Python expression of the numbers that its script should print,
one after the other, with the names of this module.
"""

import re
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Any

import mpmath
from mpmath import mpf

from research.findings.library import LibraryFinding

__all__ = ["confirmed", "drawn", "mean", "rotated"]

_SEED, _MANY = 15, 20
_NUMBER = re.compile(r"-?(?:\d+\.\d+|\binf\b|\bnan\b)")
_DIGITS = 4
"""Findings show numbers to so many digits after the point: half a unit of the last one is what rounding may take."""


def mean(values: Sequence[float], scores: Sequence[Any]) -> Any:
    """Values weighted by the exponentials of the scores of the keys that are seen; 0 of no keys, as the page has it."""
    weights = [mpmath.exp(s) for s in scores]
    return (
        mpmath.fsum(w * v for w, v in zip(weights, values, strict=True)) / mpmath.fsum(weights) if weights else mpf(0)
    )


def rotated(angle: Any) -> list[Any]:
    """The pair (1, 0) after a rotation by an angle."""
    return [mpmath.cos(angle), mpmath.sin(angle)]


def drawn(findings: Iterable[LibraryFinding]) -> list[LibraryFinding]:
    """The findings that the draw takes from some."""
    numeric = [finding for finding in findings if _NUMBER.search(finding.expected) and finding.expected != "0.0"]
    return sorted(numeric, key=lambda finding: sha256(f"{_SEED} {finding.name}".encode()).hexdigest())[:_MANY]


def confirmed(finding: LibraryFinding) -> str:
    """What mpmath says of a finding that is drawn, to twelve digits; "" of another one. Raises
    ValueError where that is not what the finding expects."""
    if not finding.mpmath:
        return ""
    with mpmath.workdps(40):
        exact = list(eval(finding.mpmath, globals()))
        expected = [mpf(x) for x in _NUMBER.findall(finding.expected)]
        digits = ", ".join(mpmath.nstr(x, 12) for x in exact)
        half = mpf(10) ** -_DIGITS / 2
        if len(exact) != len(expected) or any(
            x != y and not abs(x - y) <= half for x, y in zip(exact, expected, strict=True)
        ):
            raise ValueError(f"{finding.name}: {finding.expected} is expected, but mpmath gives {digits}.")
        return digits
