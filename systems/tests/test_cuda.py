"""The code for CUDA runs up to the call.

Kernels of the CPU, an interpreter and a compiler stand in for the device.
"""

import os
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

import oracles
from oracles.formats import BINARY32
from properties.laws import LAWS
from properties.verifier.verify import check, verify
from systems import GROUPS, torch_attention, torch_cuda, triton_attention

SDPA = "scaled_dot_product_attention"
NAMED = {i.name: i for group in GROUPS.values() for i in group if "CUDA" in i.name}
needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed.")


def on_cpu(name, **promises):
    """An entry for CUDA, with its arrays on the CPU."""
    return replace(NAMED[name], device="cpu", unavailable="", **promises)


def test_every_backend_is_there_in_every_type_that_it_has():
    types = {
        **dict.fromkeys(
            ("torch CUDA math", "torch CUDA flex compiled", "Triton CUDA"), "float32 TF32 float16 bfloat16"
        ),
        "Triton CUDA pages": "float32 bfloat16",
        "torch CUDA memory-efficient": "float32 float16 bfloat16",
        **dict.fromkeys(
            (f"torch CUDA {name}" for name in ("flash", "flash causal", "cuDNN", "cuDNN causal", "varlen")),
            "float16 bfloat16",
        ),
    }
    assert set(NAMED) == {f"{kernel} {dtype}" for kernel, dtypes in types.items() for dtype in dtypes.split()}


@pytest.mark.parametrize("name", NAMED)
def test_what_needs_cuda_is_shown_as_not_run_without_it(name):
    if not torch_attention.NO_CUDA:
        pytest.skip("There is a CUDA device.")
    law = next(law for law in LAWS if law.agreement and law.operation in NAMED[name].operations)
    found = check(law, NAMED[name], 1)
    assert (found.status, found.reason, found.examples) == ("not run", "There is no CUDA device.", 0)


# -- Backends --------------------------------------------------------------------------------------


@pytest.fixture
def asked(monkeypatch):
    """A list of the selected backends; the CPU's math backend runs instead of each."""
    found = []

    def choose(backend):
        found.append(backend)
        return sdpa_kernel(SDPBackend.MATH)

    monkeypatch.setattr(torch_attention, "sdpa_kernel", choose)
    return found


BACKENDS = {
    "math": SDPBackend.MATH,
    "memory-efficient": SDPBackend.EFFICIENT_ATTENTION,
    "flash": SDPBackend.FLASH_ATTENTION,
    "cuDNN": SDPBackend.CUDNN_ATTENTION,
}


@pytest.mark.parametrize("name", [name for name in NAMED if name.split()[2] in BACKENDS])
def test_a_backend_is_called_as_it_should_be(name, asked):
    agreements = [law.id for law in LAWS if law.agreement and law.operation in NAMED[name].operations]
    report = verify(on_cpu(name), laws=agreements, max_examples=12, seed=0)
    assert report.ok, [(o.law_id, o.status, o.reason, o.violation and o.violation.summary) for o in report.outcomes]
    assert set(asked) == {BACKENDS[name.split()[2]]}


def test_tf32_is_asked_for_and_forgotten():
    seen = []
    torch_cuda._at("high", lambda: seen.append(torch.get_float32_matmul_precision()))
    with pytest.raises(ZeroDivisionError):
        torch_cuda._at("high", lambda: 1 / 0)
    assert (seen, torch.get_float32_matmul_precision()) == (["high"], "highest")
    asked = {
        name: function.args[0]
        for name, i in NAMED.items()
        for function in i.operations.values()
        if name.startswith("torch CUDA math")
    }
    assert {name for name, precision in asked.items() if precision == "high"} == {"torch CUDA math TF32"}


def rounded(x, bits):
    """x truncated to this number of significant bits."""
    mantissa, exponent = np.frexp(x)
    return np.ldexp(np.trunc(np.ldexp(mantissa, bits)), exponent - bits)


def test_products_of_three_tf32_products_are_within_their_preset_and_not_within_a_narrower_one():
    rng = np.random.default_rng(0)
    x, y = (np.float32(rng.uniform(1, 2, 100_000)).astype(np.float64) for _ in range(2))
    (b, s), (c, t) = ((high := rounded(z, 11), rounded(z - high, 11)) for z in (x, y))
    error = np.abs(b * c + b * t + s * c - x * y) / (x * y)
    allowed = 2 * torch_cuda.THREE_PRODUCTS.product + torch_cuda.THREE_PRODUCTS.product**2
    assert allowed / 8 < error.max() <= allowed
    assert torch_cuda.THREE_PRODUCTS.inputs == BINARY32
    assert error.max() > 2 * oracles.FLOAT32.accumulate


# -- flex ------------------------------------------------------------------------------------------


