"""Accepts or rejects an untrusted kernel, which runs in processes that cannot import attnspec."""

import os
import secrets
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from math import inf
from os import PathLike
from typing import Any

from oracles import Arithmetic, Conventions
from oracles.spelling import did_you_mean
from properties.contract.implementation import USUAL_REFUSALS, Implementation
from properties.contract.wording import shown
from properties.gatehouse.checks import checked, finished
from properties.gatehouse.isolated_kernel import IsolatedKernel, Limits
from properties.gatehouse.process import Process
from properties.gatehouse.sandbox import sandbox
from properties.gatehouse.source_names import names_in
from properties.gatehouse.submission import Submission, of_file
from properties.gatehouse.verdict import Verdict, cause, score
from properties.gatehouse.watch import Watch
from properties.interpreters import installed
from properties.laws.law import Law
from properties.verifier.diagnosis import causes_of
from properties.verifier.examination import Supervision
from properties.verifier.plan import QUICKLY, grouped, plan
from properties.verifier.report import Cause, Outcome, Report, Violation, with_causes
from properties.verifier.verify import examine

__all__ = ["QUICK", "gate", "usual_limits"]

QUICK = Limits(call=1.0, calls=3.0)
"""The limits of the quick plan. Plain NumPy needs .3 s for all calls. More is allowed because the
machine may be busy.
"""

_INTERPRETED = 60.0, 600.0
"""The limits of a call and of all calls in an interpreter, where a call takes milliseconds to seconds."""

_LEFT_OUT = (
    "a call prints nothing and leaves process-wide state unchanged",
    "the output does not share memory with an input",
)
"""Laws that the gate leaves out: the first cannot be seen from another process, and each call checks the second."""

_OF_SUBMISSIONS = ("arrays", "libraries")
_UNLESS_PROMISED: dict[str, Any] = {"supports": (), "refuses": USUAL_REFUSALS}
"""A kernel that declares nothing else takes everything: in the gate, a call that raises is a failure."""
_PROMISES = ("batch_ranks", "bits", "deterministic", "features", "layouts", "refuses", "shapes", "supports")

# By the default plan, and by the quick plan:
_EXAMPLES = 100, QUICKLY  # test inputs of each operation for the laws
_CASES = 24, 9  # further test inputs for the checks; those of large sizes come in addition
_EVIDENCE = 24, 6  # right and wrong calls on which known bugs are tried
_MOST_PRODUCTS = 2**28  # in the scores of a call at the problem's own sizes: a tenth of a second in plain PyTorch
_SECONDS_TO_EXPLAIN = 4.0, 0.5  # seconds for the search for smaller inputs


