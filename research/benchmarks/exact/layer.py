"""The exact results of a layer of attention, by its definition. Its key heads are consecutive."""

from typing import Any

import flint
import numpy as np

from oracles import Conventions
from research.benchmarks.exact.reading import Given
from spec import ARB
from spec.extended.attention_layer import attention_layer as defined
from spec.tensor_core import Array as Balls
from spec.tensor_core import tensor

__all__ = ["attention_layer"]

_BIASES = ("bq", "bk", "bv", "bo")


def attention_layer(given: Given) -> tuple[Balls, ...]:
    """(out,). Query heads whose key heads are tiled change places, with their columns and rows."""
    conventions: Conventions = given.get("conventions") or Conventions()
    x, heads = (
        {name: y for name, y in given.items() if isinstance(y, np.ndarray) and y.dtype != bool},
        given["num_heads"],
    )
    groups = x["wk"].shape[1] * heads // x["wq"].shape[1]
    if conventions.kv_heads == "tile":
        order = np.argsort(np.arange(heads) % groups, kind="stable")
        for name, axis in (("wq", 1), ("bq", 0), ("wo", 0)):
            if name in x:
                width = x[name].shape[axis] // heads
                x[name] = x[name].take((order[:, None] * width + np.arange(width)).ravel(), axis)
    visible = _visible(given, conventions, len(x["x"]), len(x["context"]))
    operands = {name: tensor(y, ARB) for name, y in x.items()}
    named: Any = {
        name: operands[name] for name in ("x", "context", "wq", "wk", "wv", "wo", *_BIASES) if name in operands
    }

    def out(mask: Any, scale: float | None) -> Balls:
        found: Balls = defined(**named, num_heads=heads, mask=mask, scale=scale, scalar=ARB)
        return found

    found, dead = out(visible, given.get("scale")).copy(), ~visible.any(-1)
    if conventions.dead_rows == "nan":
        found[dead] = flint.arb("nan")
    elif conventions.dead_rows == "uniform" and dead.any():
        found[dead] = out(np.ones_like(visible), 0.0)[dead]
    return (found,)


def _visible(given: Given, conventions: Conventions, n_q: int, n_k: int) -> Any:
    """Which tokens of the context each token sees."""
    mask = given.get("mask")
    if mask is None:
        mask = np.ones((n_q, n_k), bool)
    elif conventions.mask_polarity == "true_blocks":
        mask = ~mask
    first = n_k - n_q if conventions.causal == "bottom_right" else 0
    causal = np.arange(n_k) <= first + np.arange(n_q)[:, None] if given.get("causal") else True
    return np.broadcast_to(mask, (n_q, n_k)) & causal
