"""Checking one law on one implementation: draw cases, measure errors in units of their bounds, and shrink the first violation."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import flint
import mpmath
import numpy as np
from hypothesis import HealthCheck, Phase, given, seed, settings

from properties.implementation import Implementation
from properties.laws import Law
from spec.tensor import Array

__all__ = ["Outcome", "Violation", "check", "excess"]

_BITS = 250  # enough that the spec's own radius is nothing beside any bound, that of 50 digits included


@dataclass(frozen=True)
class Violation:
    """The smallest case found on which a law fails, and how."""

    case: tuple[Any, ...]
    summary: str


@dataclass(frozen=True)
class Outcome:
    """What became of a law on an implementation: over `examples` cases the largest error was `worst` times its bound."""

    law: str
    operation: str
    implementation: str
    status: Literal["held", "declared", "violated"]
    examples: int
    worst: float
    seconds: float
    violation: Violation | None = None
    reason: str | None = None


class _LawBrokenError(AssertionError):
    """A law fails on a case."""


def _ball(x: Any) -> flint.arb:
    """x exactly, from a float or an mpf."""
    if isinstance(x, mpmath.mpf):
        mantissa, exponent = x.man_exp
        return int(mpmath.sign(x)) * int(mantissa) * flint.arb(2) ** int(exponent) if mpmath.isfinite(x) else flint.arb("nan")
    return flint.arb(float(x))


def excess(actual: Array, exact: Array, bound: Array) -> Array:
    """|actual − exact| / bound for each entry, rounded up: above 1 is a violation. 0 / 0 is 0; NaN where a number is due is ∞."""

    def entry(*i: int) -> float:
        error = float(abs(_ball(actual[i]) - exact[i]).upper())
        if np.isnan(error):
            return np.inf
        return 0.0 if error == 0 else error / bound[i] if bound[i] > 0 else np.inf

    with np.errstate(over="ignore"):
        return np.array([entry(*i) for i in np.ndindex(*exact.shape)]).reshape(exact.shape)


def _double(x: Any) -> Any:
    return x.astype(np.float64) if isinstance(x, np.ndarray) and x.dtype != bool else x


def _judge(law: Law, implementation: Implementation, case: tuple[Any, ...]) -> float:
    """The largest error of the case in units of its bound, or the sentence that says what is wrong."""
    given_arrays = [(x, x.copy()) for x in case if isinstance(x, np.ndarray)]
    try:
        returned = implementation.operations[law.operation](*case)
    except Exception as error:
        raise _LawBrokenError(f"raised {type(error).__name__}: {error}") from error
    if not all(np.array_equal(x, before) for x, before in given_arrays):
        raise _LawBrokenError("wrote into its inputs.")
    with flint.ctx.workprec(_BITS):
        expected = law.judge(*map(_double, case), implementation.arithmetic)
    outputs = returned if isinstance(returned, tuple) else (returned,)
    worst = 0.0
    for (name, exact, bound), actual in zip(expected, outputs, strict=True):
        if not isinstance(actual, np.ndarray) or actual.shape != exact.shape:
            raise _LawBrokenError(f"{name} has shape {getattr(actual, 'shape', None)}, but should have shape {exact.shape}.")
        with flint.ctx.workprec(_BITS):
            ratios = excess(actual, exact, bound)
        if ratios.size and ratios.max() > 1:
            i = np.unravel_index(ratios.argmax(), ratios.shape)
            index = ", ".join(map(str, i))
            raise _LawBrokenError(
                f"{name}[{index}]={float(actual[i]):.9g}, but should be {float(exact[i].mid()):.9g} ± {bound[i]:.2g}: "
                f"the error is {ratios[i]:.3g} times its bound."
            )
        worst = max(worst, ratios.max(initial=0.0))
    return worst


def check(law: Law, implementation: Implementation, max_examples: int, random_seed: int) -> Outcome:
    """Try `law` on `max_examples` cases drawn from `random_seed`; the same seed draws the same cases."""
    examples, worst, violation = 0, 0.0, None
    start = time.perf_counter()

    @seed(random_seed)
    @settings(
        max_examples=max_examples,
        database=None,
        deadline=None,
        derandomize=False,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),  # cases are slow where balls are many; nothing is filtered
        report_multiple_bugs=False,
    )
    @given(law.cases(implementation))
    def hold(case: tuple[Any, ...]) -> None:
        nonlocal examples, worst, violation
        examples += 1
        try:
            worst = max(worst, _judge(law, implementation, case))
        except _LawBrokenError as broken:  # Hypothesis runs the smallest failing case last
            violation = Violation(case, str(broken))
            raise

    reason = implementation.known_deviations.get(law.name)
    status: Literal["held", "declared", "violated"] = "held"
    try:
        hold()
    except _LawBrokenError:
        status = "declared" if reason else "violated"
    else:
        if reason:
            status = "violated"
            violation = Violation((), f"is declared to deviate, but held on {examples} cases: the declaration should go. It says: {reason}")
    seconds = time.perf_counter() - start
    return Outcome(law.name, law.operation, implementation.name, status, examples, worst, seconds, violation, reason)


def plan(laws: Sequence[Law], implementations: Sequence[Implementation]) -> list[tuple[Law, Implementation]]:
    """Each law with each implementation that offers its operation, law by law.

    Raises ValueError where an implementation declares a deviation from a law that there is not, or that does not apply to it.
    """
    pairs = [(law, i) for law in laws for i in implementations if law.operation in i.operations]
    for i in implementations:
        if unmatched := set(i.known_deviations) - {law.name for law, other in pairs if other is i}:
            raise ValueError(f"{i.name} declares to deviate from {sorted(unmatched)}, but no such law applies to it.")
    return pairs
