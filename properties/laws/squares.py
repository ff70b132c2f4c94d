"""Laws as commuting squares: changes T of the inputs and R of the output with f(x) = Σ R f(T x), of which the derivatives' laws follow.

    f(x)        = Σ R f(T x)
    f'(x)·dx    = Σ R' f'(T x)·(T' dx)
    f'(x)ᵀ·g    = Σ T'ᵀ f'(T x)ᵀ·(R'ᵀ g)

A symmetry is written once, for the forward, as a list of `Term`s; the chain rule makes it a law of the JVP and of the VJP too.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from oracles.ball import Ball, exact
from oracles.formats import Format
from properties.contract.operations import BATCH, OPERATIONS, Operation
from properties.contract.results import Result
from properties.contract.subject import Subject
from properties.laws.maps import Back, Map, Take, Times
from properties.strategies.choices import Choices, rounded

__all__ = ["Case", "Square", "Symmetry", "Term"]


@dataclass(frozen=True)
class Term:
    """One call of a square: maps of the inputs, by parameter, in the order in which they are applied; other values of parameters that are
    no arrays of numbers; and maps of the output."""

    inputs: Mapping[str, Sequence[Map]] = field(default_factory=dict)
    output: Sequence[Map] = ()
    instead: Mapping[str, Any] = field(default_factory=dict)


class Case:
    """A case of an operation as symmetries see it: the arguments of its forward by name, the sizes of named axes, and choices."""

    def __init__(self, subject: Subject, operation: Operation, arguments: tuple[Any, ...], choose: Choices) -> None:
        self.subject, self.implementation, self.operation, self.choose = subject, subject.implementation, operation, choose
        self.forward = OPERATIONS[operation.forward]
        self.given = dict(zip(operation.parameters, arguments, strict=True))
        self.arguments = {p: self.given[p] for p in self.forward.parameters}
        self.sizes = operation.sizes(arguments)

    def __getattr__(self, name: str) -> Any:
        try:
            return self.arguments[name]
        except KeyError:
            raise AttributeError(name) from None

    def has(self, axis: str) -> bool:
        """Whether the case has an axis, or an argument of that name."""
        return axis in self.arguments or axis in self.sizes or any(axis in self._axes(p) for p in self.arguments)

    def _axes(self, name: str) -> tuple[str, ...]:
        """The names of an array's last axes; leading ones are "batch 0", "batch 1", …, from the last."""
        named = self.forward.axes.get(name, ())
        if not named or named[0] != BATCH:
            return named
        x = self.arguments.get(name)
        lead = (
            len(self.forward.lead(tuple(self.arguments.values()))) if x is None or self.forward.is_mask(name) else x.ndim - len(named) + 1
        )
        return (*(f"batch {n}" for n in reversed(range(lead))), *named[1:])

    @property
    def largest(self) -> float:
        """The largest harmless number: see `Subject.largest_harmless`."""
        return self.subject.largest_harmless

    def size(self, axis: str) -> int:
        """The length of an axis."""
        lead = self.forward.lead(tuple(self.arguments.values()))
        return int(lead[-1 - int(axis[6:])]) if axis.startswith("batch ") else self.sizes[axis]

    def along(self, axis: str, index: Any, **instead: Any) -> Term:
        """Some entries of an axis, in every array that has it; in the output they are put back where they were taken."""
        n = self.size(axis)
        inputs = {
            p: [Take(place - len(axes), index, n) for place, a in enumerate(axes) if a == axis]
            for p in self.arguments
            if axis in (axes := self._axes(p)) and self.arguments[p] is not None
        }
        axes = self._axes(self.forward.outputs[0])
        return Term(inputs, [Back(Take(place - len(axes), index, n)) for place, a in enumerate(axes) if a == axis], instead)

    def scaled(self, p: str, axis: str, factors: Any) -> list[Map]:
        """A parameter, or the output, "", times factors along an axis."""
        axes = self._axes(p or self.forward.outputs[0])
        return [Times(factors.reshape(-1, *[1] * (len(axes) - place - 1))) for place, a in enumerate(axes) if a == axis]


Terms = Callable[[Case], Sequence[Term] | None]


