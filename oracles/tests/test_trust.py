"""The part of the trust base that can be put to the test: NumPy's elementary functions are within 4
units in the last place.

On dense samples of the domains that the oracles use, contiguous and strided (NumPy has a kernel for
each), against 113-bit balls. 4 units in the last place are at most 8u of the value, u = 2⁻⁵³; where
it is subnormal, an underflow of 2⁻¹⁰²² is granted besides.
"""

import flint
import numpy as np
import pytest

from oracles.ball import ELEMENTARY, UNDERFLOW

RNG = np.random.default_rng(0)


def _between(low: float, high: float, size: int = 4000) -> np.ndarray:
    return RNG.uniform(low, high, size)


def _power_of_2(x: np.ndarray) -> np.ndarray:
    """By Python's own floats, as slopes are."""
    return np.array([2.0**y for y in x.tolist()])


DOMAINS = {
    "exp": (np.exp, flint.arb.exp, [_between(-746, 0), _between(-40, 0), _between(-1e-3, 1e-3), _between(0, 709)]),
    "expm1": (np.expm1, flint.arb.expm1, [_between(0, 700), _between(0, 1), 2.0 ** _between(-60, 0)]),
    "log": (np.log, flint.arb.log, [_between(1, 2), _between(1, 1e6), 2.0 ** _between(0, 1000)]),
    "log1p": (np.log1p, flint.arb.log1p, [-(2.0 ** _between(-60, -1e-3)), _between(-0.9, 0)]),
    "2 ** x": (_power_of_2, lambda x: flint.arb(2) ** x, [_between(-8, 0), -(2.0 ** _between(-16, 0))]),
    "tanh": (
        np.tanh,
        flint.arb.tanh,
        [_between(-25, 25), _between(-1, 1), 2.0 ** _between(-1000, 0), -(2.0 ** _between(-60, 8))],
    ),
    "sin": (np.sin, flint.arb.sin, [_between(-4, 4), _between(-(2.0**21), 2.0**21)]),
    "cos": (np.cos, flint.arb.cos, [_between(-4, 4), _between(-(2.0**21), 2.0**21)]),
}


@pytest.mark.parametrize("step", [1, 2, -1], ids=["contiguous", "strided", "backwards"])
@pytest.mark.parametrize("name", DOMAINS)
def test_numpys_elementary_functions_are_within_4_units_in_the_last_place(name, step):
    function, exact, samples = DOMAINS[name]
    for sample in samples:
        x = sample[::step]
        with flint.ctx.workprec(113):
            for value, computed in zip(x.tolist(), function(x).tolist(), strict=True):
                true = exact(flint.arb(value))
                assert abs(flint.arb(computed) - true) <= ELEMENTARY * abs(true) + UNDERFLOW, (value, computed)
