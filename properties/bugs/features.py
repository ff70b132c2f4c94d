"""Slips in what attention takes besides q, k and v: windows, caps, biases, sinks, offsets,
log-sum-exps; and in merging and ALiBi.
"""

from typing import Any

import numpy as np

from oracles.ball import Array
from properties.bugs import reference_attention as right
from properties.bugs.bug import Register

bug = Register()
ATTENTION, VJP, JVP, MERGE, SLOPES, BIAS = (
    "attention",
    "attention_vjp",
    "attention_jvp",
    "merge_attention",
    "alibi_slopes",
    "alibi_bias",
)

# -- Windows and offsets ---------------------------------------------------------------------------


@bug.in_step(
    "in_window",
    seen=ATTENTION,
    law="a window is the mask of its band",
    effect="One key too many in every full window, and a small drift of the logits.",
    repair="Subtract the query's own key where a count is meant.",
    citations=("NVIDIA-NeMo/Megatron-Bridge#2656", "ml-explore/mlx-lm#390"),
)
def attention_window_one_key_too_many(p: Any, j: Any, left: int | None, right_side: int | None) -> Any:
    """A count of keys is passed on as a left bound: one key more is allowed."""
    return right.in_window(p, j, None if left is None else left + 1, right_side)


@bug.in_step(
    "in_window",
    seen=ATTENTION,
    law="a window is the mask of its band",
    effect="Decoding and prefilling disagree by the oldest key.",
    repair="A bound of L allows L + 1 keys.",
    citations=("lightseekorg/tokenspeed#578", "microsoft/unilm#1612"),
)
def attention_window_one_key_short(p: Any, j: Any, left: int | None, right_side: int | None) -> Any:
    """A left bound is read as a count of keys: the oldest key is left out; a bound of 0 is none."""
    return right.in_window(p, j, left if left is None else left - 1 if left else None, right_side)


@bug.in_step(
    "query_positions",
    seen=ATTENTION,
    law="causality is a window without a right side",
    effect="After a cache no query reads a key, or the first ones alone.",
    repair="Add it: queries come after what is cached.",
    origin="an offset may count keys before the queries, or queries before the keys",
)
def attention_offset_subtracted(n_q: int, offset: Any) -> Any:
    """The offset is subtracted from the positions of the queries."""
    return right.query_positions(n_q, None if offset is None else -np.asarray(offset))


@bug.in_step(
    "may_read",
    seen=ATTENTION,
    law="causality is a window without a right side",
    effect="The first query reads nothing, and every other one misses the newest key.",
    repair="Compare with ≤.",
    origin="< for ≤",
)
def attention_causal_without_itself(
    shape: tuple[int, ...], causal: bool = False, window: Any = (None, None), **others: Any
) -> Any:
    """Causality is compared with <: a query does not read the key at its own position."""
    left, right_side = window
    nearest = right_side if not causal else -1 if right_side is None else min(right_side, -1)
    return right.may_read(shape, window=(left, nearest), **others)


@bug.in_step(
    "in_window",
    seen=ATTENTION,
    law="a window is the mask of its band",
    effect="Every full window is a key short, and a window of 0 reads nothing.",
    repair="Compare with ≥.",
    origin="counts of keys are compared so, and a bound takes the place of one",
)
def attention_window_bound_excluded(p: Any, j: Any, left: int | None, right_side: int | None) -> Any:
    """The left bound is compared with >: the oldest key is left out, and by a bound of 0 the
    query's own."""
    return right.in_window(p, j, left, right_side) & (True if left is None else j > p - left)


@bug.in_step(
    "in_window",
    seen=ATTENTION,
    law="a chunk of queries is part of the whole",
    effect="Without causality keys far in the future are not read.",
    repair="Leave the side that is not given open.",
    origin="(w, w) is what is passed for causal layers, where it does nothing; compare huggingface/transformers#39408",
)
def attention_window_on_both_sides(p: Any, j: Any, left: int | None, right_side: int | None) -> Any:
    """A window that is bounded on the left alone is bounded as far on the right."""
    return right.in_window(p, j, left, left if right_side is None else right_side)


