"""The terms of an attention budget: one number per kind of rounding error, for given sizes.

Exact attention has e_j = exp(s_j), D = Σ e_j, o = Σ e_j v_j / D, and any of the covered kernels computes perturbed
weights e_j·exp(±τ_j).  Relative errors are kept as exponents: a product of factors (1 + δ)^±1 with |δ| ≤ u lies in
exp(±γ_n(u)) for n factors, in every order (Higham, Accuracy and Stability, Lemma 3.1), exponents of successive
roundings add, and the exponent between two computed values is the sum of their exponents to the exact one.  Absolute
errors (underflow, flushing) stay apart.

The oracle is itself such a kernel: blocked, online, in float64.  So a certificate takes `terms(OWN, …)`, and a budget
`terms(arithmetic, …) + terms(OWN, …)`.  Adding the terms rather than the bounds is allowed because each bound is a
power series in the terms with non-negative coefficients and none of degree 0: f(x + y) ≥ f(x) + f(y).
"""

from dataclasses import dataclass, fields, replace

from oracles.ball import ELEMENTARY, LARGEST, ROUNDOFF, UNDERFLOW, gamma
from oracles.formats import BINARY64, FLOAT64, Arithmetic, Elementary, Format

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
)


@dataclass(frozen=True)
class Terms:
    """What each rounding contributes.  R = |scale|·|q||k|ᵀ, s scores, m row maximum, lse = m + log D, p weights, o
    output.

    Exponents of a weight:
    dot              × R              products, additions and scaling of a score
    product          × R, p|v|, …     operands rounded before a matrix product (TF32), both of them
    scale_on_inputs  × R, |dS||k|     scaled q and scaled k stored in a narrow format
    stored_scores    × |s|            a score stored in a narrow format
    slope            × |s|, |m|, |lse|  arguments of exponentials
    saved_lse        × |lse|          a log-sum-exp stored in a narrow format
    exp              × 1              the exponential itself
    rescale          × 1              rescalings of an online softmax, or merges of split keys
    sum              × 1              the sums over keys
    normalise        × 1              division by D, before or after the product with v
    weights          × 1              weights stored in a narrow format
    Relative errors:
    output           × |o|, |dq|, …   rounding of a result
    saved_output     × |o|            the output from which delta is taken
    grad_dot         × |g||v|ᵀ        products and additions of dP = g·vᵀ, and of delta = rowsum(g·o)
    delta_sum        × p|dP|          the sum over keys in delta, where it is coarser than that of the output
    tangent_dot      × |dq||k| + |q||dk|  the same of dS = dq·kᵀ + q·dkᵀ
    grad_scores      × |dS|           roundings of dS, and its storage in a narrow format
    keys_sum         × |dS||k|        the sum over keys in dq, its scaling, and partial gradients stored in between
    queries_sum      × |dS||q|, p|g|  the sums over queries in dk and dv
    Absolute errors:
    score_underflow, input_underflow, weight_underflow, sum_underflow, grad_underflow, output_underflow, saved_underflow
    """

    dot: float
    product: float
    scale_on_inputs: float
    stored_scores: float
    slope: float
    saved_lse: float
    exp: float
    rescale: float
    sum: float
    normalise: float
    weights: float
    output: float
    saved_output: float
    grad_dot: float
    delta_sum: float
    tangent_dot: float
    grad_scores: float
    keys_sum: float
    queries_sum: float
    score_underflow: float
    input_underflow: float
    weight_underflow: float
    sum_underflow: float
    grad_underflow: float
    output_underflow: float
    saved_underflow: float

    def __add__(self, other: "Terms") -> "Terms":
        """The terms of two computations of one value, as far apart as they can be."""
        return Terms(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(Terms)))


@dataclass(frozen=True)
class Ranges:
    """The largest number that each kind of intermediate result can take.

    work          scores, products, sums and their accumulators
    saved_output  the output from which delta is taken
    grad_scores   dS as it is stored
    gradients     partial sums of gradients
    """

    work: float
    saved_output: float
    grad_scores: float
    gradients: float


def ranges(a: Arithmetic | None) -> Ranges:
    """The ranges of an arithmetic; those of float64 for the oracle's own."""
    if a is None:
        return Ranges(LARGEST, LARGEST, LARGEST, LARGEST)

    def most(*stored: Format | None) -> float:
        return min(x.largest for x in (a.elementwise, *stored) if x is not None)

    return Ranges(
        work=most(a.scores, a.scale_on_inputs),
        saved_output=most(a.saved_output),
        grad_scores=most(a.grad_scores),
        gradients=most(a.output if a.grad_block is not None else None),
    )


