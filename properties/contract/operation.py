"""An operation: its parameters and results, its oracle, and everything that follows from these records.

The axes of arrays have names. From the names follow the sizes of a call, the sizes that `supports`
may restrict, the arrays that share an axis, and the axes along which a law can cut a call.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from oracles import Arithmetic, Conventions, Enclosure
from oracles.formats import BINARY32, BINARY64, Format
from properties.contract.features import FEATURES
from properties.contract.parameters import BATCH, Axes, Kind, Parameter

__all__ = ["Operation"]


@dataclass(frozen=True)
class Operation:
    """An operation.

    name         the name of the function that implements it
    takes        its parameters in order; a call passes the optional ones by keyword, or leaves them out
    returns      its results in order
    oracle       the function that computes certified values of the results
    conventions  the fields of `Conventions` that change the results
    """

    name: str
    takes: tuple[Parameter, ...]
    returns: tuple[Parameter, ...]
    oracle: Callable[..., Any]
    conventions: tuple[str, ...] = ()

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        """The names of the parameters, in order."""
        return tuple(parameter.name for parameter in self.takes)

    @cached_property
    def outputs(self) -> tuple[str, ...]:
        """The names of the results, in order."""
        return tuple(result.name for result in self.returns)

    @cached_property
    def options(self) -> tuple[str, ...]:
        """The names of the optional parameters."""
        return tuple(parameter.name for parameter in self.takes if parameter.optional)

    @cached_property
    def axes(self) -> Mapping[str, Axes]:
        """The axes of each parameter and each result that has some."""
        return {each.name: each.axes for each in (*self.takes, *self.returns) if each.axes}

    @cached_property
    def _records(self) -> Mapping[str, Parameter]:
        """The record of each name: of the result, if no parameter has the name."""
        return {each.name: each for each in (*self.returns, *self.takes)}

    def _kind(self, name: str) -> Kind | None:
        return self._records[name].kind if name in self._records else None

    @property
    def forward(self) -> str:
        """The name of the operation that this one differentiates; its own name for all others."""
        return re.sub("_(vjp|jvp)$", "", self.name)

    @cached_property
    def arrays(self) -> tuple[str, ...]:
        """The parameters that are arrays of floating-point numbers."""
        return tuple(parameter.name for parameter in self.takes if parameter.kind.is_array_of_numbers)

    @property
    def is_played(self) -> bool:
        """Whether the operation runs a program of steps on caches."""
        return "steps" in self.parameters

    @property
    def takes_arrays(self) -> bool:
        """Whether some parameter is an array: of numbers, booleans or integers."""
        return any(parameter.kind is not Kind.SIZE and not parameter.kind.is_setting for parameter in self.takes)

    @property
    def returns_booleans(self) -> bool:
        """Whether the operation builds a mask."""
        return self.outputs == ("mask",)

    def is_mask(self, parameter: str) -> bool:
        """Whether a parameter is a mask: booleans in the implementation's polarity."""
        return self._kind(parameter) is Kind.MASK

    def is_integer(self, parameter: str) -> bool:
        """Whether an array that is passed as a parameter holds integers, which no arithmetic rounds."""
        return self._kind(parameter) in (Kind.INTEGERS, Kind.OFFSET)

    def is_table(self, name: str) -> bool:
        """Whether a parameter or a result is a table of cosines or sines."""
        return self._kind(name) is Kind.TABLE

    def is_log_sum_exp(self, name: str) -> bool:
        """Whether a parameter or a result holds log-sum-exps, which have a format of their own."""
        return self._kind(name) is Kind.LOG_SUM_EXP

    def is_setting(self, parameter: str) -> bool:
        """Whether a parameter is neither an array nor a size, but says what is computed, such as a
        window, a softcap, or a kind of frequencies.
        """
        kind = self._kind(parameter)
        return kind is not None and kind.is_setting

    def is_number(self, result: str) -> bool:
        """Whether a result is one number, which may be a float."""
        return result in self.outputs and result not in self.axes and not self.returns_booleans

    def broadcasts(self, name: str) -> bool:
        """Whether axes of a parameter or a result may have size 1, or be missing."""
        return name in self._records and self._records[name].broadcasts

    def named(self, arguments: Sequence[Any]) -> dict[str, Any]:
        """The arguments by the names of their parameters."""
        return dict(zip(self.parameters, arguments, strict=False))

    def ahead(self, parameter: str, arguments: Sequence[Any]) -> int:
        """The number of axes in front of the named ones: 1 for positions with sections, whose first
        axis is time, height and width; else 0.
        """
        return int(parameter == "positions" and self.named(arguments).get("sections") is not None)

    def stored(self, name: str, arithmetic: Arithmetic, *, result: bool = False) -> Format:
        """The format of a parameter's numbers, or of a result's, as `Kind` says. No operation takes
        ALiBi's biases yet.
        """
        match self._kind(name):
            case Kind.TABLE:
                return arithmetic.angle.table
            case Kind.FREQUENCIES | Kind.FACTOR:
                fine = max(arithmetic.angle.frequency, arithmetic.angle.product) <= BINARY64.unit_roundoff
                return BINARY64 if fine else BINARY32
            case Kind.LOG_SUM_EXP:
                return arithmetic.saved_lse or arithmetic.elementwise
            case Kind.ALIBI:
                return arithmetic.elementwise
        return arithmetic.output if result else arithmetic.inputs

    def call(self, function: Callable[..., Any], arguments: Sequence[Any], **others: Any) -> Any:
        """The results of a function for arguments. Options that are not None are passed by keyword."""
        each = self.named(arguments)
        options = {p: x for p, x in each.items() if p in self.options and x is not None}
        return function(*(x for p, x in each.items() if p not in self.options), **options, **others)

    def arguments(self, positional: Sequence[Any], options: Mapping[str, Any]) -> tuple[Any, ...]:
        """All arguments of such a call, in parameter order."""
        rest = iter(positional)
        return tuple(options.get(p) if p in self.options else next(rest) for p in self.parameters)

    def given(self, arguments: Sequence[Any]) -> tuple[str, ...]:
        """The names of `FEATURES` that a call uses."""
        if self.is_played or not any(p in self.parameters for p in ("q", "kind", "inv_freq")):
            return ()
        each = {p: x for p, x in self.named(arguments).items() if x is not None}
        kind = [each["kind"]] if each.get("kind", "default") != "default" else []
        several = ["offsets"] if isinstance(each.get("offset"), np.ndarray) else []
        return (*(p for p in each if p in self.options and p in FEATURES), *kind, *several)

    def returned(self, arguments: Sequence[Any]) -> tuple[str, ...]:
        """The results of a call: an option that is None has no gradient."""
        absent = {f"d{p}" for p, x in self.named(arguments).items() if p in self.options and x is None}
        return tuple(name for name in self.outputs if name not in absent)

    def expected(self, arguments: tuple[Any, ...], arithmetic: Any, conventions: Conventions) -> tuple[Enclosure, ...]:
        """The oracle's enclosures of the results; a mask builder's mask, in the oracle's polarity."""
        found = self.call(self.oracle, arguments, arithmetic=arithmetic, conventions=conventions)
        return tuple(x for x in found if x is not None) if isinstance(found, tuple) else (found,)

    def sizes(self, arguments: tuple[Any, ...]) -> dict[str, int]:
        """The sizes of a call, by the names of axes and of size parameters; `batch` is the number of
        elements in the batch.
        """
        found: dict[str, int] = {}
        for parameter, x in zip(self.takes, arguments, strict=False):
            if x is None or not parameter.is_measured:
                continue
            if parameter.kind is Kind.SIZE:
                found[parameter.name] = int(x)
                continue
            axes = parameter.axes
            if axes[0] == BATCH:
                lead = x.shape[self.ahead(parameter.name, arguments) : x.ndim - len(axes) + 1]
                found.setdefault("batch", math.prod(lead))
            found |= zip(reversed(axes), reversed(x.shape), strict=False)
        found.pop(BATCH, None)
        return found

    def lead(self, arguments: tuple[Any, ...]) -> tuple[int, ...]:
        """The leading axes of a call, which the first array that can have some shows."""
        for parameter, x in self.named(arguments).items():
            if BATCH in self.axes.get(parameter, ()):
                return tuple(x.shape[self.ahead(parameter, arguments) : x.ndim - len(self.axes[parameter]) + 1])
        return ()

    def shapes(self, *arguments: Any) -> tuple[tuple[int, ...], ...]:
        """The shapes of the results of a call."""
        if self.name == "combine_masks":
            return (np.broadcast_shapes(*(mask.shape for mask in arguments)),)
        sizes, lead = self.sizes(arguments), self.lead(arguments)
        each = self.named(arguments)
        rotating = each["rotary_dim"] if each.get("rotary_dim") is not None else sizes.get("head_dim", 0)
        sizes.setdefault("pairs", -(-rotating // 2))
        sizes["channels"] = 2 * sizes["pairs"]
        sizes.setdefault("n_k", sizes.get("n_q", 0))

        def shape(axes: Axes) -> Iterator[int]:
            for axis in axes:
                yield from lead if axis == BATCH else (sizes[axis],)

        return tuple(
            each["bias"].shape if name == "dbias" else () if self.is_number(name) else tuple(shape(self.axes[name]))
            for name in self.returned(arguments)
        )
