"""Laws of side effects and of the contract of a call: what it returns, what it leaves alone, and
what it does not depend on.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from oracles.ball import Ball
from properties.contract import conversion, process_state
from properties.contract.implementation import Implementation
from properties.contract.operations import BATCH, OPERATIONS, Operation
from properties.contract.results import BrokenError, RaisedError, results_of
from properties.contract.subject import Subject
from properties.contract.support import EVERY_SIZE, SIZES, WORDS
from properties.laws.law import Laws
from properties.laws.refusals import refused
from properties.strategies import drawn_frequencies
from properties.strategies.cases import Cases, UnsupportedError
from properties.strategies.choices import Choices
from properties.strategies.domains import ODDITIES, usual

law = Laws(usual)
_OF_ARRAYS = tuple(name for name, o in OPERATIONS.items() if o.takes_arrays)
_OF_ROWS = tuple(name for name in _OF_ARRAYS if name != "padding_mask")  # whose lengths have one axis, and one layout
_BATCHED = tuple(name for name, o in OPERATIONS.items() if any(BATCH in o.axes.get(p, ()) for p in o.arrays))


def repeats(subject: Subject, first: Iterable[Any], again: Iterable[Any]) -> None:
    """The results of a call that was made before."""
    for a, b in zip(first, again, strict=True):
        exactly = subject.implementation.deterministic or isinstance(a, np.ndarray)
        (subject.same if exactly else subject.close)(b, a)


def _equal(a: Any, b: Any) -> bool:
    x, y = conversion.values(a), conversion.values(b)
    return bool(np.array_equal(x, y, equal_nan=True) if isinstance(x, np.ndarray) else x == y)


@law(*OPERATIONS, watches=True)
def what_it_returns_is_as_promised(subject: Subject, *arguments: Any) -> None:
    """For every case: as many arrays come back as the operation has results, of the promised kind,
    type and shape, and finite.

    Exact.
    """
    for result in results_of(subject(*arguments)):
        subject.finite(result)


@law(*_OF_ARRAYS, watches=True)
def inputs_are_not_written(subject: Subject, *arguments: Any) -> None:
    """For every case: after the call all arguments hold what they held before, masks too. Exact."""
    o = OPERATIONS[subject.operation]
    given = subject.seen(arguments).given
    for name, before, after in zip(o.parameters, subject.given(o, arguments), given, strict=True):
        subject.require(_equal(before, after), f"{name} was written to, but should be left as it is.")


@law(
    *_OF_ARRAYS,
    exempts=lambda i: "Its arrays cannot be asked whether they share memory." if callable(i.arrays) else "",
    watches=True,
)
def the_result_is_no_view_of_an_input(subject: Subject, *arguments: Any) -> None:
    """For every case: no result shares memory with an argument, so that neither changes with the other. Exact."""
    o = OPERATIONS[subject.operation]
    seen = subject.seen(arguments)
    for name, returned in zip(o.returned(arguments), seen.returned, strict=False):
        for parameter, given in zip(o.parameters, seen.given, strict=True):
            apart = not conversion.overlaps(returned, given)
            subject.require(apart, f"{name} shares memory with {parameter}, but should be an array of its own.")


@law(*OPERATIONS, effort=0.2)
def a_second_call_gives_the_same(subject: Subject, *arguments: Any) -> None:
    """For every case: the same call again gives the same result.

    Exact for an implementation that declares to be deterministic, else within budget.
    """
    repeats(subject, results_of(subject(*arguments)), results_of(subject.call(subject.operation, arguments)))


def another(o: Operation, i: Implementation, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Other arguments of the same shapes: arrays and masks from back to front, a position later,
    half as many heads of all columns, a kind of frequencies with another factor, base and
    length."""
    given = o.named(arguments)
    if "kind" in given:
        return tuple(drawn_frequencies.another(given, i).values())
    counts = "table" not in given and given.get("positions") is None  # beside positions there is no first one
    more = (
        dict.fromkeys(given, 2)
        if not o.takes_arrays and "start_pos" not in given
        else {"start_pos": 1}
        if counts
        else {}
    )
    found = tuple(
        x if x is None
        else x + more[p] if p in more
        else np.ascontiguousarray(np.flip(x, -1)) if isinstance(x, np.ndarray) and x.size
        else x
        for p, x in given.items()
    )  # fmt: skip
    return found if i.takes(o, found) else arguments


