"""What the verifier prints: a table for each group, laws down and implementations across, and each violation as code to paste."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from properties.implementation import Implementation
from properties.verifier import Outcome

__all__ = ["print_deviations", "print_table", "print_violation"]

_MARKS = {
    "held": ("✓ held", "green"),
    "declared": ("~ declared", "yellow"),
    "vacuous": ("? vacuous", "bold red"),
    "violated": ("✗ violated", "bold red"),
}


_LAW_WIDTH, _CELL_WIDTH = 22, 15  # of the columns, borders included


def print_table(console: Console, title: str, implementations: Sequence[Implementation], outcomes: Sequence[Outcome]) -> None:
    """Laws down, implementations across; in a cell the status, the number of examples, how many of them had a
    vacuous budget, the worst error ÷ budget, and the seconds it took.

    Where the terminal is too narrow for all implementations, a table for as many as fit after the other.
    """
    cells = {(o.law, o.implementation): o for o in outcomes}
    fitting = max(1, (console.width - _LAW_WIDTH) // _CELL_WIDTH)
    for start in range(0, len(implementations), fitting):
        shown = implementations[start : start + fitting]
        table = Table(title=title, show_lines=True, title_justify="left", title_style="bold")
        table.add_column("law", ratio=1, min_width=_LAW_WIDTH - 4)
        for implementation in shown:
            table.add_column(Text(implementation.name), justify="right", min_width=_CELL_WIDTH - 3)
        for law in dict.fromkeys(o.law for o in outcomes):
            row = [cells.get((law, i.name)) for i in shown]
            if any(row):
                table.add_row(Text(law), *("–" if o is None else _cell(o) for o in row))
        console.print(table)


def _cell(o: Outcome) -> Text:
    mark, style = _MARKS[o.status]
    silent = f"{o.examples - o.informative} vacuous\n" if o.examples > o.informative and o.status != "violated" else ""
    return Text.assemble((mark, style), f"\n{o.examples} cases\n{silent}{o.worst:.2g} budgets\n{o.seconds:.1f} s")


def print_deviations(console: Console, outcomes: Sequence[Outcome]) -> None:
    """The declared deviations that showed themselves: who, from which law, the reason, and the smallest case seen."""
    declared = [o for o in outcomes if o.status == "declared"]
    for law, reason in dict.fromkeys((o.law, o.reason) for o in declared):
        who = [o for o in declared if (o.law, o.reason) == (law, reason)]
        console.print(Text.assemble(("declared  ", "yellow"), f"{law}: ", (", ".join(o.implementation for o in who), "bold")))
        example = next(o.violation.summary for o in who if o.violation)
        console.print(f"  {reason}\n  Smallest case seen: {example}", markup=False, highlight=False)


def print_violation(console: Console, o: Outcome, where: str) -> None:
    """The law, what was found, and code that reproduces it."""
    assert o.violation is not None
    console.print(Text.assemble(("violated  ", "bold red"), (o.implementation, "bold"), f": {o.law}"))
    console.print(f"  {o.violation.summary}", markup=False, highlight=False)
    if o.violation.case:
        console.print("  Smallest case found, to paste:\n", markup=False)
        print(script(o, where), file=console.file)  # not wrapped: it is code


def script(o: Outcome, where: str) -> str:
    """Python that prints what the smallest case gives and what it should give; `where` is the implementations' "module:name"."""
    assert o.violation is not None
    module, _, name = where.partition(":")
    arguments = "".join(f"    {_literal(x)},\n" for x in o.violation.case)
    return (
        "import numpy as np\n"
        "from properties.laws import LAWS\n"
        f"from {module} import {name}\n\n"
        f"law = next(law for law in LAWS if law.name == {o.law!r})\n"
        f"implementation = next(i for group in {name}.values() for i in group if i.name == {o.implementation!r})\n"
        f"case = (\n{arguments})\n"
        "options = dict(arithmetic=implementation.arithmetic, conventions=implementation.conventions(law.name))\n"
        'print("should be", law.oracle(*case, **options))\n'
        'print("is", implementation.operations[law.operation](*case))\n'
    )


def _literal(x: Any) -> str:
    if not isinstance(x, np.ndarray):
        return repr(x)
    array = f"np.array({x.tolist()}, {str(x.dtype)!r}).reshape{x.shape}"
    if x.flags.c_contiguous:
        return array
    return f"np.asfortranarray({array})" if x.flags.f_contiguous else f"np.repeat({array}, 2, axis=0)[::2]"
