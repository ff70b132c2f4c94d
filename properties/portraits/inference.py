"""Finds out the conventions of an implementation: the values that its results show.

Each experiment of `EXPERIMENTS` is a call. Its results are compared with the certified values under
each value of the convention. A value is found if the results agree with it, and with no other one.
The trial calls that found the form of the function are compared first: one of them may show a value.
"""

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from oracles import Conventions, Enclosure
from oracles.conventions import DEFAULT
from properties.bugs import CATALOGUE
from properties.contract.caller import Caller
from properties.contract.conversion import UngivenError
from properties.contract.implementation import Implementation
from properties.contract.meanings import MEANINGS
from properties.contract.operations import OPERATIONS, Arguments, Operation
from properties.contract.results import BrokenError, RaisedError
from properties.contract.support import OutsideError
from properties.inspection.array import Array
from properties.inspection.forms import Made
from properties.inspection.probe import SpentError
from properties.portraits.experiments import EXPERIMENTS, Experiment
from properties.portraits.frequencies import rotations
from properties.strategies.plain_calls import call_in_words

__all__ = ["Calls", "Finding", "following", "infer"]

_Candidate = dict[str, Any]
"""Values of one or more conventions."""


@dataclass(frozen=True)
class Finding:
    """What one experiment says about a convention.

    convention  the name of the convention
    values      the value of the convention, and of those that were found with it; {} if the results
                agree with no value
    operation   the operation that was called
    arguments   the arguments of the call
    bug         the id of a known bug that gives these results where the default value is meant; ""
                for the default value, or if no known bug does
    nearest     if the results agree with no value: the nearest value, and the largest error under it
    """

    convention: str
    values: Mapping[str, Any]
    operation: str
    arguments: Arguments
    bug: str = ""
    nearest: tuple[Any, float] | None = None

    @property
    def call(self) -> str:
        """The call in words: "attention with causal=True (n_q 3, n_k 5)"."""
        return call_in_words(OPERATIONS[self.operation], self.arguments)


def infer(
    implementation: Implementation, operation: Operation, known: Mapping[str, Any], calls: "Calls"
) -> tuple[Finding, ...]:
    """Return one finding for each convention of an operation about which an experiment says something.

    Known conventions are left out. A convention without a finding keeps the declared value.
    """
    findings: dict[str, Finding] = {}
    implementation = following(implementation, known)
    for finds, experiment in product((_found_before, _finding), EXPERIMENTS):
        settled = known.keys() | {name for finding in findings.values() for name in finding.values}
        if experiment.convention in settled:
            continue
        arguments = experiment.arguments(operation, implementation)
        if arguments is None:
            continue
        finding = finds(_Trial(implementation, operation, arguments, experiment, calls))
        if finding is not None:
            findings[experiment.convention] = finding
            implementation = following(implementation, finding.values)
    return tuple(findings.values())


def following(implementation: Implementation, values: Mapping[str, Any]) -> Implementation:
    """Return the implementation, declared to follow these values of conventions."""
    return replace(implementation, conventions=replace(implementation.resolved_conventions, **values))


