"""The type of the arrays that instruments read."""

from typing import Any

from numpy.typing import NDArray

__all__ = ["Array"]

Array = NDArray[Any]
"""Numbers, booleans or indices."""
