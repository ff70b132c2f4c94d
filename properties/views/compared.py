"""Prints what changed between two reports, in a terminal."""

from rich.console import Console
from rich.text import Text

from properties.verifier.comparison import Change, Comparison
from properties.verifier.report import counted
from properties.views.statuses import LABELS

__all__ = ["print_comparison"]

_MAX_CHANGES = 20  # listed for each kind
_KINDS = {
    "broke": ("✗ fails now", "bold red"),
    "mended": ("✓ passes again", "green"),
    "unchecked": ("… no longer checked", "bold magenta"),
    "slower": ("! slower", "yellow"),
    "further": ("! further from the exact value", "yellow"),
}


def print_comparison(console: Console, comparison: Comparison, before: str, after: str) -> None:
    """Print each kind of change with its implementations and laws, then a line with the number of
    new failures. `before` and `after` are the names of the reports.
    """
    if comparison.unlike:
        differ = " and ".join(filter(None, (", ".join(comparison.unlike[:-1]), comparison.unlike[-1])))
        console.print(Text(f"The reports differ in {differ}, so their test inputs differ.", style="bold"))
    for kind, (heading, style) in _KINDS.items():
        changes: tuple[Change, ...] = getattr(comparison, kind)
        if changes:
            console.print(Text(f"{heading} ({len(changes)})", style=style))
        for change in changes[:_MAX_CHANGES]:
            was, now = (LABELS.get(value, value) for value in (change.was, change.now))
            values = f": {was} → {now}" + (f", {change.why}" if change.why else "")
            line = Text.assemble("  ", (change.implementation, "bold"), f": {change.what}{values}")
            console.print(line, soft_wrap=True)
        if len(changes) > _MAX_CHANGES:
            console.print(Text(f"  … and {len(changes) - _MAX_CHANGES} more"))
    failures = counted(len(comparison.broke), "new failure") if comparison.broke else "No new failure"
    mended = len(comparison.mended)
    verdict = f"{failures} from {before} to {after}; {mended} {'passes' if mended == 1 else 'pass'} again."
    console.print(Text(verdict, style="bold red" if comparison.broke else "bold green"))
