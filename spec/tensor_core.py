"""Tensors: NumPy arrays whose entries are scalars of one `Context`, and the two ways a definition makes them.

A Lean tensor of shape (n₁, n₂, …) is a function of indices with the shape in its type. Here it is a `numpy.ndarray`, of dtype float64 or
float32, or of dtype object holding `mpf`, `arb` or `arb_series`; the shape stands in the signature, in Lean's letters. Lean's
`Tensor.dim fun i => …` is `tabulate(shape, entry)`, and Lean's `foldl` is `functools.reduce`, a left fold too. Nothing broadcasts.

Lean: `NN/Spec/Core/Shape.lean`, `NN/Spec/Core/Tensor/Core.lean`
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import flint
import mpmath
import numpy as np
from jaxtyping import AbstractDtype

from spec.context import ARB, ARB_SERIES, MPF, REAL32, REAL64, Context, Scalar, series

__all__ = [
    "Array",
    "BroadcastTo",
    "Tensor",
    "derivative",
    "nat",
    "over",
    "replicate",
    "shape_of",
    "stack",
    "tabulate",
    "taylor",
    "tensor",
    "value",
]

Array = np.ndarray

if TYPE_CHECKING:
    from typing import Annotated as Tensor  # to a type checker, Tensor[Array, "n d"] is an Array
else:

    class Tensor(AbstractDtype):
        """An array over one of the scalars; `Tensor[Array, "n d"]` also states its shape."""

        dtypes = ("float64", "float32", "object_")


# -- Making tensors ------------------------------------------------------------------------------------------------------------


def tabulate(shape: tuple[int, ...], entry: Callable[..., Any], scalar: Context | type) -> Array:
    """The tensor whose entry at (i, j, …) is entry(i, j, …), computed in row-major order.

    Shape: any; a size of 0 evaluates nothing. `scalar` is the context of the entries, or `bool` for a mask.

    >>> tabulate((2, 3), lambda i, j: j <= i, bool)
    array([[ True, False, False],
           [ True,  True, False]])

    Lean: `Tensor.dim`, `Tensor.scalar`
    """
    result = np.empty(shape, scalar.dtype if isinstance(scalar, Context) else scalar)
    with np.errstate(all="ignore"):  # Lean's Float arithmetic is silent
        for index in np.ndindex(*shape):
            result[index] = entry(*index)
    return result


def stack(shape: tuple[int, ...], part: Callable[[int], Array], scalar: Context | type) -> Array:
    """The tensor of `shape` whose slice at i along the first axis is the tensor part(i).

    >>> stack((2, 3), lambda i: replicate(REAL64.of_nat(i), (3,), REAL64), REAL64)
    array([[0., 0., 0.],
           [1., 1., 1.]])

    Lean: `Tensor.dim`
    """
    result = np.empty(shape, scalar.dtype if isinstance(scalar, Context) else scalar)
    for i in range(shape[0]):
        result[i] = part(i)
    return result


def replicate(c: Scalar, shape: tuple[int, ...], scalar: Context) -> Array:
    """The constant tensor c.

    >>> replicate(REAL64.two, (2,), REAL64)
    array([2., 2.])

    Lean: `replicate`
    """
    return tabulate(shape, lambda *_: c, scalar)


def tensor(values: Any, scalar: Context) -> Array:
    """The tensor over `scalar` that equals `values`: a number, nested lists of numbers, or a tensor over a scalar that it extends.

    It never rounds: a value that `scalar` cannot hold raises ValueError, one that is no real number TypeError.

    >>> tensor([[1, 0.5]], ARB)
    array([[1.00000000000000, 0.500000000000000]], dtype=object)
    >>> from spec.context import FLOAT32
    >>> tensor([0.1], FLOAT32)
    Traceback (most recent call last):
    ValueError: 0.1 is not a number of FLOAT32: the nearest one is np.float32(0.1).
    """
    if isinstance(values, np.ndarray):
        given = values
    else:
        shape = _shape_of_lists(values)
        given = np.empty(shape, object)
        for index in np.ndindex(*shape):
            entry = values
            for i in index:
                entry = entry[i]
            given[index] = entry
    if given.dtype == scalar.dtype and (given.dtype != np.dtype(object) or all(type(x) is scalar.element for x in given.flat)):
        return given
    return tabulate(given.shape, lambda *index: scalar.lift(given[index]), scalar)


def _shape_of_lists(values: Any) -> tuple[int, ...]:
    if not isinstance(values, list | tuple):
        return ()
    shapes = {_shape_of_lists(row) for row in values}
    if len(shapes) > 1:
        raise ValueError(f"values has rows of shapes {sorted(shapes)}, but all rows should have one shape.")
    return (len(values), *(shapes.pop() if shapes else ()))


# -- Taylor tensors: the derivative of a definition along a direction ----------------------------------------------------------


def taylor(values: Array, direction: Array) -> Array:
    """The tensor of functions t ↦ values + t · direction over `ARB_SERIES`.

    A definition applied to it gives the enclosed `value` of the definition and its `derivative` along the direction.

    Shapes: `values` and `direction` alike, over floats or `ARB`.

    >>> x = taylor(tensor([3.0], ARB), tensor([1.0], ARB))
    >>> value(x * x), derivative(x * x)
    (array([9.00000000000000], dtype=object), array([6.00000000000000], dtype=object))
    """
    if values.shape != direction.shape:
        raise ValueError(f"direction has shape {direction.shape}, but should have the shape {values.shape} of values.")
    return tabulate(values.shape, lambda *index: series(values[index], direction[index]), ARB_SERIES)


def value(t: Array) -> Array:
    """The constant terms of a tensor over `ARB_SERIES`: a tensor over `ARB`."""
    return tabulate(t.shape, lambda *index: t[index][0], ARB)


def derivative(t: Array) -> Array:
    """The first-order terms of a tensor over `ARB_SERIES`: a tensor over `ARB`."""
    return tabulate(t.shape, lambda *index: t[index][1], ARB)


# -- Which scalar a definition runs over ---------------------------------------------------------------------------------------

_INFERRED = {np.float64: REAL64, np.float32: REAL32, mpmath.mpf: MPF, flint.arb: ARB, flint.arb_series: ARB_SERIES}


def over(scalar: Context | None, **tensors: Array) -> tuple[Any, ...]:
    """The context that a definition runs over, followed by its tensors, each over that context.

    `scalar=None` infers it from the elements: float64 → `REAL64`, float32 → `REAL32`, `mpf` → `MPF`, `arb` → `ARB`, `arb_series` →
    `ARB_SERIES`. A given scalar is used, and tensors over a scalar that it extends are converted exactly.

    Raises TypeError where the elements are of no scalar or of different ones, or there are none to infer it from.
    """
    for name, t in tensors.items():
        if not isinstance(t, np.ndarray):
            raise TypeError(f"{name} is a {type(t).__name__}, but should be a numpy.ndarray: build one with spec.tensor(values, scalar).")
    if scalar is None:
        scalar = _inferred(tensors)
    elif not isinstance(scalar, Context):
        raise TypeError(f"scalar={scalar!r}, but should be one of spec.SCALARS.")
    return scalar, *(tensor(t, scalar) for t in tensors.values())


def _inferred(tensors: dict[str, Array]) -> Context:
    found: dict[str, Context] = {}
    for name, t in tensors.items():
        if t.dtype == np.dtype(object) and t.size == 0:
            continue  # an empty object tensor is over any of the three
        element = type(next(iter(t.flat))) if t.dtype == np.dtype(object) else t.dtype.type
        if element not in _INFERRED:
            raise TypeError(
                f"{name} holds {element.__name__} elements, but should hold float64, float32, mpf, arb or arb_series: "
                "build it with spec.tensor(values, scalar)."
            )
        found[name] = _INFERRED[element]
    if not found:
        raise TypeError("scalar=None, but should be given: there is no element to infer it from.")
    if len(set(found.values())) > 1:
        listed = ", ".join(f"{name} over {context!r}" for name, context in found.items())
        raise TypeError(f"The tensors are {listed}, but should all be over one scalar.")
    return next(iter(found.values()))


# -- Shapes and natural numbers ------------------------------------------------------------------------------------------------


def shape_of(t: Array, name: str, letters: str) -> tuple[int, ...]:
    """The shape of t, refused with a ValueError unless it has one axis for each of `letters`, such as "seqLen headDim"."""
    if t.ndim != len(letters.split()):
        raise ValueError(f"{name} has shape {t.shape}, but should have shape ({', '.join(letters.split())}).")
    return t.shape


def nat(n: int, name: str) -> int:
    """n itself, refused unless it is a natural number: TypeError for another type, ValueError below 0."""
    if isinstance(n, bool) or not isinstance(n, int | np.integer):
        raise TypeError(f"{name}={n!r} is a {type(n).__name__}, but should be a natural number.")
    if n < 0:
        raise ValueError(f"{name}={n}, but should be a natural number.")
    return int(n)


@dataclass(frozen=True)
class BroadcastTo:
    """A witness that a tensor of shape `source` broadcasts to shape `target`: it cannot be made for shapes that do not.

    In the seed revision a shape broadcasts by four rules: () → anything; (n, s…) → (n, t…) and (1, s…) → (n, t…) where (s…) → (t…); and
    (s…) → (n, t…) where (s…) → (t…). Ranks may differ at either end, so that (nQ) → (nQ, nK) holds for every nK, unlike in NumPy.

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
        if not _broadcasts(self.source, self.target):
            raise ValueError(f"A tensor of shape {self.source} does not broadcast to shape {self.target}.")


def _broadcasts(source: tuple[int, ...], target: tuple[int, ...]) -> bool:
    if not source or not target:
        return not source
    tails_broadcast = source[0] in (1, target[0]) and _broadcasts(source[1:], target[1:])
    return tails_broadcast or _broadcasts(source, target[1:])
