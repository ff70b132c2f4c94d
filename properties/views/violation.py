"""What a violation looks like in a terminal: its cause first, then the law, what is wrong, on which
input, and how to see it again.
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

__all__ = [
    "SIGNS",
    "named",
    "print_cause",
    "print_indented",
    "print_violation",
    "shown",
    "statement_of",
    "violation_text",
]

SIGNS = {
    "held": ("✓", "green"),
    "suspicious": ("!", "bold yellow"),
    "violated": ("✗", "bold red"),
    "declared": ("~", "yellow"),
    "vacuous": ("?", "bold magenta"),
    "not applicable": ("·", "dim"),
    "not run": ("…", "bold magenta"),
}
"""The sign of a status, and its colour."""

_IN_FULL = 64  # entries of an array that are shown, however many differ
_TALL = 8  # lines of an array that is shown in full, where it could be told in less
_SCRIPT = 16  # lines of a script that is shown where not everything is
_LINES = 2  # of names of laws, of each operation, where not everything is shown


def print_cause(console: Console, cause: Cause, everything: bool = False) -> None:
    """A cause of several violations: what it is, what it breaks, and the law and the input that
    show it best.

    Without `everything` names of many laws, and a long script, are told by their numbers.
    """
    name = cause.likely.id if cause.likely else "an unknown cause"
    sign, style = SIGNS["violated"]
    what = f" breaks {counted(len(cause.laws), 'law')} of "
    console.print(Text.assemble((f"{sign} {name}", style), what, (cause.implementation, "bold")))
    _print_diagnosis(console, cause.example, cause.searched)
    console.print()
    v = cause.example
    console.print(Text.assemble("  ", (v.law, "bold"), f" [{v.operation}]"))
    _print_case(console, v, cause.worst)
    if others := [law for law in cause.laws if law != v.law_id]:
        _print_heading(console, f"{counted(len(others), 'more law')} broken by the same cause")
        for line in named(others, console.width - 4, everything):
            print_indented(console, line, by=4)
    _print_script(console, v.script, everything)


def print_violation(console: Console, violation: Violation, at_length: bool = True) -> None:
    """One violation by itself, or, where its cause is told at length, in a few lines."""
    sign, style = SIGNS["violated"]
    console.print(
        Text.assemble(
            (f"{sign} {violation.law}", style), f" [{violation.operation}]: ", (violation.implementation, "bold")
        )
    )
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
    """A violation, or the cause that it shows, as it is printed at length, without colours."""
    console = Console(file=io.StringIO(), width=width, no_color=True, force_terminal=False, highlight=False)
    if cause is None:
        print_violation(console, violation)
    else:
        print_cause(console, cause, everything=True)
    assert isinstance(console.file, io.StringIO)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines())


def named(laws: Sequence[str], width: int, everything: bool) -> Iterator[str]:
    """For each operation the names of some laws, "law[operation]": all, or as many as fit into a
    few lines, and how many more there are.
    """
    groups: dict[str, list[str]] = {}
    for name, operation in map(parts_of, laws):
        groups.setdefault(operation, []).append(name)
    for operation, names in groups.items():
        some = len(names)
        while (
            not everything
            and some > 1
            and len(operation) + sum(len(name) + 2 for name in names[:some]) > _LINES * width - 16
        ):
            some -= 1
        more = f"; and {len(names) - some} more" if some < len(names) else ""
        yield f"{operation}: {'; '.join(names[:some])}{more}"


def _print_diagnosis(console: Console, violation: Violation, searched: bool) -> None:
    """What the first explanation means and how it is mended, and which others there are; or that there is none."""
    first = violation.likely
    if first:
        share = "" if first.explains >= 1 else f"It gives the same on {first.explains:.0%} of the wrong calls."
        for line in filter(
            None, (first.mechanism, first.repair, "" if first.citation.startswith("none") else first.citation, share)
        ):
            print_indented(console, line)
    elif searched:
        how = "explains all of it" if violation.diagnosis else "gives the same"
        print_indented(console, f"No known bug of this operation, and no other convention, {how}.")
    else:
        print_indented(console, "attnspec could not search for a cause.")
    if others := [d for d in violation.diagnosis if d is not first]:
        told = ", ".join(d.id if d.explains >= 1 else f"{d.id} ({d.explains:.0%} of the wrong calls)" for d in others)
        print_indented(console, f"{'It could also be' if first else 'Some of it may be'} {told}.")


def _print_case(console: Console, violation: Violation, worst: str = "") -> None:
    """What a law says, what is wrong, on which input, and what else is known of it."""
    if statement := statement_of(violation.law, violation.operation):
        print_indented(console, statement, "dim")
    print_indented(console, violation.summary, "bold")
    if worst:
        print_indented(console, f"Worst: {worst}")
    for note in violation.notes:
        print_indented(console, f"Note: {note}")
    if violation.counterexample:
        _print_heading(console, "The smallest input found" if violation.shrunk else "The input")
        table = Table.grid(padding=(0, 2, 0, 0))
        for name, x in violation.told.items():
            table.add_row(
                Text(name, style="cyan"), shown(x, max(20, console.width - 12 - max(map(len, violation.told))))
            )
        console.print(Padding(table, (0, 0, 0, 4), expand=False))


def _print_script(console: Console, script: str, everything: bool) -> None:
    """The Python that shows a violation again, or, where it is long, where it is written."""
    lines = script.rstrip().splitlines()
    if not lines:
        return
    _print_heading(console, "To reproduce it")
    if len(lines) > _SCRIPT and not everything:
        print_indented(
            console, f"{len(lines)} lines of Python, which --all prints, and --write-tests DIR writes as a test.", by=4
        )
        return
    for line in lines:
        console.print(Text(f"    {line}".rstrip()), soft_wrap=True)


def _print_heading(console: Console, heading: str) -> None:
    console.print()
    console.print(Text.assemble("  ", (f"{heading}:", "underline" if console.color_system else "none")))


def print_indented(console: Console, text: str | Text, style: str = "none", by: int = 2) -> None:
    """A paragraph that is indented."""
    body: RenderableType = Text(text, style=style) if isinstance(text, str) else text
    console.print(Padding(body, (0, 0, 0, by), expand=False))


def statement_of(name: str, operation: str) -> str:
    """The statement of a law, its first paragraph; "" where there is no such law."""
    law: Law | None = next((law for law in (*LAWS, *LONG) if (law.name, law.operation) == (name, operation)), None)
    return " ".join(law.statement.split("\n\n")[0].split()) if law else ""


def shown(x: Any, width: int) -> Text:
    """A value: small arrays in full, on one line if it is wide enough; tall and large ones by their
    shape and the entries that differ from most."""
    if not isinstance(x, np.ndarray):
        return Text(repr(x))
    kind, small = f"{x.dtype} {x.shape}", x.size <= _IN_FULL
    rows = (
        np.array2string(x, separator=", ", max_line_width=width, floatmode="unique", threshold=_IN_FULL + 1)
        if small
        else ""
    )
    if small and len(line := " ".join(rows.split())) <= width:
        return Text(f"{line}  {kind}" if len(line) + len(kind) + 2 <= width else f"{kind}\n{line}")
    if small and rows.count("\n") < _TALL:
        return Text(f"{kind}\n{rows}")
    values, counts = np.unique(x, return_counts=True)
    common = values[counts.argmax()]
    others = np.argwhere(x != common)
    if len(others) == 0:
        return Text(f"{kind}, all {common}")
    if len(others) <= min(_IN_FULL, x.size) // 4:
        entries = ", ".join(f"[{', '.join(map(str, i))}]={x[tuple(i)]}" for i in others)
        return Text(f"{kind}, all {common} but {entries}")
    told = (
        f"{int(x.sum())} true"
        if x.dtype == np.bool_
        else f"from {x.min():.6g} to {x.max():.6g}, {np.count_nonzero(x)} not 0"
    )
    return Text(f"{kind}, {told}")
