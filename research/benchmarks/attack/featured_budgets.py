"""Trials of attention with features: the inputs of `plain_budgets` with random features, and
families that aim at one feature.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

import oracles
from oracles import Arithmetic
from oracles.tests.simulated.features import FeaturedKernel, Features
from oracles.tests.simulated.forms import Form, any_form, other_form
from oracles.tests.simulated.rounding import rounding
from properties.strategies.climb import Array, mutated
from research.benchmarks.attack import features, plain_budgets
from research.benchmarks.attack.calls import Call, fitting, mixed, redrawn
from research.benchmarks.attack.features import INPUTS
from research.benchmarks.attack.inputs import Operands
from research.benchmarks.attack.plain_budgets import any_sizes, held
from research.benchmarks.exact.reading import Reading, read

__all__ = ["FAMILIES", "FeaturedTrial", "changed", "draw", "forward", "gradients", "tangents"]


@dataclass(frozen=True)
class FeaturedTrial:
    """Arrays by the names of arguments, q (H, n_q, d); options; the form of the kernel and its seed."""

    arrays: dict[str, Array]
    options: dict[str, Any]
    form: Form
    seed: int = 0

    def given(self, *further: str) -> dict[str, Any]:
        """The arguments of an oracle: the inputs, and further arrays."""
        return {name: x for name, x in self.arrays.items() if name in (*INPUTS, *further)} | self.options


# -- Families --------------------------------------------------------------------------------------

Aim = Callable[[Generator, dict[str, Array], dict[str, Any]], None]


def _scores(arrays: dict[str, Array], options: dict[str, Any]) -> Array:
    """(H, n_q, n_k) scores, within the range of most formats."""
    return np.clip(features.scores(arrays, options.get("scale")), -1e30, 1e30)


def _cap(x: float) -> float:
    """A cap that binary32 holds: in 16 bits it is rounded."""
    return float(np.float32(np.clip(x, 1e-4, 6e4)))


def near_the_cap(rng: Generator, arrays: dict[str, Array], options: dict[str, Any]) -> None:
    """Scores about as large as the cap."""
    options["softcap"] = _cap(np.abs(_scores(arrays, options)).max() * rng.uniform(0.2, 4))


def beyond_the_cap(rng: Generator, arrays: dict[str, Array], options: dict[str, Any]) -> None:
    """Scores of many caps."""
    options["softcap"] = _cap(np.abs(_scores(arrays, options)).max() * 10.0 ** -rng.uniform(0.5, 3))


def far_below_the_cap(rng: Generator, arrays: dict[str, Array], options: dict[str, Any]) -> None:
    """Scores so small beside the cap that the quotient underflows."""
    options["softcap"] = _cap(np.abs(_scores(arrays, options)).max() * 10.0 ** rng.uniform(1, 6))


def blocked_to_the_cap(rng: Generator, arrays: dict[str, Array], options: dict[str, Any]) -> None:
    """Scores near the cap, and masked ones that come to −c and take part."""
    near_the_cap(rng, arrays, options)
    options["causal"], options["conventions"] = True, replace(options["conventions"], softcap_order="after_mask")


def dominating_sink(rng: Generator, arrays: dict[str, Array], options: dict[str, Any]) -> None:
    """Sinks above all scores."""
    arrays["sink"] = _scores(arrays, options).max(axis=(-2, -1)) + rng.uniform(0, 60)


def vanishing_sink(rng: Generator, arrays: dict[str, Array], options: dict[str, Any]) -> None:
    """Sinks below all scores."""
    arrays["sink"] = _scores(arrays, options).min(axis=(-2, -1)) - rng.uniform(0, 100)


def cancelling_bias(rng: Generator, arrays: dict[str, Array], options: dict[str, Any]) -> None:
    """Biases that take the scores away."""
    arrays["bias"] = -_scores(arrays, options) + rng.standard_normal(_scores(arrays, options).shape)
    options.pop("softcap", None)


def cotangent_of_lse(rng: Generator, arrays: dict[str, Array], options: dict[str, Any]) -> None:
    """Cotangents of the log-sum-exp alone, or such that dU is all but 0 where a key has all the weight."""
    if rng.random() < 0.5:
        arrays["grad_out"] = 0 * arrays["grad_out"]
    arrays["grad_lse"] = rng.standard_normal(arrays["q"].shape[:-1]) * 10.0 ** rng.uniform(-2, 3)


def cancelling_lse(rng: Generator, arrays: dict[str, Array], options: dict[str, Any]) -> None:
    """A cotangent of the log-sum-exp that takes dP − delta away, at one key; both may be large."""
    arrays["grad_out"] = arrays["grad_out"] * 10.0 ** rng.choice([0.0, rng.uniform(0, 5)])
    for name in ("mask", "softcap", "window", "causal", "offset"):
        options.pop(name, None)
    arrays.pop("bias", None)
    s, group = _scores(arrays, options), len(arrays["q"]) // len(arrays["k"])
    sink = arrays.setdefault("sink", s.max(axis=(-2, -1)) + rng.uniform(-5, 5))[:, None, None]
    e = np.exp(s - np.maximum(s.max(axis=-1, keepdims=True), sink))
    dp = arrays["grad_out"] @ np.repeat(arrays["v"], group, axis=0).swapaxes(-1, -2)
    delta = (e * dp).sum(-1) / (e.sum(-1) + np.exp(sink - np.maximum(s.max(axis=-1, keepdims=True), sink))[..., 0])
    arrays["grad_lse"] = delta - dp[..., int(rng.integers(dp.shape[-1]))]


def cancelling_heads(rng: Generator, arrays: dict[str, Array], options: dict[str, Any]) -> None:
    """Query heads that are nearly equal, with cotangents of alternating sign: their contributions
    to the gradients of the shared keys cancel.
    """
    n_heads = len(arrays["q"])
    arrays["q"] = arrays["q"][:1] * (1 + 0.01 * rng.standard_normal((n_heads, 1, 1)))
    arrays["grad_out"] = arrays["grad_out"][:1] * np.where(np.arange(n_heads) % 2, -1.0, 1.0)[:, None, None]
    options.pop("mask", None)


def rows_without_keys(rng: Generator, arrays: dict[str, Array], options: dict[str, Any]) -> None:
    """Fully masked rows among others, under the convention that they give every key the same
    weight, with or without derivatives. In some trials a bias of −∞ masks the keys.
    """
    n_heads, n_q, n_k = _scores(arrays, options).shape
    visible = np.broadcast_to(rng.random((n_heads, n_q, 1)) < 0.5, (n_heads, n_q, n_k))
    options["conventions"] = replace(
        options["conventions"],
        dead_rows="uniform",
        dead_gradients=str(rng.choice(["stop", "flow"])),
        mask_polarity="true_allows",
        causal_with_mask="compose",
    )
    if rng.random() < 0.3:
        arrays["bias"] = np.where(visible, rng.standard_normal((1, n_k)), -np.inf)
    else:
        options["mask"] = visible & (rng.random((n_heads, n_q, n_k)) < rng.choice([0.6, 1.0]))
    arrays.pop("sink", None)


_AIMS: tuple[Aim, ...] = (
    near_the_cap, beyond_the_cap, far_below_the_cap, blocked_to_the_cap, dominating_sink, vanishing_sink,
    cancelling_bias, cotangent_of_lse, cancelling_lse, cancelling_heads, rows_without_keys,
)  # fmt: skip
AIMS: dict[str, Aim] = {f.__name__.replace("_", " "): f for f in _AIMS}
FAMILIES = (*plain_budgets.FAMILIES, *AIMS)
"""Families of inputs, with features at random, and those aimed at a feature."""


def draw(family: str, a: Arithmetic, rng: Generator) -> FeaturedTrial:
    """A trial."""
    q, k, v, g = plain_budgets.FAMILIES[family if family not in AIMS else "normal"](rng, *any_sizes(a, rng))
    call = features.around("attention_vjp", Operands(q, k, v, scale=None), rng)
    arrays, options = call.arrays, _options(a, rng, call.arrays, call.options)
    arrays["grad_out"] = features.variants(g, arrays["q"].shape[:-2], rng)
    if "bias" in arrays:
        arrays["bias"] = arrays["bias"] * rng.choice([0.1, 1.0, 10.0])
    if "grad_lse" in arrays:
        arrays["grad_lse"] = arrays["grad_lse"] * 10.0 ** rng.uniform(-2, 2)
    if family in AIMS:
        AIMS[family](rng, arrays, options)
    tangents = {
        f"d{name}": rng.standard_normal(arrays[name].shape) * 10.0 ** rng.uniform(-2, 2)
        for name in INPUTS
        if name in arrays and name != "alibi"
    }
    arrays = {name: _held(x, a) for name, x in (arrays | tangents).items()}
    return FeaturedTrial(arrays, fitting(options), any_form(a, rng), int(rng.integers(2**31)))


def _options(a: Arithmetic, rng: Generator, arrays: dict[str, Array], drawn: dict[str, Any]) -> dict[str, Any]:
    """The options with a scale that the format holds, and a cap that binary32 holds."""
    results = {name: x for name, x in drawn.items() if name not in ("dropout_mask", "dropout")}
    if "scale" in results:
        results["scale"] = float(rounding(a.elementwise)(np.array(results["scale"])))
    if "softcap" in results:
        near_the_cap(rng, arrays, results)
    return results


def _held(x: Array, a: Arithmetic) -> Array:
    """The nearest numbers that the inputs' format holds; a bias or a sink of −∞ is one."""
    return np.where(x == -np.inf, x, held(x, a))


