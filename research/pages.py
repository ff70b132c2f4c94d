"""Makes the pages of measurements: `python -m research.pages NAME` makes one, `--all` all pages of
older revisions.

    python -m research.pages worst --minutes 10 --only flash

What follows a name goes to the command of that page. docs/pages.toml has the commands, and the
question and the answer of each page. A page that its command has written gets the head of
`research.stamp`. Then docs/results.md is written, from that table and the heads;
`python -m research.pages --table` writes it alone.
"""

import argparse
import shlex
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from os.path import relpath
from pathlib import Path

from research.stamp import ROOT, Stamp, machine, read, revision, stamped

__all__ = ["PAGES", "Page", "main", "make", "results"]

RESULTS = ROOT / "docs/results.md"


@dataclass(frozen=True)
class Page:
    """A row of docs/pages.toml: the name of the make target, the file or a pattern of files, the
    command that writes it, the title of the page, the question that it answers, and the answer in a
    sentence."""

    name: str
    file: str
    command: str
    title: str
    question: str
    answer: str

    @property
    def written(self) -> list[Path]:
        """The files that are there."""
        return sorted(ROOT.glob(self.file))

    def made(self, now: str) -> bool:
        """Whether the command has succeeded on this revision."""
        heads = [read(file.read_text("utf-8")) for file in self.written]
        return bool(heads) and all(head is not None and head.revision == now and not head.status for head in heads)


PAGES = tuple(Page(**row) for row in tomllib.loads((ROOT / "docs/pages.toml").read_text("utf-8"))["page"])
"""All pages of measurements, in the order in which they are made."""


def make(page: Page, options: Sequence[str] = ()) -> bool:
    """Run the command of a page and write the head of what it has written; returns whether it has
    succeeded and written the page.
    """
    command = [sys.executable if word == "python" else word for word in shlex.split(page.command)]
    now, began, start = revision(), time.time(), time.monotonic()
    status = subprocess.run([*command, *options], cwd=ROOT, check=False).returncode
    minutes = f"{(time.monotonic() - start) / 60:.2g}"
    files = [file for file in page.written if file.stat().st_mtime >= began]
    by = shlex.join(["python", "-m", "research.pages", page.name, *options])
    for file in files:
        file.write_text(stamped(file.read_text("utf-8"), Stamp(by, now, machine(), minutes, status)), "utf-8")
    RESULTS.write_text(results(), "utf-8")
    return bool(files) and not status


def results(link: Callable[[Path], str] = lambda file: relpath(file, RESULTS.parent)) -> str:
    """docs/results.md: a row for each page, with links as a function gives them."""
    lines = [
        "# Results",
        "",
        "Each row is a page of measurements. The head of a page states its command, revision, machine and minutes. "
        "`make NAME` makes one",
        "page again, `make release-pages` all pages of older revisions.",
        "",
        "| page | question | answer | revision | command | minutes |",
        "|---|---|---|---|---|---|",
        *(row for page in PAGES for row in _rows(page, link)),
    ]
    return "\n".join([*lines, ""])


def _rows(page: Page, link: Callable[[Path], str]) -> Iterator[str]:
    if not page.written:
        yield f"| {page.title} | {page.question} | {page.answer} | | `make {page.name}` | |"
    for file in page.written:
        head = read(file.read_text("utf-8"))
        revision, minutes = (head.revision, head.minutes) if head else ("", "")
        answered = f"[{page.title}]({link(file)}) | {page.question} | {page.answer}"
        yield f"| {answered} | {revision} | `make {page.name}` | {minutes} |"


def main(arguments: Sequence[str] | None = None) -> int:
    """Make a page, or all pages of older revisions; returns 1 where a command failed, and 2 where
    files are not committed.
    """
    parser = argparse.ArgumentParser(prog="python -m research.pages", description=__doc__.partition("\n")[0])
    parser.add_argument("name", nargs="?", choices=[page.name for page in PAGES], help="the page")
    parser.add_argument("options", nargs=argparse.REMAINDER, help="options of the command of that page")
    parser.add_argument("--all", action="store_true", help="make all pages of older revisions")
    parser.add_argument(
        "--table", action="store_true", help="write docs/results.md alone, after a change to docs/pages.toml"
    )
    chosen = parser.parse_args(arguments)
    if chosen.table:
        RESULTS.write_text(results(), "utf-8")
        return 0
    if bool(chosen.name) == chosen.all:
        parser.error("Name a page, or say --all.")
    now = revision()
    if chosen.all and now.endswith("-dirty"):
        print(
            f"Files differ from revision {now.removesuffix('-dirty')}: commit them, so that the pages can state it.",
            file=sys.stderr,
        )
        return 2
    pages = [page for page in PAGES if (not page.made(now) if chosen.all else page.name == chosen.name)]
    failed = [page.name for page in pages if not make(page, chosen.options)]
    made = [page.name for page in pages if page.name not in failed]
    print(f"Made: {', '.join(made)}. Do their answers in docs/pages.toml still hold?" if made else "Made: nothing.")
    if failed:
        print(f"Failed: {', '.join(failed)}. Run the command again: it makes these pages alone.", file=sys.stderr)
    return int(bool(failed))


if __name__ == "__main__":
    raise SystemExit(main())
