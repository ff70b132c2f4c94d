"""The catalogue of known bugs: executable, cited, and explained. It scores the laws, and it diagnoses who fails them."""

from importlib import import_module

from properties.bugs.bug import Bug

__all__ = ["CATALOGUE", "GROUPS", "Bug"]

_NAMES = (
    "scores", "softmax", "masks", "tiles", "heads", "features", "wrappers", "caches", "vjp", "jvp", "positions", "angles", "frequencies",
    "rotary", "rotations", "sinusoid", "lookups", "conduct", "promises", "paths", "edges",
)  # fmt: skip

GROUPS: dict[str, tuple[Bug, ...]] = {name: tuple(import_module(f"properties.bugs.{name}").bug.bugs) for name in _NAMES}
"""The known bugs by what they are about: the name of their module."""

CATALOGUE: dict[str, Bug] = {bug.id: bug for bugs in GROUPS.values() for bug in bugs}
