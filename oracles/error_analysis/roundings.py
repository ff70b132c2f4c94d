"""The table of roundings: it states every rounding of attention once.

Exact attention has e_j = exp(s_j), D = Σ e_j and o = Σ e_j v_j / D. Any covered kernel computes
perturbed weights e_j·exp(±τ_j).  Relative errors are exponents: for |δ| ≤ u a product of n factors
(1 + δ)^±1 lies in exp(±γ_n(u)), in every order (Higham, Accuracy and Stability, Lemma 3.1).
Exponents of successive roundings add.  The exponent between two computed values is the sum of their
exponents to the exact value.  Absolute errors (underflow, flushing) are separate rows.

A row is a field of `Terms` or of `Exponents`, and has these columns:

    what      what is rounded
    times     the magnitude that the error multiplies: R = |scale|·|q||k|ᵀ, s scores, m row maximum,
              lse = m + log D, p weights, o output; of two magnitudes of a `Sum`, Σ|x| comes first
    worst     the worst case for a computation: an exponent or a relative error, a `Sum` for sums,
              an absolute error for underflow
    kernel    the simulated kernel that exceeds a budget without the row, by its name in
              `oracles.tests.simulated.single_roundings`
    line      how the statistical line adds it up: the size of one rounding, and whether roundings
              add up as independent ones or linearly, with the reason
    loses     the size below which the rounding may make a number 0

`terms` evaluates `worst` for a budget. `oracles.error_analysis.statistical_line` uses `line` and
`loses`.  A new rounding needs a new row, and a place in the formula where the row is multiplied.

The oracle is itself such a kernel: blocked, online, in float64.  So a certified value takes
`terms_of(OWN, …)`, and a budget takes `terms_of(arithmetic, …) + terms_of(OWN, …)`.  The sum of the
terms is enough: each bound is a power series in the terms with non-negative coefficients and no
constant, so f(x + y) ≥ f(x) + f(y).
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from math import inf, log
from operator import add
from typing import Any

from oracles.ball import ROUNDOFF, gamma
from oracles.error_analysis.computation import (
    Computation,
    Sizes,
    computation,
    partial_roundings,
    rescaling_exp,
    roundoff,
    scaled_inputs_are_narrow,
    slack,
    step,
    tanh,
    unit,
)
from oracles.error_analysis.own_arithmetic import OWN
from oracles.error_analysis.rounding_columns import Line, independent, linear, rounding, stored, table, underflow
from oracles.error_analysis.sums import Sum, summed, summed_gradient
from oracles.formats import BINARY32, Arithmetic

# -- The cost of a weight --------------------------------------------------------------------------


def _slope(at: Computation) -> float:
    """Return the slope of an exponential's error: how much each unit of |s|, |m| and |lse| adds to
    its exponent. It is at most 6u in every covered form, plus the exponential's own error for each
    unit of its argument.

    The argument passes through the product with log₂e (one rounding for s, one for m or lse, one
    for the constant) and the subtraction (1). In lse it also passes through the logarithm, the sum
    and the change of base (3, because |log D| ≤ |m| + |lse|).  Rescalings have arguments m_old −
    m_new of one sign, whose sum telescopes to m − s_j (2).
    """
    return 6 * at.u + max(at.a.exp.per_unit, rescaling_exp(at.a).per_unit)


def _exponential(relative: float) -> float:
    """Return the exponent of an exponential's relative error: |log(1 ± ε)| ≤ ε/(1 − ε)."""
    return relative / (1 - relative)


def _lazily(at: Computation) -> float:
    """Return the slopes of |m|, times the slack.

    A kernel that rescales rarely subtracts a reference r that is at most `slack` below m. So |r| ≤
    |m| + slack, and the logarithm of Σexp(s − r) is larger by at most `slack`.
    """
    return (_slope(at) + at.a.log) * log(2) * slack(at.a)