@law(*OPERATIONS, effort=0.4)
def a_call_does_not_depend_on_earlier_calls(subject: Subject, *arguments: Any) -> bool:
    """For every case, and another of the same shapes: called after the case, the other is as it
    should be; meanwhile what the case returned stays as it is; and the case, called again, gives
    the same.

    Within budget for the other; exact for the case of an implementation that declares to be
    deterministic, else within budget.
    """
    o = OPERATIONS[subject.operation]
    try:
        subject.seen(arguments)
        subject.judge(0)
    except BrokenError:  # what is wrong by itself says nothing of what came before
        return False
    first = subject.watch(o.name, arguments)
    copies = [conversion.values(x) for x in first.returned]
    subject.watch(o.name, another(o, subject.implementation, arguments))
    subject.judge(2)
    for name, copy, returned in zip(o.returned(arguments), copies, first.returned, strict=False):
        subject.require(
            _equal(copy, returned), f"{name} was changed by a later call, but should be an array of its own."
        )
    repeats(subject, first.results, subject.watch(o.name, arguments).results)
    return True


@law(*OPERATIONS, effort=0.2)
def it_prints_nothing_and_leaves_the_interpreter_alone(subject: Subject, *arguments: Any) -> None:
    """For every case: nothing is printed, and what the program has one of is as before: warning
    filters, NumPy's and torch's settings, global random numbers, the environment, the working
    directory and the import path. Exact.
    """
    process_state.restore(subject.original)
    process_state.stir()
    before = process_state.states()
    try:
        besides = subject.watch(subject.operation, arguments).side_effect
        changed = process_state.changes(before, process_state.states())
    finally:
        process_state.restore(subject.original)
    subject.require(not besides, besides)
    subject.require(
        not changed,
        f"changed {' and '.join(changed)}, but should leave {'it' if len(changed) == 1 else 'them'} as before.",
    )


def _no_layouts(i: Implementation) -> str:
    return "" if conversion.layouts(i) else "It declares no layout besides contiguous arrays."


@law(*_OF_ROWS, domains=lambda operation: usual(operation, "masks of sequences"), exempts=_no_layouts)
def a_view_equals_its_copy(subject: Subject, *arguments: Any, choose: Choices) -> bool:
    """For every case, each layout in memory, and an array or all: with the last two axes exchanged
    in memory, or rows and heads, with gaps between rows, late in a buffer, with rows in reverse
    order, or read-only, it gives what the contiguous copy gives.

    Within budget. An implementation that declares no layouts may raise instead; one that declares
    some is given no others, and none that its kind of arrays cannot have.
    """
    o, i = OPERATIONS[subject.operation], subject.implementation
    several = [
        p for p, x in o.named(arguments).items() if isinstance(x, np.ndarray) and x.ndim > 1 and min(x.shape[-2:]) > 1
    ]
    if not several:
        return False
    copies, name = results_of(subject(*arguments)), choose.among(several)
    possible = conversion.layouts(i, o.named(arguments)[name])
    taken = [layout for layout in possible if _is_handed_over(subject, arguments, f"{layout} {name}")]
    if possible and not taken:  # which says why
        subject.given(o, arguments, f"{possible[0]} {name}")
    for layout in taken:
        one = f"{layout} {name}"
        which = choose.among(
            [one, layout if _is_handed_over(subject, arguments, layout) else one]
        )  # of all arrays that can have it
        try:
            views = subject.call(o.name, arguments, which)
        except RaisedError as raised:
            subject.require(i.layouts is None, str(raised))
            continue
        for output, a, b in zip(o.returned(arguments), results_of(views), copies, strict=False):
            subject.alike(a, b, f"{output} of {which} arrays")
    return bool(taken)


def _is_handed_over(subject: Subject, arguments: tuple[Any, ...], layout: str) -> bool:
    """Whether the implementation's arrays can have a layout at all."""
    with suppress(conversion.UngivenError):
        return bool(subject.given(OPERATIONS[subject.operation], arguments, layout))
    return False


# -- Batches -------------------------------------------------------------------------------------------------------------------------


def _elements(o: Operation, arguments: tuple[Any, ...], index: tuple[slice | int, ...]) -> tuple[Any, ...]:
    """The arguments of a part of the batch; masks with fewer axes, and what the batch shares, are for all of it."""

    def part(parameter: str, x: Any) -> Any:
        axes, ahead = o.axes.get(parameter, ()), o.ahead(parameter, arguments)
        if not isinstance(x, np.ndarray) or BATCH not in axes or (own := x.ndim - ahead - len(axes) + 1) < 1:
            return x
        places = (
            k if n > 1 or not o.broadcasts(parameter) else slice(None) if isinstance(k, slice) else 0
            for k, n in zip(index[-own:], x.shape[ahead:], strict=False)
        )
        return x[(*[slice(None)] * ahead, *places)]

    return tuple(part(p, x) for p, x in zip(o.parameters, arguments, strict=True))


def _unbatched(i: Implementation) -> str:
    return "" if i.support.batches else WORDS["no batch axes"]


def _placed(x: Ball, shape: tuple[int, ...], index: tuple[Any, ...]) -> Ball:
    """A gradient of one problem as a part of that of what the batch shares, or has along some of its axes."""
    if x.mid.shape == shape:
        return x
    mid, rad = np.zeros(shape), np.zeros(shape)
    place = tuple(
        k if n > 1 else slice(None) if isinstance(k, slice) else 0 for k, n in zip(index, shape, strict=False)
    )
    mid[place], rad[place] = x.mid, x.rad
    return Ball(mid, rad)


