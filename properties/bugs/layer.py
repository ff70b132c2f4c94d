"""Known bugs of layers of attention: wrong biases, wrong tokens, wrong weights and a wrong scale."""

from typing import Any

import numpy as np

from oracles.ball import Array
from properties.bugs import reference_layer as right
from properties.bugs.bug import LAYER, Register

bug = Register(seen=LAYER, law="a layer of attention is within its error limit")
Biases = dict[str, Any]


@bug.in_step(
    "layer_biases",
    effect="Scores miss the product of the bias and the keys.",
    repair="Add the bias to x·wq.",
    origin="checkpoints without biases load without a message",
)
def layer_queries_without_a_bias(biases: Biases, num_heads: int, scale: float | None) -> Biases:
    """The code does not add the bias of the queries."""
    return {**biases, "bq": None}


@bug.in_step(
    "layer_biases",
    effect="All outputs miss the same row.",
    repair="Add the bias to context·wv.",
    origin="checkpoints without biases load without a message",
)
def layer_values_without_a_bias(biases: Biases, num_heads: int, scale: float | None) -> Biases:
    """The code does not add the bias of the values."""
    return {**biases, "bv": None}


@bug.in_step(
    "layer_biases",
    effect="The bias of the output is too large by the number of heads.",
    repair="Add the bias once, after the heads are summed.",
    origin="each head multiplies its part of wo, and adds the bias",
)
def layer_output_bias_for_each_head(biases: Biases, num_heads: int, scale: float | None) -> Biases:
    """Each head adds the bias of the output."""
    return {**biases, "bo": None if biases["bo"] is None else num_heads * biases["bo"]}


@bug.in_step(
    "layer_biases",
    law="repeating key heads for each query head changes nothing",
    effect="Queries have the bias of the keys.",
    repair="Split a fused bias in the order of its weights.",
    origin="a fused bias is split in another order than its weights",
)
def layer_biases_of_queries_and_keys_exchanged(biases: Biases, num_heads: int, scale: float | None) -> Biases:
    """The code exchanges the biases of queries and keys if they have the same length."""
    bq, bk = biases["bq"], biases["bk"]
    exchanged = bq is not None and bk is not None and bq.shape == bk.shape
    return {**biases, "bq": bk, "bk": bq} if exchanged else biases


@bug.in_step(
    "layer_biases",
    effect="The bias of the queries is too large by 1/scale.",
    repair="Scale x·wq + bq as a whole.",
    origin="the scale is folded into the weights of a checkpoint, and not into the bias",
)
def layer_bias_after_the_scale(biases: Biases, num_heads: int, scale: float | None) -> Biases:
    """The code scales x·wq, and then adds the bias of the queries."""
    bq = biases["bq"]
    if bq is None or scale == 0:
        return biases
    return {**biases, "bq": bq * np.sqrt(len(bq) / num_heads) if scale is None else bq / scale}


@bug.in_step(
    "layer_tokens",
    effect="Layers with a context attend to x.",
    repair="Make keys and values of the context.",
    origin="a layer of self-attention is used again",
)
def layer_context_ignored(x: Array, context: Array) -> tuple[Array, Array, Array]:
    """If the context has the shape of x, the code makes keys and values of x."""
    return (x, x, x) if x.shape == context.shape else (x, context, context)


@bug.in_step(
    "layer_tokens",
    effect="Outputs mix tokens of x by their weights over the context.",
    repair="Make the values of the context too.",
    origin="the layer takes key and value apart, and the caller gives value=x",
)
def layer_values_of_x(x: Array, context: Array) -> tuple[Array, Array, Array]:
    """If the context has the shape of x, the code makes the values of x."""
    return (x, context, x) if x.shape == context.shape else (x, context, context)


@bug.in_step(
    "layer_tokens",
    effect="The context attends to itself.",
    repair="Make the queries of x.",
    origin="the order of the arguments differs between libraries: query first, or memory first",
)
def layer_queries_of_the_context(x: Array, context: Array) -> tuple[Array, Array, Array]:
    """If the context has the shape of x, the code makes the queries of the context."""
    return (context, context, context) if x.shape == context.shape else (x, context, context)


@bug.in_step(
    "layer_weights",
    law="repeating key heads for each query head changes nothing",
    effect="Heads have parts of the weights of other heads; one head is correct.",
    repair="Split the columns into all queries, all keys, all values.",
    origin="GPT-NeoX stores queries, keys and values head by head, and GPT-2 one after the other",
)
def layer_fused_weights_split_by_head(wq: Array, wk: Array, wv: Array, num_heads: int) -> tuple[Array, ...]:
    """If queries, keys and values are equally wide, the code splits their fused weights head by head."""
    if not wq.shape == wk.shape == wv.shape:
        return wq, wk, wv
    by_head = np.concatenate([wq, wk, wv], 1).reshape(len(wq), num_heads, 3, -1)
    return tuple(by_head[:, :, part].reshape(wq.shape) for part in range(3))


@bug.in_step(
    "layer_scale",
    effect="Attention is too flat or too sharp, unless x is as wide as a head.",
    repair="Divide by the root of head_dim.",
    origin="with one head both widths are equal",
)
def layer_scale_of_the_model_width(scale: float | None, x: Array) -> float | None:
    """The default scale is 1/√d_model, from the width of x."""
    return 1 / np.sqrt(max(x.shape[-1], 1)) if scale is None else scale


@bug.in_step(
    "output_with_bias",
    effect="Tokens that see no token have the output 0.",
    repair="Add the bias to these tokens too.",
    origin="the layer sets masked rows to 0 after its last projection",
)
def layer_output_bias_missing_where_nothing_is_seen(out: Array, bias: Array | None, sees_nothing: Any) -> Array:
    """The code does not add the bias of the output to tokens that see no token."""
    return np.where(sees_nothing, out, right.output_with_bias(out, bias, sees_nothing))
