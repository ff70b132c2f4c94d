"""flash-linear-attention's parallel_attn (Triton), forward and backward, judged by proved error limits.

    pytest test_fla_parallel_attention.py

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
parallel_attn = pytest.importorskip("fla.ops.attn").parallel_attn


def heads_first(x):
    """The axis of heads before the sequence."""
    return x.transpose(1, 2)


@pytest.mark.parametrize(("heads", "kv_heads", "width"), [(4, 4, 64), (8, 2, 64), (2, 1, 100)])
@pytest.mark.parametrize("length", [2, 63, 130])
@pytest.mark.parametrize("scale", [None, 0.2], ids=str)
def test_attention_and_its_gradient_are_within_their_error_limits(heads, kv_heads, width, length, scale):
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, length, n, width, device=DEVICE).half() for n in (heads, kv_heads, kv_heads))
    gradient = torch.randn_like(q)
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]
    out = parallel_attn(*leaves, scale=scale)
    out.backward(gradient)
    inputs = {"q": heads_first(q), "k": heads_first(k), "v": heads_first(v), "causal": True, "scale": scale}
    verdict = attnspec.judge("attention", inputs, "float16-tensor-core-flash")(heads_first(out.detach()))
    assert verdict, verdict.sentence
    inputs |= {"grad_out": heads_first(gradient)}
    judge = attnspec.judge("attention_vjp", inputs, "float16-stored-gradients-tensor-core-flash")
    verdict = judge([heads_first(leaf.grad) for leaf in leaves])
    assert verdict, verdict.sentence


@pytest.mark.parametrize("lengths", [[5], [1, 64, 0, 66]], ids=str)
def test_packed_sequences_do_not_mix(lengths):
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, sum(lengths), n, 64, device=DEVICE).half() for n in (8, 2, 2))
    cu = torch.tensor([0, *lengths]).cumsum(0)
    out = parallel_attn(q, k, v, cu_seqlens=cu.to(DEVICE))
    inputs = {"q": q[0], "k": k[0], "v": v[0], "cu_q": cu.numpy(), "cu_k": cu.numpy(), "causal": True}
    verdict = attnspec.judge("packed_attention", inputs, "float16-tensor-core-flash")(out[0])
    assert verdict, verdict.sentence
