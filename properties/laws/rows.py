"""Rows of the table of symmetries: how one is entered, and the terms that several of them share.

One row is a law of every operation that has its axes or parameters, of its JVP and of its VJP: see
`properties.laws.squares`. A row stands with its family: those of all families in
`properties.laws.symmetries`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from properties.contract.implementation import Implementation
from properties.contract.operations import OPERATIONS
from properties.laws.law import Laws, always
from properties.laws.maps import Times
from properties.laws.squares import Case, Square, Symmetry, Term, Terms
from properties.strategies.adjustments import largest_scores
from properties.strategies.domains import DOMAINS, usual

__all__ = ["Rows", "added", "apart", "beside", "causal_or_windowed", "lengthened", "ordered"]


class Rows:
    """A decorator that enters terms as a symmetry of some forwards among the laws of a family.

    As with a law, the function's name is the symmetry's, and its docstring the statement, unless
    others are given. Its laws are put to implementations that declare all of its features, and that
    nothing else exempts, on cases of some domains, or of the usual ones.
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
        """The decorator."""

        def enter(terms: Terms) -> Terms:
            symmetry = Symmetry(
                name or terms.__name__.replace("_", " "), statement or " ".join((terms.__doc__ or "").split()), terms
            )
            for o in OPERATIONS.values():
                if o.forward in forwards:
                    offered = tuple(d for d in domains or usual(o.name) if d in DOMAINS[o.name])
                    self.law(o.name, domains=offered, exempts=lambda i: i.lacks(*features) or exempts(i))(
                        Square(symmetry, o)
                    )
            return terms

        return enter


def several(axis: str, terms: Terms) -> Terms:
    """Terms that say something where an axis has at least two entries, and no places along it matter."""

    def says(c: Case) -> bool:
        return c.has(axis) and c.size(axis) > 1 and not (axis in ("n_q", "n_k") and causal_or_windowed(c.arguments))

    return lambda c: terms(c) if says(c) else None


def causal_or_windowed(x: Mapping[str, Any]) -> bool:
    """Whether a query's place among the keys matters: it is causal, or has a window."""
    return bool(x.get("causal") or x.get("window"))


def ordered(axis: str) -> Terms:
    """An axis in another order."""
    return several(axis, lambda c: [c.along(axis, c.choose.order(c.size(axis)))])


def apart(axis: str) -> Terms:
    """An axis cut in two, or into every second entry and the others."""

    def terms(c: Case) -> Sequence[Term]:
        n = c.size(axis)
        first = np.arange(n) < c.choose.cut(n) if c.choose.happens() else np.arange(n) % 2 == 0
        return [c.along(axis, np.flatnonzero(part)) for part in (first, ~first)]

    return several(axis, terms)


def beside(axis: str, factor: float, *parameters: str) -> Terms:
    """Every second entry of an axis, beside others that are larger, by less than the factor where
    scores of such a size are coarse.
    """

    def terms(c: Case) -> Sequence[Term]:
        even = np.arange(c.size(axis)) % 2 == 0
        large = min(factor, 2.0 ** np.floor(np.log2(largest_scores(c.implementation.resolved_arithmetic, 2.0**-4))))
        return [
            Term({p: c.scaled(p, axis, np.where(kept, 1.0, large)) for p in parameters}, c.kept(axis, kept))
            for kept in (even, ~even)
        ]

    return several(axis, terms)


def added(*parameters: str) -> Terms:
    """Parts of arrays, by entries, times −4: what comes of them adds up to −4 times what comes of the whole."""

    def terms(c: Case) -> Sequence[Term]:
        first = {p: c.choose.bits(getattr(c, p).shape, 0.5) for p in parameters}
        return [
            Term(
                {p: [Times(np.where(part, -4.0, 0.0))] for p, part in parts.items()},
                {
                    name: [Times(-0.25)] if name == c.forward.outputs[0] else c.once(parts is first)
                    for name in c.forward.outputs
                },
            )
            for parts in (first, {p: ~part for p, part in first.items()})
        ]

    return terms


def lengthened(mask: Any, shape: tuple[int, ...], count: int) -> Any:
    """The mask of scores of a shape, with so many masked keys more."""
    full = np.broadcast_to(True if mask is None else mask, shape)
    return np.concatenate([full, np.zeros((*shape[:-1], count), bool)], -1)
