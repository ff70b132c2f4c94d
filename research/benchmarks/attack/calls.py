"""Calls of operations whose arguments go by keyword: what is drawn, what the oracle and the judge are given, and what a mutation changes.

A call is arrays by name, and options: everything else, conventions included. Options are drawn for arrays, so that a mutation is either one
of an array, or one option of a fresh draw.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.random import Generator

import oracles
from oracles import Conventions
from properties.strategies.climb import Array, mutated
from research.benchmarks.exact.reading import unread_keys

__all__ = ["Arrays", "Call", "Options", "changed"]

Arrays = dict[str, Array]
Options = dict[str, Any]


@dataclass(frozen=True)
class Call:
    """Arguments of an operation by name. `vary` draws fresh options for the arrays; `poison` stands in keys that nobody reads."""

    arrays: Arrays
    options: Options
    vary: Callable[[Generator, Arrays], Options]
    poison: float | None = None

    def __repr__(self) -> str:
        return f"Call(arrays={self.arrays!r}, options={self.options!r}, poison={self.poison!r})"

    def exact(self) -> dict[str, Any]:
        """What the judge is given."""
        return {**self.arrays, **self.options}

    def given(self) -> dict[str, Any]:
        """What the oracle is given: frequencies of a kind as enclosures, and keys that nobody reads poisoned."""
        said = self.exact()
        if isinstance(of := said.get("inv_freq"), Mapping):
            said["inv_freq"], said["attention_factor"] = oracles.rotary_frequencies(**of)
        if self.poison is not None:
            unread = unread_keys(said)[..., None]
            said |= {name: np.where(unread, self.poison, said[name]) for name in ("k", "v", "dk", "dv") if name in said}
        return said


def changed(call: Call, rng: Generator) -> Call:
    """The call with one thing changed: something of an array, or an option."""
    if not call.arrays or rng.random() < 0.25:
        fresh = call.vary(rng, call.arrays)
        names = sorted({*fresh, *call.options})
        if not names:
            return call
        name = names[int(rng.integers(len(names)))]
        options = {key: value for key, value in call.options.items() if key != name}
        return replace(call, options=fitting(options | ({name: fresh[name]} if name in fresh else {})))
    name = list(call.arrays)[int(rng.integers(len(call.arrays)))]
    x = call.arrays[name]
    if not x.size:
        return call
    y = mutated(x.reshape(-1, x.shape[-1] if x.ndim else 1), rng).reshape(x.shape)
    return replace(call, arrays=call.arrays | {name: y})


def fitting(options: Options) -> Options:
    """The options, a window that counts keys with at least one of them."""
    conventions, (left, right) = options.get("conventions") or Conventions(), options.get("window", (None, None))
    if conventions.window == "count" and left == 0:
        return options | {"window": (1, right)}
    return options
