"""Trial calls of a function, and what they have shown so far.

A call works if it returns finite arrays of the right shape and type. Whether the numbers are right
is not asked.
"""

import builtins
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from math import inf
from typing import Any

import numpy as np

from oracles.formats import PRESETS
from properties.contract.caller import Caller, Observer
from properties.contract.conversion import UngivenError
from properties.contract.implementation import USUAL_REFUSALS
from properties.contract.operations import OPERATIONS
from properties.contract.results import BrokenError
from properties.contract.wording import said
from properties.inspection.array import Array
from properties.inspection.form_arguments import Trial
from properties.inspection.forms import Form, Made, Refusal, reasons, results_of
from properties.inspection.probe import SpentError

__all__ = ["NoFormError", "RefusedError", "Trials", "alike"]


_MOST_NUMBERS = 2**14
"""In a result of a call that is kept. Certified values of longer results take more time than another
call.
"""


class NoFormError(ValueError):
    """No call worked. The message has a sentence for each reason."""


class RefusedError(Exception):
    """A trial call failed. The message is the exception, or the fault of the result."""


class Trials:
    """Trial calls of a function as an operation, at most `most` calls until a reading of
    time.monotonic.

    trial          the arguments of the usual call
    first          the arguments of the first call that worked
    base           the results of the usual call
    is_unchecked   whether the function took arrays of a type that it does not return
    is_certified   whether the results of the usual call are the certified ones
    takes_all      whether the function took all numbers of axes and all usual sizes
    refusals       what failed
    assumed        what was not tried

    `observe` is called with every call before it is made.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        operation: str,
        most: int,
        until: float = inf,
        observe: Observer | None = None,
    ) -> None:
        self.function, self.operation, self.most, self.until = function, OPERATIONS[operation], most, until
        self.calls, self.has_returned, self._observe = 0, False, observe
        self.first = self.trial = Trial()
        self.base: list[Array] = []
        self.is_unchecked = self.is_certified = self.takes_all = False
        self.refusals: list[Refusal] = []
        self.assumed: list[str] = []
        self._made: list[tuple[Form, Made]] = []
        self._returned: Any = None
        self._seconds = 0.0
        self._form: Form | None = None

    # -- What is known -----------------------------------------------------------------------------

    @property
    def form(self) -> Form:
        """The form that the trials have found so far. Raises NoFormError before a call worked."""
        if self._form is None:
            raise NoFormError(
                " ".join(
                    [f"No call of {self.operation.name} worked.", *(f"{each}." for each in reasons(self.refusals))]
                )
            )
        form = replace(self._form, refusals=tuple(self.refusals), assumed=tuple(self.assumed), calls=self.calls)
        return replace(form, made=tuple(made for other, made in self._made if form.passes(other, made.arguments)))

    def change(self, **fields: Any) -> None:
        """Change fields of the form."""
        self._form = replace(self.form, **fields)

    def restrict(self, *names: str, rule: str) -> None:
        """Restrict sizes by a rule, unless it is "", which admits every size."""
        if rule:
            self.change(sizes={**self.form.sizes, **dict.fromkeys(names, rule)})

    @property
    def measured(self) -> set[str]:
        """The names of the sizes of a call."""
        return {*self.operation.sizes(self.trial.arguments(self.operation))}

    def adopt(self, form: Form, base: list[Array], trial: Trial | None = None) -> None:
        """Go on with another form, and with the results of its usual call."""
        self._form, self.base, self.trial = form, base, trial or self.trial

    def refuse(self, what: str, error: object) -> None:
        """Keep something that failed, with the reason."""
        self.refusals.append(Refusal(what, str(error)))

    # -- Calls -------------------------------------------------------------------------------------

    def works(self, what: str, trial: Trial) -> bool:
        """Return whether a call works. If it fails, the reason is kept."""
        try:
            self.results(self.form, trial)
        except RefusedError as refused:
            self.refuse(what, refused)
            self._note_exception(refused)
            return False
        return True

    def _note_exception(self, refused: RefusedError) -> None:
        """Declare the exception of a refused size, if it is a built-in one that is not declared."""
        cause = refused.__cause__ and refused.__cause__.__cause__
        name = type(cause).__name__
        known = isinstance(cause, USUAL_REFUSALS) or name in self.form.refuses
        if isinstance(cause, Exception) and hasattr(builtins, name) and not known:
            self.change(refuses=(*self.form.refuses, name))

    def changed(self, what: str, form: Form, trial: Trial, base: list[Array] | None = None) -> list[Array]:
        """Return the results of a call with an option, if it works and has other results than the
        call without the option. Else keep the reason, and return no results.
        """
        try:
            results = self.results(form, trial)
        except RefusedError as refused:
            self.refuse(what, refused)
            return []
        if all(map(np.array_equal, self.base if base is None else base, results)):
            self.refuse(what, "The results are the same with it and without it.")
            return []
        return results

    def are_right(self, form: Form, trial: Trial, results: list[Array]) -> bool:
        """Return whether the results of a call are within the widest error limits of their formats, under
        the usual conventions. Log-sum-exps are not compared.
        """
        arguments, operation = trial.arguments(self.operation), self.operation
        if max(map(np.size, results)) > _MOST_NUMBERS:
            return False
        implementation = form.implementation("trial", self.function)
        formats = implementation.resolved_arithmetic.inputs, implementation.resolved_arithmetic.output
        widest = [preset for preset in PRESETS if (preset.inputs, preset.output) == formats][-1]
        try:
            expected = Caller(replace(implementation, arithmetic=widest), operation.name).expected(operation, arguments)
        except ValueError:
            return False
        missing = implementation.support.untold(operation)
        told = [pair for pair in zip(operation.returned(arguments), expected, strict=False) if pair[0] not in missing]
        return all(
            operation.is_log_sum_exp(name) or not (enclosure.excess(value) > 1).any()
            for (name, enclosure), value in zip(told, results, strict=True)
        )

    def results(self, form: Form, trial: Trial, layout: str = "contiguous") -> list[Array]:
        """Return the results of one call. Raises RefusedError if the call fails, and SpentError if
        no call is left.
        """
        if self.calls >= self.most or time.monotonic() >= self.until:
            raise SpentError
        self.has_returned = False
        return self._judged(self._recorded, form, trial, layout)

    def with_results(self, form: Form, trial: Trial) -> tuple[Form, list[Array]]:
        """Make one call, and return its results, and the form with the code that takes the results
        from the return value. Raises what `results` raises.
        """
        first, *others = (self._with_results(form, results) for results in results_of(self.operation))
        try:
            found = self.results(first, trial)
            if isinstance(self._returned, tuple | list) and len(self._returned) != len(first.results):
                raise RefusedError(f"It returned {len(self._returned)} values.")
            return first, found
        except RefusedError as refused:
            returned = self._returned
            for other in others if self.has_returned and not self._returned_all(trial) else ():
                try:
                    return other, self._judged(lambda *_, **__: returned, other, trial, "contiguous")
                except RefusedError:
                    continue
            raise RefusedError(str(refused)) from refused

    def _returned_all(self, trial: Trial) -> bool:
        """Return whether the last call returned arrays in the shapes of all results. Then each of them is a
        result, though maybe of another number type.
        """
        returned = self._returned if isinstance(self._returned, tuple | list) else (self._returned,)
        shapes = self.operation.shapes(*trial.arguments(self.operation))
        try:
            return [tuple(each.shape) for each in returned] == [*shapes]
        except Exception:  # a result may be anything
            return False

    def _with_results(self, form: Form, results: tuple[str, ...]) -> Form:
        all_returned = len(results) == len(self.operation.outputs)
        return replace(form, results=results, words=() if all_returned else ("no log-sum-exp",))

    def _recorded(self, *arguments: Any, **options: Any) -> Any:
        self.calls += 1
        started = time.perf_counter()
        self._returned = self.function(*arguments, **options)
        self._seconds = time.perf_counter() - started
        self.has_returned = True
        return self._returned

    def _judged(self, function: Callable[..., Any], form: Form, trial: Trial, layout: str) -> list[Array]:
        """The results of a call through the contract. Raises RefusedError if it fails."""
        arguments = trial.arguments(self.operation)
        observe = self._observe if function == self._recorded else None
        caller = Caller(form.implementation("trial", function), self.operation.name, observe)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                values, *_ = caller.run(self.operation, arguments, layout)
        except BrokenError as broken:
            cause = broken.__cause__
            reason = f"{type(cause).__name__}: {said(cause)}".removesuffix(": ") if cause else str(broken)
            raise RefusedError(reason) from broken
        except UngivenError as ungiven:
            raise RefusedError(str(ungiven)) from ungiven
        missing = caller.implementation.support.untold(self.operation)
        named = zip(self.operation.returned(arguments), values, strict=False)
        results = {name: value for name, value in named if name not in missing}
        for name, value in results.items():
            is_empty_sum = np.isneginf(value) if self.operation.is_log_sum_exp(name) else False
            if value.dtype == float and not (np.isfinite(value) | is_empty_sum).all():
                raise RefusedError(f"{name} has numbers that are not finite.")
        if layout == "contiguous" and max(map(np.size, values)) <= _MOST_NUMBERS:
            self._made.append((form, Made(arguments, values, caller.arithmetic.inputs.name, self._seconds)))
        return list(results.values())


def alike(first: Array, second: Array) -> bool:
    """Return whether two results of the same numbers can differ by rounding only.

    Rounding moves an entry by less than half of itself, except where terms cancel, which few
    entries do. Arrays that are misread give unrelated numbers, and few of these are so close.
    """
    compared = first[first != 0]
    close = np.abs(compared - second[first != 0]) <= np.abs(compared) / 2
    return not compared.size or bool(close.mean() > 0.5)
