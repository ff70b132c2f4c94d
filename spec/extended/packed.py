"""Attention over packed sequences: the rows of all sequences lie one behind the other, and each
sequence attends to its own keys alone.

This module is not TorchLean's: see `spec.extended`. Sequence b owns the rows cu_q[b] … cu_q[b + 1]
− 1 of q, and the rows cu_k[b] … cu_k[b + 1] − 1 of k and v. It uses the first seqused_q[b] and
seqused_k[b] of these, and all of them without seqused_q or seqused_k. With nQ used queries and nK
used keys, its query i has the position

    p = nK − nQ + i    alignment "bottom_right": the last query has the position of the last key
    p = i              alignment "top_left": the first query has the position of the first key

Shapes: q is (totalQ, H, d), k is (totalK, HKv, d), v is (totalK, HKv, dV); out is (totalQ, H, dV),
lse (H, totalQ). The options scale, causal, window, softcap, sink and alibi are those
of `spec.extended.attention`.

Rows that no sequence uses are not read, so they may be NaN. In the results they are 0 here; a
kernel may leave anything there.

Sources: flash-attention, `flash_attn_varlen_func`; PyTorch, `torch.nn.attention.varlen`
"""

from typing import Any

import numpy as np

from spec.context import Scalar
from spec.extended.arguments import packed_rows
from spec.extended.attention import attention
from spec.extended.attention_derivatives import attention_vjp
from spec.lean import definition
from spec.scope import alpha
from spec.tensor_core import Array, Tensor, replicate

__all__ = ["packed_attention", "packed_attention_vjp"]


@definition()
def packed_attention(
    q: Tensor[Array, "totalQ H d"],
    k: Tensor[Array, "totalK HKv d"],
    v: Tensor[Array, "totalK HKv dV"],
    cu_q: Any,
    cu_k: Any,
    **options: Any,
) -> tuple[Tensor[Array, "totalQ H dV"], Tensor[Array, "H totalQ"]]:
    """Return (out, lse) of the queries of all sequences. Each sequence gives what it gives alone:

        out[R_b], lse[R_b] = attention(q[R_b], k[K_b], v[K_b])

    where R_b and K_b are the rows that sequence b uses. The options are seqused_q, seqused_k,
    alignment, scale, causal, window, softcap, sink, alibi and scalar.

    Edge cases
    - A sequence without queries gives nothing. A sequence without keys gives rows without a
      visible key.
    - No sequences, cu = [0]: no row is used.

    >>> q, k, v = np.zeros((3, 1, 1)), np.zeros((4, 1, 1)), np.array([1.0, 3.0, 5.0, 9.0]).reshape(4, 1, 1)
    >>> out, lse = packed_attention(q, k, v, [0, 1, 3], [0, 2, 4])  # one query on two keys, then two on two
    >>> out.ravel().round(6).tolist(), np.exp(lse).round(6).tolist()
    ([2.0, 7.0, 7.0], [[2.0, 2.0, 2.0]])
    >>> out, lse = packed_attention(q, k, v, [0, 1, 3], [0, 2, 4], causal=True, seqused_k=[2, 1])
    >>> out.ravel().round(6).tolist()  # the first query of the second sequence stands before its only key
    [2.0, 0.0, 5.0]
    """
    rows, keys, first, options = _sequences(q, k, cu_q, cu_k, options)
    out = replicate(alpha.zero, (*q.shape[:2], v.shape[-1]))
    lse = replicate(alpha.zero, q.shape[1::-1])
    for R, K, offset in zip(rows, keys, first, strict=True):
        q_b, k_b, v_b = map(_heads_first, (q[R], k[K], v[K]))
        out_b, lse_b = attention(q_b, k_b, v_b, offset=offset, **options)
        out[R], lse[:, R] = _heads_first(out_b), lse_b
    return out, lse


@definition()
def packed_attention_vjp(
    q: Tensor[Array, "totalQ H d"],
    k: Tensor[Array, "totalK HKv d"],
    v: Tensor[Array, "totalK HKv dV"],
    cu_q: Any,
    cu_k: Any,
    grad_out: Tensor[Array, "totalQ H dV"],
    **options: Any,
) -> tuple[
    Tensor[Array, "totalQ H d"],
    Tensor[Array, "totalK HKv d"],
    Tensor[Array, "totalK HKv dV"],
    Tensor[Array, "H"] | None,
]:
    """Return (dq, dk, dv, dsink), the cotangents of the inputs when out and lse have the cotangents
    grad_out and grad_lse. They are those of each sequence alone, and dsink is the sum over all
    sequences.

    Without a sink dsink is None. The options are those of `packed_attention`, and grad_lse, (H,
    totalQ); None means 0.

    Edge cases: the keys of a sequence without queries have cotangent 0. The cotangents of rows that
    no sequence uses are not read.

    >>> q, k, v = np.zeros((2, 1, 1)), np.array([1.0, 3.0, 5.0]).reshape(3, 1, 1), np.ones((3, 1, 1))
    >>> grad_out = np.array([1.0, 8.0]).reshape(2, 1, 1)
    >>> dq, dk, dv, dsink = packed_attention_vjp(q, k, v, [0, 1, 1, 2], [0, 2, 3, 3], grad_out)
    >>> dv.ravel().tolist()  # the third key has no query, and the second query no key
    [0.5, 0.5, 0.0]
    """
    grad_lse = options.pop("grad_lse", None)
    rows, keys, first, options = _sequences(q, k, cu_q, cu_k, options)
    dq, dk, dv = (replicate(alpha.zero, x.shape) for x in (q, k, v))
    sink = options.get("sink")
    dsink = None if sink is None else replicate(alpha.zero, sink.shape)
    for R, K, offset in zip(rows, keys, first, strict=True):
        of_lse = None if grad_lse is None else grad_lse[:, R]
        q_b, k_b, v_b, g_b = map(_heads_first, (q[R], k[K], v[K], grad_out[R]))
        dq_b, dk_b, dv_b, _, dsink_b = attention_vjp(q_b, k_b, v_b, g_b, of_lse, offset=offset, **options)
        dq[R], dk[K], dv[K] = map(_heads_first, (dq_b, dk_b, dv_b))
        dsink = None if dsink is None else dsink + dsink_b
    return dq, dk, dv, dsink


def _sequences(
    q: Array, k: Array, cu_q: Any, cu_k: Any, options: dict[str, Any]
) -> tuple[list[slice], list[slice], list[int], dict[str, Scalar]]:
    """Return the rows of queries and of keys that each sequence uses, the position of its first
    query, and the options of attention.
    """
    of_attention = {"scalar": None} | options
    used_q, used_k = (of_attention.pop(name, None) for name in ("seqused_q", "seqused_k"))
    rows, keys = packed_rows(cu_q, used_q, len(q), "q"), packed_rows(cu_k, used_k, len(k), "k")
    if len(rows) != len(keys):
        raise ValueError(f"cu_q has {len(rows)} sequences and cu_k has {len(keys)}, but should have as many.")
    alignment = of_attention.pop("alignment", "bottom_right")
    if alignment not in ("bottom_right", "top_left"):
        raise ValueError(f"alignment={alignment!r}, but should be 'bottom_right' or 'top_left'.")
    lengths = ((R.stop - R.start, K.stop - K.start) for R, K in zip(rows, keys, strict=True))
    first = [n_k - n_q if alignment == "bottom_right" else 0 for n_q, n_k in lengths]
    return rows, keys, first, of_attention


def _heads_first(x: Array) -> Array:
    """Return the rows with the axis of heads first, or heads with the axis of rows first."""
    return np.swapaxes(x, 0, 1)
