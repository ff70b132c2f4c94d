"""Known bugs of ALiBi inside attention."""

from typing import Any

import numpy as np

from oracles.ball import Array
from properties.bugs import reference_attention as right
from properties.bugs.bug import Register

bug = Register(seen="attention", law="ALiBi equals a bias of slopes times distances")


@bug.in_step(
    "slopes_added",
    without=("packed_attention", "packed_attention_vjp"),  # their first query has the position 0
    law="a chunk of queries gives the same rows as all queries",
    effect="While decoding, the only query has distance 0 from the first key.",
    repair="Add the offset to the rows: distances count from the position of the query.",
    citations="keras-team/keras-hub#2861; keras-team/keras-hub#2977",
)
def attention_alibi_ignores_the_offset(t: Array, alibi: Any, offset: Any) -> Array:
    """The code counts the distances of ALiBi from row 0, and ignores the offset."""
    return right.slopes_added(t, alibi, None)


@bug.in_step(
    "key_distances",
    effect="Without causality, the keys after a query gain weight with their distance.",
    repair="Take the absolute value of j − p.",
    citations="lucidrains/x-transformers#88; ofirpress/attention_with_linear_biases#5",
    only_under={"alibi_reference": "distance"},
)
def attention_alibi_with_a_sign(p: Any, n_k: int) -> Array:
    """The bias is slope·(j − p), which rewards the keys after the query."""
    return np.asarray(np.arange(n_k) - p, np.float64)


@bug.in_step(
    "options_of",
    effect="All slopes are √d times too small.",
    repair="Add ALiBi after the scale, or divide the slopes by it.",
    citations="bigscience-workshop/Megatron-DeepSpeed#222",
)
def attention_alibi_times_the_scale(q: Array, k: Array, **options: Any) -> Any:
    """The code adds ALiBi to the products before it multiplies the sum by the scale."""
    found = right.options_of(q, k, **options)
    alibi = found.get("alibi")
    return {**found, "alibi": None if alibi is None else alibi * found["scale"]}


@bug.in_step(
    "options_of",
    effect="The query heads of a group all have one slope.",
    repair="Read the slope of the query head.",
    origin="the loop runs over key heads; compare vllm-project/vllm#1938",
)
def attention_alibi_of_the_key_head(q: Array, k: Array, **options: Any) -> Any:
    """The code reads the slopes by the number of the key head."""
    alibi, heads = options.get("alibi"), right.key_heads(q.shape[-3], k.shape[-3])
    return right.options_of(q, k, **{**options, "alibi": None if alibi is None else alibi[heads]})


@bug.in_step(
    "slopes_added",
    effect="All slopes are 0.69 times what they should be.",
    repair="Multiply the slopes by log₂e too.",
    origin="a kernel that takes exponentials in base 2 multiplies the scale by log₂e, and forgets the slopes",
)
def attention_alibi_in_the_wrong_base(t: Array, alibi: Any, offset: Any) -> Array:
    """The code adds the slopes for base e to scores in base 2."""
    return right.slopes_added(t, None if alibi is None else alibi * np.log(2), offset)


@bug.in_step(
    "slopes_added",
    effect="The heads of every rank except the first have wrong slopes.",
    repair="Pass the slopes of the rank's own heads.",
    citations="flashinfer-ai/flashinfer#1606; flashinfer-ai/flashinfer#5101",
)
def attention_alibi_of_the_first_rank(t: Array, alibi: Any, offset: Any) -> Array:
    """With an even number of heads, the second of two ranks reads the slopes of the first rank."""
    if alibi is None or len(alibi) % 2:
        return right.slopes_added(t, alibi, offset)
    return right.slopes_added(t, np.tile(alibi[: len(alibi) // 2], 2), offset)


@bug.in_step(
    "key_distances",
    effect="The query's own key has a bias; the log-sum-exp is off by one slope.",
    repair="Count the distance from the query's own position.",
    citations="vllm-project/vllm#945",
    only_under={"alibi_reference": "distance"},
)
def attention_alibi_counted_from_the_next_position(p: Any, n_k: int) -> Array:
    """The code counts distances from the position after the query."""
    return right.key_distances(p + 1, n_k)
