"""Dropout with a given mask: PyTorch's operators stay within the error limits of the output and of all
gradients, and a wrong factor does not. Bad arguments are refused.
"""

import re
from typing import Any

import numpy as np
import pytest
import torch

import oracles
from oracles import Conventions, Enclosure


def drawn(seed: int) -> tuple[list[Any], dict[str, Any]]:
    """q, k, v and the cotangents in float32, and a dropout."""
    rng = np.random.default_rng(seed)
    n_q, n_k = (int(n) for n in rng.integers(2, 12, 2))
    shapes = ((4, n_q, 6), (2, n_k, 6), (2, n_k, 3), (4, n_q, 3), (4, n_q))
    p = float(rng.choice([0.0, 0.1, 0.5, 0.9]))
    mask = rng.random((4, n_q, n_k) if seed % 2 else (n_q, n_k)) >= p
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes], {"dropout_mask": mask, "dropout": p}


def written_out(inputs: list[Any], mask: Any, factor: float) -> list[Any]:
    """The output, the log-sum-exp, dq, dk and dv by PyTorch's operators and its autograd."""
    q, k, v = leaves = [torch.tensor(x, requires_grad=True) for x in inputs[:3]]
    s = q @ k.repeat_interleave(2, 0).mT * q.shape[-1] ** -0.5
    out = (torch.softmax(s, -1) * torch.tensor(mask) * np.float32(factor)) @ v.repeat_interleave(2, 0)
    lse = torch.logsumexp(s, -1)
    ((out * torch.tensor(inputs[3])).sum() + (lse * torch.tensor(inputs[4])).sum()).backward()  # type: ignore[no-untyped-call]
    return [out, lse, *(x.grad for x in leaves)]


def excesses(seed: int, factor: Any) -> list[float]:
    """Error ÷ budget of each result, for a factor of the kept weights that is a function of p."""
    inputs, options = drawn(seed)
    budgets: list[Enclosure | None] = [*oracles.attention(*inputs[:3], **options, arithmetic="float32")]
    budgets += oracles.attention_vjp(*inputs, **options, arithmetic="float32")[:3]
    found = written_out(inputs, options["dropout_mask"], factor(options["dropout"]))
    return [
        float(budget.excess(x.detach().double().numpy()).max())
        for budget, x in zip(budgets, found, strict=True)
        if budget is not None
    ]


def test_kernels_in_float32_are_within_the_error_limit() -> None:
    assert max(max(excesses(seed, lambda p: 1 / (1 - p))) for seed in range(16)) <= 1


def test_a_factor_that_is_wrong_in_its_last_bits_is_found() -> None:
    assert max(max(excesses(seed, lambda p: (1 + 2.0**-14) / (1 - p))) for seed in range(16)) > 1


@pytest.mark.parametrize("options", [{}, {"causal": True, "sink": np.array([0.5, -1.0])}, {"softcap": 2.0}])
def test_ball_arithmetic_agrees(options: dict[str, Any]) -> None:
    inputs, dropout = drawn(3)
    q, k, v, g, of_lse = (x[:2].astype(np.float64) for x in inputs)
    given = options | {"dropout_mask": dropout["dropout_mask"][:2], "dropout": 0.3}
    fast, exact = (
        [
            *oracles.attention(q, k, v, **given, method=method),
            *(e for e in oracles.attention_vjp(q, k, v, g, of_lse, **given, method=method) if e is not None),
        ]
        for method in ("fast", "arb")
    )
    for one, other in zip(fast, exact, strict=True):
        assert (np.abs(one.mid - other.mid) <= one.rad + other.rad).all()
        assert one.rad.max() < 1e-12


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dropout": 1.0, "dropout_mask": np.ones((1, 1), bool)}, "dropout=1.0, but should be at least 0"),
        ({"dropout": 0.5}, "dropout=0.5 is given without dropout_mask, but should come with it."),
        ({"dropout_mask": np.ones((2, 1), bool)}, "dropout_mask has shape (2, 1), but should broadcast to"),
        (
            {"dropout_mask": np.ones((1, 1), bool), "conventions": Conventions(dead_rows="uniform")},
            "dropout_mask is given, but should not be: Conventions.dead_rows is 'uniform'.",
        ),
    ],
)
def test_bad_arguments_are_refused_with_a_sentence(options: dict[str, Any], message: str) -> None:
    x = np.ones((1, 1, 1))
    with pytest.raises(ValueError, match=re.escape(message)):
        oracles.attention(x, x, x, **options)
