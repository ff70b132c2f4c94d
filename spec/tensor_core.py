"""Tensors: NumPy arrays whose entries are scalars of one `Context`, and the two ways a definition
makes them.

A Lean tensor of shape (n₁, n₂, …) is a function of indices with the shape in its type. Here it is a
`numpy.ndarray`, of dtype float64 or float32, or of dtype object with entries `mpf`, `arb` or
`arb_series`. The signature states the shape, in Lean's letters. Lean's `Tensor.dim fun i => …` is
`tabulate(shape, entry)`, and Lean's `foldl` is `functools.reduce`, which is a left fold too. No
operation broadcasts.

Lean: `NN/Spec/Core/Shape.lean`, `NN/Spec/Core/Tensor/Core.lean`
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import flint
import mpmath
import numpy as np
from jaxtyping import AbstractDtype

from spec.context import ARB, ARB_SERIES, MPF, REAL32, REAL64, Context, Scalar, repr_or_type, series
from spec.scope import in_scope

__all__ = [
    "Array",
    "BroadcastTo",
    "Tensor",
    "derivative",
    "expect_mask",
    "expect_type",
    "nat",
    "nats",
    "over",
    "replicate",
    "stack",
    "tabulate",
    "taylor",
    "tensor",
    "value",
]

Array = np.ndarray
_MOST_AXES = 64  # NumPy's own limit
_MOST = 2**28  # entries of a tensor
_OBJECT = np.dtype(object)

if TYPE_CHECKING:
    from typing import Annotated as Tensor  # to a type checker, Tensor[Array, "n d"] is an Array
else:

    class Tensor(AbstractDtype):
        """An array over one of the scalars; `Tensor[Array, "n d"]` also states its shape."""

        dtypes = ("float64", "float32", "object_")


# -- Making tensors --------------------------------------------------------------------------------


def tabulate(shape: tuple[int, ...], entry: Callable[..., Any], scalar: Context | type | None = None) -> Array:
    """Return the tensor whose entry at (i, j, …) is entry(i, j, …), computed in row-major order.

    Shape: any; with a size of 0 `entry` is not called. `scalar` is the context of the entries, or
    `bool` for a mask. Without it the entries are over the scalar of the calling definition. An
    entry of another scalar is converted, and never rounded: an entry that `scalar` cannot hold
    raises ValueError or TypeError.

    >>> tabulate((2, 3), lambda i, j: j <= i, bool)
    array([[ True, False, False],
           [ True,  True, False]])

    Lean: `Tensor.dim`, `Tensor.scalar`
    """
    scalar = in_scope() if scalar is None else scalar
    result = _empty(shape, scalar)
    lift, element = (scalar.lift, scalar.element) if isinstance(scalar, Context) else (_boolean, bool)
    with np.errstate(all="ignore"):  # Lean's Float arithmetic is silent
        for index in np.ndindex(*result.shape):
            x = entry(*index)
            result[index] = x if type(x) is element else lift(x)  # NumPy would round it, or drop a ball's radius
    return result


def _empty(shape: tuple[int, ...], scalar: Context | type | None) -> Array:
    if scalar is not bool:
        _expect_scalar(scalar)
    return np.empty(nats(shape, "shape"), scalar.dtype if isinstance(scalar, Context) else bool)


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{repr_or_type(value)} is of type {type(value).__name__}, but should be a boolean.")
    return bool(value)


def stack(shape: tuple[int, ...], part: Callable[[int], Array], scalar: Context | type | None = None) -> Array:
    """Return the tensor of `shape` whose slice at i along the first axis is the tensor part(i). For
    `scalar` see `tabulate`.

    >>> stack((2, 3), lambda i: replicate(REAL64.of_nat(i), (3,), REAL64), REAL64)
    array([[0., 0., 0.],
           [1., 1., 1.]])

    Lean: `Tensor.dim`
    """
    scalar = in_scope() if scalar is None else scalar
    result = _empty(shape, scalar)
    if result.ndim == 0:
        raise ValueError("shape=(), but should have an axis to stack along.")
    for i in range(result.shape[0]):
        t = part(i)
        _expect_array(t, f"part({i})")
        if t.shape != result.shape[1:]:
            raise ValueError(
                f"part({i}) has shape {t.shape}, but should have shape {result.shape[1:]}, the tail of shape."
            )
        result[i] = _lifted(t, scalar) if isinstance(scalar, Context) else t
    return result


def replicate(c: Scalar, shape: tuple[int, ...], scalar: Context | None = None) -> Array:
    """Return the tensor of `shape` whose entries are all c. For `scalar` see `tabulate`.

    >>> replicate(REAL64.two, (2,), REAL64)
    array([2., 2.])

    Lean: `replicate`
    """
    return tabulate(shape, lambda *_: c, scalar)


def tensor(values: Any, scalar: Context) -> Array:
    """Return the tensor over `scalar` that equals `values`: a number, nested lists of numbers, or a
    tensor over another scalar whose numbers `scalar` contains.

    It never rounds: a value that `scalar` cannot hold raises ValueError, and a value that is not a
    real number raises TypeError.

    >>> tensor([[1, 0.5]], ARB)
    array([[1.00000000000000, 0.500000000000000]], dtype=object)
    >>> from spec.context import FLOAT32
    >>> tensor([0.1], FLOAT32)
    Traceback (most recent call last):
    ValueError: 0.1 is not a number of FLOAT32: the nearest one is np.float32(0.1).
    """
    _expect_scalar(scalar)
    if isinstance(values, np.ndarray):
        _expect_array(values, "values")
        given = values
    else:
        shape = _shape_of_lists(values)
        given = np.empty(shape, object)
        for index in np.ndindex(*shape):
            entry = values
            for i in index:
                entry = entry[i]
            given[index] = entry
    return _lifted(given, scalar)


def _lifted(given: Array, scalar: Context) -> Array:
    """Return the array itself if it is over `scalar`, else a copy that is converted to `scalar`."""
    if given.dtype == scalar.dtype and (given.dtype != _OBJECT or set(map(type, given.flat)) <= {scalar.element}):
        return given
    return tabulate(given.shape, lambda *index: scalar.lift(given[index]), scalar)


def _shape_of_lists(values: Any, depth: int = 0) -> tuple[int, ...]:
    if not isinstance(values, list | tuple):
        return ()
    if depth == _MOST_AXES:
        raise ValueError(f"values is nested more than {_MOST_AXES} deep, but a tensor has at most {_MOST_AXES} axes.")
    shapes = {_shape_of_lists(row, depth + 1) for row in values}
    if len(shapes) > 1:
        raise ValueError(f"values has rows of shapes {sorted(shapes)}, but all rows should have one shape.")
    return (len(values), *(shapes.pop() if shapes else ()))


# -- Taylor tensors: the derivative of a definition along a direction ------------------------------


def taylor(values: Array, direction: Array) -> Array:
    """Return the tensor of functions t ↦ values + t · direction over `ARB_SERIES`.

    A definition applied to it gives the enclosed `value` of the definition and its `derivative`
    along the direction.

    Shapes: `values` and `direction` have the same shape, over floats or `ARB`.

    >>> x = taylor(tensor([3.0], ARB), tensor([1.0], ARB))
    >>> value(x * x), derivative(x * x)
    (array([9.00000000000000], dtype=object), array([6.00000000000000], dtype=object))
    """
    _, values, direction = over(ARB, values=values, direction=direction)
    if values.shape != direction.shape:
        raise ValueError(f"direction has shape {direction.shape}, but should have the shape {values.shape} of values.")
    return tabulate(values.shape, lambda *index: series(values[index], direction[index]), ARB_SERIES)


def value(t: Array) -> Array:
    """Return the constant terms of a tensor over `ARB_SERIES`: a tensor over `ARB`."""
    return _coefficients(t, 0)


def derivative(t: Array) -> Array:
    """Return the first-order terms of a tensor over `ARB_SERIES`: a tensor over `ARB`.

    A series that was cut below its first-order term, as under `flint.ctx.cap = 1`, raises
    ValueError, because that term is unknown.
    """
    return _coefficients(t, 1)


def _coefficients(t: Array, order: int) -> Array:
    _expect_array(t, "t")

    def entry(*index: int) -> Scalar:
        x = t[index]
        if type(x) is not flint.arb_series:
            raise TypeError(
                f"t{list(index)} is of type {type(x).__name__}, but should be an arb_series: build t with spec.taylor."
            )
        if x.prec < 2:
            raise ValueError(
                f"t{list(index)}={x} is known to order {x.prec}, "
                "but should be known to order 2: was flint.ctx.cap below 2?"
            )
        return x[order]

    return tabulate(t.shape, entry, ARB)


# -- Which scalar a definition runs over -----------------------------------------------------------

_INFERRED = {np.float64: REAL64, np.float32: REAL32, mpmath.mpf: MPF, flint.arb: ARB, flint.arb_series: ARB_SERIES}


def over(scalar: Context | None, **tensors: Array) -> tuple[Any, ...]:
    """Return the context that a definition runs over, and its tensors, each converted to that
    context.

    `scalar=None` infers it from the elements: float64 → `REAL64`, float32 → `REAL32`, `mpf` →
    `MPF`, `arb` → `ARB`, `arb_series` → `ARB_SERIES`. A given scalar is used, and tensors over a
    scalar that it extends are converted exactly.

    Raises TypeError if the elements belong to no scalar or to different ones, or if no element
    shows the scalar.
    """
    for name, t in tensors.items():
        _expect_array(t, name)
    if scalar is None:
        scalar = _inferred(tensors)
    _expect_scalar(scalar)
    return scalar, *(_lifted(t, scalar) for t in tensors.values())


def _expect_array(t: Array, name: str) -> None:
    if type(t) is not np.ndarray:  # nor of a subclass: a numpy.matrix keeps two axes, and a masked array hides entries
        raise TypeError(
            f"{name} is a {type(t).__name__}, "
            "but should be a numpy.ndarray: build one with spec.tensor(values, scalar)."
        )
    if (t.size or prod(n for n in t.shape if n)) > _MOST:
        raise ValueError(f"{name} has shape {t.shape}, but should have at most {_MOST} entries.")


def _expect_scalar(scalar: Any) -> None:
    if not isinstance(scalar, Context):
        raise TypeError(f"scalar={repr_or_type(scalar)}, but should be one of spec.SCALARS.")


def _inferred(tensors: dict[str, Array]) -> Context:
    contexts: dict[str, Context] = {}
    for name, t in tensors.items():
        if t.dtype == _OBJECT and t.size == 0:
            continue  # an empty object tensor is over any of the three
        element = type(next(iter(t.flat))) if t.dtype == _OBJECT else t.dtype.type
        if element not in _INFERRED:
            raise TypeError(
                f"{name} holds {element.__name__} elements, but should hold float64, float32, mpf, arb or arb_series: "
                "build it with spec.tensor(values, scalar)."
            )
        contexts[name] = _INFERRED[element]
    if not contexts:
        raise TypeError("scalar=None, but should be given: there is no element to infer it from.")
    if len(set(contexts.values())) > 1:
        listed = ", ".join(f"{name} over {context!r}" for name, context in contexts.items())
        raise TypeError(f"The tensors are {listed}, but should all be over one scalar.")
    return next(iter(contexts.values()))


# -- What an argument should be --------------------------------------------------------------------


def expect_mask(mask: Array, name: str) -> None:
    """Raise TypeError unless the mask is an array of booleans."""
    if type(mask) is not np.ndarray:
        raise TypeError(f"{name} is a {type(mask).__name__}, but should be a numpy.ndarray of bool.")
    if mask.dtype != bool:
        raise TypeError(f"{name} holds {mask.dtype}, but should be a numpy.ndarray of bool.")


def expect_type(value: Any, name: str, structure: type) -> None:
    """Raise TypeError unless the value is of the given type."""
    if not isinstance(value, structure):
        raise TypeError(f"{name} is of type {type(value).__name__}, but should be of type {structure.__name__}.")


def nats(shape: tuple[int, ...], name: str) -> tuple[int, ...]:
    """Return the shape, if it is a tuple of natural numbers. Raises TypeError for another type, and
    ValueError for a number below 0.
    """
    expect_type(shape, name, tuple)
    return tuple(nat(n, f"{name}[{axis}]") for axis, n in enumerate(shape))


def nat(n: int, name: str) -> int:
    """Return n, if it is a natural number. Raises TypeError for another type, and ValueError for a
    number below 0.
    """
    if isinstance(n, bool) or not isinstance(n, int | np.integer):
        raise TypeError(f"{name}={repr_or_type(n)} is a {type(n).__name__}, but should be a natural number.")
    if n < 0:
        raise ValueError(f"{name}={n}, but should be a natural number.")
    return int(n)


@dataclass(frozen=True)
class BroadcastTo:
    """A witness that a tensor of shape `source` broadcasts to shape `target`. Its constructor
    raises ValueError for shapes that do not.

    In the seed revision a shape broadcasts by four rules: () → anything; (n, s…) → (n, t…) and (1,
    s…) → (n, t…) where (s…) → (t…); and (s…) → (n, t…) where (s…) → (t…). Ranks may differ at
    either end, so that (nQ) → (nQ, nK) holds for every nK, unlike in NumPy.

    >>> BroadcastTo((2,), (2, 3))
    BroadcastTo(source=(2,), target=(2, 3))
    >>> BroadcastTo((2,), (3, 3))
    Traceback (most recent call last):
    ValueError: A tensor of shape (2,) does not broadcast to shape (3, 3).

    Lean: `BroadcastTo`, `CanBroadcastTo`
    """

    source: tuple[int, ...]
    target: tuple[int, ...]

    def __post_init__(self) -> None:
        nats(self.source, "source")
        nats(self.target, "target")
        if not _broadcasts(self.source, self.target):
            raise ValueError(f"A tensor of shape {self.source} does not broadcast to shape {self.target}.")


def _broadcasts(source: tuple[int, ...], target: tuple[int, ...]) -> bool:
    """Return whether `source` broadcasts to `target`. The four rules together say: each axis of
    source, in order, matches a later axis of target. The two sizes are equal, or the size in source
    is 1.
    """
    axes = iter(target)
    return all(any(n in (1, m) for m in axes) for n in source)
