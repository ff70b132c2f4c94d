"""Makes laws of symmetries. A symmetry has changes T of the inputs and R of the output with f(x) =
Σ R f(T x): a commuting square. Laws for the derivatives follow:

    f(x)        = Σ R f(T x)
    f'(x)·dx    = Σ R' f'(T x)·(T' dx)
    f'(x)ᵀ·g    = Σ T'ᵀ f'(T x)ᵀ·(R'ᵀ g)

A symmetry is written once, for the forward, as a list of `Term`s. Each term is one call on the
right side. By the chain rule the symmetry is also a law of the JVP and of the VJP.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from oracles.ball import Ball, exact
from oracles.formats import Format
from properties.contract.operations import BATCH, OPERATIONS, Arguments, Operation
from properties.contract.results import Result, results_of
from properties.contract.subject import Subject
from properties.laws.linear_maps import Back, Map, Take, Times
from properties.strategies.choices import Choices, rounded

__all__ = ["Case", "Square", "Sum", "Symmetry", "Term"]


@dataclass(frozen=True)
class Term:
    """One term of the sum Σ R f(T x): a call with changed inputs, and the change of its output.

    `inputs` maps each changed parameter to its linear maps T, in the order of application. `output`
    has the maps R of the output, or of each output by name. `instead` has new values of parameters
    that are not arrays of numbers.
    """

    inputs: Mapping[str, Sequence[Map]] = field(default_factory=dict)
    output: Sequence[Map] | Mapping[str, Sequence[Map]] = ()
    instead: Mapping[str, Any] = field(default_factory=dict)

    def outgoing(self, name: str) -> Sequence[Map]:
        """Return the maps R of one output."""
        return self.output.get(name, ()) if isinstance(self.output, Mapping) else self.output


class Case:
    """The arguments of one test of a symmetry: the forward's arguments by name, also as attributes,
    the sizes of named axes, and a source of random choices.
    """

    def __init__(self, subject: Subject, operation: Operation, arguments: Arguments, choose: Choices) -> None:
        self.subject, self.implementation = subject, subject.implementation
        self.operation, self.choose = operation, choose
        self.forward = OPERATIONS[operation.forward]
        self.given, self.conventions = operation.named(arguments), subject.conventions
        self.arguments: dict[str, Any] = {p: self.given.get(p) for p in self.forward.parameters}
        self.sizes = operation.sizes(arguments)

    def __getattr__(self, name: str) -> Any:
        try:
            return self.arguments[name]
        except KeyError:
            raise AttributeError(name) from None

    def has(self, axis: str) -> bool:
        """Return whether there is an axis or an argument with this name."""
        return axis in self.arguments or axis in self.sizes or any(axis in self._axes(p) for p in self.arguments)

    def _axes(self, name: str) -> tuple[str, ...]:
        """Return the names of an array's axes. Batch axes are "batch 0", "batch 1", …, counted from
        the last one.
        """
        named = self.forward.axes.get(name, ())
        if not named or named[0] != BATCH:
            return named
        argument: Any = self.arguments.get(name)
        if isinstance(argument, np.ndarray) and not self.forward.broadcasts(name):
            leading = argument.ndim - len(named) + 1
        else:
            leading = len(self.forward.lead(tuple(self.arguments.values())))
        return (*(f"batch {place}" for place in reversed(range(leading))), *named[1:])

    @property
    def largest(self) -> float:
        """The largest number that is harmless as a factor: see `Subject.largest_harmless`."""
        return self.subject.largest_harmless

    def size(self, axis: str) -> int:
        """Return the length of an axis."""
        if not axis.startswith("batch "):
            return self.sizes[axis]
        return int(self.forward.lead(tuple(self.arguments.values()))[-1 - int(axis.removeprefix("batch "))])

    def along(self, axis: str, index: Any, **instead: Any) -> Term:
        """Return the term for a call on some entries of an axis, in every array that has the axis.

        In the outputs the entries return to their places. An output without this axis counts only
        in the term that has the first entry. Otherwise the sum would count it several times.
        """
        size = self.size(axis)

        def takes(parameter: str) -> list[Map]:
            axes, argument = self._axes(parameter), self.arguments.get(parameter)
            places = [place - len(axes) for place, own in enumerate(axes) if own == axis]
            return [
                Take(place, index, size)
                for place in places
                if argument is None or (argument.ndim >= -place and argument.shape[place] == size)
            ]

        inputs = {
            parameter: takes(parameter)
            for parameter, argument in self.arguments.items()
            if isinstance(argument, np.ndarray) and axis in self._axes(parameter)
        }
        outputs: dict[str, list[Map]] = {
            parameter: [Back(map_) for map_ in takes(parameter)] for parameter in self.forward.outputs
        }
        if any(outputs.values()):
            outputs |= {parameter: self.once(0 in index) for parameter, maps in outputs.items() if not maps}
        return Term(inputs, outputs, instead)

    def across(self, indices: Mapping[str, Any], **instead: Any) -> Term:
        """Return the term for a call on some entries of several axes. In the outputs the entries
        return to their places along the first of these axes.
        """
        terms = [self.along(axis, index) for axis, index in indices.items()]
        inputs: dict[str, list[Map]] = {}
        for term in terms:
            for parameter, maps in term.inputs.items():
                inputs.setdefault(parameter, []).extend(maps)
        return Term(inputs, terms[0].output, instead)

    @staticmethod
    def once(counts: bool) -> list[Map]:
        """Return the maps of an output that is added only once. The term with `counts` true adds
        the output, and the other terms add 0.
        """
        return [] if counts else [Times(0.0)]

    def scaled(self, parameter: str, axis: str, factors: Any) -> list[Map]:
        """Return the maps that multiply a parameter, or an output, by factors along an axis."""
        axes = self._axes(parameter)
        return [
            Times(factors.reshape(-1, *[1] * (len(axes) - place - 1))) for place, own in enumerate(axes) if own == axis
        ]

    def kept(self, axis: str, entries: Any) -> dict[str, list[Map]]:
        """Return the maps that keep the given entries of the outputs along an axis, and set the
        others to 0.
        """
        return {name: self.scaled(name, axis, np.where(entries, 1.0, 0.0)) for name in self.forward.outputs}


Sum = Sequence[Term] | None
"""The terms of Σ R f(T x); None for a case that cannot test the symmetry."""

Terms = Callable[[Case], Sum]


@dataclass(frozen=True)
class Symmetry:
    """A symmetry: its sentence (the name of the law), its statement and its terms."""

    name: str
    statement: str
    terms: Terms


_FOLLOWS = {
    "_vjp": "\n\nThe chain rule gives the law of the gradients: f'(x)ᵀ·g = Σ Tᵀ·f'(T x)ᵀ·Rᵀ·g.",
    "_jvp": "\n\nThe chain rule gives the law of the derivative: f'(x)·dx = Σ R·f'(T x)·T·dx.",
}


class Square:
    """The body of a law that a symmetry makes for one operation, the forward or a derivative."""

    def __init__(self, symmetry: Symmetry, operation: Operation) -> None:
        self.symmetry, self.operation = symmetry, operation
        self.__module__, self.__name__ = symmetry.terms.__module__, symmetry.terms.__name__
        self.__doc__ = symmetry.statement + _FOLLOWS.get(operation.name[-4:], "")

    def __call__(self, subject: Subject, *arguments: Any, choose: Choices) -> bool:
        """Check that the result equals the sum of the results of the terms' calls, each changed as
        its term says.

        Returns False if the arguments cannot test the symmetry, or if the implementation does not
        support a term's call.
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
            subject.close(result, sums[name], name)
        return True

    def _arguments(self, case: Case, term: Term) -> Arguments | None:
        """Return the arguments of a term's call. Return None if the implementation does not support
        them, or if a changed number does not fit its format.
        """
        operation, implementation = self.operation, case.implementation
        found: dict[str, Any] = {}
        for parameter, argument in case.given.items():
            if parameter in term.instead:
                found[parameter] = term.instead[parameter]
            elif isinstance(argument, np.ndarray):
                target = operation.stored(parameter, implementation.resolved_arithmetic)
                found[parameter] = self._changed(parameter, argument, term, target)
            else:
                found[parameter] = argument
        values = tuple(found.values())
        exactly = all(
            found[parameter] is not None or case.given[parameter] is None
            for parameter in operation.arrays
            if parameter in found
        )
        return values if exactly and implementation.takes(operation, values) else None

    def _changed(self, parameter: str, argument: Any, term: Term, target: Format) -> Any:
        """Return one argument of a term's call. Return None if its numbers are not exact in the
        target format.
        """
        if self.operation.is_mask(parameter) or self.operation.is_integer(parameter):
            ball = exact(argument)
            for map_ in term.inputs.get(parameter, ()):
                ball = map_.apply(ball)
            return ball.mid.astype(argument.dtype)
        ball = Ball(argument, np.broadcast_to(0.0, argument.shape))  # −∞ counts as a number
        if parameter.startswith("grad_"):
            for map_ in reversed(term.outgoing(parameter.removeprefix("grad_"))):
                ball = map_.pull(ball)
            return _exactly(ball, target)
        tangent = parameter not in OPERATIONS[self.operation.forward].parameters
        for map_ in term.inputs.get(parameter[1:] if tangent else parameter, ()):
            ball = map_.push(ball) if tangent else map_.apply(ball)
        return _exactly(ball, target)

    def _back(self, name: str, result: Result | np.ndarray, term: Term) -> Ball:
        """Return the result of a term's call, changed as the term says: its summand in the result
        of the unchanged call.
        """
        ball = exact(result) if isinstance(result, np.ndarray) else result.ball
        if self.operation.name.endswith("_vjp"):
            for map_ in reversed(term.inputs.get(name[1:], ())):
                ball = map_.pull(ball)
            return ball
        tangent = self.operation.name.endswith("_jvp")
        for map_ in term.outgoing(name[1:] if tangent else name):
            ball = map_.push(ball) if tangent else map_.apply(ball)
        return ball


def _exactly(x: Ball, target: Format) -> Any:
    """Return the numbers of a ball if they are exact and fit the format, otherwise None."""
    return None if x.rad.any() or not np.array_equal(rounded(x.mid, target), x.mid) else x.mid
