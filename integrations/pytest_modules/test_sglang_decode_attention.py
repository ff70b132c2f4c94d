"""SGLang's decode_attention_fwd (Triton, split keys, a list of slots), judged by proved error limits.

    pytest test_sglang_decode_attention.py

On a machine without a GPU, Triton's interpreter runs the kernel.
"""

import inspect
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from attnspec.properties.interpreters import interpret

import attnspec

if not torch.cuda.is_available() and find_spec("triton"):
    interpret()  # Triton's interpreter, with numbers as on a GPU; before Triton is imported
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
_module = pytest.importorskip("sglang.srt.layers.attention.triton_ops.decode_attention")
SLOTS, WIDTH, SPLITS = 512, 64, 8


@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 4), (8, 2), (16, 1)])
@pytest.mark.parametrize("lengths", [[1], [1, 33, 257], [128, 64]], ids=str)
@pytest.mark.parametrize("logit_cap", [0.0, 30.0], ids=["", "cap"])
def test_decode_attention_is_within_its_error_limit(heads, kv_heads, lengths, logit_cap):
    torch.manual_seed(0)
    batch, scale = len(lengths), WIDTH**-0.5
    q = torch.randn(batch, heads, WIDTH, dtype=torch.bfloat16, device=DEVICE)
    k, v = (torch.randn(SLOTS, kv_heads, WIDTH, dtype=torch.bfloat16, device=DEVICE) for _ in "kv")
    indptr, slots = torch.tensor([0, *lengths]).cumsum(0).int(), torch.randperm(SLOTS)[: sum(lengths)].int()
    out = torch.empty_like(q)
    logits = torch.empty(batch, heads, SPLITS, WIDTH, dtype=torch.float32, device=DEVICE)
    splits = torch.full((batch,), SPLITS, dtype=torch.int32, device=DEVICE)
    scales = {"k_scale": 1.0, "v_scale": 1.0}  # newer versions have them
    scales = {
        name: x for name, x in scales.items() if name in inspect.signature(_module.decode_attention_fwd).parameters
    }
    _module.decode_attention_fwd(
        q, k, v, out, indptr.to(DEVICE), slots.to(DEVICE), logits, logits[..., 0].clone(), splits, SPLITS, scale,
        *scales.values(), logit_cap=logit_cap,
    )  # fmt: skip
    table = np.full((batch, max(lengths)), -1)
    for row, begin, length in zip(table, indptr.tolist(), lengths, strict=False):
        row[:length] = slots[begin : begin + length]
    inputs = {"q": q[:, None], "k_pages": k[:, None], "v_pages": v[:, None], "block_table": table}
    inputs |= {"lengths": np.array(lengths), "scale": scale, "softcap": logit_cap or None}
    verdict = attnspec.judge("paged_attention", inputs, "bfloat16-tensor-core")(out[:, None])
    assert verdict, verdict.sentence
