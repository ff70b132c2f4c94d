"""What a command line names, a module or a file, with or without an attribute, and the
implementations that are found there.
"""

import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, TypeVar

from properties.contract.implementation import Implementation, implementation_of
from properties.contract.operations import OPERATIONS
from properties.contract.wording import printable, told
from properties.verifier.location import Location, location_of

__all__ = ["Found", "TargetError", "distinct", "interleaved", "load"]

T = TypeVar("T")
_BESIDE = 4  # neighbours of an implementation between whose calls it is called


class TargetError(ValueError):
    """A target cannot be imported, or is no implementation; the message is a sentence."""


@dataclass(frozen=True)
class Found:
    """An implementation, the group that it shares a table with, and the Python that picks it out of
    the target; "" for all of it.

    `beside` picks its neighbours.
    """

    target: str
    group: str
    implementation: Implementation
    pick: str = ""
    beside: tuple[str, ...] = ()


def load(
    targets: Sequence[str],
    arithmetic: str | None = None,
    only: Sequence[str] = (),
    conventions: Mapping[str, Any] | None = None,
) -> list[Found]:
    """The implementations at "module:attribute" or "file.py:attribute": one, a list of them, or a
    mapping from groups to lists.

    Without an attribute it is the only adapter that the module has: an `Implementation`, else a
    mapping, a list or groups, else the module's own functions. The working directory, or the
    file's, is put first on the path. An arithmetic, and some conventions, replace what they
    declare. Equal names are told apart by numbers. With `only`, those are left whose name or group
    contains one of its texts, in any case. Raises TargetError.
    """
    if (directory := os.getcwd()) not in sys.path:
        sys.path.insert(0, directory)
    found = [one for target in targets for one in _read(target, arithmetic)]
    read = [
        replace(i, conventions=replace(i.resolved_conventions, **conventions or {}))
        for i in (one.implementation for one in found)
    ]
    named = distinct(read)
    found = [replace(one, implementation=implementation) for one, implementation in zip(found, named, strict=True)]
    chosen = [
        f for f in found if not only or any(o.lower() in f"{f.group}\n{f.implementation.name}".lower() for o in only)
    ]
    if not chosen:
        groups = ", ".join(dict.fromkeys(one.group for one in found))
        raise TargetError(
            f"No implementation is called {' or '.join(map(repr, only))}, nor a group of them: there are {groups}."
        )
    lists: dict[tuple[str, str], list[Found]] = {}
    for one in chosen:
        lists.setdefault((one.target, one.group), []).append(one)
    return [
        replace(one, implementation=implementation, beside=tuple(other.pick for other in neighbours(place, several)))
        for several in lists.values()
        for place, (one, implementation) in enumerate(
            zip(several, interleaved([one.implementation for one in several]), strict=True)
        )
    ]


def interleaved(implementations: list[Implementation]) -> list[Implementation]:
    """The implementations of a list, each of which knows its neighbours; one that is alone is as it was."""
    return [
        replace(i, beside=neighbours(place, implementations) or i.beside) for place, i in enumerate(implementations)
    ]


def neighbours(place: int, several: list[T]) -> tuple[T, ...]:
    """The few that come after a place of a list, at the end those at its beginning; never itself."""
    others = [*several[place + 1 : place + 1 + _BESIDE], *several[: min(place, _BESIDE)]]
    return tuple(others[:_BESIDE])


def distinct(implementations: list[Implementation]) -> list[Implementation]:
    """The implementations, of which the second of a name is called "name #2"."""
    seen: Counter[str] = Counter()
    named = []
    for implementation in implementations:
        seen[implementation.name] += 1
        number = seen[implementation.name]
        named.append(
            implementation if number == 1 else replace(implementation, name=f"{implementation.name} #{number}")
        )
    return named


