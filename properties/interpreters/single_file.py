"""Imports one file of a package without the code of the package, with stand-ins for some of the
modules that the file imports.
"""

import sys
from collections.abc import Collection, Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec, spec_from_file_location, spec_from_loader
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from oracles.spelling import did_you_mean

__all__ = ["load", "stand_ins"]

_STUBBED: list[str] = []


def load(path: str | Path, stubs: Collection[str] = (), values: Mapping[str, Any] | None = None) -> ModuleType:
    """Return the module of one file, such as "liger_kernel/ops/rope.py", in the working directory or
    on the import path. The packages around the file are not run.

    stubs    names of modules, such as "vllm.platforms". They and their submodules are stand-ins: each
             of their attributes is an object that can be called, and that returns a decorated function
             unchanged. Other imports of the file are real
    values   what a stand-in is instead, by its name, such as
             {"vllm.platforms.current_platform.is_cuda()": True}

    A stand-in has no truth value: a program that asks for it raises TypeError with the name to add to
    `values`. The coverage line of a report names the modules that have stand-ins. Raises ValueError,
    with a sentence, for a file that does not exist.
    """
    root, file = _found(Path(path))
    sys.meta_path.insert(0, _Stubs(stubs, values or {}))
    parts = file.relative_to(root).with_suffix("").parts
    for size in range(1, len(parts)):
        _package(".".join(parts[:size]), root.joinpath(*parts[:size]))
    name = ".".join(parts)
    spec = spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    sys.modules[name] = module = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def stand_ins() -> list[str]:
    """Return the modules that have stand-ins in a loaded file, in the order of the imports."""
    return list(_STUBBED)


def _found(path: Path) -> tuple[Path, Path]:
    """Return the folder on the import path, and the file in it."""
    if path.suffix != ".py":
        raise ValueError(f"{path} is not a Python file: its name should end with .py.")
    folders = [Path(entry or ".").resolve() for entry in [".", *sys.path]]
    if path.is_absolute():
        if not path.is_file():
            raise ValueError(f"{path} does not exist.")
        around = [folder for folder in folders if path.is_relative_to(folder)]
        return max(around, key=lambda folder: len(folder.parts), default=path.parent), path
    for folder in folders:
        if (folder / path).is_file():
            return folder, folder / path
    beside = [each.name for folder in folders for each in (folder / path).parent.glob("*.py")]
    listed = "Give its path below a folder of the import path, as package/folder/file.py."
    raise ValueError(
        f"{path} is not in the working directory or on the import path.{did_you_mean(path.name, beside, listed)}"
    )


def _package(name: str, folder: Path) -> None:
    """Make a package importable without its code: its modules are found in its folder."""
    if name not in sys.modules:
        package = ModuleType(name)
        package.__path__ = [str(folder)]
        sys.modules[name] = package


class _StandIn:
    """An object in the place of an attribute of a module that is not imported."""

    def __init__(self, name: str, values: Mapping[str, Any]) -> None:
        self._name, self._values = name, values

    def __getattr__(self, attribute: str) -> Any:
        return _stand_in(f"{self._name}.{attribute}", attribute, self._values)

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        name = f"{self._name}()"
        is_decorator = len(arguments) == 1 and isinstance(arguments[0], FunctionType | type) and not options
        return arguments[0] if is_decorator and name not in self._values else _stand_in(name, "", self._values)

    def __bool__(self) -> bool:
        raise TypeError(f"{self._name} is a stand-in without a truth value: load(…, values={{{self._name!r}: …}}).")

    def __or__(self, other: Any) -> Any:
        return self  # in annotations

    __ror__ = __or__

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[Any, ...]:
        return ()

    def __repr__(self) -> str:
        return f"<stand-in for {self._name}>"


def _stand_in(name: str, attribute: str, values: Mapping[str, Any]) -> Any:
    """Return the given value of a name, or else a stand-in."""
    if attribute.startswith("__") and attribute.endswith("__"):
        raise AttributeError(f"{name} is a stand-in without this attribute.")
    return values[name] if name in values else _StandIn(name, values)


class _Stubs(MetaPathFinder, Loader):
    """Finds and loads modules that have stand-ins."""

    def __init__(self, names: Collection[str], values: Mapping[str, Any]) -> None:
        self.names, self.values = tuple(names), values

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: Any = None) -> ModuleSpec | None:
        """Return the import spec of a stubbed module, or of a module of it. Return None for others."""
        is_stubbed = any(f"{fullname}.".startswith(f"{name}.") for name in self.names)
        return spec_from_loader(fullname, self, is_package=True) if is_stubbed else None

    def exec_module(self, module: ModuleType) -> None:
        """Give the module attributes that are stand-ins."""
        name, values = module.__name__, self.values
        module.__getattr__ = lambda attribute: _stand_in(f"{name}.{attribute}", attribute, values)  # type: ignore[method-assign]
        _STUBBED.append(name)
