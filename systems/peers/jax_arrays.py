"""Helpers that the adapters of JAX's libraries share: arrays, derivatives, and limits on shapes.

JAX compiles a function for each shape of its arguments, in about 100 ms. So sizes come from short
lists, and the number of shapes is limited.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

from systems.peers.library import Library

__all__ = ["FEW", "JAX", "SHAPES", "SIZES", "arrays", "compiled", "jvp", "vjp"]

JAX = Library("jax")
SHAPES = "at most 24 shapes"
FEW = "at most 16 shapes"
"""For calls without jit, where JAX compiles each of about twenty operators separately."""
SIZES: dict[str, Any] = {
    **dict.fromkeys(("n_q", "n_k", "seq_len"), (1, 2, 3, 17)),
    **dict.fromkeys(("head_dim", "value_dim"), (1, 2, 4)),
    **dict.fromkeys(("batch", "num_heads", "kv_heads"), (1, 2)),
}


def arrays(x: Any) -> Any:
    """A JAX array with the numbers and the type of a NumPy array."""
    import jax

    with jax.enable_x64(x.dtype.itemsize == 8):
        return jax.numpy.asarray(x)


def compiled(function: Callable[..., Any], *static: str) -> Callable[..., Any]:
    """A function under `jax.jit`; the keywords in `static` have Python values, not arrays."""

    @cache
    def jitted() -> Any:
        import jax

        return jax.jit(function, static_argnames=static)

    return lambda *arguments, **options: jitted()(*arguments, **options)


def vjp(function: Callable[..., Any], inputs: tuple[Any, ...], grad_out: Any) -> tuple[Any, ...]:
    """The gradients of a function's inputs, by reverse mode."""
    import jax

    gradients: tuple[Any, ...] = jax.vjp(function, *inputs)[1](grad_out)
    return gradients


def jvp(function: Callable[..., Any], inputs: tuple[Any, ...], tangents: tuple[Any, ...]) -> Any:
    """The tangent of a function's result, by forward mode."""
    import jax

    return jax.jvp(function, inputs, tangents)[1]
