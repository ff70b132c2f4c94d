"""The arguments of attention operations, validated: whole sentences for what does not fit."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite, prod, sqrt
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oracles import arrays, formats
from oracles.ball import Array
from oracles.ball_attention import Setting
from oracles.conventions import Conventions
from oracles.conventions import resolve as resolve_conventions
from oracles.formats import Arithmetic
from oracles.judging import Method, require_method
from oracles.visible import Mask, Visible

Given = Arithmetic | str | None


@dataclass(frozen=True)
class Arguments:
    """Validated arguments: q with its chosen rows only, and how many it had."""

    q: Array
    k: Array
    v: Array
    n_q: int
    setting: Setting
    method: Method
    options: dict[str, Any]

    @property
    def work(self) -> int:
        """The multiplications in one forward pass; an exponential counts as 8."""
        scores = prod(self.q.shape[:-1]) * int(self.k.shape[-2])
        return scores * (int(self.q.shape[-1]) + int(self.v.shape[-1]) + 8)

    def like(self, x: Any, name: str, shape: tuple[int, ...]) -> Array:
        """A cotangent or tangent, of the shape that it should have."""
        array = arrays.float_array(x, name, arithmetic=self.setting.arithmetic)
        if array.shape != shape:
            raise ValueError(f"{name} has shape {array.shape}, but should be {shape}.")
        return array

    def rows_of(self, x: Array) -> Array:
        """The chosen query rows of an array with all of them."""
        chosen: Array = x[..., self.setting.visible.positions, :]
        return chosen

    def allowed_row(self, i: int) -> Mask | None:
        """Which keys the i-th of the chosen rows may read: (…, 1, n_k), or None for all."""
        return self._allowed(slice(i, i + 1))

    def allowed(self) -> Mask | None:
        """Which keys each chosen row may read, in full; None for all."""
        found = self._allowed(slice(None))
        return None if found is None else np.broadcast_to(found, (*self.q.shape[:-1], self.k.shape[-2]))

    def _allowed(self, rows: slice) -> Mask | None:
        return self.setting.visible.tile(rows, slice(0, self.k.shape[-2]))


def checked(
    q: Any,
    k: Any,
    v: Any,
    mask: Any,
    scale: Any,
    is_causal: Any,
    rows: Any,
    arithmetic: Given,
    conventions: Conventions | None,
    method: Method,
) -> Arguments:
    """The arguments of an attention operation, validated."""
    require_method(method)
    a, c = formats.resolve(arithmetic), resolve_conventions(conventions)
    q, k, v = (arrays.float_array(x, name, arithmetic=a) for x, name in ((q, "q"), (k, "k"), (v, "v")))
    for x, name, axes in ((q, "q", "(…, n_q, d)"), (k, "k", "(…, n_k, d)"), (v, "v", "(…, n_k, d_v)")):
        if x.ndim < 2:
            raise ValueError(f"{name} has shape {x.shape}, but should be {axes}.")
        if x.shape[-2] == 0:
            raise ValueError(f"{name} has shape {x.shape}, but should have at least one row.")
    for x, name in ((k, "k"), (v, "v")):
        if x.shape[:-2] != q.shape[:-2]:
            raise ValueError(f"{name} has leading axes {x.shape[:-2]}, but should have {q.shape[:-2]} like q.")
    if k.shape[-1] != q.shape[-1]:
        raise ValueError(f"k has {k.shape[-1]} columns, but should have {q.shape[-1]} like q.")
    if v.shape[-2] != k.shape[-2]:
        raise ValueError(f"v has {v.shape[-2]} rows, but should have {k.shape[-2]} like k.")
    n_q, n_k, d = q.shape[-2], k.shape[-2], q.shape[-1]
    given = arrays.bool_mask(mask, "mask", (*q.shape[:-1], n_k), c.mask_polarity)
    causal = None if not checked_flag(is_causal) else 0 if c.causal == "top_left" else n_k - n_q
    factor = checked_scale(scale)
    positions = checked_positions(rows, n_q)
    if rows is not None:
        q, given = q[..., positions, :], None if given is None else given[..., positions, :]
    setting = Setting(Visible(given, positions, high=causal), factor if factor is not None else 1.0 / sqrt(max(d, 1)), a, c)
    return Arguments(q, k, v, n_q, setting, method, {"scale": factor, "conventions": c})


def checked_flag(is_causal: Any) -> bool:
    """A given is_causal as a bool; raises TypeError for anything else."""
    if not isinstance(is_causal, bool | np.bool_):
        raise TypeError(f"is_causal has type {type(is_causal).__name__}, but should be a bool.")
    return bool(is_causal)


def checked_scale(scale: Any, name: str = "scale") -> float | None:
    """A given scale, or another factor, as a float; None stays None.

    Raises TypeError and ValueError for what is not a finite float64 number.
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
    """The chosen query rows, all by default."""
    if rows is None:
        return np.arange(n_q)
    if not isinstance(rows, Sequence | np.ndarray) or isinstance(rows, str | bytes):
        raise TypeError(f"rows has type {type(rows).__name__}, but should be a sequence of integers or None.")
    if isinstance(rows, np.ndarray) and rows.ndim != 1:
        raise ValueError(f"rows has shape {rows.shape}, but should have one axis.")
    return np.array([arrays.natural(row, f"rows[{i}]", 0, n_q - 1) for i, row in enumerate(rows)], dtype=np.int64)
