"""Where gradients come from, measured from outside.

With q = 0 the visible keys of a row have equal weights W[i, j], and with k = 0 too. Let
dS[i, j] = W[i, j]·(g_i·v_j − δ_i) with δ_i = Σ_l W[i, l]·g_i·v_l. Then

    q = 0:       dq[i] = scale·Σ_j dS[i, j]·k_j                                             (1)
    k = 0:       dk[j] = scale·Σ_i dS[i, j]·q_i                                             (2)
    any q, k:    dv[j] = Σ_i W[i, j]·g_i                                                    (3)

In (1) and (2) g and v are 0 except in one channel, or in a few neighbours, so a channel that
reaches no gradient shows. There v sums to 0 over the keys, so δ = 0 without masks; one more call of
each has a v with another sum. In the last call q and k are not 0, so the scores of a row differ.
Rows of k, q and g are one-hot times whole numbers, which all formats store.
"""

import numpy as np

from properties.inspection.array import Array
from properties.inspection.entries import Entries
from properties.inspection.probe import Probe, joined
from properties.inspection.shapes import Shape

__all__ = ["gradients", "one_hot_rows", "whole_numbers"]

_MOST_PARTS = 8  # of the channels, each in a call

_CHANNEL = "channel of grad_out and v"


def gradients(probe: Probe, shape: Shape) -> tuple[Entries, ...]:
    """Measure dq, dk and dv of a VJP of attention by (1), (2), (3), and the gradients of a bias and
    of sinks where there are some. Raises as `Probe.results`.
    """
    zeros = {name: shape.zeros(probe.operation, name) for name in ("q", "k", "v", "grad_out")}
    q, k, grad_out = (one_hot_rows(zeros[name]) for name in ("q", "k", "grad_out"))
    channels = shape.sizes["value_dim"]
    parts = np.array_split(np.arange(channels), min(channels, _MOST_PARTS))
    counts = whole_numbers(shape.sizes["n_k"])[:, None]
    pairs = shape.sizes["n_k"] // 2
    centred = np.zeros_like(counts)
    centred[: 2 * pairs : 2], centred[1 : 2 * pairs : 2] = counts[:pairs], -counts[:pairs]

    def arrays(values: Array, part: Array, **given: Array) -> dict[str, Array]:
        v, g = zeros["v"].copy(), zeros["grad_out"].copy()
        v[..., part], g[..., part] = values, 1.0
        return {**zeros, "v": v, "grad_out": g, **given}

    def repeated(side: Array) -> Array:
        return np.repeat(side, list(map(len, parts)), 0)

    lead = shape.lead
    heads, groups = (("head",), ("key head",)) if "num_heads" in shape.sizes else ((), ())
    of_q, of_k = (*lead, *heads, "query", "channel"), (*lead, *groups, "key", "channel")
    every = np.arange(channels)
    of_options = {"bias": (*lead, "head", "query", "key"), "sink": ("head",)}
    of_channels = [arrays(centred, part, **given) for given in ({"k": k}, {"q": q}) for part in parts]
    *channels_of_q_and_k, of_v, of_k_alone, of_q_alone, of_both = probe.together(
        shape,
        [
            *of_channels,
            {**zeros, "q": q, "k": k, "grad_out": grad_out},
            *(arrays(counts, every, **given) for given in ({"k": k}, {"q": q}, {"q": q, "k": k})),
        ],
    )
    dq = joined([each["dq"] for each in channels_of_q_and_k[: len(parts)]], np.stack).changed(repeated)
    dk = joined([each["dk"] for each in channels_of_q_and_k[len(parts) :]], np.stack).changed(repeated)
    return (
        Entries("dq", (_CHANNEL, *of_q), dq),
        Entries("dk", (_CHANNEL, *of_k), dk),
        Entries("dv", of_k, of_v["dv"]),
        Entries("dq", of_q, of_k_alone["dq"]),
        Entries("dk", of_k, of_q_alone["dk"]),
        Entries("dq", of_q, of_both["dq"]),
        *(
            Entries(
                f"d{name}",
                axes[-shape.arguments[name].ndim :],
                probe.results(shape, **arrays(counts, every))[f"d{name}"],
            )
            for name, axes in of_options.items()
            if name in shape.arguments
        ),
    )


def whole_numbers(number: int) -> Array:
    """Return 1, 2, 3 … 8, and the same again."""
    return np.arange(number) % 8 + 1.0


def one_hot_rows(zeros: Array) -> Array:
    """Return rows that are one-hot in one channel after the other, times the count of the round."""
    rows, width = zeros.shape[-2:]
    array, every = zeros.copy(), np.arange(rows)
    array[..., every, every % width] = whole_numbers(rows // width + 1)[every // width]
    return array
