"""The exact merge of two parts of the keys, and ALiBi's exact slopes and biases."""

import flint
import numpy as np

from oracles import Conventions
from research.benchmarks.exact.reading import Given
from spec import ARB, tensor
from spec.extended import attention as literal
from spec.extended.alibi import alibi_bias as literal_bias
from spec.extended.alibi import alibi_slopes as literal_slopes
from spec.tensor_core import Array as Balls

__all__ = ["alibi_bias", "alibi_slopes", "merge_attention"]


def merge_attention(given: Given) -> tuple[Balls, ...]:
    """(out, lse)."""
    conventions: Conventions = given.get("conventions") or Conventions()
    unit = flint.arb(2).log() if conventions.lse_base == "2" else flint.arb(1)
    x = {name: tensor(given[name], ARB) for name in ("out_a", "lse_a", "out_b", "lse_b")}
    for name in ("lse_a", "lse_b"):
        x[name] = np.where(given[name] == -np.inf, x[name], x[name] * unit)
    out, lse = literal.merge_attention(**x, scalar=ARB)
    dead = np.maximum(given["lse_a"], given["lse_b"]) == -np.inf
    if conventions.dead_rows == "nan":
        out = np.where(dead[..., None], np.array(flint.arb("nan"), dtype=object), out)
    return out, np.where(dead, lse, lse * (1 / unit))


def alibi_slopes(given: Given) -> tuple[Balls, ...]:
    """(slopes,)."""
    conventions, n = given.get("conventions") or Conventions(), given["num_heads"]
    if conventions.alibi_slopes == "press":
        return (literal_slopes(n, scalar=ARB),)
    return (np.array([flint.arb(2) ** (flint.arb(-8 * h) / n) for h in range(1, n + 1)], dtype=object),)


def alibi_bias(given: Given) -> tuple[Balls, ...]:
    """(bias,)."""
    conventions: Conventions = given.get("conventions") or Conventions()
    n, n_q, n_k = (int(given[name]) for name in ("num_heads", "n_q", "n_k"))
    offset = given.get("offset")
    if offset is None:
        offset = n_k - n_q if conventions.causal == "bottom_right" else 0
    if conventions.alibi_slopes == "press" and conventions.alibi_reference == "distance":
        return (literal_bias(n, n_q, n_k, offset=offset, scalar=ARB),)
    p, j = np.arange(n_q)[:, None] + offset, np.arange(n_k)
    steps = -abs(p - j) if conventions.alibi_reference == "distance" else j + 0 * p
    (slopes,) = alibi_slopes(given)
    return (slopes[:, None, None] * steps.astype(object),)
