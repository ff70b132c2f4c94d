"""Calls functions as soon as a module of some name has been imported."""

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

__all__ = ["after_import"]


def after_import(actions: Mapping[str, Sequence[Callable[[], None]]]) -> None:
    """Call the actions of each module after its import. If a module is already imported, call its
    actions now.
    """
    waiting = {name: functions for name, functions in actions.items() if name not in sys.modules}
    sys.meta_path.insert(0, _Finder(waiting))
    for name in actions.keys() - waiting.keys():
        for function in actions[name]:
            function()


class _Finder(MetaPathFinder):
    """Finds the modules that have an action as Python does, and changes their loaders."""

    def __init__(self, waiting: dict[str, Sequence[Callable[[], None]]]) -> None:
        self.waiting = waiting
        self.searched: set[str] = set()

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: Any = None) -> ModuleSpec | None:
        """Return the import spec of a module with actions. Return None for any other module."""
        if fullname not in self.waiting or fullname in self.searched:
            return None
        self.searched.add(fullname)  # the other finders answer the search below
        try:
            spec = find_spec(fullname)
        finally:
            self.searched.remove(fullname)
        if spec is None or spec.loader is None:
            return None
        spec.loader = _Acting(spec.loader, self.waiting)
        return spec


class _Acting(Loader):
    """A loader that calls the waiting actions of a module after the module has run. A program may find a
    module without importing it; the actions then wait.
    """

    def __init__(self, loader: Loader, waiting: dict[str, Sequence[Callable[[], None]]]) -> None:
        self.loader, self.waiting = loader, waiting

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loader, name)  # such as get_source

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Return the new module of the module's own loader."""
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Run the module, then the actions."""
        self.loader.exec_module(module)
        for action in self.waiting.pop(module.__name__, ()):
            action()
