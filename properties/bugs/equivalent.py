"""Correct variants of the reference: each looks like a bug, but computes the same. Laws must let
these pass, so they are not in the catalogue of bugs.
"""

import math
from typing import Any

import numpy as np

from oracles.ball import Array
from properties.bugs import reference as right
from properties.bugs import reference_frequencies
from properties.bugs.bug import MHA_JVP, SDPA, SDPA_JVP, SDPA_VJP, SOFTMAX, Bug, Register
from properties.bugs.kernels import OnlineAttention, gradients_of
from properties.bugs.reference import Mask
from properties.bugs.rotary import rope_vjp_sin_after_rotate

__all__ = ["EQUIVALENT"]

bug = Register(law="none")


@bug.in_step(
    "scores_of",
    seen=SDPA,
    without=(SDPA_JVP, MHA_JVP),
    public=True,
    citations="tinygrad/tinygrad#2425",
)
def sdpa_mask_adds_one(q: Array, k: Array) -> Array:
    """The mask adds 1 instead of 0 to every visible score, which does not change the softmax."""
    return right.scores_of(q, k) + 1.0


@bug.in_step(
    "scores_of",
    seen=SDPA,
    without=(SDPA_JVP, MHA_JVP),
    citations="vllm-project/vllm#945",
)
def sdpa_alibi_counted_from_one(q: Array, k: Array) -> Array:
    """The distances of ALiBi are j − n + 1 instead of j − n, which adds one slope to all keys of a
    row and does not change the softmax; it changes the log-sum-exp, so this is a bug in an
    operation that returns one."""
    return right.scores_of(q, k) + 2.0**-4 * np.arange(1.0, q.shape[-2] + 1)[:, None]


@bug.in_step(
    "causal_mask",
    public=True,
    citations="RVC-Boss/GPT-SoVITS#965; TransformerLensOrg/TransformerLens#284",
)
def causal_as_complement_of_the_future(n_q: int, n_k: int | None = None) -> Any:
    """The code inverts triu with diagonal 1, the future keys."""
    return ~np.triu(np.ones((n_q, n_q if n_k is None else n_k), bool), 1)


@bug.in_step(
    SDPA_VJP,
    public=True,
    citations="huggingface/picotron#37",
)
def vjp_row_terms_from_outputs(q: Array, k: Array, v: Array, mask: Mask, grad_out: Array) -> tuple[Array, ...]:
    """The term of each row is Σ o·g instead of Σ P·dP; the two are equal because o = P v."""
    p = right.attention_weights(q, k, mask)
    return gradients_of((q, k, v), mask, grad_out, p, right.row_term(p @ v, grad_out))


@bug.in_step(
    "normalized",
    seen=SOFTMAX,
    citations="iree-org/iree#24178",
)
def softmax_sum_is_at_least_one(e: Array) -> Array:
    """The code raises the sum of exponentials to at least 1; after the maximum is subtracted, the
    sum is at least 1 anyway."""
    return np.asarray(e / np.maximum(e.sum(-1, keepdims=True), 1.0))


@bug.in_step(
    "exponentials",
    seen=SOFTMAX,
    origin="some processors have exp2 but not exp",
)
def softmax_in_base_two(scores: Array, visible: Any, largest: Array) -> Array:
    """The code takes powers of two of scores times log₂ e."""
    return np.where(visible, np.exp2((scores - largest) * math.log2(math.e)), 0.0)


@bug.in_step(
    "scores_of",
    seen=SDPA,
    origin="PyTorch scales queries and keys by the root of the scale",
)
def sdpa_scale_shared_by_queries_and_keys(q: Array, k: Array) -> Array:
    """The code scales queries and keys by the fourth root of 1/d each."""
    root = max(q.shape[-1], 1) ** -0.25
    return np.asarray((q * root) @ (k * root).mT)


@bug.in_operation(
    SDPA,
    origin="kernels work this way",
)
def sdpa_online(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """The code uses tiles of 16 keys under a running maximum, and divides by the sum at the end."""
    return OnlineAttention()(q, k, v, mask)


@bug.in_operation(
    SDPA,
    origin="kernels pad to fill their tiles",
)
def sdpa_blocked_padding(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """The code pads keys and values with zeros to a multiple of 16, and masks the padding."""
    padding, visible = -k.shape[-2] % 16, right.visible_entries(mask, (*q.shape[:-1], k.shape[-2]))
    rows = [(0, 0)] * (k.ndim - 2) + [(0, padding), (0, 0)]
    padded_mask = np.pad(visible, [(0, 0)] * (visible.ndim - 1) + [(0, padding)])
    return right.scaled_dot_product_attention(q, np.pad(k, rows), np.pad(v, rows), padded_mask)


@bug.in_step(
    "apply_rotary_vjp",
    seen="rope_vjp",
    without=("apply_rotary_vjp",),
    citations="PaddlePaddle/Paddle#74716",
)
def rope_vjp_sin_after_rotate_of_rotations(x: Array, cos: Array, sin: Array, grad_out: Array) -> Array:
    """The gradient is g ⊙ cos − rotated(g) ⊙ sin, which is correct because both channels of a
    rotated pair have the same sine."""
    return np.asarray(rope_vjp_sin_after_rotate(x, cos, sin, grad_out))


@bug.in_step(
    "yarn_multiplier",
    seen="rotary_frequencies",
    citations="turboderp-org/exllamav3#259",
)
def yarn_equal_weights_leave_the_softmax_alone(
    factor: float, mscale: Any, mscale_all_dim: Any, attention_factor: Any
) -> float:
    """Equal weights give an attention factor of 1 for every scaling factor, as a quotient of equal
    numbers; the report disputes it and asks for 0.1·ln s + 1, which the model also applies to its
    softmax."""
    if attention_factor is None and mscale and mscale == mscale_all_dim:
        return 1.0
    return reference_frequencies.yarn_multiplier(factor, mscale, mscale_all_dim, attention_factor)


@bug.in_step(
    "longrope_list",
    seen="rotary_frequencies",
    citations="vllm-project/vllm#27431",
)
def longrope_list_changes_within_a_sequence(seq_len: int | None, given: Any) -> Any:
    """Each call chooses the list by its length, so the list changes when a sequence passes the
    original length; this is disputed, because cached keys have the short list: the report uses the
    configured length, and others report that."""
    beyond = (seq_len or 0) - given["original_max_position_embeddings"]
    return (given["short_factor"], given["long_factor"])[int(beyond > 0)]


EQUIVALENT: dict[str, Bug] = {entry.id: entry for entry in bug.bugs}
