"""Imports adapters (the user's files with kernels), and returns the implementations that they
define.
"""

import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from math import inf
from typing import Any, TypeVar

from oracles.spelling import did_you_mean
from properties.contract.conversion import require_device
from properties.contract.costs import Costs
from properties.contract.implementation import Implementation, implementation_of
from properties.contract.operations import OPERATIONS
from properties.contract.wanted_shapes import Wanted, concerns, require_concerned
from properties.contract.wording import printable, told
from properties.verifier.location import Location, location_of

__all__ = ["AdapterError", "Found", "at_cost", "distinct", "interleaved", "load"]

T = TypeVar("T")
_NEIGHBOURS = 4  # calls of an implementation alternate with calls of this many neighbours in its list


class AdapterError(ValueError):
    """Raised when an adapter, the user's file with kernels, cannot be imported or used. The message
    is a sentence.
    """


@dataclass(frozen=True)
class Found:
    """An implementation, and the place where it was found.

    target   the file or module, with the attribute
    group    the name of the group; the implementations of a group are shown in one table
    pick     the Python expression that picks the implementation from the target; "" for the target
             itself
    beside   the expressions that pick its neighbours: other implementations, which some laws call
             too
    kernel   the Python expression of the function of an operation, with "{}" for its name; "" if the
             adapter is an `Implementation`, which declares its own functions
    """

    target: str
    group: str
    implementation: Implementation
    pick: str = ""
    beside: tuple[str, ...] = ()
    kernel: str = ""


def load(
    targets: Sequence[str],
    arithmetic: str | None = None,
    only: Sequence[str] = (),
    conventions: Mapping[str, Any] | None = None,
    operation: str = "",
    shapes: Sequence[Wanted] = (),
) -> list[Found]:
    """Return the implementations at "module:NAME" or "file.py:NAME". NAME is a variable that holds
    one adapter, a list of adapters, or a mapping from group names to lists.

    Without a NAME, the adapter is the only one in the module: an `Implementation`, else a
    mapping, a list or groups, else the functions of the module. The working directory, or the
    directory of the file, comes first on the import path. `arithmetic` and `conventions` replace
    those that the adapters declare. `shapes` are added to the declared ones of each implementation
    that has an operation with these sizes; one must. The second implementation with a name gets the name "name #2".
    With `only`, the result has the implementations whose name or group contains one of the texts;
    case does not matter. With `operation`, each target is a function that offers this operation.
    Raises AdapterError.
    """
    if (directory := os.getcwd()) not in sys.path:
        sys.path.insert(0, directory)
    found = [one for target in targets for one in _read(target, arithmetic, operation)]
    implementations = [
        replace(each, conventions=replace(each.resolved_conventions, **conventions or {}))
        for each in (one.implementation for one in found)
    ]
    require_concerned(shapes, {name for each in implementations for name in each.operations})
    named = [_at(each, shapes) for each in distinct(implementations)]
    found = [replace(one, implementation=implementation) for one, implementation in zip(found, named, strict=True)]
    lists: dict[tuple[str, str], list[Found]] = {}
    for one in _chosen(found, only):
        lists.setdefault((one.target, one.group), []).append(one)
    return [one for members in lists.values() for one in _beside_each_other(members)]


def at_cost(one: Found, most_seconds: float) -> Found:
    """Return an implementation that gets no call that should take longer than a number of seconds."""
    costs = Costs(most_seconds) if most_seconds < inf else None
    support = replace(one.implementation.support, costs=costs)
    return replace(one, implementation=replace(one.implementation, supports=support))


def _at(implementation: Implementation, shapes: Sequence[Wanted]) -> Implementation:
    """Return the implementation with further sizes: the ones that its operations have."""
    added = [shape for shape in shapes if any(concerns(shape, OPERATIONS[name]) for name in implementation.operations)]
    return replace(implementation, shapes=(*implementation.wanted_shapes, *added)) if added else implementation


