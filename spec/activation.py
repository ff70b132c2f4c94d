"""Softmax: exponentials, normalised to sum to one.

Lean: `NN/Spec/Layers/Activation.lean`, the softmax definitions
"""

from functools import reduce

from spec.context import Context
from spec.tensor_core import Array, Tensor, expect_shape, over, replicate, shape_of, stack
from spec.tensor_ops import div_spec, exp_spec, mul_spec, sub_spec
from spec.tensor_reduction_shape import sum_spec

__all__ = ["softmax_backward_spec", "softmax_spec", "softmax_vec_spec"]


def softmax_vec_spec(t: Tensor[Array, "n"], scalar: Context | None = None) -> Tensor[Array, "n"]:
    """exp(tⱼ − m) / Σₖ exp(tₖ − m) at j, where m is the largest entry: a left fold of max over the entries, from the first.

    Edge cases
    - n = 0: t itself.
    - n = 1: [1].
    - Over floats no exponential overflows, for none of the exponents is positive, and the sum is at least 1.
    - Over balls m encloses the maximum; over series it is one of the entries, which is enough (`spec.context`, `ARB_SERIES`).

    >>> import numpy as np
    >>> softmax_vec_spec(np.array([5.0, 5.0])), softmax_vec_spec(np.array([-1000.0]))
    (array([0.5, 0.5]), array([1.]))

    Lean: `softmaxVecSpec`
    """
    alpha, t = over(scalar, t=t)
    (n,) = shape_of(t, "t", "n")
    if n == 0:
        return t
    m = reduce(alpha.max, t[1:], t[0])
    e = exp_spec(sub_spec(t, replicate(m, (n,), alpha), alpha), alpha)
    return div_spec(e, replicate(sum_spec(e, alpha), (n,), alpha), alpha)


def softmax_spec(t: Tensor[Array, "*s"], scalar: Context | None = None) -> Tensor[Array, "*s"]:
    """`softmax_vec_spec` of each row along the last axis.

    Edge cases: a tensor without axes, a single number, is 1.

    >>> import numpy as np
    >>> softmax_spec(np.array([[0.0, 0.0], [1.0, 1.0]])), softmax_spec(np.array(7.0))
    (array([[0.5, 0.5],
           [0.5, 0.5]]), array(1.))

    Lean: `softmaxSpec`
    """
    alpha, t = over(scalar, t=t)
    if t.ndim == 0:
        return replicate(alpha.one, (), alpha)
    if t.ndim == 1:
        return softmax_vec_spec(t, alpha)
    return stack(t.shape, lambda i: softmax_spec(t[i], alpha), alpha)


def softmax_backward_spec(x: Tensor[Array, "*s"], dY: Tensor[Array, "*s"], scalar: Context | None = None) -> Tensor[Array, "*s"]:
    """The cotangent of x when y = softmax(x) has cotangent dY: y ⊙ (dY − Σ (dY ⊙ y)), row by row along the last axis.

    The Jacobian of softmax, diag(y) − y yᵀ, is symmetric, so this is its JVP as well.

    Edge cases: for a single number it is 0, the derivative of the constant 1.

    >>> import numpy as np
    >>> softmax_backward_spec(np.array([0.0, 0.0]), np.array([1.0, 0.0]))
    array([ 0.25, -0.25])

    Lean: `softmaxBackwardSpec`
    """
    alpha, x, dY = over(scalar, x=x, dY=dY)
    expect_shape(dY, "dY", x.shape, "the shape of x")
    if x.ndim == 0:
        return replicate(alpha.zero, (), alpha)
    if x.ndim == 1:
        y = softmax_vec_spec(x, alpha)
        row_dot = sum_spec(mul_spec(dY, y, alpha), alpha)
        return mul_spec(y, sub_spec(dY, replicate(row_dot, x.shape, alpha), alpha), alpha)
    return stack(x.shape, lambda i: softmax_backward_spec(x[i], dY[i], alpha), alpha)
