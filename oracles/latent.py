"""Multi-head latent attention: all heads share one row of numbers for each key, and the values are
the first channels of these rows.

    out, lse = attention(q, k, k[…, : value_dim])    k = latent, as the only key head

Shapes: q (…, H, n_q, c + r), latent (…, n_k, c + r) with c compressed and r rotated channels; out (…,
H, n_q, c), lse (…, H, n_q). `oracles.options` explains the options.

`oracles.attention` computes each result, with one key head, and gives its radius and its budget.

Raises ValueError or TypeError for shapes, types and values that do not fit.
Source: DeepSeek-AI, DeepSeek-V2, 2024, section 2.1; FlashMLA.
"""

from typing import Any, Unpack

from oracles import arrays
from oracles.enclosure import Enclosure
from oracles.generalised_attention import attention
from oracles.options import LatentOptions, answer, takes


@takes(LatentOptions)
def latent_attention(
    q: Any, latent: Any, value_dim: Any, scale: Any, **options: Unpack[LatentOptions]
) -> tuple[Enclosure, Enclosure]:
    """Return the output and the log-sum-exp (lse) of attention over latent rows. The results are
    `Enclosure`s (value ± radius).

    `value_dim` is c, and the scale has no default: it is 1/√(d_nope + r) of the model, where d_nope is
    the width of a head before it is absorbed.

    Edge cases: value_dim may be 0, or the whole width. `oracles.attention` states the others.
    Raises ValueError for a value_dim larger than the width of latent, and for scale=None.
    """
    model, _, _ = answer(options)
    rows = arrays.float_array(latent, "latent", arithmetic=model)
    if rows.ndim < 2:
        raise ValueError(f"latent has shape {rows.shape}, but should be (…, n_k, d).")
    width = arrays.natural(value_dim, "value_dim", most=rows.shape[-1])
    if scale is None:
        raise ValueError("scale=None, but should be a number: 1/√(d_nope + r) of the model.")
    keys = rows[..., None, :, :]
    return attention(q, keys, keys[..., :width], scale=scale, **options)
