"""Prints the portrait of a kernel: what is wrong first, then the questions, then the facts."""

from collections.abc import Callable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from properties.portraits.adapter import KERNEL, declaration
from properties.portraits.differences import Difference
from properties.portraits.portrait import OperationPortrait, Portrait

__all__ = ["print_differences", "print_portrait"]


def print_portrait(console: Console, portrait: Portrait, kernel: Callable[[str], str] = KERNEL) -> None:
    """Print the portrait of each operation, and the declarations that follow from it. `kernel`
    returns the expression of the function that offers an operation.
    """
    for each in portrait.operations:
        _print_operation(console, each)
        console.print()
    if any(each.form is not None for each in portrait.operations):
        console.print(Text("An adapter that declares this (`--write FILE` writes it with its imports):", style="bold"))
        console.print(declaration(portrait, kernel), markup=False, highlight=False, soft_wrap=True)
    verdict = f"{portrait.verdict[0].upper()}{portrait.verdict[1:]} ({portrait.seconds:.2g} s)"
    console.print(verdict, style="bold green" if portrait.ok else "bold red", highlight=False)


def print_differences(console: Console, found: Sequence[Difference], first: str, second: str) -> None:
    """Print what two kernels do differently, a paragraph for each difference."""
    width = max(len(first), len(second))
    for difference in found:
        title = Text.assemble((difference.operation, "bold underline"), "  ", (difference.subject, "cyan"))
        console.print(title, highlight=False)
        table = Table(box=None, show_header=False, padding=(0, 2, 0, 2))
        table.add_column(min_width=width, no_wrap=True)
        for name, clause in ((first, difference.first), (second, difference.second)):
            table.add_row(Text(name, style="dim"), Text(clause or "–"))
        console.print(table)
    number = len(found)
    verdict = f"{number or 'No'} difference{'' if number < 2 else 's'} between {first} and {second}"
    console.print(verdict, style="bold red" if found else "bold green", highlight=False)


def _print_operation(console: Console, portrait: OperationPortrait) -> None:
    """Print what one operation computes."""
    called = f"{portrait.calls} calls" + (f", {_time(portrait.seconds)} a call" if portrait.seconds else "")
    console.print(Text.assemble((portrait.operation, "bold underline"), f"  {called}"), highlight=False)
    said = Table.grid(padding=(0, 1))
    for anomaly in portrait.anomalies:
        said.add_row(Text("✗", style="bold red"), Text(anomaly))
    for question in portrait.questions:
        said.add_row(Text("?", style="bold yellow"), Text(question.says))
    if said.row_count:
        console.print(said)
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 2))
    asked = {question.convention for question in portrait.questions}
    for fact in (fact for fact in portrait.facts if fact.subject not in asked):
        table.add_row(Text(fact.subject, style="cyan"), Text(fact.says))
    for unknown in portrait.unknown:
        table.add_row(Text("not found", style="dim"), Text(unknown))
    console.print(table)


def _time(seconds: float) -> str:
    """A time in words: "12 µs"."""
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"
