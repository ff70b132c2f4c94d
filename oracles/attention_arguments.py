"""Validates the arguments of attention, and folds the query heads that share a key head into one
problem with the rows of all these heads.

Inputs without an axis of heads get one of size 1.
"""

from dataclasses import replace
from math import sqrt
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from oracles import arrays
from oracles.arguments import FARTHEST, checked_flag, checked_positions, checked_scale
from oracles.attention_call import AttentionCall, chosen_rows
from oracles.ball import Array
from oracles.conventions import Conventions
from oracles.conventions import resolve as resolve_conventions
from oracles.error_analysis.ball_attention import Setting
from oracles.error_analysis.grouped_heads import Heads, Shared
from oracles.error_analysis.logits import Slopes, Tiled
from oracles.error_analysis.visible_keys import Mask, Visible
from oracles.formats import Arithmetic
from oracles.options import Answer, DotProductOptions, FeatureOptions, answer, defaults
from oracles.quantised import codes_of, dequantised, with_dequantising

_DEFAULTS = defaults(FeatureOptions)

FARTHEST_OF_ALIBI = 2**52 + 2**28
"""The farthest position of a query with ALiBi: with at most 2²⁸ keys all distances are integers of
float64.
"""


class _Layout(NamedTuple):
    """The layout of a call: the shape `full` (…, H, n_q, n_k) of all scores, the heads, and the
    chosen query rows.
    """

    full: tuple[int, ...]
    heads: Heads
    chosen: NDArray[np.int64]

    def shared(self, x: NDArray[Any]) -> Shared:
        """Return the chosen rows of an array that broadcasts to the shape of all scores, folded by
        key head.
        """
        return self.heads.shared(*chosen_rows(x, self.chosen, self.full))

    def of_rows(self, of_heads: Array) -> Array:
        """Return the number of each folded row (…, rows, 1), given one number for each head."""
        return self.heads.fold(np.broadcast_to(of_heads[:, None, None], (*self.full[:-2], len(self.chosen), 1)))


def plain(q: Any, k: Any, v: Any, mask: Any, options: DotProductOptions, *, grouped: bool = False) -> AttentionCall:
    """Validate a call of attention without bias, window, softcap or sink, and return it. q, k and v
    have an axis of heads only if `grouped`.

    A mask and causality compose, and the default scale is 1/√d. The conventions `causal_with_mask`
    and `scale_default` concern `oracles.attention` only.
    """
    conventions = resolve_conventions(options["conventions"])
    if (conventions.causal_with_mask, conventions.scale_default) != ("compose", "rsqrt"):
        conventions = replace(conventions, causal_with_mask="compose", scale_default="rsqrt")
    given = {
        **_DEFAULTS,
        "mask": mask,
        "causal": checked_flag(options["is_causal"]),
        "scale": options["scale"],
        "arithmetic": options["arithmetic"],
        "conventions": conventions,
        "method": options["method"],
    }
    return checked(q, k, v, cast(FeatureOptions, given), options["rows"], grouped=grouped)


def checked(
    q: Any, k: Any, v: Any, options: FeatureOptions, rows: Any = None, *, grouped: bool = True
) -> AttentionCall:
    """Validate a call of attention with all options, and return it. `rows` chooses query rows; None
    chooses all.

    Raises ValueError and TypeError for arguments that do not fit.
    """
    arithmetic, conventions, method = asked = answer(options)
    q, k, v = (codes_of(x, name, arithmetic) for x, name in ((q, "q"), (k, "k"), (v, "v")))
    _require_shapes(q, k, v, grouped)
    scales: Any = {name: options.get(f"{name}_scale") for name in "qkv"}
    lead = q.shape[:-1]
    allowed = arrays.bool_mask(options["mask"], "mask", (*lead, k.shape[-2]), conventions.mask_polarity)
    if allowed is not None:
        allowed = arrays.narrowed(allowed)
    if not grouped:
        q, k, v = (x[..., None, :, :] for x in (q, k, v))
        allowed = None if allowed is None else allowed[..., None, :, :]
    heads = Heads(q.shape[-3], k.shape[-3], conventions.kv_heads == "tile")
    layout = _Layout((*q.shape[:-1], k.shape[-2]), heads, checked_positions(rows, q.shape[-2]))
    bias = None if options["bias"] is None else _bias(options["bias"], layout.full, arithmetic)
    shape = None if bias is None else bias.shape
    bias = None if _ignores_bias(options, conventions) else bias
    visible, features = _logits(layout, asked, options, allowed, bias)
    scale = checked_scale(options["scale"])
    default = 1.0 if conventions.scale_default == "one" else 1.0 / sqrt(max(q.shape[-1], 1))
    factor = default if scale is None else scale
    if arithmetic is not None:
        arithmetic = with_dequantising(arithmetic, scales, factor, divides=conventions.fp8_scale == "divide")

    def folded(x: Any) -> Any:
        return heads.fold(x if rows is None else x[..., layout.chosen, :])

    queries, keys, values = dequantised((q, k, v), scales, conventions)
    return AttentionCall(
        numbers=(queries.changed(folded), keys, values),
        lead=lead,
        chosen=layout.chosen,
        heads=heads,
        setting=Setting(visible, factor, arithmetic, conventions, features=features, group=heads.group),
        method=method,
        options={"scale": scale, "conventions": conventions},
        bias=None if bias is None else shape,
        ignored_bias=shape if bias is None else None,
        sink=None if features is None or features.sink is None else (heads.heads, 1, 1),
    )


