"""What diagnosis names from outputs alone: `make named` writes docs/named.md.

Of every convention each other reading, in each operation that it concerns, and every reported bug of what is computed with today: what
follows it is declared to follow the defaults, and is verified by the quick plan up to the first violation, as `verify` does it with
`quick` and `fail_fast`. It is named if the first cause that is told has it first, or among its first two diagnoses: two names of one
function are told apart by nothing.
"""

import argparse
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, get_args

import numpy as np

import oracles
from oracles import Conventions
from oracles.ball import Array
from oracles.conventions import DEFAULT
from properties.bugs import CATALOGUE, caches, features, frequencies, paths, rotations
from properties.bugs.reference_caches import Buffered
from properties.contract.caches import left_bound
from properties.contract.features import FEATURES
from properties.contract.implementation import Implementation
from properties.contract.operations import OPERATIONS, Operation
from properties.verifier.explaining import causes_of
from properties.verifier.plan import grouped, plan
from properties.verifier.verify import examine

__all__ = ["Planted", "bugs", "markdown", "named", "readings"]

SEEDS = range(10)
CASES = 40
NUMBERS = {"rope_base": 500_000.0, "rope_scale": 0.25}
"""Of numbers the other reading that is planted."""

SAME = {
    **{("dead_rows", value, "causal_attention"): "from the top left every query sees a key" for value in ("nan", "uniform")},
    ("dead_rows", "uniform", "hard_masked_softmax_vjp"): "equal weights of what is masked have no gradient either",
    **{("odd_lane", "passthrough", o): "a channel without a partner has a frequency all the same" for o in ("inv_freq", "rope_angles")},
}
"""Readings that are the default one in an operation: nothing can tell them apart there."""


@dataclass(frozen=True)
class Planted:
    """What is to be named: its name, the operation in which it is, and what follows it."""

    name: str
    operation: str
    function: Callable[..., Any]
    conventions: Conventions = DEFAULT

    @property
    def implementation(self) -> Implementation:
        """Float32 implementations by float64 arithmetic, so that no result is the reference's to the last bit; caches are of float64."""
        function, arithmetic = (self.function, "float64") if self.operation == "decode" else (_in_float32(self.function), "float32")
        return Implementation(
            self.name, {self.operation: function}, arithmetic=arithmetic, features=FEATURES, conventions=self.conventions
        )


def _in_float32(function: Callable[..., Any]) -> Callable[..., Any]:
    def doubled(x: Any) -> Any:
        return x.astype(np.float64) if isinstance(x, np.ndarray) and x.dtype == np.float32 else x

    def stored(x: Any) -> Any:
        return x.astype(np.float32) if isinstance(x, np.ndarray) and x.dtype == np.float64 else x

    def rounded(*arguments: Any, **options: Any) -> Any:
        found = function(*map(doubled, arguments), **{name: doubled(x) for name, x in options.items()})
        return tuple(map(stored, found)) if isinstance(found, tuple) else stored(found)

    return rounded


def readings() -> Iterator[Planted]:
    """Each other value of every convention, in each operation that it concerns, but where it is the same there."""
    for field in fields(Conventions):
        usual = getattr(DEFAULT, field.name)
        for value in (NUMBERS[field.name],) if field.name in NUMBERS else get_args(field.type):
            for o in OPERATIONS.values():
                if value != usual and field.name in o.conventions and (field.name, value, o.name) not in SAME:
                    name = f"{field.name}={value:g}" if field.name in NUMBERS else f"{field.name}={value}"
                    yield Planted(name, o.name, _meaning(o, Conventions(**{field.name: value})))


def _meaning(o: Operation, meant: Conventions) -> Callable[..., Any]:
    """An operation in other conventions: the oracle's values, or caches as one writes them."""
    if o.is_played:
        return _cache_of(meant)

    def answer(*arguments: Any, **options: Any) -> Any:
        found = o.oracle(*arguments, conventions=meant, **options)
        values = tuple(getattr(x, "mid", x) for x in (found if isinstance(found, tuple) else (found,)))
        return values if isinstance(found, tuple) else values[0]

    return answer


def _cache_of(meant: Conventions) -> type[Buffered]:
    """Caches that mean other conventions: what they refuse follows from their own window."""
    rotating = any(getattr(meant, name) != getattr(DEFAULT, name) for name in OPERATIONS["rope"].conventions)

    class Cache(Buffered):
        rotates = rotating

        def __init__(self, d: int, d_v: int, window: int | None = None, capacity: int | None = None) -> None:
            super().__init__(d, d_v, left_bound(window, meant), capacity)

        def rotated(self, x: Array, start: int) -> Array:
            return np.asarray(oracles.rope(x, start, conventions=meant).mid) if rotating else x

        def attend(self, q: Array) -> tuple[Array, Array]:
            out, lse = super().attend(q * (math.sqrt(q.shape[1]) if meant.scale_default == "one" else 1.0))
            return out, lse / (math.log(2.0) if meant.lse_base == "2" else 1.0)

    return Cache


def bugs() -> Iterator[Planted]:
    """Known bugs of attention with its features, caches and rotary frequencies that somebody reported, each where it was seen."""
    modules = (features, caches, frequencies, rotations, paths)
    for bug in (entry for module in modules for entry in module.bug.bugs if "#" in entry.citation and entry.id in CATALOGUE):
        yield Planted(bug.id, bug.operation, bug.fresh(), bug.promises.get("conventions", DEFAULT))


def named(planted: Planted, seed: int) -> tuple[str, ...]:
    """What the first cause names, best first, hints left out; ("held",) where no law is broken."""
    implementation = planted.implementation
    (laws,) = grouped(plan(implementation, None, long=False, quick=True))
    found = [o.violation for o in examine(laws, implementation, CASES, seed, ends=lambda law: True) if o.status == "violated"]
    causes = causes_of(implementation, [v for v in found if v is not None], shrinks=False)
    return tuple(d.id for d in causes[0].diagnosis if not d.hint) if causes else ("held",)
