"""Known bugs of one code path among several: the implementation is correct, but its twin (another
path that should return the same) is not.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from oracles import FLOAT32
from oracles.ball import Array
from properties.bugs import reference as right
from properties.bugs import reference_positions as placed
from properties.bugs.bug import CAUSAL, MHA, SDPA, Register
from properties.bugs.records import MultiHead
from properties.bugs.reference import Mask
from properties.contract.twins import Twin

bug = Register(law="all code paths of an implementation give the same result")


def _of_any_key(q: Array, k: Array, v: Array) -> Array:
    return right.scaled_dot_product_attention(q, k, v)


@bug.in_operation(
    CAUSAL,
    promises={"twins": {"with weights": {CAUSAL: _of_any_key}}},
    effect="A model that returns its attention weights has other outputs, which depend on later tokens.",
    repair="Build the mask for both paths.",
    citations="huggingface/transformers#30652; pytorch/pytorch#99282",
)
def causal_path_with_weights_sees_the_future(q: Array, k: Array, v: Array) -> Array:
    """If the caller requests the weights, the code takes another path, which has no causal mask."""
    return right.causal_attention(q, k, v)


def _without_broadcasting(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    return right.scaled_dot_product_attention(q, k, v, None if mask is not None and 1 in mask.shape[-2:] else mask)


@bug.in_operation(
    SDPA,
    promises={"twins": {"compiled": {SDPA: _without_broadcasting}}},
    effect="The compiled model attends to padding.",
    repair="Broadcast the mask before it is used.",
    citations="pytorch/pytorch#93823",
)
def sdpa_compiled_does_not_broadcast_masks(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """The compiled path does not broadcast a mask of one row or one column, and masks nothing."""
    return right.scaled_dot_product_attention(q, k, v, mask)


def _nan_without_keys(*arguments: Any) -> Array:
    x, *_, mask = call = MultiHead(*arguments)
    shape = (*x.shape[:-1], x.shape[-2])
    sees_a_key = True if mask is None else np.broadcast_to(mask, shape).any(-1, keepdims=True)
    return np.where(sees_a_key, right.multi_head_attention(*call), np.nan)


@bug.in_operation(
    MHA,
    record=MultiHead,
    promises={"twins": {"in evaluation": {MHA: _nan_without_keys}}},
    effect="Padded tokens are zeros in training and NaN in evaluation.",
    repair="Use one convention on both paths.",
    citations="pytorch/pytorch#190486",
)
def mha_evaluation_path_is_nan_without_keys(call: MultiHead) -> Array:
    """In evaluation, a separate kernel takes the softmax of −∞ only for fully masked tokens."""
    return right.multi_head_attention(*call)


_KEPT: dict[tuple[int, ...], tuple[Array, Array]] = {}


def _by_kept_tables(x: Array, start_pos: int = 0, **options: Any) -> Array:
    if options:
        return placed.rope(x, start_pos, **options)
    cos, sin = _KEPT.setdefault(x.shape[-2:], placed.chunk_tables(start_pos, *x.shape[-2:]))
    return x * cos + placed.rotated(x) * sin


@bug.in_operation(
    "rope",
    requires=("two calls in a row",),
    making=True,
    promises={"twins": {"with a cache": {"rope": _by_kept_tables}}},
    effect=(
        "All chunks of a length are rotated like the first of them, so decoding differs from one pass over the "
        "sequence."
    ),
    repair="Add the start position to the key.",
    citations="lucidrains/rotary-embedding-torch#11; pytorch/executorch#2010",
)
def rope_cached_path_keeps_the_first_positions() -> Callable[..., Array]:
    """With a cache, the code keeps tables by the length of the chunk, without its start position."""
    _KEPT.clear()
    return placed.rope


def _converted(x: Array, start_pos: int = 0, **options: Any) -> Array:
    if options:
        return placed.rope(x, start_pos, **options)
    count, d = x.shape[-2:]
    frequencies = 10000.0 ** -(np.arange(d) // 2 * 2 / max(d, 1))
    coarse = np.ldexp(np.rint(np.ldexp(np.frexp(frequencies)[0], 8)), np.frexp(frequencies)[1] - 8)  # bfloat16's digits
    angles = np.arange(start_pos, start_pos + count)[:, None] * coarse
    return np.asarray(x * np.cos(angles) + placed.rotated(x) * np.sin(angles))


@bug.in_operation(
    "rope",
    promises={"twins": {"converted": {"rope": _converted}}},
    effect="A model that is loaded and then converted rotates differently from a model created in that type.",
    repair="Keep frequencies out of the conversion, or compute them again.",
    citations="NVIDIA-NeMo/Automodel#2549; huggingface/transformers#25681",
)
def rope_converted_module_has_coarse_frequencies(x: Array, start_pos: int = 0) -> Array:
    """A conversion of the module to 16 bits also rounds its frequencies to 8 significant bits."""
    return placed.rope(x, start_pos)


def _in_float64(q: Any, k: Any, v: Any, mask: Mask) -> Array:
    return right.scaled_dot_product_attention(q.astype(np.float64), k.astype(np.float64), v.astype(np.float64), mask)


def _by_reciprocals(q: Any, k: Any, v: Any, mask: Mask = None) -> Any:
    return (_in_float64(q, k, v, mask) * (1 + FLOAT32.inputs.unit_roundoff)).astype(np.float32)


@bug.in_operation(
    SDPA,
    promises={"arithmetic": "float32", "twins": {"in evaluation": Twin({SDPA: _by_reciprocals}, exactly=True)}},
    effect="Training without dropout and evaluation differ in the last digit, although they should be one computation.",
    repair="Skip the product if nothing is dropped.",
    origin="the difference is within every tolerance, so no test shows it",
)
def sdpa_evaluation_path_rounds_otherwise(q: Any, k: Any, v: Any, mask: Mask = None) -> Any:
    """In evaluation, where nothing is dropped, the code still multiplies results by the rounded
    1/(1 − p) of dropout."""
    return _in_float64(q, k, v, mask).astype(np.float32)
