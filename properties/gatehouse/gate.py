"""Putting a candidate to the gate: its functions run in processes that know nothing of attnspec,
and everything is decided here.
"""

import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

from oracles import Arithmetic, Conventions
from properties.contract.implementation import Implementation
from properties.contract.wording import shown
from properties.gatehouse.candidate import Candidate, Limits
from properties.gatehouse.checks import checked, finished
from properties.gatehouse.process import Process
from properties.gatehouse.submission import Submission, of_file
from properties.gatehouse.surroundings import surroundings
from properties.gatehouse.verdict import Verdict, cause, score
from properties.laws.law import Law
from properties.verifier.diagnosis import causes_of
from properties.verifier.examination import Supervision
from properties.verifier.plan import QUICKLY, grouped, plan
from properties.verifier.report import Cause, Outcome, Report, Violation, with_causes
from properties.verifier.verify import examine

__all__ = ["QUICK", "gate"]

QUICK = Limits(call=1.0, calls=3.0)
"""What a candidate may take by the quick plan: plain NumPy takes .3 s for all calls, and the clock
goes on while others have the cores.
"""

_UNSEEN = ("it prints nothing and leaves the interpreter alone", "the result is no view of an input")
"""Laws of what cannot be seen from another process: the first concerns nobody there, and the second
is seen in each call.
"""

_OF_SUBMISSIONS = ("arrays", "libraries")
_PROMISES = ("batch_ranks", "deterministic", "features", "layouts", "refuses", "supports")

# By the default plan, and by the quick one:
_EXAMPLES = 100, QUICKLY  # cases of each operation, to which laws are put
_CASES = 24, 9  # further ones, for the checks, beside those at large sizes
_EVIDENCE = 24, 6  # calls, right ones and wrong ones, to which known mistakes are put
_EXPLAINING = 4.0, 0.5  # seconds in which smaller inputs are looked for


def gate(
    candidate: str | PathLike[str] | Submission,
    functions: Mapping[str, str] | None = None,
    arithmetic: Arithmetic | str | None = None,
    conventions: Conventions | None = None,
    *,
    quick: bool = False,
    seed: int | None = None,
    limits: Limits | None = None,
    **promises: Any,
) -> Verdict:
    """The verdict on a candidate, a file of Python or a `Submission`, which is never imported in
    this process.

    `functions` maps functions of the file to the operations that they do; without it each function
    with an operation's name does that. The seed is of the system's entropy, unless one is given.
    Promises are `arrays` and `libraries`, of a file, as a `Submission` has them, and batch_ranks,
    deterministic, features, layouts, refuses and supports, as an `Implementation`. Raises
    ValueError and TypeError for what cannot be put to it; what cannot be imported is not accepted.
    """
    if os.name != "posix":
        raise ValueError(f"The gate needs processes as POSIX has them, which {sys.platform} does not.")
    _require_sensible(candidate, functions, quick, seed, limits, promises)
    seed, start = secrets.randbits(32) if seed is None else seed, time.monotonic()
    limits = limits or (QUICK if quick else Limits())
    if not isinstance(candidate, Submission):
        own = {name: promises.pop(name) for name in _OF_SUBMISSIONS if name in promises}
        candidate = of_file(candidate, functions, **own)
    given = {name: x for name, x in (("arithmetic", arithmetic), ("conventions", conventions)) if x is not None}
    promised = Implementation(
        candidate.name, dict.fromkeys(candidate.entry, _never), **{**candidate.promises, **given, **promises}
    )
    laws = [law for law in plan(promised, quick=quick) if law.name not in _UNSEEN]
    with ExitStack() as stack:
        first, second = (_started(candidate, promised, limits, stack) for _ in range(2))
        with ThreadPoolExecutor(2) as pool:
            unusable = [*filter(None, pool.map(Candidate.begin, (first, second)))]
        found = _examined(replace(promised, operations=first.functions), (first, second), laws, quick, seed, unusable)
        ended = unusable or [f"It {c.process.ended}." for c in (first, second) if c.process.ended]
    outcomes, causes, calls = found
    told, causes = with_causes(outcomes, causes, lambda violation: "")
    settings = {
        "max_examples": _EXAMPLES[quick],
        "seed": seed,
        "quick": quick,
        "arithmetic": promised.resolved_arithmetic.name,
    }
    report = Report(told, settings, causes=causes)
    held = (*(["files"] if first.enclosed and second.enclosed else []), *(["processes"] if first.process.apart else []))
    accepted = report.ok and not ended
    return Verdict(accepted, score([*told], calls), cause(ended, report), held, time.monotonic() - start, report)


