"""What a verification looks like in a terminal: the causes of what is violated, then what became of
the laws, and the verdict.

Without everything it is to fit a screen: an implementation by itself has no table of laws, for the
causes name those that it breaks.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from properties.verifier.report import PASSING, Cause, Outcome, Report, counted
from properties.views.violation import SIGNS, named, print_cause, print_indented, print_violation

__all__ = ["print_report", "verdict_of"]

_QUIET = ("held", "declared", "not applicable")  # a declared deviation is told with its reason
_LAW_WIDTH, _CELL_WIDTH = 28, 19  # of a table's columns, at least


def print_report(
    console: Console, report: Report, groups: Mapping[str, Sequence[str]], everything: bool = False
) -> None:
    """A report on groups of implementations, by name: the causes of violations first, then reasons,
    for each group what became of the laws, and the verdict.

    With `everything` each law has a row, every violation a few lines, not only one for each cause,
    and nothing is shortened.
    """
    _print_causes(console, report.causes)
    for cause in report.causes:
        print_cause(console, cause, everything)
        console.print()
    explained = {(cause.implementation, law) for cause in report.causes for law in cause.laws}
    for violation in report.violations:
        alone = (violation.implementation, violation.law_id) not in explained
        if alone or everything:
            print_violation(console, violation, at_length=alone)
            console.print()
    _print_reasons(console, report.outcomes, everything)
    if everything or len({o.implementation for o in report.outcomes}) == 1:
        _print_undrawn(console, report.outcomes)
    for group, names in groups.items():
        _print_group(console, group, names, [o for o in report.outcomes if o.implementation in names], everything)
    for name, (preset, calls) in report.narrowest().items():
        said = f": within {preset}, by {counted(calls, 'call')}"
        console.print(Text.assemble((name, "bold"), said), highlight=False)
    if excluded := report.settings.get("exclude"):
        console.print(f"Left out: {'; '.join(excluded)}.", highlight=False, markup=False)
    console.print(verdict_of(report), style="bold green" if report.ok else "bold red", highlight=False)


def verdict_of(report: Report) -> str:
    """The last line: how many laws have come to what."""
    counts = ", ".join(f"{n} {status}" for status, n in report.counts().items() if n or status in ("held", "violated"))
    known = sum(o.known for o in report.outcomes)
    counts += f"; {known} of them known in the baseline" if known else ""
    return f"Interrupted. {counts}" if report.interrupted else counts


def _print_group(
    console: Console, group: str, names: Sequence[str], outcomes: Sequence[Outcome], everything: bool
) -> None:
    """What became of the laws on some implementations, in numbers; and of each law, where there are
    several, or everything is shown.
    """
    if [group] != list(names):
        console.print(Text(group, style="bold underline"))
        console.print()
    if everything or len(names) > 1:
        _print_laws(console, names, outcomes, everything)
    if len(names) == 1:
        rows = {
            operation: [o for o in outcomes if o.operation == operation]
            for operation in dict.fromkeys(o.operation for o in outcomes)
        }
        _print_numbers(console, names[0], rows or {"": []})
    else:
        _print_numbers(console, "", {name: [o for o in outcomes if o.implementation == name] for name in names})
    console.print()


def _print_laws(console: Console, names: Sequence[str], outcomes: Sequence[Outcome], everything: bool) -> None:
    """A table with a row for each law that neither held nor was declared not to, or for all.

    Where the terminal is too narrow for all implementations, a table for as many as fit after the
    other.
    """
    cells = {((o.operation, o.law), o.implementation): o for o in outcomes}
    untried = _untried(outcomes)
    loud_ones = [
        o for o in outcomes if not (o.status in _QUIET or o.unavailable or (o.implementation, o.operation) in untried)
    ]
    rows = list(dict.fromkeys((o.operation, o.law) for o in (outcomes if everything else loud_ones)))
    loud = {o.implementation for o in outcomes if (o.operation, o.law) in rows and o.status not in _QUIET}
    columns = list(names) if everything else [name for name in names if name in loud]
    fitting = max(1, (console.width - _LAW_WIDTH) // _CELL_WIDTH)
    for start in range(0, len(columns) if rows else 0, fitting):
        some = columns[start : start + fitting]
        table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
        table.add_column("law", min_width=min(_LAW_WIDTH - 2, console.width // 2), overflow="fold", style="none")
        for name in some:
            table.add_column(Text(name), overflow="fold", min_width=min(_CELL_WIDTH - 2, console.width // 3))
        for operation in dict.fromkeys(row[0] for row in rows):
            table.add_row(Text(operation, style="bold"))
            for row in (row for row in rows if row[0] == operation):
                table.add_row(Text(f"  {row[1]}"), *(_cell(cells.get((row, name))) for name in some))
        console.print(table)
        console.print()
    if rows:
        known = {o.status for o in outcomes} | set(SIGNS) - {"suspicious"}
        signs = "  ".join(f"{sign} {status}" for status, (sign, _) in SIGNS.items() if status in known)
        console.print(f"{signs}; max error ÷ budget, examples run", style="dim", highlight=False)
        console.print()


def _untried(outcomes: Sequence[Outcome]) -> set[tuple[str, str]]:
    """The implementations and operations of which no law was run, for a reason that is told once."""
    tried = {(o.implementation, o.operation) for o in outcomes if o.status not in ("not run", "not applicable")}
    return {(o.implementation, o.operation) for o in outcomes if o.status == "not run" and o.reason} - tried


def _cell(o: Outcome | None) -> Text:
    if o is None:
        return Text("")
    sign, style = SIGNS[o.status]
    return Text.assemble((sign, style), f" {_budgets(o.worst_excess)} in {o.examples}" if o.examples else "")


def _budgets(excess: float) -> str:
    return "∞" if np.isinf(excess) else f"{excess:.2g}"


def _print_numbers(console: Console, title: str, rows: Mapping[str, Sequence[Outcome]]) -> None:
    """For each row, an operation or an implementation, how many laws have come to what, and of
    those that held on how many examples, and how closely."""
    every = [o for outcomes in rows.values() for o in outcomes]
    any_vacuous = any(o.vacuous for o in every if o.status == "held")
    statuses = [status for status in SIGNS if status == "held" or any(o.status == status for o in every)]
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="none")
    table.add_column("")
    names = min(16, max(map(len, (title, *rows))))
    table.add_column(
        Text(title, style="bold"), overflow="fold", min_width=names
    )  # these are folded where there is little room
    headings = [status.replace(" ", "\n") for status in statuses]
    headings += ["examples", *(["vacuous\nbudgets"] if any_vacuous else []), "max error\n÷ budget"]
    for heading in headings:
        table.add_column(heading, justify="right", vertical="bottom", no_wrap=True)
    least = 3 + names + sum(2 + max(map(len, heading.split("\n"))) for heading in headings)
    apart = []
    for name, outcomes in rows.items():
        sign = Text(*_sign(outcomes))
        if (
            why := "none of these laws is about it"
            if not outcomes
            else next((f"not run: {o.reason}" for o in outcomes if o.unavailable), "")
        ):
            apart.append(Text.assemble(sign, "  ", (name, "bold"), "  " if name else "", why))
            continue
        held = [o for o in outcomes if o.status == "held"]
        counts = [
            Text(str(n) if n else "", style=SIGNS[s][1])
            for s in statuses
            for n in [sum(o.status == s for o in outcomes)]
        ]
        vacuous = [str(sum(o.vacuous for o in held) or "")] if any_vacuous else []
        closely = (
            [str(sum(o.examples for o in held)), *vacuous, _budgets(max(o.worst_excess for o in held))] if held else []
        )
        table.add_row(sign, Text(name), *counts, *closely)
    if table.row_count:
        table.width = least if least > console.width else None
        console.print(table, crop=False)
    elif title:
        console.print(Text(title, style="bold"))
    for line in apart:
        console.print(line)


def _sign(outcomes: Sequence[Outcome]) -> tuple[str, str]:
    """The sign of some outcomes of one implementation together."""
    if any(o.unavailable for o in outcomes):
        return SIGNS["not run"]
    fine = all(o.status in PASSING for o in outcomes)
    return SIGNS[
        "held" if fine and any(o.status == "held" for o in outcomes) else "not applicable" if fine else "violated"
    ]


def _print_reasons(console: Console, outcomes: Sequence[Outcome], everything: bool) -> None:
    """Why laws are declared not to hold, said nothing, or were not run: each reason, what it
    concerns, and what was seen.
    """
    untried = _untried(outcomes)
    for status in ("declared", "suspicious", "vacuous", "not run"):
        these = [o for o in outcomes if o.status == status and o.reason and not o.unavailable]
        for reason in dict.fromkeys(o.reason for o in these):
            concerned = [o for o in these if o.reason == reason]
            names = ", ".join(dict.fromkeys(o.implementation for o in concerned))
            console.print(Text.assemble((f"{SIGNS[status][0]} {status}  ", SIGNS[status][1]), (names, "bold")))
            print_indented(console, reason)
            for operation in dict.fromkeys(
                o.operation for o in concerned if (o.implementation, o.operation) in untried
            ):
                print_indented(console, f"all laws about {operation}", "dim")
            some = [o for o in concerned if (o.implementation, o.operation) not in untried]
            seen = {(o.law, o.operation): o.violation.summary for o in reversed(some) if o.violation}
            for law, operation in dict.fromkeys((o.law, o.operation) for o in some if o.violation):
                print_indented(console, f"{law} [{operation}]: {seen[law, operation]}", "dim")
            laws = list(dict.fromkeys(o.law_id for o in some if not o.violation))
            for line in named(laws, console.width - 2, everything):
                print_indented(console, line, "dim")


def _print_undrawn(console: Console, outcomes: Sequence[Outcome]) -> None:
    """Which kinds of cases were left out because of what an implementation takes, by the reason."""
    kinds: dict[tuple[str, str], dict[str, None]] = {}
    for o in outcomes:
        for kind, _, why in (each.partition(": ") for each in o.undrawn):
            kinds.setdefault((o.implementation, why), {})[kind] = None
    for (name, why), left_out in kinds.items():
        console.print(Text.assemble(("· not drawn  ", "dim"), (name, "bold")))
        print_indented(console, f"{', '.join(left_out)}: {why}")


def _print_causes(console: Console, causes: Sequence[Cause]) -> None:
    """For each implementation with several causes how many laws are broken, and by what."""
    for name in dict.fromkeys(cause.implementation for cause in causes):
        these = [cause for cause in causes if cause.implementation == name]
        if len(these) > 1:
            told = [f"{c.likely.id if c.likely else 'an unknown cause'} ({counted(len(c.laws), 'law')})" for c in these]
            said = f": {counted(sum(len(c.laws) for c in these), 'law')} broken, by {counted(len(these), 'cause')}: {', '.join(told)}"
            console.print(Text.assemble((name, "bold"), said), highlight=False)
            console.print()
