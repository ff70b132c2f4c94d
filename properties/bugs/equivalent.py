"""Traps: what looks like a slip and is none. Laws must let these pass, so they stay out of the catalogue."""

import math
from typing import Any

import numpy as np

from oracles.ball import Array
from properties.bugs.bug import Bug, Register
from properties.bugs.kernels import allowed, gradients_of, masked, normalized, online_attention
from properties.reference import Mask, attention_weights, hard_masked_softmax, scaled_dot_product_attention, scores_of, transposed

__all__ = ["EQUIVALENT"]

bug = Register()

NOTHING = "None: results are the same but for rounding."
KEEP = "Nothing is to be repaired."


@bug("scaled_dot_product_attention", effect=NOTHING, repair=KEEP, citation="tinygrad/tinygrad#2425", law="none", public=True)
def sdpa_mask_adds_one(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """The mask adds 1 to every allowed score instead of 0: a softmax does not see what is added to all."""
    return hard_masked_softmax(scores_of(q, k) + 1.0, mask) @ v


@bug(
    "causal_mask",
    effect=NOTHING,
    repair=KEEP,
    citation="RVC-Boss/GPT-SoVITS#965; TransformerLensOrg/TransformerLens#284",
    law="none",
    public=True,
)
def causal_as_complement_of_the_future(n_q: int, n_k: int | None = None) -> Any:
    """The mask is what triu with diagonal 1, the forbidden keys, leaves over."""
    return ~np.triu(np.ones((n_q, n_q if n_k is None else n_k), bool), 1)


@bug("scaled_dot_product_attention_vjp", effect=NOTHING, repair=KEEP, citation="huggingface/picotron#37", law="none", public=True)
def vjp_row_terms_from_outputs(q: Array, k: Array, v: Array, mask: Mask, grad_out: Array) -> tuple[Array, ...]:
    """The term of each row is Σ o·g instead of Σ P·dP: for o = P v the two are equal."""
    p = attention_weights(q, k, mask)
    delta = ((p @ v) * grad_out).sum(-1, keepdims=True)
    return gradients_of(q, k, v, grad_out, p, p * (grad_out @ transposed(v) - delta))


@bug("hard_masked_softmax", effect=NOTHING, repair=KEEP, citation="iree-org/iree#24178", law="none")
def softmax_sum_is_at_least_one(scores: Array, mask: Mask = None) -> Array:
    """The sum of exponentials is raised to 1 against division by 0: after the maximum is subtracted it is at least 1 anyhow."""
    allowed_scores = masked(scores, mask)
    largest = allowed_scores.max(-1, keepdims=True)
    e = np.exp(allowed_scores - np.where(np.isneginf(largest), 0.0, largest))
    return normalized(e, np.maximum(e.sum(-1, keepdims=True), 1.0))


@bug("hard_masked_softmax", effect=NOTHING, repair=KEEP, citation="none: kernels have exp2 and no exp", law="none")
def softmax_in_base_two(scores: Array, mask: Mask = None) -> Array:
    """Weights are powers of two of scores times log₂ e."""
    allowed_scores = masked(scores, mask)
    largest = allowed_scores.max(-1, keepdims=True)
    return normalized(np.exp2((allowed_scores - np.where(np.isneginf(largest), 0.0, largest)) * math.log2(math.e)))


@bug("scaled_dot_product_attention", effect=NOTHING, repair=KEEP, citation="none: PyTorch scales both by the root", law="none")
def sdpa_scale_shared_by_queries_and_keys(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """Queries and keys are each scaled by the fourth root of 1/d."""
    root = max(q.shape[-1], 1) ** -0.25
    return hard_masked_softmax((q * root) @ transposed(k * root), mask) @ v


@bug("scaled_dot_product_attention", effect=NOTHING, repair=KEEP, citation="none: it is how kernels work", law="none")
def sdpa_online(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """Tiles of 16 keys under a running maximum, divided by the sum at the end."""
    return online_attention(q, k, v, mask)


@bug("scaled_dot_product_attention", effect=NOTHING, repair=KEEP, citation="none: padding is how kernels reach their tiles", law="none")
def sdpa_blocked_padding(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """Keys and values are padded with zeros to a multiple of 16, and the padding is blocked."""
    extra, every = -k.shape[-2] % 16, allowed(mask, (*q.shape[:-1], k.shape[-2]))
    rows = [(0, 0)] * (k.ndim - 2) + [(0, extra), (0, 0)]
    return scaled_dot_product_attention(q, np.pad(k, rows), np.pad(v, rows), np.pad(every, [(0, 0)] * (every.ndim - 1) + [(0, extra)]))


EQUIVALENT: dict[str, Bug] = {entry.id: entry for entry in bug.bugs}
