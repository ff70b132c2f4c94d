"""The forward pass of attention: one blocked online softmax in float64, and what its error is made
of.

`oracles.error_analysis.output_error` says what is added up over keys, and what follows for the output.

**Underflow.** A weight that comes out as 0 is less than the smallest normal number η, but the
kernel's, or the exact one, may be exp(τ_j) times as large: so e_j + η takes the place of e_j in
every bound, and exp(m_old − m_new) + η that of a rescaling.

**A sink** is a key of value 0 whose logit is an input.  A kernel may take the maximum over keys
alone, and add exp(sink − m) at the end: the bound takes the larger of both |m|, and promises
nothing where that exponential overflows.

Where the log-sum-exp is without the sink, a kernel may still take M = max(m, sink) for both of its
sums, and add to M the logarithm of Σ exp(s_j − M) = exp(m − M)·D.  So the slopes are those of |M|,
and what underflows is exp(M − m) times as much of that sum: in λ alone, for no output is made of
it.  (Weights that belong to it are larger by 1/(1 − w_sink) ≥ exp(M − m)/D, and so is what is
counted of those that underflow.)  The oracle itself takes m.
"""

from typing import Any

import numpy as np

from oracles.ball import LARGEST, ROUNDOFF, UNDERFLOW, Array, expm1_upwards, gamma
from oracles.error_analysis.output_error import Bound, Rows, Sums, bounded
from oracles.error_analysis.roundings import Terms
from oracles.error_analysis.scores import (
    AttentionProblem,
    Operand,
    distances,
    expm1,
    growth,
    levelled,
    over_keys,
    part,
    scores,
    sizes,
)
from oracles.error_analysis.visible_keys import Mask

MANY = 64
"""Keys from which on it may matter that few of them are large."""

FALL = 256.0
"""A weight may fall by so much after its tile, as the maximum rises, before it is looked at again."""


def rows_forward(p: AttentionProblem, rows: slice, g: Operand | None = None, reference: Array | None = None) -> Rows:
    """The forward pass of a tile of rows, keys in tiles; `g` is the cotangent of these rows, if
    there is one; `reference` are sinks that are in no sum, but may be a kernel's maxima."""
    q, t = part(p.q, rows), p.terms
    head, d_v = q.shape[:-1], p.v.shape[-1]
    a: Sums | None = None
    m: Any = -LARGEST
    low: Any = -LARGEST
    tau: Any = 0.0
    readable: Bound = 0.0
    unknown: Bound = 0.0
    reads: Any = False
    for keys, allowed in p.key_tiles(rows):
        k, v = part(p.k, keys), part(p.v, keys)
        far = distances(v, p.centre)
        x = scores(p, rows, keys, q, k, allowed)
        s = x.u
        reads = reads | (True if allowed is None else allowed.any(axis=-1, keepdims=True))
        highest = np.maximum(m, s.max(axis=-1, keepdims=True))
        growths = levelled(p, rows, growth(p, q, k, x, allowed, t.shared.slope))
        tau = np.maximum(tau, growths.max(axis=-1, keepdims=True) if p.elementwise else growths)
        slopes = x.size if p.elementwise and t.separate.slope else None
        s -= highest
        e = np.exp(s, out=s)
        row_sums = e.sum(axis=-1, keepdims=True)
        size, readable_here = sizes(p, e, row_sums, far, allowed)
        here = Sums(row_sums, e @ v.value, size=size)
        readable = readable + readable_here
        if v.rad is not None:
            here.spread = e @ v.rad
        if v.unknown is not None:
            unknown = unknown + over_keys(allowed, v.unknown)
        if p.elementwise:
            turned = None if g is None else _turned(p, g, v, far, allowed)
            _add_errors(p, here, e, growths, slopes, far, turned, allowed)
        if a is None:
            a, low = here, highest
        else:
            if a.large is not None:
                risen = highest - low > np.log(FALL)
                low = np.where(risen, highest, low)
                a.small += np.where(risen, a.total + a.x, 0.0)
                a.tiny += np.where(risen, a.size + a.grown, 0.0)
            shrink = np.exp(m - highest)
            a.total *= shrink
            a.scale(shrink, shrink + UNDERFLOW)
            a.add(here)
        m = highest
    if a is None:
        a = Sums(np.zeros((*head, 1)), np.zeros((*head, d_v)), x=np.zeros((*head, 1)))
        m, tau = np.full((*head, 1), -LARGEST), np.zeros((*head, 1))
    dead = None if reads is True else np.broadcast_to(np.logical_not(reads), (*head, 1))
    largest = m
    if p.features is not None and p.features.sink is not None:
        m, tau = _add_sink(t, a, m, p.features.sink[..., rows, :], tau)
        dead = None if dead is None else dead & (a.total == 0)
    share = 1 / a.total
    a.scale(share, share)
    if not p.elementwise:
        a.x = expm1(tau.copy()) * (1 + p.n_k * t.weight_underflow)
        a.grown = a.x * (a.size + t.weight_underflow * readable)
    if p.v.unknown is not None:
        a.out = np.where(unknown > 0, np.nan, a.out)
    size = np.abs(m) if largest is m else np.maximum(np.abs(m), np.where(largest == -LARGEST, 0.0, np.abs(largest)))
    lost = None if largest is m else (m - largest > np.log(p.ranges.sums) - 1) & (largest > -LARGEST)
    if p.rounded_beyond(p.v):
        lost = np.ones(m.shape, dtype=bool)
    dead = dead if dead is not None and dead.any() else None
    above: Bound = 1.0
    if reference is not None:
        highest = np.maximum(m, reference)
        size, above = np.maximum(size, np.abs(highest)), np.exp(highest - m)
        if a.large is not None:
            a.large += 1  # one more rescaling, from m to M
    return bounded(p, size, m + np.log(a.total), dead, a, readable, tau, g is not None, lost, above)


