"""Special values: scores and values of a given size, and every pair of special values of two
features, such as a sink of −∞ in a fully masked row. The tables give the same cases for every seed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from oracles.ball import Array
from properties.contract.implementation import Implementation
from properties.contract.operation import Arguments, Operation
from properties.strategies.choices import rounded
from properties.strategies.operating_points import Point
from properties.strategies.plain_calls import Options, Sizes

__all__ = ["MAGNITUDES", "MASKED", "PAIRS", "WITHOUT_OPTIONS", "NumberedPoint"]


@dataclass(frozen=True)
class NumberedPoint(Point):
    """A point whose arrays have normal numbers, the same in each run.

    score    the largest magnitude of a score, which q (or the array `scores`) is scaled to have;
             None does not change the scores
    value    the largest magnitude in v; None does not change v
    key      the largest magnitude in k, before q is scaled; None does not change k
    """

    score: float | None = None
    value: float | None = None
    key: float | None = None

    def arguments(self, operation: Operation, implementation: Implementation) -> Arguments | None:
        """Return the arguments of the call, with numbers in the arrays; None if the point has no call."""
        found = super().arguments(operation, implementation)
        if found is None:
            return None
        case, options = operation.named(found), self.options
        generator = np.random.default_rng(0)
        for name in operation.arrays:
            if case[name] is not None and name not in options and not operation.is_table(name):
                case[name] = generator.normal(size=case[name].shape)
        self._scale(operation, case)
        arithmetic = implementation.resolved_arithmetic
        return tuple(
            rounded(value, operation.stored(name, arithmetic))
            if name in operation.arrays and value is not None
            else value
            for name, value in case.items()
        )

    def _scale(self, operation: Operation, case: dict[str, Any]) -> None:
        """Scale the keys, the scores and the values of a case."""
        if self.key is not None and "k" in case:
            case["k"] *= self.key / np.abs(case["k"]).max()
        if self.score is not None and "scores" in case:
            case["scores"] *= self.score / np.abs(case["scores"]).max()
        elif self.score is not None and "q" in case:
            case["q"] *= self.score / largest_score(case)
        if self.value is not None and "v" in case:
            case["v"] *= self.value / np.abs(case["v"]).max()


def largest_score(case: Mapping[str, Any]) -> float:
    """Return the largest magnitude of a score at the default scale."""
    q, k = case["q"], case["k"]
    if q.ndim > 2 and q.shape[-3] != k.shape[-3]:
        k = np.repeat(k, q.shape[-3] // k.shape[-3], -3)
    return float(np.abs(q @ k.mT).max() / np.sqrt(q.shape[-1]))


# -- Sizes of scores and of values -----------------------------------------------------------------

_SHAPES: Mapping[str, Sizes] = {
    "5 keys": {"n_q": 3, "n_k": 5, "head_dim": 4, "value_dim": 3},
    "9 keys, 2 heads": {"batch": 2, "num_heads": 2, "kv_heads": 1, "n_q": 2, "n_k": 9, "head_dim": 16},
    "40 keys, 4 heads": {"num_heads": 4, "kv_heads": 2, "n_q": 17, "n_k": 40, "head_dim": 32, "value_dim": 16},
}

MAGNITUDES = (
    *(
        NumberedPoint(f"scores to {score:g}, {shape}", sizes, score=score)
        for score in (0.001, 0.09, 0.45, 2.0, 40.0, 200.0)
        for shape, sizes in _SHAPES.items()
    ),
    *(
        NumberedPoint(f"values to {value:g}, {shape}", sizes, value=value)
        for value in (0.0005, 200.0)
        for shape, sizes in _SHAPES.items()
    ),
    *(
        NumberedPoint(f"keys to {key:g}, {shape}", sizes, score=0.001, key=key, value=value)
        for key, value in ((0.06, 0.06), (60.0, 6000.0))
        for shape, sizes in _SHAPES.items()
    ),
)
"""Calls with small and large scores, and with small and large keys and values."""


# -- Pairs of special values -----------------------------------------------------------------------


def _dead_rows(sizes: Sizes) -> Array:
    """A mask in which every other query, from the first, sees no key."""
    visible = np.ones((sizes["n_q"], sizes["n_k"]), bool)
    visible[::2] = False
    return visible


def _bias_of_dead_rows(sizes: Sizes) -> Array:
    """A bias of −∞ for all keys of the last query, and for key 0 of all queries."""
    bias = np.full((sizes["num_heads"], sizes["n_q"], sizes["n_k"]), 0.5)
    bias[:, -1], bias[..., 0] = -np.inf, -np.inf
    return bias


def _sinks(*sinks: float) -> Options:
    return {"sink": lambda sizes: np.resize(sinks, sizes["num_heads"])}


_LENGTHS: Mapping[str, Options] = {
    "more queries than keys": {"n_q": 5, "n_k": 3},
    "one key": {"n_k": 1},
    "one query": {"n_q": 1},
}
_DEAD: Mapping[str, Options] = {"fully masked rows": {"mask": _dead_rows}}
_SCORES: Mapping[str, Options] = {"all scores 0": {"score": 0.0}, "large scores": {"score": 300.0}}

_FEATURES: tuple[Mapping[str, Options], ...] = (
    _LENGTHS,
    _DEAD,
    {"a bias of −∞": {"bias": _bias_of_dead_rows}},
    {"sinks of −∞": _sinks(-np.inf, 0.5), "a large sink": _sinks(90.0, -90.0)},
    {"a window of 0": {"window": (0, 0)}, "a left side of 0": {"window": (0, None)}},
    {"a scale of 0": {"scale": 0.0}, "a scale below 0": {"scale": -0.75}},
    {"a softcap": {"softcap": 0.5}},
    {
        "causal": {"causal": True},
        "an offset": {"causal": True, "offset": 2},
        "an offset below 0": {"causal": True, "offset": -2},
        "offsets": {"causal": True, "offset": lambda sizes: np.array([3, -1][: sizes["batch"]])},
    },
)
"""For each feature its special values, in words."""

_SMALL: Sizes = {"batch": 2, "num_heads": 4, "kv_heads": 2, "n_q": 3, "n_k": 4, "head_dim": 4, "value_dim": 3}


def _pairs(features: tuple[Mapping[str, Options], ...]) -> tuple[NumberedPoint, ...]:
    """Return a point for each pair of special values of two features."""
    return tuple(
        _both(f"{first} and {second}", {**one[first], **other[second]})
        for one, other in combinations(features, 2)
        for first in one
        for second in other
    )


def _both(name: str, special: Options) -> NumberedPoint:
    """Return the point with some special sizes, scores and arguments."""
    sizes = {key: special.get(key, size) for key, size in _SMALL.items()}
    options = {key: value for key, value in special.items() if key not in (*_SMALL, "score")}
    return NumberedPoint(name, sizes, options, score=special.get("score"))


PAIRS = _pairs(_FEATURES)
"""Calls of attention with two special options."""

WITHOUT_OPTIONS = (*MAGNITUDES, *_pairs((_LENGTHS, _SCORES)))
"""Calls without options."""

MASKED = (*_pairs((_DEAD, _LENGTHS)), *_pairs((_DEAD, _SCORES)))
"""Calls with fully masked rows, and no other option."""