class Calls:
    """Calls of an implementation, at most `most`. Each is made once, however often its results are
    needed. `results` leaves `kept` calls to the instruments.

    `number` counts all calls. `made` are the trial calls that were made before. `seconds` are the
    times of these, and of those that `results` made. `raised` are the types of their exceptions.
    """

    def __init__(self, most: int = sys.maxsize, kept: int = 0, made: Sequence[Made] = ()) -> None:
        self._known: dict[Any, Any] = {}
        self.most, self.kept, self.number, self.made = most, kept, 0, made
        self.seconds = [each.seconds for each in made]
        self.raised: set[type[BaseException]] = set()

    def count(self, operation: str, arguments: Arguments, layout: str) -> None:
        """Count one call: an observer of a `Caller`."""
        self.number += 1

    @property
    def left(self) -> int:
        """The number of calls that are left."""
        return max(self.most - self.number, 0)

    def results(
        self, implementation: Implementation, operation: Operation, arguments: Arguments
    ) -> tuple[Array, ...] | None:
        """Return the results of a call; None if the implementation refuses it. Raises BrokenError for
        results that are not results, OutsideError and UngivenError if the call cannot be made, and
        SpentError if no call is left.
        """
        polarity = implementation.resolved_conventions.mask_polarity
        number_type = implementation.resolved_arithmetic.inputs.name
        given = (argument.tobytes() if isinstance(argument, np.ndarray) else argument for argument in arguments)
        key = (operation.name, polarity, number_type, *given)
        if key not in self._known:
            if self.left <= self.kept:
                raise SpentError
            self._known[key] = self._made(implementation, operation, arguments)
        known = self._known[key]
        if isinstance(known, Exception):
            raise known
        results: tuple[Array, ...] | None = known
        return results

    def _made(self, implementation: Implementation, operation: Operation, arguments: Arguments) -> Any:
        caller = Caller(implementation, operation.name, self.count)
        started = time.perf_counter()
        try:
            caller.watch(operation.name, arguments)
        except RaisedError as error:
            if not isinstance(error.__cause__, implementation.refusals):
                return error
            self.raised.add(type(error.__cause__))
            return None
        except (BrokenError, OutsideError, UngivenError) as error:
            return error
        self.seconds.append(time.perf_counter() - started)
        return caller.calls[-1].outputs


@dataclass(frozen=True)
class _Trial:
    """One experiment with one implementation. `made` is the call if it was made before."""

    implementation: Implementation
    operation: Operation
    arguments: Arguments
    experiment: Experiment
    calls: Calls
    made: Made | None = None

    def like(self) -> Iterator[Made]:
        """The calls that were made before with the options of this one. Others are for calls without
        options only.
        """
        words, number_type = self.implementation.support.options, self.implementation.resolved_arithmetic.inputs.name
        if self._is_fitted or "causal only" in words:
            return
        for made in self.calls.made:
            own, others = self._options(self.arguments), self._options(made.arguments)
            if made.number_type == number_type and (own <= others if own else not others):
                yield made

    @property
    def _is_fitted(self) -> bool:
        """Whether the values are those that explain the results of one call, and not all."""
        return self.experiment.convention in ("rope_pairing", "rope_base")

    def _options(self, arguments: Arguments) -> set[str]:
        """The names of the options of a call."""
        named, operation = self.operation.named(arguments), self.operation
        return {name for name, value in named.items() if value is not None and name in (*operation.options, "mask")}

    def results(self, candidate: _Candidate) -> tuple[Array, ...] | None:
        """The results of the call under the values of a candidate, as `Calls.results`."""
        if self.made is not None:
            return self.made.results
        return self.calls.results(following(self.implementation, candidate), self.operation, self.arguments)

    def expected(self, candidate: _Candidate) -> Sequence[Any] | None:
        """What the results should be under the values of a candidate; None if it refuses the call.

        A trial call passes its masks unchanged. A kernel of the other polarity then sees the keys
        that they hide.
        """
        implementation, arguments = following(self.implementation, candidate), self.arguments
        conventions: Conventions = implementation.resolved_conventions
        is_other = self.made is not None and conventions.mask_polarity == "true_blocks"
        if is_other and not implementation.support.entries:
            arguments = tuple(
                ~value if value is not None and self.operation.is_mask(name) else value
                for name, value in self.operation.named(arguments).items()
            )
        try:
            expected = Caller(implementation, self.operation.name).expected(self.operation, arguments)
        except ValueError:
            return None
        return [~each if is_other and isinstance(each, np.ndarray) else each for each in expected]

    def candidates(self) -> Iterator[_Candidate]:
        """The values between which the experiment decides."""
        if self._is_fitted:
            results = self.results({})
            yield from () if results is None else rotations(self.operation, self.arguments, results)
        else:
            has_bias = "bias" in self._options(self.arguments)
            shown = [value for value in MEANINGS[self.experiment.convention] if has_bias or value != "causal_alone"]
            values = [{self.experiment.convention: value} for value in shown]
            if self.experiment.convention == "mask_polarity" and "causal only" in self.implementation.support.options:
                others = MEANINGS["causal_with_mask"]  # each call with a mask is causal too
                values = [{**value, "causal_with_mask": other} for value in values for other in others]
            if self.experiment.convention == "dead_rows" and "dead_gradients" in self.operation.conventions:
                values.append({"dead_rows": "uniform", "dead_gradients": "flow"})
            yield from values

    def agrees(self, candidate: _Candidate) -> bool:
        """Whether the results are right under the values of a candidate."""
        results = self.results(candidate)
        if candidate.get("dead_rows") == "nan" and not any(np.isnan(result).any() for result in results or ()):
            return False  # gradients are not checked under this value, so they would agree with everything
        expected = self.expected(candidate)
        if expected is None or results is None:
            return expected is results
        return self.accepts(results, expected)

    def error(self, candidate: _Candidate) -> float:
        """The largest error of the results under the values of a candidate; ∞ if it cannot be measured."""
        pairs = zip(self.results(candidate) or (), self.expected(candidate) or (), strict=False)
        with np.errstate(invalid="ignore"):
            errors = [np.abs(value - one.mid).max(initial=0.0) for value, one in pairs if isinstance(one, Enclosure)]
        return float(np.nan_to_num(max(errors, default=np.inf), nan=np.inf, posinf=np.inf))

    def accepts(self, results: Sequence[Array], expected: Sequence[Any]) -> bool:
        """Whether the results that the experiment judges are within their error limits."""
        names = self.operation.returned(self.arguments)
        judged = self.experiment.judged
        return all(
            not (enclosure.excess(value) > 1).any()
            if isinstance(enclosure, Enclosure)
            else np.array_equal(value, enclosure)
            for name, value, enclosure in zip(names, results, expected, strict=False)
            if (name == judged if judged else not self.operation.is_log_sum_exp(name))
        )


