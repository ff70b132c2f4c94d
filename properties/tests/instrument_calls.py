"""Calls of operations for the tests of the instruments: arguments, implementations and probes."""

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from properties import Implementation
from properties.contract.caller import Caller
from properties.contract.features import FEATURES
from properties.contract.operations import OPERATIONS
from properties.inspection.probe import Probe
from properties.inspection.shapes import Shape, shape_of

__all__ = ["FORMATS", "arguments_of", "in_all_formats", "of", "probed", "rounded"]

SIZES = {
    **{"batch": 2, "num_heads": 4, "kv_heads": 2, "n_q": 5, "n_k": 6, "head_dim": 4, "value_dim": 3},
    **{"seq_len": 4},
}

FORMATS = {"float64": float, "float32": np.float32, "bfloat16": ml_dtypes.bfloat16, "float16": np.float16}
"""The number types of the inputs by the names of arithmetics."""


def arguments_of(operation: str, seed: int = 0, **given: Any) -> tuple[Any, ...]:
    """A call of an operation: random arrays of `SIZES`, and what is given."""
    random, called = np.random.default_rng(seed), OPERATIONS[operation]
    arrays = {
        name: random.normal(size=[SIZES["batch" if axis.startswith("*") else axis] for axis in called.axes[name]])
        for name in called.arrays
        if name not in called.options
    }
    given = {**arrays, "start_pos": 3, **given}
    return tuple(in_all_formats(given.get(name)) for name in called.parameters)


def in_all_formats(value: Any) -> Any:
    """A value that all formats hold: random numbers are rounded to bfloat16."""
    is_number = isinstance(value, np.ndarray) and value.dtype == float
    return value.astype(ml_dtypes.bfloat16).astype(float) if is_number else value


def of(operation: str, function: Callable[..., Any], arithmetic: str = "float64", **promises: Any) -> Implementation:
    """An implementation of one operation with all features."""
    return Implementation("mine", {operation: function}, arithmetic, features=FEATURES, **promises)


def rounded(function: Callable[..., Any], dtype: Any) -> Callable[..., Any]:
    """A function in float64 whose results are rounded to a type. Log-sum-exps, the second of two
    results, have at least 32 bits; results that are None stay None.
    """
    wider = np.promote_types(dtype, np.float32)

    def call(*arguments: Any, **options: Any) -> Any:
        found = function(*map(_wide, arguments), **{name: _wide(value) for name, value in options.items()})
        if not isinstance(found, tuple):
            return found.astype(dtype)
        dtypes = [wider if len(found) == 2 and place else dtype for place in range(len(found))]
        return tuple(None if x is None else x.astype(each) for x, each in zip(found, dtypes, strict=True))

    return call


def _wide(value: Any) -> Any:
    is_number = isinstance(value, np.ndarray) and value.dtype.kind not in "bi"
    return value.astype(np.float64) if is_number else value


def probed(implementation: Implementation, calls: int = 60, **given: Any) -> tuple[Probe, Shape]:
    """A probe of the only operation of an implementation, and the shape of a call of it."""
    (operation,) = implementation.operations
    return Probe(Caller(implementation, operation), calls), shape_of(
        OPERATIONS[operation], arguments_of(operation, **given)
    )
