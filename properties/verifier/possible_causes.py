"""Lists the possible causes of violations (failed laws): the oracle under another convention, and
the reference with a known bug. Each possible cause is an implementation that can be called.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from functools import partial, update_wrapper
from typing import Any, get_args

import numpy as np

from oracles import Conventions
from oracles.ball import Array
from oracles.conventions import DEFAULT, ONNX
from properties.bugs import CATALOGUE, Bug, reference
from properties.bugs.declared import following
from properties.bugs.reference import REFERENCE
from properties.contract.cache_programs import parse
from properties.contract.caches import held_of, require_refused
from properties.contract.caller import Caller
from properties.contract.implementation import Implementation
from properties.contract.meanings import meaning
from properties.contract.operations import OPERATIONS, Operation
from properties.contract.restricted_options import in_pairing
from properties.contract.subject import Subject
from properties.strategies.choices import rounded
from properties.verifier.rotary_layouts import in_layout

__all__ = ["FORWARD", "PossibleCause", "of_other_tiles", "of_own_attention", "possible_causes", "stand_in_for"]

FORWARD = "scaled_dot_product_attention"
_VJP = "scaled_dot_product_attention_vjp"
_NUMBERS = {"rope_base": (100.0, 1000.0, 500_000.0, 1_000_000.0), "rope_scale": (0.125, 0.25, 0.5, 2.0)}

_Functions = dict[str, Callable[..., Any]]
"""Functions by the names of their operations."""


@dataclass(frozen=True)
class PossibleCause:
    """A possible cause of failed laws: its name, what would be wrong, and a maker of the functions
    of the operations that it changes.
    """

    id: str
    mechanism: str
    repair: str
    reported: str
    rank: int  # among equals: reported bugs come first, then conventions, then other bugs
    operations: frozenset[str]
    fresh: Callable[[], _Functions]
    remembers: bool = False  # whether results depend on earlier calls
    layout: Conventions = DEFAULT  # the layout of the arrays that the functions take
    law: str = ""  # the law that is expected to detect it, or ""


def possible_causes(called: list[Operation], implementation: Implementation) -> Iterator[PossibleCause]:
    """Yield what may be the cause of violations: every other value of every convention that matters
    to the operations called, every set of conventions that an ONNX version has, and every known bug
    of these operations that has a meaning under the declared conventions.

    A bug is tried in all operations that have it, and in each alone, since a fix may have reached
    only some of them.
    """
    yield from _conventions(called, implementation)
    yield from _versions(called, implementation)
    for bug in _bugs(implementation):
        affected = tuple(operation.name for operation in called if operation.name in bug.mutants)
        for names in dict.fromkeys((affected, *((name,) for name in affected))) if affected else ():
            cause = _of_bug(bug, names, partial(_instances, bug, names))
            remembers, layout = bug.remembers, bug.promises.get("conventions", DEFAULT)
            yield replace(cause, remembers=remembers, layout=layout)


def _bugs(implementation: Implementation) -> Iterator[Bug]:
    return (bug for bug in CATALOGUE.values() if bug.has_meaning(implementation.resolved_conventions))


def of_other_tiles(called: list[Operation], implementation: Implementation) -> Iterator[PossibleCause]:
    """Yield every known bug of the operations once more for each other size of its tiles."""
    names = {operation.name for operation in called}
    for bug in _bugs(implementation):
        for mechanism, make in bug.tiles.values() if bug.operation in names else ():
            yield replace(_of_bug(bug, (bug.operation,), partial(_made, bug.operation, make)), mechanism=mechanism)


def _of_bug(bug: Bug, names: tuple[str, ...], fresh: Callable[[], _Functions]) -> PossibleCause:
    rank = 0 if bug.public else 2
    return PossibleCause(bug.id, bug.mechanism, bug.repair, bug.citations, rank, frozenset(names), fresh, law=bug.law)


def _made(operation: str, make: Callable[[], Callable[..., Any]]) -> _Functions:
    return {operation: make()}


def _instances(bug: Bug, names: tuple[str, ...]) -> _Functions:
    return {name: bug.mutants[name]() for name in names}


def _conventions(called: list[Operation], implementation: Implementation) -> Iterator[PossibleCause]:
    """Yield possible causes: every other value of every convention that matters to one of the
    operations called.
    """
    for field in fields(Conventions):
        concerned = [operation for operation in called if field.name in operation.conventions]
        declared = getattr(implementation.resolved_conventions, field.name)
        for value in _NUMBERS.get(field.name, get_args(field.type)) if concerned else ():
            if value == declared:
                continue
            answers: _Functions = {
                operation.name: partial(_answer, operation, implementation, {field.name: value})
                for operation in concerned
            }
            yield _of_convention(field.name, value, answers, implementation)
            if field.name == "window":  # a ring cache also refuses other positions
                played: _Functions = {
                    operation.name: partial(_played, operation, implementation, value)
                    for operation in concerned
                    if operation.is_played
                }
                yield _of_convention(field.name, value, played, implementation)


def _of_convention(name: str, value: Any, answers: _Functions, implementation: Implementation) -> PossibleCause:
    declared = getattr(implementation.resolved_conventions, name)
    due = "the default is" if declared == getattr(DEFAULT, name) else "the adapter declares"
    shown = f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}"
    does, should = (f"{one!r} ({meaning(name, one)})" for one in (value, declared))
    mechanism = f"Your kernel has {name}={does}; {due} {should}."
    repair = f"Change the kernel, or declare Conventions({name}={value!r}) if it is right."
    layout = implementation.resolved_conventions
    return PossibleCause(shown, mechanism, repair, "", 1, frozenset(answers), answers.copy, layout=layout)


def _versions(called: list[Operation], implementation: Implementation) -> Iterator[PossibleCause]:
    """Yield possible causes: the conventions of each ONNX version in which several fields that
    matter to an operation differ from the declared ones.
    """
    declared = implementation.resolved_conventions
    for version in ONNX:
        meant = Conventions.onnx(version)
        differ = {
            field.name: value
            for field in fields(Conventions)
            if (value := getattr(meant, field.name)) != getattr(declared, field.name)
        }
        concerned = [operation for operation in called if len(differ.keys() & set(operation.conventions)) > 1]
        if concerned:
            answers: _Functions = {
                operation.name: partial(_answer, operation, implementation, differ) for operation in concerned
            }
            values = ", ".join(f"{name}={value}" for name, value in differ.items())
            mechanism = f"Your kernel behaves like ONNX {version}: {values}."
            repair = f"Change the kernel, or declare Conventions.onnx({version!r}) if it is right."
            operations = frozenset(answers)
            yield PossibleCause(f"onnx={version}", mechanism, repair, "", 2, operations, answers.copy, layout=declared)


def _answer(
    operation: Operation, implementation: Implementation, other: dict[str, Any], *positional: Any, **options: Any
) -> Any:
    """Return the oracle's values under other values of some conventions."""
    arguments = operation.arguments(positional, options)
    inverted = "mask_polarity" in other
    conventions = replace(implementation.conventions_of_laws, **{**other, "mask_polarity": "true_allows"})
    given = tuple(
        ~argument if inverted and argument is not None and operation.is_mask(name) else argument
        for name, argument in zip(
            operation.parameters, _with_tables(operation, implementation, other, arguments), strict=False
        )
    )
    found = operation.expected(given, implementation.resolved_arithmetic, conventions)
    values = tuple(
        (~value if inverted else value.copy()) if isinstance(value, np.ndarray) else value.mid.copy() for value in found
    )
    by_name = dict(zip(operation.returned(arguments), values, strict=True))
    return values[0] if len(operation.outputs) == 1 else tuple(by_name.get(name) for name in operation.outputs)


