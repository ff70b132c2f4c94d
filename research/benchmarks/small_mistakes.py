"""`python -m research.benchmarks.small_mistakes`: which small mistakes of attention the error limit,
the statistical line, exact probes and the matched filters see, in rows of 128 to 131072 keys.

The limit, the line and the filters judge standard normal inputs, the probes have their own. The mistakes
are planted in the formula of attention in float32, whose output is stored in the format. The status is
1 if a correct kernel is refused, or nothing sees a mistake.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch

import oracles
from properties.contract.caller import LIKELY
from properties.inspection.exact_probes import Sizes, pair_probe, turns
from research.benchmarks.kernels import ARITHMETIC, BACKENDS, DTYPES, Array, Problem, draw, kernel, to_numpy, to_torch
from research.benchmarks.matched_filters import matched_filters

__all__ = ["MISTAKES", "main"]

LENGTHS = (128, 1024, 4096, 16384, 131072)
_QUERIES, _WIDTH = 16, 128
_PROBE_ROWS, _MOST_PROBES = 64, 4
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


class Judge:
    """What four criteria say about an output, as a text, and whether they see a mistake."""

    def __init__(self, dtype: str, n_k: int, seed: int, arithmetic: str) -> None:
        self.arithmetic = oracles.preset(arithmetic)
        self.problem = draw(dtype, (_QUERIES, n_k, _WIDTH), seed)
        p, a = self.problem, self.arithmetic
        self.limit, self.line = (
            oracles.scaled_dot_product_attention(p.q, p.k, p.v, arithmetic=each)
            for each in (a, replace(a, likely=LIKELY))
        )
        sizes = Sizes(_PROBE_ROWS, n_k, _WIDTH, _WIDTH, _WIDTH**-0.5)
        found = (pair_probe(sizes, a, turn) for turn in range(min(turns(sizes), _MOST_PROBES)))
        self.probes = [probe for probe in found if probe is not None]

    def cells(self, run: Callable[[Problem], Array]) -> tuple[list[str], list[bool]]:
        """The text of each criterion, and whether it sees something."""
        p, random = self.problem, run(self.problem)
        limit, line = (float(x.excess(random).max()) for x in (self.limit, self.line))
        off, number = 0, 0
        for probe in self.probes:
            q, k, v, _, _ = probe.problem
            excluded = probe.possible.excludes(run(replace(p, q=q, k=k, v=v, g=v[: len(q)])))
            off, number = off + int(excluded.sum()), number + excluded.size
        slopes = matched_filters(p.q, p.k, p.v, random, self.arithmetic)
        best = max(slopes, key=lambda slope: slope.evidence)
        texts = [f"{limit:.2g}", f"{line:.2g}", f"{off} of {number} off" if off else ""]
        texts.append(f"{best.name}: {best.slope:.2g} ± {best.error:.1g}" if best.evidence else "")
        return texts, [limit > 1, line > 1, off > 0, best.suspicious]


def _row(name: str, columns: Sequence[tuple[list[str], list[bool]]]) -> str:
    cells = [
        " · ".join(f"**{text}**" if seen else text or "–" for text, seen in zip(texts, saw, strict=True))
        for texts, saw in columns
    ]
    return f"| {' | '.join([name, *cells])} |"


def _correct(problem: Problem, dtype: str, backend: str) -> Array:
    """The output of a kernel of PyTorch."""
    return np.asarray(kernel(problem, dtype, backend)["out"])


def page(dtypes: Sequence[str], lengths: Sequence[int], seed: int) -> tuple[str, int]:
    """The tables, in Markdown, and the number of cells that are wrong: a correct kernel that is
    refused, or a mistake that nothing sees.
    """
    lines, wrong = (
        [_INTRODUCTION.format(queries=_QUERIES, width=_WIDTH, line=LIKELY, rows=_PROBE_ROWS, probes=_MOST_PROBES)],
        0,
    )
    for dtype in dtypes:
        judges = [Judge(dtype, n_k, seed, dtype) for n_k in lengths]
        lines += ["", f"| {dtype}, keys: | {' | '.join(map(str, lengths))} |", "| --- " * (len(lengths) + 1) + "|"]
        for backend in BACKENDS:
            own = ARITHMETIC[dtype, backend]
            of_kernel = judges if own == dtype else [Judge(dtype, n_k, seed, own) for n_k in lengths]
            columns = [judge.cells(partial(_correct, dtype=dtype, backend=backend)) for judge in of_kernel]
            wrong += sum(saw[0] or saw[2] for _, saw in columns)
            lines.append(_row(f"torch {backend}, correct", columns))
        for mistake in MISTAKES:
            columns = [judge.cells(partial(planted, dtype=dtype, mistake=mistake)) for judge in judges]
            wrong += sum(not any(saw) for _, saw in columns)
            lines.append(_row(mistake.name, columns))
    lines += ["", f"Cells in which a correct kernel is refused, or nothing sees a mistake: {wrong}."]
    return "\n".join(lines), wrong


_INTRODUCTION = """\
# Small mistakes in long rows

{queries} queries of width {width}; the presets of the formats, which allow any order of sums, and for PyTorch's flash
kernel its own. A cell has four criteria:

1. the error limit, on standard normal inputs: the largest error ÷ limit
2. the statistical line (λ = {line:g}), on the same inputs: the largest error ÷ line
3. the exact probes, on their own inputs, of {rows} queries in up to {probes} calls: how many outputs no correct kernel
   may store
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
