"""ggml's attention on the CPU: `ggml_flash_attn_ext`, and `ggml_soft_max_ext` between two products.

Both read masks as numbers that they add to the scores: flash attention in float16, the softmax in
float32. ALiBi multiplies the mask by the slope of each head. A twin tests the slopes: it divides a
bias by the slope, and asks ggml for ALiBi. Another twin computes with two threads.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oracles import Arithmetic, Conventions, preset
from oracles.formats import BINARY16
from properties.contract.implementation import Implementation
from properties.contract.twins import Twin
from systems.attention_arguments import AttentionOptions
from systems.native.ggml_arena import Arena
from systems.native.recipes import called, unavailable

__all__ = ["IMPLEMENTATIONS", "flash_attention"]

Array = NDArray[Any]
_INFINITE_SINKS = dict.fromkeys(
    (
        "attention with options is within its error limit",
        "the content of keys masked for all queries does not matter",
        "packed sequences are computed independently",
        "a sink equals one more key with value 0",
        "a fully masked row with options follows its convention",
    ),
    "Flash attention: a sink of −∞ and a fully masked row give NaN",
)
_MAX_BIAS = 8.0
"""ALiBi's exponent of the last slope, as models with ALiBi have it."""


def _slopes(num_heads: int) -> Array:
    """ALiBi's slopes for a largest bias of 8, one after the other: the slopes of the largest power of
    two of heads, then every second slope of twice as many heads.
    """
    power = 2 ** (num_heads.bit_length() - 1)
    exponents = [-_MAX_BIAS * (h + 1) / power for h in range(power)]
    exponents += [-_MAX_BIAS * (2 * h + 1) / (2 * power) for h in range(num_heads - power)]
    return np.exp2(exponents).astype(np.float32)


def _numbers(q: Array, k: Array, options: AttentionOptions, alibi: bool) -> Array | None:
    """The mask and the bias as numbers (batch or 1, heads or 1, n_q, n_k) that are added to the scores."""
    mask, bias = options.mask, options.bias
    if bias is None and mask is None:
        return np.zeros((1, 1, q.shape[2], k.shape[2]), np.float32) if alibi else None
    numbers = np.float32(0) if bias is None else bias
    if alibi:
        numbers = numbers / _slopes(q.shape[1])[:, None, None]
    if mask is not None:
        numbers = np.where(mask, numbers, np.float32(-np.inf))
    numbers = np.asarray(numbers)
    numbers = numbers.reshape((1,) * (4 - numbers.ndim) + numbers.shape)
    return np.broadcast_to(numbers, (*numbers.shape[:2], q.shape[2], k.shape[2]))


def _scale(q: Array, options: AttentionOptions) -> float:
    return float(q.shape[-1] ** -0.5 if options.scale is None else options.scale)


def flash_attention(
    q: Array, k: Array, v: Array, *, threads: int = 1, alibi: bool = False, kind: str | None = None, **given: Any
) -> Array:
    """The output of `ggml_flash_attn_ext`. `kind` quantises keys and values."""
    options = AttentionOptions(**given)
    numbers = _numbers(q, k, options, alibi)
    with Arena() as arena, np.errstate(over="ignore"):
        out = arena.apply(
            "ggml_flash_attn_ext",
            arena.tensor(q.astype(np.float32)),
            arena.tensor(k, kind),
            arena.tensor(v, kind),
            arena.tensor(None if numbers is None else numbers.astype(np.float16)),
            _scale(q, options),
            _MAX_BIAS if alibi else 0.0,
            options.softcap or 0.0,
        )
        arena.add_sinks("ggml_flash_attn_ext", out, options.sink)
        shape = q.shape[0], q.shape[2], q.shape[1], v.shape[3]
        return arena.computed(out, shape, threads).swapaxes(1, 2)


def _softmax(arena: Arena, scores: Any, numbers: Array | None, scale: float, alibi: bool, sink: Any) -> Any:
    weights = arena.apply("ggml_soft_max_ext", scores, arena.tensor(numbers), scale, _MAX_BIAS if alibi else 0.0)
    arena.add_sinks("ggml_soft_max", weights, sink)
    return weights


def _attention(q: Array, k: Array, v: Array, *, threads: int = 1, alibi: bool = False, **given: Any) -> Array:
    """The output of llama.cpp's attention without flash attention: a product, a softmax, a product."""
    options = AttentionOptions(**given)
    with Arena() as arena:
        scores = arena.apply("ggml_mul_mat", arena.tensor(k), arena.tensor(q))
        numbers = _numbers(q, k, options, alibi)
        weights = _softmax(arena, scores, numbers, _scale(q, options), alibi, options.sink)
        out = arena.apply("ggml_mul_mat", arena.tensor(v.swapaxes(2, 3)), weights)
        return arena.computed(out, (*q.shape[:3], v.shape[3]), threads)


def _masked_softmax(scores: Array, mask: Array | None = None) -> Array:
    """The softmax of each row: `ggml_soft_max_ext` with a mask of numbers."""
    full = None if mask is None else np.where(np.broadcast_to(mask, scores.shape), np.float32(0), np.float32(-np.inf))
    with Arena() as arena:
        weights = _softmax(arena, arena.tensor(scores), full, 1.0, False, None)
        return arena.computed(weights, scores.shape, 1)


def _implementation(
    name: str, arithmetic: Arithmetic | str, attend: Callable[..., Array], *features: str, **promises: Any
) -> Implementation:
    twins = {"two threads": partial(attend, threads=2), "ALiBi": partial(attend, alibi=True)}
    return Implementation(
        name=called("ggml", name),
        operations={"attention": attend},
        arithmetic=arithmetic,
        batch_ranks=(2,),
        supports=["no log-sum-exp", "positive sizes", "heads divide"],
        outside="undefined",
        features=("mask", "bias", "scale", "sink", *features),
        unavailable=unavailable("ggml"),
        twins={path: Twin({"attention": function}) for path, function in twins.items()},
        **promises,
    )


_FLOAT16 = replace(
    preset("float32-accumulate16-float16-bias"), name="float32, keys and values in float16", inputs=BINARY16
)

_SOFTMAX = _implementation("softmax float32", "float32", _attention, conventions=Conventions(dead_rows="nan"))

IMPLEMENTATIONS = [
    _implementation(
        "flash float32", "float32-float16-bias", flash_attention, "softcap", known_deviations=_INFINITE_SINKS
    ),
    _implementation("flash float16", _FLOAT16, flash_attention, "softcap", known_deviations=_INFINITE_SINKS),
    replace(_SOFTMAX, operations={**_SOFTMAX.operations, "hard_masked_softmax": _masked_softmax}),
]
