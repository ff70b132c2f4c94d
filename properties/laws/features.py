"""Laws of attention with options: an option expressed by another one, and the effect of softcaps
and sinks on a row.
"""

from typing import Any

import numpy as np

from oracles.ball import Array, Ball, divide, exact, total
from properties.contract.implementation import Implementation
from properties.contract.subject import Subject
from properties.laws.commuting_squares import Case, Sum, Term
from properties.laws.expected_values import kept
from properties.laws.feature_rules import (
    LN2,
    arguments_by_name,
    band,
    bias_adds_to_scores,
    bias_has_effect,
    first_query_position,
    masked_keys_weigh_nothing,
    natural_log_sum_exp,
    rules_compose,
    scores_shape,
    visible_keys,
    why_no_log_sum_exps,
    why_not_mergeable,
)
from properties.laws.law import Laws
from properties.laws.linear_maps import Pad, Plus, Put, Times
from properties.laws.symmetry_rows import Rows, lengthened, places_matter
from properties.strategies.choices import rounded

law = Laws()
row = Rows(law)
ATTENTION, ALIBI = "attention", "alibi_bias"
_LARGE = 2.0**60


@row(ATTENTION, domains=("everyday", "windows at edges"), features=("mask", "window"))
def a_window_equals_the_mask_of_its_band(case: Case) -> Sum:
    """For every window, with or without causality: the mask of the keys that window and causality
    make visible gives the same result instead of them.
    """
    if not (case.causal or case.window) or not rules_compose(case.arguments, case.implementation):
        return None
    visible = band(case.arguments, case.implementation)
    both = np.broadcast_to(visible if case.mask is None else visible & case.mask, scores_shape(case.arguments)).copy()
    return [Term(instead={"mask": both, "causal": None, "window": None})]


@row(ATTENTION, features=("causal", "window"))
def causal_equals_a_window_with_no_keys_to_the_right(case: Case) -> Sum:
    """For every causal case: a window (left, 0), with the same left side as before, gives the same
    result instead of `causal`.
    """
    left = (case.window or (None,))[0]
    if not case.causal or not rules_compose(case.arguments, case.implementation):
        return None
    return [Term(instead={"causal": None, "window": (left, 0)})]


