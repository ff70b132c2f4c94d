"""Fills the arrays of an operating point: with ordinary numbers, with large scores at the borders of
blocks of keys, or with one large value and small ones.
"""

from collections.abc import Collection, Sequence
from math import ceil, log2, prod, sqrt

import numpy as np

from properties.contract.implementation import Implementation
from properties.contract.operation import Operation
from properties.contract.parameters import BATCH, Kind
from properties.strategies.choices import Choices, rounded
from properties.strategies.domain import Case

__all__ = ["after_a_large_value", "border_keys", "borders", "ordinary"]

_STEP = 1 / 64  # of a grid from −2 to 2
_SCORE = 16.0  # of a border key; the other scores are 0, and 4096·exp(−16) is less than 1/2000
_QUERY = 8.0
_KEYS_OF_A_ROW = 8  # each has at least an eighth of the weight, also in formats of few bits
_FACTORS = 7  # whole numbers by which the values of heads differ; the columns differ too


def ordinary(operation: Operation, implementation: Implementation, case: Case, choose: Choices) -> None:
    """Fill each array of numbers with normally distributed numbers, or with multiples of 1/64 from −2 to
    2. Options and tables stay.
    """
    _fill(operation, implementation, case, choose)


def _fill(
    operation: Operation,
    implementation: Implementation,
    case: Case,
    choose: Choices,
    others: Collection[str] = (),
) -> None:
    """Fill each array of numbers but the `others`. Weights, which all batch entries share, are divided by
    about the square root of their number of rows.
    """
    is_normal = choose.happens()
    for parameter in operation.takes:
        name = parameter.name
        if parameter.axes and parameter.kind is Kind.NUMBERS and not parameter.optional and name not in others:
            target = operation.stored(name, implementation.resolved_arithmetic)
            shape = case[name].shape
            power = 0 if BATCH in parameter.axes else round(log2(max(shape[0], 1)) / 2)
            numbers = choose.numbers(shape, target, "normal") if is_normal else choose.grid(shape, _STEP)
            case[name] = rounded(numbers * 2.0**-power, target)


def borders(operation: Operation, implementation: Implementation, case: Case, choose: Choices) -> None:
    """Fill the arrays so that each row of weights has up to 8 keys next to borders of blocks, with
    equal weights. Other keys have almost no weight.

    The rows together have the border keys of all blocks that they are enough for, each once. So if a
    key is lost, read twice or read from another head, an eighth of the weight of some row moves.
    Scores are given directly, or query i is nonzero in channel i alone and the border keys of its
    row are nonzero there. The values of a row's border keys are in a column each. The columns and
    the size of the values differ from head to head. Cotangents and tangents are ordinary numbers.
    """
    _fill(operation, implementation, case, choose, ("q", "k", "v", "scores"))
    if "scores" in case:
        scores = np.zeros(case["scores"].shape)
        rows = scores.reshape(-1, scores.shape[-1])
        for row, chosen in enumerate(_shared_out(rows.shape[1], len(rows))):
            rows[row, chosen] = _SCORE
        case["scores"] = scores
        return
    q, k, v = (np.zeros(case[name].shape) for name in ("q", "k", "v"))
    (n_k, width), heads = k.shape[-2:], prod(k.shape[:-2])
    queries, keys, values = (x.reshape(heads, -1, x.shape[-1]) for x in (q, k, v))
    channels = min(width, queries.shape[1])
    every = np.arange(queries.shape[1])
    queries[:, every, every % channels] = _QUERY
    for place, chosen in enumerate(_shared_out(n_k, heads * channels)):
        head, channel = divmod(place, channels)
        keys[head, chosen, channel] = _key(implementation, width)
        columns = (head + np.arange(len(chosen))) % v.shape[-1]
        values[head, chosen, columns] = 1.0 + (channel + 3 * head) % _FACTORS
    case |= {"q": q, "k": k, "v": v}


def after_a_large_value(operation: Operation, implementation: Implementation, case: Case, choose: Choices) -> None:
    """Fill v so that the first value is 1, and as many others as a tile has keys add up to less than half a
    unit of it. All scores are 0. There are eight tiles of keys.

    A sum that is rounded to the format of the output after each tile stays 1.
    """
    target, v = implementation.resolved_arithmetic.output, case["v"]
    v[...] = rounded(np.full(v.shape, 0.99 * target.unit_roundoff * 8 / v.shape[-2]), target)
    v[..., 0, :] = 1.0


def _key(implementation: Implementation, width: int) -> float:
    """The power of two that gives border keys the score, or up to its double."""
    scale = 1.0 if implementation.resolved_conventions.scale_default == "one" else 1.0 / sqrt(width)
    return 2.0 ** ceil(log2(_SCORE / _QUERY / scale))


def _shared_out(n_k: int, rows: int) -> list[Sequence[int]]:
    """The border keys of each row of weights, at most 8; if there are more rows than border keys, some
    rows have the same.
    """
    found = border_keys(n_k, _KEYS_OF_A_ROW * rows)
    return [found[row % len(found) :: rows] for row in range(rows)]


def border_keys(n_k: int, most: int) -> list[int]:
    """Return at most `most` keys next to the borders of blocks, from the largest blocks down:
    of n_k/2, n_k/4 … keys, rounded up, and of the powers of two.
    """
    sizes = sorted({*(2**power for power in range(3, 16)), *(-(-n_k // 2**power) for power in range(6))}, reverse=True)
    found = dict.fromkeys([0, n_k - 1])
    for size in sizes:
        for border in range(size, n_k, size):
            found |= dict.fromkeys((border - 1, border))
    return [*found][:most]
