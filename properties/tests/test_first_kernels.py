"""Kernels as new users bring them, without a declaration: the adapter that `attnspec inspect` writes
passes unchanged.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

_TORCH = """
import torch


def attention(q, k, v, causal=False, window=None):
    groups = q.shape[-3] // k.shape[-3]
    k, v = (x.repeat_interleave(groups, -3) for x in (k, v))
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    query, key = torch.arange(q.shape[-2])[:, None], torch.arange(k.shape[-2])
    visible = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool)
    if causal:
        visible &= key <= query
    if window is not None and window[0] is not None:
        visible &= key >= query - window[0]
    if window is not None and window[1] is not None:
        visible &= key <= query + window[1]
    return torch.softmax(scores.masked_fill(~visible, float("-inf")), -1).nan_to_num(0) @ v


def attention_vjp(q, k, v, grad_out, causal=False, window=None):
    inputs = [x.detach().requires_grad_() for x in (q, k, v)]
    return torch.autograd.grad(attention(*inputs, causal=causal, window=window), inputs, grad_out)
"""

_HALF = """
import torch
from torch.nn.functional import scaled_dot_product_attention


def causal_attention(q, k, v):
    assert q.dtype == torch.float16 and q.dim() == 4 and q.shape[-1] == 64
    assert q.shape[-2] % 128 == 0 and k.shape[-2] % 128 == 0
    return scaled_dot_product_attention(q, k, v, is_causal=True)
"""

_C = """
#include <math.h>
void attention(const float *q, const float *k, const float *v, float *out, long n_q, long n_k, long d, long d_v) {
    for (long i = 0; i < n_q; i++) {
        long visible = i + 1 < n_k ? i + 1 : n_k;
        float scores[visible], largest = -INFINITY, sum = 0;
        for (long j = 0; j < visible; j++) {
            scores[j] = 0;
            for (long c = 0; c < d; c++) scores[j] += q[i * d + c] * k[j * d + c];
            scores[j] /= sqrtf(d);
            if (scores[j] > largest) largest = scores[j];
        }
        for (long j = 0; j < visible; j++) sum += scores[j] = expf(scores[j] - largest);
        for (long c = 0; c < d_v; c++) {
            float total = 0;
            for (long j = 0; j < visible; j++) total += scores[j] * v[j * d_v + c];
            out[i * d_v + c] = total / sum;
        }
    }
}
"""

_CTYPES = """
import ctypes
from pathlib import Path

import numpy as np

library = ctypes.CDLL(str(Path(__file__).with_name("libattention.so")))


def causal_attention(q, k, v):
    out = np.empty((*q.shape[:-1], v.shape[-1]), np.float32)
    sizes = [ctypes.c_long(size) for size in (*q.shape[-2:-1], *k.shape[-2:], v.shape[-1])]
    for index in np.ndindex(q.shape[:-2]):
        arrays = [ctypes.c_void_p(x[index].ctypes.data) for x in (q, k, v, out)]
        library.attention(*arrays, *sizes)
    return out
"""


def attnspec(folder: Path, *arguments: str) -> str:
    """What a command prints; it must succeed."""
    line = [sys.executable, "-m", "attnspec", *arguments]
    done = subprocess.run(line, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(_TORCH, marks=pytest.mark.thorough, id="torch with autograd, grouped heads and a window"),
        pytest.param(_HALF, marks=pytest.mark.thorough, id="float16, one width, multiples of a block"),
    ],
)
def test_a_torch_kernel_passes_with_the_written_adapter(text: str, tmp_path: Path) -> None:
    (tmp_path / "kernels.py").write_text(text)
    attnspec(tmp_path, "inspect", "kernels.py", "--write", "adapter.py")
    assert " 0 fail" in attnspec(tmp_path, "verify", "adapter.py")


@pytest.mark.skipif(shutil.which("cc") is None, reason="There is no C compiler.")
def test_a_c_library_without_checks_passes_with_the_written_adapter(tmp_path: Path) -> None:
    (tmp_path / "attention.c").write_text(_C)
    line = ["cc", "-O2", "-shared", "-fPIC", "-o", "libattention.so", "attention.c", "-lm"]
    subprocess.run(line, cwd=tmp_path, check=True)
    (tmp_path / "kernels.py").write_text(_CTYPES)
    attnspec(tmp_path, "inspect", "kernels.py", "--write", "adapter.py")
    assert " 0 fail" in attnspec(tmp_path, "verify", "adapter.py")
