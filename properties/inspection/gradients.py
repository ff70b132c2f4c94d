"""Where gradients come from, measured from outside.

With q = 0 all weights of a row are equal to some W[i, j] that the reads have shown, and
dS[i, j] = W[i, j]·(g_i·v_j − Σ_l W[i, l]·g_i·v_l).  Three kinds of calls read the three gradients:

    k_j = e_j, q = 0:       dq[i, j] = scale·dS[i, j]                                       (1)
    q_i = e_i, k = 0:       dk[j, i] = scale·dS[i, j]                                       (2)
    g_i = e_i:              dv[j, i] = W[i, j]                                              (3)

In (1) and (2) the cotangent g and v have one channel each time, so a channel that reaches no
gradient shows.
"""

from dataclasses import dataclass

import numpy as np

from oracles.ball import Array
from properties.contract.caller import Caller
from properties.contract.operations import OPERATIONS
from properties.inspection.entries import Entries
from properties.inspection.shapes import Shape

__all__ = ["gradients"]


def gradients(caller: Caller, shape: Shape) -> list[Entries]:
    """Measure dq, dk and dv of an operation's VJP, by (1), (2) and (3).

    The shape's head_dim is at least n_q and n_k, and its value_dim at least n_q.  Raises
    BrokenError where the implementation raises, and OutsideError where it does not take the shape.
    """
    operation, sizes = OPERATIONS[caller.operation], shape.sizes
    queries, keys, channels = sizes["n_q"], sizes["n_k"], sizes["value_dim"]

    def called(**arrays: Array) -> dict[str, tuple[Array, Array, Array]]:
        results = caller.watch(caller.operation, shape.call(operation, **arrays)).results
        return {x.name: (x.value, x.budget.mid, x.excess > 1) for x in results}

    q, k, v, g = (shape.zeros(operation, name) for name in ("q", "k", "v", "grad_out"))
    one_q, one_k, one_g = q.copy(), k.copy(), g.copy()
    one_q[..., np.arange(queries), np.arange(queries)] = 1.0
    one_k[..., np.arange(keys), np.arange(keys)] = 1.0
    one_g[..., np.arange(queries), np.arange(queries)] = 1.0
    of_q, of_k = [], []
    for channel in range(channels):
        v_one, g_one = v.copy(), g.copy()
        v_one[..., channel], g_one[..., channel] = np.arange(1.0, keys + 1), 1.0
        of_q.append(called(q=q, k=one_k, v=v_one, grad_out=g_one)["dq"])
        of_k.append(called(q=one_q, k=k, v=v_one, grad_out=g_one)["dk"])
    lead = ("batch",) * len(shape.batch)
    heads, groups = (("head",), ("key head",)) if "num_heads" in sizes else ((), ())
    stacked = [tuple(np.stack(parts) for parts in zip(*found, strict=True)) for found in (of_q, of_k)]
    return [
        Entries("dq", ("channel of grad_out", *lead, *heads, "query", "channel"), *stacked[0]),
        Entries("dk", ("channel of grad_out", *lead, *groups, "key", "channel"), *stacked[1]),
        Entries("dv", (*lead, *groups, "key", "channel"), *called(q=q, k=k, v=v, grad_out=one_g)["dv"]),
    ]
