"""Operations that copy numbers and compute nothing: rows of tables, and halves that change places.

Every value is exact, so its error limit is 0, with two exceptions. The output format may not hold
the inputs' numbers: then they are rounded. An arithmetic may flush: then results below the smallest
normal number may become 0.  `method` does not matter.
"""

from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from oracles import arrays
from oracles.arguments import checked_flag
from oracles.ball import Array, exact
from oracles.enclosure import Enclosure
from oracles.formats import Arithmetic
from oracles.judging import Balls, Evaluation, Method, settle
from oracles.options import AnswerOptions, answer, takes
from oracles.positional import LARGEST_TABLE, copied


@takes(AnswerOptions)
def learned_positional_encoding(
    table: Any,
    seq_len: Any,
    start_pos: Any = 0,
    *,
    offset: Any = 0,
    max_len: Any = None,
    **options: Unpack[AnswerOptions],
) -> Enclosure:
    """Return seq_len consecutive rows of a table, from the row of position start_pos on. They are
    rounded if the output format is narrower. The result is an `Enclosure` (value ± radius).

    Position p reads row p + offset. The rows before row `offset` belong to something else, such as
    row 0 of a table that keeps row 0 for padding (offset 1).  `max_len` is the number of positions.
    By default it is the number of rows from `offset` on.

    Shapes: table is (offset + positions, embed_dim), the result (seq_len, embed_dim).  Positions
    count from 0.
    Edge cases: no position is wrapped around or clipped. A range that leaves the table, or ends
    after max_len, is refused. A NaN or ±∞ stays in its entry. Sizes may be 0.
    Raises TypeError and ValueError for a table of another shape or type, and for sizes and
    positions that the table does not have.
    """
    arithmetic, _, method = answer(options)
    table = _table(table, arithmetic)
    length, first = arrays.natural(seq_len, "seq_len"), arrays.natural(start_pos, "start_pos")
    skipped = arrays.natural(offset, "offset", most=table.shape[0])
    available = table.shape[0] - skipped
    reason = f"the rows of the table from offset={skipped} on" if skipped else "the rows of the table"
    if max_len is not None and (given_length := arrays.natural(max_len, "max_len")) < available:
        available, reason = given_length, "the given max_len"
    if first + length > available:
        raise ValueError(f"start_pos + seq_len = {first} + {length}, but should be at most {available}, {reason}.")
    return _copied(table[first + skipped : first + skipped + length].copy(), arithmetic, method)


@takes(AnswerOptions)
def table_lookup(
    table: Any,
    indices: Any,
    *,
    padding_row: Any = None,
    **options: Unpack[AnswerOptions],
) -> Enclosure:
    """Return table[indices]. With `padding_row`, the result is 0 wherever the index is
    `padding_row`. The result is an `Enclosure` (value ± radius).

    In a padded sequence, position p reads row p + padding_row + 1. Padding reads row `padding_row`,
    which counts as 0: the table's own entries there are not read.

    Shapes: table is (rows, embed_dim), the result (*indices.shape, embed_dim). Indices count from
    0; they are an array of integers, or a sequence of them.
    Edge cases: no index is wrapped around or clipped. A negative index and an index beyond the
    table are refused. A NaN or ±∞ stays in its entry. Sizes may be 0.
    Raises TypeError and ValueError for a table or indices of another shape or type, and for more
    than 2²⁸ entries.
    """
    arithmetic, _, method = answer(options)
    table = _table(table, arithmetic)
    if table.shape[0] == 0:
        raise ValueError(f"table has shape {table.shape}, but should have at least one row.")
    row_numbers = arrays.integers(indices, "indices", 0, table.shape[0] - 1)
    padding = None if padding_row is None else arrays.natural(padding_row, "padding_row", most=table.shape[0] - 1)
    if row_numbers.size * table.shape[1] > LARGEST_TABLE:
        raise ValueError(
            f"indices × embed_dim = {row_numbers.size} × {table.shape[1]}, "
            f"but should be at most {LARGEST_TABLE} entries."
        )
    rows = table[row_numbers]
    return _copied(
        rows if padding is None else np.where((row_numbers == padding)[..., None], 0.0, rows), arithmetic, method
    )


@takes(AnswerOptions)
def rotate_half(
    x: Any,
    *,
    axis: Any = -1,
    **options: Unpack[AnswerOptions],
) -> Enclosure:
    """Return (−second half, first half) of x along an axis. This rotates every pair of channels (i,
    i + d/2) by a right angle. The result is an `Enclosure` (value ± radius).

    With tables of the `half` pairing, x ⊙ cos + rotate_half(x) ⊙ sin is `apply_rotary`.

    Shapes: the result is like x; d is its even size along the axis.
    Edge cases: an odd size is refused; 0 is legal. A NaN or ±∞ moves with its entry, and makes no
    other entry NaN.
    Raises TypeError and ValueError for an array or axis that does not fit.
    """
    arithmetic, _, method = answer(options)
    x = arrays.float_array(x, "x", arithmetic=arithmetic)
    checked_axis = arrays.integer(axis, "axis", -x.ndim, x.ndim - 1)
    if x.shape[checked_axis] % 2:
        raise ValueError(f"x has size {x.shape[checked_axis]} along axis {checked_axis}, but should have an even one.")
    first, second = np.split(x, 2, axis=checked_axis)
    return _copied(np.concatenate([-second, first], axis=checked_axis), arithmetic, method)


