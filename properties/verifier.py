"""Checking one law on one implementation: draw cases, measure errors in units of their budgets, and shrink the first violation."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import mpmath
import numpy as np
from hypothesis import HealthCheck, Phase, given, seed, settings

from oracles import Enclosure
from properties.implementation import Implementation
from properties.laws import Law
from spec.tensor_core import Array

__all__ = ["Outcome", "Violation", "check", "excess"]

Status = Literal["held", "declared", "vacuous", "violated"]


@dataclass(frozen=True)
class Violation:
    """The smallest case found on which a law fails, and how."""

    case: tuple[Any, ...]
    summary: str


@dataclass(frozen=True)
class Outcome:
    """What became of a law on an implementation: over `examples` cases the largest error was `worst` times its budget.

    In `informative` cases no budget was vacuous; without such a case a law is vacuous, which is not held.
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
    """A law fails on a case."""


def excess(actual: Array, enclosure: Enclosure) -> Array:
    """|actual − mid| / rad for each entry, above 1 where it lies outside; entries of type mpf are compared at their own precision."""
    if actual.dtype != np.dtype(object):
        return enclosure.excess(actual)

    def entry(*i: int) -> float:
        error = float(abs(actual[i] - mpmath.mpf(enclosure.mid[i])))
        return 0.0 if error == 0 else error / enclosure.rad[i] if enclosure.rad[i] > 0 else np.inf

    with mpmath.workprec(250):
        return np.array([entry(*i) for i in np.ndindex(*actual.shape)]).reshape(actual.shape)


def _judge(law: Law, implementation: Implementation, case: tuple[Any, ...]) -> tuple[float, bool]:
    """The largest error of the case in units of its budget, and whether all budgets say something; or a law that is broken."""
    given_arrays = [(x, x.copy()) for x in case if isinstance(x, np.ndarray)]
    try:
        returned = implementation.operations[law.operation](*case)
    except Exception as error:
        raise _LawBrokenError(f"raised {type(error).__name__}: {error}") from error
    if not all(np.array_equal(x, before) for x, before in given_arrays):
        raise _LawBrokenError("wrote into its inputs.")
    expected = law.oracle(*case, arithmetic=implementation.arithmetic)
    enclosures = expected if isinstance(expected, tuple) else (expected,)
    outputs = returned if isinstance(returned, tuple) else (returned,)
    worst = 0.0
    for k, (enclosure, actual) in enumerate(zip(enclosures, outputs, strict=True)):
        name = "out" if len(enclosures) == 1 else f"out[{k}]"
        if not isinstance(actual, np.ndarray) or actual.shape != enclosure.mid.shape:
            raise _LawBrokenError(f"{name} has shape {getattr(actual, 'shape', None)}, but should have shape {enclosure.mid.shape}.")
        ratios = excess(actual, enclosure)
        if ratios.size and ratios.max() > 1:
            i = np.unravel_index(ratios.argmax(), ratios.shape)
            index = ", ".join(map(str, i))
            raise _LawBrokenError(
                f"{name}[{index}]={float(actual[i]):.9g}, but should be {enclosure.mid[i]:.9g} ± {enclosure.rad[i]:.2g}: "
                f"the error is {ratios[i]:.3g} times its budget."
            )
        worst = max(worst, ratios.max(initial=0.0))
    return worst, all(enclosure.judged and not enclosure.vacuous for enclosure in enclosures)


def check(law: Law, implementation: Implementation, max_examples: int, random_seed: int) -> Outcome:
    """Try `law` on `max_examples` cases drawn from `random_seed`; the same seed draws the same cases."""
    examples, informative, worst, violation = 0, 0, 0.0, None
    start = time.perf_counter()

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
        nonlocal examples, informative, worst, violation
        examples += 1
        try:
            largest, tells = _judge(law, implementation, case)
        except _LawBrokenError as broken:  # Hypothesis runs the smallest failing case last
            violation = Violation(case, str(broken))
            raise
        worst, informative = max(worst, largest), informative + tells

    reason = implementation.known_deviations.get(law.name)
    status: Status
    try:
        hold()
    except _LawBrokenError:
        status = "declared" if reason else "violated"
    else:
        status = "held" if informative else "vacuous"
        if reason:
            status = "violated"
            violation = Violation((), f"is declared to deviate, but held on {examples} cases: the declaration should go. It says: {reason}")
    seconds = time.perf_counter() - start
    return Outcome(law.name, law.operation, implementation.name, status, examples, informative, worst, seconds, violation, reason)


def plan(laws: Sequence[Law], implementations: Sequence[Implementation]) -> list[tuple[Law, Implementation]]:
    """Each law with each implementation that offers its operation, law by law.

    Raises ValueError where an implementation declares a deviation from a law that there is not, or that does not apply to it.
    """
    pairs = [(law, i) for law in laws for i in implementations if law.operation in i.operations]
    for i in implementations:
        if unmatched := set(i.known_deviations) - {law.name for law, other in pairs if other is i}:
            raise ValueError(f"{i.name} declares to deviate from {sorted(unmatched)}, but no such law applies to it.")
    return pairs
