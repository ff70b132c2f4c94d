"""The terms of an attention budget: one number per kind of rounding error, for given sizes.

Exact attention has e_j = exp(s_j), D = Σ e_j, o = Σ e_j v_j / D, and any of the covered kernels
computes perturbed weights e_j·exp(±τ_j).  Relative errors are kept as exponents: a product of
factors (1 + δ)^±1 with |δ| ≤ u lies in exp(±γ_n(u)) for n factors, in every order (Higham, Accuracy
and Stability, Lemma 3.1), exponents of successive roundings add, and the exponent between two
computed values is the sum of their exponents to the exact one.  Absolute errors (underflow,
flushing) stay apart.

The oracle is itself such a kernel: blocked, online, in float64.  So a certificate takes
`terms_of(OWN, …)`, and a budget `terms_of(arithmetic, …) + terms_of(OWN, …)`.  Adding the terms
rather than the bounds is allowed because each bound is a power series in the terms with
non-negative coefficients and none of degree 0: f(x + y) ≥ f(x) + f(y).
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from math import inf, log
from operator import add
from typing import Any

from oracles.ball import ELEMENTARY, LARGEST, ROUNDOFF, UNDERFLOW, gamma
from oracles.formats import BINARY32, BINARY64, FLOAT64, Arithmetic, Elementary, Format

KEY_TILE = 512
"""Keys the oracle handles at a time: 256 rows of such scores are 1 MiB, within a second-level cache."""

OWN = replace(
    FLOAT64,
    name="the oracle's own",
    elementwise=replace(BINARY64, smallest_subnormal=UNDERFLOW),
    output=replace(BINARY64, smallest_subnormal=UNDERFLOW),
    exp=Elementary(ELEMENTARY, 0.0, UNDERFLOW),
    log=ELEMENTARY,
    saved_output=None,
    scale_on_inputs=None,
    rescale_block=KEY_TILE,
    rescale_slack=0.0,
    shared_weights=True,
    delta="output",
)


@dataclass(frozen=True)
class Sum:
    """How far a computed sum of products Σx may be off: by at most `terms`·Σ|x| + `result`·|Σx|."""

    terms: float
    result: float

    def __add__(self, other: "Sum") -> "Sum":
        return Sum(self.terms + other.terms, self.result + other.result)

    def of_rounded(self, operands: float) -> "Sum":
        """The same where each term is off by so much before: Σ|x̃| ≤ (1 + operands)·Σ|x|, and |Σx̃|
        ≤ |Σx| + operands·Σ|x|.
        """
        return Sum(self.terms * (1 + operands) + self.result * operands, self.result)

    def scaled(self, off: float, operands: float = 0.0) -> "Sum":
        """The same where the sum, of such terms, is multiplied by a number that is itself off by so
        much, relatively.
        """
        return Sum(self.terms * (1 + off) + off * (1 + operands), self.result * (1 + off))

    @property
    def positive(self) -> float:
        """The relative error of a sum whose terms have one sign, and a bound of the error in units of Σ|x| of any."""
        return self.terms + self.result


def summed(a: Arithmetic, n: int, roundoff: float) -> Sum:
    """The error of a sum of n products in the orders that an arithmetic permits.

    Products are off by π = γ₁ each.  An addition is off by u of its result, which is the sum of a
    subset of the terms and of errors made before.  Subset sums are at most M = (Σ|x| + |Σx|)/2, the
    sum of the positive or of the negative terms; so the errors E of all n − 1 additions, in any
    order, obey E ≤ (n − 1)·u·(M + E), which is E ≤ γ_{n−1}·M. (An adder of many operands, which
    cuts them off at the largest one's last bit, is off by as much for each: every operand is a
    subset sum.)  Where no term passes through more than D additions, E ≤ γ_D·Σ|x|.  In blocks of B
    terms both are combined: B − 1 additions on the way of a term through its block, then ⌈n/B⌉ − 1
    of blocks.  Of what is proved the least is taken, where |Σx| is half of Σ|x|.
    """
    product, any_order = gamma(1, roundoff), gamma(max(n - 1, 0), roundoff)
    bounds = [Sum(any_order / 2, any_order / 2)]
    if a.sum_depth is not None:
        bounds.append(Sum(gamma(a.sum_depth, roundoff), 0.0))
    if a.sum_block is not None:
        inside, across = gamma(a.sum_block - 1, roundoff), gamma(-(-n // a.sum_block) - 1, roundoff) if n else 0.0
        bounds.append(Sum(inside + across * (0.5 + inside), across / 2))
    least = min(bounds, key=lambda bound: bound.terms + bound.result / 2)
    return Sum(product + least.terms * (1 + product), least.result * (1 + product))


@dataclass(frozen=True)
class Exponents:
    """What computing a weight from its score costs, as exponents.

    slope      × |s|    the argument of the exponential
    maximum    × |m|    … the part of it that all scores of a row share
    lse        × |lse|  … where that is the log-sum-exp
    exp        × 1      the exponential itself, and what of its argument is no score
    rescale    × 1      those of all rescalings of an online softmax, or merges of split keys
    rescaling  × 1      that of one of them
    """

    slope: float
    maximum: float
    lse: float
    exp: float
    rescale: float
    rescaling: float

    def __add__(self, other: "Exponents") -> "Exponents":
        return Exponents(*map(add, vars(self).values(), vars(other).values()))

    def of_row(self, m: Any, lse: Any) -> Any:
        """What all weights of a row have, given |m| and |lse|; the number 0 where there is nothing."""
        if not (self.maximum or self.lse or self.exp or self.rescale):
            return 0.0
        return self.maximum * m + self.lse * lse + self.exp + self.rescale


NOTHING = Exponents(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True)
class Terms:
    """What each rounding contributes.  R = |scale|·|q||k|ᵀ, s scores, m row maximum, lse = m + log
    D, p weights, o output; a `Sum` says how much of Σ|x| and how much of |Σx|.

    Exponents of a weight:
    dot              × (R, |s|)       products, additions and scaling of a score; R has |bias|, where that may be the first summand
    product          × R, p|v|, …     operands rounded before a matrix product (TF32), both of them
    scale_on_inputs  × R, |dS||k|     scaled q and scaled k stored in a narrow format
    stored_scores    × |s|            a score stored in a narrow format
    shared           `Exponents`      what the sum of the weights and their product with v have in common
    separate         `Exponents`      what each of the two has of its own
    anew             `Exponents`      of a weight that is computed anew for the backward pass, or kept through all rescalings
    rescaled         × 1              products with the factors of rescalings, in each sum, and in each column of one, of its own
    saved_lse        × |lse|          a log-sum-exp stored in a narrow format
    sum              × (p|v|, |o|)    the sums over keys; `addition` is one of their additions, ∞ where it may truncate
    normalise        × 1              division by D, before or after the product with v
    weights          × 1              weights stored in a narrow format, before the product with v
    summed_weights   × 1              … before they are added up
    saved_weights    × 1              … before the backward pass reads them
    Relative errors:
    output           × |o|, |dq|, …   rounding of a result
    saved_output     × |o|            the output from which delta is taken
    grad_dot         × (|g||v|ᵀ, |dP|), |δ|  products and additions of dP = g·vᵀ, which may begin with −δ, and of δ = rowsum(g·o)
    grad_weights     × |dP|           a dP stored in a narrow format
    delta_sum        × (p|dP|, |δ|)   the sum over keys in delta = rowsum(p·dP)
    cap              × |t|            division by a cap, tanh and the product; `cap_absolute` is tanh's absolute error, × c, and
                                      `quotient_underflow` that of what is stored before the product
    biased           × |t| + |bias|   a bias added to a score
    tangent_dot      × |dq||k| + |q||dk|  products and additions of dS = dq·kᵀ + q·dkᵀ
    grad_scores      × |dS|           roundings of dS, and its storage in a narrow format
    keys_sum         × (|dS||k|, |dq|)  the sum over keys in dq, its scaling, and partial gradients stored in between
    tangent_sum      × p|t||v| + p|dv|  the sums over keys in dout, which may be one
    queries_sum      × (|dS||q|, |dk|), (p|g|, |dv|)  the sums over queries in dk and dv
    Absolute errors:
    score_underflow, input_underflow, weight_underflow, sum_underflow, grad_underflow,
    output_underflow, saved_underflow, logit_underflow of a capped score, and of its sum with a
    bias, and scaled_underflow of the gradient of a scaled q or k
    """

    dot: Sum
    product: float
    scale_on_inputs: float
    stored_scores: float
    shared: Exponents
    separate: Exponents
    anew: Exponents
    rescaled: float
    saved_lse: float
    sum: Sum
    addition: float
    normalise: float
    weights: float
    summed_weights: float
    saved_weights: float
    output: float
    saved_output: float
    grad_dot: Sum
    grad_weights: float
    delta_sum: Sum
    cap: float
    cap_absolute: float
    quotient_underflow: float
    biased: float
    tangent_dot: float
    grad_scores: float
    keys_sum: Sum
    tangent_sum: Sum
    queries_sum: Sum
    score_underflow: float
    logit_underflow: float
    input_underflow: float
    weight_underflow: float
    sum_underflow: float
    grad_underflow: float
    output_underflow: float
    saved_underflow: float
    scaled_underflow: float

    def __add__(self, other: "Terms") -> "Terms":
        """The terms of two computations of one value, as far apart as they can be."""
        return Terms(*map(add, vars(self).values(), vars(other).values()))


@dataclass(frozen=True)
class Ranges:
    """The largest number that each kind of intermediate result can take.

    work          scores, scaled queries and keys, and what is computed from them
    products      products of queries and keys that are not scaled yet, as their accumulators hold them
    sums          Σe and Σ e·v, with weights of up to 1, or more while the reference of an online softmax is too low
    by_parts      whether they may be formed tile by tile, each with its own maximum as the reference, where all e may be 1
    saved_output  the output from which delta is taken
    grad_weights  dP as it is stored
    grad_scores   dS as it is stored, scaled or not
    gradients     partial sums of gradients
    output        the gradient of a query head alone, where those of several are added up
    scaled        the gradient of a scaled q or k, where these are stored in fewer bits than their products
    slope         c·dU, from which the gradient through a cap is taken, before it is divided by c again
    cap           the smallest and the largest cap that is a normal number, as is its reciprocal
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


