"""The base and the scale of rotary frequencies, from one measured row.

The pairs of the row at position 1 are rotated by their frequencies:

    θ_i = scale·base^(−2i/d),    so    log θ_i = log scale − (2i/d)·log base                     (1)

A line through the points (2i/d, log θ_i) gives both numbers. Rounding errors of angles have about
one size, so the errors of their logarithms are inverse to θ_i, and point i has the weight θ_i. Numbers
with fewer digits are tried first. The certified values decide between them.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from properties.contract.meanings import MEANINGS
from properties.contract.operations import Operation
from properties.inspection.array import Array

__all__ = ["rotations"]

_DIGITS = (1, 2, 3, 4)
_SHORT = 0.4  # the length of a pair of eighths that shows its angle
_WITHOUT_PAIRS = ("inv_freq", "rope_angles")  # operations whose results are the same for all pairings


def rotations(operation: Operation, arguments: Sequence[Any], results: Sequence[Array]) -> Iterator[dict[str, Any]]:
    """Yield the conventions of a rotation that the results of a call may follow: pairing, base and
    scale. In the call, row 0 is at position 1. Operations without frequencies have a pairing only.
    """
    for pairing in MEANINGS["rope_pairing"]:
        angles = _angles(operation, operation.named(arguments), results, pairing)
        fits = [{}] if angles is None else [{"rope_base": base, "rope_scale": scale} for base, scale in _fits(angles)]
        shown = {} if operation.name in _WITHOUT_PAIRS else {"rope_pairing": pairing}
        yield from (shown | fit for fit in fits)


def _angles(operation: Operation, arguments: Mapping[str, Any], results: Sequence[Array], pairing: str) -> Array | None:
    """The angles of the pairs of a row at position 1, NaN for pairs that are too short to show one;
    None if the operation has no frequencies.
    """
    match operation.name:
        case "inv_freq":
            return np.asarray(results[0])
        case "rope_angles":
            return np.asarray(results[0][0])
        case "rope_tables":
            return np.asarray(np.angle(_halves(results[0][0] + 1j * results[1][0], pairing)[0]))
        case "rope" | "rope_vjp":
            given = arguments.get("grad_out", arguments["x"])
            before, after = (_pairs(side.reshape(-1, side.shape[-1])[0], pairing) for side in (given, results[0]))
            turned = np.where(np.abs(before) > _SHORT, after * before.conj(), np.nan)
            return np.asarray(np.angle(turned) * (-1 if operation.name == "rope_vjp" else 1))
    return None


def _pairs(row: Array, pairing: str) -> Array:
    """The pairs of a row as complex numbers."""
    first, second = _halves(row, pairing)
    return np.asarray(first + 1j * second)


def _halves(row: Array, pairing: str) -> tuple[Array, Array]:
    """The first and the second channels of all pairs."""
    pairs = len(row) // 2
    return (row[:pairs], row[pairs:]) if pairing == "half" else (row[::2], row[1::2])


def _fits(angles: Array) -> Iterator[tuple[float, float]]:
    """Bases and scales that may explain the angles, by (1): the defaults first, then rounded fits."""
    yield 10000.0, 1.0
    shown = np.flatnonzero(angles > 0)
    if len(shown) < 2:
        return
    slope, height = np.polyfit(shown / len(angles), np.log(angles[shown]), 1, w=angles[shown])
    base, scale = float(np.exp(-slope)), float(np.exp(height))
    for digits, others in product(_DIGITS, _DIGITS):
        rounded = _rounded(base, digits), _rounded(scale, others)
        if rounded[0] >= 1 and rounded[1] > 0:
            yield rounded


def _rounded(number: float, digits: int) -> float:
    return float(f"{number:.{digits}g}")
