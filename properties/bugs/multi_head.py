"""Slips in multi-head attention: heads, their masks, their scale, their weights."""

from collections.abc import Callable
from typing import Any

import numpy as np

from oracles.ball import Array
from properties.bugs.bug import Register
from properties.bugs.kernels import allowed
from properties.reference import Mask, merge_heads, multi_head_attention, scaled_dot_product_attention, split_heads

bug = Register()

ONE = "one head is self attention"
SUM = "multi head attention is the sum of its heads"
TOKENS = "tokens move with their outputs"
BLOCKED = "blocked tokens do not matter"
BATCHES = "batches are computed one by one"


def _multi_head(
    x: Array, wq: Array, wk: Array, wv: Array, wo: Array, num_heads: int, head_mask: Any,
    split: Callable[[Array, int], Array] = split_heads, merge: Callable[[Array], Array] = merge_heads, sharper: float = 1.0,
) -> Array:  # fmt: skip
    """Multi-head attention with a mask for each head, with scores `sharper` times as large."""
    q, k, v = (split(x @ w, num_heads) for w in (wq, wk, wv))
    return merge(scaled_dot_product_attention(q * sharper, k, v, head_mask)) @ wo


def _shared(x: Array, mask: Mask) -> Any:
    """The mask that all heads share, with an axis of length 1 for them."""
    return allowed(mask, (*x.shape[:-1], x.shape[-2]))[..., None, :, :]


