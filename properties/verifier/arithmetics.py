"""Which arithmetic is it? What an implementation returned, put to the budgets of arithmetics other
than the one it declares.

An arithmetic explains violations if

- some output is outside its budget in the arithmetic that is declared: where only something exact
  is broken no rounding is the cause;
- the laws hold on what was returned, judged by the other arithmetic; and every call that is known,
  right or wrong, is within its budget;
- outputs are wrong on at least two calls, and on an eighth of all: rounding shows on cases of every
  kind, a bug's trigger is rarer, and a counterexample that was made small hides what it is about;
- that budget says something: on at least half of the wrong calls it refuses zeros in a row that is
  wrong, by a factor of two.

Of those that explain it the one with the narrowest budgets is named. A budget that is merely wide
accepts a bug's results too. So a bug, or a convention, that gives what the implementation gave on
every call that is known, within the budget that is *declared*, is named first; one that does so on
some of the calls only is named after an arithmetic, which must explain all of them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oracles import Arithmetic, Enclosure
from oracles.ball import Array
from oracles.formats import BINARY16, BINARY32, BRAIN16, FLOAT32, FLOAT32_FAMILIES, PRESETS, TF32, Elementary, Format
from properties.contract.implementation import Implementation
from properties.contract.operations import OPERATIONS
from properties.contract.results import BrokenError, Call, is_right
from properties.contract.subject import Subject
from properties.laws.law import Law
from properties.strategies.choices import rounded
from properties.verifier.notes import share_of_wrong
from properties.verifier.report import Violation

__all__ = ["OtherArithmetic", "explained", "other_arithmetics"]

Mask = NDArray[np.bool_]
_FEWEST = 2  # calls that must be wrong
_RATE = 1 / 8  # of all calls that must be
_FAR = 1e4  # budgets: farther than that most arithmetics refuse a call
_TEN_BITS = Format("TF32", 2.0**-11, 2.0**-136, 2.0**-126, float(BINARY32.largest))
_NAMES = {"binary32": "float32", "binary16": "float16", "bfloat16": "bfloat16", "TF32": "TF32"}
_STORED = {
    "scores": "its scores were stored in",
    "weights": "its weights were stored in",
    "saved_weights": "the weights that its backward pass reads were stored in",
    "grad_weights": "its products g·vᵀ were stored in",
    "grad_scores": "its dS were stored in",
    "scale_on_inputs": "its scaled inputs were stored in",
    "saved_output": "the output that its backward pass reads were stored in",
    "saved_lse": "the log-sum-exp that its backward pass reads were stored in",
    "output": "its results were stored in",
}
"""Fields that are formats of something stored, and what it means for one to be narrower."""


@dataclass(frozen=True)
class OtherArithmetic:
    """Another arithmetic: its name, the end of the sentence "within budget as if …", what it is,
    and to what inputs are converted first.
    """

    id: str
    sentence: str
    arithmetic: Arithmetic
    converted: Format | None = None
    preset: bool = False

    def expected(self, call: Call, implementation: Implementation) -> tuple[Enclosure, ...]:
        """The budgets of a call's results; tables and log-sum-exps that are given are converted to
        the formats of these, where they are narrower.

        Of inputs that are beyond the largest number of the format to which they are converted
        nothing is promised.
        """
        o, given, beyond = OPERATIONS[call.operation], [], False
        for name, x in zip(o.parameters, call.arguments, strict=False):
            of_its_own = o.is_table(name) or o.is_log_sum_exp(name)
            to = o.stored(name, self.arithmetic) if of_its_own else self.converted if name in o.arrays else None
            largest = implementation.resolved_arithmetic.inputs.largest
            to = None if x is None else to
            given.append(x if to is None else rounded(x, replace(to, largest=min(to.largest, largest))))
            beyond |= to is not None and bool((np.isfinite(x) & (np.abs(x) > to.largest)).any())
        reading = replace(implementation.resolved_conventions, mask_polarity="true_allows")
        found = implementation.support.promises(o, call.arguments, o.expected(tuple(given), self.arithmetic, reading))
        return tuple(replace(e, rad=np.full_like(e.rad, np.inf), vacuous=True) for e in found) if beyond else found

    def excess(self, call: Call, implementation: Implementation) -> list[Array]:
        """For each output of a call how far its entries are from the exact ones, in budgets."""
        return [e.excess(x) for e, x in zip(self.expected(call, implementation), call.outputs, strict=False)]

    def accepts(self, call: Call, implementation: Implementation) -> bool:
        """Whether all of a call's outputs are within the budget."""
        return not call.error and is_right(call, self.expected(call, implementation))


_ROUNDED: dict[str, Callable[[Arithmetic], float]] = {
    "angle.table": lambda a: a.angle.table.unit_roundoff,
    "angle.product": lambda a: a.angle.product,
    "angle.frequency": lambda a: a.angle.frequency,
    "elementwise": lambda a: a.elementwise.unit_roundoff,
    "accumulate": lambda a: a.accumulate,
    "product": lambda a: a.product,
}
"""Other fields that are narrower or wider, and the roundoff of what they say now."""

