"""Prints a report in a terminal: the causes of failures, then the numbers of each operation or
implementation, and the verdict.

Without `everything` a report fits a screen. A single implementation then has no table of laws,
because the causes name the laws that fail.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from properties.portraits.rendering import fragment, text
from properties.verifier.report import PASSING, Cause, Outcome, Report, counted
from properties.views.not_taken import print_not_taken, print_undeclared_features
from properties.views.statuses import LABELS, SIGNS, status_counts
from properties.views.violation import name_of, named, print_cause, print_indented, print_violation

__all__ = ["fragment_of", "print_report", "text_of", "verdict_of"]

_QUIET = ("held", "declared", "not applicable")  # a declared deviation is printed with its reason
_LAW_WIDTH, _CELL_WIDTH = 28, 19  # the least widths of a table's columns


def print_report(
    console: Console, report: Report, groups: Mapping[str, Sequence[str]], everything: bool = False
) -> None:
    """Print a report: causes, reasons, the numbers of each group of implementations, and the
    verdict. `groups` has the names of the implementations in each group.

    With `everything`, each law has a row, each violation (failed law) has a few lines, and names
    and scripts are complete.
    """
    _print_causes(console, report.causes)
    for cause in report.causes:
        print_cause(console, cause, everything)
        console.print()
    if report.causes and not everything:
        console.print("-v prints all checks that fail, with notes and scripts.", style="dim", highlight=False)
        console.print()
    explained = {(cause.implementation, law) for cause in report.causes for law in cause.laws}
    for violation in report.violations:
        alone = (violation.implementation, violation.law_id) not in explained
        if alone or everything:
            print_violation(console, violation, at_length=alone)
            console.print()
    _print_reasons(console, report.outcomes, everything)
    if everything or len({outcome.implementation for outcome in report.outcomes}) == 1:
        _print_undrawn(console, report.outcomes, everything)
    print_not_taken(console, report)
    print_undeclared_features(console, report)
    for group, names in groups.items():
        outcomes = [outcome for outcome in report.outcomes if outcome.implementation in names]
        _print_group(console, group, names, outcomes, everything)
    for name, (preset, calls) in report.narrowest().items():
        tightest = f": Tightest preset that fits: {preset} ({counted(calls, 'call')} checked)"
        console.print(Text.assemble((name, "bold"), tightest), highlight=False)
    if covered := report.coverage.line:
        console.print(f"Covered: {covered}", highlight=False, markup=False)
    if excluded := report.settings.get("exclude"):
        console.print(f"Laws left out: {'; '.join(excluded)}.", highlight=False, markup=False)
    for name, (applied, laws) in report.undecided.items():
        few = f"{name}: inconclusive, because only {applied} of {laws} laws apply. -v says why the others do not."
        console.print(few, style="bold", highlight=False, markup=False)
    console.print(verdict_of(report), style="bold green" if report.ok else "bold red", highlight=False)


def verdict_of(report: Report) -> str:
    """Return the last line of a report: how many checks pass, fail, and so on, and how long the
    verification took, if that was measured.
    """
    known = sum(outcome.known for outcome in report.outcomes)
    counts = status_counts(report.counts()) + (f"; {known} of them known in the baseline" if known else "")
    seconds = f" ({report.seconds:.1f} s)" if report.seconds else ""
    return f"{'Interrupted. ' if report.interrupted else ''}{counts}{seconds}"


def text_of(report: Report) -> str:
    """Return a report as plain text, as a terminal shows it."""
    return text(lambda console: print_report(console, report, _each_alone(report)))


def fragment_of(report: Report) -> str:
    """Return a report as HTML for a notebook: text in colours."""
    return fragment(lambda console: print_report(console, report, _each_alone(report)))


def _each_alone(report: Report) -> dict[str, list[str]]:
    """Return a group for each implementation of a report."""
    return {outcome.implementation: [outcome.implementation] for outcome in report.outcomes}


def _print_group(
    console: Console, group: str, names: Sequence[str], outcomes: Sequence[Outcome], everything: bool
) -> None:
    """Print the numbers of a group of implementations. A group of several also gets a table of
    laws; with `everything`, every group gets one.
    """
    if [group] != list(names):
        console.print(Text(group, style="bold underline"))
        console.print()
    if everything or len(names) > 1:
        _print_laws(console, names, outcomes, everything)
    if len(names) == 1:
        rows = {
            operation: [outcome for outcome in outcomes if outcome.operation == operation]
            for operation in dict.fromkeys(outcome.operation for outcome in outcomes)
        }
        _print_numbers(console, names[0], rows or {"": []})
    else:
        rows = {name: [outcome for outcome in outcomes if outcome.implementation == name] for name in names}
        _print_numbers(console, "", rows)
    console.print()


def _print_laws(console: Console, names: Sequence[str], outcomes: Sequence[Outcome], everything: bool) -> None:
    """Print a table of laws. It has a row for each law that, for some implementation, neither
    passes nor fails as declared. With `everything`, it has a row for every law.

    If the terminal is too narrow for all implementations, there are several tables.
    """
    cells = {((outcome.operation, outcome.law), outcome.implementation): outcome for outcome in outcomes}
    untried = _untried(outcomes)
    loud_ones = [
        outcome
        for outcome in outcomes
        if not (
            outcome.status in _QUIET or outcome.unavailable or (outcome.implementation, outcome.operation) in untried
        )
    ]
    listed = outcomes if everything else loud_ones
    rows = list(dict.fromkeys((outcome.operation, outcome.law) for outcome in listed))
    loud = {
        outcome.implementation
        for outcome in outcomes
        if (outcome.operation, outcome.law) in rows and outcome.status not in _QUIET
    }
    columns = list(names) if everything else [name for name in names if name in loud]
    fitting = max(1, (console.width - _LAW_WIDTH) // _CELL_WIDTH)
    for start in range(0, len(columns) if rows else 0, fitting):
        console.print(_table_of_laws(console, columns[start : start + fitting], rows, cells))
        console.print()
    if rows:
        known = {outcome.status for outcome in outcomes} | set(SIGNS) - {"suspicious"}
        signs = "  ".join(f"{sign} {LABELS[status]}" for status, (sign, _) in SIGNS.items() if status in known)
        legend = f"{signs}; max error ÷ error limit, number of test inputs"
        console.print(legend, style="dim", highlight=False)
        console.print()


def _table_of_laws(
    console: Console,
    names: Sequence[str],
    rows: Sequence[tuple[str, str]],
    cells: Mapping[tuple[tuple[str, str], str], Outcome],
) -> Table:
    """Return the table with a row for each operation and law, and a column for each implementation."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column("law", min_width=min(_LAW_WIDTH - 2, console.width // 2), overflow="fold", style="none")
    for name in names:
        table.add_column(Text(name), overflow="fold", min_width=min(_CELL_WIDTH - 2, console.width // 3))
    for operation in dict.fromkeys(operation for operation, _ in rows):
        table.add_row(Text(operation, style="bold"))
        for row in rows:
            if row[0] == operation:
                table.add_row(Text(f"  {row[1]}"), *(_cell(cells.get((row, name))) for name in names))
    return table


def _untried(outcomes: Sequence[Outcome]) -> set[tuple[str, str]]:
    """Return the pairs of an implementation and an operation for which no law was run. Their reason
    is printed once.
    """
    tried = {
        (outcome.implementation, outcome.operation)
        for outcome in outcomes
        if outcome.status not in ("not run", "not applicable")
    }
    not_run = {
        (outcome.implementation, outcome.operation)
        for outcome in outcomes
        if outcome.status == "not run" and outcome.reason
    }
    return not_run - tried


def _cell(outcome: Outcome | None) -> Text:
    if outcome is None:
        return Text("")
    sign, style = SIGNS[outcome.status]
    numbers = f" {_ratio(outcome.worst_excess)} in {outcome.examples}" if outcome.examples else ""
    return Text.assemble((sign, style), numbers)


def _ratio(excess: float) -> str:
    return "∞" if np.isinf(excess) else f"{excess:.2g}"


def _print_numbers(console: Console, title: str, rows: Mapping[str, Sequence[Outcome]]) -> None:
    """Print a table with a row for each operation or implementation: how many checks have each
    status, and for those that did not fail the number of test inputs and the largest error.
    """
    every = [outcome for outcomes in rows.values() for outcome in outcomes]
    any_vacuous = any(outcome.vacuous for outcome in every if outcome.status == "held")
    present = {outcome.status for outcome in every}
    statuses = [status for status in SIGNS if status == "held" or status in present]
    headings = [LABELS[status].replace(" ", "\n") for status in statuses]
    headings += ["test\ninputs", *(["vacuous\nlimits"] if any_vacuous else []), "max error\n÷ limit\nif passing"]
    names = min(16, max(map(len, (title, *rows))))
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="none")
    table.add_column("")
    table.add_column(Text(title, style="bold"), overflow="fold", min_width=names)  # long names are folded
    for heading in headings:
        table.add_column(heading, justify="right", vertical="bottom", no_wrap=True)
    apart = []
    for name, outcomes in rows.items():
        sign = Text(*_sign(outcomes))
        if reason := _reason_without_numbers(outcomes):
            apart.append(Text.assemble(sign, "  ", (name, "bold"), "  " if name else "", reason))
        else:
            table.add_row(sign, Text(name), *_numbers(outcomes, statuses, any_vacuous))
    if table.row_count:
        least = 3 + names + sum(2 + max(map(len, heading.split("\n"))) for heading in headings)
        table.width = least if least > console.width else None
        console.print(table, crop=False)
    elif title:
        console.print(Text(title, style="bold"))
    for line in apart:
        console.print(line)


def _reason_without_numbers(outcomes: Sequence[Outcome]) -> str:
    """Return why a row of the table has no numbers; "" if it has some."""
    if not outcomes:
        return "no law applies"
    return next((f"not run: {outcome.reason}" for outcome in outcomes if outcome.unavailable), "")


def _numbers(outcomes: Sequence[Outcome], statuses: Sequence[str], any_vacuous: bool) -> list[str | Text]:
    """Return the cells of a row: the number of checks of each status, then, for those that pass or
    were stopped early without a failure, the number of test inputs and the largest error.
    """
    passing = [outcome for outcome in outcomes if outcome.status in ("held", "stopped early")]
    numbers = [sum(outcome.status == status for outcome in outcomes) for status in statuses]
    cells: list[str | Text] = [
        Text(str(number or ""), style=SIGNS[status][1]) for status, number in zip(statuses, numbers, strict=True)
    ]
    if not passing:
        return cells
    cells.append(str(sum(outcome.examples for outcome in passing)))
    if any_vacuous:
        cells.append(str(sum(outcome.vacuous for outcome in passing) or ""))
    return [*cells, _ratio(max(outcome.worst_excess for outcome in passing))]


def _sign(outcomes: Sequence[Outcome]) -> tuple[str, str]:
    """Return the sign, and its style, for all outcomes of a row together."""
    if any(outcome.unavailable for outcome in outcomes):
        return SIGNS["not run"]
    if any(outcome.status not in PASSING for outcome in outcomes):
        return SIGNS["violated"]
    return SIGNS["held" if any(outcome.status == "held" for outcome in outcomes) else "not applicable"]


def _print_reasons(console: Console, outcomes: Sequence[Outcome], everything: bool) -> None:
    """Print why checks fail as declared, are suspicious or inconclusive, were stopped early, or were
    not run. Each reason comes with its laws, and with what is wrong.
    """
    untried = _untried(outcomes)
    for status in ("declared", "suspicious", "vacuous", "stopped early", "not run"):
        with_reason = [one for one in outcomes if one.status == status and one.reason and not one.unavailable]
        for reason in dict.fromkeys(outcome.reason for outcome in with_reason):
            concerned = [outcome for outcome in with_reason if outcome.reason == reason]
            names = ", ".join(dict.fromkeys(outcome.implementation for outcome in concerned))
            sign, style = SIGNS[status]
            console.print(Text.assemble((f"{sign} {LABELS[status]}  ", style), (names, "bold")))
            print_indented(console, reason)
            is_untried = [(each.implementation, each.operation) in untried for each in concerned]
            whole = [each for each, alone in zip(concerned, is_untried, strict=True) if alone]
            for operation in dict.fromkeys(outcome.operation for outcome in whole):
                print_indented(console, f"all laws about {operation}", "dim")
            others = [each for each, alone in zip(concerned, is_untried, strict=True) if not alone]
            _print_laws_of_a_reason(console, others, everything)


def _print_laws_of_a_reason(console: Console, outcomes: Sequence[Outcome], everything: bool) -> None:
    """Print the laws that a reason concerns. A law that fails comes with what is wrong."""
    seen = {outcome.law_id: outcome.violation for outcome in reversed(outcomes) if outcome.violation}
    for law in dict.fromkeys(outcome.law_id for outcome in outcomes if outcome.violation):
        violation = seen[law]
        print_indented(console, f"{violation.law} [{violation.operation}]: {violation.summary}", "dim")
    others = list(dict.fromkeys(outcome.law_id for outcome in outcomes if not outcome.violation))
    for line in named(others, console.width - 2, everything):
        print_indented(console, line, "dim")


def _print_undrawn(console: Console, outcomes: Sequence[Outcome], everything: bool) -> None:
    """Print in a line which input families were not drawn because the implementation does not take
    them. With `everything`, there is a line for each reason.
    """
    reasons: dict[str, dict[str, dict[str, None]]] = {}
    for outcome in outcomes:
        for family, _, reason in (each.partition(": ") for each in outcome.undrawn):
            reasons.setdefault(outcome.implementation, {}).setdefault(reason, {})[family] = None
    for name, families in reasons.items():
        if everything or len(families) == 1:
            lines = [f"{', '.join(left_out)}: {reason}" for reason, left_out in families.items()]
        else:
            lines = [", ".join(dict.fromkeys(family for left_out in families.values() for family in left_out))]
        for each in lines:
            line = Text.assemble(("· not tested  ", "dim"), (name, "bold"), f"  {each}")
            if not everything and len(line) > (room := console.width - len(hint := " … -v says why")):
                line = line[:room].append(hint)
            console.print(line, highlight=False)


def _print_causes(console: Console, causes: Sequence[Cause]) -> None:
    """Print for each implementation with several causes how many checks fail for each cause."""
    for name in dict.fromkeys(cause.implementation for cause in causes):
        several = [cause for cause in causes if cause.implementation == name]
        if len(several) > 1:
            checks = counted(sum(len(cause.laws) for cause in several), "check")
            shares = ", ".join(f"{name_of(cause)} ({counted(len(cause.laws), 'check')})" for cause in several)
            sentence = f": {checks} fail, for {counted(len(several), 'cause')}: {shares}"
            console.print(Text.assemble((name, "bold"), sentence), highlight=False)
            console.print()