def _with_tables(
    operation: Operation, implementation: Implementation, other: dict[str, Any], arguments: tuple[Any, ...]
) -> tuple[Any, ...]:
    """Return the arguments as a kernel with another pairing of channels reads them: in a table with one
    column for each pair, a column belongs to other channels.
    """
    if "rope_pairing" not in other or "half tables" not in implementation.support.options:
        return arguments
    own, wanted = implementation.resolved_conventions.rope_pairing, other["rope_pairing"]
    return tuple(
        in_pairing(argument, own, wanted) if name in ("cos", "sin") else argument
        for name, argument in zip(operation.parameters, arguments, strict=False)
    )


def _played(operation: Operation, implementation: Implementation, window: Any, *positional: Any, **options: Any) -> Any:
    """Return the oracle's values for caches under another window convention. These caches also
    refuse a step that needs positions which the other window has already evicted. The program of
    steps marks only what caches refuse by the declared window.
    """
    arguments = operation.named(operation.arguments(positional, options))
    conventions = replace(implementation.resolved_conventions, window=window)
    held = held_of(arguments, implementation.of_caches(operation.name), conventions)
    require_refused(parse(arguments["steps"]), held, arguments.get("batch", 1))
    return _answer(operation, implementation, {"window": window}, *positional, **options)