def _logits(
    layout: _Layout, asked: Answer, options: FeatureOptions, mask: Mask | None, bias: Array | None
) -> tuple[Visible, Tiled | None]:
    """Return the visible keys, and the features of the logits: bias, softcap, sinks and ALiBi. The
    features are None without any of these.
    """
    arithmetic, conventions, _ = asked
    mask, causal = _together(mask, checked_flag(options["causal"], "causal"), conventions)
    finite, mask = (None, mask) if bias is None else _finite(bias, mask)
    band = _band(options["window"], causal, conventions)
    offset = _offset(options["offset"], layout.full, conventions)
    visible = Visible(None if mask is None else layout.shared(mask), _places(layout, offset), *band)
    softcap, sinks = _softcap(options["softcap"]), _sinks(options["sink"], layout, arithmetic)
    slopes = None if options["alibi"] is None else _slopes(options["alibi"], layout, asked, visible.positions)
    kept, dropout = _dropout(options, layout, conventions)
    if all(x is None for x in (softcap, finite, sinks, slopes, kept)):
        return visible, None
    shared = None if finite is None else layout.shared(finite)
    features = Tiled(softcap, conventions.softcap_order != "before_bias", shared, None, sinks, slopes, kept, dropout)
    if softcap is not None and conventions.softcap_order == "after_mask" and not visible.everything:
        return Visible(None, visible.positions), features._replace(blocked=visible)
    return visible, features