def _found_before(trial: _Trial) -> Finding | None:
    """What a call shows that was made before; None if no such call shows a value."""
    made = (_finding(replace(trial, arguments=each.arguments, made=each)) for each in trial.like())
    return next((finding for finding in made if finding and finding.values), None)


def _finding(trial: _Trial) -> Finding | None:
    """What an experiment says; None if it cannot be made, or does not decide."""
    convention = trial.experiment.convention
    if trial.experiment.judged in trial.implementation.support.untold(trial.operation):
        return None
    try:
        candidates = list(trial.candidates())
        fitting = [candidate for candidate in candidates if trial.agrees(candidate)]
    except (BrokenError, OutsideError, UngivenError, SpentError):
        return None
    if len({candidate[convention] for candidate in fitting}) > 1:
        return None
    if not fitting:
        error, value = min(
            ((trial.error(candidate), candidate[convention]) for candidate in candidates),
            default=(np.inf, None),
            key=lambda pair: pair[0],
        )
        return Finding(convention, {}, trial.operation.name, trial.arguments, nearest=(value, error))
    values = {name: value for name, value in fitting[0].items() if name in trial.operation.conventions}
    return Finding(convention, values, trial.operation.name, trial.arguments, _bug(trial, values))


def _bug(trial: _Trial, values: _Candidate) -> str:
    """The id of a known bug that gives the results of the call under the default values; "" if the
    values are the defaults, or if no known bug does. Bugs with public reports come first.
    """
    if not any(value != getattr(DEFAULT, name) for name, value in values.items()):
        return ""
    expected = trial.expected(values)
    if expected is None:
        return ""
    for bug in sorted(CATALOGUE.values(), key=lambda bug: not bug.citations):
        if trial.operation.name not in bug.mutants or bug.requires or bug.promises:
            continue
        with suppress(Exception), np.errstate(all="ignore"):
            answer = trial.operation.call(bug.mutants[trial.operation.name](), trial.arguments)
            if trial.accepts(answer if isinstance(answer, tuple) else (answer,), expected):
                return bug.id
    return ""
