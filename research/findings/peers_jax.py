"""JAX and the libraries on it: what was found about `jax.nn.dot_product_attention`, Flax, Equinox and Haiku."""

from typing import Any

import numpy as np

import oracles
from research.findings.shown import Shown

__all__ = ["FINDINGS", "attention"]


def attention(q: Any, k: Any, v: Any, **options: Any) -> Any:
    """The output of attention with one head of one channel, by the exact value."""
    one = (np.array(x, dtype=np.float64).reshape(1, -1, 1) for x in (q, k, v))
    return oracles.attention(*one, scale=1.0, **options)[0].mid.ravel()


def _lse(q: Any, k: Any, **options: Any) -> Any:
    one = (np.array(x, dtype=np.float64).reshape(1, -1, 1) for x in (q, k, k))
    return oracles.attention(*one, scale=1.0, **options)[1].mid.ravel()


_JAX = "jax._src.nn.functions"
_LINEN, _NNX = "flax.linen.attention", "flax.nnx.nn.attention"
_ONE = """import jax
import jax.numpy as jnp


def one(*numbers):
    return jnp.array(numbers, jnp.float32).reshape(1, -1, 1, 1)


"""
_HALF = np.array([[True, False]])
_PADDED = "bias = jnp.array([[-3.4028235e38, 0.0]])[None, None]  # finfo.min: key 0 is padding\n"

