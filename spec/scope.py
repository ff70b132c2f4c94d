"""The scalar α over which the current definition is evaluated.

Lean's definitions begin with `variable {α : Type} [Context α]`. They write `exp`, and the instance
in scope decides which scalar's exponential it is. Here a definition writes `alpha.exp`, and calls
other definitions without naming a scalar. `spec.lean` sets `alpha` for as long as the definition is
evaluated.
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
    """Make a context in which `alpha` is `scalar`, and arithmetic raises no warnings, as in Lean's
    `Float`.
    """
    token = _scalar.set(scalar)
    try:
        with np.errstate(all="ignore"):
            yield
    finally:
        _scalar.reset(token)


def in_scope() -> Context | None:
    """Return the current scalar `alpha`; None outside of definitions."""
    return _scalar.get()


class _Alpha:
    def __getattr__(self, operation: str) -> Any:
        return getattr(_scalar.get(), operation)


alpha = cast(Context, _Alpha())
"""The operations of the scalar in scope, as in `alpha.exp(score)`. Outside of definitions it has no
operations.
"""
