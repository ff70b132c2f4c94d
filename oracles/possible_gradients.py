"""The sets of gradients of attention that a correct kernel may store, for inputs that leave it few
choices.

The numbers (1) to (6) are those of `oracles.possible_attention`.

**The gradient of v.** dv_j = Σ_i P_ij·g_i over the rows that count key j. A backward pass takes P
from the forward pass, or computes exp(s_ij − lse_i) again; lse is off by (1) for its own argument,
by the error of D, by that of the logarithm, and by that of its storage. So the error of P is

    π = ε_j + (1) + ε of the sum + κ + log·(1 + |lse|) + 2u_lse·|lse| + ε                          (7)

in place of the errors of (3). It may store P in the format of the weights, as in (2) with y = P. It
may store a partial sum in the format of the result after any row. For no more than two rows, each
order of the sum and each choice of what is stored gives one end of the set.                      (8)

**The gradients of q and k.** dP = g·vᵀ, δ = Σ g·o = Σ P·dP, T = dP − δ, dS = P·T, dq_i = scale·Σ_j
dS_ij·k_j and dk_j = scale·Σ_i dS_ij·q_i. Each of these numbers is a set [lower, upper] here. A
product or a sum of n terms widens it by γ_{n+2} times the sum of the sizes of its terms. A number
that a kernel may store is the hull of the set and of its ends after rounding: dP, o, dS, scale·dS,
scaled q and k, the gradient of a scaled q or k, and a partial sum. A key with the weight 0 has dS =
0, so it adds nothing. With P = 1/2, a T that is a power of two and a scale that is one, every stored
number is in its format, and the set stays narrow.                                                (9)
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from oracles.ball import Array, gamma
from oracles.error_analysis.computation import roundoff
from oracles.formats import Arithmetic
from oracles.possible_attention import Pairs, Problem, argument_of, finish_of, outputs_of, scores_of, sum_error
from oracles.possible_results import NUDGE, Possible, exactly, hull, kept, known, product, summed

__all__ = ["possible_gradients"]


class PossibleGradients(NamedTuple):
    """The sets of the gradients of q, k and v."""

    dq: Possible
    dk: Possible
    dv: Possible


def possible_gradients(problem: Problem, g: Array, a: Arithmetic) -> PossibleGradients:
    """Return the sets of gradients of attention that a kernel in this arithmetic may store.

    g is (n_q, d_v), the cotangent of the output. Rows with a cotangent of 0 add nothing. Keys that
    count in more than two other rows have the set of all numbers, and all keys have it if another
    row has more than two keys that count.
    """
    with np.errstate(all="ignore"):
        rows = np.flatnonzero(g.any(-1))
        visible = None if problem.visible is None else problem.visible[rows]
        some = problem._replace(q=problem.q[rows], visible=visible)
        pairs = Pairs.of(*scores_of(some, a), a)
        p = _weights_of_gradients(pairs, len(problem.k), a)
        ds = _grad_scores(pairs, p, some, g[rows], a)
        row, place = np.nonzero(pairs.p > 0)
        key, of_pair = pairs.keys[row, place], ds.at((row, place, None))
        operands = (_operand(x, a, problem.scale) for x in (problem.k, problem.q))
        of_keys, of_queries = (x.at(index) for x, index in zip(operands, (key, rows[row]), strict=True))
        dq = _added(rows[row], product(of_pair, of_keys), len(problem.q), a, problem.scale)
        dk = _added(key, product(of_pair, of_queries), len(problem.k), a, problem.scale)
        dv = _added(key, product(p.at((row, place, None)), exactly(g[rows[row]])), len(problem.k), a, 1.0)
        known_rows = np.ones((len(problem.q), 1), dtype=bool)
        known_rows[rows, 0] = pairs.known
        number = np.bincount(key, minlength=len(problem.k))
        known_keys = ((number <= 2) & pairs.known.all())[:, None]
        return PossibleGradients(
            known(dq, known_rows, a.output, a),
            known(dk, known_keys, a.output, a),
            known(dv, known_keys, a.output, a),
        )


def _weights_of_gradients(pairs: Pairs, n_k: int, a: Arithmetic) -> Possible:
    """Return the set of the weight P of each pair, with the errors of (7)."""
    lse = pairs.scores - np.log(pairs.p)
    lse = np.abs(np.where(np.isfinite(lse), lse, 0.0)).max(-1, keepdims=True)
    of_lse = a.log * (1 + lse) + 2 * roundoff(a.saved_lse) * lse + sum_error(pairs, a)
    argument = argument_of(a, pairs.scores, lse) + of_lse
    error = pairs.weights + np.expm1(argument + finish_of(a, n_k) + pairs.weights) + a.exp.relative
    p = Possible(pairs.p * np.maximum(1 - error, 0.0), pairs.p * (1 + error))
    return kept(kept(p, a.saved_weights, a), a.weights, a)


def _grad_scores(pairs: Pairs, p: Possible, problem: Problem, g: Array, a: Arithmetic) -> Possible:
    """Return the set of dS of each pair, with the errors of (9)."""
    u = _of_gradients(a)
    values = problem.v[pairs.keys]
    dp = kept(summed(exactly(g[:, None] * values), u), a.grad_weights, a)
    out = kept(outputs_of(pairs, values, a), a.saved_output, a)
    deltas = {"output": summed(product(exactly(g), out), u), "weights": summed(product(p, dp), u)}
    delta = deltas[a.delta] if a.delta else hull(*deltas.values())
    minus = Possible(-delta.upper[:, None], -delta.lower[:, None])
    t = Possible(*(np.stack(np.broadcast_arrays(*ends), -1) for ends in zip(dp, minus, strict=True)))
    of_product = product(p, summed(t, u))
    ds = summed(of_product.at((..., None)), u)
    return hull(kept(ds, a.grad_scores, a), kept(ds, a.grad_scores, a, problem.scale))


def _of_gradients(a: Arithmetic) -> float:
    """Return the error of one operation of a backward pass."""
    return max(a.grad_accumulate, a.elementwise.unit_roundoff) + 2 * a.product


def _operand(x: Array, a: Arithmetic, scale: float) -> Possible:
    """Return the set of q or k as products of gradients take them, divided by their factor."""
    root = float(np.sqrt(abs(scale)))
    return hull(kept(exactly(x), a.scale_on_inputs, a, scale), kept(exactly(x), a.scale_on_inputs, a, root))


def _added(index: NDArray[np.intp], terms: Possible, size: int, a: Arithmetic, scale: float) -> Possible:
    """Return the sets of (8) of sums times the scale. Each row of `terms` is added to the sum of its
    index, of `size` sums of up to two terms. A kernel may store a sum before its last factor.
    """
    total = Possible(*(np.zeros((size, terms.lower.shape[-1])) for _ in range(2)))
    earlier = np.tril(index[:, None] == index, -1).sum(1)
    for turn in range(2):
        chosen = earlier == turn
        place = index[chosen]
        first, second = (_partial(x, a, scale) for x in (total.at(place), terms.at(chosen)))
        sizes = sum(np.fmax(np.abs(x.lower), np.abs(x.upper)) for x in (first, second))
        error = (gamma(4, _of_gradients(a)) + NUDGE) * sizes
        total.lower[place], total.upper[place] = first.lower + second.lower - error, first.upper + second.upper + error
    stored_sum = _partial(total, a, scale)
    for factor in (1.0, float(np.sqrt(abs(scale))), scale):
        stored_sum = hull(stored_sum, kept(total, a.scale_on_inputs, a, factor))
    return summed(product(stored_sum, exactly(np.array(scale))).at((..., None)), _of_gradients(a))


def _partial(x: Possible, a: Arithmetic, scale: float) -> Possible:
    """Return the hull of a partial sum and of what a kernel stores of it, before it is scaled too if
    the arithmetic stores partial gradients.
    """
    stored_sum = kept(x, a.output, a, scale)
    for factor in (1.0, float(np.sqrt(abs(scale)))) if a.grad_block else ():
        stored_sum = hull(stored_sum, kept(x, a.output, a, factor))
    return stored_sum
