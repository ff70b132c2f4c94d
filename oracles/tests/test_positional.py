"""Sinusoids and rotations: radii contain the exact value at every position, and budgets contain correct kernels."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import hypothesis.strategies as st
import mpmath
import numpy as np
import pytest
from flint import arb, ctx
from hypothesis import given, settings

import oracles
from oracles import FLOAT32, FLOAT64, Arithmetic, Conventions
from oracles.ball import ROUNDOFF, UNDERFLOW
from oracles.error_analysis import angle as angle_module

SETTINGS = settings(max_examples=60)
ULP = 2.0**-52
HALF, PASS = Conventions(rope_pairing="half"), Conventions(odd_lane="passthrough")
LAYOUTS = [Conventions(sinusoid_layout=layout) for layout in ("interleaved", "concatenated", "tensor2tensor")]
POSITIONS = st.one_of(
    st.integers(0, 2**20 - 4), st.sampled_from([0, 1, 2**16 - 1, 2**20 - 4]), st.integers(2**20, 2**40)
)
DIMS = st.one_of(st.integers(0, 9), st.sampled_from([64, 127, 128]))


def angle(position: int, exponent: Any, base: float = 10000.0) -> Any:
    return position * mpmath.mpf(base) ** (-exponent)


def exact_sinusoid(length: int, dim: int, start: int, layout: str) -> Any:
    """By mpmath at 50 digits, column by column as the definition says."""
    with mpmath.workdps(50):
        table = np.zeros((length, dim), dtype=object)
        for p in range(length):
            for j in range(dim):
                sines = (dim + 1) // 2
                i, is_sine = (j // 2, j % 2 == 0) if layout == "interleaved" else (j % sines, j < sines)
                exponent = mpmath.mpf(2 * i) / dim
                if layout == "tensor2tensor":
                    exponent = mpmath.mpf(i) / (mpmath.mpf(dim) / 2 - 1)
                theta = angle(start + p, exponent)
                table[p, j] = mpmath.sin(theta) if is_sine else mpmath.cos(theta)
        return table


def assert_encloses(enclosure: oracles.Enclosure, witness: Any) -> None:
    with mpmath.workdps(50):
        for index, mid in np.ndenumerate(enclosure.mid):
            error = abs(witness[index] - mpmath.mpf(float(mid)))
            assert error <= mpmath.mpf(float(enclosure.rad[index])) + mpmath.mpf(10) ** -40, index


@SETTINGS
@given(st.integers(0, 3), DIMS, POSITIONS, st.sampled_from(LAYOUTS), st.sampled_from(["fast", "arb"]))
def test_the_sinusoid_contains_the_exact_value(
    length: int, dim: int, start: int, layout: Conventions, method: Any
) -> None:
    if layout.sinusoid_layout == "tensor2tensor":
        dim = 4 if dim in (2, 3) else dim - dim % 2
    found = oracles.sinusoidal_positional_encoding(length, dim, start, conventions=layout, method=method)
    assert found.mid.shape == (length, dim)
    assert_encloses(found, exact_sinusoid(length, dim, start, layout.sinusoid_layout))
    if start + length <= 2**20:
        assert (found.rad <= 4 * ULP).all()


@SETTINGS
@given(st.integers(0, 3), st.sampled_from([0, 4, 6, 8, 64, 128]), POSITIONS, st.sampled_from(["fast", "arb"]))
def test_the_sinusoid_of_tensor2tensor_contains_the_exact_value(length: int, dim: int, start: int, method: Any) -> None:
    """By ball arithmetic in radians, with the frequencies as the systems write them: exp(−i·ln 10000/(d/2 − 1))."""
    found = oracles.tensor2tensor_sinusoidal(length, dim, start, method=method)
    half = dim // 2
    assert found.mid.shape == (length, dim)
    with ctx.workprec(300):
        for (p, j), mid in np.ndenumerate(found.mid):
            theta = (start + p) * (-arb(j % half) * arb(10000).log() / (half - 1)).exp()
            exact = theta.sin() if j < half else theta.cos()
            assert (exact - arb(float(mid))).abs_upper() <= arb(float(found.rad[p, j])), (p, j)


def test_the_frequencies_of_tensor2tensor_reach_both_ends() -> None:
    """Worked: dim 4 has frequencies 1 and 1/10000, dim 6 has 1/100 between them."""
    for dim, f in ((4, [1, 1e-4]), (6, [1, 1e-2, 1e-4])):
        expected = np.concatenate([np.sin(f), np.cos(f)])
        assert (np.abs(oracles.tensor2tensor_sinusoidal(1, dim, 1).mid[0] - expected) <= ULP).all()


@pytest.mark.parametrize("conventions", [None, *LAYOUTS])
def test_the_function_is_the_convention(conventions: Any) -> None:
    named, by_convention = (
        oracles.tensor2tensor_sinusoidal(3, 8, 5, arithmetic="float32", conventions=conventions),
        oracles.sinusoidal_positional_encoding(3, 8, 5, arithmetic="float32", conventions=LAYOUTS[2]),
    )
    assert np.array_equal(named.mid, by_convention.mid)
    assert np.array_equal(named.rad, by_convention.rad)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_kernels_as_fairseq_writes_them_stay_within_their_budget(dtype: Any) -> None:
    for dim, start in ((4, 0), (128, 1000), (64, 2**20 - 64)):
        log, i = np.log(10000.0), np.arange(dim // 2, dtype=dtype)
        for f in (np.exp(i * dtype(-log / (dim // 2 - 1))), np.exp(i * dtype(-log) / dtype(dim // 2 - 1))):
            theta = np.arange(start, start + 64).astype(dtype)[:, None] * f
            out = np.concatenate([np.sin(theta), np.cos(theta)], axis=1)
            budget = oracles.tensor2tensor_sinusoidal(64, dim, start, arithmetic=np.dtype(dtype).name)
            oracles.assert_within(out, budget)
            plain = oracles.sinusoidal_positional_encoding(
                64, dim, start, conventions=LAYOUTS[1], arithmetic=np.dtype(dtype).name
            )
            assert not plain.contains(out).all()


def exact_rope(x: Any, start: int, conventions: Conventions, back: bool) -> Any:
    """Every pair of lanes (a, b) turned by mpmath, as the definition says, or by the opposite angle."""
    dim = x.shape[1]
    half = dim // 2
    with mpmath.workdps(50):
        result = np.zeros(x.shape, dtype=object)
        for p, row in enumerate(x.tolist()):
            for i in range((dim + 1) // 2):
                theta = angle(start + p, mpmath.mpf(2 * i) / dim, conventions.rope_base)
                c, s = mpmath.cos(theta), mpmath.sin(theta)
                a, b = (i, i + half) if conventions.rope_pairing == "half" else (2 * i, 2 * i + 1)
                if 2 * i + 1 == dim:
                    result[p, -1] = row[-1] * (c + s if conventions.odd_lane == "literal" else mpmath.mpf(1))
                    continue
                s = -s if back else s
                result[p, a], result[p, b] = row[a] * c - row[b] * s, row[b] * c + row[a] * s
        return result


@SETTINGS
@given(
    st.integers(0, 3),
    DIMS,
    POSITIONS,
    st.sampled_from([Conventions(), HALF, PASS, Conventions(rope_base=500000.0), Conventions(rope_base=1.0)]),
    st.sampled_from(["fast", "arb"]),
    st.sampled_from([1.0, 1e-300, 1e300]),
    st.integers(0, 2**32 - 1),
)
def test_rope_and_its_vjp_contain_the_exact_value(
    length: int, dim: int, start: int, conventions: Conventions, method: Any, size: float, seed: int
) -> None:
    if conventions.rope_pairing == "half":
        dim -= dim % 2
    x = np.random.default_rng(seed).uniform(-1, 1, (length, dim)) * size
    found = oracles.rope(x, start, conventions=conventions, method=method)
    assert_encloses(found, exact_rope(x, start, conventions, back=False))
    if start + length <= 2**20:
        assert (found.rad <= 4 * ULP * size + UNDERFLOW).all()
    pulled = oracles.rope_vjp(np.ones_like(x), x, start, conventions=conventions, method=method)
    assert_encloses(pulled, exact_rope(x, start, conventions, back=True))


@SETTINGS
@given(st.integers(0, 4), st.integers(0, 9), st.integers(0, 2**32 - 1), st.sampled_from(["fast", "arb"]))
def test_apply_rotary_is_a_linear_map_with_the_tables_entries(length: int, dim: int, seed: int, method: Any) -> None:
    """One matrix, made of the tables' entries alone; the VJP applies its transpose."""
    rng = np.random.default_rng(seed)
    x, cos, sin, g = (rng.integers(-9, 9, (length, dim)).astype(float) for _ in range(4))
    for conventions in (Conventions(), PASS, *([HALF] if dim % 2 == 0 else [])):
        half = dim // 2
        for p in range(length):
            matrix = np.diag(cos[p])
            for i in range(half):
                a, b = (i, i + half) if conventions.rope_pairing == "half" else (2 * i, 2 * i + 1)
                matrix[a, b], matrix[b, a] = -sin[p, a], sin[p, b]
            if dim % 2:
                matrix[-1, -1] = cos[p, -1] + sin[p, -1] if conventions.odd_lane == "literal" else 1.0
            forward = oracles.apply_rotary(x, cos, sin, conventions=conventions, method=method)
            back = oracles.apply_rotary_vjp(x, cos, sin, g, conventions=conventions, method=method)
            assert np.array_equal(forward.mid[p], matrix @ x[p])
            assert np.array_equal(back.mid[p], matrix.T @ g[p])
            assert (forward.rad <= 1e-13).all()


