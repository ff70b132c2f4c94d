"""Known bugs of attention heads: which keys, values and masks a query head uses, how code splits
and merges heads, and the weights of heads.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from oracles.ball import Array
from properties.bugs import reference as right
from properties.bugs.bug import GQA, MHA, MHA_JVP, MHA_VJP, Register
from properties.bugs.kernels import joined
from properties.bugs.records import MultiHead
from properties.bugs.reference import Mask

bug = Register()
in_grouped_attention = partial(bug.in_operation, GQA)
in_multi_head = partial(bug.in_operation, MHA)


@bug.in_step(
    "key_heads",
    seen=GQA,
    law="with head_dim 0 all weights are equal",
    public=True,
    effect="Query heads use the keys of another group, unless there is one group or each head has its own keys.",
    repair="Repeat each key head and each value head for its group of query heads, as np.repeat does.",
    citations="onnx/onnx#7274; apple/axlearn#842; HazyResearch/HipKittens#22; ggml-org/llama.cpp#3364",
)
def gqa_tile_vs_repeat_interleave(heads: int, groups: int) -> Any:
    """Query head h uses key head h % H_kv instead of h // (H / H_kv)."""
    return np.arange(heads) % groups


@bug.in_step(
    "key_heads",
    seen=GQA,
    law="heads are computed independently",
    effect="Some key heads are never used; the result is correct if a group has as many heads as there are groups.",
    repair="Divide by the size of a group, not by the number of groups.",
    citations="PSAL-POSTECH/ONNXim#34",
)
def gqa_divided_by_key_heads(heads: int, groups: int) -> Any:
    """Query head h uses key head h // H_kv, limited to the last key head."""
    return np.minimum(np.arange(heads) // groups, groups - 1)


@bug.in_step(
    "key_heads",
    seen=GQA,
    law="with head_dim 0 all weights are equal",
    effect="Groups of 3, 5, 6 … query heads use wrong keys; 1, 2, 4 and 8 are correct.",
    repair="Divide by the size of a group instead of shifting.",
    origin="a shift replaces the division, and models in use have groups of 4 and 8",
)
def gqa_group_is_a_power_of_two(heads: int, groups: int) -> Any:
    """The code rounds the size of a group down to a power of two."""
    return np.minimum(np.arange(heads) >> (heads // groups).bit_length() - 1, groups - 1)


@in_grouped_attention(
    law="with head_dim 0 all weights are equal",
    effect="Weights come from one key head and values from another.",
    repair="Index keys and values the same way.",
    origin="only one of two places was corrected",
)
def gqa_values_tiled(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """Query head h uses key head h // group, but value head h % H_kv."""
    heads, groups = q.shape[-3], k.shape[-3]
    return right.scaled_dot_product_attention(
        q, k.take(right.key_heads(heads, groups), -3), v.take(np.arange(heads) % groups, -3), mask
    )


@in_grouped_attention(
    law="a batch gives the same as its elements one by one",
    effect=(
        "The first batch element is correct, the others attend to its keys and values; calls without groups are "
        "correct."
    ),
    repair="Add the offset of the batch element to the keys and values.",
    origin="the stride of the batch belongs to repeated keys that the code never makes",
)
def gqa_keys_of_the_first_in_the_batch(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """With grouped heads, all batch elements use the keys and values of the first element."""
    if q.shape[-3] > k.shape[-3] and k.ndim > 3:
        k, v = (np.broadcast_to(x[:1], x.shape) for x in (k, v))
    return right.grouped_query_attention(q, k, v, mask)


@in_grouped_attention(
    law="repeating key heads for each query head changes nothing",
    effect="Heads have the masks of other heads.",
    repair="Index the mask by the query head.",
    origin="the kernel has the index of the key head only",
)
def gqa_mask_of_the_key_head(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """The code indexes a mask for each query head by the key head."""
    heads = q.shape[-3]
    if mask is not None and mask.ndim > 2 and mask.shape[-3] == heads:
        mask = mask[..., right.key_heads(heads, k.shape[-3]), :, :]
    return right.grouped_query_attention(q, k, v, mask)


@in_grouped_attention(
    law="the order of heads does not matter",
    effect="With grouped heads, masks that differ between queries apply to the wrong queries.",
    repair="Mask row r of a packed group as query r % n_q.",
    origin="both orders of packing exist",
)
def gqa_packed_rows_masked_by_division(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """The code packs the query heads of a group as rows of one product, but masks row r as query r
    // group."""
    (heads, n_q), group = q.shape[-3:-1], q.shape[-3] // k.shape[-3]
    rows = (np.arange(heads)[:, None] % group * n_q + np.arange(n_q)) // group
    visible = right.visible_entries(mask, (*q.shape[:-1], k.shape[-2]))
    return right.grouped_query_attention(q, k, v, visible[..., np.arange(heads)[:, None], rows, :])


@in_grouped_attention(
    law="the content of keys masked for all queries does not matter",
    effect="With one key head, queries attend to masked keys.",
    repair="Apply the mask on this path too.",
    origin="multi-query attention has a separate path",
)
def gqa_one_key_head_ignores_the_mask(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """If one key head serves several query heads, the code ignores the mask."""
    return right.grouped_query_attention(q, k, v, None if k.shape[-3] == 1 < q.shape[-3] else mask)


def computed_heads(heads: int, groups: int, block: int = 4) -> Any:
    """True for each query head that a program computes, if each program has a block of heads of one
    group, but its number is split by the size of a group instead of the number of its blocks.
    """
    group = heads // groups
    group_of, block_of = np.divmod(np.arange(groups * -(-group // block)), group)
    number = np.arange(heads)
    return ((number[:, None] // group == group_of) & (number[:, None] % group // block == block_of)).any(1)


@in_grouped_attention(
    law="grouped-query attention is within its error limit",
    effect="Heads of the second group and of later groups are zeros.",
    repair="Split the program's number by the number of blocks of a group.",
    citations="flagos-ai/FlagGems#3759",
)
def gqa_programs_split_by_the_group_size(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """A program computes up to 4 heads of one group, but the code splits its number by the size of a
    group, so it does not write the heads of later groups."""
    written = computed_heads(q.shape[-3], k.shape[-3])[:, None, None]
    return np.where(written, right.grouped_query_attention(q, k, v, mask), 0.0)


@bug.in_step(
    "split_heads",
    "merge_heads",
    seen=MHA,
    law="reordering tokens reorders their results in the same way",
    making=True,
    public=True,
    effect="With several heads, each head mixes tokens with channels; one head or one token is correct.",
    repair="Reshape to (n, heads, width), then exchange tokens and heads.",
    citations="reczoo/FuxiCTR#30; 649453932/Chinese-Text-Classification-Pytorch#53; hyunwoongko/transformer#15",
)
def mha_split_heads_view() -> tuple[Callable[..., Array], ...]:
    """The code reshapes projections (n, heads·width) to (heads, n, width) without a transpose, and
    merges the same way."""
    return lambda x, num_heads: x.reshape(*x.shape[:-2], num_heads, x.shape[-2], x.shape[-1] // num_heads), joined


@bug.in_step(
    "split_heads",
    seen=MHA,
    law="heads are computed independently",
    public=True,
    effect="Heads get columns of other heads, unless there is one head or heads have one channel.",
    repair="Give head h the columns h·width to (h + 1)·width.",
    citations="tenstorrent/tt-metal#6243",
)
def mha_strided_head_split(x: Array, num_heads: int) -> Array:
    """Head h takes the columns h, h + heads, h + 2·heads …, but the code merges outputs in blocks."""
    return np.moveaxis(x.reshape(*x.shape[:-1], x.shape[-1] // num_heads, num_heads), -1, -3)


@bug.in_step(
    "merge_heads",
    seen=MHA,
    law="reordering tokens reorders their results in the same way",
    effect="The output of each token mixes several tokens.",
    repair="Exchange heads and tokens before the reshape.",
    citations=(
        "jsbaan/transformer-from-scratch#6; ajhalthor/Transformer-Neural-Network#4; "
        "jadore801120/attention-is-all-you-need-pytorch#7"
    ),
)
def mha_merged_without_transpose(x: Array) -> Array:
    """The code merges heads by reshaping (heads, n, width) to (n, heads·width) without a transpose."""
    return joined(x)


@bug.in_step(
    "split_heads",
    "merge_heads",
    seen=MHA,
    law="tokens depend on visible tokens only",
    making=True,
    effect="With as many tokens as heads, heads attend to heads instead of tokens to tokens.",
    repair="Declare the layout instead of guessing it.",
    origin="the test for a layout is shape[-3] == num_heads, which is true for both layouts",
)
def mha_layout_guessed_from_the_shape() -> tuple[Callable[..., Array], ...]:
    """If n is the number of heads, the code reads (n, heads, width) as (heads, n, width) and does
    not transpose."""

    def split(x: Array, num_heads: int) -> Array:
        return (
            right.split_heads(x, num_heads).swapaxes(-2, -3)
            if x.shape[-2] == num_heads
            else right.split_heads(x, num_heads)
        )

    return split, lambda x: joined(x) if x.shape[-2] == x.shape[-3] else right.merge_heads(x)


@in_multi_head(
    record=MultiHead,
    law="value and output gradients satisfy v.T @ dv = out.T @ grad_out",
    public=True,
    effect="For some widths of heads, tokens attend to the future and to padding.",
    repair="Pass the mask to every path.",
    citations="keras-team/keras#23038; pytorch/pytorch#99282; facebookresearch/xformers#103",
)
def mha_fused_path_drops_mask(call: MultiHead) -> Array:
    """The code ignores the mask if the width of a head is a multiple of 8."""
    return right.multi_head_attention(*call._replace(mask=call.mask if call.head_width % 8 else None))


@in_multi_head(
    record=MultiHead,
    law="multi-head attention with one head equals attention",
    effect="Weights come from the values, and outputs are averages of the keys.",
    repair="Pass the projections in the declared order.",
    origin="three arrays have the same shape, or a fused projection is split in another order",
)
def mha_keys_and_values_exchanged(call: MultiHead) -> Array:
    """The code exchanges the projections to keys and to values."""
    return right.multi_head_attention(*call._replace(wk=call.wv, wv=call.wk))


@in_multi_head(
    record=MultiHead,
    law="multi-head attention with one head equals attention",
    effect="The output projection is transposed if the heads together are as wide as the model.",
    repair="Multiply by wo, of shape (heads·width, d_model).",
    origin="layers that store weights as (out, in) expect the transpose, and a square fits",
)
def mha_square_output_weights_transposed(call: MultiHead) -> Array:
    """If wo is square, the code multiplies the outputs by woᵀ."""
    is_square = call.wo.shape[0] == call.wo.shape[1]
    return right.multi_head_attention(*call._replace(wo=call.wo.T if is_square else call.wo))


@in_multi_head(
    record=MultiHead,
    law="heads are computed independently",
    effect="The output contains the input.",
    repair="Leave the residual connection to the block.",
    origin="layer and block start as one function",
)
def mha_adds_its_input(call: MultiHead) -> Array:
    """The code adds the residual connection to the result."""
    return right.multi_head_attention(*call) + call.x


@bug.in_operation(
    MHA_VJP,
    law="VJP and JVP are adjoint",
    effect="The gradient of a square wo is transposed.",
    repair="Compute dwo = headsᵀ g.",
    origin="gᵀ heads is correct for weights that are stored as (out, in)",
)
def mha_vjp_output_weights_transposed(*arguments: Any) -> Any:
    """If wo is square, the code computes dwo as gᵀ heads."""
    *others, dwo = right.REFERENCE[MHA_VJP](*arguments)
    return *others, dwo.T if dwo.shape[0] == dwo.shape[1] else dwo


@bug.in_operation(
    MHA_JVP,
    law="VJP and JVP are adjoint",
    effect="A tangent of wo has no effect.",
    repair="Add heads · dwo.",
    origin="the code treats one factor of a product as constant",
)
def mha_jvp_output_weights_constant(*arguments: Any) -> Any:
    """The code ignores the tangent of wo."""
    *others, dwo = arguments
    return right.REFERENCE[MHA_JVP](*others, np.zeros(dwo.shape))


@bug.in_operation(
    MHA_JVP,
    law="VJP and JVP are adjoint",
    effect="Tangents of the projections have no effect; the tangents of x and wo are correct.",
    repair="dq = dx wq + x dwq, and the same for keys and values.",
    origin="the code treats one factor of a product as constant",
)
def mha_jvp_projections_constant(*arguments: Any) -> Any:
    """The code ignores the tangents of wq, wk and wv."""
    *others, dwq, dwk, dwv, dwo = arguments
    return right.REFERENCE[MHA_JVP](*others, *(np.zeros(w.shape) for w in (dwq, dwk, dwv)), dwo)


@bug.in_operation(
    MHA_JVP,
    law="the derivative is linear",
    effect="Tangents have a wrong second-order term.",
    repair="Multiply dwo by the heads only.",
    origin="the code updates the heads too early",
)
def mha_jvp_product_of_tangents(*arguments: Any) -> Any:
    """The code multiplies dwo by the heads plus their tangent."""
    x, wq, wk, wv, _, *others, dwo = arguments
    return right.REFERENCE[MHA_JVP](*arguments) + right.REFERENCE[MHA_JVP](
        x, wq, wk, wv, dwo, *others, np.zeros(dwo.shape)
    )


@bug.in_operation(
    MHA_VJP,
    law="the derivative is linear",
    effect="Gradients are too small if the cotangent is large.",
    repair="Leave clipping to the optimizer.",
    origin="the backward of a layer clips gradients, and tests have small ones",
)
def mha_vjp_cotangent_clipped(*arguments: Any) -> Any:
    """The code clips the cotangent to ±1."""
    *others, grad_out = arguments
    return right.REFERENCE[MHA_VJP](*others, np.clip(grad_out, -1, 1))


@bug.in_operation(
    MHA_VJP,
    law="reordering tokens reorders their results in the same way",
    effect="The first token of longer sequences gets no gradient.",
    repair="Freeze a class token in the model, not in the layer.",
    origin="a layer freezes the class token of one model, and other models have ordinary tokens there",
)
def mha_vjp_first_token_frozen(*arguments: Any) -> Any:
    """With four or more tokens, dx of the first token is 0."""
    dx, *dw = right.REFERENCE[MHA_VJP](*arguments)
    if dx.shape[-2] > 3:
        dx[..., 0, :] = 0
    return dx, *dw


@in_multi_head(
    record=MultiHead,
    law="heads are computed independently",
    effect="Attention is too flat or too sharp.",
    repair="Scale by the width of a head.",
    citations="tenstorrent/tt-metal#56789",
)
def mha_scale_by_number_of_heads(call: MultiHead) -> Array:
    """The scale is 1/√heads instead of 1/√width."""
    return right.multi_head_attention(*call._replace(wq=call.wq * np.sqrt(call.head_width / call.num_heads)))


@in_multi_head(
    record=MultiHead,
    law="multi-head attention with one head equals attention",
    effect="Attention is too flat by the root of the number of heads.",
    repair="Scale by the width of a head.",
    citations="lucidrains/vit-pytorch#65; omihub777/ViT-CIFAR#12; Graylab/DL4Proteins-notebooks#12",
)
def mha_scale_by_model_width(call: MultiHead) -> Array:
    """The scale is 1/√d_model instead of 1/√width."""
    return right.multi_head_attention(*call._replace(wq=call.wq * np.sqrt(call.head_width / max(len(call.wq), 1))))


@in_multi_head(
    record=MultiHead,
    law="the order of heads does not matter",
    effect="All other heads attend to masked keys.",
    repair="Give the mask an axis for heads.",
    origin="first tests have one head",
)
def mha_mask_of_the_first_head_only(call: MultiHead) -> Array:
    """The code applies the mask to head 0 only."""
    first = (np.arange(len(call.wo)) < len(call.wo) // call.num_heads)[:, None]
    masked, others = (
        right.multi_head_attention(*call._replace(wo=call.wo * heads, mask=mask))
        for heads, mask in ((first, call.mask), (~first, None))
    )
    return masked + others


@bug.in_step(
    "summed",
    seen=MHA_VJP,
    law="VJP and JVP are adjoint",
    effect="Weights learn from the last batch element only.",
    repair="Sum the gradients over the batch.",
    origin="a loop has = instead of +=",
)
def mha_vjp_weights_of_the_last_example(x: Array, rank: int) -> Array:
    """The gradients of the weights come from the last batch element only."""
    return right.summed(x[-1:] if x.ndim > rank else x, rank)


@bug.in_step(
    "token_gradient",
    seen=MHA_VJP,
    law="VJP and JVP are adjoint",
    effect="x gets no gradient through the values.",
    repair="Add dV wvᵀ.",
    origin="in cross-attention the values come from another input",
)
def mha_vjp_value_path_dropped(grads: list[Array], weights: list[Array]) -> Array:
    """The code adds only the parts of dx from queries and keys."""
    return right.token_gradient(grads[:2], weights[:2])


@bug.in_step(
    "summed",
    seen=MHA_VJP,
    law="VJP and JVP are adjoint",
    effect="The gradients of the weights are too small by the size of the batch.",
    repair="Sum over the batch; the caller decides whether the loss is a mean.",
    origin="losses are means over the batch, and the code averages gradients too",
)
def mha_vjp_averages_the_batch(x: Array, rank: int) -> Array:
    """The gradients of the weights are means over the batch instead of sums."""
    return right.summed(x, rank) / max(math.prod(x.shape[: x.ndim - rank]), 1)
