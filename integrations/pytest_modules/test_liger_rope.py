"""Liger-Kernel's liger_rotary_pos_emb (Triton), forward and backward, judged by proved error limits.

    pytest test_liger_rope.py

On a machine without a GPU, Triton's interpreter runs the kernel.
"""

from importlib.util import find_spec

import pytest
import torch
from attnspec.properties.interpreters import interpret

import attnspec

if not torch.cuda.is_available() and find_spec("triton"):
    interpret()  # Triton's interpreter, with numbers as on a GPU; before Triton is imported
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
liger_rotary_pos_emb = pytest.importorskip("liger_kernel.transformers.rope").liger_rotary_pos_emb
HALF = attnspec.Conventions(rope_pairing="half")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("heads", "kv_heads", "width"), [(4, 4, 64), (8, 2, 128), (3, 1, 32)])
@pytest.mark.parametrize("length", [1, 33, 128])
def test_rotary_and_its_gradient_are_within_their_error_limits(dtype, heads, kv_heads, width, length):
    torch.manual_seed(0)
    q, k = (torch.randn(2, n, length, width, device=DEVICE).to(dtype) for n in (heads, kv_heads))
    angles = torch.arange(length)[:, None] * 10000.0 ** (-torch.arange(width // 2) / (width // 2))
    cos, sin = (torch.cat([x, x], -1)[None].to(DEVICE, dtype) for x in (angles.cos(), angles.sin()))
    given = [x.clone().transpose(1, 2).contiguous().transpose(1, 2).requires_grad_() for x in (q, k)]
    gradients = [torch.randn_like(x) for x in (q, k)]
    outs = liger_rotary_pos_emb(*(x * 1 for x in given), cos, sin)
    torch.autograd.backward(outs, [g.clone() for g in gradients])
    arithmetic = str(dtype).removeprefix("torch.") + ("" if dtype == torch.float32 else "-elementwise")
    for x, out, leaf, gradient in zip((q, k), outs, given, gradients, strict=True):
        tables = {"x": x, "cos": cos[0], "sin": sin[0]}
        verdict = attnspec.judge("apply_rotary", tables, arithmetic, HALF)(out.detach())
        assert verdict, verdict.sentence
        verdict = attnspec.judge("apply_rotary_vjp", {**tables, "grad_out": gradient}, arithmetic, HALF)(leaf.grad)
        assert verdict, verdict.sentence
