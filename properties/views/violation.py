"""Prints a violation (failed law) in a terminal: its cause first, then the law, what is wrong, the
input that shows it, and how to reproduce it.
"""

import io
from collections.abc import Callable, Iterator, Sequence
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
    "name_of",
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
_MAX_LINES = 15  # of a cause, without --all
_MAX_LINES_OF_NAMES = 2  # for the laws of an operation, without --all
_LABELS = {"seed": "seed (of the law's choices)"}  # of inputs that the kernel does not get


def print_cause(console: Console, cause: Cause, everything: bool = False) -> None:
    """Print a cause of failures: the number of checks that fail, the likely cause, and the law and
    the input that show it best.

    Without `everything` it takes at most 15 lines at 80 columns: what the cause is, the wrong entry,
    and the script, which holds the input. If the script is too long, the input is printed instead.
    """
    if not everything:
        _print_briefly(console, cause)
        return
    _print_name(console, cause)
    _print_diagnosis(console, cause.example, cause.searched)
    console.print()
    violation = cause.example
    _print_check(console, violation)
    _print_case(console, violation, cause.largest_error)
    if others := [law for law in cause.laws if law != violation.law_id]:
        verb = "fails" if len(others) == 1 else "fail"
        _print_heading(console, f"{counted(len(others), 'more check')} {verb} for the same cause")
        for line in named(others, console.width - 4, everything):
            print_indented(console, line, by=4)
    _print_script(console, violation.script)


def _print_briefly(console: Console, cause: Cause) -> None:
    """Print a cause in a few lines: its name, what it is, the wrong entry, and the input or the script."""

    def print_head(on: Console) -> None:
        _print_name(on, cause)
        for sentence in _main_sentences(cause):
            print_indented(on, sentence)
        _print_check(on, cause.example)
        print_indented(on, cause.example.summary, "bold")

    print_head(console)
    room = _MAX_LINES - len(_lines_of(print_head, console.width))
    script, violation = cause.example.script.rstrip(), cause.example
    if script and script.count("\n") + 3 <= room:
        _print_script(console, script)
        return
    inputs = _lines_of(lambda on: _print_input(on, violation), console.width)
    fitting = inputs if len(inputs) < room else [*inputs[: max(room - 2, 0)], "    …"]
    console.print(Text("\n".join(fitting)), soft_wrap=True)
    if script:
        number = len(script.splitlines())
        print_indented(console, f"{number} lines of Python: -v prints them, --write-tests DIR writes them as a test.")


def _main_sentences(cause: Cause) -> Iterator[str]:
    """The few sentences that say what a cause is; the rest is printed with --all."""
    example, likely = cause.example, cause.likely
    if example.on_earlier_calls:
        yield example.on_earlier_calls
    if likely:
        yield f"{likely.mechanism} {likely.repair}"
    elif not cause.searched:
        yield "attnspec did not search for a cause."
    elif not example.on_earlier_calls:
        yield _unexplained(example)
    yield from (f"Measured: {sentence}" for sentence in example.measured[:1])


def _unexplained(violation: Violation) -> str:
    """Say that no cause was found. Known bugs are not compared with results that are within their
    limits.
    """
    if violation.excess <= 1:
        return "The results are within their error limits, so known bugs were not compared with them."
    results = "all of these results" if violation.diagnosis else "these results"
    return f"No known bug and no other convention reproduces {results}."


def _lines_of(prints: Callable[[Console], None], width: int) -> list[str]:
    """The lines that a function prints, without colours."""
    console = Console(file=io.StringIO(), width=width, no_color=True, force_terminal=False, highlight=False)
    prints(console)
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def _print_name(console: Console, cause: Cause) -> None:
    """Print the heading of a cause: how many checks fail, and its name."""
    sign, style = SIGNS["violated"]
    checks = f"{counted(len(cause.laws), 'check')} {'fails' if len(cause.laws) == 1 else 'fail'}"
    before = "; likely cause: " if cause.likely else "; " if cause.searched else ": "
    heading = (f"{sign} {cause.implementation}", style), f": {checks}{before}", (name_of(cause), "bold")
    console.print(Text.assemble(*heading))


def name_of(cause: Cause) -> str:
    """Return the id of the likely cause; without one "cause not recognised", or the law that shows the
    failure where no cause was searched for.
    """
    if cause.likely:
        return cause.likely.id
    return "cause not recognised" if cause.searched else cause.example.law


