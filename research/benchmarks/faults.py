"""Attention with a small mistake in it: what a criterion should see.

Each fault is a function of a problem and a dtype that returns the output and the gradients as a
kernel with that mistake would. Where the mistake is in what is computed, PyTorch's math kernel
computes it; where it is in a rounding, `formula` does.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch

from research.benchmarks.kernels import DTYPES, RESULTS, Array, Problem, kernel, to_numpy, to_torch

__all__ = ["FAULTS", "Fault", "formula"]

Rounding = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Fault:
    """A mistake, in words and as a function; `dtypes` are those in which it can be made."""

    name: str
    plant: Callable[[Problem, str], dict[str, Array]]
    dtypes: tuple[str, ...] = tuple(DTYPES)


def _same(x: torch.Tensor) -> torch.Tensor:
    return x


def formula(
    problem: Problem,
    dtype: str,
    *,
    operand: Rounding = _same,
    numerator: Rounding = _same,
    weight: Rounding | None = None,
) -> dict[str, Array]:
    """Attention and its gradients in float32, written out; weights, dS and results are rounded to
    the dtype.

    A correct kernel, unless one of the roundings is given: of every operand of a product, of the
    weights before they are normalised, and of the weights after.
    """

    def stored(x: torch.Tensor) -> torch.Tensor:
        return x.to(DTYPES[dtype]).float()

    def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return operand(a) @ operand(b)

    q, k, v, g = (to_torch(x, "float32") for x in (problem.q, problem.k, problem.v, problem.g))
    scale = problem.q.shape[1] ** -0.5
    scores = product(q, k.T) * scale
    if problem.is_causal:
        scores = scores.masked_fill(~torch.ones(scores.shape, dtype=torch.bool).tril(), -torch.inf)
    numerators = torch.exp(scores - scores.max(dim=1, keepdim=True).values)
    weights = (weight or stored)(numerator(numerators) / numerators.sum(dim=1, keepdim=True))
    d_weights = product(g, v.T)
    d_scores = stored(weights * (d_weights - (weights * d_weights).sum(dim=1, keepdim=True)))
    results = product(weights, v), product(d_scores, k) * scale, product(d_scores.T, q) * scale, product(weights.T, g)
    return {name: to_numpy(stored(x)) for name, x in zip(RESULTS, results, strict=True)}


def _one_element(share: float) -> Fault:
    def plant(problem: Problem, dtype: str) -> dict[str, Array]:
        results = kernel(problem, dtype, "math")
        place = len(problem.q) // 2, problem.v.shape[1] // 2
        results["out"][place] += share * np.abs(problem.v).max()
        return results | {"out": to_numpy(to_torch(results["out"], dtype))}

    return Fault(f"one element of out off by {share:g} · max abs v", plant)


def _dropped_key(problem: Problem, dtype: str) -> dict[str, Array]:
    results = kernel(replace(problem, k=problem.k[:-1], v=problem.v[:-1]), dtype, "math")
    return results | {name: np.vstack([results[name], np.zeros_like(results[name][:1])]) for name in ("dk", "dv")}


def _scale(share: float) -> Fault:
    def plant(problem: Problem, dtype: str) -> dict[str, Array]:
        return kernel(problem, dtype, "math", scale=(1 + share) * problem.q.shape[1] ** -0.5)

    return Fault(f"scale off by {100 * share:g} %", plant)


def _converted(narrow: str, dtypes: tuple[str, ...]) -> Fault:
    def plant(problem: Problem, dtype: str) -> dict[str, Array]:
        q, k, v, g = (to_numpy(to_torch(x, narrow)) for x in (problem.q, problem.k, problem.v, problem.g))
        return kernel(replace(problem, q=q, k=k, v=v, g=g), dtype, "math")

    return Fault(f"inputs converted to {narrow}", plant, dtypes)


def _zeroed(name: str) -> Fault:
    def plant(problem: Problem, dtype: str) -> dict[str, Array]:
        results = kernel(problem, dtype, "math")
        size = np.abs(results[name])
        order = np.argsort(size, axis=None)[-np.count_nonzero(size) :]
        results[name][np.unravel_index(order[len(order) // 2], size.shape)] = 0.0
        return results

    return Fault(f"{name} zeroed in one place, of median size", plant)


def _bfloat16(x: torch.Tensor) -> torch.Tensor:
    return x.bfloat16().float()


def _tf32(x: torch.Tensor) -> torch.Tensor:
    """Rounded to 10 bits after the leading one, halves away from zero."""
    bits = (x.contiguous().view(torch.int32) + 0x1000) & ~0x1FFF
    return bits.view(torch.float32)


def _weights_in_bfloat16(problem: Problem, dtype: str) -> dict[str, Array]:
    return formula(problem, dtype, weight=_bfloat16)


def _weights_in_float16(problem: Problem, dtype: str) -> dict[str, Array]:
    return formula(problem, dtype, weight=lambda x: x.half().float())


def _weights_rounded_twice(problem: Problem, dtype: str) -> dict[str, Array]:
    return formula(problem, dtype, numerator=lambda x: x.to(DTYPES[dtype]).float())


def _tf32_products(problem: Problem, dtype: str) -> dict[str, Array]:
    return formula(problem, dtype, operand=_tf32)


def _last_row_missing(problem: Problem, dtype: str) -> dict[str, Array]:
    g = problem.g.copy()
    g[-1] = 0.0
    without = kernel(replace(problem, g=g), dtype, "math")
    return kernel(problem, dtype, "math") | {name: without[name] for name in ("dk", "dv")}


FAULTS = (
    _one_element(1e-2),
    _one_element(1e-4),
    Fault("the last key dropped", _dropped_key),
    _scale(0.01),
    _scale(0.008),
    _zeroed("dq"),
    _zeroed("dk"),
    _zeroed("dv"),
    _converted("float16", ("float32",)),
    _converted("bfloat16", ("float32", "float16")),
    Fault("weights stored in float16", _weights_in_float16, ("float32",)),
    Fault("weights stored in bfloat16", _weights_in_bfloat16, ("float32",)),
    Fault("weights rounded before and after they are normalised", _weights_rounded_twice, ("bfloat16", "float16")),
    Fault("TF32 products", _tf32_products, ("float32",)),
    Fault("last query row missing in dk and dv", _last_row_missing),
)
"""In the order of the table."""
