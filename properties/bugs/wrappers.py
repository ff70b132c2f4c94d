"""Known bugs of code that calls an attention function with options: how it passes a mask, a scale,
a softcap, and blocks of 128.
"""

from math import prod
from typing import Any

import numpy as np

from oracles import Conventions
from oracles.ball import Array
from properties.bugs import reference_attention as right
from properties.bugs.bug import Register
from properties.bugs.multi_head import computed_heads

ATTENTION, VJP = "attention", "attention_vjp"
bug = Register(seen=ATTENTION)
_BLOCK = 128


@bug.in_operation(
    ATTENTION,
    law="appending masked keys changes nothing",
    effect="Masked keys keep a weight of about e^(−2c); a softcap of 50 makes it too small to see.",
    repair="Apply the softcap to the scores, then add the bias and the mask.",
    citations="onnx/onnx#7867",
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
        q @ k.take(right.key_heads(q.shape[-3], k.shape[-3]), -3).mT
    )
    may = right.visible_keys(s.shape, **visible)
    u = softcap * np.tanh(np.where(may, right.biased(s, visible.get("bias")), -np.inf) / softcap)
    return right.attention(q, k, v, bias=u - s, **options)


@bug.in_step(
    "visible_keys",
    law="a window equals the mask of its band",
    effect="In a tree of draft tokens, tokens see their siblings.",
    repair="Pass the mask to the kernel.",
    citations="sgl-project/sglang#20278",
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
    citations="huggingface/diffusers#14342",
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
    citations="NVIDIA/Megatron-LM#1501",
)
def attention_scale_of_the_values(q: Array, k: Array, v: Array, **options: Any) -> tuple[Array, Array]:
    """The default scale is 1/√d_v, from the width of the values."""
    return right.attention(q, k, v, **{"scale": right.scale_of(v.shape[-1], None), **options})


@bug.in_step(
    "visible_keys",
    law="batch elements are computed independently",
    effect="All batch elements except the first are zeros, or have the mask of another element.",
    repair="Build the block mask for the number of keys of the call.",
    citations="pytorch/pytorch#139462",
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
    ATTENTION,
    law="attention with options is within its error limit",
    effect="Heads of the second group and of later groups are zeros.",
    repair="Split the program's number by the number of blocks of a group.",
    citations="flagos-ai/FlagGems#3759",
)
def attention_programs_split_by_the_group_size(q: Array, k: Array, v: Array, **options: Any) -> tuple[Array, Array]:
    """A program computes up to 4 heads of one group, but the code splits its number by the size of a
    group, so it does not write the heads of later groups."""
    output, lse = right.attention(q, k, v, **options)
    written = computed_heads(q.shape[-3], k.shape[-3])[:, None]
    return np.where(written[..., None], output, 0.0), np.where(written, lse, -np.inf)


@bug.in_operation(
    ATTENTION,
    law="batch elements are computed independently",
    effect="While decoding, all batch elements except the first attend to the keys of another sequence.",
    repair="Add the offset of the batch element to the pointers of keys and values.",
    citations="ml-explore/mlx#4431",
)
def attention_two_passes_without_the_batch(q: Array, k: Array, v: Array, **options: Any) -> tuple[Array, Array]:
    """With at most 8 queries, grouped heads and at least 16 keys (1024 in the report), all batch
    elements use the keys and values of the first element."""
    if k.shape[-3] < q.shape[-3] and q.shape[-2] <= 8 and k.shape[-2] >= 16 and k[..., 0, 0, 0].size:
        first = (0,) * (k.ndim - 3)
        k, v = (np.broadcast_to(x[first], x.shape) for x in (k, v))
    return right.attention(q, k, v, **options)


@bug.in_step(
    "visible_keys",
    law="batch elements are computed independently",
    effect="Queries of sequences with a shorter past lose the oldest keys of their windows, or all keys.",
    repair="Start the window at the past of each sequence.",
    citations="microsoft/onnxruntime#27992",
)
def attention_window_starts_at_the_longest_past(
    shape: tuple[int, ...], offset: Any = None, window: Any = (None, None), **others: Any
) -> Any:
    """The window of each sequence starts where the window of the sequence with the longest past
    starts, and ends by its own past."""
    left, right_side = window
    longest = offset if offset is None else np.max(offset, initial=np.min(offset, initial=0))
    own_end = right.visible_keys(shape, offset=offset, window=(None, right_side), **others)
    return own_end & right.visible_keys(shape, offset=longest, window=(left, None))


@bug.in_step(
    "visible_keys",
    without=("attention_jvp",),
    law="attention with options is within its error limit",
    promises={"conventions": Conventions(causal="bottom_right")},
    effect="With more queries than keys, early queries lose the last keys.",
    repair="Leave the missing side open.",
    citations="Dao-AILab/flash-attention#895",
)
def attention_missing_right_side_is_the_number_of_keys(
    shape: tuple[int, ...], window: Any = (None, None), **others: Any
) -> Any:
    """If only the left side of a window is given, the right side is the number of keys, and queries
    before the first key do not see all keys."""
    left, right_side = window
    missing = left is not None and right_side is None
    return right.visible_keys(shape, window=(left, shape[-1] if missing else right_side), **others)


@bug.in_step(
    "options_of",
    law="a broadcast mask gives the same as the full mask",
    effect="Attention with a mask is too flat; the same call without a mask is correct.",
    repair="Scale once, either the queries or the scores.",
    origin="the masked path scales the queries, then calls a function that scales the scores",
)
def attention_scale_twice_under_a_mask(q: Array, k: Array, **options: Any) -> Any:
    """With a mask, the code scales the queries by 1/√d and then the scores."""
    options = right.options_of(q, k, **options)
    once = 1.0 if options.get("mask") is None else right.scaled(np.ones(()), q.shape[-1])
    return {**options, "scale": options["scale"] * float(once)}


@bug.in_step(
    "scale_of",
    law="scale=s equals multiplying the queries by s",
    effect="A given scale has no effect.",
    repair="Pass the scale to the kernel.",
    origin="a wrapper accepts the argument, and the kernel computes its own scale",
)
def attention_scale_ignored(width: int, scale: float | None) -> float:
    """The code ignores a given scale and uses the default."""
    return right.scale_of(width, None)


@bug.in_operation(
    ATTENTION,
    law="a fully masked row with options follows its convention",
    effect=(
        "A fully masked query attends to all keys by their scores, and a masked key gets weight if its score is "
        "10000 above the visible scores."
    ),
    repair="Mask with −∞.",
    origin="PaddlePaddle's attention on processors masks future keys this way",
)
def attention_ten_thousand_subtracted(q: Array, k: Array, v: Array, **options: Any) -> tuple[Array, Array]:
    """The code adds −10000 to masked scores after it scales them."""
    names = ("mask", "bias", "causal", "offset", "window")
    visible = {name: options.pop(name) for name in names if name in options}
    shape = (*q.shape[:-1], k.shape[-2])
    added = np.where(right.visible_keys(shape, **visible), 0.0, -1e4)
    return right.attention(q, k, v, bias=right.biased(added, visible.get("bias")), **options)


@bug.in_operation(
    VJP,
    law="a chunk of queries gives the same rows as all queries",
    effect="Gradients are NaN unless the number of keys is a multiple of 128.",
    repair="Mask the padding after the scores are changed.",
    citations="pytorch/pytorch#153799",
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
