"""Finds functions that are causal in every call, and how an adapter declares them.

`attention` has the argument `causal`, so the adapter declares "causal only". The other operations
have no such argument: a function of theirs is offered as an operation that is causal or that has
the argument.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from oracles import Arithmetic
from properties.contract.caller import Caller
from properties.contract.conversion import UngivenError
from properties.contract.operations import OPERATIONS, Arguments, Operation
from properties.contract.results import BrokenError
from properties.contract.support import OutsideError
from properties.inspection.form_trials import NoFormError
from properties.inspection.forms import Form, Refusal
from properties.inspection.probe import SpentError
from properties.inspection.signatures import has_parameter
from properties.portraits.inference import Calls
from properties.strategies.plain_calls import equal_scores, plain_call

__all__ = ["asked", "causal_form", "is_always_causal"]

_OFFERED_AS: Mapping[str, str] = {
    "scaled_dot_product_attention": "causal_attention",
    "grouped_query_attention": "attention",
    "attention": "attention",
}
"""The operation as which an adapter offers a function that is always causal, by the operation whose
name the function has.
"""


def is_always_causal(form: Form, function: Callable[..., Any], presets: Iterable[Arithmetic], calls: Calls) -> bool:
    """Return whether a function that takes no argument `causal` is causal in a call without options.

    All scores are equal, so that neither a scale nor a map of heads matters: each query gets the mean
    of the values that it reads. The error limits are those of the first of the presets that accepts
    the results.
    """
    if form.operation not in _OFFERED_AS or "causal" in form.features or has_parameter(function, "causal"):
        return False
    operation, implementation = OPERATIONS[form.operation], form.implementation("mine", function)
    arguments = plain_call(operation, implementation, {}, fill=equal_scores)
    try:
        results = None if arguments is None else calls.results(implementation, operation, arguments)
    except (BrokenError, OutsideError, UngivenError, SpentError):
        return False
    if arguments is None or results is None:
        return False
    for preset in presets:
        caller = Caller(replace(implementation, arithmetic=preset), operation.name)
        reads_all, *causal = (
            not (caller.expected(operation, each)[0].excess(results[0]) > 1).any()
            for each in _with_masks(operation, arguments)
        )
        if reads_all or any(causal):
            return not reads_all
    return False


def _with_masks(operation: Operation, arguments: Arguments) -> Iterator[tuple[Any, ...]]:
    """Yield a call without a mask, with the causal mask from the top left, and from the bottom right."""
    named = operation.named(arguments)
    n_q, n_k = (named[name].shape[-2] for name in "qk")
    yield arguments
    for first in (0, n_k - n_q):
        mask = np.broadcast_to(np.tri(n_q, n_k, first, dtype=bool), (*named["q"].shape[:-1], n_k))
        yield tuple({**named, "mask": mask}.values())


def causal_form(form: Form, others: Collection[str], search: Callable[[str], Form]) -> Form:
    """Return the form in which an adapter can declare a function that is causal in every call. `form` is
    the form that was found, `others` are the operations of the kernel, and `search` finds the form of
    the function as another operation.

    Raises NoFormError, with a clause, if an adapter cannot declare it.
    """
    name = _OFFERED_AS[form.operation]
    if name == form.operation:
        return _declared(form)
    cannot = f"how to declare that every call is causal: {form.operation} has no argument causal"
    if name in others:
        raise NoFormError(f"{cannot}, and another function offers {name}")
    try:
        found = search(name)
    except NoFormError as error:
        raise NoFormError(f"{cannot}. {error}".removesuffix(".")) from None
    if name == "attention":
        found = _declared(found)
    elif "no masks" not in form.words:
        found = replace(found, refusals=(*found.refusals, Refusal("mask", f"{name} has no argument mask")))
    return replace(found, calls=form.calls + found.calls)


def _declared(form: Form) -> Form:
    """The form of `attention` with the declaration that every call is causal."""
    refusals = tuple(refusal for refusal in form.refusals if refusal.what != "causal")
    words, features = (*form.words, "causal only"), (*form.features, "causal")
    return replace(form, words=words, features=features, refusals=refusals)


def asked(given_as: str, offered: str) -> str:
    """Return the sentences of the question about a function that is always causal. It is named after
    one operation, and offered as the same or another one.
    """
    declared = 'declares "causal only"' if given_as == offered else f"offers the function as {offered}"
    return (
        "A call without options is causal: each query reads only the keys up to its own position. "
        f"The adapter {declared}. If each query should read all keys, the kernel is wrong."
    )
