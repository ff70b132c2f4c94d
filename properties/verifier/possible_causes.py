"""Explanations to try: the oracle in another convention, or the reference with a known bug, each an
implementation itself.
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
from properties.bugs.reference import OPERATIONS as REFERENCE
from properties.contract.caches import held_of, require_refused
from properties.contract.caller import Caller
from properties.contract.implementation import Implementation
from properties.contract.operations import OPERATIONS, Operation
from properties.contract.programs import parse
from properties.contract.subject import Subject
from properties.strategies.choices import rounded
from properties.verifier.rotary_layouts import in_layout

__all__ = ["FORWARD", "PossibleCause", "of_other_tiles", "of_own_attention", "possible_causes", "stand_in_for"]

FORWARD = "scaled_dot_product_attention"
_VJP = "scaled_dot_product_attention_vjp"
_NUMBERS = {"rope_base": (100.0, 1000.0, 500_000.0, 1_000_000.0), "rope_scale": (0.125, 0.25, 0.5, 2.0)}


@dataclass(frozen=True)
class PossibleCause:
    """An explanation to try: its name, what would be wrong, and fresh instances of the operations that it changes."""

    id: str
    mechanism: str
    citation: str
    repair: str
    rank: int  # among equals: documented bugs first, then conventions, then other bugs
    operations: frozenset[str]
    fresh: Callable[[], dict[str, Callable[..., Any]]]
    remembers: bool = False  # what it returns depends on earlier calls
    layout: Conventions = DEFAULT  # in which the arrays of what it changes are laid out
    law: str = ""  # that is expected to see it, where there is one


def possible_causes(called: list[Operation], implementation: Implementation) -> Iterator[PossibleCause]:
    """Every other value of every convention that matters to the operations called, and every known
    bug of one of them: in all of those that have it, and in each alone, as where one was mended and
    the others were not.
    """
    for field in fields(Conventions):
        concerned = [o for o in called if field.name in o.conventions]
        actual = getattr(implementation.resolved_conventions, field.name)
        for value in _NUMBERS.get(field.name, get_args(field.type)) if concerned else ():
            if value == actual:
                continue
            answers: dict[str, Callable[..., Any]] = {
                o.name: partial(_answer, o, implementation, {field.name: value}) for o in concerned
            }
            name = f"{field.name}={value:g}" if isinstance(value, float) else f"{field.name}={value}"
            mechanism = f"By convention {field.name} is {value!r} here, but {actual!r} is declared."
            repair = f"Declare Conventions({field.name}={value!r}), if that is what is meant."
            layout = implementation.resolved_conventions
            yield PossibleCause(name, mechanism, "", repair, 1, frozenset(answers), answers.copy, layout=layout)
            if field.name == "window":  # of what a ring refuses too
                played: dict[str, Callable[..., Any]] = {
                    o.name: partial(_played, o, implementation, value) for o in concerned if o.is_played
                }
                yield PossibleCause(name, mechanism, "", repair, 1, frozenset(played), played.copy, layout=layout)
    yield from _versions(called, implementation)
    for bug in CATALOGUE.values():
        wrong = tuple(o.name for o in called if o.name in bug.mutants)
        rank, remembers = 0 if bug.public else 2, "two calls in a row" in bug.requires
        for names in dict.fromkeys((wrong, *((name,) for name in wrong))) if wrong else ():
            fresh, layout = partial(_instances, bug, names), bug.promises.get("conventions", DEFAULT)
            yield PossibleCause(
                bug.id,
                bug.mechanism,
                bug.citation,
                bug.repair,
                rank,
                frozenset(names),
                fresh,
                remembers,
                layout,
                bug.law,
            )


def of_other_tiles(called: list[Operation]) -> Iterator[PossibleCause]:
    """Every known bug of one of the operations again, by tiles of each other size."""
    names = {o.name for o in called}
    for bug in CATALOGUE.values():
        for size, make in bug.tiles.items() if bug.operation in names else ():
            mechanism = f"{bug.mechanism} Tiles are of {size} here."
            rank, fresh = 0 if bug.public else 2, partial(_made, bug.operation, make)
            yield PossibleCause(
                bug.id, mechanism, bug.citation, bug.repair, rank, frozenset([bug.operation]), fresh, law=bug.law
            )


def _made(operation: str, make: Callable[[], Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
    return {operation: make()}


def _versions(called: list[Operation], implementation: Implementation) -> Iterator[PossibleCause]:
    """Each set of conventions that a version of ONNX has, where it is several that matter to one of
    the operations called.
    """
    actual = implementation.resolved_conventions
    for version in ONNX:
        meant = Conventions.onnx(version)
        differ = {
            field.name: x
            for field in fields(Conventions)
            if (x := getattr(meant, field.name)) != getattr(actual, field.name)
        }
        concerned = [o for o in called if len(differ.keys() & set(o.conventions)) > 1]
        if concerned:
            answers: dict[str, Callable[..., Any]] = {
                o.name: partial(_answer, o, implementation, differ) for o in concerned
            }
            mechanism = f"This is what ONNX {version} means: {', '.join(f'{name}={x}' for name, x in differ.items())}."
            repair = f"Declare Conventions.onnx({version!r}), if that is what is meant."
            yield PossibleCause(
                f"onnx={version}", mechanism, "", repair, 2, frozenset(answers), answers.copy, layout=actual
            )


def _instances(bug: Bug, names: tuple[str, ...]) -> dict[str, Callable[..., Any]]:
    return {name: bug.mutants[name]() for name in names}


def _answer(
    operation: Operation, implementation: Implementation, other: dict[str, Any], *positional: Any, **options: Any
) -> Any:
    """The oracle's own values where one field of the conventions has another value, or some have."""
    arguments = operation.arguments(positional, options)
    inverted = "mask_polarity" in other
    changed = {**other, "mask_polarity": "true_allows"}
    given = tuple(
        ~x if inverted and x is not None and operation.is_mask(p) else x
        for p, x in zip(operation.parameters, arguments, strict=False)
    )
    found = operation.expected(
        given, implementation.resolved_arithmetic, replace(implementation.resolved_conventions, **changed)
    )
    values = tuple((~x if inverted else x.copy()) if isinstance(x, np.ndarray) else x.mid.copy() for x in found)
    each = dict(zip(operation.returned(arguments), values, strict=True))
    return values[0] if len(operation.outputs) == 1 else tuple(each.get(name) for name in operation.outputs)


