"""Facts of a portrait that are not conventions: how a function is called, what changes the bits of its
results, and how accurate its weights are.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from properties.contract.bit_contracts import BIT_CONTRACTS
from properties.contract.conversion import UngivenError
from properties.contract.results import BrokenError
from properties.contract.support import OutsideError
from properties.inspection.bits import Bits, bits, with_long_sums
from properties.inspection.forms import Form, Refusal, reasons
from properties.inspection.micrometer import Micrometer
from properties.inspection.probe import Probe, SpentError
from properties.inspection.shapes import shape_of

__all__ = ["Fact", "facts_of_accuracy", "facts_of_bits", "facts_of_form"]

_AXES = {"b h s d": "batch, heads, sequence, width", "b s h d": "batch, sequence, heads, width"}

_COARSE = 0.01  # relative: a wider interval says nothing about the accuracy of a weight


@dataclass(frozen=True)
class Fact:
    """Something that was measured: a subject, such as "causal", and a clause about it."""

    subject: str
    says: str


def facts_of_form(form: Form) -> Iterator[Fact]:
    """Yield how a function can be called, what is assumed, and what it does not take."""
    yield Fact("arrays", f"{form.arrays} arrays of {', '.join(form.dtypes)}")
    if form.axes != "b h s d":
        yield Fact("axes", _AXES[form.axes])
    if form.features:
        yield Fact("options", ", ".join(form.features))
    for clause in form.assumed:
        yield Fact("assumed", clause)
    if form.is_cut:
        subject = "assumed" if "supports" in form.declarations else "not promised"
        yield Fact(subject, f"everything else, since the search ended after {form.calls} calls")
    for clause in reasons(_first_of_each_size(form.refusals)):
        yield Fact("not taken", clause)


def _first_of_each_size(refusals: Sequence[Refusal]) -> Iterator[Refusal]:
    """Yield one refusal for all values of a size, with the reason of the first."""
    values: dict[str, list[str]] = {}
    errors: dict[str, str] = {}
    for refusal in refusals:
        size, is_equal, value = refusal.what.rpartition(" = ")
        name = size + is_equal or value
        values.setdefault(name, []).append(value)
        errors.setdefault(name, refusal.error)
    for name, error in errors.items():
        yield Refusal(f"{name}{', '.join(values[name])}" if name.endswith(" = ") else name, error)


def facts_of_bits(probe: Probe, arguments: Sequence[Any]) -> tuple[Fact, ...]:
    """Return what changes the bits of a problem's result, and what does not; () if it cannot be measured."""
    found: Bits | None = None
    operation = probe.operation
    if {"q", "k", "v"} <= set(operation.parameters) and operation.outputs[0] == "out" and not operation.is_packed:
        with suppress(BrokenError, OutsideError, UngivenError, SpentError):
            found = bits(probe, with_long_sums(probe, shape_of(operation, arguments)))
    if found is None:
        return ()
    if found.changes["run to run"]:
        return (Fact("bits", "two equal calls give different bits"),)
    around = {words: found.changes[name] for name, words in [*BIT_CONTRACTS.items()][1:] if name in found.changes}
    return tuple(
        Fact("bits", f"{verdict} with {', '.join(names)}")
        for differs, verdict in ((False, "equal"), (True, "different"))
        if (names := [words for words, change in around.items() if (change is not None) is differs])
    )


def facts_of_accuracy(record: Micrometer) -> Iterator[Fact]:
    """Yield the measured accuracy of weights, and up to which length sums were right."""
    narrow = {
        score: max(map(abs, interval))
        for score, interval in record.exponentials.items()
        if np.isfinite(interval).all() and max(map(abs, interval)) < _COARSE
    }
    if narrow:
        below = ", ".join(f"{score:.3g}" for score in narrow)
        yield Fact("weights", f"relative error at most {max(narrow.values()):.1e} for scores {below} below the largest")
    right = [each.length for each in record.sums if not each.wrong]
    if right and not any(each.wrong for each in record.sums):
        yield Fact("sums", f"sums over {max(right)} equal scores are within their error limits")