def _read(target: str, arithmetic: str | None) -> list[Found]:
    """What a target offers; a mapping, or an attribute that is looked up, may raise anything."""
    try:
        return list(_load(target, arithmetic))
    except (TargetError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise TargetError(f"{target} could not be read: {told(error)}.") from error


def _load(target: str, arithmetic: str | None) -> Iterator[Found]:
    try:
        at = location_of(target)
    except ValueError as error:
        raise TargetError(str(error)) from error
    thing = module = _imported(at)
    path = at.attribute or _only_adapter(module, at.module)
    for part in filter(None, path.split(".")):
        if not hasattr(thing, part):
            others = ", ".join(_adapters(module))
            there = f": its adapters are {others}" if others else ", nor an adapter of another name"
            raise TargetError(f"{at.module} has no attribute {path!r}{there}.")
        thing = getattr(thing, part)
    name = path or at.module
    target = f"{at.file if at.folder else at.module}:{path}".rstrip(":")
    if isinstance(thing, list | tuple):
        groups: dict[str, Any] = {name: thing}
    elif isinstance(thing, Mapping) and thing and all(isinstance(group, list | tuple) for group in thing.values()):
        groups = dict(thing)
    else:
        yield Found(target, name, _implementation(thing, target, name, arithmetic))
        return
    if not any(groups.values()):
        raise TargetError(f"{target} is empty, but should hold an implementation.")
    for group, members in groups.items():
        listed = name if members is thing else f"{name}[{group!r}]"
        names = [getattr(member, "name", None) if isinstance(member, Implementation) else None for member in members]
        named = None not in names and len(set(names)) == len(names)
        for number, member in enumerate(members):
            implementation = _implementation(member, target, f"{listed}[{number}]", arithmetic)
            pick = f"next(i for i in {listed} if i.name == {implementation.name!r})" if named else f"{listed}[{number}]"
            yield Found(target, printable(str(group)), implementation, pick)


def _imported(at: Location) -> Any:
    if at.folder and sys.path[0] != at.folder:
        sys.path.insert(0, at.folder)
    try:
        module = import_module(at.module)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a module may raise anything, SystemExit included
        raise TargetError(f"{at.module or 'A module without a name'} could not be imported: {told(error)}.") from error
    found = getattr(module, "__file__", None) or "a module without a file"
    if at.file is not None and not (os.path.exists(found) and at.file.samefile(found)):
        raise TargetError(f"import {at.module} finds {found}, but should find {at.file}: give the file another name.")
    return module


def _only_adapter(module: Any, name: str) -> str:
    """The name of the only adapter of a module; "" for the module itself, whose functions have the
    operations' names.
    """
    found = _adapters(module)
    if len(found) > 1:
        raise TargetError(f"{name} has {len(found)} adapters: {', '.join(found)}; name one, as in {name}:{found[0]}.")
    if not found and not any(callable(getattr(module, operation, None)) for operation in OPERATIONS):
        raise TargetError(
            f"{name} has no adapter: no properties.Implementation, no mapping from operations to functions, and no function of an "
            "operation's name. `attnspec operations` lists them, and `attnspec new FILE` writes an adapter to fill in."
        )
    return found[0] if found else ""


def _adapters(module: Any) -> list[str]:
    """The names under which a module has an `Implementation`, each once; where there is none, a
    mapping, a list or groups of adapters.
    """
    public = {name: thing for name, thing in vars(module).items() if not name.startswith("_")}
    declared = {id(thing): name for name, thing in reversed(public.items()) if isinstance(thing, Implementation)}
    return list(reversed(declared.values())) or [name for name, thing in public.items() if _is_adapter(thing)]


def _is_adapter(thing: Any) -> bool:
    """Whether something is a mapping from operations to functions, a list of adapters, or a mapping
    from groups to lists of them.
    """
    if isinstance(thing, Mapping):
        members = list(thing.values())
        offers = all(name in OPERATIONS for name in thing) and all(map(callable, members))
        return bool(thing) and (
            offers or all(isinstance(member, list | tuple) and _is_adapter(member) for member in members)
        )
    return (
        isinstance(thing, list | tuple)
        and bool(thing)
        and all(isinstance(m, Implementation) or _is_adapter(m) for m in thing)
    )


def _implementation(thing: Any, target: str, name: str, arithmetic: str | None) -> Implementation:
    """A bare mapping or object is called as the target calls it; a module and an `Implementation` have names."""
    named = isinstance(thing, Implementation) or hasattr(thing, "__name__")
    try:
        return implementation_of(thing, arithmetic, name=None if named else name)
    except (TypeError, ValueError) as error:
        raise TargetError(f"{target} is no implementation: {error}") from error
