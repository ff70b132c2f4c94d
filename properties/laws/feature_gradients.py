"""Laws of the derivatives of attention with its features."""

from typing import Any

import numpy as np

from oracles.ball import Array, Ball, divide, exact, total
from properties.contract.implementation import Implementation
from properties.contract.operations import OPERATIONS
from properties.contract.subject import Subject
from properties.laws.algebra import inner, kept
from properties.laws.law import Laws
from properties.laws.reading import LN2, by_name, caps_scores, reads, unmergeable
from properties.strategies.choices import Choices, rounded

law = Laws()
ATTENTION, VJP, JVP = "attention", "attention_vjp", "attention_jvp"


def _undefined(i: Implementation) -> str:
    return "Where a query may read no key its output is NaN, which has no derivative." if i.resolved_conventions.dead_rows == "nan" else ""


@law(VJP, needs=(JVP,), domains=("everyday", "broadcast biases", "sinks", "near the cap"), exempts=_undefined)
def vjp_and_jvp_are_adjoint(subject: Subject, *case: Any, choose: Choices) -> None:
    """For every cotangent of the output and of the log-sum-exp, and each input, a bias in every broadcast form and a sink included:
    ⟨gradient, t⟩ is ⟨g_out, tangent of out⟩ + ⟨g_lse, tangent of lse⟩, along t.

    The direction t is the gradient itself, and small integers where that is nearly 0. Within budget. It needs both derivatives.
    """
    x, o = by_name(subject, case), OPERATIONS[JVP]
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
    return i.lacks("bias") or unmergeable(i)


@law(VJP, domains=("everyday", "broadcast biases", "sinks"), exempts=_whole_gradients, watches=True)
def gradients_of_bias_and_sink_sum_to_those_of_the_log_sum_exp(subject: Subject, *case: Any) -> bool:
    """For every bias and sink: their gradients sum to grad_lse, over all queries that are alive, since a constant added to all of them is
    added to the log-sum-exp, and changes no output.

    Within budget.
    """
    x, i = by_name(subject, case), subject.implementation
    if x["bias"] is None or (x["softcap"] is not None and not caps_scores(i)):
        return False
    found = {r.name: r for r in subject(*case)}
    alive = reads(x, i).any(-1)
    if x["sink"] is not None:
        alive = alive | (x["sink"] > -np.inf)[:, None]
    g = kept(exact(np.zeros(alive.shape) if x["grad_lse"] is None else x["grad_lse"]), alive)
    g = g if subject.conventions.lse_base == "e" else divide(g, LN2)
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
    x = by_name(subject, case)
    moving = [p for p in x if p not in OPERATIONS[ATTENTION].parameters and x[p] is not None]
    first = {p: choose.bits(x[p].shape, 0.5) for p in moving}
    cut = ({p: np.where(part, x[p], 0.0) for p, part in parts.items()} for parts in (first, {p: ~part for p, part in first.items()}))
    both, one, other = (subject(*{**x, **t}.values()) for t in ({p: -2.0 * x[p] for p in moving}, *cut))
    for whole, a, b in zip(both, one, other, strict=True):
        subject.close(whole, exact(-2.0) * (a.ball + b.ball))
