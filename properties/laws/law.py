"""What a law is: a sentence about an operation, a body that asserts it on a case, and the domains
of which its cases are.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from zlib import crc32

from properties.contract.implementation import Implementation
from properties.contract.operations import OPERATIONS
from properties.contract.subject import Subject
from properties.laws.reading import unmergeable
from properties.strategies.choices import Choices

__all__ = ["Law", "Laws", "always"]


def always(implementation: Implementation) -> str:
    """No reason why a law would not apply."""
    return ""


@dataclass(frozen=True)
class Law:
    """A law about one operation.

    `body(subject, *arguments)` asserts the law, the sentence `name`, on a case of one of its
    `domains`; its docstring is the `statement`. A body that takes `choose` besides chooses what
    else it needs: an order, a cut. One that returns False says nothing of the case. It applies to
    implementations that offer the operation and those it `needs` besides, unless `exempts` gives a
    reason, a sentence, why not. At least the share `floor` of its examples must be informative, and
    it takes `effort` times as many turns as others. A law that `watches` is put to every case: it
    looks at the case's own call, and makes no other but of twins. An `agreement` compares an
    operation with the oracle and nothing else. A law that `interleaves` calls others of the
    implementation's list too. `lean` names a definition or theorem of Lean's.
    """

    name: str
    operation: str
    body: Callable[..., bool | None]
    statement: str
    domains: tuple[str, ...] = ("everyday",)
    needs: tuple[str, ...] = ()
    exempts: Callable[[Implementation], str] = always
    agreement: bool = False
    watches: bool = False
    floor: float = 0.1
    effort: float = 1.0
    interleaves: bool = False
    lean: str = ""

    @property
    def id(self) -> str:
        """The law and its operation: `name[operation]`."""
        return f"{self.name}[{self.operation}]"

    @property
    def operations(self) -> tuple[str, ...]:
        """The operations that it calls."""
        return self.operation, *self.needs

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        """The names of a case's entries: the operation's parameters, and the seed of what the law chooses."""
        return (*OPERATIONS[self.operation].parameters, *(["seed"] if self.chooses else []))

    @cached_property
    def chooses(self) -> bool:
        """Whether the body chooses something besides the case."""
        return "choose" in inspect.signature(self.body).parameters

    def case(self, arguments: tuple[Any, ...], seed: int) -> dict[str, Any]:
        """A case by the names of its entries."""
        return dict(zip(self.parameters, (*arguments, seed), strict=False))

    def hold(self, subject: Subject, case: Mapping[str, Any]) -> bool:
        """Assert it on a case, by the names of its entries, of options those that are given; False
        where it says nothing of it. Raises BrokenError where it is broken."""
        o = OPERATIONS[self.operation]
        arguments = [case.get(p) if p in o.options else case[p] for p in o.parameters]
        choices = {"choose": Choices(crc32(self.name.encode()) ^ int(case["seed"]))} if self.chooses else {}
        return self.body(subject, *arguments, **choices) is not False

    def not_applicable(self, implementation: Implementation) -> str:
        """Why the law does not apply to an implementation, as a sentence; "" where it does."""
        missing = [o for o in self.operations if o not in implementation.operations]
        if missing:
            return f"It does not offer {' and '.join(missing)}."
        return (unmergeable(implementation) if "merge_attention" in self.operations else "") or self.exempts(
            implementation
        )


class Laws:
    """A decorator that turns a function into laws: one for each operation, of the function's name
    as a sentence.

    @law("rope", domains=("long sequences",))
    def pairs_keep_their_norm(subject, x, start_pos): ...

    Other arguments are fields of `Law`; `domains` may be by the operation, as are those of a law
    that names none. What is stated holds within budget where the docstring does not say how
    exactly.
    """

    def __init__(self, domains: Callable[[str], tuple[str, ...]] = lambda operation: ("everyday",)) -> None:
        self.laws: list[Law] = []
        self._domains = domains

    def __call__(
        self, *operations: str, **entry: Any
    ) -> Callable[[Callable[..., bool | None]], Callable[..., bool | None]]:
        """The decorator."""

        def register(body: Callable[..., bool | None]) -> Callable[..., bool | None]:
            statement, name = inspect.cleandoc(body.__doc__ or ""), body.__name__.replace("_", " ")
            if "Within budget" not in statement and "Exact" not in statement:
                statement += "\n\nWithin budget."
            domains = entry.pop("domains", self._domains)
            self.laws += [
                Law(name, o, body, statement, domains(o) if callable(domains) else domains, **entry) for o in operations
            ]
            return body

        return register
