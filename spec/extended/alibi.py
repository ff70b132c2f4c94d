"""ALiBi, attention with linear biases: the bias of a key falls with its distance from the query,
and each head has its own slope.

This module is not TorchLean's: see `spec.extended`.

Source: Press, Smith and Lewis, Train Short, Test Long: Attention with Linear Biases Enables Input
Length Extrapolation, 2022, section 3, and the authors' code for numbers of heads other than
powers of two
"""

from typing import Any

import numpy as np

from spec.context import Context, Scalar
from spec.extended.arguments import finite, offsets
from spec.lean import definition
from spec.scope import alpha
from spec.tensor_core import Array, Tensor, tabulate

__all__ = ["alibi_bias", "alibi_slopes", "distance_bias"]


@definition()
def alibi_slopes(num_heads: int, scalar: Context | None = None) -> Tensor[Array, "H"]:
    """Return the slope of each head. With m the largest power of two up to numHeads, the first m
    slopes are 2^(−8h/m) for h = 1 … m. The others are the 1st, 3rd, 5th, … of the slopes of 2m
    heads.

    Edge cases
    - numHeads = 0: empty. numHeads = 1: [2⁻⁸].
    - numHeads a power of two: one geometric sequence, which ends at 2⁻⁸.

    >>> from spec import REAL64
    >>> alibi_slopes(2, REAL64).tolist() == [2**-4, 2**-8]
    True
    >>> alibi_slopes(3, REAL64).tolist() == [2**-4, 2**-8, 2**-2]  # of four heads, 2⁻², 2⁻⁴, 2⁻⁶ and 2⁻⁸, the first
    True
    """
    m = 2 ** (num_heads.bit_length() - 1) if num_heads else 1

    def slope(h: int) -> Scalar:
        numerator, heads = (h + 1, m) if h < m else (2 * (h - m) + 1, 2 * m)
        return alpha.power(alpha.two, -alpha.div(alpha.of_nat(8 * numerator), alpha.of_nat(heads)))

    return tabulate((num_heads,), slope)


@definition()
def alibi_bias(
    num_heads: int, n_q: int, n_k: int, offset: Any = None, scalar: Context | None = None
) -> Tensor[Array, "*batch H nQ nK"]:
    """Return the bias −slopeₕ · |p − j| for the query at position p = i + offset and the key at
    position j. It is added to the scores of head h.

    The offset is the same as in `attention`: an integer, or one for each sequence of the batch, whose axes
    then come first.

    Edge cases: a size of 0 gives the empty tensor. A key at its query's position has bias 0.

    >>> from spec import REAL64
    >>> alibi_bias(1, 1, 3, offset=2, scalar=REAL64) * 2**8
    array([[[-2., -1.,  0.]]])
    """
    return distance_bias(alibi_slopes(num_heads), n_q, n_k, offset)


@definition()
def distance_bias(
    slopes: Tensor[Array, "H"], n_q: int, n_k: int, offset: Any = None, scalar: Context | None = None
) -> Tensor[Array, "*batch H nQ nK"]:
    """Return −slopesₕ · |p − j|, as `alibi_bias` does for ALiBi's own slopes. The slopes are finite
    numbers; a slope of 0 gives a bias of 0.

    >>> distance_bias(np.array([0.5]), 2, 2)
    array([[[ 0. , -0.5],
            [-0.5,  0. ]]])
    """
    first = offsets(offset, np.shape(0 if offset is None else offset))
    slope_of = [finite(slope, f"alibi[{h}]") for h, slope in enumerate(slopes)]

    def entry(*index: int) -> Scalar:
        *b, h, i, j = index
        return alpha.zero - slope_of[h] * alpha.of_nat(abs(i + first[*b] - j))

    return tabulate((*first.shape, len(slope_of), n_q, n_k), entry)
