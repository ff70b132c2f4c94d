"""Laws of attention with its features: one said by another, parts of the keys merged, chunks of queries, and what gradients add up to."""

# Terms are written as functions without a name of their own: what they are called is the sentence above them.
# mypy: disable-error-code="no-redef"

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from oracles.ball import Array, Ball, divide, exact, exp, total
from properties.contract.implementation import Implementation
from properties.contract.operations import OPERATIONS
from properties.contract.subject import Subject
from properties.contract.support import WORDS
from properties.laws.algebra import inner, kept
from properties.laws.law import Laws
from properties.laws.maps import Pad, Plus, Put, Times
from properties.laws.squares import Case, Term
from properties.laws.symmetries import composed, placed, row
from properties.strategies.choices import Choices, rounded

law = Laws()
ATTENTION, MERGE, ALIBI = "attention", "merge_attention", "alibi_bias"
VJP, JVP = f"{ATTENTION}_vjp", f"{ATTENTION}_jvp"
_LN2 = Ball(np.array(np.log(2.0)), np.array(2.0**-53))
_LARGE = 2.0**60


def _shape(x: Mapping[str, Any]) -> tuple[int, ...]:
    """The shape of the scores."""
    return (*x["q"].shape[:-1], x["k"].shape[-2])


def _start(x: Mapping[str, Any], i: Implementation) -> Any:
    """The position of the first query among the keys."""
    given, (n_q, n_k) = x["offset"], _shape(x)[-2:]
    return given if given is not None else n_k - n_q if i.resolved_conventions.causal == "bottom_right" else 0


def _band(x: Mapping[str, Any], i: Implementation) -> Any:
    """True where causality and the window allow, by the definition."""
    n_q, n_k = _shape(x)[-2:]
    p, j = np.asarray(_start(x, i))[..., None, None, None] + np.arange(n_q)[:, None], np.arange(n_k)
    left, right = x["window"] or (None, None)
    left = None if left is None else left - (i.resolved_conventions.window == "count")
    may = (j <= p) if x["causal"] else np.ones(np.broadcast_shapes(p.shape, j.shape), bool)
    may = may if left is None else may & (j >= p - left)
    return may if right is None else may & (j <= p + right)


def _reads(x: Mapping[str, Any], i: Implementation) -> Any:
    """True for each key that a query may read."""
    may, c = _band(x, i), i.resolved_conventions
    if x["mask"] is not None:
        may = _band({**x, "causal": None}, i) if x["causal"] and c.causal_with_mask == "mask_wins" else may
        may = may if x["causal"] and c.causal_with_mask == "causal_wins" else may & x["mask"]
    return np.broadcast_to(may if x["bias"] is None else may & (x["bias"] > -np.inf), _shape(x))


def _early(i: Implementation) -> bool:
    """Whether a cap acts on scores alone."""
    return i.resolved_conventions.softcap_order == "before_bias"


# -- One feature said by another ---------------------------------------------------------------------------------------------------


@row(
    "a window is the mask of its band",
    "For every window, and causality: instead of them the mask of the keys that they allow gives the same.",
    ATTENTION, domains=("everyday", "windows at edges"), features=("mask", "window"),
)  # fmt: skip
def _(c: Case) -> Sequence[Term] | None:
    if not placed(c.arguments) or not (composed(c) or c.mask is None or not c.causal):
        return None
    band = _band(c.arguments, c.implementation)
    both = np.broadcast_to(band if c.mask is None else band & c.mask, _shape(c.arguments)).copy()
    return [Term(instead={"mask": both, "causal": None, "window": None})]


@row(
    "causality is a window without a right side",
    "For every causal case: a window of 0 to the right, or of as much to the left as before, gives the same.",
    ATTENTION, features=("causal", "window"),
)  # fmt: skip
def _(c: Case) -> Sequence[Term] | None:
    left = (c.window or (None,))[0]
    ruled = c.mask is None or composed(c)
    return [Term(instead={"causal": None, "window": (left, 0)})] if c.causal and ruled else None


