"""The conventions that the reference follows during a call. A known bug changes a step of the
reference, so the bug follows them too.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import wraps
from typing import Any

from oracles import Conventions
from oracles.conventions import DEFAULT

__all__ = ["FOLLOWED", "declared", "following", "under"]

FOLLOWED = (
    "dead_rows",
    "dead_gradients",
    "causal",
    "kv_heads",
    "window",
    "lse_base",
    "scale_default",
    "causal_with_mask",
    "alibi_slopes",
    "alibi_reference",
    "packed_lse",
    "page_layout",
    "fp8_scale",
    "padding_position",
)
"""The conventions that the reference follows. `verifier.rotary_layouts` converts the layouts of
pairs, and a stand-in gets masks whose true entries are visible.
"""

_DECLARED: ContextVar[Conventions] = ContextVar("declared", default=DEFAULT)


def declared() -> Conventions:
    """Return the conventions that the reference follows now; the defaults outside `following`."""
    return _DECLARED.get()


@contextmanager
def following(conventions: Conventions, operation: str) -> Iterator[None]:
    """Make the reference follow these conventions while it computes an operation.

    Where fully masked rows are NaN, a backward computes them as zeros: the gradient of such a query
    is unchecked, and the row adds nothing to other gradients.
    """
    if conventions.dead_rows == "nan" and operation.endswith("_vjp"):
        conventions = replace(conventions, dead_rows="zero")
    token = _DECLARED.set(conventions)
    try:
        yield
    finally:
        _DECLARED.reset(token)


def under(conventions: Conventions, operation: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of an operation, made from the reference, that follows these conventions."""

    @wraps(function)
    def follows(*arguments: Any, **options: Any) -> Any:
        with following(conventions, operation):
            return function(*arguments, **options)

    return follows if conventions != DEFAULT else function
