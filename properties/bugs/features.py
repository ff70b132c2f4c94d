"""Known bugs of the options of attention (window, softcap, bias, sink, offset, log-sum-exp), of
merging, and of ALiBi.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from oracles.ball import Array
from properties.bugs import reference_attention as right
from properties.bugs.bug import Register

ATTENTION, VJP, JVP, MERGE, SLOPES, BIAS = (
    "attention",
    "attention_vjp",
    "attention_jvp",
    "merge_attention",
    "alibi_slopes",
    "alibi_bias",
)
bug = Register(seen=ATTENTION)

# -- Windows and offsets ---------------------------------------------------------------------------


@bug.in_step(
    "in_window",
    law="a window equals the mask of its band",
    effect="Each full window has one key too many, and logits drift slightly.",
    repair="Subtract 1 for the key of the query if the number is a count.",
    citations="NVIDIA-NeMo/Megatron-Bridge#2656; ml-explore/mlx-lm#390",
)
def attention_window_one_key_too_many(p: Any, j: Any, left: int | None, right_side: int | None) -> Any:
    """The code passes a count of keys as a left bound, which shows one key more."""
    return right.in_window(p, j, None if left is None else left + 1, right_side)


@bug.in_step(
    "in_window",
    law="a window equals the mask of its band",
    effect="Decoding and prefill differ by the oldest key.",
    repair="Show L + 1 keys for a bound of L.",
    citations="lightseekorg/tokenspeed#578; microsoft/unilm#1612",
    only_under={"window": "bound"},
)
def attention_window_one_key_short(p: Any, j: Any, left: int | None, right_side: int | None) -> Any:
    """The code reads a left bound as a count of keys, and a bound of 0 as no bound."""
    return right.in_window(p, j, left if left is None else left - 1 if left else None, right_side)


@bug.in_step(
    "query_positions",
    law="causal equals a window with no keys to the right",
    effect="After a cache, queries see no key or only the first ones.",
    repair="Add the offset: queries come after the cached keys.",
    origin="an offset may count the keys before the queries, or the queries before the keys",
)
def attention_offset_subtracted(n_q: int, n_k: int, offset: Any) -> Any:
    """The code subtracts the offset from the positions of the queries."""
    return right.query_positions(n_q, n_k, None if offset is None else -np.asarray(offset))


@bug.in_step(
    "in_window",
    law="a window equals the mask of its band",
    effect="Every full window misses its oldest key, and a window of 0 shows no key.",
    repair="Compare with ≥.",
    origin="counts of keys are compared with >, and a bound replaced the count",
)
def attention_window_bound_excluded(p: Any, j: Any, left: int | None, right_side: int | None) -> Any:
    """The code compares the left bound with > instead of ≥."""
    return right.in_window(p, j, None if left is None else left - 1, right_side)


@bug.in_step(
    "in_window",
    law="a window equals the mask of its band",
    effect="Every window with a right bound misses its last key, and a bound of 0 hides the key of the query.",
    repair="Compare with ≤.",
    origin="the end of a range is often excluded",
)
def attention_window_right_bound_excluded(p: Any, j: Any, left: int | None, right_side: int | None) -> Any:
    """The code compares the right bound with < instead of ≤."""
    return right.in_window(p, j, left, None if right_side is None else right_side - 1)


@bug.in_step(
    "in_window",
    law="attention with options is within its error limit",
    effect="Without causality, queries do not see keys that the right bound allows.",
    repair="Limit the keys after a query by the right bound alone.",
    origin="the code compares |i − j| with the left bound, which is enough for causal layers",
)
def attention_left_bound_on_both_sides(p: Any, j: Any, left: int | None, right_side: int | None) -> Any:
    """The left bound of a window also limits the keys after a query."""
    bounds = [side for side in (left, right_side) if side is not None]
    return right.in_window(p, j, left, min(bounds) if left is not None else right_side)


@bug.in_step(
    "in_window",
    law="attention with options is within its error limit",
    effect="Without causality, queries do not see keys far in the future.",
    repair="Leave the missing side open.",
    origin="causal layers pass (w, w), where the right side has no effect; compare huggingface/transformers#39408",
)
def attention_window_on_both_sides(p: Any, j: Any, left: int | None, right_side: int | None) -> Any:
    """If only the left side of a window is given, the code uses the same bound on the right."""
    return right.in_window(p, j, left, left if right_side is None else right_side)


@bug.in_step(
    "in_window",
    law="a window equals the mask of its band",
    effect="Without causality, a window shows the whole future.",
    repair="Compare with both sides.",
    origin="tests of windows have causal masks, where the right side has no effect",
)
def attention_window_without_a_right_side(p: Any, j: Any, left: int | None, right_side: int | None) -> Any:
    """The code ignores the right side of a window."""
    return right.in_window(p, j, left, None)


@bug.in_step(
    "visible_keys",
    law="a chunk of queries gives the same rows as all queries",
    effect="With a cache, decoding attends to the wrong keys.",
    repair="Add the offset to the rows of the window.",
    citations="keras-team/keras-hub#1738",
)
def attention_window_ignores_the_offset(shape: tuple[int, ...], window: Any = (None, None), **others: Any) -> Any:
    """The window counts rows from 0 and ignores the offset; the causal mask uses the offset."""
    return right.visible_keys(shape, **others) & right.visible_keys(shape, window=window)


@bug.in_step(
    "query_positions",
    law="a chunk of queries gives the same rows as all queries",
    without=(BIAS,),
    effect="While decoding, the query sees only the first key.",
    repair="Add the offset to the rows.",
    origin="prefill has an offset of 0",
)
def attention_offset_ignored(n_q: int, n_k: int, offset: Any) -> Any:
    """The code counts queries from 0 and ignores the offset."""
    return right.query_positions(n_q, n_k, None)


@bug.in_step(
    "query_positions",
    law="a chunk of queries gives the same rows as all queries",
    without=(BIAS,),
    effect="Positions jump after the prompt, and queries see the future.",
    repair="Add the offset in one place.",
    citations="skyzh/tiny-llm#46",
)
def attention_offset_added_twice(n_q: int, n_k: int, offset: Any) -> Any:
    """The cache adds the offset, and attention adds it again."""
    return right.query_positions(n_q, n_k, None if offset is None else 2 * np.asarray(offset))


@bug.in_step(
    "query_positions",
    law="batch elements are computed independently",
    without=(BIAS,),
    effect="Sequences of other lengths see too many keys, or too few.",
    repair="Use the offset of each batch element.",
    origin="tests of decoding have batches of one length",
)
def attention_offset_of_the_first_for_all(n_q: int, n_k: int, offset: Any) -> Any:
    """All batch elements use the offset of the first one."""
    return right.query_positions(
        n_q, n_k, offset if offset is None or not np.ndim(offset) else np.full_like(offset, np.ravel(offset)[:1])
    )


# -- Softcaps --------------------------------------------------------------------------------------


@bug.in_step(
    "softcapped",
    law="a softcap bounds the log-sum-exp",
    effect="Results with softcaps of 0, 5 and 50 are identical.",
    repair="Apply the softcap.",
    citations="sgl-project/sgl-kernel-xpu#491",
)
def attention_cap_ignored(s: Array, softcap: float | None) -> Array:
    """The code stores the softcap and never applies it."""
    return s


@bug.in_step(
    "logits_of",
    law="a constant bias changes only the log-sum-exp",
    effect="The softcap reduces large biases.",
    repair="Apply the softcap to the scores, then add the bias.",
    citations="emmtrix/emx-onnx-cgen#731; onnx/onnx#7867",
)
def attention_cap_after_the_bias(
    s: Array, softcap: float | None, bias: Any, alibi: Any = None, offset: Any = None
) -> Array:
    """The code applies the softcap to the sum of score and bias."""
    return right.softcapped(right.slopes_added(right.biased(s, bias), alibi, offset), softcap)


@bug.in_step(
    "options_of",
    law="scale=s equals multiplying the queries by s",
    effect="The softcap reduces ordinary scores, because products are √d times as large.",
    repair="Scale first.",
    origin="two lines are exchanged",
)
def attention_cap_before_the_scale(q: Array, k: Array, **options: Any) -> Any:
    """The code applies the softcap before the scale."""
    options = right.options_of(q, k, **options)
    softcap, scale = options.get("softcap"), options["scale"]
    # s·c·tanh(x/c) = cs·tanh(sx/cs)
    return {**options, "softcap": softcap * scale if softcap and scale else softcap}


@bug.in_step(
    "softcapped",
    law="a very large softcap changes nothing",
    effect="All scores are between −1 and 1 before the bias is added.",
    repair="Multiply tanh(s/c) by c.",
    origin="tests with a softcap of 1 pass",
)
def attention_cap_not_multiplied_back(s: Array, softcap: float | None) -> Array:
    """The code does not multiply tanh(s/c) by the softcap c."""
    return s if softcap is None else np.tanh(s / softcap)


@bug.in_step(
    "softcap_slope",
    seen=VJP,
    law="VJP and JVP are adjoint",
    effect="Gradients of large scores are too large.",
    repair="Multiply by 1 − tanh².",
    origin="the slope of small scores is 1",
)
def attention_derivative_without_the_cap(s: Array, softcap: float | None) -> Array:
    """Derivatives ignore the softcap."""
    return np.ones(s.shape)


@bug.in_step(
    "softcap_slope",
    seen=VJP,
    law="a very large softcap changes nothing",
    effect="Gradients of scores below the softcap vanish.",
    repair="Divide by the softcap first.",
    origin="tests with a softcap of 1 pass",
)
def attention_cap_slope_of_the_score(s: Array, softcap: float | None) -> Array:
    """The code takes the slope of tanh(s) instead of tanh(s/c)."""
    return right.softcap_slope(s, None if softcap is None else 1.0)


# -- Biases ----------------------------------------------------------------------------------------


@bug.in_step(
    "biased",
    law="a constant bias changes only the log-sum-exp",
    effect="Far keys get more weight than near ones, if the bias prefers near keys.",
    repair="Add the bias.",
    citations="meta-pytorch/attention-gym#86",
)
def attention_bias_negated(t: Array, bias: Any) -> Array:
    """The code subtracts the bias."""
    return right.biased(t, None if bias is None else np.where(bias > -np.inf, -bias, bias))


@bug.in_step(
    "biased",
    law="the order of heads does not matter",
    effect="Biases of heads, as in ALiBi, all have one slope.",
    repair="Use the bias of each head.",
    origin="tests have a bias that all heads share",
)
def attention_bias_of_the_first_head(t: Array, bias: Any) -> Array:
    """All heads use the bias of the first head."""
    return right.biased(t, bias if bias is None or bias.ndim < 3 else bias[..., :1, :, :])


@bug.in_step(
    "options_of",
    law="a constant bias changes only the log-sum-exp",
    effect="Biases are √d times too weak.",
    repair="Add the bias as it is to the scaled scores.",
    citations="NVIDIA/TransformerEngine#103; tenstorrent/tt-metal#55337",
)
def attention_bias_scaled(q: Array, k: Array, **options: Any) -> Any:
    """The code scales the bias together with the scores."""
    options = right.options_of(q, k, **options)
    bias = options.get("bias")
    return {**options, "bias": None if bias is None else np.where(bias > -np.inf, options["scale"] * bias, bias)}


@bug.in_step(
    "options_of",
    law="the order of heads does not matter",
    effect="Heads of one group share a bias, and no head uses the last biases.",
    repair="Index the bias by the query head.",
    origin="without groups, the two indices are equal",
)
def attention_bias_of_the_key_head(q: Array, k: Array, **options: Any) -> Any:
    """The code indexes the bias by the key head instead of the query head."""
    bias, heads = options.get("bias"), right.key_heads(q.shape[-3], k.shape[-3])
    if bias is not None and bias.ndim > 2 and bias.shape[-3] > 1:
        options["bias"] = bias.take(heads, -3)
    return right.options_of(q, k, **options)


@bug.in_step(
    "bias_gradient",
    seen=VJP,
    law="gradients of bias and sink sum to grad_lse",
    effect="Biases that heads or queries share learn too slowly.",
    repair="Sum over the broadcast axes.",
    origin="tests have a bias with all axes",
)
def attention_bias_gradient_is_a_mean(du: Array, bias: Any) -> Any:
    """The gradient of a bias is the mean over its broadcast axes instead of the sum."""
    return None if bias is None else right.shared(du, bias.shape) * (bias.size / max(du.size, 1))


@bug.in_step(
    "bias_gradient",
    seen=VJP,
    law="gradients of bias and sink sum to grad_lse",
    effect="The gradient has the wrong size.",
    repair="Sum over the broadcast axes.",
    citations="HKUSTDial/flash-sparse-attention#199",
)
def attention_bias_gradient_not_reduced(du: Array, bias: Any) -> Any:
    """The gradient of a broadcast bias takes the first entries instead of the sum over the
    broadcast axes."""
    if bias is None:
        return None
    first_entries = du[(0,) * (du.ndim - bias.ndim)]
    return first_entries[tuple(slice(0, count) for count in bias.shape)].copy()


# -- Sinks -----------------------------------------------------------------------------------------


@bug.in_step(
    "largest_logit",
    law="a fully masked row with options follows its convention",
    effect="Fully masked rows are NaN instead of 0.",
    repair="Include the sink in the maximum.",
    citations="NVIDIA/TensorRT-LLM#19220",
)
def attention_sink_over_a_sentinel(u: Array, may: Any, sink: Any) -> Array:
    """The largest logit of a row without visible keys is a sentinel of −1e5, so e^(sink + 1e5) is
    ∞."""
    largest = u.max(-1, keepdims=True, where=may, initial=-np.inf)
    return right.largest_logit(u, may, sink) if sink is None else np.where(np.isneginf(largest), -1e5, largest)


@bug.in_step(
    "sinks_of",
    law="a sink equals one more key with value 0",
    effect="Adding a constant to all scores changes the weights.",
    repair="Add e^(sink − largest).",
    citations="kyegomez/AttentionIsOFFByOne#5",
)
def attention_sink_after_the_shift(sink: Any, largest: Array) -> Array:
    """The code subtracts the largest logit from all logits except the sink, and then adds e^sink."""
    return right.sinks_of(sink, largest if sink is None else np.zeros(largest.shape))


@bug.in_step(
    "largest_logit",
    "sinks_of",
    making=True,
    law="a sink equals one more key with value 0",
    effect="Sinks are too strong where scores are large and positive, and too weak where they are negative.",
    repair="Include the sink in the maximum, and add e^(sink − maximum).",
    origin="the sink joins a softmax that was written without one",
)
def attention_sink_beside_shifted_scores() -> tuple[Callable[..., Array], ...]:
    """The code subtracts the largest score from the scores, and then adds e^sink to their sum."""
    return (
        lambda u, may, sink: right.largest_logit(u, may, None),
        lambda sink, largest: right.sinks_of(sink, largest if sink is None else np.zeros(largest.shape)),
    )


@bug.in_step(
    "sinks_of",
    law="a sink equals one more key with value 0",
    effect="The result is a softmax without sinks.",
    repair="Pass the sinks to the kernel.",
    citations="vllm-project/vllm-metal#550",
)
def attention_sink_ignored(sink: Any, largest: Array) -> Array:
    """The code never reaches the part that handles sinks."""
    return np.zeros(largest.shape)


@bug.in_step(
    "sinks_of",
    law="a sink of minus infinity changes nothing",
    effect="A head with a disabled sink has a sink of 0.",
    repair="Keep −∞ for disabled sinks.",
    origin="in one model either all heads have sinks, or none",
)
def attention_sink_disabled_is_zero(sink: Any, largest: Array) -> Array:
    """The code loads sinks with −∞ replaced by 0, as it replaces NaN and ∞ in weights."""
    return right.sinks_of(None if sink is None else np.nan_to_num(sink, neginf=0.0), largest)


@bug.in_step(
    "sinks_of",
    law="the order of heads does not matter",
    effect="Heads do not use their learned sinks.",
    repair="Use the sink of each head.",
    origin="kernels loop over heads within groups, and index by the group",
)
def attention_sink_of_the_first_head(sink: Any, largest: Array) -> Array:
    """All heads use the sink of the first head."""
    return right.sinks_of(None if sink is None else np.full_like(sink, sink[0]), largest)


@bug.in_operation(
    ATTENTION,
    law="the content of keys masked for all queries does not matter",
    effect="Parts with masked keys get too much weight in a merge.",
    repair="Mask the scores before both sums.",
    origin="the output has a separate mask, and tests compare the output only",
)
def attention_lse_of_all_keys(q: Array, k: Array, v: Array, **options: Any) -> tuple[Array, Array]:
    """The log-sum-exp includes masked keys."""
    without_masks = {**options, "mask": None, "causal": False, "window": (None, None)}
    return right.attention(q, k, v, **options)[0], right.attention(q, k, v, **without_masks)[1]


@bug.in_step(
    "options_of",
    law="the order of heads does not matter",
    effect="Heads of one group share a sink, and no head uses the last sinks.",
    repair="Index the sink by the query head.",
    origin="without groups, the two indices are equal",
)
def attention_sink_of_the_key_head(q: Array, k: Array, **options: Any) -> Any:
    """The code indexes the sink by the key head instead of the query head."""
    sink, heads = options.get("sink"), right.key_heads(q.shape[-3], k.shape[-3])
    return right.options_of(q, k, **{**options, "sink": None if sink is None else sink[heads]})


@bug.in_step(
    "sink_gradient",
    seen=VJP,
    law="gradients of bias and sink sum to grad_lse",
    effect="Sinks do not learn.",
    repair="Return Σ w_sink·(g_lse − δ).",
    citations="Dao-AILab/flash-attention#1973",
)
def attention_sink_without_a_gradient(of_sink: Array, delta: Array, of_lse: Array, sink: Any) -> Any:
    """The gradient of the sinks is 0."""
    return None if sink is None else np.zeros(sink.shape)


@bug.in_step(
    "sink_gradient",
    seen=VJP,
    law="VJP and JVP are adjoint",
    effect="Sinks learn from a part of the batch.",
    repair="Sum over the batch.",
    origin="each block writes its part instead of adding it",
)
def attention_sink_gradient_of_the_first_problem(of_sink: Array, delta: Array, of_lse: Array, sink: Any) -> Any:
    """The gradient of the sinks comes from the first batch element only."""
    of_sink, delta, of_lse = np.broadcast_arrays(of_sink, delta, of_lse)
    first = (slice(0, 1),) * (of_sink.ndim - 3)
    return right.sink_gradient(of_sink[first], delta[first], of_lse[first], sink)


# -- Log-sum-exps ----------------------------------------------------------------------------------


@bug.in_step(
    "log_of_sum",
    without=(VJP, JVP),
    law="a constant bias changes only the log-sum-exp",
    effect="Log-sum-exps are between 0 and log n, and parts merge wrongly.",
    repair="Add the largest logit.",
    origin="the output does not depend on the log-sum-exp",
)
def attention_lse_without_the_largest(largest: Array, total: Array) -> Array:
    """The code does not add the largest logit to the log-sum-exp."""
    return right.log_of_sum(np.zeros(largest.shape), total)


@bug.in_step(
    "log_of_sum",
    without=(VJP, JVP),
    law="merging attention over two parts of the keys gives the whole",
    effect="Log-sum-exps are wrong by a factor of up to 1.44.",
    repair="Convert both, or neither.",
    citations="lightseekorg/tokenspeed#571",
)
def attention_lse_in_base_two(largest: Array, total: Array) -> Array:
    """The code adds the binary logarithm of the sum to the natural largest logit."""
    return (largest + np.log2(total))[..., 0]


@bug.in_step(
    "log_of_sum",
    without=(VJP, JVP),
    law="merging attention over two parts of the keys gives the whole",
    effect="Parts merge as at a temperature of 1.44.",
    repair="Convert only a binary log-sum-exp.",
    citations="pytorch/pytorch#181645",
    only_under={"lse_base": "e"},
)
def attention_lse_converted_twice(largest: Array, total: Array) -> Array:
    """The code multiplies a natural log-sum-exp by ln 2, as if it were binary."""
    return np.asarray(np.log(2) * right.log_of_sum(largest, total))


@bug.in_step(
    "log_of_sum",
    without=(VJP, JVP),
    law="attention with options is within its error limit",
    effect="In a merge, such a row takes all the weight, and the result is NaN.",
    repair="Return −∞, the logarithm of 0.",
    citations="Dao-AILab/flash-attention#978",
)
def attention_lse_of_nothing_is_infinite(largest: Array, total: Array) -> Array:
    """The log-sum-exp of a fully masked row is +∞, so that exp(score − lse) is 0 in the backward."""
    lse = right.log_of_sum(largest, total)
    return np.where(np.isneginf(lse), np.inf, lse)


@bug.in_step(
    "log_of_sum",
    without=(VJP, JVP),
    law="attention with options is within its error limit",
    effect="In a merge, such a row takes weight and moves the output towards 0.",
    repair="Return −∞, the logarithm of 0.",
    citations="pytorch/pytorch#134650; flashinfer-ai/flashinfer#4452",
)
def attention_lse_of_nothing_is_zero(largest: Array, total: Array) -> Array:
    """The log-sum-exp of a fully masked row is 0, as for one key with a score of 0."""
    lse = right.log_of_sum(largest, total)
    return np.where(np.isneginf(lse), 0.0, lse)


@bug.in_step(
    "logit_gradient",
    seen=VJP,
    law="VJP and JVP are adjoint",
    effect="A loss on the log-sum-exp alone has zero gradients.",
    repair="Add the cotangent to T − δ.",
    citations="Dao-AILab/flash-attention#889",
)
def attention_lse_without_a_gradient(w: Array, of_weights: Array, delta: Array, of_lse: Array) -> Array:
    """The code ignores the cotangent of the log-sum-exp."""
    return right.logit_gradient(w, of_weights, delta, np.zeros(()))


@bug.in_step(
    "logit_gradient",
    seen=VJP,
    law="VJP and JVP are adjoint",
    effect="Training increases a loss on the log-sum-exp.",
    repair="Add the cotangent.",
    origin="the code precomputes δ − g_lse with the wrong sign",
)
def attention_lse_gradient_subtracted(w: Array, of_weights: Array, delta: Array, of_lse: Array) -> Array:
    """The code subtracts the cotangent of the log-sum-exp, like δ."""
    return right.logit_gradient(w, of_weights, delta, -of_lse)


# -- Scale -----------------------------------------------------------------------------------------


@bug.in_step(
    "scale_of",
    law="scale=s equals multiplying the queries by s",
    effect="With a scale of 0, weights are unequal instead of equal.",
    repair="Compare with None.",
    origin="schedules of scales can start or end at 0",
)
def attention_scale_of_zero_is_none(width: int, scale: float | None) -> float:
    """The code treats a scale of 0 as missing, as `scale or 1 / sqrt(d)` does."""
    return right.scale_of(width, scale or None)


@bug.in_operation(
    ATTENTION,
    law="scale=s equals multiplying the queries by s",
    effect="With a scale of 0 or below, each row with a masked key is NaN.",
    repair="Mask the scaled scores.",
    citations="NVIDIA/cudnn-frontend#804",
)
def attention_masked_before_the_scale(q: Array, k: Array, v: Array, **options: Any) -> tuple[Array, Array]:
    """The code masks with −∞ before it scales: a scale of 0 gives NaN, and a negative scale gives
    +∞."""
    output, lse = right.attention(q, k, v, **options)
    if options.get("scale") is None or options["scale"] > 0:
        return output, lse
    names = ("mask", "bias", "causal", "offset", "window")
    visible = {name: options[name] for name in names if name in options}
    all_visible = right.visible_keys((*q.shape[:-1], k.shape[-2]), **visible).all(-1)
    return np.where(all_visible[..., None], output, np.nan), np.where(all_visible, lse, np.nan)


@bug.in_step(
    "scale_of",
    law="added zero channels change only the scale",
    effect="Attention is too flat with a given scale.",
    repair="Use the given scale, or 1/√d.",
    origin="both the kernel and its wrapper scale",
)
def attention_scale_given_and_its_own(width: int, scale: float | None) -> float:
    """The code multiplies a given scale by 1/√d."""
    return right.scale_of(width, None) * (1.0 if scale is None else scale)


# -- Parts -----------------------------------------------------------------------------------------


@bug.in_step(
    "merge_weights",
    seen=MERGE,
    law="merging is associative",
    effect="With long prefixes errors reach 0.1; parts of equal weight merge correctly.",
    repair="Take exponentials in the base of the log-sum-exps.",
    citations="sgl-project/sglang#40903",
    only_under={"lse_base": "e"},
)
def merge_in_base_two(lse_a: Array, lse_b: Array) -> tuple[Array, Array, Array]:
    """The code takes exponentials in base 2 of natural log-sum-exps."""
    largest, a, b = right.merge_weights(lse_a, lse_b)
    return largest, np.asarray(a ** np.log(2)), np.asarray(b ** np.log(2))


@bug.in_operation(
    MERGE,
    law="merging an empty part changes nothing",
    effect="With fewer keys than splits, the code loses parts.",
    repair="Skip parts without keys.",
    citations="sgl-project/sgl-kernel-xpu#487",
)
def merge_lost_with_an_empty_part(out_a: Array, lse_a: Array, out_b: Array, lse_b: Array) -> tuple[Array, Array]:
    """A part without keys overwrites the result of another part with −∞."""
    output, lse = right.merge_attention(out_a, lse_a, out_b, lse_b)
    empty = np.isneginf(lse_b)
    return np.where(empty[..., None], 0.0, output), np.where(empty, -np.inf, lse)


@bug.in_operation(
    MERGE,
    law="merging an empty part changes nothing",
    effect="The result is NaN if neither part has a key.",
    repair="Subtract 0 if both are −∞.",
    origin="the code does not handle −∞ − (−∞)",
)
def merge_of_two_empty_parts(out_a: Array, lse_a: Array, out_b: Array, lse_b: Array) -> tuple[Array, Array]:
    """The code subtracts the larger log-sum-exp even if it is −∞."""
    largest = np.maximum(lse_a, lse_b)
    with np.errstate(all="ignore"):
        a, b = right.exponential(lse_a - largest), right.exponential(lse_b - largest)
        return (a[..., None] * out_a + b[..., None] * out_b) / (a + b)[..., None], largest + right.logarithm(a + b)


@bug.in_operation(
    MERGE,
    law="a shift of both log-sum-exps shifts the merged one",
    effect="Log-sum-exps above 709 give ∞ or NaN.",
    repair="Subtract the larger one first.",
    origin="tests have small log-sum-exps",
)
def merge_without_the_largest(out_a: Array, lse_a: Array, out_b: Array, lse_b: Array) -> tuple[Array, Array]:
    """The code takes exponentials of the log-sum-exps without subtracting the larger one."""
    with np.errstate(all="ignore"):
        a, b = right.exponential(lse_a), right.exponential(lse_b)
        total = a + b
        output = (a[..., None] * out_a + b[..., None] * out_b) / np.where(total == 0, 1.0, total)[..., None]
        return output, right.logarithm(total)


# -- ALiBi -----------------------------------------------------------------------------------------


@bug.in_step(
    "slope_exponents",
    seen=SLOPES,
    law="the slopes of n heads are every second slope of 2n heads",
    effect="Every head is one step too steep.",
    repair="Count heads from 1.",
    citations="paiml/aprender#2143",
)
def alibi_slopes_from_zero(num_heads: int) -> Array:
    """The code counts heads from 0, so the first slope is 1."""
    result = right.slope_exponents(num_heads)
    return np.asarray(result - result[0])


@bug.in_step(
    "slope_exponents",
    seen=SLOPES,
    law="biases are slopes times distances",
    effect="Every rank except the first has wrong slopes.",
    repair="Compute the slopes of all heads, and select the heads of the rank.",
    citations="flashinfer-ai/flashinfer#1606",
)
def alibi_slopes_of_half_the_heads(num_heads: int) -> Array:
    """With two or more heads, each of two ranks computes the slopes of half as many heads, counted
    from 0."""
    if num_heads < 2 or num_heads % 2:
        return right.slope_exponents(num_heads)
    return np.tile(right.slope_exponents(num_heads // 2), 2)


@bug.in_step(
    "key_distances",
    seen=BIAS,
    law="biases are slopes times distances",
    effect="The model prefers the oldest token.",
    repair="Negate the distance.",
    citations="meta-pytorch/attention-gym#86",
)
def alibi_rewards_distance(p: Any, n_k: int) -> Array:
    """The bias is slope·(p − j) instead of its negative."""
    return np.asarray(p - np.arange(n_k), np.float64)


@bug.in_step(
    "alibi_distances",
    seen=BIAS,
    law="a chunk of queries gives the same rows as all queries",
    effect="While decoding, the first key is the nearest.",
    repair="Add the offset to the rows.",
    origin="prefill has an offset of 0",
)
def alibi_offset_ignored(n_q: int, n_k: int, offset: Any) -> Array:
    """The code counts distances from row 0 and ignores the offset."""
    return right.alibi_distances(n_q, n_k, None)
