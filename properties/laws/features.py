"""Laws of attention with its features: one said by another, and what caps and sinks do to a row."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from oracles.ball import Array, Ball, divide, exact, total
from properties.contract.implementation import Implementation
from properties.contract.subject import Subject
from properties.laws.algebra import kept
from properties.laws.law import Laws
from properties.laws.maps import Pad, Plus, Put, Times
from properties.laws.reading import (
    LN2,
    band,
    blocked_are_gone,
    by_name,
    logits_are_sums,
    natural,
    reads,
    rules_compose,
    scores_shape,
    unmergeable,
    without_sums,
)
from properties.laws.rows import Rows, causal_or_windowed, lengthened
from properties.laws.squares import Case, Term

law = Laws()
row = Rows(law)
ATTENTION, ALIBI = "attention", "alibi_bias"
_LARGE = 2.0**60


@row(ATTENTION, domains=("everyday", "windows at edges"), features=("mask", "window"))
def a_window_is_the_mask_of_its_band(c: Case) -> Sequence[Term] | None:
    """For every window, and causality: instead of them the mask of the keys that they allow gives the same."""
    if not causal_or_windowed(c.arguments) or not rules_compose(c.arguments, c.implementation):
        return None
    may = band(c.arguments, c.implementation)
    both = np.broadcast_to(may if c.mask is None else may & c.mask, scores_shape(c.arguments)).copy()
    return [Term(instead={"mask": both, "causal": None, "window": None})]


@row(ATTENTION, features=("causal", "window"))
def causality_is_a_window_without_a_right_side(c: Case) -> Sequence[Term] | None:
    """For every causal case: a window of 0 to the right, or of as much to the left as before, gives the same."""
    left = (c.window or (None,))[0]
    return (
        [Term(instead={"causal": None, "window": (left, 0)})]
        if c.causal and rules_compose(c.arguments, c.implementation)
        else None
    )


@row(ATTENTION, ALIBI, domains=("everyday", "windows at edges", "decoding"))
def a_chunk_of_queries_is_part_of_the_whole(c: Case) -> Sequence[Term] | None:
    """For every cut of the queries: each part, from its own offset on, gives what it gives in the
    whole. So decoding is as prefilling.
    """
    n, i = c.size("n_q"), c.implementation
    if n < 2 or (c.forward.name == ATTENTION and i.lacks("offset")):
        return None
    cut = c.choose.among([1, n - 1, n // 2, c.choose.cut(n)])
    bottom = c.conventions.causal == "bottom_right"
    first = c.offset if c.offset is not None else (c.size("n_k") - n if bottom else 0)
    counted = [{"n_q": size} if "n_q" in c.arguments else {} for size in (cut, n - cut)]
    parts = zip((range(cut), range(cut, n)), (first, first + cut), counted, strict=True)
    return [c.along("n_q", np.array(part), offset=at, **size) for part, at, size in parts]


@row(
    ATTENTION,
    domains=("everyday", "rows without keys", "broadcast biases"),
    features=("bias", "mask"),
    name="a bias of −∞ masks its key",
)
def a_bias_of_minus_infinity_masks_its_key(c: Case) -> Sequence[Term] | None:
    """For every mask and bias: −∞ where a key is masked, instead of the mask, gives the same."""
    shape, i = scores_shape(c.arguments), c.implementation
    if c.mask is None or not (rules_compose(c.arguments, i) and blocked_are_gone(i)):
        return None
    blocked = ~np.broadcast_to(c.mask, shape)
    if c.bias is None:
        return [Term(instead={"mask": None, "bias": np.where(blocked, -np.inf, 0.0)})]
    return [Term({"bias": [Put(blocked, -np.inf)]}, (), {"mask": None})] if c.bias.shape == shape else None


@row(ATTENTION, domains=("everyday", "broadcast biases"), features=("bias",))
def a_bias_that_is_the_same_for_all_keys_adds_to_the_log_sum_exp_alone(c: Case) -> Sequence[Term] | None:
    """For every number added to all entries of the bias, and to the sinks: the log-sum-exp is
    larger by it, the output the same.
    """
    given = [p for p in ("bias", "sink") if c.arguments[p] is not None]
    finite = all(np.isfinite(c.arguments[p]).all() for p in given)
    if c.bias is None or not finite or not logits_are_sums(c.arguments, c.implementation):
        return None
    shift = c.choose.among([1.0, -2.0, 16.0, 0.5])
    lower = divide(exact(-shift), LN2) if c.conventions.lse_base == "2" else -shift
    return [Term({p: [Plus(shift)] for p in given}, {"lse": [Plus(lower)]})]


def _far_caps_round(i: Implementation) -> str:
    a = i.resolved_arithmetic
    if a.tanh is not None and a.tanh.flush:
        return "Its tanh has an absolute error, which counts as often as the cap is large."
    coarse = [f for f in (a.elementwise, a.scores or a.elementwise) if f.smallest_normal * _LARGE > f.unit_roundoff]
    return f"Scores in {coarse[0].name} underflow where they are divided by a cap far above them." if coarse else ""


@row(ATTENTION, features=("softcap",), exempts=_far_caps_round)
def a_cap_far_above_all_scores_is_none(c: Case) -> Sequence[Term] | None:
    """For every case without a cap: one of 2⁶⁰ gives the same."""
    return (
        [Term(instead={"softcap": _LARGE})]
        if c.softcap is None and logits_are_sums({"softcap": _LARGE}, c.implementation)
        else None
    )


@row(ATTENTION, features=("sink",), name="a sink of −∞ is none")
def a_sink_of_minus_infinity_is_none(c: Case) -> Sequence[Term] | None:
    """For every case without sinks: −∞ as the sink of each head gives the same."""
    return [Term(instead={"sink": np.full(c.size("num_heads"), -np.inf)})] if c.sink is None else None


@row(ATTENTION, features=("scale",))
def a_scale_is_a_factor_of_the_queries(c: Case) -> Sequence[Term] | None:
    """For every power of two: queries times it and the scale divided by it give the same."""
    factor = c.choose.among([4.0, 0.125, 2.0])
    return [Term({"q": [Times(factor)]}, (), {"scale": c.scale / factor})] if c.scale is not None else None


@row(ATTENTION, domains=("everyday", "sinks"), features=("mask",))
def masked_keys_can_be_appended(c: Case) -> Sequence[Term] | None:
    """For every case: with masked keys after the last one, whatever they hold, the result is the same."""
    shape, count, x, i = scores_shape(c.arguments), c.choose.among([1, 3, 16]), c.arguments, c.implementation
    mask = lengthened(c.mask, shape, count)
    told = c.offset is not None or c.conventions.causal == "top_left"
    wide = c.bias is None or c.bias.shape[-1] == shape[-1] > 1
    if not (told and wide and rules_compose({**x, "mask": mask}, i) and blocked_are_gone(i)):
        return None
    if c.conventions.dead_rows == "uniform" and not reads(x, i).any(-1).all():
        return None  # a row without keys reads all values
    bias = {"bias": [Pad(-1, count)]} if c.bias is not None else {}
    return [Term({"k": [Pad(-2, count, c.largest)], "v": [Pad(-2, count, -c.largest)], **bias}, (), {"mask": mask})]


@law(ATTENTION, domains=("everyday", "sinks"), exempts=lambda i: i.lacks("sink", "bias") or unmergeable(i))
def a_sink_is_one_more_key_of_value_zero(subject: Subject, *case: Any) -> bool:
    """For every sink: a key of zeros with a value of zeros and the sink as its bias, instead of the
    sink, gives the same.

    Within budget. It says nothing of causal cases and windows, nor of rows that may be fully
    masked.
    """
    x = by_name(subject, case)
    if x["sink"] is None or causal_or_windowed(x) or not logits_are_sums(x, subject.implementation):
        return False
    shape = scores_shape(x)

    def longer(y: Array) -> Array:
        return np.concatenate([y, np.zeros((*y.shape[:-2], 1, y.shape[-1]))], -2)

    bias = np.broadcast_to(0.0 if x["bias"] is None else x["bias"], shape)
    column = np.broadcast_to(x["sink"][:, None, None], (*shape[:-1], 1))
    mask = (
        None
        if x["mask"] is None
        else np.concatenate([np.broadcast_to(x["mask"], shape), np.ones((*shape[:-1], 1), bool)], -1)
    )
    other = dict(x, k=longer(x["k"]), v=longer(x["v"]), bias=np.concatenate([bias, column], -1), mask=mask, sink=None)
    if not subject.takes(*other.values()):
        return False
    alive = (reads(x, subject.implementation).any(-1)) | (x["sink"] > -np.inf)[:, None]
    for a, b in zip(subject(*case), subject(*other.values()), strict=True):
        where = alive[..., None] if a.name == "out" else alive
        subject.close(kept(a.ball, where), kept(b.ball, where), a.name)
    return True


@law(ATTENTION, domains=("rows without keys", "sinks", "no keys", "windows at edges"))
def a_row_without_keys_follows_its_convention(subject: Subject, *case: Any) -> bool:
    """For every query that may read no key: with a sink its output is 0 and its log-sum-exp the
    sink; without one the output follows the convention for fully masked rows, and the log-sum-exp
    is −∞.

    Exact, but for a sink in base 2, which is within budget. Of dead_rows=uniform agreement tells.
    """
    x, c = by_name(subject, case), subject.conventions
    dead = ~reads(x, subject.implementation).any(-1)
    if not dead.any() or not blocked_are_gone(subject.implementation) or c.dead_rows == "uniform":
        return False
    out, lse = subject(*case)
    sinks = np.broadcast_to(-np.inf if x["sink"] is None else x["sink"][:, None], dead.shape)
    gone = np.isneginf(sinks)
    wanted = np.where(gone, 0.0 if c.dead_rows == "zero" else np.nan, 0.0)
    subject.same(out, np.where(dead[..., None], wanted[..., None], out.value))
    if c.lse_sink == "included" and subject.implementation.support.sums:
        subject.same(lse, np.where(dead & gone, -np.inf, lse.value))
        alone = divide(exact(sinks[dead & ~gone]), LN2) if c.lse_base == "2" else exact(sinks[dead & ~gone])
        subject.close(lse.ball[dead & ~gone], alone, "lse of a row with a sink alone")
    return True


@law(
    ATTENTION,
    domains=("near the cap", "everyday"),
    exempts=lambda i: i.lacks("softcap") or without_sums(i),
    watches=True,
)
def a_cap_bounds_the_log_sum_exp(subject: Subject, *case: Any) -> bool:
    """For every cap c, without bias and sink: the log-sum-exp of a row that reads m keys is at most
    c away from log m.
    """
    x, i = by_name(subject, case), subject.implementation
    if x["softcap"] is None or x["bias"] is not None or x["sink"] is not None or not logits_are_sums(x, i):
        return False
    m = reads(x, i).sum(-1)
    lse = natural(subject(*case)[1].ball, subject)
    middle, alive = np.log(np.maximum(m, 1)), (m > 0) & np.isfinite(lse.mid)
    rounding = 2.0**-48 + 2.0**-50 * x["softcap"]  # of the bounds themselves
    inside = Ball(np.clip(lse.mid, middle - x["softcap"], middle + x["softcap"]), np.full(m.shape, rounding))
    subject.close(kept(lse, alive), kept(inside, alive), "lse")
    return bool(alive.any())


def _whole_gradients(i: Implementation) -> str:
    if i.resolved_conventions.dead_rows != "zero":
        return "Its gradients of rows without keys are not those of zeros."
    return i.lacks("bias") or unmergeable(i)


@law(f"{ATTENTION}_vjp", domains=("everyday", "broadcast biases", "sinks"), exempts=_whole_gradients, watches=True)
def gradients_of_bias_and_sink_sum_to_those_of_the_log_sum_exp(subject: Subject, *case: Any) -> bool:
    """For every bias and sink: their gradients sum to grad_lse, over all queries that are alive,
    since a constant added to all of them is added to the log-sum-exp, and changes no output."""
    x, i = by_name(subject, case), subject.implementation
    if x["bias"] is None or not logits_are_sums(x, i):
        return False
    found = {r.name: r for r in subject(*case)}
    alive = reads(x, i).any(-1)
    if x["sink"] is not None:
        alive = alive | (x["sink"] > -np.inf)[:, None]
    g = kept(exact(np.zeros(alive.shape) if x["grad_lse"] is None else x["grad_lse"]), alive)
    g = g if subject.conventions.lse_base == "e" else divide(g, LN2)
    rest = _sum(g) - _sum(found["dsink"].ball) if "dsink" in found else _sum(g)
    dbias, up = (
        found["dbias"].ball,
        found["dbias"].value > 0,
    )  # the positive ones make up for the negative ones, whose size is seen so
    subject.close(_sum(kept(dbias, up)), rest - _sum(kept(dbias, ~up)), "sum of positive dbias")
    return True


def _sum(x: Ball) -> Ball:
    return total(Ball(x.mid.reshape(1, -1), x.rad.reshape(1, -1)))
