"""What each tangent adds to the derivative of attention, measured from outside.

With equal weights W[i, j] of the visible keys,

    q = 0:      dout[i] = Σ_j W[i, j]·(dS[i, j] − Σ_l W[i, l]·dS[i, l])·v_j, dS = scale·dq kᵀ   (1)
    k = 0:      the same with dS = scale·q dkᵀ                                                  (2)
    v = 0:      dout[i] = Σ_j W[i, j]·dv_j                                                      (3)

With q = 0 and k = 0 the tangents of both add nothing: their product is of second order. Rows are
one-hot times whole numbers, which all formats store.
"""

from properties.inspection.entries import Entries
from properties.inspection.gradients import one_hot_rows
from properties.inspection.probe import Probe
from properties.inspection.shapes import Shape

__all__ = ["tangents"]

_CALLS = (("dq", "k", "v"), ("dk", "q", "v"), ("dv",), ("dq", "dk", "v"))
"""The arrays that are not 0 in each call."""


def tangents(probe: Probe, shape: Shape) -> tuple[Entries, ...]:
    """Measure dout by (1), (2), (3), and with two tangents. Raises as `Probe.results`."""
    heads = ("head",) if "num_heads" in shape.sizes else ()
    axes = (*["batch"] * len(shape.batch), *heads, "query", "channel")
    found = []
    for names in _CALLS:
        arrays = {name: one_hot_rows(shape.zeros(probe.operation, name)) for name in names}
        given = " and ".join(name for name in names if name.startswith("d"))
        found.append(Entries(f"dout of {given}", axes, probe.results(shape, **arrays)["dout"]))
    return tuple(found)
