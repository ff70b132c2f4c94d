"""Imports `attnspec.oracles`, `attnspec.properties` and `attnspec.spec`, also in a project that has
modules of these names.

The three names are generic. Where `import oracles` finds ours, `attnspec.oracles` is the same
module. Where it finds a module of the project, the project keeps its module, and ours is loaded
under the name `attnspec.oracles` alone: in its source, and in the source of what imports it,
`oracles` is read as `attnspec.oracles`.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import spec_from_file_location, spec_from_loader
from pathlib import Path
from types import ModuleType

__all__ = ["PACKAGES", "install", "shadowing"]

PACKAGES = ("spec", "oracles", "properties")
_HOME = Path(__file__).resolve().parents[1]


def install() -> None:
    """Let `import attnspec.oracles` and the like be found."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())  # before Python's own, which would find what is in the packages


def shadowing(path: Sequence[str] | None = None) -> dict[str, str]:
    """{package: file} of the modules that `import` finds in the place of ours, on a path or on `sys.path`."""
    found = {}
    for name in PACKAGES:
        loaded = sys.modules.get(name) if path is None else None
        origin = getattr(loaded, "__file__", None)
        if loaded is None:
            spec = PathFinder.find_spec(name, path)
            origin = spec.origin if spec is not None else None
        if origin is not None and not Path(origin).resolve().is_relative_to(_HOME / name):
            found[name] = origin
    return found


class _Finder(MetaPathFinder):
    """Finds the three packages, and what is in them, under the name `attnspec`.

    `renamed` are the packages that are loaded under that name alone. `properties` imports the other
    two, so it is one where any of them is. `import properties` finds it too, unless it is shadowed
    itself. All is settled when the first package is imported: two copies of a class would not be
    equal.
    """

    def __init__(self) -> None:
        self.shadowed: frozenset[str] | None = None
        self.renamed: frozenset[str] = frozenset()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of a module of ours; None for any other, and for one that Python finds itself."""
        name = fullname.removeprefix("attnspec.")
        package = name.partition(".")[0]
        if package not in PACKAGES:
            return None
        if name == fullname:
            other = package in self.renamed and package not in (self.shadowed or ())
            return spec_from_loader(fullname, _Same(f"attnspec.{name}")) if other else None
        if self.shadowed is None:
            self.shadowed = frozenset(shadowing())
            self.renamed = self.shadowed | {"properties"} if self.shadowed else self.shadowed
        if package not in self.renamed:
            return spec_from_loader(fullname, _Same(name))
        from attnspec.renaming import Renamed  # rarely needed

        place = _HOME.joinpath(*name.split("."))
        file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
        return (
            spec_from_file_location(fullname, file, loader=Renamed(fullname, str(file), self.renamed))
            if file.exists()
            else None
        )


class _Same(Loader):
    """Loads a module by importing it under its other name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """The module itself."""
        module = import_module(self.name)
        self.own = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Give the module back its own spec, which Python has just replaced."""
        module.__spec__ = self.own
