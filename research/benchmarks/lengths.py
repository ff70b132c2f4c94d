"""Which planted mistakes the budget sees in rows of 128 to 131072 keys: with random inputs, and
with inputs that expose mistakes.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import median

import numpy as np

import oracles
from properties.contract.caller import LIKELY
from properties.strategies.choices import rounded
from properties.strategies.dominating import dominating, scores_of
from research.benchmarks.faults import FAULTS, Fault
from research.benchmarks.kernels import ARITHMETIC, RESULTS, Array, Problem, draw, kernel
from research.benchmarks.sharpness import budgets

__all__ = ["LENGTHS", "Sight", "section"]

LENGTHS = (128, 1024, 8192, 131072)
_QUERIES = 4

_INTRODUCTION = """\
## Rows of up to {longest} keys

The same mistakes for {queries} queries of width {d}, judged by the budget alone, with two kinds of inputs. **Random**
inputs are standard normal: the output is a mean of many values, in which a mistake averages out while the budget
grows. Inputs that **expose** come from the laws (the domain `dominating keys`): up to eight keys, the last among
them, have scores of 128, 1024 or 8192 by one product each, and one-hot values show their weights.

A cell is the largest error ÷ budget, random then exposing, with the result that shows it and the scores (median of
{seeds} draws; the best of the scores). **Bold**: every draw sees it. If the budget, a proof, does not see a mistake
and the statistical line does (λ = {likely}: an output beyond it is suspicious), the cell says by how many of its
units.
"""


@dataclass(frozen=True)
class Judge:
    """A problem with its budgets, and with its budgets below the statistical line. Both are
    computed at the first use.
    """

    problem: Problem
    arithmetic: oracles.Arithmetic

    @cached_property
    def budget(self) -> dict[str, oracles.Enclosure]:
        """What is proved."""
        return budgets(self.problem, self.arithmetic)

    @cached_property
    def line(self) -> dict[str, oracles.Enclosure]:
        """What is likely."""
        return budgets(self.problem, replace(self.arithmetic, likely=LIKELY))


@dataclass(frozen=True)
class Sight:
    """What inputs of one kind show of a mistake: error ÷ budget, and error ÷ line if the budget
    does not reject it. Each list has one number for each draw, for the result that shows most.
    """

    inputs: str
    budget: list[float]
    line: list[float]
    result: str

    @property
    def seen(self) -> bool:
        """Whether the budget refuses it in every draw."""
        return min(self.budget) > 1

    @property
    def suspicious(self) -> bool:
        """Whether only the line refuses it in every draw."""
        return not self.seen and min(self.line) > 1

    def __str__(self) -> str:
        value = f"{median(self.budget):.2g}"
        line = f", line **{median(self.line):.2g}**" if self.suspicious else ""
        return (f"**{value}**" if self.seen else value) + f" {self.result}{self.inputs}{line}"


def exposing(dtype: str, n_k: int, d: int, seed: int, score: float) -> Problem:
    """A problem in which a few keys of about one score share the weight."""
    rng, target = np.random.default_rng(seed), oracles.preset(dtype).inputs
    q, k, v = dominating(rng, (_QUERIES, n_k), (d, d), score, target)
    return Problem(q, k, v, rounded(rng.standard_normal((_QUERIES, d)), target))


def _problems(dtype: str, n_k: int, d: int, seeds: int) -> Iterator[tuple[str, list[Problem]]]:
    """The draws of each kind of input: "" for random ones, else the scores."""
    yield "", [draw(dtype, (_QUERIES, n_k, d), seed) for seed in range(seeds)]
    for score in scores_of(oracles.preset(dtype)):
        yield f" at {score:g}", [exposing(dtype, n_k, d, seed, score) for seed in range(seeds)]


def _worst(sights_by_fault: dict[str, Array], allowed: dict[str, oracles.Enclosure]) -> dict[str, float]:
    return {name: float(allowed[name].excess(sights_by_fault[name]).max()) for name in RESULTS}


def sights(dtype: str, n_k: int, d: int, seeds: int) -> tuple[dict[str, tuple[Sight, Sight]], float]:
    """For each mistake the sight of random inputs and the best sight of exposing inputs; and the
    largest error ÷ budget of PyTorch's kernel.
    """
    arithmetic = oracles.preset("float32-materialized" if dtype == "float32" else ARITHMETIC[dtype, "math"])
    sights_by_fault: dict[str, list[Sight]] = {}
    correct = 0.0
    for inputs, problems in _problems(dtype, n_k, d, seeds):
        judges = [Judge(problem, arithmetic) for problem in problems]
        correct = max(
            [
                correct,
                *(x for judge in judges for x in _worst(kernel(judge.problem, dtype, "math"), judge.budget).values()),
            ]
        )
        for fault in _faults(dtype):
            planted = [fault.plant(problem, dtype) for problem in problems]
            errors = [_worst(x, judge.budget) for x, judge in zip(planted, judges, strict=True)]
            result = max(RESULTS, key=lambda name: min(error[name] for error in errors))
            budget = [error[result] for error in errors]
            line = (
                []
                if min(budget) > 1
                else [
                    float(judge.line[result].excess(x[result]).max()) for x, judge in zip(planted, judges, strict=True)
                ]
            )
            sights_by_fault.setdefault(fault.name, []).append(Sight(inputs, budget, line, result))
    return {
        name: (first, max(others, key=lambda sight: min(sight.budget)))
        for name, (first, *others) in sights_by_fault.items()
    }, correct


def _faults(dtype: str) -> list[Fault]:
    return [fault for fault in FAULTS if dtype in fault.dtypes]


def section(dtypes: tuple[str, ...], lengths: tuple[int, ...], d: int, seeds: int) -> tuple[str, int]:
    """The section of the page, in Markdown, and how many correct results the budget rejects."""
    sections = [_INTRODUCTION.format(longest=max(lengths), queries=_QUERIES, d=d, seeds=seeds, likely=LIKELY)]
    accused, unseen = 0, []
    for dtype in dtypes:
        columns = []
        for n_k in lengths:
            sights_by_fault, correct = sights(dtype, n_k, d, seeds)
            accused += correct > 1
            columns.append(sights_by_fault)
            unseen += [
                f"{fault}, {dtype}, {n_k} keys"
                for fault, pair in sights_by_fault.items()
                if not any(sight.seen or sight.suspicious for sight in pair)
            ]
        lines = [[f"{dtype}, keys:", *map(str, lengths)], ["---"] * (1 + len(lengths))]
        lines += [[name, *(" · ".join(map(str, by_fault[name])) for by_fault in columns)] for name in columns[0]]
        sections.append("\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n")
    if unseen:
        sections.append(
            "Seen by neither in every draw:\n\n" + "\n".join(f"- {unseen_case}" for unseen_case in unseen) + "\n"
        )
    else:
        sections.append("Every fault is seen at every length.\n")
    return "\n".join(sections), accused
