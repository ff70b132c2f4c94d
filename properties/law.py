"""What a law is: a sentence about an operation, a body that asserts it on a case, and the domains of which its cases are."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from zlib import crc32

from hypothesis import strategies as st

from properties.implementation import Implementation
from properties.operations import OPERATIONS
from properties.strategies.choices import Choices
from properties.subject import Subject

__all__ = ["Cases", "Law", "Laws", "always"]

Cases = Callable[[Implementation], st.SearchStrategy[tuple[Any, ...]]]


def always(implementation: Implementation) -> str:
    """No reason why a law would not apply."""
    return ""


@dataclass(frozen=True)
class Law:
    """A law about one operation.

    `body(subject, *arguments)` asserts the law, the sentence `name`, on a case of one of its `domains`, or on one that
    `cases(implementation)` draws; its docstring is the `statement`. A body that takes `choose` besides may choose what else it needs: an
    order, a cut. One that returns False says nothing of the case. It applies to implementations that offer the operation and those it `needs` besides, unless `exempts` gives a reason, a
    sentence, why not. An `agreement` compares an operation with the oracle and nothing else. At least the share `floor` of its examples
    must be informative, and it takes the share `effort` of the examples asked for. `kills` names a known bug that it is
    there for, and `purpose` says in a sentence what it is for, where other metamorphic laws kill all the bugs that it kills.
    """

    name: str
    operation: str
    body: Callable[..., bool | None]
    cases: Cases | None
    statement: str
    needs: tuple[str, ...]
    exempts: Callable[[Implementation], str]
    agreement: bool
    floor: float
    effort: float
    kills: str
    purpose: str
    lean: str
    domains: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """The law and its operation: `name[operation]`."""
        return f"{self.name}[{self.operation}]"

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of a case's entries: the operation's parameters, and the seed of what is chosen; or, of cases of its own, the body's."""
        if self.domains:
            return (*OPERATIONS[self.operation].parameters, *(["seed"] if self.chooses else []))
        found = list(inspect.signature(self.body).parameters.values())[1:]
        names = tuple(p.name for p in found if p.kind is not p.VAR_POSITIONAL)
        return names if len(names) == len(found) else (*names, *OPERATIONS[self.operation].parameters)

    @property
    def chooses(self) -> bool:
        """Whether the body chooses something besides the case."""
        return "choose" in inspect.signature(self.body).parameters

    def case(self, arguments: tuple[Any, ...], seed: int) -> dict[str, Any]:
        """A case of its domains, by the names of its entries."""
        return dict(zip(self.parameters, (*arguments, seed), strict=False))

    def hold(self, subject: Subject, case: Mapping[str, Any]) -> bool:
        """Assert it on a case, by the names of its entries; False where it says nothing of it. Raises BrokenError where it does not hold."""
        entries = tuple(case.values())
        if self.domains and self.chooses:
            return self.body(subject, *entries[:-1], choose=Choices(crc32(self.name.encode()) ^ int(entries[-1]))) is not False
        return self.body(subject, *entries) is not False

    def not_applicable(self, implementation: Implementation) -> str:
        """Why the law does not apply to an implementation, as a sentence; "" where it does."""
        missing = [o for o in (self.operation, *self.needs) if o not in implementation.operations]
        return f"It does not offer {' and '.join(missing)}." if missing else self.exempts(implementation)


class Laws:
    """A decorator that turns a function into laws: one for each operation, of the function's name as a sentence.

    @law("rope", cases=rotary, kills="rope-rotates-norms-away")
    def pairs_keep_their_norm(subject, x, start_pos): ...

    Without `domains` its cases are everyday ones. `cases` is a function of the implementation, or a mapping from operations to such
    functions, for what no domain has.
    """

    def __init__(self) -> None:
        self.laws: list[Law] = []

    def __call__(
        self,
        *operations: str,
        cases: Cases | Mapping[str, Cases] | None = None,
        domains: tuple[str, ...] = (),
        needs: tuple[str, ...] = (),
        exempts: Callable[[Implementation], str] = always,
        agreement: bool = False,
        floor: float = 0.1,
        effort: float = 1.0,
        kills: str = "",
        purpose: str = "",
        lean: str = "",
    ) -> Callable[[Callable[..., bool | None]], Callable[..., bool | None]]:
        """The decorator; its arguments are fields of `Law`."""

        domains = domains or (() if cases is not None else ("everyday",))

        def register(body: Callable[..., bool | None]) -> Callable[..., bool | None]:
            for operation in operations:
                drawn = cases[operation] if isinstance(cases, Mapping) else cases
                statement, name = inspect.cleandoc(body.__doc__ or ""), body.__name__.replace("_", " ")
                self.laws.append(
                    Law(name, operation, body, drawn, statement, needs, exempts, agreement, floor, effort, kills, purpose, lean, domains)
                )
            return body

        return register