@bug.in_step(
    "in_window",
    seen=ATTENTION,
    law="a window is the mask of its band",
    effect="Without causality a window sees the whole future.",
    repair="Compare with both sides.",
    origin="windows are tested with causal masks only, where the right side does nothing",
)
def attention_window_without_a_right_side(p: Any, j: Any, left: int | None, right_side: int | None) -> Any:
    """The right side of a window is ignored, as causal kernels may."""
    return right.in_window(p, j, left, None)


@bug.in_step(
    "may_read",
    seen=ATTENTION,
    law="a chunk of queries is part of the whole",
    effect="Decoding looks at the wrong keys as soon as there is a cache.",
    repair="Add the offset to the rows of the window too.",
    citations=("keras-team/keras-hub#1738",),
)
def attention_window_ignores_the_offset(shape: tuple[int, ...], window: Any = (None, None), **others: Any) -> Any:
    """The window's rows are counted from 0, whatever the offset; causality has the offset."""
    return right.may_read(shape, **others) & right.may_read(shape, window=window)


@bug.in_step(
    "query_positions",
    seen=ATTENTION,
    law="a chunk of queries is part of the whole",
    without=(BIAS,),
    effect="A query of a step sees the first key only.",
    repair="Add the offset to the rows.",
    origin="prefilling has an offset of 0",
)
def attention_offset_ignored(n_q: int, offset: Any) -> Any:
    """Queries are counted from 0, whatever the offset."""
    return right.query_positions(n_q, None)


@bug.in_step(
    "query_positions",
    seen=ATTENTION,
    law="a chunk of queries is part of the whole",
    without=(BIAS,),
    effect="Positions jump after the prompt, and queries see the future.",
    repair="Keep the position in one place.",
    citations=("skyzh/tiny-llm#46",),
)
def attention_offset_added_twice(n_q: int, offset: Any) -> Any:
    """The offset is added by the cache, and again by attention."""
    return right.query_positions(n_q, None if offset is None else 2 * np.asarray(offset))


@bug.in_step(
    "query_positions",
    seen=ATTENTION,
    law="batch elements are computed independently",
    without=(BIAS,),
    effect="Sequences of other lengths see too much, or too little.",
    repair="Take an offset for each element of the batch.",
    origin="tests of decoding have batches of one length",
)
def attention_offset_of_the_first_for_all(n_q: int, offset: Any) -> Any:
    """All sequences of a batch have the offset of the first one."""
    return right.query_positions(
        n_q, offset if offset is None or not np.ndim(offset) else np.full_like(offset, np.ravel(offset)[:1])
    )


# -- Caps ------------------------------------------------------------------------------------------


@bug.in_step(
    "capped",
    seen=ATTENTION,
    law="a cap bounds the log sum exp",
    effect="The results for caps of 0, 5 and 50 are the same bytes.",
    repair="Apply the cap.",
    citations=("sgl-project/sgl-kernel-xpu#491",),
)
def attention_cap_ignored(s: Array, softcap: float | None) -> Array:
    """The cap is stored, and never applied."""
    return s


@bug.in_step(
    "logits_of",
    seen=ATTENTION,
    law="a bias that is the same for all keys adds to the log sum exp alone",
    effect="Large biases are flattened.",
    repair="Cap the scores, then add the bias.",
    citations=("emmtrix/emx-onnx-cgen#731", "onnx/onnx#7867"),
)
def attention_cap_after_the_bias(s: Array, softcap: float | None, bias: Any) -> Array:
    """The cap acts on the score and the bias together."""
    return right.capped(right.biased(s, bias), softcap)


@bug.in_step(
    "options_of",
    seen=ATTENTION,
    law="a scale is a factor of the queries",
    effect="Everyday scores are flattened as large ones should be, for products are √d times as large.",
    repair="Scale first.",
    origin="two lines are exchanged",
)
def attention_cap_before_the_scale(q: Array, k: Array, **options: Any) -> Any:
    """The cap acts on products that are not scaled yet."""
    options = right.options_of(q, k, **options)
    cap, scale = options.get("softcap"), options["scale"]
    return {**options, "softcap": cap * scale if cap and scale else cap}  # s·c·tanh(x/c) = cs·tanh(sx/cs)


