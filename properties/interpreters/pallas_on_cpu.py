"""Makes every Pallas kernel of JAX run in Pallas' interpreter."""

from functools import wraps
from typing import Any

__all__ = ["settle"]


def settle() -> None:
    """Replace `pallas_call` by a function that adds interpret=True, unless the kernel asks for
    another interpreter.
    """
    from jax.experimental import pallas

    usual = pallas.pallas_call

    @wraps(usual)
    def interpreted(*arguments: Any, **options: Any) -> Any:
        return usual(*arguments, **{**options, "interpret": options.get("interpret") or True})

    pallas.pallas_call = interpreted