def _played(operation: Operation, implementation: Implementation, window: Any, *positional: Any, **options: Any) -> Any:
    """The same of caches that refuse what is gone by another window too: the program says what they
    refuse by the declared one.
    """
    each = operation.named(operation.arguments(positional, options))
    reading = replace(implementation.resolved_conventions, window=window)
    require_refused(parse(each["steps"]), held_of(each["window"], each["capacity"], implementation.of_caches, reading))
    return _answer(operation, implementation, {"window": window}, *positional, **options)


def stand_in_for(c: PossibleCause, implementation: Implementation, operation: str, *needs: str) -> Subject:
    """The candidate in place of the implementation, by float64 arrays, with the reference's other
    operations and the same promises.
    """
    own, conventions = c.fresh(), implementation.resolved_conventions
    operations: dict[str, Callable[..., Any]] = {
        name: in_layout(
            OPERATIONS[name], own.get(name, REFERENCE[name]), c.layout if name in own else DEFAULT, conventions
        )
        for name in (operation, *needs)
    }
    promises = replace(
        implementation,
        operations={
            name: update_wrapper(partial(_stored, OPERATIONS[name], function, implementation), REFERENCE[name])
            for name, function in operations.items()
        },
        conventions=replace(implementation.resolved_conventions, mask_polarity="true_allows"),
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
    """What a function returns, float64 results as numbers of the implementation's format: they may
    be given to another operation.
    """
    found, a = function(*arguments, **options), implementation.resolved_arithmetic
    several = found if isinstance(found, tuple) and len(found) == len(operation.outputs) else (found,)
    kept = tuple(
        rounded(x, operation.stored(name, a, result=True)) if isinstance(x, np.ndarray) and x.dtype == np.float64 else x
        for name, x in zip(operation.outputs, several, strict=False)
    )
    return kept if several is found else kept[0]


def of_own_attention(implementation: Implementation) -> dict[str, Callable[..., Any]]:
    """Causal, grouped and multi-head attention by an implementation's own scaled dot-product
    attention, and its gradients, where what each row has in common is taken from the output: δ =
    rowsum(g ⊙ out).  Nothing where it offers none."""
    if FORWARD not in implementation.operations:
        return {}

    def forward(q: Array, k: Array, v: Array, mask: Any = None) -> Array:
        return np.asarray(Caller(implementation, FORWARD).call(FORWARD, (q, k, v, mask)).value)

    def vjp(q: Array, k: Array, v: Array, mask: Any, grad_out: Array) -> tuple[Array, ...]:
        delta = (grad_out * forward(q, k, v, mask)).sum(axis=-1, keepdims=True)
        found: tuple[Array, ...] = reference.operations(row_term=lambda weights, grad_weights: delta)[_VJP](
            q, k, v, mask, grad_out
        )
        return found

    made = reference.operations(**{FORWARD: forward})
    users = reference.users_of(FORWARD)
    return {name: made[name] for name in users if name != FORWARD and name in implementation.operations} | {_VJP: vjp}
