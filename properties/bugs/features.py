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

# -- Windows and offsets -----------------------------------------------------------------------------------------------------------


@bug.slip("in_window", seen=ATTENTION, law="a window is the mask of its band")
def attention_window_one_key_too_many(p: Any, j: Any, left: int | None, right_side: int | None) -> Any:
    """A count of keys is passed on as a left bound: one key more is allowed.
    Effect: One key too many in every full window, and a small drift of the logits. Repair: Subtract
    the query's own key where a count is meant. Seen: NVIDIA-NeMo/Megatron-Bridge#2656;
    ml-explore/mlx-lm#390"""
    return right.in_window(p, j, None if left is None else left + 1, right_side)


@bug.slip("in_window", seen=ATTENTION, law="a window is the mask of its band")
def attention_window_one_key_short(p: Any, j: Any, left: int | None, right_side: int | None) -> Any:
    """A left bound is read as a count of keys: the oldest key is left out; a bound of 0 is none.
    Effect: Decoding and prefilling disagree by the oldest key. Repair: A bound of L allows L + 1
    keys. Seen: lightseekorg/tokenspeed#578; microsoft/unilm#1612"""
    return right.in_window(p, j, left if left is None else left - 1 if left else None, right_side)


@bug.slip("query_positions", seen=ATTENTION, law="causality is a window without a right side")
def attention_offset_subtracted(n_q: int, offset: Any) -> Any:
    """The offset is subtracted from the positions of the queries.
    Effect: After a cache no query reads a key, or the first ones alone. Repair: Add it: queries
    come after what is cached. Seen: none: an offset may count keys before the queries, or queries
    before the keys"""
    return right.query_positions(n_q, None if offset is None else -np.asarray(offset))


@bug.slip("may_read", seen=ATTENTION, law="causality is a window without a right side")
def attention_causal_without_itself(
    shape: tuple[int, ...], mask: Any, bias: Any, causal: bool, offset: Any, window: Any
) -> Any:
    """Causality is compared with <: a query does not read the key at its own position.
    Effect: The first query reads nothing, and every other one misses the newest key. Repair:
    Compare with ≤. Seen: none: < for ≤"""
    left, right_side = window
    nearest = right_side if not causal else -1 if right_side is None else min(right_side, -1)
    return right.may_read(shape, mask, bias, False, offset, (left, nearest))


@bug.slip("in_window", seen=ATTENTION, law="a window is the mask of its band")
def attention_window_bound_excluded(p: Any, j: Any, left: int | None, right_side: int | None) -> Any:
    """The left bound is compared with >: the oldest key is left out, and by a bound of 0 the
    query's own. Effect: Every full window is a key short, and a window of 0 reads nothing. Repair:
    Compare with ≥. Seen: none: counts of keys are compared so, and a bound takes the place of
    one"""
    return right.in_window(p, j, left, right_side) & (True if left is None else j > p - left)


@bug.slip("in_window", seen=ATTENTION, law="a chunk of queries is part of the whole")
def attention_window_on_both_sides(p: Any, j: Any, left: int | None, right_side: int | None) -> Any:
    """A window that is bounded on the left alone is bounded as far on the right.
    Effect: Without causality keys far in the future are not read. Repair: Leave the side that is
    not given open. Seen: none: (w, w) is what is passed for causal layers, where it does nothing;
    compare huggingface/transformers#39408"""
    return right.in_window(p, j, left, left if right_side is None else right_side)


@bug.slip("in_window", seen=ATTENTION, law="a window is the mask of its band")
def attention_window_without_a_right_side(p: Any, j: Any, left: int | None, right_side: int | None) -> Any:
    """The right side of a window is ignored, as causal kernels may.
    Effect: Without causality a window sees the whole future. Repair: Compare with both sides. Seen:
    none: windows are tested with causal masks only, where the right side does nothing"""
    return right.in_window(p, j, left, None)