@settings(SETTINGS, max_examples=300)
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=6, max_size=6), st.booleans())
def test_products_are_enclosed_whether_they_cancel_underflow_or_overflow(numbers: list[float], cancel: bool) -> None:
    a, b, c, s, d, t = numbers
    if cancel and b:
        s = float(np.clip(Fraction(a) * Fraction(c) / Fraction(b), -1e300, 1e300))
    found = oracles.apply_rotary(np.array([[a, b]]), np.array([[c, d]]), np.array([[s, t]]), method="fast")
    exact = [
        Fraction(a) * Fraction(c) - Fraction(b) * Fraction(s),
        Fraction(b) * Fraction(d) + Fraction(a) * Fraction(t),
    ]
    for mid, rad, value in zip(found.mid[0], found.rad[0], exact, strict=True):
        assert np.isinf(rad) or abs(Fraction(float(mid)) - value) <= Fraction(float(rad))


def test_a_radius_that_underflows_is_not_zero() -> None:
    x, table = np.full((1, 2), 3e-310), np.full((1, 2), 1 / 3)
    found = oracles.apply_rotary(x, table, 0 * table, method="fast")
    assert (found.rad > 0).all()


def test_a_batch_is_its_elements_one_by_one() -> None:
    rng = np.random.default_rng(0)
    x, cos, sin = rng.normal(size=(2, 3, 5, 4)), rng.normal(size=(5, 4)), rng.normal(size=(5, 4))
    for method in ("fast", "arb"):
        whole, tables = oracles.rope(x, 7, method=method), oracles.apply_rotary(x, cos, sin, method=method)
        for i in np.ndindex(2, 3):
            assert np.array_equal(whole.mid[i], oracles.rope(x[i], 7, method=method).mid)
            assert np.array_equal(tables.mid[i], oracles.apply_rotary(x[i], cos, sin, method=method).mid)


