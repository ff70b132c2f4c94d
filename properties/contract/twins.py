"""Twins: other paths of an implementation, which must agree with it: compiled, in evaluation, with
a cache, without gradients.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from properties.contract.wording import printable, shown

__all__ = ["PROMISES", "Twin", "admitted", "path"]

PROMISES = (
    *(
        "arithmetic",
        "conventions",
        "arrays",
        "dtype",
        "device",
        "batch_ranks",
        "supports",
        "refuses",
        "features",
        "caches",
    ),
    "deterministic",
)
"""The fields of `Implementation` that a path may have of its own."""


@dataclass(frozen=True)
class Twin:
    """Another path of an implementation: what it offers of the operations, and what it promises
    otherwise.

    operations   a function for each operation that takes the path, called as that of the implementation
    exactly      whether it returns the same to the last bit; otherwise it may differ by the sum of both budgets
    promises     fields of `Implementation` that differ on the path, as {"arithmetic": "float16"}: names of `PROMISES`

    Raises TypeError and ValueError, in a sentence, for anything else.
    """

    operations: Mapping[str, Callable[..., Any]]
    exactly: bool = False
    promises: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, kind, wanted in (
            ("operations", Mapping, "a mapping of functions"),
            ("exactly", bool, "a bool"),
            ("promises", Mapping, "a mapping from fields of Implementation to values"),
        ):
            if not isinstance(getattr(self, name), kind):
                raise TypeError(f"Twin.{name}={shown(getattr(self, name))}, but should be {wanted}.")
        for name in self.promises:
            if name not in PROMISES:
                raise ValueError(f"Twin.promises has {shown(name)}, but should have some of {', '.join(PROMISES)}.")


def admitted(twins: Mapping[str, Any], offered: Collection[str]) -> dict[str, Twin]:
    """The twins by name, of which a mapping of functions is one that promises the same; each is of
    operations that are offered.

    Raises TypeError and ValueError, in a sentence, for anything else.
    """
    found: dict[str, Twin] = {}
    for name, given in twins.items():
        if not (isinstance(name, str) and name.strip()):
            raise TypeError(f"The name of a twin is {shown(name)}, but should be a str that is not empty.")
        if not isinstance(given, Twin | Mapping):
            raise TypeError(
                f"twins[{shown(name)}]={shown(given)}, but should be a mapping of functions, or a properties.Twin."
            )
        twin = given if isinstance(given, Twin) else Twin(given)
        others = [operation for operation in twin.operations if operation not in offered]
        if others or not twin.operations:
            what = f"is another path of {shown(others[0])}" if others else "is a path of nothing"
            raise ValueError(
                f"twins[{shown(name)}] {what}, but should be one of what is offered: {', '.join(offered)}."
            )
        found[printable(name)] = twin
    return found


def path(implementation: Any, name: str) -> Any:
    """The twin of a name as an implementation by itself, which promises what the other does unless
    it says otherwise.
    """
    twin = implementation.twins[name]
    promises: dict[str, Any] = {
        "name": f"{implementation.name}, {name}",
        "twins": {},
        "beside": (),
        "known_deviations": {},
        "caches": None,
    }
    return replace(implementation, operations=twin.operations, **{**promises, **twin.promises})
