"""What a review of the error analysis found of rotations and their frequencies: honest kernels that
left a budget, with their inputs.
"""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from oracles.conventions import Conventions
from oracles.enclosure import Enclosure
from oracles.formats import BINARY16, BINARY64, FLOAT32, Angle
from oracles.rotary.embeddings import rope, rope_vjp
from oracles.rotary.frequencies import rotary_frequencies
from oracles.rotary.tables import inv_freq, rope_angles, rope_tables, rotary_tables

Array = Any
f32 = np.float32
PAIR = Conventions(yarn_upper="last_pair")
HALF_ANGLES = replace(
    FLOAT32, name="angles in binary16", angle=Angle(frequency=2.0**-11, product=2.0**-11, table=BINARY16)
)

# -- Frequencies by kinds --------------------------------------------------------------------------


def yarn(
    r: int, most: int, fast: float, slow: float, truncate: bool = True, upper: int | None = None, of: Any = f32
) -> Array:
    """Frequencies of base 10000 and factor 4 as transformers has them, every operation rounded, in
    another order in 16 bits.
    """

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
def test_ends_of_a_ramp_that_roundings_make_cross(
    most: int, fast: float, slow: float, truncate: bool, upper: int | None
) -> None:
    """Each end is cut on its own side alone: the ramp runs backwards, and 1 before it is 0 after it."""
    fast, slow = (fast * slow, slow) if slow > 1 else (fast, fast * slow)
    told = {
        "factor": 4.0,
        "original_max_position_embeddings": most,
        "beta_fast": fast,
        "beta_slow": slow,
        "truncate": truncate,
    }
    budget, _ = rotary_frequencies("yarn", 8, **told, arithmetic="float32", conventions=PAIR if upper else None)
    out = yarn(8, most, fast, slow, truncate, upper)
    assert (budget.excess(out) <= 1).all()
    assert max(abs(out / budget.mid - 1)) > 0.7
    known, _ = rotary_frequencies("yarn", 8, **told, arithmetic="float64", conventions=PAIR if upper else None)
    assert (known.rad < 1e-10 * known.mid).all()


def test_ends_that_meet_at_one_clamp_make_a_step() -> None:
    """Where no rounding makes them cross, as the ceiling of −1/2 and 0, frequencies are as well
    known as without a ramp.
    """
    told = {
        "factor": 4.0,
        "original_max_position_embeddings": 4096,
        "beta_fast": 4096.0,
        "beta_slow": 4096 / (2 * math.pi) * 3.0,
    }
    budget, _ = rotary_frequencies("yarn", 8, **told, arithmetic="float32")
    assert (budget.rad < 1e-5 * budget.mid).all()
    assert (budget.excess(yarn(8, 4096, told["beta_fast"], told["beta_slow"])) <= 1).all()


def test_a_width_of_a_thousandth_that_is_lost_in_the_end_of_the_ramp() -> None:
    """31 + 0.001 is 31 in binary16: pair 31 is 0/0, and the others are known; so are all in binary32."""
    fast = 2048 / (2 * math.pi) / 10000 ** (63 / 64)
    told = {
        "factor": 4.0,
        "original_max_position_embeddings": 2048,
        "beta_fast": fast,
        "beta_slow": fast / 2,
        "conventions": PAIR,
    }
    budget, _ = rotary_frequencies("yarn", 64, **told, arithmetic=HALF_ANGLES)
    out = yarn(64, 2048, fast, fast / 2, upper=31, of=np.float16)
    assert np.isnan(out[31])
    assert (budget.excess(out)[[0, 1, 2, 31]] <= 1).all()
    assert np.isfinite(budget.rad).tolist() == [True] * 31 + [False]
    assert np.isfinite(rotary_frequencies("yarn", 64, **told, arithmetic="float32")[0].rad).all()


def blended(kind: str, of: str, s: float) -> Array:
    """Frequencies of 64 channels in binary32, by terms that cancel where s < 1."""
    f = f32(1) / f32(10000) ** (np.arange(0, 64, 2, dtype=f32) / f32(64))
    if kind == "yarn":  # from pair 10 to 23
        keep = f32(1) - np.clip((np.arange(32, dtype=f32) - f32(10)) / f32(13), f32(0), f32(1))
    else:
        keep = np.clip((f32(4096) * f / f32(2 * math.pi) - f32(1)) / f32(3), f32(0), f32(1))
    kept = {"difference": keep * (f - f / f32(s)), "slope": f * (keep * (f32(1) - f32(1) / f32(s)))}
    return f / f32(s) + kept[of]


