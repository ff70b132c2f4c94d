"""Slips in heads: which keys, values and masks a query head meets, how heads are split and merged,
and their weights.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from oracles.ball import Array
from properties.bugs import reference as right
from properties.bugs.bug import GQA, MHA, MHA_JVP, MHA_VJP, Register
from properties.bugs.kernels import joined
from properties.bugs.records import MultiHead
from properties.bugs.reference import Mask

bug = Register()


@bug.in_step(
    "key_heads",
    seen=GQA,
    law="at width zero all weights are equal",
    public=True,
    effect="Query heads meet the keys of another group, unless there is one group or no grouping.",
    repair="Repeat each key head for its group of query heads, h // group.",
    citations=("onnx/onnx#7274", "apple/axlearn#842", "HazyResearch/HipKittens#22", "ggml-org/llama.cpp#3364"),
)
def gqa_tile_vs_repeat_interleave(heads: int, groups: int) -> Any:
    """Query head h uses key head h % H_kv instead of h // (H / H_kv)."""
    return np.arange(heads) % groups


@bug.in_step(
    "key_heads",
    seen=GQA,
    law="heads are computed independently",
    effect="Some key heads are never used; right where groups are as large as they are many.",
    repair="Divide by the size of a group, not by the number of groups.",
    citations=("PSAL-POSTECH/ONNXim#34",),
)
def gqa_divided_by_key_heads(heads: int, groups: int) -> Any:
    """Query head h uses key head h // H_kv, and the last one where there are not so many."""
    return np.minimum(np.arange(heads) // groups, groups - 1)


@bug.in_step(
    "key_heads",
    seen=GQA,
    law="at width zero all weights are equal",
    effect="Groups of 3, 5, 6 … query heads meet wrong keys; 1, 2, 4 and 8 are right.",
    repair="Divide by the size of a group instead of shifting.",
    origin="a shift replaces the division, and models in use have groups of 4 and 8",
)
def gqa_group_is_a_power_of_two(heads: int, groups: int) -> Any:
    """The size of a group is rounded down to a power of two."""
    return np.minimum(np.arange(heads) >> (heads // groups).bit_length() - 1, groups - 1)


@bug.in_operation(
    GQA,
    law="at width zero all weights are equal",
    effect="Weights are of one key head, values of another.",
    repair="Index keys and values alike.",
    origin="one of two places was mended",
)
def gqa_values_tiled(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """Query head h uses key head h // group, but value head h % H_kv."""
    heads, groups = q.shape[-3], k.shape[-3]
    return right.scaled_dot_product_attention(
        q, k.take(right.key_heads(heads, groups), -3), v.take(np.arange(heads) % groups, -3), mask
    )


@bug.in_operation(
    GQA,
    law="batches are computed one by one",
    effect="The first of a batch is right, the others attend to its keys and values; without grouping all is right.",
    repair="Add the batch's own offset to the keys and values.",
    origin="the stride of the batch is that of the repeated keys, which were never made",
)
def gqa_keys_of_the_first_in_the_batch(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """With grouping, all of a batch meet the keys and values of its first."""
    if q.shape[-3] > k.shape[-3] and k.ndim > 3:
        k, v = (np.broadcast_to(x[:1], x.shape) for x in (k, v))
    return right.grouped_query_attention(q, k, v, mask)


@bug.in_operation(
    GQA,
    law="heads of keys can be repeated",
    effect="Heads have each other's masks.",
    repair="Index the mask by the query head.",
    origin="the kernel has the key head",
)
def gqa_mask_of_the_key_head(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """A mask for each query head is indexed by the key head."""
    heads = q.shape[-3]
    if mask is not None and mask.ndim > 2 and mask.shape[-3] == heads:
        mask = mask[..., np.arange(heads) // (heads // k.shape[-3]), :, :]
    return right.grouped_query_attention(q, k, v, mask)


@bug.in_operation(
    GQA,
    law="the order of heads does not matter",
    effect="Masks that differ between queries are applied to the wrong ones as soon as heads are grouped.",
    repair="The query of row r of a packed group is r % n_q.",
    origin="query heads of a group are packed as rows of one product, in either order",
)
def gqa_packed_rows_masked_by_division(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """The query heads of a group lie one after the other as rows of one product, but row r is
    masked as query r // group."""
    (heads, n_q), group = q.shape[-3:-1], q.shape[-3] // k.shape[-3]
    rows = (np.arange(heads)[:, None] % group * n_q + np.arange(n_q)) // group
    every = right.allowed(mask, (*q.shape[:-1], k.shape[-2]))
    return right.grouped_query_attention(q, k, v, every[..., np.arange(heads)[:, None], rows, :])


@bug.in_operation(
    GQA,
    law="keys masked for all queries do not matter",
    effect="With one key head masked keys are attended to.",
    repair="Mask there too.",
    origin="multi-query attention is its own path",
)
def gqa_one_key_head_ignores_the_mask(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """Where one key head serves several query heads, the mask is left out."""
    return right.grouped_query_attention(q, k, v, None if k.shape[-3] == 1 < q.shape[-3] else mask)


@bug.in_step(
    "split_heads",
    "merge_heads",
    seen=MHA,
    law="the order of tokens does not matter",
    making=True,
    public=True,
    effect="With several heads, each head mixes tokens with channels; one head or one token is right.",
    repair="Reshape to (n, heads, width), then exchange tokens and heads.",
    citations=("reczoo/FuxiCTR#30", "649453932/Chinese-Text-Classification-Pytorch#53", "hyunwoongko/transformer#15"),
)
def mha_split_heads_view() -> tuple[Callable[..., Array], ...]:
    """Projections (n, heads·width) are reshaped to (heads, n, width) without a transpose, and
    merged likewise."""
    return lambda x, num_heads: x.reshape(*x.shape[:-2], num_heads, x.shape[-2], x.shape[-1] // num_heads), joined


@bug.in_step(
    "split_heads",
    seen=MHA,
    law="heads are computed independently",
    public=True,
    effect="Heads get each other's columns, unless there is one head or heads are one channel wide.",
    repair="Head h has the columns h·width to (h + 1)·width.",
    citations=("tenstorrent/tt-metal#6243",),
)
def mha_strided_head_split(x: Array, num_heads: int) -> Array:
    """Head h takes the columns h, h + heads, h + 2·heads …, and the outputs are merged in blocks."""
    return np.moveaxis(x.reshape(*x.shape[:-1], x.shape[-1] // num_heads, num_heads), -1, -3)


@bug.in_step(
    "merge_heads",
    seen=MHA,
    law="the order of tokens does not matter",
    effect="Each token's output is put together from several tokens.",
    repair="Exchange heads and tokens before the reshape.",
    citations=(
        "jsbaan/transformer-from-scratch#6",
        "ajhalthor/Transformer-Neural-Network#4",
        "jadore801120/attention-is-all-you-need-pytorch#7",
    ),
)
def mha_merged_without_transpose(x: Array) -> Array:
    """Heads are split rightly, but (heads, n, width) is reshaped to (n, heads·width) without a
    transpose."""
    return joined(x)


@bug.in_step(
    "split_heads",
    "merge_heads",
    seen=MHA,
    law="tokens depend on visible tokens only",
    making=True,
    effect="With as many tokens as heads, heads attend to heads instead of tokens to tokens.",
    repair="Declare the layout instead of guessing it.",
    origin="shape[-3] == num_heads is the test for a layout, and true for both",
)
def mha_layout_guessed_from_the_shape() -> tuple[Callable[..., Array], ...]:
    """(n, heads, width) is taken for (heads, n, width) where n is the number of heads, and not
    transposed."""

    def split(x: Array, num_heads: int) -> Array:
        return (
            right.split_heads(x, num_heads).swapaxes(-2, -3)
            if x.shape[-2] == num_heads
            else right.split_heads(x, num_heads)
        )

    return split, lambda x: joined(x) if x.shape[-2] == x.shape[-3] else right.merge_heads(x)


@bug.in_operation(
    MHA,
    record=MultiHead,
    law="value and output gradients balance",
    public=True,
    effect="For some widths of heads the future and the padding are attended to.",
    repair="Pass the mask on to every path.",
    citations=("keras-team/keras#23038", "pytorch/pytorch#99282", "facebookresearch/xformers#103"),
)
def mha_fused_path_drops_mask(call: MultiHead) -> Array:
    """The mask is ignored where the width of a head is a multiple of 8."""
    return right.multi_head_attention(*call._replace(mask=call.mask if call.head_width % 8 else None))


@bug.in_operation(
    MHA,
    record=MultiHead,
    law="one head is self attention",
    effect="Weights come from the values and averages are taken of the keys.",
    repair="Pass the projections in their order.",
    origin="three arrays of one shape in a row, or a fused projection cut up in another order",
)
def mha_keys_and_values_exchanged(call: MultiHead) -> Array:
    """The projections to keys and to values are exchanged."""
    return right.multi_head_attention(*call._replace(wk=call.wv, wv=call.wk))


@bug.in_operation(
    MHA,
    record=MultiHead,
    law="one head is self attention",
    effect="Outputs are projected by the transpose where the heads together are as wide as the model.",
    repair="Multiply by wo as it is stored, (heads·width, d_model).",
    origin="layers that store weights as (out, in) expect the transpose, and squares fit",
)
def mha_square_output_weights_transposed(call: MultiHead) -> Array:
    """Outputs are multiplied by woᵀ where wo is square."""
    is_square = call.wo.shape[0] == call.wo.shape[1]
    return right.multi_head_attention(*call._replace(wo=call.wo.T if is_square else call.wo))


@bug.in_operation(
    MHA,
    record=MultiHead,
    law="heads are computed independently",
    effect="The input is part of the output.",
    repair="Leave the residual to the block.",
    origin="layer and block begin as one function",
)
def mha_adds_its_input(call: MultiHead) -> Array:
    """The residual connection is part of the result."""
    return right.multi_head_attention(*call) + call.x


@bug.in_operation(
    MHA_VJP,
    law="vjp and jvp are adjoint",
    effect="The gradient of wo is transposed where wo is square.",
    repair="dwo = headsᵀ g.",
    origin="right for weights kept as (out, in)",
)
def mha_vjp_output_weights_transposed(*arguments: Any) -> Any:
    """dwo is gᵀ heads where wo is square."""
    *others, dwo = right.OPERATIONS[MHA_VJP](*arguments)
    return *others, dwo.T if dwo.shape[0] == dwo.shape[1] else dwo


@bug.in_operation(
    MHA_JVP,
    law="vjp and jvp are adjoint",
    effect="A tangent of wo has no effect.",
    repair="Add heads · dwo.",
    origin="of a product of two, one is taken for a constant",
)
def mha_jvp_output_weights_constant(*arguments: Any) -> Any:
    """The tangent of wo is left out."""
    *others, dwo = arguments
    return right.OPERATIONS[MHA_JVP](*others, np.zeros(dwo.shape))


@bug.in_operation(
    MHA_JVP,
    law="vjp and jvp are adjoint",
    effect="Tangents of the projections' weights have no effect, those of x and wo do.",
    repair="dq = dx wq + x dwq, and likewise for keys and values.",
    origin="of a product of two, one is taken for a constant",
)
def mha_jvp_projections_constant(*arguments: Any) -> Any:
    """The tangents of wq, wk and wv are left out."""
    *others, dwq, dwk, dwv, dwo = arguments
    return right.OPERATIONS[MHA_JVP](*others, *(np.zeros(w.shape) for w in (dwq, dwk, dwv)), dwo)


@bug.in_operation(
    MHA_JVP,
    law="the derivative is linear",
    effect="Tangents are wrong in the second order.",
    repair="Multiply the heads themselves by dwo.",
    origin="heads are updated too early",
)
def mha_jvp_product_of_tangents(*arguments: Any) -> Any:
    """dwo is multiplied by the heads and their tangent."""
    x, wq, wk, wv, _, *others, dwo = arguments
    return right.OPERATIONS[MHA_JVP](*arguments) + right.OPERATIONS[MHA_JVP](
        x, wq, wk, wv, dwo, *others, np.zeros(dwo.shape)
    )


@bug.in_operation(
    MHA_VJP,
    law="the derivative is linear",
    effect="Gradients are too small wherever the cotangent is large.",
    repair="Leave clipping to the optimizer.",
    origin="gradients are clipped in the backward of a layer, and the tests have small ones",
)
def mha_vjp_cotangent_clipped(*arguments: Any) -> Any:
    """The cotangent is limited to ±1."""
    *others, grad_out = arguments
    return right.OPERATIONS[MHA_VJP](*others, np.clip(grad_out, -1, 1))


@bug.in_operation(
    MHA_VJP,
    law="the order of tokens does not matter",
    effect="The first token of longer sequences gets no gradient.",
    repair="Let who freezes a class token do so.",
    origin="a class token is frozen in the layer of one model, which others use for other tokens",
)
def mha_vjp_first_token_frozen(*arguments: Any) -> Any:
    """From four tokens on, dx of the first one is 0."""
    dx, *dw = right.OPERATIONS[MHA_VJP](*arguments)
    if dx.shape[-2] > 3:
        dx[..., 0, :] = 0
    return dx, *dw


@bug.in_operation(
    MHA,
    record=MultiHead,
    law="heads are computed independently",
    effect="Attention is too flat or too sharp.",
    repair="Scale by the width of a head.",
    citations=("tenstorrent/tt-metal#56789",),
)
def mha_scale_by_number_of_heads(call: MultiHead) -> Array:
    """The scale is 1/√heads."""
    return right.multi_head_attention(*call._replace(wq=call.wq * np.sqrt(call.head_width / call.num_heads)))


@bug.in_operation(
    MHA,
    record=MultiHead,
    law="one head is self attention",
    effect="Attention is too flat by the root of the number of heads.",
    repair="Scale by the width of a head.",
    citations=("lucidrains/vit-pytorch#65", "omihub777/ViT-CIFAR#12", "Graylab/DL4Proteins-notebooks#12"),
)
def mha_scale_by_model_width(call: MultiHead) -> Array:
    """The scale is 1/√d_model."""
    return right.multi_head_attention(*call._replace(wq=call.wq * np.sqrt(call.head_width / max(len(call.wq), 1))))


@bug.in_operation(
    MHA,
    record=MultiHead,
    law="the order of heads does not matter",
    effect="Heads but the first attend to what is masked.",
    repair="Give the mask an axis for heads.",
    origin="first tests have one head",
)
def mha_mask_of_the_first_head_only(call: MultiHead) -> Array:
    """Only head 0 is masked."""
    first = (np.arange(len(call.wo)) < len(call.wo) // call.num_heads)[:, None]
    masked, others = (
        right.multi_head_attention(*call._replace(wo=call.wo * heads, mask=mask))
        for heads, mask in ((first, call.mask), (~first, None))
    )
    return masked + others


@bug.in_step(
    "summed",
    seen=MHA_VJP,
    law="vjp and jvp are adjoint",
    effect="Weights learn from the last example of a batch.",
    repair="Sum the gradients over the batch.",
    origin="= for += in a loop",
)
def mha_vjp_weights_of_the_last_example(x: Array, rank: int) -> Array:
    """The gradients of the weights are those of the last entry of the first batch axis."""
    return right.summed(x[-1:] if x.ndim > rank else x, rank)


@bug.in_step(
    "token_gradient",
    seen=MHA_VJP,
    law="vjp and jvp are adjoint",
    effect="x gets no gradient through the values.",
    repair="Add dV wvᵀ.",
    origin="in cross-attention the values come from elsewhere",
)
def mha_vjp_value_path_dropped(grads: list[Array], weights: list[Array]) -> Array:
    """dx is the sum over queries and keys only."""
    return right.token_gradient(grads[:2], weights[:2])


@bug.in_step(
    "summed",
    seen=MHA_VJP,
    law="vjp and jvp are adjoint",
    effect="The gradients of the weights are too small by the size of the batch.",
    repair="Sum over the batch: whether the loss is a mean is the caller's affair.",
    origin="losses are means over the batch, and gradients are made means as well",
)
def mha_vjp_averages_the_batch(x: Array, rank: int) -> Array:
    """The gradients of the weights are means over the batch instead of sums."""
    return np.asarray(right.summed(x, rank) / max(math.prod(x.shape[: x.ndim - rank]), 1))
