"""Slips in reading arrays: their strides, and the axes of their batch."""

import numpy as np

from oracles.ball import Array
from properties import reference
from properties.bugs.bug import Register
from properties.reference import Mask, multi_head_attention, rope, scaled_dot_product_attention

bug = Register()

VIEWS = "a view equals its copy"
BATCHES = "batches are computed one by one"


@bug(
    "rope",
    effect="Queries that are slices of a packed projection, or transposed, are turned in scrambled order.",
    repair="Use the strides, or make a contiguous copy first.",
    citation="vllm-project/vllm#17091; vllm-project/vllm#16658; deepjavalibrary/djl#3436",
    law=VIEWS,
    requires=("strided views",),
)
def rope_memory_order(x: Array, start_pos: int = 0) -> Array:
    """x is read in the order in which it lies in memory."""
    return rope(x.ravel(order="K").reshape(x.shape), start_pos)


@bug(
    "add_positional_encoding",
    effect="Arrays that are read backwards, as after x[::-1], come out forwards.",
    repair="Use the strides with their sign, or refuse negative ones.",
    citation="none: ROCm/aiter#3301 is asked in review what it does with the strides of flips",
    law=VIEWS,
    requires=("strided views",),
)
def add_ignores_the_sign_of_strides(x: Array, pos: Array) -> Array:
    """Axes with a negative stride are read in the direction of memory."""
    return np.asarray(x[tuple(slice(None, None, -1 if s < 0 else 1) for s in x.strides)] + pos)


@bug(
    "scaled_dot_product_attention",
    effect="A mask that is a transposed view, as mask.T, blocks other keys than it says.",
    repair="Use the mask's strides, or make a contiguous copy first.",
    citation="none: kernels check that q, k and v are contiguous, and forget the mask",
    law=VIEWS,
    requires=("strided views",),
)
def sdpa_mask_memory_order(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """The mask is read in the order in which it lies in memory."""
    return scaled_dot_product_attention(q, k, v, None if mask is None else mask.ravel(order="K").reshape(mask.shape))


@bug(
    "multi_head_attention",
    effect="Padding is right for the first sequence of a batch only.",
    repair="Broadcast the mask over heads, not over the batch.",
    citation="daa233/generative-inpainting-pytorch#31; daa233/generative-inpainting-pytorch#63",
    law="batches are computed one by one",
)
def mha_first_mask_for_all(x: Array, wq: Array, wk: Array, wv: Array, wo: Array, num_heads: int, mask: Mask = None) -> Array:
    """Of a batch of masks the first is used for every element."""
    return multi_head_attention(x, wq, wk, wv, wo, num_heads, mask[:1] if mask is not None and mask.ndim > 2 else mask)


@bug(
    "scaled_dot_product_attention",
    effect="Sequences get each other's padding masks; one sequence, or one head, does not show it.",
    repair="Repeat each mask for all heads of its sequence: repeat_interleave, not repeat.",
    citation="line/lighthouse#77; lsdefine/attention-is-all-you-need-keras#36",
    law="a mask broadcasts",
)
def sdpa_masks_tiled_over_heads(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """Masks (batch, 1, n_q, n_k) are repeated for the heads by tiling the batch."""
    if mask is not None and mask.ndim == 4 and mask.shape[1] == 1 < mask.shape[0]:
        heads = q.shape[1]
        mask = np.tile(mask[:, 0], (heads, 1, 1)).reshape(*q.shape[:2], *mask.shape[2:])
    return scaled_dot_product_attention(q, k, v, mask)


@bug(
    "scaled_dot_product_attention",
    effect="With as many heads as sequences, keys and values of other heads and sequences are used; other shapes raise or are right.",
    repair="Name the layout, and check it where lengths cannot.",
    citation="none: (batch, heads) and (heads, batch) both circulate, and shapes tell them apart but for squares",
    law=BATCHES,
)
def sdpa_square_batch_transposed(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """Where two batch axes are equally long, those of the keys and values are exchanged."""
    if q.ndim > 3 and q.shape[0] == q.shape[1]:
        k, v = k.swapaxes(0, 1), v.swapaxes(0, 1)
    return scaled_dot_product_attention(q, k, v, mask)


@bug(
    "multi_head_attention_vjp",
    effect="The gradients of the weights are too small by the size of the batch.",
    repair="Sum over the batch: whether the loss is a mean is the caller's affair.",
    citation="none: losses are means over the batch, and gradients are made means as well",
    law="vjp and jvp are adjoint",
)
def mha_vjp_averages_the_batch(
    x: Array, wq: Array, wk: Array, wv: Array, wo: Array, num_heads: int, mask: Mask, grad_out: Array
) -> tuple[Array, ...]:
    """The gradients of the weights are means over the batch instead of sums."""
    dx, *dw = reference.multi_head_attention_vjp(x, wq, wk, wv, wo, num_heads, mask, grad_out)
    return dx, *(g / max(int(np.prod(x.shape[:-2])), 1) for g in dw)


@bug(
    "scaled_dot_product_attention",
    effect="An empty batch raises instead of giving an empty result.",
    repair="Allocate the result before the loop over the batch.",
    citation="PriorLabs/TabPFN#570; Dao-AILab/flash-attention#1159; pytorch/pytorch#166318",
    law="an empty batch is empty",
)
def sdpa_empty_batch_raises(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """The elements of a batch are computed in a loop and stacked, which needs at least one."""
    if q.ndim == 2:
        return scaled_dot_product_attention(q, k, v, mask)
    allowed = np.broadcast_to(True if mask is None else mask, (*q.shape[:-1], k.shape[-2]))
    return np.stack([scaled_dot_product_attention(*element) for element in zip(q, k, v, allowed, strict=True)])
