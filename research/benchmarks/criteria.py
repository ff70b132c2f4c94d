"""`python -m research.benchmarks.criteria`: which small mistakes each criterion sees, and how often
it rejects correct code.

The command computes all figures and prints the page `docs/criteria.md`.
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
import torch

import oracles
from research.benchmarks.faults import FAULTS, Fault, formula
from research.benchmarks.kernels import ARITHMETIC, DTYPES, RESULTS, Array, Problem, draw, kernel, to_numpy, to_torch
from research.benchmarks.lengths import LENGTHS, section
from research.benchmarks.sharpness import budgets

__all__ = ["CRITERIA", "Reference", "correct", "excesses", "main", "reference"]


@dataclass(frozen=True)
class Reference:
    """What the criteria compare with, by result: the exact value in float64, the exact value
    rounded to the dtype, a plain run in the dtype, and the budget.
    """

    dtype: str
    exact: dict[str, Array]
    rounded: dict[str, Array]
    plain: dict[str, Array]
    budget: dict[str, oracles.Enclosure]

    @property
    def vacuous(self) -> bool:
        """Whether the budget of some result is."""
        return any(enclosure.vacuous for enclosure in self.budget.values())


def reference(problem: Problem, dtype: str, arithmetic: str) -> Reference:
    """The references of a problem in a dtype, with the budget of a preset."""
    enclosures = budgets(problem, arithmetic)
    exact = {name: enclosure.mid for name, enclosure in enclosures.items()}
    return Reference(
        dtype,
        exact,
        {name: to_numpy(to_torch(x, dtype)) for name, x in exact.items()},
        _plain(problem, dtype),
        enclosures,
    )


def _plain(problem: Problem, dtype: str) -> dict[str, Array]:
    """Attention as PyTorch runs it operator by operator in the dtype, every intermediate result
    rounded to it, and its gradients.
    """
    q, k, v = (to_torch(x, dtype).requires_grad_() for x in (problem.q, problem.k, problem.v))
    scores = q @ (k * problem.q.shape[1] ** -0.5).T
    if problem.is_causal:
        scores = scores.masked_fill(~torch.ones(scores.shape, dtype=torch.bool).tril(), -torch.inf)
    out = torch.softmax(scores, dim=1) @ v
    grads = torch.autograd.grad(out, (q, k, v), to_torch(problem.g, dtype))
    return {name: to_numpy(x) for name, x in zip(RESULTS, (out, *grads), strict=True)}


# -- Criteria: the largest error in units of what is allowed; more than 1 is a rejection -----------

ASSERT_CLOSE = {"float32": (1.3e-6, 1e-5), "bfloat16": (1.6e-2, 1e-5), "float16": (1e-3, 1e-5)}
"""(rtol, atol) of `torch.testing.assert_close`, as documented."""


def _budget(results: Array, name: str, expected_results: Reference) -> float:
    return float(expected_results.budget[name].excess(results).max())


def _assert_close(results: Array, name: str, expected_results: Reference) -> float:
    rtol, atol = ASSERT_CLOSE[expected_results.dtype]
    expected = expected_results.rounded[name]
    return float((np.abs(results - expected) / (atol + rtol * np.abs(expected))).max())


def _twice_pytorch(results: Array, name: str, expected_results: Reference) -> float:
    expected = expected_results.rounded[name]
    moved = to_torch(expected, expected_results.dtype) + 0.3 - 0.3
    allowed = 2 * np.abs(expected_results.plain[name] - expected).max() + 2 * np.abs(to_numpy(moved) - expected).max()
    return float(np.abs(results - expected).max() / allowed)


def _fixed(results: Array, name: str, expected_results: Reference) -> float:
    return float(
        (np.abs(results - expected_results.exact[name]) / (1e-3 + 1e-3 * np.abs(expected_results.exact[name]))).max()
    )


CRITERIA: dict[str, Callable[[Array, str, Reference], float]] = {
    "budget": _budget,
    "assert_close": _assert_close,
    "twice PyTorch's error": _twice_pytorch,
    "1e-3": _fixed,
}
"""Name, and (found, name of the result, reference) -> excess."""


def excesses(results: dict[str, Array], expected_results: Reference) -> dict[str, tuple[float, str]]:
    """For each criterion the largest excess over the results, and the result that has it."""
    return {
        name: max((criterion(results[result], result, expected_results), result) for result in RESULTS)
        for name, criterion in CRITERIA.items()
    }


# -- What is measured ------------------------------------------------------------------------------


def planted(dtype: str, n: int, d: int, seeds: int) -> Iterator[tuple[Fault, dict[str, list[tuple[float, str]]]]]:
    """Each fault that can be made in a dtype, with its excesses by criterion, one for each seed."""
    problems = [draw(dtype, (n, n, d), seed) for seed in range(seeds)]
    references = [reference(problem, dtype, ARITHMETIC[dtype, "math"]) for problem in problems]
    for fault in FAULTS:
        if dtype in fault.dtypes:
            results = [
                excesses(fault.plant(problem, dtype), expected_results)
                for problem, expected_results in zip(problems, references, strict=True)
            ]
            yield fault, {name: [excess_of[name] for excess_of in results] for name in CRITERIA}


KERNELS: dict[str, Callable[[Problem, str], dict[str, Array]]] = {
    "math": lambda p, dtype: kernel(p, dtype, "math"),
    "flash": lambda p, dtype: kernel(p, dtype, "flash"),
    "formula": formula,  # its arithmetic is that of the math kernel
}
"""Correct kernels: PyTorch's two, and the formula in float32 with weights and dS stored in the dtype."""

