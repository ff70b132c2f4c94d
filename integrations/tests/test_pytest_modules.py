"""The pytest modules for other libraries pass right functions of their signatures, and fail wrong ones."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

HERE = Path(__file__).parent
MODULES = HERE.parent / "pytest_modules"

HEAD = f"""
import sys

import torch

sys.path.insert(0, {str(HERE)!r})
WRONG = bool(int(__import__("os").environ["WRONG"]))


def attention(q, k, v, offset, scale=None, left=None, cap=0.0, sink=None):
    q, k, v = q.float(), *(x.float().repeat_interleave(q.shape[-3] // k.shape[-3], -3) for x in (k, v))
    scores = q @ k.mT * (scale or q.shape[-1] ** -0.5)
    scores = cap * (scores / cap).tanh() if cap else scores
    distance = torch.arange(q.shape[-2])[:, None] + offset - torch.arange(k.shape[-2])
    hidden = distance < 0 if left is None else (distance < 0) | (distance > left)
    scores = scores.masked_fill(hidden, -torch.inf)
    if sink is not None:
        scores = torch.cat([scores, sink.float()[:, None, None].expand(*scores.shape[:-1], 1)], -1)
    return scores.softmax(-1)[..., : k.shape[-2]] @ v
"""
STAND_INS = {
    "test_vllm_unified_attention.py": (
        "vllm/v1/attention/ops/triton_unified_attention.py",
        """
def unified_attention(
    q, k, v, out, cu_seqlens_q, max_seqlen_q, seqused_k, max_seqlen_k, softmax_scale, causal, window_size,
    block_table, softcap, q_descale, k_descale, v_descale, alibi_slopes=None, sinks=None,
):
    left = None if window_size[0] < 0 else window_size[0] + WRONG
    for b, length in enumerate(seqused_k.tolist()):
        begin, end = cu_seqlens_q[b : b + 2].tolist()
        keys, values = (x[block_table[b].long()].flatten(0, 1)[:length].transpose(0, 1) for x in (k, v))
        rows = q[begin:end].transpose(0, 1)
        o = attention(rows, keys, values, length - end + begin, softmax_scale, left, softcap, sinks)
        out[begin:end] = o.transpose(0, 1).to(out.dtype)
""",
    ),
    "test_sglang_decode_attention.py": (
        "sglang/srt/layers/attention/triton_ops/decode_attention.py",
        """
def decode_attention_fwd(
    q, k_buffer, v_buffer, o, kv_indptr, kv_indices, attn_logits, attn_lse, num_kv_splits, max_kv_splits, sm_scale,
    k_scale, v_scale, logit_cap=0.0, sinks=None,
):
    for b in range(len(q)):
        slots = kv_indices[kv_indptr[b] : kv_indptr[b + 1]].long()
        keys, values = (x[slots].transpose(0, 1) for x in (k_buffer, v_buffer))
        group = q.shape[1] // keys.shape[0]
        if WRONG and group > 1:  # query head h reads key head h modulo their number
            keys, values = (x[torch.arange(q.shape[1]) % x.shape[0]] for x in (keys, values))
        o[b] = attention(q[b, :, None], keys, values, len(slots) - 1, sm_scale, None, logit_cap)[:, 0].to(o.dtype)
""",
    ),
    "test_liger_rope.py": (
        "liger_kernel/transformers/rope.py",
        """
def liger_rotary_pos_emb(q, k, cos, sin, position_ids=None, unsqueeze_dim=1):
    def rotated(x):
        first, second = x.chunk(2, -1)
        turned = torch.cat([second if WRONG else -second, first], -1)
        return (x.float() * cos.float() + turned.float() * sin.float()).to(x.dtype)

    return rotated(q), rotated(k)
""",
    ),
    "test_fla_parallel_attention.py": (
        "fla/ops/attn.py",
        """
def parallel_attn(q, k, v, g=None, scale=None, window_size=None, cu_seqlens=None):
    starts = [0, q.shape[1]] if cu_seqlens is None or WRONG else cu_seqlens.tolist()
    parts = []
    for a, b in zip(starts[:-1], starts[1:]):
        q_, k_, v_ = (x[:, a:b].transpose(1, 2) for x in (q, k, v))
        parts.append(attention(q_, k_, v_, 0, scale).to(q.dtype).transpose(1, 2))
    return torch.cat(parts, 1)
""",
    ),
}


def outcome(module, wrong, folder):
    """The number of tests that pass and that fail, and what is printed, with the stand-in of a library."""
    place, code = STAND_INS[module]
    file = folder / place
    file.parent.mkdir(parents=True, exist_ok=True)
    for parent in file.relative_to(folder).parents[:-1]:
        (folder / parent / "__init__.py").touch()
    file.write_text(HEAD + code)
    environment = {**os.environ, "WRONG": str(int(wrong))}
    environment["PYTHONPATH"] = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, str(MODULES / module)]
    ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    counts = {word: int(number) for number, word in re.findall(r"(\d+) (passed|failed|skipped)", ended.stdout)}
    return counts, ended.stdout


@pytest.mark.parametrize("module", STAND_INS)
def test_a_module_passes_a_right_function_and_fails_a_wrong_one(module, tmp_path):
    right, printed = outcome(module, False, tmp_path)
    assert right.keys() == {"passed"}, printed
    wrong, printed = outcome(module, True, tmp_path)
    assert wrong["failed"] > 0
    assert re.search(r"AssertionError: (out|dq)\[.*\]=.*, but should be .* elements are outside\.", printed)


@pytest.mark.parametrize("module", STAND_INS)
def test_a_module_is_skipped_without_its_library(module, tmp_path):
    if find_spec(STAND_INS[module][0].partition("/")[0]):
        pytest.skip("The library is installed: it was asked.")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, str(MODULES / module)]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "1 skipped" in ended.stdout, ended.stdout


def test_each_module_is_run():
    assert {path.name for path in MODULES.glob("test_*.py")} == STAND_INS.keys()


@pytest.mark.parametrize(
    ("library", "module", "chosen"),
    [
        ("liger_kernel", "test_liger_rope.py", "1-4-4 or 33-8-2"),
        ("fla", "test_fla_parallel_attention.py", "2-2-1 or 5 or None-63-8"),
    ],
)
def test_a_released_library_passes_its_module_in_the_interpreter(library, module, chosen, tmp_path):
    for needed in (library, "triton"):
        if not find_spec(needed):
            pytest.skip(f"{needed} is not installed: it was not asked.")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, "-k", chosen]
    ended = subprocess.run([*command, str(MODULES / module)], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert re.search(r"^\d+ passed, \d+ deselected", ended.stdout, re.MULTILINE), ended.stdout
