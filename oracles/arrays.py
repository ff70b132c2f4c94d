"""Converts any array to NumPy: values to float64 exactly, masks to bool. The module imports no
array library except NumPy.

It reads arrays of NumPy, torch (with bfloat16, requires_grad and other devices), JAX, CuPy and MLX,
and every type with `__array__` or DLPack.  It accepts the element types binary16, binary32,
binary64 and bfloat16, and longdouble if the numbers fit binary64. `code_array` also accepts the
types of grids: FP8, FP4, and integers of 8 and 4 bits. All others are refused: complex, other
integers, object and packed types. It also refuses Python lists, because a list has no element type
and this module does not guess one.
"""

import sys
from collections.abc import Sequence
from dataclasses import replace
from math import prod
from numbers import Integral
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from oracles.formats import BINARY16, BINARY32, BINARY64, GRIDS, Arithmetic, Format

_T = TypeVar("_T", bound=np.generic)
_ELEMENTS = (np.float16, np.float32, np.float64, np.longdouble)
_ELEMENT_NAMES = "float16, bfloat16, float32, float64 or longdouble"
_FORMATS = {np.float16: BINARY16, np.float32: BINARY32, np.float64: BINARY64}
_GRIDS = frozenset(grid.name for grid in GRIDS.values())
_CHUNK = 1 << 18
LARGEST = 2**28  # entries: 2 GiB of float64, of which some more are made


def float_array(
    x: Any, name: str, *, arithmetic: Arithmetic | None = None, number: bool = False
) -> NDArray[np.float64]:
    """Return the values of an array as float64, exactly, and read-only.

    The result shares memory with x if x is float64 in native byte order. No operation writes to it
    or returns it.  With an arithmetic, every finite entry must be a number of its input format,
    because budgets do not include a rounding of inputs.  If `number` is true, a float counts as an
    array of shape ().

    Raises TypeError unless x is an array of one of the element types above. Raises ValueError for
    an array without axes unless `number` is true, and for an entry that the target format cannot
    hold; the message names the entry.
    """
    array = as_numpy(np.asarray(x) if number and isinstance(x, float | np.floating) else x, name)
    element = array.dtype.type
    if (
        array.size or prod(n for n in array.shape if n)
    ) > LARGEST:  # what is made for a batch of 0 has entries all the same
        besides = " besides its axes of size 0" if 0 in array.shape else ""
        raise ValueError(f"{name} has shape {array.shape}, but should have at most {LARGEST} entries{besides}.")
    if element not in _ELEMENTS:
        raise TypeError(f"{name} has element type {array.dtype}, but should be {_ELEMENT_NAMES}.")
    if array.ndim == 0 and not number:
        raise ValueError(f"{name} has shape (), but should have at least one axis.")
    values: NDArray[np.float64] = array
    if element is not np.float64 or not array.dtype.isnative:
        with np.errstate(all="ignore"):
            values = array.astype(np.float64, copy=False)
            if array.dtype.itemsize > 8:
                _require(~((values == array) | np.isnan(array)), array, name, "float64")
    if arithmetic is not None and not arithmetic.inputs.holds(_FORMATS.get(element, BINARY64)):
        require_representable(values, name, arithmetic.inputs)
    values = values.view()
    values.flags.writeable = False
    return values


def code_array(x: Any, name: str, *, arithmetic: Arithmetic | None = None) -> NDArray[np.float64]:
    """Return `float_array` of quantised numbers: the element type may also be that of a grid."""
    is_common = isinstance(x, np.ndarray) and x.dtype.type in _ELEMENTS  # names of element types are slow to find
    if hasattr(x, "dtype") and not is_common and str(x.dtype).rpartition(".")[2] in _GRIDS:
        x = x.astype(np.float32) if isinstance(x, np.ndarray) else x.float()  # a tensor of torch
    return float_array(x, name, arithmetic=arithmetic)


def table_array(x: Any, name: str, *, arithmetic: Arithmetic | None = None) -> NDArray[np.float64]:
    """Return `float_array` of a table of cosines or sines. Under an arithmetic the entries must be
    numbers of its format `angle.table`.
    """
    return float_array(x, name, arithmetic=arithmetic and replace(arithmetic, inputs=arithmetic.angle.table))


def bool_mask(
    mask: Any, name: str, shape: tuple[int, ...], polarity: Literal["true_allows", "true_blocks"]
) -> NDArray[np.bool_] | None:
    """Return a mask as a read-only bool array of exactly `shape`, true where a key is visible; None
    stays None.

    `polarity` says what a true entry of the given mask means. Axes broadcast as in NumPy.  Raises
    TypeError for anything but booleans, and ValueError for a shape that does not broadcast to
    `shape`.
    """
    if mask is None:
        return None
    array = booleans(mask, name)
    trailing = shape[len(shape) - array.ndim :]
    if array.ndim > len(shape) or any(
        size not in (1, expected) for size, expected in zip(array.shape, trailing, strict=True)
    ):
        raise ValueError(f"{name} has shape {array.shape}, but should broadcast to {shape}.")
    return np.broadcast_to(array if polarity == "true_allows" else ~array, shape)


def booleans(x: Any, name: str) -> NDArray[np.bool_]:
    """Return an array of booleans as a NumPy array. Raises TypeError for anything else."""
    array = as_numpy(x, name)
    if array.dtype != np.bool_:
        raise TypeError(f"{name} has element type {array.dtype}, but should be bool.")
    return array