def _chosen(found: list[Found], only: Sequence[str]) -> list[Found]:
    """Return the implementations whose name or group contains one of the texts `only`. Without
    texts, return all implementations.
    """
    names = [f"{one.group}\n{one.implementation.name}".lower() for one in found]
    for text in only:
        if not any(text.lower() in name for name in names):
            groups = dict.fromkeys(one.group for one in found)
            known = dict.fromkeys([*groups, *(one.implementation.name for one in found)])
            listed = f"The groups are {', '.join(groups)}."
            raise AdapterError(f"No implementation or group matches {text!r}.{did_you_mean(text, known, listed)}")
    wanted = [text.lower() for text in only]
    return [one for one, name in zip(found, names, strict=True) if not wanted or any(text in name for text in wanted)]


def _beside_each_other(members: list[Found]) -> Iterator[Found]:
    """Yield the implementations of a list, each with its neighbours: other implementations, which
    some laws call too.
    """
    implementations = interleaved([one.implementation for one in members])
    for position, (one, implementation) in enumerate(zip(members, implementations, strict=True)):
        beside = tuple(other.pick for other in neighbours(position, members))
        yield replace(one, implementation=implementation, beside=beside)


def interleaved(implementations: list[Implementation]) -> list[Implementation]:
    """Return the implementations of a list, each with its neighbours in `beside`: other
    implementations, which some laws call too. A single implementation is returned unchanged.
    """
    return [
        replace(each, beside=neighbours(position, implementations) or each.beside)
        for position, each in enumerate(implementations)
    ]


def neighbours(position: int, members: list[T]) -> tuple[T, ...]:
    """Return the next few members of a list after a position. The list is read as a circle: after
    the last member comes the first. The member at the position itself is never returned.
    """
    others = [*members[position + 1 : position + 1 + _NEIGHBOURS], *members[: min(position, _NEIGHBOURS)]]
    return tuple(others[:_NEIGHBOURS])


def distinct(implementations: list[Implementation]) -> list[Implementation]:
    """Return the implementations with names that differ: the second implementation with a name is
    renamed "name #2".
    """
    seen: Counter[str] = Counter()
    named = []
    for implementation in implementations:
        seen[implementation.name] += 1
        number = seen[implementation.name]
        name = implementation.name if number == 1 else f"{implementation.name} #{number}"
        named.append(replace(implementation, name=name) if number > 1 else implementation)
    return named