DOMAINS: dict[str, dict[str, float]] = {
    "standard normal": {},
    "queries times 8": {"logits": 8.0},
    "keys and values share an offset of 8": {"offset": 8.0},
}


def correct(
    dtype: str, n: int, d: int, seeds: int, **domain: float
) -> Iterator[tuple[dict[str, tuple[float, str]], bool]]:
    """For each correct kernel and seed, causal and not: its excesses, and whether the budget is vacuous."""
    for seed in range(seeds):
        for is_causal in (False, True):
            problem = draw(dtype, (n, n, d), seed, is_causal=is_causal, **domain)
            for name, run in KERNELS.items():
                expected_results = reference(problem, dtype, ARITHMETIC.get((dtype, name), dtype))
                yield excesses(run(problem, dtype), expected_results), expected_results.vacuous


# -- The page --------------------------------------------------------------------------------------

_INTRODUCTION = """\
# What each criterion sees

A test of an attention kernel compares it with a reference and allows for rounding. The allowance decides which
mistakes the test sees. Here the same small mistakes are planted in PyTorch's math kernel, or in the written-out
formula, at ({n}, {n}, {d}) with standard normal inputs. Four criteria judge them, each applied to the output and
to the three gradients:

- **budget**: the error limit of `oracles`. Elementwise, derived from the formats and sizes, no tolerance.
- **assert_close**: `torch.testing.assert_close` with the defaults for the dtype (rtol 1.3e-6, 1.6e-2, 1e-3 in
  float32, bfloat16, float16, atol 1e-5), against the exact result rounded to the dtype [1].
- **twice PyTorch's error**: the largest error against the reference is at most twice the largest error of a plain
  PyTorch run in the same dtype, plus twice what adding and subtracting 0.3 does to the reference. This is how
  flash-attention's tests compare [2].
- **1e-3**: rtol = atol = 1e-3, against the exact result.

A figure is the largest error in units of what the criterion allows (median of the draws: {seeds}), with the result
that shows it. **Bold**: every draw sees the mistake; otherwise the figure says how many draws do. A criterion that
rejects correct code of the dtype, below, sees nothing here: it would have rejected without the mistake too.
"""

