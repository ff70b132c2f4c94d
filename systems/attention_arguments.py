"""The arguments of attention operations, gathered into records, for functions that take many of
them.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

__all__ = ["AttentionOptions", "Projections", "with_projections"]


class AttentionOptions(NamedTuple):
    """The options of `attention`, each with its default, as `properties.contract` names them."""

    mask: Any = None
    bias: Any = None
    scale: Any = None
    causal: bool = False
    offset: Any = None
    window: tuple[Any, Any] = (None, None)
    softcap: Any = None
    sink: Any = None


class Projections(NamedTuple):
    """The weights of multi-head attention: wq, wk and wv (d_model, width), and wo (width, d_model)."""

    wq: Any
    wk: Any
    wv: Any
    wo: Any


def with_projections(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of (x, projections, …) as a function of (x, wq, wk, wv, wo, …), which operations
    call.
    """

    def operation(x: Any, *arguments: Any, **options: Any) -> Any:
        return function(x, Projections(*arguments[:4]), *arguments[4:], **options)

    return operation
