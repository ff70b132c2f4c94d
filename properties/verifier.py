"""Checking one law on one implementation: draw cases, measure errors in units of their budgets, and shrink the first violation."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import mpmath
import numpy as np
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import Flaky

from oracles import Conventions, Enclosure
from properties.implementation import Implementation
from properties.laws import Law
from spec.tensor_core import Array

__all__ = ["Outcome", "Status", "Violation", "check", "excess", "plan"]

Status = Literal["held", "declared", "vacuous", "violated"]


@dataclass(frozen=True)
class Violation:
    """The smallest case found on which a law fails, how it fails, and the error there in units of its budget."""

    case: tuple[Any, ...]
    summary: str
    excess: float


@dataclass(frozen=True)
class Outcome:
    """What became of a law on an implementation: over `examples` cases the largest error was `worst` times its budget.

    In `informative` cases no budget was vacuous; without such a case a law is vacuous, which is not held. A declared deviation carries the
    smallest case that shows it as its `violation`.
    """

    law: str
    operation: str
    implementation: str
    status: Status
    examples: int
    informative: int
    worst: float
    seconds: float
    violation: Violation | None = None
    reason: str | None = None


class _LawBrokenError(AssertionError):
    """A law fails on a case, by `excess` budgets."""

    def __init__(self, summary: str, excess: float = np.inf) -> None:
        super().__init__(summary)
        self.excess = excess


def excess(actual: Array, enclosure: Enclosure) -> Array:
    """|actual − mid| / rad for each entry, above 1 where it lies outside; entries of type mpf are compared at their own precision."""
    if actual.dtype != np.dtype(object):
        return enclosure.excess(actual)

    def entry(*i: int) -> float:
        error = float(abs(actual[i] - mpmath.mpf(enclosure.mid[i])))
        return 0.0 if error == 0 else error / enclosure.rad[i] if enclosure.rad[i] > 0 else np.inf

    with mpmath.workprec(250):
        return np.array([entry(*i) for i in np.ndindex(*actual.shape)]).reshape(actual.shape)


def _outputs(implementation: Implementation, operation: str, case: tuple[Any, ...]) -> tuple[Any, ...]:
    """What the operation returns, as a tuple; it may neither raise nor write into its inputs."""
    before = [x.copy() if isinstance(x, np.ndarray) else x for x in case]
    try:
        returned = implementation.operations[operation](*case)
    except (Exception, SystemExit) as error:
        raise _LawBrokenError(f"raised {type(error).__name__}: {error}") from error
    if not all(np.array_equal(x, y) for x, y in zip(case, before, strict=True) if isinstance(x, np.ndarray)):
        raise _LawBrokenError("wrote into its inputs.")
    return returned if isinstance(returned, tuple) else (returned,)


def _judge(outputs: tuple[Any, ...], enclosures: tuple[Enclosure, ...], dtype: str) -> tuple[float, bool]:
    """The largest error in units of its budget, and whether all budgets say something; else a law that is broken."""
    if len(outputs) != len(enclosures):
        raise _LawBrokenError(f"returned {len(outputs)} values, but should return {len(enclosures)}.")
    worst = 0.0
    for k, (enclosure, actual) in enumerate(zip(enclosures, outputs, strict=True)):
        name = "out" if len(enclosures) == 1 else f"out[{k}]"
        for what, should_be in (("shape", enclosure.mid.shape), ("dtype", np.dtype(dtype))):
            if (found := getattr(actual, what, type(actual).__name__)) != should_be:
                raise _LawBrokenError(f"{name} has {what} {found}, but should have {what} {should_be}.")
        if dtype == "object" and not all(isinstance(x, mpmath.mpf) for x in actual.flat):
            raise _LawBrokenError(f"{name} holds something else than mpmath.mpf, but should hold nothing else.")
        ratios = excess(actual, enclosure)
        if ratios.size and ratios.max() > 1:
            i = np.unravel_index(ratios.argmax(), ratios.shape)
            raise _LawBrokenError(
                f"{name}[{', '.join(map(str, i))}]={float(actual[i]):.9g}, but should be {enclosure.mid[i]:.9g} ± {enclosure.rad[i]:.2g}: "
                f"the error is {ratios[i]:.3g} times its budget.",
                float(ratios[i]),
            )
        worst = max(worst, ratios.max(initial=0.0))
    return worst, all(enclosure.judged and not enclosure.vacuous for enclosure in enclosures)


class _Trial:
    """A law on an implementation, case after case: what was seen so far."""

    def __init__(self, law: Law, implementation: Implementation) -> None:
        self.law, self.implementation = law, implementation
        self.deviation = implementation.known_deviations.get(law.name)
        self.examples, self.informative, self.worst = 0, 0, 0.0
        self.violation: Violation | None = None
        self.shown: Violation | None = None  # the smallest case on which the declared deviation shows

    def judge(self, case: tuple[Any, ...], outputs: tuple[Any, ...], conventions: Conventions) -> tuple[float, bool]:
        """`_judge` by the law's oracle in the given conventions."""
        expected = self.law.oracle(*case, arithmetic=self.implementation.arithmetic, conventions=conventions)
        return _judge(outputs, expected if isinstance(expected, tuple) else (expected,), self.implementation.array_dtype)

    def hold(self, case: tuple[Any, ...]) -> None:
        """The law on one case, in the conventions that the implementation declares; raises where it is broken."""
        self.examples += 1
        try:
            outputs = _outputs(self.implementation, self.law.operation, case)
            largest, tells = self.judge(case, outputs, self.implementation.conventions(self.law.name))
        except _LawBrokenError as broken:  # Hypothesis runs the smallest failing case last
            self.violation = Violation(case, str(broken), broken.excess)
            raise
        self.worst, self.informative = max(self.worst, largest), self.informative + tells
        if self.deviation:
            try:
                self.judge(case, outputs, Conventions())
            except _LawBrokenError as broken:
                if self.shown is None or _size(case) < _size(self.shown.case):
                    self.shown = Violation(case, str(broken), broken.excess)

    def status(self) -> Status:
        """What the cases say when none of them broke the law."""
        if self.deviation and not self.shown:
            summary = (
                f"is declared to deviate, but held on {self.examples} cases: the declaration should go. It says: {self.deviation.reason}"
            )
            self.violation = Violation((), summary, self.worst)
            return "violated"
        return "vacuous" if not self.informative else "declared" if self.deviation else "held"