@bug.in_step(
    "capped",
    seen=ATTENTION,
    law="a cap far above all scores is none",
    effect="All scores are between −1 and 1.",
    repair="Multiply by the cap.",
    origin="with a cap of 1 it is right",
)
def attention_cap_not_multiplied_back(s: Array, softcap: float | None) -> Array:
    """tanh(s/c) is not multiplied by c."""
    return s if softcap is None else np.tanh(s / softcap)


@bug.in_step(
    "cap_slope",
    seen=VJP,
    law="vjp and jvp are adjoint",
    effect="Gradients of large scores are too large.",
    repair="Multiply by 1 − tanh².",
    origin="small scores have a slope of 1",
)
def attention_derivative_without_the_cap(s: Array, softcap: float | None) -> Array:
    """Derivatives pass the cap as if it were not there."""
    return np.ones(s.shape)


@bug.in_step(
    "cap_slope",
    seen=VJP,
    law="a cap far above all scores is none",
    effect="Gradients of scores below the cap vanish.",
    repair="Divide by the cap first.",
    origin="with a cap of 1 it is right",
)
def attention_cap_slope_of_the_score(s: Array, softcap: float | None) -> Array:
    """The slope is taken of tanh(s), not of tanh(s/c)."""
    return right.cap_slope(s, None if softcap is None else 1.0)


# -- Biases ----------------------------------------------------------------------------------------


@bug.in_step(
    "biased",
    seen=ATTENTION,
    law="a bias that is the same for all keys adds to the log sum exp alone",
    effect="Far keys are preferred where near ones should be.",
    repair="Add the bias.",
    citations=("meta-pytorch/attention-gym#86",),
)
def attention_bias_negated(t: Array, bias: Any) -> Array:
    """The bias is subtracted."""
    return right.biased(t, None if bias is None else np.where(bias > -np.inf, -bias, bias))


@bug.in_step(
    "biased",
    seen=ATTENTION,
    law="the order of heads does not matter",
    effect="Biases by head, as ALiBi's, are those of one slope.",
    repair="Read the bias of each head.",
    origin="biases that all heads share are tested",
)
def attention_bias_of_the_first_head(t: Array, bias: Any) -> Array:
    """All heads have the bias of the first one."""
    return right.biased(t, bias if bias is None or bias.ndim < 3 else bias[..., :1, :, :])


@bug.in_step(
    "options_of",
    seen=ATTENTION,
    law="a bias that is the same for all keys adds to the log sum exp alone",
    effect="Biases are √d times too weak.",
    repair="Scale first, or multiply the bias by √d.",
    citations=("NVIDIA/TransformerEngine#103", "tenstorrent/tt-metal#55337"),
)
def attention_bias_scaled(q: Array, k: Array, **options: Any) -> Any:
    """The bias is added before the scores are scaled."""
    options = right.options_of(q, k, **options)
    bias = options.get("bias")
    return {**options, "bias": None if bias is None else np.where(bias > -np.inf, options["scale"] * bias, bias)}


@bug.in_step(
    "options_of",
    seen=ATTENTION,
    law="the order of heads does not matter",
    effect="Heads of one group have one bias, and the last biases are none's.",
    repair="Read it by the query head.",
    origin="without groups the two are one",
)
def attention_bias_of_the_key_head(q: Array, k: Array, **options: Any) -> Any:
    """The bias is read by the key head that a query head has."""
    bias, heads = options.get("bias"), right.key_heads(q.shape[-3], k.shape[-3])
    if bias is not None and bias.ndim > 2 and bias.shape[-3] > 1:
        options["bias"] = bias.take(heads, -3)
    return right.options_of(q, k, **options)


@bug.in_step(
    "bias_gradient",
    seen=VJP,
    law="gradients of bias and sink sum to those of the log sum exp",
    effect="Biases that heads or queries share learn too slowly.",
    repair="Sum over the broadcast axes.",
    origin="a bias of all axes is tested",
)
def attention_bias_gradient_is_a_mean(du: Array, bias: Any) -> Any:
    """The gradient of a bias is the mean over the axes along which it is broadcast."""
    return None if bias is None else right.shared(du, bias.shape) * (bias.size / max(du.size, 1))


