"""Products of matrices.

Lean: `NN/Spec/Core/Tensor/Linalg.lean`
"""

from functools import reduce

from spec.context import Context
from spec.lean import LeanFile
from spec.scope import alpha
from spec.tensor_core import Array, Tensor, tabulate

__all__ = ["mat_mul_spec"]

lean = LeanFile("NN/Spec/Core/Tensor/Linalg.lean")


@lean(line=64)
def mat_mul_spec(
    A: Tensor[Array, "m n"], B: Tensor[Array, "n p"], scalar: Context | None = None
) -> Tensor[Array, "m p"]:
    """Return A · B. Each entry is a left fold from 0: ((0 + A[i,0]·B[0,j]) + A[i,1]·B[1,j]) + ….

    Edge cases
    - n = 0: every entry is the empty fold, 0.
    - Over floats no operation is fused or reordered, and the result does not depend on the machine.

    >>> import numpy as np
    >>> mat_mul_spec(np.array([[1.0, 2.0]]), np.array([[3.0], [4.0]]))
    array([[11.]])
    >>> mat_mul_spec(np.ones((1, 0)), np.ones((0, 2)))
    array([[0., 0.]])

    Lean: `matMulSpec`
    """
    (m, n), (_, p) = A.shape, B.shape
    return tabulate((m, p), lambda i, j: reduce(lambda acc, k: acc + A[i, k] * B[k, j], range(n), alpha.zero))
