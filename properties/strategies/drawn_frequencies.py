"""Draws kinds of rotary frequencies (such as YaRN) with their parameters, and finds simpler cases."""

from collections.abc import Iterator, Mapping
from math import floor, log, pi
from typing import Any

import numpy as np

from properties.contract.features import KINDS
from properties.contract.implementation import Implementation
from properties.contract.operations import Operation
from properties.strategies.choices import Choices

__all__ = ["another", "chosen", "ends", "original_of", "smaller", "width_of"]

_FACTORS = (2.0, 1.0, 4.0, 8.0, 32.0, 40.0, 1.5, 3.7)
_BASES = (500000.0, 150000.0, 1e6, 1e4, 1e5, 300.0)
_ORIGINAL = (4096, 64, 2048, 8192, 32768, 131072, 300, 7)
_NUMBERS: dict[str, tuple[float, ...]] = {
    "beta_fast": (16.0, 64.0, 32.0),
    "beta_slow": (2.0, 0.5, 1.0),
    "mscale": (1.0, 0.707, 0.0, 2.0),
    "mscale_all_dim": (1.0, 0.707, 0.0, 0.5),
    "attention_factor": (1.0, 1.25, 1.4852030263919618, 0.5),
    "low_freq_factor": (1.0, 2.0, 0.5),
    "high_freq_factor": (4.0, 8.0, 2.5),
    "partial_rotary_factor": (0.5, 0.25, 1.0, 0.75, 0.375),  # no product with these shares is rounded
}
_DIVISORS = (1.0, 2.0, 8.0, 1.25, 32.0, 3.5)
_LISTED = (1.0, 1.05, 1.25, 2.0, 2.75, 4.0, 16.0, 64.8)

Case = Mapping[str, Any]


def width_of(case: Case) -> int:
    """Return the number of channels that rotate in a case, a test input."""
    head_dim = case["q"].shape[-1] if case.get("q") is not None else case["head_dim"]
    return int(head_dim if case["rotary_dim"] is None else case["rotary_dim"])


def original_of(case: Case) -> int | None:
    """Return the original context length of a case, a test input. Kinds of frequencies give it
    under one of two names.
    """
    found = case["max_position_embeddings"] if case["kind"] == "dynamic" else case["original_max_position_embeddings"]
    return None if found is None else int(found)


