"""What an implementation does with a number of heads that is not a multiple of the number of key heads.

Such a call has no meaning, so an implementation should refuse it. If it returns, then with v = 1 a head
that reads keys by weights that add up to 1 returns 1:

    Σ_j W[i, j]·1 = 1                                                                         (1)
"""

import numpy as np

from properties.inspection.places import sentence
from properties.inspection.probe import Probe
from properties.inspection.shapes import Shape

__all__ = ["sentences_of_head_numbers"]

_NEAR = 0.01  # of 1: how near weights add up to it


def sentences_of_head_numbers(probe: Probe, shape: Shape) -> tuple[str, ...]:
    """Sentences on a call whose heads are no multiple of its key heads: that it is not refused, and
    which heads are wrong by (1); () for any other call. Raises as `Probe.returned`.
    """
    heads, key_heads = (shape.sizes.get(name, 1) for name in ("num_heads", "kv_heads"))
    if not heads % key_heads:
        return ()
    plain = probe.plain(shape)
    out = probe.returned(plain, v=plain.zeros(probe.operation, "v") + 1.0)["out"]
    said = f"{heads} heads are not refused, but their number should be a multiple of the {key_heads} key heads."
    wrong = np.abs(np.moveaxis(out, -3, 0).reshape(heads, -1) - 1).max(1) > _NEAR
    if not wrong.any():
        return (said,)
    is_zero = not np.take(out, np.flatnonzero(wrong), -3).any()
    rest = "0 for v = 1" if is_zero else "something else than 1 for v = 1"
    return said, sentence(np.asarray(wrong), ("head",), ("returns", "return"), rest)
