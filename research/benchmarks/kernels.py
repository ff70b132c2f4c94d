"""PyTorch's own attention kernels on the CPU, as functions of float64 arrays. The inputs are exact
in the format, so conversions do not round.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

__all__ = ["ARITHMETIC", "BACKENDS", "DTYPES", "RESULTS", "Array", "Problem", "draw", "kernel"]

Array = NDArray[np.float64]

BACKENDS = {"math": SDPBackend.MATH, "flash": SDPBackend.FLASH_ATTENTION}
DTYPES: dict[str, torch.dtype] = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
ARITHMETIC = {(dtype, backend): dtype for dtype in DTYPES for backend in BACKENDS} | {
    ("bfloat16", "flash"): "bfloat16-stored-gradients-fast-exponential-flushing",
    ("float16", "flash"): "float16-stored-gradients-fast-exponential",
}
"""The preset that a kernel is held to: the 16-bit flash kernels keep partial gradients in 16 bits, and have a fast
exponential.
"""
RESULTS = ("out", "dq", "dk", "dv")


@dataclass(frozen=True)
class Problem:
    """Queries, keys, values and the output's cotangent, as float64 arrays whose entries a narrower format holds."""

    q: Array
    k: Array
    v: Array
    g: Array
    is_causal: bool = False


def draw(
    dtype: str,
    sizes: tuple[int, int, int],
    seed: int,
    *,
    is_causal: bool = False,
    logits: float = 1.0,
    offset: float = 0.0,
) -> Problem:
    """A standard normal problem of sizes (n_q, n_k, d), rounded to a format. `logits` multiplies q,
    and `offset` is added to every key and value.
    """
    n_q, n_k, d = sizes
    rng = np.random.default_rng(seed)
    q, k, v, g = (rng.standard_normal((n, d)) for n in (n_q, n_k, n_k, n_q))
    q, k, v, g = (to_numpy(to_torch(x, dtype)) for x in (logits * q, k + offset, v + offset, g))
    return Problem(q, k, v, g, is_causal)


def kernel(problem: Problem, dtype: str, backend: str, *, scale: float | None = None) -> dict[str, Array]:
    """The output and the gradients that a backend returns, run in a format."""
    q, k, v = (to_torch(x, dtype)[None, None].requires_grad_() for x in (problem.q, problem.k, problem.v))
    with sdpa_kernel(BACKENDS[backend]):
        out = scaled_dot_product_attention(q, k, v, is_causal=problem.is_causal, scale=scale)
    gradients = torch.autograd.grad(out, (q, k, v), to_torch(problem.g, dtype)[None, None])
    return {name: to_numpy(x[0, 0]) for name, x in zip(RESULTS, (out, *gradients), strict=True)}


def to_torch(x: Array, dtype: str) -> torch.Tensor:
    """The tensor of an array, rounded to a format."""
    return torch.from_numpy(x).to(DTYPES[dtype])


def to_numpy(x: torch.Tensor) -> Any:
    """The float64 array of a tensor, exactly."""
    return x.detach().double().numpy()