@bug(
    "multi_head_attention",
    effect="With several heads, each head mixes tokens with lanes; one head or one token is right.",
    repair="Reshape to (n, heads, width), then exchange tokens and heads.",
    citation="reczoo/FuxiCTR#30; 649453932/Chinese-Text-Classification-Pytorch#53; hyunwoongko/transformer#15",
    law=TOKENS,
    public=True,
)
def mha_split_heads_view(x: Array, wq: Array, wk: Array, wv: Array, wo: Array, num_heads: int, mask: Mask = None) -> Array:
    """Projections (n, heads·width) are reshaped to (heads, n, width) without a transpose, and merged likewise."""

    def split(y: Array, heads: int) -> Array:
        return y.reshape(*y.shape[:-2], heads, y.shape[-2], y.shape[-1] // heads)

    def merge(y: Array) -> Array:
        return y.reshape(*y.shape[:-3], y.shape[-2], y.shape[-3] * y.shape[-1])

    return _multi_head(x, wq, wk, wv, wo, num_heads, _shared(x, mask), split, merge)


@bug(
    "multi_head_attention",
    effect="Heads get each other's columns, unless there is one head or heads are one lane wide.",
    repair="Head h has the columns h·width to (h + 1)·width.",
    citation="tenstorrent/tt-metal#6243",
    law=SUM,
    public=True,
)
def mha_strided_head_split(x: Array, wq: Array, wk: Array, wv: Array, wo: Array, num_heads: int, mask: Mask = None) -> Array:
    """Head h takes the columns h, h + heads, h + 2·heads …, and the outputs are merged in blocks."""

    def split(y: Array, heads: int) -> Array:
        return np.moveaxis(y.reshape(*y.shape[:-1], y.shape[-1] // heads, heads), -1, -3)

    return _multi_head(x, wq, wk, wv, wo, num_heads, _shared(x, mask), split)


@bug(
    "multi_head_attention",
    effect="For some widths of heads the future and the padding are attended to.",
    repair="Pass the mask on to every path.",
    citation="keras-team/keras#23038; pytorch/pytorch#99282; facebookresearch/xformers#103",
    law=BLOCKED,
    public=True,
)
def mha_fused_path_drops_mask(x: Array, wq: Array, wk: Array, wv: Array, wo: Array, num_heads: int, mask: Mask = None) -> Array:
    """The mask is ignored where the width of a head is a multiple of 8."""
    return multi_head_attention(x, wq, wk, wv, wo, num_heads, None if wq.shape[-1] // num_heads % 8 == 0 else mask)


@bug(
    "multi_head_attention",
    effect="Attention is too sharp, the more the wider the heads are.",
    repair="Divide the scores by the root of the width of a head.",
    citation="none: the commonest slip of a first version",
    law="padding heads with zero lanes needs doubled queries",
)
def mha_scale_missing(x: Array, wq: Array, wk: Array, wv: Array, wo: Array, num_heads: int, mask: Mask = None) -> Array:
    """The scores are not scaled."""
    return _multi_head(x, wq, wk, wv, wo, num_heads, _shared(x, mask), sharper=np.sqrt(wq.shape[-1] // num_heads))


@bug(
    "multi_head_attention",
    effect="Attention is too flat or too sharp, unless there are as many heads as lanes in one.",
    repair="Scale by the width of a head.",
    citation="tenstorrent/tt-metal#56789",
    law=SUM,
)
def mha_scale_by_number_of_heads(x: Array, wq: Array, wk: Array, wv: Array, wo: Array, num_heads: int, mask: Mask = None) -> Array:
    """The scale is 1/√heads."""
    width = wq.shape[-1] // num_heads
    return _multi_head(x, wq, wk, wv, wo, num_heads, _shared(x, mask), sharper=np.sqrt(width / num_heads))


@bug(
    "multi_head_attention",
    effect="Attention is too flat by the root of the number of heads.",
    repair="Scale by the width of a head.",
    citation="lucidrains/vit-pytorch#65; omihub777/ViT-CIFAR#12; Graylab/DL4Proteins-notebooks#12",
    law=ONE,
)
def mha_scale_by_model_width(x: Array, wq: Array, wk: Array, wv: Array, wo: Array, num_heads: int, mask: Mask = None) -> Array:
    """The scale is 1/√d_model."""
    width = wq.shape[-1] // num_heads
    return _multi_head(x, wq, wk, wv, wo, num_heads, _shared(x, mask), sharper=np.sqrt(width / max(x.shape[-1], 1)))


@bug(
    "multi_head_attention",
    effect="Weights come from the values and averages are taken of the keys.",
    repair="Pass the projections in their order.",
    citation="none: three arrays of one shape in a row, or a fused projection cut up in another order",
    law=ONE,
)
def mha_keys_and_values_exchanged(x: Array, wq: Array, wk: Array, wv: Array, wo: Array, num_heads: int, mask: Mask = None) -> Array:
    """The projections to keys and to values are exchanged."""
    return multi_head_attention(x, wq, wv, wk, wo, num_heads, mask)


@bug(
    "multi_head_attention",
    effect="Outputs are projected by the transpose where the heads together are as wide as the model.",
    repair="Multiply by wo as it is stored, (heads·width, d_model).",
    citation="none: a linear layer that stores its weights as (out, in) expects the transpose, and a square matrix fits either way",
    law="heads permute with the rows of wo",
)
def mha_square_output_weights_transposed(x: Array, wq: Array, wk: Array, wv: Array, wo: Array, num_heads: int, mask: Mask = None) -> Array:
    """Outputs are multiplied by woᵀ where wo is square."""
    return multi_head_attention(x, wq, wk, wv, wo.T if wo.shape[0] == wo.shape[1] else wo, num_heads, mask)


@bug(
    "multi_head_attention",
    effect="Each token's output is put together from several tokens.",
    repair="Exchange heads and tokens before the reshape.",
    citation="jsbaan/transformer-from-scratch#6; ajhalthor/Transformer-Neural-Network#4; jadore801120/attention-is-all-you-need-pytorch#7",
    law="identity weights merge what they split",
)
def mha_merged_without_transpose(x: Array, wq: Array, wk: Array, wv: Array, wo: Array, num_heads: int, mask: Mask = None) -> Array:
    """Heads are split rightly, but (heads, n, width) is reshaped to (n, heads·width) without a transpose."""

    def merge(y: Array) -> Array:
        return y.reshape(*y.shape[:-3], y.shape[-2], y.shape[-3] * y.shape[-1])

    return _multi_head(x, wq, wk, wv, wo, num_heads, _shared(x, mask), merge=merge)


@bug(
    "multi_head_attention",
    effect="The input comes out again with the attention.",
    repair="Leave the residual to the block.",
    citation="none: layer and block are written in one function, and taken apart later",
    law=SUM,
)
def mha_adds_its_input(x: Array, wq: Array, wk: Array, wv: Array, wo: Array, num_heads: int, mask: Mask = None) -> Array:
    """The residual connection is part of the result."""
    return multi_head_attention(x, wq, wk, wv, wo, num_heads, mask) + x


@bug(
    "multi_head_attention",
    effect="With several heads in a batch, examples are masked as others of the batch.",
    repair="Repeat each mask for its heads: the order is batch, then head.",
    citation="lsdefine/attention-is-all-you-need-keras#36; line/lighthouse#77",
    law="blocked tokens do not matter",
)
def mha_masks_in_the_order_of_heads(x: Array, wq: Array, wk: Array, wv: Array, wo: Array, num_heads: int, mask: Mask = None) -> Array:
    """Masks are tiled instead of repeated: head h of example b has the mask of example (b·heads + h) mod batch."""
    every = _shared(x, mask).reshape(-1, x.shape[-2], x.shape[-2])
    tiled = np.tile(every, (num_heads, 1, 1)).reshape(*x.shape[:-2], num_heads, x.shape[-2], x.shape[-2])
    return _multi_head(x, wq, wk, wv, wo, num_heads, tiled)


@bug(
    "multi_head_attention",
    effect="All heads but the first attend to what is blocked.",
    repair="Give the mask an axis for the heads.",
    citation="none: the mask is added to scores[0], of the one head of the first test",
    law=BLOCKED,
)
def mha_mask_of_the_first_head_only(x: Array, wq: Array, wk: Array, wv: Array, wo: Array, num_heads: int, mask: Mask = None) -> Array:
    """Only head 0 is masked."""
    later = (np.arange(num_heads) > 0)[:, None, None]
    return _multi_head(x, wq, wk, wv, wo, num_heads, _shared(x, mask) | later)


@bug(
    "multi_head_attention",
    effect="With as many tokens as heads, heads attend to heads instead of tokens to tokens.",
    repair="Declare the layout instead of guessing it.",
    citation="none: shape[-3] == num_heads is the test for a layout, and true for both",
    law=TOKENS,
)
def mha_layout_guessed_from_the_shape(x: Array, wq: Array, wk: Array, wv: Array, wo: Array, num_heads: int, mask: Mask = None) -> Array:
    """(n, heads, width) is taken for (heads, n, width) where n is the number of heads, and not transposed."""

    def split(y: Array, heads: int) -> Array:
        return split_heads(y, heads).swapaxes(-2, -3) if y.shape[-2] == heads else split_heads(y, heads)

    def merge(y: Array) -> Array:
        return merge_heads(y.swapaxes(-2, -3) if y.shape[-2] == num_heads else y)

    return _multi_head(x, wq, wk, wv, wo, num_heads, _shared(x, mask), split, merge)
