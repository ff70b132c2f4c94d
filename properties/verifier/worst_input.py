"""Searches for the worst input of an operation: the input with the largest error ÷ budget, where
the budget is the error limit. The search is a hill climb. It begins at a drawn input, or at a known
one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random import Generator

from properties.contract import process_state
from properties.contract.caller import Caller, Observer
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
"""The climb draws one input in `_DRAWN`, and makes the others by changes. Tried on four kernels: a
tenth, a third and two thirds of drawn inputs. A third found the largest errors.
"""

_NOTHING = -1.0
"""The height of an input without a budget (error limit): lower than all other heights."""


@dataclass(frozen=True)
class Worst:
    """The worst input that a hill climb found. The budget of a result is its error limit.

    ratio    the largest error ÷ budget of its results; ∞ if the call raised, or returned something
             else
    output   the result with this error; "" if the call returned no results
    case     the arguments by name, for JSON; `unpacked` makes the same arrays from it
    seed     the seed of the climb
    calls    the number of calls that the climb made
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
    observe: Observer | None = None,
) -> Worst | None:
    """Search for the worst input of an operation by a hill climb on error ÷ budget, and return it.
    The budget of a result is its error limit. `steps` is the number of inputs that are measured.

    The climb begins at `start`, which is the `case` of another `Worst`. Without `start`, a third of
    the inputs are drawn from the domain, which is a family of inputs. The first one is drawn from
    the seed. The climb begins at the worst of these. It keeps each change that does not make the
    error smaller.

    The largest error ÷ budget of all results counts, or only the error of the result `output`.
    Vacuous budgets, which accept any value, do not count. The same arguments give the same answer.
    `observe` is called with every call before it is made: operation, arguments, and layout.

    Returns None if the implementation supports no input of the domain, and if every budget is
    vacuous; a mask has no budget. Raises ValueError for an unknown domain, for `steps` below 1, and
    for a start that is not a case (arguments) of the operation.
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
    if o.is_exact:
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
    """Return the arguments at which the search begins, in the operation's order."""
    if set(start) != set(o.parameters):
        raise ValueError(
            f"start has {', '.join(start)}, but should have the arguments of {o.name}: {', '.join(o.parameters)}."
        )
    case = unpacked(start)
    return {p: case[p] for p in o.parameters}


def ratios(caller: Caller, case: Case) -> dict[str, float]:
    """Return the largest error ÷ budget (error limit) of each result of the caller's operation on a
    case (set of arguments). Results whose budget is vacuous (accepts any value) are left out.

    If the call raises, or returns something that is not a result, the answer is {"": ∞}. If the
    oracle refuses the case, or the case cannot be passed to the implementation, the answer is
    empty.
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
