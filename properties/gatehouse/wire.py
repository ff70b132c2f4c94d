"""Messages through a pipe: a token, a header in JSON, and the bytes of arrays. What comes is
measured, and never unpickled or executed.

It stands by itself: the parent imports it, and the child runs it by its text.
"""

import json
import struct
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

__all__ = ["START", "NonsenseError", "header_of", "listed", "message", "sizes", "unlisted"]

START = struct.Struct("<16sIQ")
"""How a message begins: the token, by which an answer belongs to its question, and how many bytes
the header and the arrays have.
"""

_DTYPES = {"bool": "?", "int64": "<i8", "float16": "<f2", "bfloat16": "<u2", "float32": "<f4", "float64": "<f8"}
_MOST = 2**16, 2**28  # bytes of a header and of arrays
_AXES = 16


class NonsenseError(Exception):
    """What came is no message."""


def message(token: bytes, header: Mapping[str, Any], chunks: Iterable[bytes] = ()) -> bytes:
    """A message, whose arrays' bytes are one after the other."""
    told, data = json.dumps(header).encode(), b"".join(chunks)
    return START.pack(token, len(told), len(data)) + told + data


def sizes(start: bytes, token: bytes | None = None) -> tuple[int, int]:
    """How many bytes the header and the arrays have. Raises NonsenseError for another token, and
    for more or less than there may be.
    """
    given, header, arrays = START.unpack(start)
    if (token is not None and given != token) or not 2 <= header <= _MOST[0] or arrays > _MOST[1]:
        raise NonsenseError
    return header, arrays


def header_of(told: bytes) -> dict[str, Any]:
    """The header. Raises NonsenseError."""
    try:
        header = json.loads(told)
    except (ValueError, RecursionError):
        raise NonsenseError from None
    if not isinstance(header, dict):
        raise NonsenseError
    return header


def listed(x: Any, chunks: list[bytes]) -> Any:
    """A value as a header has it, the bytes of its arrays added to the chunks. Raises TypeError, a
    phrase, for what cannot be sent.
    """
    if type(x) is np.ndarray:
        if x.dtype.name not in _DTYPES or not x.dtype.isnative:
            raise TypeError(f"an array of {x.dtype}")
        chunks.append(x.tobytes())
        strides = [stride // x.itemsize for stride in x.strides]
        late = x.base is not None and x.flags.c_contiguous
        return {
            "dtype": x.dtype.name,
            "shape": x.shape,
            "strides": strides,
            "late": late,
            "writeable": bool(x.flags.writeable),
        }
    if isinstance(x, tuple | list):
        return [listed(y, chunks) for y in x]
    if x is None or isinstance(x, bool | int | float | str):
        return x
    raise TypeError(f"a value of type {type(x).__name__}")


def unlisted(told: Any, data: memoryview) -> Any:
    """The value that a header lists, arrays as fresh contiguous ones. Raises NonsenseError, also
    where bytes are left.
    """
    try:
        value, end = _taken(told, data, 0)
    except (RecursionError, ValueError):  # nested too deep, or an array of nothing whose shape no array can have
        raise NonsenseError from None
    if end != len(data):
        raise NonsenseError
    return value


def _taken(told: Any, data: memoryview, place: int) -> tuple[Any, int]:
    """A value, and where the arrays after it begin."""
    if isinstance(told, list):
        found = []
        for each in told:
            x, place = _taken(each, data, place)
            found.append(x)
        return tuple(found), place
    if not isinstance(told, dict):
        return told, place
    shape, kind = told.get("shape"), told.get("dtype")
    if not (
        isinstance(shape, list) and len(shape) <= _AXES and all(type(n) is int and 0 <= n <= _MOST[1] for n in shape)
    ):
        raise NonsenseError
    if not (isinstance(kind, str) and kind in _DTYPES):
        raise NonsenseError
    dtype, count = np.dtype(_DTYPES[kind]), 1
    for n in shape:
        count *= n
    end = place + count * dtype.itemsize
    if end > len(data):
        raise NonsenseError
    array = np.frombuffer(data[place:end], dtype).reshape(shape).copy()
    if kind == "bfloat16":
        import ml_dtypes

        array = array.view(ml_dtypes.bfloat16)
    return array, end
