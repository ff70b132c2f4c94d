"""vLLM's unified_attention (Triton, paged keys, chunked prefill), judged by proved error limits.

    pytest test_vllm_unified_attention.py

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
unified_attention = pytest.importorskip("vllm.v1.attention.ops.triton_unified_attention").unified_attention

HEADS, KV_HEADS, WIDTH, PAGES = 8, 2, 64, 32
DECODE, MIXED = [(1, 1), (1, 33), (1, 128)], [(1, 65), (17, 17), (5, 129)]
"""(queries, keys) of each sequence: one query each, and decoding beside chunks of prompts."""


@pytest.mark.parametrize("sequences", [DECODE, MIXED], ids=["decode", "mixed"])
@pytest.mark.parametrize("window", [None, 1, 32], ids=lambda w: f"window {w}")
@pytest.mark.parametrize("softcap", [0.0, 20.0], ids=["", "softcap"])
@pytest.mark.parametrize("sinks", [False, True], ids=["", "sinks"])
@pytest.mark.parametrize("block_size", [16, 32])
def test_unified_attention_is_within_its_error_limit(sequences, window, softcap, sinks, block_size):
    torch.manual_seed(0)
    rows, lengths = zip(*sequences, strict=True)
    q = torch.randn(sum(rows), HEADS, WIDTH, dtype=torch.bfloat16, device=DEVICE)
    k, v = (torch.randn(PAGES, block_size, KV_HEADS, WIDTH, dtype=torch.bfloat16, device=DEVICE) for _ in "kv")
    table = torch.stack([torch.randperm(PAGES)[: -(-max(lengths) // block_size)] for _ in rows]).int()
    cu, seqused = torch.tensor([0, *rows]).cumsum(0).int(), torch.tensor(lengths).int()
    sink = torch.randn(HEADS, dtype=torch.bfloat16, device=DEVICE) if sinks else None
    out, scale = torch.empty_like(q), WIDTH**-0.5
    unified_attention(
        q=q, k=k, v=v, out=out, cu_seqlens_q=cu.to(DEVICE), max_seqlen_q=max(rows), seqused_k=seqused.to(DEVICE),
        max_seqlen_k=max(lengths), softmax_scale=scale, causal=True,
        window_size=(-1, -1) if window is None else (window - 1, 0), block_table=table.to(DEVICE), softcap=softcap,
        q_descale=None, k_descale=None, v_descale=None, sinks=sink,
    )  # fmt: skip
    inputs = {"q": q, "k_pages": k, "v_pages": v, "block_table": table.numpy(), "lengths": seqused.numpy()}
    inputs |= {"cu_q": cu.numpy(), "scale": scale, "softcap": softcap or None, "sink": sink}
    inputs |= {} if window is None else {"window": (window - 1, 0)}
    verdict = attnspec.judge("paged_attention", inputs, "bfloat16-tensor-core-flash")(out)
    assert verdict, verdict.sentence