def stand_in_for(cause: PossibleCause, implementation: Implementation, operation: str, *needs: str) -> Subject:
    """Return a subject for laws that behaves like the possible cause. It takes float64 arrays, has
    the reference's other operations, and follows and declares what the implementation under test
    declares.
    """
    own, conventions = cause.fresh(), implementation.resolved_conventions
    functions: _Functions = {
        name: in_layout(
            OPERATIONS[name], own.get(name, REFERENCE[name]), cause.layout if name in own else DEFAULT, conventions
        )
        for name in (operation, *needs)
    }
    promises = replace(
        implementation,
        operations={
            name: update_wrapper(partial(_stored, OPERATIONS[name], function, implementation), REFERENCE[name])
            for name, function in functions.items()
        },
        conventions=implementation.conventions_of_laws,
        arrays="numpy",
        dtype="float64",
        layouts=None,
        supports=implementation.support.plain,
        known_deviations={},
        twins={},
        beside=(),
    )
    return Subject(promises, operation)


def _stored(
    operation: Operation, function: Callable[..., Any], implementation: Implementation, *arguments: Any, **options: Any
) -> Any:
    """The results of a function that follows the declared conventions, float64 ones rounded to the
    implementation's format: they may be arguments of another operation.
    """
    with following(implementation.conventions_of_laws, operation.name):
        result, arithmetic = function(*arguments, **options), implementation.resolved_arithmetic
    several = result if isinstance(result, tuple) and len(result) == len(operation.outputs) else (result,)
    stored = tuple(
        rounded(output, operation.stored(name, arithmetic, result=True))
        if isinstance(output, np.ndarray) and output.dtype == np.float64
        else output
        for name, output in zip(operation.outputs, several, strict=False)
    )
    return stored if several is result else stored[0]


def of_own_attention(implementation: Implementation) -> _Functions:
    """Return operations made from the implementation's own scaled dot-product attention: causal,
    grouped and multi-head attention, and the gradients by δ = rowsum(g ⊙ out). If the attention has
    a mistake, all of them have it.

    The result is empty if the implementation does not offer scaled dot-product attention.
    """
    if FORWARD not in implementation.operations:
        return {}

    def forward(q: Array, k: Array, v: Array, mask: Any = None) -> Array:
        return np.asarray(Caller(implementation, FORWARD).call(FORWARD, (q, k, v, mask)).value)

    def vjp(q: Array, k: Array, v: Array, mask: Any, grad_out: Array) -> tuple[Array, ...]:
        delta = (grad_out * forward(q, k, v, mask)).sum(axis=-1, keepdims=True)
        made = reference.operations(row_term=lambda weights, grad_weights: delta)
        gradients: tuple[Array, ...] = made[_VJP](q, k, v, mask, grad_out)
        return gradients

    made = reference.operations(**{FORWARD: forward})
    users = reference.users_of(FORWARD)
    return {name: made[name] for name in users if name != FORWARD and name in implementation.operations} | {_VJP: vjp}
