"""Converts float64 numbers to an implementation's arrays, in any memory layout, and its results
back to float64.
"""

import sys
from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any

import numpy as np

from oracles import arrays
from oracles.ball import Array
from oracles.formats import Format
from properties.contract.implementation import LAYOUTS, Implementation
from properties.contract.wording import said

__all__ = [
    "ReturnedError",
    "UngivenError",
    "gathered",
    "given",
    "layout_in_words",
    "layouts",
    "number",
    "overlaps",
    "received",
    "repeated_axes",
    "require_device",
    "type_of",
    "values",
]


class ReturnedError(Exception):
    """Raised when an operation returned something that is not a result. The message completes a
    sentence that begins with the result's name: "out …".
    """


class UngivenError(ValueError):
    """Raised when numbers cannot be passed in the arrays that an implementation takes. The message
    is a sentence.
    """


def given(x: Array, implementation: Implementation, target: Format | None, layout: str = "contiguous") -> Any:
    """Return a fresh array of the implementation's kind with the numbers x. The format `target`
    must have these numbers.

    With `target` None, x holds booleans or integers, whose type does not change. The layout is
    "contiguous" or one of `LAYOUTS`. Arrays with fewer than two axes are always contiguous, and so
    are torch's arrays in a layout that torch lacks.

    Raises UngivenError if the array cannot be made: the converter refuses the layout or the type,
    or the device is missing.
    """
    dtype = str(x.dtype) if target is None else implementation.dtype_of(target)
    try:
        return _given(x, implementation, dtype, layout)
    except Exception as error:
        described, reason = (
            f"{layout.capitalize()} arrays of {dtype} and shape {x.shape}",
            f"{type(error).__name__}: {said(error).rstrip('.')}",
        )
        raise UngivenError(f"{described} cannot be passed: {reason}.") from error


def require_device(implementation: Implementation) -> None:
    """Raise ValueError, with a sentence, if torch cannot use the implementation's device here. An
    implementation that declares to be unavailable needs no device.
    """
    if implementation.arrays != "torch" or implementation.device == "cpu" or implementation.unavailable:
        return
    try:
        import torch

        torch.empty(0, device=implementation.device)
    except Exception as error:
        raise ValueError(
            f"{implementation.name} declares device={implementation.device!r}, which PyTorch cannot use here "
            f"({said(error).rstrip('.')}): run attnspec where this device is, or declare another device."
        ) from error


def _given(x: Array, implementation: Implementation, dtype: str, layout: str) -> Any:
    if implementation.arrays == "torch":
        import torch

        tensor = torch.from_numpy(np.ascontiguousarray(x).copy()).to(implementation.device, getattr(torch, dtype))
        return _TORCH_LAYOUTS[layout](tensor) if x.ndim > 1 and layout in _TORCH_LAYOUTS else tensor
    array = np.array(x, dtype=_numpy_dtype(dtype), order="C")
    if layout != "contiguous" and x.ndim > 1:
        array = _NUMPY_LAYOUTS[layout](array)
    return implementation.arrays(array) if callable(implementation.arrays) else array


def _numpy_dtype(name: str) -> Any:
    if name in np.sctypeDict:
        return np.dtype(name)
    import ml_dtypes

    return np.dtype(getattr(ml_dtypes, name))


def _late(x: Any) -> Any:
    """Return the array as a view of a buffer that begins one element earlier."""
    buffer = np.empty(x.size + 1, x.dtype)
    buffer[1:] = x.reshape(-1)
    return buffer[1:].reshape(x.shape)


def _frozen(x: Any) -> Any:
    x.flags.writeable = False
    return x


def repeated_axes(x: Any) -> tuple[int, ...]:
    """Return the axes, without the last one, along which all entries of an array are equal."""
    several = [axis for axis in range(x.ndim - 1) if x.shape[axis] > 1 and 0 not in x.shape]
    return tuple(axis for axis in several if (x == x[(slice(None),) * axis + (slice(1),)]).all())