@row(ATTENTION, ALIBI, domains=("everyday", "windows at edges", "decoding"))
def a_chunk_of_queries_gives_the_same_rows_as_all_queries(case: Case) -> Sum:
    """For every cut of the queries: each part, with its own offset, has the result that it has
    among all queries. So decoding equals prefill.
    """
    length, implementation = case.size("n_q"), case.implementation
    if length < 2 or (case.forward.name == ATTENTION and implementation.lacks("offset")):
        return None
    cut = case.choose.among([1, length - 1, length // 2, case.choose.cut(length)])
    bottom = case.conventions.causal == "bottom_right"
    first = case.offset if case.offset is not None else (case.size("n_k") - length if bottom else 0)
    counted = [{"n_q": size} if "n_q" in case.arguments else {} for size in (cut, length - cut)]
    parts = zip((range(cut), range(cut, length)), (first, first + cut), counted, strict=True)
    return [case.along("n_q", np.array(part), offset=at, **size) for part, at, size in parts]


@row(
    ATTENTION,
    domains=("everyday", "rows without keys", "broadcast biases"),
    features=("bias", "mask"),
)
def a_bias_of_minus_infinity_masks_its_key(case: Case) -> Sum:
    """For every mask and bias: a bias of −∞ at the masked keys gives the same result instead of the
    mask.
    """
    shape, implementation = scores_shape(case.arguments), case.implementation
    if case.mask is None or not rules_compose(case.arguments, implementation):
        return None
    if not masked_keys_weigh_nothing(implementation):
        return None
    masked = ~np.broadcast_to(case.mask, shape)
    if case.bias is None:
        return [Term(instead={"mask": None, "bias": np.where(masked, -np.inf, 0.0)})]
    return [Term({"bias": [Put(masked, -np.inf)]}, (), {"mask": None})] if case.bias.shape == shape else None


@row(
    ATTENTION,
    domains=("everyday", "broadcast biases"),
    features=("bias",),
    name="a constant bias changes only the log-sum-exp",
)
def a_constant_bias_changes_only_the_log_sum_exp(case: Case) -> Sum:
    """For every number added to all entries of the bias, and to the sinks: the log-sum-exp grows by
    this number, and the output stays the same.
    """
    given = [parameter for parameter in ("bias", "sink") if case.arguments[parameter] is not None]
    finite = all(np.isfinite(case.arguments[parameter]).all() for parameter in given)
    if case.bias is None or not finite or not bias_adds_to_scores(case.arguments, case.implementation):
        return None
    shift = case.choose.among([1.0, -2.0, 16.0, 0.5])
    lower = divide(exact(-shift), LN2) if case.conventions.lse_base == "2" else -shift
    return [Term({parameter: [Plus(shift)] for parameter in given}, {"lse": [Plus(lower)]})]


def _large_softcaps_round(implementation: Implementation) -> str:
    arithmetic = implementation.resolved_arithmetic
    if arithmetic.tanh is not None and arithmetic.tanh.flush:
        return "Its tanh has an absolute error, which the softcap multiplies."
    coarse = [
        candidate
        for candidate in (arithmetic.elementwise, arithmetic.scores or arithmetic.elementwise)
        if candidate.smallest_normal * _LARGE > candidate.unit_roundoff
    ]
    return f"Scores in {coarse[0].name} underflow where they are divided by a very large softcap." if coarse else ""


@row(ATTENTION, features=("softcap",), exempts=_large_softcaps_round)
def a_very_large_softcap_changes_nothing(case: Case) -> Sum:
    """For every test input without a softcap: a softcap of 2⁶⁰ gives the same result, because
    c·tanh(s/c) tends to s.
    """
    if case.softcap is not None or not bias_adds_to_scores({"softcap": _LARGE}, case.implementation):
        return None
    return [Term(instead={"softcap": _LARGE})]


@row(ATTENTION, features=("sink",))
def a_sink_of_minus_infinity_changes_nothing(case: Case) -> Sum:
    """For every test input without sinks: a sink of −∞ for each head gives the same result."""
    return [Term(instead={"sink": np.full(case.size("num_heads"), -np.inf)})] if case.sink is None else None


@row(ATTENTION, features=("alibi",))
def slopes_of_0_change_nothing(case: Case) -> Sum:
    """For every test input without ALiBi: a slope of 0 for each head gives the same result."""
    return [Term(instead={"alibi": np.zeros(case.size("num_heads"))})] if case.alibi is None else None


@row(
    ATTENTION,
    domains=("everyday", "decoding"),
    features=("alibi", "bias"),
    name="ALiBi equals a bias of slopes times distances",
)
def alibi_equals_a_bias_of_slopes_times_distances(case: Case) -> Sum:
    """For every test input with ALiBi and without a bias: slopes of 0 with the bias −slope·|p − j|, or
    slope·j if biases count keys, give the same result, where the bias is a number of the inputs' format.
    """
    if case.alibi is None or case.bias is not None or not bias_has_effect(case.arguments, case.implementation):
        return None
    n_q, n_k = scores_shape(case.arguments)[-2:]
    first = np.asarray(first_query_position(case.arguments, case.implementation))[..., None, None, None]
    distances = -np.abs(first + np.arange(n_q)[:, None] - np.arange(n_k))
    steps = distances if case.conventions.alibi_reference == "distance" else np.arange(n_k) + 0 * distances
    bias = case.alibi[:, None, None] * steps
    is_exact = np.array_equal(rounded(bias, case.implementation.resolved_arithmetic.inputs), bias)
    return [Term(instead={"alibi": np.zeros_like(case.alibi), "bias": bias})] if is_exact else None


@row(ATTENTION, features=("dropout_mask",))
def dropout_that_keeps_all_weights_changes_nothing(case: Case) -> Sum:
    """For every test input without dropout: a dropout mask of True, without a dropout, gives the same
    result.
    """
    if case.dropout_mask is not None or case.conventions.dead_rows == "uniform":
        return None
    return [Term(instead={"dropout_mask": np.ones(scores_shape(case.arguments), bool)})]


@row(ATTENTION, features=("dropout_mask",))
def parts_of_a_dropout_mask_add_up(case: Case) -> Sum:
    """For every dropout mask split into two by its entries: the outputs of both parts add up to the
    output of the mask, and the log-sum-exp is the same under each.
    """
    if case.dropout_mask is None:
        return None
    part = case.choose.bits(case.dropout_mask.shape, 0.5)
    return [
        Term({}, {"lse": case.once(number == 0)}, {"dropout_mask": case.dropout_mask & each})
        for number, each in enumerate((part, ~part))
    ]


@row(ATTENTION, features=("scale",), name="scale=s equals multiplying the queries by s")
def scale_equals_multiplying_the_queries(case: Case) -> Sum:
    """For every power of two f: queries times f, with the scale divided by f, give the same result."""
    factor = case.choose.among([4.0, 0.125, 2.0])
    return [Term({"q": [Times(factor)]}, (), {"scale": case.scale / factor})] if case.scale is not None else None


@row(ATTENTION, domains=("everyday", "sinks"), features=("mask",))
def appending_masked_keys_changes_nothing(case: Case) -> Sum:
    """For every test input: masked keys after the last key, with any finite numbers in them, do not
    change the result.
    """
    shape, count = scores_shape(case.arguments), case.choose.among([1, 3, 16])
    arguments, implementation = case.arguments, case.implementation
    mask = lengthened(case.mask, shape, count)
    placed = case.offset is not None or case.conventions.causal == "top_left"
    per_key = case.bias is None or case.bias.shape[-1] == shape[-1] > 1
    per_key = per_key and case.arguments.get("dropout_mask") is None
    composes = rules_compose({**arguments, "mask": mask}, implementation)
    if not (placed and per_key and composes and masked_keys_weigh_nothing(implementation)):
        return None
    if case.conventions.dead_rows == "uniform" and not visible_keys(arguments, implementation).any(-1).all():
        return None  # a fully masked row averages all values
    bias = {"bias": [Pad(-1, count)]} if case.bias is not None else {}
    padded = {"k": [Pad(-2, count, case.largest)], "v": [Pad(-2, count, -case.largest)], **bias}
    return [Term(padded, (), {"mask": mask})]


@law(
    ATTENTION,
    domains=("everyday", "sinks"),
    exempts=lambda implementation: implementation.lacks("sink", "bias") or why_not_mergeable(implementation),
)
def a_sink_equals_one_more_key_with_value_0(subject: Subject, *case: Any) -> bool:
    """For every sink: one more key of zeros, with a value of zeros and the sink as its bias, gives
    the same result instead of the sink.

    Causal cases, windows, ALiBi, and rows that may be fully masked cannot test this law.
    """
    arguments = arguments_by_name(subject, case)
    if arguments["sink"] is None or places_matter(arguments) or arguments["dropout_mask"] is not None:
        return False
    if not bias_adds_to_scores(arguments, subject.implementation):
        return False
    shape = scores_shape(arguments)

    def lengthened_by_zeros(array: Array) -> Array:
        return np.concatenate([array, np.zeros((*array.shape[:-2], 1, array.shape[-1]))], -2)

    bias = np.broadcast_to(0.0 if arguments["bias"] is None else arguments["bias"], shape)
    column = np.broadcast_to(arguments["sink"][:, None, None], (*shape[:-1], 1))
    mask = arguments["mask"]
    if mask is not None:
        mask = np.concatenate([np.broadcast_to(mask, shape), np.ones((*shape[:-1], 1), bool)], -1)
    longer_case = dict(
        arguments,
        k=lengthened_by_zeros(arguments["k"]),
        v=lengthened_by_zeros(arguments["v"]),
        bias=np.concatenate([bias, column], -1),
        mask=mask,
        sink=None,
    )
    if not subject.takes(*longer_case.values()):
        return False
    alive = (visible_keys(arguments, subject.implementation).any(-1)) | (arguments["sink"] > -np.inf)[:, None]
    for first, second in zip(subject(*case), subject(*longer_case.values()), strict=True):
        where = alive[..., None] if first.name == "out" else alive
        subject.close(kept(first.ball, where), kept(second.ball, where), first.name)
    return True


@law(
    ATTENTION,
    domains=("rows without keys", "sinks", "no keys", "windows at edges"),
    exact="unless a sink is converted to base 2",
)
def a_fully_masked_row_with_options_follows_its_convention(subject: Subject, *case: Any) -> bool:
    """For every fully masked row: with a sink, its output is 0 and its log-sum-exp is the sink.
    Without a sink, the output is 0 or NaN by the convention `dead_rows`, and the log-sum-exp is −∞.

    Agreement checks the convention `uniform`.
    """
    arguments, conventions = arguments_by_name(subject, case), subject.conventions
    masked = ~visible_keys(arguments, subject.implementation).any(-1)
    if not masked.any() or not masked_keys_weigh_nothing(subject.implementation) or conventions.dead_rows == "uniform":
        return False
    output, sums = subject(*case)
    sinks = np.broadcast_to(-np.inf if arguments["sink"] is None else arguments["sink"][:, None], masked.shape)
    no_sink = np.isneginf(sinks)
    wanted = np.where(no_sink, 0.0 if conventions.dead_rows == "zero" else np.nan, 0.0)
    subject.same(output, np.where(masked[..., None], wanted[..., None], output.value))
    if conventions.lse_sink == "included" and subject.implementation.support.sums:
        subject.same(sums, np.where(masked & no_sink, -np.inf, sums.value))
        sink_alone = exact(sinks[masked & ~no_sink])
        sink_alone = divide(sink_alone, LN2) if conventions.lse_base == "2" else sink_alone
        subject.close(sums.ball[masked & ~no_sink], sink_alone, "lse[rows that see only the sink]")
    return True


@law(
    ATTENTION,
    domains=("near the cap", "everyday"),
    exempts=lambda implementation: implementation.lacks("softcap") or why_no_log_sum_exps(implementation),
    watches=True,
    name="a softcap bounds the log-sum-exp",
)
def a_softcap_bounds_the_log_sum_exp(subject: Subject, *case: Any) -> bool:
    """For every softcap c, without bias, ALiBi and sink: the log-sum-exp of a row with m visible keys
    differs from log m by at most c.
    """
    arguments, implementation = arguments_by_name(subject, case), subject.implementation
    softcap = arguments["softcap"]
    if softcap is None or any(arguments[name] is not None for name in ("bias", "alibi", "sink")):
        return False
    if not bias_adds_to_scores(arguments, implementation):
        return False
    count = visible_keys(arguments, implementation).sum(-1)
    sums = natural_log_sum_exp(subject(*case)[1].ball, subject)
    middle, alive = np.log(np.maximum(count, 1)), (count > 0) & np.isfinite(sums.mid)
    rounding = 2.0**-48 + 2.0**-50 * softcap  # the rounding of the bounds themselves
    inside = Ball(np.clip(sums.mid, middle - softcap, middle + softcap), np.full(count.shape, rounding))
    subject.close(kept(sums, alive), kept(inside, alive), "lse")
    return bool(alive.any())


def _whole_gradients(implementation: Implementation) -> str:
    if implementation.resolved_conventions.dead_rows != "zero":
        return "Its gradients of fully masked rows are not 0."
    return implementation.lacks("bias") or why_not_mergeable(implementation)


@law(
    f"{ATTENTION}_vjp",
    domains=("everyday", "broadcast biases", "sinks"),
    exempts=_whole_gradients,
    watches=True,
    name="gradients of bias and sink sum to grad_lse",
)
def gradients_of_bias_and_sink_sum_to_grad_lse(subject: Subject, *case: Any) -> bool:
    """For every bias and sink: their gradients sum to the sum of grad_lse over all rows with a
    visible key or a sink.

    A constant added to all biases and sinks is added to the log-sum-exp, and changes no output.
    """
    arguments, implementation = arguments_by_name(subject, case), subject.implementation
    if arguments["bias"] is None or not bias_adds_to_scores(arguments, implementation):
        return False
    found = {result.name: result for result in subject(*case)}
    alive = visible_keys(arguments, implementation).any(-1)
    if arguments["sink"] is not None:
        alive = alive | (arguments["sink"] > -np.inf)[:, None]
    grad_lse = np.zeros(alive.shape) if arguments["grad_lse"] is None else arguments["grad_lse"]
    lse_gradient = kept(exact(grad_lse), alive)
    lse_gradient = lse_gradient if subject.conventions.lse_base == "e" else divide(lse_gradient, LN2)
    rest = _sum(lse_gradient) - _sum(found["dsink"].ball) if "dsink" in found else _sum(lse_gradient)
    # The positive entries against the negative ones, so that the error limit depends on their size:
    dbias, positive = found["dbias"].ball, found["dbias"].value > 0
    subject.close(_sum(kept(dbias, positive)), rest - _sum(kept(dbias, ~positive)), "sum(positive dbias)")
    return True


def _sum(ball: Ball) -> Ball:
    return total(Ball(ball.mid.reshape(1, -1), ball.rad.reshape(1, -1)))
