"""What is done to a case at last, where sizes and masks are not all that its domain is about."""

from math import inf
from typing import Any

import numpy as np
from flint import arb, ctx

from oracles.formats import Arithmetic
from properties.contract.implementation import Implementation
from properties.contract.operations import Operation
from properties.strategies.choices import Choices, rounded
from properties.strategies.domain import EDGES
from properties.strategies.dominating import dominating, scores_of

__all__ = [
    "alive",
    "below_fills",
    "capped",
    "decoders",
    "dominant",
    "far",
    "few_keys",
    "fewer_keys",
    "largest_scores",
    "last",
    "parts",
    "rotations",
    "shared",
    "ties",
    "unmasked",
    "untold",
]


_COARSE = 2.0**12
"""Scores are coarse where rounding one of this size moves a weight by more than a quarter."""


def far(o: Operation, i: Implementation, x: dict[str, Any], choose: Choices) -> None:
    """Scores of any size that the formats have: they vary within a row, share a sign, or differ by
    everyday numbers far from 0.

    Where they vary by thousands one key has all the weight, and gradients are 0; where a channel
    that all keys share brings them far from 0, weights and gradients are those of everyday scores.
    Where scores are coarse, half of the cases have some of which budgets say something.
    """
    if "mask" not in x:
        alive(o, i, x, choose)
    a = i.resolved_arithmetic
    reach = int(np.log2(min(a.inputs.largest, a.elementwise.largest, a.scores.largest if a.scores else np.inf)))
    power = choose.among([8, 6, 10, 12, 14, 17, 20, 24, 30, 40, 60, 100, 200, 400])
    if "scores" in x:
        s, kind = x["scores"], choose.among(["spread", "offset", "offset"])
        size = 2.0 ** min(power + 3, reach - 5)
        x["scores"] = rounded(
            s * size / 8 if kind == "spread" else s + size * choose.signs(s.shape[-2])[:, None], a.inputs
        )
        return
    if "wq" in x:
        x["wq"] = rounded(x["wq"] * 2.0 ** min(power, reach - 20, reach // 2), a.inputs)
        return
    q, k = x["q"], x["k"]
    kind = choose.among(["spread", "signs", "offset", "offset"])
    size = 2.0 ** min(power, reach - 14, reach // 2 + 4)
    if (most := largest_scores(a, 2.0**-2)) < _COARSE and choose.happens(0.5):
        kind, size = "signs", min(size, most / 2.0**4)
    if kind == "offset" and q.shape[-1] > 1:
        q, k = q / 4, k.copy()
        k[..., 0] = choose.among([64.0, 256.0, -256.0])
        q[..., 0] = np.clip(q[..., 0] * 64, -128, 128) if size < 2.0**12 else size / 256 * np.sign(q[..., 0])
    elif kind == "signs":
        q, k = choose.signs(q.shape[-2])[:, None] * np.abs(q) * size, np.abs(k)
    else:
        q = q * size
    x["q"], x["k"] = rounded(q, a.inputs), rounded(k, a.inputs)


def largest_scores(a: Arithmetic, moved: float) -> float:
    """Up to which size of a score its storage, or that of what it is a product of, moves a weight
    by no more than a share; ∞ where nothing is stored."""
    coarse = 2 * a.product + 2 * max([0.0, *(f.unit_roundoff for f in (a.scores, a.scale_on_inputs) if f is not None)])
    return moved / coarse if coarse else inf


def dominant(a: Arithmetic, d: int) -> float:
    """The channels of a query, and of a key, whose score of their square times √d is far above
    others: 16, or a smaller power of two where rounding a larger score would move its weight by
    more than an eighth."""
    most = min(largest_scores(a, 2.0**-3), 2.0**-7 / a.elementwise.unit_roundoff)
    return float(2.0 ** min(4, np.floor(np.log2(most / np.sqrt(d)) / 2)))


def ties(o: Operation, i: Implementation, x: dict[str, Any], choose: Choices) -> None:
    """Scores that are equal, or nearly so, and large: up to where rounding them moves a weight by a
    thousandth, beyond which budgets say nothing. What is large is a channel that all keys share, in
    powers of two, which every format has."""
    if "mask" not in x:
        alive(o, i, x, choose)
    a, d = i.resolved_arithmetic, x["q"].shape[-1]
    most = np.log2(largest_scores(a, 2.0**-10))
    power = choose.integer(4, max(4, int(min(most, np.log2(a.inputs.largest) - 8))))
    part = 2.0 ** ((power + round(np.log2(d) / 2)) // 2)
    q, k = choose.among([x["q"] / 4, np.zeros(x["q"].shape)]), x["k"].copy()
    q[..., 0] = part * choose.signs(q.shape[-2])
    k[..., 0] = part * choose.among([1.0, -1.0])
    x["q"], x["k"] = rounded(q, a.inputs), rounded(k, a.inputs)


def below_fills(o: Operation, i: Implementation, x: dict[str, Any], choose: Choices) -> None:
    """Scores near the largest numbers of the formats, negative where a key may be read, positive
    where not: below and above every finite number that a mask of a narrower format is filled with.
    Each query reads one key, so that its weight is 1 whatever its score. Of scores that are stored
    in a narrow format the products before the scale are beyond its largest number in half of the
    cases."""
    a = i.resolved_arithmetic
    largest = int(np.log2(min(a.elementwise.largest, a.scores.largest if a.scores else np.inf)))
    if "scores" in x:
        may = np.broadcast_to(x["mask"], x["scores"].shape)
        x["scores"] = np.where(may, -1.0, 1.0) * 2.0 ** min(largest - 8, int(np.log2(a.inputs.largest)) - 2)
        return
    power = min(largest - 8 - int(np.log2(x["q"].shape[-1])), 2 * int(np.log2(a.inputs.largest)) - 2)
    if np.log2(a.elementwise.largest) > largest + 2 and x["q"].shape[-1] > 2 and choose.happens(0.5):
        power = largest + 1
    x["q"], x["k"] = (rounded(x[name] / 4, a.inputs) for name in "qk")
    read = np.broadcast_to(x["mask"], (*x["q"].shape[:-1], x["k"].shape[-2])).any(-2)
    x["q"][..., 0], side = 2.0 ** (power // 2), 2.0 ** (power - power // 2)
    x["k"][..., 0] = np.where(read, -side, side)


def few_keys(o: Operation, i: Implementation, x: dict[str, Any], choose: Choices) -> None:
    """A few keys share the weight of each query; of a tangent, that of the values reads out the
    weights as values do.
    """
    score = choose.among(scores_of(i.resolved_arithmetic))
    rng = np.random.default_rng(choose.integer(0, 2**32))
    (n_q, width), (n_k, value_width) = x["q"].shape[-2:], x["v"].shape[-2:]
    q, k, v = dominating(rng, (n_q, n_k), (width, value_width), score, i.resolved_arithmetic.inputs)
    for name, found in (("q", q), ("k", k), ("v", v)):
        x[name] = np.broadcast_to(found, x[name].shape).copy()
    if "dv" in x:
        x["dv"], still = x["v"][..., ::-1].copy(), choose.among([0.0, 1 / 64])
        x["dq"], x["dk"] = (rounded(x[name] * still, i.resolved_arithmetic.inputs) for name in ("dq", "dk"))


def alive(o: Operation, i: Implementation, x: dict[str, Any], choose: Choices) -> None:
    """Where the alignment is bottom right, at least as many keys as queries, so that no query is dead."""
    if i.resolved_conventions.causal == "bottom_right":
        x["q"] = x["q"][..., : x["k"].shape[-2], :]


def fewer_keys(o: Operation, i: Implementation, x: dict[str, Any], choose: Choices) -> None:
    """No more keys than half of the queries, where so few are supported."""
    n = max(1, x["q"].shape[-2] // 2)
    if i.allows(n_k=n, n_k_minus_n_q=n - x["q"].shape[-2]) and x["k"].shape[-2] > n:
        x["k"], x["v"] = x["k"][..., :n, :], x["v"][..., :n, :]


def unmasked(o: Operation, i: Implementation, x: dict[str, Any], choose: Choices) -> None:
    """As it is, but alive where the mask is causal."""
    if "mask" not in x:
        alive(o, i, x, choose)


def shared(o: Operation, i: Implementation, x: dict[str, Any], choose: Choices) -> None:
    """An encoding for each problem, or one for all."""
    if choose.happens():
        x["pos"] = x["pos"][(0,) * (x["pos"].ndim - 2)]


def untold(o: Operation, i: Implementation, x: dict[str, Any], choose: Choices) -> None:
    """As many keys as queries need not be told."""
    if x["n_q"] == x["n_k"] and choose.happens():
        x["n_k"] = None


def decoders(o: Operation, i: Implementation, x: dict[str, Any], choose: Choices) -> None:
    """One mask for the whole batch, and a row for all queries of each element, half masked, where
    it has as many as there are queries.
    """
    shape = np.broadcast_shapes(x["first"].shape, x["second"].shape)
    if len(shape) == 3 and shape[0] == shape[1]:
        x["first"], x["second"] = choose.bits(shape[1:], 0.5), choose.bits((shape[0], 1, shape[2]), 0.5)


def rotations(o: Operation, i: Implementation, x: dict[str, Any], choose: Choices) -> None:
    """A third of the tables are rotations, rounded to their format."""
    if choose.integer(0, 2) < 2:
        return
    (n, d), target = x["cos"].shape, i.resolved_arithmetic.angle.table
    pairs = np.arange(d) % max(d // 2, 1) if i.resolved_conventions.rope_pairing == "half" else np.arange(d) // 2
    start = choose.among([choose.integer(0, 16), choose.among(EDGES), choose.integer(0, 2**20)])
    with ctx.workprec(
        128
    ):  # rounded once, so that a seed is the same case on every processor: NumPy's differ with its SIMD level
        exponents = [arb(-2.0 * pair / max(d, 1)) for pair in range(pairs.max(initial=0) + 1)]
        frequencies = [
            i.resolved_conventions.rope_scale * arb(i.resolved_conventions.rope_base) ** exponent
            for exponent in exponents
        ]
        angles = [position * frequency for position in range(start, start + n) for frequency in frequencies]
        table = np.array([[float(value) for value in angle.sin_cos()] for angle in angles])
    sin, cos = table.reshape(n, len(frequencies), 2)[:, pairs].transpose(2, 0, 1)
    x["cos"], x["sin"] = rounded(cos, target), rounded(sin, target)


def parts(o: Operation, i: Implementation, x: dict[str, Any], choose: Choices) -> None:
    """Parts of the keys whose weights differ by everyday factors, or by thousands, near 0 or far
    from it; some are empty, and not read.
    """
    target, far = o.stored("lse_a", i.resolved_arithmetic), choose.among([1.0, 4.0, 64.0])
    common = choose.among([0.0, 0.0, 1024.0, -1024.0])
    for part in "ab":
        empty = (
            choose.bits(x[f"lse_{part}"].shape, 0.2) if choose.happens(0.4) else np.zeros(x[f"lse_{part}"].shape, bool)
        )
        x[f"lse_{part}"] = np.where(empty, -np.inf, rounded(x[f"lse_{part}"] * far + common, target))
        x[f"out_{part}"] = np.where(empty[..., None], choose.among([64.0, 0.0]), x[f"out_{part}"])


def capped(o: Operation, i: Implementation, x: dict[str, Any], choose: Choices) -> None:
    """Scores from a part of the cap to a multiple, where it is all but reached."""
    size = x["softcap"] * choose.among([1.0, 0.25, 4.0, 16.0])
    x["q"] = rounded(x["q"] * 2.0 ** np.round(np.log2(size)), i.resolved_arithmetic.inputs)


def last(o: Operation, i: Implementation, x: dict[str, Any], choose: Choices) -> None:
    """Queries that stand where the keys end."""
    x["offset"] = x["k"].shape[-2] - x["q"].shape[-2]
