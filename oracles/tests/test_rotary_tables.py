"""Frequencies, angles and tables of rotary embeddings: radii contain the exact value, budgets
contain correct kernels.

The judge is ball arithmetic by powers and radians, where the oracle takes exponentials of
logarithms and quarter turns; mpmath is the second witness.
"""

from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
import mpmath
import numpy as np
import pytest
import torch
from flint import arb, ctx
from hypothesis import given, settings

import oracles
from oracles import BINARY64, FLOAT32, FLOAT64, Arithmetic, Conventions
from oracles.error_analysis import angle as angle_module

SETTINGS = settings(max_examples=60)
ULP = 2.0**-52
BITS = 4500  # enough for 2⁵³·10³⁰⁸ quarter turns and for the smallest subnormal number
SCALES = [1.0, 0.25, 1 / 3, 7.3, 1e-3, 2.0**40, 1e300, 1e-300, 5e-324]
BASES = [10000.0, 500000.0, 1.0, 1 + 2.0**-52, 1.7e308]
POSITIONS = st.one_of(
    st.integers(0, 2**20 - 3), st.sampled_from([0, 1, 2**16 - 1, 2**20 - 3]), st.integers(2**20, 2**40)
)
DIMS = st.one_of(st.integers(0, 9), st.sampled_from([2, 64, 127, 128]))
LANES = [{"rope_pairing": "half"}, {"odd_lane": "literal"}, {"odd_lane": "passthrough"}]
READINGS = st.sampled_from(
    [
        Conventions(rope_base=base, rope_scale=scale, **lanes)  # type: ignore[arg-type]
        for base in BASES
        for scale in SCALES
        for lanes in LANES
    ]
)
METHODS = st.sampled_from(["fast", "arb"])


def even_if_half(dim: int, reading: Conventions) -> int:
    return dim - dim % 2 if reading.rope_pairing == "half" else dim


def frequency(i: int, dim: int, reading: Conventions) -> arb:
    return arb(reading.rope_scale) * (arb(reading.rope_base) ** (arb(-2 * i) / dim))


def encloses(enclosure: oracles.Enclosure, exact: Any) -> bool:
    """Whether every exact value, `exact(*index)` in so many bits, is within the radius."""
    with ctx.workprec(BITS):
        return all(
            (exact(*i) - arb(float(m))).abs_upper() <= arb(float(enclosure.rad[i]))
            for i, m in np.ndenumerate(enclosure.mid)
        )


