"""The libraries whose arrays a function may take: code that concerns their arrays, and which of
them a function uses.
"""

import inspect
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

__all__ = ["LIBRARIES", "Library", "libraries_of"]


@dataclass(frozen=True)
class Library:
    """Code that concerns the arrays of a library.

    imports   the import statement
    arrays    the field `arrays` of an `Implementation`
    copied    the call that makes an array contiguous after its axes were exchanged
    ones      a mask of a shape that hides no key
    """

    imports: str
    arrays: str
    copied: str
    ones: str


LIBRARIES = {
    "numpy": Library("import numpy as np", '"numpy"', ".copy()", "np.ones({shape}, bool)"),
    "torch": Library(
        "import torch", '"torch"', ".contiguous()", "torch.ones({shape}, dtype=torch.bool, device={array}.device)"
    ),
    "jax": Library("import jax.numpy as jnp", "jnp.asarray", "", "jnp.ones({shape}, bool)"),
}
"""The libraries whose arrays are tried."""


def libraries_of(function: Callable[..., Any], tries_others: Callable[[], bool]) -> Iterator[str]:
    """Yield the libraries whose arrays a function may take, the most likely first.

    These are NumPy and the imported libraries. The libraries that its code names come first, and
    NumPy after another one; if its code names no library, NumPy comes first. A library that is
    installed, but not imported, follows if `tries_others()` is true by then.
    """
    used = set(_modules(inspect.unwrap(getattr(function, "func", function)), set()))
    loaded = [library for library in LIBRARIES if library == "numpy" or library in sys.modules]
    names_one = not used.isdisjoint(LIBRARIES)
    yield from sorted(loaded, key=lambda library: (library not in used, (library == "numpy") == names_one))
    if tries_others():
        yield from (library for library in LIBRARIES if library not in loaded and find_spec(library))


def _modules(used: Any, seen: set[int]) -> Iterator[str]:
    """The packages that a function's code names, and the functions that it names."""
    seen.add(id(used))
    if inspect.ismodule(used):
        yield used.__name__.split(".")[0]
    if not inspect.isfunction(used):
        yield str(getattr(used, "__module__", "")).split(".")[0]
        return
    named = inspect.getclosurevars(used)
    for value in (*named.nonlocals.values(), *named.globals.values()):
        if id(value) not in seen:
            yield from _modules(value, seen)
