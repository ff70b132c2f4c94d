"""The largest number that each kind of intermediate result can take under an arithmetic."""

from dataclasses import dataclass
from functools import lru_cache
from math import inf

from oracles.ball import LARGEST
from oracles.error_analysis.computation import scaled_inputs_are_narrow, slack
from oracles.formats import Arithmetic, Format


@dataclass(frozen=True)
class Ranges:
    """The largest number of each kind of intermediate result; beyond it the result overflows.

    bias          a bias, as a kernel reads it
    work          scores, scaled queries and keys, and the results computed from them
    products      unscaled products of queries and keys, in their accumulators
    values        Σ e·v
    sums          Σe. Weights e are at most 1, or more while the reference of an online
                  softmax is too low
    by_parts      whether a kernel may form these sums tile by tile, each with its own maximum as
                  the reference, so that all e may be 1
    saved_output  the output from which delta is computed
    grad_weights  dP, as a kernel stores it
    grad_scores   dS, as a kernel stores it, scaled or not
    gradients     partial sums of gradients
    output        the gradient of one query head, before the heads of a key head are added up
    scaled        the gradient of a scaled q or k, if these are stored in fewer bits than their
                  products
    slope         c·dU, from which the gradient through a cap is computed, before it is divided by c
                  again
    cap           the smallest and the largest cap that is a normal number and has a normal
                  reciprocal
    """

    work: float
    products: float
    sums: float
    saved_output: float
    grad_weights: float
    grad_scores: float
    gradients: float
    output: float
    scaled: float
    slope: float
    cap: tuple[float, float]
    by_parts: bool
    bias: float = LARGEST
    values: float = LARGEST


OWN_RANGES = Ranges(
    work=LARGEST,
    products=LARGEST,
    sums=LARGEST,
    saved_output=LARGEST,
    grad_weights=LARGEST,
    grad_scores=LARGEST,
    gradients=LARGEST,
    output=LARGEST,
    scaled=inf,
    slope=LARGEST,
    cap=(0.0, LARGEST),
    by_parts=False,
)
"""The ranges of the oracle's own arithmetic, which is float64."""


@lru_cache(maxsize=64)
def ranges(a: Arithmetic | None) -> Ranges:
    """Return the ranges of an arithmetic; for None, the ranges of the oracle's own."""
    if a is None:
        return OWN_RANGES

    def most(*stored: Format | None) -> float:
        return min(x.largest for x in (a.elementwise, *stored) if x is not None)

    normal = a.elementwise.smallest_normal
    return Ranges(
        work=most(a.scores, a.scale_on_inputs),
        products=most(a.accumulate_scores),
        sums=most() * 2.0 ** -slack(a),
        saved_output=most(a.saved_output),
        grad_weights=most(a.grad_weights),
        grad_scores=most(a.grad_scores),
        gradients=most(a.output if a.grad_block is not None else None),
        output=most(a.output),
        scaled=most(a.scale_on_inputs) if scaled_inputs_are_narrow(a) else inf,
        slope=most(a.scores),
        cap=(max(normal, 1 / most()), min(most(), 1 / normal)),
        by_parts=a.rescale_block is not None,
        bias=most(a.bias),
        values=most(a.accumulate_values) * 2.0 ** -slack(a),
    )
