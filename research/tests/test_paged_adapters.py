"""The guide's adapters of paged attention, run against stand-ins with the signatures of the libraries."""

import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from properties import verify
from research.tests.test_guide import blocks
from systems import paged_keys

GUIDE = (Path(__file__).parents[2] / "docs/guide/adapters.md").read_text("utf-8")
BLOCKS = [block.text for block in blocks(GUIDE.split("\n## Keys in pages of other libraries\n")[1].split("\n## ")[0])]
LIBRARIES = {
    "flash_attn": (paged_keys.flash_attn_with_kvcache,),
    "vllm.vllm_flash_attn": (paged_keys.flash_attn_varlen_func,),
    "flashinfer": (paged_keys.BatchPrefillWithPagedKVCacheWrapper,),
}


def defined(text):
    names = {}
    exec(compile(text, "the guide", "exec"), names)
    return names


@pytest.mark.parametrize(
    ("block", "name", "words"),
    [
        (0, "paged_flash", ()),
        (1, "paged_vllm", ("ragged queries",)),
        (2, "paged_flashinfer", ("ragged queries", "left windows")),
    ],
)
def test_an_adapter_of_the_guide_calls_the_function_of_its_library(block, name, words, monkeypatch):
    for library, functions in LIBRARIES.items():
        module = ModuleType(library)
        for function in functions:
            setattr(module, function.__name__, function)
        monkeypatch.setitem(sys.modules, library, module)
    monkeypatch.setitem(sys.modules, "vllm", ModuleType("vllm"))
    adapter = defined(BLOCKS[block])[name]
    assert adapter.device == "cuda"
    supports = (*words, {"sequences": lambda number: number > 0})
    here = replace(adapter, arithmetic="float32", device="cpu", supports=supports)
    report = verify(here, max_examples=6, seed=1)
    assert report.ok, report
