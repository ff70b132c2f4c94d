"""Finds by trial calls how a function can be called as an operation, without any declaration.

The search varies one thing after another: the library and the type of arrays, the order and the
number of axes, the options, the memory layout, and the sizes.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from math import inf
from typing import Any, NamedTuple

import numpy as np

from properties import interpreters
from properties.contract.caller import Observer
from properties.contract.operations import BATCH, OPERATIONS, Operation
from properties.inspection.array import Array
from properties.inspection.array_libraries import libraries_of
from properties.inspection.form_arguments import Trial, heads_of
from properties.inspection.form_options import find_both, find_options
from properties.inspection.form_sizes import find_places, find_sizes
from properties.inspection.form_trials import NoFormError, RefusedError, Trials, alike
from properties.inspection.forms import HEADS_FIRST, ROWS_FIRST, Form, Refusal, has_movable_rows, required
from properties.inspection.probe import SpentError
from properties.inspection.signatures import ways

__all__ = ["NoFormError", "form_of"]

_OF_INTERPRETERS = "kernels in an interpreter are judged in float32, as most of them compute on a GPU"
_MOST_CALLS = 40
_FEW_ROWS = 16
_DTYPES = ("float64", "float32", "float16", "bfloat16")
_PLACES_OF_HEADS = ((2, HEADS_FIRST), (2, ROWS_FIRST), (1, HEADS_FIRST), (0, HEADS_FIRST))
_OTHER_PLACES = ((1, HEADS_FIRST), (0, HEADS_FIRST), (2, HEADS_FIRST))
"""The numbers and orders of axes with which the first call is tried."""

_FIRST_SIZES: Sequence[Mapping[str, int]] = (
    {},
    {"start_pos": 0},
    dict.fromkeys(("head_dim", "value_dim", "embed_dim"), 128),
)
"""The sizes of the first call that differ from everyday sizes, in the order of trial."""

_ATTENTION = ("scaled_dot_product_attention", "causal_attention", "grouped_query_attention", "attention")
_ATTENTION_GRADIENTS = ("scaled_dot_product_attention_vjp", "attention_vjp")
_ROTATIONS = ("rope", "apply_rotary")
_ROTATION_GRADIENTS = ("rope_vjp", "apply_rotary_vjp")

_FACTOR = 1 / 1024
_NONZERO_SHARE = 0.75  # half of a float64 array is left if the function writes float32
_LINEAR: Mapping[str, str] = {
    **dict.fromkeys(_ATTENTION, "v"),
    **dict.fromkeys((*_ATTENTION_GRADIENTS, *_ROTATION_GRADIENTS, "multi_head_attention_vjp"), "grad_out"),
    **dict.fromkeys((*_ROTATIONS, "rotate_half"), "x"),
    **{"multi_head_attention": "wo", "hard_masked_softmax_vjp": "grad_weights"},
    **{"table_lookup": "table", "learned_positional_encoding": "table"},
}
"""An argument of each operation in which the first result is linear."""


def form_of(
    function: Callable[..., Any],
    operation: str,
    until: float = inf,
    calls: int = _MOST_CALLS,
    observe: Observer | None = None,
) -> Form:
    """Return how a function can be called as an operation. `observe` is called with every call before
    it is made.

    At most `calls` calls are made, until `until`, a reading of time.monotonic. `Form.is_cut` says
    whether the search ended early. Raises NoFormError if no call worked, or if the time ended before the
    order of axes was known, and ValueError for `decode`, which takes a class.
    """
    if OPERATIONS[operation].is_played:
        raise ValueError(f"{operation} takes a class of caches, and not a function.")
    trials = Trials(function, operation, calls, until, observe)
    try:
        for find in _STAGES:
            find(trials)
    except SpentError:
        if trials.base and find in _FIRST_STAGES and time.monotonic() >= until:
            raise NoFormError(
                f"The time ended after {trials.calls} calls, before the number types and the order of axes were known."
            ) from None
        trials.change(is_cut=True)
    return trials.form


# -- The first call --------------------------------------------------------------------------------


def _find_first(trials: Trials) -> None:
    """Find arrays, and a way of passing them, with which a call works. Narrow number types are tried
    last where both wide ones fail with the same message, which then hardly concerns the type.
    """
    postponed: list[tuple[Trial, Form, list[Refusal]]] = []
    for trial, form in _first_calls(trials):
        earlier = len(trials.refusals)
        if _find_at(trials, trial, form, _DTYPES[:2]):
            del trials.refusals[:earlier]
            return
        own = trials.refusals[earlier:]
        if len({refusal.error for refusal in own}) == 1:
            postponed.append((trial, form, own))
        elif _find_at(trials, trial, form, _DTYPES[2:]):
            del trials.refusals[:earlier]
            return
    for trial, form, own in postponed:
        earlier = len(trials.refusals)
        if _find_at(trials, trial, form, _DTYPES[2:]):
            trials.refusals[:earlier] = own
            return


def _first_calls(trials: Trials) -> Iterator[tuple[Trial, Form]]:
    """Yield calls that may work: each has a size, a place of axes, a library, and a way of passing
    arguments.
    """

    def has_type_error() -> bool:
        return any("TypeError" in refusal.error for refusal in trials.refusals)

    for sizes in (sizes for sizes in _FIRST_SIZES if not sizes or sizes.keys() & trials.measured):
        for rank, axes in (place for place in _places(trials.operation) if place[0] >= heads_of(trials.operation)):
            for library in libraries_of(trials.function, has_type_error):
                for way in ways(trials.function, trials.operation):
                    takes_start = "start_pos" in (*way.positional, *way.keywords)
                    trial = Trial(sizes if takes_start else {**sizes, "start_pos": 0}, rank)
                    yield trial, Form(trials.operation.name, library, (), (rank,), axes, **way._asdict())


def _places(operation: Operation) -> Sequence[tuple[int, str]]:
    """The numbers and orders of axes that the arrays of an operation may have."""
    names = required(operation)
    if any(has_movable_rows(operation, name) for name in names):
        return _PLACES_OF_HEADS
    return _OTHER_PLACES if any(BATCH in operation.axes.get(name, ()) for name in names) else _OTHER_PLACES[:1]


def _find_at(trials: Trials, trial: Trial, form: Form, dtypes: Sequence[str]) -> bool:
    """Find the first of some number types with which a call works."""
    trials.is_unchecked &= dtypes[0] != _DTYPES[0]
    for dtype in dtypes:
        if dtype == "float64" and interpreters.is_interpreting():
            trials.refuse(dtype, _OF_INTERPRETERS)
            continue
        try:
            found, base = trials.with_results(replace(form, dtypes=(dtype,)), trial)
        except RefusedError as refused:
            trials.refuse(dtype, refused)
            trials.is_unchecked |= _may_misread(trials, form)
            continue
        trials.first = trial
        trials.adopt(found, base, trial)
        return True
    return False


def _shorten(trials: Trials) -> None:
    """Make the trial calls that follow cheaper, with fewer rows, if the function takes them. If the
    results are the certified ones, neither the order of axes nor the number type is misread.
    """
    lengths = trials.measured & {"n_q", "n_k", "seq_len"}
    shorter = trials.trial.sized(**dict.fromkeys(lengths, _FEW_ROWS))
    with suppress(RefusedError):
        trials.adopt(trials.form, trials.results(trials.form, shorter), shorter)
    if not trials.operation.is_exact:
        trials.is_certified = trials.are_right(trials.form, trials.trial, trials.base)


# -- The order of axes -----------------------------------------------------------------------------


class _AxesProbe(NamedTuple):
    """An argument that is 1 in some rows and 0 elsewhere, and the result that shows the axis of
    rows, since it extends along that axis.
    """

    argument: str
    ones: tuple[Any, Any]
    result: int
    extends: Callable[[Array, int], bool]


def _reaches(array: Array, axis: int) -> bool:
    """Whether entries at several places of an axis are not 0."""
    return bool((np.moveaxis(array, axis, 0) != 0).reshape(array.shape[axis], -1).any(1).sum() > 1)


def _varies(array: Array, axis: int) -> bool:
    return bool((array != np.take(array, [0], axis)).any())


_ALL = slice(None)
_AXES_PROBES: Mapping[str, _AxesProbe] = {
    # A value of the first key reaches all queries, and the gradient of the last query all keys.
    **dict.fromkeys(_ATTENTION, _AxesProbe("v", (0, 0), 0, _reaches)),
    **dict.fromkeys(_ATTENTION_GRADIENTS, _AxesProbe("grad_out", (-1, -1), 2, _reaches)),
    # Equal rows are rotated by their positions.
    **dict.fromkeys(_ROTATIONS, _AxesProbe("x", (_ALL, _ALL), 0, _varies)),
    **dict.fromkeys(_ROTATION_GRADIENTS, _AxesProbe("grad_out", (_ALL, _ALL), 0, _varies)),
}


def _find_order_of_axes(trials: Trials) -> None:
    """Exchange the axes of heads and rows if the function treats the former as rows."""
    probe, form, trial = _AXES_PROBES.get(trials.operation.name), trials.form, trials.trial
    if probe is None or trial.rank < 1 or trials.is_certified:
        return
    array = np.zeros(trial.shape(trials.operation, probe.argument))
    array[(..., *probe.ones, _ALL)] = 1.0
    with suppress(RefusedError):
        result = trials.results(form, trial.with_arguments(**{probe.argument: array}))[probe.result]
        if probe.extends(result, -3) and not probe.extends(result, -2):
            other = replace(form, axes=ROWS_FIRST if form.axes == HEADS_FIRST else HEADS_FIRST)
            trials.adopt(*trials.with_results(other, trial))


# -- Number types ----------------------------------------------------------------------------------


def _find_dtypes(trials: Trials) -> None:
    """Find the number types that work, from the first one that worked on."""
    first = trials.form.dtype
    reading: dict[str, list[Array]] = {}
    returning: dict[str, list[Array]] = {}
    for dtype in _DTYPES[_DTYPES.index(first) :]:
        if reading and trials.is_unchecked:  # it may read beyond the end of narrower arrays
            trials.refuse(dtype, "It was not tried: the function does not check the type of its arrays.")
            continue
        form = replace(trials.form, dtypes=(dtype,))
        try:
            results = trials.base if dtype == first else trials.results(form, trials.trial)
            returning[dtype] = results
            if len(reading) < 2 and not trials.is_certified:  # a function that reads two types looks at the type
                _require_linear(trials, form, results)
            reading[dtype] = results
        except RefusedError as refused:
            trials.refuse(dtype, refused)
            trials.is_unchecked |= not reading and _may_misread(trials, form)
    found = reading or returning
    trials.adopt(replace(trials.form, dtypes=tuple(found)), next(iter(found.values())))


def _may_misread(trials: Trials, form: Form) -> bool:
    """Whether the last call returned something wrong for arrays of a type. JAX changes the type of
    float64 arrays before the function gets them.
    """
    return trials.has_returned and bool(trials.operation.arrays) and form.arrays != "jax"


def _require_linear(trials: Trials, form: Form, results: list[Array]) -> None:
    """Raise RefusedError if a factor of an argument is not a factor of the first result, or if much
    of this result is 0. A function that misreads the type of its arrays shows one of them: it
    writes a part of the result only, or interprets bits as other numbers.
    """
    name, output = _LINEAR.get(trials.operation.name), trials.operation.outputs[0]
    if name is None:
        return
    if np.count_nonzero(results[0]) <= _NONZERO_SHARE * results[0].size:
        raise RefusedError(f"More than a quarter of {output} is 0.")
    given = trials.operation.named(trials.trial.arguments(trials.operation))[name]
    scaled = trials.results(form, trials.trial.with_arguments(**{name: given * _FACTOR}))
    if not alike(results[0] * _FACTOR, scaled[0]):
        raise RefusedError(f"{name} / 1024 does not give {output} / 1024.")


_FIRST_STAGES = (_find_first, _shorten, _find_dtypes, _find_order_of_axes)
_STAGES = (
    *_FIRST_STAGES,
    *(find_options, find_places, find_both, find_sizes),
)
"""What is found, in order. Each stage goes on with what the stages before it found."""
