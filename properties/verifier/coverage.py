"""Counts what the calls of an operation covered: the largest sizes, calls that decode, and number
formats. Only calls that were made count.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from properties import interpreters
from properties.contract.implementation import Implementation
from properties.contract.operations import OPERATIONS, Arguments
from properties.interpreters.single_file import stand_ins

__all__ = ["Coverage", "none_yet", "total"]

FORMATS = ("float32", "float16", "bfloat16")
"""The number formats of most kernels. A report names those that no call had."""

DECODES = 8, 256
"""A call decodes if it has at most 8 queries and at least 256 keys."""

_SHOWN = ("n_q", "n_k", "seq_len", "batch × heads", "head_dim")
_LONG = ("n_k", "seq_len")  # a report says that no call was longer


@dataclass
class Coverage:
    """What calls covered.

    calls     the number of calls
    largest   the largest sizes, by name; "batch × heads" is the number of problems of a call
    decoding  the number of calls with at most 8 queries and at least 256 keys
    formats   the number formats of the arrays
    tried     the sizes that the user named and that calls had, as texts
    untried   the sizes that the user named and that no call had, each with the reason
    left_out  the number of calls that `--cost` left out
    run_by    the interpreters that ran the kernels, with their versions
    stand_ins the modules that `kernels.load` replaced by stand-ins
    """

    calls: int = 0
    largest: dict[str, int] = field(default_factory=dict)
    decoding: int = 0
    formats: list[str] = field(default_factory=list)
    tried: list[str] = field(default_factory=list)
    untried: dict[str, str] = field(default_factory=dict)
    left_out: int = 0
    run_by: list[str] = field(default_factory=list)
    stand_ins: list[str] = field(default_factory=list)

    def count(self, operation: str, arguments: Arguments) -> None:
        """Count a call."""
        sizes = OPERATIONS[operation].sizes_with_longest_keys(arguments)
        if "batch" in sizes or "num_heads" in sizes:
            sizes["batch × heads"] = sizes.get("batch", 1) * sizes.get("num_heads", 1)
        for name, size in sizes.items():
            self.largest[name] = max(size, self.largest.get(name, 0))
        queries, keys = DECODES
        self.decoding += sizes.get("n_q", queries + 1) <= queries and sizes.get("n_k", 0) >= keys
        self.calls += 1

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
            *([f"{self.left_out} slower calls left out (--cost)"] if self.left_out else []),
            *([f"interpreted by {' and '.join(self.run_by)}"] if self.run_by else []),
            *([f"stand-ins for {', '.join(self.stand_ins)}"] if self.stand_ins else []),
            *(f"NOT TRIED, though named: {text}: {reason.rstrip('.')}" for text, reason in self.untried.items()),
        ]
        return f"{'; '.join(parts)}."

    def to_dict(self) -> dict[str, Any]:
        """Return the coverage as numbers, strings, lists and mappings, for JSON."""
        return {**vars(self), "line": self.line}


def none_yet(implementation: Implementation) -> Coverage:
    """Return the coverage of an implementation before its first call."""
    name = implementation.resolved_arithmetic.inputs.name
    return Coverage(
        formats=[implementation.dtype or name.replace("binary", "float")],
        run_by=interpreters.names(),
        stand_ins=stand_ins(),
    )


def total(parts: Iterable[Coverage], named: Iterable[str] = ()) -> Coverage:
    """Return what several parts covered together. `named` are sizes as texts. Sizes that a part tried
    are not untried.
    """
    whole = Coverage(untried=dict.fromkeys(named, "no law that is checked calls an operation with them."))
    for part in parts:
        whole.calls += part.calls
        whole.decoding += part.decoding
        whole.left_out += part.left_out
        whole.formats += [name for name in part.formats if part.calls and name not in whole.formats]
        for name in ("tried", "run_by", "stand_ins"):
            known = getattr(whole, name)
            known += [text for text in getattr(part, name) if text not in known]
        whole.untried |= part.untried
        whole.largest |= {name: max(size, whole.largest.get(name, 0)) for name, size in part.largest.items()}
    for text in whole.tried:
        whole.untried.pop(text, None)
    return whole
