"""The attack as a list of chunks: each is a few climbs of one kind, drawn from a seed and the chunk's number alone."""

import multiprocessing
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from typing import Any

import numpy as np

from research.benchmarks.attack import budgets, certificates

__all__ = ["KINDS", "Kind", "Tally", "run", "tally"]

EVALUATIONS = {"certificate": 300, "budget": 50}
"""Inputs that a chunk measures."""
SHOWN, LONGEST = 3, 4000
"""Counterexamples described for each kind of chunk, and the most characters that are written out of one."""

Kind = tuple[str, str, str, str]


def _kinds() -> list[Kind]:
    """Every (half, operation, family, method or arithmetic), in an order that mixes them."""
    halves = {"certificate": certificates.families(), "budget": budgets.families()}
    kinds = sorted((half, *kind) for half, climbed in halves.items() for kind in climbed)
    return [kinds[i] for i in np.random.default_rng(0).permutation(len(kinds))]


KINDS = _kinds()


@dataclass(frozen=True)
class Tally:
    """What was found in chunks of one kind: see `climb.Climbed`. `where` names the highest point's
    family and how it was judged, `examples` describe the first violations."""

    evaluations: int = 0
    climbs: int = 0
    largest: float = 0.0
    where: str = ""
    violations: int = 0
    undecided: int = 0
    useless: int = 0
    examples: tuple[str, ...] = ()

    def __add__(self, other: "Tally") -> "Tally":
        higher = self if self.largest >= other.largest else other
        return Tally(
            self.evaluations + other.evaluations,
            self.climbs + other.climbs,
            higher.largest,
            higher.where,
            self.violations + other.violations,
            self.undecided + other.undecided,
            self.useless + other.useless,
            (self.examples + other.examples)[:SHOWN],
        )


def tally(number: int, seed: int) -> Tally:
    """Run the chunk of a number; an input that is refused ends it, and is a violation: all that are drawn are legal."""
    half, operation, family, method = KINDS[number % len(KINDS)]
    rng = np.random.default_rng([seed, number])
    attack: Any = certificates.attack if half == "certificate" else budgets.attack
    description = f"{half}, {operation}, {family}, {method}; again: --seed {seed} --chunk {number}"
    try:
        climbed = attack(operation, family, method, rng, EVALUATIONS[half])
    except Exception as error:
        return Tally(violations=1, where=f"{family}, {method}", examples=(f"raised {error!r}  {description}",))
    examples = [
        f"{height:.4g} times its radius  {description}{_written(counterexample)}"
        for height, counterexample in climbed.violations
    ]
    return Tally(
        evaluations=climbed.evaluations,
        climbs=climbed.climbs,
        largest=climbed.highest.value,
        where=f"{family}, {method}",
        violations=len(climbed.violations),
        undecided=climbed.remarks.count("undecided"),
        useless=climbed.remarks.count("useless"),
        examples=tuple(examples[:SHOWN]),
    )


def _written(counterexample: Any) -> str:
    """A point in full if it is small, else a word: its chunk draws it again."""
    text = repr(counterexample)
    return f"\n    {text if len(text) <= LONGEST else 'too large to be written out'}"


def run(numbers: Iterable[int], seed: int, jobs: int, seconds: float = float("inf")) -> Iterator[tuple[int, Tally]]:
    """Yields (chunk, tally) as chunks finish. No chunk starts after this many seconds. Chunks start
    in order, so the chunks that ran are the first ones.
    """
    start, waiting = time.monotonic(), iter(numbers)
    if jobs == 1:
        for number in waiting:
            if time.monotonic() - start > seconds:
                return
            yield number, tally(number, seed)
        return
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        running: dict[Future[Tally], int] = {}
        while True:
            while (
                len(running) < 2 * jobs
                and time.monotonic() - start <= seconds
                and (number_begun := next(waiting, None)) is not None
            ):
                running[pool.submit(tally, number_begun, seed)] = number_begun
            if not running:
                return
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                yield running.pop(future), future.result()
