"""docs/checkers.md, from what was measured: docs/checkers.json."""

from collections.abc import Iterator
from typing import Any

from properties.bugs import CATALOGUE, GROUPS
from research.checkers.asked import REASONS
from research.checkers.counts import ALL, by_group, reasons
from research.checkers.rows import ROWS
from research.checkers.table import COLUMNS
from research.checkers.trial import FORWARD

__all__ = ["markdown"]

_BAR, _MARKS = r"\|", {"seen": "●", "let through": "○"}

_INTRODUCTION = """\
# What today's checkers let through

Written by `make checkers`: {bugs} known bugs of the [catalogue](kill-matrix.md), each in all operations that have it,
against {checkers} checks. We wrote the checks of others from what their sources state; each section below names the
revision that was read.

- A checker is *asked about* a bug if it calls an operation that has the bug, and some call of any size shows the bug
  with the arguments that the checker gives and the results at which it looks. The calls of our vectors and domains
  decide this, without the arguments that the checker does not give. A bug that takes two calls, views, or a look at
  the side effects of a call counts as asked about.
- The checker *sees* the bug if it refuses one of its calls: the result is outside its tolerance, has another shape, or
  is an error.
- A candidate computes in float64 and then rounds to the checker's format: its own rounding gives no reason to refuse
  it. The right result is the reference in float64, rounded to the same format.
- Each operation that can express a call of attention runs it; an operation that takes a mask alone gets causality and
  windows as a mask.
- Draws have fixed seeds, which differ from the seeds of the originals.
- `check_grads` and `gradcheck` compare derivatives with the candidate's own forward, and let through a mistake that
  is in both.
"""


def markdown(found: dict[str, Any]) -> str:
    """The page."""
    sections = [
        _INTRODUCTION.format(bugs=len(found["verdicts"]), checkers=len(COLUMNS)),
        *_summary(found),
        *_not_asked(found),
        *_groups(found),
        *_exhibits(found["exhibits"]),
        *_checkers(),
        *_bugs(found),
    ]
    return "\n".join([*sections, ""])


def _table(headings: list[str], rows: list[list[str]]) -> Iterator[str]:
    for line in (headings, ["---"] * len(headings), *rows):
        yield f"| {' | '.join(cell.replace('|', _BAR) for cell in line)} |"


def _summary(found: dict[str, Any]) -> Iterator[str]:
    yield "## Seen, of those asked about\n"
    rows = []
    for name, group_counts in by_group(found["verdicts"])[ALL].items():
        refused = "{} of {}".format(*found["alarms"][name]) if name in found["alarms"] else "–"
        rows.append(
            [
                name,
                str(group_counts.asked),
                str(group_counts.seen),
                str(group_counts.asked - group_counts.seen),
                f"{group_counts.share:.0%}",
                refused,
            ]
        )
    yield from _table(["checker", "asked about", "seen", "let through", "share seen", "right code refused"], rows)
    yield "\nRight code is the reference, and code that only looks like a bug. For our checks, false alarms are in"
    yield "[the kill matrix](kill-matrix.md), and with many seeds in `docs/seeds.txt`. Our two plans draw different"
    yield "cases, here with one seed: a bug that few cases show may be seen by either plan alone.\n"
    for name in (checker.name for checker in ROWS if checker.compares is None):
        through = [bug for bug, answers in found["verdicts"].items() if answers[name] == "let through"]
        in_forward = sum(not set(FORWARD).isdisjoint(CATALOGUE[bug].mutants) for bug in through)
        yield f"Of the {len(through)} that {name} lets through {in_forward} are in the forward, too.\n"
    yield "![Groups of bugs by checkers, and the share of each that is seen](checkers.svg)\n"


def _not_asked(found: dict[str, Any]) -> Iterator[str]:
    yield "## Why the rest is not asked about\n"
    reasons_by_checker = {name: reasons(found["verdicts"], name) for name in COLUMNS}
    yield from _table(
        ["checker", *REASONS.values()],
        [
            [name, *(str(group_counts.get(reason, 0)) for reason in REASONS)]
            for name, group_counts in reasons_by_checker.items()
        ],
    )
    yield ""