@bug.slip("may_read", seen=ATTENTION, law="a chunk of queries is part of the whole")
def attention_window_ignores_the_offset(
    shape: tuple[int, ...], mask: Any, bias: Any, causal: bool, offset: Any, window: Any
) -> Any:
    """The window's rows are counted from 0, whatever the offset; causality has the offset. Effect:
    Decoding looks at the wrong keys as soon as there is a cache. Repair: Add the offset to the rows
    of the window too. Seen: keras-team/keras-hub#1738"""
    may = right.may_read(shape, mask, bias, causal, offset, (None, None))
    return may & right.may_read(shape, None, None, False, None, window)


@bug.slip("query_positions", seen=ATTENTION, law="a chunk of queries is part of the whole", without=(BIAS,))
def attention_offset_ignored(n_q: int, offset: Any) -> Any:
    """Queries are counted from 0, whatever the offset.
    Effect: A query of a step sees the first key only. Repair: Add the offset to the rows. Seen:
    none: prefilling has an offset of 0"""
    return right.query_positions(n_q, None)


@bug.slip("query_positions", seen=ATTENTION, law="a chunk of queries is part of the whole", without=(BIAS,))
def attention_offset_added_twice(n_q: int, offset: Any) -> Any:
    """The offset is added by the cache, and again by attention.
    Effect: Positions jump after the prompt, and queries see the future. Repair: Keep the position
    in one place. Seen: skyzh/tiny-llm#46"""
    return right.query_positions(n_q, None if offset is None else 2 * np.asarray(offset))


@bug.slip("query_positions", seen=ATTENTION, law="batch elements are computed independently", without=(BIAS,))
def attention_offset_of_the_first_for_all(n_q: int, offset: Any) -> Any:
    """All sequences of a batch have the offset of the first one.
    Effect: Sequences of other lengths see too much, or too little. Repair: Take an offset for each
    element of the batch. Seen: none: tests of decoding have batches of one length"""
    return right.query_positions(
        n_q, offset if offset is None or not np.ndim(offset) else np.full_like(offset, np.ravel(offset)[:1])
    )


# -- Caps --------------------------------------------------------------------------------------------------------------------------


@bug.slip("capped", seen=ATTENTION, law="a cap bounds the log sum exp")
def attention_cap_ignored(s: Array, softcap: float | None) -> Array:
    """The cap is stored, and never applied.
    Effect: The results for caps of 0, 5 and 50 are the same bytes. Repair: Apply the cap. Seen:
    sgl-project/sgl-kernel-xpu#491"""
    return s


@bug.slip("logits_of", seen=ATTENTION, law="a bias that is the same for all keys adds to the log sum exp alone")
def attention_cap_after_the_bias(s: Array, softcap: float | None, bias: Any) -> Array:
    """The cap acts on the score and the bias together.
    Effect: Large biases are flattened. Repair: Cap the scores, then add the bias. Seen:
    emmtrix/emx-onnx-cgen#731; onnx/onnx#7867"""
    return right.capped(right.biased(s, bias), softcap)


@bug.slip("options_of", seen=ATTENTION, law="a scale is a factor of the queries")
def attention_cap_before_the_scale(q: Array, k: Array, **options: Any) -> Any:
    """The cap acts on products that are not scaled yet.
    Effect: Everyday scores are flattened as large ones should be, for products are √d times as
    large. Repair: Scale first. Seen: none: two lines are exchanged"""
    options = right.options_of(q, k, **options)
    cap, scale = options.get("softcap"), options["scale"]
    return {**options, "softcap": cap * scale if cap and scale else cap}  # s·c·tanh(x/c) = cs·tanh(sx/cs)


@bug.slip("capped", seen=ATTENTION, law="a cap far above all scores is none")
def attention_cap_not_multiplied_back(s: Array, softcap: float | None) -> Array:
    """tanh(s/c) is not multiplied by c.
    Effect: All scores are between −1 and 1. Repair: Multiply by the cap. Seen: none: with a cap of
    1 it is right"""
    return s if softcap is None else np.tanh(s / softcap)