@dataclass(frozen=True)
class Symmetry:
    """A row of the table of symmetries: a sentence, what it says in full, and its terms; None for a case of which it says nothing."""

    name: str
    statement: str
    terms: Terms


_FOLLOWS = {
    "_vjp": " It follows for the gradients by the chain rule: f'(x)ᵀ·g = Σ Tᵀ·f'(T x)ᵀ·Rᵀ·g.",
    "_jvp": " It follows for the derivative by the chain rule: f'(x)·dx = Σ R·f'(T x)·T·dx.",
}


class Square:
    """A symmetry as the body of a law about an operation, which may be a derivative."""

    def __init__(self, symmetry: Symmetry, operation: Operation) -> None:
        self.symmetry, self.operation = symmetry, operation
        self.__module__ = symmetry.terms.__module__
        self.__name__, self.__doc__ = symmetry.name, f"{symmetry.statement}\n\nWithin budget.{_FOLLOWS.get(operation.name[-4:], '')}"

    def __call__(self, subject: Subject, *arguments: Any, choose: Choices) -> bool:
        """Hold the base call against the sum of the others; False where it says nothing of the case, or its calls are not legal."""
        case = Case(subject, self.operation, arguments, choose)
        terms = self.symmetry.terms(case)
        calls = [call for term in terms or () if (call := self._arguments(case, term)) is not None]
        if terms is None or not calls or len(calls) < len(terms):
            return False
        base = _tuple(subject(*arguments))
        sums: list[Ball | None] = [None] * len(base)
        for term, call in zip(terms, calls, strict=True):
            found = _tuple(subject(*call))
            for place, (name, result) in enumerate(zip(self.operation.outputs, found, strict=True)):
                back, before = self._back(name, result, term), sums[place]
                sums[place] = back if before is None else before + back
        for result, total in zip(base, sums, strict=True):
            subject.close(result, total)
        return True

    def _arguments(self, case: Case, term: Term) -> tuple[Any, ...] | None:
        """What the call of a term is given; None where it is not supported, or not of the inputs' format."""
        o, i = self.operation, case.implementation
        found: dict[str, Any] = {}
        for p, x in case.given.items():
            if p in term.instead:
                found[p] = term.instead[p]
            elif p in o.axes and x is not None:
                found[p] = self._changed(p, x, term, i.resolved_arithmetic.angle.table if o.is_table(p) else i.resolved_arithmetic.inputs)
            else:
                found[p] = x
        values = tuple(found.values())
        exactly = all(x is not None for p, x in found.items() if p in o.arrays)
        return values if exactly and i.takes(o, values) else None

    def _changed(self, p: str, x: Any, term: Term, target: Format) -> Any:
        """An argument of a term's call; None where it is no array of numbers of its format, exactly."""
        if self.operation.is_mask(p) or self.operation.is_integer(p):
            ball = exact(x)
            for m in term.inputs.get(p, ()):
                ball = m.apply(ball)
            return ball.mid.astype(x.dtype)
        ball = exact(x)
        if p.startswith("grad_"):
            for m in reversed(term.output):
                ball = m.pull(ball)
            return _exactly(ball, target)
        tangent = p not in OPERATIONS[self.operation.forward].parameters
        for m in term.inputs.get(p[1:] if tangent else p, ()):
            ball = m.push(ball) if tangent else m.apply(ball)
        return _exactly(ball, target)

    def _back(self, name: str, result: Result, term: Term) -> Ball:
        """What a term's call returned, as a part of what the base call did."""
        ball = result.ball
        if self.operation.name.endswith("_vjp"):
            for m in reversed(term.inputs.get(name[1:], ())):
                ball = m.pull(ball)
            return ball
        for m in term.output:
            ball = m.push(ball) if self.operation.name.endswith("_jvp") else m.apply(ball)
        return ball


def _exactly(x: Ball, target: Format) -> Any:
    """The numbers, if they are exact and of a format; else None."""
    return None if x.rad.any() or not np.array_equal(rounded(x.mid, target), x.mid) else x.mid


def _tuple(results: Any) -> tuple[Any, ...]:
    return results if isinstance(results, tuple) else (results,)