FINDINGS = [
    Shown(
        "jax",
        "attention",
        "In float16 attention runs eagerly on a CPU, and not under jit",
        "defect",
        "The product of float16 asks for an algorithm that CPUs do not have, and a bare `except` falls back. Under `jit` the error comes "
        "only when the whole function is lowered, where nothing catches it: the function that runs eagerly raises.",
        _JAX,
        "precision = lax.DotAlgorithmPreset.F16_F16_F32",
        "keras-team/keras-hub#2354 works around it; no report to jax found",
        """import jax
import jax.numpy as jnp

x = jnp.ones((1, 1, 1, 1), jnp.float16)
eager = jax.nn.dot_product_attention(x, x, x).item()
try:
    print([eager, jax.jit(jax.nn.dot_product_attention)(x, x, x).item()])
except ValueError as error:
    print([eager, str(error)])""",
        lambda: [1.0, 1.0],
    ),
    Shown(
        "jax",
        "attention",
        "In bfloat16 attention of some sizes raises on a CPU, under jit alone",
        "defect",
        "As for float16: the algorithm BF16_BF16_F32 is there for some shapes, and XLA refuses it when a product is small enough to be "
        "written out as a loop, as with one query, one key and one channel.",
        _JAX,
        "precision = lax.DotAlgorithmPreset.BF16_BF16_F32",
        "none found",
        """import jax
import jax.numpy as jnp

x = jnp.ones((1, 1, 1, 1), jnp.bfloat16)
eager = jax.nn.dot_product_attention(x, x, x).item()
try:
    print([eager, jax.jit(jax.nn.dot_product_attention)(x, x, x).item()])
except Exception as error:
    print([eager, str(error)])""",
        lambda: [1.0, 1.0],
    ),
    Shown(
        "jax",
        "attention",
        "A padded query under is_causal reads the key after it",
        "arithmetic",
        "Masked scores become −0.7 times the largest number of float32. A visible key whose score is below that, as under a bias of "
        "finfo.min, the usual fill of additive masks, loses to every masked one: with padding on the left, by a bias, query 0 reads key "
        "1, in the future.",
        _JAX,
        "return jnp.asarray(-0.7 * dtype_max, dtype=dtype)",
        "none found",
        _ONE
        + _PADDED
        + """out = jax.nn.dot_product_attention(one(0, 0), one(0, 0), one(1, 5), bias=bias, is_causal=True)
print([round(x, 4) for x in out.ravel().tolist()])""",
        lambda: attention([0, 0], [0, 0], [1, 5], bias=np.array([[-3.4028235e38, 0.0]]), causal=True),
    ),
    Shown(
        "jax",
        "attention",
        "A query without keys is the mean of all values by a mask or a length, and NaN by a bias",
        "convention",
        "Masked scores are finite, so that a row of them is uniform, over the keys behind `key_value_seq_lengths` too; a bias of −∞ stays. "
        "With `query_seq_lengths` a padded query is 0. The documentation says none of the three.",
        _JAX,
        "padded_logits = jnp.where(combined_mask, logits, large_negative_number)",
        "none found",
        _ONE
        + """q, k, v = one(0), one(0, 0), one(1, 5)
nothing, length = jnp.zeros((1, 1, 1, 2), bool), jnp.zeros(1, jnp.int32)
ways = ({"mask": nothing}, {"key_value_seq_lengths": length}, {"bias": jnp.where(nothing, 0.0, -jnp.inf)})
print([jax.nn.dot_product_attention(q, k, v, **way).item() for way in ways])""",
        lambda: [0.0, 0.0, 0.0],
    ),
    Shown(
        "jax",
        "attention",
        "The residual of a query without keys is −2.38·10³⁸",
        "convention",
        "`return_residual` gives the log-sum-exp of the masked scores, those that are filled among them. Of no key it is −∞, by which the "
        "merge of two blocks of keys gives an empty one no weight; here two blocks without keys weigh as much as their sizes.",
        _JAX,
        "lse_residual = logsumexp(padded_logits, axis=-1).astype(key.dtype)",
        "none found",
        _ONE
        + """mask = jnp.zeros((1, 1, 1, 2), bool)
_, residual = jax.nn.dot_product_attention(one(0), one(0, 0), one(1, 5), mask=mask, return_residual=True)
print([residual.item()])""",
        lambda: _lse([0], [0, 0], mask=np.zeros((1, 2), bool)),
    ),
    Shown(
        "jax",
        "attention",
        "The residual has no gradient",
        "defect",
        "It goes through `stop_gradient`, which the documentation does not say. What is made of it, a z-loss or a merge of two blocks of "
        "keys, is trained as if it were a constant.",
        _JAX,
        "return encoded, lax.stop_gradient(lse_residual)",
        "none found",
        _ONE
        + """def residual(q):
    return jax.nn.dot_product_attention(q, one(1, 3), one(1, 5), scale=1.0, return_residual=True)[1].sum()


print([round(jax.grad(residual)(one(0)).item(), 4)])""",
        lambda: [2.0],
    ),
    Shown(
        "jax",
        "attention",
        "The residual is stored in the type of the keys: in bfloat16 it has 8 bits",
        "arithmetic",
        "256 + ln 2 becomes 256: a weight made of it is wrong by a factor of 2. The scores and the softmax before are in float32.",
        _JAX,
        "lse_residual = logsumexp(padded_logits, axis=-1).astype(key.dtype)",
        "none found",
        _ONE
        + """q, k = one(16).astype(jnp.bfloat16), one(16, 16).astype(jnp.bfloat16)
_, residual = jax.nn.dot_product_attention(q, k, k, return_residual=True)
print([round(float(residual.item()), 4)])""",
        lambda: _lse([16], [16, 16]),
    ),
    Shown(
        "jax",
        "attention",
        "In float64 the softmax is in float32",
        "arithmetic",
        "Scores of float64 are rounded to float32 in front of the softmax, and the result is returned as float64 with an error of 3·10⁻⁹ "
        "here. A comment says so, the documentation does not.",
        _JAX,
        "padded_logits = padded_logits.astype(np.float32)",
        "jax-ml/jax#34114 is about the fill that this rounding makes −∞",
        """import jax
import jax.numpy as jnp

jax.config.update("jax_enable_x64", True)
q, k = jnp.ones((1, 1, 1, 1)), jnp.array([0.1, 0.3]).reshape(1, 2, 1, 1)
print(f"{jax.nn.dot_product_attention(q, k, k).item():.12f}")""",
        lambda: f"{attention([1], [0.1, 0.3], [0.1, 0.3])[0]:.12f}",
    ),
    Shown(
        "jax",
        "attention",
        "NaN in a value behind the mask is NaN in every row",
        "convention",
        "A masked key may be NaN, for its score is replaced; a masked value is multiplied by a weight of 0. A cache that is allocated and "
        "not filled has to be cleared, of its values.",
        _JAX,
        "encoded = jnp_einsum.einsum('BNTS,BSNH->BTNH', probs, value)",
        "none found",
        _ONE
        + """lengths = jnp.ones(1, jnp.int32)
keys = jax.nn.dot_product_attention(one(0), one(0, jnp.nan), one(1, 5), key_value_seq_lengths=lengths).item()
values = jax.nn.dot_product_attention(one(0), one(0, 0), one(1, jnp.nan), key_value_seq_lengths=lengths).item()
print([keys, values])""",
        lambda: [1.0, 1.0],
    ),
    Shown(
        "jax",
        "attention",
        "is_causal aligns at the first key, also where there are more keys than queries",
        "convention",
        "One query on three keys sees the first one alone; flash-attention, and cuDNN's bottom-right mask, see all three. The "
        "documentation does not say how the two sequences are aligned. What is expected here is the reading that decoding with a cache "
        "needs.",
        _JAX,
        "mask = jnp.tril(jnp.ones((T, S), dtype=bool))",
        "none found",
        _ONE + "print([jax.nn.dot_product_attention(one(0), one(0, 0, 0), one(1, 2, 6), is_causal=True).item()])",
        lambda: attention([0], [0, 0, 0], [1, 2, 6], causal=True, offset=2),
    ),
    Shown(
        "flax",
        "caches",
        "nnx: with is_causal, a module that decodes sees the first key alone",
        "defect",
        "While decoding there is one query and a cache of keys, and the mask of places that are filled is enough. `is_causal` adds the "
        "first row of a triangle to it, which leaves key 0.",
        _NNX,
        "      is_causal=is_causal",
        "google/flax#5591 (open)",
        """import jax.numpy as jnp
from flax import nnx

module = nnx.MultiHeadAttention(1, 1, 1, use_bias=False, decode=True, rngs=nnx.Rngs(0))
for layer, number in ((module.query, 0.0), (module.key, 1.0), (module.value, 1.0), (module.out, 1.0)):
    layer.kernel[...] = jnp.full_like(layer.kernel[...], number)
module.init_cache((1, 2, 1))
print([module(jnp.full((1, 1, 1), x), is_causal=True).item() for x in (1.0, 3.0)])""",
        lambda: attention([0, 0], [1, 3], [1, 3], causal=True),
    ),
    Shown(
        "flax",
        "attention",
        "nnx: is_causal beside a mask of keys raises where the weights are kept, and not where they are not",
        "defect",
        "The triangle is broadcast to the shape of the mask, (batch, 1, 1, keys), instead of both to that of the scores. Without `module` "
        "the same call goes to `jax.nn.dot_product_attention`, which takes it; the documentation says that masks broadcast.",
        _NNX,
        "masks.append(jnp.broadcast_to(causal_mask, target_shape))",
        "none found",
        """import jax.numpy as jnp
from flax import nnx

q, v = jnp.zeros((1, 2, 1, 1)), jnp.array([1.0, 5.0]).reshape(1, 2, 1, 1)
mask = jnp.array([[[[True, False]]]])
print([nnx.dot_product_attention(q, q, v, mask=mask, is_causal=True, module=m).ravel().tolist() for m in (None, nnx.Module())])""",
        lambda: [attention([0, 0], [0, 0], [1, 5], mask=_HALF, causal=True)] * 2,
    ),
    Shown(
        "flax",
        "attention",
        "nnx: values of another width than the keys raise, unless the weights are kept",
        "defect",
        "The documentation promises (…, q_length, num_heads, v_depth_per_head). `jax.nn.dot_product_attention`, to which the call goes, "
        "wants equal widths; the path with `module` and linen's function have them as promised.",
        _NNX,
        "out = jax.nn.dot_product_attention(query, key, value, bias, mask, is_causal=is_causal)",
        "none found",
        """import jax.numpy as jnp
from flax import nnx

q, v = jnp.ones((1, 2, 1, 1)), jnp.ones((1, 2, 1, 3))
print(list(nnx.dot_product_attention(q, q, v).shape))""",
        lambda: "[1, 2, 1, 3]",
    ),
    Shown(
        "flax",
        "attention",
        "nnx: with two batch axes, a mask that broadcasts over one of them raises",
        "defect",
        "The batch axes of every array are flattened by themselves, so that (2, 1) becomes 2 beside the 6 of (2, 3). The documentation "
        "says that masks broadcast to (batch…, heads, q_length, kv_length), as they do with `module`, and in linen.",
        _NNX,
        "return jnp.reshape(x, (math.prod(x.shape[:-3]), *x.shape[-3:]))",
        "none found",
        """import jax.numpy as jnp
from flax import nnx

x, mask = jnp.ones((2, 3, 2, 1, 1)), jnp.ones((2, 1, 1, 2, 2), bool)
print(list(nnx.dot_product_attention(x, x, x, mask=mask).shape))""",
        lambda: "[2, 3, 2, 1, 1]",
    ),
    *(
        Shown(
            "flax",
            "caches",
            f"{name}: one position more than the cache has overwrites the last one",
            "defect",
            "`dynamic_update_slice` moves a start that is too large back to where the update fits. The third of two positions takes the "
            "place of the second, and the output is attention without it. Expected is an error, or attention on all three.",
            module,
            line,
            "none found",
            script,
            lambda: attention([0] * 3, [1, 3, 8], [1, 3, 8], causal=True),
        )
        for name, module, line, script in (
            (
                "linen",
                _LINEN,
                "key = lax.dynamic_update_slice(cached_key.value, key, indices)",
                """import jax
import jax.numpy as jnp
from flax import linen

module = linen.MultiHeadDotProductAttention(num_heads=1, use_bias=False, decode=True)
state = module.init(jax.random.key(0), jnp.zeros((1, 2, 1)))
params = jax.tree.map(jnp.ones_like, state["params"])
params["query"] = jax.tree.map(jnp.zeros_like, params["query"])
cache, out = state["cache"], []
for x in (1.0, 3.0, 8.0):
    y, changed = module.apply({"params": params, "cache": cache}, jnp.full((1, 1, 1), x), mutable=["cache"])
    cache = changed["cache"]
    out.append(y.item())
print(out)""",
            ),
            (
                "nnx",
                _NNX,
                "key = lax.dynamic_update_slice(self.cached_key[...], key, indices)",
                """import jax.numpy as jnp
from flax import nnx

module = nnx.MultiHeadAttention(1, 1, 1, use_bias=False, decode=True, rngs=nnx.Rngs(0))
for layer, number in ((module.query, 0.0), (module.key, 1.0), (module.value, 1.0), (module.out, 1.0)):
    layer.kernel[...] = jnp.full_like(layer.kernel[...], number)
module.init_cache((1, 2, 1))
print([module(jnp.full((1, 1, 1), x)).item() for x in (1.0, 3.0, 8.0)])""",
            ),
        )
    ),
    Shown(
        "flax",
        "attention",
        "linen: a padded query under a causal mask sees the key after it",
        "arithmetic",
        "Masked scores become finfo.min, which is also the usual fill of additive masks: where the only visible key has that bias, it "
        "weighs as much as those behind the mask. `jax.nn.dot_product_attention` gives 5 for the same.",
        _LINEN,
        "attn_weights = jnp.where(mask, attn_weights, big_neg)",
        "none found",
        _ONE.replace("import jax\n", "").replace("import jax.numpy as jnp\n", "import jax.numpy as jnp\nfrom flax import linen\n")
        + _PADDED
        + """mask = linen.make_causal_mask(jnp.zeros((1, 2)))
print(linen.dot_product_attention(one(0, 0), one(0, 0), one(1, 5), bias=bias, mask=mask).ravel().tolist())""",
        lambda: attention([0, 0], [0, 0], [1, 5], bias=np.array([[-3.4028235e38, 0.0]]), causal=True),
    ),
    Shown(
        "equinox",
        "rotary",
        "Two rotations of one width share the tables of whichever is called first",
        "defect",
        "The tables are kept in a dictionary of the module, by width and type, without theta. A model with theta 100 beside one with 10000 "
        "rotates by the wrong frequencies, and which of them does depends on the order of the first calls.",
        "equinox.nn._embedding",
        "cache_key = (embedding_size, self.dtype)",
        "none found; theta came with patrick-kidger/equinox#735",
        """import jax.numpy as jnp
from equinox.nn import RotaryPositionalEmbedding

x = jnp.array([[1.0, 1.0, 0.0, 0.0]] * 2)
RotaryPositionalEmbedding(4, theta=10000.0)(x)
print([round(float(y), 4) for y in RotaryPositionalEmbedding(4, theta=100.0)(x)[1]])""",
        lambda: np.array([np.cos(1), np.cos(0.1), np.sin(1), np.sin(0.1)]),
    ),
    Shown(
        "equinox",
        "rotary",
        "The rotation that cites RoFormer pairs channels as GPT-NeoX does",
        "convention",
        "RoFormer's equation rotates channels 2i and 2i + 1 together; here it is i and i + d/2, as in Llama's files of Hugging Face. "
        "Weights trained with one are wrong under the other, and the documentation names the paper alone.",
        "equinox.nn._embedding",
        "return jnp.concatenate([-x[..., d_2:], x[..., :d_2]], axis=-1)",
        "none found",
        """import jax.numpy as jnp
from equinox.nn import RotaryPositionalEmbedding

x = jnp.array([[0.0] * 4, [1.0, 0.0, 0.0, 0.0]])
print([round(float(y), 4) for y in RotaryPositionalEmbedding(4)(x)[1]])""",
        lambda: oracles.rope(np.array([[0.0] * 4, [1.0, 0.0, 0.0, 0.0]])).mid[1],
    ),
    Shown(
        "dm-haiku",
        "multi-head attention",
        "A visible key with a score below −10³⁰ loses to a masked one",
        "arithmetic",
        "Masked scores become −10³⁰, which is far from the smallest number of float32, −3.4·10³⁸.",
        "haiku._src.attention",
        "attn_logits = jnp.where(mask, attn_logits, -1e30)",
        "none found",
        """import haiku
import jax.numpy as jnp

module = haiku.transform(lambda *x: haiku.MultiHeadAttention(1, 1, w_init=haiku.initializers.Constant(1.0), with_bias=False)(*x))
inputs = [jnp.array(x).reshape(-1, 1) for x in ([-1e16], [1e15, 0.0], [1.0, 5.0])]
inputs.append(jnp.array([[[True, False]]]))
print(module.apply(module.init(None, *inputs), None, *inputs).ravel().tolist())""",
        lambda: attention([-1e16], [1e15, 0], [1, 5], mask=_HALF),
    ),
    Shown(
        "dm-haiku",
        "multi-head attention",
        "In float16 a query without keys is NaN, and in float32 and bfloat16 the mean of all values",
        "defect",
        "−10³⁰ is −∞ in float16: a row of nothing else has no softmax, and one padded query makes the loss NaN.",
        "haiku._src.attention",
        "attn_logits = jnp.where(mask, attn_logits, -1e30)",
        "none found",
        """import haiku
import jax.numpy as jnp


def attend(dtype):
    initial = haiku.initializers.Constant(1.0)
    module = haiku.transform(lambda *x: haiku.MultiHeadAttention(1, 1, w_init=initial, with_bias=False)(*x))
    inputs = [jnp.array(x, dtype).reshape(-1, 1) for x in ([0.0], [0.0, 0.0], [1.0, 5.0])]
    inputs.append(jnp.zeros((1, 1, 2), bool))
    return module.apply(module.init(None, *inputs), None, *inputs).item()


print([float(attend(dtype)) for dtype in ("float32", "bfloat16", "float16")])""",
        lambda: [3.0, 3.0, 3.0],
    ),
]
