"""What another review of the error analysis found, of rotations and their frequencies: honest kernels that left a budget, with their inputs."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from oracles.conventions import Conventions
from oracles.formats import BINARY16, FLOAT32, Angle
from oracles.frequencies import rotary_frequencies

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
