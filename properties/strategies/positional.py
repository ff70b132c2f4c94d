"""Cases of positional encodings and of rotary embeddings.

Sequences are short, or reach 1100 rows around the tiles of kernels; positions reach 2²⁰, and chunks lie across powers of two, where
integers, caches and formats of few bits end.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from oracles.ball import Array
from properties.implementation import Implementation
from properties.strategies.arrays import POSITIONS, SHORT, TILES, Draw, UnsupportedError, batches, fixed_points, grids, numbers, rounded

__all__ = [
    "ACROSS",
    "ANY_LENGTH",
    "EVEN",
    "LONG",
    "ODD",
    "SEQUENCES",
    "added",
    "chunks",
    "exact_rows",
    "frequencies",
    "halves",
    "has_width",
    "learned",
    "lookups",
    "rotary",
    "rotary_tables",
    "rotary_tables_vjp",
    "rotary_vjp",
    "shapes",
    "shapes_of_sequences",
    "sinusoid",
    "small_tables",
    "starts",
    "turning",
]

EVEN = (2, 4, 6, 8, 2, 4, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64, 80, 96, 128)
"""Even widths, half of them small."""

ODD = (1, 3, 5, 7, 9, 11, 15, 17, 33, 63, 65, 127)
SEQUENCES = (1, 2, 3, 4, 5, 7)
LONG = (*TILES[9:], 511, 512, 513, 640, 1000, 1023, 1024, 1025, 1100)
"""Lengths past a tile, a table of 256, 512 or 1024 rows, and to 1100, where what drifts from row to row has drifted."""

ANY_LENGTH = (*SEQUENCES, *SEQUENCES, *SEQUENCES, *LONG)
_MOST = 9000  # entries of one sequence: long ones are narrow
_MANY = 2**10  # entries of one sequence beyond which there are few sequences

ACROSS = POSITIONS | st.builds(lambda power, before: 2**power - before, st.integers(7, 20), st.integers(0, 4))
"""Positions to 2²⁰, many of them such that a chunk of a few rows lies across a power of two."""


def starts(i: Implementation, positions: st.SearchStrategy[int] = ACROSS, *, reach: int = 0) -> st.SearchStrategy[int]:
    """Start positions that the implementation supports, and the one `reach` farther too; else 0."""
    return positions.map(lambda p: p if i.allows(start_pos=p) and i.allows(start_pos=p + reach) else 0)


def has_width(i: Implementation, width: str, d: int) -> bool:
    """Whether the implementation supports a width by its name; the exponents of tensor2tensor have none for an odd one, and for 2."""
    undefined = width == "embed_dim" and i.reading.sinusoid_layout == "tensor2tensor" and (d % 2 or d == 2)
    return not undefined and i.allows(**{width: d})


def shapes(i: Implementation, width: str, lengths: Sequence[int], widths: Sequence[int]) -> st.SearchStrategy[tuple[int, int]]:
    """(sequence's length, width) of some that the implementation supports, the width under its name; the first are the simplest.

    Raises UnsupportedError if none is supported.
    """
    found = [(n, d) for n in lengths for d in widths if n * d <= _MOST and i.allows(seq_len=n) and has_width(i, width, d)]
    if not found:
        raise UnsupportedError(f"{i.name} supports no seq_len among {list(lengths)} with a {width} among {list(widths)}.")
    return st.sampled_from(found)


def sinusoid(
    i: Implementation,
    *,
    widths: Sequence[int] = EVEN,
    lengths: Sequence[int] = SEQUENCES,
    positions: st.SearchStrategy[int] = ACROSS,
) -> st.SearchStrategy[tuple[Any, ...]]:
    """(seq_len, embed_dim, start_pos) of even widths."""
    return _chunks_of(i, "embed_dim", widths, lengths, positions)


def turning(
    i: Implementation,
    *,
    widths: Sequence[int] = EVEN,
    lengths: Sequence[int] = SEQUENCES,
    positions: st.SearchStrategy[int] = ACROSS,
) -> st.SearchStrategy[tuple[Any, ...]]:
    """(seq_len, head_dim, start_pos) of even widths: what angles and tables of rotary embeddings are made for."""
    return _chunks_of(i, "head_dim", widths, lengths, positions)


def _chunks_of(
    i: Implementation, width: str, widths: Sequence[int], lengths: Sequence[int], positions: st.SearchStrategy[int]
) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.builds(lambda shape, start: (*shape, start), shapes(i, width, lengths, widths), starts(i, positions))


def frequencies(i: Implementation, *, widths: Sequence[int] = EVEN) -> st.SearchStrategy[tuple[Any, ...]]:
    """(head_dim,) of even widths. Raises UnsupportedError if none is supported."""
    found = [d for d in widths if i.allows(head_dim=d)]
    if not found:
        raise UnsupportedError(f"{i.name} supports no head_dim among {list(widths)}.")
    return st.tuples(st.sampled_from(found))


def halves(i: Implementation, **options: Any) -> st.SearchStrategy[tuple[Any, ...]]:
    """(x,) of even widths; options as for `shapes_of_sequences`."""
    return shapes_of_sequences(i, **options).flatmap(lambda shape: st.tuples(numbers(i, shape)))


def shapes_of_sequences(
    i: Implementation, *, widths: Sequence[int] = EVEN, lengths: Sequence[int] = SEQUENCES, rank: int = 0
) -> st.SearchStrategy[tuple[int, ...]]:
    """Shapes (…, seq_len, head_dim) of even widths, with at least `rank` leading axes; long sequences have none more."""

    def build(lead: tuple[int, ...], size: tuple[int, int]) -> tuple[int, ...]:
        return *_few(i, lead, rank, size[0] * size[1]), *size

    return st.builds(build, batches(i, rank), shapes(i, "head_dim", lengths, widths))


def _few(i: Implementation, lead: tuple[int, ...], rank: int, size: int) -> tuple[int, ...]:
    """The leading axes, but for large arrays the fewest that are supported and at least `rank`."""
    return lead if size <= _MANY else lead[: min(r for r in i.batch_ranks if r >= rank)]


def rotary(i: Implementation, *, positions: st.SearchStrategy[int] = ACROSS, **options: Any) -> st.SearchStrategy[tuple[Any, ...]]:
    """(x, start_pos); options as for `shapes_of_sequences`."""
    return shapes_of_sequences(i, **options).flatmap(lambda shape: st.tuples(numbers(i, shape), starts(i, positions)))


def rotary_vjp(i: Implementation, **options: Any) -> st.SearchStrategy[tuple[Any, ...]]:
    """(x, grad_out, start_pos); options as for `rotary`."""
    return rotary(i, **options).flatmap(lambda case: st.tuples(st.just(case[0]), numbers(i, case[0].shape), st.just(case[1])))


def rotary_tables(i: Implementation, **options: Any) -> st.SearchStrategy[tuple[Any, ...]]:
    """(x, cos, sin): tables of any numbers, or of rotations to rounding; options as for `shapes_of_sequences`."""

    @st.composite
    def build(draw: Draw, shape: tuple[int, ...]) -> tuple[Any, ...]:
        x, target = draw(numbers(i, shape)), i.rounding.angle.table
        if draw(st.integers(0, 2)):
            return x, *(draw(numbers(i, shape[-2:], target=target)) for _ in range(2))
        theta = _angles(i, draw(POSITIONS), *shape[-2:])
        return x, rounded(np.cos(theta), target), rounded(np.sin(theta), target)

    return shapes_of_sequences(i, **options).flatmap(build)


def _angles(i: Implementation, start: int, n: int, d: int) -> Array:
    """The angle of each lane."""
    lanes = np.arange(d)
    pairs = lanes % max(d // 2, 1) if i.reading.rope_pairing == "half" else lanes // 2
    frequencies = i.reading.rope_scale * i.reading.rope_base ** (-2.0 * pairs / max(d, 1))
    return np.asarray((start + np.arange(n))[:, None] * frequencies)


def rotary_tables_vjp(i: Implementation, **options: Any) -> st.SearchStrategy[tuple[Any, ...]]:
    """(x, cos, sin, grad_out); options as for `shapes_of_sequences`."""
    return rotary_tables(i, **options).flatmap(lambda case: st.tuples(*map(st.just, case), numbers(i, case[0].shape)))


def exact_rows(i: Implementation, count: int, **options: Any) -> st.SearchStrategy[tuple[Any, ...]]:
    """As many arrays of one shape, whose sums and differences are exact, and a start position; options as for `rotary`."""
    positions = options.pop("positions", ACROSS)

    def build(shape: tuple[int, ...]) -> st.SearchStrategy[tuple[Any, ...]]:
        return st.tuples(*[fixed_points(i, shape)] * count, starts(i, positions))

    return shapes_of_sequences(i, **options).flatmap(build)


def chunks(i: Implementation, width: str, *, widths: Sequence[int] = EVEN) -> st.SearchStrategy[tuple[int, int, int, int]]:
    """(seq_len, width, start_pos, cut): a sequence of two rows to 1100 and where it is cut in two, in halves, at a tile, after the first
    or before the last row. Raises UnsupportedError if no sequence can be cut."""
    found = [
        (n, d, cut)
        for n in ANY_LENGTH
        for d in widths
        if n * d <= _MOST and i.allows(seq_len=n) and has_width(i, width, d)
        for cut in _cuts(n)
        if i.allows(seq_len=cut, start_pos=cut) and i.allows(seq_len=n - cut)
    ]
    if not found:
        raise UnsupportedError(f"{i.name} supports no sequence that can be cut in two.")

    @st.composite
    def build(draw: Draw) -> tuple[int, int, int, int]:
        n, d, cut = draw(st.sampled_from(found))
        return n, d, draw(starts(i, reach=cut)), cut

    return build()


def _cuts(n: int) -> Iterator[int]:
    yield from (cut for cut in dict.fromkeys((1, n // 2, n - 1)) if 0 < cut < n)
    yield from (tile for tile in (16, 64, 100, 128, 256, 512, 1024) if tile < n - 1 and 2 * tile != n)


def added(i: Implementation, *, exact: bool = False) -> st.SearchStrategy[tuple[Any, ...]]:
    """(x, pos): x may have leading axes, which pos may have too; with `exact`, their sum is a number of the format."""
    leads, sizes = batches(i), shapes(i, "embed_dim", ANY_LENGTH, (1, 2, 3, 4, 5, 8, 16))

    @st.composite
    def build(draw: Draw) -> tuple[Any, ...]:
        lead, (n, d) = draw(leads), draw(sizes)
        lead, shape = _few(i, lead, 0, n * d), (n, d)
        make = fixed_points if exact else numbers
        return draw(make(i, (*lead, *shape))), draw(make(i, (*draw(st.sampled_from([(), lead])), *shape)))

    return build()


def learned(i: Implementation, *, least: int = 0) -> st.SearchStrategy[tuple[Any, ...]]:
    """(table, seq_len, start_pos): any rows of a table of up to 650, its last ones included; the start is at least `least`.

    Raises UnsupportedError if no such start position is supported.
    """
    sizes = shapes(i, "embed_dim", (*SEQUENCES, *SEQUENCES, *TILES), (1, 2, 3, 4, 5, 8))
    found = [p for p in (*range(7), *range(7), 60, 126, 127, 128, 129, 200, 255, 256, 257) if p >= least and i.allows(start_pos=p)]
    if not found:
        raise UnsupportedError(f"{i.name} supports no start position from {least} on, among those tried.")

    @st.composite
    def build(draw: Draw) -> tuple[Any, ...]:
        seq_len, embed_dim = draw(sizes)
        start = draw(st.sampled_from(found))
        beyond = draw(st.integers(0, 3) | st.sampled_from([16, 100]))
        return draw(numbers(i, (start + seq_len + beyond, embed_dim))), seq_len, start

    return build()


def lookups(i: Implementation) -> st.SearchStrategy[tuple[Any, ...]]:
    """(table, indices): a table of up to 300 rows, and indices of one axis or two, its first row's and its last one's among them.

    Raises UnsupportedError if no width is supported.
    """
    widths = [d for d in (1, 2, 3, 4, 5, 8) if i.allows(embed_dim=d)]
    if not widths:
        raise UnsupportedError(f"{i.name} supports no embed_dim among 1 to 8.")

    @st.composite
    def build(draw: Draw) -> tuple[Any, ...]:
        rows, width = draw(st.sampled_from([*SHORT, *SHORT, 100, 127, 128, 129, 200, 256, 257, 300])), draw(st.sampled_from(widths))
        shape = draw(st.tuples(st.integers(1, 8)) | st.sampled_from([(2, 2), (3, 3), (2, 3), (4, 1), (1, 5), (4, 4)]))
        count = int(np.prod(shape))
        chosen = draw(st.lists(st.integers(0, rows - 1) | st.sampled_from([rows - 1, rows // 2]), min_size=count, max_size=count))
        return draw(numbers(i, (rows, width))), np.reshape(np.array(chosen, np.int64), shape)

    return build()


def small_tables(i: Implementation, shape: tuple[int, ...]) -> st.SearchStrategy[Array]:
    """Tables of small numbers whose sums are numbers of the tables' format: multiples of 1/16 up to 4."""
    return grids(shape).map(lambda x: rounded(np.trunc(x * 8) / 16, i.rounding.angle.table))
