"""Number formats and the arithmetic of an implementation, as data.

A `Format` states the error of rounding to it: fl(x) = x(1 + ε) + η with |ε| ≤ unit_roundoff, |η| ≤
smallest_subnormal / 2 and ε·η = 0 (Higham, Accuracy and Stability, 2nd ed., (2.8)).  An
`Arithmetic` states where an implementation rounds, and to which format. The budgets of `oracles`
depend on nothing else.  Make your own with `dataclasses.replace(FLOAT32, accumulate=2.0**-22)`.

The constructors raise TypeError for a field of another type. They raise ValueError for a relative
error outside [0, 1), for a negative or infinite absolute error, and for a count below 1.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from math import frexp, isfinite
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oracles.spelling import did_you_mean


def _validate(record: Any) -> None:
    """Convert the numbers of a record to float and int. Raises TypeError or ValueError unless every
    field has its type and is in its range.
    """
    for field in fields(record):
        value, name = getattr(record, field.name), f"{type(record).__name__}.{field.name}"
        accepted, wanted = KINDS[field.type]
        if not isinstance(value, accepted) or (isinstance(value, bool) and field.type is not bool):
            raise TypeError(f"{name} has type {type(value).__name__}, but should be {wanted}.")
        if accepted in (Real, Real | None) and value is not None:
            object.__setattr__(record, field.name, _number(value, name, field.name in RELATIVE))
        elif accepted in (Integral, Integral | None) and value is not None:
            if value < 1:
                raise ValueError(f"{name}={value}, but should be at least 1.")
            object.__setattr__(record, field.name, int(value))


def _number(value: Any, name: str, relative: bool) -> float:
    """Return an error bound as the float that equals it. Raises ValueError for any other number."""
    try:
        number = float(value)
    except OverflowError:
        number = float("inf")
    if not (isfinite(number) and number == value and number >= 0 and not (relative and number >= 1)):
        bounds = "at least 0 and below 1" if relative else "at least 0"
        raise ValueError(f"{name}={value}, but should be a finite float64 number of {bounds}.")
    return number


@dataclass(frozen=True)
class Format:
    """A binary floating-point format: it states how far rounding to it moves a number.

    `unit_roundoff` is relative (2⁻²⁴ in binary32). The next three fields are absolute and ascend.
    A number beyond `largest` is rounded to ±∞. `farthest_negative` is the size of the most negative
    number, if it is not `largest`, as in integers of 4 bits. The numbers of a grid of integers have
    a unit roundoff so small that every step is `smallest_subnormal`.
    """

    name: str
    unit_roundoff: float
    smallest_subnormal: float
    smallest_normal: float
    largest: float
    farthest_negative: float | None = None

    def __post_init__(self) -> None:
        _validate(self)
        if not 0 < self.smallest_subnormal <= self.smallest_normal <= self.largest:
            raise ValueError(
                f"Format has smallest_subnormal={self.smallest_subnormal}, smallest_normal={self.smallest_normal} and "
                f"largest={self.largest}, but these should be positive and in ascending order."
            )

    @property
    def is_binary(self) -> bool:
        """Whether its numbers are multiples of powers of two."""
        return frexp(self.smallest_subnormal)[0] == 0.5

    @property
    def lowest(self) -> float:
        """The most negative number."""
        return -(self.largest if self.farthest_negative is None else self.farthest_negative)

    def spacing(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the distance between two neighbouring numbers of this format at each number of x.

        A format has p-bit numbers: for 2^(e−1) ≤ |x| < 2^e they are multiples of 2^(e−p).  With unit
        roundoff 2⁻ᵖ the spacing is 2ᵉ·unit_roundoff, and at least the smallest subnormal number.
        """
        relative = np.where(x == 0, 0.0, np.ldexp(self.unit_roundoff, np.frexp(x)[1]))
        return np.maximum(relative, self.smallest_subnormal)

    def contains(self, x: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Return where x has finite numbers of this format.

        The quotient of a value and its spacing is exact: the spacing is a power of two, and no
        quotient that matters underflows.
        """
        quotient = x / self.spacing(x)
        return np.asarray((quotient == np.rint(quotient)) & (x <= self.largest) & (x >= self.lowest))

    def times(self, factor: float) -> "Format":
        """Return the format of x/factor for the numbers x of this format: that of numbers which are
        multiplied by a static factor before they are rounded to this format.
        """
        sizes = (size / factor for size in (self.smallest_subnormal, self.smallest_normal, self.largest))
        return Format(f"{self.name} of {factor:g}·x", self.unit_roundoff, *sizes)

    def holds(self, other: "Format") -> bool:
        """Return whether this format contains every number of another format."""
        finer = self.unit_roundoff <= other.unit_roundoff and self.smallest_subnormal <= other.smallest_subnormal
        return finer and self.largest >= other.largest


@dataclass(frozen=True)
class Elementary:
    """How far a computed exponential may be from exp(x).

    |computed − exp(x)| ≤ (relative + per_unit·|x|)·exp(x), but a result below `flush` may come out
    as 0.  |computed − 1| ≤ `at_zero` for exp(0). Where it is 0, as in most implementations that
    reduce the argument by multiples of ln 2, rescaling leaves the sums of an online softmax
    unchanged as long as the maximum does not change. A polynomial of least maximal error, as in
    PyTorch's exponential for 16 bits on CPUs, is off at 0 too.
    """

    relative: float
    per_unit: float
    flush: float
    at_zero: float = 0.0

    def __post_init__(self) -> None:
        _validate(self)


@dataclass(frozen=True)
class Angle:
    """Where a rotary or sinusoidal angle position × frequency is rounded.

    `frequency` is the unit roundoff of the computed frequencies. `product` is the unit roundoff of
    position × frequency. `table` is the format of the stored sines and cosines.  `recurrent` says
    whether a kernel multiplies the angle of a pair by base^(−2/d) to get the angle of the next pair.
    `divisors` says whether a kernel divides by frequencies that are given, as periods, so that it
    rounds a period and its reciprocal.
    """

    frequency: float
    product: float
    table: Format
    recurrent: bool = False
    divisors: bool = False

    def __post_init__(self) -> None:
        _validate(self)


@dataclass(frozen=True)
class Arithmetic:
    """Where an implementation rounds: all the numbers on which a budget depends.

    inputs, output   formats of the arguments and of the result
    product          relative error of each operand of a matrix product (2⁻¹⁰ for TF32); 0 if
                     operands enter exactly. For a subnormal operand it is relative to the smallest
                     normal number
    accumulate       unit roundoff of the accumulators of the forward products (2⁻²² covers
                     truncating tensor cores)
    elementwise      format of everything between the products; its range is the range of the
                     accumulators
    exp              accuracy of the exponential
    log              relative error of the logarithm, beyond its rounding
    tanh             accuracy of the hyperbolic tangent; None for the accuracy of `exp`. Here
                     `flush` is an absolute error of any result, for a tanh that is computed by
                     exponentials
    trig_absolute    absolute error of sine and cosine
    scores           format in which a kernel stores the scores and the result of each operator on
                     them: s/c, tanh, its product with the cap, and the sum with a bias; None if it
                     does not store them
    weights          format of the softmax weights in the product with v, if narrower than
                     `elementwise`
    saved_weights    format of the weights that the backward pass reads, if it does not recompute
                     them
    stored_sum       whether the sum of the weights adds up the stored weights
    shared_weights   whether the product with v and the sum of the weights take the same
                     exponentials, as a kernel of one pass does. Such a kernel merges parts by sums
                     and maxima, not by log-sum-exps
    grad_weights     format of dP = g·vᵀ, if a kernel stores it
    grad_scores      format of dS in the products with q and k, if a kernel stores it
    delta            "output" if the backward pass computes delta as rowsum(g·O), "weights" if it
                     computes delta as rowsum(P·dP), None if it may do either
    grad_accumulate  unit roundoff of the accumulators of the backward products
    grad_block       for gradients that are accumulated in memory, the fewest queries (for dk and
                     dv) or keys (for dq) after which a partial gradient is rounded to the output's
                     format; None if gradients are rounded once
    grad_block_of_keys  the fewest keys after which a partial dq is rounded, if they are more than
                     `grad_block`; None for `grad_block`
    saved_output     format of the output O from which the backward pass computes delta =
                     rowsum(g·O)
    saved_lse        format of the saved log-sum-exp, if narrower than `elementwise`
    scale_on_inputs  format of scaled q, of scaled k, or of both scaled by the root of the scale, if
                     the kernel folds the scale into them
    rescale_block    fewest keys between two rescalings of an online softmax, or in one part of a
                     split-K merge; None if the kernel neither rescales nor merges.  A merge takes
                     sums and maxima, or all parts at once: a chain of merges by log-sum-exps would
                     round these each time
    rescale_slack    how far, in base 2, the reference of an online softmax may be below the
                     maximum, for a kernel that moves it only after weights have grown to
                     2^rescale_slack; 0 if every larger score moves it
    sum_depth        longest chain of additions in a sum, if it is known to be shorter than the sum
    sum_block        number of terms in a block: every sum adds up the terms of a block in any
                     order, then the sums of the blocks
    angle            where angles are rounded
    flush_to_zero    whether a kernel may replace an operand below the smallest normal number of
                     `elementwise` by 0, and a result below the smallest normal number of its format
    likely           λ of a statistical line in place of a proof (see
                     `oracles.error_analysis.statistical_line`); None for a proof
    rescale_exp      accuracy of the exponential that rescales an online softmax or merges parts;
                     None for the accuracy of `exp`. A kernel computes few of these, so it often
                     takes a finer exponential for them
    stored_differences  format in which a kernel stores logit − maximum before the exponential; None if
                     it does not store it
    stored_parts     format in which the output of each part of split keys is stored before the parts
                     are merged; None if parts are not stored, or as finely as `elementwise`
    bias             format in which a kernel reads a bias; None if it reads the bias as it is given
    accumulate_scores   format of the accumulators of q·kᵀ, if narrower than `elementwise`; beyond its
                     range a score overflows
    accumulate_values   format of the accumulators of the weights times v, if narrower than
                     `elementwise`; beyond its range the output overflows. The sum of the weights is
                     in `accumulate`, and sums of derivatives are in `grad_accumulate`
    queries, keys, values  formats of quantised queries, keys and values: grids; None where they are
                     in `inputs`
    """

    name: str
    inputs: Format
    output: Format
    accumulate: float
    elementwise: Format
    exp: Elementary
    trig_absolute: float
    grad_accumulate: float
    angle: Angle
    product: float = 0.0
    scores: Format | None = None
    weights: Format | None = None
    saved_weights: Format | None = None
    stored_sum: bool = False
    shared_weights: bool = False
    grad_weights: Format | None = None
    grad_scores: Format | None = None
    delta: str | None = None
    saved_output: Format | None = None
    saved_lse: Format | None = None
    scale_on_inputs: Format | None = None
    rescale_block: int | None = 16
    rescale_slack: float = 8.0
    grad_block: int | None = None
    sum_depth: int | None = None
    sum_block: int | None = None
    flush_to_zero: bool = False
    log: float = 0.0
    tanh: Elementary | None = None
    likely: float | None = None
    rescale_exp: Elementary | None = None
    stored_differences: Format | None = None
    stored_parts: Format | None = None
    bias: Format | None = None
    grad_block_of_keys: int | None = None
    accumulate_scores: Format | None = None
    accumulate_values: Format | None = None
    queries: Format | None = None
    keys: Format | None = None
    values: Format | None = None

    def __post_init__(self) -> None:
        _validate(self)
        if self.delta not in (None, "output", "weights"):
            raise ValueError(f"Arithmetic.delta={self.delta!r}, but should be 'output', 'weights' or None.")

    @property
    def operands(self) -> Format:
        """The format whose numbers queries, keys and values can all hold: the coarsest of theirs."""
        formats = (grid or self.inputs for grid in (self.queries, self.keys, self.values))
        return max(formats, key=lambda each: (each.unit_roundoff, each.smallest_subnormal))

    @property
    def is_quantised(self) -> bool:
        """Whether queries, keys or values are on a grid."""
        return any((self.queries, self.keys, self.values))

    def __hash__(self) -> int:
        """Return the hash of the name. Equal arithmetics have equal names, and hashing all fields
        takes as long as computing the terms of a budget.
        """
        return hash(self.name)


RELATIVE = ("unit_roundoff", "relative", "frequency", "product", "accumulate", "grad_accumulate", "log", "at_zero")
"""Fields that are relative errors. An error of 1 or more would leave no correct digit."""

KINDS: dict[Any, tuple[Any, str]] = {
    str: (str, "a str"),
    str | None: (str | None, "a str or None"),
    bool: (bool, "a bool"),
    float: (Real, "a real number"),
    float | None: (Real | None, "a real number or None"),
    int: (Integral, "an integer"),
    int | None: (Integral | None, "an integer or None"),
    Format: (Format, "an oracles.Format"),
    Format | None: (Format | None, "an oracles.Format or None"),
    Elementary: (Elementary, "an oracles.Elementary"),
    Elementary | None: (Elementary | None, "an oracles.Elementary or None"),
    Angle: (Angle, "an oracles.Angle"),
}
"""For the declared type of a field: the accepted types, and their name in a message."""

BINARY64 = Format("binary64", 2.0**-53, 2.0**-1074, 2.0**-1022, (2 - 2.0**-52) * 2.0**1023)
BINARY32 = Format("binary32", 2.0**-24, 2.0**-149, 2.0**-126, (2 - 2.0**-23) * 2.0**127)
BINARY16 = Format("binary16", 2.0**-11, 2.0**-24, 2.0**-14, 65504.0)
BRAIN16 = Format("bfloat16", 2.0**-8, 2.0**-133, 2.0**-126, (2 - 2.0**-7) * 2.0**127)
E4M3 = Format("float8_e4m3fn", 2.0**-4, 2.0**-9, 2.0**-6, 448.0)
E5M2 = Format("float8_e5m2", 2.0**-3, 2.0**-16, 2.0**-14, 57344.0)
E2M1 = Format("float4_e2m1fn", 2.0**-2, 0.5, 1.0, 6.0)
INT8 = Format("int8", 2.0**-8, 1.0, 1.0, 127.0)
INT4 = Format("int4", 2.0**-4, 1.0, 1.0, 7.0, farthest_negative=8.0)
GRIDS = {"e4m3": E4M3, "e5m2": E5M2, "e2m1": E2M1, "int8": INT8, "int4": INT4}
"""The grids of quantised queries, keys and values. Scales are usually chosen so that INT8 has no
−128; a `Format` with `farthest_negative=128.0` has it.
"""

FLOAT64 = Arithmetic(
    name="float64",
    inputs=BINARY64,
    output=BINARY64,
    accumulate=2.0**-53,
    elementwise=BINARY64,
    exp=Elementary(relative=2.0**-50, per_unit=0.0, flush=2.0**-1022),  # 4 ulp
    trig_absolute=2.0**-51,
    grad_accumulate=2.0**-53,
    angle=Angle(frequency=2.0**-53, product=2.0**-53, table=BINARY64),
    saved_output=BINARY64,
    scale_on_inputs=BINARY64,
    log=2.0**-50,
)
_FLUSH = 2.0**-125
"""Exponentials below this number may come out as 0. Vector exponentials form 2ⁿ as 2·2ⁿ⁻¹, so they
flush results below 2^−125.5 and not below 2⁻¹²⁶ (measured in PyTorch's flash kernel on the CPU).
"""
FLOAT32 = Arithmetic(
    name="float32",
    inputs=BINARY32,
    output=BINARY32,
    accumulate=2.0**-24,
    elementwise=BINARY32,
    exp=Elementary(relative=2.0**-21, per_unit=0.0, flush=_FLUSH),  # 4 ulp
    trig_absolute=2.0**-22,
    grad_accumulate=2.0**-24,
    angle=Angle(frequency=2.0**-24, product=2.0**-24, table=BINARY32),
    saved_output=BINARY32,
    scale_on_inputs=BINARY32,
    log=2.0**-21,
)
_FAMILIES: dict[str, dict[str, Any]] = {
    "materialized": {"rescale_block": None, "shared_weights": True, "delta": "weights"},
    "flash": {"rescale_block": 512, "rescale_slack": 0.0, "shared_weights": True, "delta": "output", "sum_block": 512},
}
"""The structure of a family of kernels, by the suffix of the preset's name, as in `float32-flash`.

materialized  All scores of a row at once, one exponential of each, the derivative of softmax
              itself; like NumPy, and PyTorch's math kernel.
flash         PyTorch's flash attention on CPUs: keys in blocks of 512, queries in blocks of 32 to
              256 (aten/native/cpu, split sizes by the number of queries), one pass, delta from the
              output.  Blocks of 512 cover its blocks of b queries while b + n/b ≤ 512 + n/512: for
              n up to 131072.
"""
FLOAT32_FAMILIES = tuple(replace(FLOAT32, name=f"float32-{name}", **stated) for name, stated in _FAMILIES.items())
TF32 = replace(FLOAT32, name="tf32", product=2.0**-10, accumulate=2.0**-22, grad_accumulate=2.0**-22)
FLOAT16 = replace(
    FLOAT32,
    name="float16",
    inputs=BINARY16,
    output=BINARY16,
    weights=BINARY16,
    grad_scores=BINARY16,
    saved_output=BINARY16,
    exp=Elementary(relative=2.0**-18, per_unit=2.0**-23, flush=_FLUSH),  # 20-ulp vector exponentials are in use
    angle=Angle(frequency=2.0**-24, product=2.0**-24, table=BINARY16),
)
BFLOAT16 = replace(
    FLOAT16,
    name="bfloat16",
    inputs=BRAIN16,
    output=BRAIN16,
    weights=BRAIN16,
    grad_scores=BRAIN16,
    saved_output=BRAIN16,
    angle=Angle(frequency=2.0**-24, product=2.0**-24, table=BRAIN16),
)
_VARIANTS: dict[str, Callable[[Format], dict[str, Any]]] = {
    "tensor-core": lambda _: {"accumulate": 2.0**-22, "grad_accumulate": 2.0**-22},
    "stored-gradients": lambda _: {"grad_block": 32, "grad_block_of_keys": 512},
    "scaled-inputs": lambda narrow: {"scale_on_inputs": narrow},
    "saved-weights": lambda narrow: {"saved_weights": narrow},
    "stored-sum": lambda _: {"stored_sum": True},
    "elementwise": lambda narrow: {
        "elementwise": narrow,
        "scores": narrow,
        "scale_on_inputs": narrow,
        "saved_weights": narrow,
        "grad_weights": narrow,
        "rescale_slack": 8.0 if narrow.largest > 2.0**100 else 0.0,
    },
    "eager": lambda narrow: {
        "scores": narrow,
        "scale_on_inputs": narrow,
        "saved_weights": narrow,
        "grad_weights": narrow,
    },
}
"""Variants of kernels of 16 bits, by the suffix of the preset's name, as in `bfloat16-eager`.

tensor-core       Accumulators truncate, with two extra bits.
stored-gradients  PyTorch's flash backward pass on CPUs adds up its gradients in the 16 bits of the
                  output: dk and dv at least 32 queries at a time, dq 512 keys at a time.
scaled-inputs     Scaled q, scaled k, or both scaled by the root of the scale are stored in 16 bits.
saved-weights     Weights are stored in 16 bits and used again for dS, as in autograd.
stored-sum        The sum of the weights adds up the stored weights.
eager             Each operator stores its result in 16 bits before the next one runs: scaled
                  inputs, scores, weights, dP and dS.
elementwise       The same, and every operator computes in 16 bits, except the sums of its products
                  (the text of ONNX; eager RoPE).  In binary16 sums of weights of 2⁸ would overflow,
                  so every larger score rescales.
"""


def _variants(base: Arithmetic) -> tuple[Arithmetic, ...]:
    """Return a preset of 16 bits and its variants."""
    return (
        base,
        *(replace(base, name=f"{base.name}-{name}", **changes(base.output)) for name, changes in _VARIANTS.items()),
    )


def _tanh_by_exponentials(a: Arithmetic) -> Elementary:
    """Return the accuracy of a tanh that is computed from exponentials: as 2σ(2x) − 1, 1 − 2/(E +
    1), (E − 1)/(E + 1), or (1 − E)/(1 + E) with the sign of x, where E is exp of ±2x, or from eˣ
    and e⁻ˣ.

    The derivative of tanh by log E is 2E/(1 + E)² = sech²(x)/2 ≤ 1/2.  So a relative error ε of E
    moves tanh by at most ε/2. An error of ε for each unit of E's argument moves it by at most
    |x|·sech²(x)·ε ≤ ε/2. Two roundings of an argument in base 2 add less than u.  Two roundings of
    a quotient of at most 2, and the rounding of the difference, add 5u.  The error of a flushed
    exponential is its own size.  All these errors are absolute near 0.

    A kernel may also compute (E₁ − E₂)/(E₁ + E₂) with E₁ ≈ eˣ and E₂ ≈ e⁻ˣ. Errors ε of both, of
    opposite signs, move log(E₁/E₂) by 2ε and tanh by at most ε. An error for each unit of both
    arguments moves tanh by at most |x|·sech²(x)·ε ≤ ε/2. The roundings of the difference, the sum
    and the quotient are relative errors of tanh: 3u.
    """
    u = a.elementwise.unit_roundoff
    return Elementary(0.0, 0.0, a.exp.relative + a.exp.per_unit / 2 + 6 * u + 2 * a.exp.flush)


_TANHS: dict[str, Callable[[Arithmetic], dict[str, Any]]] = {
    "torch-tanh": lambda a: {"tanh": Elementary(4 * a.elementwise.unit_roundoff, 0.0, 0.0)},
    "tanh-by-exponentials": lambda a: {"tanh": _tanh_by_exponentials(a)},
    "approximate-tanh": lambda a: {"tanh": Elementary(max(2.0**-11, a.elementwise.unit_roundoff), 0.0, 0.0)},
}
"""How a kernel computes the hyperbolic tangent of its cap, by a suffix of any preset's name, as in
`float32-approximate-tanh`.

torch-tanh            PyTorch on CPUs: SLEEF's vector function, which states an error of at most 1.0
                      unit in the last place, or MKL's, which is closer. The preset allows twice
                      that error.
tanh-by-exponentials  An absolute error of a few roundoffs, which the product with the cap
                      multiplies by c.
approximate-tanh      CUDA's tanh.approx.f32: a relative error of at most 2⁻¹¹ (NVIDIA, PTX ISA,
                      Floating Point Instructions: tanh).
"""


def _products(operand: float, terms: int) -> dict[str, Any]:
    """Return the fields of products on tensor cores whose operands have a relative error. Of a product
    in several terms, all terms are added up, by an accumulator that truncates: t·n terms of n products
    are off by (t·n − 1)·u ≤ t·u·(n − 1) + (t − 1)·u, times Σ|terms| ≤ 1.02·Σ|products|.
    """
    accumulate = 2.0**-22 if terms == 1 else 1.02 * terms * 2.0**-22
    return {"product": operand, "accumulate": accumulate, "grad_accumulate": accumulate}


def _on_grid(grid: Format, *arrays: str) -> Callable[[Arithmetic], dict[str, Any]]:
    """Return the change of an arithmetic that puts arrays on a grid."""
    return lambda _: dict.fromkeys(arrays, grid)


_SUFFIXES: dict[str, Callable[[Arithmetic], dict[str, Any]]] = {
    "fast-exponential": lambda a: {
        "exp": replace(a.exp, relative=max(2.0**-13, a.exp.relative), at_zero=2.0**-14),
        "rescale_exp": a.exp,
    },
    "flushing": lambda _: {"flush_to_zero": True},
    "tensor-core-flash": lambda _: {
        "accumulate": 2.0**-22,
        "grad_accumulate": 2.0**-22,
        "rescale_block": 32,
        "shared_weights": True,
        "delta": "output",
    },
    "stored-differences": lambda a: {"stored_differences": a.output},
    "stored-parts": lambda a: {"stored_parts": a.output},
    "accumulate16": lambda _: {"accumulate_values": BINARY16, "rescale_slack": 0.0},
    "by-bfloat16": lambda _: _products(2.0**-8, terms=1),
    "by-three-bfloat16": lambda _: _products(1.52 * 2.0**-16, terms=3),
    "by-three-tf32": lambda _: _products(1.5 * 2.0**-20, terms=3),
    "float16-bias": lambda _: {"bias": BINARY16},
    "recurrent-angles": lambda a: {"angle": replace(a.angle, recurrent=True)},
    "frequency-divisors": lambda a: {"angle": replace(a.angle, divisors=True)},
    "fast-trig": lambda a: {"trig_absolute": max(2.0**-20.5, a.trig_absolute)},
    "accumulate-14-bits": lambda _: {"accumulate": 2.0**-13, "grad_accumulate": 2.0**-13},
    "accumulate-25-bits": lambda _: {"accumulate": 1.02 * 2.0**-24, "grad_accumulate": 1.02 * 2.0**-24},
    "e4m3-weights": lambda _: {"weights": E4M3},
    "e4m3-weights-by-256": lambda _: {"weights": E4M3.times(256.0), "rescale_slack": 0.0},
    "e4m3-weights-by-448": lambda _: {"weights": E4M3.times(448.0), "rescale_slack": 0.0},
    **{name: _on_grid(grid, "queries", "keys", "values") for name, grid in GRIDS.items()},
    **{f"{name}-cache": _on_grid(grid, "keys", "values") for name, grid in GRIDS.items()},
}
"""What a kernel does beside its variant, by suffixes of any preset's name. Several may follow each
other, as in `bfloat16-stored-gradients-fast-exponential-flushing`.

fast-exponential   A polynomial of degree 3 in place of an exponential: PyTorch's `fexp_u20` for 16
                   bits on CPUs (largest relative error 1.125e-4 over all arguments, exp(0) = 1 −
                   5.34e-5), FlashAttention-4's emulated exp2 (8.8e-5, and 1 at 0). Both rescale by
                   a finer exponential.
flushing           Subnormal operands and results are replaced by 0 (CUDA's --use_fast_math, x86's
                   products of bfloat16).
tensor-core-flash  One pass on tensor cores, with tiles of at least 32 keys: both sums take the same
                   exponentials, and δ is computed from the output (FlashAttention-2 and 3,
                   FlashInfer, Triton's tutorial).
stored-differences The difference of a logit and the maximum is stored in the output's format before
                   its exponential (transformers' gpt_oss, eager).
stored-parts       The outputs of parts of the keys are stored in the output's format before they are
                   merged (vLLM's paged attention v2, MLX's decoding in two passes).
accumulate16       The products of weights and values are added up in binary16 (llama.cpp's flash
                   attention of float16 values, on CPUs). The largest weight is 1.
by-bfloat16        Operands of products are rounded to bfloat16, which moves them by at most 2⁻⁸
                   (float32 in JAX's default precision on TPUs).
by-three-bfloat16  Each operand is a sum x₁ + x₂ of two numbers of bfloat16, and the product is x₁y₁ +
                   x₁y₂ + x₂y₁. Both operands are off by 2⁻¹⁶, and the term left out is 2⁻¹⁶ of the
                   product: 3.04·2⁻¹⁶ with the roundings of x₂, or 1.52·2⁻¹⁶ for each operand.
by-three-tf32      The same with TF32 by truncation, whose parts are off by 2⁻¹⁰: 3·2⁻²⁰ of a product.
float16-bias       A bias or mask of numbers is read in binary16 (llama.cpp).
recurrent-angles   The angle of each pair is a product with the angle of the pair before (llama.cpp).
frequency-divisors Given frequencies are divisors of the position (MLX's `freqs`).
fast-trig          CUDA's sin.approx.f32 and cos.approx.f32, __sincosf, of angles that a kernel has
                   reduced to [0, 2π]: an absolute error of at most 2^−20.5 (NVIDIA, PTX ISA,
                   Floating Point Instructions: sin, cos).
accumulate-14-bits Accumulators keep 14 significant bits and truncate the others (FP8 products on
                   H100: DeepSeek-V3, section 3.3.2).
accumulate-25-bits Accumulators keep 25 significant bits and truncate the others.
e4m3-weights       Weights are rounded to E4M3 as they are, so a weight up to 2⁻¹⁰ is lost
                   (FlashInfer, Triton's kernels for FP8).
e4m3-weights-by-256  Weights are multiplied by 2⁸ before they are rounded to E4M3, and the output is
                   divided by it: a weight up to 2⁻¹⁸ is lost (FlashAttention-3). The largest weight
                   is 1, as a larger one would overflow.
e4m3-weights-by-448  The same with 448, the largest number of E4M3 (SageAttention2).
e4m3, e5m2, e2m1, int8, int4  Queries, keys and values are on this grid.
e4m3-cache, …      Keys and values are on this grid, and queries are not: a quantised cache.
"""

PRESETS = (FLOAT64, FLOAT32, *FLOAT32_FAMILIES, TF32, *_variants(FLOAT16), *_variants(BFLOAT16))
"""Every arithmetic with a name."""


def preset(name: str) -> Arithmetic:
    """Return the arithmetic of a preset's name, to use as it stands or to change with
    `dataclasses.replace`.

    Suffixes may follow any name: first any of `_SUFFIXES`, in any order, then -torch-tanh,
    -tanh-by-exponentials or -approximate-tanh, which state how a kernel computes the tanh of a cap.

    Raises TypeError for a name of another type than str, and ValueError for an unknown name.
    """
    if not isinstance(name, str):
        raise TypeError(
            f"arithmetic has type {type(name).__name__}, but should be an oracles.Arithmetic, a preset's name, or None."
        )
    if (found := _named(name)) is not None:
        return found
    names = [arithmetic.name for arithmetic in PRESETS]
    raise ValueError(
        f"arithmetic={name!r}, but should be one of {', '.join(names)}, or an oracles.Arithmetic."
        f"{did_you_mean(name, names)}"
    )


def _named(name: str) -> Arithmetic | None:
    """Return the arithmetic of a name, or None for an unknown name. The suffix that states the tanh
    comes last, because it depends on the exponential.
    """
    for arithmetic in PRESETS:
        if arithmetic.name == name:
            return arithmetic
    for suffix, changes in (_SUFFIXES | _TANHS).items():
        if not name.endswith(f"-{suffix}"):
            continue
        base = _named(name.removesuffix(f"-{suffix}"))
        if base is not None and base.tanh is None:
            return replace(base, name=name, **changes(base))
    return None


FLOAT16_TENSOR_CORE = preset("float16-tensor-core")
BFLOAT16_TENSOR_CORE = preset("bfloat16-tensor-core")
FLOAT16_STORED_GRADIENTS = preset("float16-stored-gradients")
BFLOAT16_STORED_GRADIENTS = preset("bfloat16-stored-gradients")


def resolve(arithmetic: Arithmetic | str | None) -> Arithmetic | None:
    """Return the `Arithmetic` for a preset's name. An `Arithmetic` is returned as given, and so is
    None, which asks for the certified value alone.

    Raises ValueError for an unknown name, TypeError for any other argument.
    """
    return arithmetic if arithmetic is None or isinstance(arithmetic, Arithmetic) else preset(arithmetic)