def gate(
    candidate: str | PathLike[str] | Submission,
    functions: Mapping[str, str] | None = None,
    arithmetic: Arithmetic | str | None = None,
    conventions: Conventions | None = None,
    *,
    quick: bool = False,
    interpret: bool = False,
    seed: int | None = None,
    limits: Limits | None = None,
    **promises: Any,
) -> Verdict:
    """Check an untrusted kernel, and return the verdict. The kernel is a Python file, or a
    `Submission`. This process never imports the kernel.

    `functions` maps functions of the file to operations. Without it, a function implements the
    operation of its name. Without a seed, the system's entropy gives one. With `interpret`, kernels in
    Triton and Pallas run on the CPU, in the interpreter of the library.

    `promises` are declarations. For a file, `arrays` and `libraries` have the meaning that they
    have in a `Submission`. The others (batch_ranks, deterministic, features, layouts, refuses,
    shapes, supports) have the meaning that they have in an `Implementation`.

    A kernel that cannot be imported is not accepted. Raises ValueError and TypeError for arguments
    that do not fit together.
    """
    if os.name != "posix":
        raise ValueError(f"The gate needs processes as POSIX has them, which {sys.platform} does not.")
    _require_sensible(candidate, functions, {"quick": quick, "interpret": interpret}, seed, limits, promises)
    seed, start = secrets.randbits(32) if seed is None else seed, time.monotonic()
    limits = limits or usual_limits(quick, interpret)
    interpreted = installed() if interpret else ()
    if not isinstance(candidate, Submission):
        of_the_file = {name: promises.pop(name) for name in _OF_SUBMISSIONS if name in promises}
        candidate = of_file(candidate, functions, **of_the_file)
    settings: dict[str, Any] = {"max_examples": _EXAMPLES[quick], "seed": seed, "quick": quick}
    if candidate.broken:
        return Verdict(False, 0.0, candidate.broken, (), time.monotonic() - start, Report((), settings))
    given_promises = {
        name: value for name, value in (("arithmetic", arithmetic), ("conventions", conventions)) if value is not None
    }
    promised = Implementation(
        candidate.name,
        dict.fromkeys(candidate.entry, _never),
        **{**_UNLESS_PROMISED, **candidate.promises, **given_promises, **promises},
    )
    laws = [law for law in plan(promised, quick=quick) if law.name not in _LEFT_OUT]
    with ExitStack() as stack:
        first, second = (_started(candidate, promised, limits, interpreted, stack) for _ in range(2))
        if limits.forbid:
            first.used = tuple(names_in(text for path, text in candidate.sources.items() if path.endswith(".py")))
        with ThreadPoolExecutor(2) as threads:
            unusable = [*filter(None, threads.map(IsolatedKernel.begin, (first, second)))]
        examination = _examined(
            replace(promised, operations=first.functions), (first, second), laws, quick, seed, unusable
        )
        reasons = unusable or [f"It {kernel.process.ended}." for kernel in (first, second) if kernel.process.ended]
    outcomes, causes, calls = examination
    laws_outcomes, causes = with_causes(outcomes, causes, lambda violation: "")
    settings["arithmetic"] = promised.resolved_arithmetic.name
    report = Report(laws_outcomes, settings, causes=causes)
    return Verdict(
        report.ok and not reasons,
        score([*laws_outcomes], calls),
        cause(reasons, report),
        tuple(part for part in first.confined() if part in second.confined()),
        time.monotonic() - start,
        report,
        used=tuple(sorted({*first.used, *second.used})),
        replaced=tuple(sorted({*first.replaced, *second.replaced})),
        judged=not (first.process.starved or second.process.starved),
    )


def _require_sensible(
    candidate: Any, functions: Any, flags: Mapping[str, Any], seed: Any, limits: Any, promises: Mapping[str, Any]
) -> None:
    """Raise TypeError for an argument of another type, and for a declaration that does not exist."""
    are_names = isinstance(functions, Mapping) and all(
        isinstance(part, str) for entry in functions.items() for part in entry
    )
    are_names = are_names and not isinstance(candidate, Submission)
    for name, value, is_right, expectation in (
        ("candidate", candidate, isinstance(candidate, str | PathLike | Submission), "a path or a Submission"),
        (
            "functions",
            functions,
            functions is None or are_names,
            "a mapping from a file's functions to operations, by names",
        ),
        *((flag, value, isinstance(value, bool), "a bool") for flag, value in flags.items()),
        (
            "seed",
            seed,
            seed is None or (isinstance(seed, int) and not isinstance(seed, bool)),
            "None or a whole number",
        ),
        ("limits", limits, limits is None or isinstance(limits, Limits), "None or Limits"),
    ):
        if not is_right:
            raise TypeError(f"{name}={shown(value)}, but should be {expectation}.")
    for name in promises:
        if name not in _PROMISES and (name not in _OF_SUBMISSIONS or isinstance(candidate, Submission)):
            listed = f"Promises are {', '.join(_PROMISES)}."
            raise TypeError(f"Unknown promise {shown(name)}.{did_you_mean(name, _PROMISES, listed)}")


def _never(*arguments: Any, **options: Any) -> Any:
    raise NotImplementedError("A candidate's functions are called in its own process.")


