"""The columns of the table of roundings, and how a field of a dataclass states a row of it.

`oracles.error_analysis.roundings` explains the columns.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from oracles.error_analysis.computation import Computation, roundoff, step, unit
from oracles.formats import Arithmetic

T = TypeVar("T")


@dataclass(frozen=True)
class Line:
    """How the statistical line adds up a rounding. `each` gives the size of one such rounding; it
    is None if the line has no number for it.
    """

    how: str
    each: Callable[[Arithmetic], float] | None = None


@dataclass(frozen=True)
class Rounding:
    """A row of the table. If the field is an `Exponents`, `kernel` has one entry for each exponent,
    by its name.
    """

    what: str
    times: str
    worst: Callable[[Computation], Any]
    line: Line
    loses: Callable[[Arithmetic], float] | None = None
    kernel: str | dict[str, str] = ""


def independent(each: Callable[[Arithmetic], float]) -> Line:
    """Return the line of independent roundings: their squares add up."""
    return Line("independent", each)


def linear(each: Callable[[Arithmetic], float], because: str) -> Line:
    """Return the line of a rounding that adds up linearly, with the reason."""
    return Line(f"linear: {because}", each)


def rounding(
    what: str,
    times: str,
    worst: Callable[[Computation], T],
    line: Line,
    *,
    loses: Callable[[Arithmetic], float] | None = None,
    kernel: str | dict[str, str] = "",
) -> T:
    """Return a dataclass field whose metadata is a row of the table."""
    column: T = field(metadata={"rounding": Rounding(what, times, worst, line, loses, kernel)})
    return column


def stored(
    what: str,
    times: str,
    name: str,
    kernel: str,
    *,
    worst: Callable[[Computation], Any] | None = None,
    because: str = "",
) -> Any:
    """Return a dataclass field whose metadata is the row of numbers that are stored in a format: the
    field `name` of the arithmetic.

    In the worst case a number is rounded once, unless `worst` is given. Roundings are independent,
    unless `because` says why they add up linearly. A number below the step of the format may be
    lost.
    """

    def each(a: Arithmetic) -> float:
        return unit(getattr(a, name))

    return rounding(
        what,
        times,
        worst or (lambda at: roundoff(getattr(at.a, name))),
        linear(each, because) if because else independent(each),
        loses=lambda a: step(getattr(a, name), a),
        kernel=kernel,
    )


def underflow(what: str, times: str, worst: Callable[[Computation], float], kernel: str) -> float:
    """Return a dataclass field whose metadata is a row of an absolute error.

    A product that underflows has an error of at most η; a sum has no such error (Higham, Problem
    2.19). With flushing, every operation and every operand has an error of at most the smallest
    normal number. Unnormalised weights reach 1 at the maximum, so D ≥ 1, and the division by D
    makes no absolute error larger.
    """
    return rounding(what, times, worst, Line("linear: the sum of what the other rows lose"), kernel=kernel)


def table(record: type) -> dict[str, Rounding]:
    """Return the rows of `Terms` or `Exponents`, by name."""
    return {column.name: column.metadata["rounding"] for column in fields(record)}
