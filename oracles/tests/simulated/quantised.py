"""A simulated kernel of quantised attention: it rounds where FP8 and INT8 kernels round."""

from collections.abc import Callable
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from oracles.ball import Array

__all__ = ["QuantisedKernel", "added"]

F32 = np.float32
LOG2E = F32(1.4426950408889634)


def added(terms: Array, bits: int, at_once: int = 32) -> Array:
    """The sum along the first axis, `at_once` terms and the earlier sum at a time: all of them are cut off
    `bits` − 1 bits below the leading bit of the largest, and so is their sum.
    """

    def cut(x: Array, largest: Array) -> Array:
        unit = np.ldexp(1.0, np.frexp(largest)[1] - bits)
        return np.where(largest == 0, 0.0, np.trunc(x / unit) * unit)

    total = np.zeros(terms.shape[1:])
    for start in range(0, len(terms), at_once):
        group = np.concatenate([total[None], terms[start : start + at_once]])
        total = cut(group, np.abs(group).max(0)).sum(0)
        total = cut(total, np.abs(total))
    return total


def exactly(terms: Array) -> Array:
    """The sum along the first axis in binary32."""
    return np.add.reduce(terms.astype(F32), axis=0).astype(float)


@dataclass(frozen=True)
class QuantisedKernel:
    """Attention (n, d) of codes in one pass.

    form      "operands" multiplies each code by its scale, "sums" multiplies sums of codes by scales
    sigma     weights are multiplied by it and rounded to E4M3; None keeps them in binary32
    add       adds up the terms of a sum along the first axis
    """

    form: str = "sums"
    sigma: float | None = None
    add: Callable[[Array], Array] = exactly

    def product(self, a: Array, b: Array) -> Array:
        """a · b, whose products of codes are exact."""
        return self.add(np.asarray(a, float).T[:, :, None] * np.asarray(b, float)[:, None, :]).astype(F32)

    def weights(self, e: Array) -> Array:
        """The weights as the product with the values reads them."""
        if self.sigma is None:
            return e
        return (e * F32(self.sigma)).astype(ml_dtypes.float8_e4m3fn).astype(F32)

    def __call__(self, codes: tuple[Array, ...], scales: tuple[Array, ...], scale: float) -> tuple[Array, Array]:
        """The output in bfloat16, and the log-sum-exp; the scales have the shape (1, 1) or (n, 1)."""
        (q, k, v), (qs, ks, vs) = ((F32(x) for x in arrays) for arrays in (codes, scales))
        one = F32(1)
        if self.form == "operands":
            (q, k, v), (qs, ks, vs) = (q * qs, k * ks, v * vs), (one, one, one)
            s = self.product(q, k.T) * F32(scale)
        else:
            s = self.product(q, k.T) * (qs * ks.T * F32(scale))
        m = s.max(1, keepdims=True)
        e = np.exp2((s - m) * LOG2E)
        total = e.sum(1, keepdims=True, dtype=F32)
        of_rows = vs.shape not in ((), (1, 1))
        kept = self.weights(e * vs.T if of_rows and self.sigma is None else e)
        v = v * vs if of_rows and self.sigma is not None else v
        after = one if of_rows else vs
        out = self.product(kept, v) * (after / F32(self.sigma or 1.0)) / total
        return out.astype(ml_dtypes.bfloat16).astype(float), (m + np.log(total))[:, 0].astype(float)
