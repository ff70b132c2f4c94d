"""Prints what an implementation does not take, although its adapter does not declare so."""

from collections.abc import Iterable, Iterator

from rich.console import Console
from rich.text import Text

from properties.contract.tried_calls import NotTaken
from properties.verifier.report import Report, counted
from properties.views.violation import print_indented

__all__ = ["ADVICE", "not_taken_lines", "print_not_taken", "print_undeclared_features"]

ADVICE = "Declare `supports=...` to make this a promise: `attnspec inspect` writes it."
"""What to do about calls that are not taken."""


def print_not_taken(console: Console, report: Report) -> None:
    """Print for each implementation which calls it does not take: first everyday calls, then edges,
    such as sizes of 0.
    """
    for name, found in report.not_taken.items():
        sign = ("✗ ", "bold red") if report.strict else ("· ", "dim")
        calls = counted(sum(condition.calls for condition in found), "call")
        verdict = "with --strict, they are failures" if report.strict else "they are no failures"
        console.print(Text.assemble(sign, "not taken  ", (name, "bold"), f"  {calls} raised: {verdict}"))
        for line in not_taken_lines(found):
            print_indented(console, line)
        print_indented(console, ADVICE, "dim")
        console.print()


def print_undeclared_features(console: Console, report: Report) -> None:
    """Print once for each implementation which parameters of its functions no feature declares."""
    undeclared: dict[str, dict[str, tuple[str, ...]]] = {}
    failing = set[str]()
    for outcome in report.outcomes:
        if outcome.undeclared_features:
            undeclared.setdefault(outcome.implementation, {})[outcome.operation] = outcome.undeclared_features
            failing |= {outcome.implementation} if report.strict and not outcome.is_declared else set()
    for name, operations in undeclared.items():
        sign = ("✗ ", "bold red") if name in failing else ("· ", "dim")
        verdict = ": with --strict, they are failures" if name in failing else ""
        told = f"  parameters that no feature declares{verdict}"
        console.print(Text.assemble(sign, "not tested  ", (name, "bold"), told))
        for operation, features in operations.items():
            print_indented(console, f"{operation}: {', '.join(features)}")
        features = tuple(dict.fromkeys(feature for each in operations.values() for feature in each))
        listed = ", ".join(f'"{feature}"' for feature in features)
        print_indented(console, f"To test them, declare `features=({listed}{',' * (len(features) == 1)})`.", "dim")
        console.print()


def not_taken_lines(found: Iterable[NotTaken]) -> Iterator[str]:
    """Yield a line for each operation and section: "attention: odd head_dim (ValueError: ...)". The
    section of the edges comes last.
    """
    sections: dict[tuple[bool, str], list[NotTaken]] = {}
    for condition in sorted(found, key=lambda condition: condition.is_edge):
        sections.setdefault((condition.is_edge, condition.operation), []).append(condition)
    for (is_edge, operation), members in sections.items():
        yield f"{operation}{', edges' if is_edge else ''}: {'; '.join(_by_error(members))}"


def _by_error(members: Iterable[NotTaken]) -> Iterator[str]:
    """Yield the conditions that have the same exception together, with the exception once."""
    errors: dict[str, list[NotTaken]] = {}
    for condition in members:
        errors.setdefault(condition.error, []).append(condition)
    for error, together in errors.items():
        yield f"{', '.join(condition.where for condition in together)} ({error})"
