"""Results of calls with one-hot rows, as a table: which arrays are not 0 in each call.

Rows are one-hot times whole numbers, which all formats store. The arrays of a call that are 0 leave
one part of the result, so a wrong entry shows which part is wrong. The parts of attention's
derivative are, with equal weights W[i, j] of the visible keys,

    dq or dk:   dout[i] = Σ_j W[i, j]·(dS[i, j] − Σ_l W[i, l]·dS[i, l])·v_j                  (1)
    dv:         dout[i] = Σ_j W[i, j]·dv_j                                                   (2)

where dS is scale·dq kᵀ or scale·q dkᵀ. With q = 0 and k = 0 the tangents of both add nothing to (2),
whatever v is: their product is of second order. The one-hot rows of wv and wo begin at channel 1,
so a transposed weight shows.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from properties.contract.operations import BATCH
from properties.inspection.entries import Entries
from properties.inspection.gradients import one_hot_rows
from properties.inspection.probe import Probe
from properties.inspection.shapes import Shape

__all__ = ["CALLS", "one_hot"]

_TANGENTS = ("dq k v", "dk q v", "dv", "dq dk v dv")
_PROJECTIONS = ("x wv wo", "x wq wk wv wo")

CALLS: Mapping[str, Sequence[str]] = {
    "scaled_dot_product_attention_jvp": _TANGENTS,
    "attention_jvp": _TANGENTS,
    "multi_head_attention": _PROJECTIONS,
    "multi_head_attention_vjp": tuple(f"{arrays} grad_out" for arrays in _PROJECTIONS),
    "multi_head_attention_jvp": (
        *("x wv wo dx", "x wq wk wv wo dx", "x wq wk wv wo dwq", "x wq wk wv wo dwk"),
        *("x wv wo dwv", "x wv wo dwo", "x wv dwv dwo"),
    ),
}
"""The arrays that are not 0 in each call of an operation."""

_NAMES = {"n_q": "query", "n_k": "key", "seq_len": "row", "num_heads": "head", "kv_heads": "key head"}
"""The names of axes in sentences. All others are channels."""


def one_hot(probe: Probe, shape: Shape) -> tuple[Entries, ...]:
    """Measure the results of the calls in the table. Raises as `Probe.results`."""
    operation, found = probe.operation, []
    for call in CALLS[operation.name]:
        arrays = {
            name: np.roll(one_hot_rows(shape.zeros(operation, name)), name in ("wv", "wo"), -1) for name in call.split()
        }
        for name, reading in probe.results(shape, **arrays).items():
            own = [_NAMES.get(axis, "channel") for axis in operation.axes[name] if axis != BATCH]
            lead = shape.lead[: reading.wrong.ndim - len(own)]
            found.append(Entries(name, (*lead, *own), reading, f"With one-hot rows of {_listed(arrays)} alone"))
    return tuple(found)


def _listed(names: Iterable[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last
