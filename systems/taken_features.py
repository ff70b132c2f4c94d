"""The features that the kernels of this folder with all options take."""

from properties.contract.features import AXIAL, DIVISORS, FEATURES

__all__ = ["TAKEN"]

_NEVER = {"alibi", "dropout_mask", "dropout", *AXIAL, *DIVISORS}
TAKEN = tuple(name for name in FEATURES if name not in _NEVER)