def _print_check(console: Console, violation: Violation) -> None:
    console.print(Text.assemble("  Failed check: ", (violation.law, "bold"), f" [{violation.operation}]"))


def print_violation(console: Console, violation: Violation, at_length: bool = True) -> None:
    """Print one violation (failed law): at length, or in a few lines if its cause is printed
    elsewhere.
    """
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
    _print_script(console, violation.script)


def violation_text(violation: Violation, width: int = 120, cause: Cause | None = None) -> str:
    """Return the text that is printed for a violation (failed law), or for the cause that it shows,
    at length and without colours.
    """

    def prints(console: Console) -> None:
        if cause is None:
            print_violation(console, violation)
        else:
            print_cause(console, cause, everything=True)

    return "\n".join(_lines_of(prints, width))


def named(laws: Sequence[str], width: int, everything: bool) -> Iterator[str]:
    """Yield for each operation a text with the names of its laws. `laws` are "law[operation]". The
    text has all names, or as many as fit into a few lines, and the number of the others.
    """
    groups: dict[str, list[str]] = {}
    for name, operation in map(parts_of, laws):
        groups.setdefault(operation, []).append(name)
    room = _MAX_LINES_OF_NAMES * width - 16
    for operation, names in groups.items():
        fitting = len(names)
        while not everything and fitting > 1 and len(operation) + sum(len(name) + 4 for name in names[:fitting]) > room:
            fitting -= 1
        more = f"; and {len(names) - fitting} more" if fitting < len(names) else ""
        yield f"{operation}: {'; '.join(f'«{name}»' for name in names[:fitting])}{more}"


def _print_diagnosis(console: Console, violation: Violation, searched: bool) -> None:
    """Print what the best explanation means, its repair, and the other explanations. Without one,
    print that no known cause explains the violation.
    """
    if violation.on_earlier_calls:
        print_indented(console, violation.on_earlier_calls, "bold")
    first = violation.likely
    if first:
        share = "" if first.reproduces >= 1 else f"It reproduces {first.reproduces:.0%} of the wrong calls."
        reported = f"Reported in {first.reported}." if first.reported else ""
        for line in filter(None, (first.mechanism, first.repair, reported, share)):
            print_indented(console, line)
    elif searched:
        print_indented(console, _unexplained(violation))
    else:
        print_indented(console, "attnspec did not search for a cause.")
    for sentence in violation.measured:
        print_indented(console, f"Measured: {sentence}")
    if others := [each for each in violation.diagnosis if each is not first]:
        names = ", ".join(
            each.id if each.reproduces >= 1 else f"{each.id} ({each.reproduces:.0%} of the wrong calls)"
            for each in others
        )
        print_indented(console, f"{'Other possible causes' if first else 'Possible part of the cause'}: {names}.")


def _print_case(console: Console, violation: Violation, largest_error: str = "") -> None:
    """Print the statement of a law, what is wrong, the notes, and the input."""
    if statement := statement_of(violation.law, violation.operation):
        print_indented(console, f"It requires: {statement}", "dim")
    print_indented(console, violation.summary, "bold")
    if largest_error:
        print_indented(console, f"Largest error, on another input: {largest_error}")
    for note in violation.notes:
        print_indented(console, f"Note: {note}")
    _print_input(console, violation)


def _print_input(console: Console, violation: Violation) -> None:
    """Print the input that shows a violation, if it has one."""
    if violation.counterexample:
        _print_heading(console, "The smallest input found" if violation.shrunk else "The input")
        table = Table.grid(padding=(0, 2, 0, 0))
        told = {_LABELS.get(name, name): value for name, value in violation.told.items()}
        width = max(20, console.width - 12 - max(map(len, told)))
        for label, value in told.items():
            table.add_row(Text(label, style="cyan"), shown(value, width))
        console.print(Padding(table, (0, 0, 0, 4), expand=False))


def _print_script(console: Console, script: str) -> None:
    """Print the Python that reproduces a violation, if there is some."""
    lines = script.rstrip().splitlines()
    if lines:
        _print_heading(console, "To reproduce it")
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
    """Return the first paragraph of a law's statement; "" for an unknown law."""
    law: Law | None = next((law for law in (*LAWS, *LONG) if (law.name, law.operation) == (name, operation)), None)
    return " ".join(law.statement.split("\n\n")[0].split()) if law else ""


def shown(value: Any, width: int) -> Text:
    """Return a value as text. A small array is complete, on one line if the width suffices. A large
    array is described by its shape and the entries that differ from the most common one.
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
