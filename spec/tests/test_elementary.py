"""What scalars offer to the extended definitions: tanh, powers, π, floor, min, a comparison, and
which numbers are finite.
"""

import math

import flint
import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spec import ARB, ARB_SERIES, FLOAT32, FLOAT64, MPF, REAL32, REAL64, SCALARS
from spec.context import series
from spec.tests.running import BINARY32, BINARY64, running

IEEE = (REAL64, REAL32, FLOAT64, FLOAT32)
numbers = st.integers(-(2**10), 2**10).map(lambda n: n / 128)  # every scalar holds them, and their squares
above_zero = st.integers(1, 2**10).map(lambda n: n / 128)


def value(x):
    return x[0] if isinstance(x, flint.arb_series) else x


# -- The same number over every scalar -------------------------------------------------------------

UNARY = {"tanh": mpmath.tanh, "log": mpmath.log}


@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize("alpha", SCALARS, ids=repr)
@given(x=above_zero)
def test_an_elementary_function_is_mpmath_s(alpha, name, x):
    check(alpha, lambda a: getattr(a, name)(a.lift(x)), lambda: UNARY[name](mpmath.mpf(x)))


@pytest.mark.parametrize("alpha", SCALARS, ids=repr)
@given(x=above_zero, y=numbers)
def test_a_power_is_mpmath_s(alpha, x, y):
    check(alpha, lambda a: a.power(a.lift(x), a.lift(y)), lambda: mpmath.power(mpmath.mpf(x), mpmath.mpf(y)))


@pytest.mark.parametrize("alpha", SCALARS, ids=repr)
def test_pi_is_mpmath_s(alpha):
    check(alpha, lambda a: a.pi(), lambda: +mpmath.pi)


def check(alpha, computed, reference):
    """Balls contain mpmath's number at 60 digits; mpmath at 50 digits agrees to 30; floats are
    within the model that `running` takes.
    """
    with mpmath.workdps(60), flint.ctx.workprec(113):
        exact, result = flint.arb(reference()), computed(alpha)
        assert type(result) is alpha.element
        if alpha is MPF:
            with mpmath.workdps(50):
                at_50_digits = flint.arb(computed(MPF))
            assert abs(at_50_digits - exact) <= 1e-30 * (1 + abs(exact))  # the balls have 34 digits
        elif alpha in (ARB, ARB_SERIES):
            wide = value(result)
            assert wide.overlaps(exact)
            assert wide.rad() <= 2.0**-100 * (1 + abs(exact))
        else:
            bound = computed(running(BINARY32 if alpha in (REAL32, FLOAT32) else BINARY64)).ball
            assert bound.overlaps(exact)
            assert bound.contains(float(result)) or (math.isinf(result) and exact > float(np.finfo(alpha.element).max))


# -- Taylor arithmetic -----------------------------------------------------------------------------


def test_the_derivative_of_tanh_at_log_2_is_16_over_25():
    with flint.ctx.workprec(113):
        t = ARB_SERIES.tanh(series(flint.arb(2).log(), 1))
        assert t[0].contains(flint.arb(3) / 5)
        assert t[1].contains(flint.arb(16) / 25)
        assert t[1].rad() < 2.0**-100


def test_the_expansion_of_tanh_at_0_begins_with_x():
    t = ARB_SERIES.tanh(series(0, 1))
    assert (t[0], t[1]) == (0, 1)


def test_the_derivative_of_a_power_follows_the_base_and_the_exponent():
    with flint.ctx.workprec(113):
        cube = ARB_SERIES.power(series(2, 1), series(3))
        exponential = ARB_SERIES.power(series(2), series(3, 1))
        assert cube[1].contains(12)
        assert exponential[1].overlaps(8 * flint.arb(2).log())


def test_a_series_that_was_cut_below_its_derivative_has_an_unknown_one():
    cut = flint.arb_series([flint.arb(0.5)], 1)
    assert not ARB_SERIES.tanh(cut)[1].is_finite()
    assert not ARB_SERIES.floor(cut)[1].is_finite()


def test_the_floor_of_a_series_is_constant_between_integers_and_may_jump_at_one():
    assert ARB_SERIES.floor(series(2.5, 7))[0] == 2
    assert ARB_SERIES.floor(series(2.5, 7))[1] == 0
    assert not ARB_SERIES.floor(series(2, 7))[1].is_finite()


# -- Floor, minimum, comparison --------------------------------------------------------------------


@pytest.mark.parametrize("alpha", SCALARS, ids=repr)
@given(x=numbers, y=numbers)
def test_floor_ceil_min_and_greater_are_exact(alpha, x, y):
    a, b = alpha.lift(x), alpha.lift(y)
    assert value(alpha.floor(a)) == math.floor(x)
    assert value(alpha.ceil(a)) == math.ceil(x)
    assert value(alpha.min(a, b)) == min(x, y)
    assert alpha.greater(a, b) is (x > y)
    assert type(alpha.floor(a)) is type(alpha.min(a, b)) is alpha.element


@given(st.integers(-8, 8), st.integers(0, 8))
def test_the_floor_of_a_ball_contains_the_floor_of_each_of_its_points(m, r):
    ball = ARB.floor(flint.arb(m / 4, r / 4))
    assert all(ball.contains(math.floor(x / 4)) for x in range(m - r, m + r + 1))


@pytest.mark.parametrize(
    ("x", "y"),
    [(flint.arb(1), flint.arb(1, 0.5)), (flint.arb(0, 2), flint.arb(1, 2)), (flint.arb("nan"), flint.arb(0))],
)
def test_a_comparison_of_balls_that_overlap_is_refused(x, y):
    for alpha, a, b in ((ARB, x, y), (ARB_SERIES, series(x), series(y))):
        with pytest.raises(
            ValueError, match=r"is not decided at 53 bits: the balls overlap\. Raise flint\.ctx\.prec\.$"
        ):
            alpha.greater(a, b)


# -- Which numbers are finite ----------------------------------------------------------------------


@pytest.mark.parametrize("alpha", SCALARS, ids=repr)
def test_which_numbers_are_finite_and_which_is_minus_infinity(alpha):
    for x, finite in ((0.0, True), (-1.0, True), (math.inf, False), (-math.inf, False), (math.nan, False)):
        number = alpha.lift(x)
        assert alpha.is_finite(number) is finite
        assert alpha.is_neg_inf(number) is (x == -math.inf)
    assert alpha.is_neg_inf(alpha.neg_inf)
    assert type(alpha.neg_inf) is alpha.element


def test_a_ball_without_bounds_is_neither_finite_nor_minus_infinity():
    whole = flint.arb(0, math.inf)
    assert not ARB.is_finite(whole)
    assert not ARB.is_neg_inf(whole)


def test_pi_follows_the_working_precision():
    with flint.ctx.workprec(200):
        narrow = ARB.pi()
    assert ARB.pi().contains(narrow)
    assert narrow.rad() < ARB.pi().rad()
