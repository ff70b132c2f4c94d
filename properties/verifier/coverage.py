"""Counts what the calls of an operation covered: the largest sizes, calls that decode, and number
formats. Only calls that were made count.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from properties.contract.implementation import Implementation
from properties.contract.operations import OPERATIONS

__all__ = ["DECODES", "Coverage", "CoverageCounter", "total"]

FORMATS = ("float32", "float16", "bfloat16")
"""The number formats of most kernels. A report names those that no call had."""

DECODES = 8, 256
"""A call decodes if it has at most 8 queries and at least 256 keys."""

_SHOWN = ("n_q", "n_k", "seq_len", "batch × heads", "head_dim")
_LONG = ("n_k", "seq_len")  # a report says that no call was longer


@dataclass(frozen=True)
class Coverage:
    """What calls covered.

    calls     the number of calls
    largest   the largest sizes, by name; "batch × heads" is the number of problems of a call
    decoding  the number of calls with at most 8 queries and at least 256 keys
    formats   the number formats of the arrays
    tried     the sizes that the user named and that calls had, as texts
    untried   the sizes that the user named and that no call had, each as "sizes: reason"
    """

    calls: int = 0
    largest: Mapping[str, int] = field(default_factory=dict)
    decoding: int = 0
    formats: tuple[str, ...] = ()
    tried: tuple[str, ...] = ()
    untried: tuple[str, ...] = ()

    @property
    def line(self) -> str:
        """What the calls covered, in a line; "" without calls."""
        if not self.calls:
            return ""
        largest = ", ".join(f"{name} {self.largest[name]}" for name in _SHOWN if name in self.largest)
        longer = [f"{name} > {self.largest[name]}" for name in _LONG if name in self.largest]
        untried = [*(name for name in FORMATS if name not in self.formats), *longer]
        parts = [
            *([f"largest: {largest}"] if largest else []),
            *([f"decode {self.decoding} call{'s' * (self.decoding != 1)}"] if "n_k" in self.largest else []),
            *([f"named sizes: {'; '.join(self.tried)}"] if self.tried else []),
            f"not tried: {', '.join(untried)}",
            *(f"NOT TRIED, though named: {each.rstrip('.')}" for each in self.untried),
        ]
        return f"{'; '.join(parts)}."

    def to_dict(self) -> dict[str, Any]:
        """Return the coverage as numbers, strings and lists, for JSON."""
        return {**vars(self), "largest": dict(self.largest), "line": self.line}


class CoverageCounter:
    """Counts the calls of one implementation."""

    def __init__(self, implementation: Implementation) -> None:
        name = implementation.resolved_arithmetic.inputs.name
        self.formats = (implementation.dtype or name.replace("binary", "float"),)
        self.calls = self.decoding = 0
        self.largest: dict[str, int] = {}
        self.tried: dict[str, None] = {}
        self.untried: dict[str, str] = {}

    def count(self, operation: str, arguments: tuple[Any, ...]) -> None:
        """Count a call."""
        sizes, largest = OPERATIONS[operation].sizes(arguments), self.largest
        if "batch" in sizes or "num_heads" in sizes:
            sizes["batch × heads"] = sizes.get("batch", 1) * sizes.get("num_heads", 1)
        for name, size in sizes.items():
            if size > largest.get(name, -1):
                largest[name] = size
        queries, keys = DECODES
        self.decoding += sizes.get("n_q", queries + 1) <= queries and sizes.get("n_k", 0) >= keys
        self.calls += 1

    def coverage(self) -> Coverage:
        """Return what the calls so far covered."""
        untried = tuple(f"{text}: {reason}" for text, reason in self.untried.items())
        formats = self.formats if self.calls else ()
        return Coverage(self.calls, dict(self.largest), self.decoding, formats, tuple(self.tried), untried)


def total(parts: Iterable[Coverage], named: Iterable[str] = ()) -> Coverage:
    """Return what several parts covered together. `named` are sizes as texts. Sizes that a part tried
    are not untried.
    """
    found = list(parts)
    largest: dict[str, int] = {}
    for part in found:
        for name, size in part.largest.items():
            largest[name] = max(size, largest.get(name, 0))
    tried, untried, formats = (
        tuple(dict.fromkeys(each for part in found for each in getattr(part, name)))
        for name in ("tried", "untried", "formats")
    )
    reasons = {text: reason for text, _, reason in (each.partition(": ") for each in untried)}
    reasons |= {text: "no law that is checked calls an operation with them." for text in named if text not in reasons}
    return Coverage(
        sum(part.calls for part in found),
        largest,
        sum(part.decoding for part in found),
        formats,
        tried,
        tuple(f"{text}: {reason}" for text, reason in reasons.items() if text not in tried),
    )
