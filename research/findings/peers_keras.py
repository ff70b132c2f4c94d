"""Keras on its back ends, and keras-hub: what was found about their attention, their masks and their positions."""

from functools import partial
from typing import Any

import numpy as np

import oracles
from research.findings.peers_jax import attention
from research.findings.shown import Shown

__all__ = ["FINDINGS"]

_MHA = "keras.src.layers.attention.multi_head_attention"
_SOFTMAX = "keras.src.layers.activations.softmax"
_HUB = "keras_hub.src.layers.modeling"
_TORCH = "keras.src.backend.torch.nn"


def _on(backend: str) -> str:
    return f'import os\n\nos.environ["KERAS_BACKEND"] = "{backend}"\nimport numpy as np\nfrom keras import layers, ops\n\n'


_NUMPY = _on("numpy")
_ONE = """
def one(*numbers):
    return np.array(numbers, "float32").reshape(1, -1, 1, 1)


"""
_LAYER = """
def built(layer, query=1.0):
    layer.build((1, 2, 1), (1, 2, 1), (1, 2, 1))
    layer.set_weights([np.full((1, 1, 1), x, "float32") for x in (query, 1.0, 1.0, 1.0)])
    return layer


x = np.array([[[1.0], [5.0]]], "float32")
"""


def _sines(position: int) -> Any:
    """The sinusoids of two channels, to one digit."""
    return np.round(oracles.sinusoidal_positional_encoding(1, 2, position).mid[0], 1)


def _refusals(call: str) -> str:
    """A script that prints, for each back end, what a call gives, each in a process of its own."""
    return f'''import subprocess
import sys

script = """
import os
import sys

os.environ["KERAS_BACKEND"] = sys.argv[1]
import numpy as np
from keras import layers, ops

x = np.zeros((1, 2, 1, 1), "float32")
v = np.array([1, 5], "float32").reshape(1, 2, 1, 1)
try:
    print(np.round(ops.convert_to_numpy({call}), 4).ravel().tolist())
except Exception as error:
    print(type(error).__name__)
"""
names = ("numpy", "jax", "torch")
runs = [subprocess.run([sys.executable, "-c", script, name], capture_output=True, text=True) for name in names]
print("; ".join(f"{{name}}: {{run.stdout.strip()}}" for name, run in zip(names, runs)))'''


def _each(x: str) -> str:
    return "; ".join(f"{name}: {x}" for name in ("numpy", "jax", "torch"))


