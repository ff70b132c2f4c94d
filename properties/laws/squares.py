"""Laws as commuting squares: changes T of the inputs and R of the output with f(x) = Σ R f(T x), of
which the derivatives' laws follow.

    f(x)        = Σ R f(T x)
    f'(x)·dx    = Σ R' f'(T x)·(T' dx)
    f'(x)ᵀ·g    = Σ T'ᵀ f'(T x)ᵀ·(R'ᵀ g)

A symmetry is written once, for the forward, as a list of `Term`s; the chain rule makes it a law of
the JVP and of the VJP too.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from oracles.ball import Ball, exact
from oracles.formats import Format
from properties.contract.operations import BATCH, OPERATIONS, Operation
from properties.contract.results import Result, results_of
from properties.contract.subject import Subject
from properties.laws.maps import Back, Map, Take, Times
from properties.strategies.choices import Choices, rounded

__all__ = ["Case", "Square", "Symmetry", "Term"]


@dataclass(frozen=True)
class Term:
    """One call of a square: maps of the inputs, by parameter, in the order in which they are
    applied; other values of parameters that are no arrays of numbers; and maps of the output, or of
    each output by name."""

    inputs: Mapping[str, Sequence[Map]] = field(default_factory=dict)
    output: Sequence[Map] | Mapping[str, Sequence[Map]] = ()
    instead: Mapping[str, Any] = field(default_factory=dict)

    def outgoing(self, name: str) -> Sequence[Map]:
        """The maps of an output."""
        return self.output.get(name, ()) if isinstance(self.output, Mapping) else self.output


class Case:
    """A case of an operation as symmetries see it: the arguments of its forward by name, the sizes
    of named axes, and choices.
    """

    def __init__(self, subject: Subject, operation: Operation, arguments: tuple[Any, ...], choose: Choices) -> None:
        self.subject, self.implementation, self.operation, self.choose = (
            subject,
            subject.implementation,
            operation,
            choose,
        )
        self.forward = OPERATIONS[operation.forward]
        self.given, self.conventions = operation.named(arguments), subject.conventions
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
        x: Any = self.arguments.get(name)
        own = isinstance(x, np.ndarray) and not self.forward.broadcasts(name)
        lead = x.ndim - len(named) + 1 if own else len(self.forward.lead(tuple(self.arguments.values())))
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
        """Some entries of an axis, in every array that has it; in the outputs they are put back
        where they were taken.

        Of outputs without the axis the first entry's call tells all, so that they do not add up.
        """
        n = self.size(axis)

        def takes(p: str) -> list[Map]:
            axes, x = self._axes(p), self.arguments.get(p)
            places = [place - len(axes) for place, a in enumerate(axes) if a == axis]
            return [
                Take(place, index, n) for place in places if x is None or (x.ndim >= -place and x.shape[place] == n)
            ]

        inputs = {p: takes(p) for p, x in self.arguments.items() if isinstance(x, np.ndarray) and axis in self._axes(p)}
        outputs: dict[str, list[Map]] = {name: [Back(m) for m in takes(name)] for name in self.forward.outputs}
        if any(outputs.values()):
            outputs |= {name: self.once(0 in index) for name, maps in outputs.items() if not maps}
        return Term(inputs, outputs, instead)

    def across(self, indices: Mapping[str, Any], **instead: Any) -> Term:
        """Some entries of several axes; outputs are put back along the first."""
        terms = [self.along(axis, index) for axis, index in indices.items()]
        inputs = dict.fromkeys(p for term in terms for p in term.inputs)
        return Term(
            {p: [m for term in terms for m in term.inputs.get(p, ())] for p in inputs}, terms[0].output, instead
        )

    @staticmethod
    def once(counts: bool) -> list[Map]:
        """The map of an output that is all there in the call that counts, and is not added to by others."""
        return [] if counts else [Times(0.0)]

    def scaled(self, p: str, axis: str, factors: Any) -> list[Map]:
        """A parameter, or an output, times factors along an axis."""
        axes = self._axes(p)
        return [Times(factors.reshape(-1, *[1] * (len(axes) - place - 1))) for place, a in enumerate(axes) if a == axis]

    def kept(self, axis: str, entries: Any) -> dict[str, list[Map]]:
        """The outputs at some entries of an axis, and 0 at the others."""
        return {name: self.scaled(name, axis, np.where(entries, 1.0, 0.0)) for name in self.forward.outputs}


Terms = Callable[[Case], Sequence[Term] | None]


@dataclass(frozen=True)
class Symmetry:
    """A row of the table of symmetries: a sentence, what it says in full, and its terms; None for a
    case of which it says nothing.
    """

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
        self.__name__, self.__doc__ = (
            symmetry.name,
            f"{symmetry.statement}\n\nWithin budget.{_FOLLOWS.get(operation.name[-4:], '')}",
        )

    def __call__(self, subject: Subject, *arguments: Any, choose: Choices) -> bool:
        """Hold the base call against the sum of the others; False where it says nothing of the
        case, or its calls are not legal.
        """
        case = Case(subject, self.operation, arguments, choose)
        terms = self.symmetry.terms(case)
        calls = [call for term in terms or () if (call := self._arguments(case, term)) is not None]
        if terms is None or not calls or len(calls) < len(terms):
            return False
        returned = self.operation.returned
        base = dict(zip(returned(arguments), results_of(subject(*arguments)), strict=True))
        if any(not base.keys() <= set(returned(call)) for call in calls):
            return False
        sums: dict[str, Ball] = {}
        for term, call in zip(terms, calls, strict=True):
            found = dict(zip(returned(call), results_of(subject(*call)), strict=True))
            for name in base:
                back = self._back(name, found[name], term)
                sums[name] = sums[name] + back if name in sums else back
        for name, result in base.items():
            subject.close(result, sums[name])
        return True

    def _arguments(self, case: Case, term: Term) -> tuple[Any, ...] | None:
        """What the call of a term is given; None where it is not supported, or not of the inputs' format."""
        o, i = self.operation, case.implementation
        found: dict[str, Any] = {}
        for p, x in case.given.items():
            if p in term.instead:
                found[p] = term.instead[p]
            elif isinstance(x, np.ndarray):
                found[p] = self._changed(p, x, term, o.stored(p, i.resolved_arithmetic))
            else:
                found[p] = x
        values = tuple(found.values())
        exactly = all(x is not None or case.given[p] is None for p, x in found.items() if p in o.arrays)
        return values if exactly and i.takes(o, values) else None

    def _changed(self, p: str, x: Any, term: Term, target: Format) -> Any:
        """An argument of a term's call; None where it is no array of numbers of its format, exactly."""
        if self.operation.is_mask(p) or self.operation.is_integer(p):
            ball = exact(x)
            for m in term.inputs.get(p, ()):
                ball = m.apply(ball)
            return ball.mid.astype(x.dtype)
        ball = Ball(x, np.broadcast_to(0.0, x.shape))  # −∞ as a number
        if p.startswith("grad_"):
            for m in reversed(term.outgoing(p[5:])):
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
        tangent = self.operation.name.endswith("_jvp")
        for m in term.outgoing(name[1:] if tangent else name):
            ball = m.push(ball) if tangent else m.apply(ball)
        return ball


def _exactly(x: Ball, target: Format) -> Any:
    """The numbers, if they are exact and of a format; else None."""
    return None if x.rad.any() or not np.array_equal(rounded(x.mid, target), x.mid) else x.mid