def integers(values: Any, name: str, least: int, most: int) -> NDArray[np.int64]:
    """Return an array or a sequence of integers as int64; each must be from `least` to `most`.

    Raises TypeError for anything else. Raises ValueError for an entry out of bounds, and names the
    entry.
    """
    if isinstance(values, Sequence) and not isinstance(values, str | bytes):
        return np.array([integer(value, f"{name}[{i}]", least, most) for i, value in enumerate(values)], np.int64)
    array = as_numpy(values, name)
    if array.dtype.kind not in "iu":
        raise TypeError(f"{name} has element type {array.dtype}, but should be an integer one.")
    wrong = (array < least) | (array > most)
    if wrong.any():
        index = np.unravel_index(int(wrong.argmax()), array.shape)
        integer(int(array[index]), f"{name}[{', '.join(map(str, index))}]" if index else name, least, most)
    return array.astype(np.int64)


def natural(value: Any, name: str, least: int = 0, most: int = 2**53) -> int:
    """Return a size, count or position as an int. Raises TypeError unless it is an integer, and
    ValueError if it is out of bounds.
    """
    return integer(value, name, least, most)


def integer(value: Any, name: str, least: int, most: int) -> int:
    """Return an integer as an int. Raises TypeError for anything else, and ValueError for a number
    out of bounds.
    """
    if isinstance(value, bool | np.bool_) or not isinstance(value, Integral):
        raise TypeError(f"{name} has type {type(value).__name__}, but should be an integer.")
    number = int(value)
    if not least <= number <= most:
        bound = f"least {least}" if number < least else f"most {most}"
        raise ValueError(f"{name}={_short(number)}, but should be at {bound}.")
    return number


def as_numpy(x: Any, name: str) -> NDArray[Any]:
    """Return x as a NumPy array with the same element type; bfloat16 becomes float32. Raises
    TypeError if x is not an array.
    """
    if type(x) is np.ndarray:
        return _widened(x)
    torch = sys.modules.get("torch")
    try:
        if torch is not None and isinstance(x, torch.Tensor):
            array = _from_torch(x, torch)
        elif isinstance(x, np.ndarray):
            array = x
        elif isinstance(x, type):
            array = None
        elif hasattr(x, "__array__") and not isinstance(x, np.generic):
            array = np.asarray(x)
        elif hasattr(x, "__dlpack__") and hasattr(x, "__dlpack_device__"):
            array = _from_dlpack(x)
        else:
            array = None
    except Exception as error:
        raise TypeError(
            f"{name} of type {type(x).__name__} could not be read as an array: {str(error).rstrip('.')}."
        ) from error
    if array is None:
        raise TypeError(f"{name} has type {type(x).__name__}, but should be an array.")
    if isinstance(array, np.ma.MaskedArray):
        raise TypeError(f"{name} is a masked array, but should be an array: fill it, and pass the mask as a mask.")
    return _widened(array.view(np.ndarray))


def _from_torch(x: Any, torch: Any) -> NDArray[Any]:
    x = x.detach().cpu().resolve_conj().resolve_neg()
    if x.dtype == torch.bfloat16:
        return _from_bfloat16(x.view(torch.int16).numpy())
    array: NDArray[Any] = x.numpy()
    return array


def _widened(array: NDArray[Any]) -> NDArray[Any]:
    """Return the array, with ml_dtypes' bfloat16 converted to binary32: NumPy itself does not know
    bfloat16.
    """
    is_bfloat16 = array.dtype.itemsize == 2 and array.dtype.name == "bfloat16"
    return _from_bfloat16(array.view(np.int16)) if is_bfloat16 else array


def _from_dlpack(x: Any) -> NDArray[Any]:
    """Return the array by DLPack. If DLPack cannot choose the device, as with MLX, return it by
    Python's buffer protocol.
    """
    try:
        array: NDArray[Any] = np.from_dlpack(x, device="cpu")
        return array
    except Exception as error:
        try:
            return np.asarray(memoryview(x))
        except TypeError:
            raise error from None


def _from_bfloat16(bits: NDArray[np.int16]) -> NDArray[np.float32]:
    """Return bfloat16 numbers as binary32: their bits are the upper half of binary32."""
    return np.left_shift(bits.astype(np.uint16).astype(np.uint32), 16).view(np.float32)


def narrowed(x: NDArray[_T]) -> NDArray[_T]:
    """Return an array with axes of size 1 in place of broadcast axes."""
    return x[tuple(slice(1) if stride == 0 else slice(None) for stride in x.strides)]


def require_representable(values: NDArray[np.float64], name: str, target: Format) -> None:
    """Raise ValueError if rounding to `target` would change a finite value.

    For a NumPy format, conversion to it and back shows a change.
    """
    element = next((element for element, number_format in _FORMATS.items() if number_format is target), None)
    flat_values = values.reshape(-1)
    for start in range(0, flat_values.size, _CHUNK):
        chunk = flat_values[start : start + _CHUNK]
        with np.errstate(all="ignore"):
            changed = ~target.contains(chunk) if element is None else chunk.astype(element) != chunk
        if changed.any() and (wrong := changed & np.isfinite(chunk)).any():
            index = np.unravel_index(start + int(wrong.argmax()), values.shape)
            raise ValueError(_not_a_number_of(name, index, values[index], target.name))


def _require(wrong: NDArray[np.bool_], array: NDArray[Any], name: str, target: str) -> None:
    if wrong.any():
        index = np.unravel_index(int(wrong.argmax()), array.shape)
        raise ValueError(_not_a_number_of(name, index, array[index], target))


def _not_a_number_of(name: str, index: tuple[Any, ...], value: Any, target: str) -> str:
    position = f"[{', '.join(map(str, index))}]" if index else ""
    return f"{name}{position}={value!s}, but should be a {target} number: inputs are not rounded."


def _short(value: int) -> str:
    return str(value) if value.bit_length() <= 64 else f"{'-' if value < 0 else ''}2**{abs(value).bit_length() - 1}…"
