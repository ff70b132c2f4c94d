"""A choice says where the case of a test comes from: operation, domain and seed, without its
numbers.

The same choice gives a case in each format: of the same domain, with numbers of that format.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from oracles import Conventions
from properties.bugs.reference import REFERENCE
from properties.contract.implementation import Implementation
from properties.contract.operations import FEATURES, OPERATIONS, Operation
from properties.contract.results import BrokenError
from properties.contract.subject import Subject
from properties.laws import LAWS, find
from properties.strategies.cases import Cases
from properties.strategies.domains import DOMAINS

__all__ = ["FORMATS", "Choice", "implementation", "size"]

FORMATS = ("float64", "float32", "bfloat16", "float16")
"""The arithmetics of the vectors, by the names of their presets."""


@dataclass(frozen=True)
class Choice:
    """A case: a domain of an operation and a seed, or a call that a law makes of it on such a case.

    `conventions` has the readings other than the defaults that it is about, `call` counts the law's
    calls of the operation.
    """

    operation: str
    domain: str
    seed: int
    law: str = ""
    call: int = 0
    conventions: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def of(self) -> Operation:
        """The operation."""
        return OPERATIONS[self.operation]

    @property
    def reading(self) -> Conventions:
        """The conventions that it is about."""
        return Conventions(**self.conventions)

    @property
    def exists(self) -> bool:
        """Whether there is its domain, and its law."""
        laws = [law for law in LAWS if law.id == self.law]
        return self.domain in DOMAINS[laws[0].operation if laws else self.operation] and bool(laws or not self.law)

    def arguments(self, arithmetic: str) -> tuple[Any, ...]:
        """The case in a format, by the name of its arithmetic."""
        return self.calls(arithmetic)[self.call]

    def calls(self, arithmetic: str) -> list[tuple[Any, ...]]:
        """The arguments of all calls of the operation that the case makes: one call, or the calls
        of the law.
        """
        if not self.law:
            return [self._cases(self.operation, arithmetic).draw(self.seed)]
        (law,) = find(self.law)
        subject = Subject(self._implementation(arithmetic), law.operation)
        case = law.case(self._cases(law.operation, arithmetic).draw(self.seed), self.seed)
        with suppress(BrokenError):  # the reference computes in float64, and overflows where that does
            law.hold(subject, case)
        return [call.arguments for call in subject.calls if call.operation == self.operation]

    def _implementation(self, arithmetic: str) -> Implementation:
        return implementation(arithmetic, self.reading)

    def _cases(self, operation: str, arithmetic: str) -> Cases:
        return _cases(operation, self.domain, arithmetic, self.reading)


def implementation(arithmetic: str, reading: Conventions) -> Implementation:
    """The reference, as code of an arithmetic: cases are drawn for it."""
    return Implementation(
        "reference", REFERENCE, arithmetic=arithmetic, dtype="float64", conventions=reading, features=FEATURES
    )


@cache
def _cases(operation: str, domain: str, arithmetic: str, reading: Conventions) -> Cases:
    return Cases(OPERATIONS[operation], DOMAINS[operation][domain], implementation(arithmetic, reading))


def size(o: Operation, arguments: tuple[Any, ...]) -> int:
    """How many numbers a case and its results are; eight booleans are as large as one."""
    numbers_given = sum(x.size / (8 if x.dtype == np.bool_ else 1) for x in arguments if isinstance(x, np.ndarray))
    return int(numbers_given + sum(np.prod(shape) / (8 if o.returns_booleans else 1) for shape in o.shapes(*arguments)))