@SETTINGS
@given(DIMS, READINGS, METHODS)
def test_frequencies_contain_the_exact_value(dim: int, reading: Conventions, method: Any) -> None:
    dim = even_if_half(dim, reading)
    found = oracles.inv_freq(dim, conventions=reading, method=method)
    assert found.mid.shape == (-(-dim // 2),)
    assert encloses(found, lambda i: frequency(i, dim, reading))
    assert (found.rad <= ULP * np.abs(found.mid) + 5e-324).all()


@SETTINGS
@given(st.integers(0, 3), DIMS, POSITIONS, READINGS, METHODS)
def test_angles_contain_the_exact_value(length: int, dim: int, start: int, reading: Conventions, method: Any) -> None:
    dim = even_if_half(dim, reading)
    found = oracles.rope_angles(length, dim, start, conventions=reading, method=method)
    assert found.mid.shape == (length, -(-dim // 2))
    assert encloses(found, lambda p, i: (start + p) * frequency(i, dim, reading))
    assert (found.rad <= 2 * ULP * np.abs(found.mid) + 2.0**-1000).all()


def lane_angle(p: int, lane: int, dim: int, reading: Conventions) -> arb:
    i = lane % (dim // 2) if reading.rope_pairing == "half" else lane // 2
    return p * frequency(i, dim, reading)


@SETTINGS
@given(st.integers(0, 3), DIMS, POSITIONS, READINGS, METHODS)
def test_tables_contain_the_exact_value(length: int, dim: int, start: int, reading: Conventions, method: Any) -> None:
    dim = even_if_half(dim, reading)
    tables = oracles.rope_tables(length, dim, start, conventions=reading, method=method)
    passed = dim % 2 == 1 and reading.odd_lane == "passthrough"
    for found, function, alone in zip(tables, (arb.cos, arb.sin), (1, 0), strict=True):
        assert found.mid.shape == (length, dim)

        def exact(p: int, j: int, function: Any = function, alone: int = alone) -> arb:
            return arb(alone) if passed and j == dim - 1 else function(lane_angle(start + p, j, dim, reading))

        assert encloses(found, exact)
        if start + length <= 2**20:
            assert (found.rad <= 4 * ULP).all()


@SETTINGS
@given(st.integers(1, 3), DIMS, POSITIONS, READINGS, METHODS, st.integers(0, 2**32 - 1))
def test_rope_by_any_base_and_scale_contains_the_exact_value(
    length: int, dim: int, start: int, reading: Conventions, method: Any, seed: int
) -> None:
    dim = even_if_half(dim, reading)
    half, x = dim // 2, np.random.default_rng(seed).uniform(-1, 1, (length, dim))

    def exact(back: bool) -> Any:
        def entry(p: int, j: int) -> arb:
            theta, row = lane_angle(start + p, j, dim, reading), x[p].tolist()
            cos, sin = theta.cos(), -theta.sin() if back else theta.sin()
            if dim % 2 and j == dim - 1:
                return row[j] * (cos + theta.sin() if reading.odd_lane == "literal" else arb(1))
            stride = half if reading.rope_pairing == "half" else 1
            is_first = j < half if reading.rope_pairing == "half" else j % 2 == 0
            return arb(row[j]) * cos + (-row[j + stride] * sin if is_first else row[j - stride] * sin)

        return entry

    assert encloses(oracles.rope(x, start, conventions=reading, method=method), exact(back=False))
    assert encloses(oracles.rope_vjp(x, x, start, conventions=reading, method=method), exact(back=True))


def test_mpmath_agrees_at_its_own_digits() -> None:
    reading = Conventions(rope_base=500000.0, rope_scale=1 / 3)
    start, dim = 2**20 - 2, 6
    cos, sin = oracles.rope_tables(2, dim, start, conventions=reading)
    angles, frequencies = (
        oracles.rope_angles(2, dim, start, conventions=reading),
        oracles.inv_freq(dim, conventions=reading),
    )
    with mpmath.workdps(60):
        for p, i in np.ndindex(2, 3):
            f = mpmath.mpf(reading.rope_scale) / mpmath.mpf(500000) ** (mpmath.mpf(i) / 3)
            theta = (start + p) * f
            for found, index, value in (
                (frequencies, i, f),
                (angles, (p, i), theta),
                *[(cos, (p, lane), mpmath.cos(theta)) for lane in (2 * i, 2 * i + 1)],
                *[(sin, (p, lane), mpmath.sin(theta)) for lane in (2 * i, 2 * i + 1)],
            ):
                assert abs(value - mpmath.mpf(float(found.mid[index]))) <= mpmath.mpf(float(found.rad[index]))


def test_worked_frequencies_and_tables() -> None:
    assert oracles.inv_freq(8).mid.tolist() == [1.0, 0.1, 0.01, 0.001]
    assert oracles.inv_freq(3, conventions=Conventions(rope_base=8.0)).mid.tolist() == [1.0, 0.25]
    assert oracles.inv_freq(4, conventions=Conventions(rope_base=16.0, rope_scale=0.5)).mid.tolist() == [0.5, 0.125]
    assert oracles.rope_angles(2, 4, 3, conventions=Conventions(rope_base=16.0)).mid.tolist() == [
        [3.0, 0.75],
        [4.0, 1.0],
    ]
    c, s = np.cos([1.0, 0.01]), np.sin([1.0, 0.01])
    for pairing, lanes in (("adjacent", [0, 0, 1, 1]), ("half", [0, 1, 0, 1])):
        cos, sin = oracles.rope_tables(2, 4, conventions=Conventions(rope_pairing=pairing))
        assert cos.mid[0].tolist() == [1.0] * 4
        assert sin.mid[0].tolist() == [0.0] * 4
        assert not (cos.rad[0] + sin.rad[0]).any()
        assert (np.abs(cos.mid[1] - c[lanes]) <= ULP).all()
        assert (np.abs(sin.mid[1] - s[lanes]) <= ULP).all()


def test_the_lane_without_a_partner_passes_through_where_that_is_said() -> None:
    cos, sin = oracles.rope_tables(2, 3, 5, arithmetic="float32", conventions=Conventions(odd_lane="passthrough"))
    assert cos.mid[:, 2].tolist() == [1.0, 1.0]
    assert sin.mid[:, 2].tolist() == [0.0, 0.0]
    assert not cos.rad[:, 2].any()
    assert (cos.rad[:, :2] > 0).all()


def test_a_scale_of_the_positions_is_a_scale_of_the_frequencies() -> None:
    quarter = oracles.rope_angles(3, 6, 4, conventions=Conventions(rope_scale=0.25))
    assert quarter.contains(oracles.rope_angles(3, 6, 4).mid / 4).all()
    x = np.random.default_rng(0).normal(size=(1, 6))
    moved = oracles.rope(x, 400, conventions=Conventions(rope_scale=0.25))
    assert np.array_equal(moved.mid, oracles.rope(x, 100).mid)


@pytest.mark.parametrize(
    "reading", [Conventions(), Conventions(rope_pairing="half", rope_scale=7.3, rope_base=500000.0)]
)
def test_rope_is_its_own_tables_applied(reading: Conventions) -> None:
    x = np.random.default_rng(0).normal(size=(2, 5, 8))
    cos, sin = oracles.rope_tables(5, 8, 1000, conventions=reading)
    applied, direct = (
        oracles.apply_rotary(x, cos.mid, sin.mid, conventions=reading),
        oracles.rope(x, 1000, conventions=reading),
    )
    assert (np.abs(applied.mid - direct.mid) <= applied.rad + direct.rad + 2 * np.abs(x).max() * cos.rad.max()).all()


@pytest.mark.parametrize(("length", "dim"), [(0, 2**20), (2**53, 0), (0, 0)])
@pytest.mark.parametrize("method", ["auto", "fast", "arb"])
@pytest.mark.parametrize("arithmetic", [None, "float32"])
def test_empty_tables_take_no_work(
    length: int, dim: int, method: Any, arithmetic: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if dim:
        monkeypatch.setattr("oracles.rotary.tables.pair_exponents", None)
    options = {"arithmetic": arithmetic, "method": method}
    assert oracles.rope_angles(length, dim, **options).mid.shape == (length, dim // 2)
    for table in oracles.rope_tables(length, dim, **options):
        assert table.mid.shape == (length, dim)


def test_an_angle_beyond_float64_is_unknown_and_its_cosine_is_not() -> None:
    reading = Conventions(rope_scale=1e308)
    for method in ("fast", "arb"):
        found = oracles.rope_angles(1, 2, 2**20, conventions=reading, method=method)
        assert np.isnan(found.mid).all()
        assert np.isinf(found.rad).all()
    cos, sin = oracles.rope_tables(1, 2, 2**20, conventions=reading)
    assert (cos.rad < 4 * ULP).all()
    assert np.isclose(cos.mid**2 + sin.mid**2, 1).all()


# Budgets: kernels as people write them, in the format of their arithmetic.


def kernel_frequencies(dim: int, dtype: Any, base: float, kind: str) -> Any:
    exponents = np.arange(0, dim, 2, dtype=dtype) / dtype(dim)
    if kind == "exp":
        return np.exp(exponents * dtype(-np.log(base)))
    return dtype(1) / dtype(base) ** exponents


def kernel_angles(length: int, dim: int, start: int, dtype: Any, reading: Conventions, kind: str, scaled: str) -> Any:
    """Scaled where people scale: frequencies, frequencies by division, positions, or angles."""
    p, f = (
        np.arange(start, start + length).astype(dtype)[:, None],
        kernel_frequencies(dim, dtype, reading.rope_base, kind),
    )
    scale, factor = dtype(reading.rope_scale), dtype(1 / reading.rope_scale)
    return {
        "frequencies": p * (scale * f),
        "divided": p * (f / factor),
        "positions": (p * scale) * f,
        "positions divided": (p / factor) * f,
        "angles": (p * f) * scale,
    }[scaled]


SCALED = ["frequencies", "divided", "positions", "positions divided", "angles"]


@pytest.mark.parametrize(
    ("arithmetic", "dtype"), [(FLOAT64, np.float64), (FLOAT32, np.float32)], ids=["float64", "float32"]
)
@pytest.mark.parametrize("kind", ["exp", "power"])
@pytest.mark.parametrize("scaled", SCALED)
@pytest.mark.parametrize("scale", [1 / 3, 0.25, 7.3])
def test_scaled_kernels_stay_within_their_budget(
    arithmetic: Arithmetic, dtype: Any, kind: str, scaled: str, scale: float
) -> None:
    reading = Conventions(rope_base=500000.0, rope_scale=scale, rope_pairing="half")
    options: dict[str, Any] = {"arithmetic": arithmetic, "conventions": reading}
    for start in (0, 1000, 2**20 - 64):
        theta = kernel_angles(64, 64, start, dtype, reading, kind, scaled)
        oracles.assert_within(theta, oracles.rope_angles(64, 64, start, **options))
        cos, sin = (np.concatenate([part, part], axis=1) for part in (np.cos(theta), np.sin(theta)))
        for out, budget in zip((cos, sin), oracles.rope_tables(64, 64, start, **options), strict=True):
            oracles.assert_within(out, budget)
        x = np.random.default_rng(start).normal(size=(64, 64)).astype(dtype)
        turned = np.concatenate([-x[:, 32:], x[:, :32]], axis=1)
        oracles.assert_within(x * cos + turned * sin, oracles.rope(x, start, **options))
        oracles.assert_within(x * cos - turned * sin, oracles.rope_vjp(x, x, start, **options))
    f = kernel_frequencies(64, dtype, reading.rope_base, kind)
    oracles.assert_within(dtype(scale) * f, oracles.inv_freq(64, **options))


@pytest.mark.parametrize(
    ("real", "arithmetic"), [(torch.float64, FLOAT64), (torch.float32, FLOAT32)], ids=["float64", "float32"]
)
def test_complex_kernels_stay_within_their_budget(real: torch.dtype, arithmetic: Arithmetic) -> None:
    """Adjacent lanes viewed as complex, times exp(iθ)."""
    start, x = 1000, torch.randn(3, 64, 32, dtype=real, generator=torch.Generator().manual_seed(0))
    theta = torch.outer(
        torch.arange(start, start + 64, dtype=real), 1.0 / 10000.0 ** (torch.arange(0, 32, 2, dtype=real) / 32)
    )
    z = torch.polar(torch.ones_like(theta), theta)
    out = torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (-1, 2))) * z).flatten(-2)
    oracles.assert_within(out, oracles.rope(x, start, arithmetic=arithmetic))
    for part, budget in zip((z.real, z.imag), oracles.rope_tables(64, 32, start, arithmetic=arithmetic), strict=True):
        oracles.assert_within(np.repeat(part.numpy(), 2, axis=-1), budget)


@pytest.mark.parametrize("corrupted", [{"rope_base": 10001.0}, {"rope_scale": 1.001}, {"rope_pairing": "half"}])
def test_another_base_scale_or_pairing_is_outside(corrupted: dict[str, Any]) -> None:
    other = oracles.rope_tables(8, 64, 100, conventions=Conventions(**corrupted))
    for wrong, budget in zip(other, oracles.rope_tables(8, 64, 100, arithmetic=FLOAT32), strict=True):
        assert not budget.contains(wrong.mid).all()
    if "rope_pairing" not in corrupted:
        assert (
            not oracles.inv_freq(64, arithmetic=FLOAT32)
            .contains(oracles.inv_freq(64, conventions=Conventions(**corrupted)).mid)
            .all()
        )


KEPT = replace(FLOAT32, trig_absolute=0.0, output=BINARY64, angle=replace(FLOAT32.angle, table=BINARY64))


@pytest.mark.parametrize(("term", "count"), [("EXPONENT", 0), ("EXPONENTIAL", 0), ("SCALING", 0), ("SCALING", 1)])
def test_the_worst_frequencies_leave_the_budget_without_a_term(
    term: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel that takes every rounding of its frequencies, scale and angles, and all upwards."""
    reading, u = Conventions(rope_scale=1 / 3), 2.0**-24
    x = np.log(10000.0) * np.arange(0, 128, 2) / 128
    f = np.exp(-x) / 3 * np.exp(0.999 * u * (np.where(x > 0, 3 * x + 9, 0) + 2))
    theta = np.arange(2**10, 2**10 + 64)[:, None] * f * np.exp(0.999 * u)
    cos, sin = (np.repeat(part, 2, axis=1) for part in (np.cos(theta), np.sin(theta)))

    def inside() -> list[bool]:
        options: dict[str, Any] = {"arithmetic": KEPT, "conventions": reading}
        budgets = [*oracles.rope_tables(64, 128, 2**10, **options), oracles.rope_angles(64, 128, 2**10, **options)]
        budgets.append(oracles.inv_freq(128, **options))
        return [bool(budget.contains(out).all()) for out, budget in zip((cos, sin, theta, f), budgets, strict=True)]

    assert inside() == [True] * 4
    monkeypatch.setattr(angle_module, term, count)
    assert inside() == [False] * 4


def test_a_scale_that_is_a_power_of_two_takes_no_rounding() -> None:
    model = replace(KEPT, angle=replace(KEPT.angle, table=BINARY64))
    for scale, exact in ((0.25, True), (2.0**-30, True), (0.3, False)):
        found = oracles.inv_freq(2, arithmetic=model, conventions=Conventions(rope_scale=scale))
        assert bool(found.rad[0] < 1e-12 * scale) == exact


def flushed(x: Any) -> Any:
    """Rounded to binary32, and 0 below its normal numbers."""
    out = np.float32(x)
    return np.where(np.abs(out) < 2.0**-126, np.float32(0), out)


def test_frequencies_that_underflow_leave_the_budget_without_their_term(monkeypatch: pytest.MonkeyPatch) -> None:
    """3·10³⁸ to the last exponent is nearly as large as binary32's numbers, and its reciprocal is
    flushed; the scale makes it matter.
    """
    reading = Conventions(rope_base=3e38, rope_scale=2.0**100)
    e = np.arange(0, 256, 2) / 256
    out = flushed(np.float32(2.0**100) * flushed(np.exp(-e * np.log(3e38))))
    exact = oracles.inv_freq(256, conventions=reading).mid
    theta, p = np.float32(2**10) * out, 2**10
    assert (out == 0).any()
    assert (exact[out == 0] > 2.0**-40).all()

    def inside() -> tuple[bool, bool, bool]:
        options: dict[str, Any] = {"arithmetic": FLOAT32, "conventions": reading}
        sin = oracles.rope_tables(1, 256, p, **options)[1].contains(np.repeat(np.sin(theta.astype(float)), 2)[None])
        lost = np.repeat(out == 0, 2)[None]
        return (
            bool(oracles.inv_freq(256, **options).contains(out).all()),
            bool(oracles.rope_angles(1, 256, p, **options).contains(theta[None]).all()),
            bool(sin[lost].all()),
        )

    assert inside() == (True, True, True)
    monkeypatch.setattr(angle_module, "held_range", lambda arithmetic: (0.0, np.inf))
    assert inside() == (False, False, False)


def test_scaled_frequencies_that_underflow_leave_the_budget_without_their_term(monkeypatch: pytest.MonkeyPatch) -> None:
    """A factor of 2¹³⁰ is ∞ in binary32, and what is divided by it 0."""
    reading, out = (
        Conventions(rope_scale=2.0**-130),
        kernel_frequencies(8, np.float32, 10000.0, "exp") / np.float32(np.inf),
    )
    assert not out.any()
    assert oracles.inv_freq(8, arithmetic=FLOAT32, conventions=reading).contains(out).all()
    assert oracles.rope_angles(1, 8, 2**20, arithmetic=FLOAT32, conventions=reading).contains(out[None]).all()
    monkeypatch.setattr(angle_module, "held_range", lambda arithmetic: (0.0, np.inf))
    assert not oracles.inv_freq(8, arithmetic=FLOAT32, conventions=reading).contains(out)[0]
    assert not oracles.rope_angles(1, 8, 2**20, arithmetic=FLOAT32, conventions=reading).contains(out[None]).any()


def test_a_scale_is_rounded_as_coarsely_as_the_angles_where_these_are_coarser_than_frequencies() -> None:
    """Frequencies in float64; positions are scaled in binary32, and all roundings go upwards."""
    reading, u = Conventions(rope_scale=1 / 3), 2.0**-24
    theta = (
        np.arange(2**10, 2**10 + 64)[:, None] * oracles.inv_freq(64, conventions=reading).mid * np.exp(0.999 * 3 * u)
    )
    for frequency, angles, inside in ((2.0**-53, u, True), (u, u, True), (2.0**-53, u / 4, False)):
        model = replace(KEPT, angle=replace(KEPT.angle, frequency=frequency, product=angles))
        assert oracles.rope_angles(64, 64, 2**10, arithmetic=model, conventions=reading).contains(theta).all() == inside


def test_angles_that_overflow_leave_the_budget_without_their_term(monkeypatch: pytest.MonkeyPatch) -> None:
    """Positions are scaled first: 2²⁰·2¹²⁰ is more than binary32 holds, though its product with the
    frequency is not.
    """
    reading = Conventions(rope_base=2.0**120, rope_scale=2.0**120)
    lost, kept = np.full((1, 4), np.nan), oracles.rope_tables(1, 4, 1, conventions=reading)[0].mid
    assert oracles.rope_tables(1, 4, 2**20, arithmetic=FLOAT32, conventions=reading)[0].contains(lost).all()
    assert not oracles.rope_tables(1, 4, 1, arithmetic=FLOAT32, conventions=reading)[0].contains(lost).any()
    assert not oracles.rope_tables(1, 4, 2**20, arithmetic=FLOAT64, conventions=reading)[0].contains(lost).any()
    assert oracles.rope_tables(1, 4, 1, arithmetic=FLOAT64, conventions=reading)[0].contains(kept).all()
    monkeypatch.setattr(angle_module, "held_range", lambda arithmetic: (0.0, np.inf))
    assert not oracles.rope_tables(1, 4, 2**20, arithmetic=FLOAT32, conventions=reading)[0].contains(lost).any()


def test_what_is_returned_is_rounded_to_its_format() -> None:
    """Frequencies and angles to the output's, tables to that of tables."""
    model = replace(FLOAT64, output=oracles.BINARY16)
    frequencies, angles = oracles.inv_freq(16), oracles.rope_angles(8, 16)
    for exact, coarse, fine in (
        (frequencies, oracles.inv_freq(16, arithmetic=model), oracles.inv_freq(16, arithmetic=FLOAT64)),
        (angles, oracles.rope_angles(8, 16, arithmetic=model), oracles.rope_angles(8, 16, arithmetic=FLOAT64)),
    ):
        out = exact.mid.astype(np.float16)
        oracles.assert_within(out, coarse)
        assert not fine.contains(out).all()
    cos = oracles.rope_tables(8, 16)[0].mid.astype(np.float16)
    assert not oracles.rope_tables(8, 16, arithmetic=model)[0].contains(cos).all()
    of_tables = replace(FLOAT64, angle=replace(FLOAT64.angle, table=oracles.BINARY16))
    oracles.assert_within(cos, oracles.rope_tables(8, 16, arithmetic=of_tables)[0])


def test_position_0_alone_is_not_vacuous() -> None:
    """All its sines are 0, as zeros are, but its cosines are not."""
    cos, sin = oracles.rope_tables(1, 8, arithmetic=FLOAT32)
    oracles.assert_within(np.ones((1, 8)), cos)
    oracles.assert_within(np.zeros((1, 8)), sin)
    lost = oracles.rope_tables(1, 8, 2**50, arithmetic=replace(FLOAT32, trig_absolute=2.0))
    assert [table.vacuous for table in lost] == [True, True]
    oracles.assert_within(np.zeros((1, 4)), oracles.rope_angles(1, 8, arithmetic=FLOAT32))
