"""Softmax: exponentials, normalised to sum to one.

Lean: `NN/Spec/Layers/Activation.lean`, the softmax definitions
"""

import operator
from functools import reduce

import numpy as np  # noqa: F401 - for the examples

from spec.context import Context
from spec.lean import LeanFile
from spec.scope import alpha
from spec.tensor_core import Array, Tensor, replicate, stack
from spec.tensor_ops import div_spec, exp_spec, mul_spec, sub_spec
from spec.tensor_reduction_shape import sum_spec

__all__ = ["softmax_backward_spec", "softmax_spec", "softmax_vec_spec"]

lean = LeanFile("NN/Spec/Layers/Activation.lean")


@lean(line=315)
def softmax_vec_spec(t: Tensor[Array, "n"], scalar: Context | None = None) -> Tensor[Array, "n"]:
    """Return the vector whose entry j is exp(tⱼ − m) / Σₖ exp(tₖ − m). m is the largest entry: a
    left fold of max over the entries, from the first.

    Edge cases
    - n = 0: t itself.
    - n = 1: [1].
    - Over floats no exponential overflows, because every exponent is at most 0. The sum is at least
      1.
    - Over balls m encloses the maximum. Over series m is one of the entries, which is enough
      (`spec.context`, `ARB_SERIES`).

    >>> softmax_vec_spec(np.array([5.0, 5.0])), softmax_vec_spec(np.array([-1000.0]))
    (array([0.5, 0.5]), array([1.]))

    Lean: `softmaxVecSpec`
    """
    if t.size == 0:
        return t
    m = reduce(
        alpha.max, t[1:], t[0]
    )  # Lean's fold takes the maximum of the first entry and itself too, which over balls would widen it
    shifted = sub_spec(t, replicate(m, t.shape))
    ex = exp_spec(shifted)
    denom = reduce(operator.add, ex, alpha.zero)
    return div_spec(ex, replicate(denom, t.shape))


@lean(line=349)
def softmax_spec(t: Tensor[Array, "*s"], scalar: Context | None = None) -> Tensor[Array, "*s"]:
    """Return `softmax_vec_spec` of each row along the last axis.

    Edge cases: a tensor without axes, a single number, is 1.

    >>> softmax_spec(np.array([[0.0, 0.0], [1.0, 1.0]])), softmax_spec(np.array(7.0))
    (array([[0.5, 0.5],
           [0.5, 0.5]]), array(1.))

    Lean: `softmaxSpec`
    """
    if t.ndim == 0:
        return replicate(alpha.one, ())
    if t.ndim == 1:
        return softmax_vec_spec(t)
    return stack(t.shape, lambda i: softmax_spec(t[i]))


@lean(line=364)
def softmax_backward_spec(
    x: Tensor[Array, "*s"], dY: Tensor[Array, "*s"], scalar: Context | None = None
) -> Tensor[Array, "*s"]:
    """Return the cotangent of x when y = softmax(x) has cotangent dY: y ⊙ (dY − Σ (dY ⊙ y)), row by
    row along the last axis.

    The Jacobian of softmax, diag(y) − y yᵀ, is symmetric, so this is its JVP as well.

    Edge cases: for a single number it is 0, the derivative of the constant 1.

    >>> softmax_backward_spec(np.array([0.0, 0.0]), np.array([1.0, 0.0]))
    array([ 0.25, -0.25])

    Lean: `softmaxBackwardSpec`
    """
    if x.ndim == 0:
        return replicate(alpha.zero, ())
    if x.ndim == 1:
        y = softmax_vec_spec(x)
        s = sum_spec(mul_spec(dY, y))
        return mul_spec(y, sub_spec(dY, replicate(s, x.shape)))
    return stack(x.shape, lambda i: softmax_backward_spec(x[i], dY[i]))