def _groups(found: dict[str, Any]) -> Iterator[str]:
    yield "## By what the bugs are about\n"
    yield "Seen, of those asked about; the groups are the modules of `properties/bugs`.\n"
    counts = by_group(found["verdicts"])
    rows = [
        [g, *(f"{group_counts[c].seen}/{group_counts[c].asked}" if group_counts[c].asked else "" for c in COLUMNS)]
        for g, group_counts in counts.items()
    ]
    yield from _table(["group", *COLUMNS], rows)
    yield ""


def _exhibits(found: dict[str, Any]) -> Iterator[str]:
    yield "## Exhibits\n"
    for name, group_counts in found["posers"].items():
        yield f"### `{name}`\n"
        yield f"In the place of every attention, with its own derivatives: {group_counts['says']}.\n"
        yield from _table(
            ["checker", "says"], [[checker, answers] for checker, answers in group_counts["checkers"].items()]
        )
        for target, error in group_counts["errors"].items():
            yield f"\nOver 32 heads of KernelBench's problem in {target} the largest error is {error['error']:.3g}."
            yield f"It passes with rtol = atol from {error['least']:.3g}."
        laws = group_counts["laws"]
        yield f"\nattnspec's quick plan, on float64: {laws['violated']} laws about plain attention are violated,"
        yield f"first *{laws['first']}*:"
        yield f"{laws['summary']}\n"
    yield from _windows(found["windows"])


def _windows(rows: list[dict[str, Any]]) -> Iterator[str]:
    yield "### A window that is off by one key\n"
    yield "One query in bfloat16, standard normal, with 32 heads over 8 of width 128. Its window has the given"
    yield "number of keys, plus or minus one by mistake. flashinfer-bench's predicate refuses if some entry is"
    yield "beyond both tolerances, 1e-2; the budget refuses an error above 1 budget. In the last column the value"
    yield "of the key in question is 2¹⁰ times as large. attnspec's laws draw other sizes and values: the table of"
    yield "every bug has their verdicts on these bugs, attention-window-one-key-too-many and -short, and [the kill"
    yield "matrix](kill-matrix.md) the number of cases.\n"
    headings = [
        "keys",
        "window",
        "largest error",
        "entries beyond both",
        "flashinfer-bench",
        "error ÷ budget",
        "… value × 2¹⁰",
    ]
    yield from _table(
        headings,
        [
            [
                str(row["keys"]),
                row["side"],
                f"{row['error']:.2g}",
                f"{row['beyond']} of {row['entries']}",
                "refused" if row["beyond"] else "accepted",
                f"{row['budget']:.3g}",
                f"{row['budget, told']:.3g}",
            ]
            for row in rows
        ],
    )
    yield ""


def _checkers() -> Iterator[str]:
    yield "## The checkers\n"
    yield "All sources were read on 2026-11-22.\n"
    for checker in ROWS:
        yield f"### {checker.name}\n"
        yield f"- draws: {checker.draws}"
        yield f"- accepts: {checker.accepts}"
        yield f"- here: {checker.unlike}"
        yield f"- operations: {', '.join(f'`{name}`' for name in checker.asks)}; {len(checker.calls)} calls"
        yield from (f"- source: {source}" for source in checker.sources)
        yield ""
    yield "### attnspec\n"
    yield "- quick plan, default plan: `attnspec verify` with and without `--quick`, seed 0, up to the first violation"
    yield "- vectors: those of `vectors/MATRIX.md`, in some format\n"


def _bugs(found: dict[str, Any]) -> Iterator[str]:
    yield "## Every bug\n"
    letters = [chr(ord("A") + place) for place in range(len(COLUMNS))]
    yield f"{_MARKS['seen']} seen, {_MARKS['let through']} let through, empty where not asked about. Columns: "
    yield "; ".join(f"{letter} {name}" for letter, name in zip(letters, COLUMNS, strict=True)) + ".\n"
    rows = []
    for group, bugs in GROUPS.items():
        for bug in bugs:
            answers = found["verdicts"][bug.id]
            rows.append([bug.id, group, *(_MARKS.get(answers[name], "") for name in COLUMNS)])
    assert len(rows) == len(CATALOGUE)
    yield from _table(["bug", "group", *letters], rows)
