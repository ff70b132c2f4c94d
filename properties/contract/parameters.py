"""Defines records of the parameters and the results of operations: a name, named axes, and what is
passed.
"""

from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property

__all__ = ["BATCH", "Axes", "Kind", "Parameter", "array", "gradient", "mask", "optional", "setting", "size", "tangents"]

BATCH = "*"
"""Any number of leading axes, the same for all arrays that have them."""

Axes = tuple[str, ...]


class Kind(Enum):
    """What is passed as a parameter, or returned as a result. The kind decides the number format."""

    NUMBERS = "an array in the format of inputs, or of the output"
    LOG_SUM_EXP = "log-sum-exps, in the format in which they are saved"
    TABLE = "cosines or sines, in the format of the arithmetic's tables"
    FREQUENCIES = "frequencies, in binary64 or binary32, whichever is as fine as they are computed"
    ALIBI = "ALiBi's slopes or biases, in the format of elementwise operations"
    MASK = "booleans, in the implementation's polarity"
    INTEGERS = "an array of integers, or of booleans that no convention inverts: every arithmetic keeps them"
    TOKENS = "1 at the tokens of padded sequences and 0 at padding: integers, whatever masks attention takes"
    LENGTHS = "lengths of sequences, their sums, the longest length, or the numbers of pages of sequences"
    SIZE = "the length of an axis, or a position"
    SETTING = "a number, a word or a tuple that says what is computed"
    FACTOR = "a setting that is one number in the format of frequencies"
    SCALES = "a setting that is the scales of quantised numbers, in binary32, in a shape that a convention says"
    OFFSET = "a setting that is one integer, or one integer for each element of the batch"

    @property
    def is_array_of_numbers(self) -> bool:
        """Whether the kind is an array of floating-point numbers."""
        return self in (Kind.NUMBERS, Kind.LOG_SUM_EXP, Kind.TABLE, Kind.FREQUENCIES, Kind.ALIBI)

    @property
    def is_setting(self) -> bool:
        """Whether the argument says what is computed. It is then neither an array nor a size."""
        return self in (Kind.SETTING, Kind.FACTOR, Kind.SCALES, Kind.OFFSET)


@dataclass(frozen=True)
class Parameter:
    """A parameter or a result of an operation.

    name         its name in calls
    axes         the names of its axes; () for a number
    kind         what is passed
    optional     whether a call may leave it out; a call passes it by keyword
    broadcasts   whether its axes may have size 1 or be missing, as for masks and biases
    """

    name: str
    axes: Axes = ()
    kind: Kind = Kind.NUMBERS
    optional: bool = False
    broadcasts: bool = False

    @cached_property
    def is_measured(self) -> bool:
        """Whether the sizes of a call are read from this parameter: from its axes, or from its
        value.
        """
        return self.kind is Kind.SIZE or (bool(self.axes) and not (self.broadcasts or self.kind.is_setting))


def array(name: str, axes: str, kind: Kind = Kind.NUMBERS, *, broadcasts: bool = False) -> Parameter:
    """Return the record of an array. `axes` is a text with the names of its axes, such as "* n_q
    head_dim".
    """
    return Parameter(name, tuple(axes.split()), kind, broadcasts=broadcasts)


def mask(name: str, axes: str) -> Parameter:
    """Return the record of a mask. A mask may have axes of size 1, or fewer axes."""
    return array(name, axes, Kind.MASK, broadcasts=True)


def size(name: str) -> Parameter:
    """Return the record of a number that is the length of an axis, or a position."""
    return Parameter(name, kind=Kind.SIZE)


def setting(name: str, kind: Kind = Kind.SETTING) -> Parameter:
    """Return the record of a setting: a required argument without axes that says what is computed."""
    return Parameter(name, kind=kind)


def optional(*parameters: Parameter) -> tuple[Parameter, ...]:
    """Return the same parameters as optional ones: a call may leave them out."""
    return tuple(replace(parameter, optional=True) for parameter in parameters)


def gradient(result: Parameter) -> Parameter:
    """Return the record of the gradient with respect to a result. It has the axes of the result and
    the format of inputs.
    """
    return Parameter(f"grad_{result.name}", result.axes)


def tangents(*parameters: Parameter) -> tuple[Parameter, ...]:
    """Return the records of the derivatives dq, dk, … of arrays q, k, …. They are tangents where
    they are passed, and gradients where they are returned.
    """
    return tuple(replace(parameter, name=f"d{parameter.name}", optional=False) for parameter in parameters)
