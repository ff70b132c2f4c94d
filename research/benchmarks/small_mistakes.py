"""`python -m research.benchmarks.small_mistakes`: which small mistakes of attention the error limit,
the statistical line, exact probes and the matched filters see, in rows of 128 to 131072 keys.

The limit, the line and the filters judge standard normal inputs, the probes have their own. The mistakes
are planted in the formula of attention in float32, whose output is stored in the format. The status is
1 if a correct kernel is refused, or nothing sees a mistake.
"""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch

import oracles
from oracles.formats import Arithmetic
from properties.contract.caller import LIKELY
from properties.inspection.exact_probes import Sizes, pair_probe, turns
from research.benchmarks.kernels import ARITHMETIC, BACKENDS, DTYPES, Array, Problem, draw, kernel, to_numpy, to_torch
from research.benchmarks.matched_filters import matched_filters

__all__ = ["MISTAKES", "main"]

LENGTHS = (128, 1024, 4096, 16384, 131072)
_QUERIES, _WIDTH = 16, 128
_PROBE_ROWS = 64
_TILE = 64


@dataclass(frozen=True)
class Mistake:
    """A mistake: a change of the scale's factor, of the unnormalised weights, or of the output."""

    name: str
    factor: float = 1.0
    weights: Callable[[torch.Tensor], torch.Tensor] = lambda w: w
    output: float = 1.0


def _last(factor: float, number: int) -> Callable[[torch.Tensor], torch.Tensor]:
    def changed(w: torch.Tensor) -> torch.Tensor:
        w[:, -number:] *= factor
        return w

    return changed


def _tile(factor: float) -> Callable[[torch.Tensor], torch.Tensor]:
    """A change of the weights of one tile, the one after a third of the keys."""

    def changed(w: torch.Tensor) -> torch.Tensor:
        start = w.shape[1] // 3 // _TILE * _TILE
        w[:, start : start + _TILE] *= factor
        return w

    return changed


def _without_the_strongest(w: torch.Tensor) -> torch.Tensor:
    w[torch.arange(len(w)), w.argmax(1)] = 0.0
    return w


MISTAKES = (
    Mistake("the last 16 keys dropped", weights=_last(0.0, 16)),
    Mistake("each row's strongest key dropped", weights=_without_the_strongest),
    Mistake("the last key counted twice", weights=_last(2.0, 1)),
    Mistake(f"one tile of {_TILE} keys dropped", weights=_tile(0.0)),
    Mistake(f"the weights of one tile of {_TILE} keys off by 1 %", weights=_tile(1.01)),
    Mistake("1/√(d + 1) in place of 1/√d", factor=(_WIDTH / (_WIDTH + 1)) ** 0.5),
    Mistake("scale off by 1 %", factor=1.01),
    Mistake("scale off by 1e-4", factor=1.0001),
    Mistake("sum of the weights off by 1e-3", output=1 / 1.001),
    Mistake("output off by 5e-4", output=1.0005),
    Mistake("sum of the weights off by 2e-4", output=1 / 1.0002),
)


def planted(problem: Problem, dtype: str, mistake: Mistake) -> Array:
    """The output of attention with a mistake, in float32, stored in the dtype."""
    q, k, v = (to_torch(x, "float32") for x in (problem.q, problem.k, problem.v))
    s = q @ k.T * (mistake.factor * problem.q.shape[1] ** -0.5)
    w = mistake.weights(torch.exp(s - s.max(dim=1, keepdim=True).values))
    out = w @ v / w.sum(dim=1, keepdim=True) * mistake.output
    return np.asarray(to_numpy(out.to(DTYPES[dtype])))


Kernel = Callable[[Problem], Array]
Cell = tuple[list[str], list[bool]]
"""The text of each criterion, and whether it sees something."""
Row = Sequence[Cell]
"""The cells of a kernel, one for each number of keys."""


def cells(dtype: str, n_k: int, seed: int, arithmetic: str, kernels: Sequence[Kernel]) -> list[Cell]:
    """What four criteria say about the output of each kernel at a number of keys."""
    a, p = oracles.preset(arithmetic), draw(dtype, (_QUERIES, n_k, _WIDTH), seed)
    limit, line = (
        oracles.scaled_dot_product_attention(p.q, p.k, p.v, arithmetic=each) for each in (a, replace(a, likely=LIKELY))
    )

    def cell(out: Array, off: tuple[int, int]) -> Cell:
        best = max(matched_filters(p.q, p.k, p.v, out, a), key=lambda slope: slope.evidence)
        of_limit, of_line = float(limit.excess(out).max()), float(line.excess(out).max())
        texts = [f"{of_limit:.2g}", f"{of_line:.2g}", "{} of {} off".format(*off) if off[0] else ""]
        texts.append(f"{best.name}: {best.slope:.2g} ± {best.error:.1g}" if best.evidence else "")
        return texts, [of_limit > 1, of_line > 1, off[0] > 0, best.suspicious]

    return [cell(run(p), off) for run, off in zip(kernels, _off(p, a, kernels), strict=True)]


