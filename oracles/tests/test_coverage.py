"""What a budget says it covers, it covers: simulated kernels of every listed form stay inside it."""

from dataclasses import replace
from itertools import product

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from torch.nn.attention import SDPBackend, sdpa_kernel

from oracles.ball import Array
from oracles.dot_product import (
    scaled_dot_product_attention,
    scaled_dot_product_attention_jvp,
    scaled_dot_product_attention_vjp,
)
from oracles.enclosure import Enclosure
from oracles.error_analysis.scores import Mask
from oracles.formats import (
    BFLOAT16,
    BFLOAT16_STORED_GRADIENTS,
    BFLOAT16_TENSOR_CORE,
    BRAIN16,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    Arithmetic,
)
from oracles.multi_head import multi_head_attention, multi_head_attention_vjp
from oracles.softmax import hard_masked_softmax, hard_masked_softmax_vjp
from oracles.tests.simulated.attention import Kernel
from oracles.tests.simulated.forms import Form
from oracles.tests.simulated.rounding import rounding

ARITHMETICS = [FLOAT64, FLOAT32, FLOAT16, BFLOAT16]
FORMS = [
    *(Form(order=order) for order in ("library", "sequential", "reversed", "fused", "pairwise", "tree")),
    *(
        Form(scale=scale, base=base, folded=folded)
        for scale, base, folded in product(("s", "q", "k", "both"), "e2", (True, False))
    ),
    *(
        Form(tile=16, lazy=lazy, base=base, normalise=how)
        for lazy, base, how in product((False, True), "e2", ("before", "after", "each"))
    ),
    *(Form(split=split, base=base, tile=16) for split, base in product((2, 3), "e2")),
    *(
        Form(delta=delta, recompute=recompute, reciprocal=True)
        for delta, recompute in product(("weights", "output"), (False, True))
    ),
]


def inputs(seed: int, kind: str, arithmetic: Arithmetic) -> tuple[Array, Array, Array, Mask, Array]:
    """q, k, v, the allowed keys (at least one per row) and a cotangent, all numbers of the format of inputs."""
    rng = np.random.default_rng(seed)
    n_q, n_k = int(rng.integers(1, 6)), int(rng.choice([1, 2, 5, 17, 48]))
    d, d_v = int(rng.choice([1, 3, 8])), int(rng.choice([1, 4]))
    q, k, v, g = (rng.standard_normal(shape) for shape in ((n_q, d), (n_k, d), (n_k, d_v), (n_q, d_v)))
    if kind == "large":
        q, k = 8 * q, 8 * k
    elif kind == "offset":
        k, v = k + 30, v + 100
    elif kind == "tiny":
        v, g = v * 2.0**-20, g * 2.0**-10
    elif kind == "grid":
        q, k, v, g = (np.round(2 * x) for x in (q, k, v, g))
    allowed = rng.random((n_q, n_k)) < 0.7
    allowed[np.arange(n_q), rng.integers(0, n_k, n_q)] = True
    store = rounding(arithmetic.inputs)
    return store(q), store(k), store(v), allowed, store(g)


@pytest.mark.parametrize("form", FORMS, ids=str)
@settings(max_examples=20)
@given(
    seed=st.integers(0, 2**32 - 1),
    kind=st.sampled_from(["plain", "large", "offset", "tiny", "grid"]),
    arithmetic=st.sampled_from(ARITHMETICS),
)
def test_covered_kernels_stay_inside(form: Form, seed: int, kind: str, arithmetic: Arithmetic) -> None:
    require_inside(form, seed, kind, arithmetic)


@settings(max_examples=20)
@given(seed=st.integers(0, 2**32 - 1), kind=st.sampled_from(["plain", "large", "offset", "grid"]))
def test_truncating_accumulators_stay_inside(seed: int, kind: str) -> None:
    require_inside(Form(order="fused", base="2", chopped=True), seed, kind, BFLOAT16_TENSOR_CORE)


@settings(max_examples=40)
@given(
    seed=st.integers(0, 2**32 - 1), kind=st.sampled_from(["plain", "grid"]), scale=st.sampled_from(["q", "k", "both"])
)
def test_a_scale_folded_into_stored_inputs_stays_inside(seed: int, kind: str, scale: str) -> None:
    require_inside(Form(scale=scale), seed, kind, replace(BFLOAT16, scale_on_inputs=BRAIN16))


def test_gradients_stored_in_sixteen_bits_between_blocks_are_inside_only_where_that_is_said() -> None:
    generator = torch.Generator().manual_seed(1)
    q, k, v, g = (4 * torch.randn(1, 1, 128, 8, generator=generator) for _ in range(4))
    inputs = [x.to(torch.bfloat16).requires_grad_() for x in (q, k, v)]
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        out = torch.nn.functional.scaled_dot_product_attention(*inputs)
    grads = torch.autograd.grad(out, inputs, g.to(torch.bfloat16))

    def worst(arithmetic: Arithmetic) -> float:
        budgets = scaled_dot_product_attention_vjp(*inputs, None, g.to(torch.bfloat16), arithmetic=arithmetic)
        return max(float(budget.excess(grad).max()) for budget, grad in zip(budgets, grads, strict=True))

    assert worst(BFLOAT16_STORED_GRADIENTS) <= 1 < worst(BFLOAT16)


