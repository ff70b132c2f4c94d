"""Defines the words and signs that people read for statuses. Data has the statuses themselves."""

from collections.abc import Mapping

__all__ = ["LABELS", "SIGNS", "label", "status_counts"]

SIGNS = {
    "held": ("✓", "green"),
    "suspicious": ("!", "bold yellow"),
    "violated": ("✗", "bold red"),
    "declared": ("~", "yellow"),
    "vacuous": ("?", "bold magenta"),
    "not applicable": ("·", "dim"),
    "stopped early": ("…", "bold magenta"),
    "not run": ("…", "bold magenta"),
}
"""The sign of each status, and its colour."""

LABELS = {
    "held": "passes",
    "suspicious": "suspicious",
    "violated": "fails",
    "declared": "fails as declared",
    "vacuous": "inconclusive",
    "not applicable": "does not apply",
    "stopped early": "stopped early",
    "not run": "not run",
}
"""What people read for each status of one check."""

_PLURALS = {
    "passes": "pass",
    "fails": "fail",
    "fails as declared": "fail as declared",
    "does not apply": "do not apply",
}
"""The labels that differ where several checks have the status."""


def status_counts(counts: Mapping[str, int], always: tuple[str, ...] = ("held", "violated")) -> str:
    """Return how many checks have each status, in words: "19 pass, 1 fails". A status that no check
    has is left out, unless it is one of `always`.
    """
    shown = [status for status in LABELS if counts.get(status, 0) or status in always]
    return ", ".join(f"{counts.get(status, 0)} {label(status, counts.get(status, 0))}" for status in shown)


def label(status: str, number: int) -> str:
    """Return the word for the status of a number of checks: "passes" for 1, "pass" for others."""
    singular = LABELS[status]
    return singular if number == 1 else _PLURALS.get(singular, singular)