_ALARMS = """\
## False alarms

The same criteria judge correct code: PyTorch's math and flash kernels, and the formula in float32 with weights and
dS stored in the dtype; causal and not; at ({n}, {n}, {d}); each with the budget of its own arithmetic. A cell says
how many of the runs were rejected, and the largest excess. `vacuous` counts the runs in which the budget itself
says that zeros or the mean would pass, so that it decides nothing. The other criteria cannot say this.
"""

_SOURCES = """\
## Sources

1. PyTorch documentation, `torch.testing`, the table of default tolerances:
   <https://docs.pytorch.org/docs/stable/testing.html>
2. flash-attention's tests. This one allows twice the error of a PyTorch run in the same dtype:
   <https://github.com/Dao-AILab/flash-attention/blob/main/tests/test_flash_attn.py>; this one adds the term with 0.3:
   <https://github.com/Dao-AILab/flash-attention/blob/main/tests/cute/test_flash_attn.py>. Multiples differ between
   their tests; 2 is the smallest. Their kernels are 16-bit only; here the same rule judges float32.
"""


def _seen(results: list[tuple[float, str]]) -> str:
    value, result = median(x for x, _ in results), max(results)[1]
    seen = sum(x > 1 for x, _ in results)
    if seen == len(results):
        return f"**{value:.3g}** {result}"
    return f"{value:.2g}" + (f" ({seen} of {len(results)})" if seen else "")


def _table(heading: str, columns: list[str], rows: list[list[str]]) -> str:
    lines = [[heading, *columns], ["---"] * (len(columns) + 1), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def page(n: int, d: int, seeds: int, lengths: tuple[int, ...] = LENGTHS) -> tuple[str, int]:
    """The whole page, in Markdown, and how many correct runs the budget rejects."""
    names = list(CRITERIA)
    sections = [_INTRODUCTION.format(n=n, d=d, seeds=seeds)]
    for dtype in DTYPES:
        rows = [
            [fault.name, *(_seen(results[name]) for name in names)] for fault, results in planted(dtype, n, d, seeds)
        ]
        sections.append(f"## {dtype}\n\n{_table('planted', names, rows)}\n")
    long_section, accused = section(tuple(DTYPES), lengths, d, min(seeds, 3))
    sections += [long_section, _ALARMS.format(n=n, d=d)]
    rows = []
    for dtype in DTYPES:
        for domain, settings in DOMAINS.items():
            runs = list(correct(dtype, n, d, seeds, **settings))
            accused += sum(results["budget"][0] > 1 for results, _ in runs)
            cells = []
            for name in names:
                values = [results[name][0] for results, _ in runs]
                cells.append(f"{sum(x > 1 for x in values)} of {len(values)}, {max(values):.2g}")
            rows.append([f"{dtype}, {domain}", *cells, str(sum(vacuous for _, vacuous in runs))])
    sections.extend((_table("correct code", [*names, "vacuous"], rows) + "\n", _SOURCES))
    return "\n".join(sections), accused


def main(arguments: list[str] | None = None) -> int:
    """Print the page, or write it to a file. Returns 0 if the budget accuses no correct kernel, and 1 otherwise."""
    parser = argparse.ArgumentParser(prog="python -m research.benchmarks.criteria", description=__doc__)
    parser.add_argument("--size", type=int, default=512, help="queries, and keys (512)")
    parser.add_argument("--width", type=int, default=64, help="columns (64)")
    parser.add_argument("--seeds", type=int, default=5, help="draws (5)")
    parser.add_argument(
        "--lengths", type=int, nargs="+", default=LENGTHS, metavar="N", help="keys of the long rows (128 to 131072)"
    )
    parser.add_argument("--output", type=Path, help="a file for the page, instead of the terminal")
    options = parser.parse_args(arguments)
    text, accused = page(options.size, options.width, options.seeds, tuple(options.lengths))
    if options.output:
        options.output.write_text(text, encoding="utf-8")
    else:
        print(text)
    return 1 if accused else 0


if __name__ == "__main__":
    sys.exit(main())
