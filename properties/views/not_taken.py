"""Prints what an implementation does not take, although its adapter does not declare so."""

from collections.abc import Iterable, Iterator

from rich.console import Console
from rich.text import Text

from properties.contract.operations import OPERATIONS
from properties.contract.tried_calls import NotTaken
from properties.verifier.report import Report, counted
from properties.views.violation import print_indented

__all__ = ["advice", "not_taken_lines", "print_not_taken", "print_undeclared_features"]


def advice(report: Report) -> str:
    """What to do about calls that an implementation does not take."""
    return f"Declare `supports=...` to make this a promise. {_written(report)}"


def _written(report: Report) -> str:
    """The command that writes the adapter of plain functions."""
    targets = " ".join(report.settings.get("targets", ("FILE",)))
    return f"For plain functions, `attnspec inspect {targets} --write adapter.py` does that."


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
        print_indented(console, advice(report), "dim")
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
        declared = dict[str, None]()
        for operation, features in operations.items():
            has_options = bool(OPERATIONS[operation].options)
            declared |= dict.fromkeys(features if has_options else ())
            advised = "" if has_options else " (only `attention` has such options: offer your function under this name)"
            print_indented(console, f"{operation}: {', '.join(features)}{advised}")
        if declared:
            listed = ", ".join(f'"{feature}"' for feature in declared)
            told = f"To test them, declare `features=({listed}{',' * (len(declared) == 1)})`."
            print_indented(console, f"{told} {_written(report)}", "dim")
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
