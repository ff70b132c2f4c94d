"""How fine an arithmetic is within whose budgets a passing implementation is."""

from dataclasses import fields, replace
from typing import Any

from oracles import Arithmetic
from oracles.formats import PRESETS, Format
from properties.contract.implementation import Implementation
from properties.contract.operations import OPERATIONS
from properties.contract.results import Call
from properties.verifier.arithmetics import OtherArithmetic

__all__ = ["TightestPreset", "finer_presets"]


_STRUCTURE = ("rescale_block", "rescale_slack", "sum_depth", "sum_block", "shared_weights", "delta", "likely")
"""Fields that say how sums are formed, not in how many bits."""


def finer_presets(a: Arithmetic) -> tuple[Arithmetic, ...]:
    """The presets that round nothing to fewer bits than an arithmetic does, and store results in
    its format; the finest first.
    """
    return tuple(p for p in PRESETS if p.output == a.output and p != a and _is_finer(p, a))


def _is_finer(p: Arithmetic, a: Arithmetic) -> bool:
    names = [f.name for f in fields(Arithmetic) if f.name not in ("name", "inputs")]
    return all(
        getattr(p, f) == getattr(a, f) if f in _STRUCTURE else _finer(getattr(p, f), getattr(a, f)) for f in names
    )


def _finer(x: Any, y: Any) -> bool:
    """Whether a field of an arithmetic rounds no more than another's: None is not rounded at all."""
    if x is None or y is None:
        return x is None
    if isinstance(x, Format):
        return bool(x.unit_roundoff <= y.unit_roundoff and x.smallest_subnormal <= y.smallest_subnormal)
    if isinstance(x, bool | float | int):
        return bool(x <= y)
    return all(_finer(getattr(x, f.name), getattr(y, f.name)) for f in fields(x))


class TightestPreset:
    """Of the presets finer than the declared arithmetic, those within whose budgets all calls that
    were looked at are.
    """

    def __init__(self, implementation: Implementation) -> None:
        self.implementation, self.calls = implementation, 0
        self._left = finer_presets(implementation.resolved_arithmetic)

    @property
    def names(self) -> tuple[str, ...]:
        """Finest first, and last the declared arithmetic."""
        return (*(p.name for p in self._left), self.implementation.resolved_arithmetic.name)

    def look(self, calls: list[Call]) -> None:
        """Put a call to the presets that are left."""
        seen = next((c for c in calls if not c.error and not OPERATIONS[c.operation].returns_booleans), None)
        if seen is None:
            return
        self.calls += 1
        inputs = self.implementation.resolved_arithmetic.inputs
        self._left = tuple(
            p
            for p in self._left
            if OtherArithmetic(p.name, "", replace(p, inputs=inputs)).accepts(seen, self.implementation)
        )
