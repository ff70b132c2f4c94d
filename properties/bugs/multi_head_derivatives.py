"""Slips in the derivatives of multi-head attention."""

import numpy as np

from oracles.ball import Array
from properties.bugs.bug import Register
from properties.bugs.kernels import allowed
from properties.reference import (
    Mask,
    merge_heads,
    multi_head_attention_jvp,
    multi_head_attention_vjp,
    scaled_dot_product_attention_vjp,
    split_heads,
)

bug = Register()

Gradients = tuple[Array, ...]

ADJOINT = "vjp and jvp are adjoint"
BATCHES = "batches are computed one by one"


@bug(
    "multi_head_attention_vjp",
    effect="The gradient of wo is transposed where wo is square.",
    repair="dwo = headsᵀ g.",
    citation="none: gᵀ heads is the gradient of a weight that is stored as (out, in)",
    law=ADJOINT,
)
def mha_vjp_output_weights_transposed(
    x: Array, wq: Array, wk: Array, wv: Array, wo: Array, num_heads: int, mask: Mask, grad_out: Array
) -> Gradients:
    """dwo is gᵀ heads where wo is square."""
    *others, dwo = multi_head_attention_vjp(x, wq, wk, wv, wo, num_heads, mask, grad_out)
    return *others, dwo.T if wo.shape[0] == wo.shape[1] else dwo


@bug(
    "multi_head_attention_vjp",
    effect="Weights learn from the last example of a batch.",
    repair="Sum the gradients of the weights over the batch.",
    citation="none: = for += in the loop over the batch",
    law=ADJOINT,
)
def mha_vjp_weights_of_the_last_example(
    x: Array, wq: Array, wk: Array, wv: Array, wo: Array, num_heads: int, mask: Mask, grad_out: Array
) -> Gradients:
    """The gradients of the weights are those of the last entry of the first batch axis."""
    dx, *dw = multi_head_attention_vjp(x, wq, wk, wv, wo, num_heads, mask, grad_out)
    if x.ndim > 2:
        every = allowed(mask, (*x.shape[:-1], x.shape[-2]))
        _, *dw = multi_head_attention_vjp(x[-1:], wq, wk, wv, wo, num_heads, every[-1:], grad_out[-1:])
    return dx, *dw


@bug(
    "multi_head_attention_vjp",
    effect="x gets no gradient through the values.",
    repair="Add dV wvᵀ.",
    citation="none: in cross-attention the values come from elsewhere",
    law=ADJOINT,
)
def mha_vjp_value_path_dropped(
    x: Array, wq: Array, wk: Array, wv: Array, wo: Array, num_heads: int, mask: Mask, grad_out: Array
) -> Gradients:
    """dx is the sum over queries and keys only."""
    dx, *dw = multi_head_attention_vjp(x, wq, wk, wv, wo, num_heads, mask, grad_out)
    q, k, v = (split_heads(x @ w, num_heads) for w in (wq, wk, wv))
    every = allowed(mask, (*x.shape[:-1], x.shape[-2]))[..., None, :, :]
    dv = scaled_dot_product_attention_vjp(q, k, v, every, split_heads(grad_out @ wo.T, num_heads))[2]
    return dx - merge_heads(dv) @ wv.T, *dw


@bug(
    "multi_head_attention_vjp",
    effect="Gradients are those of attention without a mask.",
    repair="Save the mask for the backward.",
    citation="pytorch/pytorch#27461",
    law=ADJOINT,
)
def mha_vjp_mask_ignored(x: Array, wq: Array, wk: Array, wv: Array, wo: Array, num_heads: int, mask: Mask, grad_out: Array) -> Gradients:
    """The backward does without the mask."""
    return multi_head_attention_vjp(x, wq, wk, wv, wo, num_heads, None, grad_out)


@bug(
    "multi_head_attention_jvp",
    effect="A tangent of wo has no effect.",
    repair="Add heads · dwo.",
    citation="none: of a product of two, one is taken for a constant",
    law=ADJOINT,
)
def mha_jvp_output_weights_constant(
    x: Array, wq: Array, wk: Array, wv: Array, wo: Array, num_heads: int, mask: Mask,
    dx: Array, dwq: Array, dwk: Array, dwv: Array, dwo: Array,
) -> Array:  # fmt: skip
    """The tangent of wo is left out."""
    return multi_head_attention_jvp(x, wq, wk, wv, wo, num_heads, mask, dx, dwq, dwk, dwv, np.zeros(wo.shape))


@bug(
    "multi_head_attention_jvp",
    effect="Tangents of the projections' weights have no effect, those of x and wo do.",
    repair="dq = dx wq + x dwq, and likewise for keys and values.",
    citation="none: of a product of two, one is taken for a constant",
    law=ADJOINT,
)
def mha_jvp_projections_constant(
    x: Array, wq: Array, wk: Array, wv: Array, wo: Array, num_heads: int, mask: Mask,
    dx: Array, dwq: Array, dwk: Array, dwv: Array, dwo: Array,
) -> Array:  # fmt: skip
    """The tangents of wq, wk and wv are left out."""
    zero = np.zeros(wq.shape)
    return multi_head_attention_jvp(x, wq, wk, wv, wo, num_heads, mask, dx, zero, zero, zero, dwo)


@bug(
    "multi_head_attention_jvp",
    effect="Tangents are wrong in the second order.",
    repair="Multiply the heads themselves by dwo.",
    citation="none: heads are updated in place before the second term is computed",
    law="the jvp is linear",
)
def mha_jvp_product_of_tangents(
    x: Array, wq: Array, wk: Array, wv: Array, wo: Array, num_heads: int, mask: Mask,
    dx: Array, dwq: Array, dwk: Array, dwv: Array, dwo: Array,
) -> Array:  # fmt: skip
    """dwo is multiplied by the heads and their tangent."""
    tangents = (dx, dwq, dwk, dwv)
    return multi_head_attention_jvp(x, wq, wk, wv, wo, num_heads, mask, *tangents, dwo) + multi_head_attention_jvp(
        x, wq, wk, wv, dwo, num_heads, mask, *tangents, np.zeros(wo.shape)
    )


@bug(
    "multi_head_attention_vjp",
    effect="Gradients are too small wherever the cotangent is large.",
    repair="Leave clipping to the optimizer.",
    citation="none: gradients are clipped in the backward of a layer, and the tests have small ones",
    law="the vjp is linear",
)
def mha_vjp_cotangent_clipped(
    x: Array, wq: Array, wk: Array, wv: Array, wo: Array, num_heads: int, mask: Mask, grad_out: Array
) -> Gradients:
    """The cotangent is limited to ±1."""
    return multi_head_attention_vjp(x, wq, wk, wv, wo, num_heads, mask, np.clip(grad_out, -1, 1))


@bug(
    "multi_head_attention_vjp",
    effect="The first token of longer sequences gets no gradient.",
    repair="Let who freezes a class token do so.",
    citation="none: a class token is frozen in the layer of one model, which others use for other tokens",
    law="gradients move with their tokens",
)
def mha_vjp_first_token_frozen(
    x: Array, wq: Array, wk: Array, wv: Array, wo: Array, num_heads: int, mask: Mask, grad_out: Array
) -> Gradients:
    """From four tokens on, dx of the first one is 0."""
    dx, *dw = multi_head_attention_vjp(x, wq, wk, wv, wo, num_heads, mask, grad_out)
    if x.shape[-2] > 3:
        dx[..., 0, :] = 0
    return dx, *dw
