"""The hyperbolic tangents that presets state, each put to what it stands for."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import oracles
from oracles.ball import Array

ONE = np.float32(1)


def samples(seed: int) -> Any:
    """float32 numbers of every size, and many where tanh is neither x nor 1."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(0, 0x7F800000, 1 << 18, dtype=np.uint32).view(np.float32)
    return np.concatenate([sizes, rng.uniform(0, 12, 1 << 19), 2.0 ** rng.uniform(-30, 4, 1 << 18)]).astype(np.float32)


def stated(name: str) -> tuple[float, float]:
    """The relative and the absolute error that a preset states."""
    tanh = oracles.preset(f"float32-{name}").tanh
    assert tanh is not None
    return tanh.relative, tanh.flush


@pytest.mark.parametrize("step", [1, 2, -1], ids=["contiguous", "strided", "backwards"])
@pytest.mark.parametrize("sign", [1, -1])
def test_torchs_tanh_is_within_what_is_stated_of_it(step: int, sign: int) -> None:
    relative, absolute = stated("torch-tanh")
    assert absolute == 0
    x = (sign * samples(0))[::step]
    found = (
        torch.tanh(torch.from_numpy(x.copy()) if step < 0 else torch.from_numpy(samples(0) * sign)[::step])
        .double()
        .numpy()
    )
    exact = np.tanh(x.astype(np.float64))
    assert (np.abs(found - exact) <= relative * np.abs(exact) + 2.0**-149).all()


def wrong_exp(x: Any) -> Any:
    """exp in float32, off by almost as much as float32 says, upwards and downwards by turns."""
    off = np.where(np.arange(x.size).reshape(x.shape) % 2, 1, -1) * (2.0**-21 - 2.0**-24)
    return (np.exp(x.astype(np.float64)) * (1 + off)).astype(np.float32)


def moved(exp: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """exp of each number at the place of its neighbour, where `wrong_exp` errs in the other direction."""
    return lambda x: np.roll(exp(np.roll(x, 1)), -1)


FORMS: dict[str, Callable[[Any, Any], Any]] = {
    "2σ(2x) − 1": lambda x, exp: 2 * (ONE / (ONE + exp(-2 * x))) - ONE,
    "1 − 2/(E + 1)": lambda x, exp: ONE - 2 / (exp(2 * x) + ONE),
    "(E − 1)/(E + 1)": lambda x, exp: (exp(2 * x) - ONE) / (exp(2 * x) + ONE),
    "(1 − E)/(1 + E)": lambda x, exp: np.copysign((ONE - exp(-2 * np.abs(x))) / (ONE + exp(-2 * np.abs(x))), x),
    "(E₁ − E₂)/(E₁ + E₂)": lambda x, exp: (exp(x) - moved(exp)(-x)) / (exp(x) + moved(exp)(-x)),
}


@pytest.mark.parametrize("exp", [np.exp, wrong_exp])
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("form", FORMS)
def test_tanh_by_exponentials_is_within_an_absolute_error_only(form: str, sign: int, exp: Any) -> None:
    """In every form, with an exponential as wrong as float32 may have; no relative error would do,
    and a tenth of the absolute neither.
    """
    relative, absolute = stated("tanh-by-exponentials")
    assert relative == 0
    x = sign * samples(1)
    x = x[np.abs(x) < 40]  # beyond which exp(2x) overflows
    found, exact = FORMS[form](x, exp), np.tanh(x.astype(np.float64))
    assert found.dtype == np.float32
    off = np.abs(found - exact)
    assert off.max() <= absolute
    assert off.max() > absolute / 10
    assert (off > 2.0**-11 * np.abs(exact)).any()


def test_two_exponentials_of_opposite_errors_need_all_of_their_error() -> None:
    """Those of 16 bits, 2⁻¹⁸ off: half of that, as one exponential makes, would refuse them."""
    stated = oracles.preset("bfloat16-tanh-by-exponentials")
    error, tanh = stated.exp.relative, stated.tanh
    assert tanh is not None
    x = np.float32(2.0**-10)
    up, down = (np.float32(np.exp(float(y)) * (1 + e)) for y, e in ((x, error), (-x, -error)))
    found = float((up - down) / (up + down))
    assert error / 2 + 6 * 2.0**-24 < abs(found - np.tanh(float(x))) <= tanh.flush


def capped(tanh: Callable[[Any], Any], q: Array, k: Array, v: Array, cap: float) -> list[Array]:
    """The output and the gradients for cotangents of 1, of attention with a cap in float32 but for
    its tanh's own error.
    """
    q, k, v = (torch.tensor(x, dtype=torch.float32) for x in (q, k, v))
    s = q @ k.mT * q.shape[-1] ** -0.5
    turned = torch.from_numpy(tanh((s / np.float32(cap)).numpy()).astype(np.float32))
    weights = torch.softmax(cap * turned, -1)
    ds = (
        weights
        * ((t := torch.ones_like(weights @ v) @ v.mT) - (weights * t).sum(-1, keepdim=True))
        * (1 - turned * turned)
        * q.shape[-1] ** -0.5
    )
    return [x.double().numpy() for x in (weights @ v, ds @ k, ds.mT @ q)]


KERNELS: dict[str, Callable[[Any], Any]] = {
    "torch-tanh": lambda x: torch.tanh(torch.from_numpy(x)).numpy(),
    "tanh-by-exponentials": lambda x: FORMS["2σ(2x) − 1"](x, np.exp),
    "approximate-tanh": lambda x: (
        np.tanh(x) * np.where(np.arange(x.size).reshape(x.shape) % 2, 1 + 2.0**-11.01, 1 - 2.0**-11.01)
    ),
}


@pytest.mark.parametrize(
    ("name", "cap"), [("torch-tanh", 2.0), ("tanh-by-exponentials", 500.0), ("approximate-tanh", 2.0)]
)
def test_a_cap_is_within_the_budget_that_states_its_tanh_and_not_within_another(name: str, cap: float) -> None:
    """PyTorch's is within the one that states nothing.  (CUDA's own is not at hand: one as wrong as
    NVIDIA says stands in for it.)
    """
    rng = np.random.default_rng(3)
    q, k, v = (rng.standard_normal((1, n, 4)).astype(np.float32).astype(np.float64) for n in (12, 16, 16))
    found = capped(KERNELS[name], q, k, v, cap)

    def excess(arithmetic: str) -> float:
        out, _ = oracles.attention(q, k, v, softcap=cap, arithmetic=arithmetic)
        dq, dk, *_ = oracles.attention_vjp(q, k, v, np.ones(out.mid.shape), softcap=cap, arithmetic=arithmetic)
        return max(float(e.excess(x).max()) for e, x in zip((out, dq, dk), found, strict=True))

    assert excess(f"float32-{name}") <= 1
    assert (excess("float32") <= 1) == (name == "torch-tanh")


def test_a_tanh_may_follow_the_name_of_any_preset() -> None:
    assert oracles.preset("bfloat16-tensor-core-approximate-tanh").tanh == oracles.formats.Elementary(
        2.0**-11, 0.0, 0.0
    )
    assert oracles.preset("float64-tanh-by-exponentials").tanh is not None
    with pytest.raises(ValueError, match="arithmetic='float32-fast-tanh', but should be one of"):
        oracles.preset("float32-fast-tanh")
