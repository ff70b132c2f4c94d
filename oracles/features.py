"""The arguments of generalised attention, validated, and its heads laid out as problems of their own.

Query heads that share a key head are one problem with the rows of all: (…, H, n_q, ·) becomes (…, H_kv, G·n_q, ·), G = H / H_kv.  So keys
are not repeated, and what flows back into them is summed where sums over rows are.
"""

from dataclasses import dataclass, replace
from math import prod, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oracles import arrays, ball_attention, formats
from oracles.arguments import Given, checked_flag, checked_positions, checked_scale
from oracles.ball import Array, Ball
from oracles.ball_attention import Setting
from oracles.conventions import Conventions
from oracles.conventions import resolve as resolve_conventions
from oracles.enclosure import Enclosure
from oracles.judging import Method, require_method
from oracles.logits import Features
from oracles.visible import Mask, Visible

Window = tuple[int | None, int | None]
FARTHEST = 2**53
"""Positions beyond which a sum of one and a row's number may leave the integers of 64 bits, and of float64."""


@dataclass(frozen=True)
class Heads:
    """How query heads are shared out among key heads."""

    heads: int
    kv_heads: int
    tile: bool

    @property
    def group(self) -> int:
        """Query heads of a key head."""
        return self.heads // self.kv_heads

    def fold(self, x: NDArray[Any]) -> NDArray[Any]:
        """(…, H, n, ·) -> (…, H_kv, G·n, ·)."""
        lead, rest = x.shape[:-3], x.shape[-2:]
        split = x.reshape(*lead, self.group, self.kv_heads, *rest).swapaxes(-4, -3) if self.tile else x.reshape(
            *lead, self.kv_heads, self.group, *rest
        )  # fmt: skip
        return split.reshape(*lead, self.kv_heads, self.group * rest[0], rest[1])

    def unfold(self, x: Array) -> Array:
        """(…, H_kv, G·n, ·) -> (…, H, n, ·)."""
        lead, rows, columns = x.shape[:-3], x.shape[-2], x.shape[-1]
        split = x.reshape(*lead, self.kv_heads, self.group, rows // self.group, columns)
        split = split.swapaxes(-4, -3) if self.tile else split
        return split.reshape(*lead, self.heads, rows // self.group, columns)

    def unfolded(self, x: Ball) -> Ball:
        """The ball of unfolded heads."""
        return Ball(self.unfold(x.mid), self.unfold(x.rad))


@dataclass(frozen=True)
class Problem:
    """Validated arguments of generalised attention, folded.

    `q` has its `chosen` rows only, of (…, H, n_q) = `lead`; `bias` and `sink` are the shapes in which these are given, a sink's with
    axes of rows and columns, or None.
    """

    q: Array
    k: Array
    v: Array
    lead: tuple[int, ...]
    chosen: NDArray[np.int64]
    bias: tuple[int, ...] | None
    sink: tuple[int, ...] | None
    heads: Heads
    setting: Setting
    method: Method
    given: dict[str, Any]

    @property
    def work(self) -> int:
        """The multiplications in one forward pass; an exponential counts as 8, a hyperbolic tangent too."""
        scores = prod(self.q.shape[:-1]) * int(self.k.shape[-2])
        return scores * (int(self.q.shape[-1]) + int(self.v.shape[-1]) + 16)

    def allowed_row(self, i: int) -> Mask | None:
        """Which keys the i-th of the folded rows may read: (…, 1, n_k), or None for all."""
        return self.setting.visible.tile(slice(i, i + 1), slice(0, self.k.shape[-2]))

    def allowed(self) -> Mask:
        """Which keys each folded row may read, in full."""
        found = self.setting.visible.tile(slice(None), slice(0, self.k.shape[-2]))
        return np.broadcast_to(True if found is None else found, (*self.q.shape[:-1], self.k.shape[-2]))

    def like(self, x: Any, name: str, shape: tuple[int, ...]) -> Array:
        """A cotangent or tangent, of the shape that it should have."""
        array = arrays.float_array(x, name, arithmetic=self.setting.arithmetic)
        if array.shape != shape:
            raise ValueError(f"{name} has shape {array.shape}, but should be {shape}.")
        return array

    def folded(self, x: Any, name: str, columns: tuple[int, ...]) -> Array:
        """What belongs to query rows, (…, H, n_q) and columns, if any: its chosen rows, folded, with an axis of columns."""
        array = self.like(x, name, (*self.lead, *columns)).reshape(*self.lead, *(columns or (1,)))
        return self.heads.fold(array[..., self.chosen, :])

    def tangents(self, dbias: Any, dsink: Any) -> tuple[Array | None, Array | None]:
        """The tangents of the bias and of the sinks, laid out as these are.  Raises ValueError for one of what is not given."""
        found: list[Array | None] = []
        for x, name, of in ((dbias, "dbias", self.bias), (dsink, "dsink", self.sink)):
            if x is not None and of is None:
                raise ValueError(f"{name} is given, but should not be: there is no {name[1:]}.")
            if x is None or of is None:
                found.append(None)
                continue
            array = self.like(x, name, of if name == "dbias" else of[:1]).reshape(of)
            rows = np.broadcast_to(array, (*self.lead, self.k.shape[-2] if name == "dbias" else 1))[..., self.chosen, :]
            found.append(self.heads.fold(rows))
        return found[0], found[1]

    def rows(self, found: tuple[Enclosure, ...]) -> tuple[Enclosure, Enclosure]:
        """An output and a log-sum-exp, or their derivatives, with the heads that were given."""
        a = self.setting.arithmetic
        out, lse = (replace(e, mid=self.heads.unfold(e.mid), rad=self.heads.unfold(e.rad)) for e in found)
        return out, replace(lse, mid=lse.mid[..., 0], rad=lse.rad[..., 0], format=None if a is None else a.saved_lse or a.elementwise)

    def shared(self, x: Ball, shape: tuple[int, ...]) -> Ball:
        """The gradient of a bias or of sinks, given that of each logit or row, folded: summed over all that share it."""
        return ball_attention.shared(self.heads.unfolded(x), shape, self.setting.arithmetic)


def checked(
    q: Any,
    k: Any,
    v: Any,
    *,
    mask: Any,
    bias: Any,
    scale: Any,
    causal: Any,
    offset: Any,
    window: Any,
    softcap: Any,
    sink: Any,
    rows: Any,
    arithmetic: Given,
    conventions: Conventions | None,
    method: Method,
) -> Problem:
    """The arguments, validated.  Raises ValueError and TypeError, in a sentence, for what does not fit."""
    require_method(method)
    a, c = formats.resolve(arithmetic), resolve_conventions(conventions)
    q, k, v = (arrays.float_array(x, name, arithmetic=a) for x, name in ((q, "q"), (k, "k"), (v, "v")))
    _require_shapes(q, k, v)
    heads = Heads(q.shape[-3], k.shape[-3], c.kv_heads == "tile")
    n_q, n_k, d = q.shape[-2], k.shape[-2], q.shape[-1]
    full = (*q.shape[:-1], n_k)
    allowed = arrays.bool_mask(mask, "mask", full, c.mask_polarity)
    allowed, is_causal = _together(allowed, checked_flag(causal), c)
    given = biases = None if bias is None else _bias(arrays.float_array(bias, "bias", arithmetic=a), full)
    if biases is not None and (biases == -np.inf).any():
        allowed = (biases > -np.inf) if allowed is None else allowed & (biases > -np.inf)
        biases = np.where(biases == -np.inf, 0.0, biases)
    low, high = _band(window, c)
    high = min(0, high if high is not None else 0) if is_causal else high
    chosen = checked_positions(rows, n_q)
    places = chosen + _offset(offset, n_q, n_k, q.shape[:-3], c)[..., None]
    if rows is not None:
        q = q[..., chosen, :]
        allowed = None if allowed is None else np.broadcast_to(allowed, full)[..., chosen, :]
        biases = None if biases is None else np.broadcast_to(biases, full)[..., chosen, :]
    shape = (*q.shape[:-1], n_k)
    if biases is not None:
        biases = heads.fold(np.broadcast_to(biases, shape))
    visible = Visible(
        None if allowed is None else heads.fold(np.broadcast_to(allowed, shape)),
        np.tile(places, heads.group) if places.ndim == 1 else np.broadcast_to(
            np.tile(places, heads.group)[..., None, :], (*q.shape[:-3], heads.kv_heads, heads.group * len(chosen))
        ),
        low,
        high,
    )  # fmt: skip
    cap = _cap(softcap)
    sinks = None if sink is None else _sink(arrays.float_array(sink, "sink", arithmetic=a), heads.heads)
    if sinks is not None:
        sinks = heads.fold(np.broadcast_to(sinks[:, None, None], (*q.shape[:-1], 1)))
    features = Features(cap, c.softcap_order != "before_bias", biases, None, sinks)
    if cap is not None and c.softcap_order == "after_mask":
        tile = visible.tile(slice(None), slice(0, n_k))
        if tile is not None:
            folded = (*q.shape[:-3], heads.kv_heads, heads.group * len(chosen), n_k)
            features = features._replace(blocked=np.broadcast_to(~tile, folded))
            visible = Visible(None, visible.positions)
    factor = checked_scale(scale)
    default = 1.0 if c.scale_default == "one" else 1.0 / sqrt(max(d, 1))
    plain = cap is None and biases is None and sinks is None
    setting = Setting(visible, default if factor is None else factor, a, c, features=None if plain else features)
    return Problem(
        q=heads.fold(q),
        k=k,
        v=v,
        lead=full[:-1],
        chosen=chosen,
        bias=None if given is None else given.shape,
        sink=None if sinks is None else (heads.heads, 1, 1),
        heads=heads,
        setting=setting,
        method=method,
        given={"scale": factor, "features": features, "conventions": c},
    )


def _require_shapes(q: Array, k: Array, v: Array) -> None:
    """Raise ValueError unless heads, rows, columns and leading axes fit together."""
    for x, name, axes in ((q, "q", "(…, H, n_q, d)"), (k, "k", "(…, H_kv, n_k, d)"), (v, "v", "(…, H_kv, n_k, d_v)")):
        if x.ndim < 3:
            raise ValueError(f"{name} has shape {x.shape}, but should be {axes}.")
    if v.shape[-3] != k.shape[-3]:
        raise ValueError(f"v has {v.shape[-3]} heads, but should have {k.shape[-3]} like k.")
    if k.shape[-3] == 0:
        raise ValueError("k has 0 heads, but should have at least one.")
    if q.shape[-3] % k.shape[-3]:
        raise ValueError(f"q has {q.shape[-3]} heads, but should have a multiple of k's {k.shape[-3]}.")
    for x, name in ((k, "k"), (v, "v")):
        if x.shape[:-3] != q.shape[:-3]:
            raise ValueError(f"{name} has leading axes {x.shape[:-3]}, but should have {q.shape[:-3]} like q.")
    if k.shape[-1] != q.shape[-1]:
        raise ValueError(f"k has {k.shape[-1]} columns, but should have {q.shape[-1]} like q.")
    if v.shape[-2] != k.shape[-2]:
        raise ValueError(f"v has {v.shape[-2]} rows, but should have {k.shape[-2]} like k.")


def _together(mask: Mask | None, causal: bool, c: Conventions) -> tuple[Mask | None, bool]:
    """A mask and causality, as the convention has them act together."""
    if mask is None or not causal or c.causal_with_mask == "compose":
        return mask, causal
    if c.causal_with_mask == "refuse":
        raise ValueError("A mask is given with causal=True, but should not be: Conventions.causal_with_mask is 'refuse'.")
    return (mask, False) if c.causal_with_mask == "mask_wins" else (None, True)


def _bias(bias: Array, shape: tuple[int, ...]) -> Array:
    """A bias that broadcasts to a shape, without NaN and +∞."""
    trailing = shape[len(shape) - bias.ndim :]
    if bias.ndim > len(shape) or any(have not in (1, want) for have, want in zip(bias.shape, trailing, strict=True)):
        raise ValueError(f"bias has shape {bias.shape}, but should broadcast to {shape}.")
    if not (bias < np.inf).all():
        raise ValueError("bias has a NaN or +∞, but should be finite, or −∞ where it blocks.")
    return bias


def _sink(sink: Array, heads: int) -> Array:
    """A sink for each head."""
    if sink.shape != (heads,):
        raise ValueError(f"sink has shape {sink.shape}, but should be ({heads},), one for each head of q.")
    if not (sink < np.inf).all():
        raise ValueError("sink has a NaN or +∞, but should be finite, or −∞ where there is none.")
    return sink


def _cap(softcap: Any) -> float | None:
    cap = checked_scale(softcap, "softcap")
    if cap is not None and cap <= 0:
        raise ValueError(f"softcap={softcap}, but should be more than 0, or None.")
    return cap


def _band(window: Any, c: Conventions) -> tuple[int | None, int | None]:
    """The lowest and highest j − p that a window allows."""
    if not isinstance(window, tuple | list) or len(window) != 2:
        raise TypeError(f"window={window!r}, but should be a pair (left, right) of integers or None.")
    counts = c.window == "count"
    left = None if window[0] is None else arrays.natural(window[0], "window[0]", int(counts)) - counts
    right = None if window[1] is None else arrays.natural(window[1], "window[1]")
    return None if left is None else -left, right


def _offset(offset: Any, n_q: int, n_k: int, batch: tuple[int, ...], c: Conventions) -> NDArray[np.int64]:
    """The position of row 0 among the keys: one number, or one for each element of the batch."""
    if offset is None:
        return np.array(0 if c.causal == "top_left" else n_k - n_q)
    given = np.asarray(offset)
    if given.dtype.kind not in "iu":
        raise TypeError(f"offset has element type {given.dtype}, but should be an integer, or integers over the batch axes.")
    if given.ndim and given.shape != batch:
        raise ValueError(f"offset has shape {given.shape}, but should be () or {batch}, the batch axes of q.")
    if ((given > FARTHEST) | (given < -FARTHEST)).any():
        raise ValueError(f"offset={offset}, but should be within ±2**53.")
    return given.astype(np.int64)
