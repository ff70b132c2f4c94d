"""Laws of Jacobian–vector products, and of their relations to the other derivatives."""

from typing import Any

import numpy as np

from oracles.ball import Array, exact
from properties.contract.implementation import Implementation
from properties.contract.operations import OPERATIONS
from properties.contract.results import results_of
from properties.contract.subject import Subject
from properties.laws.expected_values import inner_product, kept, mean_of_visible, visible_mask
from properties.laws.feature_rules import arguments_by_name
from properties.laws.gradients import all_within_limits
from properties.laws.law import Laws
from properties.strategies.choices import Choices, rounded

law = Laws()
SDPA, SOFTMAX, HEADS = "scaled_dot_product_attention", "hard_masked_softmax", "multi_head_attention"
JVPS, VJPS = (f"{SDPA}_jvp", f"{HEADS}_jvp"), (f"{SDPA}_vjp", f"{SOFTMAX}_vjp", f"{HEADS}_vjp")
FEATURED = "attention_vjp", "attention_jvp"
ADJOINT = "VJP and JVP are adjoint"
LINEAR = "if an input enters linearly, the JVP is the operation on its tangent"


def _forward(operation: str) -> Any:
    return OPERATIONS[OPERATIONS[operation].forward]


def _split(operation: str, case: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[Array, ...]]:
    """Return the forward's arguments, and the cotangent or the tangents, from the arguments of a
    derivative.
    """
    count = len(_forward(operation).parameters)
    return case[:count], case[count:]


def _along(operation: str, inputs: tuple[Any, ...], **tangents: Array) -> tuple[Any, ...]:
    """Return the arguments of a JVP in which the named inputs have the given tangents. The tangents
    of the other inputs are 0.
    """
    forward = _forward(operation)
    return *inputs, *(
        tangents.get(parameter, np.zeros(value.shape))
        for parameter, value in zip(forward.parameters, inputs, strict=True)
        if parameter in forward.arrays
    )


def _part(choose: Choices, shape: tuple[int, ...]) -> Any:
    """Return a mask of an array: some entries, some rows or columns, all entries, or no entry."""
    one = (1,) * len(shape)
    return choose.bits(choose.among([shape, (*shape[:-1], 1), (*one[:-1], shape[-1]), one]), 0.5)


@law(*VJPS, *JVPS)
@law(*FEATURED, domains=("everyday", "broadcast biases", "sinks"))
def the_derivative_is_linear(subject: Subject, *case: Any, choose: Choices) -> None:
    """For every cotangent, or all tangents together, split in two by entries, rows or columns: −2
    times the whole gives −2 times the sum of the results of both parts.

    The result contains no product of tangents, and no limit on their size.
    """
    arguments, given = arguments_by_name(subject, case), _forward(subject.operation).parameters
    moving = {
        parameter: tangent for parameter, tangent in arguments.items() if parameter not in given and tangent is not None
    }
    parts = {parameter: _part(choose, tangent.shape) for parameter, tangent in moving.items()}

    def derivative(tangents: dict[str, Array]) -> Any:
        return results_of(subject(*{**arguments, **tangents}.values()))

    doubled = derivative({parameter: -2.0 * tangent for parameter, tangent in moving.items()})
    first = derivative({parameter: np.where(part, moving[parameter], 0.0) for parameter, part in parts.items()})
    second = derivative({parameter: np.where(part, 0.0, moving[parameter]) for parameter, part in parts.items()})
    for whole, one, other in zip(doubled, first, second, strict=True):
        subject.close(whole, exact(-2.0) * (one.ball + other.ball))


@law(*VJPS, *JVPS, domains=("small",))
def the_result_is_the_derivative_of_the_forward(subject: Subject, *case: Any, choose: Choices) -> None:
    """For every small case: the derivative along the tangents is the derivative of the forward's
    definition, which is enclosed by running the definition over Taylor series of balls.

    For gradients: ⟨gradient, t⟩ = ⟨grad_out, derivative along t⟩, for one direction t of each
    input.
    """
    inputs, along = _split(subject.operation, case)
    from properties.laws.derivatives import DERIVATIVES  # loads the spec, which takes a while

    operation, forward = _forward(subject.operation), DERIVATIVES[_forward(subject.operation).name]
    found = results_of(subject(*case))
    if subject.operation in JVPS:
        subject.close(found[0], forward(inputs, list(along)))
        return
    for parameter, gradient in zip(operation.arrays, found, strict=True):
        (tangent,) = choose.directions(gradient.value.shape)
        one = _along(subject.operation, inputs, **{parameter: tangent})[len(inputs) :]
        expected = inner_product(exact(along[0]), forward(inputs, list(one)))
        subject.close(inner_product(gradient.ball, exact(tangent)), expected, gradient.name)


def _undefined_for_masked_rows(implementation: Implementation) -> str:
    undefined = implementation.resolved_conventions.dead_rows == "nan"
    return "The output of a fully masked row is NaN, which has no derivative." if undefined else ""


