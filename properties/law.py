"""What a law is: a plain function that asserts a sentence about an implementation on a case, and where its cases come from."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from properties.implementation import Implementation
from properties.operations import OPERATIONS

__all__ = ["Cases", "Law", "Laws", "always"]

Cases = Callable[[Implementation], st.SearchStrategy[tuple[Any, ...]]]


def always(implementation: Implementation) -> str:
    """No reason why a law would not apply."""
    return ""


@dataclass(frozen=True)
class Law:
    """A law about one operation.

    `body(subject, *case)` asserts the law, the sentence `name`, on a case that `cases(implementation)` draws; its docstring is the
    `statement`. It applies to implementations that offer the operation and those it `needs` besides, unless `exempts` gives a reason, a
    sentence, why not. An `agreement` compares an operation with the oracle and nothing else. At least the share `floor` of its examples
    must be informative, and it takes the share `effort` of the examples asked for. `kills` names a known bug that it is
    there for, and `purpose` says in a sentence what it is for, where other metamorphic laws kill all the bugs that it kills.
    """

    name: str
    operation: str
    body: Callable[..., None]
    cases: Cases
    statement: str
    needs: tuple[str, ...]
    exempts: Callable[[Implementation], str]
    agreement: bool
    floor: float
    effort: float
    kills: str
    purpose: str
    lean: str

    @property
    def id(self) -> str:
        """The law and its operation: `name[operation]`."""
        return f"{self.name}[{self.operation}]"

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of a case's entries: the body's own, and the operation's where it takes any number of them."""
        found = list(inspect.signature(self.body).parameters.values())[1:]
        names = tuple(p.name for p in found if p.kind is not p.VAR_POSITIONAL)
        return names if len(names) == len(found) else (*names, *OPERATIONS[self.operation].parameters)

    def not_applicable(self, implementation: Implementation) -> str:
        """Why the law does not apply to an implementation, as a sentence; "" where it does."""
        missing = [o for o in (self.operation, *self.needs) if o not in implementation.operations]
        return f"It does not offer {' and '.join(missing)}." if missing else self.exempts(implementation)


class Laws:
    """A decorator that turns a function into laws: one for each operation, of the function's name as a sentence.

    @law("rope", cases=rotary, kills="rope-rotates-norms-away")
    def pairs_keep_their_norm(subject, x, start_pos): ...

    `cases` is a function of the implementation, or a mapping from operations to such functions.
    """

    def __init__(self) -> None:
        self.laws: list[Law] = []

    def __call__(
        self,
        *operations: str,
        cases: Cases | Mapping[str, Cases],
        needs: tuple[str, ...] = (),
        exempts: Callable[[Implementation], str] = always,
        agreement: bool = False,
        floor: float = 0.1,
        effort: float = 1.0,
        kills: str = "",
        purpose: str = "",
        lean: str = "",
    ) -> Callable[[Callable[..., None]], Callable[..., None]]:
        """The decorator; its arguments are fields of `Law`."""

        def register(body: Callable[..., None]) -> Callable[..., None]:
            for operation in operations:
                drawn = cases[operation] if isinstance(cases, Mapping) else cases
                statement, name = inspect.cleandoc(body.__doc__ or ""), body.__name__.replace("_", " ")
                self.laws.append(
                    Law(name, operation, body, drawn, statement, needs, exempts, agreement, floor, effort, kills, purpose, lean)
                )
            return body

        return register