def changed(trial: FeaturedTrial, a: Arithmetic, rng: Generator) -> FeaturedTrial:
    """The trial with one thing changed: something of an array, the cap, another option, a field of
    the form, or the seed.
    """
    options = trial.options
    match int(rng.integers(20)):
        case 0 | 1 | 2 | 3 | 4:
            return replace(trial, form=other_form(trial.form, a, rng))
        case 5:
            return replace(trial, seed=int(rng.integers(2**31)))
        case 6 | 8:
            inputs = {name: trial.arrays[name] for name in INPUTS if name in trial.arrays}
            redrawn_call = redrawn(Call("attention", inputs, options), rng)
            return replace(trial, options=mixed(options, _options(a, rng, inputs, redrawn_call), rng))
        case 7 if "softcap" in options:
            return replace(trial, options=options | {"softcap": _cap(options["softcap"] * 2.0 ** rng.uniform(-2, 2))})
    name = list(trial.arrays)[int(rng.integers(len(trial.arrays)))]
    x = trial.arrays[name]
    return replace(
        trial, arrays=trial.arrays | {name: _held(mutated(x.reshape(-1, x.shape[-1]), rng).reshape(x.shape), a)}
    )


# -- error ÷ budget --------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Rows:
    """The rows of the query heads that share a key head, without the fully masked rows that have no
    weights: their places among all rows of these heads, the kernel, and its operands.
    """

    places: NDArray[np.int64]
    kernel: FeaturedKernel
    x: dict[str, Array]


