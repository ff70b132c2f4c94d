"""The checkers of others, a row each. What is stated of them was read in their sources on
2026-11-22; the code is ours.
"""

from functools import partial

from oracles.formats import BINARY16, BINARY32, BINARY64, BRAIN16, Format
from research.checkers import node_suite
from research.checkers.checker import Checker
from research.checkers.comparisons import allclose, assert_close, both_beyond, times_plain
from research.checkers.derivatives import check_grads, gradcheck
from research.checkers.draws import documentation, flash_attention, flashinfer, kernelbench, opinfo, tests_of_jax

__all__ = ["ROWS"]

_TORCH = "torch 2.13.0"
_KERNELBENCH = "ScalingIntelligence/KernelBench@423217d9fda91e0c2d67e4a43bf62f96f6d104f1"
_FLASHINFER = "flashinfer-ai/flashinfer-bench@40e6ca7844b514eb4b1c7edba6d6a7377df57870"
_FLASH = "Dao-AILab/flash-attention@0251105a2fb19d2957484b7f023cd8c115286ced"
_ONNX = "onnx/onnx@f7546912001bc31e92a238b17068a21b373d882e"
_JAX = "jax-ml/jax@055a88344ffe252fd8d57d5470c3201493aeb5b8"


def _kernelbench(name: str, target: Format, tolerance: float, when: str) -> Checker:
    return Checker(
        name,
        "uniform on [0, 1); q, k, v (32, 32, 512, 1024); 5 draws",
        f"every entry: |error| ≤ {tolerance:g} + {tolerance:g}·|right|, {when}",
        "2 of 5 draws, of each 1 × 2 of 32 × 32 heads: the largest of fewer errors is not larger",
        (
            f"{_KERNELBENCH}: `KernelBench/level1/97_ScaledDotProductAttention.py`",
            "the same: `src/kernelbench/eval.py` (tolerances by precision; the comment names 1e-2 of v0 and v0.1), "
            "`scripts/eval_from_generations.py` (5 trials)",
        ),
        partial(kernelbench, target),
        allclose(tolerance, tolerance),
    )


def _assert_close(name: str, target: Format, tolerances: str) -> Checker:
    return Checker(
        f"assert_close {name}",
        "uniform on [0, 1); (32, 8, 128, 64), and 32 query heads over 8; with gradients of a uniform cotangent",
        f"every entry of out, dq, dk, dv: {tolerances}",
        "2 of 32 batches; the shapes are those of the documentation's examples, for the comparison has none of its own",
        (
            f"{_TORCH}: `torch/testing/_comparison.py`, which is called",
            f"{_TORCH}: `torch/nn/functional.py`, the examples of scaled_dot_product_attention",
        ),
        partial(documentation, target),
        assert_close,
    )


def _check_grads(name: str, target: Format, tolerance: float, noise: str) -> Checker:
    return Checker(
        f"check_grads {name}",
        "standard normal; (2, 4, 128, 32); plain, causal, with a mask, a bias and a window",
        "order 1, forwards and backwards, step 1e-4: "
        f"|difference| ≤ {tolerance:g}·size·(1 + |difference quotient|), "
        "with the size of the compared array: 32768 of the tangent, 1 of the inner product",
        f"the shapes are those of JAX's tests of its attention, which compare gradients otherwise; {noise}",
        (
            f"{_JAX}: `jax/_src/public_test_util.py`",
            "jax-ml/jax@000f87c09ffad5efa8a1f70f123be21c6431ecba: `tests/nn_test.py`",
        ),
        partial(tests_of_jax, target),
        consistent=check_grads(target, tolerance),
        suffixes=("_vjp", "_jvp"),
    )


