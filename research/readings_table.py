"""What the readings of the instruments see of the known bugs: `make readings` writes docs/readings.md.

The laws of `properties.laws.readings` are checked on every known bug, in the operation in which it
was seen, at their operating points and nothing else: no random input is compared with the oracle,
and no known bug is tried as a cause. A bug is seen if one of these laws fails. It is described if
the law's sentence is more than the number of wrong entries. The page prints each sentence beside
what the code does wrong, so that a reader can judge whether the sentence is true.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from properties.bugs import CATALOGUE, GROUPS
from properties.bugs.mutants import Mutant
from properties.contract.operations import OPERATIONS
from properties.contract.results import BrokenError
from properties.contract.subject import Subject
from properties.contract.support import OutsideError
from properties.laws import FAMILIES
from properties.strategies.cases import Cases, UnsupportedError
from properties.strategies.domains import DOMAINS
from properties.strategies.plain_calls import call_in_words
from properties.views.whole import write_whole

__all__ = ["TOPICS", "Row", "markdown", "row_of"]

_PAGE = Path(__file__).parents[1] / "docs/readings.md"

TOPICS: Mapping[str, tuple[str, ...]] = {
    "attention": ("scores", "softmax", "tiles", "multi_head", "features"),
    "gradients": ("gradients", "tangents"),
    "rotations": ("positions", "angles", "rotary", "rotations"),
    "masks": ("masking",),
    "caches": ("caches",),
}
"""The modules of known bugs on each topic."""


@dataclass(frozen=True)
class Row:
    """A known bug, the sentence of the first law that fails, and the call of its case; "" if all
    pass.
    """

    topic: str
    bug: str
    operation: str
    sentence: str
    call: str

    @property
    def is_described(self) -> bool:
        """Whether the sentence is more than a number of wrong entries."""
        return bool(self.sentence) and not self.sentence.endswith(" are wrong.")


def row_of(topic: str, bug: str) -> Row:
    """Return what the readings see of a bug."""
    sentence, call = next(_sentences(bug), ("", ""))
    return Row(topic, bug, CATALOGUE[bug].operation, sentence, call)


def _sentences(bug: str) -> Iterator[tuple[str, str]]:
    """The sentences of the laws that fail, in the order of the operating points, each with the call of
    its case.
    """
    mutant = Mutant(CATALOGUE[bug], CATALOGUE[bug].operation)
    implementation, operation = mutant.implementation(), OPERATIONS[mutant.operation]
    for law in FAMILIES["readings"]:
        if law.operation != mutant.operation or law.not_applicable(implementation):
            continue
        for domain in law.domains:
            try:
                cases = Cases(operation, DOMAINS[law.operation][domain], implementation)
            except UnsupportedError:
                continue
            for arguments in cases.fixed:
                try:
                    law.hold(Subject(implementation, law.operation), law.case(arguments, 0))
                except BrokenError as broken:
                    yield str(broken), call_in_words(operation, arguments)
                except OutsideError:
                    continue


def markdown(rows: Sequence[Row]) -> str:
    """The page."""
    lines = [
        "# What the readings see",
        "",
        "Each known bug is measured at the operating points, in the operation in which it was seen. No random input is",
        "compared with the oracle, and no known bug is tried as a cause.",
        "",
        "| topic | bugs | seen | described |",
        "|---|---:|---:|---:|",
        *(_counted(topic, [row for row in rows if row.topic == topic]) for topic in TOPICS),
        _counted("all", rows),
    ]
    for topic in TOPICS:
        lines += [
            "",
            f"## {topic.capitalize()}",
            "",
            "| bug | what the code does | what the readings say | of calls like |",
            "|---|---|---|---|",
        ]
        lines += [
            f"| `{row.bug}` | {CATALOGUE[row.bug].mechanism} | {_cell(row.sentence)} | {_cell(row.call)} |"
            for row in rows
            if row.topic == topic
        ]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    """The text of a cell: "—" if there is none."""
    return text.replace("|", "∣") or "—"


def _counted(name: str, rows: Sequence[Row]) -> str:
    """A line of the table."""
    seen, described = sum(bool(row.sentence) for row in rows), sum(row.is_described for row in rows)
    shares = " | ".join(f"{number} ({number / len(rows):.0%})" for number in (seen, described))
    return f"| {name} | {len(rows)} | {shares} |"


def main() -> None:
    """Write the page."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--jobs", type=int, default=2, help="number of processes")
    jobs = options.parse_args().jobs
    planted = [(topic, bug.id) for topic, modules in TOPICS.items() for module in modules for bug in GROUPS[module]]
    with ProcessPoolExecutor(jobs) as pool:
        rows = list(pool.map(row_of, *zip(*planted, strict=True)))
    write_whole(_PAGE, markdown(rows))


if __name__ == "__main__":
    main()
