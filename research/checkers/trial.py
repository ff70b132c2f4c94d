"""A trial of a checker: a call of an operation, its right results, and the results that the checker
looks at.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch

from oracles.ball import Array
from oracles.formats import BINARY16, BINARY32, BINARY64, BRAIN16, Format
from properties.bugs.reference import REFERENCE
from properties.bugs.reference_attention import visible_keys
from properties.contract.caller import Caller
from properties.contract.implementation import Implementation
from properties.contract.operations import OPERATIONS
from properties.contract.results import BrokenError
from properties.strategies.choices import rounded

__all__ = ["DTYPES", "FORWARD", "SDPA", "Trial", "grouped", "posed", "returned", "tensor"]

SDPA, GRADIENTS = "scaled_dot_product_attention", ("dq", "dk", "dv")
_GROUPED, _READS = "grouped_query_attention", {"mask", "causal", "offset", "window"}
FORWARD = ("attention", SDPA, _GROUPED, "causal_attention")
"""The operations that are attention: a call is put to each that can take it."""

DTYPES = {BINARY64: torch.float64, BINARY32: torch.float32, BINARY16: torch.float16, BRAIN16: torch.bfloat16}


@dataclass(frozen=True, eq=False)
class Trial:
    """A call of an operation, the format of its numbers, and the results that are looked at;
    log-sum-exps are float32's.

    `plain` has what a plain run in that format returns for the same results, for checkers that
    compare with one.
    """

    operation: str
    arguments: tuple[Any, ...]
    format: Format
    results: tuple[str, ...]
    plain: tuple[Array, ...] = ()

    @property
    def given(self) -> frozenset[str]:
        """The names of its arguments without omitted options, and "groups" if heads share keys."""
        given_arguments = {
            parameter: x
            for parameter, x in zip(OPERATIONS[self.operation].parameters, self.arguments, strict=True)
            if x is not None
        }
        return frozenset(given_arguments) | ({"groups"} if grouped(given_arguments) else set())

    @cached_property
    def right(self) -> tuple[Array, ...]:
        """What should come of it: the reference's results in float64, rounded to the format."""
        definition = OPERATIONS[self.operation]
        results = definition.call(REFERENCE[self.operation], self.arguments)
        return self._looked_at(results if isinstance(results, tuple) else (results,))

    def of(self, implementation: Implementation) -> tuple[Array, ...] | None:
        """The results of an implementation, computed in float64 and then rounded to the format;
        None if they cannot be used.
        """
        try:
            with np.errstate(all="ignore"):
                values, *_ = Caller(implementation, self.operation).run(OPERATIONS[self.operation], self.arguments)
                return self._looked_at(values)
        except BrokenError:
            return None

    def _looked_at(self, results: Sequence[Any]) -> tuple[Array, ...]:
        definition = OPERATIONS[self.operation]
        names_there = (
            definition.outputs if len(results) == len(definition.outputs) else definition.returned(self.arguments)
        )
        named = dict(zip(names_there, results, strict=True))
        return tuple(returned(named[name], BINARY32 if name == "lse" else self.format) for name in self.results)


def grouped(arguments: Mapping[str, Any]) -> bool:
    """Whether query heads share key heads, in arguments by name."""
    heads = [x.shape[-3] for parameter, x in arguments.items() if parameter in ("q", "k") and x.ndim > 2]
    return len(set(heads)) > 1


def returned(x: Array, target: Format) -> Array:
    """Numbers rounded to the format of the result: beyond its largest number they are infinite."""
    with np.errstate(all="ignore"):
        return np.where(
            np.abs(x) > target.largest * (1 + target.unit_roundoff), np.copysign(np.inf, x), rounded(x, target)
        )


def posed(
    operands: Sequence[Array],
    target: Format,
    *,
    options: Mapping[str, Any] | None = None,
    grad: Array | None = None,
    plain: Mapping[str, Array] | None = None,
    results: tuple[str, ...] = ("out",),
) -> Iterator[Trial]:
    """Trials of each operation that can express a call of attention on (q, k, v), with heads on the
    third axis from the end. With a gradient of the output, also trials of the operations' VJPs.
    """
    given = {name: x for name, x in (options or {}).items() if x is not None}
    arrays: dict[str, Any] = dict(
        zip("qkv", (rounded(np.asarray(x, np.float64), target) for x in operands), strict=True)
    )
    arrays |= {} if grad is None else {"grad_out": rounded(grad, target)}
    options_taken = _expressed(given, *operands[:2])

    def trial(operation: str, options: dict[str, Any], names: tuple[str, ...]) -> Trial:
        definition = OPERATIONS[operation]
        arguments = tuple((arrays | options).get(parameter) for parameter in definition.parameters)
        names_there = tuple(name for name in names if name in definition.outputs)
        return Trial(
            operation, arguments, target, names_there, tuple((plain or {})[name] for name in names_there if plain)
        )

    for operation, options in options_taken.items():
        yield trial(operation, options, results)
        if grad is not None and f"{operation}_vjp" in OPERATIONS:
            yield trial(f"{operation}_vjp", options, GRADIENTS)


def _expressed(given: dict[str, Any], q: Array, k: Array) -> dict[str, dict[str, Any]]:
    """The options of a call for each operation of attention that can express it. An operation that
    takes a mask alone gets the visible keys as a mask.
    """
    options_taken: dict[str, dict[str, Any]] = {"attention": given}
    shared, named_options = (
        grouped({"q": q, "k": k}),
        set(given) - ({"scale"} if given.get("scale") == q.shape[-1] ** -0.5 else set()),
    )
    if named_options <= _READS:
        options_taken[_GROUPED if shared else SDPA] = (
            {"mask": _mask(q, k, **{name: given[name] for name in named_options})} if named_options else {}
        )
    if named_options == {"causal"} and not shared:
        options_taken["causal_attention"] = {}
    return options_taken


def _mask(
    q: Array, k: Array, mask: Any = None, causal: bool = False, offset: Any = None, window: Any = (None, None)
) -> Any:
    return visible_keys((*q.shape[:-1], k.shape[-2]), mask, None, causal, offset, window).copy()


def tensor(x: Array, target: Format) -> torch.Tensor:
    """The tensor of an array whose numbers a format holds."""
    return torch.from_numpy(np.ascontiguousarray(x)).to(DTYPES[target])
