"""`python -m research.benchmarks.operations`: how much processor time a verdict on each operation of
the NumPy reference takes, by both plans, compared with an older revision.

One run measures both revisions in alternation, each time in a new process with one BLAS thread. It
checks the old revision out of the repository's history into a temporary folder.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

__all__ = ["main"]

ROOT = Path(__file__).resolve().parents[2]
BEFORE = "cbecffb"
GOALS = {"quick": 1.0, "default": 2.5}
"""Seconds of processor time for each plan."""

OPERATIONS = (
    *("scaled_dot_product_attention", "causal_attention", "attention", "attention_vjp"),
    *("multi_head_attention", "rope"),
)

_PROGRAM = """
import json, sys, time
import properties
from properties.bugs import reference
REFERENCE = getattr(reference, "REFERENCE", None) or reference.OPERATIONS  # its name in older trees
names, seconds = json.loads(sys.argv[1]), {}
properties.verify({"attention_vjp": REFERENCE["attention_vjp"]}, quick=True)  # imports what verdicts import
for name in names:
    for plan in ("quick", "default"):
        begin = time.process_time()
        assert properties.verify({name: REFERENCE[name]}, quick=plan == "quick").ok
        seconds[f"{name} {plan}"] = time.process_time() - begin
print(json.dumps(seconds))
"""


def _seconds(tree: Path) -> dict[str, float]:
    """Return the seconds of processor time of each verdict in a tree. The key is "operation plan"."""
    environment = {"PYTHONPATH": str(tree), "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", _PROGRAM, json.dumps(OPERATIONS)]
    process = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=True)
    seconds: dict[str, float] = json.loads(process.stdout)
    return seconds


def _measured(repeats: int) -> list[tuple[dict[str, float], dict[str, float]]]:
    """Return pairs of measurements, of the old revision and of this one."""
    with tempfile.TemporaryDirectory() as folder:
        before = Path(folder) / "before"
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", before, BEFORE], cwd=ROOT, check=True)
        try:
            return [(_seconds(before), _seconds(ROOT)) for _ in range(repeats)]
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", before], cwd=ROOT, check=True)


def main(arguments: list[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m research.benchmarks.operations", description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--output", type=Path, help="a file instead of standard output")
    options = parser.parse_args(arguments)
    title = f"Seconds of processor time of a verdict: medians of {options.repeats}, in alternation"
    table = Table("operation", "plan", BEFORE, "now", "now ÷ before", "goal", "reached", title=title)
    pairs = _measured(options.repeats)
    for name in OPERATIONS:
        for plan, goal in GOALS.items():
            timings = [(old[f"{name} {plan}"], new[f"{name} {plan}"]) for old, new in pairs]
            before, now = (median(column) for column in zip(*timings, strict=True))
            ratio = median(new / old for old, new in timings)
            reached = "yes" if now <= goal else "no"
            table.add_row(name, plan, f"{before:.2f}", f"{now:.2f}", f"{ratio:.2f}", f"≤ {goal:g}", reached)
    with options.output.open("w") if options.output else sys.stdout as file:
        Console(file=file, width=110).print(table)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
