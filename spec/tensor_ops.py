"""Elementwise operations on tensors of one shape. No operation broadcasts: two tensors of different
shapes are refused.

Lean: `NN/Spec/Core/TensorOps.lean`
"""

import operator
from collections.abc import Callable
from typing import Any

from jaxtyping import Bool

from spec.context import Context, Scalar
from spec.lean import LeanFile
from spec.scope import alpha
from spec.tensor_core import Array, Tensor, tabulate

__all__ = ["add_spec", "div_spec", "exp_spec", "map2_spec", "map_spec", "mul_spec", "scale_spec", "sub_spec"]

lean = LeanFile("NN/Spec/Core/TensorOps.lean")


@lean(line=52)
def map_spec(
    f: Callable[[Scalar], Scalar], t: Tensor[Array, "*s"], scalar: Context | None = None
) -> Tensor[Array, "*s"]:
    """Return the tensor whose entry at i is f(tᵢ).

    Edge cases: for an empty tensor the result is empty, and f is not called.

    >>> import numpy as np
    >>> map_spec(lambda x: x + x, np.array([[1.0, 2.0]]))
    array([[2., 4.]])

    Lean: `mapSpec`
    """
    return tabulate(t.shape, lambda *i: f(t[i]))


@lean(line=65)
def map2_spec(
    f: Callable[[Scalar, Any], Scalar],
    a: Tensor[Array, "*s"],
    b: Tensor[Array, "*s"] | Bool[Array, "*s"],
    scalar: Context | None = None,
) -> Tensor[Array, "*s"]:
    """Return the tensor over a's scalar whose entry at i is f(aᵢ, bᵢ).

    b is over the same scalar, or it is a tensor of booleans, and stays one. Raises ValueError
    unless the shapes are equal.

    >>> import numpy as np
    >>> map2_spec(lambda x, keep: x if keep else 0.0, np.array([1.0, 2.0]), np.array([True, False]))
    array([1., 0.])

    Lean: `map2Spec`
    """
    return tabulate(a.shape, lambda *i: f(a[i], b[i]))


@lean(line=70)
def add_spec(a: Tensor[Array, "*s"], b: Tensor[Array, "*s"], scalar: Context | None = None) -> Tensor[Array, "*s"]:
    """a + b, entry by entry. Lean: `addSpec`"""
    return map2_spec(operator.add, a, b)


@lean(line=78)
def mul_spec(a: Tensor[Array, "*s"], b: Tensor[Array, "*s"], scalar: Context | None = None) -> Tensor[Array, "*s"]:
    """a ⊙ b, entry by entry. Lean: `mulSpec`"""
    return map2_spec(operator.mul, a, b)


@lean(line=86)
def sub_spec(a: Tensor[Array, "*s"], b: Tensor[Array, "*s"], scalar: Context | None = None) -> Tensor[Array, "*s"]:
    """a − b, entry by entry. Lean: `subSpec`"""
    return map2_spec(operator.sub, a, b)


@lean(line=94)
def div_spec(a: Tensor[Array, "*s"], b: Tensor[Array, "*s"], scalar: Context | None = None) -> Tensor[Array, "*s"]:
    """Return a / b, entry by entry, with the scalar's own division: x / 0 is 0 over ℝ, and NaN or
    ±∞ over Float.

    >>> import numpy as np
    >>> from spec import FLOAT64, REAL64
    >>> a, b = np.array([6.0, 1.0]), np.array([3.0, 0.0])
    >>> div_spec(a, b, REAL64), div_spec(a, b, FLOAT64)
    (array([2., 0.]), array([ 2., inf]))

    Lean: `divSpec`
    """
    return map2_spec(alpha.div, a, b)


@lean(line=106)
def scale_spec(t: Tensor[Array, "*s"], c: Scalar, scalar: Context | None = None) -> Tensor[Array, "*s"]:
    """Return t × c, entry by entry. The number c is on the right; it is a number of t's scalar, or
    one that this scalar can hold. Lean: `scaleSpec`
    """
    c = alpha.lift(c)
    return map_spec(lambda x: x * c, t)


@lean(line=126)
def exp_spec(t: Tensor[Array, "*s"], scalar: Context | None = None) -> Tensor[Array, "*s"]:
    """Return exp(t), entry by entry. Edge cases: above 709.78 a float64 overflows to ∞, below
    −745.13 it underflows to 0. Lean: `expSpec`
    """
    return map_spec(alpha.exp, t)
