"""Defines the record of an operation: its parameters, its results and its oracle, and what follows
from these.

The axes of arrays have names. From the names follow the sizes of a call, the sizes that `supports`
may restrict, the arrays that share an axis, and the axes along which a law can cut a call.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from oracles import Arithmetic, Conventions, Enclosure
from oracles.formats import BINARY32, BINARY64, Format
from properties.contract.features import FEATURES
from properties.contract.parameters import BATCH, Axes, Kind, Parameter
from properties.contract.quantising import CODES

__all__ = ["Arguments", "Operation"]

Arguments = tuple[Any, ...]
"""The arguments of one call, in parameter order."""


@dataclass(frozen=True)
class Operation:
    """An operation of the specification, such as attention.

    name         the name of the function that implements it
    takes        its parameters in order; a call passes the optional ones by keyword, or leaves them
                 out
    returns      its results in order
    oracle       the function that computes certified values of the results
    conventions  the fields of `Conventions` that change the results
    widths       each axis that is a product, with its factors: heads side by side have their number and
                 the width of a head
    """

    name: str
    takes: tuple[Parameter, ...]
    returns: tuple[Parameter, ...]
    oracle: Callable[..., Any]
    conventions: tuple[str, ...] = ()
    widths: Mapping[str, tuple[str, str]] = field(default_factory=dict)

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
        """The names of the axes of each parameter and each result that has axes."""
        return {record.name: record.axes for record in (*self.takes, *self.returns) if record.axes}

    @cached_property
    def _records(self) -> Mapping[str, Parameter]:
        """The record of each parameter and each result, by name. If both have the same name, the
        record is the parameter's.
        """
        return {record.name: record for record in (*self.returns, *self.takes)}

    def _kind(self, name: str) -> Kind | None:
        return self._records[name].kind if name in self._records else None

    @cached_property
    def forward(self) -> str:
        """The name of the forward operation, if this operation is a VJP or a JVP; else its own
        name.
        """
        return re.sub("_(vjp|jvp)$", "", self.name)

    @cached_property
    def arrays(self) -> tuple[str, ...]:
        """The parameters that are arrays of floating-point numbers."""
        return tuple(parameter.name for parameter in self.takes if parameter.kind.is_array_of_numbers)

    @property
    def has_features(self) -> bool:
        """Whether some of its options are features, which a call passes only to who declares them."""
        return any(parameter in self.parameters for parameter in ("q", "context", "kind", "inv_freq"))

    @property
    def is_played(self) -> bool:
        """Whether the operation runs a program of steps on key-value caches."""
        return "steps" in self.parameters

    @property
    def is_packed(self) -> bool:
        """Whether the operation takes packed sequences, whose rows lie one behind the other."""
        return "cu_k" in self.parameters

    @property
    def is_paged(self) -> bool:
        """Whether the operation takes keys in pages, which a table assigns to sequences."""
        return "block_table" in self.parameters

    @property
    def has_sequences(self) -> bool:
        """Whether the operation takes sequences of unequal lengths: packed ones, or keys in pages."""
        return self.is_packed or self.is_paged

    @property
    def takes_arrays(self) -> bool:
        """Whether the operation has an array of numbers, booleans or integers among its parameters."""
        return any(parameter.kind is not Kind.SIZE and not parameter.kind.is_setting for parameter in self.takes)

    @property
    def is_exact(self) -> bool:
        """Whether the operation returns a mask or integers, which must equal the expected ones."""
        return self.returns_booleans or self.is_integer(self.outputs[0])

    @property
    def returns_booleans(self) -> bool:
        """Whether the operation returns a mask."""
        return self.outputs == ("mask",)

    def is_mask(self, parameter: str) -> bool:
        """Return whether a parameter is a mask: booleans in the implementation's polarity."""
        return self._kind(parameter) is Kind.MASK

    def is_integer(self, parameter: str) -> bool:
        """Return whether a parameter is an array of integers. No arithmetic rounds integers."""
        return self._kind(parameter) in (Kind.INTEGERS, Kind.TOKENS, Kind.OFFSET, Kind.LENGTHS)

    def is_length(self, parameter: str) -> bool:
        """Return whether a parameter has lengths of sequences, or the pages of sequences. They belong
        to the arrays whose rows they count.
        """
        return self._kind(parameter) is Kind.LENGTHS

    def is_table(self, name: str) -> bool:
        """Return whether a parameter or a result is a table of cosines or sines."""
        return self._kind(name) is Kind.TABLE

    def is_log_sum_exp(self, name: str) -> bool:
        """Return whether a parameter or a result holds log-sum-exps. Kernels store them in a
        separate format.
        """
        return self._kind(name) is Kind.LOG_SUM_EXP

    def is_setting(self, parameter: str) -> bool:
        """Return whether a parameter says what is computed, such as a window, a softcap, or a kind
        of frequencies. It is then neither an array nor a size.
        """
        kind = self._kind(parameter)
        return kind is not None and kind.is_setting

    def is_number(self, result: str) -> bool:
        """Return whether a result is one number, which the operation may return as a float."""
        return result in self.outputs and result not in self.axes and not self.returns_booleans

    def broadcasts(self, name: str) -> bool:
        """Return whether a parameter or a result may have axes of size 1, or fewer axes, and is
        broadcast.
        """
        return name in self._records and self._records[name].broadcasts

    def named(self, arguments: Sequence[Any]) -> dict[str, Any]:
        """Return the arguments as a dictionary, by the names of their parameters."""
        return dict(zip(self.parameters, arguments, strict=False))

    def ahead(self, parameter: str, arguments: Sequence[Any]) -> int:
        """Return how many axes a parameter's array has before its named axes. This is 1 for
        positions with sections, whose first axis is time, height and width; else it is 0.
        """
        return int(parameter == "positions" and self.named(arguments).get("sections") is not None)

    def stored(self, name: str, arithmetic: Arithmetic, *, result: bool = False) -> Format:
        """Return the format of the numbers of a parameter, or of a result. `Kind` says which field
        of the arithmetic it is.
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
            case Kind.SCALES:
                return BINARY32
        if result:
            return arithmetic.output
        return (getattr(arithmetic, CODES[name]) if name in CODES else None) or arithmetic.inputs

    def call(self, function: Callable[..., Any], arguments: Sequence[Any], **others: Any) -> Any:
        """Call a function with the arguments of this operation, and return its results. Options
        that are not None are passed by keyword.
        """
        by_name = self.named(arguments)
        options = {
            parameter: argument
            for parameter, argument in by_name.items()
            if parameter in self.options and argument is not None
        }
        return function(
            *(argument for parameter, argument in by_name.items() if parameter not in self.options), **options, **others
        )

    def arguments(self, positional: Sequence[Any], options: Mapping[str, Any]) -> Arguments:
        """Return all arguments of a call in parameter order. `call` passes them as `positional` and
        `options`; options that a call leaves out are None.
        """
        remaining = iter(positional)
        return tuple(
            options.get(parameter) if parameter in self.options else next(remaining) for parameter in self.parameters
        )

    def given(self, arguments: Sequence[Any]) -> tuple[str, ...]:
        """Return the names of the optional features (names of `FEATURES`) that a call uses."""
        if self.is_played or not self.has_features:
            return ()
        by_name = {parameter: argument for parameter, argument in self.named(arguments).items() if argument is not None}
        frequency_kind = [by_name["kind"]] if by_name.get("kind", "default") != "default" else []
        several = ["offsets"] if isinstance(by_name.get("offset"), np.ndarray) else []
        return (
            *(parameter for parameter in by_name if parameter in self.options and parameter in FEATURES),
            *frequency_kind,
            *several,
        )

    def returned(self, arguments: Sequence[Any]) -> tuple[str, ...]:
        """Return the names of the results of a call. Gradients of omitted options are left out."""
        absent = {
            f"d{parameter}"
            for parameter, argument in self.named(arguments).items()
            if parameter in self.options and argument is None
        }
        return tuple(result for result in self.outputs if result not in absent)

    def expected(self, arguments: Arguments, arithmetic: Any, conventions: Conventions) -> tuple[Enclosure, ...]:
        """Return the oracle's enclosures of the results. For an operation that builds a mask,
        return the mask, in the oracle's polarity; for one that returns integers, return them.
        """
        enclosures = self.call(self.oracle, arguments, arithmetic=arithmetic, conventions=conventions)
        return (
            tuple(enclosure for enclosure in enclosures if enclosure is not None)
            if isinstance(enclosures, tuple)
            else (enclosures,)
        )

    def sizes(self, arguments: Arguments) -> dict[str, int]:
        """Return the sizes of a call, by the names of axes and of size parameters. `batch` is the
        number of elements in the batch.
        """
        sizes: dict[str, int] = {}
        for parameter, argument in zip(self.takes, arguments, strict=False):
            if argument is None or not parameter.is_measured:
                continue
            if parameter.kind is Kind.SIZE:
                sizes[parameter.name] = int(argument)
                continue
            axes = parameter.axes
            if axes[0] == BATCH:
                lead = argument.shape[self.ahead(parameter.name, arguments) : argument.ndim - len(axes) + 1]
                sizes.setdefault("batch", math.prod(lead))
            sizes |= zip(reversed(axes), reversed(argument.shape), strict=False)
        sizes.pop(BATCH, None)
        if "boundaries" in sizes:
            sizes["sequences"] = sizes.pop("boundaries") - 1
        for width, factors in self.widths.items():  # the inverse of `with_widths`
            known, other = factors if factors[0] in sizes else factors[::-1]
            if width in sizes:
                sizes.setdefault(other, sizes[width] // max(sizes[known], 1))
        return sizes

    def sizes_with_longest_keys(self, arguments: Arguments) -> dict[str, int]:
        """Return the sizes of a call. With keys in pages, n_k is the number of keys of the longest sequence."""
        sizes = self.sizes(arguments)
        if "block_table" in self.parameters:
            sizes["n_k"] = int(self.named(arguments)["lengths"].max(initial=0))
        return sizes

    def with_widths(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """Return the sizes, and the widths that follow from them."""
        return {**sizes, **{name: sizes[number] * sizes[width] for name, (number, width) in self.widths.items()}}

    def lead(self, arguments: Arguments) -> tuple[int, ...]:
        """Return the sizes of the leading (batch) axes of a call. The first array that can have
        leading axes shows them.
        """
        for parameter, argument in self.named(arguments).items():
            if BATCH in self.axes.get(parameter, ()):
                return tuple(
                    argument.shape[self.ahead(parameter, arguments) : argument.ndim - len(self.axes[parameter]) + 1]
                )
        return ()

    def shapes(self, *arguments: Any) -> tuple[tuple[int, ...], ...]:
        """Return the shapes of the results of a call."""
        if self.name == "combine_masks":
            return (np.broadcast_shapes(*(mask.shape for mask in arguments)),)
        sizes, lead = self.with_widths(self.sizes(arguments)), self.lead(arguments)
        by_name = self.named(arguments)
        rotating = by_name["rotary_dim"] if by_name.get("rotary_dim") is not None else sizes.get("head_dim", 0)
        sizes.setdefault("pairs", -(-rotating // 2))
        sizes["channels"] = 2 * sizes["pairs"]
        sizes.setdefault("n_k", sizes.get("n_q", 0))

        def shape(axes: Axes) -> Iterator[int]:
            for axis in axes:
                yield from lead if axis == BATCH else (sizes[axis],)

        return tuple(
            by_name["bias"].shape
            if result == "dbias"
            else ()
            if self.is_number(result)
            else tuple(shape(self.axes[result]))
            for result in self.returned(arguments)
        )
