"""The arguments of attention, validated, and its heads laid out as problems of their own: one chain
for all operations.

Those without an axis of heads have one put in, of size 1.
"""

from dataclasses import replace
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oracles import arrays, formats
from oracles.arguments import FARTHEST, Given, checked_flag, checked_positions, checked_scale
from oracles.attention_call import AttentionCall, chosen_rows
from oracles.ball import Array
from oracles.conventions import Conventions
from oracles.conventions import resolve as resolve_conventions
from oracles.error_analysis.ball_attention import Setting
from oracles.error_analysis.grouped_heads import Heads
from oracles.error_analysis.logits import Tiled
from oracles.error_analysis.visible_keys import Mask, Visible
from oracles.judging import Method, require_method

Window = tuple[int | None, int | None]
_OPEN: Window = (None, None)


def plain(
    q: Any, k: Any, v: Any, mask: Any, scale: Any, is_causal: Any, rows: Any, arithmetic: Given, conventions: Conventions | None,
    method: Method, *, grouped: bool = False,
) -> AttentionCall:  # fmt: skip
    """The arguments of attention without features, validated: with an axis of heads where they are
    `grouped`, and else without.

    A mask and causality compose, and the default scale is 1/√d, whatever is declared of
    `oracles.attention`.
    """
    c = resolve_conventions(conventions)
    if (c.causal_with_mask, c.scale_default) != ("compose", "rsqrt"):
        c = replace(c, causal_with_mask="compose", scale_default="rsqrt")
    causal = checked_flag(is_causal, "is_causal")
    return checked(
        q,
        k,
        v,
        mask=mask,
        causal=causal,
        scale=scale,
        rows=rows,
        arithmetic=arithmetic,
        conventions=c,
        method=method,
        grouped=grouped,
    )


def checked(
    q: Any,
    k: Any,
    v: Any,
    *,
    mask: Any,
    causal: Any,
    scale: Any,
    rows: Any,
    arithmetic: Given,
    conventions: Conventions | None,
    method: Method,
    bias: Any = None,
    offset: Any = None,
    window: Any = _OPEN,
    softcap: Any = None,
    sink: Any = None,
    grouped: bool = True,
) -> AttentionCall:
    """The arguments, validated.  Raises ValueError and TypeError, in a sentence, for what does not fit."""
    require_method(method)
    a, c = formats.resolve(arithmetic), resolve_conventions(conventions)
    q, k, v = (arrays.float_array(x, name, arithmetic=a) for x, name in ((q, "q"), (k, "k"), (v, "v")))
    _require_shapes(q, k, v, grouped)
    lead, (n_q, d), n_k = q.shape[:-1], q.shape[-2:], k.shape[-2]
    allowed = _narrowed(arrays.bool_mask(mask, "mask", (*lead, n_k), c.mask_polarity))
    if not grouped:
        q, k, v = (x[..., None, :, :] for x in (q, k, v))
        allowed = None if allowed is None else allowed[..., None, :, :]
    full = (*q.shape[:-1], n_k)
    heads = Heads(q.shape[-3], k.shape[-3], c.kv_heads == "tile")
    allowed, is_causal = _together(allowed, checked_flag(causal, "causal"), c)
    given = None if bias is None else _bias(arrays.float_array(bias, "bias", arithmetic=a), full)
    biases, allowed = (None, allowed) if given is None else _finite(given, allowed)
    band = _band(window, is_causal, c)
    chosen = checked_positions(rows, n_q)
    places = _places(chosen, _offset(offset, n_q, n_k, q.shape[:-3], c), heads)
    visible = Visible(None if allowed is None else heads.shared(*chosen_rows(allowed, chosen, full)), places, *band)
    cap = _cap(softcap)
    sinks = None if sink is None else _sink(arrays.float_array(sink, "sink", arithmetic=a), heads.heads)
    if sinks is not None:
        sinks = heads.fold(np.broadcast_to(sinks[:, None, None], (*full[:-2], len(chosen), 1)))
    shared = None if biases is None else heads.shared(*chosen_rows(biases, chosen, full))
    features = Tiled(cap, c.softcap_order != "before_bias", shared, None, sinks)
    if cap is not None and c.softcap_order == "after_mask" and not visible.everything:
        features, visible = features._replace(blocked=visible), Visible(None, visible.positions)
    factor = checked_scale(scale)
    default = 1.0 if c.scale_default == "one" else 1.0 / sqrt(max(d, 1))
    none = cap is None and biases is None and sinks is None
    return AttentionCall(
        q=heads.fold(q if rows is None else q[..., chosen, :]),
        k=k,
        v=v,
        lead=lead,
        chosen=chosen,
        heads=heads,
        setting=Setting(
            visible, default if factor is None else factor, a, c, features=None if none else features, group=heads.group
        ),
        method=method,
        options={"scale": factor, "conventions": c},
        bias=None if given is None else given.shape,
        sink=None if sinks is None else (heads.heads, 1, 1),
    )


def _narrowed(mask: Mask | None) -> Mask | None:
    """A mask with axes of size 1 where it is broadcast."""
    return None if mask is None else mask[tuple(slice(0, 1) if step == 0 else slice(None) for step in mask.strides)]


