"""What a verification looks like in a terminal: tables of the laws that did not simply hold, what held, and each violation at length."""

import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from properties.laws import LAWS, LONG
from properties.laws.law import Law
from properties.verifier.report import PASSING, Cause, Outcome, Report, Violation, counted

__all__ = ["SIGNS", "print_report", "print_violation", "shown", "statement_of", "verdict_of", "violation_text"]

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

_QUIET = ("held", "declared", "not applicable")  # a declared deviation is told with its reason
_IN_FULL = 64  # entries of an array that are shown, however many differ
_TALL = 8  # lines of an array that is shown in full, where it could be told in less
_LAW_WIDTH, _CELL_WIDTH = 28, 19  # of a table's columns, at least


def print_report(console: Console, report: Report, groups: Mapping[str, Sequence[str]], everything: bool = False) -> None:
    """A report on groups of implementations, by name: for each a table and what held; then reasons, causes, and the verdict.

    With `everything` laws that held have rows too, and every violation a few lines, not only one for each cause.
    """
    for group, names in groups.items():
        outcomes = [o for o in report.outcomes if o.implementation in names]
        print_group(console, group, names, outcomes, everything)
    _print_reasons(console, report.outcomes)
    if everything or len({o.implementation for o in report.outcomes}) == 1:
        _print_undrawn(console, report.outcomes)
    for cause in report.causes:
        print_violation(console, cause.example, cause)
        console.print()
    explained = {(cause.implementation, law) for cause in report.causes for law in cause.laws}
    for violation in report.violations:
        alone = (violation.implementation, violation.law_id) not in explained
        if alone or everything:
            print_violation(console, violation, at_length=alone)
            console.print()
    _print_causes(console, report.causes)
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


