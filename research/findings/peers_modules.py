"""torchtune, diffusers, torch_geometric and positional-encodings: what is not as documented, or is kept for too long."""

from research.findings.shown import Shown

__all__ = ["FINDINGS"]

_TUNE = """import torch
from torchtune.modules import MultiHeadAttention

layers = {name: torch.nn.Linear(2, 2, bias=False) for name in ("q_proj", "k_proj", "v_proj", "output_proj")}
for name, layer in layers.items():
    (torch.nn.init.eye_ if name in ("v_proj", "output_proj") else torch.nn.init.zeros_)(layer.weight)
module, x = MultiHeadAttention(embed_dim=2, num_heads=1, num_kv_heads=1, head_dim=2, **layers), torch.eye(2)[None]
module.setup_cache(1, torch.float32, 2)
"""
_CAUSAL = "is_causal=self.kv_cache is None and mask is None and self.is_causal,"
_PROCESSORS = """import torch
from diffusers.models.attention_processor import Attention, AttnProcessor, AttnProcessor2_0

torch.manual_seed(0)
module, x, found = Attention(query_dim=4, heads=1, dim_head=4, {options}), torch.randn(1, 3, 4), []
for processor in (AttnProcessor(), AttnProcessor2_0()):
    module.set_processor(processor)
    found.append(module(x).detach())
print(round(float((found[0] - found[1]).abs().max()), 4))"""
_ENCODING = """import torch
from positional_encodings.torch_encodings import PositionalEncoding1D

"""

