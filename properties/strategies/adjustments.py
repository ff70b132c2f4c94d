"""Defines adjustments: functions that change the arrays of a drawn case (test input). A domain
(input family) has one if its sizes and masks alone do not describe it.
"""

from math import inf

import numpy as np
from flint import arb, ctx

from oracles.formats import Arithmetic
from properties.contract.implementation import Implementation
from properties.contract.operations import Operation
from properties.strategies.choices import Choices, rounded
from properties.strategies.domain import EDGES, Case
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
"""Scores are coarse if the rounding of a score below this size moves a weight by more than a
quarter.
"""


def far(operation: Operation, implementation: Implementation, case: Case, choose: Choices) -> None:
    """Change q, k (or scores, or wq) so that scores have any size that the formats have.

    Three variants: the scores vary within a row, or they share a sign, or they differ by everyday
    numbers far from 0. If scores vary by thousands, one key has all the weight, and gradients are
    0. If a channel that all keys share moves the scores far from 0, weights and gradients are like
    those of everyday scores.

    Scores are coarse if rounding them moves weights a lot. Then half of the cases get smaller
    scores, at which budgets (error limits) still test something.
    """
    if "mask" not in case:
        alive(operation, implementation, case, choose)
    arithmetic = implementation.resolved_arithmetic
    exponent = int(
        np.log2(
            min(
                arithmetic.operands.largest,
                arithmetic.elementwise.largest,
                arithmetic.scores.largest if arithmetic.scores else np.inf,
            )
        )
    )
    power = choose.among([8, 6, 10, 12, 14, 17, 20, 24, 30, 40, 60, 100, 200, 400])
    if "scores" in case:
        scores, variant = case["scores"], choose.among(["spread", "offset", "offset"])
        magnitude = 2.0 ** min(power + 3, exponent - 5)
        case["scores"] = rounded(
            scores * magnitude / 8
            if variant == "spread"
            else scores + magnitude * choose.signs(scores.shape[-2])[:, None],
            arithmetic.inputs,
        )
        return
    if "wq" in case:
        case["wq"] = rounded(case["wq"] * 2.0 ** min(power, exponent - 20, exponent // 2), arithmetic.inputs)
        return
    q, k = case["q"], case["k"]
    variant = choose.among(["spread", "signs", "offset", "offset"])
    magnitude = 2.0 ** min(power, exponent - 14, exponent // 2 + 4)
    if (largest := largest_scores(arithmetic, 2.0**-2)) < _COARSE and choose.happens(0.5):
        variant, magnitude = "signs", min(magnitude, largest / 2.0**4)
    if variant == "offset" and q.shape[-1] > 1:
        q, k = q / 4, k.copy()
        k[..., 0] = choose.among([64.0, 256.0, -256.0])
        q[..., 0] = np.clip(q[..., 0] * 64, -128, 128) if magnitude < 2.0**12 else magnitude / 256 * np.sign(q[..., 0])
    elif variant == "signs":
        q, k = choose.signs(q.shape[-2])[:, None] * np.abs(q) * magnitude, np.abs(k)
    else:
        q = q * magnitude
    case["q"], case["k"] = rounded(q, arithmetic.operands), rounded(k, arithmetic.operands)


def largest_scores(arithmetic: Arithmetic, moved: float) -> float:
    """Return the size of scores up to which roundings move a weight by at most the share `moved`:
    the rounding of a score, or of the factors of its product. The size is ∞ if the arithmetic
    rounds neither.
    """
    relative_error = 2 * arithmetic.product + 2 * max(
        [
            0.0,
            *(
                number_format.unit_roundoff
                for number_format in (arithmetic.scores, arithmetic.scale_on_inputs)
                if number_format is not None
            ),
        ]
    )
    return moved / relative_error if relative_error else inf


def dominant(arithmetic: Arithmetic, width: int) -> float:
    """Return the number to write in the channels of a query and a key so that their score dominates
    the others. The score is the number's square times √d.

    The number is 16, or a smaller power of two if rounding a larger score would move its weight by
    more than an eighth.
    """
    largest = min(largest_scores(arithmetic, 2.0**-3), 2.0**-7 / arithmetic.elementwise.unit_roundoff)
    return float(2.0 ** min(4, np.floor(np.log2(largest / np.sqrt(width)) / 2)))


def ties(operation: Operation, implementation: Implementation, case: Case, choose: Choices) -> None:
    """Change q and k so that scores are large, and equal or nearly equal.

    The scores stay below the size at which rounding moves a weight by a thousandth. For larger
    scores, budgets (error limits) accept any value. A channel that all keys share makes the scores
    large. It holds powers of two, which every format has.
    """
    if "mask" not in case:
        alive(operation, implementation, case, choose)
    arithmetic, width = implementation.resolved_arithmetic, case["q"].shape[-1]
    largest = np.log2(largest_scores(arithmetic, 2.0**-10))
    power = choose.integer(4, max(4, int(min(largest, np.log2(arithmetic.operands.largest) - 8))))
    factor = 2.0 ** ((power + round(np.log2(width) / 2)) // 2)
    q, k = choose.among([case["q"] / 4, np.zeros(case["q"].shape)]), case["k"].copy()
    q[..., 0] = factor * choose.signs(q.shape[-2])
    k[..., 0] = factor * choose.among([1.0, -1.0])
    case["q"], case["k"] = rounded(q, arithmetic.operands), rounded(k, arithmetic.operands)


def below_fills(operation: Operation, implementation: Implementation, case: Case, choose: Choices) -> None:
    """Change the arrays so that scores are near the largest numbers of the formats: negative for
    visible keys, and positive for masked keys. Such scores are below and above every finite number
    that fills a mask of a narrower format.

    Each query has one visible key, so that its weight is 1 for any score. If scores are stored in a
    narrow format, in half of the cases the products before the scale exceed the largest number of
    this format.
    """
    arithmetic = implementation.resolved_arithmetic
    largest = int(
        np.log2(min(arithmetic.elementwise.largest, arithmetic.scores.largest if arithmetic.scores else np.inf))
    )
    if "scores" in case:
        visible = np.broadcast_to(case["mask"], case["scores"].shape)
        case["scores"] = np.where(visible, -1.0, 1.0) * 2.0 ** min(
            largest - 8, int(np.log2(arithmetic.operands.largest)) - 2
        )
        return
    power = min(largest - 8 - int(np.log2(case["q"].shape[-1])), 2 * int(np.log2(arithmetic.operands.largest)) - 2)
    if np.log2(arithmetic.elementwise.largest) > largest + 2 and case["q"].shape[-1] > 2 and choose.happens(0.5):
        power = largest + 1
    case["q"], case["k"] = (rounded(case[name] / 4, arithmetic.operands) for name in "qk")
    is_visible = np.broadcast_to(case["mask"], (*case["q"].shape[:-1], case["k"].shape[-2])).any(-2)
    case["q"][..., 0], key_part = 2.0 ** (power // 2), 2.0 ** (power - power // 2)
    case["k"][..., 0] = np.where(is_visible, -key_part, key_part)


def few_keys(operation: Operation, implementation: Implementation, case: Case, choose: Choices) -> None:
    """Change q, k and v so that a few keys share the weight of each query, and the output shows the
    weights. In a JVP, the tangent of the values shows them too.
    """
    score = choose.among(scores_of(implementation.resolved_arithmetic))
    rng = np.random.default_rng(choose.integer(0, 2**32))
    (n_q, width), (n_k, value_width) = case["q"].shape[-2:], case["v"].shape[-2:]
    q, k, v = dominating(rng, (n_q, n_k), (width, value_width), score, implementation.resolved_arithmetic.operands)
    for name, array in (("q", q), ("k", k), ("v", v)):
        case[name] = np.broadcast_to(array, case[name].shape).copy()
    if "dv" in case:
        case["dv"], factor = case["v"][..., ::-1].copy(), choose.among([0.0, 1 / 64])
        case["dq"], case["dk"] = (
            rounded(case[name] * factor, implementation.resolved_arithmetic.inputs) for name in ("dq", "dk")
        )


def alive(operation: Operation, implementation: Implementation, case: Case, choose: Choices) -> None:
    """Remove queries if the causal alignment is bottom right, so that there are at least as many
    keys as queries, and no row is fully masked.
    """
    if implementation.resolved_conventions.causal == "bottom_right":
        case["q"] = case["q"][..., : case["k"].shape[-2], :]


def one_row(operation: Operation, implementation: Implementation, case: Case, choose: Choices) -> None:
    """Give most queries the documents of the last keys, as in self-attention, and others the
    documents of some keys in any order.
    """
    keys, queries = case["ids_k"], case["ids_q"]
    if keys.size and choose.happens(0.9):
        places = (
            np.arange(keys.size - queries.size, keys.size)
            if choose.happens(0.7)
            else choose.integers(0, keys.size - 1, queries.shape)
        )
        case["ids_q"] = keys[places % keys.size]


def fewer_keys(operation: Operation, implementation: Implementation, case: Case, choose: Choices) -> None:
    """Remove keys, so that there are at most half as many keys as queries, if the implementation
    supports that.
    """
    key_count = max(1, case["q"].shape[-2] // 2)
    if (
        implementation.allows(n_k=key_count, n_k_minus_n_q=key_count - case["q"].shape[-2])
        and case["k"].shape[-2] > key_count
    ):
        case["k"], case["v"] = case["k"][..., :key_count, :], case["v"][..., :key_count, :]


def unmasked(operation: Operation, implementation: Implementation, case: Case, choose: Choices) -> None:
    """Remove queries if a causal operation would have fully masked rows. Leave other cases
    unchanged.
    """
    if "mask" not in case:
        alive(operation, implementation, case, choose)


def shared(operation: Operation, implementation: Implementation, case: Case, choose: Choices) -> None:
    """Make all problems of a batch share one encoding, in half of the cases."""
    if choose.happens():
        case["pos"] = case["pos"][(0,) * (case["pos"].ndim - 2)]


def untold(operation: Operation, implementation: Implementation, case: Case, choose: Choices) -> None:
    """Leave out the number of keys, in half of the cases that have as many keys as queries."""
    if case["n_q"] == case["n_k"] and choose.happens():
        case["n_k"] = None


def decoders(operation: Operation, implementation: Implementation, case: Case, choose: Choices) -> None:
    """Replace the two masks if the batch has as many elements as there are queries. The first
    becomes one mask for the whole batch. The second becomes one row for all queries of each
    element. Half of the entries are true.
    """
    shape = np.broadcast_shapes(case["first"].shape, case["second"].shape)
    if len(shape) == 3 and shape[0] == shape[1]:
        case["first"], case["second"] = choose.bits(shape[1:], 0.5), choose.bits((shape[0], 1, shape[2]), 0.5)


def rotations(operation: Operation, implementation: Implementation, case: Case, choose: Choices) -> None:
    """Replace the tables, in a third of the cases, by cosines and sines of rotations, rounded to
    the tables' format.
    """
    if choose.integer(0, 2) < 2:
        return
    (seq_len, width), target = case["cos"].shape, implementation.resolved_arithmetic.angle.table
    pairs = (
        np.arange(width) % max(width // 2, 1)
        if implementation.resolved_conventions.rope_pairing == "half"
        else np.arange(width) // 2
    )
    start = choose.among([choose.integer(0, 16), choose.among(EDGES), choose.integer(0, 2**20)])
    # Rounded once, so that a seed gives the same case on every processor: NumPy's sines depend on
    # the SIMD level.
    with ctx.workprec(128):
        exponents = [arb(-2.0 * pair / max(width, 1)) for pair in range(pairs.max(initial=0) + 1)]
        frequencies = [
            implementation.resolved_conventions.rope_scale
            * arb(implementation.resolved_conventions.rope_base) ** exponent
            for exponent in exponents
        ]
        angles = [position * frequency for position in range(start, start + seq_len) for frequency in frequencies]
        table = np.array([[float(value) for value in angle.sin_cos()] for angle in angles])
    sin, cos = table.reshape(seq_len, len(frequencies), 2)[:, pairs].transpose(2, 0, 1)
    case["cos"], case["sin"] = rounded(cos, target), rounded(sin, target)


def parts(operation: Operation, implementation: Implementation, case: Case, choose: Choices) -> None:
    """Change the log-sum-exps of two parts of the keys so that the weights of the parts differ by
    everyday factors or by thousands. The log-sum-exps are near 0 or far from it. Some parts are
    empty: their outputs do not count.
    """
    target, spread = operation.stored("lse_a", implementation.resolved_arithmetic), choose.among([1.0, 4.0, 64.0])
    common = choose.among([0.0, 0.0, 1024.0, -1024.0])
    for part in "ab":
        is_empty = (
            choose.bits(case[f"lse_{part}"].shape, 0.2)
            if choose.happens(0.4)
            else np.zeros(case[f"lse_{part}"].shape, bool)
        )
        case[f"lse_{part}"] = np.where(is_empty, -np.inf, rounded(case[f"lse_{part}"] * spread + common, target))
        case[f"out_{part}"] = np.where(is_empty[..., None], choose.among([64.0, 0.0]), case[f"out_{part}"])


def capped(operation: Operation, implementation: Implementation, case: Case, choose: Choices) -> None:
    """Multiply q so that scores lie between a part of the softcap and a multiple of it. At the
    largest scores the softcap is almost reached.
    """
    factor = case["softcap"] * choose.among([1.0, 0.25, 4.0, 16.0])
    case["q"] = rounded(case["q"] * 2.0 ** np.round(np.log2(factor)), implementation.resolved_arithmetic.operands)


def last(operation: Operation, implementation: Implementation, case: Case, choose: Choices) -> None:
    """Set the offset so that the last query is at the position of the last key."""
    case["offset"] = case["k"].shape[-2] - case["q"].shape[-2]
