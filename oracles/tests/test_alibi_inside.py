"""ALiBi inside attention: kernels of float32 in every form of released code stay within the error
limit, and each form with a mistake does not.
"""

import re
from typing import Any

import numpy as np
import pytest

import oracles
from oracles import Conventions
from oracles.ball import Array

F = np.float32
LOG2E = F(1.4426950408889634)


def softmax(u: Array, exp: Any = np.exp) -> tuple[Array, Array]:
    """The weights and the log-sum-exp in the base of `exp`."""
    largest = u.max(-1, keepdims=True)
    e = exp(u - largest)
    total = e.sum(-1, keepdims=True)
    return e / total, (largest + (np.log if exp is np.exp else np.log2)(total))[..., 0]


def products(q: Array, k: Array) -> Array:
    """q·k of each head, in float32."""
    return q @ k.swapaxes(-1, -2)


def natural(q: Array, k: Array, slopes: Array, j_minus_p: Array, scale: np.float32) -> tuple[Array, Array]:
    """s·scale + slope·(j − p), for keys that are not after the query."""
    return softmax(products(q, k) * scale + slopes[:, None, None] * j_minus_p)


def in_base_2(q: Array, k: Array, slopes: Array, j_minus_p: Array, scale: np.float32) -> tuple[Array, Array]:
    """Both summands times log₂e, each by itself."""
    u = products(q, k) * (scale * LOG2E) + (slopes * LOG2E)[:, None, None] * j_minus_p
    weights, lse = softmax(u, np.exp2)
    return weights, lse / LOG2E


def over_the_scale(q: Array, k: Array, slopes: Array, j_minus_p: Array, scale: np.float32) -> tuple[Array, Array]:
    """The slope over the scale, added before the product with the scale, as in flash-attention."""
    u = products(q, k) + (slopes / scale)[:, None, None] * j_minus_p
    weights, lse = softmax(u * (scale * LOG2E), np.exp2)
    return weights, lse / LOG2E


def unconverted(q: Array, k: Array, slopes: Array, j_minus_p: Array, scale: np.float32) -> tuple[Array, Array]:
    """In base 2, with slopes for base e."""
    return in_base_2(q, k, slopes / LOG2E, j_minus_p, scale)


def times_the_scale(q: Array, k: Array, slopes: Array, j_minus_p: Array, scale: np.float32) -> tuple[Array, Array]:
    """Added before the product with the scale, without the division."""
    return over_the_scale(q, k, slopes * scale, j_minus_p, scale)


def in_bfloat16(q: Array, k: Array, slopes: Array, j_minus_p: Array, scale: np.float32) -> tuple[Array, Array]:
    """Slopes with eight significant bits."""
    mantissa, exponent = np.frexp(slopes)
    return natural(q, k, np.ldexp(np.rint(mantissa * 2**8) / 2**8, exponent).astype(F), j_minus_p, scale)


def errors(kernel: Any, seed: int, reference: str = "distance") -> list[float]:
    """The largest error ÷ budget of the output and of the log-sum-exp."""
    rng = np.random.default_rng(seed)
    n_q, n_k, d = (int(n) for n in rng.integers(1, 40, 3))
    q, k, v = (rng.standard_normal(shape).astype(F) for shape in ((4, n_q, d), (4, n_k, d), (4, n_k, 3)))
    slopes, scale = (F(2) ** -rng.uniform(0, 6, 4)).astype(F), F(d) ** F(-0.5)
    p = n_k - 1 + np.arange(n_q)[:, None]
    distance = (np.arange(n_k) - (p if reference == "distance" else 0 * p)).astype(F)
    weights, lse = kernel(q, k, slopes, distance, scale)
    options: dict[str, Any] = {"alibi": slopes, "scale": float(scale), "offset": n_k - 1, "arithmetic": "float32"}
    budgets = oracles.attention(q, k, v, **options, conventions=Conventions(alibi_reference=reference))  # type: ignore[arg-type]
    return [
        float(budget.excess(found).max(initial=0)) for budget, found in zip(budgets, (weights @ v, lse), strict=True)
    ]


@pytest.mark.parametrize("reference", ["distance", "key"])
@pytest.mark.parametrize("kernel", [natural, in_base_2, over_the_scale])
def test_kernels_in_float32_are_within_the_error_limit(kernel: Any, reference: str) -> None:
    assert max(max(errors(kernel, seed, reference)) for seed in range(30)) <= 1


@pytest.mark.parametrize("kernel", [unconverted, times_the_scale, in_bfloat16])
def test_kernels_with_a_mistake_are_not(kernel: Any) -> None:
    assert sum(max(errors(kernel, seed)) > 1 for seed in range(10)) >= 8


def test_a_position_from_0_is_not_the_position_of_the_query() -> None:
    """The key's own reference moves the log-sum-exp alone: flash-attention's under causality."""
    results = []
    for reference in ("distance", "key"):
        conventions = Conventions(alibi_reference=reference)  # type: ignore[arg-type]
        q, v, slopes = np.zeros((1, 3, 1)), np.arange(3.0)[None, :, None], np.array([0.5])
        results.append(oracles.attention(q, q, v, alibi=slopes, causal=True, conventions=conventions))
    (out, lse), (other_out, other_lse) = results
    assert np.abs(out.mid - other_out.mid).max() < 1e-14
    assert np.abs(other_lse.mid - lse.mid - 0.5 * np.arange(3)).max() < 1e-14


@pytest.mark.parametrize(
    ("alibi", "options", "message"),
    [
        (np.ones(3), {}, "alibi has shape (3,), but should be (2,), one for each head of q."),
        (np.array([1.0, np.inf]), {}, "alibi has a slope that is not finite, but all slopes should be finite."),
        (np.ones(2), {"offset": 2**53}, "alibi is given with an offset beyond ±2**52"),
    ],
)
def test_bad_slopes_are_refused_with_a_sentence(alibi: Array, options: dict[str, Any], message: str) -> None:
    x = np.ones((2, 1, 1))
    with pytest.raises(ValueError, match=re.escape(message)):
        oracles.attention(x, x, x, alibi=alibi, **options)


def test_a_distance_beyond_the_range_has_no_error_limit() -> None:
    x = np.ones((1, 1, 1))
    (out, _), (near, _) = (
        oracles.attention(x, x, x, alibi=np.array([2.0**-14]), offset=offset, arithmetic="float16-eager")
        for offset in (2**17, 2**10)
    )
    assert np.isinf(out.rad).all()
    assert np.isfinite(near.rad).all()
