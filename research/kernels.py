"""Writes docs/kernels.md: what attnspec says of released GPU kernels on a CPU, and what was found in them.
`make kernels` runs it.

Each recipe of `systems.kernels` is inspected and verified by attnspec's command, some recipes at a time. A
separate process runs the script of each finding. The exit status is 1 if the verdict of a recipe has
another result than its text in `RECIPES` says, if a package is missing, or if a finding no longer happens.
"""

import argparse
import ast
import subprocess
import sys
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from properties.verifier.report_file import read
from properties.views.whole import write_whole
from research.findings.library import LibraryFinding, shown
from research.findings.loader import read as read_findings
from systems.kernels import NO_FINDING, RECIPES

__all__ = ["FINDINGS", "Run", "main", "markdown", "ran"]

FINDINGS = read_findings(Path(__file__).parent / "findings" / "kernels", LibraryFinding)
"""All findings about released GPU kernels."""
_ROOT = Path(__file__).parents[1]
_PAGE = _ROOT / "docs/kernels.md"
_COUNTS = {"held": "pass", "violated": "fail", "not applicable": "do not apply", "not run": "not run"}
_HEAD = """\
# Released GPU kernels on a CPU

`make kernels` installs each package in its pinned version (`systems/kernels/requirements.txt`), runs its kernels in the
interpreter of Triton or JAX Pallas, and writes this page. The kernels' source is unchanged. A recipe
(`systems/kernels/`) declares what a kernel takes; this is what to type for one:

    attnspec inspect systems/kernels/liger_rope.py --interpret
    attnspec verify systems/kernels/liger_rope.py --interpret --quick --time-limit 5m

Seconds are rough, since other processes ran beside a recipe. The guide, "A GPU kernel without a GPU", says what an
interpreter cannot show.
"""


@dataclass(frozen=True)
class Run:
    """What attnspec said of a recipe: the report of its verdict, the printed verdict, and the portrait."""

    recipe: str
    report: dict[str, Any]
    verdict: str
    portrait: str

    @property
    def wrong(self) -> str:
        """A sentence that says how the verdict differs from what the recipe says; "" if it does not. A kernel
        that ends its process may leave checks that are not run.
        """
        counts = self.report["counts"]
        if counts["not run"] and "killed the process" not in " ".join(self.verdict.split()):
            return f"{self.recipe} was not run."
        expected = RECIPES[self.recipe]
        is_there = not counts["violated"] if expected == NO_FINDING else expected in " ".join(self.verdict.split())
        return "" if is_there else f"The verdict of {self.recipe} should have {expected!r}, but is: {self.verdict}"


def ran(recipe: str) -> Run:
    """A recipe, verified and inspected."""
    file = f"systems/kernels/{recipe}.py"
    with TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        verdict = _printed("verify", file, "--quick", "--time-limit", "5m", "--jobs", "1", "--json", str(report))
        return Run(recipe, read(report), verdict, _printed("inspect", file))


def _printed(*words: str) -> str:
    """What a command of attnspec prints. A failed check is a result, too."""
    command = [sys.executable, "-W", "ignore", "-m", "attnspec", *words, "--interpret"]
    ended = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)
    if ended.returncode not in (0, 1, 3):
        raise RuntimeError(f"{' '.join(command)} ended with {ended.returncode}: {ended.stderr}")
    return "\n".join(line.rstrip() for line in ended.stdout.splitlines())


def markdown(runs: Sequence[Run], wrong: list[str]) -> str:
    """The page. Adds to a list what differs from the recipes and the findings."""
    wrong += filter(None, (run.wrong for run in runs))
    return "\n".join([_HEAD, *_table(runs), *(line for run in runs for line in _section(run)), *_found(wrong), ""])


def _table(runs: Sequence[Run]) -> Iterator[str]:
    """A line for each recipe: how many checks have which result, calls and seconds."""
    yield f"| recipe | {' | '.join(_COUNTS.values())} | test inputs | slower calls left out | seconds |"
    yield "|---" * (len(_COUNTS) + 4) + "|"
    for run in runs:
        counts, coverage = run.report["counts"], run.report["coverage"]
        numbers = [counts[status] or "" for status in _COUNTS] + [coverage["calls"], coverage["left_out"] or ""]
        link = f"[{run.recipe}](#{run.recipe})"
        yield f"| {link} | {' | '.join(map(str, numbers))} | {run.report['seconds']:.0f} |"


def _section(run: Run) -> Iterator[str]:
    """What the recipe says of itself, its portrait, and the checks that fail with their causes."""
    source = (_ROOT / f"systems/kernels/{run.recipe}.py").read_text("utf-8")
    about = " ".join((ast.get_docstring(ast.parse(source)) or "").split())
    failures, _, _ = run.verdict.partition("\n-v prints")
    yield f"\n## {run.recipe}\n\n{about.partition(')')[0]}).\n"
    yield f"`systems/kernels/{run.recipe}.py`: {run.report['coverage']['line']}\n"
    yield f"```text\n{run.portrait.strip()}\n```"
    if run.report["counts"]["violated"]:
        yield f"\n```text\n{failures.strip()}\n```"


def _found(wrong: list[str]) -> Iterator[str]:
    yield "\n## What was found\n"
    yield "Each script ran in a separate process when this page was written. The scripts run in this repository, in the"
    yield "environment of `make kernels`. On a GPU, leave out the line `kernels.interpret()` and pass tensors on the"
    yield "device. Trackers were searched in November 2026: *none found* is the result of a search, not a proof."
    yield from shown(FINDINGS, wrong)


def main(arguments: Collection[str] | None = None) -> int:
    """Runs recipes and writes the page. Returns 0 if all is as the recipes and the findings say."""
    parser = argparse.ArgumentParser(prog="python -m research.kernels", description=__doc__)
    parser.add_argument("recipes", nargs="*", choices=[*RECIPES, []], metavar="RECIPE", help="all, if none is named")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="recipes at a time (2)")
    parser.add_argument("--output", type=Path, default=_PAGE, help="the page (docs/kernels.md)")
    options = parser.parse_args(None if arguments is None else [*arguments])
    with ThreadPoolExecutor(options.jobs) as pool:
        runs = [*pool.map(ran, options.recipes or RECIPES)]
    wrong: list[str] = []
    write_whole(options.output, markdown(runs, wrong))
    print(*wrong, sep="\n", file=sys.stderr)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
