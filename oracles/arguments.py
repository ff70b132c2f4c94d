"""Validates single arguments. Error messages are whole sentences."""

from collections.abc import Sequence
from math import isfinite
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oracles import arrays
from oracles.formats import Arithmetic

Given = Arithmetic | str | None
FARTHEST = 2**53
"""Positions and offsets are within ±2⁵³, where they are exact in float64."""


def checked_flag(flag: Any, name: str = "is_causal") -> bool:
    """Return the flag as a bool. Raises TypeError for anything else."""
    if not isinstance(flag, bool | np.bool_):
        raise TypeError(f"{name} has type {type(flag).__name__}, but should be a bool.")
    return bool(flag)


def checked_scale(scale: Any, name: str = "scale") -> float | None:
    """Return a scale, or another factor, as a float; None stays None.

    Raises TypeError and ValueError unless it is a finite float64 number.
    """
    if scale is None:
        return None
    if isinstance(scale, bool | np.bool_) or not isinstance(scale, Real):
        raise TypeError(f"{name} has type {type(scale).__name__}, but should be a real number or None.")
    try:
        factor = float(scale)
    except OverflowError:
        factor = float("inf")
    if not isfinite(factor):
        raise ValueError(f"{name} is not a finite float64 number, but should be.")
    if factor != scale:
        raise ValueError(f"{name} is only close to {factor}, but should be a float64 number: it is not rounded.")
    return factor


def checked_positions(rows: Any, n_q: int) -> NDArray[np.int64]:
    """Return the chosen query rows as int64; None chooses all n_q rows. Raises TypeError and
    ValueError unless they are integers from 0 to n_q − 1.
    """
    if rows is None:
        return np.arange(n_q)
    if not isinstance(rows, Sequence | np.ndarray) or isinstance(rows, str | bytes):
        raise TypeError(f"rows has type {type(rows).__name__}, but should be a sequence of integers or None.")
    if isinstance(rows, np.ndarray) and rows.ndim != 1:
        raise ValueError(f"rows has shape {rows.shape}, but should have one axis.")
    return np.array([arrays.natural(row, f"rows[{i}]", 0, n_q - 1) for i, row in enumerate(rows)], dtype=np.int64)
