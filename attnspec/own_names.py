"""Makes `attnspec.oracles`, `attnspec.properties` and `attnspec.spec` importable, also if a project
has modules with the names oracles, properties or spec.

If `import oracles` finds the package of attnspec, `attnspec.oracles` is the same module. If it
finds a module of the project, the project keeps that module. The package of attnspec is then loaded
only under the name `attnspec.oracles`: in its source, and in the source of modules that import it,
`oracles` is replaced by `attnspec.oracles`.
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
    """Make `import attnspec.oracles`, `import attnspec.properties` and `import attnspec.spec` work."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())  # before Python's finder, which would find the modules in the packages


def shadowing(path: Sequence[str] | None = None) -> dict[str, str]:
    """Return {package: file} for each package of attnspec in whose place `import` finds another
    module. `import` searches `path`, or else `sys.path`.
    """
    shadowed = {}
    for name in PACKAGES:
        loaded = sys.modules.get(name) if path is None else None
        origin = getattr(loaded, "__file__", None)
        if loaded is None:
            spec = PathFinder.find_spec(name, path)
            origin = spec.origin if spec is not None else None
        if origin is not None and not Path(origin).resolve().is_relative_to(_HOME / name):
            shadowed[name] = origin
    return shadowed


class _Finder(MetaPathFinder):
    """Finds the packages oracles, properties and spec, and their modules, under the name
    `attnspec`.

    `shadowed` are the packages whose short name belongs to the project. `renamed` are the packages
    that are loaded only under the name `attnspec`. If some package is shadowed, `properties` is
    renamed too, because it imports the other two. `import properties` then still finds it, unless
    it is shadowed itself. The first import decides this for all: two copies of a class would not be
    equal.
    """

    def __init__(self) -> None:
        self.shadowed: frozenset[str] | None = None
        self.renamed: frozenset[str] = frozenset()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the import spec of a module of attnspec. Return None for other modules, and for
        modules that Python finds itself.
        """
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
    """A loader that loads a module by importing it under its other name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the module, imported under its other name."""
        module = import_module(self.name)
        self.own = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Restore the import spec of the module, which Python has just replaced."""
        module.__spec__ = self.own
