"""The law of memory: it does not matter in which memory the arguments of a call lie."""

from typing import Any

from properties.contract.operations import OPERATIONS
from properties.contract.results import RaisedError, results_of
from properties.contract.subject import Subject
from properties.laws.feature_rules import why_few_shapes
from properties.laws.law import Laws
from properties.strategies.domains import DOMAINS
from properties.strategies.memory import calls_in_memory

__all__ = ["law"]

law = Laws(lambda operation: ("shared memory",))


@law(*(name for name in OPERATIONS if "shared memory" in DOMAINS[name]), measures=True, exempts=why_few_shapes)
def arguments_that_share_memory_are_read_as_copies(subject: Subject, *arguments: Any) -> bool:
    """At fixed sizes: the call gives the same result as with separate contiguous arrays.

    Two or more arguments are one array, as in attention(x, x, x); arrays of one shape are views of
    one buffer; an array is expanded along an axis, with a stride of 0; or it has another layout. An
    implementation that declares no layouts may raise for a layout, but not for an array that is
    passed twice.
    """
    operation, implementation = OPERATIONS[subject.operation], subject.implementation
    own, asked = results_of(subject(*arguments)), False
    for words, changed, layout in calls_in_memory(operation, implementation, arguments):
        try:
            views = subject.call(operation.name, changed, layout)
        except RaisedError as raised:
            subject.require(implementation.layouts is None and layout != "aliased", f"with {words}, it {raised}")
            continue
        copies = own if changed is arguments else results_of(subject.call(operation.name, changed))
        for name, view, copy in zip(operation.returned(changed), results_of(views), copies, strict=False):
            subject.alike(view, copy, f"with {words}, {name}")
        asked = True
    return asked
