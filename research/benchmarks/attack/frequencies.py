"""Adversarial families of rotary frequencies, of rotations by given ones, and of their tables.

A call is drawn by the strategies, and changed until it makes sense to the definition. A family's
aim is a place where a kind has a kink, or where its numbers end; mutations are a few last bits or a
factor of a number, or one position.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import pi
from typing import Any

import numpy as np
from numpy.random import Generator

from properties.contract.features import KINDS
from properties.strategies.climb import Array, mutated
from properties.strategies.domains import DOMAINS
from properties.strategies.domains import ROTATIONS as ROTATIONS_OF_MODELS
from research.benchmarks.attack.calls import Call, Options, changed_array, conventions, drawn
from research.benchmarks.attack.inputs import plain, position
from research.benchmarks.exact.rotary import rotary_frequencies

__all__ = ["FREQUENCIES", "ROTATIONS", "TABLES", "changed", "embedded", "frequencies", "rotated"]

PLACES = ("normal", "kinks", "factor near one", "extremes")
MOST = 2**53


def _parameters(kind: str, place: str, widths: Sequence[int], rng: Generator) -> Options:
    """Parameters of a kind, which may make no sense."""
    meaning, domains = conventions("rotary_frequencies", rng), DOMAINS["rotary_frequencies"]
    parameters_said = drawn(
        "rotary_frequencies", rng, {"head_dim": widths}, domains.get(kind, domains["everyday"]), meaning
    ).options
    if place == "normal":
        return parameters_said
    length = "max_position_embeddings" if kind == "dynamic" else "original_max_position_embeddings"
    base = float(10.0 ** (rng.uniform(0.001, 300) if place == "extremes" else rng.uniform(0.1, 7)))
    factor = float(10.0 ** (rng.uniform(-150, 150) if place == "extremes" else rng.uniform(-1, 2)))
    if place == "factor near one":
        factor = float(1 + rng.choice([-1, 1]) * 2.0 ** -rng.uniform(2, 53))
    longest = int(2.0 ** rng.uniform(1, 52 if place == "extremes" else 20))
    nearness = (
        1 + rng.choice([0.0, 2.0 ** -rng.uniform(20, 53), -(2.0 ** -rng.uniform(20, 53)), 0.3])
        if place == "kinks"
        else 1.3
    )
    channels: int = parameters_said["rotary_dim"] if "rotary_dim" in parameters_said else parameters_said["head_dim"]
    turns = longest * base ** (-2 * int(rng.integers(channels // 2)) / channels) / (2 * pi) * nearness
    parameters_said |= {
        name: x for name, x in {"factor": factor, length: longest}.items() if name in parameters_said
    } | {"base": base}
    if "seq_len" in parameters_said:
        parameters_said["seq_len"] = (
            min(int(rng.choice([longest - 1, longest, longest + 1, int(longest * 2.0 ** rng.uniform(-2, 10))])), MOST)
            or 1
        )
    ends = {"yarn": ("beta_slow", "beta_fast"), "llama3": ("low_freq_factor", "high_freq_factor")}
    if kind in ends and not (kind == "yarn" and rng.random() < 0.3):
        parameters_said |= dict(
            zip(ends[kind], (turns, turns * float(rng.choice([1.0, 1 + 2.0**-40, rng.uniform(1, 40)]))), strict=True)
        )
    if kind == "proportional":
        parameters_said["partial_rotary_factor"] = float(rng.choice([0.0, 0.3, 1.0, rng.random()]))
    if kind == "yarn" and factor > 1 and rng.random() < 0.2:
        zero = -10 / np.log(factor)  # where m(s, x) is 0
        parameters_said |= {"mscale": float(zero), "mscale_all_dim": float(zero * (1 + 1e-9))}
    if "attention_factor" in parameters_said and rng.random() < 0.5:
        parameters_said["attention_factor"] = float(rng.standard_normal() * 10.0 ** rng.uniform(-300, 300))
    return parameters_said


def sensible(parameters_said: Options) -> bool:
    """Whether the definition has a value for these parameters, and balls decide which; a factor is
    above 0, even where it is not read.
    """
    if parameters_said.get("factor", 1.0) <= 0:
        return False
    try:
        rotary_frequencies(parameters_said)
    except (ValueError, ZeroDivisionError):
        return False
    return True


def parameters(kind: str, place: str, rng: Generator, widths: Sequence[int] = range(4, 18, 2)) -> Options:
    """Parameters of a kind that make sense; all channels rotate where only one width is asked for."""
    while True:
        parameters_said = _parameters(kind, place, widths, rng)
        if (
            parameters_said["kind"] == kind
            and not (len(widths) == 1 and "rotary_dim" in parameters_said)
            and sensible(parameters_said)
        ):
            return parameters_said


def _nudged(parameters_said: Options, rng: Generator) -> Options:
    """The parameters with one small change, or without it if the changed parameters make no sense."""
    names = [
        name
        for name, x in parameters_said.items()
        if type(x) in (int, float) and name not in ("head_dim", "rotary_dim")
    ]
    name = names[int(rng.integers(len(names)))] if names else "base"
    x = parameters_said.get(name, 10000.0)
    if isinstance(x, int):
        y: float = int(min(max(x + int(rng.choice([-1, 1])) * int(2.0 ** rng.uniform(0, 20)), 1), MOST))
    else:
        y = float(x * rng.choice([1 + rng.standard_normal() * 2.0 ** -rng.uniform(0, 52), 2.0 ** rng.integers(-3, 4)]))
    nudged = parameters_said | {name: y}
    return nudged if np.isfinite(y) and sensible(nudged) else parameters_said


def frequencies(kind: str, place: str, rng: Generator) -> Call:
    """A call of `rotary_frequencies`."""
    return Call("rotary_frequencies", {}, parameters(kind, place, rng))


FREQUENCIES = {f"{kind}, {place}": partial(frequencies, kind, place) for kind in KINDS for place in PLACES}
"""The families of `rotary_frequencies`."""


# -- Rotations -------------------------------------------------------------------------------------

ROTATIONS = ("by conventions", "everyday", "quarter turns", "all sizes", "mixed", *(f"of {kind}" for kind in KINDS))
"""What frequencies a rotation is given: none, those that the strategies draw, numbers, or the enclosures of a kind."""
TABLES = ROTATIONS[1:]
"""The same, for tables."""


def _given(family: str, pairs: int, positions: Any, rng: Generator) -> Array:
    """Frequencies as numbers."""
    match family:
        case "quarter turns":  # p·f is a multiple of π/2 but for rounding
            p = max(int(np.abs(positions).max(initial=1)), 1)
            return np.array([float(rng.integers(1, 9)) * pi / 2 / p for _ in range(pairs)])
        case "all sizes":
            return np.asarray(rng.standard_normal(pairs) * 10.0 ** rng.uniform(-300, 280, pairs))
        case _:
            return np.asarray(rng.choice([0.0, 1.0, 0.25, -0.3, 7.1, 1e-5, 3e4, 2.0**-1074], pairs))


def _far(positions: Any, rng: Generator) -> Any:
    """As drawn, any to ±2⁵³, or one of these and its neighbours."""
    kind = int(rng.integers(3))
    if kind == 1:
        positions = position(rng) + np.arange(positions.size).reshape(positions.shape)
    elif kind == 2:
        positions = np.array([position(rng) for _ in range(positions.size)], dtype=np.int64).reshape(positions.shape)
    return positions * int(rng.choice([-1, 1]))


def rotated(operation: str, family: str, rng: Generator) -> Call:
    """A call with the positions and the frequencies of a family. The frequencies of a kind come
    with their attention factor.
    """
    meaning, domain = (
        conventions(operation, rng),
        DOMAINS[operation].get(ROTATIONS_OF_MODELS, DOMAINS[operation]["everyday"]),
    )
    while True:
        call = drawn(operation, rng, {"head_dim": range(2, 10, 2)}, domain, meaning, int(rng.random() < 0.25))
        parameters_said = call.options | {name: x for name, x in call.arrays.items() if name == "inv_freq"}
        arrays = {name: plain(rng, x.shape) for name, x in call.arrays.items() if name in ("x", "grad_out")}
        channels: int = (
            parameters_said["rotary_dim"]
            if "rotary_dim" in parameters_said
            else arrays["x"].shape[-1]
            if arrays
            else 2 * len(parameters_said["inv_freq"])
        )
        pairs = channels // 2
        if 2 <= pairs <= 8 and not (family == "by conventions" and "inv_freq" in parameters_said):
            break
    if arrays:
        rows = np.arange(arrays["x"].shape[-2])
        parameters_said |= {
            "rotary_dim": 2 * pairs,
            "positions": parameters_said.get(
                "positions",
                np.stack([rows] * len(parameters_said["sections"])) if "sections" in parameters_said else rows,
            ),
        }
        del parameters_said["start_pos"]
    parameters_said["positions"] = _far(parameters_said["positions"], rng)
    if family == "by conventions":
        parameters_said["conventions"] = replace(
            meaning, rope_base=float(10.0 ** rng.uniform(0, 8)), rope_scale=float(10.0 ** rng.uniform(-3, 3))
        )
    elif family.startswith("of "):
        parameters_said["inv_freq"] = parameters(
            family.removeprefix("of "), str(rng.choice(PLACES[:3])), rng, (2 * pairs,)
        )
        parameters_said.pop("attention_factor", None)
    elif family != "everyday":
        parameters_said["inv_freq"] = _given(family, pairs, parameters_said["positions"], rng)
    if "attention_factor" in parameters_said and rng.random() < 0.5:
        parameters_said["attention_factor"] = float(
            rng.choice([0.0, -0.5, 1 + 2.0**-52, 10.0 ** rng.uniform(-300, 290)])
        )
    return Call(operation, arrays, parameters_said)


def embedded(rng: Generator) -> Call:
    """Queries and keys, rotated by a kind of frequencies."""
    call = drawn("rotary_embedding", rng, {"head_dim": (4, 6)}, meant=conventions("rotary_embedding", rng))
    arrays = {name: plain(rng, call.arrays[name].shape) for name in "qk"}
    return Call(call.operation, arrays, call.options | {n: x for n, x in call.arrays.items() if n not in arrays})


def changed(call: Call, rng: Generator) -> Call:
    """The call with one thing changed: an entry of an array or of frequencies, a position, the
    attention factor, or a parameter.
    """
    parameters_said = call.options
    if "kind" in parameters_said:
        return replace(call, options=_nudged(parameters_said, rng))
    if call.arrays and rng.random() < 0.4:
        return changed_array(call, rng)
    if rng.random() < 0.5:
        positions = parameters_said["positions"] + rng.integers(-3, 4) * rng.choice(
            [0, 1], parameters_said["positions"].shape
        )
        return replace(call, options=parameters_said | {"positions": np.clip(positions, -MOST, MOST)})
    frequencies_given = parameters_said.get("inv_freq")
    if isinstance(frequencies_given, Mapping):
        return replace(call, options=parameters_said | {"inv_freq": _nudged(dict(frequencies_given), rng)})
    if frequencies_given is not None and rng.random() < 0.7:
        return replace(call, options=parameters_said | {"inv_freq": mutated(frequencies_given[None], rng)[0]})
    return replace(
        call,
        options=parameters_said
        | {"attention_factor": float(parameters_said.get("attention_factor", 1.0) * (1 + rng.standard_normal()))},
    )
