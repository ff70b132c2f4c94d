"""What changed between two reports, in a terminal."""

from rich.console import Console
from rich.text import Text

from properties.verifier.comparison import Change, Comparison
from properties.verifier.report import counted

__all__ = ["print_comparison"]

_MOST = 20  # changes of a kind that are listed
_KINDS = {
    "broke": ("✗ broke", "bold red"),
    "mended": ("✓ mended", "green"),
    "unchecked": ("… no longer checked", "bold magenta"),
    "slower": ("! slower", "yellow"),
    "further": ("! further from the exact value", "yellow"),
}


def print_comparison(console: Console, comparison: Comparison, before: str, after: str) -> None:
    """Each kind of change with what it concerns, and a last line that says whether something broke
    since a report of a name.
    """
    if comparison.unlike:
        differ = " and ".join(filter(None, (", ".join(comparison.unlike[:-1]), comparison.unlike[-1])))
        console.print(Text(f"Other cases were drawn: the reports differ in {differ}.", style="bold"))
    for kind, (heading, style) in _KINDS.items():
        changes: tuple[Change, ...] = getattr(comparison, kind)
        if changes:
            console.print(Text(f"{heading} ({len(changes)})", style=style))
        for change in changes[:_MOST]:
            said = f": {change.was} → {change.now}" + (f", {change.why}" if change.why else "")
            console.print(
                Text.assemble("  ", (change.implementation, "bold"), f": {change.what}{said}"), soft_wrap=True
            )
        if len(changes) > _MOST:
            console.print(Text(f"  … and {len(changes) - _MOST} more"))
    broke = f"{counted(len(comparison.broke), 'law')} broke" if comparison.broke else "Nothing broke"
    verdict = f"{broke} from {before} to {after}; {len(comparison.mended)} mended."
    console.print(Text(verdict, style="bold red" if comparison.broke else "bold green"))
