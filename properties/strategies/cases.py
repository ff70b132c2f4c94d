"""The cases of an operation in a domain, each chosen from one seed."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from oracles.ball import Array
from properties.contract.implementation import Implementation
from properties.contract.operations import BATCH, Operation
from properties.strategies import drawn_features, drawn_frequencies, drawn_programs, drawn_rotations
from properties.strategies.choices import Choices, rounded
from properties.strategies.domain import Domain
from properties.strategies.sizes import Sizes, UnsupportedError

__all__ = ["Cases", "UnsupportedError"]

_KINDS = ("grid", "fixed", "normal")
_LIMITED = {"bias": drawn_features.bias, "sink": drawn_features.sink}
"""Numbers of which some may be −∞."""

SCALES: dict[str, Sequence[float]] = {"q": (1.0, 0.25, 8.0), "v": (1.0, 0.125, 8.0), "scores": (1.0, 0.25, 8.0)}
"""Powers of two by which everyday numbers are multiplied: logits to a few hundred, where budgets of
gradients still say something.
"""


class Cases:
    """The cases of an operation in a domain for an implementation. Raises UnsupportedError where it supports none."""

    def __init__(self, operation: Operation, domain: Domain, implementation: Implementation) -> None:
        self.operation, self.domain, self.implementation = operation, domain, implementation
        self.sizes = Sizes(operation, domain, implementation)
        self.arguments(Choices(0))

    def draw(self, seed: int) -> tuple[Any, ...]:
        """The arguments of one case."""
        return self.arguments(Choices(seed))

    def arguments(self, choose: Choices) -> tuple[Any, ...]:
        """The arguments of a case, from what is chosen."""
        o, i = self.operation, self.implementation
        sizes, lead = self.sizes.chosen(choose)
        kind = choose.among(_KINDS)
        others: dict[str, Any] = {}
        if "kind" in o.parameters:
            others = drawn_frequencies.chosen(o, i, sizes["head_dim"], self.domain.features, choose)
        elif "inv_freq" in o.parameters:
            others = drawn_rotations.chosen(o, i, sizes, lead, self.domain, choose)
        options = frozenset() if others else drawn_features.chosen(o, i, self.domain.features, choose)
        absent = {p for p in o.parameters if (p in o.options and p not in options) or (o.is_played and p not in o.axes)}
        found: dict[str, Any] = {}
        for p in o.parameters:
            found[p] = (
                others[p]
                if p in others
                else None
                if p in absent
                else self._argument(p, sizes, lead, kind, found, choose)
            )
        if o.is_played:
            drawn_programs.fill(i, found, self.domain.features, choose)
        if self.domain.adjust is not None:
            self.domain.adjust(o, i, found, choose)
        return i.support.written(o, tuple(found.values()))

    def _argument(
        self, p: str, sizes: dict[str, int], lead: tuple[int, ...], kind: str, found: Mapping[str, Any], choose: Choices
    ) -> Any:
        """One argument, beside those that have been found."""
        o, i = self.operation, self.implementation
        if o.is_setting(p):
            return drawn_features.setting(p, i, sizes, lead, choose)
        if p not in o.axes:
            return sizes[p]
        shape = tuple(n for axis in o.axes[p] for n in (lead if axis == BATCH else (sizes[axis],)))
        if p in _LIMITED:
            return _LIMITED[p](shape, i.resolved_arithmetic.inputs, kind, choose)
        if o.is_mask(p):
            return i.support.drawn(o, self.domain.mask(choose, i.support.mask_shape(o, p, shape)))
        if o.is_integer(p):
            return _integers(p, shape, sizes, choose)
        return self._numbers(p, found["bias"].shape if p == "dbias" else shape, kind, choose)

    def _numbers(self, p: str, shape: tuple[int, ...], kind: str, choose: Choices) -> Array:
        target = self.operation.stored(p, self.implementation.resolved_arithmetic)
        if self.operation.is_table(p):
            return choose.numbers(shape, target, kind)
        scales = self.domain.scales.get(p) or SCALES.get(p, (1.0,))
        if p in ("wq", "wk", "wv", "wo"):  # everyday projections, and scores, of tokens of size 8
            scales = [
                scale * 2.0 ** -round(np.log2(8 * np.sqrt(max(shape[0], 1))))
                for scale in (1.0, 0.25, 4.0, *[0.0] * (p == "wq"))
            ]
        return rounded(choose.numbers(shape, target, kind) * choose.among(scales), target)


def _integers(p: str, shape: tuple[int, ...], sizes: dict[str, int], choose: Choices) -> Any:
    """Lengths of sequences, empty and full ones among them; indices into a table, of its last row too."""
    if p == "lengths":
        n = sizes["max_len"]
        return np.array([choose.among([choose.integer(0, n), n, max(n - 1, 0), 0]) for _ in range(shape[0])], np.int64)
    rows = sizes["rows"]
    chosen = choose.integers(0, rows - 1, shape or (choose.integer(1, 8),))
    return np.where(choose.bits(chosen.shape, 0.2), rows - 1, chosen).astype(np.int64)
