"""Keras on each of its back ends: `ops.dot_product_attention`, `layers.MultiHeadAttention`,
`GroupQueryAttention` and `Attention`.

A process has one back end, that of the variable KERAS_BACKEND; the others are not run in it. Arrays
are NumPy's, in and out. A layer that returns its scores takes another path than one that does not,
and each is put to the laws.
"""

import os
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from oracles import Conventions
from properties.contract.implementation import Implementation
from systems.peers.jax_arrays import SHAPES, SIZES
from systems.peers.library import Library
from systems.peers.narrow import KERNEL

__all__ = ["BACKENDS", "IMPLEMENTATIONS", "KERAS", "backend"]

KERAS = Library("keras")
BACKENDS = ("jax", "torch", "numpy")
_FILL = -0.7 * 3.4028234663852886e38
_SEEDS = {
    "a call prints nothing and leaves process-wide state unchanged": "Building a layer draws from Python's random numbers"
}
_SUBTRACTED = dict.fromkeys(
    (
        "attention is within its error limit",
        "keys masked for all queries do not matter",
        "masked keys and values do not matter",
        "appending masked keys changes nothing",
        "a fully masked row follows its convention",
        "outputs do not depend on future keys and values",
        "a single visible key has weight 1, however low its score",
    ),
    "Attention subtracts 10⁹ from masked scores: a masked key with a larger one wins",
)
_NO_CHANNELS = dict.fromkeys(
    (
        "attention is within its error limit[scaled_dot_product_attention]",
        "with head_dim 0 the output is the mean of the visible values[scaled_dot_product_attention]",
        "with head_dim 0 all weights are equal[causal_attention]",
    ),
    "Without channels the scale on NumPy is 1/0, and the output NaN",
)


def backend() -> str:
    """The back end of this process."""
    return os.environ.get("KERAS_BACKEND", "")


def unavailable(library: Library, name: str) -> str:
    """Why a library on a back end of Keras cannot be run in this process; "" where it can."""
    return library.unavailable or (
        "" if backend() == name else f"Keras has one back end in a process: KERAS_BACKEND={name}."
    )


def _out(x: Any) -> Any:
    from keras import ops

    return ops.convert_to_numpy(x)