@bug.slip("cap_slope", seen=VJP, law="vjp and jvp are adjoint")
def attention_derivative_without_the_cap(s: Array, softcap: float | None) -> Array:
    """Derivatives pass the cap as if it were not there.
    Effect: Gradients of large scores are too large. Repair: Multiply by 1 − tanh². Seen: none:
    small scores have a slope of 1"""
    return np.ones(s.shape)


@bug.slip("cap_slope", seen=VJP, law="a cap far above all scores is none")
def attention_cap_slope_of_the_score(s: Array, softcap: float | None) -> Array:
    """The slope is taken of tanh(s), not of tanh(s/c).
    Effect: Gradients of scores below the cap vanish. Repair: Divide by the cap first. Seen: none:
    with a cap of 1 it is right"""
    return right.cap_slope(s, None if softcap is None else 1.0)


# -- Biases ------------------------------------------------------------------------------------------------------------------------


@bug.slip("biased", seen=ATTENTION, law="a bias that is the same for all keys adds to the log sum exp alone")
def attention_bias_negated(t: Array, bias: Any) -> Array:
    """The bias is subtracted.
    Effect: Far keys are preferred where near ones should be. Repair: Add the bias. Seen:
    meta-pytorch/attention-gym#86"""
    return right.biased(t, None if bias is None else np.where(bias > -np.inf, -bias, bias))


@bug.slip("biased", seen=ATTENTION, law="the order of heads does not matter")
def attention_bias_of_the_first_head(t: Array, bias: Any) -> Array:
    """All heads have the bias of the first one.
    Effect: Biases by head, as ALiBi's, are those of one slope. Repair: Read the bias of each head.
    Seen: none: biases that all heads share are tested"""
    return right.biased(t, bias if bias is None or bias.ndim < 3 else bias[..., :1, :, :])


@bug.slip("options_of", seen=ATTENTION, law="a bias that is the same for all keys adds to the log sum exp alone")
def attention_bias_scaled(q: Array, k: Array, **options: Any) -> Any:
    """The bias is added before the scores are scaled.
    Effect: Biases are √d times too weak. Repair: Scale first, or multiply the bias by √d. Seen:
    NVIDIA/TransformerEngine#103; tenstorrent/tt-metal#55337"""
    options = right.options_of(q, k, **options)
    bias = options.get("bias")
    return {**options, "bias": None if bias is None else np.where(bias > -np.inf, options["scale"] * bias, bias)}


@bug.slip("options_of", seen=ATTENTION, law="the order of heads does not matter")
def attention_bias_of_the_key_head(q: Array, k: Array, **options: Any) -> Any:
    """The bias is read by the key head that a query head has.
    Effect: Heads of one group have one bias, and the last biases are none's. Repair: Read it by the
    query head. Seen: none: without groups the two are one"""
    bias, heads = options.get("bias"), right.key_heads(q.shape[-3], k.shape[-3])
    if bias is not None and bias.ndim > 2 and bias.shape[-3] > 1:
        options["bias"] = bias.take(heads, -3)
    return right.options_of(q, k, **options)


@bug.slip("bias_gradient", seen=VJP, law="gradients of bias and sink sum to those of the log sum exp")
def attention_bias_gradient_is_a_mean(du: Array, bias: Any) -> Any:
    """The gradient of a bias is the mean over the axes along which it is broadcast.
    Effect: Biases that heads or queries share learn too slowly. Repair: Sum over the broadcast
    axes. Seen: none: a bias of all axes is tested"""
    return None if bias is None else right.shared(du, bias.shape) * (bias.size / max(du.size, 1))


