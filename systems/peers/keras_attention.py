"""Keras on each of its back ends: `ops.dot_product_attention`, `layers.MultiHeadAttention`,
`GroupQueryAttention` and `Attention`.

A process has one back end, which the variable KERAS_BACKEND selects; the others do not run in it.
Arguments and results are NumPy arrays. A layer that returns its scores takes a different path from
one that does not, and the laws test both.
"""

import os
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from oracles import Conventions
from properties.contract.implementation import Implementation
from systems.attention_arguments import AttentionOptions, Projections, with_projections
from systems.peers.jax_arrays import SHAPES, SIZES
from systems.peers.library import Library
from systems.peers.narrow import KERNEL

__all__ = ["BACKENDS", "IMPLEMENTATIONS", "KERAS", "backend"]

KERAS = Library("keras")
BACKENDS = ("jax", "torch", "numpy")
_FILL = -0.7 * 3.4028234663852886e38
_STATE = "a call prints nothing and leaves process-wide state unchanged"
_SEEDS = {_STATE: "Building a layer draws from Python's random numbers"}
_SUBTRACTED = dict.fromkeys(
    (
        "attention is within its error limit",
        "the content of keys masked for all queries does not matter",
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
    """A sentence that says why a library cannot run here on a back end of Keras; "" if it can."""
    return library.unavailable or (
        "" if backend() == name else f"Keras has one back end in a process: KERAS_BACKEND={name}."
    )


def _out(x: Any) -> Any:
    from keras import ops

    return ops.convert_to_numpy(x)


def _attend(q: Any, k: Any, v: Any, *, flash_attention: Any = None, **given: Any) -> Any:
    from keras import ops

    options = AttentionOptions(**given)
    mask, bias = options.mask, options.bias
    if bias is not None and backend() != "torch":
        mask, bias = (bias > -np.inf) & (True if mask is None else mask), np.maximum(bias, _FILL)
    if backend() == "numpy":  # it has no heads that share keys
        k, v = (x.repeat(q.shape[1] // x.shape[1], 1) if x.shape[1] else x for x in (k, v))
    if backend() == "torch":  # it refuses masks and biases of one axis or three axes
        mask, bias = (None if x is None else x.reshape((1,) * (4 - x.ndim) + x.shape) for x in (mask, bias))
    out = ops.dot_product_attention(
        *(x.swapaxes(1, 2) for x in (q, k, v)),
        bias=bias,
        mask=mask,
        scale=options.scale,
        is_causal=options.causal,
        flash_attention=flash_attention,
    )
    return _out(out).swapaxes(1, 2)


def _plain(q: Any, k: Any, v: Any, mask: Any = None, **options: Any) -> Any:
    return _attend(q, k, v, mask=mask, **options)


def _built(layer: Any, x: Any, weights: Projections, num_heads: int) -> Any:
    """The layer, built for sequences like x, with these weights."""
    *inputs, wo = weights
    layer.build(x.shape, x.shape, x.shape)
    kernels = [weight.reshape(len(weight), num_heads, -1) for weight in inputs]
    layer.set_weights([*kernels, wo.reshape(num_heads, -1, wo.shape[1])])
    return layer


def _heads(scores: bool, x: Any, weights: Projections, num_heads: int, mask: Any = None) -> Any:
    from keras import layers

    layer = layers.MultiHeadAttention(num_heads, weights.wq.shape[1] // num_heads, use_bias=False)
    return _attended(_built(layer, x, weights, num_heads), x, mask, scores)


def _grouped(scores: bool, x: Any, weights: Projections, num_heads: int, mask: Any = None) -> Any:
    from keras import layers

    layer = layers.GroupQueryAttention(weights.wq.shape[1] // num_heads, num_heads, num_heads, use_bias=False)
    return _attended(_built(layer, x, weights, num_heads), x, mask, scores)


def _attended(layer: Any, x: Any, mask: Any, scores: bool) -> Any:
    """The output of a layer, which also returns its scores or not."""
    result = layer(x, x, attention_mask=mask, return_attention_scores=scores)
    return _out(result[0] if scores else result)


def _shared(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
    """The output of `layers.GroupQueryAttention` with heads that share keys.

    Each kernel is the identity, and the heads lie side by side in the channels.
    """
    from keras import layers

    heads, shared, d = q.shape[1], k.shape[1], q.shape[-1]
    layer = layers.GroupQueryAttention(d, heads, shared, use_bias=False)
    tokens = [x.swapaxes(1, 2).reshape(len(x), x.shape[2], -1) for x in (q, v, k)]
    layer.build(*(x.shape for x in tokens))
    wide, narrow = (np.eye(n * d, dtype=q.dtype) for n in (heads, shared))
    key_kernel = narrow.reshape(-1, shared, d)
    layer.set_weights([wide.reshape(-1, heads, d), key_kernel, key_kernel, wide.reshape(heads, d, -1)])
    out = _out(layer(*tokens, attention_mask=mask))
    return out.reshape(*out.shape[:2], heads, d).swapaxes(1, 2)


def _layer(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
    """The output of `layers.Attention`, which has a weight for its scale, and takes a mask of keys."""
    from keras import layers

    layer = layers.Attention(use_scale=True)
    layer.build([q.shape, v.shape, k.shape])
    layer.set_weights([np.array(max(q.shape[-1], 1) ** -0.5, np.float32)])
    if mask is None:
        return _out(layer([q, v, k], mask=None))
    keys = mask.reshape(mask.shape[-1:])[None].repeat(len(q), 0) if mask.ndim < 3 else mask[..., 0, :]
    return _out(layer([q, v, k], mask=[None, keys]))


_SUPPORTS: dict[str, tuple[Any, ...]] = {
    "jax": ("positive sizes", SHAPES, SIZES | {"value_dim_minus_head_dim": [0]}),
    "numpy": ({"n_k": lambda n: n > 0},),
}
"""The sizes of a back end: JAX's attention needs values as wide as keys, and NumPy's maximum over no keys raises."""


def _implementation(
    on: str, name: str, operations: dict[str, Callable[..., Any]], ranks: tuple[int, ...], **promises: Any
) -> Implementation:
    arithmetic, supports = promises.pop("arithmetic", "float32"), promises.pop("supports", ())
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
_LAYERS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    name: (with_projections(partial(function, False)), with_projections(partial(function, True)))
    for name, function in ((_MHA, _heads), (_GQA, _grouped))
}
"""Each layer without and with its scores."""
_PATHS = {
    f"all code paths of an implementation give the same result[{_HEADS}]": "MultiHeadAttention: a row without keys "
    "is 0 or the mean, as return_attention_scores is given or not"
}


def _of(on: str) -> list[Implementation]:
    """The implementations on one back end.

    NumPy has no heads that share keys. torch takes either a mask or a bias. `layers.Attention` uses
    operations that are the same on all back ends, and JAX, which would compile each, leaves it out.
    On torch causality comes without a scale: with both, PyTorch's kernel for the CPU returns NaN if
    the scale is 0 or below (docs/findings.md).
    """
    features = ("mask", "causal") if on == "torch" else ("mask", "bias", "scale", "causal")
    functions = _PLAIN if on == "numpy" else _PLAIN | {"grouped_query_attention": _plain}
    layer = _implementation(
        on,
        "layers.Attention",
        {"scaled_dot_product_attention": _layer},
        (1,),
        supports=("key masks",),
        known_deviations=_SUBTRACTED,
    )
    shared = _implementation(
        on,
        f"{_GQA}, shared keys",
        {"grouped_query_attention": _shared},
        (2,),
        supports=("positive sizes", "full masks", {"value_dim_minus_head_dim": [0]}),
        known_deviations=_SEEDS,
    )
    heads = partial(_implementation, on, ranks=(1,), supports=("full masks",))
    without_flash = {name: partial(function, flash_attention=False) for name, function in functions.items()}
    with_scores = {name: {"with scores": {_HEADS: scored}} for name, (_, scored) in _LAYERS.items()}
    return [
        _implementation(
            on, "ops.dot_product_attention", functions, (2,), known_deviations=_NO_CHANNELS if on == "numpy" else {},
            twins={"flash_attention=False": without_flash},
        ),
        *(
            [_implementation(on, "ops.dot_product_attention", functions, (2,), arithmetic="bfloat16")]
            if on == "torch" else []
        ),
        _implementation(
            on, "ops.dot_product_attention with features", {"attention": _attend}, (2,),
            supports=("no log-sum-exp",), features=features,
        ),
        heads(_MHA, {_HEADS: _LAYERS[_MHA][0]}, known_deviations=_SEEDS | _PATHS, twins=with_scores[_MHA]),
        heads(f"{_MHA} with scores", {_HEADS: _LAYERS[_MHA][1]}, known_deviations=_SEEDS, conventions=_ZERO),
        heads(_GQA, {_HEADS: _LAYERS[_GQA][0]}, known_deviations=_SEEDS | _PATHS, twins=with_scores[_GQA]),
        *([] if on == "jax" else [layer, shared]),
    ]  # fmt: skip


IMPLEMENTATIONS = [implementation for on in BACKENDS for implementation in _of(on)]