def terms(a: Arithmetic, n_q: int, n_k: int, d: int, d_v: int, scale: float) -> Terms:
    """The terms of attention under an arithmetic.

    dot        d products and additions in the accumulator; 5 roundings more: scale·s, the scale's own two, and two to
               spare.  The kernel's score is off by all that is relative to R, on which its slope acts once more; R and
               |s| are known to (1 + γ_d(2⁻⁵³)) only.
    slope      At most 6u of each of |s|, |m| and |lse|, in every listed form.  An argument passes through the product
               with log₂e (one rounding for s, one for m or lse, one for the constant), the subtraction (1), and the
               logarithm, sum and change of base in lse (3, as |log D| ≤ |m| + |lse|), the logarithm itself being off by `log`
               more; rescalings have arguments
               m_old − m_new of one sign, which telescope to m − s_j (2).
    rescale    N = ⌈n_k / rescale_block⌉ − 1 factors exp(m_old − m_new), each with one exponential and 3 roundings: the
               keys of a block are rescaled at most once per other block, whether online or in a merge.
    normalise  A reciprocal, a product, a conversion and a merge.
    underflow  A product is off by at most η when it underflows, a sum never is (Higham, Problem 2.19); with flushing
               everything is, operands included, by the smallest normal number.  An operand of a product that keeps
               fewer bits (TF32) is, where it is subnormal, off by `product` of the smallest normal number; doubled,
               that covers both operands at once.  Unnormalised weights reach 1 at the maximum, so D ≥ 1 and
               absolute errors do not grow by the division.
    """
    work = a.elementwise
    u, eta = work.unit_roundoff, _step(work, a)
    rescalings = 0 if a.rescale_block is None else -(-n_k // a.rescale_block) - 1
    product = a.product * (2 + a.product)
    inputs = _roundoff(a.scale_on_inputs) * (2 + _roundoff(a.scale_on_inputs))
    operand = a.product * (2 + a.product) * work.smallest_normal
    flushed = operand + (work.smallest_normal if a.flush_to_zero else 0.0)
    slope, chain = 6 * u + a.exp.per_unit + a.log, _chain(a, d, a.accumulate)
    stored, known = _roundoff(a.scores), gamma(d, ROUNDOFF)
    log_exp = a.exp.relative / (1 - a.exp.relative)
    return Terms(
        dot=chain + gamma(5, u) + (slope + known) * (chain + product + inputs + stored + known),
        product=product,
        scale_on_inputs=inputs,
        stored_scores=stored,
        slope=slope,
        saved_lse=_roundoff(a.saved_lse),
        exp=log_exp,
        rescale=rescalings * (log_exp + gamma(3, u)),
        sum=_chain(a, n_k + 1, a.accumulate),
        normalise=gamma(4, u),
        weights=_roundoff(a.weights),
        output=a.output.unit_roundoff,
        saved_output=_roundoff(a.saved_output),
        grad_dot=_chain(a, d_v + 1, a.grad_accumulate) + gamma(1, u),
        delta_sum=_chain(a, n_k + 1, a.grad_accumulate) if a.grad_accumulate > a.accumulate else 0.0,
        tangent_dot=_chain(a, 2 * d + 1, a.accumulate) + gamma(6, u),
        grad_scores=gamma(4, u) + _roundoff(a.grad_scores),
        keys_sum=_chain(a, n_k + 1, a.grad_accumulate) + gamma(4, u) + gamma(_partial(a, n_k), a.output.unit_roundoff),
        queries_sum=_chain(a, n_q + 1, a.grad_accumulate) + gamma(4, u) + gamma(_partial(a, n_q), a.output.unit_roundoff),
        score_underflow=(d * abs(scale) + 2) * eta + _step(a.scores, a),
        input_underflow=(_step(a.scale_on_inputs, a) + flushed) * max(1.0, abs(scale)),
        weight_underflow=max(a.exp.flush, eta) + 2 * eta + _step(a.weights, a) + operand,
        sum_underflow=(n_k + n_q + d_v + rescalings + 4) * eta + _partial(a, max(n_q, n_k)) * _step(a.output, a) + n_q * operand,
        grad_underflow=2 * eta + _step(a.grad_scores, a) + operand,
        output_underflow=_step(a.output, a),
        saved_underflow=_step(a.saved_output, a),
    )


def _chain(a: Arithmetic, n: int, roundoff: float) -> float:
    """γ of a sum of n products: n roundings, or those of its longest chain of additions and one for the product."""
    return gamma(n if a.sum_depth is None else min(n, a.sum_depth + 1), roundoff)


def _partial(a: Arithmetic, n: int) -> int:
    """How often a gradient summed over n rows is rounded to the output's format before its last rounding."""
    return 0 if a.grad_block is None else -(-n // a.grad_block) - 1


def _roundoff(stored: Format | None) -> float:
    """The exponent of one rounding to a format, if there is one."""
    return gamma(1, stored.unit_roundoff) if stored is not None else 0.0


def _step(stored: Format | None, a: Arithmetic) -> float:
    """The absolute error of one rounding to a format near zero, if there is one."""
    if stored is None:
        return 0.0
    return stored.smallest_normal if a.flush_to_zero else stored.smallest_subnormal
