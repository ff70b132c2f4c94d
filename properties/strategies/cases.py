"""The test inputs (cases) of an operation in an input family (domain). A seed determines each case."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from oracles.ball import Array
from properties.contract.features import QUANTISED
from properties.contract.implementation import Implementation
from properties.contract.operations import BATCH, Arguments, Operation
from properties.strategies import (
    drawn_codes,
    drawn_features,
    drawn_frequencies,
    drawn_packings,
    drawn_pages,
    drawn_programs,
    drawn_rotations,
)
from properties.strategies.choices import Choices, rounded
from properties.strategies.domain import Domain
from properties.strategies.drawn_integers import INTEGERS
from properties.strategies.operating_points import taken_at
from properties.strategies.sizes import Sizes, UnsupportedError

__all__ = ["Cases", "UnsupportedError"]

_KINDS = ("grid", "fixed", "normal")
_LIMITED = {"bias": drawn_features.bias, "sink": drawn_features.sink, "alibi": drawn_features.alibi}
"""Arrays of numbers with a drawing of their own: biases and sinks may be −∞, and slopes are not negative."""

SCALES: dict[str, Sequence[float]] = {"q": (1.0, 0.25, 8.0), "v": (1.0, 0.125, 8.0), "scores": (1.0, 0.25, 8.0)}
"""Powers of two that multiply everyday numbers. Logits grow to a few hundred, where budgets of
gradients are still small enough to test something.
"""


class Cases:
    """The test inputs (cases) of an operation from an input family (domain), as far as an
    implementation supports them. Raises UnsupportedError if the implementation supports none of
    them.

    `fixed` are the cases of a domain of points, and `names` their names: the seeds 0, 1, … give them
    in order, and start again. The seed also decides the numbers in arrays that are not zeros.
    `left_out` says which points the implementation does not take; "" if it takes all.
    """

    def __init__(self, operation: Operation, domain: Domain, implementation: Implementation) -> None:
        self.operation, self.domain, self.implementation = operation, domain, implementation
        taken, untaken = taken_at(domain.points, operation, implementation)
        self.fixed, self.names = [*taken.values()], [*taken]
        self.left_out = f"{implementation.name} does not take: {'; '.join(untaken)}." if untaken else ""
        if domain.points:
            if not self.fixed:
                raise UnsupportedError(self.left_out)
            return
        self.sizes = Sizes(operation, domain, implementation)
        self.arguments(Choices(0))

    def draw(self, seed: int) -> Arguments:
        """Return the arguments of the operation that a seed determines."""
        if not self.fixed:
            return self.arguments(Choices(seed))
        point = self.operation.named(self.fixed[seed % len(self.fixed)])
        if self.domain.adjust is not None:
            self.domain.adjust(self.operation, self.implementation, point, Choices(1 + seed))
            drawn_codes.hold(self.operation, self.implementation, point)
            self._fit(point)
        return tuple(point.values())

    def arguments(self, choose: Choices) -> Arguments:
        """Return arguments of the operation. `choose` makes every choice."""
        return self.of_sizes(*self.sizes.chosen(choose), choose)

    def of_sizes(self, sizes: dict[str, int], lead: tuple[int, ...], choose: Choices) -> Arguments:
        """Return arguments of the given sizes and leading axes."""
        operation, implementation = self.operation, self.implementation
        kind = choose.among(_KINDS)
        chosen: dict[str, Any] = {}
        if "kind" in operation.parameters:
            chosen = drawn_frequencies.chosen(
                operation, implementation, sizes["head_dim"], self.domain.features, choose
            )
        elif "inv_freq" in operation.parameters:
            chosen = drawn_rotations.chosen(operation, implementation, sizes, lead, self.domain, choose)
        options = (
            frozenset() if chosen else drawn_features.chosen(operation, implementation, self.domain.features, choose)
        )
        if operation.is_packed:
            sizes = dict(sizes)
            chosen = drawn_packings.chosen(implementation, sizes, self.domain.sizes, options, choose)
        if operation.is_paged:
            sizes = dict(sizes)
            chosen = drawn_pages.chosen(implementation, sizes, self.domain, options, choose)
            lead = () if "cu_q" in options else (sizes["sequences"],)
        absent = {
            parameter
            for parameter in operation.parameters
            if (parameter in operation.options and (operation.is_played or parameter not in options))
            or (operation.is_played and operation.is_setting(parameter))
        }
        arguments: dict[str, Any] = {}
        for parameter in operation.parameters:
            arguments[parameter] = (
                chosen[parameter]
                if parameter in chosen
                else None
                if parameter in absent
                else self._argument(parameter, sizes, lead, kind, arguments, choose)
            )
        if operation.is_played:
            drawn_programs.fill(operation, implementation, arguments, self.domain.features, choose)
        if operation.is_packed:
            drawn_packings.poison(operation, implementation, arguments, choose)
        if operation.is_paged:
            drawn_pages.poison(implementation, arguments, choose)
        if self.domain.adjust is not None:
            self.domain.adjust(operation, implementation, arguments, choose)
            drawn_codes.hold(operation, implementation, arguments)
        self._fit(arguments)
        return implementation.support.written(operation, tuple(arguments.values()))

    def _fit(self, arguments: dict[str, Any]) -> None:
        """Change a case to one with the options and arrays that the implementation takes."""
        implementation = self.implementation
        for restriction in implementation.support.restrictions:
            restriction.fit(arguments, implementation.features, implementation.resolved_conventions.rope_pairing)

    def _argument(
        self,
        parameter: str,
        sizes: dict[str, int],
        lead: tuple[int, ...],
        kind: str,
        chosen_before: Mapping[str, Any],
        choose: Choices,
    ) -> Any:
        """Return one argument. It may depend on the arguments that were chosen before."""
        operation, implementation = self.operation, self.implementation
        if parameter in QUANTISED:
            return drawn_codes.scale(parameter, implementation, chosen_before, choose)
        if operation.is_setting(parameter):
            return drawn_features.setting(parameter, implementation, sizes, lead, choose)
        if parameter not in operation.axes:
            return sizes[parameter]
        shape = tuple(
            length for axis in operation.axes[parameter] for length in (lead if axis == BATCH else (sizes[axis],))
        )
        if parameter in _LIMITED:
            target = operation.stored(parameter, implementation.resolved_arithmetic)
            return _LIMITED[parameter](shape, target, kind, choose)
        if operation.is_mask(parameter):
            return implementation.support.drawn(
                operation, self.domain.mask(choose, implementation.support.mask_shape(operation, parameter, shape))
            )
        if operation.is_integer(parameter):
            return INTEGERS[parameter](shape, sizes, choose)
        return self._numbers(parameter, chosen_before["bias"].shape if parameter == "dbias" else shape, kind, choose)

    def _numbers(self, parameter: str, shape: tuple[int, ...], kind: str, choose: Choices) -> Array:
        target = self.operation.stored(parameter, self.implementation.resolved_arithmetic)
        if drawn_codes.are_scaled(self.operation, parameter, self.implementation):
            return drawn_codes.codes(shape, target, choose)
        if self.operation.is_table(parameter):
            return choose.numbers(shape, target, kind)
        scales = self.domain.scales.get(parameter) or SCALES.get(parameter, (1.0,))
        if parameter in (
            "wq",
            "wk",
            "wv",
            "wo",
        ):  # so that projections and scores of tokens of size 8 are everyday numbers
            scales = [
                factor * 2.0 ** -round(np.log2(8 * np.sqrt(max(shape[0], 1))))
                for factor in (1.0, 0.25, 4.0, *[0.0] * (parameter == "wq"))
            ]
        return rounded(choose.numbers(shape, target, kind) * choose.among(scales), target)