@dataclass(frozen=True)
class Exponents:
    """The cost of one weight that is computed from its score: exponents of its error."""

    slope: float = rounding(
        "the argument of an exponential", "|s|", _slope, independent(lambda a: 6 * _u(a) + a.exp.per_unit)
    )
    # All scores of a row share this part of the argument. The logarithm adds its own error.
    maximum: float = rounding(
        "the maximum in the argument", "|m|", lambda at: _slope(at) + at.a.log, Line("a part of `lse`")
    )
    lse: float = rounding(
        "the log-sum-exp in the argument",
        "|lse|",
        lambda at: _slope(at) + at.a.log,
        linear(lambda a: 6 * _u(a) + a.log, "all weights of a row share it"),
    )
    # While a reference is too low, weights reach 2^slack, and a factor that rescales them may be
    # flushed. So a weight may be lost as if it were 2^slack times as large.
    exp: float = rounding(
        "the exponential itself",
        "1",
        lambda at: _exponential(at.a.exp.relative) + _lazily(at),
        independent(lambda a: a.exp.relative),
        loses=lambda a: max(a.exp.flush, rescaling_exp(a).flush, step(a.elementwise, a)) * 2.0 ** slack(a),
    )
    # N factors exp(m_old − m_new), each with one exponential and 3 roundings (`Terms.rescaled`).
    rescale: float = rounding(
        "all rescalings of an online softmax, or merges of split keys",
        "1",
        lambda at: at.rescalings * _exponential(rescaling_exp(at.a).relative),
        independent(lambda a: rescaling_exp(a).relative + 3 * _u(a)),
    )
    rescaling: float = rounding(
        "one rescaling, if few keys are large",
        "1",
        lambda at: _exponential(rescaling_exp(at.a).relative),
        Line("one of those of `rescale`"),
    )
    unmoved: float = rounding(
        "all rescalings by exp(0), if few keys are large",
        "1",
        lambda at: at.rescalings * _exponential(rescaling_exp(at.a).at_zero),
        Line("some of those of `rescale`"),
    )

    def __add__(self, other: "Exponents") -> "Exponents":
        return Exponents(*map(add, vars(self).values(), vars(other).values()))

    def of_row(self, m: Any, lse: Any) -> Any:
        """Return the exponent that all weights of a row share, given |m| and |lse|. It is the
        number 0 if all costs are 0.
        """
        if not (self.maximum or self.lse or self.exp or self.rescale):
            return 0.0
        return self.maximum * m + self.lse * lse + self.exp + self.rescale


NOTHING = Exponents(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)

PARTS = {
    "slope": ("slope", "maximum", "lse"),
    "exp": ("exp",),
    "rescale": ("rescale",),
    "rescaling": ("rescaling",),
    "unmoved": ("unmoved",),
}
"""Exponents that occur together: the argument of an exponential has the errors of all its parts."""


def exponents(at: Computation) -> Exponents:
    """Return the cost of one weight under an arithmetic."""
    return Exponents(*(row.worst(at) for row in EXPONENTS.values()))


def _shared(at: Computation) -> Exponents:
    """Return the cost that both sums over keys share, in a kernel of one pass.

    Such a kernel computes one exponential for both sums, and one exponential of a rescaling for
    both. A kernel that does not rescale uses no lse, and the rounding of m is common to the row and
    cancels. So 4u of |s| (product, constant, subtraction) and 2u of |m| remain.
    """
    if not at.a.shared_weights:
        return NOTHING
    weight_cost = exponents(at)
    if at.a.rescale_block:
        return weight_cost
    return replace(weight_cost, slope=weight_cost.slope - 2 * at.u, maximum=weight_cost.slope - 4 * at.u, lse=0.0)


# -- The worst cases that take more than a line ----------------------------------------------------


def _stored_scores(at: Computation) -> float:
    """Return the error of a score that is stored. It is stored before it is scaled too, unless
    scaled inputs are stored instead.

    So it is rounded twice, because a kernel may scale it in base 2.
    """
    score_roundoff = roundoff(at.a.scores)
    return score_roundoff + max(score_roundoff - at.scaled_inputs, 0.0)