def check(law: Law, implementation: Implementation, max_examples: int, random_seed: int) -> Outcome:
    """Try `law` on `max_examples` cases drawn from `random_seed`; the same seed draws the same cases.

    Under a declared deviation the law must hold in the conventions that it declares, on every case, and fail without them on some.
    """
    trial = _Trial(law, implementation)

    @seed(random_seed)
    @settings(
        max_examples=max_examples,
        database=None,
        deadline=None,
        derandomize=False,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),  # some cases are slow on a busy machine; nothing is filtered
        report_multiple_bugs=False,
    )
    @given(law.cases(implementation))
    def hold(case: tuple[Any, ...]) -> None:
        trial.hold(case)

    start = time.perf_counter()
    try:
        hold()
        status = trial.status()
    except _LawBrokenError:
        status = "violated"
    except Flaky:
        status = "violated"
        case = trial.violation.case if trial.violation else ()
        trial.violation = Violation(case, "gave different results when called again with the same case.", np.inf)
    return Outcome(
        law=law.name,
        operation=law.operation,
        implementation=implementation.name,
        status=status,
        examples=trial.examples,
        informative=trial.informative,
        worst=trial.violation.excess if trial.violation else trial.worst,
        seconds=time.perf_counter() - start,
        violation=trial.violation or trial.shown,
        reason=trial.deviation.reason if trial.deviation else None,
    )


def _size(case: tuple[Any, ...]) -> int:
    return sum(x.size for x in case if isinstance(x, np.ndarray))


def plan(laws: Sequence[Law], implementations: Sequence[Implementation]) -> list[tuple[Law, Implementation]]:
    """Each law with each implementation that offers its operation, law by law.

    Raises ValueError where an implementation declares a deviation from a law that there is not, or that does not apply to it.
    """
    pairs = [(law, i) for law in laws for i in implementations if law.operation in i.operations]
    for i in implementations:
        if unmatched := set(i.known_deviations) - {law.name for law, other in pairs if other is i}:
            raise ValueError(f"{i.name} declares to deviate from {sorted(unmatched)}, but no such law applies to it.")
    return pairs