def _attend(
    q: Any,
    k: Any,
    v: Any,
    *,
    mask: Any = None,
    bias: Any = None,
    scale: Any = None,
    causal: bool = False,
    **options: Any,
) -> Any:
    from keras import ops

    if bias is not None and backend() != "torch":
        mask, bias = (bias > -np.inf) & (True if mask is None else mask), np.maximum(bias, _FILL)
    if backend() == "numpy":  # it has no heads that share keys
        k, v = (x.repeat(q.shape[1] // x.shape[1], 1) if x.shape[1] else x for x in (k, v))
    if backend() == "torch":  # masks and biases of one axis or three are refused
        mask, bias = (None if x is None else x.reshape((1,) * (4 - x.ndim) + x.shape) for x in (mask, bias))
    turned = (x.swapaxes(1, 2) for x in (q, k, v))
    return _out(
        ops.dot_product_attention(*turned, bias=bias, mask=mask, scale=scale, is_causal=causal, **options)
    ).swapaxes(1, 2)


def _plain(q: Any, k: Any, v: Any, mask: Any = None, **options: Any) -> Any:
    return _attend(q, k, v, mask=mask, **options)


def _set(layer: Any, x: Any, wq: Any, wk: Any, wv: Any, wo: Any, num_heads: int) -> Any:
    layer.build(x.shape, x.shape, x.shape)
    layer.set_weights(
        [*(w.reshape(len(w), num_heads, -1) for w in (wq, wk, wv)), wo.reshape(num_heads, -1, wo.shape[1])]
    )
    return layer


def _heads(scores: bool, x: Any, wq: Any, wk: Any, wv: Any, wo: Any, num_heads: int, mask: Any = None) -> Any:
    from keras import layers

    layer = _set(
        layers.MultiHeadAttention(num_heads, wq.shape[1] // num_heads, use_bias=False), x, wq, wk, wv, wo, num_heads
    )
    found = layer(x, x, attention_mask=mask, return_attention_scores=scores)
    return _out(found[0] if scores else found)


def _grouped(scores: bool, x: Any, wq: Any, wk: Any, wv: Any, wo: Any, num_heads: int, mask: Any = None) -> Any:
    from keras import layers

    layer = layers.GroupQueryAttention(wq.shape[1] // num_heads, num_heads, num_heads, use_bias=False)
    found = _set(layer, x, wq, wk, wv, wo, num_heads)(x, x, attention_mask=mask, return_attention_scores=scores)
    return _out(found[0] if scores else found)


def _shared(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
    """`layers.GroupQueryAttention` whose heads share keys: each kernel is the identity, and heads
    are channels side by side.
    """
    from keras import layers

    heads, shared, d = q.shape[1], k.shape[1], q.shape[-1]
    layer = layers.GroupQueryAttention(d, heads, shared, use_bias=False)
    tokens = [x.swapaxes(1, 2).reshape(len(x), x.shape[2], -1) for x in (q, v, k)]
    layer.build(*(x.shape for x in tokens))
    wide, narrow = (np.eye(n * d, dtype=q.dtype) for n in (heads, shared))
    of_keys = narrow.reshape(-1, shared, d)
    layer.set_weights([wide.reshape(-1, heads, d), of_keys, of_keys, wide.reshape(heads, d, -1)])
    out = _out(layer(*tokens, attention_mask=mask))
    return out.reshape(*out.shape[:2], heads, d).swapaxes(1, 2)


def _layer(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
    """`layers.Attention`, whose scale is a weight, and whose mask is one of keys."""
    from keras import layers

    layer = layers.Attention(use_scale=True)
    layer.build([q.shape, v.shape, k.shape])
    layer.set_weights([np.array(max(q.shape[-1], 1) ** -0.5, np.float32)])
    given = None if mask is None else [None, mask.reshape(mask.shape[-1:]) if mask.ndim < 3 else mask[..., 0, :]]
    if given is not None and given[1].ndim == 1:
        given[1] = given[1][None].repeat(len(q), 0)
    return _out(layer([q, v, k], mask=given))


_SUPPORTS: dict[str, tuple[Any, ...]] = {
    "jax": ("positive sizes", SHAPES, SIZES | {"value_dim_minus_head_dim": [0]}),
    "numpy": ({"n_k": lambda n: n > 0},),
}
"""What is taken on a back end: JAX' attention wants values as wide as keys, and NumPy's maximum of nothing raises."""


def _implementation(
    on: str, name: str, operations: dict[str, Callable[..., Any]], ranks: tuple[int, ...], supports: tuple[Any, ...] = (),
    arithmetic: str = "float32", **promises: Any,
) -> Implementation:  # fmt: skip
    return Implementation(
        name=KERAS.called(f"{on}: {name} {arithmetic}"),
        operations=operations,
        arithmetic=KERNEL.get(arithmetic, arithmetic),
        batch_ranks=ranks,
        supports=[*_SUPPORTS.get(on, ()), *supports],
        refuses=(Exception,),
        unavailable=unavailable(KERAS, on),
        **{"conventions": Conventions(dead_rows="uniform"), **promises},
    )


_PLAIN: dict[str, Callable[..., Any]] = {
    "scaled_dot_product_attention": _plain,
    "causal_attention": partial(_attend, causal=True),
}
_ZERO = Conventions(dead_rows="zero")
_HEADS, _MHA, _GQA = "multi_head_attention", "layers.MultiHeadAttention", "layers.GroupQueryAttention"
_LAYERS: dict[str, Callable[..., Any]] = {_MHA: _heads, _GQA: _grouped}
_PATHS = {
    f"twin paths give the same result[{_HEADS}]": "MultiHeadAttention: a row without keys is 0 or the mean, as return_attention_scores is given or not"
}


def _of(on: str) -> list[Implementation]:
    """What is put to the laws of one back end: NumPy's has no heads that share keys, and torch's
    takes a mask or a bias. `layers.Attention` is written by operations that do not differ, and is
    left out on JAX, which compiles each. On torch no scale is given beside causality: PyTorch's
    kernel for the CPU makes NaN of the two where the scale is 0 or below (docs/findings.md)."""
    features = ("mask", "causal") if on == "torch" else ("mask", "bias", "scale", "causal")
    functions = _PLAIN if on == "numpy" else _PLAIN | {"grouped_query_attention": _plain}
    layer = _implementation(
        on,
        "layers.Attention",
        {"scaled_dot_product_attention": _layer},
        (1,),
        ("key masks",),
        known_deviations=_SUBTRACTED,
    )
    shared = _implementation(
        on,
        f"{_GQA}, shared keys",
        {"grouped_query_attention": _shared},
        (2,),
        ("positive sizes", "full masks", {"value_dim_minus_head_dim": [0]}),
        known_deviations=_SEEDS,
    )
    heads = partial(_implementation, on, ranks=(1,), supports=("full masks",))
    without_flash = {name: partial(function, flash_attention=False) for name, function in functions.items()}
    with_scores = {name: {"with scores": {_HEADS: partial(function, True)}} for name, function in _LAYERS.items()}
    return [
        _implementation(
            on, "ops.dot_product_attention", functions, (2,), known_deviations=_NO_CHANNELS if on == "numpy" else {},
            twins={"flash_attention=False": without_flash},
        ),
        *([_implementation(on, "ops.dot_product_attention", functions, (2,), arithmetic="bfloat16")] if on == "torch" else []),
        _implementation(
            on, "ops.dot_product_attention with features", {"attention": _attend}, (2,), ("no log-sum-exp",), features=features
        ),
        heads(_MHA, {_HEADS: partial(_heads, False)}, known_deviations=_SEEDS | _PATHS, twins=with_scores[_MHA]),
        heads(f"{_MHA} with scores", {_HEADS: partial(_heads, True)}, known_deviations=_SEEDS, conventions=_ZERO),
        heads(_GQA, {_HEADS: partial(_grouped, False)}, known_deviations=_SEEDS | _PATHS, twins=with_scores[_GQA]),
        *([] if on == "jax" else [layer, shared]),
    ]  # fmt: skip


IMPLEMENTATIONS = [one for on in BACKENDS for one in _of(on)]