def _problems(a: Arithmetic, trial: FeaturedTrial, reading: Reading) -> list[_Rows]:
    """One for each key head, heads in the definitions' order."""
    n_heads, n_q, n_k = reading.visible.shape
    kv_heads = trial.arrays["k"].shape[-3]
    group, conventions = n_heads // kv_heads, reading.conventions
    is_alone = trial.options.get("causal") and conventions.causal_with_mask == "causal_alone"
    ignored = ("bias", "dbias") if is_alone else ()

    def spread(name: str, axes: Any, columns: int) -> Array | None:
        if name not in trial.arrays or name in ignored:
            return None
        x = reading.meant(trial.arrays[name][axes])
        if name == "bias":
            x = np.where(x == -np.inf, 0.0, x)  # which keys are read is said besides
        return np.asarray(np.broadcast_to(x, (n_heads, n_q, columns)).reshape(kv_heads, group * n_q, columns))

    of_head, of_row, whole = (slice(None), None, None), (slice(None), slice(None), None), (...,)
    by_row = {
        "bias": spread("bias", whole, n_k), "sink": spread("sink", of_head, 1), "of_lse": spread("grad_lse", of_row, 1),
        "dbias": spread("dbias", whole, n_k), "dsink": spread("dsink", of_head, 1),
        "slope": spread("alibi", of_head, 1),
    }  # fmt: skip
    steps = np.broadcast_to(reading.steps, (n_heads, n_q, n_k)).reshape(kv_heads, group * n_q, n_k)
    alike = reading.dead & (conventions.dead_rows == "uniform")
    left_out = (reading.dead & ~alike).reshape(kv_heads, group * n_q)
    reads = (reading.visible | alike[..., None]).reshape(kv_heads, group * n_q, n_k)
    results = []
    for j in range(kv_heads):
        places = np.flatnonzero(~left_out[j])
        visible = reads[j][places]
        given = Features(
            trial.options.get("softcap"),
            conventions.softcap_order != "before_bias",
            base=conventions.lse_base,
            blocked=~visible if reading.everything else None,
            heads=places // n_q,
            alone=conventions.lse_sink == "excluded" and "sink" in trial.arrays,
            alike=alike.reshape(kv_heads, -1)[j][places][:, None],
            flows=conventions.dead_rows_flow,
            steps=steps[j][places],
            **{name: None if x is None else x[j][places] for name, x in by_row.items()},
        )
        keyless = not (visible.any(axis=1).all() or reading.everything)
        form = replace(trial.form, sink="last") if keyless and trial.form.sink == "apart" else trial.form
        scale = reading.said["scale"]
        factor = trial.arrays["q"].shape[-1] ** -0.5 if scale is None else scale
        kernel = FeaturedKernel(form, a, factor, None if reading.everything else visible, given, trial.seed)
        of_rows = {
            name: reading.meant(trial.arrays[name]).reshape(kv_heads, group * n_q, -1)[j][places]
            for name in ("q", "dq", "grad_out") if name in trial.arrays
        }  # fmt: skip
        results.append(
            _Rows(places, kernel, of_rows | {name: trial.arrays[name][j] for name in ("k", "v", "dk", "dv")})
        )
    return results


