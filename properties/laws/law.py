"""Defines a law: a sentence about an operation that must be true, a function that checks it on a
case (the arguments of one test), and the domains (input families) of the cases.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from zlib import crc32

from properties.contract.implementation import Implementation
from properties.contract.operations import OPERATIONS, Arguments
from properties.contract.subject import Subject
from properties.laws.feature_rules import why_not_mergeable
from properties.strategies.choices import Choices

__all__ = ["Body", "Law", "Laws", "always"]

Body = Callable[..., bool | None]


def always(implementation: Implementation) -> str:
    """Exempt no implementation: the law applies to every implementation."""
    return ""


@dataclass(frozen=True)
class Law:
    """A law: a property of one operation that must hold for every case (the arguments of one test).

    `name` is a sentence that says what must hold; `statement` adds the equation and the exemptions.
    `exact` says what is compared exactly: everything (True), what a phrase names ("for 0 and NaN"),
    or nothing (False). The rest is compared within the error limit.

    `body(subject, *arguments)` checks the law on a case. The case is drawn from one of the
    `domains`, which are input families. A body that takes `choose` also chooses something itself,
    such as an order or a cut. A body that returns False could not test the law on this case.

    A law applies to an implementation that offers the operation and the operations that the law
    `needs`, unless `exempts` returns a sentence that says why it does not apply. At least the share
    `floor` of its cases must be informative: they could have exposed a mistake. A law gets `effort`
    times as many cases as others.

    A law that `watches` checks every case: it looks at the call of the case, and makes no other
    calls except calls of twins (other code paths). A law that `measures` makes the calls of an
    instrument, at fixed cases. A law of `agreement` only compares an operation with the oracle. A
    law that `interleaves` also calls other implementations of the same list. `lean` names a
    definition or a theorem in Lean.
    """

    name: str
    operation: str
    body: Body
    statement: str
    domains: tuple[str, ...] = ("everyday",)
    exact: bool | str = False
    needs: tuple[str, ...] = ()
    exempts: Callable[[Implementation], str] = always
    agreement: bool = False
    watches: bool = False
    measures: bool = False
    floor: float = 0.1
    effort: float = 1.0
    interleaves: bool = False
    lean: str = ""

    @property
    def id(self) -> str:
        """The name of the law with its operation: `name[operation]`."""
        return f"{self.name}[{self.operation}]"

    @property
    def comparison(self) -> str:
        """A sentence that says how closely the law compares."""
        if self.exact is True:
            return "Exact."
        return f"Exact {self.exact}; otherwise within the error limit." if self.exact else "Within the error limit."

    @property
    def operations(self) -> tuple[str, ...]:
        """The operations that the law calls."""
        return self.operation, *self.needs

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        """The names of the entries of a case: the operation's parameters, and "seed" if the law
        chooses something itself.
        """
        return (*OPERATIONS[self.operation].parameters, *(["seed"] if self.chooses else []))

    @cached_property
    def chooses(self) -> bool:
        """Whether the body chooses something itself: it has a parameter `choose`."""
        return "choose" in inspect.signature(self.body).parameters

    def case(self, arguments: Arguments, seed: int) -> dict[str, Any]:
        """Return the arguments of one test as a dictionary by parameter, with the seed if the law
        chooses.
        """
        return dict(zip(self.parameters, (*arguments, seed), strict=False))

    def hold(self, subject: Subject, case: Mapping[str, Any]) -> bool:
        """Check the law on a case, a dictionary by parameter. Options may be missing.

        Returns False if this case cannot test the law. Raises BrokenError if the law fails. The
        choices of the law depend on the operation and the case's seed, not on the law's name. They
        also depend on the operation so that they differ from the choices by which the case was
        drawn.
        """
        operation = OPERATIONS[self.operation]
        arguments = [case.get(name) if name in operation.options else case[name] for name in operation.parameters]
        if not self.chooses:
            return self.body(subject, *arguments) is not False
        seed = crc32(self.operation.encode()) ^ int(case["seed"])
        return self.body(subject, *arguments, choose=Choices(seed)) is not False

    def not_applicable(self, implementation: Implementation) -> str:
        """Return a sentence that says why the law does not apply to an implementation; "" if it
        applies.
        """
        missing = [name for name in self.operations if name not in implementation.operations]
        if missing:
            return f"It does not offer {' and '.join(missing)}."
        unmergeable = why_not_mergeable(implementation) if "merge_attention" in self.operations else ""
        return unmergeable or self.exempts(implementation)


class Laws:
    """A decorator that turns a function into laws, one for each operation.

    @law("rope", domains=("long sequences",))
    def scores_depend_on_relative_positions_only(subject, x, start_pos): ...

    The law's name is the function's name with spaces, or the argument `name`; the docstring is the
    statement. Other arguments are fields of `Law`. Laws without `domains` get the default domains
    of their operation.
    """

    def __init__(self, domains: Callable[[str], tuple[str, ...]] = lambda operation: ("everyday",)) -> None:
        self.laws: list[Law] = []
        self._domains = domains

    def __call__(self, *operations: str, name: str = "", **fields: Any) -> Callable[[Body], Body]:
        """Return a decorator that turns a function into laws, one for each of the operations."""

        def register(body: Body) -> Body:
            sentence = name or body.__name__.replace("_", " ")
            statement = inspect.cleandoc(body.__doc__ or "")
            domains = fields.pop("domains", self._domains)
            for operation in operations:
                drawn = domains(operation) if callable(domains) else domains
                self.laws.append(Law(sentence, operation, body, statement, drawn, **fields))
            return body

        return register
