"""What attention takes besides q, k and v, chosen: which features a case has, and what they are."""

from collections.abc import Mapping

import numpy as np

from oracles.ball import Array
from oracles.formats import Format
from properties.contract.implementation import Implementation
from properties.contract.operations import FEATURES, Operation
from properties.strategies.choices import Choices

__all__ = ["bias", "chosen", "scales", "setting", "sink"]

_SIDES = (2, 1, 0, 3, 1, 2, 5, 7, 8, 15, 16, 31, 32, 33, 64, 127)
_CAPS = (1.0, 5.0, 30.0, 0.5, 50.0)
_SCALES = (1.0, 0.3, 0.0, -0.5)


def chosen(o: Operation, i: Implementation, needed: tuple[str, ...], choose: Choices) -> frozenset[str]:
    """The options of a case: those that its domain needs, and of the others that the implementation
    declares none, all, one, or each with even odds, so that every combination comes up, and every
    pair soon. A tangent belongs to what is given."""
    if not o.options:
        return frozenset()
    declared = [p for p in FEATURES if p in o.options and p in i.features]
    kind = choose.among(["none", "all", "one", *["some"] * 5])
    one = choose.among(declared) if declared else ""
    found = {
        p
        for p in declared
        if p in needed or kind == "all" or (kind == "one" and p == one) or (kind == "some" and choose.happens())
    }
    if i.resolved_conventions.causal_with_mask == "refuse" and {"causal", "mask"} <= found:
        found.remove("causal")
    tangents = {
        f"d{p}" for p in declared if p in found and f"d{p}" in o.options and choose.happens(0.8)
    }  # in one order: it is a choice
    others = set() if "q" in o.parameters else {p for p in o.options if choose.happens()}
    return frozenset(found | tangents | others)


def scales(i: Implementation) -> list[float]:
    """The scales to choose from: those of a list that is supported, or everyday ones, of which some
    are below 0, or 0.
    """
    return [x for x in i.support.listed("scale") or _SCALES if i.allows(scale=x)]


def setting(
    p: str, i: Implementation, sizes: Mapping[str, int], lead: tuple[int, ...], choose: Choices
) -> float | bool | int | tuple[int | None, int | None] | Array:
    """A scale, a cap, an offset, a window, or that it is causal."""
    n_q, n_k = sizes["n_q"], sizes["n_k"]
    if p == "scale":
        return choose.among(scales(i))
    if p == "softcap":
        return choose.among(_CAPS)
    if p == "causal":
        return True
    if p == "offset":
        if lead and "offsets" in i.features and choose.happens():
            return np.asarray(choose.integers(-1, max(n_k - 1, 0), lead), np.int64)
        return choose.among([n_k - n_q, 0, 1, -1, n_k - 1, choose.integer(-n_q, n_k + n_q)])
    least = int(i.resolved_conventions.window == "count")
    sides = [*(n for n in (*_SIDES, n_k // 2, n_k - 1, n_k) if 0 <= n <= n_k), max(_SIDES)]
    bounded = choose.among([*["both"] * 4, *["left"] * 3, *["right"] * 2, "neither"])
    left, right = (choose.among(sides) if bounded in (side, "both") else None for side in ("left", "right"))
    return (None if left is None else max(left, least)), right


def bias(shape: tuple[int, ...], target: Format, kind: str, choose: Choices) -> Array:
    """A bias for scores of a shape: with all axes, with some of size 1, or with fewer; some have
    entries of −∞, or a row of them.
    """
    axes = [n if choose.happens(0.7) else 1 for n in shape]
    axes = axes[choose.among([0, 0, choose.integer(0, len(axes) - 1)]) :] if choose.happens(0.7) else list(shape)
    found = choose.numbers(tuple(axes), target, kind) * choose.among([1.0, 0.25, 4.0])
    if choose.happens(0.35):
        found[choose.bits(found.shape, 0.2)] = -np.inf
    if found.size and choose.happens(0.2):
        found[(*(slice(0, 1) for _ in axes[:-1]), slice(None))] = -np.inf
    return found


def sink(shape: tuple[int, ...], target: Format, kind: str, choose: Choices) -> Array:
    """A sink for each head; of some heads none, as −∞ says."""
    found = choose.numbers(shape, target, kind) * choose.among([1.0, 0.25, 4.0])
    return np.where(choose.bits(shape, 0.2), -np.inf, found) if choose.happens(0.3) else found