@bug.in_step(
    "bias_gradient",
    seen=VJP,
    law="gradients of bias and sink sum to those of the log sum exp",
    effect="A gradient of the wrong size.",
    repair="Sum over the broadcast axes.",
    citations=("HKUSTDial/flash-sparse-attention#199",),
)
def attention_bias_gradient_not_reduced(du: Array, bias: Any) -> Any:
    """The gradient of a broadcast bias is that of its first entries, and is not summed over its
    broadcast axes."""
    if bias is None:
        return None
    whole = du[(0,) * (du.ndim - bias.ndim)]
    return whole[tuple(slice(0, n) for n in bias.shape)].copy()


# -- Sinks -----------------------------------------------------------------------------------------


@bug.in_step(
    "largest_logit",
    seen=ATTENTION,
    law="a row without keys follows its convention",
    effect="NaN in rows that should be 0.",
    repair="Let the sink count among the logits of which the largest is taken.",
    citations=("NVIDIA/TensorRT-LLM#19220",),
)
def attention_sink_over_a_sentinel(u: Array, may: Any, sink: Any) -> Array:
    """The largest logit of a row without keys is a sentinel of −1e5, so that e^(sink + 1e5) is ∞."""
    largest = u.max(-1, keepdims=True, where=may, initial=-np.inf)
    return right.largest_logit(u, may, sink) if sink is None else np.where(np.isneginf(largest), -1e5, largest)


@bug.in_step(
    "sinks_of",
    seen=ATTENTION,
    law="a sink is one more key of value zero",
    effect="Weights depend on a common shift of the scores.",
    repair="Add e^(sink − largest).",
    citations=("kyegomez/AttentionIsOFFByOne#5",),
)
def attention_sink_after_the_shift(sink: Any, largest: Array) -> Array:
    """e^sink is added to the sum after the largest logit has been subtracted from all others."""
    return right.sinks_of(sink, largest if sink is None else np.zeros(largest.shape))


@bug.in_step(
    "sinks_of",
    seen=ATTENTION,
    law="a sink is one more key of value zero",
    effect="Plain softmax.",
    repair="Pass the sinks to the kernel.",
    citations=("vllm-project/vllm-metal#550",),
)
def attention_sink_ignored(sink: Any, largest: Array) -> Array:
    """The code of sinks cannot be reached."""
    return np.zeros(largest.shape)


@bug.in_step(
    "sinks_of",
    seen=ATTENTION,
    law="a sink of −∞ is none",
    effect="A head whose sink is disabled has one of 0.",
    repair="Keep −∞.",
    origin="heads of one model all have sinks, or none has",
)
def attention_sink_disabled_is_zero(sink: Any, largest: Array) -> Array:
    """Sinks are loaded with −∞ replaced by 0, as NaN and ∞ are in weights."""
    return right.sinks_of(None if sink is None else np.nan_to_num(sink, neginf=0.0), largest)


@bug.in_step(
    "sinks_of",
    seen=ATTENTION,
    law="the order of heads does not matter",
    effect="Sinks that were learned by head are exchanged.",
    repair="Read the sink of each head.",
    origin="kernels loop over heads inside groups, and index by the group",
)
def attention_sink_of_the_first_head(sink: Any, largest: Array) -> Array:
    """All heads have the sink of the first one."""
    return right.sinks_of(None if sink is None else np.full_like(sink, sink[0]), largest)


@bug.in_operation(
    ATTENTION,
    law="keys masked for all queries do not matter",
    effect="Parts with masked keys weigh too much when they are merged.",
    repair="Mask the scores before their sum is taken for both.",
    origin="the output is masked elsewhere, and is what tests compare",
)
def attention_lse_of_all_keys(q: Array, k: Array, v: Array, **options: Any) -> tuple[Array, Array]:
    """The log-sum-exp is that of all keys, those that may not be read among them."""
    whole = {**options, "mask": None, "causal": False, "window": (None, None)}
    return right.attention(q, k, v, **options)[0], right.attention(q, k, v, **whole)[1]


