"""The arguments of trial calls: everyday sizes, numbers that every format has, and a value for each
option.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from properties.contract.operations import BATCH, Arguments, Operation
from properties.contract.parameters import Kind
from properties.inspection.array import Array
from properties.strategies.plain_calls import numbers

__all__ = ["EVERYDAY", "OPTIONS", "Trial", "heads_of"]

EVERYDAY = {
    **dict.fromkeys(("n_q", "n_k", "seq_len", "max_len", "total_q", "total_k"), 128),
    **dict.fromkeys(("head_dim", "value_dim", "embed_dim", "model_dim", "context_dim", "out_dim"), 64),
    **dict.fromkeys(("heads_width", "query_width", "key_width", "values_width", "joined_width"), 64),
    **{"num_heads": 4, "kv_heads": 4, "rows": 512, "batch": 2, "start_pos": 3},
    **{"num_pages": 16, "page_size": 16, "max_pages": 8, "buckets": 32, "max_distance": 128},
    **{"height": 8, "width": 16},
}
"""The sizes of the first call. Most kernels take them: multiples of 64, and the number of heads
differs from the number of rows.
"""


def heads_of(operation: Operation) -> int:
    """Return 1 if the arrays of an operation have an axis of heads with a name, else 0."""
    return int("num_heads" in operation.axes.get("q", ()))


@dataclass(frozen=True)
class Trial:
    """The sizes of a trial call, and the arguments that are not random numbers.

    sizes   the sizes that differ from `EVERYDAY`
    rank    the number of axes before the last two, with the axis of heads
    batch   the length of each leading axis
    given   arguments by name
    """

    sizes: Mapping[str, int] = field(default_factory=dict)
    rank: int = 2
    batch: int = 2
    given: Mapping[str, Any] = field(default_factory=dict)

    def with_arguments(self, **given: Any) -> "Trial":
        """Return the trial with further arguments."""
        return replace(self, given={**self.given, **given})

    def sized(self, **sizes: int) -> "Trial":
        """Return the trial with other sizes."""
        return replace(self, sizes={**self.sizes, **sizes})

    def size(self, name: str) -> int:
        """Return a size of the call."""
        if name == "pairs":
            return (self.size("head_dim") + 1) // 2
        return self.sizes.get(name, EVERYDAY.get(name, 1))

    def shape(self, operation: Operation, name: str) -> tuple[int, ...]:
        """Return the shape of an array of the operation."""
        lead = (self.batch,) * (self.rank - heads_of(operation))
        axes = operation.axes[name]
        return tuple(size for axis in axes for size in (lead if axis == BATCH else (self.size(axis),)))

    def arguments(self, operation: Operation) -> Arguments:
        """Return the arguments of the call in parameter order. Options are None unless given."""
        return tuple(
            self.given[parameter.name]
            if parameter.name in self.given
            else None
            if parameter.optional or parameter.name == "mask"
            else _MADE.get(parameter.kind, _numbers)(self, operation, parameter.name)
            for parameter in operation.takes
        )


def _numbers(trial: Trial, operation: Operation, name: str) -> Array:
    """Return the numbers of plain calls. They depend on the name and the shape only."""
    return 2 * numbers(trial.shape(operation, name), sum(map(ord, name)))


def _integers(trial: Trial, operation: Operation, name: str) -> Array:
    """Return whole numbers below 7: they are positions, rows of a table, and lengths; 0 and 1 in an
    attention mask.
    """
    shape = trial.shape(operation, name)
    return (np.arange(np.prod(shape, dtype=int)) % (2 if name == "attention_mask" else 7)).reshape(shape)


def _lengths(trial: Trial, operation: Operation, name: str) -> Any:
    """Return the boundaries of two packed sequences that share all rows, or half of their lengths as
    how many rows they use. Of keys in pages return a table in falling order, or lengths: one row is full.
    """
    if operation.is_paged:
        pages = trial.size("max_pages")
        table = np.arange(trial.batch * pages, dtype=np.int32)[::-1] % trial.size("num_pages")
        lengths = pages * trial.size("page_size") - 3 * np.arange(trial.batch, dtype=np.int32)
        return table.reshape(trial.batch, pages) if name == "block_table" else np.maximum(lengths, 0)
    total = trial.size(f"total_{name[-1]}")
    boundaries = np.array([0, total // 3, total], np.int32)
    return (np.diff(boundaries) + 1) // 2 if name.startswith("seqused") else boundaries


def _booleans(trial: Trial, operation: Operation, name: str) -> Array:
    """Return a mask that hides every second key."""
    return np.asarray(np.arange(trial.size(operation.axes[name][-1])) % 2 == 0)


_MADE: Mapping[Kind, Callable[[Trial, Operation, str], Any]] = {
    Kind.INTEGERS: _integers,
    Kind.TOKENS: _integers,
    Kind.LENGTHS: _lengths,
    Kind.MASK: _booleans,
    Kind.SIZE: lambda trial, operation, name: trial.size(name),
    Kind.SETTING: lambda trial, operation, name: _SETTINGS.get(name, "default"),
}

_SETTINGS: Mapping[str, Any] = {
    **{"scale": 0.5, "causal": True, "offset": 5, "window": (3, 0), "softcap": 0.5},
    **{"attention_factor": 0.5, "rotary_dim": 32, "bidirectional": True},
}


def _setting(trial: Trial, operation: Operation, name: str) -> Any:
    return not operation.is_paged if name == "causal" else _SETTINGS[name]


OPTIONS: Mapping[str, Callable[[Trial, Operation, str], Any]] = {
    "mask": _booleans,
    **dict.fromkeys(_SETTINGS, _setting),
    **dict.fromkeys(("bias", "sink", "alibi", "grad_lse", "inv_freq"), _numbers),
    "positions": _integers,
    **dict.fromkeys(("seqused_q", "seqused_k"), _lengths),
}
"""A value of each option that is tried. It changes the result of a function that takes the
option.
"""