def usual_limits(quick: bool, interpret: bool) -> Limits:
    """Return the limits of a kernel for which nothing else is given."""
    usual = QUICK if quick else Limits()
    call, calls = _INTERPRETED if interpret else (usual.call, usual.calls)
    return replace(usual, call=call, calls=calls)


def _started(
    candidate: Submission, promised: Implementation, limits: Limits, interpreted: tuple[str, ...], stack: ExitStack
) -> IsolatedKernel:
    """Start the kernel in a new process and a new folder, and return it. Both end with the stack. The
    kernel may import the libraries whose kernels are `interpreted`.
    """
    watch = Watch()
    stack.callback(watch.end)
    of_arrays = ("torch",) if candidate.arrays == "torch" else ()
    libraries = ("numpy", "ml_dtypes", *of_arrays, *interpreted, *candidate.libraries)
    surroundings = sandbox(watch.folder, libraries, dict(candidate.sources))
    process = Process(surroundings, watch, candidate.arrays, limits.memory, bool(interpreted))
    stack.callback(process.end, "")
    return IsolatedKernel(process, candidate.entry, candidate.arrays, promised, limits)


def _examined(
    implementation: Implementation,
    candidates: tuple[IsolatedKernel, IsolatedKernel],
    laws: list[Law],
    quick: bool,
    seed: int,
    unusable: list[str],
) -> tuple[list[Outcome], tuple[Cause, ...], tuple[int, int]]:
    """Return the outcomes of all laws and checks, the causes of the violations (failed laws), and
    the pair (right calls, all calls).
    """
    first, second = candidates
    if unusable:
        return (
            [Outcome(law.name, law.operation, implementation.name, "not run", reason=unusable[0]) for law in laws],
            (),
            (0, 0),
        )
    ends: Callable[[str], bool] = lambda law: bool(first.process.ended)  # noqa: E731
    supervision = Supervision(ends=ends, most_products=_MOST_PRODUCTS, seconds_of_points=inf, draws_line=False)
    outcomes: list[Outcome] = []
    for group in grouped(laws):
        outcomes += examine(group, implementation, _EXAMPLES[quick], seed, supervision=supervision)
    calls, violations = _right(outcomes, laws), _telling(outcomes, laws, _EVIDENCE[quick])
    outcomes += checked(implementation, first, second, _CASES[quick], seed)
    outcomes += finished(implementation, candidates)
    first.process.seconds = 0.0
    deadline = time.monotonic() + _SECONDS_TO_EXPLAIN[quick]
    causes = causes_of(implementation, violations, shrinks=not first.process.ended, until=deadline)
    return (
        [
            outcome if outcome.violation is None else replace(outcome, violation=outcome.violation.without_calls())
            for outcome in outcomes
        ],
        causes,
        calls,
    )


def _telling(outcomes: list[Outcome], laws: list[Law], most: int) -> list[Violation]:
    """Return for each operation the violation (failed law) by which the cause is searched for. At
    most `most` right and `most` wrong calls are its evidence.

    It is the violation of the agreement with the oracle, or else the first violation.
    """
    telling: dict[str, Violation] = {}
    for law, outcome in sorted(zip(laws, outcomes, strict=True), key=lambda each: not each[0].agreement):
        if outcome.status == "violated" and outcome.violation is not None:
            violation = outcome.violation
            evidence = replace(violation, right=violation.right[:most], wrong=violation.wrong[:most])
            telling.setdefault(law.operation, evidence)
    return list(telling.values())


def _right(outcomes: list[Outcome], laws: list[Law]) -> tuple[int, int]:
    """Return the pair (right calls, all calls). It counts the calls that are compared with the
    oracle.
    """
    right_calls = all_calls = 0
    for law, outcome in zip(laws, outcomes, strict=True):
        if law.agreement:
            verdicts = (
                [answer.passed for answer in outcome.violation.seen]
                if outcome.violation is not None
                else [True] * outcome.examples
            )
            right_calls, all_calls = right_calls + sum(verdicts), all_calls + len(verdicts)
    return right_calls, all_calls