@pytest.mark.parametrize("kind", ["yarn", "llama3"])
@pytest.mark.parametrize("of", ["difference", "slope"])
@pytest.mark.parametrize("s", [0.03, 0.001])
def test_a_blend_that_cancels_where_the_factor_is_below_1(kind: str, of: str, s: float) -> None:
    told = {"factor": s, "original_max_position_embeddings": 4096, "arithmetic": "float32"}
    told |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0} if kind == "llama3" else {}
    budget, _ = rotary_frequencies(kind, 64, **told)
    out = blended(kind, of, s)
    assert (budget.excess(out) <= 1).all()
    assert (budget.rad[-1] < 60 * 2.0**-24 * budget.mid[-1]).all()


def test_a_power_that_overflows_before_a_small_base_multiplies_it() -> None:
    """10²¹ squared is beyond binary32, and 10³² is not: the base is ∞, and frequencies 0, but that
    of e = 0, which may be NaN.
    """
    told = {"base": 1e-10, "factor": 1e15, "max_position_embeddings": 1, "seq_len": 10**6}
    budget, _ = rotary_frequencies("dynamic", 4, **told, arithmetic="float32")
    with np.errstate(over="ignore"):
        base = f32(1e-10) * (f32(1e15) * f32(10**6) - f32(1e15)) ** f32(2)
        outs = [f32(1) / base ** np.array([0, 0.5], dtype=f32)]
    with np.errstate(invalid="ignore"):
        outs.append(np.exp(-np.array([0, 0.5], dtype=f32) * np.log(base)))
    assert [out[1] for out in outs] == [0, 0]
    assert all((budget.excess(out) <= 1).all() for out in outs)
    for known in (told | {"factor": 1e3}, told | {"factor": 2.0, "seq_len": None, "base": 1e-15}):
        assert np.isfinite(rotary_frequencies("dynamic", 4, **known, arithmetic="float32")[0].rad).all()


@pytest.mark.parametrize("base", [1e12, 1.8e19])
@pytest.mark.parametrize("upwards", [False, True])
def test_the_logarithm_of_a_base_that_is_computed(base: float, upwards: bool) -> None:
    """4 ulp of ln base', where an exponential counts one rounding."""
    told = {"base": base, "factor": 2.0, "max_position_embeddings": 2048, "seq_len": 4096}
    budget, _ = rotary_frequencies("dynamic", 128, **told, arithmetic="float32")
    grown = f32(base) * (f32(2) * f32(4096) / f32(2048) - (f32(2) - f32(1))) ** f32(128 / 126)
    logarithm = f32(math.log(float(grown)))
    logarithm += (4 if upwards else -4) * np.spacing(logarithm)
    out = np.exp(-(np.arange(0, 128, 2, dtype=f32) / f32(128) * logarithm).astype(float)).astype(f32)
    assert (budget.excess(out) <= 1).all()


# -- Frequencies and angles of the conventions -----------------------------------------------------


@pytest.mark.parametrize(("base", "scale"), [(1e39, 1.0), (1e30, 1e39)], ids=["base", "scale"])
@pytest.mark.parametrize("by", ["power", "exponential"])
def test_a_base_or_a_scale_beyond_the_range(base: float, scale: float, by: str) -> None:
    """binary32 holds 10³⁹ as ∞: its powers are 0, but that of e = 0 is NaN by an exponential of
    0·ln ∞; what it scales is ∞.
    """
    told = {"arithmetic": "float32", "conventions": Conventions(rope_base=base, rope_scale=scale, rope_pairing="half")}
    with np.errstate(over="ignore", invalid="ignore"):
        e = np.arange(0, 8, 2, dtype=f32) / f32(8)
        f = f32(scale) * (1 / f32(base) ** e if by == "power" else np.exp(-e * np.log(f32(base))))
        theta = np.arange(3, dtype=f32)[:, None] * f
        cos, sin = (np.concatenate([part, part], axis=1) for part in (np.cos(theta), np.sin(theta)))
        found = [f, theta, cos, sin, cos - sin * np.repeat([1, -1], 4), cos + sin * np.repeat([1, -1], 4)]
    x = np.ones((3, 8))
    budgets = [
        inv_freq(8, **told),
        rope_angles(3, 8, **told),
        *rope_tables(3, 8, **told),
        rope(x, **told),
        rope_vjp(x, x, **told),
    ]
    for out, budget in zip(found, budgets, strict=True):
        assert (budget.excess(out) <= 1).all()
    held = told | {"conventions": Conventions(rope_base=min(base, 3e38), rope_scale=min(scale, 3e38))}
    assert np.isfinite(inv_freq(8, **held).rad).all()
    assert np.isfinite(inv_freq(8, **told | {"arithmetic": "float64"}).rad).all()