@law(*_BATCHED, exempts=_unbatched, effort=0.5)
def batches_are_computed_one_by_one(subject: Subject, *arguments: Any) -> bool:
    """For every batch: each of its elements gives what it gives alone, or, where none is taken
    alone, as a batch of one. What the batch shares gets the sum of its gradients. Within budget.
    """
    o = OPERATIONS[subject.operation]
    lead = o.lead(arguments)
    places = list(np.ndindex(*lead))
    alone = bool(places) and subject.takes(*_elements(o, arguments, places[0]))
    indices = places if alone else [tuple(slice(k, k + 1) for k in place) for place in places]
    singles = [_elements(o, arguments, index) for index in indices]
    if not lead or not (alone or len(places) > 1) or not subject.takes(*singles[0]):
        return False
    whole = results_of(subject(*arguments))
    sums: dict[str, Ball] = {}
    for index, single in zip(indices, singles, strict=True):
        for name, batch, one in zip(o.returned(arguments), whole, results_of(subject(*single)), strict=True):
            if BATCH not in o.axes[name] or o.broadcasts(name):
                own = (
                    batch.value.ndim - len(o.axes[name]) + 1
                )  # its leading axes, which may be fewer than those of the batch
                part = _placed(one.ball, batch.value.shape, index[max(len(index) - own, 0) :])
                sums[name] = sums[name] + part if name in sums else part
                continue
            subject.finite(batch)
            subject.finite(one)
            if np.array_equal(batch.value[index], one.value, equal_nan=True):
                subject.same(batch.value[index], one.value, name)
            else:
                subject.close(batch.ball[index], one, name)
    for name, batch in zip(o.returned(arguments), whole, strict=True):
        if name in sums:
            subject.close(batch, sums[name], name)
    return True


@law(*_BATCHED, exempts=_unbatched, effort=0.2)
def an_empty_batch_is_empty(subject: Subject, *arguments: Any) -> bool:
    """For every batch without elements: so is the result; gradients of what the batch shares are 0. Exact."""
    o = OPERATIONS[subject.operation]
    case = arguments if o.lead(arguments) else tuple(
        np.expand_dims(x, o.ahead(p, arguments)) if isinstance(x, np.ndarray) and BATCH in o.axes[p] else x
        for p, x in zip(o.parameters, arguments, strict=True)
    )  # fmt: skip
    case = _elements(o, case, (slice(0, 0),) + (slice(None),) * (len(o.lead(case)) - 1))
    if not subject.takes(*case):
        return False
    for name, result in zip(o.returned(case), results_of(subject(*case)), strict=True):
        subject.same(result.value, np.zeros(result.value.shape), name)
    return True


# -- What is not supported ------------------------------------------------------------------------------------------------------------


def _restricted(o: Operation, i: Implementation) -> dict[str, Callable[[int], bool]]:
    """The predicates on sizes, with what the conventions do not support."""
    found = dict(i.restricted)
    if o.name == "sinusoidal_positional_encoding" and i.resolved_conventions.sinusoid_layout == "tensor2tensor":
        declared: Callable[[int], bool] = found.get("embed_dim", lambda d: True)
        found["embed_dim"] = lambda d: d % 2 == 0 and d != 2 and declared(d)
    return found


def _takes_all(i: Implementation) -> str:
    restricted = i.restricted or i.resolved_conventions.sinusoid_layout == "tensor2tensor"
    return "" if restricted else "It declares no size that it does not support."


@law(*OPERATIONS, exempts=_takes_all, effort=0.4)
def what_is_not_supported_is_refused(subject: Subject, *arguments: Any, choose: Choices) -> bool:
    """For every size that the implementation declares not to support, the others being supported:
    the call raises one of the exceptions that it declares to refuse with, or returns what is right
    all the same, within budget. Exact but for that.
    """
    o, i = OPERATIONS[subject.operation], subject.implementation
    supports = _restricted(o, i)
    if not supports:
        return False
    target = choose.among(sorted(supports))
    predicate = supports.pop(target)
    if target == EVERY_SIZE:
        sizes = sorted(name for name in o.sizes(arguments) if name in SIZES and name != "start_pos")
        if not sizes:
            return False
        target = choose.among(sizes)
    others = replace(i, supports=replace(i.support, sizes={**supports, target: lambda n: not predicate(n)}))
    try:
        case = Cases(o, ODDITIES, others).arguments(choose)
    except UnsupportedError:
        return False
    untold = o.name == "combine_masks" and any(mask is None for mask in case)  # of which there are always two
    if untold or replace(i, supports=replace(i.support, sizes=_restricted(o, i))).takes(o, case):
        return False
    refused(subject, case, "sizes that are not supported")
    return True
