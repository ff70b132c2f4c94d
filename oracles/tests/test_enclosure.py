"""An enclosure judges outputs rigorously, and says what it found in one sentence."""

import math
from fractions import Fraction
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings

from oracles.enclosure import Enclosure, assert_within
from oracles.formats import BINARY16, BINARY32, BINARY64, BRAIN16

SETTINGS = settings(max_examples=1000)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
NEAR = st.integers(-3, 3)


def one(value: float) -> np.ndarray:
    return np.array([value], dtype=np.float64)


def excess(got: float, mid: float, rad: float, **keywords: Any) -> float:
    return float(Enclosure(one(mid), one(rad), **keywords).excess(one(got))[0])


def steps(x: float, count: int) -> float:
    for _ in range(abs(count)):
        x = math.nextafter(x, math.copysign(math.inf, count))
    return x


@SETTINGS
@given(FINITE, FINITE, NEAR, st.booleans())
def test_contains_decides_over_the_reals_even_at_the_last_bit(got: float, mid: float, count: int, near: bool) -> None:
    distance = abs(Fraction(got) - Fraction(mid))
    assume(distance < Fraction(np.finfo(np.float64).max) - 1)
    rad = max(0.0, steps(float(distance), count)) if near else abs(got)
    assume(np.isfinite(rad))
    inside = distance <= Fraction(rad)
    enclosure = Enclosure(one(mid), one(rad))
    assert enclosure.contains(one(got))[0] == inside
    assert (enclosure.excess(one(got))[0] <= 1) == inside


@SETTINGS
@given(st.integers(-8, 8), st.integers(-8, 8), st.integers(0, 60), st.integers(0, 16))
def test_a_tie_is_inside(mid: int, got: int, exponent: int, rad: int) -> None:
    """Small integers beside a power of two, where the difference is rounded half the time."""
    mid_value, got_value = mid * 2.0**exponent + got, -got * 2.0**exponent + mid
    distance = abs(Fraction(got_value) - Fraction(mid_value))
    radius = float(distance) + rad - 8
    assume(radius >= 0)
    assert Enclosure(one(mid_value), one(radius)).contains(one(got_value))[0] == (distance <= Fraction(radius))


@SETTINGS
@given(FINITE, FINITE, FINITE.map(abs).filter(bool))
def test_excess_is_error_over_radius(got: float, mid: float, rad: float) -> None:
    expected = abs(Fraction(got) - Fraction(mid)) / Fraction(rad)
    assume(2.0**-1000 < expected < 2.0**1000 and abs(Fraction(got) - Fraction(mid)) < 2**1023)
    assert abs(Fraction(excess(got, mid, rad)) / expected - 1) <= Fraction(2) ** -51


INF, NAN = float("inf"), float("nan")


@pytest.mark.parametrize(
    ("got", "mid", "rad", "expected"),
    [
        (1.0, 1.0, 0.0, 0.0),
        (-0.0, 0.0, 0.0, 0.0),
        (1.5, 1.0, 0.0, INF),
        (1.5, 1.0, 0.25, 2.0),
        (NAN, 1.0, 1.0, INF),
        (NAN, NAN, 0.0, 0.0),
        (1.0, NAN, 0.0, INF),
        (NAN, NAN, INF, 0.0),
        (1.0, NAN, INF, 0.0),
        (INF, 1.0, INF, 0.0),
        (INF, 1.0, 1.0, INF),
        (NAN, 1.0, INF, 0.0),
        (5e-324, 0.0, 1e300, 0.0),
        (1e308, -1e308, 1e308, INF),
    ],
)
def test_excess_of_special_values(got: float, mid: float, rad: float, expected: float) -> None:
    assert excess(got, mid, rad) == expected


@pytest.mark.parametrize(
    ("got", "mid", "rad", "expected"),
    [
        (INF, 65504.0, 1.0, 0.0),
        (INF, 65503.0, 2.0, 0.5),
        (INF, 65503.0, 1.0, INF),
        (INF, 65504.0, 0.0, INF),
        (INF, 70000.0, 1.0, 0.0),
        (-INF, -70000.0, 1.0, 0.0),
        (INF, -70000.0, 1.0, INF),
        (65504.0, 70000.0, 1.0, 4496.0),
    ],
)
def test_infinity_is_accepted_beyond_the_largest_number(got: float, mid: float, rad: float, expected: float) -> None:
    assert excess(got, mid, rad, format=BINARY16) == expected


def test_infinity_in_float64_is_accepted_beyond_float64() -> None:
    largest = float(np.finfo(np.float64).max)
    assert excess(INF, largest, 1.0) == 0
    assert excess(INF, largest, 0.0) == INF
    assert excess(INF, largest / 2, 0.0) == INF


