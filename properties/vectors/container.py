"""Reads and writes safetensors files by the documented format: the length of a header in 8 bytes,
the header as JSON, then the raw numbers.

The safetensors library is not used, for two reasons. Two writers of one version of it agree byte
for byte, but two versions need not agree. NumPy has no bfloat16, so the library could not return
it. Tests read the files of this module with the library.
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
    """Return the bytes of a file with these tensors, in the given order. If the widest types come
    first, all tensors are aligned.
    """
    header: dict[str, Any] = {}
    chunks: list[bytes] = []
    end_of_tensor = 0
    for name, array in tensors.items():
        tensor_bytes = np.ascontiguousarray(array).tobytes()
        offsets = [end_of_tensor, end_of_tensor + len(tensor_bytes)]
        header[name] = {"dtype": _CODES[array.dtype.name], "shape": list(array.shape), "data_offsets": offsets}
        chunks.append(tensor_bytes)
        end_of_tensor += len(tensor_bytes)
    header_bytes = json.dumps(header, separators=(",", ":")).encode()
    header_bytes += b" " * (-len(header_bytes) % 8)
    return b"".join([len(header_bytes).to_bytes(8, "little"), header_bytes, *chunks])


def unpacked(file: Path) -> dict[str, Any]:
    """Return the tensors of a file. Raises ValueError, with a sentence, for bytes that are not such
    a file.
    """
    content = file.read_bytes()
    length = int.from_bytes(content[:8], "little")
    try:
        header = json.loads(content[8 : 8 + length])
        return {name: _tensor(content[8 + length :], entry) for name, entry in header.items() if name != "__metadata__"}
    except (ValueError, KeyError, TypeError, AttributeError, UnicodeDecodeError) as error:
        raise ValueError(f"{file} is not readable as safetensors: {type(error).__name__}: {error}") from error


def _tensor(raw: bytes, entry: Mapping[str, Any]) -> Any:
    begin, end = entry["data_offsets"]
    dtype, shape = _DTYPES[entry["dtype"]], tuple(entry["shape"])
    if not 0 <= begin <= end <= len(raw) or end - begin != prod(shape) * dtype.itemsize:
        raise ValueError(
            f"data_offsets={[begin, end]}, but should be {prod(shape) * dtype.itemsize} bytes of {len(raw)}."
        )
    return np.frombuffer(raw[begin:end], dtype).reshape(shape)