def _strides(x: Any, strides: Sequence[int]) -> list[int]:
    """Return the strides of an array, but 0 along its repeated axes."""
    repeated = repeated_axes(x)
    return [0 if axis in repeated else stride for axis, stride in enumerate(strides)]


_NUMPY_LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "transposed": lambda x: np.ascontiguousarray(x.mT).mT,
    "heads-inside": lambda x: np.ascontiguousarray(x.swapaxes(-3, -2)).swapaxes(-3, -2),
    "strided": lambda x: np.repeat(x, 2, axis=-2)[..., ::2, :],
    "offset": _late,
    "reversed": lambda x: np.ascontiguousarray(x[..., ::-1, :])[..., ::-1, :],
    "read-only": _frozen,
    "expanded": lambda x: np.lib.stride_tricks.as_strided(x, x.shape, _strides(x, x.strides)),
}

_TORCH_LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "transposed": lambda x: x.transpose(-1, -2).contiguous().transpose(-1, -2),
    "heads-inside": lambda x: x.transpose(-3, -2).contiguous().transpose(-3, -2),
    "strided": lambda x: x.repeat_interleave(2, dim=-2)[..., ::2, :],
    "offset": lambda x: x.new_zeros(x.numel() + 1)[1:].view(x.shape).copy_(x),
    "expanded": lambda x: x.as_strided(x.shape, _strides(x, x.stride())),
}


def gathered(given: Sequence[Any], arguments: Sequence[Any], layout: str) -> list[Any]:
    """Return the arrays of a call in memory that they share. Other values do not change.

    "aliased": arrays with equal numbers are one object, as in attention(x, x, x). "packed": arrays
    of one shape and one type are views of one buffer. `arguments` are the numbers of the arrays.
    """
    groups: dict[Any, list[int]] = {}
    for place, argument in enumerate(arguments):
        if isinstance(argument, np.ndarray) and argument.ndim > 1:
            kind = argument.dtype, type_of(given[place]), argument.shape
            groups.setdefault((kind, argument.tobytes() if layout == "aliased" else b""), []).append(place)
    shared = list(given)
    for places in groups.values():
        arrays = [given[place] for place in places]
        views = [arrays[0]] * len(arrays) if layout == "aliased" else _packed(arrays)
        for place, view in zip(places, views, strict=True):
            shared[place] = view
    return shared


def _packed(arrays: list[Any]) -> list[Any]:
    """Return equal arrays whose rows lie beside each other in one buffer; only NumPy and torch can."""
    library = type(arrays[0]).__module__.split(".")[0]
    if len(arrays) < 2 or library not in ("numpy", "torch"):
        return arrays
    buffer = sys.modules[library].stack(arrays, -2)
    return [buffer[..., place, :] for place in range(len(arrays))]


def layouts(implementation: Implementation, x: Any = None) -> tuple[str, ...]:
    """Return the memory layouts in which attnspec may pass arrays, or one array such as `x`, to the
    implementation.

    These are the layouts that the adapter declares. Without a declaration, these are all layouts. A
    layout that the kind of arrays, or the array, does not have is left out; "packed" is a layout of
    several arrays.
    """
    declared = LAYOUTS if implementation.layouts is None else implementation.layouts
    without = {"packed"}
    if x is not None and (x.ndim < 3 or x.shape[-3] == 1):
        without.add("heads-inside")
    if x is not None and not repeated_axes(x):
        without.add("expanded")
    possible = (layout for layout in declared if implementation.arrays != "torch" or layout in _TORCH_LAYOUTS)
    return tuple(layout for layout in possible if layout not in without)


def layout_in_words(layout: str) -> str:
    """Return a layout as a noun: "transposed k" for one array, "transposed arrays" for all."""
    return layout if " " in layout else f"{layout} arrays"