def keys_alone(p: AttentionProblem, rows: slice) -> Rows | None:
    """The forward pass of a tile of rows without its sinks, where these are no part of the log-sum-exp; else None."""
    if (problem := p.without_sink) is None or p.features is None or p.features.sink is None:
        return None
    return rows_forward(problem, rows, reference=None if p.terms == p.own else p.features.sink[..., rows, :])


def without_sink(p: AttentionProblem, rows: slice, forward: Rows) -> tuple[Array, Array, Mask | None] | None:
    """Where the log-sum-exp is without the sink: 1/(1 − w_sink), by which the weights that belong
    to it are larger, how far a kernel's such weights may be from them, relative to them, and which
    rows have no key; else None."""
    if (alone := keys_alone(p, rows)) is None:
        return None
    relative = expm1_upwards(alone.entry + alone.common + forward.entry + forward.common)
    return np.exp(forward.lse - alone.lse), relative, alone.dead


def _add_sink(t: Terms, a: Sums, m: Array, sink: Array, tau: Array) -> tuple[Array, Array]:
    """Add a sink to the sums of each row, as a key of value 0 whose logit is an input; returns m
    and the largest exponent with it.
    """
    highest = np.maximum(m, sink)
    shrink = np.exp(m - highest)
    a.total *= shrink
    a.scale(shrink, shrink + UNDERFLOW)
    e, size = np.exp(sink - highest), np.where(sink == -np.inf, 0.0, np.abs(sink))
    of_sink = t.shared.slope * size
    grown = np.exp(of_sink) * (e + t.weight_underflow)
    a.total += e
    a.x = a.x + expm1_upwards(of_sink) * (e + t.weight_underflow)
    a.wander = a.wander + expm1_upwards(t.separate.slope * size) * grown
    if a.large is not None:
        a.large += 1
    return highest, np.maximum(tau, of_sink)


def _add_errors(
    p: AttentionProblem,
    a: Sums,
    e: Array,
    growths: Array,
    slopes: Array | None,
    far: Array,
    turned: Array | None,
    allowed: Mask | None,
) -> None:
    """Add to a tile's sums what the errors of its weights e come to, entry by entry; it overwrites
    the exponents of both.
    """
    t = p.terms
    possible = e + t.weight_underflow if allowed is None else np.where(allowed, e + t.weight_underflow, 0.0)
    excess = expm1(growths)
    excess *= possible
    a.x = excess.sum(axis=-1, keepdims=True)
    a.grown = excess @ far
    if turned is not None:
        a.turned = (e * turned).sum(axis=-1, keepdims=True)
        a.moved = (excess * turned).sum(axis=-1, keepdims=True)
    possible += excess
    if p.n_k > MANY and t.addition < np.inf:
        a.large = np.count_nonzero(possible > t.addition, axis=-1, keepdims=True)
        rest = np.where(e * e <= FALL * t.addition * possible, possible, 0.0)
        a.small = rest.sum(axis=-1, keepdims=True)
        a.tiny = rest @ far
    if slopes is not None:
        if allowed is not None:
            np.copyto(slopes, 0.0, where=~allowed)
        slopes *= t.separate.slope
        possible *= expm1(slopes)
        a.wander = possible.sum(axis=-1, keepdims=True)
        a.drift = possible @ far
        if turned is not None:
            a.swayed = (possible * turned).sum(axis=-1, keepdims=True)


def _turned(p: AttentionProblem, g: Operand, v: Operand, far: Array, allowed: Mask | None) -> Array:
    """Upper bounds of |g·(v − c)|, 0 where a row may not read a key; the product is off by γ·|g||v − c|ᵀ."""
    turned = np.abs(g.value @ (v.value - p.centre).swapaxes(-1, -2))
    relative = gamma(far.shape[-1] + 4, ROUNDOFF)
    longest = (
        far.max(axis=-1, initial=0.0) * far.shape[-1] ** 0.5
    )  # of each row of v − c: its norm, without squares that may overflow
    turned += (relative * g.length)[..., :, None] * longest[..., None, :]
    if g.rad is not None:
        turned += g.rad @ far.swapaxes(-1, -2)
    if v.rad is not None:
        turned += g.reach @ v.rad.swapaxes(-1, -2)
    if allowed is not None:
        np.copyto(turned, 0.0, where=~allowed)
    return turned


def uniform_rows(p: AttentionProblem) -> Rows:
    """The one row (1, d_v) of a query that may read no key and reads all of them equally."""
    head, n_k = p.v.shape[:-2], p.n_k
    far = distances(p.v, p.centre).sum(axis=-2, keepdims=True)
    zero = np.zeros((*head, 1, 1))
    a = Sums(
        total=zero + n_k,
        out=p.v.raw.sum(axis=-2, keepdims=True) / n_k,
        size=far / n_k,
        spread=0.0 if p.v.rad is None else p.v.rad.sum(axis=-2, keepdims=True) / n_k,
    )
    return bounded(p, zero, np.log(a.total), None, a, far, zero, False)
