"""Trials of attention as it is used today: the inputs of `plain_budgets` with features, and families aimed at one of them."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.random import Generator

import oracles
from oracles import Arithmetic, Conventions
from properties.measurements.benchmarks.attack import plain_budgets
from properties.measurements.benchmarks.attack.climb import Array, mutated
from properties.measurements.benchmarks.attack.featured_kernels import FeaturedKernel, Features
from properties.measurements.benchmarks.attack.forms import Form, any_form, other_form
from properties.measurements.benchmarks.attack.plain_budgets import any_mask, any_sizes, held
from properties.measurements.benchmarks.attack.rounding import rounding
from properties.measurements.benchmarks.exact.reading import read

__all__ = ["FAMILIES", "FeaturedTrial", "changed", "draw", "forward", "gradients", "tangents"]

INPUTS = ("q", "k", "v", "bias", "sink")


@dataclass(frozen=True)
class FeaturedTrial:
    """Arrays by the names of arguments, q (H, n_q, d) with one key head; other features; the form of the kernel and its seed."""

    arrays: dict[str, Array]
    options: dict[str, Any]
    form: Form
    seed: int = 0

    def given(self, *further: str) -> dict[str, Any]:
        """The arguments of an oracle: the inputs, and further arrays."""
        return {name: x for name, x in self.arrays.items() if name in (*INPUTS, *further)} | self.options


# -- Families ------------------------------------------------------------------------------------------------------------------

Aim = Callable[[Generator, dict[str, Array], dict[str, Any]], None]


def _scores(arrays: dict[str, Array], said: dict[str, Any]) -> Array:
    scale = said.get("scale")
    s = arrays["q"] @ arrays["k"].swapaxes(-1, -2) * (arrays["q"].shape[-1] ** -0.5 if scale is None else scale)
    return np.asarray(np.clip(s, -1e30, 1e30))


def near_the_cap(rng: Generator, arrays: dict[str, Array], said: dict[str, Any]) -> None:
    """Scores about as large as the cap."""
    said["softcap"] = float(np.float16(np.clip(np.abs(_scores(arrays, said)).max() * rng.uniform(0.2, 4), 1e-4, 6e4)))


def beyond_the_cap(rng: Generator, arrays: dict[str, Array], said: dict[str, Any]) -> None:
    """Scores of many caps."""
    said["softcap"] = float(np.float16(np.clip(np.abs(_scores(arrays, said)).max() * 10.0 ** -rng.uniform(0.5, 3), 1e-4, 6e4)))


def dominating_sink(rng: Generator, arrays: dict[str, Array], said: dict[str, Any]) -> None:
    """Sinks above all scores."""
    arrays["sink"] = _scores(arrays, said).max(axis=(-2, -1)) + rng.uniform(0, 60)


def vanishing_sink(rng: Generator, arrays: dict[str, Array], said: dict[str, Any]) -> None:
    """Sinks below all scores."""
    arrays["sink"] = _scores(arrays, said).min(axis=(-2, -1)) - rng.uniform(0, 100)


def cancelling_bias(rng: Generator, arrays: dict[str, Array], said: dict[str, Any]) -> None:
    """Biases that take the scores away."""
    arrays["bias"] = -_scores(arrays, said) + rng.standard_normal(_scores(arrays, said).shape)
    said.pop("softcap", None)


def cotangent_of_lse(rng: Generator, arrays: dict[str, Array], said: dict[str, Any]) -> None:
    """Cotangents of the log-sum-exp alone, or such that dU is all but 0 where a key has all the weight."""
    if rng.random() < 0.5:
        arrays["grad_out"] = 0 * arrays["grad_out"]
    arrays["grad_lse"] = rng.standard_normal(arrays["q"].shape[:-1]) * 10.0 ** rng.uniform(-2, 3)


AIMS: dict[str, Aim] = {
    f.__name__.replace("_", " "): f
    for f in (near_the_cap, beyond_the_cap, dominating_sink, vanishing_sink, cancelling_bias, cotangent_of_lse)
}
FAMILIES = (*plain_budgets.FAMILIES, *AIMS)
"""Families of inputs, with features at random, and those aimed at a feature."""


def draw(family: str, a: Arithmetic, rng: Generator) -> FeaturedTrial:
    """A trial."""
    n_q, n_k, d = any_sizes(a, rng)
    n_heads = int(rng.choice([1, 1, 2, 3]))
    inputs = plain_budgets.FAMILIES[family if family not in AIMS else "normal"](rng, n_q, n_k, d)
    signs = rng.choice([-1.0, 0.5, 1.0], (n_heads, 1, 1))
    arrays = {"q": signs * inputs[0], "k": inputs[1][None], "v": inputs[2][None], "grad_out": np.abs(signs) * inputs[3]}
    said: dict[str, Any] = {"conventions": _conventions(rng)}
    if rng.random() < 0.3:
        said["scale"] = float(rounding(a.elementwise)(np.array(rng.choice([1.0, 0.3, 3.0]))))
    mask = any_mask(rng, n_q, n_k)
    said |= {} if mask is None else {"mask": mask}
    if rng.random() < 0.3:
        near_the_cap(rng, arrays, said)
    if rng.random() < 0.4:
        shape = ((n_heads, n_q, n_k), (n_q, n_k), (n_heads, 1, n_k), (1, n_k), (n_q, 1), (1, 1))[int(rng.integers(6))]
        arrays["bias"] = rng.standard_normal(shape) * rng.choice([0.1, 1.0, 10.0])
    if rng.random() < 0.4:
        arrays["sink"] = rng.standard_normal(n_heads) * rng.choice([1.0, 5.0])
    if rng.random() < 0.5:
        arrays["grad_lse"] = rng.standard_normal((n_heads, n_q)) * 10.0 ** rng.uniform(-2, 2)
    if family in AIMS:
        AIMS[family](rng, arrays, said)
    tangents = {f"d{name}": rng.standard_normal(arrays[name].shape) * 10.0 ** rng.uniform(-2, 2) for name in INPUTS if name in arrays}
    arrays = {name: held(x, a) for name, x in (arrays | tangents).items()}
    return FeaturedTrial(arrays, said, any_form(a, rng), int(rng.integers(2**31)))


def _conventions(rng: Generator) -> Conventions:
    return Conventions(
        lse_base="2" if rng.random() < 0.2 else "e",
        softcap_order="after_bias" if rng.random() < 0.2 else "before_bias",
    )


def changed(trial: FeaturedTrial, a: Arithmetic, rng: Generator) -> FeaturedTrial:
    """The trial with one thing changed: something of an array, the cap, the mask, the conventions, a field of the form, or the seed."""
    options, (n_q, n_k) = trial.options, (trial.arrays["q"].shape[-2], trial.arrays["k"].shape[-2])
    match int(rng.integers(20)):
        case 0 | 1 | 2 | 3 | 4:
            return replace(trial, form=other_form(trial.form, a, rng))
        case 5:
            return replace(trial, seed=int(rng.integers(2**31)))
        case 6:
            mask = any_mask(rng, n_q, n_k)
            rest = {name: x for name, x in options.items() if name != "mask"}
            return replace(trial, options=rest | ({} if mask is None else {"mask": mask}))
        case 7 if "softcap" in options:
            cap = float(np.float16(np.clip(options["softcap"] * 2.0 ** rng.uniform(-2, 2), 1e-4, 6e4)))
            return replace(trial, options=options | {"softcap": cap})
        case 8:
            return replace(trial, options=options | {"conventions": _conventions(rng)})
    name = list(trial.arrays)[int(rng.integers(len(trial.arrays)))]
    x = trial.arrays[name]
    return replace(trial, arrays=trial.arrays | {name: held(mutated(x.reshape(-1, x.shape[-1]), rng).reshape(x.shape), a)})


# -- error ÷ budget ------------------------------------------------------------------------------------------------------------


def _kernel(a: Arithmetic, trial: FeaturedTrial) -> tuple[FeaturedKernel, dict[str, Array]]:
    """The kernel, and its operands: all heads as rows of one problem."""
    x, reading = trial.arrays, read(trial.given())
    full = reading.visible.shape
    rows = full[0] * full[1]

    def spread(name: str, shape: tuple[int, ...]) -> Array | None:
        return None if name not in x else np.broadcast_to(x[name], shape).reshape(rows, shape[-1])

    def of_rows(name: str, axes: tuple[slice | None, ...]) -> Array | None:
        return None if name not in x else np.broadcast_to(x[name][axes], (*full[:2], 1)).reshape(rows, 1)

    of_head, of_row = (slice(None), None, None), (slice(None), slice(None), None)
    features = Features(
        trial.options.get("softcap"),
        reading.conventions.softcap_order == "after_bias",
        spread("bias", full),
        of_rows("sink", of_head),
        of_rows("grad_lse", of_row),
        spread("dbias", full),
        of_rows("dsink", of_head),
        reading.conventions.lse_base,
    )
    scale = trial.options.get("scale")
    factor = x["q"].shape[-1] ** -0.5 if scale is None else scale
    kernel = FeaturedKernel(trial.form, a, factor, reading.visible.reshape(rows, -1), features, trial.seed)
    return kernel, {name: y.reshape(-1, y.shape[-1]) for name, y in x.items() if name in ("q", "k", "v", "grad_out", "dq", "dk", "dv")}


def _excess(budget: Any, found: Array) -> float:
    return float(budget.excess(found.reshape(budget.mid.shape)).max(initial=0.0))


def forward(a: Arithmetic, trial: FeaturedTrial) -> dict[str, float]:
    """Of the output and the log-sum-exp."""
    kernel, x = _kernel(a, trial)
    found = kernel.forward(x["q"], x["k"], x["v"])
    budgets = oracles.attention(**trial.given(), arithmetic=a)
    out = rounding(a.output, a.flush_to_zero)(found.out)
    return {"out": _excess(budgets[0], out), "lse": _excess(budgets[1], kernel.returned(found.lse, trial.form.base))}


def gradients(a: Arithmetic, trial: FeaturedTrial) -> dict[str, float]:
    """Of the gradients of all inputs."""
    kernel, x = _kernel(a, trial)
    *found, du, dsink = kernel.gradients(x["q"], x["k"], x["v"], x["grad_out"])
    budgets = oracles.attention_vjp(**trial.given("grad_out", "grad_lse"), arithmetic=a)
    excess = {name: _excess(budget, y) for name, budget, y in zip(("dq", "dk", "dv"), budgets[:3], found, strict=True)}
    n_heads, n_q = trial.arrays["q"].shape[:2]
    if du is not None:
        excess["dbias"] = _excess(budgets[3], kernel.shared(du.reshape(n_heads, n_q, -1), trial.arrays["bias"].shape))
    if dsink is not None:
        excess["dsink"] = _excess(budgets[4], kernel.shared(dsink.reshape(n_heads, n_q, 1), (n_heads, 1, 1)))
    return excess


def tangents(a: Arithmetic, trial: FeaturedTrial) -> dict[str, float]:
    """Of the tangents of both results."""
    kernel, x = _kernel(a, trial)
    dout, dlse = kernel.moved(*(x[name] for name in ("q", "k", "v", "dq", "dk", "dv")))
    budgets = oracles.attention_jvp(**trial.given("dq", "dk", "dv", "dbias", "dsink"), arithmetic=a)
    out = rounding(a.output, a.flush_to_zero)(dout)
    return {"dout": _excess(budgets[0], out), "dlse": _excess(budgets[1], kernel.returned(dlse))}
