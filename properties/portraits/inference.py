"""Finds out the conventions of an implementation: the values that its results show.

Each experiment of `EXPERIMENTS` is a call. Its results are compared with the certified values under
each value of the convention. A value is found if the results agree with it, and with no other one.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from oracles import Enclosure
from oracles.conventions import DEFAULT
from properties.bugs import CATALOGUE
from properties.contract.caller import Caller
from properties.contract.conversion import UngivenError
from properties.contract.implementation import Implementation
from properties.contract.operations import OPERATIONS, Operation
from properties.contract.results import BrokenError, RaisedError
from properties.contract.support import OutsideError
from properties.inspection.array import Array
from properties.portraits.experiments import EXPERIMENTS, Experiment
from properties.portraits.frequencies import rotations
from properties.portraits.meanings import MEANINGS

__all__ = ["Finding", "Observe", "infer"]

Observe = Callable[[str, tuple[Any, ...], str], None]
"""Is told of each call: the operation, the arguments and the memory layout."""

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
    """

    convention: str
    values: Mapping[str, Any]
    operation: str
    arguments: tuple[Any, ...]
    bug: str = ""


def infer(implementation: Implementation, observe: Observe | None = None) -> tuple[Implementation, tuple[Finding, ...]]:
    """Return the implementation with the conventions that its results show, and the findings.

    A convention that no experiment shows keeps the declared value, and has no finding, or a finding
    without values.
    """
    findings: dict[str, Finding] = {}
    for operation in (OPERATIONS[name] for name in OPERATIONS if name in implementation.operations):
        for experiment in EXPERIMENTS:
            if experiment.convention in findings and findings[experiment.convention].values:
                continue
            arguments = experiment.arguments(operation, implementation)
            if arguments is None:
                continue
            finding = _finding(_Trial(implementation, operation, arguments, experiment, observe))
            if finding is not None:
                findings[experiment.convention] = finding
                implementation = _following(implementation, finding.values)
    return implementation, tuple(findings.values())


class _Trial:
    """One experiment with one implementation: its results, called when they are needed."""

    def __init__(
        self,
        implementation: Implementation,
        operation: Operation,
        arguments: tuple[Any, ...],
        experiment: Experiment,
        observe: Observe | None,
    ) -> None:
        self.implementation, self.operation, self.arguments = implementation, operation, arguments
        self.experiment, self._observe = experiment, observe
        self._results: dict[str, tuple[Array, ...] | None] = {}

    def results(self, candidate: _Candidate) -> tuple[Array, ...] | None:
        """The results of the call; None if the call is refused. Another polarity of masks is another
        call. Raises BrokenError for results that are not results, and OutsideError and UngivenError
        if the call cannot be made.
        """
        following = _following(self.implementation, candidate)
        polarity = following.resolved_conventions.mask_polarity
        if polarity not in self._results:
            caller = Caller(following, self.operation.name, self._observe)
            try:
                caller.watch(self.operation.name, self.arguments)
                self._results[polarity] = caller.calls[-1].outputs
            except RaisedError as error:
                if not isinstance(error.__cause__, self.implementation.refuses):
                    raise
                self._results[polarity] = None
        return self._results[polarity]

    def candidates(self) -> Iterator[_Candidate]:
        """The values between which the experiment decides."""
        if self.experiment.convention in ("rope_pairing", "rope_base"):
            results = self.results({})
            yield from () if results is None else rotations(self.operation, self.arguments, results)
        else:
            values = [{self.experiment.convention: value} for value in MEANINGS[self.experiment.convention]]
            if self.experiment.convention == "dead_rows" and "dead_gradients" in self.operation.conventions:
                values.append({"dead_rows": "uniform", "dead_gradients": "flow"})
            yield from values

    def agrees(self, candidate: _Candidate) -> bool:
        """Whether the results are right under the values of a candidate."""
        results = self.results(candidate)
        if candidate.get("dead_rows") == "nan" and not any(np.isnan(result).any() for result in results or ()):
            return False  # gradients are not checked under this value, so they would agree with everything
        try:
            expected = Caller(_following(self.implementation, candidate), self.operation.name).expected(
                self.operation, self.arguments
            )
        except ValueError:  # the oracle refuses the call under this value
            return results is None
        return results is not None and self.accepts(results, expected)

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


def _finding(trial: _Trial) -> Finding | None:
    """What an experiment says; None if it cannot be made, or does not decide."""
    convention = trial.experiment.convention
    if trial.experiment.judged in trial.implementation.support.untold(trial.operation):
        return None
    try:
        fitting = [candidate for candidate in trial.candidates() if trial.agrees(candidate)]
    except (BrokenError, OutsideError, UngivenError):
        return None
    if len({candidate[convention] for candidate in fitting}) > 1:
        return None
    values = {name: value for name, value in (fitting or [{}])[0].items() if name in trial.operation.conventions}
    return Finding(convention, values, trial.operation.name, trial.arguments, _bug(trial, values))


def _bug(trial: _Trial, values: _Candidate) -> str:
    """The id of a known bug that gives the results of the call under the default values; "" if the
    values are the defaults, or if no known bug does. Bugs with public reports come first.
    """
    if not any(value != getattr(DEFAULT, name) for name, value in values.items()):
        return ""
    following = _following(trial.implementation, values)
    try:
        expected = Caller(following, trial.operation.name).expected(trial.operation, trial.arguments)
    except ValueError:  # the value refuses the call
        return ""
    for bug in sorted(CATALOGUE.values(), key=lambda bug: not bug.citations):
        if trial.operation.name not in bug.mutants or bug.requires or bug.promises:
            continue
        with suppress(Exception), np.errstate(all="ignore"):
            answer = trial.operation.call(bug.mutants[trial.operation.name](), trial.arguments)
            if trial.accepts(answer if isinstance(answer, tuple) else (answer,), expected):
                return bug.id
    return ""


def _following(implementation: Implementation, values: Mapping[str, Any]) -> Implementation:
    """The implementation, declared to follow these values of conventions."""
    return replace(implementation, conventions=replace(implementation.resolved_conventions, **values))

