"""Finds the arithmetic that explains violations (failed laws): attnspec judges the recorded results
again by arithmetics other than the declared one. An arithmetic says how a kernel rounds. Its budget
is the error limit of a result.

An arithmetic explains violations if all of these conditions hold:

(1) Some output is outside its budget in the declared arithmetic. Where only an exact law fails,
    rounding is not the cause.
(2) Judged by the other arithmetic, the laws pass on the recorded results, and every recorded call,
    right or wrong, is within its budget.
(3) Outputs are wrong on at least two calls, and on an eighth of all calls. Rounding shows on inputs
    of every kind. A bug is triggered more rarely, and a shrunk counterexample hides its trigger.
(4) The budget distinguishes results. On at least half of the wrong calls it refuses zeros in a
    wrong row, by a factor of two.
(5) The arithmetic also explains directed calls: long rows of equal scores. If no error is above
    twice its declared budget, any wider budget contains it. Then a directed call must be outside the
    declared budget too, and the budget must distinguish its results.
(6) The implementation can have it: no format is finer than that of the inputs, numbers are flushed to
    zero only if some may be subnormal, and results of fewer bits are numbers of their format.

Among the arithmetics that explain the violations, attnspec names the one with the narrowest
budgets. A budget that is merely wide also accepts the results of a bug. For this reason a bug or a
convention that reproduces every recorded call, within the *declared* budget, comes first. A bug or
a convention that reproduces only some of the calls comes after an arithmetic, because an arithmetic
must explain all calls.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import prod
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oracles import Arithmetic, Enclosure
from oracles.ball import Array
from oracles.formats import BINARY16, BINARY32, BRAIN16, FLOAT32, FLOAT32_FAMILIES, PRESETS, TF32, Elementary, Format
from properties.contract.implementation import Implementation
from properties.contract.operations import OPERATIONS, Arguments
from properties.contract.results import BrokenError, Call, is_right
from properties.contract.subject import Subject
from properties.inspection.measurements import calls_of_equal_scores
from properties.laws.law import Law
from properties.strategies.choices import rounded
from properties.verifier.report import TriedSizes, Violation

__all__ = ["AS_IF", "OtherArithmetic", "explained", "other_arithmetics"]

AS_IF = "All results are within the error limits of a kernel in which"
"""How the mechanism of a diagnosis begins that is an arithmetic."""

Mask = NDArray[np.bool_]
_FEWEST_WRONG_CALLS = 2
_SHARE_OF_WRONG_CALLS = 1 / 8
_LEAST_ERROR = 2.0  # budgets: smaller errors show no arithmetic
_FAR = 1e4  # budgets: most arithmetics refuse a call that is farther than this
_TEN_BITS = Format("TF32", 2.0**-11, 2.0**-136, 2.0**-126, float(BINARY32.largest))
_NAMES = {"binary32": "float32", "binary16": "float16", "bfloat16": "bfloat16", "TF32": "TF32"}
_STORED = {
    "scores": "scores are stored in",
    "weights": "weights are stored in",
    "saved_weights": "the weights that the backward pass reads are stored in",
    "grad_weights": "the products g·vᵀ are stored in",
    "grad_scores": "dS is stored in",
    "scale_on_inputs": "scaled inputs are stored in",
    "saved_output": "the output that the backward pass reads is stored in",
    "saved_lse": "the log-sum-exp that the backward pass reads is stored in",
    "output": "results are stored in",
}
"""The fields that are formats of stored numbers, each with the words for a narrower format."""


@dataclass(frozen=True)
class OtherArithmetic:
    """An arithmetic (a way to round) to try in place of the declared one.

    `sentence` ends the sentence that begins with `AS_IF`. `converted` is the format to which the
    implementation converts its inputs first, or the input `only`.
    """

    id: str
    sentence: str
    arithmetic: Arithmetic
    converted: Format | None = None
    preset: bool = False
    only: str = ""

    def expected(self, call: Call, implementation: Implementation) -> tuple[Enclosure, ...]:
        """Return the budgets (error limits) of a call's results in this arithmetic.

        Arguments that are not converted are rounded to the formats in which this arithmetic has them,
        such as slopes to the format of elementwise operations. If an input exceeds the largest number of
        its format, the radii are infinite: the arithmetic promises no value.
        """
        operation, arguments, overflows = OPERATIONS[call.operation], [], False
        largest = implementation.resolved_arithmetic.inputs.largest
        for name, argument in zip(operation.parameters, call.arguments, strict=False):
            target = None if argument is None else self._stored_format(operation, name)
            if target is None:
                arguments.append(argument)
                continue
            arguments.append(rounded(argument, replace(target, largest=min(target.largest, largest))))
            overflows |= bool((np.isfinite(argument) & (np.abs(argument) > target.largest)).any())
        enclosures = operation.expected(tuple(arguments), self.arithmetic, implementation.conventions_of_laws)
        budgets = implementation.support.promises(operation, call.arguments, enclosures)
        if not overflows:
            return budgets
        return tuple(replace(budget, rad=np.full_like(budget.rad, np.inf), vacuous=True) for budget in budgets)

    def _stored_format(self, operation: Any, name: str) -> Format | None:
        """Return the format in which this arithmetic stores a parameter; None if it leaves the
        parameter unchanged.
        """
        if name not in operation.arrays:
            return None
        of_inputs = not (self.only or operation.is_table(name) or operation.is_log_sum_exp(name))
        stored: Format = operation.stored(name, self.arithmetic)
        return self.converted or stored if of_inputs or name == self.only else stored

    def stores(self, call: Call, declared: Format) -> bool:
        """Return whether the first result of a call is of numbers of this arithmetic's output format, if
        that has fewer bits than the declared one. Softmax returns its weights, so they must be numbers of
        the format of weights too.
        """
        found = call.outputs[0]
        formats = [self.arithmetic.output, self.arithmetic.weights if call.operation == "hard_masked_softmax" else None]
        narrower = (to for to in formats if to is not None and to.unit_roundoff > declared.unit_roundoff)
        return all(np.array_equal(rounded(found, to), found, equal_nan=True) for to in narrower)

    def excess(self, call: Call, implementation: Implementation) -> list[Array]:
        """Return error ÷ budget of every entry of each output of a call. The budget is the error
        limit in this arithmetic.
        """
        budgets = self.expected(call, implementation)
        return [budget.excess(output) for budget, output in zip(budgets, call.outputs, strict=False)]

    def accepts(self, call: Call, implementation: Implementation) -> bool:
        """Return whether all outputs of a call are within this arithmetic's budget, the error
        limit.
        """
        return not call.error and is_right(call, self.expected(call, implementation))


_CHANGES: dict[str, tuple[str, Callable[[Arithmetic, Format], Arithmetic]]] = {
    "angle.table": ("cosines and sines are stored in", lambda a, to: replace(a, angle=replace(a.angle, table=to))),
    "angle.product": (
        "angles are multiplied in",
        lambda a, to: replace(a, angle=replace(a.angle, product=to.unit_roundoff)),
    ),
    "angle.frequency": (
        "frequencies have the precision of",
        lambda a, to: replace(a, angle=replace(a.angle, frequency=to.unit_roundoff)),
    ),
    "elementwise": (
        "all results between the products are rounded to",
        lambda a, to: replace(a, elementwise=to, exp=_coarser(a.exp, to)),
    ),
    "accumulate": (
        "sums are accumulated in",
        lambda a, to: replace(a, accumulate=to.unit_roundoff, grad_accumulate=max(to.unit_roundoff, a.grad_accumulate)),
    ),
    "product": ("the operands of products are rounded to", lambda a, to: replace(a, product=to.unit_roundoff)),
}
"""The other fields that can be narrower, each with the words for a narrower format and the arithmetic that
has it.
"""

_FLUSHES = "flush_to_zero=True"
_HABITS: dict[str, tuple[str, Callable[[Arithmetic], Arithmetic]]] = {
    "product=TF32": (
        "products are TF32",
        lambda a: replace(a, product=TF32.product, accumulate=max(a.accumulate, TF32.accumulate)),
    ),
    "stored_sum=True": (
        "the sum of weights is the sum of the stored weights",
        lambda a: replace(a, stored_sum=True),
    ),
    _FLUSHES: ("subnormal numbers become zero", lambda a: replace(a, flush_to_zero=True)),
    "grad_block=32": (
        "gradients are added up in their own format",
        lambda a: replace(a, grad_block=a.grad_block or 32),
    ),
}
"""Habits of kernels: the words for each, and the arithmetic that has it."""


def other_arithmetics(declared: Arithmetic, arrays: Iterable[str] = ()) -> Iterator[OtherArithmetic]:
    """Yield every arithmetic to try: the declared one with converted inputs, or one converted array,
    or one field changed, and every preset whose output format is the same or narrower.

    Presets that state the order of sums are left out: they round as the other presets do.
    """
    for target in (BINARY32, BINARY16, _TEN_BITS, BRAIN16):
        if target.unit_roundoff > declared.inputs.unit_roundoff:
            name = _NAMES[target.name]
            for only in ("", *arrays):
                words = f"{f'{only} is' if only else 'inputs are'} converted to {name}"
                yield OtherArithmetic(f"{only or 'inputs'}={name}", words, declared, target, only=only)
    for target in (BINARY32, BINARY16, BRAIN16):
        if target.unit_roundoff >= declared.inputs.unit_roundoff:
            yield from _with_a_narrower_field(declared, target)
    for habit, (words, changed) in _HABITS.items():
        is_finer = habit == "product=TF32" and TF32.product < declared.inputs.unit_roundoff
        if changed(declared) != declared and not is_finer:
            yield OtherArithmetic(habit, words, changed(declared))
    for preset in PRESETS:
        is_coarser = preset.output.unit_roundoff >= declared.output.unit_roundoff
        if preset.name != declared.name and preset not in FLOAT32_FAMILIES and is_coarser:
            narrower = preset.inputs if preset.inputs.unit_roundoff > declared.inputs.unit_roundoff else None
            arithmetic = replace(preset, inputs=declared.inputs)
            words = f"everything is {preset.name}"
            yield OtherArithmetic(f"arithmetic={preset.name}", words, arithmetic, narrower, preset=True)


def _with_a_narrower_field(declared: Arithmetic, target: Format) -> Iterator[OtherArithmetic]:
    """Yield the declared arithmetic with one field set to a format, for every field in which this
    format rounds to fewer bits.
    """
    name, roundoff = _NAMES[target.name], target.unit_roundoff
    for field, words in _STORED.items():
        if roundoff > (getattr(declared, field) or declared.elementwise).unit_roundoff:
            stored: Any = {field: target}
            yield OtherArithmetic(f"{field}={name}", f"{words} {name}", replace(declared, **stored))
    for field, (words, change) in _CHANGES.items():
        path = f"{field}.unit_roundoff" if field in ("angle.table", "elementwise") else field
        if roundoff > attrgetter(path)(declared):
            yield OtherArithmetic(f"{field}={name}", f"{words} {name}", change(declared, target))


def _coarser(declared: Elementary, target: Format) -> Elementary:
    """Return the exponential function of an implementation that rounds to a format. It is at best
    as accurate as float32's, and flushes to zero at least what float32's flushes.
    """
    best = FLOAT32.exp
    relative = max(declared.relative, best.relative)
    flush = max(declared.flush, best.flush, target.smallest_normal)
    return Elementary(relative, max(declared.per_unit, best.per_unit), flush)


@dataclass(frozen=True)
class _OutsideCall:
    """A call whose outputs exceed the declared budget (error limit), and the wrong entries of each
    output.
    """

    call: Call
    wrong: list[Mask]


def explained(
    implementation: Implementation,
    broken: Sequence[tuple[Law, Violation]],
    right: tuple[Call, ...],
    wrong: tuple[Call, ...],
) -> Iterator[tuple[OtherArithmetic, float]]:
    """Yield the arithmetic with the narrowest budgets (error limits) that explains the violations,
    then the narrowest preset that explains them. Each comes with its largest error ÷ budget.

    `right` and `wrong` are some calls of the operation. Every arithmetic judges the calls outside
    the declared budget, largest error first, because those refuse most arithmetics. The remaining
    arithmetics judge the other calls and the laws, narrowest first, until one explains all of them.
    """
    declared = OtherArithmetic("declared", "", implementation.resolved_arithmetic)
    calls = tuple(call for _, violation in broken for call in violation.calls)
    known = {id(call): call for call in (*calls, *wrong, *right) if not OPERATIONS[call.operation].is_exact}
    if any(call.error for call in known.values()):
        return
    if any(_share_of_wrong(violation.seen) < _SHARE_OF_WRONG_CALLS for _, violation in broken):
        return
    errors = {key: declared.excess(call, implementation) for key, call in known.items()}
    furthest = {key: max(float(error.max(initial=0.0)) for error in errors[key]) for key in known}
    far = {key for key in known if furthest[key] > 1}
    if not any(id(call) in far for call in calls) or sum(id(call) in far for call in wrong) < _FEWEST_WRONG_CALLS:
        return
    sizes = {key: sum(x.size for x in call.arguments if isinstance(x, np.ndarray)) for key, call in known.items()}
    order = sorted(known, key=lambda key: (-min(furthest[key], _FAR), sizes[key]))
    outside = [_OutsideCall(known[key], [error > 1 for error in errors[key]]) for key in order if key in far]
    inside = [known[key] for key in order if key not in far]

    @cache
    def directed() -> tuple[Call, ...]:
        return calls_of_equal_scores(implementation, outside[-1].call)

    def explains_the_rest(other: OtherArithmetic) -> bool:
        return (
            all(other.accepts(call, implementation) for call in inside)
            and all(_holds(other, law, implementation, violation) for law, violation in broken)
            and _explains_directed(other, directed(), max(furthest.values()), implementation)
        )

    accepting = _narrowest_first(implementation, outside)
    for preset in (False, True):
        candidates = (other for other in accepting if other.preset == preset)
        if (found := next(filter(explains_the_rest, candidates), None)) is not None:
            errors_of_other = (error for one in outside for error in found.excess(one.call, implementation))
            yield found, max(float(error.max(initial=0.0)) for error in errors_of_other)


def _explains_directed(
    other: OtherArithmetic, calls: Sequence[Call], error: float, implementation: Implementation
) -> bool:
    """Return whether an arithmetic explains directed calls, as (5) says. `error` is the largest error
    of the other calls in declared budgets. The answer is True without directed calls.
    """
    if not all(other.accepts(call, implementation) for call in calls):
        return False
    return not calls or error >= _LEAST_ERROR or any(_is_shown_by(other, call, implementation) for call in calls)


def _is_shown_by(other: OtherArithmetic, call: Call, implementation: Implementation) -> bool:
    """Return whether a call is outside the declared budget (error limit), and the budget of another
    arithmetic distinguishes its results.
    """
    declared = OtherArithmetic("declared", "", implementation.resolved_arithmetic)
    wrong = [error > 1 for error in declared.excess(call, implementation)]
    pairs = zip(other.expected(call, implementation), wrong, strict=False)
    return any(_refuses_zeros(budget, entries) for budget, entries in pairs)


def _may_flush(call: Call, implementation: Implementation) -> bool:
    """Return whether subnormal numbers may occur in a call: among inputs, right results, products of
    inputs, and weights, whose scores are at most `spread` apart.
    """
    arithmetic, operation = implementation.resolved_arithmetic, OPERATIONS[call.operation]
    declared = OtherArithmetic("declared", "", arithmetic)
    named = operation.named(call.arguments)
    given = {name: np.abs(x) for name in operation.arrays if (x := named.get(name)) is not None}
    results = (np.abs(enclosure.mid) for enclosure in declared.expected(call, implementation))
    least = min(float(x.min(where=x > 0, initial=np.inf)) for x in (*given.values(), *results))
    if "scores" in given:
        spread = 2 * float(given["scores"].max(where=np.isfinite(given["scores"]), initial=0.0))
    elif {"q", "k"} <= given.keys():
        spread = 2 * given["q"].shape[-1] * prod(float(given[name].max(initial=0.0)) for name in "qk")
    else:
        spread = 0.0
    smallest = arithmetic.elementwise.smallest_normal
    return least < arithmetic.output.smallest_normal or min(least * least, np.exp(-spread)) < smallest


_Budgets = list[tuple[Enclosure, ...]]


def _narrowest_first(implementation: Implementation, outside: Sequence[_OutsideCall]) -> list[OtherArithmetic]:
    """Return the arithmetics that accept all calls outside the declared budget (error limit),
    narrowest first.

    The narrowest arithmetic has the smallest mean logarithm of its radii. The mean leaves out radii
    that are infinite in some arithmetic. Arithmetics whose means agree to six digits stay in their
    order: two formats with as many bits differ only where a few inputs are tiny.
    """
    arrays = OPERATIONS[outside[0].call.operation].arrays
    accepting = [
        (other, budgets)
        for other in other_arithmetics(implementation.resolved_arithmetic, arrays)
        if other.id != _FLUSHES or any(_may_flush(one.call, implementation) for one in outside)
        if (budgets := _budgets(other, outside, implementation))
    ]
    radii = [_radii(budgets, outside) for _, budgets in accepting]
    finite = np.isfinite(radii).all(0)
    order = sorted(range(len(accepting)), key=lambda index: round(float(np.log(radii[index][finite]).mean()), 6))
    return [accepting[index][0] for index in order]


def _budgets(other: OtherArithmetic, outside: Sequence[_OutsideCall], implementation: Implementation) -> _Budgets:
    """Return the budgets (error limits) that an arithmetic gives the calls outside the declared
    ones.

    Return [] unless the arithmetic accepts all of these calls, and its budgets distinguish the
    results of half of them.
    """
    budgets, distinguished = [], 0
    for one in outside:
        budget = other.expected(one.call, implementation)
        if not (is_right(one.call, budget) and other.stores(one.call, implementation.resolved_arithmetic.output)):
            return []
        budgets.append(budget)
        distinguished += any(_refuses_zeros(each, wrong) for each, wrong in zip(budget, one.wrong, strict=False))
    return budgets if 2 * distinguished >= len(outside) else []


def _refuses_zeros(budget: Enclosure, wrong: Mask) -> bool:
    """Return whether a budget (error limit) refuses zeros, by a factor of two, in a row with a
    wrong output. A vacuous budget accepts any value, so it refuses nothing.
    """
    if budget.vacuous or not wrong.any():
        return False
    mid, rad, rows = (np.atleast_2d(array) for array in (np.abs(budget.mid), budget.rad, wrong))
    return bool((rows.any(-1) & (2 * rad.max(-1) <= mid.max(-1))).any())


def _radii(budgets: _Budgets, outside: Sequence[_OutsideCall]) -> Array:
    """Return the radii of budgets (error limits) at the wrong entries of all outputs. A radius is
    at least the smallest normal number.
    """
    radii = [
        budget.rad[wrong]
        for each, one in zip(budgets, outside, strict=True)
        for budget, wrong in zip(each, one.wrong, strict=False)
    ]
    return np.concatenate(radii).clip(np.finfo(float).tiny)


class _Replayed(Subject):
    """An implementation that returns the recorded results, which another arithmetic judges."""

    def __init__(
        self, other: OtherArithmetic, law: Law, implementation: Implementation, calls: tuple[Call, ...]
    ) -> None:
        promises = replace(
            implementation,
            arithmetic=other.arithmetic,
            conventions=implementation.conventions_of_laws,
            known_deviations={},
            twins={},
            beside=(),
        )
        super().__init__(promises, law.operation)
        self.other, self.recorded = other, iter(calls)

    def run(self, o: Any, arguments: Arguments, layout: str = "contiguous") -> Any:
        call = next(self.recorded, None)
        if call is None or call.operation != o.name or not _same(call.arguments, arguments):
            raise BrokenError("made another call, but should make the recorded one.")
        return call.outputs, list(arguments), list(call.outputs), ""

    def expected(self, o: Any, arguments: Arguments) -> tuple[Any, ...]:
        """Return the oracle's enclosures in the other arithmetic."""
        return self.other.expected(Call(o.name, arguments, "contiguous", ()), self.implementation)


def _share_of_wrong(seen: Sequence[TriedSizes]) -> float:
    """Return the share of calls that were wrong; 1 if no call was recorded."""
    return sum(not each.passed for each in seen) / len(seen) if seen else 1.0


def _same(recorded: tuple[Any, ...], given: tuple[Any, ...]) -> bool:
    return len(recorded) == len(given) and all(np.array_equal(*pair) for pair in zip(recorded, given, strict=True))


def _holds(other: OtherArithmetic, law: Law, implementation: Implementation, violation: Violation) -> bool:
    """Return whether a law passes on the recorded results of a violation, judged by another
    arithmetic.
    """
    try:
        law.hold(_Replayed(other, law, implementation, violation.calls), violation.counterexample)
    except BrokenError:
        return False
    return True