@bug.slip("bias_gradient", seen=VJP, law="gradients of bias and sink sum to those of the log sum exp")
def attention_bias_gradient_not_reduced(du: Array, bias: Any) -> Any:
    """The gradient of a broadcast bias is that of its first entries, and is not summed over its
    broadcast axes. Effect: A gradient of the wrong size. Repair: Sum over the broadcast axes. Seen:
    HKUSTDial/flash-sparse-attention#199"""
    if bias is None:
        return None
    whole = du[(0,) * (du.ndim - bias.ndim)]
    return whole[tuple(slice(0, n) for n in bias.shape)].copy()


# -- Sinks -------------------------------------------------------------------------------------------------------------------------


@bug.slip("largest_logit", seen=ATTENTION, law="a row without keys follows its convention")
def attention_sink_over_a_sentinel(u: Array, may: Any, sink: Any) -> Array:
    """The largest logit of a row without keys is a sentinel of −1e5, so that e^(sink + 1e5) is ∞.
    Effect: NaN in rows that should be 0. Repair: Let the sink count among the logits of which the
    largest is taken. Seen: NVIDIA/TensorRT-LLM#19220"""
    largest = u.max(-1, keepdims=True, where=may, initial=-np.inf)
    return right.largest_logit(u, may, sink) if sink is None else np.where(np.isneginf(largest), -1e5, largest)


@bug.slip("sinks_of", seen=ATTENTION, law="a sink is one more key of value zero")
def attention_sink_after_the_shift(sink: Any, largest: Array) -> Array:
    """e^sink is added to the sum after the largest logit has been subtracted from all others.
    Effect: Weights depend on a common shift of the scores. Repair: Add e^(sink − largest). Seen:
    kyegomez/AttentionIsOFFByOne#5"""
    return right.sinks_of(sink, largest if sink is None else np.zeros(largest.shape))


@bug.slip("sinks_of", seen=ATTENTION, law="a sink is one more key of value zero")
def attention_sink_ignored(sink: Any, largest: Array) -> Array:
    """The code of sinks cannot be reached.
    Effect: Plain softmax. Repair: Pass the sinks to the kernel. Seen:
    vllm-project/vllm-metal#550"""
    return np.zeros(largest.shape)


@bug.slip("sinks_of", seen=ATTENTION, law="a sink of −∞ is none")
def attention_sink_disabled_is_zero(sink: Any, largest: Array) -> Array:
    """Sinks are loaded with −∞ replaced by 0, as NaN and ∞ are in weights.
    Effect: A head whose sink is disabled has one of 0. Repair: Keep −∞. Seen: none: heads of one
    model all have sinks, or none has"""
    return right.sinks_of(None if sink is None else np.nan_to_num(sink, neginf=0.0), largest)


@bug.slip("sinks_of", seen=ATTENTION, law="the order of heads does not matter")
def attention_sink_of_the_first_head(sink: Any, largest: Array) -> Array:
    """All heads have the sink of the first one.
    Effect: Sinks that were learned by head are exchanged. Repair: Read the sink of each head. Seen:
    none: kernels loop over heads inside groups, and index by the group"""
    return right.sinks_of(None if sink is None else np.full_like(sink, sink[0]), largest)


@bug(ATTENTION, law="keys masked for all queries do not matter")
def attention_lse_of_all_keys(q: Array, k: Array, v: Array, **options: Any) -> tuple[Array, Array]:
    """The log-sum-exp is that of all keys, those that may not be read among them.
    Effect: Parts with masked keys weigh too much when they are merged. Repair: Mask the scores
    before their sum is taken for both. Seen: none: the output is masked elsewhere, and is what
    tests compare"""
    whole = {**options, "mask": None, "causal": False, "window": (None, None)}
    return right.attention(q, k, v, **options)[0], right.attention(q, k, v, **whole)[1]


@bug.slip("options_of", seen=ATTENTION, law="the order of heads does not matter")
def attention_sink_of_the_key_head(q: Array, k: Array, **options: Any) -> Any:
    """The sink is read by the key head that a query head has.
    Effect: Heads of one group have one sink, and the last sinks are none's. Repair: Read it by the
    query head. Seen: none: without groups the two are one"""
    sink, heads = options.get("sink"), right.key_heads(q.shape[-3], k.shape[-3])
    return right.options_of(q, k, **{**options, "sink": None if sink is None else sink[heads]})


