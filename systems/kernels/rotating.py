"""Declares rotary kernels that take tables with one column for each pair, and rows (batch, n, heads, d)."""

from collections.abc import Callable
from typing import Any

from oracles import Conventions
from properties.contract.implementation import Implementation

__all__ = ["rotating"]

Rotate = Callable[[Any, Any, Any], Any]


def rotating(
    name: str, unavailable: str, rotate: Rotate, rotate_back: Rotate | None = None, pairing: str = "half", **sizes: Any
) -> Implementation:
    """Return the implementation of a function of x (batch, n, heads, d) and the tables cos and sin (n, d / 2), and of
    the function that rotates gradients back. `sizes` are further predicates of `supports`.
    """

    def apply_rotary(x: Any, cos: Any, sin: Any) -> Any:
        return rotate(x.transpose(1, 2).clone(), cos, sin).transpose(1, 2)

    def apply_rotary_vjp(x: Any, cos: Any, sin: Any, grad_out: Any) -> Any:
        assert rotate_back is not None
        return rotate_back(grad_out.transpose(1, 2).clone(), cos, sin).transpose(1, 2)

    return Implementation(
        name,
        {"apply_rotary": apply_rotary} | ({"apply_rotary_vjp": apply_rotary_vjp} if rotate_back else {}),
        arithmetic="float32",
        arrays="torch",
        device="cuda",
        conventions=Conventions(rope_pairing=pairing),  # type: ignore[arg-type]
        batch_ranks=(2,),
        supports=["half tables", "positive sizes", {"head_dim": lambda d: d % 2 == 0, **sizes}],
        unavailable=unavailable,
    )
