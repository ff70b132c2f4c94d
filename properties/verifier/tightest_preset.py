"""Finds the tightest preset for a passing implementation: the most precise arithmetic whose error
limits all checked calls satisfy.
"""

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
"""The fields that say how sums are formed. The other fields say in how many bits."""


def finer_presets(declared: Arithmetic) -> tuple[Arithmetic, ...]:
    """Return the presets that store results in the same format as the declared arithmetic and never
    round to fewer bits, finest first.
    """
    return tuple(
        preset
        for preset in PRESETS
        if preset.output == declared.output and preset != declared and _is_finer(preset, declared)
    )


def _is_finer(preset: Arithmetic, declared: Arithmetic) -> bool:
    names = [field.name for field in fields(Arithmetic) if field.name not in ("name", "inputs")]
    return all(
        getattr(preset, name) == getattr(declared, name)
        if name in _STRUCTURE
        else _rounds_no_more(getattr(preset, name), getattr(declared, name))
        for name in names
    )


def _rounds_no_more(field: Any, declared: Any) -> bool:
    """Return whether a field of an arithmetic rounds no more than the declared one. None means no
    rounding.
    """
    if field is None or declared is None:
        return field is None
    if isinstance(field, Format):
        finer = field.unit_roundoff <= declared.unit_roundoff
        return bool(finer and field.smallest_subnormal <= declared.smallest_subnormal)
    if isinstance(field, bool | float | int):
        return bool(field <= declared)
    return all(_rounds_no_more(getattr(field, part.name), getattr(declared, part.name)) for part in fields(field))


class TightestPreset:
    """The presets that are finer than the declared arithmetic, and whose error limits all calls so
    far satisfy.
    """

    def __init__(self, implementation: Implementation) -> None:
        self.implementation, self.calls = implementation, 0
        self._accepting = finer_presets(implementation.resolved_arithmetic)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the presets that no call has ruled out, finest first. The last name is the
        declared arithmetic's.
        """
        return (*(preset.name for preset in self._accepting), self.implementation.resolved_arithmetic.name)

    def look(self, calls: list[Call]) -> None:
        """Judge the first call that returned numbers by every preset that no call has ruled out so
        far.
        """
        call = next((one for one in calls if not one.error and not OPERATIONS[one.operation].is_exact), None)
        if call is None:
            return
        self.calls += 1
        inputs = self.implementation.resolved_arithmetic.inputs
        self._accepting = tuple(
            preset
            for preset in self._accepting
            if OtherArithmetic(preset.name, "", replace(preset, inputs=inputs)).accepts(call, self.implementation)
        )