def test_position_0_is_exact() -> None:
    table = oracles.sinusoidal_positional_encoding(1, 6)
    assert table.mid.tolist() == [[0.0, 1.0, 0.0, 1.0, 0.0, 1.0]]
    assert table.rad.tolist() == [[0.0] * 6]


@pytest.mark.parametrize("shape", [(0, 4), (3, 0), (0, 0), (2, 0, 3), (0, 2, 1)])
def test_empty_axes_are_legal(shape: tuple[int, ...]) -> None:
    x, table = np.ones(shape), np.ones(shape[-2:])
    for method in ("fast", "arb"):
        for found in (
            oracles.rope(x, 5, method=method),
            oracles.rope_vjp(x, x, 5, method=method),
            oracles.apply_rotary(x, table, table, method=method),
            oracles.apply_rotary_vjp(x, table, table, x, method=method),
            oracles.add_positional_encoding(x, table, method=method),
        ):
            assert found.mid.shape == shape
        assert oracles.sinusoidal_positional_encoding(*shape[-2:], method=method).mid.shape == shape[-2:]
        assert oracles.learned_positional_encoding(table, shape[-2], method=method).mid.shape == shape[-2:]


@pytest.mark.parametrize("method", ["auto", "fast", "arb"])
@pytest.mark.parametrize(("length", "dim"), [(0, 2**20), (2**53, 0)])
def test_an_empty_table_takes_no_work(length: int, dim: int, method: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oracles.positional._exponents", None)
    assert oracles.sinusoidal_positional_encoding(length, dim, method=method).mid.shape == (length, dim)
    assert oracles.rope(np.empty((2**20, 0))).mid.shape == (2**20, 0)


@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("method", ["fast", "arb"])
def test_what_is_not_finite_reaches_its_own_pair_and_nothing_else(poison: float, method: Any) -> None:
    x, table = np.ones((2, 5)), np.ones((2, 5))
    x[1, 2] = poison
    for conventions, lanes in ((Conventions(), [2, 3]), (PASS, [2, 3])):
        for found in (
            oracles.rope(x, 3, conventions=conventions, method=method),
            oracles.rope_vjp(table, x, 3, conventions=conventions, method=method),
            oracles.apply_rotary(x, table, table, conventions=conventions, method=method),
        ):
            lost = [(1, lane) for lane in lanes]
            assert [tuple(map(int, at)) for at in np.argwhere(np.isnan(found.mid))] == lost
            assert [tuple(map(int, at)) for at in np.argwhere(np.isinf(found.rad))] == lost
    for found in (
        oracles.add_positional_encoding(x, table, method=method),
        oracles.learned_positional_encoding(x, 2, method=method),
        oracles.apply_rotary(table, x, table, method=method),
        oracles.apply_rotary_vjp(table, x, table, table, method=method),
    ):
        assert np.argwhere(np.isnan(found.mid)).tolist() == np.argwhere(np.isinf(found.rad)).tolist() == [[1, 2]]


def test_adding_is_enclosed_and_exact_where_float64_is() -> None:
    x, pos = np.array([[1.0, 1.0]]), np.array([[2.0, 2.0**-60]])
    for method in ("fast", "arb"):
        found = oracles.add_positional_encoding(x, pos, method=method)
        assert found.mid.tolist() == [[3.0, 1.0]]
        assert found.rad[0, 0] == 0
        assert 2.0**-60 <= found.rad[0, 1] <= 2.0**-52


def test_a_batch_may_share_its_encoding() -> None:
    x, pos = np.arange(12.0).reshape(2, 2, 3), np.arange(6.0).reshape(2, 3)
    assert np.array_equal(oracles.add_positional_encoding(x, pos).mid, x + pos)
    assert np.array_equal(oracles.add_positional_encoding(x, np.stack([pos, pos])).mid, x + pos)


def test_learned_rows_are_read_out_exactly() -> None:
    table = np.arange(12.0).reshape(4, 3)
    for method in ("fast", "arb"):
        found = oracles.learned_positional_encoding(table, 2, 1, arithmetic="float16", method=method)
        assert found.mid.tolist() == table[1:3].tolist()
        assert (found.rad == 0).all()


def test_results_share_no_memory_with_inputs() -> None:
    x = np.ones((3, 3))
    for found in (
        oracles.learned_positional_encoding(x, 3),
        oracles.add_positional_encoding(x, x),
        oracles.apply_rotary(x, x, x, conventions=PASS),
        oracles.rope(x, conventions=PASS),
    ):
        assert not np.shares_memory(found.mid, x)
        found.mid[:] = 7.0
    assert (x == 1).all()


def test_far_positions_fall_back_to_ball_arithmetic_where_it_is_affordable() -> None:
    start = 2**52
    fast = oracles.sinusoidal_positional_encoding(2, 8, start, method="fast")
    auto = oracles.sinusoidal_positional_encoding(2, 8, start)
    assert not fast.judged
    assert auto.judged
    assert (auto.rad <= ULP).all()
    assert fast.contains(auto.mid).all()
    assert not oracles.sinusoidal_positional_encoding(2**12, 2**6, start).judged


# Budgets: kernels as people write them, in the format of their arithmetic.


def frequencies(dim: int, dtype: Any, kind: str) -> Any:
    exponents = np.arange(0, dim, 2, dtype=dtype) / dtype(dim)
    if kind == "exp":
        return np.exp(exponents * dtype(-np.log(10000.0)))
    if kind == "exp2":
        return np.exp2(-exponents * dtype(np.log2(10000.0)))
    if kind == "division":
        return dtype(1) / np.exp(dtype(np.log(10000.0)) * exponents)
    return dtype(1) / (dtype(10000.0) ** exponents)


KINDS = ["exp", "exp2", "division", "power"]


def kernel_tables(length: int, dim: int, start: int, kind: str, angles: Any, table: Any) -> tuple[Any, Any]:
    """Frequencies and angles in one precision, sines and cosines stored in another."""
    theta = np.arange(start, start + length).astype(angles)[:, None] * frequencies(dim, angles, kind)
    return np.cos(theta).astype(table), np.sin(theta).astype(table)


def kernel_sinusoid(length: int, dim: int, start: int, kind: str, angles: Any, table: Any) -> Any:
    cos, sin = kernel_tables(length, dim, start, kind, angles, table)
    return np.stack([sin, cos], axis=-1).reshape(length, dim)


def kernel_rope(x: Any, start: int, kind: str, angles: Any) -> Any:
    cos, sin = kernel_tables(*x.shape, start, kind, angles, x.dtype.type)
    a, b = x[:, 0::2], x[:, 1::2]
    return np.stack([a * cos - b * sin, b * cos + a * sin], axis=-1).reshape(x.shape)


FLOAT32_BY_FLOAT64_ANGLES = replace(
    FLOAT32, name="float32, angles in float64", angle=replace(FLOAT32.angle, frequency=ROUNDOFF, product=ROUNDOFF)
)
MODELS: list[tuple[Arithmetic, Any, Any]] = [
    (FLOAT64, np.float64, np.float64),
    (FLOAT32, np.float32, np.float32),
    (FLOAT32_BY_FLOAT64_ANGLES, np.float64, np.float32),
    (oracles.FLOAT16, np.float32, np.float16),
]


@pytest.mark.parametrize(("arithmetic", "angles", "table"), MODELS, ids=[model[0].name for model in MODELS])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("start", [0, 1000, 2**20 - 128])
def test_kernels_stay_within_their_budget(
    arithmetic: Arithmetic, angles: Any, table: Any, kind: str, start: int
) -> None:
    out = kernel_sinusoid(128, 128, start, kind, angles, table)
    oracles.assert_within(out, oracles.sinusoidal_positional_encoding(128, 128, start, arithmetic=arithmetic))
    x = np.random.default_rng(start).normal(size=(128, 128)).astype(table)
    if table is not np.float16:  # products in binary16 are another arithmetic
        oracles.assert_within(kernel_rope(x, start, kind, angles), oracles.rope(x, start, arithmetic=arithmetic))
        cos, sin = (np.repeat(part, 2, axis=1) for part in kernel_tables(128, 128, start, kind, angles, table))
        turned = np.stack([-x[:, 1::2], x[:, 0::2]], axis=-1).reshape(x.shape)
        oracles.assert_within(x * cos + turned * sin, oracles.apply_rotary(x, cos, sin, arithmetic=arithmetic))


def test_products_in_binary16_are_within_the_budget_of_that_arithmetic() -> None:
    model = replace(oracles.FLOAT16, elementwise=oracles.BINARY16)
    x = np.random.default_rng(0).normal(size=(128, 128)).astype(np.float16)
    assert not oracles.rope(x, arithmetic="float16").contains(kernel_rope(x, 0, "exp", np.float32)).all()
    oracles.assert_within(kernel_rope(x, 0, "exp", np.float32), oracles.rope(x, arithmetic=model))


def without(arithmetic: Arithmetic, **angle: Any) -> Arithmetic:
    return replace(arithmetic, angle=replace(arithmetic.angle, **angle))


def worst_kernel(dim: int, start: int) -> Any:
    """A float32 table that takes every rounding of its frequencies and angles, and all upwards."""
    u, p = 2.0**-24, np.arange(start, start + 64, dtype=np.float64)[:, None]
    x = np.log(10000.0) * np.arange(0, dim, 2) / dim
    relative = np.where(x > 0, 3 * x + 9, 0.0) + (x > 0) + (p > 2**24)
    theta = p * np.exp(-x) * np.exp(0.999 * u * relative)
    return np.stack([np.sin(theta), np.cos(theta)], axis=-1).reshape(64, dim)


@pytest.mark.parametrize("term", ["EXPONENT", "EXPONENTIAL"])
def test_the_worst_frequencies_leave_the_budget_without_a_term(term: str, monkeypatch: pytest.MonkeyPatch) -> None:
    out, sizes = worst_kernel(128, 2**10), (64, 128, 2**10)
    model = replace(FLOAT32, trig_absolute=0.0, angle=replace(FLOAT32.angle, table=oracles.BINARY64))
    oracles.assert_within(out, oracles.sinusoidal_positional_encoding(*sizes, arithmetic=model))
    monkeypatch.setattr(angle_module, term, 0)
    assert not oracles.sinusoidal_positional_encoding(*sizes, arithmetic=model).contains(out).all()


def test_positions_that_float32_cannot_hold_are_rounded() -> None:
    """Beyond 2²⁴, where the frequency of pair 0 is exact and so is all about its angle but the position itself."""
    positions = np.arange(2**25 + 1, 2**25 + 65)
    theta = positions.astype(np.float32).astype(np.float64)
    out = np.stack([np.sin(theta), np.cos(theta)], axis=-1)
    kept = replace(FLOAT32, trig_absolute=0.0, angle=replace(FLOAT32.angle, table=oracles.BINARY64))
    deleted = replace(kept, angle=replace(kept.angle, product=0.0))
    assert oracles.sinusoidal_positional_encoding(64, 2, 2**25 + 1, arithmetic=kept).contains(out).all()
    assert not oracles.sinusoidal_positional_encoding(64, 2, 2**25 + 1, arithmetic=deleted).contains(out).all()


def test_the_angle_of_pair_0_is_exact() -> None:
    exact = oracles.sinusoidal_positional_encoding(64, 2, 2**20, arithmetic=replace(FLOAT32, trig_absolute=0.0))
    assert (exact.rad <= 2.0**-23).all()


def test_a_float32_table_leaves_the_budget_of_float64_angles() -> None:
    """The frequency's and the product's roundings are what keeps it within the budget of float32."""
    out = kernel_sinusoid(64, 128, 2**16, "exp", np.float32, np.float32)
    oracles.assert_within(out, oracles.sinusoidal_positional_encoding(64, 128, 2**16, arithmetic=FLOAT32))
    for angle in ({"frequency": 0.0}, {"frequency": 0.0, "product": 0.0}):
        model = without(FLOAT32, **angle)
        assert not oracles.sinusoidal_positional_encoding(64, 128, 2**16, arithmetic=model).contains(out).all()


def test_exact_frequencies_leave_the_budget_without_the_rounding_of_the_product() -> None:
    theta = (np.arange(2**16, 2**16 + 64)[:, None] * frequencies(128, np.float64, "exp")).astype(np.float32)
    out = np.stack([np.sin(theta), np.cos(theta)], axis=-1).reshape(64, 128)
    kept, deleted = without(FLOAT32, frequency=ROUNDOFF), without(FLOAT32, frequency=ROUNDOFF, product=0.0)
    oracles.assert_within(out, oracles.sinusoidal_positional_encoding(64, 128, 2**16, arithmetic=kept))
    assert not oracles.sinusoidal_positional_encoding(64, 128, 2**16, arithmetic=deleted).contains(out).all()


def test_sines_of_low_accuracy_leave_the_budget_without_their_own_term() -> None:
    exact = oracles.sinusoidal_positional_encoding(64, 32).mid
    out = exact + 2.0**-14 * np.where(exact > 0, -1, 1)
    model = replace(FLOAT64, trig_absolute=2.0**-14)
    oracles.assert_within(out, oracles.sinusoidal_positional_encoding(64, 32, arithmetic=model))
    deleted = replace(model, trig_absolute=0.0)
    assert not oracles.sinusoidal_positional_encoding(64, 32, arithmetic=deleted).contains(out).any()


def test_a_table_in_16_bits_leaves_the_budget_without_its_format() -> None:
    out = kernel_sinusoid(64, 32, 0, "exp", np.float64, np.float16).astype(np.float64)
    kept, deleted = without(FLOAT64, table=oracles.BINARY16), FLOAT64
    oracles.assert_within(out, oracles.sinusoidal_positional_encoding(64, 32, arithmetic=kept))
    assert not oracles.sinusoidal_positional_encoding(64, 32, arithmetic=deleted).contains(out).all()


def test_products_leave_the_budget_without_their_rounding() -> None:
    x = np.random.default_rng(0).normal(size=(64, 32)).astype(np.float32)
    table = np.random.default_rng(1).normal(size=(64, 32)).astype(np.float32)
    turned = np.stack([-x[:, 1::2], x[:, 0::2]], axis=-1).reshape(x.shape)
    out = x * table + turned * table
    oracles.assert_within(out, oracles.apply_rotary(x, table, table, arithmetic=FLOAT32))
    deleted = replace(FLOAT32, elementwise=oracles.BINARY64)
    assert not oracles.apply_rotary(x, table, table, arithmetic=deleted).contains(out).all()


def test_underflow_and_flushing_leave_the_budget_without_their_terms() -> None:
    x, table = np.full((1, 2), 2.0**-100, dtype=np.float32), np.full((1, 2), 2.0**-45, dtype=np.float32)
    budget = oracles.apply_rotary(x, table, np.zeros_like(table), arithmetic=FLOAT32)
    assert budget.contains(x * table).all()
    assert not budget.contains(np.zeros((1, 2), dtype=np.float32)).any()
    flushed = oracles.apply_rotary(x, table, 0 * table, arithmetic=replace(FLOAT32, flush_to_zero=True))
    assert flushed.contains(np.zeros((1, 2), dtype=np.float32)).all()


def test_sums_copies_and_tables_may_be_flushed_only_where_that_is_said() -> None:
    x, pos = np.full((1, 2), 2.0**-127, dtype=np.float32), np.full((1, 2), 2.0**-128, dtype=np.float32)
    table = np.array([[2.0**-130, -(2.0**-130), 1.0]], dtype=np.float32)
    kept, zero = kernel_sinusoid(1, 2, 355, "exp", np.float64, np.float16)[:, :1], np.zeros((1, 1), dtype=np.float16)
    assert 0 < abs(kept.item()) < oracles.BINARY16.smallest_normal
    for flushes in (False, True):
        model, half = replace(FLOAT32, flush_to_zero=flushes), replace(oracles.FLOAT16, flush_to_zero=flushes)
        added = oracles.add_positional_encoding(x, pos, arithmetic=model)
        learned = oracles.learned_positional_encoding(table, 1, arithmetic=model)
        sinusoid = oracles.sinusoidal_positional_encoding(1, 1, 355, arithmetic=half)
        assert added.contains(x + pos).all()
        assert learned.contains(table).all()
        assert sinusoid.contains(kept).all()
        assert (added.contains(0 * x) == flushes).all()
        assert learned.contains(0 * table).tolist() == [[flushes, flushes, False]]
        assert (sinusoid.contains(zero) == flushes).all()


def test_overflow_of_the_output_is_accepted_and_only_there() -> None:
    x = np.array([[65504.0, 65504.0, 1.0, 1.0]], dtype=np.float16)
    cos, sin = np.ones((1, 4), dtype=np.float16), np.full((1, 4), -1.0, dtype=np.float16)
    budget = oracles.apply_rotary(x, cos, sin, arithmetic="float16")
    out = np.array([[np.inf, 0.0, 2.0, 0.0]])
    assert budget.contains(out).all()
    assert not budget.contains(np.array([[np.inf, 0.0, np.inf, 0.0]]))[0, 2]


def test_additions_in_16_bits_are_rounded_and_may_overflow() -> None:
    x, pos = np.array([[1.0, 65504.0]], dtype=np.float16), np.array([[2.0**-12, 65504.0]], dtype=np.float16)
    with np.errstate(over="ignore"):
        out = x + pos
    budget = oracles.add_positional_encoding(x, pos, arithmetic="float16")
    oracles.assert_within(out, budget)
    wide = oracles.add_positional_encoding(x, pos, arithmetic=replace(oracles.FLOAT16, output=oracles.BINARY32))
    assert not wide.contains(out).any()


def test_zeros_are_within_a_budget_only_where_it_is_vacuous() -> None:
    near = oracles.sinusoidal_positional_encoding(4, 64, 2**10, arithmetic="float32")
    far = oracles.sinusoidal_positional_encoding(4, 2, 2**50, arithmetic=replace(FLOAT32, trig_absolute=1.0))
    assert not near.vacuous
    assert far.vacuous


def test_the_budget_is_not_much_wider_than_what_kernels_do() -> None:
    out = kernel_sinusoid(1024, 128, 0, "power", np.float32, np.float32)
    worst = oracles.sinusoidal_positional_encoding(1024, 128, arithmetic=FLOAT32).excess(out).max()
    assert 0.05 < worst < 1
