"""Operations as they would be if they were made of an implementation's own attention: its mistake is theirs."""

from collections.abc import Callable
from typing import Any

import numpy as np

from oracles.ball import Array
from properties.bugs import reference
from properties.contract.caller import Caller
from properties.contract.implementation import Implementation

__all__ = ["FORWARD", "of_own_attention"]

FORWARD = "scaled_dot_product_attention"
_VJP = "scaled_dot_product_attention_vjp"


def of_own_attention(implementation: Implementation) -> dict[str, Callable[..., Any]]:
    """Causal, grouped and multi-head attention by an implementation's own scaled dot-product
    attention, and its gradients, where what each row has in common is taken from the output: δ =
    rowsum(g ⊙ out).  Nothing where it offers none."""
    if FORWARD not in implementation.operations:
        return {}

    def forward(q: Array, k: Array, v: Array, mask: Any = None) -> Array:
        return np.asarray(Caller(implementation, FORWARD).call(FORWARD, (q, k, v, mask)).value)

    def vjp(q: Array, k: Array, v: Array, mask: Any, grad_out: Array) -> tuple[Array, ...]:
        delta = (grad_out * forward(q, k, v, mask)).sum(axis=-1, keepdims=True)
        found: tuple[Array, ...] = reference.operations(row_term=lambda weights, grad_weights: delta)[_VJP](
            q, k, v, mask, grad_out
        )
        return found

    made = reference.operations(**{FORWARD: forward})
    users = reference.users_of(FORWARD)
    return {name: made[name] for name in users if name != FORWARD and name in implementation.operations} | {_VJP: vjp}
