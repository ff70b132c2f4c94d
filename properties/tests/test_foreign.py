"""The guide's adapters for other libraries' attention, run against stand-ins that have their
signatures, layouts and conventions.

Where a library is installed and runs here, it is itself what is called.
"""

import ast
import importlib.util
import re
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch

from oracles import Conventions
from properties.bugs.reference import REFERENCE
from properties.contract.implementation import Implementation
from properties.contract.operations import FEATURES
from properties.verifier.examination import Supervision
from properties.verifier.plan import plan
from properties.verifier.verify import examine

GUIDE = (Path(__file__).parents[2] / "docs/guide/adapters.md").read_text("utf-8")
SECTION = GUIDE.partition("## Attention of other libraries")[2].partition("\n## ")[0]
BLOCKS = dict(re.findall(r"^% needs: (\w+)\n```python\n(.*?)^```$", SECTION, re.MULTILINE | re.DOTALL))
ADAPTERS = {
    "flash_attn": "flash_attention",
    "flashinfer": "flash_infer",
    "jax": "jax_attention",
    "onnx": "onnx_reference",
}


def reference(q, k, v, softcap=None, **options):
    """Attention of arrays of float64, heads before the sequence."""
    return REFERENCE["attention"](*(np.asarray(x, float) for x in (q, k, v)), softcap=softcap or None, **options)


def turned(*arrays):
    """Heads before the sequence, or behind it."""
    return [x.float().numpy().swapaxes(-2, -3) for x in arrays]


def flash_attn_func(
    q, k, v, dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0, alibi_slopes=None,
    deterministic=False, return_attn_probs=False,
):  # fmt: skip
    window = tuple(None if side < 0 else side for side in window_size)
    last = {"offset": k.shape[1] - q.shape[1], "causal": causal, "window": window}
    out, lse = reference(*turned(q, k, v), softcap, scale=softmax_scale, **last)
    return torch.tensor(out).to(q.dtype).transpose(1, 2), torch.tensor(lse, dtype=torch.float32), None


def single_prefill_with_kv_cache(
    q, k, v, custom_mask=None, packed_custom_mask=None, causal=False, kv_layout="NHD", pos_encoding_mode="NONE",
    sm_scale=None, window_left=-1, logits_soft_cap=None, return_lse=False,
):  # fmt: skip
    out, lse = reference(
        *turned(q, k, v), logits_soft_cap, scale=sm_scale, causal=causal, offset=k.shape[0] - q.shape[0]
    )
    return torch.tensor(out).to(q.dtype).transpose(0, 1), torch.tensor(lse.T / np.log(2), dtype=torch.float32)


def dot_product_attention(
    query, key, value, bias=None, mask=None, *, scale=None, is_causal=False, query_seq_lengths=None,
    key_value_seq_lengths=None, local_window_size=None, implementation=None,
):  # fmt: skip
    q, k, v = (x.swapaxes(1, 2) for x in (query, key, value))
    assert all(x is None or x.ndim == 4 for x in (bias, mask))
    assert key.shape == value.shape
    out, lse = reference(
        q, k, v, mask=mask, bias=bias, scale=scale, causal=is_causal, window=local_window_size or (None, None)
    )
    mean = np.broadcast_to(v.mean(-2, keepdims=True).repeat(q.shape[1] // k.shape[1], 1), out.shape)
    return np.where(np.isneginf(lse)[..., None], mean, out).astype(query.dtype).swapaxes(1, 2)


def evaluator(node):
    def run(_, feeds):
        q, k, v, *mask = feeds.values()
        options = {"mask": mask[0] if mask else None, "scale": node.get("scale"), "causal": bool(node["is_causal"])}
        return [reference(q, k, v, node.get("softcap"), **options)[0].astype(q.dtype)]

    return SimpleNamespace(run=run)


def module(name, **members):
    found = ModuleType(name)
    found.__dict__.update(members)
    return found


NUMPY = module(
    "jax.numpy", inf=np.inf, **{name: getattr(np, name) for name in ("asarray", "swapaxes", "maximum", "finfo")}
)
HELPER = module("onnx.helper", make_node=lambda kind, inputs, outputs, **attributes: attributes)
STAND_INS = {
    "flash_attn": {"flash_attn": module("flash_attn", flash_attn_func=flash_attn_func)},
    "flashinfer": {"flashinfer": module("flashinfer", single_prefill_with_kv_cache=single_prefill_with_kv_cache)},
    "jax": {
        "jax": module(
            "jax", numpy=NUMPY, Array=np.ndarray, nn=SimpleNamespace(dot_product_attention=dot_product_attention)
        ),
        "jax.numpy": NUMPY,
    },
    "onnx": {
        "onnx": module("onnx", helper=HELPER),
        "onnx.helper": HELPER,
        "onnx.reference": module("onnx.reference", ReferenceEvaluator=evaluator),
    },
}


def adapter(library, monkeypatch):
    """The guide's implementation of a library, or of its stand-in, on the CPU."""
    there = importlib.util.find_spec(library) is not None and library in ("jax", "onnx")
    for name, stand_in in {} if there else STAND_INS[library].items():
        monkeypatch.setitem(sys.modules, name, stand_in)
    names = {"__name__": "guide"}
    for block in [BLOCKS["flash_attn"]] if library == "flashinfer" else []:
        monkeypatch.setitem(sys.modules, "flash_attn", STAND_INS["flash_attn"]["flash_attn"])
        exec(block, names)
    exec(BLOCKS[library], names)
    return replace(names[ADAPTERS[library]], device="cpu")


OTHERS = {
    "flash_attn": Conventions(),
    "flashinfer": Conventions(causal="bottom_right"),
    "jax": Conventions(window="count", dead_rows="uniform"),
    "onnx": Conventions.onnx("1.20"),
}


LAWS = [
    law
    for law in plan(Implementation("any", {"attention": REFERENCE["attention"]}, features=FEATURES))
    if law.agreement
]


@pytest.mark.parametrize("library", ADAPTERS)
def test_an_adapter_of_the_guide_keeps_its_conventions_and_no_others(library, monkeypatch):
    implementation = adapter(library, monkeypatch)
    (found,) = examine(LAWS, implementation, 20, 0)
    assert found.status == "held", found
    others = replace(implementation, conventions=OTHERS[library])
    (other,) = examine(LAWS, others, 40, 0, Supervision(ends=lambda law: True))
    assert other.status == "violated"


@pytest.mark.parametrize("library", ADAPTERS)
def test_an_adapter_has_ten_lines_and_types(library):
    (function,) = (node for node in ast.parse(BLOCKS[library]).body if isinstance(node, ast.FunctionDef))
    assert function.end_lineno - function.body[0].lineno < 10
    assert function.returns is not None
    assert all(x.annotation is not None for x in (*function.args.args, *function.args.kwonlyargs))