_CHANGES: dict[str, tuple[str, Callable[[Arithmetic, Format], Arithmetic]]] = {
    "angle.table": ("its cosines and sines were stored in", lambda a, to: replace(a, angle=replace(a.angle, table=to))),
    "angle.product": (
        "its angles were multiplied in",
        lambda a, to: replace(a, angle=replace(a.angle, product=to.unit_roundoff)),
    ),
    "angle.frequency": (
        "its frequencies were of",
        lambda a, to: replace(a, angle=replace(a.angle, frequency=to.unit_roundoff)),
    ),
    "elementwise": (
        "all between its products was rounded to",
        lambda a, to: replace(a, elementwise=to, exp=_coarser(a.exp, to)),
    ),
    "accumulate": (
        "its products were added up in",
        lambda a, to: replace(a, accumulate=to.unit_roundoff, grad_accumulate=max(to.unit_roundoff, a.grad_accumulate)),
    ),
    "product": ("the operands of its products were rounded to", lambda a, to: replace(a, product=to.unit_roundoff)),
}
"""What it means for one of those to be of a format, and the arithmetic of which that is so."""

_HABITS: dict[str, tuple[str, Callable[[Arithmetic], Arithmetic]]] = {
    "product=TF32": (
        "its products were TF32",
        lambda a: replace(a, product=TF32.product, accumulate=max(a.accumulate, TF32.accumulate)),
    ),
    "stored_sum=True": ("the sum of its weights was that of the stored ones", lambda a: replace(a, stored_sum=True)),
    "flush_to_zero=True": ("it flushed subnormal numbers to zero", lambda a: replace(a, flush_to_zero=True)),
    "grad_block=32": (
        "its gradients were added up in their own format",
        lambda a: replace(a, grad_block=a.grad_block or 32),
    ),
}
"""Habits of kernels, by the end of a sentence and what they change."""


def other_arithmetics(a: Arithmetic) -> Iterator[OtherArithmetic]:
    """Arithmetics that differ from one in a field, or are presets of its format or of narrower
    ones.

    Presets that state the order of sums round as the others do: they are none.
    """
    for target in (BINARY32, BINARY16, _TEN_BITS, BRAIN16):
        if target.unit_roundoff > a.inputs.unit_roundoff:
            name = _NAMES[target.name]
            yield OtherArithmetic(f"inputs={name}", f"its inputs were converted to {name}", a, target)
    for target in (BINARY32, BINARY16, BRAIN16):
        name, u = _NAMES[target.name], target.unit_roundoff
        for field, words in _STORED.items():
            if u > (getattr(a, field) or a.elementwise).unit_roundoff:
                stored: Any = {field: target}
                yield OtherArithmetic(f"{field}={name}", f"{words} {name}", replace(a, **stored))
        for field, (words, change) in _CHANGES.items():
            if u > _ROUNDED[field](a):
                yield OtherArithmetic(f"{field}={name}", f"{words} {name}", change(a, target))
    for habit, (words, changed) in _HABITS.items():
        if changed(a) != a:
            yield OtherArithmetic(habit, words, changed(a))
    for p in PRESETS:
        if p.name != a.name and p not in FLOAT32_FAMILIES and p.output.unit_roundoff >= a.output.unit_roundoff:
            narrower = p.inputs if p.inputs.unit_roundoff > a.inputs.unit_roundoff else None
            yield OtherArithmetic(
                f"arithmetic={p.name}", f"all of it were {p.name}", replace(p, inputs=a.inputs), narrower, preset=True
            )


def _coarser(now: Elementary, target: Format) -> Elementary:
    """The exponential of an implementation that rounds to a format: no better than float32's, whose flush it has."""
    best = FLOAT32.exp
    relative = max(now.relative, best.relative)
    return Elementary(relative, max(now.per_unit, best.per_unit), max(now.flush, best.flush, target.smallest_normal))


