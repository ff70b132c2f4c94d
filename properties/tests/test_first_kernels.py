"""Kernels as new users bring them, without a declaration: the adapter that `attnspec inspect` writes
passes unchanged, and `attnspec verify` tells them what they do not take.
"""

import json
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


_NUMPY = """
import numpy as np


def scaled_dot_product_attention(q, k, v, mask=None):
    if mask is not None and mask.ndim != q.ndim:
        raise ValueError(f"The mask has {mask.ndim} axes, but should have {q.ndim}.")
    scores = q @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    top = scores.max(-1, keepdims=True)
    weights = np.exp(scores - np.where(np.isfinite(top), top, 0))
    total = weights.sum(-1, keepdims=True)
    return weights @ v / np.where(total == 0, 1, total)
"""
"""It raises for width 0, without keys, and for masks with fewer axes."""


def attnspec(folder: Path, *arguments: str, status: int = 0) -> str:
    """What a command prints; it must end with an exit status."""
    line = [sys.executable, "-m", "attnspec", *arguments]
    done = subprocess.run(line, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == status, done.stdout + done.stderr
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
    assert " 0 fail" in attnspec(tmp_path, "verify", "adapter.py", "--quick")


# -- Undeclared ------------------------------------------------------------------------------------

_CHECKED_C = _C.replace("sqrtf(d)", "sqrtf(d ? d : 1)").replace("sum = 0;", "sum = visible ? 0 : 1;")
_CHECKED_CTYPES = _CTYPES.replace(
    "    out = np.empty(", "    q, k, v = map(np.ascontiguousarray, (q, k, v))\n    out = np.empty("
)
"""The C kernel, right for width 0, without keys, and for views. It checks nothing else."""

_LINES_OF_A_SCREEN = 45


def _written(folder: Path, text: str, c: str = "") -> None:
    """Write the kernels, and compile the C library that they need."""
    (folder / "kernels.py").write_text(text)
    if c:
        if shutil.which("cc") is None:
            pytest.skip("There is no C compiler.")
        (folder / "attention.c").write_text(c)
        line = ["cc", "-O2", "-shared", "-fPIC", "-o", "libattention.so", "attention.c", "-lm"]
        subprocess.run(line, cwd=folder, check=True)


@pytest.mark.parametrize(
    ("text", "c", "told"),
    [
        pytest.param(
            _TORCH,
            "",
            ["with NumPy arrays (AttributeError", "log-sum-exp", "attention_vjp: causal, window"],
            marks=pytest.mark.thorough,
            id="torch",
        ),
        pytest.param(
            _HALF,
            "",
            ["NumPy arrays", "head_dim other than 64", "no multiple of 128", "float64 arrays (AssertionError"],
            marks=pytest.mark.thorough,
            id="float16",
        ),
        pytest.param(
            _CHECKED_CTYPES, _CHECKED_C, ["float64 arrays (out has dtype float32"], marks=pytest.mark.thorough, id="C"
        ),
        pytest.param(
            _NUMPY,
            "",
            ["edges: head_dim = 0 (ZeroDivisionError", "n_k = 0 (ValueError", "a mask with fewer axes (ValueError"],
            id="NumPy",
        ),
    ],
)
def test_a_right_kernel_is_not_red_and_is_told_what_it_does_not_take(
    text: str, c: str, told: list[str], tmp_path: Path
) -> None:
    _written(tmp_path, text, c)
    printed = attnspec(tmp_path, "verify", "kernels.py")
    lines = " ".join(printed.split())
    assert " 0 fail" in lines
    assert [what for what in told if what not in lines] == []
    assert len(printed.splitlines()) <= _LINES_OF_A_SCREEN
    attnspec(tmp_path, "verify", "kernels.py", "--strict", "--quick", status=1)


@pytest.mark.parametrize(
    ("text", "c", "right", "wrong"),
    [
        pytest.param(_TORCH, "", " * q.shape[-1] ** -0.5", "", marks=pytest.mark.thorough, id="torch"),
        pytest.param(
            _HALF,
            "",
            "is_causal=True",
            "is_causal=True, scale=1.0",
            marks=pytest.mark.thorough,
            id="float16",
        ),
        pytest.param(
            _CHECKED_CTYPES, _CHECKED_C, "scores[j] /= sqrtf(d ? d : 1);", "", marks=pytest.mark.thorough, id="C"
        ),
        pytest.param(_NUMPY, "", " * q.shape[-1] ** -0.5", "", id="NumPy"),
    ],
)
def test_a_mistake_beside_restrictions_is_the_only_cause(
    text: str, c: str, right: str, wrong: str, tmp_path: Path
) -> None:
    _written(tmp_path, text.replace(right, wrong), c.replace(right, wrong))
    printed = attnspec(tmp_path, "verify", "kernels.py", "--quick", "--json", "report.json", status=1)
    causes = json.loads((tmp_path / "report.json").read_text())["causes"]
    assert len(causes) == 1, printed
    assert causes[0]["diagnosis"][0]["id"] in ("scale_default=one", "sdpa-scale-missing")