@bug.slip("sink_gradient", seen=VJP, law="gradients of bias and sink sum to those of the log sum exp")
def attention_sink_without_a_gradient(of_sink: Array, delta: Array, of_lse: Array, sink: Any) -> Any:
    """The gradient of the sinks is 0.
    Effect: Sinks do not learn. Repair: Σ w_sink·(g_lse − δ). Seen:
    Dao-AILab/flash-attention#1973"""
    return None if sink is None else np.zeros(sink.shape)


@bug.slip("sink_gradient", seen=VJP, law="vjp and jvp are adjoint")
def attention_sink_gradient_of_the_first_problem(of_sink: Array, delta: Array, of_lse: Array, sink: Any) -> Any:
    """The gradient of the sinks is that of the first problem of a batch.
    Effect: Sinks learn from a part of the batch. Repair: Sum over the batch. Seen: none: each block
    writes what it found"""
    of_sink, delta, of_lse = np.broadcast_arrays(of_sink, delta, of_lse)
    first = (slice(0, 1),) * (of_sink.ndim - 3)
    return right.sink_gradient(of_sink[first], delta[first], of_lse[first], sink)


# -- Log-sum-exps ------------------------------------------------------------------------------------------------------------------


@bug.slip(
    "log_of_sum",
    seen=ATTENTION,
    without=(VJP, JVP),
    law="a bias that is the same for all keys adds to the log sum exp alone",
)
def attention_lse_without_the_largest(largest: Array, total: Array) -> Array:
    """The largest logit is not added back.
    Effect: Log-sum-exps are between 0 and log n, and parts merge wrongly. Repair: Add the largest
    logit. Seen: none: the output does not depend on it"""
    return right.log_of_sum(np.zeros(largest.shape), total)


@bug.slip("log_of_sum", seen=ATTENTION, without=(VJP, JVP), law="parts of the keys merge to the whole")
def attention_lse_in_base_two(largest: Array, total: Array) -> Array:
    """The binary logarithm of the sum is added to the natural largest logit.
    Effect: Log-sum-exps are off by a factor of up to 1.44. Repair: Convert both, or neither. Seen:
    lightseekorg/tokenspeed#571"""
    return np.asarray((largest + np.log2(total))[..., 0])


@bug.slip("log_of_sum", seen=ATTENTION, without=(VJP, JVP), law="parts of the keys merge to the whole")
def attention_lse_converted_twice(largest: Array, total: Array) -> Array:
    """A natural log-sum-exp is multiplied by ln 2, as a binary one should be.
    Effect: Parts are merged as at a temperature of 1.44. Repair: Convert where it is binary alone.
    Seen: pytorch/pytorch#181645"""
    return np.asarray(np.log(2) * right.log_of_sum(largest, total))


@bug.slip("log_of_sum", seen=ATTENTION, without=(VJP, JVP), law="attention with its features is within its budget")
def attention_lse_of_nothing_is_infinite(largest: Array, total: Array) -> Array:
    """The log-sum-exp of a row without keys is +∞, so that exp(score − lse) is 0 in the backward.
    Effect: Merged with another part such a row takes all the weight, and the result is NaN. Repair:
    Return −∞, the logarithm of 0. Seen: Dao-AILab/flash-attention#978"""
    lse = right.log_of_sum(largest, total)
    return np.where(np.isneginf(lse), np.inf, lse)


@bug.slip("log_of_sum", seen=ATTENTION, without=(VJP, JVP), law="attention with its features is within its budget")
def attention_lse_of_nothing_is_zero(largest: Array, total: Array) -> Array:
    """The log-sum-exp of a row without keys is 0, that of one key with a score of 0.
    Effect: Merged with another part such a row takes weight, and pulls the output towards 0.
    Repair: Return −∞, the logarithm of 0. Seen: pytorch/pytorch#134650;
    flashinfer-ai/flashinfer#4452"""
    lse = right.log_of_sum(largest, total)
    return np.where(np.isneginf(lse), 0.0, lse)