@row(
    "a chunk of queries is part of the whole",
    "For every cut of the queries: each part, from its own offset on, gives what it gives in the whole. So decoding is as prefilling.",
    ATTENTION, ALIBI, domains=("everyday", "windows at edges", "decoding"),
)  # fmt: skip
def _(c: Case) -> Sequence[Term] | None:
    n, i = c.size("n_q"), c.implementation
    if n < 2 or (c.forward.name == ATTENTION and i.lacks("offset")):
        return None
    cut = c.choose.among([1, n - 1, n // 2, c.choose.cut(n)])
    bottom = i.resolved_conventions.causal == "bottom_right"
    start = c.offset if c.offset is not None else (c.size("n_k") - n if bottom else 0)
    counted = [{"n_q": size} if "n_q" in c.arguments else {} for size in (cut, n - cut)]
    parts = zip((range(cut), range(cut, n)), (start, start + cut), counted, strict=True)
    return [c.along("n_q", np.array(part), offset=at, **size) for part, at, size in parts]


@row(
    "a bias of −∞ blocks as a mask does",
    "For every mask and bias: −∞ where the mask blocks, instead of the mask, gives the same.",
    ATTENTION, domains=("everyday", "rows without keys", "broadcast biases"), features=("bias", "mask"),
)  # fmt: skip
def _(c: Case) -> Sequence[Term] | None:
    shape = _shape(c.arguments)
    if c.mask is None or (c.causal and not composed(c)) or c.implementation.resolved_conventions.softcap_order == "after_mask":
        return None
    blocked = ~np.broadcast_to(c.mask, shape)
    if c.bias is None:
        return [Term(instead={"mask": None, "bias": np.where(blocked, -np.inf, 0.0)})]
    return [Term({"bias": [Put(blocked, -np.inf)]}, (), {"mask": None})] if c.bias.shape == shape else None


@row(
    "a bias that is the same for all keys adds to the log sum exp alone",
    "For every number added to all entries of the bias, and to the sinks: the log-sum-exp is larger by it, the output the same.",
    ATTENTION, domains=("everyday", "broadcast biases"), features=("bias",),
)  # fmt: skip
def _(c: Case) -> Sequence[Term] | None:
    given = [p for p in ("bias", "sink") if c.arguments[p] is not None]
    if (
        c.bias is None
        or not all(np.isfinite(c.arguments[p]).all() for p in given)
        or (c.softcap is not None and not _early(c.implementation))
    ):
        return None
    shift = c.choose.among([1.0, -2.0, 16.0, 0.5])
    two = c.implementation.resolved_conventions.lse_base == "2"
    return [Term({p: [Plus(shift)] for p in given}, {"lse": [Plus(divide(exact(-shift), _LN2) if two else -shift)]})]


@row(
    "a cap far above all scores is none",
    "For every case without a cap: one of 2⁶⁰ gives the same.",
    ATTENTION, features=("softcap",),
)  # fmt: skip
def _(c: Case) -> Sequence[Term] | None:
    return [Term(instead={"softcap": _LARGE})] if c.softcap is None and _early(c.implementation) else None


@row(
    "a sink of −∞ is none",
    "For every case without sinks: −∞ as the sink of each head gives the same.",
    ATTENTION, features=("sink",),
)  # fmt: skip
def _(c: Case) -> Sequence[Term] | None:
    return [Term(instead={"sink": np.full(c.size("num_heads"), -np.inf)})] if c.sink is None else None


@row(
    "a scale is a factor of the queries",
    "For every power of two: queries times it and the scale divided by it give the same.",
    ATTENTION, features=("scale",),
)  # fmt: skip
def _(c: Case) -> Sequence[Term] | None:
    return [Term({"q": [Times(4.0)]}, (), {"scale": c.scale / 4})] if c.scale is not None else None


@row(
    "blocked keys can be appended",
    "For every case: with blocked keys after the last one, whatever they hold, the result is the same.",
    ATTENTION, domains=("everyday", "sinks"), features=("mask",),
)  # fmt: skip
def _(c: Case) -> Sequence[Term] | None:
    shape, count, x = _shape(c.arguments), c.choose.among([1, 3, 16]), c.arguments
    told = c.offset is not None or c.implementation.resolved_conventions.causal == "top_left"
    wide = c.bias is None or c.bias.shape[-1] == shape[-1] > 1
    if not (told and wide and (composed(c) or not c.causal)) or c.implementation.resolved_conventions.softcap_order == "after_mask":
        return None
    if c.implementation.resolved_conventions.dead_rows == "uniform" and not _reads(x, c.implementation).any(-1).all():
        return None  # a row without keys reads all values
    full = np.broadcast_to(True if c.mask is None else c.mask, shape)
    mask = np.concatenate([full, np.zeros((*shape[:-1], count), bool)], -1)
    maps = {"k": [Pad(-2, count, c.largest)], "v": [Pad(-2, count, -c.largest)]} | (
        {"bias": [Pad(-1, count)]} if x["bias"] is not None else {}
    )
    return [Term(maps, (), {"mask": mask})]


def _bases(i: Implementation) -> str:
    return "" if i.resolved_conventions.lse_sink == "included" else "Its log-sum-exps are without the sink: parts cannot be merged by them."


def _told(i: Implementation) -> str:
    return "" if i.support.sums else WORDS["no log-sum-exp"]


def _named(subject: Subject, case: Sequence[Any]) -> dict[str, Any]:
    return dict(zip(OPERATIONS[subject.operation].parameters, case, strict=True))


def _natural(x: Ball, subject: Subject) -> Ball:
    """A log-sum-exp, natural."""
    return x if subject.conventions.lse_base == "e" else x * _LN2


def _weight(part: Ball, whole: Ball, subject: Subject) -> Ball:
    """e^(part − whole), 0 where the part, or the whole, reads nothing."""
    found = exp(_natural(part - whole, subject))
    return kept(found, np.isfinite(part.mid) & np.isfinite(whole.mid))


def _parts(i: Implementation) -> str:
    return _told(i) or _bases(i)


@law(ATTENTION, domains=("everyday", "sinks", "decoding", "near the cap"), exempts=_parts)
def parts_of_the_keys_merge_to_the_whole(subject: Subject, *case: Any, choose: Choices) -> bool:
    """For every cut of the keys: the outputs of both parts, weighted by e to their log-sum-exps less that of the whole, add up to the
    output of the whole, and their weights to 1. A sink belongs to the first part; what stands in the second part stands so much later.

    Within budget.
    """
    x, i = _named(subject, case), subject.implementation
    n_k = x["k"].shape[-2]
    cut = choose.cut(n_k) if n_k > 1 else 0
    if not cut or subject.conventions.softcap_order == "after_mask" or (placed(x) and i.lacks("offset")):
        return False
    parts: list[tuple[Any, ...]] = []
    for keys, sink in ((slice(0, cut), x["sink"]), (slice(cut, None), None)):
        of_keys = dict(x, k=x["k"][..., keys, :], v=x["v"][..., keys, :], sink=sink)
        of_keys |= {p: y[..., keys] if y is not None and y.shape[-1] == n_k else y for p, y in ((p, x[p]) for p in ("mask", "bias"))}
        if placed(x):
            of_keys["offset"] = _start(x, i) - (keys.start or 0)
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


@law(ATTENTION, domains=("everyday", "sinks"), exempts=lambda i: i.lacks("sink", "bias") or _bases(i))
def a_sink_is_one_more_key_of_value_zero(subject: Subject, *case: Any) -> bool:
    """For every sink: a key of zeros with a value of zeros and the sink as its bias, instead of the sink, gives the same.

    Within budget. It says nothing of causal cases and windows, nor of rows that may be dead.
    """
    x = _named(subject, case)
    if x["sink"] is None or placed(x) or (x["softcap"] is not None and not _early(subject.implementation)):
        return False
    shape = _shape(x)

    def longer(y: Array) -> Array:
        return np.concatenate([y, np.zeros((*y.shape[:-2], 1, y.shape[-1]))], -2)

    bias = np.broadcast_to(0.0 if x["bias"] is None else x["bias"], shape)
    column = np.broadcast_to(x["sink"][:, None, None], (*shape[:-1], 1))
    mask = None if x["mask"] is None else np.concatenate([np.broadcast_to(x["mask"], shape), np.ones((*shape[:-1], 1), bool)], -1)
    other = dict(x, k=longer(x["k"]), v=longer(x["v"]), bias=np.concatenate([bias, column], -1), mask=mask, sink=None)
    if not subject.takes(*other.values()):
        return False
    alive = (_reads(x, subject.implementation).any(-1)) | (x["sink"] > -np.inf)[:, None]
    for a, b in zip(subject(*case), subject(*other.values()), strict=True):
        where = alive[..., None] if a.name == "out" else alive
        subject.close(kept(a.ball, where), kept(b.ball, where), a.name)
    return True


@law(ATTENTION, domains=("rows without keys", "sinks", "no keys", "windows at edges"))
def a_row_without_keys_follows_its_convention(subject: Subject, *case: Any) -> bool:
    """For every query that may read no key: with a sink its output is 0 and its log-sum-exp the sink; without one the output follows the
    convention for dead rows, and the log-sum-exp is −∞.

    Exact, but for a sink in base 2, which is within budget. Of dead_rows=uniform agreement tells.
    """
    x, c = _named(subject, case), subject.conventions
    dead = ~_reads(x, subject.implementation).any(-1)
    if not dead.any() or c.softcap_order == "after_mask" or c.dead_rows == "uniform":
        return False
    out, lse = subject(*case)
    sinks = np.broadcast_to(-np.inf if x["sink"] is None else x["sink"][:, None], dead.shape)
    gone = np.isneginf(sinks)
    wanted = np.where(gone, 0.0 if c.dead_rows == "zero" else np.nan, 0.0)[dead]
    subject.same(out.value[dead], np.broadcast_to(wanted[:, None], out.value[dead].shape), "out of a row without keys")
    if c.lse_sink == "included" and subject.implementation.support.sums:
        subject.same(lse.value[dead & gone], sinks[dead & gone], "lse of a row without keys")
        alone = divide(exact(sinks[dead & ~gone]), _LN2) if c.lse_base == "2" else exact(sinks[dead & ~gone])
        subject.close(lse.ball[dead & ~gone], alone, "lse of a row with a sink alone")
    return True


@law(ATTENTION, domains=("near the cap", "everyday"), exempts=lambda i: i.lacks("softcap") or _told(i), watches=True)
def a_cap_bounds_the_log_sum_exp(subject: Subject, *case: Any) -> bool:
    """For every cap c, without bias and sink: the log-sum-exp of a row that reads m keys is at most c away from log m.

    Within budget.
    """
    x, i = _named(subject, case), subject.implementation
    if x["softcap"] is None or x["bias"] is not None or x["sink"] is not None or not _early(i):
        return False
    m = _reads(x, i).sum(-1)
    lse = _natural(subject(*case)[1].ball, subject)
    middle, alive = np.log(np.maximum(m, 1)), (m > 0) & np.isfinite(lse.mid)
    rounding = 2.0**-48 + 2.0**-50 * x["softcap"]  # of the bounds themselves
    inside = Ball(np.clip(lse.mid, middle - x["softcap"], middle + x["softcap"]), np.full(m.shape, rounding))
    subject.close(kept(lse, alive), kept(inside, alive), "lse")
    return bool(alive.any())


# -- Derivatives -------------------------------------------------------------------------------------------------------------------


def _undefined(i: Implementation) -> str:
    return "Where a query may read no key its output is NaN, which has no derivative." if i.resolved_conventions.dead_rows == "nan" else ""


@law(VJP, needs=(JVP,), domains=("everyday", "broadcast biases", "sinks", "near the cap"), exempts=_undefined)
def vjp_and_jvp_are_adjoint(subject: Subject, *case: Any, choose: Choices) -> None:
    """For every cotangent of the output and of the log-sum-exp, and each input, a bias in every broadcast form and a sink included:
    ⟨gradient, t⟩ is ⟨g_out, tangent of out⟩ + ⟨g_lse, tangent of lse⟩, along t.

    The direction t is the gradient itself, and small integers where that is nearly 0. Within budget. It needs both derivatives.
    """
    x, o = _named(subject, case), OPERATIONS[JVP]
    for gradient in subject(*case):
        p = gradient.name[1:]
        t = _representative(gradient.value, choose, subject)
        still = {f"d{name}": np.zeros(x[name].shape) for name in ("q", "k", "v")} | {gradient.name: t}
        dout, dlse = subject.attention_jvp(*({**x, **still}.get(name) for name in o.parameters))
        along = inner(exact(x["grad_out"]), dout.ball)
        if x["grad_lse"] is not None:
            along = along + inner(exact(x["grad_lse"]), dlse.ball)
        subject.close(inner(gradient.ball, exact(t)), along, f"⟨{gradient.name}, t⟩, of {p}")


def _representative(gradient: Array, choose: Choices, subject: Subject) -> Array:
    """A direction along a gradient, of size about 1, in which no entry is 0 for the gradient's being 0."""
    known = np.nan_to_num(gradient, posinf=0.0, neginf=0.0)
    size = np.abs(known).max(initial=0.0)
    scaled = known / 2.0 ** np.ceil(np.log2(size)) if size else known
    (fill,) = choose.directions(gradient.shape)
    return rounded(np.where(np.abs(scaled) < 2.0**-6, fill / 16, scaled), subject.arithmetic.inputs)


def _whole_gradients(i: Implementation) -> str:
    if i.resolved_conventions.dead_rows != "zero":
        return "Its gradients of rows without keys are not those of zeros."
    return i.lacks("bias") or _bases(i)


@law(VJP, domains=("everyday", "broadcast biases", "sinks"), exempts=_whole_gradients, watches=True)
def gradients_of_bias_and_sink_sum_to_those_of_the_log_sum_exp(subject: Subject, *case: Any) -> bool:
    """For every bias and sink: their gradients sum to grad_lse, over all queries that are alive, since a constant added to all of them is
    added to the log-sum-exp, and changes no output.

    Within budget.
    """
    x, i = _named(subject, case), subject.implementation
    if x["bias"] is None or (x["softcap"] is not None and not _early(i)):
        return False
    found = {r.name: r for r in subject(*case)}
    alive = _reads(x, i).any(-1)
    if x["sink"] is not None:
        alive = alive | (x["sink"] > -np.inf)[:, None]
    g = kept(exact(np.zeros(alive.shape) if x["grad_lse"] is None else x["grad_lse"]), alive)
    g = g if subject.conventions.lse_base == "e" else divide(g, _LN2)
    rest = _sum(g) - _sum(found["dsink"].ball) if "dsink" in found else _sum(g)
    dbias, up = found["dbias"].ball, found["dbias"].value > 0  # the positive ones make up for the negative ones, whose size is seen so
    subject.close(_sum(kept(dbias, up)), rest - _sum(kept(dbias, ~up)), "sum of positive dbias")
    return True


def _sum(x: Ball) -> Ball:
    return total(Ball(x.mid.reshape(1, -1), x.rad.reshape(1, -1)))


@law(VJP, JVP, domains=("everyday", "broadcast biases", "sinks"))
def the_derivative_is_linear(subject: Subject, *case: Any, choose: Choices) -> None:
    """For every cotangent, and all tangents together, cut in two by their entries: what is computed for −2 times them is −2 times what is
    computed for the two parts.

    Within budget.
    """
    x = _named(subject, case)
    moving = [p for p in x if p not in OPERATIONS[ATTENTION].parameters and x[p] is not None]
    first = {p: choose.bits(x[p].shape, 0.5) for p in moving}
    cut = ({p: np.where(part, x[p], 0.0) for p, part in parts.items()} for parts in (first, {p: ~part for p, part in first.items()}))
    both, one, other = (subject(*{**x, **t}.values()) for t in ({p: -2.0 * x[p] for p in moving}, *cut))
    for whole, a, b in zip(both, one, other, strict=True):
        subject.close(whole, exact(-2.0) * (a.ball + b.ball))


# -- Parts and slopes --------------------------------------------------------------------------------------------------------------


@row("the order of parts does not matter", "For all parts: exchanged they give the same.", MERGE)
def _(c: Case) -> Sequence[Term]:
    return [Term(instead={f"{x}_{a}": c.arguments[f"{x}_{b}"] for x in ("out", "lse") for a, b in ("ab", "ba")})]


@row("a number added to both log sum exps is added to theirs", "For every number: the output stays the same.", MERGE)
def _(c: Case) -> Sequence[Term] | None:
    if not all(np.isfinite(c.arguments[p]).all() for p in ("lse_a", "lse_b")):
        return None
    shift = c.choose.among([16.0, -2.0, 1024.0])
    return [Term({p: [Plus(shift)] for p in ("lse_a", "lse_b")}, {"lse": [Plus(-shift)]})]


@law(MERGE)
def an_empty_part_changes_nothing(subject: Subject, out_a: Any, lse_a: Any, out_b: Any, lse_b: Any) -> bool:
    """For every part: merged with one whose log-sum-exp is −∞, whatever its output is, it is as it was.

    Within budget.
    """
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
    """For three parts, the first and the second of a case and the first with the second's log-sum-exp: whichever two are merged first, the
    result is the same.

    Within budget. A log-sum-exp that is off by ρ moves a share of the weight by at most ρ/4, which moves an output by at most as much
    times twice the largest one.
    """
    alive = np.isfinite(lse_a) & np.isfinite(lse_b)
    third = out_a, lse_b
    first, last = subject(out_a, lse_a, out_b, lse_b), subject(out_b, lse_b, *third)
    left = subject(first[0].value, first[1].value, *third)
    right = subject(out_a, lse_a, last[0].value, last[1].value)
    largest = np.maximum(np.abs(out_a).max(-1, initial=0.0), np.abs(out_b).max(-1, initial=0.0))
    rho = np.where(alive, first[1].ball.rad + last[1].ball.rad, 0.0)  # in base 2 it is less
    slack = (rho * largest)[..., None] + first[0].ball.rad + last[0].ball.rad
    where = alive[..., None]
    subject.close(kept(left[0].ball, where), kept(Ball(right[0].ball.mid, right[0].ball.rad + slack), where), "out")
    sums = Ball(right[1].ball.mid, right[1].ball.rad + first[1].ball.rad + last[1].ball.rad)
    subject.close(kept(left[1].ball, alive), kept(sums, alive), "lse")
    return bool(alive.any())


@law("alibi_slopes")
def slopes_are_every_second_of_twice_as_many(subject: Subject, num_heads: int) -> bool:
    """For every power of two, or any number of heads of a geometric series: its slopes are every second one of twice as many heads.

    Within budget.
    """
    regular = subject.conventions.alibi_slopes == "geometric" or num_heads & (num_heads - 1) == 0
    if not regular or not subject.takes(2 * num_heads):
        return False
    subject.close(subject(num_heads), subject(2 * num_heads).ball[1::2])
    return True


@law(ALIBI, needs=("alibi_slopes",))
def biases_are_slopes_times_distances(subject: Subject, num_heads: int, n_q: int, n_k: int, offset: Any) -> bool:
    """For every case: each head's slope times −|p − j|, or times j, is its bias; a key at the query's own place has none.

    Within budget.
    """
    x = {"q": np.zeros((1, n_q, 0)), "k": np.zeros((1, n_k, 0)), "offset": offset}
    p = _start(x, subject.implementation) + np.arange(n_q)[:, None]
    by_key = subject.conventions.alibi_reference == "key"
    steps = np.broadcast_to(np.arange(n_k), (n_q, n_k)) if by_key else -np.abs(p - np.arange(n_k))
    slopes = subject.alibi_slopes(num_heads).ball
    subject.close(subject(num_heads, n_q, n_k, offset), Ball(slopes.mid[:, None, None], slopes.rad[:, None, None]) * exact(steps))
    return bool(steps.any())