def print_group(console: Console, group: str, names: Sequence[str], outcomes: Sequence[Outcome], everything: bool) -> None:
    """A table with a row for each law that neither held nor was declared not to, or for all, and a line on what held.

    Where the terminal is too narrow for all implementations, a table for as many as fit after the other.
    """
    if [group] != list(names):
        console.print(Text(group, style="bold underline"))
        console.print()
    cells = {((o.operation, o.law), o.implementation): o for o in outcomes}
    untried = _untried(outcomes)
    loud_ones = [o for o in outcomes if not (o.status in _QUIET or o.unavailable or (o.implementation, o.operation) in untried)]
    rows = list(dict.fromkeys((o.operation, o.law) for o in (outcomes if everything else loud_ones)))
    loud = {o.implementation for o in outcomes if (o.operation, o.law) in rows and o.status not in _QUIET}
    columns = list(names) if everything else [name for name in names if name in loud]
    fitting = max(1, (console.width - _LAW_WIDTH) // _CELL_WIDTH)
    for start in range(0, len(columns) if rows else 0, fitting):
        shown = columns[start : start + fitting]
        table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
        table.add_column("law", min_width=min(_LAW_WIDTH - 2, console.width // 2), overflow="fold", style="none")
        for name in shown:
            table.add_column(Text(name), overflow="fold", min_width=min(_CELL_WIDTH - 2, console.width // 3))
        for operation in dict.fromkeys(row[0] for row in rows):
            table.add_row(Text(operation, style="bold"))
            for row in (row for row in rows if row[0] == operation):
                table.add_row(Text(f"  {row[1]}"), *(_cell(cells.get((row, name))) for name in shown))
        console.print(table)
        console.print()
    if rows:
        known = {o.status for o in outcomes} | set(SIGNS) - {"suspicious"}
        signs = "  ".join(f"{sign} {status}" for status, (sign, _) in SIGNS.items() if status in known)
        console.print(f"{signs}; max error ÷ budget, examples run", style="dim", highlight=False)
        console.print()
    if len(names) == 1:
        _print_operations(console, names[0], outcomes)
    else:
        _print_implementations(console, names, outcomes)
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


def _print_operations(console: Console, name: str, outcomes: Sequence[Outcome]) -> None:
    """For each operation of an implementation how many laws held, on how many examples, how closely, and how many did not."""
    console.print(Text(name, style="bold"))
    lines = Table.grid(padding=(0, 2, 0, 0))
    for operation in dict.fromkeys(o.operation for o in outcomes):
        sign, said = _said([o for o in outcomes if o.operation == operation])
        lines.add_row(Text.assemble("  ", sign), Text(operation), said)
    console.print(lines if outcomes else "  none of these laws is about it")


def _print_implementations(console: Console, names: Sequence[str], outcomes: Sequence[Outcome]) -> None:
    """The same for each implementation, all of its operations together."""
    lines = Table.grid(padding=(0, 2, 0, 0))
    for name in names:
        sign, said = _said([o for o in outcomes if o.implementation == name])
        lines.add_row(sign, Text(name, style="bold"), said)
    console.print(lines)


def _said(outcomes: Sequence[Outcome]) -> tuple[Text, Text]:
    """The sign of some outcomes of one implementation, and what they come to in words."""
    if why := next((o.reason for o in outcomes if o.unavailable), ""):
        return Text(*SIGNS["not run"]), Text(f"not run: {why}")
    held = [o for o in outcomes if o.status == "held"]
    said = f"{counted(len(held), 'law')} held" if outcomes else "none of these laws is about it"
    if held:
        cases, worst = counted(sum(o.examples for o in held), "example"), max(o.worst_excess for o in held)
        vacuous = sum(o.vacuous for o in held)
        said += f" on {cases}{f', {vacuous} of them with a vacuous budget' if vacuous else ''}, max error ÷ budget {_budgets(worst)}"
    others = ", ".join(f"{n} {status}" for status in SIGNS if status != "held" and (n := sum(o.status == status for o in outcomes)))
    fine = all(o.status in PASSING for o in outcomes)
    return Text(*SIGNS["held" if held and fine else "not applicable" if fine else "violated"]), Text(
        said + (f"; {others}" if others else "")
    )


def _print_reasons(console: Console, outcomes: Sequence[Outcome]) -> None:
    """Why laws are declared not to hold, said nothing, or were not run: each reason, what it concerns, and what was seen."""
    untried = _untried(outcomes)
    for status in ("declared", "suspicious", "vacuous", "not run"):
        these = [o for o in outcomes if o.status == status and o.reason and not o.unavailable]
        for reason in dict.fromkeys(o.reason for o in these):
            concerned = [o for o in these if o.reason == reason]
            names = ", ".join(dict.fromkeys(o.implementation for o in concerned))
            console.print(Text.assemble((f"{SIGNS[status][0]} {status}  ", SIGNS[status][1]), (names, "bold")))
            _print_indented(console, reason)
            for operation in dict.fromkeys(o.operation for o in concerned if (o.implementation, o.operation) in untried):
                _print_indented(console, f"all laws about {operation}", "dim")
            some = [o for o in concerned if (o.implementation, o.operation) not in untried]
            seen = {(o.law, o.operation): o.violation.summary for o in reversed(some) if o.violation}
            for law, operation in dict.fromkeys((o.law, o.operation) for o in some if o.violation):
                _print_indented(console, f"{law} [{operation}]: {seen[law, operation]}", "dim")
            for operation in dict.fromkeys(o.operation for o in some if not o.violation):
                laws = dict.fromkeys(o.law for o in some if o.operation == operation and not o.violation)
                _print_indented(console, f"{operation}: {'; '.join(laws)}", "dim")


def _print_undrawn(console: Console, outcomes: Sequence[Outcome]) -> None:
    """Which kinds of cases were left out because of what an implementation takes, by the reason."""
    kinds: dict[tuple[str, str], dict[str, None]] = {}
    for o in outcomes:
        for kind, _, why in (each.partition(": ") for each in o.undrawn):
            kinds.setdefault((o.implementation, why), {})[kind] = None
    for (name, why), left_out in kinds.items():
        console.print(Text.assemble(("· not drawn  ", "dim"), (name, "bold")))
        _print_indented(console, f"{', '.join(left_out)}: {why}")


def _print_causes(console: Console, causes: Sequence[Cause]) -> None:
    """For each implementation how many laws are broken, and by what."""
    for name in dict.fromkeys(cause.implementation for cause in causes):
        these = [cause for cause in causes if cause.implementation == name]
        told = [f"{c.diagnosis[0].id if c.diagnosis else 'not explained'} ({counted(len(c.laws), 'law')})" for c in these]
        said = f": {counted(sum(len(c.laws) for c in these), 'law')} broken, by {counted(len(these), 'cause')}: {', '.join(told)}"
        console.print(Text.assemble((name, "bold"), said), highlight=False)


def print_violation(console: Console, violation: Violation, cause: Cause | None = None, at_length: bool = True) -> None:
    """What the law says, what the implementation did, on which input, what explains it, which laws have the same cause, and how to see it
    again."""
    sign, style = SIGNS["violated"]
    console.print(Text.assemble((f"{sign} {violation.law}", style), f" [{violation.operation}]: ", (violation.implementation, "bold")))
    if not at_length:
        _print_indented(console, violation.summary)
        for d in violation.diagnosis[:1]:
            _print_indented(console, f"Likely cause: {d.id}")
        return
    if statement := statement_of(violation.law, violation.operation):
        _print_indented(console, statement, "dim")
    console.print()
    _print_indented(console, violation.summary, "bold")
    if cause is not None and cause.worst:
        _print_indented(console, f"Worst: {cause.worst}")
    if violation.counterexample:
        _print_heading(console, "The smallest input found" if violation.shrunk else "The input")
        table = Table.grid(padding=(0, 2, 0, 0))
        for name, x in violation.told.items():
            table.add_row(Text(name, style="cyan"), shown(x, max(20, console.width - 12 - max(map(len, violation.told)))))
        console.print(Padding(table, (0, 0, 0, 4), expand=False))
    if violation.diagnosis:
        _print_heading(console, "Likely causes")
        for place, d in enumerate(violation.diagnosis, 1):
            share = "" if d.explains >= 1 else f", reproduces {d.explains:.0%} of the recorded calls"
            console.print(Padding(Text.assemble(f"{place}. ", (d.id, "bold yellow"), share), (0, 0, 0, 4), expand=False))
            for line in filter(None, (d.repair, "" if d.citation.startswith("none") else d.citation)):
                console.print(Padding(Text(line), (0, 0, 0, 7), expand=False))
    elif cause.searched if cause is not None else violation.calls:
        _print_heading(console, "Likely causes")
        _print_indented(console, "  No known bug of this operation, and no other convention.")
    for note in violation.notes:
        console.print()
        _print_indented(console, f"Note: {note}")
    others = [law for law in cause.laws if law != violation.law_id] if cause is not None else []
    if others:
        _print_heading(console, f"{counted(len(others), 'more law')} broken by the same cause")
        for operation in dict.fromkeys(law.partition("[")[2] for law in others):
            names = "; ".join(law.partition("[")[0] for law in others if law.partition("[")[2] == operation)
            console.print(Padding(Text(f"{operation.removesuffix(']')}: {names}"), (0, 0, 0, 4), expand=False))
    if violation.script:
        _print_heading(console, "To see it again")
        for line in violation.script.rstrip().splitlines():
            console.print(Text(f"    {line}".rstrip()), soft_wrap=True)


def violation_text(violation: Violation, width: int = 120, cause: Cause | None = None) -> str:
    """A violation as it is printed at length, without colours."""
    console = Console(file=io.StringIO(), width=width, no_color=True, force_terminal=False, highlight=False)
    print_violation(console, violation, cause)
    assert isinstance(console.file, io.StringIO)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines())


def statement_of(name: str, operation: str) -> str:
    """The statement of a law, its first paragraph; "" where there is no such law."""
    law: Law | None = next((law for law in (*LAWS, *LONG) if (law.name, law.operation) == (name, operation)), None)
    return " ".join(law.statement.split("\n\n")[0].split()) if law else ""


def _print_heading(console: Console, heading: str) -> None:
    console.print()
    console.print(Text.assemble("  ", (f"{heading}:", "underline" if console.color_system else "none")))


def _print_indented(console: Console, text: str, style: str = "none") -> None:
    body: RenderableType = Text(text, style=style)
    console.print(Padding(body, (0, 0, 0, 2), expand=False))


def shown(x: Any, width: int) -> Text:
    """A value: small arrays in full, on one line if it is wide enough; tall and large ones by their shape and the entries that differ from
    most."""
    if not isinstance(x, np.ndarray):
        return Text(repr(x))
    kind, small = f"{x.dtype} {x.shape}", x.size <= _IN_FULL
    rows = np.array2string(x, separator=", ", max_line_width=width, floatmode="unique", threshold=_IN_FULL + 1) if small else ""
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
    if small:
        return Text(f"{kind}\n{rows}")
    told = f"{int(x.sum())} true" if x.dtype == np.bool_ else f"from {x.min():.6g} to {x.max():.6g}, {np.count_nonzero(x)} not 0"
    return Text(f"{kind}, {told}")
