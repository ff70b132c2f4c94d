"""MONAI, kornia, ESM, and two libraries with flash attention by hand: paths of one module that read a mask otherwise, or not at all."""

import numpy as np

from research.findings.peers_jax import attention
from research.findings.shown import Shown

__all__ = ["FINDINGS"]

_SA = "monai.networks.blocks.selfattention"
_FLASH = "memory_efficient_attention_pytorch.flash_attention"

FINDINGS = [
    Shown(
        "monai",
        "multi-head attention",
        "SABlock with use_flash_attention drops out in evaluation too",
        "defect",
        "The rate is handed to PyTorch's function, which knows nothing of `eval`. Two calls of one block on one input differ.",
        _SA,
        "dropout_p=self.dropout_rate,",
        "none found; the same in huggingface/pytorch-image-models#1978 (mended)",
        """import torch
from monai.networks.blocks import SABlock

torch.manual_seed(0)
block, x = SABlock(4, 1, dropout_rate=0.5, use_flash_attention=True).eval(), torch.randn(1, 3, 4)
print(round(float((block(x) - block(x)).abs().max()), 4))""",
        lambda: 0.0,
    ),
    Shown(
        "monai",
        "multi-head attention",
        "SABlock with use_flash_attention reads a mask of keys as one of queries and keys",
        "defect",
        "A mask is documented as of (batch, positions). It is handed on as it is, and PyTorch broadcasts it from the right: with as many "
        "sequences as positions each query has the mask of another sequence; with other numbers, but for one sequence, the call raises.",
        _SA,
        "                attn_mask=attn_mask,",
        "none found",
        """import torch
from monai.networks.blocks import SABlock

block = SABlock(1, 1, use_flash_attention=True)
x, mask = torch.tensor([1.0, 5.0]).reshape(1, 2, 1).repeat(2, 1, 1), torch.tensor([[True, True], [True, False]])
with torch.no_grad():
    block.qkv.weight.copy_(torch.tensor([[0.0], [0.0], [1.0]]))
    block.out_proj.weight.fill_(1.0)
    block.out_proj.bias.fill_(0.0)
    print(block(x, mask)[..., 0].tolist())""",
        lambda: [attention([0, 0], [0, 0], [1, 5], mask=np.array([[True, last]])) for last in (True, False)],
    ),
    Shown(
        "kornia",
        "attention",
        "LoFTR's FullAttention leaves out a mask of keys that comes without one of queries",
        "defect",
        "Both are optional, and neither is applied unless both are there. `LinearAttention`, which takes the same, applies each by itself.",
        "kornia.feature.loftr.loftr_module.linear_attention",
        "if kv_mask is not None and q_mask is not None:",
        "none found; related: kornia/kornia#2688 (closed)",
        """import torch
from kornia.feature.loftr.loftr_module.linear_attention import FullAttention

x, v = torch.zeros(1, 2, 1, 1), torch.tensor([1.0, 5.0]).reshape(1, 2, 1, 1)
print(FullAttention()(x, x, v, kv_mask=torch.tensor([[True, False]])).ravel().tolist())""",
        lambda: attention([0, 0], [0, 0], [1, 5], mask=np.array([[True, False]])),
    ),
    Shown(
        "fair-esm",
        "multi-head attention",
        "MultiheadAttention adds a mask of booleans to the scores where the weights of each head are asked for, or with rotary embeddings",
        "defect",
        "PyTorch's function, to which the other calls go, masks where it is true. Here such a key gets a score that is 1 more.",
        "esm.multihead_attention",
        "attn_weights += attn_mask",
        "none found",
        """import torch
from esm.multihead_attention import MultiheadAttention

layer, x = MultiheadAttention(1, 1).eval(), torch.zeros(2, 1, 1)
mask = torch.tensor([[False, True], [False, False]])
print([[round(v, 4) for v in layer(x, x, x, attn_mask=mask, need_head_weights=each)[1].ravel().tolist()] for each in (False, True)])""",
        lambda: [[1.0, 0.0, 0.5, 0.5]] * 2,
    ),
    Shown(
        "fair-esm",
        "rotary",
        "A rotation converted to bfloat16 counts positions in bfloat16: 257 is 256",
        "defect",
        "Positions get the type of the frequencies, which are a buffer of the module.",
        "esm.rotary_embedding",
        "t = torch.arange(x.shape[seq_dimension], device=x.device).type_as(self.inv_freq)",
        "none found",
        """import torch
from esm.rotary_embedding import RotaryEmbedding

x = torch.tensor([1.0, 0.0]).expand(1, 258, 2)
layer = RotaryEmbedding(2).to(torch.bfloat16)
print([round(v, 2) for v in layer(x, x)[0][0, 257].tolist()])""",
        lambda: np.round([np.cos(257), np.sin(257)], 2),
    ),
    Shown(
        "memory-efficient-attention-pytorch",
        "attention",
        "Where there are more keys than queries, causality is aligned at the last key, and in chunks at the first",
        "defect",
        "`memory_efficient_attention` is offered as the same as `attention`, with less memory. One query on three keys sees all of them, "
        "or the first alone.",
        "memory_efficient_attention_pytorch.memory_efficient_attention",
        "q_start_index = q_index * q_bucket_size",
        "none found",
        """import torch
from memory_efficient_attention_pytorch.memory_efficient_attention import attention, memory_efficient_attention

q, k, v = torch.zeros(1, 1, 1, 1), torch.zeros(1, 1, 3, 1), torch.tensor([1.0, 2.0, 6.0]).reshape(1, 1, 3, 1)
outs = attention(q, k, v, causal=True), memory_efficient_attention(q, k, v, causal=True)
print([round(out.item(), 4) for out in outs])""",
        lambda: [3.0, 3.0],
    ),
    Shown(
        "memory-efficient-attention-pytorch",
        "attention",
        "Flash attention, causal with more keys than queries: the first queries see all keys, and the last ones too few",
        "defect",
        "The difference of the lengths is subtracted from a query's position, and should be added. Of two queries on three keys the first "
        "one is masked throughout, by a finite number, and becomes the mean of all values; the second sees key 0.",
        _FLASH,
        "row_maxes) in enumerate(row_splits):\n            q_start_index = ind * q_bucket_size - qk_len_diff",
        "none found",
        """import torch
from memory_efficient_attention_pytorch.flash_attention import FlashAttentionFunction

q, k, v = torch.zeros(1, 1, 2, 1), torch.zeros(1, 1, 3, 1), torch.tensor([1.0, 3.0, 8.0]).reshape(1, 1, 3, 1)
print([round(x, 4) for x in FlashAttentionFunction.apply(q, k, v, None, True, 2, 4)[0, 0, :, 0].tolist()])""",
        lambda: attention([0, 0], [0, 0, 0], [1, 3, 8], causal=True, offset=1),
    ),
    Shown(
        "memory-efficient-attention-pytorch",
        "attention",
        "Flash attention: a query that a mask and causality together leave no key reads the future",
        "defect",
        "Masked scores are one finite number. Weights behind the mask are set to 0, those behind causality are not: a row of nothing else "
        "gives them 1. A row that the mask alone leaves no key is 0.",
        _FLASH,
        "exp_weights.masked_fill_(~col_mask, 0.)",
        "none found",
        """import torch
from memory_efficient_attention_pytorch.flash_attention import FlashAttentionFunction

x, v = torch.zeros(1, 1, 2, 1), torch.tensor([1.0, 5.0]).reshape(1, 1, 2, 1)
print(FlashAttentionFunction.apply(x, x, v, torch.tensor([[False, True]]), True, 2, 2)[0, 0, :, 0].tolist())""",
        lambda: attention([0, 0], [0, 0], [1, 5], mask=np.array([[False, True]]), causal=True),
    ),
    Shown(
        "ring-attention-pytorch",
        "attention",
        "Where attention is causal, a mask of keys is left out",
        "convention",
        "A comment of the source says so, as padding on the right is behind every token that counts. With padding on the left, tokens "
        "attend to it.",
        "ring_attention_pytorch.ring_attention",
        "    elif exists(mask):",
        "none found",
        """import torch
from ring_attention_pytorch import default_attention

x, v = torch.zeros(1, 2, 1, 1), torch.tensor([1.0, 5.0]).reshape(1, 2, 1, 1)
print(default_attention(x, x, v, mask=torch.tensor([[False, True]]), causal=True)[0, 1].ravel().tolist())""",
        lambda: attention([0, 0], [0, 0], [1, 5], mask=np.array([[False, True]]), causal=True)[1:],
    ),
]
"""What was found, library by library."""