def explained(
    implementation: Implementation,
    broken: Sequence[tuple[Law, Violation]],
    right: tuple[Call, ...],
    wrong: tuple[Call, ...],
) -> Iterator[tuple[OtherArithmetic, float]]:
    """The narrowest arithmetic that explains violations, and the narrowest preset that does, each
    with the largest error in budgets.

    `right` and `wrong` are some of the operation's calls. The calls outside the declared budget are
    put to all candidates, the farthest first, by which most are refused; the others, and the laws,
    to the narrowest of those that are left alone, until one explains all.
    """
    declared = OtherArithmetic("declared", "", implementation.resolved_arithmetic)
    calls = tuple(call for _, v in broken for call in v.calls)
    known = {id(call): call for call in (*calls, *wrong, *right) if not OPERATIONS[call.operation].returns_booleans}
    if any(call.error for call in known.values()) or any(share_of_wrong(v.seen) < _RATE for _, v in broken):
        return
    errors = {place: declared.excess(call, implementation) for place, call in known.items()}
    furthest = {place: max(float(x.max(initial=0.0)) for x in errors[place]) for place in known}
    far = {place for place in known if furthest[place] > 1}
    if not any(id(call) in far for call in calls) or sum(id(call) in far for call in wrong) < _FEWEST:
        return
    order = sorted(known, key=lambda place: (-min(furthest[place], _FAR), _size(known[place])))
    outside = [(known[place], [x > 1 for x in errors[place]]) for place in order if place in far]
    inside = [known[place] for place in order if place not in far]
    found = [
        (c, b)
        for c in other_arithmetics(implementation.resolved_arithmetic)
        if (b := _budgets(c, outside, implementation))
    ]
    widths = [_radii(budgets, outside) for _, budgets in found]
    finite = np.isfinite(widths).all(0)
    narrowest = sorted(range(len(found)), key=lambda i: float(np.log(widths[i][finite]).sum()))

    def explains_the_rest(c: OtherArithmetic) -> bool:
        return all(c.accepts(call, implementation) for call in inside) and all(
            _holds(c, law, implementation, v.calls, v.counterexample) for law, v in broken
        )

    for preset in (False, True):
        if (
            i := next((i for i in narrowest if found[i][0].preset == preset and explains_the_rest(found[i][0])), None)
        ) is not None:
            c, budgets = found[i]
            results = [
                zip(several, call.outputs, strict=False) for several, (call, _) in zip(budgets, outside, strict=True)
            ]
            yield c, max(float(e.excess(x).max(initial=0.0)) for several in results for e, x in several)


def _budgets(
    c: OtherArithmetic, outside: Sequence[tuple[Call, list[Mask]]], implementation: Implementation
) -> list[tuple[Enclosure, ...]]:
    """A candidate's budgets of calls that are outside of those that are declared, if they accept
    all, and say something of half of them.
    """
    budgets, testify = [], 0
    for call, wrong in outside:
        budget = c.expected(call, implementation)
        if not is_right(call, budget):
            return []
        budgets.append(budget)
        testify += any(_tells(e, w) for e, w in zip(budget, wrong, strict=False))
    return budgets if 2 * testify >= len(outside) else []


def _tells(e: Enclosure, wrong: Mask) -> bool:
    """Whether a budget refuses zeros by a factor of two in a row in which an output is wrong, and is not vacuous."""
    if e.vacuous or not wrong.any():
        return False
    mid, rad, rows = (np.atleast_2d(x) for x in (np.abs(e.mid), e.rad, wrong))
    return bool((rows.any(-1) & (2 * rad.max(-1) <= mid.max(-1))).any())


def _radii(budgets: Sequence[tuple[Enclosure, ...]], outside: Sequence[tuple[Call, list[Mask]]]) -> Array:
    """How wide budgets are where outputs are wrong; the sum of the logarithms of those that all
    bound tells who is narrowest.
    """
    radii = np.concatenate(
        [e.rad[w] for several, (_, ws) in zip(budgets, outside, strict=True) for e, w in zip(several, ws, strict=False)]
    )
    found: Array = np.maximum(radii, np.finfo(float).tiny)
    return found


class _AstrayError(Exception):
    """A law called something else than what was recorded."""


class _Replayed(Subject):
    """What an implementation returned, once more, judged by another arithmetic."""

    def __init__(self, c: OtherArithmetic, law: Law, implementation: Implementation, calls: tuple[Call, ...]) -> None:
        reading = replace(implementation.resolved_conventions, mask_polarity="true_allows")
        promises = replace(
            implementation, arithmetic=c.arithmetic, conventions=reading, known_deviations={}, twins={}, beside=()
        )
        super().__init__(promises, law.operation)
        self.candidate, self.recorded = c, iter(calls)

    def run(self, o: Any, arguments: tuple[Any, ...], layout: str = "contiguous") -> Any:
        call = next(self.recorded, None)
        if call is None or call.operation != o.name or not _same(call.arguments, arguments):
            raise _AstrayError
        return call.outputs, list(arguments), list(call.outputs), ""

    def expected(self, o: Any, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        """The oracle's enclosures in the other arithmetic."""
        return self.candidate.expected(Call(o.name, arguments, "contiguous", ()), self.implementation)


def _size(call: Call) -> int:
    return sum(x.size for x in call.arguments if isinstance(x, np.ndarray))


def _same(a: tuple[Any, ...], b: tuple[Any, ...]) -> bool:
    return len(a) == len(b) and all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


def _holds(
    c: OtherArithmetic, law: Law, implementation: Implementation, calls: tuple[Call, ...], case: Mapping[str, Any]
) -> bool:
    """Whether a law holds on what was returned, judged by another arithmetic."""
    try:
        law.hold(_Replayed(c, law, implementation, calls), case)
    except (BrokenError, _AstrayError):
        return False
    return True
