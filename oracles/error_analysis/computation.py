"""One computation of attention: its arithmetic and its sizes, and the numbers that several roundings share."""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from oracles.ball import ROUNDOFF, gamma
from oracles.formats import Arithmetic, Elementary, Format


class Sizes(NamedTuple):
    """The sizes of an attention problem, on which its roundings depend.

    sink   whether each row has a sink
    bias   whether a sum of products may begin with a bias, because nothing comes between the two
    """

    n_q: int
    n_k: int
    d: int
    d_v: int
    scale: float
    sink: bool = False
    bias: bool = False


@dataclass(frozen=True)
class Computation:
    """Attention of some sizes in an arithmetic.

    `lost` says, by the name of a rounding, below which size that rounding may make a number 0.
    """

    a: Arithmetic
    sizes: Sizes
    lost: dict[str, float]

    @property
    def u(self) -> float:
        """The unit roundoff of everything between the products."""
        return self.a.elementwise.unit_roundoff

    @cached_property
    def eta(self) -> float:
        """The absolute error of a product that underflows (Higham, Problem 2.19: a sum never does);
        with flushing, of every operation.
        """
        return step(self.a.elementwise, self.a)

    @property
    def summands(self) -> int:
        """The keys of a row.  A sink is one summand more, in a block of its own: it may come first or last."""
        return self.sizes.n_k + self.sizes.sink

    @cached_property
    def rescalings(self) -> int:
        """How often the sums of a key are rescaled, at most: a sink rescales all keys once more."""
        return rescalings(self.a, self.sizes.n_k) + (self.sizes.sink and self.a.rescale_block is not None)

    @cached_property
    def product(self) -> float:
        """The relative error of a product of two operands that are rounded before it."""
        return self.a.product * (2 + self.a.product)

    @cached_property
    def scaled_inputs(self) -> float:
        """The relative error of a product of two scaled inputs that are stored."""
        return roundoff(self.a.scale_on_inputs) * (2 + roundoff(self.a.scale_on_inputs))

    @cached_property
    def operands(self) -> float:
        """The relative error of a product from all roundings of its operands.

        Coarse operands have these errors before the products are added up: each sum is one of such
        terms.
        """
        return self.product + self.scaled_inputs + self.product * self.scaled_inputs

    @cached_property
    def operand_underflow(self) -> float:
        """The absolute error of an operand that keeps fewer bits (TF32).

        If the operand is subnormal, the error is `product` of the smallest normal number; doubled,
        that covers both operands at once.
        """
        return self.product * self.a.elementwise.smallest_normal

    @cached_property
    def operand_flush(self) -> float:
        """The absolute error of an operand that keeps fewer bits, or is flushed to 0."""
        return self.operand_underflow + (self.a.elementwise.smallest_normal if self.a.flush_to_zero else 0.0)

    @cached_property
    def factor(self) -> float:
        """The larger of 1 and |scale|: the scale may multiply an absolute error, or not."""
        return max(1.0, abs(self.sizes.scale))

    @cached_property
    def scale_error(self) -> float:
        """The relative error of a scale that is rounded to a subnormal number, or flushed to 0; ∞ if
        it, or it times log₂e, overflows.

        The scale is given in float64.  So a format as fine as that holds it exactly, unless it is
        flushed.
        """
        work, size = self.a.elementwise, abs(self.sizes.scale)
        if 1.5 * size > work.largest:
            return float("inf")
        if self.a.flush_to_zero and 0 < size < work.smallest_normal:
            return 1.0  # a scale that rounds up to the smallest normal number has a smaller error
        exact = work.unit_roundoff <= ROUNDOFF or size >= work.smallest_normal or size % work.smallest_subnormal == 0
        return 0.0 if exact else work.smallest_subnormal / size


def rescalings(a: Arithmetic, n_k: int) -> int:
    """How often the sums of a key are rescaled, at most: N = ⌈n_k / rescale_block⌉ − 1, once for
    each other block of keys, online or in a merge.
    """
    return 0 if a.rescale_block is None else max(-(-n_k // a.rescale_block) - 1, 0)


def slack(a: Arithmetic) -> float:
    """How far, in base 2, the reference of a row may be below its maximum while weights are summed."""
    return 0.0 if a.rescale_block is None else a.rescale_slack


def partial_roundings(a: Arithmetic, n: int) -> int:
    """How often a gradient summed over n rows is rounded to the output's format before its last rounding."""
    return 0 if a.grad_block is None else max(-(-n // a.grad_block) - 1, 0)


def tanh(a: Arithmetic) -> Elementary:
    """The accuracy of the hyperbolic tangent: the accuracy of the exponential unless the arithmetic states another."""
    return a.exp if a.tanh is None else a.tanh


def unit(stored: Format | None) -> float:
    """The unit roundoff of a format; 0 if nothing is stored."""
    return 0.0 if stored is None else stored.unit_roundoff


def roundoff(stored: Format | None) -> float:
    """The exponent of one rounding to a format; 0 if nothing is stored."""
    return 0.0 if stored is None else gamma(1, stored.unit_roundoff)


def step(stored: Format | None, a: Arithmetic) -> float:
    """The absolute error of one rounding to a format near zero; 0 if nothing is stored."""
    if stored is None:
        return 0.0
    return stored.smallest_normal if a.flush_to_zero else stored.smallest_subnormal


def scaled_inputs_are_narrow(a: Arithmetic) -> bool:
    """Whether scaled q and k are stored in fewer bits than they are computed in; so are their
    gradients, before they are scaled.
    """
    stored, work = a.scale_on_inputs, a.elementwise
    return stored is not None and (
        stored.unit_roundoff > work.unit_roundoff or stored.smallest_subnormal > work.smallest_subnormal
    )
