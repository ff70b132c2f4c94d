"""`python -m research.benchmarks.sharpness`: how much of its budget do PyTorch's own kernels use?

Error ÷ budget, elementwise, of the math and flash kernels over standard sizes. A budget is sound
for them if it is at most 1 everywhere, and sharp if its maximum is not far below: a wrong value
hides in what correct code never uses.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.table import Table

import oracles
from research.benchmarks.kernels import ARITHMETIC, BACKENDS, RESULTS, Problem, draw, kernel
from research.benchmarks.report import console, save

__all__ = ["FLOORS", "GOALS", "LINES", "SIZES", "excess", "lines", "main", "used"]

SIZES = (
    (64, 64, 32, False),
    (256, 256, 64, False),
    (256, 256, 64, True),
    (512, 512, 64, False),
    (512, 512, 64, True),
    (1, 512, 64, False),
)
"""(n_q, n_k, d, causal)."""

FLOORS = {
    "float32": {"out": 0.005, "dq": 0.001, "dk": 0.001, "dv": 0.005},
    "bfloat16": {"out": 0.3, "dq": 0.05, "dk": 0.05, "dv": 0.3},
    "float16": {"out": 0.3, "dq": 0.05, "dk": 0.05, "dv": 0.3},
}
"""What the largest error ÷ budget of some kernel at some size should reach, by dtype and result."""


LINES = ("any order", "stated structure", "statistical")
"""The budgets of float32: whatever the order, for the structure that a kernel's preset states, and
the line below, which is no proof.
"""
STATED = {"math": oracles.preset("float32-materialized"), "flash": oracles.preset("float32-flash")}
GOALS = {
    (512, 512, 64): {"any order": (0.004, 0.001), "stated structure": (0.007, 0.0015), "statistical": (0.03, 0.03)},
    (1, 8192, 128): {"any order": (0.0002, 0.0003), "stated structure": (0.0025, 0.001), "statistical": (0.006, 0.007)},
}
"""(n_q, n_k, d): what the larger error ÷ budget of the two kernels should reach on each line, in
out and in every gradient.
"""


def _line(name: str, backend: str) -> oracles.Arithmetic:
    """The arithmetic of a line."""
    if name == "any order":
        return oracles.FLOAT32
    return STATED[backend] if name == "stated structure" else replace(STATED[backend], likely=8.4)


def lines(size: tuple[int, int, int], seeds: int) -> dict[tuple[str, str], dict[str, float]]:
    """The largest error ÷ budget over seeds, for each line and backend, by result."""
    excesses = {(line, backend): dict.fromkeys(RESULTS, 0.0) for line in LINES for backend in BACKENDS}
    for seed in range(seeds):
        problem = draw("float32", size, seed)
        for backend in BACKENDS:
            results = kernel(problem, "float32", backend)
            for line in LINES:
                for name, budget in budgets(problem, _line(line, backend)).items():
                    worst = excesses[line, backend]
                    worst[name] = max(worst[name], float(budget.excess(results[name]).max()))
    return excesses


def budgets(problem: Problem, arithmetic: oracles.Arithmetic | str) -> dict[str, oracles.Enclosure]:
    """The budget of each result of a problem under an arithmetic."""
    out = oracles.scaled_dot_product_attention(
        problem.q, problem.k, problem.v, is_causal=problem.is_causal, arithmetic=arithmetic
    )
    gradients = oracles.scaled_dot_product_attention_vjp(
        problem.q, problem.k, problem.v, None, problem.g, is_causal=problem.is_causal, arithmetic=arithmetic
    )
    return dict(zip(RESULTS, (out, *gradients), strict=True))


def excess(problem: Problem, dtype: str, backend: str) -> dict[str, float]:
    """The largest error ÷ budget of each result of a kernel on a problem."""
    excesses = kernel(problem, dtype, backend)
    return {
        name: float(budget.excess(excesses[name]).max())
        for name, budget in budgets(problem, ARITHMETIC[dtype, backend]).items()
    }


def used(sizes: Sequence[tuple[int, int, int, bool]], seeds: int) -> dict[tuple[str, str], dict[str, float]]:
    """The largest error ÷ budget over sizes and seeds, for each dtype and backend, by result."""
    excesses = {(dtype, backend): dict.fromkeys(RESULTS, 0.0) for dtype in FLOORS for backend in BACKENDS}
    for (dtype, backend), worst in excesses.items():
        for n_q, n_k, d, is_causal in sizes:
            for seed in range(seeds):
                for name, value in excess(
                    draw(dtype, (n_q, n_k, d), seed, is_causal=is_causal), dtype, backend
                ).items():
                    worst[name] = max(worst[name], value)
    return excesses


def main(arguments: list[str] | None = None) -> int:
    """Measures and prints. Returns 0 if every figure is at most 1 and the figures of the first
    table are at least their floors, otherwise 1.
    """
    parser = argparse.ArgumentParser(prog="python -m research.benchmarks.sharpness", description=__doc__)
    parser.add_argument("--output", type=Path, help="a text file for the table")
    parser.add_argument("--seeds", type=int, default=5, help="draws of each size (5)")
    parser.add_argument("--smallest", action="store_true", help="the smallest size only")
    options = parser.parse_args(arguments)
    excesses = used(SIZES[:1] if options.smallest else SIZES, options.seeds)

    table = Table(title="Largest error ÷ budget of PyTorch's kernels", title_justify="left", title_style="bold")
    for heading in ("dtype", "kernel", *RESULTS):
        table.add_column(heading, justify="left" if heading in ("dtype", "kernel") else "right")
    missed = short = 0
    for dtype, floors in FLOORS.items():
        for backend in BACKENDS:
            table.add_row(dtype, backend, *(f"{value:.3g}" for value in excesses[dtype, backend].values()))
        verdicts = []
        for name, floor in floors.items():
            most = max(excesses[dtype, backend][name] for backend in BACKENDS)
            met = floor <= most <= 1
            missed += not met
            verdicts.append(f"{'met' if met else 'MISSED'} ({floor} to 1)")
        table.add_row("", "", *verdicts, end_section=True)
    more = Table(title="The same in float32, by what the budget is told", title_justify="left", title_style="bold")
    for heading in ("size", "budget", "kernel", *RESULTS):
        more.add_column(heading, justify="right" if heading in RESULTS else "left")
    for size, goals in {} if options.smallest else GOALS.items():
        measured = lines(size, options.seeds)
        for line, (of_out, of_gradients) in goals.items():
            for backend in BACKENDS:
                more.add_row(str(size), line, backend, *(f"{value:.3g}" for value in measured[line, backend].values()))
            larger = {name: max(measured[line, backend][name] for backend in BACKENDS) for name in RESULTS}
            aims = {name: of_out if name == "out" else of_gradients for name in RESULTS}
            said = [
                "beyond it" if larger[name] > 1 else "reached" if larger[name] >= aim else "not reached"
                for name, aim in aims.items()
            ]
            missed, short = missed + said.count("beyond it"), short + said.count("not reached")
            more.add_row(
                "",
                "",
                "goal",
                *(f"{aim:g}: {word}" for aim, word in zip(aims.values(), said, strict=True)),
                end_section=True,
            )
    target = console()
    target.print(table)
    if more.rows:
        target.print(more)
    verdict = f"{missed} missed" if missed else "Of the first table all are met, and nothing is beyond its budget"
    target.print(
        f"{verdict}; of the goals of the second {short} are not reached.", style="bold red" if missed else "bold green"
    )
    save(target, options.output)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
