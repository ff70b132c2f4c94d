"""Known bugs of quantised attention: scales that are lost, of another array, head, token or block, and
weights that FP8 cannot hold.
"""

from typing import Any

import ml_dtypes
import numpy as np

from oracles import Conventions
from oracles.ball import Array
from properties.bugs import reference_attention as attention_steps
from properties.bugs import reference_quantised as right
from properties.bugs.bug import Register
from properties.bugs.reference_quantised import Arrays, Scales
from properties.contract.features import FEATURES, QUANTISED

_SEEN = "attention"
bug = Register(_SEEN)
_LAW = "attention with options is within its error limit"
_FACTOR = "v_scale is a factor of the output, not of lse"
_MOVES = "a factor moves from k_scale to q_scale"


def scaled(scale_shape: Any = "tensor", law: str = _LAW, grid: str = "e4m3") -> dict[str, Any]:
    """Return the fields of a bug that only calls with codes on a grid, and scales of a shape, show."""
    return {
        "law": law,
        "promises": {
            "arithmetic": f"float64-{grid}",
            "features": FEATURES,
            "conventions": Conventions(scale_shape=scale_shape),
        },
        "only_under": {} if scale_shape == "tensor" else {"scale_shape": scale_shape},
    }


# -- Scales that are lost, or of another array -----------------------------------------------------


@bug.in_step(
    "numbers_of",
    **scaled(law=_FACTOR),
    effect="Scores have the size of the codes, and outputs too: the model writes garbage.",
    repair="Pass the scales on to the kernel.",
    citations="vllm-project/vllm#51363; flashinfer-ai/flashinfer#1023; flashinfer-ai/flashinfer#4979",
)
def quantised_scales_dropped(codes: Arrays, scales: Scales, heads: Any) -> Arrays:
    """A wrapper does not pass the scales on, and the kernel takes codes for numbers."""
    return right.numbers_of(codes, (None, None, None), heads)


@bug.in_step(
    "numbers_of",
    **scaled(law=_FACTOR),
    effect="Outputs are too large by 1 / v_scale, and the log-sum-exp is right.",
    repair="Multiply the output by v_scale, once.",
    citations="lightseekorg/tokenspeed#759; flashinfer-ai/flashinfer#4979",
)
def quantised_values_not_scaled(codes: Arrays, scales: Scales, heads: Any) -> Arrays:
    """The code folds q_scale and k_scale into the scores, and leaves out v_scale."""
    return right.numbers_of(codes, (*scales[:2], None), heads)


@bug.in_step(
    "numbers_of",
    **scaled(law=_MOVES),
    effect="The softmax is too sharp or too flat, by a factor of the scores.",
    repair="Multiply the scale of the scores by k_scale.",
    citations="lightseekorg/tokenspeed#759; sgl-project/sglang#20705",
)
def quantised_keys_not_scaled(codes: Arrays, scales: Scales, heads: Any) -> Arrays:
    """The code leaves out the scale of the keys, as if it were 1."""
    return right.numbers_of(codes, (scales[0], None, scales[2]), heads)


@bug.in_step(
    "numbers_of",
    **scaled(law=_FACTOR),
    effect="With one scale for both, nothing is wrong; with two, scores and outputs have wrong sizes.",
    repair="Pass k_scale to the scores and v_scale to the output.",
    origin="two arguments of one type, passed by position; a test of vllm-project/vllm#55557 has unequal scales for it",
)
def quantised_scales_of_keys_and_values_swapped(codes: Arrays, scales: Scales, heads: Any) -> Arrays:
    """The code multiplies keys by v_scale, and values by k_scale."""
    return right.numbers_of(codes, (scales[0], scales[2], scales[1]), heads)


@bug.in_step(
    "dequantised",
    **scaled(),
    effect="Scores and outputs are off by the squares of the scales; with scales near 1 nobody sees it.",
    repair="Multiply codes by the scale that quantising divided by.",
    origin="a writer divides by the scale and a reader multiplies by it; some libraries store the reciprocal",
)
def quantised_scale_inverted(codes: Array, scale: Array) -> Array:
    """The code divides by the scale where it should multiply, and multiplies where it should divide."""
    return right.dequantised(codes, 1 / scale)


# -- Scales of another head, token or block --------------------------------------------------------


@bug.in_step(
    "head_scales",
    **scaled("head"),
    effect="All heads but the first have wrong scores and outputs, as soon as scales differ.",
    repair="Read the scale of the key head.",
    citations="sgl-project/sgl-kernel-xpu#252",
)
def quantised_scale_of_the_first_head(scale: Array, heads: Any) -> Array:
    """The code reads the scale of the first head for all heads."""
    return scale[..., 0 * np.asarray(heads)]


@bug.in_step(
    "head_scales",
    **scaled("head"),
    effect="With grouped heads, queries have the scale of another key head, or memory behind the array is read.",
    repair="Divide the number of the query head by the group, as for the keys.",
    origin="q_descale has the shape (batch, kv_heads) in flash-attention; compare flashinfer-ai/flashinfer#4153",
)
def quantised_scale_indexed_by_query_head(scale: Array, heads: Any) -> Array:
    """The code indexes the scales, which belong to key heads, by the number of the query head."""
    return scale[..., np.minimum(np.arange(len(heads)), scale.shape[-1] - 1)]


