"""The second half of the attack: error ÷ budget of honest kernels, climbed towards 1 and beyond.

A trial is an input that the arithmetic's format holds, and a form of kernel that the budget
promises to cover. A mutation changes either. The attack uses no exact value: it judges by the
midpoint and radius of the budget, as a user does. Each kind of trial is a row of `TARGETS`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random import Generator

from oracles import Arithmetic
from properties.strategies.climb import Climbed, Effort, Height, climb
from research.benchmarks.attack import featured_budgets, frequencies, part_budgets, plain_budgets
from research.benchmarks.attack import rotary_budgets as rotary
from research.benchmarks.attack.arithmetics import ARITHMETICS, FEATURED
from research.benchmarks.attack.parts import MERGED, alibi_bias, alibi_slopes

__all__ = ["ARITHMETICS", "OPERATIONS", "attack", "families", "measure"]


@dataclass(frozen=True)
class Target:
    """A kind of trial: the names of its families, a function that draws a trial from a family, a
    mutation, and the error ÷ budget of each result.

    `name` is the prefix of the results' names. The attack climbs on `results`. A violation by any
    result counts, also by one that is not in `results`.
    """

    name: str
    results: tuple[str, ...]
    families: tuple[str, ...]
    draw: Callable[[str, Arithmetic, Generator], Any]
    changed: Callable[[Any, Arithmetic, Generator], Any]
    excess: Callable[[Arithmetic, Any], dict[str, float]]
    arithmetics: tuple[str, ...] = tuple(ARITHMETICS)


def _plain(excess: Callable[[Arithmetic, Any], dict[str, float]], *results: str) -> Target:
    return Target("", results, tuple(plain_budgets.FAMILIES), plain_budgets.draw, plain_budgets.changed, excess)


def _featured(excess: Callable[[Arithmetic, Any], dict[str, float]], *results: str) -> Target:
    return Target(
        "attention ",
        results,
        tuple(featured_budgets.FAMILIES),
        featured_budgets.draw,
        featured_budgets.changed,
        excess,
        FEATURED,
    )


def _part(
    name: str,
    draw: Callable[[str, Arithmetic, Generator], Any],
    changed: Callable[[Any, Arithmetic, Generator], Any],
    excess: Callable[[Arithmetic, Any], dict[str, float]],
    families: tuple[str, ...],
    *results: str,
) -> Target:
    return Target(name, results, families, draw, changed, excess, part_budgets.ARITHMETICS)


def _rotary(
    name: str,
    draw: Callable[[str, Arithmetic, Generator], Any],
    excess: Callable[[Arithmetic, Any], dict[str, float]],
    families: tuple[str, ...],
    *results: str,
) -> Target:
    return Target(name, results, families, draw, rotary.changed, excess, rotary.ARITHMETICS)


_CHANGED_MERGE = part_budgets.changed(part_budgets.MERGES, None)
_CHANGED_SLOPES = part_budgets.changed(part_budgets.SLOPES, alibi_slopes)
_CHANGED_BIAS = part_budgets.changed(part_budgets.SLOPES, alibi_bias)
TARGETS = (
    _plain(plain_budgets.output, "out"),
    _plain(plain_budgets.gradients, "dq", "dk", "dv"),
    _plain(plain_budgets.tangent, "dout"),
    _featured(featured_budgets.forward, "out", "lse"),
    _featured(featured_budgets.gradients, "dq", "dk", "dv", "dbias", "dsink"),
    _featured(featured_budgets.tangents, "dout", "dlse"),
    _part("merge ", part_budgets.draw_merge, _CHANGED_MERGE, part_budgets.merge, tuple(MERGED), "out", "lse"),
    _part("alibi ", part_budgets.draw_alibi, _CHANGED_SLOPES, part_budgets.alibi, ("slopes",), "slopes"),
    _part("alibi ", part_budgets.draw_alibi, _CHANGED_BIAS, part_budgets.alibi, ("bias",), "bias"),
    _rotary("", rotary.draw_frequencies, rotary.inv_freq, tuple(frequencies.FREQUENCIES), "inv_freq", "factor"),
    _rotary("", rotary.draw_rotation, rotary.rotation, frequencies.ROTATIONS, "rope", "rope_vjp"),
    _rotary("table of ", rotary.draw_tables, rotary.tables, frequencies.TABLES, "cos", "sin"),
)
OPERATIONS: dict[str, tuple[Target, str]] = {
    target.name + result: (target, result) for target in TARGETS for result in target.results
}
"""Which result is climbed on, and of what."""


def families() -> list[tuple[str, str, str]]:
    """Every (operation, family, arithmetic) to be attacked."""
    return [
        (name, family, arithmetic)
        for name, (target, _) in OPERATIONS.items()
        for family in target.families
        for arithmetic in target.arithmetics
    ]


def measure(operation: str, a: Arithmetic, trial: Any) -> Height:
    """The largest error ÷ budget of a kernel's result; of all that it computes with it where
    another one is a counterexample.
    """
    target, result = OPERATIONS[operation]
    with np.errstate(all="ignore"):
        excess = target.excess(a, trial)
    worst = max(excess, key=lambda name: excess[name])
    violated = not excess[worst] <= 1
    remarks = (f"{worst}: {excess[worst]:.4g}",) if violated else ()
    return Height(excess[worst] if violated else excess.get(result, 0.0), violated, remarks)


def attack(operation: str, family: str, arithmetic: str, rng: Generator, evaluations: int) -> Climbed[Any]:
    """Climb in one family of inputs under one arithmetic."""
    a, (target, _) = ARITHMETICS[arithmetic], OPERATIONS[operation]
    return climb(
        lambda generator: target.draw(family, a, generator),
        lambda x, generator: target.changed(x, a, generator),
        lambda x: measure(operation, a, x),
        rng,
        Effort(evaluations),
    )
