"""Draws the optional features of attention: which of them a test input uses, and their values."""

from collections.abc import Mapping

import numpy as np

from oracles.ball import Array
from oracles.formats import Format
from properties.contract.features import QUANTISED
from properties.contract.implementation import Implementation
from properties.contract.operations import FEATURES, Operation
from properties.contract.quantising import scales_of
from properties.strategies.choices import Choices, rounded

__all__ = ["SOFTCAPS", "alibi", "bias", "chosen", "scales", "setting", "sink"]

_SIDES = (2, 1, 0, 3, 1, 2, 5, 7, 8, 15, 16, 31, 32, 33, 64, 127)
SOFTCAPS = (1.0, 5.0, 30.0, 0.5, 50.0)
_SCALES = (1.0, 0.3, 0.0, -0.5)
_DROPOUTS = (0.5, 0.25, 0.1, 0.9, 0.0)


def chosen(
    operation: Operation, implementation: Implementation, needed: tuple[str, ...], choose: Choices
) -> frozenset[str]:
    """Return the options that a test input uses: the options `needed` by its input family, and a
    choice of the other options that the adapter declares.

    The others are none of them, all, one, or each with probability 1/2. So every combination is
    possible, and every pair of options occurs soon. A tangent is used only with its array.
    """
    if not operation.options:
        return frozenset()
    declared = [
        parameter
        for parameter in FEATURES
        if parameter in operation.options and parameter in implementation.features and parameter not in QUANTISED
    ]
    words = implementation.support.options
    if operation.is_paged and "causal only" in words:  # causality is the default, and the feature turns it off
        declared = [name for name in declared if name != "causal"]
    how_many = choose.among(["none", "all", "one", *["some"] * 5])
    single = choose.among(declared) if declared else ""
    features = {
        parameter
        for parameter in declared
        if parameter in needed
        or how_many == "all"
        or (how_many == "one" and parameter == single)
        or (how_many == "some" and choose.happens())
    }
    always = {"causal"} & set(declared) if "causal only" in words else set()
    always |= {"max_seqlen_q", "max_seqlen_k", *(["cu_q"] if "ragged queries" in words else [])} & set(declared)
    of_codes = scales_of(implementation.resolved_arithmetic)
    features |= {name for name in of_codes if name in operation.options and name in implementation.features}
    features |= always
    if implementation.resolved_conventions.causal_with_mask == "refuse" and {"causal", "mask"} <= features:
        features.remove("mask" if always else "causal")
    if "dropout" in features:
        features.add("dropout_mask")
    if implementation.resolved_conventions.dead_rows == "uniform":  # such rows have no dropout
        features -= {"dropout", "dropout_mask"}
    tangents = {
        f"d{parameter}"
        for parameter in declared
        if parameter in features and f"d{parameter}" in operation.options and choose.happens(0.8)
    }  # the order of the choices must not change
    others = set() if operation.has_features else {parameter for parameter in operation.options if choose.happens()}
    return frozenset(features | tangents | others)


def scales(implementation: Implementation) -> list[float]:
    """Return the scales to choose from: the list that the adapter declares, or everyday scales,
    among them 0 and a negative one.
    """
    return [scale for scale in implementation.support.listed("scale") or _SCALES if implementation.allows(scale=scale)]


def setting(
    parameter: str, implementation: Implementation, sizes: Mapping[str, int], lead: tuple[int, ...], choose: Choices
) -> float | bool | int | tuple[int | None, int | None] | Array:
    """Draw and return a scale, a softcap, a dropout, an offset, a window, whether attention is causal,
    or whether buckets tell keys after a query from keys before it.
    """
    n_q, n_k = (sizes.get(name, sizes.get(f"total_{name[-1]}", 0)) for name in ("n_q", "n_k"))
    if parameter == "scale":
        return choose.among(scales(implementation))
    if parameter == "softcap":
        return choose.among(SOFTCAPS)
    if parameter == "dropout":
        return choose.among(_DROPOUTS)
    if parameter == "bidirectional":
        return choose.happens()
    if parameter == "causal":
        return "page_size" not in sizes  # with pages, causality is the default
    if parameter == "offset":
        if lead and "offsets" in implementation.features and choose.happens():
            return np.asarray(choose.integers(-1, max(n_k - 1, 0), lead), np.int64)
        return choose.among([n_k - n_q, 0, 1, -1, n_k - 1, choose.integer(-n_q, n_k + n_q)])
    smallest = int(implementation.resolved_conventions.window == "count")
    lengths = [*(length for length in (*_SIDES, n_k // 2, n_k - 1, n_k) if 0 <= length <= n_k), max(_SIDES)]
    bounded = choose.among([*["both"] * 4, *["left"] * 3, *["right"] * 2, "neither"])
    left, right = (choose.among(lengths) if bounded in (side, "both") else None for side in ("left", "right"))
    if "left windows" in implementation.support.options:
        right = None
    return (None if left is None else max(left, smallest)), right


def bias(shape: tuple[int, ...], target: Format, kind: str, choose: Choices) -> Array:
    """Return a bias that can be added to scores of a shape: with all axes, with axes of size 1, or
    with fewer axes. Some biases have entries of −∞, or a row of them.
    """
    lengths = [length if choose.happens(0.7) else 1 for length in shape]
    lengths = (
        lengths[choose.among([0, 0, choose.integer(0, len(lengths) - 1)]) :] if choose.happens(0.7) else list(shape)
    )
    numbers = choose.numbers(tuple(lengths), target, kind) * choose.among([1.0, 0.25, 4.0])
    if choose.happens(0.35):
        numbers[choose.bits(numbers.shape, 0.2)] = -np.inf
    if numbers.size and choose.happens(0.2):
        numbers[(*(slice(0, 1) for _ in lengths[:-1]), slice(None))] = -np.inf
    return numbers


def sink(shape: tuple[int, ...], target: Format, kind: str, choose: Choices) -> Array:
    """Return a sink for each head. A sink of −∞ means that the head has no sink."""
    numbers = choose.numbers(shape, target, kind) * choose.among([1.0, 0.25, 4.0])
    return np.where(choose.bits(shape, 0.2), -np.inf, numbers) if choose.happens(0.3) else numbers


def alibi(shape: tuple[int, ...], target: Format, kind: str, choose: Choices) -> Array:
    """Return a slope for each head: powers of two, whose products with distances are exact, or numbers
    with all bits. Some slopes are 0, and some are large.
    """
    slopes = np.ldexp(1.0, -choose.integers(1, 8, shape)) * choose.among([1.0, 8.0])
    slopes = slopes if kind == "grid" else slopes * (1 + np.abs(choose.numbers(shape, target, kind)))
    return rounded(np.where(choose.bits(shape, 0.1), 0.0, slopes), target)
