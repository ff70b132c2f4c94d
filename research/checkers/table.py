"""The whole catalogue against every checker: one verdict for each bug and checker."""

from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

from properties.bugs import CATALOGUE
from properties.bugs.bug import Bug
from properties.bugs.equivalent import EQUIVALENT
from properties.bugs.reference import REFERENCE
from properties.contract.implementation import Implementation
from properties.contract.operations import FEATURES
from research.checkers.asked import concerned, unasked
from research.checkers.checker import Checker
from research.checkers.ours import by_plan, by_vectors
from research.checkers.rows import ROWS

__all__ = ["COLUMNS", "Verdicts", "alarms", "candidate", "of_bug", "verdicts"]

Verdicts = dict[str, dict[str, str]]
"""{bug: {checker: "seen", "let through", or why it is not asked}}."""


def candidate(bug: Bug) -> Implementation:
    """An implementation with a bug in all its operations; the others are the reference's."""
    mutated = {operation: make() for operation, make in bug.mutants.items()}
    return Implementation(bug.id, REFERENCE | mutated, **{"features": FEATURES, **bug.promises})


def _by(checker: Checker, bug: Bug) -> str:
    if reason := unasked(checker, bug):
        return reason
    return "let through" if checker.takes(candidate(bug), bug.mutants) else "seen"


def _by_vectors(bug: Bug) -> str:
    seen_by = by_vectors(bug)
    return "one call" if seen_by is None else "seen" if seen_by else "let through"


def _by_plan(bug: Bug, quick: bool) -> str:
    return "seen" if by_plan(bug, quick=quick) else "let through"


COLUMNS: dict[str, Callable[[Bug], str]] = {
    **{checker.name: partial(_by, checker) for checker in ROWS},
    "attnspec, quick plan": partial(_by_plan, quick=True),
    "attnspec, default plan": partial(_by_plan, quick=False),
    "attnspec, vectors": _by_vectors,
}
"""The verdict of each checker on a bug, by its name."""


def of_bug(name: str) -> dict[str, str]:
    """The verdict of every checker on a bug, by its id."""
    return {checker: verdict(CATALOGUE[name]) for checker, verdict in COLUMNS.items()}


def verdicts(jobs: int, bugs: Iterable[str] = tuple(CATALOGUE)) -> Verdicts:
    """The verdicts on some bugs, or all."""
    names = list(bugs)
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        return dict(zip(names, pool.map(of_bug, names, chunksize=4), strict=True))


def _refused(name: str) -> dict[str, bool]:
    """Whether each checker that calls an operation of a right implementation refuses it; the
    reference, where it has no name.
    """
    if not name:
        reference = Implementation("reference", REFERENCE, features=FEATURES)
        return {checker.name: not checker.takes(reference, REFERENCE) for checker in ROWS}
    bug = EQUIVALENT[name]
    return {checker.name: not checker.takes(candidate(bug), bug.mutants) for checker in ROWS if concerned(checker, bug)}


def alarms(jobs: int) -> dict[str, tuple[int, int]]:
    """For each checker of others how many right implementations it refuses, of how many: the
    reference, and what only looks like a bug.
    """
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        seen_by = list(pool.map(_refused, ["", *(name for name, bug in EQUIVALENT.items() if not bug.promises)]))
    refusals = {
        checker.name: [refused[checker.name] for refused in seen_by if checker.name in refused] for checker in ROWS
    }
    return {name: (sum(refused), len(refused)) for name, refused in refusals.items()}
