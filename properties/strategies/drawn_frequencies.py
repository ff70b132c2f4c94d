"""Kinds of rotary frequencies, chosen with their parameters; and cases that are simpler than one."""

from collections.abc import Iterator, Mapping
from math import floor, log, pi
from typing import Any

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
    "partial_rotary_factor": (0.5, 0.25, 1.0, 0.75, 0.375),  # shares of which no product is rounded
}
_LISTED = (1.0, 1.05, 1.25, 2.0, 2.75, 4.0, 16.0, 64.8)

Case = Mapping[str, Any]


def width_of(x: Case) -> int:
    """How many channels rotate."""
    return int(x["head_dim"] if x["rotary_dim"] is None else x["rotary_dim"])


def original_of(x: Case) -> int | None:
    """The original length, under either of its names."""
    found = x["max_position_embeddings"] if x["kind"] == "dynamic" else x["original_max_position_embeddings"]
    return None if found is None else int(found)


def chosen(o: Operation, i: Implementation, head_dim: int, needed: tuple[str, ...], choose: Choices) -> dict[str, Any]:
    """A kind that is declared, or the one that is needed, and what it is given: all of its
    parameters, and of what is declared besides each with even odds. There are no ramps that end
    before they begin."""
    x: dict[str, Any] = dict.fromkeys(o.parameters)
    x["head_dim"] = head_dim
    kinds = [kind for kind in KINDS if kind in needed] or [
        kind for kind in KINDS if kind == "default" or kind in i.features
    ]
    kind = choose.among(kinds)
    x["kind"] = kind if head_dim >= _fewest(kind, i) else "default"
    given, optional = KINDS[x["kind"]]
    for p in ("base", "rotary_dim", "seq_len", *optional):
        if p in i.features and choose.happens():
            x[p] = _parameter(p, x, i, choose)
    for p in given:
        x[p] = _parameter(p, x, i, choose)
    if "seq_len" in i.features and (most := original_of(x)):
        x["seq_len"] = choose.among(
            [most + 1, None, most, most, max(most - 1, 1), 4 * most, choose.integer(1, 2 * most)]
        )
    if x["kind"] == "yarn" and not rises(x, i):
        x |= {"original_max_position_embeddings": 4096, "base": None, "beta_fast": None, "beta_slow": None}
    return x


def _fewest(kind: str, i: Implementation) -> int:
    """How many channels rotate at least: with one pair a dynamic base is no number, and no ramp
    rises that ends at the last pair.
    """
    return 4 if kind == "dynamic" or (kind == "yarn" and i.resolved_conventions.yarn_upper == "last_pair") else 2


def _parameter(p: str, x: Case, i: Implementation, choose: Choices) -> Any:
    if p == "factor":
        return choose.among(_FACTORS)
    if p == "base":
        return choose.among(_BASES)
    if p == "truncate":
        return choose.among([False, False, True])
    if p == "seq_len":
        return choose.integer(1, 2**20)
    if p == "rotary_dim":
        several = [
            r for r in (x["head_dim"] // 4 * 2, x["head_dim"], x["head_dim"] // 8 * 2) if r >= _fewest(x["kind"], i)
        ]
        return None if x["kind"] == "proportional" or not several else choose.among(several)
    if p.endswith("position_embeddings"):
        return choose.among(_ORIGINAL)
    if p in ("short_factor", "long_factor"):
        return tuple(choose.among(_LISTED) for _ in range(width_of(x) // 2))
    return choose.among(_NUMBERS[p])


def ends(x: Case) -> tuple[float, float]:
    """Where YaRN's ramp begins and ends, in float64: not cut to the pairs that there are, and
    before they are rounded.
    """
    r, base = width_of(x), x["base"] or 10000.0
    turns = (x["beta_fast"] or 32.0, x["beta_slow"] or 1.0)
    low, high = (r * log(x["original_max_position_embeddings"] / (2 * pi * n)) / (2 * log(base)) for n in turns)
    return low, high


def rises(x: Case, i: Implementation) -> bool:
    """Whether YaRN's ramp ends after it begins, clearly."""
    low, high = ends(x)
    r = width_of(x)
    most = r - 1 if i.resolved_conventions.yarn_upper == "last_channel" else r // 2 - 1
    return bool(max(floor(low), 0) <= min(floor(high), most) and max(low, 0) < min(high, most) - 2.0**-20)


def another(x: Case, i: Implementation) -> dict[str, Any]:
    """A case of other frequencies: of another factor, base or length."""
    found = dict(x)
    if x["factor"] is not None:
        found["factor"] = x["factor"] + 1.0
    if "base" in i.features:
        found["base"] = 2.0 * (x["base"] or 10000.0)
    if "seq_len" in i.features:
        found["seq_len"] = None if x["seq_len"] is not None else 4 * (original_of(x) or 1)
    return found if x["kind"] != "yarn" or rises(found, i) else dict(x)


def smaller(x: Case, i: Implementation) -> Iterator[dict[str, Any]]:
    """Simpler cases: fewer pairs, without what need not be given."""
    return (
        y for y in _simpler(x) if (y["kind"] != "dynamic" or width_of(y) > 2) and (y["kind"] != "yarn" or rises(y, i))
    )


def _simpler(x: Case) -> Iterator[dict[str, Any]]:
    r, (_, optional) = width_of(x), KINDS[x["kind"]]
    for n in (2, 4, r // 4 * 2, r - 2):
        if 0 < n < r:
            lists = {p: x[p][: n // 2] for p in ("short_factor", "long_factor") if x[p] is not None}
            yield {**x, "head_dim": n, "rotary_dim": None, **lists}
    if x["rotary_dim"] is not None:
        yield {**x, "head_dim": r, "rotary_dim": None}
    for p in ("base", "seq_len", *optional):
        if x[p] is not None:
            yield {**x, p: None}
    if x["factor"] not in (None, 2.0):
        yield {**x, "factor": 2.0}
