"""MLX and tinygrad on the CPU: what was found about `mx.fast`, the positions of `mlx.nn`, and tinygrad's attention."""

import numpy as np

from research.findings.peers_jax import attention
from research.findings.shown import Shown

__all__ = ["FINDINGS"]

_FAST = "ml-explore/mlx, mlx/fast.cpp, the fallback of scaled_dot_product_attention (compiled)"
_POSITIONS = "mlx.nn.layers.positional_encoding"
_ONE = """import mlx.core as mx


def one(*numbers):
    return mx.array(numbers, dtype=mx.float32).reshape(1, 1, -1, 1)


attend = mx.fast.scaled_dot_product_attention
"""

_TINY = """import os

os.environ["DEV"] = "PYTHON"  # the device that needs no compiler
from tinygrad import Tensor


def tensor(*numbers):
    return Tensor(list(numbers)).reshape(1, 1, -1, 1)


"""

FINDINGS = [
    Shown(
        "mlx",
        "attention",
        "A query without keys is the mean of all values by a boolean mask, and NaN by an additive one",
        "convention",
        "A boolean mask fills with the smallest number of the type, so that a row of it is uniform; −∞ that is added stays. The "
        "documentation says neither. With sinks the first is 0.",
        _FAST,
        "",
        "ml-explore/mlx#2395 (closed), #2608 (merged)",
        _ONE
        + """masks = mx.array([[False, False]]), mx.full((1, 2), -mx.inf)
print([abs(attend(one(0), one(0, 0), one(1, 5), scale=1.0, mask=mask).item()) for mask in masks])""",
        lambda: [0.0, 0.0],
    ),
    Shown(
        "mlx",
        "attention",
        "Causal with more queries than keys: the first queries are the mean of all values",
        "convention",
        "The last query stands at the last key, as is documented, and the first of three on two keys sees none: it gets the mean, of keys "
        "in its future. flash-attention, aligned alike, gives 0.",
        _FAST,
        "",
        "ml-explore/mlx#2835 (open) is about the alignment",
        _ONE + 'print(attend(one(0, 0, 0), one(0, 0), one(1, 5), scale=1.0, mask="causal").reshape(-1).tolist())',
        lambda: attention([0] * 3, [0, 0], [1, 5], causal=True, offset=-1),
    ),
    Shown(
        "mlx",
        "attention",
        "A mask of integers is added to the scores",
        "convention",
        "Ones and zeros as tokenizers give them, with 1 for a key that may be seen, raise its score by 1 and hide nothing: the second key "
        "weighs 0.27. PyTorch refuses such a mask.",
        _FAST,
        "",
        "none found",
        _ONE + "print([round(attend(one(0), one(0, 0), one(1, 5), scale=1.0, mask=mx.array([[1, 0]])).item(), 4)])",
        lambda: attention([0], [0, 0], [1, 5], mask=np.array([[True, False]])),
    ),
    Shown(
        "mlx",
        "positions and biases",
        "ALiBi's matrix for one query behind a cache is empty",
        "defect",
        "`create_alibi_matrix(q_sequence_length, k_sequence_length, num_heads, offset)` counts queries from the offset up to "
        "q_sequence_length, which is documented as the length of the queries. With one query at position 1 there is none.",
        _POSITIONS,
        "x1 = mx.arange(offset, q_sequence_length)",
        "none found",
        """from mlx.nn import ALiBi

print(ALiBi.create_alibi_matrix(1, 2, 1, offset=1).reshape(-1).tolist())""",
        lambda: [-(2.0**-8), 0.0],
    ),
    Shown(
        "mlx",
        "positions and biases",
        "The sinusoids that cite Attention Is All You Need have other frequencies, and a factor",
        "convention",
        "Exponents are i/(d/2 − 1) instead of 2i/d, sines come before cosines instead of by turns, and all is multiplied by √(2/d). The "
        "factor is documented, and the smallest frequency is a parameter; that the defaults are not those of the paper is not said.",
        _POSITIONS,
        "self.scale = scale if scale is not None else (2 / dims) ** 0.5",
        "none found",
        """import mlx.core as mx
from mlx.nn import SinusoidalPositionalEncoding

print([round(x, 4) for x in SinusoidalPositionalEncoding(4)(mx.array([1.0]))[0].tolist()])""",
        lambda: np.array([np.sin(1), np.cos(1), np.sin(0.01), np.cos(0.01)]),
    ),
    Shown(
        "tinygrad",
        "attention",
        "In float16 scores are rounded back in front of the softmax: one above 65504 is NaN",
        "arithmetic",
        "The product is accumulated and stored in float32, and then cast to the type of the queries. A score of "
        "80000 becomes ∞, and the row NaN; flash kernels keep scores in float32.",
        "tinygrad.mixin.rand",
        "return qk.cast(self.dtype).softmax(-1).dropout(dropout_p) @ value",
        "none found",
        _TINY
        + """q, k, v = (tensor(*x).cast("float16") for x in ([200.0], [200.0, 400.0], [1.0, 5.0]))
print(q.scaled_dot_product_attention(k, v).float().flatten().tolist())""",
        lambda: attention([200], [200, 400], [1, 5]),
    ),
    Shown(
        "tinygrad",
        "attention",
        "A query without keys is NaN",
        "convention",
        "Its text follows PyTorch's, where such a row is 0. A mask fills with −∞.",
        "tinygrad.mixin.rand",
        'if attn_mask.dtype == dtypes.bool: attn_mask = attn_mask.where(0, -float("inf"))',
        "none found",
        _TINY
        + """mask = Tensor([[False, False]])
print(tensor(0.0).scaled_dot_product_attention(tensor(0.0, 0.0), tensor(1.0, 5.0), attn_mask=mask).flatten().tolist())""",
        lambda: attention([0], [0, 0], [1, 5], mask=np.array([[False, False]])),
    ),
    Shown(
        "tinygrad",
        "attention",
        "A query whose only key is masked gets its value, and one with two masked keys NaN",
        "defect",
        "The softmax over one entry is 1 whatever the entry is, NaN and −∞ too: x − max(x) is simplified to 0 where there is nothing to "
        "take the maximum of.",
        "tinygrad.mixin.op",
        "m = self - self.max(axis=axis, keepdim=True).detach()",
        "none found",
        _TINY
        + """one = tensor(0.0).scaled_dot_product_attention(tensor(0.0), tensor(5.0), attn_mask=Tensor([[False]]))
two = tensor(0.0).scaled_dot_product_attention(tensor(0.0, 0.0), tensor(5.0, 5.0), attn_mask=Tensor([[False, False]]))
print(one.flatten().tolist() + two.flatten().tolist())""",
        lambda: np.concatenate([attention([0], [0] * n, [5] * n, mask=np.zeros((1, n), bool)).ravel() for n in (1, 2)]),
    ),
]
