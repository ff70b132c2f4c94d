"""Writes and reads messages through a pipe: a token, a header in JSON, and the bytes of arrays.

The reader checks the sizes, and never unpickles or executes anything. The parent imports this
module. The untrusted process gets it as text, so it imports only NumPy and the standard library.
"""

import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

__all__ = ["START", "NonsenseError", "header_of", "listed", "message", "places_in_memory", "sizes", "unlisted"]

START = struct.Struct("<16sIQ")
"""The start of a message: the token, which an answer repeats from its question, and the numbers of bytes of the
header and of the arrays.
"""

_DTYPES = {
    **{"bool": "?", "int32": "<i4", "int64": "<i8"},
    **{"float16": "<f2", "bfloat16": "<u2", "float32": "<f4", "float64": "<f8"},
}
_MOST = 2**16, 2**28  # the largest numbers of bytes of a header and of arrays
_AXES = 16


class NonsenseError(Exception):
    """Raised when bytes are not a message."""


def message(token: bytes, header: Mapping[str, Any], chunks: Iterable[bytes] = ()) -> bytes:
    """Return the bytes of a message. `chunks` are the bytes of the arrays in it."""
    header_bytes, chunks = json.dumps(header).encode(), [*chunks]
    start = START.pack(token, len(header_bytes), sum(map(len, chunks)))
    return b"".join([start, header_bytes, *chunks])


def sizes(start: bytes, token: bytes | None = None) -> tuple[int, int]:
    """Return how many bytes the header has, and how many the arrays have, from the start of a
    message.

    Raises NonsenseError for another token, and for a number that is not allowed.
    """
    received, header, arrays = START.unpack(start)
    if (token is not None and received != token) or not 2 <= header <= _MOST[0] or arrays > _MOST[1]:
        raise NonsenseError
    return header, arrays


def header_of(text: bytes) -> dict[str, Any]:
    """Return the header of a message. Raises NonsenseError if the text is not a header."""
    try:
        header = json.loads(text)
    except (ValueError, RecursionError):
        raise NonsenseError from None
    if not isinstance(header, dict):
        raise NonsenseError
    return header


def listed(value: Any, chunks: list[bytes]) -> Any:
    """Return a value as JSON for the header of a message. The bytes of its arrays are appended to
    the chunks.

    Raises TypeError, with a phrase that names the value, if it cannot be sent.
    """
    if type(value) is np.ndarray:
        if value.dtype.name not in _DTYPES or not value.dtype.isnative:
            raise TypeError(f"an array of {value.dtype}")
        chunks.append(value.tobytes())
        strides = [stride // value.itemsize for stride in value.strides]
        return {
            "dtype": value.dtype.name,
            "shape": value.shape,
            "strides": strides,
            "writeable": bool(value.flags.writeable),
        }
    if isinstance(value, tuple | list):
        return [listed(item, chunks) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"a value of type {type(value).__name__}")


def places_in_memory(values: Sequence[Any]) -> list[tuple[int, int, int]]:
    """Return where the array of each value lies: the first value in the same buffer, the place of
    the array's first element in the buffer, and the number of elements of the buffer that are used.
    """
    buffers = [_buffer(value) if isinstance(value, np.ndarray) else value for value in values]
    first = [next(place for place, other in enumerate(buffers) if other is buffer) for buffer in buffers]
    starts, ends = [0] * len(values), [0] * len(values)
    for place, (value, buffer) in enumerate(zip(values, buffers, strict=True)):
        if isinstance(value, np.ndarray) and value.size:
            starts[place] = (_address(value) - _address(buffer)) // value.itemsize
            spans = [stride * (length - 1) for stride, length in zip(value.strides, value.shape, strict=True)]
            end = starts[place] + sum(span for span in spans if span > 0) // value.itemsize + 1
            ends[first[place]] = max(ends[first[place]], end)
    return [(one, start, ends[one]) for one, start in zip(first, starts, strict=True)]


def _buffer(array: Any) -> Any:
    """Return the array that owns the memory of an array: the array itself, if it is not a view."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def _address(array: Any) -> int:
    return int(array.__array_interface__["data"][0])


def unlisted(described: Any, data: memoryview) -> Any:
    """Return the value that the header of a message describes. Its arrays are new and contiguous.

    Raises NonsenseError, also if bytes are left over.
    """
    try:
        value, length_used = _taken(described, data, 0)
    except (RecursionError, ValueError):  # nested too deep, or an impossible shape of an empty array
        raise NonsenseError from None
    if length_used != len(data):
        raise NonsenseError
    return value


def _taken(described: Any, data: memoryview, place: int) -> tuple[Any, int]:
    """Return a value, and the position of the first byte after its arrays."""
    if isinstance(described, list):
        values = []
        for item in described:
            value, place = _taken(item, data, place)
            values.append(value)
        return tuple(values), place
    if not isinstance(described, dict):
        return described, place
    shape, dtype_name = described.get("shape"), described.get("dtype")
    if not (
        isinstance(shape, list)
        and len(shape) <= _AXES
        and all(type(length) is int and 0 <= length <= _MOST[1] for length in shape)
    ):
        raise NonsenseError
    if not (isinstance(dtype_name, str) and dtype_name in _DTYPES):
        raise NonsenseError
    dtype, count = np.dtype(_DTYPES[dtype_name]), 1
    for length in shape:
        count *= length
    end_of_array = place + count * dtype.itemsize
    if end_of_array > len(data):
        raise NonsenseError
    array = np.frombuffer(data[place:end_of_array], dtype).reshape(shape).copy()
    if dtype_name == "bfloat16":
        import ml_dtypes

        array = array.view(ml_dtypes.bfloat16)
    return array, end_of_array
