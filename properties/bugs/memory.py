"""Slips in conduct: what is remembered from earlier calls."""

from collections.abc import Callable

import numpy as np

from oracles.ball import Array
from properties import reference
from properties.bugs.bug import Register
from properties.reference import Mask, rope

bug = Register()

EARLIER = "a call does not depend on earlier calls"


@bug(
    "rope",
    effect="The rotated queries become the rotated keys as soon as the keys are rotated.",
    repair="Return a new array from each call.",
    citation="none: a buffer kept between calls saves an allocation, and fails when two results are alive",
    law=EARLIER,
    requires=("two calls in a row",),
    stateful=True,
)
def rope_reuses_its_output() -> Callable[..., Array]:
    """Results of one shape share their memory, so that a later call overwrites an earlier result."""
    buffers: dict[tuple[int, ...], Array] = {}

    def rotating(x: Array, start_pos: int = 0) -> Array:
        out = buffers.setdefault(x.shape, np.empty(x.shape))
        out[...] = rope(x, start_pos)
        return out

    return rotating


@bug(
    "scaled_dot_product_attention_vjp",
    effect="The gradients of the second step are the sums over both steps.",
    repair="Start from zeros in each call.",
    citation="none: gradients are added into buffers, and nobody clears them",
    law="a second call gives the same",
    requires=("two calls in a row",),
    stateful=True,
)
def sdpa_vjp_accumulates() -> Callable[..., tuple[Array, ...]]:
    """Gradients are added to those of earlier calls with inputs of the same shapes."""
    totals: dict[tuple[tuple[int, ...], ...], tuple[Array, ...]] = {}

    def accumulating(q: Array, k: Array, v: Array, mask: Mask, grad_out: Array) -> tuple[Array, ...]:
        new = reference.scaled_dot_product_attention_vjp(q, k, v, mask, grad_out)
        shapes = (q.shape, k.shape, v.shape)
        totals[shapes] = tuple(map(np.add, totals.get(shapes, (0.0, 0.0, 0.0)), new))
        return tuple(np.array(total) for total in totals[shapes])

    return accumulating


@bug(
    "sinusoidal_positional_encoding",
    effect="A chunk far from the start has too few rows, or none, after a chunk near the start.",
    repair="Compare the table's length with the last position that is needed.",
    citation="none: offsets were added to code whose table only had to be as long as the sequence",
    law=EARLIER,
    requires=("two calls in a row",),
    stateful=True,
)
def sin_cache_grows_by_length() -> Callable[..., Array]:
    """A kept table is built anew only if it has fewer rows than the sequence, wherever the sequence begins."""
    tables: dict[int, Array] = {}

    def cached(seq_len: int, embed_dim: int, start_pos: int = 0) -> Array:
        if embed_dim not in tables or len(tables[embed_dim]) < seq_len:
            tables[embed_dim] = reference.sinusoidal_positional_encoding(start_pos + seq_len, embed_dim)
        return tables[embed_dim][start_pos : start_pos + seq_len].copy()

    return cached
