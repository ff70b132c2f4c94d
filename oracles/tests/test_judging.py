"""What decides whether a radius means something says the same as its definition, row by row and column by column."""

from typing import Any

import numpy as np
import pytest

import oracles
from oracles.ball import Array, Ball
from oracles.formats import BINARY32
from oracles.judging import SAMPLE, _is_narrow, is_wide, mean_is_accepted

RNG = np.random.default_rng(0)


def drawn(special: float, threshold: float) -> Ball:
    """Elements some of which are 0, NaN or of an infinite radius, and radii around a multiple of
    their column's size.
    """
    shape = tuple(RNG.integers(1, 6, size=2))
    mid, rad = RNG.normal(size=shape), threshold * 10.0 ** RNG.uniform(-3, 1) * RNG.uniform(0.5, 1.0, size=shape)
    mid = np.where(RNG.random(shape) < special, 0.0, mid)
    rad = np.where(RNG.random(shape) < special / 4, np.inf, rad)
    lost = RNG.random(shape) < special / 2
    return Ball(np.where(lost, np.nan, mid), np.where(lost, np.inf, rad))


def narrow(column: Array, rad: Array) -> bool:
    """Every radius where something is known is at most u/4 of the lower median of the elements other than 0."""
    known = ~np.isnan(column)
    sizes = sorted(size for size in np.abs(column[known]) if size > 0)
    typical = sizes[(len(sizes) - 1) // 2] if sizes else 0.0
    return all(r <= BINARY32.unit_roundoff / 4 * typical + BINARY32.smallest_subnormal for r in rad[known])


def wide(x: Ball) -> bool:
    """In at least half of the rows that count, half of the finite radii reach the mean of their elements."""
    sizes = np.where(np.isnan(x.mid), 0.0, np.abs(x.mid))
    reached = []
    for row, rad in zip(sizes, np.where(np.isnan(x.mid), np.inf, x.rad), strict=True):
        finite = rad < np.inf
        if row.max() > 0 and row.max() >= BINARY32.unit_roundoff * sizes.max():
            reached.append(2 * (rad[finite] * finite.sum() >= row[finite].sum()).sum() >= finite.sum())
    return bool(reached) and 2 * sum(reached) >= len(reached)


@pytest.mark.parametrize("special", [0.0, 0.3])
def test_a_certificate_is_narrow_by_the_median_of_its_columns(special: float) -> None:
    balls = [drawn(special, BINARY32.unit_roundoff / 4) for _ in range(300)]
    found = [_is_narrow(x) for x in balls]
    assert found == [all(map(narrow, x.mid.T, x.rad.T)) for x in balls]
    assert 30 < sum(found) < 270


def test_columns_that_are_zero_in_all_sampled_rows_are_looked_at_in_full() -> None:
    """As the gradient of a causal bias, whose last column has one entry: narrow where that is known, and else not."""
    mid = np.tri(2 * SAMPLE + 1)
    mid[:, -2:] *= 1e-6
    rad = BINARY32.unit_roundoff / 8 * mid
    assert _is_narrow(Ball(mid, rad))
    rad[:, -1] *= 4
    assert not _is_narrow(Ball(mid, rad))


@pytest.mark.parametrize("special", [0.0, 0.3])
def test_a_budget_is_wide_by_the_means_of_its_rows(special: float) -> None:
    balls = [drawn(special, 1.0) for _ in range(300)]
    found = [is_wide(x) for x in balls]
    assert found == [wide(x) for x in balls]
    assert 30 < sum(found) < 270


def accepted(out: Ball, v: Array, allowed: Any) -> bool:
    """Wherever two visible values differ, their mean is within a radius of at least half their spread."""
    verdicts = []
    for i, j in np.ndindex(out.mid.shape):
        values = v[allowed[i], j]
        if len(values) and values.max() > values.min():
            close = abs(values.mean() - out.mid[i, j]) <= out.rad[i, j]
            verdicts.append(close and out.rad[i, j] >= (values.max() - values.min()) / 2)
    return is_wide(out) or (bool(verdicts) and all(verdicts))


def test_a_budget_that_accepts_the_mean_is_found_whichever_row_says_so() -> None:
    found = []
    for _ in range(300):
        v, allowed = RNG.integers(0, 3, size=(4, 2)) / 4 + 100, RNG.random((3, 4)) < 0.5
        mean = np.array([v[row].mean(axis=0) if row.any() else v[0] for row in allowed])
        out = Ball(
            mean + RNG.uniform(-0.1, 0.1, size=mean.shape), RNG.choice([0.05, 0.3], p=[0.1, 0.9], size=mean.shape)
        )
        found.append(mean_is_accepted(out, v, lambda i, allowed=allowed: allowed[i : i + 1]))
        assert found[-1] == accepted(out, v, allowed)
    assert 30 < sum(found) < 270


def test_one_row_shows_that_all_values_are_equal() -> None:
    rows: list[int] = []
    out, v = Ball(np.ones((4096, 3)), np.zeros((4096, 3))), np.broadcast_to(1.0, (5, 3))
    assert not mean_is_accepted(out, v, lambda i: rows.append(i))
    assert rows == [0]


def test_a_row_of_an_output_about_which_nothing_is_known_is_not_judged():
    """The values cancel in the first row, and are large in the others."""
    q, k, v = np.array([[0.0], [1.0], [1.0]]), np.array([[0.0], [1.0]]), np.array([[1e10], [-1e10 * (1 + 1e-12)]])
    assert not oracles.scaled_dot_product_attention(q, k, v, scale=1.0, method="fast").judged
    assert not oracles.attention(q[None], k[None], v[None], scale=1.0, method="fast")[0].judged
    exact = oracles.scaled_dot_product_attention(q, k, v, scale=1.0)
    assert exact.judged
    assert exact.rad[0, 0] <= 2.0**-24 * abs(exact.mid[0, 0])


def test_ball_arithmetic_is_judged_as_all_else_where_sums_are_taken_after_it():
    """The gradient of a bias that rows share, whose cotangents cancel."""
    k, v = np.random.default_rng(0).standard_normal((2, 1, 2, 1))
    told = {"bias": np.zeros((1, 2)), "scale": 1.0, "method": "arb"}
    for off, judged in ((2.0**-50, False), (0.5, True)):
        g = np.array([[[1e8], [-1e8 * (1 + off)]]])
        assert oracles.attention_vjp(np.full((1, 2, 1), 0.3), k, v, g, **told)[3].judged == judged