def test_flex_is_compiled_once_and_called_with_masks_of_blocks(monkeypatch):
    compiled = []

    def compiler(function):
        compiled.append(function)
        return lambda q, k, v, block_mask=None, enable_gqa=False: scaled_dot_product_attention(
            q, k, v, None if block_mask is None else dense(block_mask, q, k), enable_gqa=enable_gqa
        )

    def dense(block_mask, q, k):
        places = torch.meshgrid(*(torch.arange(n) for n in (*q.shape[:3], k.shape[2])), indexing="ij")
        return block_mask.mask_mod(*places)

    monkeypatch.setattr(torch, "compile", compiler)
    torch_cuda._compiled.cache_clear()
    try:
        agreements = [law.id for law in LAWS if law.agreement and law.operation in torch_cuda._FLEX]
        report = verify(on_cpu("torch CUDA flex compiled float32"), laws=agreements, max_examples=6, seed=0)
    finally:
        torch_cuda._compiled.cache_clear()
    assert report.ok, [(o.law_id, o.status, o.reason, o.violation and o.violation.summary) for o in report.outcomes]
    assert len(compiled) == 1


# -- Triton ----------------------------------------------------------------------------------------


def launched(
    grid, q, k, v, mask, out, lse, n_q, n_k, d, d_v, k_head, k_row, group, scale, left, right,
    masked, causal, precision, block, width, width_v,
):  # fmt: skip
    """The output that the kernel writes, computed in another way.

    The names of the arguments show that the kernel is called as it is written.
    """
    n_heads = lse.numel() // n_q
    assert grid == (-(-n_q // block), n_heads)
    assert block >= 16
    assert all(w >= n and w >= 16 and w & (w - 1) == 0 for n, w in ((d, width), (d_v, width_v)))
    places = torch.arange(n_heads) // group
    assert k.stride() == (k_head, k_row, 1)
    scores = q.reshape(n_heads, n_q, d).float() @ k.reshape(-1, n_k, d)[places].float().mT * scale
    allowed = mask.reshape(n_heads, n_q, n_k) != 0 if masked else torch.ones(n_heads, n_q, n_k, dtype=torch.bool)
    ahead = torch.arange(n_k) - torch.arange(n_q)[:, None]
    allowed = allowed & (ahead >= -left) & (ahead <= right)
    scores[~(allowed.tril() if causal else allowed)] = -torch.inf
    in_base_2 = torch.logsumexp(scores * np.log(2), -1)
    lse[:] = in_base_2.reshape(lse.shape)
    weights = torch.exp(scores * np.log(2) - in_base_2[..., None]).nan_to_num(0.0).to(v.dtype).float()
    out[:] = (weights @ v.reshape(-1, n_k, d_v)[places].float()).reshape(out.shape)


@pytest.mark.parametrize("name", [name for name in NAMED if name.startswith("Triton") and "pages" not in name])
def test_the_kernel_in_triton_is_launched_on_what_it_takes(name, monkeypatch):
    monkeypatch.setattr(triton_attention, "_launch", launched)
    agreements = [law.id for law in LAWS if law.agreement and law.operation in NAMED[name].operations]
    report = verify(on_cpu(name), laws=agreements, max_examples=12, seed=0)
    assert report.ok, [(o.law_id, o.status, o.reason, o.violation and o.violation.summary) for o in report.outcomes]


INTERPRETED = """
from dataclasses import replace

import properties
from properties.interpreters import interpret

interpret()

from systems.triton_attention import IMPLEMENTATIONS

laws = [f"{name}[{operation}]" for name, operation in (
    ("attention with options is within its error limit", "attention"),
    ("causal attention is within its error limit", "causal_attention"),
)]
for implementation in IMPLEMENTATIONS:
    offered = {name: implementation.operations[name] for name in ("attention", "causal_attention")}
    report = properties.verify(replace(implementation, operations=offered), laws=laws, max_examples=4, seed=0)
    assert report.ok, report.violations
"""


@needs_triton
def test_the_kernel_in_triton_is_right_as_its_interpreter_has_it():
    subprocess.run([sys.executable, "-c", INTERPRETED], check=True)


COMPILED = """
from triton import compile
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from systems.triton_attention import _kernel

kernel = _kernel()
flags = {"causal": True, "block": 32, "width": 64, "width_v": 128}
for dtype, precision in (("fp32", "ieee"), ("fp32", "tf32"), ("fp16", "ieee"), ("bf16", "ieee")):
    for masked in (False, True):
        constants = flags | {"precision": precision, "masked": masked} | ({} if masked else {"mask": None})
        types = dict.fromkeys(("q", "k", "v", "out"), f"*{dtype}") | {"mask": "*i8", "lse": "*fp32", "scale": "fp32"}
        signature = {name: "constexpr" if name in constants else types.get(name, "i32") for name in kernel.arg_names}
        source = ASTSource(kernel, signature, {(kernel.arg_names.index(name),): x for name, x in constants.items()})
        text = compile(source, target=GPUTarget("cuda", 80, 32)).asm["ptx"]
        assert ("mma.sync" in text) == (precision == "tf32" or dtype != "fp32")
        assert ("tf32" in text) == (precision == "tf32")
"""


@needs_triton
def test_the_kernel_in_triton_compiles_without_a_device():
    without = {name: x for name, x in os.environ.items() if name != "TRITON_INTERPRET"}
    subprocess.run([sys.executable, "-c", COMPILED], env=without, check=True)
