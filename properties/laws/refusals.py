"""What a refusal is."""

from typing import Any

import numpy as np

from oracles import Enclosure
from properties.contract.operations import OPERATIONS
from properties.contract.results import BrokenError, RaisedError
from properties.contract.subject import Subject

__all__ = ["refused"]


def refused(subject: Subject, arguments: tuple[Any, ...], what: str) -> None:
    """A call raises one of the exceptions that the implementation declares to refuse with, or
    returns what is right, where there is such.

    Where no oracle answers, as for a sequence of length 0, a result without entries is right, and
    no other. The call is not kept: no known bug explains what may be refused.
    """
    o, refuses = OPERATIONS[subject.operation], subject.implementation.refuses
    wanted = " or ".join(kind.__name__ for kind in refuses)
    try:
        values, *_ = subject.run(o, arguments)
    except RaisedError as raised:
        subject.require(isinstance(raised.__cause__, refuses), f"{raised} But {what} should be refused by {wanted}.")
        return
    except BrokenError as broken:
        raise BrokenError(f"{broken} But {what} should be refused by {wanted}.") from None
    try:
        right = subject.expected(o, arguments)
    except ValueError:  # in its conventions there is no right answer
        right = ()
    subject.require(
        right or not any(np.size(x) for x in values),
        f"returned something for {what}, but should refuse it by {wanted}.",
    )
    wrong = f"returned something wrong for {what}, but should refuse it by {wanted}"
    for name, value, answer in zip(o.outputs, values, right, strict=False):
        if isinstance(answer, Enclosure):
            excess = answer.excess(value).max(initial=0.0)
            subject.require(excess <= 1, f"{wrong}: {name} is {excess:.4g} budgets off.")
        else:
            subject.require(np.array_equal(value, answer), f"{wrong}: {name} is another mask.")
