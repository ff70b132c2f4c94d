"""`python -m research.benchmarks.verdicts`: how long verdicts take, compared with the revision
before they were rebuilt.

One run measures both in alternation. It checks the old revision out of the repository's history
into a temporary folder.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

__all__ = ["main"]

ROOT = Path(__file__).resolve().parents[2]
BEFORE = "830949a"

_LEAKS = """
def leaks(q, k, v, mask=None):  # -10 where -inf should be
    s = q @ k.swapaxes(-1, -2) / np.sqrt(max(1, q.shape[-1]))
    s = s if mask is None else np.where(mask, s, -10.0)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ v
"""
_IN_TIME = """
import time
import numpy as np, oracles, properties
import {numpy} as reference
from {numpy} import scaled_dot_product_attention as right
REFERENCE = getattr(reference, "REFERENCE", None) or reference.OPERATIONS  # its name in older trees
{setup}
begin = time.perf_counter()
for _ in range({times}):
    {body}
print((time.perf_counter() - begin) / {times})
"""
_QKV = "q, k, v = np.random.default_rng(0).standard_normal((3, 16, 16), np.float32)"
_VERIFY = "properties.verify({{'scaled_dot_product_attention': {}}}{})"
_CALL = "oracles.scaled_dot_product_attention(q, k, v{})"


@dataclass(frozen=True)
class Row:
    """A measurement: its name and its goal; and either Python code, which runs `times` times, or
    the arguments of `attnspec verify`. `target` replaces NumPy's implementation, and `chosen` is
    the text of a module with this name. `before` says whether the old revision can run it, and
    `once` whether it is so slow that it runs once.
    """

    name: str
    goal: str
    body: str = ""
    setup: str = ""
    times: int = 1
    command: tuple[str, ...] = ()
    target: str = ""
    chosen: str = ""
    before: bool = True
    once: bool = False

    def seconds(self, tree: Path) -> float:
        """The seconds that it takes in a tree, without imports if it is Python. Raises RuntimeError
        with the error output if it fails.
        """
        numpy = (
            "properties.bugs.reference" if (tree / "properties/bugs/reference.py").exists() else "properties.reference"
        )
        python = ["-c", _IN_TIME.format(numpy=numpy, body=self.body, setup=self.setup, times=self.times)]
        arguments = python if self.body else ["-m", "attnspec", "verify", self.target or numpy]
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "chosen.py").write_text(self.chosen.format(numpy=numpy))
            environment = {"PYTHONPATH": f"{tree}:{folder}", "PATH": "/usr/bin:/bin"}
            begin = time.perf_counter()
            process = subprocess.run(
                [sys.executable, *arguments, *self.command],
                cwd=tree,
                env=environment,
                capture_output=True,
                text=True,
                check=False,
            )
            elapsed = time.perf_counter() - begin
        if process.returncode:
            raise RuntimeError(process.stderr)
        return float(process.stdout.split()[-1]) if self.body else elapsed


_SINCE = (
    *("attention", "attention_vjp", "attention_jvp", "merge_attention", "alibi_slopes", "alibi_bias", "decode"),
    *("batched_decode", "rotary_frequencies", "rotary_tables"),
)
"""Operations that there were not."""
_THERE_WERE = f"""
import {{numpy}} as reference
REFERENCE = getattr(reference, "REFERENCE", None) or reference.OPERATIONS
THERE_WERE = {{{{name: f for name, f in REFERENCE.items() if name not in {_SINCE}}}}}
"""
_NUMPY, _MAIN = ("--jobs", "2"), ("--max-examples", "25", "--seed", "0", "--jobs", "2")
ROWS = (
    Row("correct SDPA of NumPy, 100 examples", "≤ 1/8", _VERIFY.format("right", "")),
    Row("SDPA with a mask that leaks", "≤ 1/10", _VERIFY.format("leaks", ""), _LEAKS),
    Row(
        "operations of NumPy that there were, two processes",
        "≤ 1/6",
        command=_NUMPY,
        target="chosen:THERE_WERE",
        chosen=_THERE_WERE,
    ),
    Row("all operations of NumPy, more than there were, two processes", "≤ 1/6", command=_NUMPY),
    Row("make verify, with more systems, once", "≤ 1/2", command=_MAIN, target="systems:GROUPS", once=True),
    Row("quick: correct SDPA", "≤ 1 s", _VERIFY.format("right", ", quick=True"), before=False),
    Row("quick: all operations of NumPy, with imports", "≤ 6 s", command=(*_NUMPY, "--quick"), before=False),
    Row("certificate at (16, 16, 16), .26 ms when .2 was asked", "≤ 20/26", _CALL.format(""), _QKV, 1000),
    Row(
        "float32 budget at (16, 16, 16), .34 ms when .2 was asked",
        "≤ 20/34",
        _CALL.format(", arithmetic='float32'"),
        _QKV,
        1000,
    ),
)


_ELSEWHERE = (
    "law",
    "quick",
    "reference",
    *(f"reference_{part}" for part in ("attention", "batched_caches", "caches", "frequencies", "positions")),
)
_LATER = {
    "laws": (
        "alibi",
        "caches",
        "edges",
        "features",
        "frequency_bands",
        "frequency_kinds",
        "interleaving",
        "merging",
        "reading",
        "rotations",
        "tables",
        "twins",
    ),
    "bugs": ("batched_caches", "caches", "edges", "features", "frequencies", "rotations", "twins", "wrappers"),
}


def _reached(goal: str, seconds: float, ratio: float) -> str:
    """Whether a goal is reached: of seconds where it says so, else of the ratio."""
    return (
        "yes"
        if (seconds if goal.endswith(" s") else ratio) <= Fraction(goal.removeprefix("≤ ").removesuffix(" s"))
        else "no"
    )


def _lines(folder: str) -> tuple[int, int]:
    """The lines of the folder's hand-written files that the old revision has too; and the lines of
    later families.
    """
    line_counts = {
        file.stem: len(file.read_text().splitlines()) for file in (ROOT / "properties" / folder).glob("*.py")
    }
    later = sum(n for name, n in line_counts.items() if name in _LATER[folder])
    return sum(n for name, n in line_counts.items() if name not in _ELSEWHERE) - later, later


def main(arguments: list[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m research.benchmarks.verdicts", description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--output", type=Path, help="a file instead of standard output")
    options = parser.parse_args(arguments)
    table = Table(
        "",
        f"{BEFORE}, s",
        "now, s",
        "now ÷ before",
        "goal",
        "reached",
        title=f"Verdicts: medians of {options.repeats}, by turns",
    )
    with tempfile.TemporaryDirectory() as folder:
        before = Path(folder) / "before"
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", before, BEFORE], cwd=ROOT, check=True)
        try:
            for row in ROWS:
                trees = (before, ROOT) if row.before else (ROOT,)
                timings = [[row.seconds(tree) for tree in trees] for _ in range(1 if row.once else options.repeats)]
                *old, new = (median(column) for column in zip(*timings, strict=True))
                ratio = median(timing[-1] / timing[0] for timing in timings)
                figures = (f"{old[0]:.3g}", f"{new:.3g}", f"{ratio:.3f}") if old else ("", f"{new:.3g}", "")
                table.add_row(row.name, *figures, row.goal, _reached(row.goal, new, ratio))
                print(row.name, timings, file=sys.stderr, flush=True)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", before], cwd=ROOT, check=True)
    for folder, lines_before, exception in (
        ("laws", "4878", "law.py, and quick.py, which is generated"),
        ("bugs", "4670", "the reference"),
    ):
        now, later = _lines(folder)
        table.add_row(
            f"lines of {folder}/ without {exception}",
            lines_before,
            f"{now} + {later} later",
            "",
            "≤ 2800",
            _reached("≤ 2800 s", now, 0),
        )
    with options.output.open("w") if options.output else sys.stdout as file:
        Console(file=file, width=110).print(table)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
