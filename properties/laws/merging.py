"""Laws of parts of the keys: what is merged from them by their log-sum-exps, and merging by itself."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from oracles.ball import Ball, exp
from properties.contract.implementation import Implementation
from properties.contract.subject import Subject
from properties.laws.algebra import kept
from properties.laws.law import Laws
from properties.laws.maps import Plus
from properties.laws.reading import blocked_are_gone, by_name, natural, start, unmergeable, without_sums
from properties.laws.rows import Rows, causal_or_windowed
from properties.laws.squares import Case, Term
from properties.strategies.choices import Choices

law = Laws()
row = Rows(law)
ATTENTION, MERGE = "attention", "merge_attention"


def _weight(part: Ball, whole: Ball, subject: Subject) -> Ball:
    """e^(part − whole), 0 where the part, or the whole, reads nothing."""
    found = exp(natural(part - whole, subject))
    return kept(found, np.isfinite(part.mid) & np.isfinite(whole.mid))


@law(
    ATTENTION,
    domains=("everyday", "sinks", "decoding", "near the cap"),
    exempts=lambda i: without_sums(i) or unmergeable(i),
)
def parts_of_the_keys_merge_to_the_whole(subject: Subject, *case: Any, choose: Choices) -> bool:
    """For every cut of the keys: the outputs of both parts, weighted by e to their log-sum-exps
    less that of the whole, add up to the output of the whole, and their weights to 1. A sink
    belongs to the first part; what stands in the second part stands so much later."""
    x, i = by_name(subject, case), subject.implementation
    n_k = x["k"].shape[-2]
    cut = choose.cut(n_k) if n_k > 1 else 0
    if not cut or not blocked_are_gone(i) or (causal_or_windowed(x) and i.lacks("offset")):
        return False
    parts: list[tuple[Any, ...]] = []
    for keys, sink in ((slice(0, cut), x["sink"]), (slice(cut, None), None)):
        of_keys = dict(x, k=x["k"][..., keys, :], v=x["v"][..., keys, :], sink=sink)
        of_keys |= {
            p: y[..., keys] if y is not None and y.shape[-1] == n_k else y
            for p, y in ((p, x[p]) for p in ("mask", "bias"))
        }
        if causal_or_windowed(x):
            of_keys["offset"] = start(x, i) - (keys.start or 0)
        parts.append(tuple(of_keys.values()))
    if not all(subject.takes(*part) for part in parts):
        return False
    out, lse = subject(*case)
    found, weights = [], []
    for part in parts:
        of_part, of_sum = subject(*part)
        weights.append(_weight(of_sum.ball, lse.ball, subject))
        w = weights[-1]
        found.append(Ball(w.mid[..., None], w.rad[..., None]) * kept(of_part.ball, np.isfinite(of_part.ball.mid)))
    alive = np.isfinite(lse.value)
    subject.close(kept(weights[0] + weights[1], alive), alive.astype(float), "sum of weights")
    subject.close(kept(out.ball, alive[..., None]), kept(found[0] + found[1], alive[..., None]), "out")
    return bool(alive.any())


@row(MERGE)
def the_order_of_parts_does_not_matter(c: Case) -> Sequence[Term]:
    """For all parts: exchanged they give the same."""
    return [Term(instead={f"{x}_{a}": c.arguments[f"{x}_{b}"] for x in ("out", "lse") for a, b in ("ab", "ba")})]


@row(MERGE)
def a_number_added_to_both_log_sum_exps_is_added_to_theirs(c: Case) -> Sequence[Term] | None:
    """For every number: the output stays the same."""
    if not all(np.isfinite(c.arguments[p]).all() for p in ("lse_a", "lse_b")):
        return None
    shift = c.choose.among([16.0, -2.0, 1024.0])
    return [Term({p: [Plus(shift)] for p in ("lse_a", "lse_b")}, {"lse": [Plus(-shift)]})]


@law(MERGE)
def an_empty_part_changes_nothing(subject: Subject, out_a: Any, lse_a: Any, out_b: Any, lse_b: Any) -> bool:
    """For every part: merged with one whose log-sum-exp is −∞, whatever its output is, it is as it was."""
    alive = np.isfinite(lse_a)
    out, lse = subject(out_a, lse_a, out_b, np.full(lse_b.shape, -np.inf))
    subject.close(kept(out.ball, alive[..., None]), np.where(alive[..., None], out_a, 0.0), "out")
    subject.close(kept(lse.ball, alive), np.where(alive, lse_a, 0.0), "lse")
    return bool(alive.any())


def _narrower_in(i: Implementation) -> str:
    a = i.resolved_arithmetic
    return "" if a.inputs == a.output else "What it returns is of another format than what it takes."


@law(MERGE, exempts=_narrower_in)
def merging_is_associative(subject: Subject, out_a: Any, lse_a: Any, out_b: Any, lse_b: Any) -> bool:
    """For three parts, the first and the second of a case and the first with the second's
    log-sum-exp: whichever two are merged first, the result is the same.

    Within budget. A log-sum-exp that is off by ρ moves a share of the weight by at most ρ/4, which
    moves an output by at most as much times twice the largest one.
    """
    alive = np.isfinite(lse_a) & np.isfinite(lse_b)
    third = out_a, lse_b
    first, last = subject(out_a, lse_a, out_b, lse_b), subject(out_b, lse_b, *third)
    left, right = subject(*first, *third), subject(out_a, lse_a, *last)
    largest = np.maximum(np.abs(out_a).max(-1, initial=0.0), np.abs(out_b).max(-1, initial=0.0))
    rho = np.where(alive, first[1].ball.rad + last[1].ball.rad, 0.0)  # in base 2 it is less
    slack = (rho * largest)[..., None] + first[0].ball.rad + last[0].ball.rad
    where = alive[..., None]
    subject.close(kept(left[0].ball, where), kept(Ball(right[0].ball.mid, right[0].ball.rad + slack), where), "out")
    sums = Ball(right[1].ball.mid, right[1].ball.rad + first[1].ball.rad + last[1].ball.rad)
    subject.close(kept(left[1].ball, alive), kept(sums, alive), "lse")
    return bool(alive.any())