def test_weights_that_a_vector_exponential_flushes_are_inside() -> None:
    """A weight between 2⁻¹²⁶ and 2^−125.5 comes out as 0, where exponentials are those of vectors,
    and may; one above may not.
    """
    vectors = torch.backends.cpu.get_cpu_capability() != "DEFAULT"
    q, v = torch.ones(1, 1, 1, 1), torch.zeros(1, 1, 64, 1)
    v[0, 0, 1] = 1.0
    for score, flushed in ((-87.3, vectors), (-86.99, vectors), (-86.5, False)):
        weight = 0.0 if flushed else float(np.exp(np.float64(np.float32(score))))
        k = torch.full((1, 1, 64, 1), -200.0)
        k[0, 0, :2, 0] = torch.tensor([0.0, score])
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            out = torch.nn.functional.scaled_dot_product_attention(q, k, v)
        budget = scaled_dot_product_attention(q, k, v, arithmetic="float32-flash")  # its references are maxima
        assert abs(float(out) - weight) <= 2.0**-20 * weight
        assert budget.excess(out).max() <= 1
    assert budget.excess(np.zeros((1, 1, 1, 1))).max() > 1


def test_flushed_weights_of_many_keys_may_vanish_only_where_results_are_flushed() -> None:
    q, k, v = np.zeros((1, 1)), np.zeros((20000, 1)), np.ones((20000, 1))
    flushing = replace(FLOAT16, flush_to_zero=True)
    vanished = np.zeros((1, 1))
    assert scaled_dot_product_attention(q, k, v, arithmetic=flushing).contains(vanished).all()
    assert not scaled_dot_product_attention(q, k, v, arithmetic=FLOAT16).contains(vanished).any()


TORCH = [(torch.float64, FLOAT64), (torch.float32, FLOAT32), (torch.float16, FLOAT16), (torch.bfloat16, BFLOAT16)]


# torch.func's forward derivatives import torch.jit, which warns about itself.
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
@pytest.mark.parametrize(("dtype", "arithmetic"), TORCH, ids=[a.name for _, a in TORCH])
@pytest.mark.parametrize("n", [1, 2, 16, 31])
def test_torch_softmax_multi_head_attention_and_forward_derivatives_stay_inside(
    n: int, dtype: torch.dtype, arithmetic: Arithmetic
) -> None:
    generator = torch.Generator().manual_seed(n)

    def drawn(*shape: int, size: float = 1.0) -> torch.Tensor:
        return (size * torch.randn(*shape, generator=generator)).to(dtype)

    def inside(results: tuple[torch.Tensor, ...], budgets: tuple[Enclosure, ...]) -> None:
        assert max(float(b.excess(r).max()) for r, b in zip(results, budgets, strict=True)) <= 1

    x, g = drawn(n, 8).requires_grad_(), drawn(n, 8)
    wq, wk, wv, wo = (drawn(8, 8, size=0.4).requires_grad_() for _ in range(4))
    q, k, v = ((x @ w).reshape(n, 2, 4).transpose(0, 1) for w in (wq, wk, wv))
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(0, 1).reshape(n, 8) @ wo
    arguments = (x, wq, wk, wv, wo)
    inside((out,), (multi_head_attention(*arguments, 2, is_causal=True, arithmetic=arithmetic),))
    budgets = multi_head_attention_vjp(*arguments, 2, None, g, is_causal=True, arithmetic=arithmetic)
    inside(torch.autograd.grad(out, arguments, g), budgets)

    s, gs = drawn(n, 9, size=10.0).requires_grad_(), drawn(n, 9)
    p = torch.softmax(s, dim=-1)
    inside((p,), (hard_masked_softmax(s, arithmetic=arithmetic),))
    inside(torch.autograd.grad(p, s, gs), (hard_masked_softmax_vjp(s, None, gs, arithmetic=arithmetic),))

    points, tangents = (tuple(drawn(n, 8) for _ in range(3)) for _ in range(2))
    if dtype in (torch.float64, torch.float32):
        with sdpa_kernel(SDPBackend.MATH):
            _, dout = torch.func.jvp(torch.nn.functional.scaled_dot_product_attention, points, tangents)
        inside((dout,), (scaled_dot_product_attention_jvp(*points, None, *tangents, arithmetic=arithmetic),))


def require_inside(form: Form, seed: int, kind: str, arithmetic: Arithmetic) -> None:
    """Assert that the simulated kernel's results are within the budgets of their arithmetic."""
    q, k, v, allowed, g = inputs(seed, kind, arithmetic)
    kernel = Kernel(form, arithmetic, q.shape[1] ** -0.5, allowed, seed)
    with np.errstate(all="ignore"):
        results = kernel.vjp(q, k, v, g)
    budgets = (
        scaled_dot_product_attention(q, k, v, allowed, arithmetic=arithmetic),
        *scaled_dot_product_attention_vjp(q, k, v, allowed, g, arithmetic=arithmetic),
    )
    for name, result, budget in zip(("out", "dq", "dk", "dv"), results, budgets, strict=True):
        excess = budget.excess(result).max()
        assert excess <= 1, f"{name}: {excess}"
