"""Sums, and operations that only move entries.

Lean: `NN/Spec/Core/TensorReductionShape.lean`
"""

import operator
from collections.abc import Sequence
from functools import reduce
from math import prod

from spec.context import Context, Scalar
from spec.lean import LeanFile
from spec.scope import alpha
from spec.tensor_core import Array, Tensor, nats, tabulate
from spec.tensor_linalg import mat_mul_spec

__all__ = [
    "concat_spec",
    "mat_mul_backward_spec",
    "matrix_transpose_spec",
    "reshape_spec",
    "sum_spec",
    "swap_first_two_spec",
]

lean = LeanFile("NN/Spec/Core/TensorReductionShape.lean")


@lean()
def sum_spec(t: Tensor[Array, "*s"], scalar: Context | None = None) -> Scalar:
    """Return the sum of all entries, a left fold from 0 in row-major order: ((0 + t₀) + t₁) + ….

    Edge cases: an empty tensor sums to 0.

    >>> import numpy as np
    >>> sum_spec(np.array([1e16, 1.0, -1e16])), sum_spec(np.array([1e16, -1e16, 1.0]))
    (np.float64(0.0), np.float64(1.0))

    Lean: `sumSpec`
    """
    return reduce(operator.add, t.flat, alpha.zero)


@lean()
def reshape_spec(t: Tensor[Array, "*s"], shape: tuple[int, ...], scalar: Context | None = None) -> Array:
    """Return the entries of t in row-major order, as a tensor of shape `shape` that is filled in
    row-major order.

    Raises ValueError if the two shapes have different numbers of entries.

    >>> import numpy as np
    >>> reshape_spec(np.array([[1.0, 2.0], [3.0, 4.0]]), (4,))
    array([1., 2., 3., 4.])

    Lean: `reshapeSpec`
    """
    shape = nats(shape, "shape")
    if prod(t.shape) != prod(shape):
        raise ValueError(f"t has shape {t.shape} and {t.size} entries, but shape {shape} has {prod(shape)}.")
    return t.reshape(shape, order="C").copy()


@lean()
def matrix_transpose_spec(A: Tensor[Array, "m n"], scalar: Context | None = None) -> Tensor[Array, "n m"]:
    """Aᵀ, whose entry (j, i) is A[i, j]. Lean: `matrixTransposeSpec`"""
    m, n = A.shape
    return tabulate((n, m), lambda j, i: A[i, j])


@lean()
def swap_first_two_spec(t: Tensor[Array, "m n *s"], scalar: Context | None = None) -> Tensor[Array, "n m *s"]:
    """Return the tensor whose entry (j, i, …) is t[i, j, …]. Raises ValueError for a tensor of rank
    below 2. Lean: `swapFirstTwoSpec`
    """
    m, n, *s = t.shape
    return tabulate((n, m, *s), lambda j, i, *rest: t[i, j, *rest])


@lean()
def mat_mul_backward_spec(
    A: Tensor[Array, "m n"], B: Tensor[Array, "n p"], dC: Tensor[Array, "m p"], scalar: Context | None = None
) -> tuple[Tensor[Array, "m n"], Tensor[Array, "n p"]]:
    """Return (dA, dB), the cotangents of A and B when C = A · B has cotangent dC: dA = dC · Bᵀ and
    dB = Aᵀ · dC.

    >>> import numpy as np
    >>> mat_mul_backward_spec(np.array([[2.0]]), np.array([[3.0]]), np.array([[1.0]]))
    (array([[3.]]), array([[2.]]))

    Lean: `matMulBackwardSpec`
    """
    dA = mat_mul_spec(dC, matrix_transpose_spec(B))
    dB = mat_mul_spec(matrix_transpose_spec(A), dC)
    return dA, dB


@lean()
def concat_spec(
    tensors: Sequence[Tensor[Array, "n d"]], shape: tuple[int, int] | None = None, scalar: Context | None = None
) -> Array:
    """Return the tensor of shape (n, len(tensors)·d) whose row i is row i of each tensor in turn.

    `shape` = (n, d) states the shape of each tensor, as Lean's type does. It is needed only for an
    empty list.

    >>> import numpy as np
    >>> concat_spec([np.array([[1.0], [2.0]]), np.array([[3.0], [4.0]])])
    array([[1., 3.],
           [2., 4.]])
    >>> from spec.context import REAL64
    >>> concat_spec([], shape=(2, 1), scalar=REAL64).shape
    (2, 0)

    Lean: `concatSpec`
    """
    if not tensors and shape is None:
        raise ValueError(
            "tensors is empty and shape=None, "
            "but shape=(n, d) should be given where there is no tensor to read it from."
        )
    stated = nats(tensors[0].shape if shape is None else shape, "shape")
    if len(stated) != 2:
        raise ValueError(f"shape={shape}, but should be (n, d).")
    if tensors and tensors[0].shape != stated:
        raise ValueError(f"tensors[0] has shape {tensors[0].shape}, but should have shape {stated}.")
    n, d = stated
    return tabulate((n, len(tensors) * d), lambda i, j: tensors[j // d][i, j % d])
