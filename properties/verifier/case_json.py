"""Converts cases (the arguments of one test) to JSON and back. The arrays come back equal to the
last bit.
"""

import base64
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

__all__ = ["packed", "unpacked"]


def packed(case: Mapping[str, Any]) -> dict[str, Any]:
    """Return a case (the arguments of one test) as JSON: arrays as type, shape and bytes, and
    tuples as lists.
    """
    return {
        name: _packed(x) if isinstance(x, np.ndarray) else list(x) if isinstance(x, tuple) else x
        for name, x in case.items()
    }


def _packed(x: Any) -> dict[str, Any]:
    little = x.astype(x.dtype.newbyteorder("<"))
    written = base64.b85encode(zlib.compress(little.tobytes(), 9)).decode()
    return {"dtype": x.dtype.name, "shape": list(x.shape), "bytes": written}


def unpacked(written: Mapping[str, Any]) -> dict[str, Any]:
    """Return the case that `packed` wrote. Raises ValueError, with a sentence, for JSON that is not
    a case.
    """
    return {
        name: _unpacked(name, x) if isinstance(x, Mapping) else tuple(x) if isinstance(x, list) else x
        for name, x in written.items()
    }


def _unpacked(name: str, x: Mapping[str, Any]) -> Any:
    try:
        dtype = np.dtype(x["dtype"])
        found = np.frombuffer(zlib.decompress(base64.b85decode(x["bytes"])), dtype.newbyteorder("<"))
        return found.reshape(x["shape"]).astype(dtype)
    except (KeyError, TypeError, ValueError, zlib.error) as error:
        raise ValueError(
            f"{name} is no array of a case, but should have the dtype, shape and bytes of one: {error}."
        ) from error
