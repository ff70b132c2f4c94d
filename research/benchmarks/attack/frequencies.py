"""Adversarial families of rotary frequencies, of rotations by given ones, and of their tables.

Parameters of a kind are drawn until they make sense to the definition, and nudged: a few last bits or a factor of a number, one position.
A family's aim is a place where a kind has a kink, or where its numbers end.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from math import pi
from typing import Any

import numpy as np
from numpy.random import Generator

from oracles import Conventions
from properties.strategies.climb import Array, mutated
from research.benchmarks.attack.calls import Call, Options
from research.benchmarks.attack.inputs import plain, position
from research.benchmarks.exact.rotary import rotary_frequencies

__all__ = ["FREQUENCIES", "ROTATIONS", "TABLES", "changed", "rotated", "tables"]

CHOICES: dict[str, tuple[str, ...]] = {
    "yarn_truncate": ("truncated", "exact"),
    "yarn_upper": ("last_channel", "last_pair"),
    "longrope_switch": ("at_most", "below"),
    "dynamic_length": ("current", "configured"),
}
PAIR = ("x", "grad_out")
"""What the gradient of a rotation is given."""
KINDS = ("default", "linear", "dynamic", "yarn", "llama3", "longrope", "proportional")
PLACES = ("normal", "kinks", "factor near one", "extremes")
MOST = 2**53


def _parameters(kind: str, place: str, rng: Generator) -> Options:
    """Parameters of a kind, which may make no sense."""
    r = 2 * int(rng.integers(1, 9))
    base = float(rng.choice([10000.0, 500000.0, rng.uniform(1.1, 100), 10.0 ** rng.uniform(0.1, 7)]))
    factor = float(rng.choice([2.0 ** rng.integers(-2, 6), 10.0 ** rng.uniform(-1, 2)]))
    most = int(2.0 ** rng.uniform(1, 20))
    if place == "factor near one":
        factor = float(1 + rng.choice([-1, 1]) * 2.0 ** -rng.uniform(2, 53))
    if place == "extremes":
        base, factor = float(10.0 ** rng.uniform(0.001, 300)), float(10.0 ** rng.uniform(-150, 150))
        most = int(2.0 ** rng.uniform(1, 52))
    near = 1 + rng.choice([0.0, 2.0 ** -rng.uniform(20, 53), -(2.0 ** -rng.uniform(20, 53)), 0.3]) if place == "kinks" else 1.3
    turns = most * base ** (-2 * int(rng.integers(r // 2)) / r) / (2 * pi) * near
    length = min(int(rng.choice([most - 1, most, most + 1, int(most * 2.0 ** rng.uniform(-2, 10))])), MOST)
    said: Options = {"kind": kind, "head_dim": r + 2 * int(rng.integers(2)), "rotary_dim": r, "base": base}
    scaling: Options = {"factor": factor, "original_max_position_embeddings": most}
    match kind:
        case "linear":
            said["factor"] = factor
        case "dynamic":
            said |= {"factor": factor, "max_position_embeddings": most, "seq_len": length}
        case "yarn":
            said |= scaling | {"beta_fast": turns * float(rng.choice([1.0, 1 + 2.0**-40, rng.uniform(1, 40)])), "beta_slow": turns}
            if rng.random() < 0.3:
                said |= {"beta_fast": 32, "beta_slow": 1}
            if rng.random() < 0.5:
                said["truncate"] = bool(rng.random() < 0.5)
            if rng.random() < 0.4:
                zero = -10 / np.log(factor) if factor > 1 else 1.0  # where m(s, x) is 0
                said |= {
                    "mscale": float(rng.choice([1.0, 0.707, zero])),
                    "mscale_all_dim": float(rng.choice([1.0, 0.8, zero * (1 + 1e-9)])),
                }
        case "llama3":
            said |= scaling | {"low_freq_factor": turns, "high_freq_factor": turns * float(rng.choice([1 + 2.0**-30, rng.uniform(1, 8)]))}
        case "longrope":
            lists = (np.abs(rng.standard_normal(r // 2)) * 10.0 ** rng.uniform(-2, 3) + 1e-9 for _ in range(2))
            said |= scaling | dict(zip(("short_factor", "long_factor"), (x.tolist() for x in lists), strict=True))
            if rng.random() < 0.8:
                said["seq_len"] = length
        case "proportional":
            said |= {"factor": factor, "head_dim": r, "partial_rotary_factor": float(rng.choice([0.0, 0.25, 0.3, 1.0, rng.random()]))}
            del said["rotary_dim"]
    if kind in ("yarn", "longrope") and rng.random() < 0.3:
        said["attention_factor"] = float(rng.standard_normal() * 10.0 ** rng.choice([0.0, rng.uniform(-300, 300)]))
    chosen: dict[str, Any] = {name: str(rng.choice(values)) for name, values in CHOICES.items() if rng.random() < 0.25}
    return said | {"conventions": Conventions(**chosen)}


def sensible(said: Options) -> bool:
    """Whether the definition has a value for these parameters, and balls decide which; a factor is above 0, even where it is not read."""
    if said.get("factor", 1.0) <= 0:
        return False
    try:
        rotary_frequencies(said)
    except (ValueError, ZeroDivisionError):
        return False
    return True


def parameters(kind: str, place: str, rng: Generator) -> Options:
    """Parameters of a kind that make sense."""
    while not sensible(said := _parameters(kind, place, rng)):
        pass
    return said


def _nudged(said: Options, rng: Generator) -> Options:
    """The parameters with one changed a little, or as they are where that makes no sense."""
    names = [
        name
        for name, x in said.items()
        if isinstance(x, int | float) and not isinstance(x, bool) and name not in ("head_dim", "rotary_dim")
    ]
    name = names[int(rng.integers(len(names)))]
    x = said[name]
    if isinstance(x, int):
        y: float = int(min(max(x + int(rng.choice([-1, 1])) * int(2.0 ** rng.uniform(0, 20)), 1), MOST))
    else:
        y = float(x * rng.choice([1 + rng.standard_normal() * 2.0 ** -rng.uniform(0, 52), 2.0 ** rng.integers(-3, 4)]))
    fresh = said | {name: y}
    return fresh if np.isfinite(y) and sensible(fresh) else said


def frequencies(kind: str, place: str, rng: Generator) -> Call:
    """A call of `rotary_frequencies`."""
    return Call({}, parameters(kind, place, rng), lambda rng, _: parameters(kind, place, rng))


# -- Rotations -----------------------------------------------------------------------------------------------------------------


def _positions(rng: Generator, shape: tuple[int, ...]) -> Any:
    """Small ones, one and its neighbours, or any to ±2⁵³."""
    match int(rng.integers(3)):
        case 0:
            found = rng.integers(-50, 50, shape)
        case 1:
            found = position(rng) + np.arange(int(np.prod(shape))).reshape(shape)
        case _:
            found = np.array([position(rng) for _ in range(int(np.prod(shape)))], dtype=np.int64).reshape(shape)
    return found * int(rng.choice([-1, 1]))


def _given(kind: str, pairs: int, positions: Any, rng: Generator) -> Array:
    """Frequencies as numbers."""
    match kind:
        case "quarter turns":  # p·f is a multiple of π/2 but for rounding
            p = max(int(np.abs(positions).max(initial=1)), 1)
            return np.array([float(rng.integers(1, 9)) * pi / 2 / p for _ in range(pairs)])
        case "all sizes":
            return np.asarray(rng.standard_normal(pairs) * 10.0 ** rng.uniform(-300, 280, pairs))
        case _:
            return np.asarray(rng.choice([0.0, 1.0, 0.25, -0.3, 7.1, 1e-5, 3e4, 2.0**-1074], pairs))


ROTATIONS = ("by conventions", "quarter turns", "all sizes", "mixed", *(f"of {kind}" for kind in KINDS))
"""What frequencies a rotation is given: none, numbers, or the enclosures of a kind."""
TABLES = ROTATIONS[1:]
"""The same, for tables."""


def _rotation(family: str, rows: tuple[int, ...], rng: Generator) -> tuple[Options, int]:
    """The options of a rotation of so many rows, and how many channels rotate."""
    pairs = int(rng.integers(1, 5))
    named: dict[str, Any] = {"rope_pairing": str(rng.choice(["adjacent", "half"])), "mrope": str(rng.choice(["sectioned", "interleaved"]))}
    said: Options = {}
    of: Any = None
    if family.startswith("of "):
        of = parameters(family.removeprefix("of "), PLACES[int(rng.integers(3))], rng)
        pairs = of.get("rotary_dim", of["head_dim"]) // 2
    sections = family != "by conventions" and rng.random() < 0.3
    if sections:
        h = int(rng.integers(0, pairs // 3 + 1))
        said["sections"] = (pairs - 2 * h, h, h)
    shape = [rows, rows[-1:], (1,)][int(rng.integers(3))]
    said["positions"] = _positions(rng, (3, *shape) if sections else shape)
    if of is None and family == "by conventions":
        named |= {"rope_base": float(10.0 ** rng.uniform(0, 8)), "rope_scale": float(10.0 ** rng.uniform(-3, 3))}
    elif of is None:
        of = _given(family, pairs, said["positions"], rng)
    if of is not None:
        said["inv_freq"] = of
    if not isinstance(of, Mapping) and rng.random() < 0.6:
        said["attention_factor"] = float(rng.choice([0.0, 1.19, -0.5, 1 + 2.0**-52, 10.0 ** rng.uniform(-300, 290)]))
    return said | {"conventions": Conventions(**named)}, 2 * pairs


def rotated(family: str, arrays: tuple[str, ...], rng: Generator) -> Call:
    """A call of `rope`, or of its gradient: with "x" alone, or "x" and "grad_out"."""
    rows = ((1,), (2,), (3,), (2, 2))[int(rng.integers(4))]
    said, channels = _rotation(family, rows, rng)
    said["rotary_dim"] = channels
    dim = channels + int(rng.choice([0, 0, 1, 2]))
    flat = int(np.prod(rows)), dim
    return Call({name: plain(rng, flat).reshape(*rows, dim) for name in arrays}, said, lambda rng, _: _rotation(family, rows, rng)[0])


def tables(family: str, rng: Generator) -> Call:
    """A call of `rotary_tables`."""
    rows = ((1,), (3,), (2, 2))[int(rng.integers(3))]
    said, _ = _rotation(family, rows, rng)
    return Call({}, said, lambda rng, _: _rotation(family, rows, rng)[0])


def changed(call: Call, rng: Generator) -> Call:
    """The call with one thing changed: an entry of an array or of frequencies, a position, the attention factor, or a parameter."""
    said = call.options
    if "kind" in said:
        return replace(call, options=_nudged(said, rng))
    if call.arrays and rng.random() < 0.4:
        name = list(call.arrays)[int(rng.integers(len(call.arrays)))]
        x = call.arrays[name]
        return replace(call, arrays=call.arrays | {name: mutated(x.reshape(-1, x.shape[-1]), rng).reshape(x.shape)})
    if rng.random() < 0.5:
        at = said["positions"] + rng.integers(-3, 4) * rng.choice([0, 1], said["positions"].shape)
        return replace(call, options=said | {"positions": np.clip(at, -MOST, MOST)})
    of = said.get("inv_freq")
    if isinstance(of, Mapping):
        return replace(call, options=said | {"inv_freq": _nudged(dict(of), rng)})
    if of is not None and rng.random() < 0.7:
        return replace(call, options=said | {"inv_freq": mutated(of[None], rng)[0]})
    return replace(call, options=said | {"attention_factor": float(said.get("attention_factor", 1.0) * (1 + rng.standard_normal()))})


FREQUENCIES = {f"{kind}, {place}": partial(frequencies, kind, place) for kind in KINDS for place in PLACES}
"""The families of `rotary_frequencies`."""