FINDINGS = [
    Shown(
        "keras",
        "attention",
        "A mask or a bias of one axis raises on torch, and not on the other back ends",
        "defect",
        "The documentation says that a mask broadcasts to (B, N, T, S). On torch it goes to `scaled_dot_product_attention` as it is, "
        "which takes no mask of one axis.",
        _TORCH,
        "mask = torch.where(mask, 0.0, _get_large_negative(query.dtype))",
        "none found",
        _refusals("ops.dot_product_attention(x, x, v, mask=np.array([True, False]))"),
        lambda: _each("[1.0, 1.0]"),
    ),
    Shown(
        "keras",
        "attention",
        "A bias beside a mask raises on torch, and not on the other back ends",
        "defect",
        "The documentation describes both without saying that they exclude each other.",
        _TORCH,
        '"Only one of `bias` and `mask` can be provided. Received both."',
        "none found",
        _refusals("ops.dot_product_attention(x, x, v, bias=np.zeros((1, 1, 2, 2), 'float32'), mask=np.ones((1, 1, 2, 2), bool))"),
        lambda: _each("[3.0, 3.0]"),
    ),
    Shown(
        "keras",
        "attention",
        "A bias of three axes beside is_causal raises on torch, and one of four does not",
        "defect",
        "A bias of four axes goes to the flash kernel of the CPU, which lets both hold; one of three goes to the composite path, which "
        "takes one of them. The documentation says that a bias broadcasts to (B, N, T, S).",
        _TORCH,
        "mask = bias  # Use `bias` as `mask` for scaled_dot_product_attention.",
        "none found",
        _refusals("ops.dot_product_attention(x, x, v, bias=np.zeros((1, 2, 2), 'float32'), is_causal=True)"),
        lambda: _each("[1.0, 3.0]"),
    ),
    Shown(
        "keras",
        "attention",
        "A scale of 0 or below beside is_causal is NaN on torch, and right on the other back ends",
        "defect",
        "PyTorch's flash kernel for the CPU, which Keras picks by name, sets what is masked to −∞ before it scales. The documentation of "
        "`scale` says nothing of its sign.",
        _TORCH,
        "backends=[torch.nn.attention.SDPBackend.FLASH_ATTENTION],",
        "none found",
        _refusals("ops.dot_product_attention(x, x, v, scale=0.0, is_causal=True)"),
        lambda: _each("[1.0, 3.0]"),
    ),
    Shown(
        "keras",
        "attention",
        "A row whose bias is −∞ throughout is NaN on NumPy and JAX, and 0 on torch",
        "convention",
        "By a mask such a row is the mean of all values on all three. The documentation says that an additive mask goes to `bias`.",
        "keras.src.backend.numpy.nn",
        "padded_logits = padded_logits.astype(np.float32)",
        "none found",
        _refusals("ops.dot_product_attention(x, x, v, bias=np.full((1, 1, 2, 2), -np.inf, 'float32'))"),
        lambda: _each("[0.0, 0.0]"),
    ),
    Shown(
        "keras",
        "attention",
        "Heads that share keys raise on NumPy",
        "defect",
        "The documentation has grouped-query attention where N is a multiple of K. On NumPy K is 1 or N: an einsum, which broadcasts an "
        "axis of size 1.",
        "keras.src.backend.numpy.nn",
        'logits = np.einsum("BTNH,BSNH->BNTS", query, key)',
        "keras-team/keras#23081 (merged) mended it for torch and TensorFlow",
        _NUMPY + 'q, k = (np.ones((1, 1, heads, 1), "float32") for heads in (4, 2))\nprint(list(ops.dot_product_attention(q, k, k).shape))',
        lambda: "[1, 1, 4, 1]",
    ),
    Shown(
        "keras",
        "attention",
        "Without channels the scale on NumPy is 1/0, and the output NaN",
        "arithmetic",
        "A head of width 0 has scores of 0, and 0 times ∞ is no number; of two values the mean is to be expected.",
        "keras.src.backend.numpy.nn",
        "scale = (1.0 / np.sqrt(H)) if scale is None else scale",
        "none found",
        _NUMPY
        + """q, v = np.zeros((1, 2, 1, 0), "float32"), np.array([1.0, 5.0], "float32").reshape(1, 2, 1, 1)
print(ops.dot_product_attention(q, q, v).ravel().tolist())""",
        lambda: attention([0, 0], [0, 0], [1, 5]),
    ),
    Shown(
        "keras",
        "multi-head attention",
        "MultiHeadAttention with a value_dim of its own raises on JAX",
        "defect",
        "`value_dim` is the width of a head of values. `jax.nn.dot_product_attention`, to which the layer goes, wants values as wide as "
        "keys; on NumPy and torch the same layer runs.",
        "keras.src.backend.jax.nn",
        'if hasattr(jax.nn, "dot_product_attention"):',
        "none found",
        _on("jax")
        + 'x = np.ones((1, 2, 4), "float32")\nprint(list(layers.MultiHeadAttention(num_heads=1, key_dim=2, value_dim=3)(x, x).shape))',
        lambda: "[1, 2, 4]",
    ),
    Shown(
        "keras",
        "multi-head attention",
        "MultiHeadAttention: a row without keys is 0 or the mean, as return_attention_scores is given or not",
        "defect",
        "With scores the softmax sets masked weights to 0 afterwards; without, a fused path fills the scores with a finite number. Asking "
        "for the scores changes the output. GroupQueryAttention does the same.",
        _SOFTMAX,
        "outputs = backend.numpy.where(mask, outputs, 0.0)",
        "none found",
        _NUMPY
        + _LAYER
        + """layer, mask = built(layers.MultiHeadAttention(1, 1, use_bias=False)), np.zeros((1, 2, 2), bool)
plain = layer(x, x, attention_mask=mask)
scored, _ = layer(x, x, attention_mask=mask, return_attention_scores=True)
print([plain.ravel().tolist(), scored.ravel().tolist()])""",
        lambda: [[3.0, 3.0], [3.0, 3.0]],
    ),
    Shown(
        "keras",
        "multi-head attention",
        "MultiHeadAttention with scores: a visible key with a score below −10⁹ gives part of its weight away",
        "arithmetic",
        "Masked scores become −10⁹, and their weights 0 after the softmax, without dividing again. Here the visible key has a score of "
        "−10⁹, and half of the weight; without `return_attention_scores` the output is that of the visible key.",
        _SOFTMAX,
        "mask, inputs, _large_negative_number(inputs.dtype)",
        "none found",
        _NUMPY
        + _LAYER
        + """layer = built(layers.MultiHeadAttention(1, 1, use_bias=False), query=-1e9)
mask = np.array([[[True, False], [True, False]]])
print(layer(x, x, attention_mask=mask, return_attention_scores=True)[0].ravel().tolist())""",
        lambda: attention([-1e9, -5e9], [1, 5], [1, 5], mask=np.array([[True, False]])),
    ),
    Shown(
        "keras",
        "masks",
        "Softmax in float16: a visible score below −30000 loses its weight to masked ones",
        "arithmetic",
        "In float16 the fill is −3·10⁴, and the smallest number −65504: weights of the row add up to 0. A score of −40000 is a dot "
        "product of 64 channels of ±25.",
        _SOFTMAX,
        "return -3e4",
        "none found",
        _NUMPY
        + """scores, mask = np.array([[-40000.0, 0.0]], "float16"), np.array([[True, False]])
print(layers.Softmax(dtype="float16")(scores, mask=mask).ravel().tolist())""",
        lambda: [1.0, 0.0],
    ),
    Shown(
        "keras",
        "multi-head attention",
        "MultiHeadAttention leaves out a query_mask that is passed to it",
        "defect",
        "The argument is overwritten by the mask that hangs on the tensor, None here. `value_mask` and `key_mask` are read, and "
        "GroupQueryAttention reads all three: there a masked query is the mean of all values, as a row without keys is.",
        _MHA,
        "query_mask = backend.get_keras_mask(query)",
        "none found",
        _NUMPY
        + _LAYER
        + """mask = np.array([[True, False]])
both = layers.MultiHeadAttention(1, 1, use_bias=False), layers.GroupQueryAttention(1, 1, 1, use_bias=False)
print([round(float(built(layer)(x, x, query_mask=mask)[0, 1, 0]), 4) for layer in both])""",
        lambda: [3.0, 3.0],
    ),
    Shown(
        "keras",
        "attention",
        "Attention subtracts 10⁹ from masked scores: a masked key with a larger one wins",
        "arithmetic",
        "The score is not replaced. With numbers of 10⁵ and 3·10⁴, which are scores of a layer without a scale, the masked key has 2·10⁹, "
        "and all of the weight.",
        "keras.src.layers.attention.attention",
        "scores = ops.where(padding_mask, scores - max_value, scores)",
        "none found",
        _NUMPY
        + """q, k, v = (np.array(x, "float32").reshape(1, -1, 1) for x in ([1e5], [0.0, 3e4], [1.0, 5.0]))
print(layers.Attention()([q, v, k], mask=[None, np.array([[True, False]])]).ravel().tolist())""",
        lambda: attention([1e5], [0, 3e4], [1, 5], mask=np.array([[True, False]])),
    ),
    Shown(
        "keras",
        "multi-head attention",
        "Building a layer draws from Python's random numbers",
        "convention",
        "Each initializer without a seed takes one from the module `random`: what a program draws afterwards depends on how many layers "
        "it built. `keras.utils.set_random_seed` sets that module's seed, and says so; that layers use its numbers up is not said.",
        "keras.src.random.seed_generator",
        "return python_random.randint(1, int(1e9))",
        "none found",
        _NUMPY
        + """import random

random.seed(0)
layers.MultiHeadAttention(1, 1).build((1, 2, 1), (1, 2, 1))
print(round(random.random(), 4))""",
        lambda: 0.8444,
    ),
    *(
        Shown(
            "keras-hub",
            "positions and biases",
            f"SinePositionEncoding in {dtype} counts positions in {bits} bits: {position} is {position - 1}",
            "defect",
            "Positions are cast to the compute type in front of the product, under mixed precision too. `RotaryEmbedding` of the same "
            "library "
            f"keeps them in float32. Positions above {position - 1} are rounded to every second one, and later to fewer.",
            f"{_HUB}.sine_position_encoding",
            "positions = ops.cast(positions + start_index, self.compute_dtype)",
            "none found",
            _NUMPY
            + f"""import keras_hub

layer = keras_hub.layers.SinePositionEncoding(dtype="{dtype}")
print([round(float(x), 1) for x in layer(np.zeros((1, 1, 2)), start_index={position})[0, 0]])""",
            partial(_sines, position),
        )
        for dtype, bits, position in (("bfloat16", 8, 257), ("float16", 11, 2049))
    ),
    Shown(
        "keras-hub",
        "positions and biases",
        "PositionEmbedding: a sequence that ends behind the table gets rows of other positions",
        "defect",
        "On JAX a slice that does not fit is moved back: of positions 3 and 4, with a table of 4, position 3 gets row 2, and 4 row 3. On "
        "torch the one row that is left is broadcast to both. Expected here is an error.",
        f"{_HUB}.position_embedding",
        "position_embeddings = ops.slice(",
        "none found",
        _on("jax")
        + """import keras_hub

layer, x = keras_hub.layers.PositionEmbedding(sequence_length=4), np.zeros((1, 2, 1), "float32")
layer.build(x.shape)
layer.set_weights([np.arange(4, dtype="float32")[:, None]])
try:
    print(ops.convert_to_numpy(layer(x, start_index=3)).ravel().tolist())
except Exception:
    print("an error")""",
        lambda: "an error",
    ),
    Shown(
        "keras-hub",
        "caches",
        "CachedMultiHeadAttention on JAX: one position more than the cache has overwrites the last one",
        "defect",
        "`slice_update` moves an update that does not fit back. The third of two positions takes the place of the second. Expected is an "
        "error, or attention on all three.",
        f"{_HUB}.cached_multi_head_attention",
        "value = ops.slice_update(value_cache, start, value_update)",
        "none found",
        _on("jax")
        + """import keras_hub

layer, shape = keras_hub.layers.CachedMultiHeadAttention(1, 1, use_bias=False), (1, 1, 1)
layer.build(shape, shape, shape)
layer.set_weights([np.full(shape, x, "float32") for x in (0.0, 1.0, 1.0, 1.0)])
cache, out = np.zeros((1, 2, 2, 1, 1), "float32"), []
for i, number in enumerate((1.0, 3.0, 8.0)):
    x, mask = np.full(shape, number, "float32"), (np.arange(2) <= i)[None, None]
    y, cache = layer(x, x, cache=cache, cache_update_index=i, attention_mask=mask)
    out.append(float(ops.convert_to_numpy(y).item()))
print(out)""",
        lambda: attention([0] * 3, [1, 3, 8], [1, 3, 8], causal=True),
    ),
]