def test_a_frequency_of_a_finer_precision_is_rounded_before_it_is_multiplied() -> None:
    """Frequencies in binary64, and all the rest in binary32."""
    model = replace(
        FLOAT32,
        name="finer frequencies",
        output=BINARY64,
        angle=Angle(frequency=2.0**-53, product=2.0**-24, table=FLOAT32.output),
    )
    f, p, told = 10000.0 ** (-np.arange(0, 128, 2) / 128), np.arange(2**20 - 64, 2**20), {"arithmetic": model}
    theta = (p[:, None].astype(f32) * f.astype(f32)).astype(float)
    cos, sin = (np.repeat(part, 2, axis=1) for part in (np.cos(theta), np.sin(theta)))
    assert (rope_angles(64, 128, p[0], **told).excess(theta) <= 1).all()
    for tables in (rope_tables(64, 128, p[0], **told), rotary_tables(p, f, **told)):
        for out, budget in zip((cos, sin), tables, strict=True):
            assert (budget.excess(out) <= 1).all()
    assert not rope_angles(64, 128, p[0], arithmetic="float64").contains(theta).all()


def power_of_a_rounded_base() -> tuple[float, Array]:
    """A base nearly halfway between numbers of binary32, and a power 4 ulp below that of the lower
    one, for pair 127 of 128.
    """
    lower = 1.0003051757812500
    power = f32(math.exp(254 / 256 * math.log(lower)) - 3.999 * 2.0**-23)
    return lower + 0.49999 * 2.0**-23, f32(1) / power


def test_a_base_that_is_no_number_of_the_format_is_rounded_on_the_way_in() -> None:
    base, f = power_of_a_rounded_base()
    for budget in (
        rotary_frequencies("default", 256, base=base, arithmetic="float32")[0],
        inv_freq(256, arithmetic="float32", conventions=Conventions(rope_base=base)),
    ):
        assert budget.excess(np.where(np.arange(128) == 127, f, budget.mid))[127] <= 1
    given, held = (
        inv_freq(256, arithmetic="float32", conventions=Conventions(rope_base=float(b))).rad[127]
        for b in (base, f32(base))
    )
    assert 1.05 < given / held < 1.2


# -- Rotations -------------------------------------------------------------------------------------

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
    told = {
        "positions": np.array([1]),
        "inv_freq": np.array([1.0, 1.0]),
        "attention_factor": factor,
        "arithmetic": "float32",
    }
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
    factor = Enclosure(np.array(0.75), np.array(0.25))
    assert (
        rope(np.array([[2.0**-24, 0.0]]), 0, attention_factor=factor, arithmetic=model).excess(np.zeros((1, 2))) <= 1
    ).all()


def test_what_an_attention_factor_multiplies_overflows_in_16_bits() -> None:
    """60000 · 1.125 is beyond binary16, and the cosine of π/4 times as much is not."""
    told = {
        "positions": np.array([1]),
        "inv_freq": np.array([0.75]),
        "attention_factor": 1.125,
        "arithmetic": "float16",
    }
    x = np.full((1, 2), 60000.0)
    with np.errstate(over="ignore", invalid="ignore"):
        assert (rope(x, **told).excess(turned(x, 0.75, 1.125, True, f32, np.float16)) <= 1).all()
    assert np.isfinite(rope(x / 4, **told).rad).all()


def test_a_cosine_above_1_may_overflow_before_an_attention_factor_below_1() -> None:
    """1 + 2⁻²³ is within `trig_absolute` of a cosine of nearly 1."""
    x, cos = np.array([[np.finfo(f32).max, 0.0]]), f32(1 + 2.0**-23)
    told = {"positions": np.array([1]), "inv_freq": np.array([2.0**-20]), "arithmetic": "float32"}
    assert (
        rotary_tables(np.array([1]), told["inv_freq"], arithmetic="float32")[0].excess(np.full((1, 2), cos)) <= 1
    ).all()
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
    told: dict[str, Any] = (
        {"rotary_dim": 2} if way == "partial" else {"conventions": Conventions(odd_lane="passthrough")}
    )

    def budget(model: Any) -> Any:
        return rope_vjp(x, x, 0, **told, arithmetic=model) if back else rope(x, 0, **told, arithmetic=model)

    assert (budget(FLUSHING).excess(np.where(np.abs(x) < 2.0**-126, 0, x)) <= 1).all()
    assert (budget(FLUSHING).rad[0, 3:] == 0).all()
    assert (budget(FLOAT32).rad[0, 2:] == 0).all()
    with np.errstate(over="ignore"):
        out = x.astype(np.float16)
    assert (budget(replace(FLOAT32, name="narrow output", output=BINARY16)).excess(out) <= 1).all()