@bug.in_step(
    "head_scales",
    **scaled("head"),
    effect="All sequences but the first have wrong scores and outputs.",
    repair="Advance the scales with the batch.",
    citations="sgl-project/sgl-kernel-xpu#252",
)
def quantised_scale_of_the_first_sequence(scale: Array, heads: Any) -> Array:
    """The code reads the scales of the first element of the batch for all elements."""
    first = scale[(slice(0, 1),) * (scale.ndim - 1)]
    return right.head_scales(np.broadcast_to(first, scale.shape), heads)


@bug.in_step(
    "block_scales",
    **scaled("block16"),
    effect="Shapes and types are right, and numbers are wrong by the ratio of two scales.",
    repair="Write and read block scales in one layout.",
    citations="vllm-project/vllm#50084",
)
def quantised_block_scales_in_another_order(scale: Array, width: int) -> Array:
    """The cache has block scales in the layout of another kernel, so each block gets another block's scale."""
    return right.block_scales(np.roll(scale, 1, -1), width)


@bug.in_step(
    "scale_of_each",
    **scaled("token", grid="int8"),
    effect="Each key has the scale of the key before it.",
    repair="Index codes and scales by the same token.",
    origin="a cache appends codes and scales in two steps, the scale one position late",
)
def quantised_scale_of_the_token_before(scale: Any, shape: tuple[int, ...], heads: Any) -> Array:
    """The code reads the scale of the token before."""
    each = np.asarray(scale, np.float64)
    return right.scale_of_each(np.roll(each, 1, -1) if each.ndim == len(shape) - 1 else each, shape, heads)


# -- Codes and weights -----------------------------------------------------------------------------


@bug.in_step(
    "dequantised",
    **scaled(grid="int8"),
    effect="Negative numbers become large positive ones.",
    repair="Read codes as signed integers, or subtract the zero point.",
    origin="a buffer of bytes that is read as uint8, or a missing zero point of 128; compare InfiniTensor/InfiniLM#553",
)
def quantised_codes_read_as_unsigned(codes: Array, scale: Array) -> Array:
    """The code reads bytes of signed codes as unsigned ones."""
    return right.dequantised(np.where((codes < 0) & (codes == np.rint(codes)), codes + 256, codes), scale)


def _in_e4m3(arrays: Arrays, options: dict[str, Any], factor: float, lag: float = 0.0) -> tuple[Array, Array]:
    """Return attention whose weights, relative to a maximum that is `lag` too low, are multiplied by a
    factor and rounded to E4M3 before the product with the values.
    """
    heads = attention_steps.key_heads(arrays[0].shape[-3], arrays[1].shape[-3])
    scales = tuple(options.pop(name, None) for name in QUANTISED)
    q, k, v = right.numbers_of(arrays, scales, heads)
    w, _, sink, lse, _ = attention_steps.weights_of(q, k, **attention_steps.options_of(q, k, **options))
    largest = np.maximum(w.max(-1, keepdims=True, initial=0.0), sink)
    times = factor * np.exp(lag) / np.where(largest == 0, 1.0, largest)
    kept = np.minimum(w * times, 448.0).astype(ml_dtypes.float8_e4m3fn).astype(np.float64) / times
    return attention_steps.averages(kept, v.take(heads, -3), sink == 0), lse


_OF_WEIGHTS = scaled(grid="e4m3-e4m3-weights-by-448")


@bug.in_operation(
    _SEEN,
    **_OF_WEIGHTS,
    effect="Over many keys, weights below 2⁻¹⁰ of the largest vanish from the output, but not from its divisor.",
    repair="Multiply weights by 2⁸ or 448 before they are rounded to E4M3, and divide the output by it.",
    citations="ROCm/FlyDSL#1020; ROCm/aiter#5535; flashinfer-ai/flashinfer#5020; ROCm/aiter#5642",
)
def quantised_weights_not_scaled(q: Any, k: Any, v: Any, **options: Any) -> tuple[Array, Array]:
    """The code rounds weights to E4M3 without a factor."""
    return _in_e4m3((q, k, v), options, 1.0)


@bug.in_operation(
    _SEEN,
    **_OF_WEIGHTS,
    effect="The keys of the largest weights lose most of their weight, and the log-sum-exp is right.",
    repair="Keep 2⁸ · exp(score − maximum) below 448: rescale earlier, or take a smaller factor.",
    citations="Dao-AILab/flash-attention#2694; Dao-AILab/flash-attention#2713",
)
def quantised_weights_saturate(q: Any, k: Any, v: Any, **options: Any) -> tuple[Array, Array]:
    """The maximum that the code subtracts is too low by up to 4, so that weights times 2⁸ exceed 448."""
    return _in_e4m3((q, k, v), options, 256.0, 4.0)


@bug.in_operation(
    _SEEN,
    **_OF_WEIGHTS,
    effect="Outputs are right, and parts of the keys are merged with wrong weights.",
    repair="Subtract log 2⁸ from the log-sum-exp.",
    origin="a factor of the weights is put into their exponent, and so into their sum; compare "
    "flashinfer-ai/flashinfer#5020",
)
def quantised_lse_with_the_factor_of_weights(q: Any, k: Any, v: Any, **options: Any) -> tuple[Array, Array]:
    """The log-sum-exp has the factor 2⁸ of the weights in it."""
    out, lse = _in_e4m3((q, k, v), options, 256.0)
    return out, lse + np.log(256.0)