@bug.in_step(
    "options_of",
    seen=ATTENTION,
    law="the order of heads does not matter",
    effect="Heads of one group have one sink, and the last sinks are none's.",
    repair="Read it by the query head.",
    origin="without groups the two are one",
)
def attention_sink_of_the_key_head(q: Array, k: Array, **options: Any) -> Any:
    """The sink is read by the key head that a query head has."""
    sink, heads = options.get("sink"), right.key_heads(q.shape[-3], k.shape[-3])
    return right.options_of(q, k, **{**options, "sink": None if sink is None else sink[heads]})


@bug.in_step(
    "sink_gradient",
    seen=VJP,
    law="gradients of bias and sink sum to those of the log sum exp",
    effect="Sinks do not learn.",
    repair="Σ w_sink·(g_lse − δ).",
    citations=("Dao-AILab/flash-attention#1973",),
)
def attention_sink_without_a_gradient(of_sink: Array, delta: Array, of_lse: Array, sink: Any) -> Any:
    """The gradient of the sinks is 0."""
    return None if sink is None else np.zeros(sink.shape)


@bug.in_step(
    "sink_gradient",
    seen=VJP,
    law="vjp and jvp are adjoint",
    effect="Sinks learn from a part of the batch.",
    repair="Sum over the batch.",
    origin="each block writes what it found",
)
def attention_sink_gradient_of_the_first_problem(of_sink: Array, delta: Array, of_lse: Array, sink: Any) -> Any:
    """The gradient of the sinks is that of the first problem of a batch."""
    of_sink, delta, of_lse = np.broadcast_arrays(of_sink, delta, of_lse)
    first = (slice(0, 1),) * (of_sink.ndim - 3)
    return right.sink_gradient(of_sink[first], delta[first], of_lse[first], sink)


# -- Log-sum-exps ----------------------------------------------------------------------------------


@bug.in_step(
    "log_of_sum",
    seen=ATTENTION,
    without=(VJP, JVP),
    law="a bias that is the same for all keys adds to the log sum exp alone",
    effect="Log-sum-exps are between 0 and log n, and parts merge wrongly.",
    repair="Add the largest logit.",
    origin="the output does not depend on it",
)
def attention_lse_without_the_largest(largest: Array, total: Array) -> Array:
    """The largest logit is not added back."""
    return right.log_of_sum(np.zeros(largest.shape), total)


@bug.in_step(
    "log_of_sum",
    seen=ATTENTION,
    without=(VJP, JVP),
    law="parts of the keys merge to the whole",
    effect="Log-sum-exps are off by a factor of up to 1.44.",
    repair="Convert both, or neither.",
    citations=("lightseekorg/tokenspeed#571",),
)
def attention_lse_in_base_two(largest: Array, total: Array) -> Array:
    """The binary logarithm of the sum is added to the natural largest logit."""
    return np.asarray((largest + np.log2(total))[..., 0])


@bug.in_step(
    "log_of_sum",
    seen=ATTENTION,
    without=(VJP, JVP),
    law="parts of the keys merge to the whole",
    effect="Parts are merged as at a temperature of 1.44.",
    repair="Convert where it is binary alone.",
    citations=("pytorch/pytorch#181645",),
)
def attention_lse_converted_twice(largest: Array, total: Array) -> Array:
    """A natural log-sum-exp is multiplied by ln 2, as a binary one should be."""
    return np.asarray(np.log(2) * right.log_of_sum(largest, total))


@bug.in_step(
    "log_of_sum",
    seen=ATTENTION,
    without=(VJP, JVP),
    law="attention with its features is within its budget",
    effect="Merged with another part such a row takes all the weight, and the result is NaN.",
    repair="Return −∞, the logarithm of 0.",
    citations=("Dao-AILab/flash-attention#978",),
)
def attention_lse_of_nothing_is_infinite(largest: Array, total: Array) -> Array:
    """The log-sum-exp of a row without keys is +∞, so that exp(score − lse) is 0 in the backward."""
    lse = right.log_of_sum(largest, total)
    return np.where(np.isneginf(lse), np.inf, lse)


