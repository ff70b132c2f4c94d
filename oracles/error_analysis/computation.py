"""One computation of attention: its arithmetic, its sizes, and the numbers that several roundings
share.
"""

from typing import NamedTuple

from oracles.ball import ROUNDOFF, gamma
from oracles.formats import Arithmetic, Elementary, Format


class Sizes(NamedTuple):
    """The sizes of an attention problem on which its roundings depend.

    sink    whether each row has a sink
    biases  with how many biases a kernel may begin a score's sum of products, because no step comes
            between them
    """

    n_q: int
    n_k: int
    d: int
    d_v: int
    scale: float
    sink: bool = False
    biases: int = 0


class Computation(NamedTuple):
    """Attention of given sizes in an arithmetic, and the numbers that several roundings share.

    lost               by the name of a rounding, the size below which it may make a number 0
    u                  the unit roundoff of everything between the products
    eta                η, the absolute error of a product that underflows; with flushing, of every
                       operation (a sum of unflushed numbers never underflows: Higham, Problem 2.19)
    summands           the number of keys of a row; a sink is one summand more, in a separate block,
                       and may come first or last
    rescalings         how often the sums of a key are rescaled, at most; a sink rescales all keys
                       once more
    product            the relative error of a product of two operands that are rounded before it
    scaled_inputs      the relative error of a product of two scaled inputs that are stored
    operands           the error of `product` and of `scaled_inputs` together. Coarse operands have
                       these errors before the products are added up, so the terms of each sum have
                       them
    operand_underflow  the absolute error of an operand that keeps fewer bits (TF32). For a
                       subnormal operand it is `product` times the smallest normal number; `product`
                       counts both operands
    operand_flush      `operand_underflow`, plus the absolute error of an operand that is flushed to
                       0
    factor             the larger of 1 and |scale|: the scale may multiply an absolute error, or not
    scale_error        the relative error of the scale
    """

    a: Arithmetic
    sizes: Sizes
    lost: dict[str, float]
    u: float
    eta: float
    summands: int
    rescalings: int
    product: float
    scaled_inputs: float
    operands: float
    operand_underflow: float
    operand_flush: float
    factor: float
    scale_error: float


def computation(a: Arithmetic, sizes: Sizes, lost: dict[str, float]) -> Computation:
    """Return the computation of attention of given sizes in an arithmetic."""
    elementwise, input_roundoff = a.elementwise, roundoff(a.scale_on_inputs)
    product, scaled_inputs = a.product * (2 + a.product), input_roundoff * (2 + input_roundoff)
    underflow = product * elementwise.smallest_normal
    return Computation(
        a=a,
        sizes=sizes,
        lost=lost,
        u=elementwise.unit_roundoff,
        eta=step(elementwise, a),
        summands=sizes.n_k + sizes.sink,
        rescalings=rescalings(a, sizes.n_k) + (sizes.sink and a.rescale_block is not None),
        product=product,
        scaled_inputs=scaled_inputs,
        operands=product + scaled_inputs + product * scaled_inputs,
        operand_underflow=underflow,
        operand_flush=underflow + (elementwise.smallest_normal if a.flush_to_zero else 0.0),
        factor=max(1.0, abs(sizes.scale)),
        scale_error=scale_error(a, abs(sizes.scale)),
    )


def scale_error(a: Arithmetic, size: float) -> float:
    """Return the relative error of a scale of the given size, if it is rounded to a subnormal
    number or flushed to 0. Return ∞ if the scale, or the scale times log₂e, overflows.

    The scale is given in float64.  A format as fine as float64 therefore holds it exactly, unless
    it is flushed.
    """
    elementwise = a.elementwise
    if 1.5 * size > elementwise.largest:
        return float("inf")
    if a.flush_to_zero and 0 < size < elementwise.smallest_normal:
        return 1.0  # a scale that rounds up to the smallest normal number has a smaller error
    is_exact = (
        elementwise.unit_roundoff <= ROUNDOFF
        or size >= elementwise.smallest_normal
        or size % elementwise.smallest_subnormal == 0
    )
    return 0.0 if is_exact else elementwise.smallest_subnormal / size


def rescalings(a: Arithmetic, n_k: int) -> int:
    """Return how often the sums of a key are rescaled, at most: N = ⌈n_k / rescale_block⌉ − 1. Each
    other block of keys rescales them once, in an online softmax or in a merge.
    """
    return 0 if a.rescale_block is None else max(-(-n_k // a.rescale_block) - 1, 0)


def slack(a: Arithmetic) -> float:
    """Return how far, in base 2, the reference of a row may be below its maximum while weights are
    summed. The reference is the number that an online softmax subtracts from the logits.
    """
    return 0.0 if a.rescale_block is None else a.rescale_slack


def partial_roundings(a: Arithmetic, n: int, *, of_keys: bool = False) -> int:
    """Return how often a gradient that is summed over n queries is rounded to the output's format
    before its last rounding. With `of_keys` it is summed over n keys, as dq is.
    """
    block = a.grad_block_of_keys if of_keys and a.grad_block_of_keys else a.grad_block
    return 0 if block is None else max(-(-n // block) - 1, 0)


def tanh(a: Arithmetic) -> Elementary:
    """Return the accuracy of the hyperbolic tangent. It is the accuracy of the exponential unless
    the arithmetic states another.
    """
    return a.exp if a.tanh is None else a.tanh


def rescaling_exp(a: Arithmetic) -> Elementary:
    """Return the accuracy of the exponential that rescales the sums of an online softmax."""
    return a.exp if a.rescale_exp is None else a.rescale_exp


def unit(stored: Format | None) -> float:
    """Return the unit roundoff of a format; 0 for None."""
    return 0.0 if stored is None else stored.unit_roundoff


def roundoff(stored: Format | None) -> float:
    """Return γ₁ for one rounding to a format: exp(±γ₁) bounds the factor of that rounding. Return 0
    for None, which means no rounding.
    """
    return 0.0 if stored is None else gamma(1, stored.unit_roundoff)


def step(stored: Format | None, a: Arithmetic) -> float:
    """Return the absolute error of one rounding to a format near zero; 0 for None."""
    if stored is None:
        return 0.0
    return stored.smallest_normal if a.flush_to_zero else stored.smallest_subnormal


def scaled_inputs_are_narrow(a: Arithmetic) -> bool:
    """Return whether scaled q and k are stored in fewer bits than they are computed in. Their
    gradients are then stored in these bits too, before they are scaled.
    """
    stored, elementwise = a.scale_on_inputs, a.elementwise
    return stored is not None and (
        stored.unit_roundoff > elementwise.unit_roundoff or stored.smallest_subnormal > elementwise.smallest_subnormal
    )