@lru_cache(maxsize=64)
def ranges(a: Arithmetic | None) -> Ranges:
    """The ranges of an arithmetic; those of float64 for the oracle's own."""
    if a is None:
        return Ranges(
            LARGEST,
            LARGEST,
            LARGEST,
            LARGEST,
            LARGEST,
            LARGEST,
            LARGEST,
            LARGEST,
            inf,
            LARGEST,
            (0.0, LARGEST),
            by_parts=False,
        )

    def most(*stored: Format | None) -> float:
        return min(x.largest for x in (a.elementwise, *stored) if x is not None)

    normal = a.elementwise.smallest_normal
    return Ranges(
        work=most(a.scores, a.scale_on_inputs),
        products=most(),
        sums=most() * 2.0 ** -slack(a),
        saved_output=most(a.saved_output),
        grad_weights=most(a.grad_weights),
        grad_scores=most(a.grad_scores),
        gradients=most(a.output if a.grad_block is not None else None),
        output=most(a.output),
        scaled=most(a.scale_on_inputs) if _is_narrow(a) else inf,
        slope=most(a.scores),
        cap=(max(normal, 1 / most()), min(most(), 1 / normal)),
        by_parts=a.rescale_block is not None,
    )


@lru_cache(maxsize=256)  # numbers from numbers: a suite asks for the same sizes again and again
def terms(
    a: Arithmetic | None, n_q: int, n_k: int, d: int, d_v: int, scale: float, sink: bool = False, bias: bool = False
) -> Terms:
    """The terms of a budget under an arithmetic, those of the oracle itself included, which alone
    are those of a certificate (None).
    """
    sizes = (n_q, n_k, d, d_v, scale, sink)
    return terms_of(OWN, *sizes) if a is None else terms(None, *sizes) + terms_of(a, *sizes, bias)