@bug.in_step(
    "log_of_sum",
    seen=ATTENTION,
    without=(VJP, JVP),
    law="attention with its features is within its budget",
    effect="Merged with another part such a row takes weight, and pulls the output towards 0.",
    repair="Return −∞, the logarithm of 0.",
    citations=("pytorch/pytorch#134650", "flashinfer-ai/flashinfer#4452"),
)
def attention_lse_of_nothing_is_zero(largest: Array, total: Array) -> Array:
    """The log-sum-exp of a row without keys is 0, that of one key with a score of 0."""
    lse = right.log_of_sum(largest, total)
    return np.where(np.isneginf(lse), 0.0, lse)


@bug.in_step(
    "logit_gradient",
    seen=VJP,
    law="vjp and jvp are adjoint",
    effect="A loss of the log-sum-exp alone has zero gradients.",
    repair="Add it to T − δ.",
    citations=("Dao-AILab/flash-attention#889",),
)
def attention_lse_without_a_gradient(w: Array, of_weights: Array, delta: Array, of_lse: Array) -> Array:
    """The cotangent of the log-sum-exp is not used."""
    return right.logit_gradient(w, of_weights, delta, np.zeros(()))


@bug.in_step(
    "logit_gradient",
    seen=VJP,
    law="vjp and jvp are adjoint",
    effect="Such losses grow.",
    repair="Add it.",
    origin="δ − g_lse is precomputed, and its sign mistaken",
)
def attention_lse_gradient_subtracted(w: Array, of_weights: Array, delta: Array, of_lse: Array) -> Array:
    """The cotangent of the log-sum-exp is subtracted, as δ is."""
    return right.logit_gradient(w, of_weights, delta, -of_lse)


# -- Scale -----------------------------------------------------------------------------------------


@bug.in_step(
    "scale_of",
    seen=ATTENTION,
    law="a scale is a factor of the queries",
    effect="Where all keys should weigh alike, the largest score has most of the weight.",
    repair="Compare with None.",
    origin="a scale of 0 is rarely meant, and comes from schedules that begin or end there",
)
def attention_scale_of_zero_is_none(width: int, scale: float | None) -> float:
    """A scale of 0 is taken for one that is not given, as `scale or 1 / sqrt(d)` does."""
    return right.scale_of(width, scale or None)


@bug.in_operation(
    ATTENTION,
    law="a scale is a factor of the queries",
    effect="NaN in each row with a masked key, for scales of 0 and below.",
    repair="Mask the scaled scores.",
    citations=("NVIDIA/cudnn-frontend#804",),
)
def attention_masked_before_the_scale(q: Array, k: Array, v: Array, **options: Any) -> tuple[Array, Array]:
    """What is masked is −∞ before scores are scaled: 0·−∞ is NaN, and below 0 it becomes +∞."""
    out, lse = right.attention(q, k, v, **options)
    if options.get("scale") is None or options["scale"] > 0:
        return out, lse
    names = ("mask", "bias", "causal", "offset", "window")
    visible = {name: options[name] for name in names if name in options}
    whole = right.may_read((*q.shape[:-1], k.shape[-2]), **visible).all(-1)
    return np.where(whole[..., None], out, np.nan), np.where(whole, lse, np.nan)


@bug.in_step(
    "scale_of",
    seen=ATTENTION,
    law="channels of zeros change the scale alone",
    effect="Attention is too flat where a scale is given.",
    repair="Take the scale that is given, or 1/√d.",
    origin="the kernel scales, and its wrapper too",
)
def attention_scale_given_and_its_own(width: int, scale: float | None) -> float:
    """A scale that is given is multiplied by 1/√d."""
    return right.scale_of(width, None) * (1.0 if scale is None else scale)


# -- Parts -----------------------------------------------------------------------------------------


@bug.in_step(
    "merge_weights",
    seen=MERGE,
    law="merging is associative",
    effect="Errors to 0.1 with long prefixes, none where the parts weigh the same.",
    repair="Take exponentials in the base of the log-sum-exps.",
    citations=("sgl-project/sglang#40903",),
)
def merge_in_base_two(lse_a: Array, lse_b: Array) -> tuple[Array, Array, Array]:
    """Exponentials are of base 2, and log-sum-exps natural."""
    largest, a, b = right.merge_weights(lse_a, lse_b)
    return largest, np.asarray(a ** np.log(2)), np.asarray(b ** np.log(2))


