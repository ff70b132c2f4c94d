"""Laws of Jacobian–vector products, and of what ties them to the other derivatives."""

from typing import Any

import numpy as np

from oracles.ball import Array, exact
from properties.contract.implementation import Implementation
from properties.contract.operations import OPERATIONS
from properties.contract.results import results_of
from properties.contract.subject import Subject
from properties.laws.algebra import inner, kept
from properties.laws.averages import allowed, mean
from properties.laws.gradients import all_within
from properties.laws.law import Laws
from properties.laws.reading import by_name
from properties.strategies.choices import Choices, rounded

law = Laws()
SDPA, SOFTMAX, HEADS = "scaled_dot_product_attention", "hard_masked_softmax", "multi_head_attention"
JVPS, VJPS = (f"{SDPA}_jvp", f"{HEADS}_jvp"), (f"{SDPA}_vjp", f"{SOFTMAX}_vjp", f"{HEADS}_vjp")
FEATURED = "attention_vjp", "attention_jvp"


def _forward(operation: str) -> Any:
    return OPERATIONS[OPERATIONS[operation].forward]


def _split(operation: str, case: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[Array, ...]]:
    """What the forward is given, and the cotangent or the tangents."""
    count = len(_forward(operation).parameters)
    return case[:count], case[count:]


def _along(operation: str, inputs: tuple[Any, ...], **tangents: Array) -> tuple[Any, ...]:
    """The case of a JVP in which the named inputs have tangents, and all others none."""
    o = _forward(operation)
    return *inputs, *(
        tangents.get(p, np.zeros(x.shape)) for p, x in zip(o.parameters, inputs, strict=True) if p in o.arrays
    )


def _part(choose: Choices, shape: tuple[int, ...]) -> Any:
    """Some entries, rows or columns of an array, all of it or nothing."""
    one = (1,) * len(shape)
    return choose.bits(choose.among([shape, (*shape[:-1], 1), (*one[:-1], shape[-1]), one]), 0.5)


@law(*VJPS, *JVPS)
@law(*FEATURED, domains=("everyday", "broadcast biases", "sinks"))
def the_derivative_is_linear(subject: Subject, *case: Any, choose: Choices) -> None:
    """For every cotangent, and all tangents together, cut in two by their entries, rows or columns:
    what is computed for −2 times them is −2 times what is computed for the two parts. No product of
    tangents is part of it, and nothing is limited."""
    x, given = by_name(subject, case), _forward(subject.operation).parameters
    moving = {p: t for p, t in x.items() if p not in given and t is not None}
    parts = {p: _part(choose, t.shape) for p, t in moving.items()}
    cut = (
        {p: np.where(part, moving[p], 0.0) for p, part in some.items()}
        for some in (parts, {p: ~part for p, part in parts.items()})
    )
    both, one, other = (
        results_of(subject(*{**x, **t}.values())) for t in ({p: -2.0 * t for p, t in moving.items()}, *cut)
    )
    for whole, a, b in zip(both, one, other, strict=True):
        subject.close(whole, exact(-2.0) * (a.ball + b.ball))


@law(*VJPS, *JVPS, domains=("small",))
def it_is_the_derivative_of_the_forward(subject: Subject, *case: Any, choose: Choices) -> None:
    """For every small case: the derivative along the tangents is that of the forward's definition,
    which is enclosed by running it over Taylor series of balls; of gradients, ⟨gradient, t⟩ is
    ⟨grad_out, derivative along t⟩ for a direction t of each input."""
    inputs, along = _split(subject.operation, case)
    from properties.laws.derivatives import DERIVATIVES  # loads the spec, which takes a while

    o, forward = _forward(subject.operation), DERIVATIVES[_forward(subject.operation).name]
    found = results_of(subject(*case))
    if subject.operation in JVPS:
        subject.close(found[0], forward(inputs, list(along)))
        return
    for p, gradient in zip(o.arrays, found, strict=True):
        (t,) = choose.directions(gradient.value.shape)
        one = _along(subject.operation, inputs, **{p: t})[len(inputs) :]
        subject.close(inner(gradient.ball, exact(t)), inner(exact(along[0]), forward(inputs, list(one))), gradient.name)


def _undefined(i: Implementation) -> str:
    return (
        "Where a query may read no key its output is NaN, which has no derivative."
        if i.resolved_conventions.dead_rows == "nan"
        else ""
    )