def _gathered(
    trial: FeaturedTrial, reading: Reading, parts: list[tuple[NDArray[np.int64], Array]], dead: float
) -> Array:
    """The results of all rows (…, H, n_q, ·) in the caller's order of heads, from the results of
    each key head and their places. Rows without a place have the value `dead`.
    """
    n_heads, n_q, _ = reading.visible.shape
    whole = np.full((len(parts), n_heads * n_q // len(parts), parts[0][1].shape[-1]), dead)
    for j, (places, x) in enumerate(parts):
        whole[j, places] = x
    return reading.given(whole.reshape(n_heads, n_q, -1))


def _excess(budget: Any, results: Array) -> float:
    return float(budget.excess(results.reshape(budget.mid.shape)).max(initial=0.0))


def forward(a: Arithmetic, trial: FeaturedTrial) -> dict[str, float]:
    """Of the output and the log-sum-exp."""
    reading = read(trial.given())
    outputs, log_sums = [], []
    for problem in _problems(a, trial, reading):
        q, k, v = (problem.x[name] for name in ("q", "k", "v"))
        found = problem.kernel.forward(q, k, v)
        lse = problem.kernel.alone.forward(q, k, v).lse if problem.kernel.of.alone else found.lse
        outputs.append((problem.places, rounding(a.output, a.flush_to_zero)(found.out)))
        log_sums.append((problem.places, problem.kernel.returned(lse, trial.form.base)))
    budgets = oracles.attention(**trial.given(), arithmetic=a)
    value = np.nan if reading.conventions.dead_rows == "nan" else 0.0
    results = _gathered(trial, reading, outputs, value), _gathered(trial, reading, log_sums, -np.inf)
    return {name: _excess(budget, found) for name, budget, found in zip(("out", "lse"), budgets, results, strict=True)}


def gradients(a: Arithmetic, trial: FeaturedTrial) -> dict[str, float]:
    """Of the gradients of all inputs."""
    reading = read(trial.given())
    problems = _problems(a, trial, reading)
    results = [
        problem.kernel.gradients(*(problem.x[name] for name in ("q", "k", "v", "grad_out"))) for problem in problems
    ]
    budgets = oracles.attention_vjp(**trial.given("grad_out", "grad_lse"), arithmetic=a)

    def parts(i: int) -> list[Array]:
        return [x for kernel_gradients in results if (x := kernel_gradients[i]) is not None]

    def of_rows(i: int) -> Array:
        return _gathered(
            trial, reading, [(problem.places, x) for problem, x in zip(problems, parts(i), strict=True)], 0.0
        )

    excess = {"dq": _excess(budgets[0], of_rows(0))}
    excess |= {name: _excess(budgets[i], np.stack(parts(i))) for i, name in ((1, "dk"), (2, "dv"))}
    shared = problems[0].kernel.shared
    if problems[0].kernel.of.bias is not None:
        excess["dbias"] = _excess(budgets[3], shared(of_rows(3), trial.arrays["bias"].shape))
    if "sink" in trial.arrays:
        excess["dsink"] = _excess(budgets[4], shared(of_rows(4), (len(trial.arrays["sink"]), 1, 1)))
    return excess


def tangents(a: Arithmetic, trial: FeaturedTrial) -> dict[str, float]:
    """Of the tangents of both results."""
    reading = read(trial.given())
    outputs, log_sums = [], []
    for problem in _problems(a, trial, reading):
        operands = [problem.x[name] for name in ("q", "k", "v", "dq", "dk", "dv")]
        dout, dlse = problem.kernel.moved(*operands)
        if problem.kernel.of.alone:
            dlse = problem.kernel.alone.moved(*operands)[1]
        outputs.append((problem.places, rounding(a.output, a.flush_to_zero)(dout)))
        log_sums.append((problem.places, problem.kernel.returned(dlse)))
    budgets = oracles.attention_jvp(**trial.given("dq", "dk", "dv", "dbias", "dsink"), arithmetic=a)
    value = np.nan if reading.conventions.dead_rows == "nan" else 0.0
    results = _gathered(trial, reading, outputs, value), _gathered(trial, reading, log_sums, 0.0)
    return {
        name: _excess(budget, found) for name, budget, found in zip(("dout", "dlse"), budgets, results, strict=True)
    }
