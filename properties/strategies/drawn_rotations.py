"""What rope may take besides x and a first position, chosen; and cases that are simpler than one."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from flint import arb, ctx

from oracles.ball import Array
from properties.contract.features import ROTATION
from properties.contract.implementation import Implementation
from properties.contract.operations import Operation
from properties.strategies.choices import Choices, rounded
from properties.strategies.domain import Domain

__all__ = ["chosen", "pairs_of", "smaller", "some"]

_BASES = (10000.0, 500000.0, 100.0, 1e6)
_FACTORS = (2.0, 1.25, 0.5, 1.0, 1.3465735902799727)
_PAIRS = (1, 2, 3, 4, 6, 8, 16, 32)
_MOST = 9000  # entries of a table

Case = dict[str, Any]


def some(o: Operation, i: Implementation, domain: Domain) -> str:
    """Why there are no cases with options; "" where there are, or none are needed."""
    wanted = domain.rotates and not any(p in i.features for p in o.options)
    return f"It declares none of the features {', '.join(o.options)}." if wanted else ""


def chosen(
    o: Operation, i: Implementation, sizes: Mapping[str, int], lead: tuple[int, ...], domain: Domain, choose: Choices
) -> Case:
    """The options of a case: of those that are declared one, all, or each with even odds; beside
    positions the first one is 0.
    """
    x: Case = dict.fromkeys(o.options)
    pairs, n = sizes.get("head_dim", 0) // 2, sizes["seq_len"]
    if "positions" not in o.options:
        pairs = choose.among([size for size in _PAIRS if size * n <= _MOST])
    elif not domain.rotates:
        return x
    declared = [p for p in ROTATION if p in o.options and p in i.features]
    kind, one = choose.among(["all", "one", *["some"] * 4]), choose.among(declared or [""])
    given = {
        p
        for p in declared
        if kind == "all" or p in domain.features or (p == one if kind == "one" else choose.happens())
    }
    given |= set() if given or not declared else {one}
    if "rotary_dim" in given:
        pairs = choose.among([size for size in (pairs // 2, pairs, pairs // 4, 1) if size] or [0])
        x["rotary_dim"] = 2 * pairs
    if "inv_freq" in given or "inv_freq" not in o.options:
        x["inv_freq"] = rounded(_frequencies(pairs, choose), o.stored("inv_freq", i.resolved_arithmetic))
    if "attention_factor" in given:
        x["attention_factor"] = choose.among(_FACTORS)
    if "sections" in given:
        height, width = ((pairs + 2 - axis) // 3 for axis in (1, 2))
        height, width = (choose.among([most, max(most - 1, 0)]) for most in (height, width))
        x["sections"] = (pairs - height - width, height, width)
    if "positions" in given or "positions" not in o.options:
        x["positions"] = _positions(lead, n, x["sections"] is not None, "positions" in o.options, choose)
        x["start_pos"] = 0
    return x


def _frequencies(pairs: int, choose: Choices) -> Array:
    """Frequencies of a base, some of them divided, or 0 from some pair on."""
    f = _powers(choose.among(_BASES), -(np.arange(pairs) / max(pairs, 1)))
    kind = choose.among(["powers", "divided", "listed", "some"])
    if kind == "listed":
        return np.asarray(f / (1 + choose.grid(pairs) % 4))
    if kind == "some":
        return np.where(np.arange(pairs) < max(pairs // 2, 1), f, 0.0)
    return np.asarray(f / (choose.among([4.0, 3.0]) if kind == "divided" else 1.0))


def _powers(base: float, exponents: Array) -> Array:
    """Powers rounded once, so that a seed is the same case on every processor: NumPy's differ with its SIMD level."""
    with ctx.workprec(128):
        return np.array([float((arb(base) ** arb(x)).mid()) for x in exponents.tolist()])


def _positions(lead: tuple[int, ...], n: int, sections: bool, broadcast: bool, choose: Choices) -> Any:
    """Positions near and far, in order or not, of sequences side by side, or of images; for the
    whole batch, or each element's own.
    """
    axes = tuple(size if choose.happens(0.8) or not broadcast else 1 for size in lead)
    axes = axes if sections or not broadcast else axes[choose.among([0, 0, choose.integer(0, len(axes))]) :]
    shape = (*((3,) if sections else ()), *axes, n)
    kind = choose.among(["packed", "far", "order", "near"])
    if kind == "packed":
        return np.broadcast_to(np.arange(n) % max(n // 2, 1), shape) + choose.integers(0, 3, (*shape[:-1], 1))
    if kind == "order":
        return np.broadcast_to(choose.order(n), shape).copy() + choose.integers(0, 5, (*shape[:-1], 1))
    return choose.integers(0, 40 if kind == "near" else 2**20, shape)


def pairs_of(i: Implementation, r: int) -> Any:
    """The two channels of each pair, of r channels that rotate."""
    halves = i.resolved_conventions.rope_pairing == "half"
    return np.arange(r).reshape(2, -1).T if halves else np.arange(r).reshape(-1, 2)


def smaller(o: Operation, x: Case, i: Implementation) -> Iterator[Case]:
    """Simpler cases: one option less, or a part of the pairs."""
    r = (
        2 * len(x["inv_freq"])
        if x["inv_freq"] is not None
        else x["rotary_dim"] or (x["x"].shape[-1] if "x" in x else 0)
    )
    rows = [p for p in ("x", "grad_out") if p in x]
    if x["sections"] is not None:
        yield {**x, "sections": None, "positions": None if x["positions"] is None else x["positions"][0]}
    if x.get("rotary_dim") is not None:
        yield {**x, **{p: x[p][..., :r] for p in rows}, "rotary_dim": None}
    if x["sections"] is None:
        for part in (slice(0, r // 4), slice(r // 4, None), slice(0, -1), slice(1, None)) if r > 2 else ():
            kept = np.concatenate(
                [np.sort(pairs_of(i, r)[part].ravel()), np.arange(r, x["x"].shape[-1] if rows else r)]
            )
            few: Case = {p: x[p][..., kept] for p in rows}
            few |= {"rotary_dim": 2 * len(pairs_of(i, r)[part])} if x.get("rotary_dim") is not None else {}
            if x["inv_freq"] is not None or not rows:
                yield {**x, **few, "inv_freq": x["inv_freq"][part]}
    for p in ("inv_freq", "attention_factor"):
        if x[p] is not None and p in o.options:
            yield {**x, p: None}
    if "positions" in o.options and x["positions"] is not None and x["sections"] is None:
        yield {**x, "positions": None}
    if x["positions"] is not None:
        yield from (
            {**x, "positions": y}
            for y in (np.minimum(x["positions"], 1), x["positions"] // 2)
            if (y != x["positions"]).any()
        )