@takes(AnswerOptions)
def relative_bias(
    table: Any,
    n_q: Any,
    n_k: Any,
    bidirectional: Any,
    max_distance: Any,
    **options: Unpack[AnswerOptions],
) -> Enclosure:
    """Return T5's bias: for each head, query and key the entry of the table for the bucket of j − p. The
    result is an `Enclosure` (value ± radius).

    p is the position of query i among the keys: i, or i + n_k − n_q where `conventions.causal` is
    `bottom_right`. Of B buckets in one direction, and m = ⌊B/2⌋, the distances below m have one each. A
    distance n from m on has bucket m + k, where k < B − m is the largest number with
    (n/m)^(B − m) ≥ (max_distance/m)^k. Integers decide that. With `bidirectional` each direction has
    half of the buckets, keys after the query the second half. Otherwise keys after the query have
    bucket 0.

    Shapes: table is (buckets, num_heads), the result (num_heads, n_q, n_k).
    Edge cases: 0 queries, keys or heads are legal. A NaN or ±∞ stays in its entries.
    Raises TypeError and ValueError for arguments of other types, fewer than 2 buckets (4 where
    bidirectional, and an even number), a max_distance that is not above m, and more than 2²⁸ entries.
    """
    arithmetic, conventions, method = answer(options)
    values = arrays.float_array(table, "table", arithmetic=arithmetic)
    queries, keys = arrays.natural(n_q, "n_q", most=LARGEST_TABLE), arrays.natural(n_k, "n_k", most=LARGEST_TABLE)
    if values.ndim != 2:
        raise ValueError(f"table has shape {values.shape}, but should have two axes: (buckets, num_heads).")
    if values.shape[1] * queries * keys > LARGEST_TABLE:
        raise ValueError(
            f"num_heads × n_q × n_k = {values.shape[1]} × {queries} × {keys}, "
            f"but should be at most {LARGEST_TABLE} entries."
        )
    first = keys - queries if conventions.causal == "bottom_right" else 0
    ahead = np.arange(keys) - (np.arange(queries)[:, None] + first)
    longest = arrays.natural(max_distance, "max_distance", least=1)
    found = _buckets(ahead, len(values), checked_flag(bidirectional, "bidirectional"), longest)
    return _copied(np.moveaxis(values[found], -1, 0), arithmetic, method)


def _buckets(ahead: NDArray[np.int64], buckets: int, bidirectional: bool, longest: int) -> NDArray[np.int64]:
    """Return the bucket of each distance, with the borders of buckets found by comparing integers."""
    if buckets < (4 if bidirectional else 2) or (bidirectional and buckets % 2):
        raise ValueError(
            f"table has {buckets} buckets, but should have an even number from 4 on, or 2 in one direction."
        )
    count = buckets // 2 if bidirectional else buckets
    m = count // 2
    if longest <= m:
        raise ValueError(f"max_distance={longest}, but should be more than {m}, half of the buckets.")
    distance = np.abs(ahead) if bidirectional else np.maximum(-ahead, 0)
    borders = [*range(m), *(_border(m, count - m, longest, k) for k in range(count - m))]
    return np.searchsorted(borders, distance, "right") - 1 + np.where(bidirectional & (ahead > 0), count, 0)


def _border(m: int, steps: int, longest: int, k: int) -> int:
    """Return the smallest n with n^steps ≥ longest^k · m^(steps − k)."""
    least, most, power = m, longest, longest**k * m ** (steps - k)
    while least < most:
        middle = (least + most) // 2
        least, most = (least, middle) if middle**steps >= power else (middle + 1, most)
    return least


@takes(AnswerOptions)
def relative_position_index(height: Any, width: Any, **options: Unpack[AnswerOptions]) -> NDArray[np.int64]:
    """Return Swin's index: for each query and key of a window, the row of the table with their bias.

    Row (yᵢ − yⱼ + height − 1)·(2·width − 1) + xᵢ − xⱼ + width − 1 belongs to query i and key j, where
    token i is in row yᵢ = ⌊i / width⌋ and column xᵢ = i mod width. `table_lookup` then gives the biases.

    Shapes: the result is (height·width, height·width), of a table of (2·height − 1)·(2·width − 1) rows.
    Edge cases: a height or a width of 0 gives an empty index.
    Raises TypeError and ValueError for arguments that are not numbers from 0 on, and for more than 2²⁸
    entries.
    """
    answer(options)
    rows, columns = (arrays.natural(n, name, most=LARGEST_TABLE) for n, name in ((height, "height"), (width, "width")))
    if (rows * columns) ** 2 > LARGEST_TABLE:
        raise ValueError(f"(height × width)² = ({rows} × {columns})², but should be at most {LARGEST_TABLE} entries.")
    y, x = np.indices((rows, columns)).reshape(2, -1)
    down, across = (places[:, None] - places for places in (y, x))
    return np.asarray((down + rows - 1) * (2 * columns - 1) + across + columns - 1)


def _table(table: Any, arithmetic: Arithmetic | None) -> Array:
    values = arrays.float_array(table, "table", arithmetic=arithmetic)
    if values.ndim != 2:
        raise ValueError(f"table has shape {values.shape}, but should have two axes: (positions, embed_dim).")
    return values


def _copied(values: Array, arithmetic: Arithmetic | None, method: Method) -> Enclosure:
    """Return an enclosure of copied numbers, rounded from the input format to the output format."""
    value = exact(values)

    def fast() -> Balls:
        return (value if arithmetic is None else copied(value, arithmetic),)

    return settle(Evaluation(arithmetic, method, fast, lambda: (value,), 0))[0]
