"""Trial calls of a function in some form: each returns finite arrays of the right shape and type,
or fails with a reason.
"""

import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from properties.contract.caller import Caller
from properties.contract.conversion import UngivenError
from properties.contract.operations import Operation
from properties.contract.results import BrokenError
from properties.contract.wording import said
from properties.inspection.array import Array
from properties.inspection.forms import Form, results_of
from properties.inspection.probe import SpentError
from properties.inspection.trial_calls import Trial

__all__ = ["RefusedError", "Trials", "alike"]


class RefusedError(Exception):
    """A trial call failed. The message is the exception, or the fault of the result."""


class Trials:
    """At most `most` calls of a function as an operation, until a reading of time.monotonic.

    `calls` counts the calls. `has_returned` says whether the last one returned something.
    """

    def __init__(self, function: Callable[..., Any], operation: Operation, most: int, until: float) -> None:
        self.function, self.operation, self.most, self.until = function, operation, most, until
        self.calls = 0
        self.has_returned = False
        self._returned: Any = None

    def results(self, form: Form, trial: Trial, layout: str = "contiguous") -> list[Array]:
        """Return the results of one call. Raises RefusedError if the call fails, and SpentError if
        no call is left.
        """
        if self.calls >= self.most or time.monotonic() >= self.until:
            raise SpentError
        self.has_returned = False
        return self._judged(self._recorded, form, trial, layout)

    def with_results(self, form: Form, trial: Trial) -> tuple[Form, list[Array]]:
        """Make one call, and return its results, and the form with the way in which they are found
        in the return value. Raises what `results` raises.
        """
        first, *others = (replace(form, results=results) for results in results_of(self.operation))
        first = _with_words(first, self.operation)
        try:
            return first, self.results(first, trial)
        except RefusedError as refused:
            if not self.has_returned:
                raise
            returned = self._returned
            for other in others:
                found = _with_words(other, self.operation)
                try:
                    return found, self._judged(lambda *_, **__: returned, found, trial, "contiguous")
                except RefusedError:
                    continue
            raise RefusedError(str(refused)) from refused

    def _recorded(self, *arguments: Any, **options: Any) -> Any:
        self.calls += 1
        self._returned = self.function(*arguments, **options)
        self.has_returned = True
        return self._returned

    def _judged(self, function: Callable[..., Any], form: Form, trial: Trial, layout: str) -> list[Array]:
        arguments = trial.arguments(self.operation)
        caller = Caller(form.implementation("trial", function), self.operation.name)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                values, *_ = caller.run(self.operation, arguments, layout)
        except BrokenError as broken:
            cause = broken.__cause__
            raise RefusedError(f"{type(cause).__name__}: {said(cause)}" if cause else str(broken)) from broken
        except UngivenError as ungiven:
            raise RefusedError(str(ungiven)) from ungiven
        missing = caller.implementation.support.untold(self.operation)
        named = dict(zip(self.operation.returned(arguments), values, strict=False))
        results = {name: value for name, value in named.items() if name not in missing}
        for name, value in results.items():
            is_empty_sum = np.isneginf(value) if self.operation.is_log_sum_exp(name) else False
            if value.dtype == float and not (np.isfinite(value) | is_empty_sum).all():
                raise RefusedError(f"{name} has numbers that are not finite.")
        return list(results.values())


def _with_words(form: Form, operation: Operation) -> Form:
    """The form, with the word for a log-sum-exp that is not returned."""
    return form if len(form.results) == len(operation.outputs) else replace(form, words=("no log-sum-exp",))


def alike(first: Array, second: Array) -> bool:
    """Return whether two results of the same numbers can differ by rounding only.

    Rounding moves an entry by less than half of itself, except where terms cancel, which few
    entries do. Arrays that are misread give unrelated numbers, and few of these are so close.
    """
    compared = first[first != 0]
    close = np.abs(compared - second[first != 0]) <= np.abs(compared) / 2
    return not compared.size or bool(close.mean() > 0.5)
