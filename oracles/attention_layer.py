"""Attention as layers of models have it: grouped key heads, biases, and keys and values from a
context. Each returned value comes with a radius: the exact value lies in value ± radius.

    q = x·wq + bq    k = context·wk + bk    v = context·wv + bv
    out = [head_0 | head_1 | …]·wo + bo,    head_h = attention(q_h, k_g, v_g)

Block h of the columns of q belongs to query head h, and block g of the columns of k and v to its key
head g. `oracles.multi_head` computes with the same balls. A bias is one more product, of a column of
ones: a kernel may add it first, last, or to the stored product.
"""

from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from oracles import arrays
from oracles.arguments import checked_flag, checked_scale
from oracles.ball import Array
from oracles.enclosure import Enclosure
from oracles.error_analysis.ball_attention import Setting
from oracles.error_analysis.grouped_heads import Shared
from oracles.error_analysis.visible_keys import Visible
from oracles.exact import attention as arb_attention
from oracles.judging import Balls, Evaluation, settle
from oracles.multi_head import output
from oracles.options import LayerOptions, answer, takes
from oracles.projections import Projections

_WEIGHTS = ("wq", "wk", "wv", "wo")
_BIASES = {"bq": "wq", "bk": "wk", "bv": "wv", "bo": "wo"}
"""The biases, each with the weights to whose product it is added."""


@takes(LayerOptions)
def attention_layer(
    x: Any,
    context: Any,
    wq: Any,
    wk: Any,
    wv: Any,
    wo: Any,
    num_heads: Any,
    **options: Unpack[LayerOptions],
) -> Enclosure:
    """Return the output of a layer: attention of the tokens of x over the tokens of the context. The
    result is an `Enclosure` (value ± radius).

    Shapes: x (…, n_q, d_model), context (…, n_k, d_context), wq (d_model, H·d), wk (d_context, H_kv·d),
    wv (d_context, H_kv·d_v), wo (H·d_v, d_out); the result is (…, n_q, d_out). The widths of wq and wk
    say how many key heads there are.
    Edge cases: n_q = 0, n_k = 0 and d_v = 0 are legal, d = 0 is not. A token that sees no token has the
    output bo; there `conventions.dead_rows` = nan gives NaN, and uniform gives the mean of all values
    times wo, plus bo.
    Raises ValueError and TypeError for shapes, types and values that do not fit.
    """
    call = _checked((x, context, wq, wk, wv, wo), num_heads, options)

    def fast() -> Balls:
        return (output(call),)

    def arb() -> Balls:
        point = (call.x, call.context, *call.arguments[1:])
        return arb_attention.attention_layer(point, call.biases, call.key_heads, call.allowed(), **call.options)

    return settle(Evaluation(call.setting.arithmetic, call.method, fast, arb, call.work, by_rows=True))[0]


def _checked(inputs: tuple[Any, ...], num_heads: Any, options: LayerOptions) -> Projections:
    """Validate a call of a layer, and return it."""
    arithmetic, conventions, method = answer(options)
    names = ("x", "context", *_WEIGHTS)
    x, context, *weights = (
        arrays.float_array(given, name, arithmetic=arithmetic) for given, name in zip(inputs, names, strict=True)
    )
    heads = arrays.natural(num_heads, "num_heads", 1)
    _require_tokens(x, context)
    groups = _key_head_number(dict(zip(_WEIGHTS, weights, strict=True)), x.shape[-1], context.shape[-1], heads)
    biases = {
        name: _bias(options[name], name, weights[_WEIGHTS.index(weight)], arithmetic)  # type: ignore[literal-required]
        for name, weight in _BIASES.items()
        if options[name] is not None  # type: ignore[literal-required]
    }
    n_q, n_k = x.shape[-2], context.shape[-2]
    given = arrays.bool_mask(options["mask"], "mask", (*x.shape[:-1], n_k), conventions.mask_polarity)
    lead = (*x.shape[:-2], heads, 1)
    shared = None if given is None else np.broadcast_to(given[..., None, None, :, :], (*lead, n_q, n_k))
    first = n_k - n_q if conventions.causal == "bottom_right" else 0
    last = 0 if checked_flag(options["causal"]) else None
    visible = Visible(None if shared is None else Shared(shared), first + np.arange(n_q), high=last)
    scale, width = checked_scale(options["scale"]), weights[0].shape[1] // heads
    setting = Setting(visible, scale if scale is not None else 1.0 / np.sqrt(max(width, 1)), arithmetic, conventions)
    own = _key_heads(heads, groups, conventions.kv_heads == "tile")
    named: dict[str, Any] = {"scale": scale, "conventions": conventions}
    wq, wk, wv, wo = weights
    return Projections(x, wq, wk, wv, wo, heads, setting, method, given, named, context, own, biases)


def _key_heads(heads: int, groups: int, tile: bool) -> NDArray[np.int64]:
    """Return the key head of each query head."""
    return np.arange(heads) % groups if tile else np.arange(heads) // (heads // groups)


def _require_tokens(x: Array, context: Array) -> None:
    """Raise ValueError unless x and the context are tokens of the same batch."""
    for array, name in ((x, "x"), (context, "context")):
        if array.ndim < 2:
            raise ValueError(f"{name} has shape {array.shape}, but should be (…, tokens, width).")
    if x.shape[:-2] != context.shape[:-2]:
        raise ValueError(f"context has shape {context.shape}, but should have the leading axes of x, {x.shape[:-2]}.")


def _key_head_number(weights: dict[str, Array], d_model: int, d_context: int, heads: int) -> int:
    """Return the number of key heads. Raises ValueError unless the weights fit to the tokens, to each
    other, and to the query heads.
    """
    for name, rows in (("wq", d_model), ("wk", d_context), ("wv", d_context)):
        if weights[name].ndim != 2 or weights[name].shape[0] != rows:
            raise ValueError(f"{name} has shape {weights[name].shape}, but should have {rows} rows and two axes.")
    query_width, key_width, values_width = (weights[name].shape[1] for name in ("wq", "wk", "wv"))
    width: int = query_width // heads
    if width < 1 or query_width % heads:
        raise ValueError(f"wq has {query_width} columns, but should have a multiple of num_heads={heads}, at least 1.")
    groups: int = key_width // width
    if groups < 1 or key_width % width or heads % groups:
        raise ValueError(
            f"wk has {key_width} columns, but should have head_dim={width} for each key head, whose number divides "
            f"num_heads={heads}."
        )
    if values_width % groups:
        raise ValueError(f"wv has {values_width} columns, but should have a multiple of the {groups} key heads.")
    joined = values_width // groups * heads
    if weights["wo"].ndim != 2 or weights["wo"].shape[0] != joined:
        raise ValueError(f"wo has shape {weights['wo'].shape}, but should have {joined} rows: num_heads · value_dim.")
    return groups


def _bias(given: Any, name: str, weight: Array, arithmetic: Any) -> Array:
    """Return a bias as float64. Raises ValueError unless it has one entry for each column of its weights."""
    array = arrays.float_array(given, name, arithmetic=arithmetic)
    if array.shape != weight.shape[1:]:
        raise ValueError(f"{name} has shape {array.shape}, but should be {weight.shape[1:]}.")
    return array
