"""What a budget says it covers, it covers: simulated kernels of every listed form stay inside it."""

from itertools import product

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from torch.nn.attention import SDPBackend, sdpa_kernel

from oracles.attention import scaled_dot_product_attention, scaled_dot_product_attention_vjp
from oracles.ball import Array
from oracles.formats import BFLOAT16, BFLOAT16_STORED_GRADIENTS, BFLOAT16_TENSOR_CORE, FLOAT16, FLOAT32, FLOAT64, Arithmetic
from oracles.scores import Mask
from oracles.tests.kernels import DTYPES, Form, Kernel, machine, to

ARITHMETICS = [(FLOAT64, "float64"), (FLOAT32, "float32"), (FLOAT16, "float16"), (BFLOAT16, "bfloat16")]
FORMS = [
    *(Form(order=order) for order in ("blas", "sequential", "reversed", "fused")),
    *(Form(scale=scale, base=base) for scale, base in product(("scores", "q", "k", "both"), ("e", "2"))),
    *(Form(tile=16, lazy=lazy, base=base, normalise=how) for lazy, base, how in product((False, True), "e2", ("before", "after"))),
    *(Form(split=split, base=base, tile=16) for split, base in product((2, 3), "e2")),
    *(Form(delta=delta, recompute=recompute, order="sequential") for delta, recompute in product(("pdp", "go"), (False, True))),
]


def inputs(seed: int, kind: str, dtype: str) -> tuple[Array, Array, Array, Mask, Array]:
    """q, k, v, the allowed keys (at least one per row) and a cotangent, all representable in the dtype."""
    rng = np.random.default_rng(seed)
    n_q, n_k = int(rng.integers(1, 6)), int(rng.choice([1, 2, 5, 17, 40]))
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
    store = to(DTYPES[dtype])
    return store(q), store(k), store(v), allowed, store(g)


@pytest.mark.parametrize("form", FORMS, ids=str)
@settings(max_examples=20, deadline=None, database=None, derandomize=True)
@given(
    seed=st.integers(0, 2**32 - 1),
    kind=st.sampled_from(["plain", "large", "offset", "tiny", "grid"]),
    which=st.sampled_from(ARITHMETICS),
)
def test_covered_kernels_stay_inside(form: Form, seed: int, kind: str, which: tuple[Arithmetic, str]) -> None:
    require_inside(form, seed, kind, *which, truncating=False)


@settings(max_examples=20, deadline=None, database=None, derandomize=True)
@given(seed=st.integers(0, 2**32 - 1), kind=st.sampled_from(["plain", "large", "offset", "grid"]))
def test_truncating_accumulators_stay_inside(seed: int, kind: str) -> None:
    require_inside(Form(order="fused", base="2"), seed, kind, BFLOAT16_TENSOR_CORE, "bfloat16", truncating=True)


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


def require_inside(form: Form, seed: int, kind: str, arithmetic: Arithmetic, dtype: str, truncating: bool) -> None:
    """Assert that the simulated kernel's results are within the budgets of their arithmetic."""
    q, k, v, allowed, g = inputs(seed, kind, dtype)
    kernel = Kernel(form, machine(dtype, truncating), to(DTYPES[dtype]))
    budgets = (
        scaled_dot_product_attention(q, k, v, allowed, arithmetic=arithmetic),
        *scaled_dot_product_attention_vjp(q, k, v, allowed, g, arithmetic=arithmetic),
    )
    for name, result, budget in zip(("out", "dq", "dk", "dv"), kernel(q, k, v, allowed, g), budgets, strict=True):
        excess = budget.excess(result).max()
        assert excess <= 1, f"{name}: {excess}"
