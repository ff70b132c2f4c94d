"""What a review of the error analysis found of rotations and their frequencies: honest kernels that left a budget, with their inputs."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from oracles.conventions import Conventions
from oracles.enclosure import Enclosure
from oracles.formats import BINARY16, FLOAT32, Angle
from oracles.frequencies import rotary_frequencies
from oracles.rotary import rope, rope_vjp
from oracles.rotary_parts import rotary_tables

Array = Any
f32 = np.float32
PAIR = Conventions(yarn_upper="last_pair")
HALF_ANGLES = replace(FLOAT32, name="angles in binary16", angle=Angle(frequency=2.0**-11, product=2.0**-11, table=BINARY16))

# -- Frequencies by kinds ----------------------------------------------------------------------------------------------------------------


def yarn(r: int, most: int, fast: float, slow: float, truncate: bool = True, upper: int | None = None, of: Any = f32) -> Array:
    """Frequencies of base 10000 and factor 4 as transformers has them, every operation rounded, in another order in 16 bits."""

    def corr(turns: float) -> Any:
        return of(r) * np.log(of(most) / (of(turns) * of(2) * of(math.pi))) / (of(2) * np.log(of(10000)))

    low, high = corr(fast), corr(slow)
    if truncate:
        low, high = np.floor(low), np.ceil(high)
    low, high = max(low, of(0)), min(high, of(r - 1 if upper is None else upper))
    if low == high:
        high = of(high + of(0.001))
    with np.errstate(divide="ignore", invalid="ignore"):
        ramp = np.clip((np.arange(r // 2, dtype=of) - low) / of(high - low), of(0), of(1))
    f = of(1) / of(10000) ** (np.arange(0, r, 2, dtype=of) / of(r))
    return f / of(4) * ramp + f * (of(1) - ramp)


@pytest.mark.parametrize(
    ("most", "fast", "slow", "truncate", "upper"),
    [
        pytest.param(1001, 2, 1001 / (2 * math.pi) * (1 - 1e-9), False, None, id="the high end comes below 0"),
        pytest.param(4096, 2, 4096 / (2 * math.pi) * 10 * (1 - 1e-9), True, None, id="a ceiling comes to -1"),
        pytest.param(10**9, 10**9 / (2 * math.pi) / 1e8 * (1 + 1e-9), 0.5, True, None, id="a floor comes to r"),
        pytest.param(10**6, 10**6 / (2 * math.pi) / 1e4 * (1 + 1e-9), 0.5, True, 3, id="a floor comes to r/2"),
    ],
)
def test_ends_of_a_ramp_that_roundings_make_cross(most: int, fast: float, slow: float, truncate: bool, upper: int | None) -> None:
    """Each end is cut on its own side alone: the ramp runs backwards, and 1 before it is 0 after it."""
    fast, slow = (fast * slow, slow) if slow > 1 else (fast, fast * slow)
    told = {"factor": 4.0, "original_max_position_embeddings": most, "beta_fast": fast, "beta_slow": slow, "truncate": truncate}
    budget, _ = rotary_frequencies("yarn", 8, **told, arithmetic="float32", conventions=PAIR if upper else None)
    out = yarn(8, most, fast, slow, truncate, upper)
    assert (budget.excess(out) <= 1).all()
    assert max(abs(out / budget.mid - 1)) > 0.7
    known, _ = rotary_frequencies("yarn", 8, **told, arithmetic="float64", conventions=PAIR if upper else None)
    assert (known.rad < 1e-10 * known.mid).all()


def test_ends_that_meet_at_one_clamp_make_a_step() -> None:
    """Where no rounding makes them cross, as the ceiling of −1/2 and 0, frequencies are as well known as without a ramp."""
    told = {"factor": 4.0, "original_max_position_embeddings": 4096, "beta_fast": 4096.0, "beta_slow": 4096 / (2 * math.pi) * 3.0}
    budget, _ = rotary_frequencies("yarn", 8, **told, arithmetic="float32")
    assert (budget.rad < 1e-5 * budget.mid).all()
    assert (budget.excess(yarn(8, 4096, told["beta_fast"], told["beta_slow"])) <= 1).all()


def test_a_width_of_a_thousandth_that_is_lost_in_the_end_of_the_ramp() -> None:
    """31 + 0.001 is 31 in binary16: pair 31 is 0/0, and the others are known; so are all in binary32."""
    fast = 2048 / (2 * math.pi) / 10000 ** (63 / 64)
    told = {"factor": 4.0, "original_max_position_embeddings": 2048, "beta_fast": fast, "beta_slow": fast / 2, "conventions": PAIR}
    budget, _ = rotary_frequencies("yarn", 64, **told, arithmetic=HALF_ANGLES)
    out = yarn(64, 2048, fast, fast / 2, upper=31, of=np.float16)
    assert np.isnan(out[31])
    assert (budget.excess(out)[[0, 1, 2, 31]] <= 1).all()
    assert np.isfinite(budget.rad).tolist() == [True] * 31 + [False]
    assert np.isfinite(rotary_frequencies("yarn", 64, **told, arithmetic="float32")[0].rad).all()


# -- Rotations ---------------------------------------------------------------------------------------------------------------------------

FLUSHING = replace(FLOAT32, name="float32 that flushes", flush_to_zero=True)


def turned(x: Array, theta: float, factor: float, first: bool, of: Any, stored: Any) -> Array:
    """x rotated by transformers' code in one format, multiplied by a factor, before or after, in another."""
    cos, sin = (of(stored(f32(function(theta)))) for function in (math.cos, math.sin))
    x = of((stored(x) * stored(factor)).astype(stored)) if first else of(x)
    a, b = x[..., 0::2], x[..., 1::2]
    out = np.stack([of(a * cos) - of(b * sin), of(b * cos) + of(a * sin)], axis=-1).reshape(x.shape).astype(stored)
    return out if first else out * stored(factor)


