"""At the ends of the range: errors that underflow do not vanish, what may overflow is not judged, NaN stays where it
is."""

from typing import Any

import numpy as np

from oracles import ball
from oracles.attention import scaled_dot_product_attention_jvp
from oracles.ball import Ball

HUGE_KEYS = np.array([[8.18480844e152, 6.34893357e152, 2.37105432e153], [5.08263818e152, 9.06635120e152, 2.16193936e153]])
HUGE_QUERY = np.array([[1.30400005e153, 9.47080963e152, -7.03735236e152]])
SIGNS = np.array([[1.0], [-1.0]])


def test_a_tiny_scale_does_not_make_errors_of_huge_products_vanish() -> None:
    k, dq, none = HUGE_KEYS, HUGE_QUERY, np.zeros((1, 3))
    fast, exact = (
        scaled_dot_product_attention_jvp(none, k, SIGNS, None, dq, 0 * k, 0 * SIGNS, scale=1e-320, method=method)  # type: ignore[arg-type]
        for method in ("fast", "arb")
    )
    assert (np.abs(fast.mid - exact.mid) + exact.rad <= fast.rad).all()


def test_a_power_of_two_may_move_between_the_scale_and_its_factors() -> None:
    def radius(dq: Any, k: Any, scale: float) -> Any:
        zeros = 0 * dq, 0 * k, 0 * SIGNS
        return scaled_dot_product_attention_jvp(zeros[0], k, SIGNS, None, dq, *zeros[1:], scale=scale, arithmetic="float64").rad

    tiny = radius(HUGE_QUERY, HUGE_KEYS, 1e-320)
    np.testing.assert_allclose(tiny, radius(HUGE_QUERY * 2.0**-500, HUGE_KEYS * 2.0**-500, 1e-320 * 2.0**1000), rtol=1e-6)


def test_a_relative_error_of_a_divisor_that_underflows_is_not_zero() -> None:
    a, b = (Ball(np.array([x]), np.array([r])) for x, r in ((1e-310, 0.0), (1e-300, 1e-315)))
    quotient = ball.divide(a, b)
    assert quotient.rad[0] >= 1e-10 * 1e-15