def _stored_weights(at: Computation) -> float:
    """Return the exponent of a weight that is stored. With a static factor σ, the stored number is
    fl(p·σ), and the product with v is divided by σ: by a product with 1/σ, which is rounded too, and
    may be combined with the scale of the values. Powers of two do not round, and leave steps that are
    powers of two.
    """
    stored = at.a.weights
    return roundoff(stored) + (0.0 if stored is None or stored.is_binary else gamma(4, at.u))


def _score_roundoff(a: Arithmetic) -> float:
    """Return the unit roundoff of the accumulators of q·kᵀ."""
    return max(a.accumulate, unit(a.accumulate_scores))


def _accumulated(at: Computation) -> Sum:
    """Return the error of a sum over keys whose every partial sum is stored in a narrow format, and so
    is its product with every factor of a rescaling.
    """
    if at.a.accumulate_values is None:
        return Sum(0.0, 0.0)
    narrow = at.a.accumulate_values.unit_roundoff
    rescaled = gamma(at.rescalings, narrow)
    of_sum = summed(at.a, at.summands + 1, narrow)
    return Sum(of_sum.terms * (1 + rescaled) + rescaled, of_sum.result * (1 + rescaled))


def _dot(at: Computation) -> Sum:
    """Return the error of a score: d products and additions in the accumulator, then 5 roundings:
    of scale·s, two of the scale, and two to spare.

    A bias is one summand more if no step comes between it and a product. It may be the first
    summand; then R includes |bias|.  These roundings, the storage of the score and its slope also
    act on the earlier error of the kernel's score (`again`). The oracle knows R and |s| only to (1
    + γ_d(2⁻⁵³)).  The error of a subnormal scale multiplies the earlier errors, and later errors
    multiply it, here and in gradients.
    """
    sizes = at.sizes
    sum_error = summed(at.a, sizes.d + sizes.biases, _score_roundoff(at.a)).of_rounded(at.operands)
    stored, oracle_error, scaled = _stored_scores(at), gamma(sizes.d, ROUNDOFF), gamma(5, at.u)
    later_errors = _slope(at) + oracle_error + scaled + stored
    earlier_errors = (
        sum_error.positive + at.product + at.scaled_inputs + scaled + stored + oracle_error + at.scale_error
    )
    again = later_errors * earlier_errors
    error = Sum(sum_error.terms + again + at.product * at.scaled_inputs, sum_error.result + scaled)
    return error.scaled(at.scale_error, at.operands)


def _addition(at: Computation) -> float:
    """Return the error of one addition: the roundoff if the accumulator rounds to nearest, else ∞
    because it may truncate.

    An accumulator rounds to nearest if its format is `elementwise`, or is as fine as both
    `elementwise` and binary32.
    """
    rounds = at.a.accumulate == at.u or at.a.accumulate <= min(at.u, BINARY32.unit_roundoff)
    return at.a.accumulate if rounds else inf


def _grad_dot(at: Computation) -> Sum:
    """Return the error of dP = g·vᵀ: d_v products and additions, one summand more for −δ, and one
    rounding.
    """
    products = summed(at.a, at.sizes.d_v + 1, at.a.grad_accumulate)
    return (products + Sum(0.0, gamma(1, at.u))).of_rounded(at.product)


def _tangent_dot(at: Computation) -> float:
    """Return the error of dq·kᵀ + q·dkᵀ: 2d products and additions, two summands for a bias and its
    tangent, and 6 roundings.
    """
    products = summed(at.a, 2 * at.sizes.d + 1 + at.sizes.biases, _score_roundoff(at.a))
    sum_error = (products + Sum(0.0, gamma(6, at.u))).of_rounded(at.operands)
    return sum_error.scaled(at.scale_error, at.operands).positive + at.product * at.scaled_inputs


def _tangent_sum(at: Computation) -> Sum:
    """Return the error of the sums in the JVP. A kernel may add up p·t·v, p·dv and −t̄·o in one sum
    of 2·n_k + 1 terms; the oracle has two sums.
    """
    n = at.summands if at.a is OWN else 2 * at.summands + 1
    return summed_gradient(at.a, n).scaled(at.scale_error)