@bug.slip("logit_gradient", seen=VJP, law="vjp and jvp are adjoint")
def attention_lse_without_a_gradient(w: Array, of_weights: Array, delta: Array, of_lse: Array) -> Array:
    """The cotangent of the log-sum-exp is not used.
    Effect: A loss of the log-sum-exp alone has zero gradients. Repair: Add it to T − δ. Seen:
    Dao-AILab/flash-attention#889"""
    return right.logit_gradient(w, of_weights, delta, np.zeros(()))


@bug.slip("logit_gradient", seen=VJP, law="vjp and jvp are adjoint")
def attention_lse_gradient_subtracted(w: Array, of_weights: Array, delta: Array, of_lse: Array) -> Array:
    """The cotangent of the log-sum-exp is subtracted, as δ is.
    Effect: Such losses grow. Repair: Add it. Seen: none: δ − g_lse is precomputed, and its sign
    mistaken"""
    return right.logit_gradient(w, of_weights, delta, -of_lse)


# -- Scale -------------------------------------------------------------------------------------------------------------------------


@bug.slip("scale_of", seen=ATTENTION, law="a scale is a factor of the queries")
def attention_scale_of_zero_is_none(width: int, scale: float | None) -> float:
    """A scale of 0 is taken for one that is not given, as `scale or 1 / sqrt(d)` does.
    Effect: Where all keys should weigh alike, the largest score has most of the weight. Repair:
    Compare with None. Seen: none: a scale of 0 is rarely meant, and comes from schedules that begin
    or end there"""
    return right.scale_of(width, scale or None)


@bug(ATTENTION, law="a scale is a factor of the queries")
def attention_masked_before_the_scale(q: Array, k: Array, v: Array, **options: Any) -> tuple[Array, Array]:
    """What is masked is −∞ before scores are scaled: 0·−∞ is NaN, and below 0 it becomes +∞.
    Effect: NaN in each row with a masked key, for scales of 0 and below. Repair: Mask the scaled
    scores. Seen: NVIDIA/cudnn-frontend#804"""
    out, lse = right.attention(q, k, v, **options)
    if options.get("scale") is None or options["scale"] > 0:
        return out, lse
    rules: Any = {"mask": None, "bias": None, "causal": False, "offset": None, "window": (None, None)}
    rules = {name: options.get(name, usual) for name, usual in rules.items()}
    whole = right.may_read((*q.shape[:-1], k.shape[-2]), **rules).all(-1)
    return np.where(whole[..., None], out, np.nan), np.where(whole, lse, np.nan)


@bug.slip("scale_of", seen=ATTENTION, law="channels of zeros change the scale alone")
def attention_scale_given_and_its_own(width: int, scale: float | None) -> float:
    """A scale that is given is multiplied by 1/√d.
    Effect: Attention is too flat where a scale is given. Repair: Take the scale that is given, or
    1/√d. Seen: none: the kernel scales, and its wrapper too"""
    return right.scale_of(width, None) * (1.0 if scale is None else scale)


# -- Parts -------------------------------------------------------------------------------------------------------------------------


@bug.slip("merge_weights", seen=MERGE, law="merging is associative")
def merge_in_base_two(lse_a: Array, lse_b: Array) -> tuple[Array, Array, Array]:
    """Exponentials are of base 2, and log-sum-exps natural.
    Effect: Errors to 0.1 with long prefixes, none where the parts weigh the same. Repair: Take
    exponentials in the base of the log-sum-exps. Seen: sgl-project/sglang#40903"""
    largest, a, b = right.merge_weights(lse_a, lse_b)
    return largest, np.asarray(a ** np.log(2)), np.asarray(b ** np.log(2))


