"""How many bugs a checker is asked about, and how many it sees: in all, and by what the bugs are about."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from properties.bugs import GROUPS
from research.checkers.table import COLUMNS, Verdicts

__all__ = ["ALL", "Count", "by_group", "count", "reasons"]

ALL = "all"
_ANSWERS = ("seen", "let through")


@dataclass(frozen=True)
class Count:
    """Bugs that are seen, of those that are asked about."""

    seen: int
    asked: int

    @property
    def share(self) -> float:
        """The share of bugs that the checker sees; NaN if it is asked about no bug."""
        return self.seen / self.asked if self.asked else float("nan")


def count(verdicts: Verdicts, checker: str, bugs: Iterable[str]) -> Count:
    """The count of a checker over some bugs."""
    answers = Counter(verdicts[bug][checker] for bug in bugs)
    return Count(answers["seen"], sum(answers[answer] for answer in _ANSWERS))


def by_group(verdicts: Verdicts) -> dict[str, dict[str, Count]]:
    """{group of bugs: {checker: count}}, and last of all bugs."""
    groups = {name: [bug.id for bug in bugs] for name, bugs in GROUPS.items()} | {ALL: list(verdicts)}
    return {name: {checker: count(verdicts, checker, bugs) for checker in COLUMNS} for name, bugs in groups.items()}


def reasons(verdicts: Verdicts, checker: str) -> dict[str, int]:
    """How many bugs a checker is not asked about, by the reason."""
    answers = Counter(row[checker] for row in verdicts.values())
    return {reason: n for reason, n in answers.items() if reason not in _ANSWERS}
