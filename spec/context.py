"""The scalars: every definition can be evaluated over seven kinds of number.

TorchLean's definitions are polymorphic, `{α : Type} [Context α]`. A definition may only use 0, 1,
+, −, ×, /, max, exp, sqrt, log, sin, cos and the coercion ℕ → α. The definitions of `spec.extended`
also use tanh, powers, π, min, floor and `>`, and ask which numbers are finite. Lean's `Context` has
all of these except the floor. Here α is a `Context`, and every definition of `spec` runs over each
of these:

| scalar       | elements           | what it evaluates                                                             |
|--------------|--------------------|-------------------------------------------------------------------------------|
| `REAL64`     | `numpy.float64`    | the definition over ℝ, rounded to binary64 step by step; x / 0 = 0            |
| `REAL32`     | `numpy.float32`    | the same in binary32                                                          |
| `FLOAT64`    | `numpy.float64`    | the definition over Lean's `Float`: IEEE division, 0/0 = NaN, 1/0 = ∞         |
| `FLOAT32`    | `numpy.float32`    | the same in binary32                                                          |
| `MPF`        | `mpmath.mpf`       | ℝ, rounded to mpmath's working precision (`mpmath.workdps`)                   |
| `ARB`        | `flint.arb`        | ℝ, enclosed: each result is a ball that contains the value                    |
| `ARB_SERIES` | `flint.arb_series` | ℝ, enclosed, with the derivative along a direction: value + derivative · x    |

The caller sets the precision of `MPF`, `ARB` and `ARB_SERIES` (`flint.ctx.workprec(113)`). The
whole process has one precision. `+`, `-`, `*` and unary `-` are Python's own operators, so a
definition reads as it does in Lean. Each operation that differs between scalars is a field of
`Context`.

Lean: `NN/Spec/Core/Context.lean`, `Context`, `MathFunctions`, `Numbers`; only what the two layers
use.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import flint
import mpmath
import numpy as np

__all__ = [
    "ARB",
    "ARB_SERIES",
    "FLOAT32",
    "FLOAT64",
    "MPF",
    "REAL32",
    "REAL64",
    "SCALARS",
    "Context",
    "Scalar",
    "repr_or_type",
    "series",
    "total_division",
]

# An element of α: numpy.float64, numpy.float32, mpmath.mpf, flint.arb or flint.arb_series.
Scalar = Any

silent = np.errstate(all="ignore")  # IEEE arithmetic raises no warning, as Lean's Float does not


@dataclass(frozen=True, repr=False, kw_only=True)
class Context:
    """The operations of one scalar type α that a definition may use.

    `lift(value)` is the element of α that equals the number `value`. It never rounds: it raises
    ValueError where α does not contain the number. `greater(x, y)` is x > y. It raises ValueError
    where balls overlap, because then neither answer is proved. `pi()` is π at the working
    precision.

    Lean: `Context`
    """

    name: str
    element: type
    dtype: np.dtype[Any]
    lift: Callable[[Any], Scalar]
    of_nat: Callable[[int], Scalar]
    div: Callable[[Scalar, Scalar], Scalar]
    max: Callable[[Scalar, Scalar], Scalar]
    exp: Callable[[Scalar], Scalar]
    sqrt: Callable[[Scalar], Scalar]
    log: Callable[[Scalar], Scalar]
    sin: Callable[[Scalar], Scalar]
    cos: Callable[[Scalar], Scalar]
    tanh: Callable[[Scalar], Scalar]
    power: Callable[[Scalar, Scalar], Scalar]
    floor: Callable[[Scalar], Scalar]
    greater: Callable[[Scalar, Scalar], bool]
    is_finite: Callable[[Scalar], bool]
    is_neg_inf: Callable[[Scalar], bool]
    pi: Callable[[], Scalar]

    @property
    def zero(self) -> Scalar:
        """0 : α."""
        return self.of_nat(0)

    @property
    def one(self) -> Scalar:
        """1 : α."""
        return self.of_nat(1)

    @property
    def two(self) -> Scalar:
        """2 : α. Lean: `Numbers.two`."""
        return self.of_nat(2)

    @property
    def log10000(self) -> Scalar:
        """The natural logarithm of 10000, at the working precision. Lean: `Numbers.log10000`."""
        return self.log(self.of_nat(10000))

    @property
    def neg_inf(self) -> Scalar:
        """−∞, the logarithm of an empty sum. It is not an element of ℝ."""
        return self.lift(-np.inf)

    def min(self, x: Scalar, y: Scalar) -> Scalar:
        """Return the smaller of x and y, computed as −max(−x, −y)."""
        return -self.max(-x, -y)

    def ceil(self, x: Scalar) -> Scalar:
        """Return ⌈x⌉, computed as −⌊−x⌋."""
        return -self.floor(-x)

    def __repr__(self) -> str:
        return self.name


def total_division(x: Scalar, y: Scalar) -> Scalar:
    """Return x / y as Lean divides over ℝ, where x / 0 = 0.

    IEEE 754, and so Lean's `Float`, gives NaN for 0/0 and ±∞ for any other x/0. In floating point y
    may have underflowed to zero although the exact y is not zero. Then this division gives 0, which
    differs from both ℝ and Float (see `errata`, `masked-underflow`). Division by a ball that
    contains zero and other numbers gives the indeterminate ball.

    >>> total_division(np.float64(1), np.float64(0)), total_division(flint.arb(1), flint.arb(0, 1))
    (np.float64(0.0), nan)

    Lean: `Div ℝ` (Mathlib, `div_zero`)
    """
    return type(y)(0) if y == 0 else x / y


def lean_max(x: Scalar, y: Scalar) -> Scalar:
    """Return max x y as Lean's `maxOfLe` decides it: y where x ≤ y, else x. So a NaN in x is
    returned, and a NaN in y is not.
    """
    return y if x <= y else x  # noqa: FURB136 - Python's max decides otherwise on NaN


def repr_or_type(x: Any) -> str:
    """Return the repr of a value for a message. If the repr fails or is long, return the value's
    type.
    """
    try:
        text = repr(x)
    except Exception:
        text = ""
    return text if 0 < len(text) <= 200 else f"an object of type {type(x).__name__}"


# -- IEEE floating point: REAL64, REAL32, FLOAT64, FLOAT32 -----------------------------------------


def _ieee(name: str, element: type, div: Callable[[Scalar, Scalar], Scalar]) -> Context:
    """Return the context of the NumPy scalar type `element`, with the given division."""

    largest = int(np.finfo(element).max)

    def of_nat(n: int) -> Scalar:
        if n > largest:
            raise ValueError(f"{n} is not a number of {name}: the largest one is {np.finfo(element).max!r}.")
        return element(n)

    def lift(value: Any) -> Scalar:
        if isinstance(value, bool | np.bool_) or not isinstance(value, int | float | np.floating | np.integer):
            raise TypeError(
                f"{repr_or_type(value)} has type {type(value).__name__}, "
                f"but should be a real number that {name} can hold."
            )
        value = (
            int(value) if isinstance(value, np.integer) else value
        )  # Python compares an int with a float exactly, NumPy after rounding
        try:
            with np.errstate(all="ignore"):
                rounded = element(value)
        except OverflowError:  # an int beyond every binary64
            rounded = element(np.inf if value > 0 else -np.inf)
        if value == value and float(rounded) != value:
            raise ValueError(f"{value!r} is not a number of {name}: the nearest one is {rounded!r}.")
        return rounded

    return Context(
        name=name,
        element=element,
        dtype=np.dtype(element),
        lift=lift,
        of_nat=of_nat,
        div=silent(div),
        max=lean_max,
        exp=silent(np.exp),
        sqrt=silent(np.sqrt),
        log=silent(np.log),
        sin=silent(np.sin),
        cos=silent(np.cos),
        tanh=silent(np.tanh),
        power=silent(np.power),
        floor=silent(np.floor),
        greater=lambda x, y: bool(x > y),
        is_finite=lambda x: bool(np.isfinite(x)),
        is_neg_inf=lambda x: bool(np.isneginf(x)),
        pi=lambda: element(np.pi),
    )


def ieee_division(x: Scalar, y: Scalar) -> Scalar:
    """Return x / y as IEEE 754 divides: 0/0 = NaN, x/0 = ±∞."""
    return x / y


REAL64 = _ieee("REAL64", np.float64, total_division)
REAL32 = _ieee("REAL32", np.float32, total_division)
FLOAT64 = _ieee("FLOAT64", np.float64, ieee_division)
FLOAT32 = _ieee("FLOAT32", np.float32, ieee_division)


# -- High precision --------------------------------------------------------------------------------


def _int_or_float(value: Any, name: str) -> int | float:
    """Return the number as Python's own int or float: integers of any size, and numbers that
    binary64 holds.
    """
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return int(value)
    if isinstance(value, float):  # as NumPy's float64 is
        return float(value)
    if isinstance(value, np.floating):
        return float(REAL64.lift(value))
    raise TypeError(
        f"{repr_or_type(value)} has type {type(value).__name__}, but should be a real number that {name} can hold."
    )


def _lift_mpf(value: Any) -> mpmath.mpf:
    if isinstance(value, mpmath.mpf):
        return value
    exact = _int_or_float(value, "MPF")
    rounded = mpmath.mpf(exact)
    if exact == exact and rounded != exact:
        raise ValueError(f"{value!r} is not a number of MPF at {mpmath.mp.prec} bits: the nearest one is {rounded!r}.")
    return rounded


MPF = Context(
    name="MPF",
    element=mpmath.mpf,
    dtype=np.dtype(object),
    lift=_lift_mpf,
    of_nat=mpmath.mpf,
    div=total_division,
    max=lean_max,
    exp=mpmath.exp,
    sqrt=mpmath.sqrt,
    log=mpmath.log,
    sin=mpmath.sin,
    cos=mpmath.cos,
    tanh=mpmath.tanh,
    power=mpmath.power,
    floor=mpmath.floor,
    greater=lambda x, y: x > y,
    is_finite=mpmath.isfinite,
    is_neg_inf=lambda x: x == mpmath.ninf,
    pi=lambda: +mpmath.pi,
)


# -- Balls -----------------------------------------------------------------------------------------


def _lift_arb(value: Any) -> flint.arb:
    return value if isinstance(value, flint.arb) else flint.arb(_int_or_float(value, "ARB"))


def _arb_greater(x: flint.arb, y: flint.arb) -> bool:
    """Return whether x > y, if the balls prove one of the answers. Raises ValueError where the
    balls overlap: a definition must not guess a branch.

    >>> _arb_greater(flint.arb(2), flint.arb(1)), _arb_greater(flint.arb(1), flint.arb(1))
    (True, False)
    >>> _arb_greater(flint.arb(1), flint.arb(1, 0.5))  # doctest: +NORMALIZE_WHITESPACE
    Traceback (most recent call last):
    ValueError: Whether 1.00000000000000 > [1e+0 +/- 0.501] is not decided at 53 bits:
        the balls overlap. Raise flint.ctx.prec.
    """
    if x > y or x <= y:
        return bool(x > y)
    raise ValueError(
        f"Whether {x} > {y} is not decided at {flint.ctx.prec} bits: the balls overlap. Raise flint.ctx.prec."
    )


ARB = Context(
    name="ARB",
    element=flint.arb,
    dtype=np.dtype(object),
    lift=_lift_arb,
    of_nat=flint.arb,
    div=total_division,
    max=flint.arb.max,  # encloses the maximum; Python's own max would return one of the two balls
    exp=flint.arb.exp,
    sqrt=flint.arb.sqrt,
    log=flint.arb.log,
    sin=flint.arb.sin,
    cos=flint.arb.cos,
    tanh=flint.arb.tanh,
    power=lambda x, y: x**y,
    floor=flint.arb.floor,  # where the ball holds an integer inside, a ball that holds both floors
    greater=_arb_greater,
    is_finite=flint.arb.is_finite,
    is_neg_inf=lambda x: x == flint.arb.neg_inf(),
    pi=flint.arb.pi,
)


# -- First-order Taylor arithmetic over balls ------------------------------------------------------


def series(value: Any, derivative: Any = 0) -> flint.arb_series:
    """Return the function t ↦ value + derivative · t + O(t²), with both numbers exact or balls.

    Raises ValueError if `flint.ctx.cap` is below 2: flint would cut off every first-order term,
    which would then look like 0.

    >>> series(2, 1) * series(2, 1)
    4.00000000000000 + 4.00000000000000*x + O(x^2)
    """
    if flint.ctx.cap < 2:
        raise ValueError(
            f"flint.ctx.cap={flint.ctx.cap}, but should be at least 2: a derivative is the second term of a series."
        )
    return flint.arb_series([_lift_arb(value), _lift_arb(derivative)], 2)


def _lift_series(value: Any) -> flint.arb_series:
    return value if isinstance(value, flint.arb_series) else series(value)


def _series_division(x: flint.arb_series, y: flint.arb_series) -> flint.arb_series:
    """Return the function t ↦ x(t) / y(t) with x / 0 = 0. It is enclosed where y(0) ≠ 0, and
    indeterminate where y(0) is a ball that contains 0 and other numbers.

    Where y(0) = 0 exactly, the value is 0. The derivative is then 0 if y'(0) = 0 exactly too.
    Otherwise the quotient jumps, and the derivative is indeterminate. The function knows y only to
    first order: it treats y = t², where the quotient jumps as well, as the function 0. That is
    sound for the divisors in the definitions: naturals, their roots, and sums of exponentials,
    which are 0 only if they are empty.
    """
    unknown = flint.arb("nan")
    if y[0] == 0:
        return series(0, 0 if y.prec >= 2 and y[1] == 0 else unknown)
    return series(unknown, unknown) if y[0].contains(0) else x / y


def _series_max(x: flint.arb_series, y: flint.arb_series) -> flint.arb_series:
    """Return the argument whose constant term has the larger midpoint.

    This does not enclose max where the balls overlap, and max is not differentiable where they tie.
    It is sound for its one use in the definitions. Softmax subtracts m = max t, and exp(tⱼ − m) / Σ
    exp(tₖ − m) is the same function for every m. So any choice of m encloses the same value and the
    same derivative, and the larger one keeps the exponentials small. The log-sum-exp m + log Σ is
    such a function too. `spec.extended` also clamps with it: there the derivative belongs to the
    branch that contains the midpoint.
    """
    return y if x[0].mid() <= y[0].mid() else x


def _series_sqrt(x: flint.arb_series) -> flint.arb_series:
    """Return √x. For the constant function 0 it is 0, because flint's general rule would
    differentiate √ at 0.
    """
    return x if x[0] == 0 and x[1] == 0 else x.sqrt()


def _slope(x: flint.arb_series) -> flint.arb:
    """Return the derivative of a series; it is indeterminate if the series was cut below its
    first-order term.
    """
    return x[1] if x.prec >= 2 else flint.arb("nan")


def _series_tanh(x: flint.arb_series) -> flint.arb_series:
    """Return tanh x, whose derivative is x' / cosh² x. flint has no tanh of a series."""
    return series(x[0].tanh(), _slope(x) * x[0].sech() ** 2)


def _series_floor(x: flint.arb_series) -> flint.arb_series:
    """Return ⌊x⌋. Its derivative is 0 if x lies between two integers. Where x may be an integer,
    ⌊x⌋ may jump, and the derivative is indeterminate.
    """
    return series(x[0].floor(), flint.arb("nan") if x[0].contains_integer() else 0 * _slope(x))


ARB_SERIES = Context(
    name="ARB_SERIES",
    element=flint.arb_series,
    dtype=np.dtype(object),
    lift=_lift_series,
    of_nat=series,
    div=_series_division,
    max=_series_max,
    exp=flint.arb_series.exp,
    sqrt=_series_sqrt,
    log=flint.arb_series.log,
    sin=flint.arb_series.sin,
    cos=flint.arb_series.cos,
    tanh=_series_tanh,
    power=lambda x, y: x**y,
    floor=_series_floor,
    greater=lambda x, y: _arb_greater(x[0], y[0]),
    is_finite=lambda x: bool(x[0].is_finite()),
    is_neg_inf=lambda x: bool(x[0] == flint.arb.neg_inf()),
    pi=lambda: series(flint.arb.pi()),
)

SCALARS = (REAL64, REAL32, FLOAT64, FLOAT32, MPF, ARB, ARB_SERIES)