@pytest.mark.parametrize("factor", [8.0, 1000.0])
@pytest.mark.parametrize("back", [False, True])
def test_an_attention_factor_multiplies_what_has_underflowed(factor: float, back: bool) -> None:
    """Products of subnormal numbers are rounded to multiples of 2⁻¹⁴⁹, and then multiplied."""
    x = np.array([[3.0, 1.0, 5.0, 7.0]]) * 2.0**-149
    told = {"positions": np.array([1]), "inv_freq": np.array([1.0, 1.0]), "attention_factor": factor, "arithmetic": "float32"}
    out = turned(x, -1.0 if back else 1.0, factor, False, f32, f32)
    budget = rope_vjp(x, x, **told) if back else rope(x, **told)
    assert (budget.excess(out) <= 1).all()
    assert (budget.rad < 6 * factor * 2.0**-149).all()
    assert (rope(0 * x, **told).rad == 0).all()
    assert (rope(x, **told | {"attention_factor": 1.0}).rad < 4 * 2.0**-149).all()


@pytest.mark.parametrize("factor", [0.25, 0.5, 1.25, 1.5])
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("theta", [0.7, 0.78, 2.35])
def test_what_an_attention_factor_multiplies_is_stored_in_16_bits(factor: float, first: bool, theta: float) -> None:
    """Where it is subnormal there, its rounding is no relative one; rotations are in binary32."""
    x = np.random.default_rng(0).integers(1, 40, (20000, 2)) * 2.0**-24
    out = turned(x, theta, factor, first, f32, np.float16)
    told = {"positions": np.ones(len(x), int), "inv_freq": np.array([theta]), "attention_factor": factor}
    assert (rope(x, **told, arithmetic="float16").excess(out) <= 1).all()


def test_an_attention_factor_that_may_be_1_may_be_another() -> None:
    """Half of the smallest number of binary16 is stored as 0, before it is rotated by nothing."""
    model = replace(FLOAT32, name="tables in binary16", angle=replace(FLOAT32.angle, table=BINARY16))
    factor = Enclosure(np.array([0.75]), np.array([0.25]))
    assert (rope(np.array([[2.0**-24, 0.0]]), 0, attention_factor=factor, arithmetic=model).excess(np.zeros((1, 2))) <= 1).all()


def test_what_an_attention_factor_multiplies_overflows_in_16_bits() -> None:
    """60000 · 1.125 is beyond binary16, and the cosine of π/4 times as much is not."""
    told = {"positions": np.array([1]), "inv_freq": np.array([0.75]), "attention_factor": 1.125, "arithmetic": "float16"}
    x = np.full((1, 2), 60000.0)
    with np.errstate(over="ignore", invalid="ignore"):
        assert (rope(x, **told).excess(turned(x, 0.75, 1.125, True, f32, np.float16)) <= 1).all()
    assert np.isfinite(rope(x / 4, **told).rad).all()


def test_a_cosine_above_1_may_overflow_before_an_attention_factor_below_1() -> None:
    """1 + 2⁻²³ is within `trig_absolute` of a cosine of nearly 1."""
    x, cos = np.array([[np.finfo(f32).max, 0.0]]), f32(1 + 2.0**-23)
    told = {"positions": np.array([1]), "inv_freq": np.array([2.0**-20]), "arithmetic": "float32"}
    assert (rotary_tables(np.array([1]), told["inv_freq"], arithmetic="float32")[0].excess(np.full((1, 2), cos)) <= 1).all()
    with np.errstate(over="ignore"):
        out = np.array([[f32(x[0, 0]) * cos * f32(0.5), f32(x[0, 0]) * f32(2.0**-20) * f32(0.5)]])
    assert (rope(x, **told, attention_factor=0.5).excess(out) <= 1).all()
    assert np.isfinite(rope(x / 2, **told, attention_factor=0.5).rad).all()


@pytest.mark.parametrize("way", ["partial", "odd"])
@pytest.mark.parametrize("back", [False, True])
def test_channels_that_pass_are_copied_as_elsewhere(way: str, back: bool) -> None:
    """They may be flushed, and are rounded to a narrower output."""
    x = np.array([[1.0, 2.0, 2.0**-130, float(f32(0.1)), 1e5]])
    x = x if way == "partial" else x[:, :3]
    told: dict[str, Any] = {"rotary_dim": 2} if way == "partial" else {"conventions": Conventions(odd_lane="passthrough")}

    def budget(model: Any) -> Any:
        return rope_vjp(x, x, 0, **told, arithmetic=model) if back else rope(x, 0, **told, arithmetic=model)

    assert (budget(FLUSHING).excess(np.where(np.abs(x) < 2.0**-126, 0, x)) <= 1).all()
    assert (budget(FLUSHING).rad[0, 3:] == 0).all()
    assert (budget(FLOAT32).rad[0, 2:] == 0).all()
    with np.errstate(over="ignore"):
        out = x.astype(np.float16)
    assert (budget(replace(FLOAT32, name="narrow output", output=BINARY16)).excess(out) <= 1).all()
