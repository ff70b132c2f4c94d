"""The rounding of simulated kernels is that of the formats, and their sums are sums."""

from fractions import Fraction

import numpy as np
import pytest

from oracles.formats import BINARY16, BINARY32, BRAIN16
from oracles.tests.simulated.rounding import Sums, accumulator, rounding


@pytest.mark.parametrize("target", [BINARY16, BRAIN16, BINARY32], ids=lambda f: f.name)
def test_rounding_takes_the_nearest_number_of_a_format(target):
    rng = np.random.default_rng(0)
    x = rng.standard_normal(500) * 2.0 ** rng.uniform(
        np.log2(target.smallest_subnormal) - 2, np.log2(target.largest) + 1, 500
    )
    bits = -round(np.log2(target.unit_roundoff))
    for value, got in zip(x.tolist(), rounding(target)(x).tolist(), strict=True):
        step = max(Fraction(2) ** (int(np.frexp(value)[1]) - bits), Fraction(target.smallest_subnormal))
        nearest = round(Fraction(value) / step) * step
        assert got == (nearest if abs(nearest) <= target.largest else np.copysign(np.inf, value))


def test_a_fused_multiply_add_rounds_once():
    rng = np.random.default_rng(0)
    sums = Sums("fused", None, accumulator(2.0**-24, False), 0)
    for _ in range(200):
        a, b = rounding(BINARY32)(rng.standard_normal((2, 2)) * 2.0 ** rng.integers(-12, 12, (2, 2)))
        first = Fraction(float(np.float32(a[0] * b[0])))
        exact = first + Fraction(a[1].item()) * Fraction(b[1].item())
        spacing = Fraction(float(np.spacing(np.float32(float(exact)))))
        assert abs(Fraction(sums.product(a[None], b[:, None]).item()) - exact) <= abs(spacing) / 2


@pytest.mark.parametrize("order", ["sequential", "reversed", "pairwise", "tree", "fused", "library"])
def test_sums_in_every_order_and_in_blocks_are_sums(order):
    a = np.random.default_rng(0).integers(-9, 10, (3, 45)).astype(np.float64)
    for block in (None, 1, 7, 64):
        for roundoff, chopped in ((2.0**-53, False), (2.0**-24, False), (2.0**-22, True)):
            sums = Sums(order, block, accumulator(roundoff, chopped), 3)
            assert (sums.product(a, a.T) == a @ a.T).all()