def _require_sensible(
    candidate: Any, functions: Any, quick: Any, seed: Any, limits: Any, promises: Mapping[str, Any]
) -> None:
    """Raise TypeError for an argument of another type, and for a promise that there is not."""
    named = isinstance(functions, Mapping) and all(isinstance(x, str) for each in functions.items() for x in each)
    named = named and not isinstance(candidate, Submission)
    for name, x, holds, wanted in (
        ("candidate", candidate, isinstance(candidate, str | PathLike | Submission), "a path or a Submission"),
        (
            "functions",
            functions,
            functions is None or named,
            "a mapping from a file's functions to operations, by names",
        ),
        ("quick", quick, isinstance(quick, bool), "a bool"),
        (
            "seed",
            seed,
            seed is None or (isinstance(seed, int) and not isinstance(seed, bool)),
            "None or a whole number",
        ),
        ("limits", limits, limits is None or isinstance(limits, Limits), "None or Limits"),
    ):
        if not holds:
            raise TypeError(f"{name}={shown(x)}, but should be {wanted}.")
    for name in promises:
        if name not in _PROMISES and (name not in _OF_SUBMISSIONS or isinstance(candidate, Submission)):
            raise TypeError(f"A promise is called {shown(name)}, but should be one of {', '.join(_PROMISES)}.")


def _never(*arguments: Any, **options: Any) -> Any:
    raise NotImplementedError("A candidate's functions are called in its own process.")


def _started(candidate: Submission, promised: Implementation, limits: Limits, stack: ExitStack) -> Candidate:
    """The candidate in a process and a folder of its own, which end with the stack."""
    folder = Path(tempfile.mkdtemp()).resolve()  # whose name says nothing of us
    stack.callback(_remove, folder)
    libraries = ("numpy", "ml_dtypes", *(["torch"] if candidate.arrays == "torch" else []), *candidate.libraries)
    process = Process(surroundings(folder, libraries, dict(candidate.sources)), candidate.arrays, limits.memory)
    stack.callback(process.end, "")
    return Candidate(process, candidate.entry, candidate.arrays, promised, limits)


def _remove(folder: Path) -> None:
    """Remove a folder, however deep it is, and whatever its own folders forbid."""
    for command in (["chmod", "-R", "u+rwx"], ["rm", "-rf"]):
        subprocess.run([*command, "--", str(folder)], stderr=subprocess.DEVNULL, check=False)


def _examined(
    implementation: Implementation,
    candidates: tuple[Candidate, Candidate],
    laws: list[Law],
    quick: bool,
    seed: int,
    unusable: list[str],
) -> tuple[list[Outcome], tuple[Cause, ...], tuple[int, int]]:
    """The outcomes of all laws and checks, the causes of what is violated, and of how many calls
    how many were right.
    """
    first, second = candidates
    if unusable:
        return (
            [Outcome(law.name, law.operation, implementation.name, "not run", reason=unusable[0]) for law in laws],
            (),
            (0, 0),
        )
    ends: Callable[[str], bool] = lambda law: bool(first.process.ended)  # noqa: E731
    outcomes: list[Outcome] = []
    for group in grouped(laws):
        outcomes += examine(group, implementation, _EXAMPLES[quick], seed, supervision=Supervision(ends=ends))
    calls, violations = _right(outcomes, laws), _telling(outcomes, laws, _EVIDENCE[quick])
    outcomes += checked(implementation, first, second, _CASES[quick], seed)
    outcomes.append(finished(implementation, candidates))
    first.process.seconds = 0.0
    until = time.monotonic() + _EXPLAINING[quick]
    causes = causes_of(implementation, violations, shrinks=not first.process.ended, until=until)
    return (
        [o if o.violation is None else replace(o, violation=o.violation.without_calls()) for o in outcomes],
        causes,
        calls,
    )


def _telling(outcomes: list[Outcome], laws: list[Law], most: int) -> list[Violation]:
    """Of each operation the violation by which its cause is looked for, with so many calls as
    evidence: that of its agreement with the oracle, or else the first one."""
    found: dict[str, Violation] = {}
    for law, outcome in sorted(zip(laws, outcomes, strict=True), key=lambda each: not each[0].agreement):
        if outcome.status == "violated" and outcome.violation is not None:
            v = outcome.violation
            found.setdefault(law.operation, replace(v, right=v.right[:most], wrong=v.wrong[:most]))
    return list(found.values())


def _right(outcomes: list[Outcome], laws: list[Law]) -> tuple[int, int]:
    """Of how many calls that were judged by themselves how many were right."""
    right = every = 0
    for law, outcome in zip(laws, outcomes, strict=True):
        if law.agreement:
            seen = (
                [each.passed for each in outcome.violation.seen]
                if outcome.violation is not None
                else [True] * outcome.examples
            )
            right, every = right + sum(seen), every + len(seen)
    return right, every