def terms_of(
    a: Arithmetic, n_q: int, n_k: int, d: int, d_v: int, scale: float, sink: bool = False, bias: bool = False
) -> Terms:
    """The terms of attention computed in an arithmetic.

    operands   Coarser operands of products are off before these are added up: each sum is one of such terms.
    dot        d products and additions in the accumulator; then 5 roundings of the score: scale·s, the scale's own two,
               and two to spare.  The kernel's score is off by all that, on which these roundings,
               its storage and its slope act once more (`again`); R and |s| are known to (1 +
               γ_d(2⁻⁵³)) only.  A subnormal scale is off by more, `off`, which multiplies what was
               off before, and is multiplied by what comes after, here and in gradients.
    bias       One summand more, where nothing comes between a product and it: it may be the first, and is one of R then.
    slope      At most 6u of each of |s|, |m| and |lse|, in every listed form.  An argument passes through the product
               with log₂e (one rounding for s, one for m or lse, one for the constant), the
               subtraction (1), and the logarithm, sum and change of base in lse (3, as |log D| ≤
               |m| + |lse|), the logarithm itself being off by `log` more; rescalings have arguments
               m_old − m_new of one sign, which telescope to m − s_j (2).  Where both sums take one
               exponential and nothing is rescaled, there is no lse, and the rounding of m is common
               to the row and cancels: 4u of |s| (product, constant, subtraction) and 2u of |m| are
               left.
    exp        A reference r that is rescaled lazily is at most `slack` below m, so |r| ≤ |m| + slack, and the logarithm of
               Σexp(s − r) is larger by as much: the slopes of |m| apply to the slack as well.
    rescale    N = ⌈n_k / rescale_block⌉ − 1 factors exp(m_old − m_new), each with one exponential and 3 roundings: the
               keys of a block are rescaled at most once per other block, whether online or in a
               merge.
    sink       One summand more than keys, and in a block of its own: it may come first or last, and all keys are rescaled
               once more where sums are.
    shared     A kernel of one pass takes one exponential for both sums, and the exponential of a rescaling for both; the
               products with it stay separate (`rescaled`).  A kernel of two passes may compute all
               of them twice.
    normalise  A reciprocal, a product, a conversion and a merge.
    summed     Where what is elementwise is coarser than sums, exponentials are rounded to it before they are added up, and the sum after.
    addition   Accumulators of the format in between, or as fine as that and binary32, round to nearest; others may truncate.
    grad_weights  dP as it is stored; and P·dP, where both are: operator by operator a kernel takes P·dP − P·Σ P·dP.
    cap        c, its reciprocal, the product of a score with it and that of tanh with c are rounded, and two are to spare: 6u, and what
               tanh is off by.  Where scores are stored operator by operator, so are the quotient,
               tanh and the product: three times. The quotient and tanh underflow where they are
               made, by η each, which `cap_absolute` has, and again where they are stored.
    tangents   Sums of p·t·v, of p·dv and −t̄·o may be one, of 2·n_k + 1 terms; the oracle's own are two.
    scores     A score that is stored is stored before it is scaled too, unless what is scaled is stored instead: it is rounded twice, for
               the scale may be one in base 2, and what underflows at first is multiplied by it.
    biased     Conversions of both summands, and their sum, which is stored; each may underflow, or be flushed, as the product with c may.
    underflow  A product is off by at most η when it underflows, a sum never is (Higham, Problem 2.19); with flushing
               everything is, operands included, by the smallest normal number.  An operand of a
               product that keeps fewer bits (TF32) is, where it is subnormal, off by `product` of
               the smallest normal number; doubled, that covers both operands at once.  Unnormalised
               weights reach 1 at the maximum, so D ≥ 1 and absolute errors do not grow by the
               division.  While a reference is too low, weights are up to 2 to the `slack`, and what
               they are rescaled by may be flushed.
    """
    work = a.elementwise
    u, eta = work.unit_roundoff, step(work, a)
    rescaled, n_k = rescalings(a, n_k) + (sink and a.rescale_block is not None), n_k + sink
    product = a.product * (2 + a.product)
    inputs = _roundoff(a.scale_on_inputs) * (2 + _roundoff(a.scale_on_inputs))
    operand = a.product * (2 + a.product) * work.smallest_normal
    flushed = operand + (work.smallest_normal if a.flush_to_zero else 0.0)
    operands = product + inputs + product * inputs
    slope, chain, off = (
        6 * u + a.exp.per_unit,
        summed(a, d + bias, a.accumulate).of_rounded(operands),
        _of_scale(scale, a),
    )
    stored, known, scaled = _roundoff(a.scores), gamma(d, ROUNDOFF), gamma(5, u)
    stored += max(stored - inputs, 0.0)
    after = slope + known + scaled + stored
    again = after * (chain.positive + product + inputs + scaled + stored + known + off)
    exp = a.exp.relative / (1 - a.exp.relative)
    lazily = (slope + a.log) * log(2) * slack(a)
    exponential = Exponents(slope, slope + a.log, slope + a.log, exp + lazily, rescaled * exp, exp)
    one_pass = (
        exponential if a.rescale_block else replace(exponential, slope=slope - 2 * u, maximum=slope - 4 * u, lse=0.0)
    )
    tangents = (summed(a, 2 * d + 1 + bias, a.accumulate) + Sum(0.0, gamma(6, u))).of_rounded(operands)
    weights, tanh = _roundoff(a.weights), a.exp if a.tanh is None else a.tanh
    return Terms(
        dot=Sum(chain.terms + again + product * inputs, chain.result + scaled).scaled(off, operands),
        product=product,
        scale_on_inputs=inputs,
        stored_scores=stored,
        shared=one_pass if a.shared_weights else NOTHING,
        separate=NOTHING if a.shared_weights else exponential,
        anew=exponential,
        rescaled=rescaled * gamma(3, u),
        saved_lse=_roundoff(a.saved_lse),
        sum=summed(a, n_k + 1, a.accumulate),
        addition=a.accumulate if a.accumulate == u or a.accumulate <= min(u, BINARY32.unit_roundoff) else float("inf"),
        normalise=gamma(4, u),
        weights=weights,
        summed_weights=(weights if a.stored_sum else 0.0) + (gamma(2, u) if a.accumulate < u else 0.0),
        saved_weights=_roundoff(a.saved_weights),
        output=a.output.unit_roundoff,
        saved_output=_roundoff(a.saved_output),
        grad_dot=(summed(a, d_v + 1, a.grad_accumulate) + Sum(0.0, gamma(1, u))).of_rounded(product),
        grad_weights=_roundoff(a.grad_weights) + min(_roundoff(a.grad_weights), _roundoff(a.saved_weights)),
        delta_sum=summed(a, n_k + 1, max(a.accumulate, a.grad_accumulate)),
        cap=gamma(6, u) + tanh.relative / (1 - tanh.relative) + 3 * _roundoff(a.scores),
        cap_absolute=tanh.flush + 2 * eta,
        quotient_underflow=2 * step(a.scores, a),
        biased=gamma(3, u) + _roundoff(a.scores),
        tangent_dot=tangents.scaled(off, operands).positive + product * inputs,
        grad_scores=gamma(4, u) + _roundoff(a.grad_scores),
        keys_sum=_gradient(a, n_k).scaled(off),
        tangent_sum=_gradient(a, n_k if a is OWN else 2 * n_k + 1).scaled(off),
        queries_sum=_gradient(a, n_q).scaled(off),
        score_underflow=(d * abs(scale) + 2) * eta + step(a.scores, a) * (1 + abs(scale)),
        logit_underflow=3 * eta + step(a.scores, a),
        input_underflow=(step(a.scale_on_inputs, a) + flushed) * max(1.0, abs(scale)),
        weight_underflow=max(a.exp.flush, eta) * 2.0 ** slack(a)
        + 2 * eta
        + step(a.weights, a)
        + step(a.saved_weights, a)
        + operand,
        sum_underflow=(n_k + n_q + d_v + rescaled + 4) * eta
        + partial_roundings(a, max(n_q, n_k)) * step(a.output, a)
        + n_q * operand,
        grad_underflow=2 * eta + step(a.grad_scores, a) + step(a.grad_weights, a) + operand,
        output_underflow=step(a.output, a),
        saved_underflow=step(a.saved_output, a),
        scaled_underflow=step(a.scale_on_inputs, a) * max(1.0, abs(scale)) if _is_narrow(a) else 0.0,
    )


