"""Draws the options of rope, such as positions and sections, and finds simpler cases (test inputs)."""

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


def some(operation: Operation, implementation: Implementation, domain: Domain) -> str:
    """Return the reason why no test input of an input family can have options of rope. Return "" if
    one can, or if the family needs none.
    """
    wanted = domain.rotates and not any(parameter in implementation.features for parameter in operation.options)
    return f"It declares none of the features {', '.join(operation.options)}." if wanted else ""


def chosen(
    operation: Operation,
    implementation: Implementation,
    sizes: Mapping[str, int],
    lead: tuple[int, ...],
    domain: Domain,
    choose: Choices,
) -> Case:
    """Return the options of a case (test input): one of the declared options, all of them, or each
    with probability 1/2. With `positions`, `start_pos` is 0.
    """
    case: Case = dict.fromkeys(operation.options)
    pairs, seq_len = sizes.get("head_dim", 0) // 2, sizes["seq_len"]
    if "positions" not in operation.options:
        pairs = choose.among([count for count in _PAIRS if count * seq_len <= _MOST])
    elif not domain.rotates:
        return case
    declared = [
        parameter for parameter in ROTATION if parameter in operation.options and parameter in implementation.features
    ]
    how_many, single = choose.among(["all", "one", *["some"] * 4]), choose.among(declared or [""])
    options = {
        parameter
        for parameter in declared
        if how_many == "all"
        or parameter in domain.features
        or (parameter == single if how_many == "one" else choose.happens())
    }
    options |= set() if options or not declared else {single}
    if "rotary_dim" in options:
        some = [count for count in (pairs // 2, pairs, pairs // 4, 1) if count] or [0]
        listed = (width // 2 for width in implementation.support.listed("rotary_dim"))
        taken = [count for count in (*some, *listed) if count <= pairs and implementation.allows(rotary_dim=2 * count)]
        if taken:
            pairs = choose.among(taken)
            case["rotary_dim"] = 2 * pairs
    if "inv_freq" in options or "inv_freq" not in operation.options:
        case["inv_freq"] = rounded(
            _frequencies(pairs, choose), operation.stored("inv_freq", implementation.resolved_arithmetic)
        )
    if "attention_factor" in options:
        case["attention_factor"] = choose.among(_FACTORS)
    if "sections" in options:
        height, width = ((pairs + 2 - axis) // 3 for axis in (1, 2))
        height, width = (choose.among([most, max(most - 1, 0)]) for most in (height, width))
        if implementation.resolved_conventions.mrope == "interleaved" and choose.happens(0.2):
            height = width = 3 * pairs // 8  # saturated: fewer pairs than that have every third place
        case["sections"] = (pairs - height - width, height, width)
        if "axial" in implementation.features and choose.happens(0.4):
            case["sections"] = (pairs - width, width) if choose.happens() else (pairs - pairs // 2, pairs // 2)
    if "positions" in options or "positions" not in operation.options:
        case["positions"] = _positions(
            lead, seq_len, len(case["sections"] or ()), "positions" in operation.options, choose
        )
        case["start_pos"] = 0
    return case


def _frequencies(pairs: int, choose: Choices) -> Array:
    """Return frequencies: powers of a base. Some are divided, and some are 0 from some pair on."""
    frequencies = _powers(choose.among(_BASES), -(np.arange(pairs) / max(pairs, 1)))
    variant = choose.among(["powers", "divided", "listed", "some"])
    if variant == "listed":
        return frequencies / (1 + choose.grid(pairs) % 4)
    if variant == "some":
        return np.where(np.arange(pairs) < max(pairs // 2, 1), frequencies, 0.0)
    return frequencies / (choose.among([4.0, 3.0]) if variant == "divided" else 1.0)


def _powers(base: float, exponents: Array) -> Array:
    """Return the powers of a base, each rounded once. For this reason a seed gives the same test
    input on every processor; NumPy's powers depend on the SIMD level.
    """
    with ctx.workprec(128):
        return np.array([float((arb(base) ** arb(exponent)).mid()) for exponent in exponents.tolist()])


def _positions(lead: tuple[int, ...], seq_len: int, sections: int, broadcast: bool, choose: Choices) -> Any:
    """Return positions near and far, in order or not, of sequences packed side by side, or of
    images, along the axis of each section. The whole batch shares them, or each element has its own.
    """
    lengths = tuple(length if choose.happens(0.8) or not broadcast else 1 for length in lead)
    lengths = lengths if sections or not broadcast else lengths[choose.among([0, 0, choose.integer(0, len(lengths))]) :]
    shape = (*((sections,) if sections else ()), *lengths, seq_len)
    variant = choose.among(["packed", "far", "order", "near"])
    if variant == "packed":
        return np.broadcast_to(np.arange(seq_len) % max(seq_len // 2, 1), shape) + choose.integers(
            0, 3, (*shape[:-1], 1)
        )
    if variant == "order":
        return np.broadcast_to(choose.order(seq_len), shape).copy() + choose.integers(0, 5, (*shape[:-1], 1))
    return choose.integers(0, 40 if variant == "near" else 2**20, shape)


def pairs_of(implementation: Implementation, rotating: int) -> Any:
    """Return the two channels of each pair, for the first `rotating` channels."""
    halves = implementation.resolved_conventions.rope_pairing == "half"
    return np.arange(rotating).reshape(2, -1).T if halves else np.arange(rotating).reshape(-1, 2)


def smaller(operation: Operation, case: Case, implementation: Implementation) -> Iterator[Case]:
    """Yield simpler cases (test inputs): without one option, or with some of the pairs of channels."""
    width = (
        2 * len(case["inv_freq"])
        if case["inv_freq"] is not None
        else case["rotary_dim"] or (case["x"].shape[-1] if "x" in case else 0)
    )
    row_arrays = [parameter for parameter in ("x", "grad_out") if parameter in case]
    if case["sections"] is not None:
        yield {**case, "sections": None, "positions": None if case["positions"] is None else case["positions"][0]}
    if case.get("rotary_dim") is not None:
        yield {**case, **{parameter: case[parameter][..., :width] for parameter in row_arrays}, "rotary_dim": None}
    if case["sections"] is None:
        for pairs in (slice(0, width // 4), slice(width // 4, None), slice(0, -1), slice(1, None)) if width > 2 else ():
            kept = np.concatenate(
                [
                    np.sort(pairs_of(implementation, width)[pairs].ravel()),
                    np.arange(width, case["x"].shape[-1] if row_arrays else width),
                ]
            )
            fewer: Case = {parameter: case[parameter][..., kept] for parameter in row_arrays}
            fewer |= (
                {"rotary_dim": 2 * len(pairs_of(implementation, width)[pairs])}
                if case.get("rotary_dim") is not None
                else {}
            )
            if case["inv_freq"] is not None or not row_arrays:
                yield {**case, **fewer, "inv_freq": case["inv_freq"][pairs]}
    for parameter in ("inv_freq", "attention_factor"):
        if case[parameter] is not None and parameter in operation.options:
            yield {**case, parameter: None}
    if "positions" in operation.options and case["positions"] is not None and case["sections"] is None:
        yield {**case, "positions": None}
    if case["positions"] is not None:
        yield from (
            {**case, "positions": positions}
            for positions in (np.minimum(case["positions"], 1), case["positions"] // 2)
            if (positions != case["positions"]).any()
        )