ROWS: tuple[Checker, ...] = (
    Checker(
        "ONNX node suite",
        "uniform on [0, 1) for Attention and RotaryEmbedding, few others; 4 queries, 6 to 18 keys, width 8",
        "every entry: |error| ≤ 1e-7 + 1e-3·|right|",
        "expected results are right to the last bit, unlike its evaluator's; as there, boolean masks are uniform "
        "numbers converted to booleans, so every key is visible, unless a case writes a mask out",
        (
            f"{_ONNX}: `onnx/backend/test/case/node/attention.py`, `rotaryembedding.py`, `softmax.py`",
            "the same: `onnx/backend/test/case/node/__init__.py` (tolerances), "
            "`onnx/backend/test/case/base.py` (seed 0)",
        ),
        node_suite.trials,
        allclose(1e-3, 1e-7),
    ),
    _kernelbench("KernelBench fp32", BINARY32, 1e-4, "in float32"),
    _kernelbench("KernelBench bf16", BRAIN16, 1e-2, "in bfloat16 or float16, as in float32 until v0.1"),
    Checker(
        "flashinfer-bench",
        "standard normal, bfloat16; 32 heads over 4 or 8, width 128; "
        "(queries, keys) (3, 4), (2, 3), (1, 2), (1, 3), (100, 128); 3 draws",
        "no entry of out or lse with |error| > 1e-2 and |error| / (|right| + 1e-8) > 1e-2, "
        "and no infinite or NaN entry; all entries must match",
        "the sizes come from its tests and its example: the traced workloads are a data set, which we did not look at",
        (
            f"{_FLASHINFER}: `flashinfer_bench/bench/config.py`, `bench/utils.py`, `bench/evaluators/default.py`",
            "the same: `tests/integration/flashinfer/test_gqa_paged_prefill.py`, `test_gqa_paged_decode.py`, "
            "`examples/fi_gqa_e2e_example.py`, `docs/op-types/gqa-ragged.mdx`",
        ),
        flashinfer,
        both_beyond(1e-2, 1e-2),
    ),
    Checker(
        "flash-attention",
        "standard normal, float16 and bfloat16; (queries, keys) (113, 203) to (512, 256); width 32 to 128; "
        "6 heads over 6, 1 or 2; plain, causal, windows, ALiBi, a softcap of 50",
        "largest |error| ≤ 2 times the largest error of a plain PyTorch run in the format, 3 times for gradients, "
        "plus 1e-5",
        "features, lengths, widths and heads alternate, without all combinations; 1 of 4 batches, lengths to 512, "
        "no dropout; "
        "1e-5 is added as in its test of causal attention, which allows 2 times for gradients too",
        (f"{_FLASH}: `tests/test_flash_attn.py`, test_flash_attn_output and test_flash_attn_causal",),
        flash_attention,
        times_plain(2, 3, 1e-5),
    ),
    _assert_close("float32", BINARY32, "|error| ≤ 1e-5 + 1.3e-6·|right|"),
    _assert_close("float16", BINARY16, "|error| ≤ 1e-5 + 1e-3·|right|"),
    _assert_close("bfloat16", BRAIN16, "|error| ≤ 1e-5 + 1.6e-2·|right|"),
    Checker(
        "PyTorch OpInfo",
        "uniform on [-9, 9); 4 problems of 1 or 4 heads, 3 queries, 6 keys, width 8; causal or not; once a bias",
        "every entry of out in float32: |error| ≤ 5e-5 + 5e-6·|right|; `torch.autograd.gradcheck` of q, k, v "
        "and bias in float64, fast mode, step 1e-6, rtol 1e-3, atol 1e-5",
        "samples with dropout, and samples that broadcast q over batches, are left out; "
        "out is compared with right values, which the entry does not name",
        (
            f"{_TORCH}: `torch/testing/_internal/common_methods_invocations.py` (samples, tolerance)",
            f"{_TORCH}: `torch/testing/_creation.py` (draws), `torch/autograd/gradcheck.py`, which is called",
        ),
        opinfo,
        allclose(5e-6, 5e-5),
        gradcheck,
        ("_vjp",),
    ),
    _check_grads(
        "float32",
        BINARY32,
        2e-3,
        "rounding an output near 1 changes it by up to 2⁻²⁵, its quotient by up to 2⁻²⁵ / 1e-4 = 3e-4, "
        "and the inner product by 0.05",
    ),
    _check_grads("float64", BINARY64, 1e-5, "the quotient's rounding is below its tolerance"),
)
"""In the order of the table."""
