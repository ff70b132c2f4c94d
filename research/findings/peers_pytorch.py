"""PyTorch once more: a hint that loses a key, a bias that is not asked how large it is, gradients of equal logits, the compiler."""

from research.findings.shown import Shown

__all__ = ["FINDINGS"]

FINDINGS = [
    *(
        Shown(
            "torch",
            "multi-head attention",
            f"nn.MultiheadAttention with {option} and is_causal loses the key that it adds",
            "defect",
            "The hint takes the place of the mask where no weights are asked for. The mask gets a column for the added key, at the "
            "end; the hint is "
            "aligned top left, and that column is in the future of every query.",
            "torch.nn.functional",
            "if is_causal and key_padding_mask is None and not need_weights:",
            "none found; related: pytorch/pytorch#99282, #178588 (closed)",
            f"""import torch

torch.manual_seed(0)
module, x = torch.nn.MultiheadAttention(2, 1, {option}=True, batch_first=True), torch.randn(1, 2, 2)
mask = torch.ones(2, 2, dtype=torch.bool).triu(1)
found = [module(x, x, x, attn_mask=mask, is_causal=True, need_weights=need)[0] for need in (True, False)]
print(round(float((found[0] - found[1]).abs().max()), 4))""",
            lambda: 0.0,
        )
        for option in ("add_bias_kv", "add_zero_attn")
    ),
    Shown(
        "torch",
        "attention",
        "causal_lower_right(n, n) is aligned top left on keys of another number",
        "defect",
        "Where its own two sizes are equal the bias becomes is_causal=True, and those of the queries and keys are not looked at. "
        "With sizes that "
        "differ from each other the same mistake raises.",
        "torch.nn.attention.bias",
        "attn_mask.seq_len_q == attn_mask.seq_len_kv",
        "none found",
        """import torch
from torch.nn.attention.bias import causal_lower_right
from torch.nn.functional import scaled_dot_product_attention

q, k, v = torch.zeros(1, 1, 1, 8), torch.zeros(1, 1, 3, 8), torch.eye(3, 8)[None, None]
print([round(x, 4) for x in scaled_dot_product_attention(q, k, v, attn_mask=causal_lower_right(3, 3))[0, 0, 0, :3].tolist()])""",
        lambda: "[0.3333, 0.3333, 0.3333]",
    ),
    Shown(
        "torch",
        "attention",
        "Gradients of the CPU's flash kernel grow by the number of keys where large logits are equal",
        "arithmetic",
        "Backward forms exp(s − lse) from a log-sum-exp in float32: from 2²⁴ on, log n is lost in it, and weights of 1/n are 1. The "
        "output is right, "
        "and so are the math backend's gradients. At 10⁶ a weight is already off by a hundredth.",
        "torch.nn.functional",
        "def scaled_dot_product_attention",
        "pytorch/pytorch#125674, of another kernel: a property of the method",
        """import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

q, k = torch.full((1, 1, 1, 1), 1e8), torch.ones(1, 1, 4, 1)
v = torch.zeros(1, 1, 4, 1, requires_grad=True)
with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
    (dv,) = torch.autograd.grad(scaled_dot_product_attention(q, k, v).sum(), v)
print(dv.flatten().tolist())""",
        lambda: "[0.25, 0.25, 0.25, 0.25]",
    ),
    Shown(
        "torch",
        "attention",
        "A row of −∞ is NaN in attention written by hand, and 0 when that is compiled",
        "convention",
        "The compiler recognises softmax(q·kᵀ/√d + mask)·v and calls scaled_dot_product_attention, where such a row is 0. The same "
        "with masked_fill "
        "is not recognised, and stays NaN.",
        "torch._inductor.fx_passes.fuse_attention",
        "def _sfdp_pattern_5(",
        "none found; the other way round: pytorch/pytorch#100318 (closed)",
        """import torch


def attend(q, k, v, mask):
    return torch.softmax(q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5 + mask, -1) @ v


q = torch.ones(2, 4, 16, 8)
mask = torch.zeros(2, 1, 16, 16)
mask[:, :, 0] = -torch.inf
print([f(q, q, q, mask)[0, 0, 0, 0].item() for f in (attend, torch.compile(attend))])""",
        lambda: "[nan, nan]",
    ),
    Shown(
        "torch",
        "attention",
        "Attention with a mask, written by hand, cannot be compiled for sizes that are symbols",
        "defect",
        "The compiler recognises it, and hands √d to the kernel as a tensor, where the kernel takes a number: BackendCompilerFailed. "
        "With a batch of 2 it is not recognised, and compiles.",
        "torch._inductor.fx_passes.fuse_attention",
        "def _sfdp_replacement_5(",
        "pytorch/pytorch#191203 (closed after 2.13.0), #194444",
        """import torch


def attend(q, k, v, mask):
    return torch.softmax(q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5 + mask, -1) @ v


q, mask = torch.ones(1, 2, 7, 4), torch.zeros(1, 1, 7, 7)
try:
    print(torch.compile(attend, dynamic=True)(q, q, q, mask)[0, 0, 0, 0].item())
except Exception as error:
    print(type(error).__name__)""",
        lambda: "1.0",
    ),
    Shown(
        "torch",
        "whole models",
        "nn.TransformerEncoder gives padded tokens 0 without gradients, and other numbers with them",
        "convention",
        "In evaluation a padded batch becomes a nested tensor, whose padding is filled by 0 at the end. With gradients, or with "
        "enable_nested_tensor=False, padded queries are computed like others.",
        "torch.nn.modules.transformer",
        "output = output.to_padded_tensor(0.0, src.size())",
        "none found",
        """import torch

torch.manual_seed(0)
layer = torch.nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
encoder, x, pad = torch.nn.TransformerEncoder(layer, 1).eval(), torch.randn(1, 2, 4), torch.tensor([[False, True]])
with torch.no_grad():
    plain = encoder(x, src_key_padding_mask=pad)
print(bool((plain == 0).all(-1)[0, 1]) == bool((encoder(x, src_key_padding_mask=pad) == 0).all(-1)[0, 1]))""",
        lambda: "True",
    ),
]
"""What was found."""