def _sum_underflow(at: Computation) -> float:
    """Return the underflow of a sum: every product may underflow, and so may every partial sum that
    is stored. The weights of stored parts of the keys add up to 1.
    """
    n_q, n_k = at.sizes.n_q, at.summands
    products = (n_k + n_q + at.sizes.d_v + at.rescalings + 4) * at.eta
    of_parts = partial_roundings(at.a, max(n_q, n_k)) * at.lost["output"] + at.lost["stored_parts"]
    of_values = (n_k + at.rescalings + 1) * at.lost["accumulated"]
    return products + of_parts + of_values + n_q * at.operand_underflow


def _u(a: Arithmetic) -> float:
    return a.elementwise.unit_roundoff


# -- The table -------------------------------------------------------------------------------------

NO_LINE_OF_THE_JVP = Line("none: the JVP has no line")


@dataclass(frozen=True)
class Terms:
    """The worst case of each rounding, for one computation or for two whose errors add up."""

    # Exponents of a weight.

    dot: Sum = rounding(
        "products and additions of a score, and its scaling; a bias may be the first summand",
        "R, |s|, |bias|",
        _dot,
        independent(_score_roundoff),
        loses=lambda a: step(a.accumulate_scores, a),
        kernel="truncating accumulator",
    )
    product: float = rounding(
        "both operands of a matrix product, rounded before it (TF32)",
        "R, p·|v|",
        lambda at: at.product,
        independent(lambda a: a.product),
        loses=lambda a: a.elementwise.smallest_normal if a.flush_to_zero or a.product else 0.0,
        kernel="truncated operands",
    )
    scale_on_inputs: float = stored(
        "a scaled q and a scaled k, stored in a narrow format",
        "R, |dS|·|k|",
        "scale_on_inputs",
        "bfloat16 scaled queries",
        worst=lambda at: at.scaled_inputs,
    )
    stored_scores: float = stored(
        "a score, stored in a narrow format",
        "|s|",
        "scores",
        "bfloat16 scores",
        worst=_stored_scores,
    )
    shared: Exponents = rounding(
        "in both sums over keys at once",
        "",
        _shared,
        Line("see `Exponents`"),
        kernel={
            "slope": "sloping exponential",
            "exp": "coarse exponential",
            "rescale": "coarse rescalings",
            "rescaling": "coarse rescaling of large keys",
            "unmoved": "coarse rescaling by exp(0)",
        },
    )
    # A kernel of two passes may compute all exponentials twice.
    separate: Exponents = rounding(
        "in one of the two sums over keys",
        "",
        lambda at: NOTHING if at.a.shared_weights else exponents(at),
        Line("see `Exponents`"),
        kernel={
            "slope": "sloping exponential",
            "exp": "coarse exponential",
            "rescale": "coarse rescalings",
            "rescaling": "coarse rescaling of large keys",
            "unmoved": "coarse rescaling by exp(0)",
        },
    )
    # The backward pass computes a weight again, or reads the weight that went through all rescalings.
    anew: Exponents = rounding(
        "in the backward pass",
        "",
        exponents,
        Line("see `Exponents`"),
        kernel={"slope": "sloping exponential", "exp": "coarse exponential", "rescale": "kept weights"},
    )
    # Each sum, and each column of a sum, has its own products.
    rescaled: float = rounding(
        "products with the factors of rescalings",
        "1",
        lambda at: at.rescalings * gamma(3, at.u),
        Line("a part of `rescale`"),
        kernel="rescalings in nine bits",
    )
    # The difference multiplies |s − m| ≤ |s| + |m|.
    stored_differences: float = stored(
        "a logit minus the maximum, stored in a narrow format",
        "|s| + |m|",
        "stored_differences",
        "bfloat16 differences",
    )
    saved_lse: float = stored(
        "a log-sum-exp, stored in a narrow format",
        "|lse|",
        "saved_lse",
        "bfloat16 log-sum-exp",
        because="all weights of a row share it",
    )
    sum: Sum = rounding(
        "the sums over keys",
        "p·|v|, |o|",
        lambda at: summed(at.a, at.summands + 1, at.a.accumulate),
        independent(lambda a: a.accumulate),
        loses=lambda a: step(a.elementwise, a),
        kernel="truncating accumulator",
    )
    accumulated: Sum = stored(
        "the sum over keys of weights times values, in a narrow accumulator",
        "p·|v|, |o|",
        "accumulate_values",
        "values accumulated in bfloat16",
        worst=_accumulated,
    )
    addition: float = rounding(
        "one addition of these sums, if few keys are large; ∞ if it may truncate",
        "p·|v|, |o|",
        _addition,
        Line("one of those of `sum`"),
        kernel="accumulator of nine bits",
    )
    # Four roundings: of a reciprocal, a product, a conversion and a merge.
    normalise: float = rounding(
        "the division by D, before or after the product with v",
        "1",
        lambda at: gamma(4, at.u),
        independent(lambda a: 4 * _u(a)),
        kernel="division in bfloat16",
    )
    # A part of the keys has the weight w and the output o', and Σ w|o'| ≤ Σ p|v|.
    stored_parts: float = stored(
        "the output of a part of split keys, stored in a narrow format before parts are merged",
        "p·|v|",
        "stored_parts",
        "bfloat16 parts",
        because="one rounding serves all keys of a part",
    )
    # A static factor σ that is no power of two costs a product before the rounding, and two after it.
    weights: float = stored(
        "a weight, stored in a narrow format before the product with v",
        "1",
        "weights",
        "bfloat16 weights",
        worst=_stored_weights,
    )
    # If elementwise results are coarser than sums, exponentials are rounded before they are added up,
    # and the sum is rounded after.
    summed_weights: float = rounding(
        "a weight, stored in a narrow format before the weights are added up",
        "1",
        lambda at: (
            (roundoff(at.a.weights) if at.a.stored_sum else 0.0) + (gamma(2, at.u) if at.a.accumulate < at.u else 0.0)
        ),
        Line("a part of `weights`"),
        kernel="sum of bfloat16 weights",
    )
    saved_weights: float = stored(
        "a weight, stored in a narrow format before the backward pass reads it",
        "1",
        "saved_weights",
        "saved bfloat16 weights",
    )

    # Relative errors.

    output: float = stored(
        "a result",
        "|o|, |dq|, …",
        "output",
        "bfloat16 output",
        worst=lambda at: at.a.output.unit_roundoff,
        because="one rounding comes last",
    )
    saved_output: float = stored(
        "the output from which delta is taken",
        "|o|",
        "saved_output",
        "saved bfloat16 output",
    )
    grad_dot: Sum = rounding(
        "products and additions of dP = g·vᵀ, where −δ may be the first summand, and of δ = rowsum(g·o)",
        "|g|·|v|, |dP|, |δ|",
        _grad_dot,
        independent(lambda a: a.grad_accumulate),
        kernel="truncating backward accumulator",
    )
    # dP is stored, and so is P·dP if P is stored too: a kernel that stores the result of each operator
    # computes P·dP − P·Σ P·dP.
    grad_weights: float = stored(
        "dP, stored in a narrow format",
        "|dP|",
        "grad_weights",
        "bfloat16 dP",
        worst=lambda at: roundoff(at.a.grad_weights) + min(roundoff(at.a.grad_weights), roundoff(at.a.saved_weights)),
    )
    delta_sum: Sum = rounding(
        "the sum over keys in δ = rowsum(p·dP)",
        "p·|dP|, |δ|",
        lambda at: summed(at.a, at.summands + 1, max(at.a.accumulate, at.a.grad_accumulate)),
        independent(lambda a: a.grad_accumulate),
        kernel="truncated delta of weights",
    )
    # 6 roundings: c, its reciprocal, the product of a score with it, the product of tanh with c, and
    # two to spare.  A kernel that stores the result of each operator stores three of them: the
    # quotient, tanh and the product.
    cap: float = rounding(
        "division by a cap, tanh, and the product with the cap",
        "|t|",
        lambda at: gamma(6, at.u) + tanh(at.a).relative / (1 - tanh(at.a).relative) + 3 * roundoff(at.a.scores),
        independent(lambda a: 6 * _u(a) + tanh(a).relative + 3 * unit(a.scores)),
        kernel="coarse tanh",
    )
    # The quotient and tanh lose η each by underflow where they are computed. Where they are stored they
    # may underflow again (`quotient_underflow`).
    cap_absolute: float = rounding(
        "tanh near zero, if it is computed by exponentials",
        "absolute, × c",
        lambda at: tanh(at.a).flush + 2 * at.eta,
        independent(lambda a: tanh(a).flush),
        kernel="tanh by exponentials",
    )
    # Three roundings: the conversions of both summands, and their sum. The sum is also stored.
    biased: float = rounding(
        "the sum of a score and a bias",
        "|t| + |bias|",
        lambda at: gamma(3, at.u) + roundoff(at.a.scores),
        independent(lambda a: 3 * _u(a) + unit(a.scores)),
        kernel="bfloat16 sum with a bias",
    )
    bias: float = stored(
        "a bias, read in a narrow format",
        "|bias|",
        "bias",
        "bfloat16 bias",
    )
    # Six roundings: four of the slope, read and times log₂e or over the scale; the distance; their product.
    alibi: float = rounding(
        "ALiBi's slope times the distance",
        "|A|",
        lambda at: gamma(6, at.u),
        independent(lambda a: 6 * _u(a)),
        kernel="nine bits from the slope to the weight",
    )
    tangent_dot: float = rounding(
        "products and additions of dS = dq·kᵀ + q·dkᵀ in the JVP",
        "|dq|·|k| + |q|·|dk|",
        _tangent_dot,
        NO_LINE_OF_THE_JVP,
        kernel="truncating accumulator",
    )
    # The statistical line also counts the 4 elementwise roundings, where it computes dS.
    grad_scores: float = stored(
        "dS, computed and stored in a narrow format",
        "|dS|",
        "grad_scores",
        "bfloat16 dS",
        worst=lambda at: gamma(4, at.u) + roundoff(at.a.grad_scores),
    )
    keys_sum: Sum = rounding(
        "the sum over keys in dq, its scaling, and partial gradients that are stored",
        "|dS|·|k|, |dq|",
        lambda at: summed_gradient(at.a, at.summands, of_keys=True).scaled(at.scale_error),
        independent(lambda a: a.grad_accumulate),
        kernel="truncating backward accumulator",
    )
    tangent_sum: Sum = rounding(
        "the sums over keys in the JVP, which may be one",
        "p·|t|·|v| + p·|dv|",
        _tangent_sum,
        NO_LINE_OF_THE_JVP,
        kernel="truncating backward accumulator",
    )
    queries_sum: Sum = rounding(
        "the sums over queries in dk and dv, their scaling, and partial gradients that are stored",
        "|dS|·|q|, |dk|, p·|g|, |dv|",
        lambda at: summed_gradient(at.a, at.sizes.n_q).scaled(at.scale_error),
        independent(lambda a: a.grad_accumulate),
        kernel="truncating backward accumulator",
    )

    # Absolute errors.

    # A scale multiplies the underflow of the products, and of a score that is stored before it is scaled.
    score_underflow: float = underflow(
        "scores near zero",
        "absolute",
        lambda at: (
            (at.sizes.d * abs(at.sizes.scale) + 2) * at.eta
            + at.lost["stored_scores"] * (1 + abs(at.sizes.scale))
            + at.lost["stored_differences"]
            + (at.sizes.d * abs(at.sizes.scale) + 2) * at.lost["dot"]
        ),
        "fixed-point scores",
    )
    quotient_underflow: float = underflow(
        "scores ÷ the cap and their tanh near zero, if they are stored",
        "absolute, × c",
        lambda at: 2 * at.lost["stored_scores"],
        "fixed-point quotient",
    )
    # Both summands and their sum, or the product with c, may underflow; one of them is stored.
    logit_underflow: float = underflow(
        "capped scores, and their sums with a bias, near zero",
        "absolute",
        lambda at: 3 * at.eta + at.lost["stored_scores"] + at.lost["bias"],
        "scores moved by a step",
    )
    alibi_underflow: float = underflow(
        "slopes of ALiBi near zero, and their products",
        "absolute, × |p − j|",
        lambda at: 2 * at.eta * at.factor,
        "slopes over the scale flushed to zero",
    )
    input_underflow: float = underflow(
        "operands of a product near zero, and scaled q and k",
        "absolute",
        lambda at: (at.lost["scale_on_inputs"] + at.operand_flush) * at.factor,
        "fixed-point scaled queries",
    )
    scaled_underflow: float = underflow(
        "gradients of scaled q and k near zero, before they are scaled",
        "absolute",
        lambda at: at.lost["scale_on_inputs"] * at.factor if scaled_inputs_are_narrow(at.a) else 0.0,
        "fixed-point gradients of scaled queries",
    )
    weight_underflow: float = underflow(
        "weights near zero, and flushed exponentials",
        "absolute",
        lambda at: at.lost["exp"] + 2 * at.eta + at.lost["weights"] + at.lost["saved_weights"] + at.operand_underflow,
        "fixed-point weights",
    )
    lse_underflow: float = underflow(
        "the saved log-sum-exp near zero", "absolute", lambda at: at.lost["saved_lse"], "fixed-point log-sum-exp"
    )
    sum_underflow: float = underflow(
        "products near zero in a sum, and partial gradients that are stored",
        "absolute",
        _sum_underflow,
        "products flushed to zero",
    )
    grad_underflow: float = underflow(
        "dP and dS near zero",
        "absolute",
        lambda at: 2 * at.eta + at.lost["grad_scores"] + at.lost["grad_weights"] + at.operand_underflow,
        "fixed-point dS",
    )
    output_underflow: float = underflow(
        "results near zero", "absolute", lambda at: at.lost["output"], "fixed-point output"
    )
    saved_underflow: float = underflow(
        "the saved output near zero", "absolute", lambda at: at.lost["saved_output"], "fixed-point saved output"
    )

    def __add__(self, other: "Terms") -> "Terms":
        """Return the terms of two computations of one value, whose errors may have opposite signs."""
        return Terms(*map(add, vars(self).values(), vars(other).values()))