def _read(target: str, arithmetic: str | None, operation: str) -> list[Found]:
    """Return the implementations at one place. Code of the user runs here and may raise any
    exception.
    """
    try:
        return list(_load(target, arithmetic, operation))
    except (AdapterError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise AdapterError(f"{target} could not be read: {told(error)}.") from error


def _load(target: str, arithmetic: str | None, operation: str) -> Iterator[Found]:
    try:
        origin = location_of(target)
    except ValueError as error:
        raise AdapterError(str(error)) from error
    module = _imported(origin)
    path = origin.attribute or ("" if operation else _only_adapter(module, origin.module))
    adapter = _attribute(module, path, origin)
    name = path or origin.module
    target = f"{origin.file if origin.folder else origin.module}:{path}".rstrip(":")
    if isinstance(adapter, list | tuple):
        groups: dict[str, Any] = {name: adapter}
    elif _is_mapping_of_groups(adapter):
        groups = dict(adapter)
    else:
        kernel = _expression(adapter, ".".join(filter(None, (origin.module, path))), operation)
        offered = {operation: adapter} if operation else adapter
        yield Found(target, name, _implementation(offered, target, name, arithmetic), kernel=kernel)
        return
    if not any(groups.values()):
        raise AdapterError(f"{target} is empty, but should hold an implementation.")
    for group, members in groups.items():
        listed = name if members is adapter else f"{name}[{group!r}]"
        names = [getattr(member, "name", None) if isinstance(member, Implementation) else None for member in members]
        have_names = None not in names and len(set(names)) == len(names)
        for number, member in enumerate(members):
            pick = f"{listed}[{number}]"
            implementation = _implementation(member, target, pick, arithmetic)
            by_name = f"next(i for i in {listed} if i.name == {implementation.name!r})"
            yield Found(target, printable(str(group)), implementation, by_name if have_names else pick)


def _expression(adapter: Any, place: str, operation: str) -> str:
    """The expression of the function of an operation, as `Found.kernel`."""
    if operation:
        return place
    if isinstance(adapter, Implementation):
        return ""
    return f'{place}["{{}}"]' if isinstance(adapter, Mapping) else f"{place}.{{}}"


def _attribute(module: Any, path: str, origin: Location) -> Any:
    """Return the attribute of a module at a dotted path. For the path "", return the module itself."""
    found = module
    for part in filter(None, path.split(".")):
        if not hasattr(found, part):
            others = _adapters(module)
            listed = f"Its adapters are {', '.join(others)}." if others else "It has no adapter of another name."
            raise AdapterError(f"{origin.module} has no attribute {path!r}.{did_you_mean(path, others, listed)}")
        found = getattr(found, part)
    return found


def _imported(origin: Location) -> Any:
    if origin.folder and sys.path[0] != origin.folder:
        sys.path.insert(0, origin.folder)
    try:
        module = _loaded(origin) if origin.by_path else import_module(origin.module)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a module may raise anything, also SystemExit
        name = (origin.file.name if origin.file and origin.by_path else origin.module) or "A module without a name"
        raise AdapterError(f"{name} could not be imported: {told(error)}.") from error
    file = getattr(module, "__file__", None) or "a module without a file"
    if origin.file is not None and not (os.path.exists(file) and origin.file.samefile(file)):
        raise AdapterError(
            f"import {origin.module} finds {file}, but should find {origin.file}: give the file another name."
        )
    return module


def _loaded(origin: Location) -> Any:
    """Return the module of a file that `import` cannot name. The module is loaded by its path, once."""
    if origin.module not in sys.modules:
        spec = spec_from_file_location(origin.module, origin.file)
        assert spec is not None
        assert spec.loader is not None
        sys.modules[origin.module] = module = module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[origin.module]
            raise
    return sys.modules[origin.module]


def _only_adapter(module: Any, name: str) -> str:
    """Return the name of the only adapter of a module. Return "" if the module itself is the
    adapter, because its functions have the names of operations.
    """
    found = _adapters(module)
    if len(found) > 1:
        raise AdapterError(f"{name} has {len(found)} adapters: {', '.join(found)}. Name one, as in {name}:{found[0]}.")
    if not found and not any(callable(getattr(module, operation, None)) for operation in OPERATIONS):
        raise AdapterError(
            f"{name} has no adapter: no properties.Implementation, no mapping from operations to functions, and no "
            "function of an operation's name. `attnspec operations` lists the operations. `attnspec inspect "
            "FILE.py:FUNCTION --operation NAME` writes the adapter of a function with another name."
        )
    return found[0] if found else ""


def _adapters(module: Any) -> list[str]:
    """Return the names of the adapters of a module. An adapter with several names is returned once.

    Adapters are the `Implementation`s of the module. In a module without one, adapters are the
    mappings, the lists of adapters and the groups of adapters.
    """
    public = {name: value for name, value in vars(module).items() if not name.startswith("_")}
    declared = {id(value): name for name, value in reversed(public.items()) if isinstance(value, Implementation)}
    return list(reversed(declared.values())) or [name for name, value in public.items() if _is_adapter(value)]


def _is_adapter(value: Any) -> bool:
    """Return whether a value is an adapter: a mapping from operations to functions, a list of
    adapters, or a mapping of groups.
    """
    if isinstance(value, Mapping):
        members = list(value.values())
        offers_operations = all(name in OPERATIONS for name in value) and all(map(callable, members))
        return bool(value) and (
            offers_operations or all(isinstance(member, list | tuple) and _is_adapter(member) for member in members)
        )
    if not isinstance(value, list | tuple):
        return False
    return bool(value) and all(isinstance(member, Implementation) or _is_adapter(member) for member in value)


def _is_mapping_of_groups(value: Any) -> bool:
    if not isinstance(value, Mapping):
        return False
    return bool(value) and all(isinstance(group, list | tuple) for group in value.values())


def _implementation(adapter: Any, target: str, name: str, arithmetic: str | None) -> Implementation:
    """Return the implementation that an adapter defines. A mapping or an object has no name, so it
    gets the name of its target, the file or module.
    """
    has_name = isinstance(adapter, Implementation) or hasattr(adapter, "__name__")
    try:
        implementation = implementation_of(adapter, arithmetic, name=None if has_name else name)
    except (TypeError, ValueError) as error:
        raise AdapterError(f"{target} is not an implementation: {error}") from error
    try:
        require_device(implementation)
    except ValueError as error:
        raise AdapterError(str(error)) from error
    return implementation
