"""Laws of merging: attention over parts of the keys, whose outputs are merged by their
log-sum-exps, and `merge_attention` alone.
"""

from typing import Any

import numpy as np

from oracles.ball import Ball, exp
from properties.contract.implementation import Implementation
from properties.contract.subject import Subject
from properties.laws.commuting_squares import Case, Sum, Term
from properties.laws.expected_values import kept
from properties.laws.feature_rules import (
    arguments_by_name,
    first_query_position,
    masked_keys_weigh_nothing,
    natural_log_sum_exp,
    why_no_log_sum_exps,
    why_not_mergeable,
)
from properties.laws.law import Laws
from properties.laws.linear_maps import Plus
from properties.laws.symmetry_rows import Rows, places_matter
from properties.strategies.choices import Choices

law = Laws()
row = Rows(law)
ATTENTION, MERGE = "attention", "merge_attention"


def _weight(part: Ball, whole: Ball, subject: Subject) -> Ball:
    """Return e^(part − whole) for two log-sum-exps; 0 where the part or the whole has no visible
    key.
    """
    found = exp(natural_log_sum_exp(part - whole, subject))
    return kept(found, np.isfinite(part.mid) & np.isfinite(whole.mid))


@law(
    ATTENTION,
    domains=("everyday", "sinks", "decoding", "near the cap"),
    exempts=lambda implementation: why_no_log_sum_exps(implementation) or why_not_mergeable(implementation),
)
def merging_attention_over_two_parts_of_the_keys_gives_the_whole(subject: Subject, *case: Any, choose: Choices) -> bool:
    """For every cut of the keys into two parts: the outputs of the parts, each weighted with e^(lse
    of the part − lse of the whole), add up to the output of the whole, and the weights add up to 1.

    A sink belongs to the first part. The keys of the second part keep their positions by its
    offset.
    """
    arguments, implementation = arguments_by_name(subject, case), subject.implementation
    n_k = arguments["k"].shape[-2]
    cut = choose.cut(n_k) if n_k > 1 else 0
    if not cut or not masked_keys_weigh_nothing(implementation):
        return False
    if arguments["alibi"] is not None and subject.conventions.alibi_reference == "key":
        return False  # the keys of the second part count from its first key
    if places_matter(arguments) and implementation.lacks("offset"):
        return False
    parts: list[tuple[Any, ...]] = []
    for keys, sink in ((slice(0, cut), arguments["sink"]), (slice(cut, None), None)):
        of_keys = dict(arguments, k=arguments["k"][..., keys, :], v=arguments["v"][..., keys, :], sink=sink)
        of_keys |= {
            parameter: argument[..., keys] if argument is not None and argument.shape[-1] == n_k else argument
            for parameter, argument in (
                (parameter, arguments[parameter]) for parameter in ("mask", "bias", "dropout_mask")
            )
        }
        if places_matter(arguments):
            of_keys["offset"] = first_query_position(arguments, implementation) - (keys.start or 0)
        parts.append(tuple(of_keys.values()))
    if not all(subject.takes(*part) for part in parts):
        return False
    whole, whole_sum = subject(*case)
    found, weights = [], []
    for part in parts:
        part_output, of_sum = subject(*part)
        weight = _weight(of_sum.ball, whole_sum.ball, subject)
        weights.append(weight)
        finite = kept(part_output.ball, np.isfinite(part_output.ball.mid))
        found.append(Ball(weight.mid[..., None], weight.rad[..., None]) * finite)
    alive = np.isfinite(whole_sum.value)
    subject.close(kept(weights[0] + weights[1], alive), alive.astype(float), "sum(weights)")
    subject.close(kept(whole.ball, alive[..., None]), kept(found[0] + found[1], alive[..., None]), "out")
    return bool(alive.any())


@row(MERGE)
def the_order_of_parts_does_not_matter(case: Case) -> Sum:
    """For every test input: if the two parts change places, the result is the same."""
    return [
        Term(
            instead={
                f"{result}_{part}": case.arguments[f"{result}_{other}"]
                for result in ("out", "lse")
                for part, other in ("ab", "ba")
            }
        )
    ]


@row(MERGE, name="a shift of both log-sum-exps shifts the merged one")
def a_shift_of_both_log_sum_exps_shifts_the_merged_one(case: Case) -> Sum:
    """For every number added to both log-sum-exps: the merged log-sum-exp grows by this number, and
    the output stays the same.
    """
    if not all(np.isfinite(case.arguments[parameter]).all() for parameter in ("lse_a", "lse_b")):
        return None
    shift = case.choose.among([16.0, -2.0, 1024.0])
    return [Term({parameter: [Plus(shift)] for parameter in ("lse_a", "lse_b")}, {"lse": [Plus(-shift)]})]


@law(MERGE)
def merging_an_empty_part_changes_nothing(subject: Subject, out_a: Any, lse_a: Any, out_b: Any, lse_b: Any) -> bool:
    """For every part: merging it with a part whose log-sum-exp is −∞, with any output, returns the
    part unchanged.
    """
    alive = np.isfinite(lse_a)
    whole, whole_sum = subject(out_a, lse_a, out_b, np.full(lse_b.shape, -np.inf))
    subject.close(kept(whole.ball, alive[..., None]), np.where(alive[..., None], out_a, 0.0), "out")
    subject.close(kept(whole_sum.ball, alive), np.where(alive, lse_a, 0.0), "lse")
    return bool(alive.any())


def _narrower_output(implementation: Implementation) -> str:
    arithmetic = implementation.resolved_arithmetic
    return "" if arithmetic.inputs == arithmetic.output else "Its outputs have another format than its inputs."


@law(MERGE, exempts=_narrower_output)
def merging_is_associative(subject: Subject, out_a: Any, lse_a: Any, out_b: Any, lse_b: Any) -> bool:
    """For three parts (the two parts of a case, and a third with the first output and the second
    log-sum-exp): the result is the same, whichever two parts are merged first.

    A log-sum-exp with an error of ρ moves a share of the weight by at most ρ/4, and therefore an
    output by at most ρ/4 times twice the largest output.
    """
    alive = np.isfinite(lse_a) & np.isfinite(lse_b)
    third = out_a, lse_b
    first, last = subject(out_a, lse_a, out_b, lse_b), subject(out_b, lse_b, *third)
    left, right = subject(*first, *third), subject(out_a, lse_a, *last)
    largest = np.maximum(np.abs(out_a).max(-1, initial=0.0), np.abs(out_b).max(-1, initial=0.0))
    error = np.where(alive, first[1].ball.rad + last[1].ball.rad, 0.0)  # in base 2 it is less
    slack = (error * largest)[..., None] + first[0].ball.rad + last[0].ball.rad
    where = alive[..., None]
    subject.close(kept(left[0].ball, where), kept(Ball(right[0].ball.mid, right[0].ball.rad + slack), where), "out")
    sums = Ball(right[1].ball.mid, right[1].ball.rad + first[1].ball.rad + last[1].ball.rad)
    subject.close(kept(left[1].ball, alive), kept(sums, alive), "lse")
    return bool(alive.any())
