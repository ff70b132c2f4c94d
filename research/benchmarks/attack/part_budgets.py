"""Trials of what surrounds attention: the merge of two parts of the keys, and ALiBi's slopes and
biases, by every form in use.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.random import Generator

import oracles
from oracles import Arithmetic, Conventions
from oracles.formats import BINARY64
from oracles.tests.simulated.attention import LN2, LOG2E
from oracles.tests.simulated.rounding import rounding
from properties.strategies.climb import Array, mutated
from research.benchmarks.attack import parts
from research.benchmarks.attack.calls import Call, mixed

__all__ = [
    "ARITHMETICS",
    "MERGES",
    "SLOPES",
    "Elementary",
    "PartTrial",
    "alibi",
    "changed",
    "draw_alibi",
    "draw_merge",
    "merge",
]

ARITHMETICS = (
    "float64",
    "float32",
    "float16",
    "bfloat16",
    "float16-elementwise",
    "bfloat16-elementwise",
    "float32, flushing",
)
MERGES = ("quotient", "weights", "by lse", "sigmoid")
SLOPES = ("power", "product", "power of the first")
ACCURACY = ("near", "above", "below", "random")


@dataclass(frozen=True)
class PartTrial:
    """Arrays and other arguments by name; which form the kernel has, its base, how its exponentials
    are off, and a seed for that.
    """

    arrays: dict[str, Array]
    options: dict[str, Any]
    form: str
    base: str
    exp: str
    seed: int = 0


@dataclass(frozen=True)
class Elementary:
    """An arithmetic's elementary functions, the nearest numbers or as far off as allowed, and its rounding."""

    a: Arithmetic
    how: str
    seed: int

    def work(self, x: Any) -> Array:
        """The nearest number."""
        return rounding(self.a.elementwise, self.a.flush_to_zero)(np.asarray(x, dtype=np.float64))

    def off(self, x: Array, relative: Any, flush: float = 0.0) -> Array:
        """x, off by a relative error that leaves room for its rounding."""
        if self.how == "near":
            return self.work(x)
        u = self.a.elementwise.unit_roundoff
        signs = np.random.default_rng(self.seed).choice([-1.0, 1.0], np.shape(x))
        signs = signs if self.how == "random" else np.where(self.how == "above", 1.0, -1.0) + 0 * signs
        room = np.where(
            np.asarray(relative) > 4 * u,
            np.asarray(relative) - 4 * u,
            np.asarray(relative) / 2 if u == BINARY64.unit_roundoff else 0.0,
        )
        return self.work(np.where((np.abs(x) < flush) & (signs < 0), 0.0, x * (1 + signs * room)))

    def exp(self, x: Array, base: str) -> Array:
        """e or 2 to the power of x."""
        size = np.where(np.isfinite(x), np.abs(x), 0.0) * (LN2 if base == "2" else 1.0)
        accuracy = self.a.exp
        return self.off(
            np.exp2(x) if base == "2" else np.exp(x), accuracy.relative + accuracy.per_unit * size, accuracy.flush
        )

    def log(self, x: Array, base: str) -> Array:
        """The logarithm of x."""
        return self.off(np.log2(x) if base == "2" else np.log(x), self.a.log)


# -- Merges ----------------------------------------------------------------------------------------


def draw_merge(family: str, a: Arithmetic, rng: Generator) -> PartTrial:
    """A trial of a merge; log-sum-exps that the format does not hold are brought within it."""
    call = parts.merged(family, rng)
    stored = a.saved_lse or a.elementwise
    arrays = {name: _held(x, a.inputs if name.startswith("out") else stored) for name, x in call.arrays.items()}
    base = str(rng.choice(["e", "2"]))
    conventions = Conventions(lse_base="2" if rng.random() < 0.3 else "e")
    return PartTrial(
        arrays,
        {"conventions": conventions},
        str(rng.choice(MERGES)),
        base,
        str(rng.choice(ACCURACY)),
        int(rng.integers(2**31)),
    )


def _held(x: Array, target: Any) -> Array:
    """The nearest numbers of a format; −∞ stays −∞."""
    return np.where(x == -np.inf, x, rounding(target)(np.clip(x, -target.largest / 4, target.largest / 4)))


def merge(a: Arithmetic, trial: PartTrial) -> dict[str, float]:
    """error ÷ budget of both results."""
    given: dict[str, Any] = trial.arrays | trial.options
    budgets = oracles.merge_attention(**given, arithmetic=a)
    results = _merged(a, trial)
    return {
        name: float(budget.excess(x).max(initial=0.0))
        for name, budget, x in zip(("out", "lse"), budgets, results, strict=True)
    }


