"""LitGPT, mlx-lm, foundation-model-stack and Whisper: masks that meet a cache, and frequencies that are for another length."""

import numpy as np

from research.findings.peers_jax import attention
from research.findings.shown import Shown

__all__ = ["FINDINGS"]

_LITGPT, _FMS = "litgpt.model", "fms.modules.positions"

FINDINGS = [
    Shown(
        "litgpt",
        "rotary",
        "YaRN slows the fast frequencies and keeps the slow ones",
        "defect",
        "The ramp is 0 where a channel turns often and 1 where it turns rarely. The paper interpolates by it, and transformers too; here "
        "it is the share that is not interpolated. So the first frequency of a model of factor 40 is 1/40, and the last one is what it "
        "was without YaRN.",
        _LITGPT,
        "theta_extrapolation_factor = ramp_func",
        "none found; it came with Lightning-AI/litgpt#2202",
        """from litgpt.model import build_rope_cache

adjustments = {"factor": 40.0, "beta_fast": 32, "beta_slow": 1, "original_max_seq_len": 4096, "mscale": 1.0, "mscale_all_dim": 1.0}
_, sin = build_rope_cache(2, 128, extra_config=adjustments)
print([round(x, 4) for x in sin[1, [0, 63]].mul(1000).tolist()])""",
        lambda: np.sin([1.0, 10000 ** (-126 / 128) / 40]) * 1000,
    ),
    Shown(
        "litgpt",
        "caches",
        "With softcapping and a cache, attention is not causal",
        "defect",
        "The mask of a cache is of booleans, and is added to the scores: what may be seen gets 1 more, and nothing is masked. Without a "
        "cache the mask is of numbers.",
        _LITGPT,
        "ones = torch.ones((max_seq_length, max_seq_length), device=device, dtype=torch.bool)",
        "Lightning-AI/litgpt#1672 (open)",
        """import torch
from litgpt.config import Config
from litgpt.model import CausalSelfAttention, build_mask_cache

config = Config(n_layer=1, n_head=1, n_embd=2, head_size=2, padded_vocab_size=1, attention_logit_softcapping=50.0)
q, v = torch.zeros(1, 1, 2, 2), torch.tensor([[1.0, 0.0], [5.0, 0.0]])[None, None]
out = CausalSelfAttention(config, 0).scaled_dot_product_attention(q, q, v, build_mask_cache(2))
print([round(x, 4) for x in out[0, :, 0, 0].tolist()])""",
        lambda: attention([0, 0], [0, 0], [1, 5], causal=True),
    ),
    Shown(
        "litgpt",
        "caches",
        "With a sliding window, a prompt in chunks of the window gives other logits than at once",
        "defect",
        "The cache is as long as the window: a chunk overwrites what its first tokens should see, and its mask is a row of the causal one "
        "of all positions, cut to that length. A longer prompt is refused, with the advice to give it in such chunks.",
        _LITGPT,
        "mask = mask[..., :actual_kv_len]",
        "related: Lightning-AI/litgpt#2182 (closed)",
        """import torch
from litgpt.config import Config
from litgpt.model import GPT

torch.manual_seed(0)
window = {"sliding_window_size": 2, "sliding_window_indices": [1]}
model = GPT(Config(n_layer=1, n_head=1, n_embd=4, head_size=4, padded_vocab_size=8, block_size=4, **window)).eval()
tokens, positions = torch.tensor([[1, 2, 3, 4]]), torch.arange(4)
with torch.no_grad():
    whole = model(tokens)
    model.set_kv_cache(1)
    chunks = torch.cat([model(tokens[:, at], input_pos=positions[at]) for at in (slice(0, 2), slice(2, 4))], dim=1)
print(round(float((whole - chunks).abs().max()), 4))""",
        lambda: 0.0,
    ),
    Shown(
        "mlx-lm",
        "caches",
        "ConcatenateKVCache.trim takes nothing away",
        "defect",
        "The offset is made less, and the arrays stay: the next keys come behind those that were trimmed, and the offset is that of all.",
        "mlx_lm.models.cache",
        "self.keys = mx.concatenate([self.keys, keys], axis=-2)",
        "none found",
        """import mlx.core as mx
from mlx_lm.models.cache import ConcatenateKVCache


def step(cache, number):
    return cache.update_and_fetch(*2 * (mx.full((1, 1, 1, 1), number),))[0].flatten().tolist()


cache = ConcatenateKVCache()
step(cache, 1.0), step(cache, 2.0), cache.trim(1)
print(step(cache, 3.0))""",
        lambda: [1.0, 3.0],
    ),
    Shown(
        "mlx-lm",
        "rotary",
        "SuScaledRoPE has the long factors at every length",
        "defect",
        "short_factor is documented as the factors of shorter sequences, and is not read. What is expected is the rotation of position 1 "
        "by the short ones, which is what transformers' Phi-3 does.",
        "mlx_lm.models.rope_utils",
        "self._freqs = mx.array(long_factor, dtype=mx.float32) * freqs",
        "ml-explore/mlx-lm#660 (merged) was about it",
        """import mlx.core as mx
from mlx_lm.models.rope_utils import SuScaledRoPE

layer = SuScaledRoPE(2, short_factor=[1.0], long_factor=[4.0], max_position_embeddings=4096, original_max_position_embeddings=4096)
print([round(x, 4) for x in layer(mx.array([[[1.0, 0.0]]]), offset=1).flatten().tolist()])""",
        lambda: [np.cos(1), np.sin(1)],
    ),
    Shown(
        "ibm-fms",
        "positions and biases",
        "Alibi cannot be built",
        "defect",
        "Python's module math has no function sign. Behind it `self.scales` would be a tuple, for a comma, and has no device.",
        _FMS,
        "start, end + 1e-6 * math.sign(end - start), (end - start) / (nheads - 1)",
        "none found",
        """import torch
from fms.modules.positions import Alibi

x = torch.zeros(1, 2, 8, 1)
print(Alibi(8).adjusted_mask(None, x, x, None)[0, 0, 1].tolist())""",
        lambda: [-0.5, 0.0],
    ),
    Shown(
        "ibm-fms",
        "rotary",
        "With NTK scaling, a short sequence behind a long one raises",
        "defect",
        "There is a table for each power of two of the length; one is made only where it is longer than all others were.",
        _FMS,
        "if scaled_max_seq_len > self.max_seq_len_cached[dev_idx]:",
        "none found",
        """import torch
from fms.modules.positions import RotaryEmbedding

layer = RotaryEmbedding(4, max_seq_len=2, scaling={"rope_type": "ntk"})
for length in (4, 2):
    x = torch.tensor([1.0, 0.0, 0.0, 0.0]).expand(1, length, 1, 4)
    out = layer.adjusted_qk(x, x)[0]
print([round(v, 4) for v in out[0, 1, 0].tolist()])""",
        lambda: [np.cos(1), np.sin(1), 0.0, 0.0],
    ),
    Shown(
        "ibm-fms",
        "rotary",
        "A sequence that is longer than max_seq_len raises, behind a shorter one",
        "defect",
        "The documentation of max_seq_len says that the table will be computed anew where it is exceeded. A kind whose frequencies do not "
        "depend on the length has one table, that of the first call.",
        _FMS,
        "if alpha not in self.cached_freqs[dev_idx]:",
        "none found",
        """import torch
from fms.modules.positions import RotaryEmbedding

layer = RotaryEmbedding(2, max_seq_len=2)
for length in (2, 3):
    x = torch.tensor([1.0, 0.0]).expand(1, length, 1, 2)
    out = layer.adjusted_qk(x, x)[0]
print([round(v, 4) for v in out[0, 2, 0].tolist()])""",
        lambda: [np.cos(2), np.sin(2)],
    ),
    Shown(
        "openai-whisper",
        "positions and biases",
        "Sinusoids of width 2 are NaN",
        "defect",
        "The frequencies are spaced over channels // 2 − 1, which is 0 for one of them. That one is 1, whatever divides; a width that is "
        "odd is refused, and this one gives a warning of NumPy.",
        "whisper.model",
        "log_timescale_increment = np.log(max_timescale) / (channels // 2 - 1)",
        "none found",
        """from whisper.model import sinusoids

print([round(x, 4) for x in sinusoids(2, 2)[1].tolist()])""",
        lambda: [np.sin(1.0), np.cos(1.0)],
    ),
    Shown(
        "openai-whisper",
        "caches",
        "Several tokens behind a cache see the first keys alone",
        "defect",
        "The path over PyTorch's kernel asks for causality, which is aligned at the first key. The path that is written out cuts the mask "
        "to the queries' number and raises. Decoding gives one token at a time behind its prompt, and does not meet it.",
        "whisper.model",
        "q, k, v, is_causal=mask is not None and n_ctx > 1",
        "none found; it came with openai/whisper#2359",
        """import torch
from whisper.model import MultiHeadAttention

q, k = torch.zeros(1, 2, 1), torch.zeros(1, 3, 1)
v, mask = torch.tensor([1.0, 3.0, 8.0]).reshape(1, 3, 1), torch.full((3, 3), -torch.inf).triu_(1)
print([round(x, 4) for x in MultiHeadAttention(1, 1).qkv_attention(q, k, v, mask)[0][0, :, 0].tolist()])""",
        lambda: attention([0, 0], [0, 0, 0], [1, 3, 8], causal=True, offset=1),
    ),
    Shown(
        "openai-whisper",
        "attention",
        "A mask is causal, whatever is in it, unless attention is written out",
        "defect",
        "The path over PyTorch's kernel reads of a mask only that there is one; under `disable_sdpa` the same mask is added to the scores.",
        "whisper.model",
        "if SDPA_AVAILABLE and MultiHeadAttention.use_sdpa:",
        "none found; it came with openai/whisper#2359",
        """import torch
from whisper.model import MultiHeadAttention

x, v = torch.zeros(1, 2, 1), torch.tensor([1.0, 5.0]).reshape(1, 2, 1)
mask = torch.tensor([[-torch.inf, 0.0], [-torch.inf, 0.0]])
print(MultiHeadAttention(1, 1).qkv_attention(x, x, v, mask)[0][0, :, 0].tolist())""",
        lambda: attention([0, 0], [0, 0], [1, 5], mask=np.array([[False, True]])),
    ),
]
"""What was found, library by library."""
