"""Calls of an operation: what the strategies of `properties` draw, small enough for the judge, and
what a mutation changes of it.

A call is arrays by name, and options: all other arguments, conventions included. Families change
what was drawn: see `inputs`, `features`, `parts` and `frequencies`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import Any, get_args

import numpy as np
from numpy.random import Generator

import oracles
from oracles import Conventions
from properties.contract.features import FEATURES
from properties.contract.implementation import Implementation
from properties.contract.operations import OPERATIONS
from properties.strategies import drawn_masks
from properties.strategies.cases import Cases
from properties.strategies.climb import Array, mutated
from properties.strategies.domain import Domain
from properties.strategies.domains import DOMAINS
from research.benchmarks.exact.reading import unread_keys

__all__ = [
    "POISON", "Arrays", "Call", "Options", "Sizes", "changed", "changed_array", "conventions", "drawn", "everyday",
    "fitting", "mixed", "redrawn",
]  # fmt: skip

Arrays = dict[str, Array]
Options = dict[str, Any]
Sizes = Mapping[str, Sequence[int]]

DRAWN: Sizes = MappingProxyType({})
"""Sizes as they are drawn."""

SMALL = {
    **dict.fromkeys(("n_q", "head_dim", "seq_len", "model_dim", "group", "max_len"), 3),
    **dict.fromkeys(("value_dim", "kv_heads", "num_heads", "batch"), 2),
    "n_k": 4,
    "sequences": 3,
    "embed_dim": 7,
}
"""The largest size of each axis: the judge computes with balls."""
ANY = Domain("any", "Any mask, fully masked rows among its rows, and any features.", mask=drawn_masks.loose)
POISON = (None, None, np.nan, np.inf, -np.inf, 1e300)
"""What stands in keys that no row reads; None leaves them as they are."""


@dataclass(frozen=True)
class Call:
    """Arguments of an operation by name. `poison` stands in keys that no row reads."""

    operation: str
    arrays: Arrays
    options: Options
    poison: float | None = None

    @property
    def exact(self) -> dict[str, Any]:
        """What the judge is given."""
        return {**self.arrays, **self.options}

    @property
    def given(self) -> dict[str, Any]:
        """What the oracle is given: frequencies of a kind as enclosures, and the poison."""
        options = self.exact
        if isinstance(frequencies := options.get("inv_freq"), Mapping):
            options["inv_freq"], options["attention_factor"] = oracles.rotary_frequencies(**frequencies)
        if self.poison is not None:
            unread = self._unread[..., None]
            options |= {
                name: np.where(unread, self.poison, options[name]) for name in ("k", "v", "dk", "dv") if name in options
            }
        return options

    @property
    def _unread(self) -> Any:
        """Which keys no row reads."""
        if self.arrays["q"].ndim > 2:
            return unread_keys(self.exact)
        causal = self.options.get("is_causal", self.operation == "causal_attention")
        return unread_keys(
            {name: self.arrays[name][None] for name in "qkv"} | {"mask": self.options.get("mask"), "causal": causal}
        )[0]


# -- What is drawn ---------------------------------------------------------------------------------


def conventions(operation: str, rng: Generator) -> Conventions:
    """Conventions that differ from the defaults in a few fields that the operation follows. The
    values come from the type of each field.
    """
    choices = {
        field.name: get_args(field.type)
        for field in fields(Conventions)
        if field.name in OPERATIONS[operation].conventions
    }
    chosen: dict[str, Any] = {
        name: str(rng.choice(values)) for name, values in choices.items() if values and rng.random() < 0.25
    }
    return Conventions(**chosen)


def drawn(
    operation: str,
    rng: Generator,
    sizes: Sizes = DRAWN,
    domain: Domain = ANY,
    meant: Conventions | None = None,
    rank: int = 0,
    arithmetic: str = "float64",
) -> Call:
    """A call of a domain under conventions, with `rank` leading axes. `sizes` gives the choices for
    a size; other sizes are small. The arithmetic says which arrays are on a grid.
    """
    definition = OPERATIONS[operation]
    allowed = {name: [n for n in choices if 0 < n <= SMALL.get(name, n)] for name, choices in domain.sizes.items()}
    smallest = {name: range(1, largest + 1) for name, largest in SMALL.items()} | {
        name: choices for name, choices in allowed.items() if choices
    }
    domain = replace(domain, sizes={name: tuple(choices) for name, choices in (smallest | {**sizes}).items()})
    ranks = (rank + ("num_heads" in definition.axes.get("q", ())),)
    oracle = Implementation(
        "oracle", {operation: definition.oracle}, arithmetic, meant, features=FEATURES, batch_ranks=ranks
    )
    options = {
        parameter: x
        for parameter, x in definition.named(
            Cases(definition, domain, oracle).draw(int(rng.integers(1, 2**32)))
        ).items()
        if x is not None
    }
    arrays = {
        parameter: x for parameter, x in options.items() if parameter in definition.arrays and isinstance(x, np.ndarray)
    }
    return Call(
        operation,
        arrays,
        {parameter: x for parameter, x in options.items() if parameter not in arrays}
        | ({} if meant is None else {"conventions": meant}),
    )


def everyday(operation: str, rng: Generator, sizes: Sizes = DRAWN, meant: Conventions | None = None) -> Call:
    """A call of any domain of an operation."""
    domains = [each for each in DOMAINS[operation].values() if not (each.rank or each.rotates or each.points)]
    return drawn(operation, rng, sizes, domains[int(rng.integers(len(domains)))], meant)


def redrawn(call: Call, rng: Generator) -> Options:
    """The options of another call, for the same arrays."""
    definition = OPERATIONS[call.operation]
    arguments = tuple(call.exact.get(parameter) for parameter in definition.parameters)
    redrawn_call, leading = definition.sizes(arguments) if call.arrays else {}, definition.lead(arguments)
    if "kv_heads" in redrawn_call:
        redrawn_call["group"] = redrawn_call["num_heads"] // redrawn_call["kv_heads"]
    sizes = {name: (n,) for name, n in redrawn_call.items()} | {"batch": (*leading[:1], 1)[:1]}
    meant = conventions(call.operation, rng) if "conventions" in call.options else None
    return drawn(call.operation, rng, sizes, meant=meant, rank=len(leading)).options


# -- What is changed -------------------------------------------------------------------------------


def changed(call: Call, rng: Generator) -> Call:
    """The call with one thing changed: an entry of the mask, an option as in another call, or something of an array."""
    kind, mask = rng.random(), call.options.get("mask")
    if mask is not None and mask.size and kind < 0.05:
        flipped = mask.copy()
        flipped[tuple(int(rng.integers(n)) for n in mask.shape)] ^= True
        return replace(call, options=call.options | {"mask": flipped})
    if kind < 0.75 and any(x.size for x in call.arrays.values()):
        return changed_array(call, rng)
    return replace(call, options=mixed(call.options, redrawn(call, rng), rng))


def mixed(options: Options, fresh: Options, rng: Generator) -> Options:
    """The options with one of them as in a fresh draw, which may be without it."""
    names = sorted({*fresh, *options})
    if not names:
        return options
    name = names[int(rng.integers(len(names)))]
    others = {key: value for key, value in options.items() if key != name}
    return fitting(others | ({name: fresh[name]} if name in fresh else {}))


def changed_array(call: Call, rng: Generator) -> Call:
    """The call with something of an array changed."""
    names = [name for name, x in call.arrays.items() if x.size]
    name = names[int(rng.integers(len(names)))]
    x = call.arrays[name]
    y = mutated(x.reshape(-1, x.shape[-1] if x.ndim else 1), rng).reshape(x.shape)
    return replace(call, arrays=call.arrays | {name: y})


def fitting(options: Options) -> Options:
    """The options, a window that counts keys with at least one of them, and no mask beside
    causality where both are refused. There is no dropout without a mask, and none where fully masked
    rows are uniform.
    """
    meaning, (left, right) = options.get("conventions") or Conventions(), options.get("window", (None, None))
    if meaning.window == "count" and left == 0:
        options = options | {"window": (1, right)}
    if meaning.dead_rows == "uniform" or "dropout_mask" not in options:
        kept = ("dropout_mask", "dropout")
        options = {name: x for name, x in options.items() if name not in kept}
    if meaning.causal_with_mask == "refuse" and {"causal", "mask"} <= options.keys():
        return {name: x for name, x in options.items() if name != "causal"}
    return options