def _require_shapes(q: Array, k: Array, v: Array, grouped: bool) -> None:
    """Raise ValueError unless heads, rows, columns and leading axes fit together; without heads
    there is at least one row of each.
    """
    for x, name, axes in ((q, "q", "H, n_q, d"), (k, "k", "H_kv, n_k, d"), (v, "v", "H_kv, n_k, d_v")):
        if x.ndim < 2 + grouped:
            raise ValueError(
                f"{name} has shape {x.shape}, but should be (…, {axes if grouped else axes.split(', ', 1)[1]})."
            )
        if not grouped and x.shape[-2] == 0:
            raise ValueError(f"{name} has shape {x.shape}, but should have at least one row.")
    if grouped:
        if v.shape[-3] != k.shape[-3]:
            raise ValueError(f"v has {v.shape[-3]} heads, but should have {k.shape[-3]} like k.")
        for x, name in ((q, "q"), (k, "k")):
            if x.shape[-3] == 0:
                raise ValueError(f"{name} has 0 heads, but should have at least one.")
        if q.shape[-3] % k.shape[-3]:
            raise ValueError(f"q has {q.shape[-3]} heads, but should have a multiple of k's {k.shape[-3]}.")
    batch = slice(0, -3 if grouped else -2)
    for x, name in ((k, "k"), (v, "v")):
        if x.shape[batch] != q.shape[batch]:
            raise ValueError(f"{name} has leading axes {x.shape[batch]}, but should have {q.shape[batch]} like q.")
    if k.shape[-1] != q.shape[-1]:
        raise ValueError(f"k has {k.shape[-1]} columns, but should have {q.shape[-1]} like q.")
    if v.shape[-2] != k.shape[-2]:
        raise ValueError(f"v has {v.shape[-2]} rows, but should have {k.shape[-2]} like k.")


def _together(mask: Mask | None, causal: bool, c: Conventions) -> tuple[Mask | None, bool]:
    """A mask and causality, as the convention has them act together."""
    if mask is None or not causal or c.causal_with_mask == "compose":
        return mask, causal
    if c.causal_with_mask == "refuse":
        raise ValueError(
            "A mask is given with causal=True, but should not be: Conventions.causal_with_mask is 'refuse'."
        )
    return (mask, False) if c.causal_with_mask == "mask_wins" else (None, True)


def _bias(bias: Array, shape: tuple[int, ...]) -> Array:
    """A bias that broadcasts to a shape, without NaN and +∞."""
    trailing = shape[len(shape) - bias.ndim :]
    if bias.ndim > len(shape) or any(have not in (1, want) for have, want in zip(bias.shape, trailing, strict=True)):
        raise ValueError(f"bias has shape {bias.shape}, but should broadcast to {shape}.")
    if not (bias < np.inf).all():
        raise ValueError("bias has a NaN or +∞, but should be finite, or −∞ where it masks.")
    return bias


def _finite(bias: Array, mask: Mask | None) -> tuple[Array, Mask | None]:
    """A bias with 0 in the place of −∞, and a mask that blocks what that does."""
    finite = bias > -np.inf
    if finite.all():
        return bias, mask
    return np.where(finite, bias, 0.0), finite if mask is None else mask & finite


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


def _band(window: Any, causal: bool, c: Conventions) -> tuple[int | None, int | None]:
    """The lowest and highest j − p that a window and causality allow."""
    if not isinstance(window, tuple | list) or len(window) != 2:
        raise TypeError(f"window={window!r}, but should be a pair (left, right) of integers or None.")
    counts = c.window == "count"
    left = None if window[0] is None else arrays.natural(window[0], "window[0]", int(counts)) - counts
    right = None if window[1] is None else arrays.natural(window[1], "window[1]")
    if causal:
        right = 0
    return None if left is None else -left, right


def _places(chosen: NDArray[np.int64], offset: NDArray[np.int64], heads: Heads) -> NDArray[np.int64]:
    """The positions of the folded rows among the keys: (rows,), or (…, H_kv, rows) where offsets
    are over the batch axes.
    """
    places = chosen + offset[..., None]
    if heads.group > 1:
        places = np.tile(places, heads.group)
    if places.ndim == 1:
        return places
    return np.broadcast_to(places[..., None, :], (*places.shape[:-1], heads.kv_heads, places.shape[-1]))


def _offset(offset: Any, n_q: int, n_k: int, batch: tuple[int, ...], c: Conventions) -> NDArray[np.int64]:
    """The position of row 0 among the keys: one number, or one for each element of the batch."""
    if offset is None:
        return np.array(0 if c.causal == "top_left" else n_k - n_q)
    given = np.asarray(offset)
    if given.dtype == object and all(isinstance(x, int) for x in given.flat):
        raise ValueError(f"offset={offset}, but should be within ±2**53.")
    if given.dtype.kind not in "iu":
        raise TypeError(
            f"offset has element type {given.dtype}, but should be an integer, or integers over the batch axes."
        )
    if given.ndim and given.shape != batch:
        raise ValueError(f"offset has shape {given.shape}, but should be () or {batch}, the batch axes of q.")
    if ((given > FARTHEST) | (given < -FARTHEST)).any():
        raise ValueError(f"offset={offset}, but should be within ±2**53.")
    return given.astype(np.int64)