def _require_shapes(q: Array, k: Array, v: Array, grouped: bool) -> None:
    """Raise ValueError unless the heads, rows, columns and leading axes of q, k and v fit together.
    Without an axis of heads, each input must have at least one row.
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


def _together(mask: Mask | None, causal: bool, conventions: Conventions) -> tuple[Mask | None, bool]:
    """Return the mask and the causal flag that `Conventions.causal_with_mask` leaves in effect.
    Raises ValueError if it refuses the two together.
    """
    if mask is None or not causal or conventions.causal_with_mask == "compose":
        return mask, causal
    if conventions.causal_with_mask == "refuse":
        raise ValueError(
            "A mask is given with causal=True, but should not be: Conventions.causal_with_mask is 'refuse'."
        )
    return (mask, False) if conventions.causal_with_mask == "mask_wins" else (None, True)


def _ignores_bias(options: FeatureOptions, conventions: Conventions) -> bool:
    """Return whether a bias has no effect, since causality counts alone."""
    return conventions.causal_with_mask == "causal_alone" and checked_flag(options["causal"], "causal")


def _bias(given: Any, shape: tuple[int, ...], arithmetic: Arithmetic | None) -> Array:
    """Return the bias as float64. Raises ValueError unless it broadcasts to `shape` and each entry
    is finite or −∞.
    """
    bias = arrays.float_array(given, "bias", arithmetic=arithmetic)
    trailing = shape[len(shape) - bias.ndim :]
    if bias.ndim > len(shape) or any(
        size not in (1, expected) for size, expected in zip(bias.shape, trailing, strict=True)
    ):
        raise ValueError(f"bias has shape {bias.shape}, but should broadcast to {shape}.")
    if not (bias < np.inf).all():
        raise ValueError("bias has a NaN or +∞, but should be finite, or −∞ where it masks.")
    return bias


def _finite(bias: Array, mask: Mask | None) -> tuple[Array, Mask | None]:
    """Return the bias with 0 in place of −∞, and the mask that masks these entries too."""
    finite = bias > -np.inf
    if finite.all():
        return bias, mask
    return np.where(finite, bias, 0.0), finite if mask is None else mask & finite


def _sinks(given: Any, layout: _Layout, arithmetic: Arithmetic | None) -> Array | None:
    """Return the sink of each folded row (…, rows, 1), given one sink for each head; None without
    sinks.
    """
    if given is None:
        return None
    sink = _of_heads(given, "sink", layout, arithmetic)
    if not (sink < np.inf).all():
        raise ValueError("sink has a NaN or +∞, but should be finite, or −∞ for a head without a sink.")
    return layout.of_rows(sink)


def _of_heads(given: Any, name: str, layout: _Layout, arithmetic: Arithmetic | None) -> Array:
    """Return one number for each head of q as float64. Raises ValueError for another shape."""
    of_heads, heads = arrays.float_array(given, name, arithmetic=arithmetic), layout.heads.heads
    if of_heads.shape != (heads,):
        raise ValueError(f"{name} has shape {of_heads.shape}, but should be ({heads},), one for each head of q.")
    return of_heads


def _slopes(given: Any, layout: _Layout, asked: Answer, positions: NDArray[np.int64]) -> Slopes:
    """Return ALiBi's slopes, numbers of the elementwise format or of the inputs', whichever is finer, and
    the positions of the folded rows. Raises ValueError for slopes that are not finite, and for
    positions whose distances from keys are not integers of float64.
    """
    arithmetic = asked.arithmetic
    if arithmetic is not None and arithmetic.elementwise.holds(arithmetic.inputs):
        arithmetic = replace(arithmetic, inputs=arithmetic.elementwise)
    alibi = _of_heads(given, "alibi", layout, arithmetic)
    if not np.isfinite(alibi).all():
        raise ValueError("alibi has a slope that is not finite, but all slopes should be finite.")
    if np.abs(positions).max(initial=0) > FARTHEST_OF_ALIBI:
        raise ValueError("alibi is given with an offset beyond ±2**52, but distances should be integers of float64.")
    return Slopes(layout.of_rows(alibi), positions if asked.conventions.alibi_reference == "distance" else None)


def _dropout(options: FeatureOptions, layout: _Layout, conventions: Conventions) -> tuple[Shared | None, float]:
    """Return which weights dropout keeps, and its probability; None and 0 without dropout. Raises
    ValueError and TypeError for arguments that do not fit.
    """
    given: Any = {"dropout_mask": None, "dropout": 0.0} | options
    p = checked_scale(given["dropout"], "dropout")
    if p is None or not 0 <= p < 1:
        raise ValueError(f"dropout={given['dropout']}, but should be at least 0 and less than 1.")
    kept = arrays.bool_mask(given["dropout_mask"], "dropout_mask", layout.full, "true_allows")
    if kept is None:
        if p:
            raise ValueError(f"dropout={p} is given without dropout_mask, but should come with it.")
        return None, 0.0
    if conventions.dead_rows == "uniform":
        raise ValueError("dropout_mask is given, but should not be: Conventions.dead_rows is 'uniform'.")
    return layout.shared(arrays.narrowed(kept)), p


def _softcap(given: Any) -> float | None:
    softcap = checked_scale(given, "softcap")
    if softcap is not None and softcap <= 0:
        raise ValueError(f"softcap={given}, but should be more than 0, or None.")
    return softcap


def _band(window: Any, causal: bool, conventions: Conventions) -> tuple[int | None, int | None]:
    """Return the lowest and the highest j − p that the window and causality allow, for key j and
    query position p; None means no limit.
    """
    if not isinstance(window, tuple | list) or len(window) != 2:
        raise TypeError(f"window={window!r}, but should be a pair (left, right) of integers or None.")
    counts = conventions.window == "count"
    left = None if window[0] is None else arrays.natural(window[0], "window[0]", int(counts)) - counts
    right = None if window[1] is None else arrays.natural(window[1], "window[1]")
    if causal:
        right = 0
    return None if left is None else -left, right


def _places(layout: _Layout, offset: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the positions of the folded rows among the keys: (rows,), or (…, H_kv, rows) if each
    element of the batch has its own offset.
    """
    heads, places = layout.heads, layout.chosen + offset[..., None]
    if heads.group > 1:
        places = np.tile(places, heads.group)
    if places.ndim == 1:
        return places
    return np.broadcast_to(places[..., None, :], (*places.shape[:-1], heads.kv_heads, places.shape[-1]))


def _offset(offset: Any, full: tuple[int, ...], conventions: Conventions) -> NDArray[np.int64]:
    """Return the position of query row 0 among the keys: one number, or one for each element of the
    batch.
    """
    *batch, _, n_q, n_k = full
    if offset is None:
        return np.array(0 if conventions.causal == "top_left" else n_k - n_q)
    offsets = np.asarray(offset)
    if offsets.dtype == object and all(isinstance(x, int) for x in offsets.flat):
        raise ValueError(f"offset={offset}, but should be within ±2**53.")
    if offsets.dtype.kind not in "iu":
        raise TypeError(
            f"offset has element type {offsets.dtype}, but should be an integer, or integers over the batch axes."
        )
    if offsets.ndim and offsets.shape != tuple(batch):
        raise ValueError(f"offset has shape {offsets.shape}, but should be () or {tuple(batch)}, the batch axes of q.")
    if ((offsets > FARTHEST) | (offsets < -FARTHEST)).any():
        raise ValueError(f"offset={offset}, but should be within ±2**53.")
    return offsets.astype(np.int64)
