"""Verifying implementations: laws are examined one operation after another, and the causes of what
is violated are found.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Any

from oracles import Arithmetic, Conventions
from properties.contract.implementation import Implementation, implementation_of
from properties.contract.wording import shown
from properties.laws.law import Law
from properties.verifier.case_drawing import TimeLimit, profile
from properties.verifier.diagnosis import causes_of, diagnosed
from properties.verifier.examination import Examination, Observer
from properties.verifier.plan import QUICKLY, grouped, plan, require_planned, without
from properties.verifier.report import Cause, Outcome, Report, with_causes
from properties.verifier.script import script
from properties.verifier.trial import FAILED

__all__ = ["check", "examine", "verify"]


def examine(
    laws: Sequence[Law],
    implementation: Implementation,
    max_examples: int | None = 100,
    random_seed: int | None = 0,
    observe: Observer | None = None,
    seconds_per_call: float = 60.0,
    began: Callable[[str], None] = lambda law: None,
    until: float = inf,
    ends: Callable[[str], bool] = lambda law: False,
) -> list[Outcome]:
    """What becomes of some laws about one operation, in their order, on so many cases, none of
    whose calls may take longer.

    The same seed draws the same cases; None, as seed or number, takes what the caller's Hypothesis
    profile says. `observe` is told of every call before it is made, and `began` of the law that is
    put to the case. With a seed no case is drawn after `until`, of time.monotonic, or after a
    violation of a law that `ends` it. Violations are as they were found, and not diagnosed, which
    `causes_of` does for all laws together.
    """
    examination = Examination(implementation, laws[0].operation, laws, observe, seconds_per_call, began, until, ends)
    examination.run(max_examples or profile().max_examples, random_seed)
    return list(examination.outcomes())


def check(
    law: Law,
    implementation: Implementation,
    max_examples: int | None = 100,
    random_seed: int | None = 0,
    observe: Observer | None = None,
    seconds_per_call: float = 60.0,
) -> Outcome:
    """What becomes of one law, as `examine` says; a violation that nobody declared is shown on a
    small input, with what explains it.
    """
    (found,) = examine([law], implementation, max_examples, random_seed, observe, seconds_per_call)
    if found.status != "violated" or found.violation is None or not found.violation.calls:
        return found
    return replace(found, violation=diagnosed(implementation, law, found.violation))


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
    budget: float | None = None,
    progress: Callable[[Outcome], None] | None = None,
) -> Report:
    """Check every law that applies to an implementation, and find the causes of what fails.

    `target` is a mapping, module or object with functions of the operations' names, or an
    `Implementation`, whose arithmetic (float64 otherwise), conventions and deviations the arguments
    replace. `laws` names some laws, "law" or "law[operation]", and `exclude` some to leave out;
    part of a name is enough, if no other law has it. `long` adds the laws of the long plan, with
    131072 keys, and `quick` takes few laws and few cases. About `max_examples` cases of each
    operation are drawn, of each domain its share, and two laws by turns are put to each; the same
    seed draws the same cases. `known_deviations` maps laws that are known to be broken to the
    reason; a declaration that matches no law, or a law that holds, is an error. `progress` is told
    each outcome as it is known. With `strict` the report is not ok either where an error is within
    its budget and beyond the statistical line, which is suspicious and no proof. With `fail_fast`
    no case is drawn after the first violation. A `budget` of seconds ends drawing in time. Laws
    that are cut short are not run, and the report is not ok.

    Interrupting it returns what is known so far. It runs in the caller's process, which a crash or
    a hang of the implementation takes down: the command `attnspec verify` runs it in a process of
    its own. Raises ValueError and TypeError for arguments that are none of these.
    """
    _require_sensible(max_examples, seed, budget, long=long, quick=quick, strict=strict, fail_fast=fail_fast)
    time_left = TimeLimit(budget or inf)
    max_examples = min(max_examples, QUICKLY) if quick else max_examples
    implementation = implementation_of(target, arithmetic, conventions, known_deviations)
    laws = tuple(laws) if isinstance(laws, Iterator) else laws
    exclude = tuple(exclude) if isinstance(exclude, Iterator) else exclude
    planned = plan(implementation, laws, long, quick)
    require_planned(laws, planned)
    groups = grouped(without(planned, exclude))
    chosen = [law for group in groups for law in group]
    outcomes: list[Outcome] = []
    causes: tuple[Cause, ...] = ()
    interrupted, why = False, ""
    try:
        for group in groups:
            until = time_left.share(len(group), len(chosen) - len(outcomes))
            found = examine(group, implementation, max_examples, seed, until=until, ends=lambda law: fail_fast)
            outcomes += found
            if progress is not None:
                for outcome in found:
                    progress(outcome)
            if fail_fast and any(outcome.status == "violated" for outcome in found):
                why = f"{FAILED} (fail_fast)."
                break
        violations = [o.violation for o in outcomes if o.status == "violated" and o.violation is not None]
        causes = causes_of(implementation, violations, until=time_left.end)
    except KeyboardInterrupt:
        interrupted = True
    outcomes += [
        Outcome(law.name, law.operation, implementation.name, "not run", reason=why) for law in chosen[len(outcomes) :]
    ]
    rounds = implementation.resolved_arithmetic if arithmetic else None
    read = implementation.resolved_conventions if conventions is not None else None
    told, causes = with_causes(
        outcomes, causes, lambda violation: script(violation, arithmetic=rounds, conventions=read)
    )
    numbers = {"max_examples": max_examples, "seed": seed, "budget": budget}
    settings_ = numbers | {"arithmetic": implementation.resolved_arithmetic.name, "exclude": [*exclude]}
    return Report(told, settings_, interrupted, strict, causes)


def _require_sensible(max_examples: Any, seed: Any, budget: Any, **flags: Any) -> None:
    """Raise ValueError or TypeError for a number or a flag that is none."""
    if isinstance(max_examples, bool) or not isinstance(max_examples, int) or max_examples < 1:
        raise ValueError(f"max_examples={shown(max_examples)}, but should be a whole number from 1.")
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise TypeError(f"seed has type {type(seed).__name__}, but should be an int.")
    if budget is not None and (isinstance(budget, bool) or not (isinstance(budget, int | float) and 0 < budget < inf)):
        raise ValueError(f"budget={shown(budget)}, but should be a positive number of seconds.")
    for option, flag in flags.items():
        if not isinstance(flag, bool):
            raise TypeError(f"{option} has type {type(flag).__name__}, but should be a bool.")
