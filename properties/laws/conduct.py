"""Laws about every operation: what it returns, and what it leaves alone."""

from typing import Any

from properties.law import Laws
from properties.operations import OPERATIONS
from properties.strategies.cases import CASES
from properties.subject import Subject

law = Laws()


@law(*OPERATIONS, cases=CASES, effort=0.25, purpose="Kernels that race, or that seed themselves, differ from call to call.")
def a_second_call_gives_the_same(subject: Subject, *arguments: Any) -> None:
    """For every case: the same call again gives the same result.

    Exact for an implementation that declares to be deterministic, else within budget.
    """
    first, second = subject(*arguments), subject(*arguments)
    pairs = zip(first, second, strict=True) if isinstance(first, tuple) else [(first, second)]
    for a, b in pairs:
        (subject.same if subject.implementation.deterministic else subject.close)(b, a)