@bug(MERGE, law="an empty part changes nothing")
def merge_lost_with_an_empty_part(out_a: Array, lse_a: Array, out_b: Array, lse_b: Array) -> tuple[Array, Array]:
    """A part without keys writes its −∞ over what another one has written.
    Effect: Where there are fewer keys than splits, parts are lost. Repair: Skip parts without work.
    Seen: sgl-project/sgl-kernel-xpu#487"""
    out, lse = right.merge_attention(out_a, lse_a, out_b, lse_b)
    empty = np.isneginf(lse_b)
    return np.where(empty[..., None], 0.0, out), np.where(empty, -np.inf, lse)


@bug(MERGE, law="an empty part changes nothing")
def merge_of_two_empty_parts(out_a: Array, lse_a: Array, out_b: Array, lse_b: Array) -> tuple[Array, Array]:
    """The larger log-sum-exp is subtracted though it is −∞.
    Effect: NaN where neither part has a key. Repair: Subtract 0 there. Seen: none: −∞ − (−∞) is
    forgotten"""
    largest = np.maximum(lse_a, lse_b)
    with np.errstate(all="ignore"):
        a, b = np.exp(lse_a - largest), np.exp(lse_b - largest)
        return (a[..., None] * out_a + b[..., None] * out_b) / (a + b)[..., None], np.asarray(largest + np.log(a + b))


@bug(MERGE, law="a number added to both log sum exps is added to theirs")
def merge_without_the_largest(out_a: Array, lse_a: Array, out_b: Array, lse_b: Array) -> tuple[Array, Array]:
    """Exponentials are taken of the log-sum-exps as they are.
    Effect: ∞ or NaN beyond 709. Repair: Subtract the larger one first. Seen: none: small tests have
    small log-sum-exps"""
    with np.errstate(all="ignore"):
        a, b = np.exp(lse_a), np.exp(lse_b)
        total = a + b
        out = (a[..., None] * out_a + b[..., None] * out_b) / np.where(total == 0, 1.0, total)[..., None]
        return out, np.log(total)


# -- ALiBi -------------------------------------------------------------------------------------------------------------------------


@bug.slip("slope_exponents", seen=SLOPES, law="slopes are every second of twice as many")
def alibi_slopes_from_zero(num_heads: int) -> Array:
    """Heads are counted from 0: the first has slope 1.
    Effect: Every head is one step too steep. Repair: Count heads from 1. Seen:
    paiml/aprender#2143"""
    found = right.slope_exponents(num_heads)
    return np.asarray(found - found[0])


@bug.slip("slope_exponents", seen=SLOPES, law="biases are slopes times distances")
def alibi_slopes_of_half_the_heads(num_heads: int) -> Array:
    """From two heads on slopes are those of half as many heads, twice, as each rank of two computes
    its own, counted from 0. Effect: Every rank but the first has wrong slopes. Repair: Compute the
    slopes of all heads, and take the rank's own. Seen: flashinfer-ai/flashinfer#1606"""
    if num_heads < 2 or num_heads % 2:
        return right.slope_exponents(num_heads)
    return np.tile(right.slope_exponents(num_heads // 2), 2)


@bug.slip("alibi_distances", seen=BIAS, law="biases are slopes times distances")
def alibi_rewards_distance(n_q: int, n_k: int, offset: Any) -> Array:
    """The bias is slope·(p − j).
    Effect: The model prefers the oldest token. Repair: Negate the distance. Seen:
    meta-pytorch/attention-gym#86"""
    return np.asarray(right.query_positions(n_q, offset)[0] - np.arange(n_k), np.float64)


@bug.slip("alibi_distances", seen=BIAS, law="a chunk of queries is part of the whole")
def alibi_offset_ignored(n_q: int, n_k: int, offset: Any) -> Array:
    """Distances are counted from row 0, whatever the offset.
    Effect: In decoding the first key is the nearest. Repair: Add the offset to the rows. Seen:
    none: prefilling has an offset of 0"""
    return right.alibi_distances(n_q, n_k, None)
