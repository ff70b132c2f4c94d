"""The guide's adapters of packed attention, run against stand-ins with the signatures of the libraries."""

import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch.nn.attention import varlen

from properties import verify
from research.tests.test_guide import blocks
from systems.packed_sequences import flash_attn_varlen_func

GUIDE = (Path(__file__).parents[2] / "docs/guide/adapters.md").read_text("utf-8")
BLOCKS = [
    block.text for block in blocks(GUIDE.split("\n## Packed sequences of other libraries\n")[1].split("\n## ")[0])
]


def flash(*arrays, return_attn_probs, **options):
    assert return_attn_probs
    out, lse = flash_attn_varlen_func(*arrays, **options)
    return out, lse, None


def varlen_attn(*arrays, return_aux, scale, window_size, enable_gqa, seqused_k):
    """torch's function has no code for a CPU."""
    assert return_aux.lse
    assert enable_gqa
    sides = {"causal": False, "window_size": window_size}
    out, lse = flash_attn_varlen_func(*arrays, softmax_scale=scale, seqused_k=seqused_k, **sides)
    return out, lse.T.contiguous()


def defined(text):
    names = {}
    exec(compile(text, "the guide", "exec"), names)
    return names


@pytest.mark.parametrize(("block", "name"), [(0, "packed_flash"), (1, "packed_torch")])
def test_an_adapter_of_the_guide_calls_the_function_of_its_library(block, name, monkeypatch):
    library = ModuleType("flash_attn")
    library.flash_attn_varlen_func = flash
    monkeypatch.setitem(sys.modules, "flash_attn", library)
    monkeypatch.setattr(varlen, "varlen_attn", varlen_attn)
    adapter = defined(BLOCKS[block])[name]
    assert adapter.device == "cuda"
    here = replace(adapter, arithmetic="float32", device="cpu", supports={"sequences": lambda number: number > 0})
    report = verify(here, max_examples=6, seed=1)
    assert report.ok, report
    assert torch.get_default_device().type == "cpu"