@bug.in_operation(
    MERGE,
    law="an empty part changes nothing",
    effect="Where there are fewer keys than splits, parts are lost.",
    repair="Skip parts without work.",
    citations=("sgl-project/sgl-kernel-xpu#487",),
)
def merge_lost_with_an_empty_part(out_a: Array, lse_a: Array, out_b: Array, lse_b: Array) -> tuple[Array, Array]:
    """A part without keys writes its −∞ over what another one has written."""
    out, lse = right.merge_attention(out_a, lse_a, out_b, lse_b)
    empty = np.isneginf(lse_b)
    return np.where(empty[..., None], 0.0, out), np.where(empty, -np.inf, lse)


@bug.in_operation(
    MERGE,
    law="an empty part changes nothing",
    effect="NaN where neither part has a key.",
    repair="Subtract 0 there.",
    origin="−∞ − (−∞) is forgotten",
)
def merge_of_two_empty_parts(out_a: Array, lse_a: Array, out_b: Array, lse_b: Array) -> tuple[Array, Array]:
    """The larger log-sum-exp is subtracted though it is −∞."""
    largest = np.maximum(lse_a, lse_b)
    with np.errstate(all="ignore"):
        a, b = np.exp(lse_a - largest), np.exp(lse_b - largest)
        return (a[..., None] * out_a + b[..., None] * out_b) / (a + b)[..., None], np.asarray(largest + np.log(a + b))


@bug.in_operation(
    MERGE,
    law="a number added to both log sum exps is added to theirs",
    effect="∞ or NaN beyond 709.",
    repair="Subtract the larger one first.",
    origin="small tests have small log-sum-exps",
)
def merge_without_the_largest(out_a: Array, lse_a: Array, out_b: Array, lse_b: Array) -> tuple[Array, Array]:
    """Exponentials are taken of the log-sum-exps as they are."""
    with np.errstate(all="ignore"):
        a, b = np.exp(lse_a), np.exp(lse_b)
        total = a + b
        out = (a[..., None] * out_a + b[..., None] * out_b) / np.where(total == 0, 1.0, total)[..., None]
        return out, np.log(total)


# -- ALiBi -----------------------------------------------------------------------------------------


@bug.in_step(
    "slope_exponents",
    seen=SLOPES,
    law="slopes are every second of twice as many",
    effect="Every head is one step too steep.",
    repair="Count heads from 1.",
    citations=("paiml/aprender#2143",),
)
def alibi_slopes_from_zero(num_heads: int) -> Array:
    """Heads are counted from 0: the first has slope 1."""
    found = right.slope_exponents(num_heads)
    return np.asarray(found - found[0])


@bug.in_step(
    "slope_exponents",
    seen=SLOPES,
    law="biases are slopes times distances",
    effect="Every rank but the first has wrong slopes.",
    repair="Compute the slopes of all heads, and take the rank's own.",
    citations=("flashinfer-ai/flashinfer#1606",),
)
def alibi_slopes_of_half_the_heads(num_heads: int) -> Array:
    """From two heads on slopes are those of half as many heads, twice, as each rank of two computes
    its own, counted from 0."""
    if num_heads < 2 or num_heads % 2:
        return right.slope_exponents(num_heads)
    return np.tile(right.slope_exponents(num_heads // 2), 2)


@bug.in_step(
    "alibi_distances",
    seen=BIAS,
    law="biases are slopes times distances",
    effect="The model prefers the oldest token.",
    repair="Negate the distance.",
    citations=("meta-pytorch/attention-gym#86",),
)
def alibi_rewards_distance(n_q: int, n_k: int, offset: Any) -> Array:
    """The bias is slope·(p − j)."""
    return np.asarray(right.query_positions(n_q, offset)[0] - np.arange(n_k), np.float64)


@bug.in_step(
    "alibi_distances",
    seen=BIAS,
    law="a chunk of queries is part of the whole",
    effect="In decoding the first key is the nearest.",
    repair="Add the offset to the rows.",
    origin="prefilling has an offset of 0",
)
def alibi_offset_ignored(n_q: int, n_k: int, offset: Any) -> Array:
    """Distances are counted from row 0, whatever the offset."""
    return right.alibi_distances(n_q, n_k, None)