def _merged(a: Arithmetic, trial: PartTrial) -> tuple[Array, Array]:
    """The output and the log-sum-exp of a kernel."""
    f, units = Elementary(a, trial.exp, trial.seed), trial.options["conventions"].lse_base
    work, (la, lb) = f.work, (trial.arrays["lse_a"][:, None], trial.arrays["lse_b"][:, None])
    oa, ob = (np.where(x == -np.inf, 0.0, trial.arrays[name]) for x, name in ((la, "out_a"), (lb, "out_b")))
    factor = {("e", "2"): LOG2E, ("2", "e"): LN2}.get((units, trial.base))

    def exp(x: Array) -> Array:
        return f.exp(x if factor is None else work(x * work(factor)), trial.base)

    def log(x: Array) -> Array:
        y = f.log(x, trial.base)
        return y if factor is None else work(y * work(1 / factor))

    m = np.maximum(la, lb)
    dead, m = m == -np.inf, np.where(m == -np.inf, 0.0, m)
    wa, wb = (np.where(x == -np.inf, 0.0, exp(work(x - m))) for x in (la, lb))
    total = np.where(dead, 1.0, work(wa + wb))
    lse = np.where(dead, -np.inf, work(m + log(total)))
    if trial.form == "quotient":
        out = work(work(work(wa * oa) + work(wb * ob)) / total)
    else:
        if trial.form == "weights":
            wa, wb = work(wa / total), work(wb / total)
        elif trial.form == "by lse":
            wa, wb = (np.where(x == -np.inf, 0.0, exp(work(x - np.where(dead, 0.0, lse)))) for x in (la, lb))
        else:
            wa, wb = (
                np.where(x == -np.inf, 0.0, work(1 / work(1 + exp(work(np.where(x == -np.inf, 0.0, y - x))))))
                for x, y in ((la, lb), (lb, la))
            )
        out = work(work(wa * oa) + work(wb * ob))
    stored = rounding(a.saved_lse)(lse[:, 0])
    return rounding(a.output, a.flush_to_zero)(np.where(dead, 0.0, out)), stored


# -- ALiBi -----------------------------------------------------------------------------------------


def draw_alibi(family: str, a: Arithmetic, rng: Generator) -> PartTrial:
    """A trial of "slopes" or of a "bias"."""
    call = (parts.alibi_slopes if family == "slopes" else parts.alibi_bias)(rng)
    return PartTrial(
        {},
        call.options,
        str(rng.choice(SLOPES)),
        str(rng.choice(["e", "2"])),
        str(rng.choice(ACCURACY)),
        int(rng.integers(2**31)),
    )


def alibi(a: Arithmetic, trial: PartTrial) -> dict[str, float]:
    """error ÷ budget of the slopes, or of the bias."""
    f, options = Elementary(a, trial.exp, trial.seed), trial.options
    slopes = _slopes(f, trial)
    if "n_q" not in options:
        return {"slopes": float(oracles.alibi_slopes(**options, arithmetic=a).excess(slopes).max(initial=0.0))}
    c, start = options["conventions"], options.get("offset")
    start = start if start is not None else options["n_k"] - options["n_q"] if c.causal == "bottom_right" else 0
    keys, rows = np.arange(options["n_k"]), np.arange(options["n_q"])[:, None] + start
    far = -np.abs(rows - keys) if c.alibi_reference == "distance" else keys + 0 * rows
    bias = f.work(slopes[:, None, None] * f.work(far.astype(np.float64)))
    return {"bias": float(oracles.alibi_bias(**options, arithmetic=a).excess(bias).max(initial=0.0))}


def _slopes(f: Elementary, trial: PartTrial) -> Array:
    """The slopes of a kernel: powers of 2, repeated products of the first slope, or powers of it."""
    n, conventions = trial.options["num_heads"], trial.options["conventions"]
    factor = n if conventions.alibi_slopes == "geometric" else 1 << n.bit_length() - 1

    def sequence(heads: int, count: int) -> Array:
        h = np.arange(1, count + 1)
        if trial.form == "power":
            x = f.work(-8 * h / heads)
            return f.exp(x, "2") if trial.base == "2" else f.exp(f.work(x * f.work(LN2)), "e")
        first = f.exp(f.work(np.full(1, -8 / heads)), "2")
        if trial.form == "product":
            results = [first]
            for _ in h[1:]:
                results.append(f.work(results[-1] * first))
            return np.concatenate(results)
        return f.work(first**h)

    return (
        np.concatenate([sequence(factor, factor), sequence(2 * factor, 2 * (n - factor))[::2]])
        if n > factor
        else sequence(factor, n)
    )


# -- Mutations -------------------------------------------------------------------------------------


def changed(
    forms: tuple[str, ...], fresh: Callable[[Generator], Call] | None
) -> Callable[[PartTrial, Arithmetic, Generator], PartTrial]:
    """What changes one thing of a trial: an array, an option of a fresh draw, the form, the base,
    or how functions are off.
    """

    def change(trial: PartTrial, a: Arithmetic, rng: Generator) -> PartTrial:
        match int(rng.integers(8)):
            case 0:
                return replace(trial, form=str(rng.choice(forms)))
            case 1:
                return replace(trial, base=str(rng.choice(["e", "2"])))
            case 2:
                return replace(trial, exp=str(rng.choice(ACCURACY)), seed=int(rng.integers(2**31)))
        if fresh is not None:
            return replace(trial, options=mixed(trial.options, fresh(rng).options, rng))
        name = str(rng.choice(list(trial.arrays)))
        x = trial.arrays[name]
        target = a.inputs if name.startswith("out") else a.saved_lse or a.elementwise
        y = mutated(x.reshape(-1, x.shape[-1]), rng).reshape(x.shape)
        return replace(trial, arrays=trial.arrays | {name: np.where(x == -np.inf, x, _held(y, target))})

    return change
