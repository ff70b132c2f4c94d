"""α in scope: the scalar that the definition being evaluated runs over.

Lean's definitions stand under `variable {α : Type} [Context α]`: they say `exp`, and the instance
in scope says whose. Here a definition says `alpha.exp`, and calls others without naming a scalar;
`spec.lean` puts the scalar in scope for as long as the definition is evaluated.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, cast

import numpy as np

from spec.context import Context

__all__ = ["alpha", "in_scope", "scope"]

_scalar: ContextVar[Context | None] = ContextVar("scalar", default=None)  # each thread has its own


@contextmanager
def scope(scalar: Context) -> Iterator[None]:
    """While this lasts `alpha` is `scalar`, and arithmetic is silent, as Lean's `Float` is."""
    token = _scalar.set(scalar)
    try:
        with np.errstate(all="ignore"):
            yield
    finally:
        _scalar.reset(token)


def in_scope() -> Context | None:
    """Return what `alpha` is now; None outside of definitions."""
    return _scalar.get()


class _Alpha:
    def __getattr__(self, operation: str) -> Any:
        return getattr(_scalar.get(), operation)


alpha = cast(Context, _Alpha())
"""The operations of the scalar in scope, as in `alpha.exp(score)`. Outside of definitions there are none."""
