"""Verifies implementations: examines the laws, one operation after another, and finds the causes of
failures.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Any

from oracles import Arithmetic, Conventions
from properties.contract.conversion import require_device
from properties.contract.implementation import Implementation, implementation_of
from properties.contract.wording import shown
from properties.laws.law import Law
from properties.verifier.case_drawing import TimeLimit, profile
from properties.verifier.diagnosis import causes_of, diagnosed
from properties.verifier.examination import Examination, Supervision
from properties.verifier.first_look import looked_at
from properties.verifier.plan import QUICKLY, grouped, plan, require_planned, without
from properties.verifier.report import Cause, Outcome, Report, with_causes
from properties.verifier.script import script
from properties.verifier.trial import FAILED, STOPPED

__all__ = ["check", "examine", "verify"]

_UNSUPERVISED = Supervision()


def examine(
    laws: Sequence[Law],
    implementation: Implementation,
    max_examples: int | None = 100,
    random_seed: int | None = 0,
    supervision: Supervision = _UNSUPERVISED,
) -> list[Outcome]:
    """Check some laws about one operation on about `max_examples` cases (test inputs), and return
    their outcomes in the order of the laws.

    The same seed draws the same cases. If `random_seed` or `max_examples` is None, the caller's
    Hypothesis profile decides it. With a seed, no case is drawn after `supervision.until`, or after
    a violation of a law for which `supervision.ends` is true. Violations are returned without a
    diagnosis: `causes_of` diagnoses all laws together.
    """
    operation = laws[0].operation
    look = looked_at(implementation, operation, supervision.observe)
    examination = Examination(look.implementation, operation, laws, supervision, look.not_taken)
    examination.run(max_examples or profile().max_examples, random_seed)
    return list(examination.outcomes())


def check(
    law: Law,
    implementation: Implementation,
    max_examples: int | None = 100,
    random_seed: int | None = 0,
    supervision: Supervision = _UNSUPERVISED,
) -> Outcome:
    """Check one law as `examine` does, and return its outcome. If the law fails and the adapter
    does not declare the failure, find a smaller input that shows it, and the causes that explain
    it.
    """
    (outcome,) = examine([law], implementation, max_examples, random_seed, supervision)
    if outcome.status != "violated" or outcome.violation is None or not outcome.violation.calls:
        return outcome
    return replace(outcome, violation=diagnosed(implementation, law, outcome.violation))


def verify(
    target: Any,
    arithmetic: Arithmetic | str | None = None,
    conventions: Conventions | None = None,
    laws: Iterable[str] | None = None,
    max_examples: int = 100,
    seed: int = 0,
    known_deviations: Mapping[str, str] | None = None,
    *,
    exclude: Iterable[str] = (),
    long: bool = False,
    quick: bool = False,
    strict: bool = False,
    fail_fast: bool = False,
    time_limit: float | None = None,
    progress: Callable[[Outcome], None] | None = None,
) -> Report:
    """Check every law that applies to an implementation, find the causes of failures, and return
    the report.

    target             the adapter: a mapping, module or object whose functions have the names of
                       operations, or an `Implementation`. The next two arguments and
                       `known_deviations` replace the declarations of an `Implementation`
    arithmetic         how your kernel rounds; float64 by default
    conventions        the conventions that your kernel follows
    laws, exclude      names of laws to check, or to leave out: "law" or "law[operation]"; a part of
                       a name is enough if no other law contains it
    max_examples       about how many test inputs of each operation are drawn; each input family
                       gets its share, and two laws take turns on each input
    seed               the same seed draws the same test inputs
    known_deviations   laws that are known to fail, each with the reason; a declaration is an error
                       if the law passes or does not apply
    long               adds the laws of the long plan, with 131072 keys
    quick              takes few laws and few test inputs
    strict             the report is not ok if an error is suspicious: within the error limit, and
                       beyond the statistical line, which does not prove a mistake. It is not ok
                       either if a call raised and the adapter declares no `supports`
    fail_fast          no test input is drawn after the first violation
    time_limit         ends the drawing after this number of seconds; a law that is cut short has
                       the status "stopped early", and the report is not ok
    progress           is called with each outcome as soon as the outcome is known

    Interrupting (Ctrl-C) returns the results so far. Your kernel runs in the caller's process. A crash or a
    hang of your kernel also ends or blocks this process. The command `attnspec verify` runs your
    kernel in a separate process. Raises ValueError and TypeError for other arguments.
    """
    _require_sensible(max_examples, seed, time_limit, long=long, quick=quick, strict=strict, fail_fast=fail_fast)
    start, time_left = time.monotonic(), TimeLimit(time_limit or inf)
    max_examples = min(max_examples, QUICKLY) if quick else max_examples
    implementation = implementation_of(target, arithmetic, conventions, known_deviations)
    require_device(implementation)
    laws = tuple(laws) if isinstance(laws, Iterator) else laws
    exclude = tuple(exclude) if isinstance(exclude, Iterator) else exclude
    planned = plan(implementation, laws, long, quick)
    require_planned(laws, planned)
    groups = grouped(without(planned, exclude))
    chosen = [law for group in groups for law in group]
    outcomes: list[Outcome] = []
    causes: tuple[Cause, ...] = ()
    interrupted, reason = False, f"{STOPPED} before the law was checked."
    try:
        for group in groups:
            until = time_left.share(len(group), len(chosen) - len(outcomes))
            supervision = Supervision(until=until, ends=lambda law: fail_fast)
            examination = Examination(implementation, group[0].operation, group, supervision)
            try:
                examination.run(max_examples, seed)
            except KeyboardInterrupt:
                outcomes += examination.so_far()
                raise
            found = list(examination.outcomes())
            outcomes += found
            if progress is not None:
                for outcome in found:
                    progress(outcome)
            if fail_fast and any(outcome.status == "violated" for outcome in found):
                reason = f"{FAILED} (fail_fast)."
                break
        violations = [
            outcome.violation for outcome in outcomes if outcome.status == "violated" and outcome.violation is not None
        ]
        causes = causes_of(implementation, violations, until=time_left.end)
    except KeyboardInterrupt:
        interrupted = True
    outcomes += [
        Outcome(law.name, law.operation, implementation.name, "not run", reason=reason)
        for law in chosen[len(outcomes) :]
    ]
    changed_arithmetic = implementation.resolved_arithmetic if arithmetic else None
    changed_conventions = implementation.resolved_conventions if conventions is not None else None
    scripted = lambda violation: script(  # noqa: E731
        violation, arithmetic=changed_arithmetic, conventions=changed_conventions
    )
    final, causes = with_causes(outcomes, causes, scripted)
    settings = {
        **{"max_examples": max_examples, "seed": seed, "time_limit": time_limit},
        **{"arithmetic": implementation.resolved_arithmetic.name, "exclude": [*exclude]},
    }
    return Report(final, settings, interrupted, strict, causes, time.monotonic() - start)


def _require_sensible(max_examples: Any, seed: Any, time_limit: Any, **flags: Any) -> None:
    """Raise ValueError or TypeError for an argument that is not a sensible number or flag."""
    if isinstance(max_examples, bool) or not isinstance(max_examples, int) or max_examples < 1:
        raise ValueError(f"max_examples={shown(max_examples)}, but should be a whole number from 1.")
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise TypeError(f"seed has type {type(seed).__name__}, but should be an int.")
    if time_limit is not None and (
        isinstance(time_limit, bool) or not (isinstance(time_limit, int | float) and 0 < time_limit < inf)
    ):
        raise ValueError(f"time_limit={shown(time_limit)}, but should be a positive number of seconds.")
    for option, flag in flags.items():
        if not isinstance(flag, bool):
            raise TypeError(f"{option} has type {type(flag).__name__}, but should be a bool.")
