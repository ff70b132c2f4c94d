"""Cases of positional encodings and of rotary embeddings."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from properties.implementation import Implementation
from properties.strategies.arrays import POSITIONS, Draw, batches, numbers, rounded, sizes

__all__ = [
    "EVEN",
    "ODD",
    "SEQUENCES",
    "added",
    "learned",
    "rotary",
    "rotary_tables",
    "rotary_tables_vjp",
    "rotary_vjp",
    "sinusoid",
    "starts",
]

EVEN = (2, 4, 6, 8, 16, 32, 64)
ODD = (1, 3, 5, 7, 9, 33)
SEQUENCES = (1, 2, 3, 4, 5, 7)


def starts(i: Implementation, positions: st.SearchStrategy[int] = POSITIONS) -> st.SearchStrategy[int]:
    """Start positions that the implementation supports, or 0."""
    return positions.map(lambda p: p if i.allows(start_pos=p) else 0)


@st.composite
def sinusoid(
    draw: Draw,
    i: Implementation,
    *,
    widths: Sequence[int] = EVEN,
    lengths: Sequence[int] = SEQUENCES,
    positions: st.SearchStrategy[int] = POSITIONS,
) -> tuple[int, int, int]:
    """(seq_len, embed_dim, start_pos) of even widths."""
    return draw(sizes(i, "seq_len", lengths)), draw(sizes(i, "embed_dim", widths)), draw(starts(i, positions))


@st.composite
def added(draw: Draw, i: Implementation) -> tuple[Any, ...]:
    """(x, pos): x may have leading axes."""
    shape = draw(sizes(i, "seq_len", SEQUENCES)), draw(sizes(i, "embed_dim", (1, 2, 3, 4, 5, 8)))
    return draw(numbers(i, (*draw(batches(i)), *shape))), draw(numbers(i, shape))


@st.composite
def learned(draw: Draw, i: Implementation) -> tuple[Any, ...]:
    """(table, seq_len, start_pos): any rows of the table."""
    rows, seq_len = draw(st.integers(1, 12)), draw(sizes(i, "seq_len", SEQUENCES))
    start = draw(starts(i, st.integers(0, 6)))
    embed_dim = draw(sizes(i, "embed_dim", (1, 2, 3, 4, 5, 8)))
    return draw(numbers(i, (seq_len + start + rows - 1, embed_dim))), seq_len, start


@st.composite
def rotary(
    draw: Draw,
    i: Implementation,
    *,
    widths: Sequence[int] = EVEN,
    lengths: Sequence[int] = SEQUENCES,
    positions: st.SearchStrategy[int] = POSITIONS,
    rank: int = 0,
) -> tuple[Any, ...]:
    """(x, start_pos) of even widths, with at least `rank` leading axes."""
    shape = (*draw(batches(i, rank)), draw(sizes(i, "seq_len", lengths)), draw(sizes(i, "head_dim", widths)))
    return draw(numbers(i, shape)), draw(starts(i, positions))


@st.composite
def rotary_vjp(draw: Draw, /, i: Implementation, **options: Any) -> tuple[Any, ...]:
    """(x, grad_out, start_pos); options as for `rotary`."""
    x, start_pos = draw(rotary(i, **options))
    return x, draw(numbers(i, x.shape)), start_pos


@st.composite
def rotary_tables(draw: Draw, /, i: Implementation, **options: Any) -> tuple[Any, ...]:
    """(x, cos, sin): half of the tables are rotations to rounding, the others any numbers."""
    x, start_pos = draw(rotary(i, **options))
    target = i.rounding.angle.table
    if draw(st.booleans()):
        return x, *(draw(numbers(i, x.shape[-2:], target=target)) for _ in range(2))
    theta = (start_pos + np.arange(x.shape[-2]))[:, None] * 10000.0 ** (-2.0 * (np.arange(x.shape[-1]) // 2) / x.shape[-1])
    return x, rounded(np.cos(theta), target), rounded(np.sin(theta), target)


@st.composite
def rotary_tables_vjp(draw: Draw, /, i: Implementation, **options: Any) -> tuple[Any, ...]:
    """(x, cos, sin, grad_out); options as for `rotary`."""
    x, cos, sin = draw(rotary_tables(i, **options))
    return x, cos, sin, draw(numbers(i, x.shape))
