"""Prints a violation in a terminal: its cause first, then the law, what is wrong, the input that shows
it, and how to reproduce it.
"""

import io
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from properties.contract.names import parts_of
from properties.laws import LAWS, LONG
from properties.laws.law import Law
from properties.verifier.report import Cause, Violation, counted
from properties.views.statuses import SIGNS

__all__ = [
    "named",
    "print_cause",
    "print_indented",
    "print_violation",
    "shown",
    "statement_of",
    "violation_text",
]

_IN_FULL = 64  # entries: a smaller array is shown in full
_TALL = 8  # lines: an array that needs more is described, if a description is shorter
_MAX_SCRIPT_LINES = 16  # without --all
_MAX_LINES_OF_NAMES = 2  # for the laws of an operation, without --all


def print_cause(console: Console, cause: Cause, everything: bool = False) -> None:
    """Print a cause: the number of checks that fail, the likely cause, and the law and the input that
    show it best.

    Without `everything`, the names of many laws and a long script are shortened.
    """
    sign, style = SIGNS["violated"]
    name = f"likely cause: {cause.likely.id}" if cause.likely else "cause not recognised"
    checks = f"{counted(len(cause.laws), 'check')} {'fails' if len(cause.laws) == 1 else 'fail'}"
    console.print(Text.assemble((f"{sign} {cause.implementation}", style), f": {checks}; ", (name, "bold")))
    _print_diagnosis(console, cause.example, cause.searched)
    console.print()
    violation = cause.example
    console.print(Text.assemble("  Failed check: ", (violation.law, "bold"), f" [{violation.operation}]"))
    _print_case(console, violation, cause.worst)
    if others := [law for law in cause.laws if law != violation.law_id]:
        verb = "fails" if len(others) == 1 else "fail"
        _print_heading(console, f"{counted(len(others), 'more check')} {verb} for the same cause")
        for line in named(others, console.width - 4, everything):
            print_indented(console, line, by=4)
    _print_script(console, violation.script, everything)


def print_violation(console: Console, violation: Violation, at_length: bool = True) -> None:
    """Print one violation at length, or in a few lines if its cause is printed at length."""
    sign, style = SIGNS["violated"]
    heading = (f"{sign} {violation.law}", style), f" [{violation.operation}]: ", (violation.implementation, "bold")
    console.print(Text.assemble(*heading))
    if not at_length:
        print_indented(console, violation.summary)
        if violation.likely:
            print_indented(console, f"Likely cause: {violation.likely.id}")
        return
    if violation.likely:
        print_indented(console, Text.assemble("Likely cause: ", (violation.likely.id, "bold yellow")))
    _print_diagnosis(console, violation, bool(violation.calls))
    console.print()
    _print_case(console, violation)
    _print_script(console, violation.script, everything=True)


def violation_text(violation: Violation, width: int = 120, cause: Cause | None = None) -> str:
    """The printed text of a violation, or of the cause that it shows, at length and without colours."""
    console = Console(file=io.StringIO(), width=width, no_color=True, force_terminal=False, highlight=False)
    if cause is None:
        print_violation(console, violation)
    else:
        print_cause(console, cause, everything=True)
    assert isinstance(console.file, io.StringIO)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines())


def named(laws: Sequence[str], width: int, everything: bool) -> Iterator[str]:
    """For each operation the names of some laws, "law[operation]": all names, or as many as fit into
    a few lines and the number of the others.
    """
    groups: dict[str, list[str]] = {}
    for name, operation in map(parts_of, laws):
        groups.setdefault(operation, []).append(name)
    room = _MAX_LINES_OF_NAMES * width - 16
    for operation, names in groups.items():
        fitting = len(names)
        while not everything and fitting > 1 and len(operation) + sum(len(name) + 2 for name in names[:fitting]) > room:
            fitting -= 1
        more = f"; and {len(names) - fitting} more" if fitting < len(names) else ""
        yield f"{operation}: {'; '.join(names[:fitting])}{more}"