@law(f"{SDPA}_vjp", needs=(f"{SDPA}_jvp",))
@law(f"{HEADS}_vjp", needs=(f"{HEADS}_jvp",))
@law(
    FEATURED[0],
    needs=FEATURED[1:],
    domains=("everyday", "broadcast biases", "sinks", "near the cap"),
    exempts=_undefined,
)
def vjp_and_jvp_are_adjoint(subject: Subject, *case: Any, choose: Choices) -> None:
    """For every cotangent g of each result, and each input, a bias in every broadcast form and a
    sink included: ⟨gradient, t⟩ is the sum of ⟨g, derivative of the result along t⟩.

    The direction t is the gradient itself, and small integers where that is nearly 0, so that the
    sum is larger than its budget. Within budget. It needs both derivatives.
    """
    x, o = by_name(subject, case), OPERATIONS[subject.operation.replace("_vjp", "_jvp")]
    forward = OPERATIONS[o.forward]
    still = {f"d{p}": np.zeros(x[p].shape) for p in forward.arrays if p not in forward.options}
    for gradient in results_of(subject(*case)):
        t = _representative(subject, gradient.value, choose)
        along = {**x, **still, gradient.name: t}
        moved = results_of(subject.call(o.name, tuple(along.get(p) for p in o.parameters)))
        shares = [inner(exact(g), y.ball) for y in moved if (g := x[f"grad_{y.name[1:]}"]) is not None]
        subject.close(inner(gradient.ball, exact(t)), sum(shares[1:], start=shares[0]), f"⟨{gradient.name}, t⟩")


def _representative(subject: Subject, gradient: Array, choose: Choices) -> Array:
    """A direction along a gradient, of size about 1, in which no entry is 0 for the gradient's being 0."""
    known = np.nan_to_num(gradient, posinf=0.0, neginf=0.0)
    size = np.abs(known).max(initial=0.0)
    scaled = known / 2.0 ** np.ceil(np.log2(size)) if size else known
    (fill,) = choose.directions(gradient.shape)
    return rounded(np.where(np.abs(scaled) < 2.0**-6, fill / 16, scaled), subject.arithmetic.inputs)


@law(f"{SDPA}_jvp", needs=(SDPA,))
@law(f"{HEADS}_jvp", needs=(HEADS,))
def where_the_forward_is_linear_it_is_its_own_derivative(subject: Subject, *case: Any) -> None:
    """For every tangent of the values alone, of wv alone, or of wo alone: the derivative is the
    forward with the tangent in their place.

    Within budget. It needs the forward.
    """
    inputs, tangents = _split(subject.operation, case)
    o = _forward(subject.operation)
    for p in {SDPA: ("v",), HEADS: ("wv", "wo")}[o.name]:
        t = tangents[o.arrays.index(p)]
        other = tuple(t if name == p else x for name, x in zip(o.parameters, inputs, strict=True))
        subject.close(subject(*_along(subject.operation, inputs, **{p: t})), subject.call(o.name, other))


@law(*JVPS, domains=("everyday", "padded masks"))
def no_derivative_passes_the_mask(subject: Subject, *case: Any, choose: Choices) -> bool:
    """For every mask, a causal one among them, and tangents that are 0 in some rows, the first ones
    for instance: outputs of queries without a tangent have none, if no key that they may read has
    one.

    Exact.
    """
    inputs, tangents = _split(subject.operation, case)
    *others, mask = inputs
    rows = tangents[:3] if len(tangents) == 3 else tangents[:1]
    n_q, n_k = rows[0].shape[-2], rows[-1].shape[-2]
    mask = choose.among([mask, mask, np.tri(n_q, n_k, dtype=bool)])
    late, n = choose.happens(), max(n_q, n_k)
    moves = np.arange(n) >= choose.cut(min(n_q, n_k)) if late else choose.bits(n)
    may = np.broadcast_to(True if mask is None else mask, (*rows[0].shape[:-1], n_k))
    still = ~(moves[:n_q] | (may & moves[:n_k]).any(-1))[..., None]
    if not still.any() or not moves[:n_k].any():
        return False
    moved = [np.where(moves[: x.shape[-2], None], x, 0.0) for x in rows]
    out = subject(*others, mask, *moved, *(np.zeros(x.shape) for x in tangents[len(rows) :])).value
    subject.same(np.where(still, out, 0.0), np.zeros(out.shape), "dout of what reads no tangent")
    subject.informative_if(any(x.any() for x in moved))
    return True


@law(*JVPS, domains=("dead rows",), exempts=_undefined, watches=True)
def a_query_with_no_allowed_key_follows_its_convention(subject: Subject, *case: Any) -> bool:
    """For every query, or token, that may read nothing: its output has derivative 0; under
    dead_rows=uniform that of the mean of values, or of equal scores, by dead_gradients.

    Exact; under uniform within budget. It exempts dead_rows=nan.
    """
    heads = subject.operation != JVPS[0]
    if subject.conventions.dead_rows_flow or (heads and subject.conventions.dead_rows == "uniform"):
        return all_within(subject, *case)
    q, k, mask = (case[0], case[0], case[6]) if heads else (case[0], case[1], case[3])
    out, live = subject(*case), allowed(mask, q, k).any(-1, keepdims=True)
    if subject.conventions.dead_rows == "zero":
        subject.same(np.where(live, 0.0, out.value), np.zeros(out.value.shape), "dout of a query that may read no key")
    else:
        subject.close(kept(out.ball, ~live), kept(mean(case[-1], np.ones((*q.shape[:-1], k.shape[-2]))), ~live))
    return True