@pytest.mark.parametrize(
    ("form", "dtype"), [(BINARY64, np.float64), (None, np.float64), (BINARY32, np.float32), (BINARY16, np.float16)]
)
def test_an_ulp_is_the_spacing_of_the_format(form: Any, dtype: Any) -> None:
    mid = np.array(
        [0.0, 1.0, 1.5, -2.0, 60000.0, np.finfo(dtype).tiny, np.finfo(dtype).smallest_subnormal], dtype=dtype
    )
    wide = mid.astype(np.float64)
    enclosure = Enclosure(wide, np.zeros(mid.shape), format=form)
    away = np.nextafter(mid, np.copysign(dtype(np.inf), mid))
    assert enclosure.ulps(away).tolist() == [1.0] * len(mid)


def test_ulps_of_special_values() -> None:
    enclosure = Enclosure(np.array([NAN, NAN, 1.0, 1.0]), np.zeros(4), format=BRAIN16)
    assert enclosure.ulps(np.array([NAN, 1.0, NAN, INF])).tolist() == [0.0, INF, INF, INF]


def test_any_array_is_judged() -> None:
    enclosure = Enclosure(np.ones((2, 2)), np.zeros((2, 2)))
    assert enclosure.contains(torch.ones(2, 2, dtype=torch.bfloat16)).all()


def message(out: Any, enclosure: Any, **keywords: Any) -> str:
    with pytest.raises((AssertionError, TypeError, ValueError)) as caught:
        assert_within(out, enclosure, **keywords)
    return f"{caught.type.__name__}: {caught.value}"


def test_the_worst_element_is_named_and_all_are_counted() -> None:
    enclosure = Enclosure(np.array([[1.0, 2.0], [3.0, 4.0]]), np.full((2, 2), 0.25))
    assert message(np.array([[1.5, 2.0], [3.0, 5.5]]), enclosure) == (
        "AssertionError: out[1, 1]=5.5, but should be 4.0 ± 0.25 (error / budget = 6); 2 of 4 elements are outside."
    )
    assert message(np.array([[1.5, 2.0], [3.0, NAN]]), enclosure, name="dq") == (
        "AssertionError: dq[1, 1]=nan, but should be 4.0 ± 0.25 (error / budget = inf); 2 of 4 elements are outside."
    )


def test_an_output_within_its_enclosure_passes() -> None:
    assert_within(np.float32([1.25]), Enclosure(one(1.0), one(0.25)))
    assert_within(np.ones((0, 3)), Enclosure(np.ones((0, 3)), np.ones((0, 3))))


def test_a_wrong_shape_fails() -> None:
    assert message(np.ones(3), Enclosure(np.ones((3, 1)), np.ones((3, 1)))) == (
        "AssertionError: out.shape=(3,), but should be (3, 1)."
    )
    enclosure = Enclosure(one(1.0), one(1.0))
    for judge in (enclosure.excess, enclosure.contains, enclosure.ulps):
        with pytest.raises(ValueError, match=r"^out has shape \(2,\), but should be \(1,\)\.$"):
            judge(np.ones(2))


def test_an_enclosure_that_means_nothing_fails() -> None:
    assert message(one(1.0), Enclosure(one(1.0), one(1.0), vacuous=True)) == (
        "AssertionError: out is within a vacuous budget, which outputs that carry no information are within as well."
    )
    assert message(one(1.0), Enclosure(one(1.0), one(1.0), judged=False)) == (
        "AssertionError: out is within a radius too wide to judge by; use method='arb', or a smaller case."
    )
    assert message(one(9.0), Enclosure(one(1.0), one(1.0), vacuous=True)).startswith("AssertionError: out[0]=9.0, but")


@pytest.mark.usefixtures("unchecked")
def test_what_is_not_an_enclosure_or_an_output_is_refused() -> None:
    wrong = "but should be an oracles.Enclosure. Operations with several results return a tuple of them."
    assert message(one(1.0), one(1.0)) == f"TypeError: enclosure has type ndarray, {wrong}"


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("mid", "rad", "keywords", "sentence"),
    [
        (np.ones(2), np.ones(3), {}, "rad has shape (3,), but should be (2,) like mid."),
        (np.ones(2), -np.ones(2), {}, "rad has a negative or NaN element, but should be at least 0."),
        (np.ones(1), one(NAN), {}, "rad has a negative or NaN element, but should be at least 0."),
        (
            one(INF),
            np.ones(1),
            {},
            "mid has an infinite element with a radius, but should be finite there, or have radius 0.",
        ),
        (1.0, np.ones(1), {}, "mid has type float, but should be an array."),
        (one(1.0), one(1.0), {"format": "half"}, "format has type str, but should be an oracles.Format or None."),
    ],
)
def test_what_is_no_pair_of_midpoints_and_radii_is_refused(mid: Any, rad: Any, keywords: Any, sentence: str) -> None:
    with pytest.raises((TypeError, ValueError)) as caught:
        Enclosure(mid, rad, **keywords)
    assert str(caught.value) == sentence


@pytest.mark.usefixtures("unchecked")
def test_other_arrays_become_float64() -> None:
    enclosure = Enclosure(np.float32([1.5]), torch.tensor([0.5]))
    assert enclosure.mid.dtype == enclosure.rad.dtype == np.float64
    assert enclosure.contains(np.float16([2.0])).all()
