"""The exact results of attention over packed sequences: those of attention, sequence by sequence."""

from collections.abc import Iterator
from typing import Any

import flint
import numpy as np

from oracles import Conventions
from research.benchmarks.exact import attention, derivatives
from research.benchmarks.exact.reading import Given
from spec.tensor_core import Array as Balls

__all__ = ["packed_attention", "packed_attention_vjp"]

_SHARED = ("sink", "alibi", "scale", "softcap", "causal", "window", "conventions")


def packed_attention(given: Given) -> tuple[Balls, ...]:
    """(out, lse). Rows that no sequence uses are 0."""
    out, lse = _zeros((*given["q"].shape[:2], given["v"].shape[-1])), _zeros(given["q"].shape[:2])
    for rows, _, problem in _problems(given):
        if rows.size:
            output, log_sum_exp = attention.attention(problem)
            out[rows], lse[rows] = output.swapaxes(0, 1), log_sum_exp.T
    return out, lse if _has_rows_first(given) else lse.T


def packed_attention_vjp(given: Given) -> tuple[Balls, ...]:
    """(dq, dk, dv), and dsink if there are sinks."""
    dq, dk, dv = (_zeros(given[name].shape) for name in "qkv")
    sinks = _zeros(np.shape(given.get("sink", ())))
    for rows, keys, problem in _problems(given):
        if rows.size:
            gradients = derivatives.attention_vjp(problem)
            for whole, places, part in zip((dq, dk, dv), (rows, keys, keys), gradients, strict=False):
                whole[places] = part.swapaxes(0, 1)
            sinks = sinks + gradients[-1] if "sink" in given else sinks
    return (dq, dk, dv, sinks) if "sink" in given else (dq, dk, dv)


def _problems(given: Given) -> Iterator[tuple[Any, Any, dict[str, Any]]]:
    """The rows of queries and of keys of each sequence, and its arguments of attention."""
    of_lse = given.get("grad_lse")
    of_lse = of_lse if of_lse is None or _has_rows_first(given) else of_lse.T
    for sequence in range(len(given["cu_q"]) - 1):
        rows, keys = (_rows(given, side, sequence) for side in "qk")
        problem = {name: given[name] for name in _SHARED if name in given}
        problem |= {name: given[name][where].swapaxes(0, 1) for name, where in (("q", rows), ("k", keys), ("v", keys))}
        if "grad_out" in given:
            problem["grad_out"] = given["grad_out"][rows].swapaxes(0, 1)
        if of_lse is not None:
            problem["grad_lse"] = of_lse[rows].T
        yield rows, keys, problem


def _rows(given: Given, side: str, sequence: int) -> Any:
    """The rows that a sequence uses."""
    start, end = given[f"cu_{side}"][sequence : sequence + 2]
    used = given.get(f"seqused_{side}")
    return np.arange(start, end if used is None else start + used[sequence])


def _has_rows_first(given: Given) -> bool:
    conventions: Conventions = given.get("conventions") or Conventions()
    return conventions.packed_lse == "rows_first"


def _zeros(shape: tuple[int, ...]) -> Balls:
    return np.full(shape, flint.arb(0), dtype=object)
