"""Statistical evidence of small mistakes of attention, on any inputs: how much of an error looks like
a given mistake.

An error limit judges each element alone. A mistake changes all elements in a known direction t, and
roundings do not know it. With the errors e = out − exact, the least squares fit of e by slope·t is

    slope = Σ e·t / Σ t²,    with the standard error  √(Σ t²·(e − slope·t)²) / Σ t²               (1)

(White, A heteroskedasticity-consistent covariance matrix estimator, Econometrica 48, 1980). The
directions, with p the weights and o = Σ p_j v_j the exact output of a row:

    size         o: the sum of the weights, or the output, is off by a factor
    scale        Σ p_j·(s_j − Σ p·s)·v_j, the derivative by the logarithm of the scale
    mean         the mean of v, which is added where masked or missing weights leak
    strongest    p_m·(v_m − o) of each row's largest weight
    keys a…b     Σ p_j·(v_j − o) over a tile of keys: −1 if it is lost, 1 if it is counted twice

A slope is evidence, never a proof: roundings of correct kernels may have a common direction. `bound`
is the largest slope that they may have: ε + γ_{24+3N}(u) for an exponential that is off by the part ε
everywhere and N rescalings. The scale has the errors of its own product and of stored inputs too, and ε
counts by the spread of the scores, √(Σ p·(s − Σ p·s)²). A tile has a rounding of its stored weights too.
A slope is suspicious if it is `CERTAIN` standard errors above its bound.
"""

from typing import NamedTuple

import numpy as np

from oracles.ball import Array, gamma
from oracles.error_analysis.computation import rescalings, roundoff
from oracles.formats import Arithmetic

__all__ = ["CERTAIN", "Slope", "matched_filters"]

CERTAIN = 6.0
"""Standard errors. A normal variable is above it in one of 10⁹ cases."""

_SHORTEST_TILE, _MOST_TILES = 16, 256


class Slope(NamedTuple):
    """How much of an error has one direction: the slope with its standard error, and the largest
    slope that correct roundings may have.
    """

    name: str
    slope: float
    error: float
    bound: float

    @property
    def evidence(self) -> float:
        """By how many standard errors the slope is above its bound; 0 if it is not above it."""
        above = abs(self.slope) - self.bound
        return above / self.error if above > 0 and self.error > 0 else float("inf") if above > 0 else 0.0

    @property
    def suspicious(self) -> bool:
        """Whether the slope is far above its bound."""
        return self.evidence > CERTAIN


def matched_filters(
    q: Array, k: Array, v: Array, out: Array, a: Arithmetic, scale: float | None = None
) -> tuple[Slope, ...]:
    """Return the slope of the errors of an output of attention in each direction.

    q is (n_q, d), k is (n_k, d), v is (n_k, d_v) and out is (n_q, d_v). A scale of None is 1/√d.
    """
    s = (q.shape[-1] ** -0.5 if scale is None else scale) * (q @ k.T)
    p = np.exp(s - s.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    exact = p @ v
    error, centred = out - exact, s - (p * s).sum(-1, keepdims=True)
    spread = float(np.sqrt((p * centred**2).sum(-1).mean()))
    u = a.elementwise.unit_roundoff
    epsilon, finish = a.exp.relative, gamma(24 + 3 * rescalings(a, len(k)), max(u, a.accumulate))
    common = epsilon + finish
    of_scale = 8 * u + a.exp.per_unit + 3 * roundoff(a.scale_on_inputs) + 3 * roundoff(a.scores)
    of_tile = common + roundoff(a.weights)
    rows, strongest = np.arange(len(p)), p.argmax(-1)
    directions = [
        ("size", exact, common),
        ("scale", (p * centred) @ v, of_scale + epsilon / max(spread, epsilon)),
        ("mean", np.broadcast_to(v.mean(0), out.shape), common),
        ("strongest", p[rows, strongest][:, None] * (v[strongest] - exact), of_tile),
    ]
    found = [_slope(name, error, direction, bound) for name, direction, bound in directions]
    tile = max(_SHORTEST_TILE, len(k) // _MOST_TILES)
    for start in range(0, len(k), tile):
        keys = slice(start, start + tile)
        direction = p[:, keys] @ v[keys] - p[:, keys].sum(-1, keepdims=True) * exact
        found.append(_slope(f"keys {start}…{min(start + tile, len(k)) - 1}", error, direction, of_tile))
    return tuple(found)


def _slope(name: str, error: Array, direction: Array, bound: float) -> Slope:
    """Return the slope of (1)."""
    square = float((direction**2).sum())
    if square == 0:
        return Slope(name, 0.0, 0.0, bound)
    slope = float((error * direction).sum()) / square
    rest = np.square(direction * (error - slope * direction)).sum()
    return Slope(name, slope, float(np.sqrt(rest)) / square, bound)
