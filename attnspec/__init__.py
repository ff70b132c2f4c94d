"""The package that users import: `attnspec.verify(...)`, and the packages spec, oracles and properties.

    import attnspec
    report = attnspec.verify({"rope": my_rope}, arithmetic="float32")
    budget = attnspec.oracles.rope(x, arithmetic="float32")

`attnspec.oracles` is the same package as `oracles`. If a project has a module with that name,
`attnspec.oracles` is still the package of attnspec; `own_names` says how.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from attnspec import own_names

if TYPE_CHECKING:
    import oracles as oracles
    import properties as properties
    import spec as spec
    from oracles import Conventions as Conventions
    from oracles import assert_within as assert_within
    from properties import Implementation as Implementation
    from properties import judge as judge
    from properties import verify as verify

    __version__: str

__all__ = [
    "Conventions",
    "Implementation",
    "__version__",
    "assert_within",
    "judge",
    "oracles",
    "properties",
    "spec",
    "verify",
]

own_names.install()

_HOMES = {
    "Conventions": "oracles",
    "Implementation": "properties",
    "assert_within": "oracles",
    "judge": "properties",
    "verify": "properties",
}


def __getattr__(name: str) -> Any:
    """Return a name of the package, and import the package that defines it at its first use. pytest
    loads this module in every session, so it imports little.
    """
    if name in own_names.PACKAGES:
        return import_module(f"attnspec.{name}")
    if name == "__version__":
        from importlib.metadata import version  # this import takes longer than all others here

        return version("attnspec")
    if name in _HOMES:
        return getattr(import_module(f"attnspec.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'attnspec' has no attribute {name!r}")
