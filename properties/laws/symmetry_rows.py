"""Defines the decorator that adds a symmetry to the laws, and terms (calls with changed inputs)
that several symmetries share.

A symmetry is a law of every operation that has its axes or parameters, and of its JVP and VJP: see
`properties.laws.commuting_squares`. A symmetry stands in the module of its family. Symmetries of
several families stand in `properties.laws.symmetries`.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from properties.contract.implementation import Implementation
from properties.contract.operations import OPERATIONS
from properties.laws.commuting_squares import Case, Square, Sum, Symmetry, Term, Terms
from properties.laws.law import Laws, always
from properties.laws.linear_maps import Times
from properties.strategies.adjustments import largest_scores
from properties.strategies.domains import DOMAINS, usual

__all__ = ["Rows", "added", "apart", "larger_others", "lengthened", "ordered", "places_matter"]


class Rows:
    """A decorator that makes laws from a symmetry, a function that returns terms. The laws are
    about some forward operations and their derivatives.

    As for other laws, the symmetry's name is the function's name with spaces, and the docstring is
    the statement, unless both are given. The laws apply to implementations that declare all
    `features` and that `exempts` does not exempt. A derivative that does not take such a feature has no
    law. The test inputs come from `domains` (input
    families), or from the usual domains of the operation.
    """

    def __init__(self, law: Laws) -> None:
        self.law = law

    def __call__(
        self,
        *forwards: str,
        name: str = "",
        statement: str = "",
        domains: tuple[str, ...] = (),
        features: tuple[str, ...] = (),
        exempts: Callable[[Implementation], str] = always,
    ) -> Callable[[Terms], Terms]:
        """Return a decorator for a symmetry of these forward operations."""

        def enter(terms: Terms) -> Terms:
            sentence = name or terms.__name__.replace("_", " ")
            symmetry = Symmetry(sentence, statement or " ".join((terms.__doc__ or "").split()), terms)
            for operation in OPERATIONS.values():
                lost = {*features} & {*OPERATIONS[operation.forward].options} - {*operation.options}
                if operation.forward not in forwards or lost:
                    continue
                offered = tuple(name for name in domains or usual(operation.name) if name in DOMAINS[operation.name])
                self.law(
                    operation.name,
                    name=sentence,
                    domains=offered,
                    exempts=lambda implementation: implementation.lacks(*features) or exempts(implementation),
                )(Square(symmetry, operation))
            return terms

        return enter


def _if_several(axis: str, terms: Terms) -> Terms:
    """Return the function `terms`, restricted to inputs whose axis has at least two entries, and
    for which the places along this axis do not matter. For other inputs it returns None.
    """

    def applies(case: Case) -> bool:
        placed = axis in ("n_q", "n_k") and places_matter(case.arguments)
        return case.has(axis) and case.size(axis) > 1 and not placed

    return lambda case: terms(case) if applies(case) else None


def places_matter(arguments: Mapping[str, Any]) -> bool:
    """Return whether the place of a query among the keys matters, because of causality, a window or
    ALiBi.
    """
    return bool(arguments.get("causal") or arguments.get("window") or arguments.get("alibi") is not None)


def ordered(axis: str) -> Terms:
    """Return the terms of a symmetry: one call with the entries of an axis in another order."""
    return _if_several(axis, lambda case: [case.along(axis, case.choose.order(case.size(axis)))])


def apart(axis: str) -> Terms:
    """Return the terms of a symmetry: two calls, each with a part of an axis. The axis is cut in
    two, or split into every second entry and the other entries.
    """

    def terms(case: Case) -> Sum:
        size = case.size(axis)
        first = np.arange(size) < case.choose.cut(size) if case.choose.happens() else np.arange(size) % 2 == 0
        return [case.along(axis, np.flatnonzero(part)) for part in (first, ~first)]

    return _if_several(axis, terms)


def larger_others(axis: str, factor: float, *parameters: str) -> Terms:
    """Return the terms of a symmetry: two calls, each of which counts every second entry of an
    axis, and multiplies the other entries of some parameters by a large factor.

    The factor is smaller in formats that round scores of that size coarsely.
    """

    def terms(case: Case) -> Sum:
        even = np.arange(case.size(axis)) % 2 == 0
        limit = largest_scores(case.implementation.resolved_arithmetic, 2.0**-4)
        large = min(factor, 2.0 ** np.floor(np.log2(limit)))
        return [
            Term({p: case.scaled(p, axis, np.where(kept, 1.0, large)) for p in parameters}, case.kept(axis, kept))
            for kept in (even, ~even)
        ]

    return _if_several(axis, terms)


def added(*parameters: str) -> Terms:
    """Return the terms of a symmetry: two calls, each with a part of the entries of some arrays,
    multiplied by −4, and 0 at the other entries.

    The results of the two calls add up to −4 times the result of the whole.
    """

    def terms(case: Case) -> Sum:
        first = {parameter: case.choose.bits(getattr(case, parameter).shape, 0.5) for parameter in parameters}
        second = {parameter: ~part for parameter, part in first.items()}
        return [
            Term(
                {parameter: [Times(np.where(part, -4.0, 0.0))] for parameter, part in parts.items()},
                {
                    parameter: [Times(-0.25)] if parameter == case.forward.outputs[0] else case.once(parts is first)
                    for parameter in case.forward.outputs
                },
            )
            for parts in (first, second)
        ]

    return terms


def lengthened(mask: Any, shape: tuple[int, ...], count: int) -> Any:
    """Return the mask with `count` more masked keys at the end. `shape` is the shape of the scores."""
    full = np.broadcast_to(True if mask is None else mask, shape)
    return np.concatenate([full, np.zeros((*shape[:-1], count), bool)], -1)