def _sizes(n_k: int) -> Sizes:
    return Sizes(_PROBE_ROWS, n_k, _WIDTH, _WIDTH, _WIDTH**-0.5)


def _off(p: Problem, a: Arithmetic, kernels: Sequence[Kernel]) -> Sequence[tuple[int, int]]:
    """How many outputs of each kernel no correct kernel may store on the probes, and how many outputs
    there are.
    """
    sizes = _sizes(p.k.shape[0])
    found = np.zeros((len(kernels), 2), int)
    for turn in range(turns(sizes)):
        if (probe := pair_probe(sizes, a, turn)) is None:
            continue
        q, k, v, _, _ = probe.problem
        for place, run in enumerate(kernels):
            excluded = probe.possible.excludes(run(replace(p, q=q, k=k, v=v, g=v[: len(q)])))
            found[place] += excluded.sum(), excluded.size
    return [(int(off), int(number)) for off, number in found]


def _row(name: str, columns: Row) -> str:
    parts = [
        " · ".join(f"**{text}**" if seen else text or "–" for text, seen in zip(texts, saw, strict=True))
        for texts, saw in columns
    ]
    return f"| {' | '.join([name, *parts])} |"


def _correct(problem: Problem, dtype: str, backend: str) -> Array:
    """The output of a kernel of PyTorch."""
    return np.asarray(kernel(problem, dtype, backend)["out"])


def _rows(dtype: str, lengths: Sequence[int], seed: int, own: str, kernels: Mapping[str, Kernel]) -> dict[str, Row]:
    """The cells of each kernel, for each number of keys, by the limits of an arithmetic."""
    columns = [cells(dtype, n_k, seed, own, [*kernels.values()]) for n_k in lengths]
    return dict(zip(kernels, zip(*columns, strict=True), strict=True))


def page(dtypes: Sequence[str], lengths: Sequence[int], seed: int) -> tuple[str, int]:
    """The tables, in Markdown, and the number of cells that are wrong: a correct kernel that is
    refused, or a mistake that nothing sees.
    """
    longest = max(lengths)
    sizes = {"queries": _QUERIES, "width": _WIDTH, "rows": _PROBE_ROWS, "longest": longest}
    lines, wrong = [_INTRODUCTION.format(line=LIKELY, calls=turns(_sizes(longest)), **sizes)], 0
    for dtype in dtypes:
        correct = dict[str, Row]()
        for backend in BACKENDS:
            of_torch = {f"torch {backend}, correct": partial(_correct, dtype=dtype, backend=backend)}
            correct |= _rows(dtype, lengths, seed, ARITHMETIC[dtype, backend], of_torch)
        mistaken = {each.name: partial(planted, dtype=dtype, mistake=each) for each in MISTAKES}
        wrong_rows = _rows(dtype, lengths, seed, dtype, mistaken)
        wrong += sum(saw[0] or saw[2] for row in correct.values() for _, saw in row)
        wrong += sum(not any(saw) for row in wrong_rows.values() for _, saw in row)
        lines += ["", f"| {dtype}, keys: | {' | '.join(map(str, lengths))} |", "| --- " * (len(lengths) + 1) + "|"]
        lines += [_row(name, row) for name, row in (correct | wrong_rows).items()]
    lines += ["", f"Cells in which a correct kernel is refused, or nothing sees a mistake: {wrong}."]
    return "\n".join(lines), wrong


_INTRODUCTION = """\
# Small mistakes in long rows

{queries} queries of width {width}; the presets of the formats, which allow any order of sums, and for PyTorch's flash
kernel its own. A cell has four criteria:

1. the error limit, on standard normal inputs: the largest error ÷ limit
2. the statistical line (λ = {line:g}), on the same inputs: the largest error ÷ line
3. the exact probes, on their own inputs, of {rows} queries in as many calls as a pair in each tile of 64 keys needs
   ({calls} at {longest} keys): how many outputs no correct kernel may store
4. the matched filters, on the inputs of 1: the direction with the most evidence, its slope ± its standard error

**Bold**: the criterion sees the mistake. The limit and the probe are proofs; the line and the filters are
statistical, and refuse nothing by themselves.
"""


def main(arguments: list[str] | None = None) -> int:
    """Print the tables, or write them to a file. Returns 0 if no cell is wrong, and 1 otherwise."""
    parser = argparse.ArgumentParser(prog="python -m research.benchmarks.small_mistakes", description=__doc__)
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS, metavar="N", help="keys (128 to 131072)")
    parser.add_argument("--dtypes", nargs="+", default=tuple(DTYPES), choices=tuple(DTYPES), help="formats (all)")
    parser.add_argument("--seed", type=int, default=0, help="what the inputs are drawn from (0)")
    parser.add_argument("--output", type=Path, help="a file for the page, instead of the terminal")
    options = parser.parse_args(arguments)
    text, wrong = page(options.dtypes, options.lengths, options.seed)
    if options.output:
        options.output.write_text(text + "\n", encoding="utf-8")
    else:
        print(text)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
