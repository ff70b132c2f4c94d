"""Trials of rotary frequencies, of rotations and of tables, in the arithmetics in which their angles differ."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.random import Generator

import oracles
from oracles import Arithmetic
from oracles.formats import BINARY32, BINARY64
from oracles.tests.simulated.frequencies import FORMS, FrequencyKernel
from oracles.tests.simulated.rounding import rounding
from properties.strategies.climb import Array
from research.benchmarks.attack import frequencies
from research.benchmarks.attack.calls import Call
from research.benchmarks.attack.plain_budgets import held
from spec.extended.rotary import mrope_axes

__all__ = [
    "ARITHMETICS",
    "RotaryTrial",
    "changed",
    "draw_frequencies",
    "draw_rotation",
    "draw_tables",
    "inv_freq",
    "rotation",
    "tables",
]

ARITHMETICS = ("float64", "float32", "float16", "bfloat16", "bfloat16-elementwise", "float32, flushing")
CHOICES = FORMS | {"factor": ("before", "after", "operands"), "trigonometry": ("near", "random")}
"""Where the attention factor is multiplied: with tables before these are stored, or after, or with what they rotate."""


@dataclass(frozen=True)
class RotaryTrial:
    """A call, what the kernel does by the names of `CHOICES`, and a seed for what is random in it."""

    call: Call
    form: dict[str, str]
    seed: int


def _trial(call: Call, a: Arithmetic, rng: Generator) -> RotaryTrial:
    call = replace(call, arrays={name: held(x, a) for name, x in call.arrays.items()})
    return RotaryTrial(
        call, {name: str(rng.choice(values)) for name, values in CHOICES.items()}, int(rng.integers(2**31))
    )


def draw_frequencies(family: str, a: Arithmetic, rng: Generator) -> RotaryTrial:
    """Parameters of a kind."""
    return _trial(frequencies.FREQUENCIES[family](rng), a, rng)


def draw_rotation(family: str, a: Arithmetic, rng: Generator) -> RotaryTrial:
    """What is rotated forward and back, at positions."""
    return _trial(frequencies.rotated("rope_vjp", family, rng), a, rng)


def draw_tables(family: str, a: Arithmetic, rng: Generator) -> RotaryTrial:
    """Positions and frequencies."""
    return _trial(frequencies.rotated("rotary_tables", family, rng), a, rng)


def changed(trial: RotaryTrial, a: Arithmetic, rng: Generator) -> RotaryTrial:
    """The trial with one thing changed: of the call, a choice of the form, or the seed."""
    match int(rng.integers(6)):
        case 0:
            name = str(rng.choice(list(CHOICES)))
            return replace(trial, form=trial.form | {name: str(rng.choice(CHOICES[name]))})
        case 1:
            return replace(trial, seed=int(rng.integers(2**31)))
    call = frequencies.changed(trial.call, rng)
    return replace(trial, call=replace(call, arrays={name: held(x, a) for name, x in call.arrays.items()}))


def _excess(budget: Any, results: Array) -> float:
    return float(budget.excess(results).max(initial=0.0))


def inv_freq(a: Arithmetic, trial: RotaryTrial) -> dict[str, float]:
    """error ÷ budget of the frequencies and of the attention factor."""
    budgets = oracles.rotary_frequencies(**trial.call.options, arithmetic=a)
    results = FrequencyKernel(a.angle.frequency, trial.form, trial.seed).computed(trial.call.options)
    return {
        name: _excess(budget, x.reshape(budget.mid.shape))
        for name, budget, x in zip(("inv_freq", "factor"), budgets, results, strict=True)
    }


def _said(a: Arithmetic, trial: RotaryTrial) -> tuple[dict[str, Any], Array | None, float]:
    """What the oracle is given, and the frequencies and the attention factor that the kernel has."""
    options = dict(trial.call.options)
    if not isinstance(given_frequencies := options.get("inv_freq"), Mapping):
        return options, given_frequencies, options.get("attention_factor", 1.0)
    options["inv_freq"], options["attention_factor"] = oracles.rotary_frequencies(**given_frequencies, arithmetic=a)
    f, factor = FrequencyKernel(a.angle.frequency, trial.form, trial.seed).computed(dict(given_frequencies))
    return options, f, float(factor[0])


def _promised(options: dict[str, Any]) -> bool:
    """Whether something is known of the frequencies and the attention factor: a rotation by others is refused."""
    enclosures = (options.get(name) for name in ("inv_freq", "attention_factor"))
    return all(np.isfinite(enclosure.rad).all() for enclosure in enclosures if isinstance(enclosure, oracles.Enclosure))


def _format(u: float) -> Any:
    return BINARY64 if u <= BINARY64.unit_roundoff else BINARY32


def _cos_sin(a: Arithmetic, trial: RotaryTrial, f: Array | None, pairs: int) -> tuple[Array, Array]:
    """Cosines and sines (…, pairs) before they are stored."""
    options, c = trial.call.options, trial.call.options["conventions"]
    held_f, product = rounding(_format(a.angle.frequency)), rounding(_format(a.angle.product))
    if f is None:
        f = FrequencyKernel(a.angle.frequency, trial.form, trial.seed).powers(2 * pairs, c.rope_base)
        f = held_f(held_f(np.array(c.rope_scale)) * f)
    f, p = held_f(f), product(options["positions"].astype(np.float64))
    if options.get("sections") is not None:
        axes = mrope_axes(pairs, options["sections"], c.mrope)
        p = np.moveaxis(p[axes], 0, -1)
    else:
        p = p[..., None]
    theta = product(p * f)
    signs = np.random.default_rng(trial.seed).choice([-1.0, 1.0], (2, *theta.shape))
    room = 0.9 * a.trig_absolute * (trial.form["trigonometry"] == "random")
    return np.cos(theta) + signs[0] * room, np.sin(theta) + signs[1] * room


def _scaled(a: Arithmetic, trial: RotaryTrial, table: Array, factor: float) -> Array:
    """The stored table, with the attention factor if the form multiplies it into the table."""
    stored_as, work = rounding(a.angle.table, a.flush_to_zero), rounding(a.elementwise, a.flush_to_zero)
    if factor == 1 or trial.form["factor"] == "operands":
        return stored_as(table)
    m = work(np.array(factor))
    return stored_as(work(work(table) * m)) if trial.form["factor"] == "before" else work(stored_as(table) * m)


def rotation(a: Arithmetic, trial: RotaryTrial) -> dict[str, float]:
    """error ÷ budget of the rotated array, and of its gradient."""
    options, f, factor = _said(a, trial)
    if not _promised(options):
        return {"rope": 0.0, "rope_vjp": 0.0}
    x, g, channels = trial.call.arrays["x"], trial.call.arrays["grad_out"], options["rotary_dim"]
    cos, sin = (_scaled(a, trial, table, factor) for table in _cos_sin(a, trial, f, channels // 2))
    results = {
        "rope": _rotated(a, trial, x, cos, sin, factor),
        "rope_vjp": _rotated(a, trial, g, cos, -sin, factor),
    }
    budgets = {
        "rope": oracles.rope(x, **options, arithmetic=a),
        "rope_vjp": oracles.rope_vjp(x, g, **options, arithmetic=a),
    }
    return {name: _excess(budgets[name], y) for name, y in results.items()}


def _rotated(a: Arithmetic, trial: RotaryTrial, x: Array, cos: Array, sin: Array, factor: float) -> Array:
    options, work = trial.call.options, rounding(a.elementwise, a.flush_to_zero)
    channels, y = options["rotary_dim"], x.copy()
    half = options["conventions"].rope_pairing == "half"
    first, second = (
        (slice(0, channels // 2), slice(channels // 2, channels))
        if half
        else (slice(0, channels, 2), slice(1, channels, 2))
    )
    b, c = x[..., first], x[..., second]
    if trial.form["factor"] == "operands" and factor != 1:
        m = work(np.array(factor))
        b, c = work(b * m), work(c * m)
    y[..., first] = work(work(b * cos) - work(c * sin))
    y[..., second] = work(work(c * cos) + work(b * sin))
    y[..., :channels] = rounding(a.output, a.flush_to_zero)(
        y[..., :channels]
    )  # the others are copied, which flushes nothing
    return y


def tables(a: Arithmetic, trial: RotaryTrial) -> dict[str, float]:
    """error ÷ budget of cosines and sines for both channels of each pair."""
    options, f, factor = _said(a, trial)
    assert f is not None
    if not _promised(options):
        return {"cos": 0.0, "sin": 0.0}
    trial = replace(
        trial, form=trial.form | {"factor": "before" if trial.form["factor"] == "operands" else trial.form["factor"]}
    )
    half = options["conventions"].rope_pairing == "half"
    results = [_scaled(a, trial, table, factor) for table in _cos_sin(a, trial, f, len(f))]
    results = [np.concatenate([y, y], axis=-1) if half else np.repeat(y, 2, axis=-1) for y in results]
    budgets = oracles.rotary_tables(**options, arithmetic=a)
    return {name: _excess(budget, y) for name, budget, y in zip(("cos", "sin"), budgets, results, strict=True)}
