"""ONNX's Attention, in onnx' reference evaluator and in onnxruntime: where they split, and what they do where the text says nothing.

What came out is recorded, of onnx 1.23.2 and onnxruntime 1.32.0 on the CPU, and told where these are not installed; where they are it is
measured, and a test compares the two.
"""

from typing import Any

import numpy as np

from research.findings.finding import Findings, Seen, outcome
from systems.onnx_engines import NO_ONNX, NO_RUNTIME, Run, reference_attention, runtime_attention

__all__ = ["finding"]

finding = Findings("ONNX")
_TEXT = "Attention-24, onnx/defs/nn/defs.cc; onnx 1.23.2"
_BOTH = f"{_TEXT}, onnxruntime 1.32.0"


def _values(n_q: int, n_k: int, kind: str = "float32") -> dict[str, Any]:
    """Queries and keys of zeros, and values of 0, 1, …: the output is the mean of the visible keys' numbers."""
    q, k, v = np.zeros((1, 1, n_q, 1), kind), np.zeros((1, 1, n_k, 1), kind), np.arange(n_k, dtype=kind).reshape(1, 1, n_k, 1)
    return {"Q": q, "K": k, "V": v}


def _out(run: Run, feeds: dict[str, Any], **attributes: Any) -> str:
    """What comes out, in a line, or the kind of error."""
    found = outcome(lambda: run(feeds, **attributes)[0].ravel())
    return found if found.startswith("[") else found.partition(":")[0]


def _seen(input: str, expected: str, recorded: str, feeds: dict[str, Any], **attributes: Any) -> Seen:
    """What both make of an input."""
    runs = {} if NO_RUNTIME else {"reference": reference_attention, "onnxruntime": runtime_attention}
    return Seen(input, expected, "; ".join(f"{name}: {_out(run, feeds, **attributes)}" for name, run in runs.items()) or recorded)


@finding("attn_mask must be broadcastable to (batch, heads, n_q, n_k).", _BOTH)
def a_mask_that_all_queries_share_is_refused_by_onnxruntime() -> Seen:
    """Its last axis but one must be the number of queries, and it must have two axes at least."""
    feeds = _values(2, 2) | {"attn_mask": np.array([[True, False]])}
    return _seen("two queries, two keys of values 0 and 1, mask [[1, 0]]", "[0., 0.]", "reference: [0., 0.]; onnxruntime: Fail", feeds)


@finding("attn_mask must be broadcastable to (batch, heads, n_q, n_k); a shorter last axis is padded with what blocks.", _BOTH)
def a_mask_of_one_key_is_padded_and_not_broadcast() -> Seen:
    """Both rules speak of a last axis of 1: the evaluator takes the second, and onnxruntime neither."""
    feeds = _values(1, 2) | {"attn_mask": np.array([[True]])}
    return _seen("one query, two keys of values 0 and 1, mask [[1]]", "[0.5]", "reference: [0.]; onnxruntime: Fail", feeds)


@finding("attn_mask must be broadcastable to (batch, heads, n_q, n_k).", _TEXT)
def a_mask_of_one_axis_raises_beside_is_causal() -> Seen:
    """The evaluator unpacks two sizes of the mask's shape; without is_causal, or with a window, it is right."""
    feeds, recorded = _values(2, 2) | {"attn_mask": np.array([True, False])}, "ValueError"
    actual = recorded if NO_ONNX else _out(reference_attention, feeds, is_causal=1)
    return Seen("two queries, two keys of values 0 and 1, mask [1, 0], is_causal", "[0., 0.]", actual)


@finding("is_causal: query i reads the keys j ≤ i + the length of past_key.", _BOTH)
def one_query_with_a_cache_is_not_causal_in_onnxruntime() -> Seen:
    """Where more keys are new than queries are. From two queries on, and without a cache, it is causal. Found by the law of chunks."""
    feeds = _values(1, 3)
    feeds |= {"past_key": feeds["K"][:, :, :1], "past_value": feeds["V"][:, :, :1], "K": feeds["K"][:, :, 1:], "V": feeds["V"][:, :, 1:]}
    recorded = "reference: [0.5]; onnxruntime: [1.]"
    return _seen("one query, a cache of one key of value 0, new keys of values 1 and 2", "[0.5]", recorded, feeds, is_causal=1)


@finding("qk_matmul_output_mode 0: raw QK matmul result.", _TEXT)
def the_raw_scores_are_capped_by_the_evaluator() -> Seen:
    """With a softcap, mode 0 shows what mode 1 does; onnxruntime shows the scores. See onnx/onnx#7913 for modes 1 and 2."""
    one = np.ones((1, 1, 1, 1), np.float32)
    attributes, recorded = {"softcap": 1.0, "qk_matmul_output_mode": 0}, "[0.76159]"
    shown = recorded if NO_ONNX else outcome(lambda: reference_attention({"Q": one, "K": one, "V": one}, True, **attributes)[-1].ravel())
    return Seen("q = k = 1, softcap 1, mode 0", "[1.]", shown)


@finding("Nothing is said of no keys; a row in which all keys are masked is 0.", _BOTH)
def no_keys_at_all_are_an_error() -> Seen:
    """The evaluator takes the maximum over nothing, and onnxruntime asks for a key."""
    return _seen("one query, no keys, values of width 1", "[0.]", "reference: ValueError; onnxruntime: Fail", _values(1, 0))


@finding("scale is a scaling factor, a float.", _BOTH)
def a_negative_scale_is_not_a_number() -> Seen:
    """Its root scales queries and keys: the evaluator returns NaN, and onnxruntime refuses."""
    return _seen(
        "one query, two keys, all 0, values 0 and 1, scale −1", "[0.5]", "reference: [nan]; onnxruntime: Fail", _values(1, 2), scale=-1.0
    )


@finding("Inputs of float64 give an output of float64.", _TEXT)
def the_root_of_the_scale_is_rounded_to_float32() -> Seen:
    """The attribute is a float32, and so is its root, by which queries and keys of float64 are scaled. Found by agreement with the oracle,
    with the likely cause `scale_on_inputs=float32`."""
    feeds = _values(1, 2, "float64") | {"Q": np.ones((1, 1, 1, 1)), "K": np.array([0.0, 1.0]).reshape(1, 1, 2, 1)}
    right, recorded = 1 / (1 + np.exp(-0.5)), "0.6224593272"
    actual = recorded if NO_ONNX else f"{reference_attention(feeds, scale=0.5)[0].item():.10f}"
    return Seen("q = 1, k = 0 and 1, v = 0 and 1, scale 0.5: the weight of the second key", f"{right:.10f}", actual)