def received(
    raw: Any, implementation: Implementation, target: Format | None, shape: tuple[int, ...], integers: bool = False
) -> Any:
    """Return the numbers of a result as a fresh float64 array, a mask as booleans, or integers of any
    width as they are. Raises ReturnedError for another type or shape.
    """
    is_integer = integers and hasattr(raw, "dtype") and type_of(raw).startswith(("int", "uint"))
    expected_dtype = "bool" if target is None else implementation.dtype_of(target)
    if integers:
        expected_dtype = type_of(raw) if is_integer else "int64"
    try:
        read = arrays.as_numpy if is_integer else arrays.booleans if target is None else arrays.float_array
        values = read(raw, "it").copy()
    except (TypeError, ValueError):
        has_other_dtype = hasattr(raw, "dtype") and str(raw.dtype) != expected_dtype
        actual = f"dtype {raw.dtype}" if has_other_dtype else f"type {type(raw).__name__}"
        raise ReturnedError(f"has {actual}, but should be an array of {expected_dtype}.") from None
    actual_dtype = type_of(raw) if hasattr(raw, "dtype") else expected_dtype
    if actual_dtype != expected_dtype:
        raise ReturnedError(f"has dtype {actual_dtype}, but should have dtype {expected_dtype}.")
    if implementation.arrays == "torch" and type(raw).__module__.split(".")[0] != "torch":
        raise ReturnedError(f"has type {type(raw).__name__}, but should be a torch.Tensor.")
    if implementation.arrays == "numpy" and not isinstance(raw, np.ndarray):
        raise ReturnedError(f"has type {type(raw).__name__}, but should be a numpy.ndarray.")
    if values.shape != shape:
        raise ReturnedError(f"has shape {values.shape}, but should have shape {shape}.")
    return values


def number(raw: Any) -> Array:
    """Return a result that is one number, as a new array of shape (). Raises ReturnedError unless
    the result is a float, or an array with one element.
    """
    try:
        is_scalar = isinstance(raw, Real) or getattr(raw, "ndim", None) == 0
        numbers = np.array(float(raw)) if is_scalar else arrays.float_array(raw, "it").copy()
    except (TypeError, ValueError):
        raise ReturnedError(
            f"has type {type(raw).__name__}, but should be a number, or an array with one number."
        ) from None
    if numbers.size != 1:
        raise ReturnedError(f"has shape {numbers.shape}, but should be a number, or an array with one number.")
    return numbers.reshape(())


def type_of(array: Any) -> str:
    """Return the name of an array's number type, such as "float32", for arrays of any library. The
    prefix that torch and MLX add (as in "torch.float32") is removed.
    """
    type_name = getattr(array.dtype, "name", None)
    return (type_name if isinstance(type_name, str) else str(array.dtype).rpartition(".")[2]).rstrip("_")


def values(x: Any) -> Any:
    """Return the contents of an implementation's array as a fresh NumPy array of float64, booleans
    or integers. Anything else is returned unchanged.
    """
    if not hasattr(x, "dtype"):
        return x
    if x.shape == ():
        return float(x)
    is_exact = type_of(x).startswith(("bool", "int", "uint")) and type_of(x) != "int4"
    return arrays.as_numpy(x, "it").copy() if is_exact else arrays.code_array(x, "it").copy()


def overlaps(raw: Any, argument: Any) -> bool:
    """Return whether a result shares memory with an argument. The answer is False for arrays of
    libraries other than NumPy and torch, because they do not show their memory.
    """
    if isinstance(raw, np.ndarray) and isinstance(argument, np.ndarray):
        return bool(np.shares_memory(raw, argument))
    if hasattr(raw, "untyped_storage") and hasattr(argument, "untyped_storage"):
        return bool(
            raw.numel()
            and argument.numel()
            and raw.untyped_storage().data_ptr() == argument.untyped_storage().data_ptr()
        )
    return False