FINDINGS = [
    Shown(
        "torchtune",
        "caches",
        "MultiHeadAttention with a cache and without a mask is not causal",
        "defect",
        "Its documentation says that a causal mask is used by default; with a cache none is, and slots that are not filled are "
        "attended to as well. "
        "TransformerDecoder refuses such a call.",
        "torchtune.modules.attention",
        _CAUSAL,
        "none found",
        _TUNE + "print([[round(v, 4) for v in row] for row in module(x, x)[0].tolist()])",
        lambda: "[[1.0, 0.0], [0.5, 0.5]]",
    ),
    Shown(
        "torchtune",
        "caches",
        "disable_kv_cache takes causality away too",
        "defect",
        "Within it the cache is not used, but is there: so the flag stays false, and no mask is made. A whole TransformerDecoder, "
        "which is causal "
        "before setup_caches, then sees all tokens.",
        "torchtune.modules.attention",
        _CAUSAL,
        "none found",
        """import torch
from torchtune.models.llama2 import llama2
from torchtune.modules.common_utils import disable_kv_cache

torch.manual_seed(0)
model = llama2(vocab_size=8, num_layers=1, num_heads=2, num_kv_heads=2, embed_dim=8, max_seq_len=4).eval()
model.setup_caches(1, torch.float32)
with torch.no_grad(), disable_kv_cache(model):
    first, other = (model(torch.tensor([[1, 2, last]]))[:, :2] for last in (3, 4))
print(round(float((first - other).abs().max()), 4))""",
        lambda: 0.0,
    ),
    Shown(
        "diffusers",
        "multi-head attention",
        "AttnProcessor and SlicedAttnProcessor leave out qk_norm",
        "defect",
        "Attention(qk_norm=…) makes the norms of queries and keys; AttnProcessor2_0 applies them, the others do not, and nothing is said.",
        "diffusers.models.attention_processor",
        "class SlicedAttnProcessor:",
        "none found; related: huggingface/diffusers#9071",
        _PROCESSORS.format(options='qk_norm="layer_norm"'),
        lambda: 0.0,
    ),
    Shown(
        "diffusers",
        "multi-head attention",
        "AttnProcessor2_0 divides by √d although scale_qk is false",
        "convention",
        "The constructor chooses AttnProcessor then, but set_processor and set_attn_processor take what they are given. A comment "
        "says that it is to "
        "be done; PyTorch's kernel has had a scale since 2.1.",
        "diffusers.models.attention_processor",
        "class AttnProcessor2_0:",
        "none found",
        _PROCESSORS.format(options="scale_qk=False"),
        lambda: 0.0,
    ),
    Shown(
        "diffusers",
        "positions and biases",
        "A timestep embedding of width 2 or 3 is NaN",
        "defect",
        "One frequency is spaced over half_dim − downscale_freq_shift, which is 0 by default. It is 1, whatever divides.",
        "diffusers.models.embeddings",
        "exponent = exponent / (half_dim - downscale_freq_shift)",
        "none found",
        """import torch
from diffusers.models.embeddings import get_timestep_embedding

print([round(x, 4) for x in get_timestep_embedding(torch.tensor([1.0]), 2)[0].tolist()])""",
        lambda: "[0.8415, 0.5403]",
    ),
    Shown(
        "torch-geometric",
        "positions and biases",
        "PositionalEncoding is not the formula of its documentation",
        "convention",
        "That has sines and cosines in turn with 10000^(2i/d); what comes out has all sines first, and frequencies that are evenly "
        "spaced from 1 to "
        "1/10000, both included, as in tensor2tensor.",
        "torch_geometric.nn.encoding",
        "frequency = torch.logspace(0, 1, out_channels // 2, base_freq,",
        "none found",
        """import torch
from torch_geometric.nn import PositionalEncoding

print([round(x, 4) for x in PositionalEncoding(4)(torch.tensor([1.0]))[0].tolist()])""",
        lambda: "[0.8415, 0.5403, 0.01, 1.0]",
    ),
    Shown(
        "torch-geometric",
        "positions and biases",
        "TemporalEncoding is not the formula of its documentation",
        "convention",
        "Its exponents are (i − 1)/√d there, and (i − 1)·√d/(d − 1) in the code: evenly spaced from 0 to √d, both included.",
        "torch_geometric.nn.encoding",
        "weight = 1.0 / sqrt**torch.linspace(0, sqrt, out_channels,",
        "none found",
        """import torch
from torch_geometric.nn import TemporalEncoding

print([round(x, 4) for x in TemporalEncoding(4)(torch.tensor([1.0]))[0].tolist()])""",
        lambda: "[0.5403, 0.7602, 0.8776, 0.9381]",
    ),
    Shown(
        "positional-encodings",
        "positions and biases",
        "The table of an earlier call comes back in its type",
        "defect",
        "The last table is kept, and known again by its shape alone: after a call in float32 one in float64 gets float32, and after "
        "one on another "
        "device that device's.",
        "positional_encodings.torch_encodings",
        "class PositionalEncoding1D(nn.Module):",
        "none found; the cache came with tatp22/multidim-positional-encoding#19",
        _ENCODING
        + """encoding = PositionalEncoding1D(2)
encoding(torch.zeros(1, 1, 2))
print(encoding(torch.zeros(1, 1, 2, dtype=torch.float64)).dtype)""",
        lambda: "torch.float64",
    ),
    Shown(
        "positional-encodings",
        "positions and biases",
        "What a caller adds to the result in place is in all later results",
        "defect",
        "The table that is kept is returned itself, and not a copy.",
        "positional_encodings.torch_encodings",
        "self.cached_penc = emb[None, :, :orig_ch].repeat(batch_size, 1, 1)",
        "none found",
        _ENCODING
        + """encoding, x = PositionalEncoding1D(2), torch.zeros(1, 1, 2)
encoding(x).add_(1)
print(encoding(x)[0, 0].tolist())""",
        lambda: "[0.0, 1.0]",
    ),
    Shown(
        "positional-encodings",
        "positions and biases",
        "After a call in inference mode, training raises",
        "defect",
        "The table that is kept is an inference tensor, which autograd refuses to save, for as long as the shape is the same.",
        "positional_encodings.torch_encodings",
        "self.cached_penc = emb[None, :, :orig_ch].repeat(batch_size, 1, 1)",
        "none found",
        _ENCODING
        + """encoding, x = PositionalEncoding1D(2), torch.ones(1, 1, 2, requires_grad=True)
with torch.inference_mode():
    encoding(x)
(x * encoding(x)).sum().backward()
print(x.grad[0, 0].tolist())""",
        lambda: "[0.0, 1.0]",
    ),
    Shown(
        "positional-encodings",
        "positions and biases",
        "A module converted to bfloat16 counts positions in bfloat16: 257 is 256",
        "defect",
        "Positions take the type of the inverse frequencies, a buffer.",
        "positional_encodings.torch_encodings",
        "class PositionalEncoding1D(nn.Module):",
        "none found",
        _ENCODING
        + """table = PositionalEncoding1D(2).to(torch.bfloat16)(torch.zeros(1, 258, 2))
print([round(x, 2) for x in table[0, 257].tolist()])""",
        lambda: "[-0.57, 0.82]",
    ),
    Shown(
        "positional-encodings",
        "positions and biases",
        "The encoding of integers is cut to integers",
        "defect",
        "The table is of the type of what it is asked for: of 0.84 and 0.54 is left 0.",
        "positional_encodings.torch_encodings",
        "emb = torch.zeros((x, self.channels), device=tensor.device, dtype=tensor.dtype)",
        "none found",
        _ENCODING + "print([round(x, 4) for x in PositionalEncoding1D(2)(torch.zeros(1, 2, 2, dtype=torch.long))[0, 1].tolist()])",
        lambda: "[0.8415, 0.5403]",
    ),
    Shown(
        "positional-encodings",
        "positions and biases",
        "A tensor of another width gets the first columns of the width of the module",
        "convention",
        "Columns of a wider encoding have other frequencies. A wider tensor gets fewer columns than it has. Summer refuses the second.",
        "positional_encodings.torch_encodings",
        "self.cached_penc = emb[None, :, :orig_ch].repeat(batch_size, 1, 1)",
        "none found",
        _ENCODING + "print([round(x, 4) for x in PositionalEncoding1D(8)(torch.zeros(1, 2, 4))[0, 1].tolist()])",
        lambda: "[0.8415, 0.5403, 0.01, 0.9999]",
    ),
]
"""What was found, library by library."""