def chosen(
    operation: Operation, implementation: Implementation, head_dim: int, needed: tuple[str, ...], choose: Choices
) -> dict[str, Any]:
    """Return a kind of frequencies with all its parameters and some of its optional ones. The kind
    is one that the adapter declares, or the kind `needed` by the input family.

    Each optional parameter is used with probability 1/2. Every ramp ends after it begins.
    """
    case: dict[str, Any] = dict.fromkeys((*operation.options, "kind"), None) | {"head_dim": head_dim}
    kinds = [kind for kind in KINDS if kind in needed] or [
        kind for kind in KINDS if kind == "default" or kind in implementation.features
    ]
    kind = choose.among(kinds)
    case["kind"] = kind if head_dim >= _fewest(kind, implementation) else "default"
    required, optional = KINDS[case["kind"]]
    for parameter in ("base", "rotary_dim", "seq_len", *optional):
        if parameter in implementation.features and choose.happens():
            case[parameter] = _parameter(parameter, case, implementation, choose)
    for parameter in required:
        case[parameter] = _parameter(parameter, case, implementation, choose)
    if "seq_len" in implementation.features and (original := original_of(case)):
        case["seq_len"] = choose.among(
            [
                original + 1,
                None,
                original,
                original,
                max(original - 1, 1),
                4 * original,
                choose.integer(1, 2 * original),
            ]
        )
    if "freq_factors" in operation.options and "freq_factors" in implementation.features and choose.happens():
        case["freq_factors"] = np.array([choose.among(_DIVISORS) for _ in range(width_of(case) // 2)])
    if case["kind"] == "yarn" and not rises(case, implementation):
        case |= {"original_max_position_embeddings": 4096, "base": None, "beta_fast": None, "beta_slow": None}
    return case


def _fewest(kind: str, implementation: Implementation) -> int:
    """Return the smallest number of channels that rotate. With one pair of channels the dynamic
    base is undefined, and a ramp that ends at the last pair does not rise.
    """
    return (
        4
        if kind == "dynamic" or (kind == "yarn" and implementation.resolved_conventions.yarn_upper == "last_pair")
        else 2
    )


def _parameter(parameter: str, case: Case, implementation: Implementation, choose: Choices) -> Any:
    if parameter == "factor":
        return choose.among(_FACTORS)
    if parameter == "base":
        return choose.among(_BASES)
    if parameter == "truncate":
        return choose.among([False, False, True])
    if parameter == "seq_len":
        return choose.integer(1, 2**20)
    if parameter == "rotary_dim":
        several = [
            width
            for width in (case["head_dim"] // 4 * 2, case["head_dim"], case["head_dim"] // 8 * 2)
            if width >= _fewest(case["kind"], implementation) and implementation.allows(rotary_dim=width)
        ]
        return None if case["kind"] == "proportional" or not several else choose.among(several)
    if parameter.endswith("position_embeddings"):
        return choose.among(_ORIGINAL)
    if parameter in ("short_factor", "long_factor"):
        return tuple(choose.among(_LISTED) for _ in range(width_of(case) // 2))
    return choose.among(_NUMBERS[parameter])


def ends(case: Case) -> tuple[float, float]:
    """Return the begin and the end of YaRN's ramp over the pairs, in float64, before they are
    rounded and limited to the pairs.
    """
    width, base = width_of(case), case["base"] or 10000.0
    turns = (case["beta_fast"] or 32.0, case["beta_slow"] or 1.0)
    low, high = (
        width * log(case["original_max_position_embeddings"] / (2 * pi * turn_count)) / (2 * log(base))
        for turn_count in turns
    )
    return low, high


def rises(case: Case, implementation: Implementation) -> bool:
    """Return whether YaRN's ramp clearly ends after it begins."""
    low, high = ends(case)
    width = width_of(case)
    last = width - 1 if implementation.resolved_conventions.yarn_upper == "last_channel" else width // 2 - 1
    return bool(max(floor(low), 0) <= min(floor(high), last) and max(low, 0) < min(high, last) - 2.0**-20)


def another(case: Case, implementation: Implementation) -> dict[str, Any]:
    """Return a case (test input) with other frequencies: another factor, base or length."""
    changed = dict(case)
    if case["factor"] is not None:
        changed["factor"] = case["factor"] + 1.0
    if "base" in implementation.features:
        changed["base"] = 2.0 * (case["base"] or 10000.0)
    if "seq_len" in implementation.features:
        changed["seq_len"] = None if case["seq_len"] is not None else 4 * (original_of(case) or 1)
    return changed if case["kind"] != "yarn" or rises(changed, implementation) else dict(case)


def smaller(case: Case, implementation: Implementation) -> Iterator[dict[str, Any]]:
    """Yield simpler cases (test inputs): with fewer pairs of channels, or with fewer optional
    parameters.
    """
    return (
        simpler
        for simpler in _simpler(case)
        if (simpler["kind"] != "dynamic" or width_of(simpler) > 2)
        and (simpler["kind"] != "yarn" or rises(simpler, implementation))
    )


def _narrowed(case: Case, width: int) -> dict[str, Any]:
    """Return the arguments of a case that say how wide its heads are, for another width."""
    if case.get("q") is None:
        return {"head_dim": width}
    return {name: case[name][..., :width] for name in "qk"}


def _simpler(case: Case) -> Iterator[dict[str, Any]]:
    width, (_, optional) = width_of(case), KINDS[case["kind"]]
    for fewer in (2, 4, width // 4 * 2, width - 2):
        if 0 < fewer < width:
            lists = {
                parameter: case[parameter][: fewer // 2]
                for parameter in ("short_factor", "long_factor")
                if case[parameter] is not None
            }
            if case.get("freq_factors") is not None:
                lists["freq_factors"] = case["freq_factors"][: fewer // 2]
            yield {**case, **_narrowed(case, fewer), "rotary_dim": None, **lists}
    if case["rotary_dim"] is not None:
        yield {**case, **_narrowed(case, width), "rotary_dim": None}
    if case.get("freq_factors") is not None:
        yield {**case, "freq_factors": None}
    for parameter in ("base", "seq_len", *optional):
        if case[parameter] is not None:
            yield {**case, parameter: None}
    if case["factor"] not in (None, 2.0):
        yield {**case, "factor": 2.0}
