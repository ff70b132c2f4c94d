"""safetensors, written and read by its documented format: the length of a header in 8 bytes, the
header as JSON, then the raw numbers.

Not by the library of that name: two writers of one version of it agree byte for byte, two versions
need not, and NumPy has no bfloat16 for it to return. Tests read what is written here by the
library.
"""

import json
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

__all__ = ["Tensors", "packed", "unpacked"]

Tensors = Mapping[str, Any]

_DTYPES: dict[str, np.dtype[Any]] = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "I64": np.dtype("<i8"),
    "BOOL": np.dtype("bool"),
}
_CODES = {dtype.name: code for code, dtype in _DTYPES.items()}


def packed(tensors: Tensors) -> bytes:
    """The file that holds some tensors, in their order: the widest types should come first, so that all are aligned."""
    header: dict[str, Any] = {}
    parts: list[bytes] = []
    end = 0
    for name, x in tensors.items():
        raw = np.ascontiguousarray(x).tobytes()
        header[name] = {"dtype": _CODES[x.dtype.name], "shape": list(x.shape), "data_offsets": [end, end + len(raw)]}
        parts.append(raw)
        end += len(raw)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return b"".join([len(text).to_bytes(8, "little"), text, *parts])


def unpacked(file: Path) -> dict[str, Any]:
    """The tensors of a file. Raises ValueError, in a sentence, for what is none."""
    raw = file.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    try:
        header = json.loads(raw[8 : 8 + length])
        return {name: _tensor(raw[8 + length :], entry) for name, entry in header.items() if name != "__metadata__"}
    except (ValueError, KeyError, TypeError, AttributeError, UnicodeDecodeError) as error:
        raise ValueError(f"{file} is not readable as safetensors: {type(error).__name__}: {error}") from error


def _tensor(data: bytes, entry: Mapping[str, Any]) -> Any:
    begin, end = entry["data_offsets"]
    dtype, shape = _DTYPES[entry["dtype"]], tuple(entry["shape"])
    if not 0 <= begin <= end <= len(data) or end - begin != prod(shape) * dtype.itemsize:
        raise ValueError(
            f"data_offsets={[begin, end]}, but should be {prod(shape) * dtype.itemsize} bytes of {len(data)}."
        )
    return np.frombuffer(data[begin:end], dtype).reshape(shape)
