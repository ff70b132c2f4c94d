"""The exact results of attention over packed sequences: those of attention, sequence by sequence."""

from collections.abc import Iterator
from typing import Any

import flint
import numpy as np

from oracles import Conventions
from research.benchmarks.exact import attention, derivatives
from research.benchmarks.exact.reading import Given
from spec.tensor_core import Array as Balls

__all__ = ["packed_attention", "packed_attention_vjp", "scale_of_heads"]

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
        for name, where in (("q_scale", rows), ("k_scale", keys), ("v_scale", keys)):
            scale = given.get(name)
            if scale is not None:
                own = scale_of_heads(given, name, sequence) if scale.ndim < 3 else scale[where].swapaxes(0, 1)
                problem[name] = own
        yield rows, keys, problem


def scale_of_heads(given: Given, name: str, sequence: int) -> Any:
    """The scale (H, 1, 1) of each head of a sequence, given one for each key head of each sequence, or one
    for all codes.
    """
    scale, heads = given[name], given["q"].shape[-2]
    if not scale.ndim:
        return scale.reshape(1, 1, 1)
    key_heads = scale.shape[1]
    conventions: Conventions = given.get("conventions") or Conventions()
    is_tiled = conventions.kv_heads == "tile"
    of_queries = [head % key_heads if is_tiled else head * key_heads // heads for head in range(heads)]
    return scale[sequence, of_queries if name == "q_scale" else slice(None)][:, None, None]


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
