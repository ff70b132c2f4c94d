"""Recipes for released kernels find what their pages say, where the package is on the import path."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import systems.kernels
from properties.contract.implementation import Implementation

NO_FINDING = " 0 fail"

FINDINGS = {
    "fla_attention": "✗ fla parallel_attn, sinks in bfloat16",
    "fla_rotary": NO_FINDING,
    "flag_gems_rotary": NO_FINDING,
    "jax_gpu_attention": NO_FINDING,
    "liger_rope": "rows are wrong",
    "liger_softmax": NO_FINDING,
    "lightllm_attention": NO_FINDING,
    "lightllm_rotary": NO_FINDING,
    "sglang_decode_attention": "✗ SGLang decode_attention, one query head for each key head",
    "sglang_extend_attention": "reads masked key",
    "sglang_merge_state": "likely cause: merge-of-two-empty-parts",
    "sglang_prefill_attention": NO_FINDING,
    "unsloth_rope": NO_FINDING,
    "vllm_decode_attention": "✗ vLLM decode_attention, one query head for each key head",
    "vllm_merge_attn_states": "✗ vLLM merge_attn_states, one head, transposed",
    "vllm_prefill_attention": "✗ vLLM prefill_attention, sinks in bfloat16",
    "vllm_prefix_prefill": NO_FINDING,
    "vllm_rotary": NO_FINDING,
    "vllm_unified_attention": "miss key",
}
"""A text that the verdict of each recipe has."""

SHARED = {"__init__", "paging", "released", "rotating", "vendors"}
"""The modules that are no recipes."""


@pytest.mark.parametrize("name", FINDINGS)
def test_a_recipe_finds_what_its_page_says(name):
    module = import_module(f"systems.kernels.{name}")
    assert all(isinstance(each, Implementation) for each in module.IMPLEMENTATIONS)
    unavailable = module.IMPLEMENTATIONS[0].unavailable
    if unavailable:
        assert unavailable.endswith("is not installed.") or "the recipe is for" in unavailable
        pytest.skip(unavailable)
    file = Path(systems.kernels.__path__[0]) / f"{name}.py"
    command = [sys.executable, "-m", "attnspec", "verify", file, "--interpret", "--quick", "--time-limit", "5m"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == int(FINDINGS[name] != NO_FINDING)
    assert FINDINGS[name] in " ".join(ended.stdout.split())


def test_every_recipe_is_in_the_table():
    files = {path.stem for path in Path(systems.kernels.__path__[0]).glob("*.py")}
    assert files == {*FINDINGS, *SHARED}
