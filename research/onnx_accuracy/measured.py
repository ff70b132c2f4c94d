"""What the accuracy page measures: ONNX's function body of Attention in NumPy, its errors, and the error
limits of `oracles`, for standard normal inputs of one head.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

import oracles
from oracles import Enclosure
from properties.vectors.expectation import dtype_of
from research.onnx_accuracy.bounds import (
    FORMATS,
    Errors,
    Row,
    entry_bound,
    introduced,
    machine_of,
    range_bound,
    softmax,
)

__all__ = ["Problem", "Shape", "constructed", "function_body", "largest", "root_of_scale"]

Array = Any


def root_of_scale(d: int) -> Any:
    """Return the root of 1/√d as the function body computes it: in float32."""
    return np.sqrt(np.float32(1) / np.sqrt(np.float32(d)))


def function_body(q: Array, k: Array, v: Array, bias: Array, t1: str, softmax_precision: str | None = None) -> Array:
    """Return the output of ONNX's function body. Each operator rounds to its type; sums of 16 bits are
    float32.
    """
    dtype, stage = (dtype_of(FORMATS[name]) for name in (t1, softmax_precision or t1))
    q, k, v = (x.astype(dtype) for x in (q, k, v))
    root = root_of_scale(q.shape[-1]).astype(dtype)
    t = (_matmul(q * root, (k * root).T) + bias.astype(dtype)).astype(stage)
    e = np.exp(t - t.max(axis=-1, keepdims=True))
    total = e.sum(axis=-1, keepdims=True, dtype=np.result_type(stage, np.float32)).astype(stage)
    return _matmul((e / total).astype(dtype), v).astype(np.float64)


def _matmul(a: Array, b: Array) -> Array:
    """Return a product whose sums are at least as fine as float32, in the type of its factors."""
    wide = np.result_type(a.dtype, np.float32)
    return (a.astype(wide) @ b.astype(wide)).astype(a.dtype)


class Shape(NamedTuple):
    """The number of queries and keys, the head size, and whether attention is causal."""

    n_q: int
    n_k: int
    d: int
    is_causal: bool = False

    def __str__(self) -> str:
        return f"{self.n_q} × {self.n_k} × {self.d}" + ", causal" * self.is_causal


class Problem:
    """Standard normal inputs of a shape, rounded to T1, and the errors of the function body on them."""

    def __init__(self, shape: Shape, t1: str, softmax_precision: str | None = None) -> None:
        draws = np.random.default_rng(0).standard_normal((shape.n_q + 2 * shape.n_k, shape.d))
        draws = draws.astype(dtype_of(FORMATS[t1])).astype(np.float64)
        self.q, self.k, self.v = np.split(draws, [shape.n_q, shape.n_q + shape.n_k])
        every = np.ones((shape.n_q, shape.n_k), dtype=bool)
        self.visible = np.tril(every) if shape.is_causal else every
        self.types, self.scale = (t1, softmax_precision), shape.d**-0.5

    def rows(self) -> Iterator[Row]:
        """Each query with its visible keys."""
        for q, sees in zip(self.q, self.visible, strict=True):
            yield Row(q, self.k[sees], self.v[sees], np.zeros(sees.sum()))

    def _enclosure(self, **options: Any) -> Enclosure:
        return oracles.scaled_dot_product_attention(self.q, self.k, self.v, self.visible, **options)

    @cached_property
    def certified(self) -> Enclosure:
        """The certified output. In double it comes from ball arithmetic, because the errors of double
        are smaller than the fast radius.
        """
        return self._enclosure(method="arb" if self.types[0] == "double" else "auto")

    @property
    def error(self) -> float:
        """The largest error of the function body: the distance to the certified value, plus its radius."""
        out = function_body(self.q, self.k, self.v, np.where(self.visible, 0.0, -np.inf), *self.types)
        return float((np.abs(out - self.certified.mid) + self.certified.rad).max())

    @property
    def limit(self) -> Enclosure:
        """The error limit. The function body computes one exponential of each logit, and does not
        rescale.
        """
        t1, names = self.types[0], {"float": "float32", "double": "float64"}
        preset = oracles.preset(names.get(t1, f"{t1}-elementwise"))
        return self._enclosure(arithmetic=replace(preset, rescale_block=None, shared_weights=True))

    @property
    def bounds(self) -> tuple[float, float]:
        """The largest bounds (2) and (1) of the introduced error."""
        t1, softmax_precision = self.types
        machine = machine_of(t1, self.q.shape[-1], softmax_precision)
        return largest(self.scale, [(row, introduced(self.scale, row, machine)) for row in self.rows()])


def largest(scale: float, rows: list[tuple[Row, Errors]]) -> tuple[float, float]:
    """Return the largest bounds (2) and (1) of some rows."""
    return (
        max(float(entry_bound(scale, row, errors).max()) for row, errors in rows),
        max(float(range_bound(row, errors).max()) for row, errors in rows),
    )


def constructed(scale: float, row: Row, size: Row) -> float:
    """Return the propagated error of the first column, for errors of given sizes whose signs push all
    weights towards the values above the output.
    """
    p = softmax(row.logits(scale))
    far = row.v[:, 0] - p @ row.v[:, 0]
    q = size.q * np.sign((p * far) @ row.k)
    off = Row(q, size.k * np.sign(row.q) * np.sign(far)[:, None], size.v, size.mask)
    moved = Row(*(x + error for x, error in zip(row, off, strict=True)))
    return float(softmax(moved.logits(scale)) @ moved.v[:, 0] - p @ row.v[:, 0])
