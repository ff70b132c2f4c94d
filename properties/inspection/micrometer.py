"""How accurate exponentials, row sums and sums of values are, measured from outside.

A result is rounded once more when it is stored, so the value before lies in the interval of half a
spacing around it. Many columns of v, whose exact results lie at different distances from the ends
of such intervals, give many intervals, and their intersection is narrower than each of them.

    one key with the score −s beside m keys with the score 0, with v = a and v = b
        out = (m·b + E·a) / (m + E)          E is exp(−s), the quotient of two weights       (1)
    n keys with equal scores
        out = 1/R for v = 1 in one key       R is the sum of the row, n in a right kernel    (2)
        out = A/R for v = 1 in all keys      A is the sum of n products, n in a right kernel (3)
    keys with the scores C, C + 1 + … + 1 and C + 2, by one product for each channel
        their weights show whether 1 can be added to C: a format with p bits cannot for C = 2ᵖ       (4)

The error limit of each result says whether it is wrong.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from oracles.formats import Arithmetic, Format
from properties.contract.support import OutsideError
from properties.inspection.array import Array
from properties.inspection.probe import Probe, Reading, joined
from properties.inspection.shapes import Shape

__all__ = [
    "Micrometer",
    "Sum",
    "micrometer",
    "sentences_of_equal_scores",
    "sentences_of_micrometer",
    "sums_of_equal_scores",
]

_LENGTHS = (64, 512, 4096)
_LEVELS = (0.0, 4.0)  # of equal scores
_DIFFERENCES = (1.0, 4.0, 8.0)  # of scores
_COLUMNS = 16  # of v for one exponential
_CANDIDATES = 1 << 14  # columns of which these are chosen
_INTEGERS = 128  # the largest number in v
_ROUNDINGS = 4  # of a sum of two products and its quotient
_LARGEST_ERROR = 0.1  # relative: a larger error is a wrong weight, not a rounding

_TINY = np.finfo(float).tiny
_STOPS = {"bfloat16": 2**8, "float16": 2**11}
"""The number at which a sum of ones stops in a format: adding 1 to it gives the same number again."""

_NEAR = 0.02  # relative: how near two quotients of weights are the same


@dataclass(frozen=True)
class Sum:
    """A sum over equal scores.

    length    the number of keys
    level     their score
    row       the interval that R of (2) is in, widened by the roundings of a right sum
    values    the same for A of (3); None for an operation without values
    wrong     whether some result is outside its error limit
    whole     whether the last key has the weight of the first
    """

    length: int
    level: float
    row: tuple[float, float]
    values: tuple[float, float] | None
    wrong: bool
    whole: bool


@dataclass(frozen=True)
class Micrometer:
    """The accuracy of exponentials and of sums.

    exponentials   for each difference of scores the interval that E·e^s − 1 is in; NaN if no E explains
                   all results
    wrong          for each difference whether some result is outside its error limit
    sums           the sums of each length that is taken, at each level
    products       the formats in which sums of products of q and k stop, by (4)
    """

    exponentials: dict[float, tuple[float, float]]
    wrong: dict[float, bool]
    sums: tuple[Sum, ...]
    products: tuple[str, ...]


def micrometer(probe: Probe, shape: Shape) -> Micrometer:
    """Measure the accuracy of exponentials and sums, without masks and options other than the scale.
    Raises as `Probe.results`.
    """
    plain = probe.plain(shape, "scale")
    pair = _first(probe, plain, {"n_k": 2, "value_dim": _COLUMNS}, {"n_k": 2}, {"value_dim": _COLUMNS})
    if pair.sizes["n_k"] < 2 or not _unit(probe, pair):
        raise OutsideError("The implementation takes only one key, or a scale of 0.")
    exponentials, wrong = {}, {}
    for exact, interval, is_wrong in _exponentials(probe, pair):
        exponentials[exact], wrong[exact] = interval, is_wrong
    return Micrometer(exponentials, wrong, sums_of_equal_scores(probe, shape), _stopping_products(probe, plain))


def sums_of_equal_scores(probe: Probe, shape: Shape) -> tuple[Sum, ...]:
    """Measure the sums of (2) and (3), of each length that is taken, at each level; if the probe stacks
    calls, of the shortest and the longest one. Raises as `Probe.results`.
    """
    plain = probe.plain(shape, "scale")
    if not _unit(probe, plain):
        raise OutsideError("The implementation has a scale of 0.")
    shapes = (plain.changed(probe.operation, n_k=length) for length in _LENGTHS)
    taken = [*filter(probe.takes, shapes)]
    measured = [*taken[:1], *taken[1:][-1:]] if probe.stacks else taken
    return tuple(each for one in measured for each in _sums(probe, one))


def _first(probe: Probe, shape: Shape, *changes: Mapping[str, int]) -> Shape:
    """The shape with the first of some changes that the implementation takes, or without any."""
    shapes = (shape.changed(probe.operation, None, **sizes) for sizes in changes)
    return next(filter(probe.takes, shapes), shape)


def _unit(probe: Probe, shape: Shape) -> float:
    """The score of a key that is a power of two, near 1: the smallest step of exact scores; 0 for a
    scale of 0.
    """
    if "scores" in probe.operation.parameters:
        return 1.0
    scale = probe.scale(shape)
    return float(scale * 2.0 ** -round(np.log2(abs(scale)))) if scale else 0.0


def _results(probe: Probe, shape: Shape, calls: Sequence[tuple[Array, Array]]) -> list[Reading]:
    """The sums of the weights of keys with some scores times some columns of v, `[row, column]`, for each
    call. Scores are given in steps of `_unit`. Of a softmax, each column is 1 in one key and 0 in the
    others.
    """
    n_k, number = calls[0][1].shape
    if "scores" in probe.operation.parameters:
        full = shape.zeros(probe.operation, "scores").shape
        found = probe.together(shape, [{"scores": np.broadcast_to(steps, full)} for steps, _ in calls])
        return [
            Reading(*(side.reshape(-1, n_k)[:, columns.argmax(0)] for side in results["weights"]))
            for results, (_, columns) in zip(found, calls, strict=True)
        ]
    scale, width, parts = probe.scale(shape), shape.sizes["value_dim"], []
    starts = range(0, number, width)
    for (steps, columns), start in product(calls, starts):
        q, k, v = (shape.zeros(probe.operation, name) for name in "qkv")
        q[..., 0], k[..., 0] = 1.0, steps * 2.0 ** -round(np.log2(abs(scale)))
        v[..., : min(width, number - start)] = columns[:, start : start + width]
        parts.append({"q": q, "k": k, "v": v})
    outs = [each["out"].changed(lambda side: side.reshape(-1, width)) for each in probe.together(shape, parts)]
    return [
        joined(outs[first : first + len(starts)], lambda sides: np.concatenate(sides, 1)[:, :number])
        for first in range(0, len(outs), len(starts))
    ]


def _ends(stored: Array, target: Format) -> tuple[Array, Array]:
    """The interval of the numbers that round to stored ones."""
    with np.errstate(all="ignore"):
        half = np.maximum(
            target.unit_roundoff * 2.0 ** np.floor(np.log2(np.abs(stored))), target.smallest_subnormal / 2
        )
    half = np.where(stored == 0, target.smallest_subnormal / 2, half)
    return stored - half, stored + half


def _exponentials(probe: Probe, shape: Shape) -> Iterator[tuple[float, tuple[float, float], bool]]:
    """For each of some differences of scores a near one that is exact, the interval of its exponential's
    relative error, and whether a result is wrong.
    """
    n_k, target, unit = shape.sizes["n_k"], probe.caller.arithmetic.output, _unit(probe, shape)
    is_softmax, is_one = "scores" in probe.operation.parameters, np.arange(n_k) == 1
    dues = np.exp([-difference * abs(unit) for difference in _DIFFERENCES])
    values = [np.eye(2) if is_softmax else _columns(due, n_k - 1, target, _COLUMNS) for due in dues]
    steps = [np.where(is_one, -difference * np.sign(unit), 0.0) for difference in _DIFFERENCES]
    columns = [np.where(is_one[:, None], one, other) for one, other in values]
    found = _results(probe, shape, list(zip(steps, columns, strict=True)))
    for difference, due, chosen, each in zip(_DIFFERENCES, dues, values, found, strict=True):
        if is_softmax:
            low, high = _ends(each.measured, target)
            interval = float((low[:, 0] / high[:, 1]).min()) / due - 1, float((high[:, 0] / low[:, 1]).max()) / due - 1
        else:
            interval = _solved(probe.caller.arithmetic, chosen, each.measured, n_k - 1, due)
        yield difference * abs(unit), interval, bool(each.wrong.any())


def _solved(arithmetic: Arithmetic, values: Array, stored: Array, others: int, due: float) -> tuple[float, float]:
    """The interval that E·e^s − 1 is in by (1): E = m·(b − out) / (out − a).

    The sums of (1) are rounded too. Kernels that store weights round each product in their format.
    NaN for both ends if no E explains all columns.
    """
    (a, b), sums = values, max(arithmetic.accumulate, arithmetic.elementwise.unit_roundoff)
    of_weights = 0.0 if arithmetic.weights is None else arithmetic.weights.unit_roundoff
    for slack in (_ROUNDINGS * sums, _ROUNDINGS * max(sums, of_weights)):
        more = slack * (others * np.abs(b) + due * np.abs(a)) / (others + due)
        low, high = (end + sign * more for end, sign in zip(_ends(stored, arithmetic.output), (-1, 1), strict=True))
        with np.errstate(all="ignore"):
            first, second = (others * (b - end) / (end - a) / due - 1 for end in (low, high))
        # Between the ends out may meet a, where (1) gives no end of an interval for E.
        is_open = (low - a) * (high - a) <= 0
        lowest = np.where(is_open, -np.inf, np.minimum(first, second)).max(1)
        highest = np.where(is_open, np.inf, np.maximum(first, second)).min(1)
        if (lowest <= highest).all():
            return float(lowest.min()), float(highest.max())
    return np.nan, np.nan


def _columns(due: float, others: int, target: Format, number: int) -> Array:
    """Values a and b of (1), `[2, column]`, whose results lie at different distances from the ends of
    their intervals: relative to E from 2⁻¹ to 2⁻²⁴, on both sides. The first column is the weight of
    the key itself.
    """
    random = np.random.default_rng(0)
    candidates = random.integers(-_INTEGERS, _INTEGERS + 1, (2, _CANDIDATES)).astype(float)
    candidates = candidates[:, (candidates[0] != candidates[1]) & (candidates[1] != 0)]
    a, b = candidates
    out = (others * b + due * a) / (others + due)
    spacing = target.spacing(out)
    end = (np.floor(out / spacing) + 0.5) * spacing
    with np.errstate(all="ignore"):
        distance = others * (b - end) / (end - a) / due - 1
    sizes = np.repeat(2.0 ** -np.linspace(1, 24, number // 2), 2) * np.tile([1.0, -1.0], number // 2)
    with np.errstate(all="ignore"):
        nearest = np.abs(np.log(np.maximum(distance / sizes[:, None], np.finfo(float).tiny))).argmin(1)
    return np.concatenate([[[1.0], [0.0]], candidates[:, nearest[1:]]], 1)


def _sums(probe: Probe, shape: Shape) -> Iterator[Sum]:
    """The sums of (2) and (3) for equal scores at each level."""
    length, has_values = shape.sizes["n_k"], "v" in probe.operation.parameters
    keys = np.arange(length)
    columns = np.stack([keys == 0, keys == length - 1, np.ones(length)][: 2 + has_values], 1).astype(float)
    found = _results(probe, shape, [(np.full(length, level), columns) for level in _LEVELS])
    for level, each in zip(_LEVELS, found, strict=True):
        yield _sum(probe, each, length, level * abs(_unit(probe, shape)))


def _sum(probe: Probe, found: Reading, length: int, level: float) -> Sum:
    """The sums of (2) and (3) from the results of equal scores."""
    low, high = _ends(found.measured, probe.caller.arithmetic.output)
    whole = bool(((low[:, 0] <= high[:, 1]) & (low[:, 1] <= high[:, 0]))[found.expected[:, 1] != 0].all())
    slack = length * probe.caller.arithmetic.accumulate  # the roundings of the sum itself

    def hull(lowest: Array, highest: Array) -> tuple[float, float]:
        return float(lowest.min()) * (1 - slack), float(highest.max()) * (1 + slack)

    with np.errstate(all="ignore"):
        row = hull(1 / high[:, 0], 1 / low[:, 0])
        values = hull(low[:, 2] / high[:, 0], high[:, 2] / low[:, 0]) if low.shape[1] > 2 else None
    return Sum(length, level, row, values, bool(found.wrong.any()), whole)


def _stopping_products(probe: Probe, shape: Shape) -> tuple[str, ...]:
    """The formats in which sums of products of q and k stop, by (4): 1 cannot be added to C, one by
    one, but 2 can, and 1 can be added to 1.
    """
    if "scores" in probe.operation.parameters or shape.sizes["head_dim"] < 2:
        return ()
    three = _first(probe, shape, {"n_k": 3, "value_dim": 3}, {"n_k": 3})
    if three.sizes["n_k"] < 3:
        return ()

    def weights(*firsts: float) -> list[Reading]:
        """The weights of the three keys, for some products of the first channel."""
        calls = []
        for first in firsts:
            q, k = (three.zeros(probe.operation, name) for name in "qk")
            q[...], k[..., :3, 0], k[..., 1, 1:], k[..., 2, 1] = np.sign(probe.scale(three)), first, 1.0, 2.0
            calls.append({"q": q, "k": k})
        rows = np.arange(int(np.prod(three.rows(probe.operation, "v")))).reshape(-1, three.sizes["n_k"])
        return probe.weights(three, list(rows.T[:3]), *calls)

    def stops(found: Reading) -> bool:
        """Whether the second key weighs as much as the first, and the third as it should."""
        seen, due = (found.expected > 0).all(1), np.exp(2 * abs(probe.scale(three)))
        with np.errstate(all="ignore"):
            quotients = found.measured[seen, 1:] / found.measured[seen, :1]
        return bool(found.wrong.any() and quotients.size and (np.abs(quotients / [1.0, due] - 1) < _NEAR).all())

    stopping = [name for name, found in zip(_STOPS, weights(*_STOPS.values()), strict=True) if stops(found)]
    return () if stopping and weights(1.0)[0].wrong.any() else tuple(stopping)


def sentences_of_micrometer(found: Micrometer) -> tuple[str, ...]:
    """Sentences about what is less accurate than the error limits allow; () if all is right."""
    products = (
        f"Sums of products of q and k stop at {_STOPS[name]}, as sums in {name} do." for name in found.products[:1]
    )
    sums = found.sums
    return tuple(filter(None, (*products, _of_rows(sums), _of_values(sums), *_of_exponentials(found))))


def sentences_of_equal_scores(sums: Sequence[Sum]) -> tuple[str, ...]:
    """The sentences about sums that stop or lack the maximum, which other visible keys cannot explain; ()
    without such sums.
    """
    return tuple(filter(None, (_stopping_rows(sums) or _without_the_maximum(sums), _stopping_values(sums))))


def _wrong_rows(sums: Sequence[Sum]) -> list[Sum]:
    """The wrong row sums. Rows in which a key has no weight have none."""
    return [
        each for each in sums if each.wrong and 0 < each.row[0] <= each.row[1] and not _holds(each.row, each.length)
    ]


def _of_rows(sums: Sequence[Sum]) -> str:
    """The sentence about row sums; "" if they are right."""
    wrong = _wrong_rows(sums)
    if not wrong:
        return ""
    if said := _stopping_rows(sums) or _without_the_maximum(sums):
        return said
    worst = max(wrong, key=lambda each: abs(np.log(max(sum(each.row) / 2 / each.length, _TINY))))
    scores, total = f"{worst.length} equal scores of {worst.level:.3g}", sum(worst.row) / 2
    texts = (f"{total:.{digits}g}" for digits in range(5, 18))
    told = next((text for text in texts if text != f"{worst.length}"), f"nearly {worst.length}")
    return f"The row sum of {scores} is {told}, should be {worst.length}."


def _stopping_rows(sums: Sequence[Sum]) -> str:
    """The sentence about row sums that stop in a format, though all keys are read; "" without such a
    format.
    """
    for name, stop in _STOPS.items() if _wrong_rows(sums) else ():
        if all(each.whole and _holds(each.row, min(each.length, stop)) for each in sums):
            return f"Row sums stop at {stop}, as sums in {name} do."
    return ""


def _without_the_maximum(sums: Sequence[Sum]) -> str:
    """The sentence about scores whose maximum is not subtracted; "" if another sum is wrong, or every
    sum is right.
    """
    wrong, unsubtracted = _wrong_rows(sums), [_unsubtracted(each) for each in sums]
    if not (wrong and wrong[-1].level and all(number is not None for number in unsubtracted)):
        return ""
    return f"The maximum is not subtracted from the scores of {unsubtracted[-1]} of {wrong[-1].length} keys."


def _unsubtracted(each: Sum) -> int | None:
    """How many exponentials of a row count e^level instead of 1: the only whole number that its sum
    allows; None if no number is the only one, and 0 at level 0, if the sum is right.
    """
    if not each.level:
        return 0 if _holds(each.row, each.length) else None
    low, high = ((end - each.length) / np.expm1(each.level) for end in each.row)
    if not np.isfinite(low):
        return None
    first = int(np.ceil(low))
    return first if first <= high < first + 1 and 0 <= first <= each.length else None


def _wrong_values(sums: Sequence[Sum]) -> list[Sum]:
    return [each for each in sums if each.wrong and each.values and not _holds(each.values, each.length)]


def _stopping_values(sums: Sequence[Sum]) -> str:
    """The sentence about sums of values that stop in a format; "" without such a format."""
    for name, stop in _STOPS.items() if _wrong_values(sums) else ():
        if all(each.whole and each.values and _holds(each.values, min(each.length, stop)) for each in sums):
            return f"Sums of weights times values stop after {stop} equal products, as sums in {name} do."
    return ""


def _of_values(sums: Sequence[Sum]) -> str:
    """The sentence about sums of values; "" if they are right."""
    wrong = _wrong_values(sums)
    if not wrong:
        return ""
    if said := _stopping_values(sums):
        return said
    worst = wrong[-1]
    assert worst.values is not None
    products = f"{worst.length} equal products of weights and values"
    return f"{products} add up to {sum(worst.values) / 2:.5g} times one of them."


def _holds(interval: tuple[float, float], number: float) -> bool:
    return interval[0] <= number <= interval[1]


def _of_exponentials(found: Micrometer) -> list[str]:
    """The sentences about exponentials that are not within their error limit."""
    return [
        f"The weight of the score −{score:.4g}, divided by that of 0, has a relative error between {low:.2g} "
        f"and {high:.2g}."
        for score, (low, high) in found.exponentials.items()
        if found.wrong[score] and not low <= 0 <= high and max(abs(low), abs(high)) < _LARGEST_ERROR
    ]