def _is_narrow(a: Arithmetic) -> bool:
    """Whether scaled q and k are stored in fewer bits than they are computed in; and so are their
    gradients, before they are scaled.
    """
    stored, work = a.scale_on_inputs, a.elementwise
    return stored is not None and (
        stored.unit_roundoff > work.unit_roundoff or stored.smallest_subnormal > work.smallest_subnormal
    )


def _gradient(a: Arithmetic, n: int) -> Sum:
    """The sum over n rows in a gradient, its scaling, and the roundings of partial sums to the
    output's format.

    A partial sum that is stored is a subset sum: all of them together are off by γ_N of M (see
    `summed`).
    """
    stored = gamma(partial_roundings(a, n), a.output.unit_roundoff)
    found = summed(a, n + 1, a.grad_accumulate)
    again = Sum(stored * (0.5 + found.terms), stored * (0.5 + found.result))
    return found + again + Sum(0.0, gamma(4, a.elementwise.unit_roundoff) * (1 + found.positive + again.positive))


def _of_scale(scale: float, a: Arithmetic) -> float:
    """The relative error of a scale that is rounded to a subnormal number, or flushed to 0; ∞ where
    it, or it times log₂e, overflows.

    It is given in float64, so in a format as fine as that it is exact, unless it is flushed.
    """
    work, size = a.elementwise, abs(scale)
    if 1.5 * size > work.largest:
        return float("inf")
    if a.flush_to_zero and 0 < size < work.smallest_normal:
        return 1.0  # what rounds up to the smallest normal number is off by less
    exact = work.unit_roundoff <= ROUNDOFF or size >= work.smallest_normal or size % work.smallest_subnormal == 0
    return 0.0 if exact else work.smallest_subnormal / size


def rescalings(a: Arithmetic, n_k: int) -> int:
    """How often what belongs to a key is rescaled, at most: once for each other block of keys."""
    return 0 if a.rescale_block is None else max(-(-n_k // a.rescale_block) - 1, 0)


def slack(a: Arithmetic) -> float:
    """How far, in base 2, the reference of a row may be below its maximum while weights are summed."""
    return 0.0 if a.rescale_block is None else a.rescale_slack


def partial_roundings(a: Arithmetic, n: int) -> int:
    """How often a gradient summed over n rows is rounded to the output's format before its last rounding."""
    return 0 if a.grad_block is None else max(-(-n // a.grad_block) - 1, 0)


def _roundoff(stored: Format | None) -> float:
    """The exponent of one rounding to a format, if there is one."""
    return gamma(1, stored.unit_roundoff) if stored is not None else 0.0


def step(stored: Format | None, a: Arithmetic) -> float:
    """The absolute error of one rounding to a format near zero, if there is one."""
    if stored is None:
        return 0.0
    return stored.smallest_normal if a.flush_to_zero else stored.smallest_subnormal