def _print_diagnosis(console: Console, violation: Violation, searched: bool) -> None:
    """Print what the best explanation means and its repair, and the other explanations; or that
    nothing known explains the violation.
    """
    if violation.on_earlier_calls:
        print_indented(console, violation.on_earlier_calls, "bold")
    first = violation.likely
    if first:
        citation = "" if first.citation.startswith("none") else first.citation
        share = "" if first.explains >= 1 else f"It reproduces {first.explains:.0%} of the wrong calls."
        reported = f"Reported in {citation}." if citation else ""
        for line in filter(None, (first.mechanism, first.repair, reported, share)):
            print_indented(console, line)
    elif searched:
        results = "all of these results" if violation.diagnosis else "these results"
        print_indented(console, f"No known bug and no other convention reproduces {results}.")
        for sentence in violation.measured:
            print_indented(console, f"Measured: {sentence}")
    else:
        print_indented(console, "attnspec did not search for a cause.")
    if others := [each for each in violation.diagnosis if each is not first]:
        names = ", ".join(
            each.id if each.explains >= 1 else f"{each.id} ({each.explains:.0%} of the wrong calls)" for each in others
        )
        print_indented(console, f"{'Other possible causes' if first else 'Possible part of the cause'}: {names}.")


def _print_case(console: Console, violation: Violation, worst: str = "") -> None:
    """Print what a law says, what is wrong, the notes, and the input."""
    if statement := statement_of(violation.law, violation.operation):
        print_indented(console, f"It requires: {statement}", "dim")
    print_indented(console, violation.summary, "bold")
    if worst:
        print_indented(console, f"Largest error, on another input: {worst}")
    for note in violation.notes:
        print_indented(console, f"Note: {note}")
    if violation.counterexample:
        _print_heading(console, "The smallest input found" if violation.shrunk else "The input")
        table = Table.grid(padding=(0, 2, 0, 0))
        width = max(20, console.width - 12 - max(map(len, violation.told)))
        for name, value in violation.told.items():
            table.add_row(Text(name, style="cyan"), shown(value, width))
        console.print(Padding(table, (0, 0, 0, 4), expand=False))


def _print_script(console: Console, script: str, everything: bool) -> None:
    """Print the Python that reproduces a violation, or for a long script the options that show it."""
    lines = script.rstrip().splitlines()
    if not lines:
        return
    _print_heading(console, "To reproduce it")
    if len(lines) > _MAX_SCRIPT_LINES and not everything:
        print_indented(
            console, f"{len(lines)} lines of Python: --all prints them, --write-tests DIR writes them as a test.", by=4
        )
        return
    for line in lines:
        console.print(Text(f"    {line}".rstrip()), soft_wrap=True)


def _print_heading(console: Console, heading: str) -> None:
    console.print()
    console.print(Text.assemble("  ", (f"{heading}:", "underline" if console.color_system else "none")))


def print_indented(console: Console, text: str | Text, style: str = "none", by: int = 2) -> None:
    """Print an indented paragraph."""
    body: RenderableType = Text(text, style=style) if isinstance(text, str) else text
    console.print(Padding(body, (0, 0, 0, by), expand=False))


def statement_of(name: str, operation: str) -> str:
    """The first paragraph of a law's statement; "" for an unknown law."""
    law: Law | None = next((law for law in (*LAWS, *LONG) if (law.name, law.operation) == (name, operation)), None)
    return " ".join(law.statement.split("\n\n")[0].split()) if law else ""


def shown(value: Any, width: int) -> Text:
    """A value in print: a small array in full, on one line if the width suffices; another array by its
    shape and the entries that differ from the commonest one.
    """
    if not isinstance(value, np.ndarray):
        return Text(repr(value))
    kind, is_small = f"{value.dtype} {value.shape}", value.size <= _IN_FULL
    if is_small:
        rows = np.array2string(value, separator=", ", max_line_width=width, floatmode="unique", threshold=_IN_FULL + 1)
        if len(line := " ".join(rows.split())) <= width:
            return Text(f"{line}  {kind}" if len(line) + len(kind) + 2 <= width else f"{kind}\n{line}")
        if rows.count("\n") < _TALL:
            return Text(f"{kind}\n{rows}")
    values, counts = np.unique(value, return_counts=True)
    common = values[counts.argmax()]
    others = np.argwhere(value != common)
    if len(others) == 0:
        return Text(f"{kind}, all {common}")
    if len(others) <= min(_IN_FULL, value.size) // 4:
        entries = ", ".join(f"[{', '.join(map(str, index))}]={value[tuple(index)]}" for index in others)
        return Text(f"{kind}, all {common} except {entries}")
    if value.dtype == np.bool_:
        return Text(f"{kind}, {int(value.sum())} true")
    return Text(f"{kind}, from {value.min():.6g} to {value.max():.6g}, {np.count_nonzero(value)} not 0")
