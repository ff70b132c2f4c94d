"""The rotation of queries and keys in one call, by a kernel that computes its frequencies itself.

The frequencies are those of `rotary_frequencies` for the kind, divided by `freq_factors`. A budget has
the error of these frequencies, of the division and of the rotation: a kernel may divide the frequency,
the position or the angle, or multiply by the reciprocal. That is at most two roundings of the coarser of
`angle.frequency` and `angle.product`.
Sources: `spec.extended.rotary`; ggml, `ggml_rope_ext` (freq_factors)
"""

from dataclasses import replace
from typing import Any

import numpy as np

from oracles import arrays, formats
from oracles.arguments import Given
from oracles.ball import ROUNDOFF, gamma
from oracles.conventions import Conventions
from oracles.enclosure import Enclosure
from oracles.judging import Method
from oracles.rotary.embeddings import rope
from oracles.rotary.frequencies import rotary_frequencies


def rotary_embedding(
    q: Any,
    k: Any,
    positions: Any,
    kind: str,
    *,
    freq_factors: Any = None,
    arithmetic: Given = None,
    conventions: Conventions | None = None,
    method: Method = "auto",
    **parameters: Any,
) -> tuple[Enclosure, Enclosure]:
    """Return q and k with each pair of channels rotated by its position times the frequency of a kind.
    The results are `Enclosure`s (value ± radius).

    The parameters of the kind, base, rotary_dim and seq_len are those of `rotary_frequencies`. Pair i
    has the frequency of the kind over freq_factors[i]; without freq_factors the frequency of the kind.
    The attention factor of the kind multiplies cosines and sines. Pairs follow
    `conventions.rope_pairing`.

    Shapes: q (…, H, seq, head_dim), k (…, H_kv, seq, head_dim), positions (seq,), freq_factors (r/2,);
    the results are like q and k.
    Edge cases: positions are integers, negative ones rotate backwards. Channels beyond rotary_dim stay.
    Raises ValueError and TypeError for arguments that `rotary_frequencies` and `rope` refuse, for keys
    of another width or length than the queries, and for factors that are not finite numbers above 0.
    """
    answer: dict[str, Any] = {"conventions": conventions, "method": method}
    model = formats.resolve(arithmetic)
    widths = [arrays.float_array(x, name, arithmetic=model).shape[-2:] for x, name in ((q, "q"), (k, "k"))]
    if len(widths[0]) < 2 or widths[0] != widths[1]:
        raise ValueError(f"k ends with the axes {widths[1]}, but should end with {widths[0]} like q: (seq, head_dim).")
    inv_freq, factor = rotary_frequencies(kind, widths[0][-1], arithmetic=arithmetic, **answer, **parameters)
    turn: dict[str, Any] = {
        "positions": positions,
        "inv_freq": inv_freq if freq_factors is None else _divided(inv_freq, freq_factors, model),
        "attention_factor": factor,
        "rotary_dim": parameters.get("rotary_dim"),
    }
    rotated_q, rotated_k = (rope(x, arithmetic=arithmetic, **turn, **answer) for x in (q, k))
    return rotated_q, rotated_k


def _divided(inv_freq: Enclosure, freq_factors: Any, model: formats.Arithmetic | None) -> Enclosure:
    """Return frequencies over factors, with the roundings of the oracle and of a kernel."""
    factors = arrays.float_array(freq_factors, "freq_factors")
    if factors.shape != inv_freq.mid.shape:
        raise ValueError(f"freq_factors has shape {factors.shape}, but should be {inv_freq.mid.shape}.")
    if not ((factors > 0) & np.isfinite(factors)).all():
        raise ValueError("freq_factors has an entry that is not a finite number above 0.")
    relative = gamma(2, ROUNDOFF)
    if model is not None:
        relative += gamma(2, max(model.angle.frequency, model.angle.product))
    mid, rad = inv_freq.mid / factors, inv_freq.rad / factors
    smallest = np.where(inv_freq.mid == 0, 0.0, 2.0**-1022)
    return replace(inv_freq, mid=mid, rad=(rad + relative * (np.abs(mid) + rad)) * (1 + 2.0**-48) + smallest)
