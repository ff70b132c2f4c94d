"""The worst input that is found for an operation: a hill climb on error ÷ budget, from a case of a
domain or from one that is known.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random import Generator

from properties.contract import process_state
from properties.contract.caller import Caller
from properties.contract.conversion import UngivenError
from properties.contract.implementation import Implementation
from properties.contract.operations import OPERATIONS, Operation
from properties.contract.results import BrokenError
from properties.strategies.axes import Case
from properties.strategies.cases import Cases, UnsupportedError
from properties.strategies.changes import another, changed
from properties.strategies.climb import Effort, Height
from properties.strategies.climb import climb as climbed
from properties.strategies.domains import DOMAINS
from properties.verifier.case_json import packed, unpacked

__all__ = ["Worst", "climb", "ratios"]

_DRAWN = 3
"""A climb draws one in so many of its cases: a tenth, a third and two thirds were tried on four
kernels, and a third got highest.
"""

_NOTHING = -1.0
"""How high a case is of which no budget says anything: lower than all others."""


@dataclass(frozen=True)
class Worst:
    """The worst case of a climb.

    ratio    the largest error ÷ budget of its results, ∞ where the call raised, or returned something else
    output   the result that is so far off; "" where there was none
    case     the arguments by name, for JSON: `unpacked` makes the same arrays of it
    seed     the climb's
    calls    how many were made to find it
    """

    ratio: float
    output: str
    case: dict[str, Any]
    seed: int
    calls: int


def climb(
    implementation: Implementation,
    operation: str,
    domain: str,
    seed: int,
    steps: int,
    start: Mapping[str, Any] | None = None,
    output: str | None = None,
    observe: Callable[[str, tuple[Any, ...], str], None] | None = None,
) -> Worst | None:
    """Return the worst of so many cases of an operation: a climb from `start`, the `case` of
    another `Worst`; or else a third of them are drawn in the domain, that of the seed first, and
    the climb begins at the worst of these. Each change stays that does not make the error smaller.

    The largest error ÷ budget of all results counts, or of one `output`; budgets that say nothing
    do not count. The same arguments give the same answer. `observe` is told of every call before it
    is made: operation, arguments, and layout.

    None where the implementation supports no case of the domain, and where no call had a budget
    that says something, as masks have none. Raises ValueError for a domain that there is not, no
    steps, and a start that is no case of the operation.
    """
    o = OPERATIONS[operation]
    if domain not in DOMAINS[operation]:
        raise ValueError(
            f"domain={domain!r}, but should be one of those of {operation}: {', '.join(DOMAINS[operation])}."
        )
    if steps < 1:
        raise ValueError(f"steps={steps}, but should be at least 1.")
    caller = Caller(implementation, operation, observe)
    try:
        cases = Cases(o, DOMAINS[operation][domain], implementation)
    except UnsupportedError:
        return None
    if o.returns_booleans:
        return None
    first = [o.named(cases.draw(seed)) if start is None else _begun(o, start)]

    def measure(case: Case) -> Height:
        found = ratios(caller, case)
        return Height(max((x for name, x in found.items() if not name or output in (None, name)), default=_NOTHING))

    def begun(rng: Generator) -> Case:
        return first.pop() if first else another(cases, rng)

    def moved(case: Case, rng: Generator) -> Case:
        return changed(cases, case, rng)

    try:
        draws = steps // _DRAWN if start is None else 1
        found = climbed(begun, moved, measure, np.random.default_rng(seed), Effort(steps, draws, patience=steps))
        of = {name: x for name, x in ratios(caller, found.top).items() if not name or output in (None, name)}
    finally:
        process_state.restore(caller.original)
    return (
        Worst(found.highest.value, max(of, key=lambda name: of[name]), packed(found.top), seed, found.evaluations)
        if of
        else None
    )


def _begun(o: Operation, start: Mapping[str, Any]) -> Case:
    """The case to start from, its arguments in their order."""
    if set(start) != set(o.parameters):
        raise ValueError(
            f"start has {', '.join(start)}, but should have the arguments of {o.name}: {', '.join(o.parameters)}."
        )
    case = unpacked(start)
    return {p: case[p] for p in o.parameters}


def ratios(caller: Caller, case: Case) -> dict[str, float]:
    """Return the largest error ÷ budget of each result of the caller's operation on a case, of
    those whose budget says something.

    {"": ∞} where the call raised, or returned something else; none where the oracle refuses the
    case, or it cannot be handed over.
    """
    o, i = OPERATIONS[caller.operation], caller.implementation
    arguments = tuple(case[p] for p in o.parameters)
    with np.errstate(all="ignore"):
        try:
            arguments = i.support.promised(o, arguments)
            budgets = caller.expected(o, arguments)
            values = caller.run(o, arguments)[0]
        except BrokenError:
            return {"": np.inf}
        except (ValueError, UngivenError):  # what conventions refuse has no right answer
            return {}
        named = zip(o.returned(arguments), budgets, values, strict=False)
        return {name: float(e.excess(x).max(initial=0.0)) for name, e, x in named if e.judged and not e.vacuous}
