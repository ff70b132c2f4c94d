"""Records in the untrusted process which modules the kernel imports, which functions of torch it calls,
and which functions of Python's library, NumPy and torch it replaces.

The process gets this module as text, so the module imports only the standard library, and torch where
the kernel takes its arrays. The untrusted code can deceive it.
"""

import os
import sys
import threading
import timeit  # noqa: F401 - its functions should stay too
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from importlib.abc import MetaPathFinder
from importlib.machinery import PathFinder
from operator import attrgetter, is_
from types import FunctionType, ModuleType
from typing import Any

__all__ = ["Recorder"]

_OWNERS = (
    *("torch.nn.functional", "torch", "torch.Tensor", "torch.cuda", "torch.cuda.Event"),
    *("numpy", "numpy.linalg", "time", "timeit", "timeit.Timer", "builtins", "math", "random", "datetime"),
)
"""Modules and classes whose functions should stay as they are, with their code and their defaults."""

_PACKAGES = frozenset((*sys.stdlib_module_names, "numpy", "torch"))
"""Packages into which the kernel should write no function of its own."""

_IMPORTLIB = "importlib/__init__.py"


class _Imports(MetaPathFinder):
    """Records the names of the modules that the kernel imports, and leaves the finding to the other
    finders. `folder` has its sources. What libraries import, and what is in the folder, is not recorded.
    """

    def __init__(self, names: set[str], folder: str) -> None:
        self.names, self.folder = names, folder

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        """Record the name of a module unless the standard library has it, and return None."""
        importer, source_file = sys._getframe(1), "<frozen importlib"
        while importer.f_back and (source_file.startswith("<frozen importlib") or source_file.endswith(_IMPORTLIB)):
            importer = importer.f_back
            source_file = importer.f_code.co_filename
        found_spec = PathFinder.find_spec(name, path, target)
        is_standard = name.partition(".")[0] in sys.stdlib_module_names
        is_own = found_spec is None or (found_spec.origin or "").startswith(self.folder)
        if not (is_standard or is_own) and source_file.startswith((self.folder, "<string")):
            self.names.add(name)


class Recorder:
    """What the kernel has used since the start. `used` has names of modules and of functions."""

    def __init__(self, arrays: str) -> None:
        self.used: set[str] = set()
        self._mode: Any = None
        self._torch = ""  # the folder of torch
        if arrays == "torch":
            import torch
            from torch.overrides import TorchFunctionMode

            recorder = self

            class Calls(TorchFunctionMode):
                def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                    if (called_name := recorder._name_of(function)) != "torch.Tensor.__get__":  # of a property
                        recorder.used.add(called_name)
                    return function(*args, **(kwargs or {}))

            self._mode, self._torch = Calls, os.path.dirname(torch.__file__)
            threading.setprofile(self._enter)
        self._owners = {name: owner for name in _OWNERS if (owner := _found(name)) is not None}
        self._functions = dict(self._functions_now())
        self._states = {name: _state(function) for name, function in self._functions.items()}
        self._folder = os.getcwd()
        self._names = {id(function): name for name, function in reversed(self._functions.items())}
        sys.meta_path.insert(0, _Imports(self.used, self._folder))

    def replaced(self) -> list[str]:
        """Return the names of functions and modules that are others now, of functions with other code or
        defaults, and of the kernel's functions and classes in other packages. Functions that torch
        itself has replaced, as it does when it loads its compiler, are not among them.
        """
        functions_now = dict(self._functions_now())
        others = {
            function_name
            for function_name, state in self._states.items()
            if not all(map(is_, state, _state(function := functions_now.get(function_name))))
            and not self._is_in(self._torch, function)
        }
        modules = {name for name, owner in self._owners.items() if sys.modules.get(name, owner) is not owner}
        return sorted(others | modules | {*self._inserted()})

    def _inserted(self) -> Iterator[str]:
        """Yield the names of the kernel's functions and classes in modules of other packages, and in
        the classes of these.
        """
        for module_name, module in [*sys.modules.items()]:
            if module_name.partition(".")[0] not in _PACKAGES or self._is_in(self._folder, module):
                continue
            for name, value in [*getattr(module, "__dict__", {}).items()]:
                if self._is_in(self._folder, value):
                    yield f"{module_name}.{name}"
                elif isinstance(value, type) and value.__module__ == module_name:
                    for method_name, method in [*vars(value).items()]:
                        if self._is_in(self._folder, method):
                            yield f"{module_name}.{name}.{method_name}"

    def watching(self) -> AbstractContextManager[Any]:
        """Return a context in which calls of torch's functions are recorded."""
        return nullcontext() if self._mode is None else self._mode()

    def _enter(self, frame: Any, event: str, argument: Any) -> None:
        """Record the calls of a new thread too, from its first event on."""
        sys.setprofile(None)
        self._mode().__enter__()

    def _functions_now(self) -> Iterator[tuple[str, Any]]:
        for owner_name, owner in self._owners.items():
            for namespace in reversed(owner.__mro__) if isinstance(owner, type) else [owner]:
                for function_name, function in vars(namespace).items():
                    if callable(function):
                        yield f"{owner_name}.{function_name}", function

    @staticmethod
    def _is_in(folder: str, value: Any) -> bool:
        """Whether the source of a function, class or module is in a folder. No source is in ""."""
        if isinstance(value, type):
            value = sys.modules.get(value.__module__)
        if isinstance(value, ModuleType):
            return bool(folder) and str(vars(value).get("__file__")).startswith(folder)
        function = _inner(value)
        return bool(folder) and isinstance(function, FunctionType) and function.__code__.co_filename.startswith(folder)

    def _name_of(self, function: Any) -> str:
        """Return the name by which programs call a function of torch."""
        if id(function) in self._names:
            return self._names[id(function)]
        function_name = getattr(function, "__name__", type(function).__name__)
        is_method, module_name = hasattr(function, "__objclass__"), str(getattr(function, "__module__", "torch"))
        owner_name = "torch.Tensor" if is_method else module_name.replace("torch._ops", "torch.ops")
        return f"{owner_name}.{function_name}"


def _inner(function: Any) -> Any:
    """Return the function in Python that a wrapper of NumPy, a static or a class method calls."""
    is_wrapper = type(function) in (staticmethod, classmethod) or type(function).__module__ == "numpy"
    return getattr(function, "__wrapped__", function) if is_wrapper else function


def _state(function: Any) -> list[Any]:
    """Return what a program can replace: the function, its code and its defaults."""
    inner = _inner(function)
    parts = ("__code__", "__defaults__", "__kwdefaults__") if isinstance(inner, FunctionType) else ()
    return [function, *(getattr(inner, part) for part in parts)]


def _found(name: str) -> Any:
    """Return a module or a class by its dotted name; None if it is not there."""
    module_name, _, attributes = name.partition(".")
    try:
        return attrgetter(attributes)(sys.modules[module_name]) if attributes else sys.modules[module_name]
    except (KeyError, AttributeError):
        return None
