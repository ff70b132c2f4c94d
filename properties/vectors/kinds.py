"""The types of arrays that hold a format's numbers."""

from typing import Any

import ml_dtypes
import numpy as np

from oracles.formats import BINARY16, BINARY32, BINARY64, BRAIN16, Format

__all__ = ["dtype_of"]

_DTYPES: dict[Format | None, Any] = {
    BINARY64: np.float64,
    BINARY32: np.float32,
    BINARY16: np.float16,
    BRAIN16: ml_dtypes.bfloat16,
    None: np.bool_,
}


def dtype_of(target: Format | None) -> Any:
    """The type of arrays of a format; of masks, which have none, booleans."""
    return _DTYPES[target]
