"""An implementation's arrays: float64 numbers to what it takes, in any layout in memory, and what
it returns back to float64.
"""

from collections.abc import Callable
from numbers import Real
from typing import Any

import numpy as np

from oracles import arrays
from oracles.ball import Array
from oracles.formats import Format
from properties.contract.implementation import LAYOUTS, Implementation
from properties.contract.wording import said

__all__ = ["ReturnedError", "UngivenError", "given", "layouts", "number", "overlaps", "received", "type_of", "values"]


class ReturnedError(Exception):
    """What came back is not what an operation returns; the message completes the sentence "out …"."""


class UngivenError(ValueError):
    """Numbers cannot be handed over in the arrays that an implementation takes; the message is a sentence."""


def given(x: Array, implementation: Implementation, target: Format | None, layout: str = "contiguous") -> Any:
    """A fresh array of the implementation's kind with the numbers x, which are of the target
    format.

    None as target means booleans or integers, whose type stays as it is.

    The layout is "contiguous" or one of `LAYOUTS`; arrays with fewer than two axes, and torch's
    with no such layout, are contiguous. Raises UngivenError where there are no such arrays: the
    converter refuses the layout or the type, the device is not there.
    """
    dtype = str(x.dtype) if target is None else implementation.dtype_of(target)
    try:
        return _given(x, implementation, dtype, layout)
    except Exception as error:
        what, why = (
            f"{layout.capitalize()} arrays of {dtype} and shape {x.shape}",
            f"{type(error).__name__}: {said(error).rstrip('.')}",
        )
        raise UngivenError(f"{what} cannot be handed over: {why}.") from error


def _given(x: Array, implementation: Implementation, dtype: str, layout: str) -> Any:
    if implementation.arrays == "torch":
        import torch

        fresh = torch.from_numpy(np.ascontiguousarray(x).copy()).to(implementation.device, getattr(torch, dtype))
        return _TORCH_LAYOUTS[layout](fresh) if x.ndim > 1 and layout in _TORCH_LAYOUTS else fresh
    array = np.array(x, dtype=_numpy_dtype(dtype), order="C")
    if layout != "contiguous" and x.ndim > 1:
        array = _NUMPY_LAYOUTS[layout](array)
    return implementation.arrays(array) if callable(implementation.arrays) else array


def _numpy_dtype(name: str) -> Any:
    if name != "bfloat16":
        return np.dtype(name)
    import ml_dtypes

    return np.dtype(ml_dtypes.bfloat16)


def _late(x: Any) -> Any:
    """In a buffer that begins one element before."""
    buffer = np.empty(x.size + 1, x.dtype)
    buffer[1:] = x.reshape(-1)
    return buffer[1:].reshape(x.shape)


def _frozen(x: Any) -> Any:
    x.flags.writeable = False
    return x


_NUMPY_LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "transposed": lambda x: np.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2),
    "heads-inside": lambda x: np.ascontiguousarray(x.swapaxes(-3, -2)).swapaxes(-3, -2),
    "strided": lambda x: np.repeat(x, 2, axis=-2)[..., ::2, :],
    "offset": _late,
    "reversed": lambda x: np.ascontiguousarray(x[..., ::-1, :])[..., ::-1, :],
    "read-only": _frozen,
}

_TORCH_LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "transposed": lambda x: x.transpose(-1, -2).contiguous().transpose(-1, -2),
    "heads-inside": lambda x: x.transpose(-3, -2).contiguous().transpose(-3, -2),
    "strided": lambda x: x.repeat_interleave(2, dim=-2)[..., ::2, :],
    "offset": lambda x: x.new_zeros(x.numel() + 1)[1:].view(x.shape).copy_(x),
}


def layouts(implementation: Implementation, x: Any = None) -> tuple[str, ...]:
    """The layouts in which the implementation may be given arrays, or one of as many axes: those
    that it declares, or all, that its kind of arrays can have."""
    declared = LAYOUTS if implementation.layouts is None else implementation.layouts
    flat = x is not None and (x.ndim < 3 or x.shape[-3] == 1)
    possible = (name for name in declared if implementation.arrays != "torch" or name in _TORCH_LAYOUTS)
    return tuple(name for name in possible if not (flat and name == "heads-inside"))


def received(raw: Any, implementation: Implementation, target: Format | None, shape: tuple[int, ...]) -> Any:
    """The numbers of a result as fresh float64 (booleans for a mask); raises ReturnedError unless
    it is an array of the type and shape.
    """
    wanted = "bool" if target is None else implementation.dtype_of(target)
    try:
        values = (arrays.booleans if target is None else arrays.float_array)(raw, "it").copy()
    except (TypeError, ValueError):
        known = hasattr(raw, "dtype") and str(raw.dtype) != wanted
        kind = f"dtype {raw.dtype}" if known else f"type {type(raw).__name__}"
        raise ReturnedError(f"has {kind}, but should be an array of {wanted}.") from None
    dtype = type_of(raw) if hasattr(raw, "dtype") else wanted
    if dtype != wanted:
        raise ReturnedError(f"has dtype {dtype}, but should have dtype {wanted}.")
    if implementation.arrays == "torch" and type(raw).__module__.split(".")[0] != "torch":
        raise ReturnedError(f"has type {type(raw).__name__}, but should be a torch.Tensor.")
    if implementation.arrays == "numpy" and not isinstance(raw, np.ndarray):
        raise ReturnedError(f"has type {type(raw).__name__}, but should be a numpy.ndarray.")
    if values.shape != shape:
        raise ReturnedError(f"has shape {values.shape}, but should have shape {shape}.")
    return values


def number(raw: Any) -> Array:
    """One number, as a fresh array of shape (); raises ReturnedError unless it is a float, or an array with one."""
    try:
        one = isinstance(raw, Real) or getattr(raw, "ndim", None) == 0
        found = np.array(float(raw)) if one else arrays.float_array(raw, "it").copy()
    except (TypeError, ValueError):
        raise ReturnedError(f"has type {type(raw).__name__}, but should be a number, or an array with one.") from None
    if found.size != 1:
        raise ReturnedError(f"has shape {found.shape}, but should be a number, or an array with one.")
    return found.reshape(())


def type_of(array: Any) -> str:
    """The name of the type of an array's numbers, "float32", whose array ever it is: torch's and
    MLX's are called by their modules too.
    """
    name = getattr(array.dtype, "name", None)
    return (name if isinstance(name, str) else str(array.dtype).rpartition(".")[2]).rstrip("_")


def values(x: Any) -> Any:
    """A fresh copy of what an array of an implementation holds, as float64, booleans or integers;
    anything else as it is.
    """
    if not hasattr(x, "dtype"):
        return x
    if x.shape == ():
        return float(x)
    whole = type_of(x).startswith(("bool", "int"))
    return arrays.as_numpy(x, "it").copy() if whole else arrays.float_array(x, "it").copy()


def overlaps(raw: Any, argument: Any) -> bool:
    """Whether a result shares memory with an argument; false for arrays other than NumPy's and
    torch's, which cannot be asked.
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