EXPONENTS, TERMS = table(Exponents), table(Terms)
ROUNDINGS = EXPONENTS | TERMS
"""All rows of the table, by name."""


# -- The values of a column ------------------------------------------------------------------------


@lru_cache(maxsize=64)
def spreads(a: Arithmetic) -> dict[str, float]:
    """Return the size of one rounding of each row, for the statistical line."""
    return {name: row.line.each(a) for name, row in ROUNDINGS.items() if row.line.each is not None}


@lru_cache(maxsize=64)
def losses(a: Arithmetic) -> dict[str, float]:
    """Return for each row the size below which its rounding may make a number 0."""
    return {name: row.loses(a) for name, row in ROUNDINGS.items() if row.loses is not None}


@lru_cache(maxsize=256)  # numbers from numbers: a suite asks for the same sizes again and again
def terms(a: Arithmetic | None, sizes: Sizes) -> Terms:
    """Return the terms of a budget under an arithmetic: the kernel's plus the oracle's.

    For None, return the terms of a certified value: the oracle's alone.
    """
    if a is None:
        return terms_of(OWN, sizes._replace(biases=0))  # the oracle adds a bias to the finished sum
    return terms(None, sizes) + terms_of(a, sizes)


def terms_of(a: Arithmetic, sizes: Sizes) -> Terms:
    """Return the terms of attention that is computed in an arithmetic."""
    at = computation(a, sizes, losses(a))
    return Terms(*(row.worst(at) for row in TERMS.values()))
