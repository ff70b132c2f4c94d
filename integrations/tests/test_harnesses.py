"""Other harnesses judge by attnspec: each file runs in the released package where it installs, else in a
stand-in of its documented interface.
"""

import importlib
import json
import sys
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from attnspec import Conventions, judge
from properties.tests.foreign_definitions import CONSTANT, DEFINITIONS, VARIABLE, definition, tensor

INTEGRATIONS = Path(__file__).parents[1]


@pytest.fixture
def module(monkeypatch):
    """Load a file of an integration, whose folder is on the path meanwhile."""
    before = set(sys.modules)

    def load(folder, name):
        monkeypatch.syspath_prepend(INTEGRATIONS / folder)
        return importlib.import_module(name)

    yield load
    for name in set(sys.modules) - before:
        if str(INTEGRATIONS) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def attention(q, k, v, causal=False, offset=0, scale=None):
    """Attention in float32 of tensors with the heads before the sequence, and its log-sum-exp."""
    q, k, v = q.float(), *(x.float().repeat_interleave(q.shape[-3] // k.shape[-3], -3) for x in (k, v))
    scores = q @ k.mT * (q.shape[-1] ** -0.5 if scale is None else scale)
    if causal:
        visible = torch.arange(k.shape[-2]) <= torch.arange(q.shape[-2])[:, None] + offset
        scores = scores.masked_fill(~visible, -torch.inf)
    weights = scores.softmax(-1).nan_to_num(0) if k.shape[-2] else scores
    return weights @ v, scores.logsumexp(-1)


# -- Hugging Face kernels --------------------------------------------------------------------------


def flash_attn_func(q, k, v, causal=False, late=0):
    turned = [x.transpose(1, 2) for x in (q, k, v)]
    out, _ = attention(*turned, causal, k.shape[1] - q.shape[1] + late)
    return out.transpose(1, 2).to(q.dtype)


def flash_attn_varlen_func(q, k, v, cu_q, cu_k, max_q, max_k, causal=False):
    out = torch.zeros_like(q)
    for a, b in pairwise(cu_q):
        out[a:b] = flash_attn_func(q[None, a:b], k[None, a:b], v[None, a:b], causal)[0]
    return out, None


def flash_attn_with_kvcache(q, k, v, cache_seqlens, block_table, causal):
    rows = []
    for row, table, length in zip(q, block_table.long(), cache_seqlens, strict=True):
        keys, values = (x[table].flatten(0, 1)[None, :length] for x in (k, v))
        rows.append(flash_attn_func(row[None], keys, values, causal))
    return torch.cat(rows)


def apply_rotary(x1, x2, cos, sin, out1, out2, conj):
    first, second = x1 * cos - x2 * sin, x1 * sin + x2 * cos
    out1.copy_(first)
    out2.copy_(second)


RIGHT = {
    "flash_attn_func": flash_attn_func,
    "flash_attn_varlen_func": flash_attn_varlen_func,
    "flash_attn_with_kvcache": flash_attn_with_kvcache,
    "apply_rotary": apply_rotary,
}
WRONG = {
    "FlashAttentionBenchmark": {"flash_attn_func": lambda *a, causal: flash_attn_func(*a, causal, late=1)},
    "PackedAttentionBenchmark": {"flash_attn_varlen_func": lambda *a, causal: flash_attn_varlen_func(*a)},
    "PagedAttentionBenchmark": {
        "flash_attn_with_kvcache": lambda q, k, v, cache_seqlens, block_table, causal: flash_attn_with_kvcache(
            q, k, v, (cache_seqlens + 1).clamp(max=64), block_table, causal
        )
    },
    "RotaryBenchmark": {
        "apply_rotary": lambda x1, x2, cos, sin, a, b, conj: apply_rotary(x1, x2, cos, -sin, a, b, conj)
    },
}


@pytest.mark.parametrize("name", WRONG)
def test_the_runner_of_kernels_takes_a_right_kernel_and_ends_with_a_sentence_for_a_wrong_one(name, module, monkeypatch):
    kernels = pytest.importorskip("kernels", reason="kernels is not installed: its runner was not asked.")
    from kernels.cli.benchmark import run_benchmark_class

    monkeypatch.setattr("kernels.cli.benchmark.get_kernel_sha_from_build_name", lambda kernel: "")
    benchmark = getattr(module("kernels", "benchmark_attention"), name)
    monkeypatch.setattr(kernels, "get_local_kernel", lambda path: SimpleNamespace(**RIGHT), raising=False)
    results, _ = run_benchmark_class(benchmark, 1, 0, ".", True, "")
    assert results
    assert all(result.verified for result in results.values())
    monkeypatch.setattr(kernels, "get_local_kernel", lambda path: SimpleNamespace(**RIGHT | WRONG[name]))
    with pytest.raises(AssertionError, match=r"out\[.*\]=.*, but should be .* elements are outside\."):
        run_benchmark_class(benchmark, 1, 0, ".", True, "")


# -- KernelBench -----------------------------------------------------------------------------------


@dataclass
class KernelExecResult:
    """The result of KernelBench, as its evaluation returns it."""

    correctness: bool
    metadata: dict = field(default_factory=dict)


def run_and_check_correctness(original, new, get_inputs, metadata, num_correct_trials, verbose=False, seed=42):
    """KernelBench's loop: fresh inputs, and allclose with its tolerance for float32."""
    torch.manual_seed(seed)
    for _ in range(num_correct_trials):
        inputs = get_inputs()
        if not torch.allclose(original(*inputs), new(*inputs), atol=1e-4, rtol=1e-4):
            return KernelExecResult(False, metadata)
    return KernelExecResult(True, metadata)


class Model(torch.nn.Module):
    def forward(self, q, k, v):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)


class InHalfPrecision(torch.nn.Module):
    def forward(self, q, k, v):
        return attention(*(x.to(torch.float16).float() for x in (q, k, v)), causal=True)[0]


class Slow(torch.nn.Module):
    def forward(self, q, k, v):
        return attention(q, k, v, causal=True)[0]


def make():
    return [0.1 * torch.randn(1, 2, 33, 16) for _ in "qkv"]


class Twice(torch.nn.Module):
    def forward(self, q, k, v):
        return 2 * Model()(q, k, v)


def test_kernelbench_accepts_a_right_kernel_and_names_the_entry_of_a_wrong_one(module):
    judged = module("kernelbench", "judged").judged
    run = judged(run_and_check_correctness)
    assert run_and_check_correctness(Model(), InHalfPrecision(), make, {}, 2).correctness
    assert run(Model(), Slow(), make, {}, 2).correctness
    wrong = run(Model(), InHalfPrecision(), make, {}, 2)
    assert not wrong.correctness
    assert wrong.metadata["attnspec"].startswith("out[")
    assert run(Twice(), Twice(), make, {}, 2).correctness  # not the result of the call: left as it is
    assert module("kernelbench", "judged").judge_of(Twice(), make()) is None


# -- kernelbot -------------------------------------------------------------------------------------


def _run_single_test(check_implementation, custom_kernel, data):
    """The evaluation's step: the kernel gets copies of the data."""
    return check_implementation(data, custom_kernel(tuple(x.clone() for x in data)))


def test_kernelbot_gets_a_reason_for_a_wrong_kernel(module):
    found = module("kernelbot", "attnspec_check")
    check = found.checker(
        "attention", lambda data: dict(zip("qkv", data, strict=True), causal=True), "float16-tensor-core-flash"
    )
    data = tuple(torch.randn(1, heads, 64, 64).half() for heads in (8, 2, 2))
    good, message = _run_single_test(check, lambda x: attention(*x, causal=True)[0].half(), data)
    assert (good, message) == (True, "")
    good, message = _run_single_test(check, lambda x: attention(*x)[0].half(), data)
    assert not good
    assert message.startswith("attention: out[0, ")
    assert found.as_text(check)(data, attention(*data, causal=True)[0].half()) == ""
    assert found.as_text(check)(data, attention(*data)[0].half()) == message


# -- flashinfer-bench and SOL-ExecBench ------------------------------------------------------------


LENGTHS, ROWS = (3, 0, 7), (2, 0, 5)


def values(name):
    """The inputs of a definition, by name: three sequences, one of which is empty."""
    torch.manual_seed(1)
    pages = torch.randperm(16)[: sum(LENGTHS)].int()
    known = {
        "kv_indptr": torch.tensor([0, *LENGTHS]).cumsum(0).int(),
        "qo_indptr": torch.tensor([0, *ROWS]).cumsum(0).int(),
        "kv_indices": pages,
        "sm_scale": 0.3,
    }
    sizes = {**CONSTANT, "batch_size": 3, "total_q": sum(ROWS), "total_kv": sum(LENGTHS), "num_pages": 16}
    made = {}
    for key, spec in DEFINITIONS[name].items():
        made[key] = known[key] if key in known else torch.randn([sizes[axis] for axis in spec["shape"]]).bfloat16()
    return made


def solved(wrong, *inputs, name):
    """The outputs of a solution in float32; a wrong one has a log-sum-exp in base e, or sees a key too few."""
    given = dict(zip(DEFINITIONS[name], inputs, strict=True))
    if "ckv_cache" in given:
        q = torch.cat([given["q_nope"], given["q_pe"]], -1)
        k, v = torch.cat([given["ckv_cache"], given["kpe_cache"]], -1)[:, 0, None], given["ckv_cache"][:, 0, None]
    else:
        q, k, v = given["q"], *(given[x] if x in given else given[f"{x}_cache"][:, 0] for x in "kv")
    starts, rows = given["kv_indptr"], given.get("qo_indptr", torch.arange(len(q) + 1))
    out, lse = torch.zeros(*q.shape[:2], v.shape[-1]).bfloat16(), torch.full(q.shape[:2], -torch.inf)
    for a, b, c, d in zip(starts[:-1], starts[1:], rows[:-1], rows[1:], strict=True):
        places = given["kv_indices"][a:b].long() if "kv_indices" in given else slice(a, b)
        if a < b and c < d:
            turned = (x.transpose(0, 1) for x in (q[c:d], k[places], v[places]))
            offset = b - a - (d - c) - int(wrong == "key")
            o, s = attention(*turned, True, offset, given["sm_scale"])
            out[c:d], lse[c:d] = o.transpose(0, 1).bfloat16(), s.T / (1 if wrong == "base" else np.log(2))
    return out, lse


@pytest.mark.parametrize("name", DEFINITIONS)
def test_definitions_are_read_as_they_are(name, module):
    judge_of = module("flashinfer_bench", "definitions").judge_of
    given = values(name)
    verdict = judge_of(definition(name), given)(solved("", *given.values(), name=name))
    assert verdict, verdict.sentence
    assert not judge_of(definition(name), given)(solved("key", *given.values(), name=name))
    natural = judge_of(definition(name), given)(solved("base", *given.values(), name=name))
    assert "It is right under Conventions(lse_base='e')." in str(natural)


def test_pages_of_several_slots_end_at_the_last_page_length(module):
    judge_of = module("flashinfer_bench", "definitions").judge_of
    name = "gqa_paged_decode_h4_kv2_d16_ps1"
    told, given = definition(name, 4), values(name)
    given |= {key: torch.randn(8, 4, 2, 16).bfloat16() for key in ("k_cache", "v_cache")}
    given |= {"kv_indptr": torch.tensor([0, 1, 3, 3]).int(), "kv_indices": torch.tensor([5, 2, 7]).int()}
    given["kv_last_page_len"] = torch.tensor([2, 3, 0]).int()
    slots = [[20, 21], [8, 9, 10, 11, 28, 29, 30], []]
    k, v = (given[key].flatten(0, 1) for key in ("k_cache", "v_cache"))
    out, lse = torch.zeros(3, 4, 16).bfloat16(), torch.full((3, 4), -torch.inf)
    for b, keys in enumerate(slots[:2]):
        o, s = attention(given["q"][b, :, None], k[keys].transpose(0, 1), v[keys].transpose(0, 1), scale=0.3)
        out[b], lse[b] = o[:, 0].bfloat16(), s[:, 0] / np.log(2)
    verdict = judge_of(told, given)((out, lse))
    assert verdict, verdict.sentence


def test_other_definitions_are_left_to_other_evaluators(module):
    found = module("flashinfer_bench", "definitions")
    inputs = {"A": tensor("float16", "M"), "B": tensor("float16", "M")}
    told = {"name": "gemm", "axes": {"M": {"type": "var"}}, "inputs": inputs, "outputs": {"C": {}}}
    assert not found.is_judged(told)
    with pytest.raises(
        ValueError, match=r"^attnspec does not judge gemm, but ragged, paged and latent causal attention"
    ):
        found.judge_of(told, {})
    not_causal = definition("gqa_ragged_prefill_causal_h4_kv2_d16") | {"name": "gqa_ragged_prefill_h4_kv2_d16"}
    assert not found.is_judged(not_causal)


@pytest.mark.parametrize("wrong", ["", "key", "base"])
@pytest.mark.parametrize("in_place", [True, False])
def test_flashinfer_bench_judges_by_limits(wrong, in_place, module, monkeypatch):
    pytest.importorskip("flashinfer_bench", reason="flashinfer-bench is not installed: it was not asked.")
    from flashinfer_bench.bench.config import BenchmarkConfig
    from flashinfer_bench.bench.evaluators import registry
    from flashinfer_bench.compile import Runnable
    from flashinfer_bench.compile.runnable import RunnableMetadata
    from flashinfer_bench.data import Definition

    monkeypatch.setattr("flashinfer_bench.bench.utils.env_snapshot", lambda device: {"hardware": "cpu"})
    evaluator = module("flashinfer_bench", "evaluator").AttnspecEvaluator
    monkeypatch.setattr(registry, "_EVALUATORS", [*registry._EVALUATORS, evaluator])
    name = "gqa_paged_prefill_causal_h4_kv2_d16_ps1"
    told = Definition(**{key: x for key, x in definition(name).items() if key != "custom_inputs_entrypoint"})
    assert registry.resolve_evaluator(told) is evaluator

    def run(*given):
        found = solved(wrong, *given[:7], name=name)
        return [x.copy_(y) for x, y in zip(given[7:], found, strict=True)] if in_place else found

    metadata = RunnableMetadata(
        build_type="python", definition_name=name, solution_name="x", destination_passing_style=in_place
    )
    inputs = [list(values(name).values())]
    outputs = [list(solved("", *inputs[0], name=name))]
    args = (told, Runnable(run, metadata), inputs, outputs, BenchmarkConfig(), "nowhere", "cpu")
    correctness, evaluation = evaluator.check_correctness(*args)
    assert (evaluation is None) == (wrong == "")
    assert (correctness.extra["error_over_limit"] <= 1) == (wrong == "")
    if wrong:
        assert evaluation.status == "INCORRECT_NUMERICAL"
        assert "but should be" in evaluation.log


@pytest.mark.parametrize("wrong", ["", "key"])
def test_sol_execbench_reads_a_problem_as_it_is(wrong, module, tmp_path, capsys):
    name = "gqa_paged_decode_h4_kv2_d16_ps1"
    here = f"import sys\nsys.path.insert(0, {str(Path(__file__).parent)!r})\nfrom test_harnesses import *\n"
    told = definition(name)
    told["reference"] += f"{here}\ndef make(axes, device):\n    return values({name!r})\n"
    (tmp_path / "definition.json").write_text(json.dumps(told))
    workload = {
        "uuid": "0",
        "axes": dict.fromkeys(VARIABLE, 1),
        "inputs": {key: {"type": "custom"} for key in DEFINITIONS[name]},
    }
    workload["axes"]["batch_size"] = 3
    (tmp_path / "workload.jsonl").write_text(json.dumps({"definition": name, "workload": workload}) + "\n")
    outputs = f"solved({wrong!r}, *given[:6], name={name!r})"
    code = f"{here}\ndef run(*given):\n    [x.copy_(y) for x, y in zip(given[6:], {outputs})]\n"
    solution = {"name": "mine", "spec": {"entry_point": f"kernel_{len(wrong)}.py::run", "language": "python"}}
    solution["sources"] = [{"path": f"kernel_{len(wrong)}.py", "content": code}]
    (tmp_path / "solution.json").write_text(json.dumps(solution))
    check = module("sol_execbench", "check")
    assert check.main(str(tmp_path), str(tmp_path / "solution.json")) == int(bool(wrong))
    trace = json.loads(capsys.readouterr().out)
    assert trace["evaluation"]["status"] == ("INCORRECT_NUMERICAL" if wrong else "PASSED")
    assert trace["definition"] == name


def test_the_judge_that_all_use_is_the_packages():
    x = np.zeros((3, 4))
    assert judge("rope", {"x": x, "start_pos": 0}, "float64", Conventions(rope_pairing="half"))(x).error == 0
