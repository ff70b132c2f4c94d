"""Known bugs of code that calls an attention function with options: how it passes a mask, a scale,
a softcap, and blocks of 128.
"""

from math import prod
from typing import Any

import numpy as np

from oracles.ball import Array
from properties.bugs import reference_attention as right
from properties.bugs.bug import Register

bug = Register()
ATTENTION, VJP = "attention", "attention_vjp"
_BLOCK = 128


@bug.in_operation(
    ATTENTION,
    law="appending masked keys changes nothing",
    effect="Masked keys keep a weight of about e^(−2c); a softcap of 50 makes it too small to see.",
    repair="Apply the softcap to the scores, then add the bias and the mask.",
    citations=("onnx/onnx#7867",),
)
def attention_cap_after_the_mask(
    q: Array, k: Array, v: Array, *, softcap: float | None = None, **options: Any
) -> tuple[Array, Array]:
    """The code applies the softcap to scores that are already masked, which turns −∞ into −c."""
    if softcap is None:
        return right.attention(q, k, v, **options)
    names = ("mask", "bias", "causal", "offset", "window")
    visible = {name: options.pop(name) for name in names if name in options}
    s = right.scale_of(q.shape[-1], options.get("scale")) * (
        q @ right.transposed(k.take(right.key_heads(q.shape[-3], k.shape[-3]), -3))
    )
    may = right.visible_keys(s.shape, **visible)
    u = softcap * np.tanh(np.where(may, right.biased(s, visible.get("bias")), -np.inf) / softcap)
    return right.attention(q, k, v, bias=u - s, **options)


@bug.in_step(
    "visible_keys",
    seen=ATTENTION,
    law="a window equals the mask of its band",
    effect="In a tree of draft tokens, tokens see their siblings.",
    repair="Pass the mask to the kernel.",
    citations=("sgl-project/sglang#20278",),
)
def attention_mask_taken_for_causality(
    shape: tuple[int, ...], mask: Any = None, causal: bool = False, **others: Any
) -> Any:
    """The code replaces every mask by a causal mask."""
    return right.visible_keys(shape, causal=causal or mask is not None, **others)


@bug.in_operation(
    ATTENTION,
    law="the content of keys masked for all queries does not matter",
    effect="A masked key gets 1/e of the weight of a visible key.",
    repair="Convert the mask to a bias of 0 and −∞.",
    citations=("huggingface/diffusers#14342",),
)
def attention_mask_taken_for_a_bias(q: Array, k: Array, v: Array, **options: Any) -> tuple[Array, Array]:
    """The code passes a boolean mask as a bias, and adds 0 and 1 to the scores."""
    mask, bias = options.get("mask"), options.get("bias")
    added = bias if mask is None else mask + (0.0 if bias is None else bias)
    return right.attention(q, k, v, **{**options, "mask": None, "bias": added})


@bug.in_operation(
    ATTENTION,
    law="columns of values are computed independently",
    effect="Training is unstable if widths differ, as in multi-head latent attention.",
    repair="Take the scale from the width of the queries.",
    citations=("NVIDIA/Megatron-LM#1501",),
)
def attention_scale_of_the_values(q: Array, k: Array, v: Array, **options: Any) -> tuple[Array, Array]:
    """The default scale is 1/√d_v, from the width of the values."""
    return right.attention(q, k, v, **{"scale": right.scale_of(v.shape[-1], None), **options})


@bug.in_step(
    "visible_keys",
    seen=ATTENTION,
    law="batch elements are computed independently",
    effect="All batch elements except the first are zeros, or have the mask of another element.",
    repair="Build the block mask for the number of keys of the call.",
    citations=("pytorch/pytorch#139462",),
)
def attention_blocks_of_more_keys(shape: tuple[int, ...], mask: Any = None, **others: Any) -> Any:
    """The code builds the mask for a multiple of 128 keys, and reads the batch with that stride."""
    visible = right.visible_keys(shape, mask, **others)
    problems, size = prod(shape[:-3]), prod(shape[-3:])
    if mask is None or problems < 2 or not size:
        return visible
    padded_size = size // shape[-1] * (-(-shape[-1] // _BLOCK) * _BLOCK)
    places = np.arange(problems)[:, None] * padded_size + np.arange(size)
    flat = np.append(visible.ravel(), False)
    return flat[np.minimum(places, visible.size)].reshape(shape)


@bug.in_operation(
    VJP,
    law="a chunk of queries gives the same rows as all queries",
    effect="Gradients are NaN unless the number of keys is a multiple of 128.",
    repair="Mask the padding after the scores are changed.",
    citations=("pytorch/pytorch#153799",),
)
def attention_gradients_of_a_partial_block(
    q: Array, k: Array, v: Array, grad_out: Array, **options: Any
) -> tuple[Any, ...]:
    """With more than 128 keys, the last block has padded keys with scores of −∞, which a softcap or
    a bias turns into NaN."""
    result = right.attention_vjp(q, k, v, grad_out, **options)
    n_k, changed = k.shape[-2], options.get("softcap") is not None or options.get("bias") is not None
    if n_k < _BLOCK or not n_k % _BLOCK or not changed:
        return result
    return tuple(None if x is None else np.full(x.shape, np.nan) for x in result)
