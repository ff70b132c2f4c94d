"""Defines twins: other code paths of an implementation that must return the same results, such as
compiled code, evaluation mode, a cache, or running without gradients.
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
    "bits",
)
"""The fields of `Implementation` that a path may declare differently."""


@dataclass(frozen=True)
class Twin:
    """Another code path of an implementation: its functions, and the declarations that differ.

    operations   a function for each operation on this path, called as the implementation's own
    exactly      whether it returns the same bits; otherwise it may differ by the sum of both error
                 limits
    promises     the fields of `Implementation` that differ, as {"arithmetic": "float16"}: names of
                 `PROMISES`

    Raises TypeError and ValueError, with a sentence, for anything else.
    """

    operations: Mapping[str, Callable[..., Any]]
    exactly: bool = False
    promises: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for field_name, kind, expected in (
            ("operations", Mapping, "a mapping of functions"),
            ("exactly", bool, "a bool"),
            ("promises", Mapping, "a mapping from fields of Implementation to values"),
        ):
            if not isinstance(getattr(self, field_name), kind):
                raise TypeError(f"Twin.{field_name}={shown(getattr(self, field_name))}, but should be {expected}.")
        for field_name in self.promises:
            if field_name not in PROMISES:
                raise ValueError(
                    f"Twin.promises has {shown(field_name)}, but should have some of {', '.join(PROMISES)}."
                )


def admitted(twins: Mapping[str, Any], offered: Collection[str]) -> dict[str, Twin]:
    """Return the twins (other code paths of an implementation) by name.

    A mapping of functions is a twin with the declarations of the implementation. Each function
    belongs to an operation that the implementation offers. Raises TypeError and ValueError, with a
    sentence, for anything else.
    """
    twins_by_name: dict[str, Twin] = {}
    for twin_name, declared in twins.items():
        if not (isinstance(twin_name, str) and twin_name.strip()):
            raise TypeError(f"The name of a twin is {shown(twin_name)}, but should be a str that is not empty.")
        if not isinstance(declared, Twin | Mapping):
            raise TypeError(
                f"twins[{shown(twin_name)}]={shown(declared)}, but should be a mapping of functions, "
                "or a properties.Twin."
            )
        twin = declared if isinstance(declared, Twin) else Twin(declared)
        not_offered = [operation for operation in twin.operations if operation not in offered]
        if not_offered or not twin.operations:
            mistake = f"is another path of {shown(not_offered[0])}" if not_offered else "is a path of nothing"
            raise ValueError(
                f"twins[{shown(twin_name)}] {mistake}, "
                f"but should be one of the offered operations: {', '.join(offered)}."
            )
        twins_by_name[printable(twin_name)] = twin
    return twins_by_name


def path(implementation: Any, name: str) -> Any:
    """Return the twin (another code path) with this name as an implementation. Its declarations are
    the implementation's, except for those that the twin declares itself.
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
