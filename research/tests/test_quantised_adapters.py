"""The guide's adapter of FlashAttention-3 in FP8, run against a stand-in with the signature of the library."""

import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

from properties import verify
from research.tests.test_guide import blocks
from systems.quantised_attention import flash_attn_func

GUIDE = (Path(__file__).parents[2] / "docs/guide/adapters.md").read_text("utf-8")
BLOCK = blocks(GUIDE.split("\n## Quantised queries, keys and values\n")[1].split("\n## ")[0])[0].text


def flash(*arrays, return_attn_probs, **options):
    assert return_attn_probs
    return flash_attn_func(*arrays, **options)


def test_the_adapter_of_the_guide_calls_the_function_of_its_library(monkeypatch):
    library = ModuleType("flash_attn_interface")
    library.flash_attn_func = flash
    monkeypatch.setitem(sys.modules, "flash_attn_interface", library)
    names = {}
    exec(compile(BLOCK, "the guide", "exec"), names)
    adapter = names["flash_fp8"]
    assert adapter.device == "cuda"
    here = replace(adapter, device="cpu", supports={"head_dim": lambda d: d <= 64})
    report = verify(here, max_examples=6, seed=1)
    assert report.ok, report
