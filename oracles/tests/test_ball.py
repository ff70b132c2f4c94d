"""Every primitive's ball contains the value over ℝ, judged by `flint.arb` at 300 bits."""

from collections.abc import Callable

import flint
import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from oracles import ball
from oracles.ball import Ball
from oracles.formats import BINARY16, BINARY32, BRAIN16, Format

SETTINGS = settings(max_examples=150)
NUMBERS = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(-1e4, 1e4),
    st.sampled_from([0.0, -0.0, 5e-324, 2.0**-1022, 1.0, -1.0, 1e300, -1e300, 2.0**53 + 2]),
)
RADII = st.one_of(st.just(0.0), st.floats(0, 1e-3), st.floats(0, 1e300))
OFFSETS = st.sampled_from([-1.0, 0.0, 0.5, 1.0])


@pytest.fixture(autouse=True)
def precision() -> object:
    """arb's precision is process-wide: set it here, give it back afterwards."""
    before = flint.ctx.prec
    flint.ctx.prec = 2500
    yield
    flint.ctx.prec = before


def contains(enclosure: Ball, value: flint.arb) -> bool:
    """Whether the whole arb ball lies in [mid − rad, mid + rad]; everything lies in an infinite radius."""
    mid, rad = enclosure.mid.item(), enclosure.rad.item()
    return bool(np.isinf(rad) or abs(value - flint.arb(mid)) <= flint.arb(rad))


def point(mid: float, rad: float, offset: float) -> tuple[Ball, flint.arb]:
    """A one-entry ball and a real number inside it."""
    return Ball(np.array([mid]), np.array([rad])), flint.arb(mid) + flint.arb(rad) * flint.arb(offset)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (ball.add, lambda x, y: x + y),
        (ball.multiply, lambda x, y: x * y),
        (ball.divide, lambda x, y: x / y),
        (Ball.__sub__, lambda x, y: x - y),
    ],
)
@SETTINGS
@given(data=st.data())
def test_binary_primitives_enclose(
    ours: Callable[[Ball, Ball], Ball], theirs: Callable[[flint.arb, flint.arb], flint.arb], data: st.DataObject
) -> None:
    (a, x), (b, y) = (point(data.draw(NUMBERS), data.draw(RADII), data.draw(OFFSETS)) for _ in range(2))
    result = ours(a, b)
    value = theirs(x, y)
    assert contains(result, value)


@pytest.mark.parametrize(
    ("ours", "theirs", "domain"),
    [
        (ball.exp, flint.arb.exp, st.floats(-800, 800)),
        (ball.sqrt, flint.arb.sqrt, st.floats(0, 1e308)),
        (ball.sin, flint.arb.sin, st.floats(-1e7, 1e7)),
        (ball.cos, flint.arb.cos, st.floats(-1e7, 1e7)),
    ],
)
@SETTINGS
@given(data=st.data())
def test_elementary_primitives_enclose(
    ours: Callable[[Ball], Ball],
    theirs: Callable[[flint.arb], flint.arb],
    domain: st.SearchStrategy[float],
    data: st.DataObject,
) -> None:
    a, x = point(data.draw(domain), data.draw(st.one_of(st.just(0.0), st.floats(0, 1.0))), data.draw(OFFSETS))
    value = theirs(x)
    result = ours(a)
    assert contains(result, value) or (not value.is_finite() and np.isinf(result.rad))


@SETTINGS
@given(data=st.data())
def test_matmul_and_sum_enclose_in_every_order(data: st.DataObject) -> None:
    n = data.draw(st.integers(0, 12))
    entries = st.lists(st.tuples(NUMBERS, st.one_of(st.just(0.0), st.floats(0, 1.0)), OFFSETS), min_size=n, max_size=n)
    (a, x), (b, y) = (
        (Ball(np.array([t[0] for t in ts]), np.array([t[1] for t in ts])), [point(*t)[1] for t in ts])
        for ts in (data.draw(entries), data.draw(entries))
    )
    product = ball.matmul(Ball(a.mid[None], a.rad[None]), Ball(b.mid[:, None], b.rad[:, None]))
    exact = sum((s * t for s, t in zip(x, y, strict=True)), flint.arb(0))
    assert contains(product, exact)
    assert contains(ball.total(Ball(a.mid[None], a.rad[None])), sum(x, flint.arb(0)))


@pytest.mark.parametrize(("target", "dtype"), [(BINARY32, "float32"), (BINARY16, "float16"), (BRAIN16, "bfloat16")])
@SETTINGS
@given(value=st.one_of(st.floats(-1e39, 1e39), st.floats(-1e5, 1e5), st.floats(-1e-6, 1e-6), st.floats(-1e-38, 1e-38)))
def test_rounding_to_a_format_stays_within_its_ball(target: Format, dtype: str, value: float) -> None:
    import ml_dtypes

    with np.errstate(over="ignore"):
        stored = float(np.float64(value).astype(getattr(ml_dtypes, dtype, dtype)))
    result = ball.rounded(ball.exact(np.array([value])), target)
    assert np.isinf(result.rad) or abs(stored - value) <= result.rad


def test_exact_sums_and_zero_products_have_radius_zero() -> None:
    three = ball.add(ball.exact(np.array([1.0, 0.1])), ball.exact(np.array([2.0, 0.2])))
    assert three.rad[0] == 0.0
    assert 0.0 < three.rad[1] < 1e-16
    assert ball.multiply(ball.exact(np.zeros(2)), ball.exact(np.array([3.0, 1e300]))).rad.tolist() == [0.0, 0.0]


def test_overflow_and_non_finite_entries_have_no_midpoint_and_infinite_radius() -> None:
    huge = ball.exact(np.array([1e300, np.nan, np.inf, 2.0]))
    result = huge * huge
    assert np.isnan(result.mid).tolist() == [True, True, True, False]
    assert np.isinf(result.rad).tolist() == [True, True, True, False]


def test_dividing_by_a_ball_that_contains_zero_has_infinite_radius() -> None:
    assert np.isinf(ball.divide(ball.exact(np.array([1.0])), Ball(np.array([0.5]), np.array([0.5]))).rad)
