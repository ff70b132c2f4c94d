"""`python -m properties.benchmarks.verdicts`: how long verdicts take, against a revision of before, both measured by turns in one run.

Prints what `docs/bench-verify.txt` holds. The revision is checked out from the repository's history into a folder of its own.
"""

import argparse
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[2]
BEFORE = "830949a"

_SETUP = """
import time, numpy as np, oracles, properties
import {reference} as reference
def leaks(q, k, v, mask=None):  # -10 instead of -inf
    s = q @ k.swapaxes(-1, -2) / np.sqrt(max(1, q.shape[-1]))
    s = s if mask is None else np.where(mask, s, -10.0)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ v
def once():
    pass
"""
_CALLS = """
q, k, v = np.random.default_rng(0).standard_normal((3, 16, 16))
def call():
    return oracles.scaled_dot_product_attention(q, k, v{arithmetic})
def once():
    for _ in range(300):
        call()
"""
_ONE = "properties.verify({{'scaled_dot_product_attention': {function}}}, max_examples={examples}{options})"


@dataclass(frozen=True)
class Row:
    """A measurement: what it is, the Python that does it, and by how much it should be faster."""

    name: str
    code: str
    goal: str
    unit: float = 1.0
    before: bool = True


def _python(body: str) -> str:
    return _SETUP + f"\nbegin = time.perf_counter()\n{body}\nprint(time.perf_counter() - begin)\n"


_ALL = "import properties.__main__"
ROWS = (
    Row(
        "correct SDPA, 100 examples",
        _python(_ONE.format(function="reference.scaled_dot_product_attention", examples=100, options="")),
        "1/8",
    ),
    Row("SDPA with a mask that leaks", _python(_ONE.format(function="leaks", examples=100, options="")), "1/10"),
    Row("all operations of NumPy, two processes", "", "1/6"),
    Row("certificate at (16, 16, 16), ms", _python(_CALLS.format(arithmetic="") + "once()"), "≤ .2 ms", 1e3 / 300),
    Row("float32 budget at (16, 16, 16), ms", _python(_CALLS.format(arithmetic=", arithmetic='float32'") + "once()"), "≤ .2 ms", 1e3 / 300),
)


def seconds(row: Row, tree: Path, reference: str) -> float:
    """How long a row takes in a tree."""
    if row.code:
        command = [sys.executable, "-P", "-c", row.code.format(reference=reference)]
    else:
        command = [sys.executable, "-m", "properties", "verify", reference, "--jobs", "2", "--json", "-"]
    environment = {"PYTHONPATH": str(tree), "PATH": "/usr/bin:/bin"}
    if row.code:
        done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=True)
        return float(done.stdout.split()[-1]) * row.unit
    import time

    begin = time.perf_counter()
    subprocess.run(command, cwd=tree, env=environment, stdout=subprocess.DEVNULL, check=False)
    return time.perf_counter() - begin


def main(arguments: list[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m properties.benchmarks.verdicts", description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args(arguments)
    table = Table("", f"at {BEFORE}, s", "now, s", "now ÷ before", "goal", title="Verdicts: medians, by turns")
    with tempfile.TemporaryDirectory() as folder:
        before = Path(folder) / "before"
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", before, BEFORE], cwd=ROOT, check=True)
        try:
            for row in ROWS:
                pairs = [
                    (seconds(row, before, "properties.reference"), seconds(row, ROOT, "properties.reference"))
                    for _ in range(options.repeats)
                ]
                old, new = (median(column) for column in zip(*pairs, strict=True))
                ratio = median(n / o for o, n in pairs)
                table.add_row(row.name, f"{old:.3g}", f"{new:.3g}", f"{ratio:.3g}", row.goal)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", before], cwd=ROOT, check=True)
    with options.output.open("w") if options.output else sys.stdout as file:
        Console(file=file, width=120).print(table)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