@law(f"{SDPA}_vjp", needs=(f"{SDPA}_jvp",), name=ADJOINT)
@law(f"{HEADS}_vjp", needs=(f"{HEADS}_jvp",), name=ADJOINT)
@law(
    FEATURED[0],
    needs=FEATURED[1:],
    domains=("everyday", "broadcast biases", "sinks", "near the cap"),
    exempts=_undefined_for_masked_rows,
    name=ADJOINT,
)
def vjp_and_jvp_are_adjoint(subject: Subject, *case: Any, choose: Choices) -> None:
    """For every cotangent g of each result, and each input, also a sink and a bias in every
    broadcast form: ⟨gradient, t⟩ is the sum of ⟨g, derivative of the result along t⟩.

    The direction t is the gradient itself, and small integers where the gradient is nearly 0, so
    that the sum is larger than its error limit. The law needs both derivatives. It leaves out the
    options that the JVP does not have.
    """
    arguments, operation = arguments_by_name(subject, case), OPERATIONS[subject.operation.replace("_vjp", "_jvp")]
    forward = OPERATIONS[operation.forward]
    arguments |= {name: None for name in forward.options if name in arguments and name not in operation.options}
    unmoved = {
        f"d{parameter}": np.zeros(arguments[parameter].shape)
        for parameter in forward.arrays
        if parameter not in forward.options
    }
    for gradient in results_of(subject(*arguments.values())):
        tangent = _direction_along(subject, gradient.value, choose)
        along = {**arguments, **unmoved, gradient.name: tangent}
        moved = results_of(
            subject.call(operation.name, tuple(along.get(parameter) for parameter in operation.parameters))
        )
        shares = [
            inner_product(exact(cotangent), result.ball)
            for result in moved
            if (cotangent := arguments[f"grad_{result.name[1:]}"]) is not None
        ]
        product = inner_product(gradient.ball, exact(tangent))
        subject.close(product, sum(shares[1:], start=shares[0]), f"⟨{gradient.name}, t⟩")


def _direction_along(subject: Subject, gradient: Array, choose: Choices) -> Array:
    """Return a direction along a gradient, of size about 1. Its entries are nonzero also where the
    gradient is 0.
    """
    known = np.nan_to_num(gradient, posinf=0.0, neginf=0.0)
    size = np.abs(known).max(initial=0.0)
    scaled = known / 2.0 ** np.ceil(np.log2(size)) if size else known
    (fill,) = choose.directions(gradient.shape)
    return rounded(np.where(np.abs(scaled) < 2.0**-6, fill / 16, scaled), subject.arithmetic.inputs)


@law(f"{SDPA}_jvp", needs=(SDPA,), name=LINEAR)
@law(f"{HEADS}_jvp", needs=(HEADS,), name=LINEAR)
def if_an_input_enters_linearly_the_jvp_is_the_operation_on_its_tangent(subject: Subject, *case: Any) -> None:
    """For every tangent that is 0 except in one input that enters linearly (the values, wv or wo):
    the JVP is the forward with the tangent in place of this input.

    The law needs the forward.
    """
    inputs, tangents = _split(subject.operation, case)
    operation = _forward(subject.operation)
    for parameter in {SDPA: ("v",), HEADS: ("wv", "wo")}[operation.name]:
        tangent = tangents[operation.arrays.index(parameter)]
        replaced = {**operation.named(inputs), parameter: tangent}
        derivative = subject(*_along(subject.operation, inputs, **{parameter: tangent}))
        subject.close(derivative, subject.call(operation.name, tuple(replaced.values())))


@law(*JVPS, domains=("everyday", "padded masks"), exact=True)
def derivatives_do_not_pass_through_masked_entries(subject: Subject, *case: Any, choose: Choices) -> bool:
    """For every mask, also a causal one, and tangents that are 0 in some rows, such as the first
    ones: the output of a query without a tangent has derivative 0 if no visible key of the query
    has a tangent.
    """
    inputs, tangents = _split(subject.operation, case)
    *others, mask = inputs
    rows = tangents[:3] if len(tangents) == 3 else tangents[:1]
    query_count, key_count = rows[0].shape[-2], rows[-1].shape[-2]
    mask = choose.among([mask, mask, np.tri(query_count, key_count, dtype=bool)])
    is_late, length = choose.happens(), max(query_count, key_count)
    moves = np.arange(length) >= choose.cut(min(query_count, key_count)) if is_late else choose.bits(length)
    visible = np.broadcast_to(True if mask is None else mask, (*rows[0].shape[:-1], key_count))
    unmoved = ~(moves[:query_count] | (visible & moves[:key_count]).any(-1))[..., None]
    if not unmoved.any() or not moves[:key_count].any():
        return False
    moved = [np.where(moves[: tangent.shape[-2], None], tangent, 0.0) for tangent in rows]
    result = subject(*others, mask, *moved, *(np.zeros(tangent.shape) for tangent in tangents[len(rows) :])).value
    subject.same(np.where(unmoved, result, 0.0), np.zeros(result.shape), "dout (queries that see no tangent)")
    subject.informative_if(any(tangent.any() for tangent in moved))
    return True


@law(
    *JVPS,
    domains=("dead rows",),
    exempts=_undefined_for_masked_rows,
    watches=True,
    exact="unless `dead_rows` is `uniform`",
)
def a_fully_masked_row_follows_its_convention(subject: Subject, *case: Any) -> bool:
    """For every fully masked query or token: its output has derivative 0. For `dead_rows=uniform`
    it has the derivative of the mean of the values, or of equal scores, by the convention
    `dead_gradients`.

    The convention `dead_rows=nan` is exempt.
    """
    heads = subject.operation != JVPS[0]
    if subject.conventions.dead_rows_flow or (heads and subject.conventions.dead_rows == "uniform"):
        return all_within_limits(subject, *case)
    q, k, mask = (case[0], case[0], case[6]) if heads else (case[0], case[1], case[3])
    result, live = subject(*case), visible_mask(mask, q, k).any(-1, keepdims=True)
    if subject.conventions.dead_rows == "zero":
        masked = np.where(live, 0.0, result.value)
        subject.same(masked, np.zeros(result.value.shape), "dout (a fully masked row)")
    else:
        average = mean_of_visible(case[-1], np.ones((*q.shape[:-1], k.shape[-2])))
        subject.close(kept(result.ball, ~live), kept(average, ~live))
    return True
