"""Maps: what an instrument measured beside what it should be, in at most 64 × 64 entries.

The record of an instrument has several axes. A map shows the last two at one index of the others:
queries by keys for one batch and head, channels by channels for one row. A longer axis is cut into
blocks. An entry of a map then shows the entry of its block that differs most.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from properties.inspection.array import Array
from properties.inspection.entries import Entries
from properties.inspection.places import place
from properties.inspection.probe import Reading
from properties.inspection.reads import Reads
from properties.inspection.rotation import Rotation
from properties.inspection.score_form import ScoreForm
from properties.inspection.shapes import Shape

__all__ = ["Map", "Record", "chosen", "maps_of", "names_of"]

_LONGEST = 64
_MOST_PLACES = 4  # batches and heads of one record
_MOST_RECORDS = 6
_DIGITS = 4

Record = tuple[Shape, Any]
"""The shape of the calls of an instrument, and its record."""


@dataclass(frozen=True)
class Map:
    """What was measured, beside what it should be.

    title      what is shown, where, and at which sizes
    axes       what the rows are, and what the columns are
    rows       the index of each row; the first of a block
    columns    the index of each column; the first of a block
    measured, expected, wrong    the entries
    """

    title: str
    axes: tuple[str, str]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    measured: Array
    expected: Array
    wrong: Array

    def to_dict(self) -> dict[str, Any]:
        """Return the map as data that JSON can hold, with four digits of each number."""
        return {
            **{name: getattr(self, name) for name in ("title", "axes", "rows", "columns")},
            "measured": _numbers(self.measured),
            "expected": _numbers(self.expected),
            "wrong": self.wrong.tolist(),
        }


@dataclass(frozen=True)
class _Table:
    """A record as one array with named axes.

    rows, columns   the names of the indices of the last two axes; () for 0, 1, 2 …
    groups          the group of each column. A map has only groups with an entry that is not 0; ()
                    for one group
    """

    name: str
    axes: tuple[str, ...]
    reading: Reading
    rows: Sequence[Any] = ()
    columns: Sequence[Any] = ()
    groups: Sequence[int] | Array = ()


def chosen(records: Sequence[Record]) -> tuple[Record, ...]:
    """Return the records that are worth a map: the first few with a wrong entry, and the first one of
    each instrument.
    """
    first: dict[type, Record] = {}
    for record in records:
        first.setdefault(type(record[1]), record)
    kept = [record for record in records if any(table.reading.wrong.any() for table in _tables(record[1]))]
    others = [record for record in first.values() if all(record is not one for one in kept)]
    return (*kept[:_MOST_RECORDS], *others)


def maps_of(record: Record) -> Iterator[Map]:
    """Yield the maps of a record. An array with wrong entries has a map for each of the first few
    places with some. An array without wrong entries has one map, if no array before it has its name.
    """
    shape, found = record
    names: set[str] = set()
    for table in _tables(found):
        if table.reading.wrong.any() or table.name not in names:
            names.add(table.name)
            yield from _maps(table, _words(shape))


def names_of(record: Record) -> Iterator[str]:
    """Yield what the arrays of a record are, such as "rotation matrix"."""
    yield from (table.name for table in _tables(record[1]))


def _tables(found: Any) -> Iterator[_Table]:
    """The arrays of the record of an instrument."""
    match found:
        case Reads():
            yield _of_reads(found)
        case ScoreForm():
            yield _of_scores(found)
        case Rotation(channels, axes, reading):
            axes = (*axes, "channel of the input", "channel of the result")
            yield _Table("rotation matrix", axes, reading, channels.tolist())
        case Entries(name, axes, reading):
            yield _Table(f"gradient {name}", axes, reading)
        case tuple():
            for part in found:
                yield from _tables(part)


def _of_reads(found: Reads) -> _Table:
    """The weights of keys by batch, head and query. A column is a key, or a block of keys."""
    first_keys = np.array([keys[0] for keys in found.keys])
    is_one_head = prod(found.columns[:-1]) == 1
    lengths, axes = (found.columns[-1:], ("key",)) if is_one_head else (found.columns, found.axes_of_columns)
    names = ["·".join(map(str, index)) for index in zip(*np.unravel_index(first_keys, lengths), strict=True)]
    columns = ", ".join(axes) + ("" if all(len(keys) == 1 for keys in found.keys) else " (the first of a block)")
    reading = found.reading.changed(lambda array: array.reshape(*found.rows, -1))
    name = f"weights with {found.inputs}"
    return _Table(name, (*found.axes, columns), reading, (), names, first_keys // found.columns[-1])


def _of_scores(found: ScoreForm) -> _Table:
    """What each channel of q times each channel of k adds to the score. Channel "none" is a row of
    zeros. Several places show a pair of channels; the map has the one that differs most.
    """
    channels = np.unique(found.queries)
    size = len(channels)
    rows, columns = np.searchsorted(channels, found.queries), np.searchsorted(channels, found.keys)
    cells = np.broadcast_to(rows[None, None, :, None] * size + columns[:, None, None, :], found.reading.wrong.shape)
    places = _most_different(found.reading, cells.ravel(), size * size)
    reading = found.reading.changed(lambda array: array.ravel()[places].reshape(size, size))
    names = ["none" if channel < 0 else int(channel) for channel in channels]
    return _Table("score of one-hot queries and keys", ("channel of q", "channel of k"), reading, names, names)


def _most_different(reading: Reading, cells: Array, number: int) -> Array:
    """The entry of each cell that differs most: a wrong entry before a right one, then the largest
    difference, then the largest expected value. NaN is the largest difference. `cells` has the cell
    of each entry; no cell is empty.
    """
    with np.errstate(all="ignore"):
        difference = np.abs(reading.measured - reading.expected).ravel()
    difference = np.where(np.isnan(difference), np.inf, difference)
    size = np.abs(reading.expected).ravel()
    order = np.lexsort((-np.nan_to_num(size), -difference, ~reading.wrong.ravel(), cells))
    return order[np.searchsorted(cells[order], np.arange(number))]


def _maps(table: _Table, sizes: str) -> Iterator[Map]:
    """The maps of one array, at the first few places with wrong entries, else at the first place."""
    if not table.reading.wrong.size:
        return
    wrong = table.reading.wrong.any((-2, -1))
    for index in np.argwhere(wrong)[:_MOST_PLACES] if wrong.any() else np.zeros((1, wrong.ndim), int):
        where = place(index.tolist(), table.axes[: wrong.ndim])
        title = f"{table.name}{f', {where}' if where else ''}{f' ({sizes})' if sizes else ''}"
        yield _in_blocks(title[0].upper() + title[1:], table, tuple(index))


def _in_blocks(title: str, table: _Table, index: tuple[int, ...]) -> Map:
    """The map at one place of an array, in blocks where an axis is too long."""
    used = _used(table, index)
    panel = table.reading.changed(lambda array: array[index][:, used])
    height, width = panel.wrong.shape
    tall, wide = (-(-length // _LONGEST) for length in (height, width))  # of a block
    rows, columns = np.arange(height) // tall, np.arange(width) // wide
    shape = (rows[-1] + 1, columns[-1] + 1)
    places = _most_different(panel, (rows[:, None] * shape[1] + columns).ravel(), prod(shape))
    blocks = panel.changed(lambda array: array.ravel()[places].reshape(shape))
    of_blocks = f", in blocks of {tall} × {wide}" if tall * wide > 1 else ""
    row_names = [str(table.rows[row] if table.rows else row) for row in range(0, height, tall)]
    column_names = [str(table.columns[column] if table.columns else column) for column in used[::wide]]
    axes = (table.axes[-2], table.axes[-1])
    return Map(f"{title}{of_blocks}", axes, tuple(row_names), tuple(column_names), *blocks)


def _used(table: _Table, index: tuple[int, ...]) -> Array:
    """The columns of the groups with an entry that is not 0 at one place."""
    measured, expected, _ = (side[index] for side in table.reading)
    is_used = ((measured != 0) | (expected != 0)).any(0)
    if not len(table.groups) or not is_used.any():
        return np.arange(len(is_used))
    groups = np.asarray(table.groups)
    return np.flatnonzero(np.isin(groups, groups[is_used]))


def _words(shape: Shape) -> str:
    """The sizes and the options of a call: "batch 2, n_q 3, n_k 5, causal". A single head is left
    out.
    """
    batch = [f"batch {' × '.join(map(str, shape.batch))}"] if prod(shape.batch) > 1 else []
    shown = {name: size for name, size in shape.sizes.items() if size > 1 or not name.endswith("heads")}
    sizes = [f"{name} {size}" for name, size in shown.items()]
    return ", ".join([*batch, *sizes, *_options(shape.arguments)])


def _options(arguments: Mapping[str, Any]) -> Iterator[str]:
    for name, value in arguments.items():
        if value is True or isinstance(value, np.ndarray):
            yield name
        elif value is not False:
            yield f"{name} {value}"


def _numbers(array: Array) -> list[list[float | str]]:
    """The entries with four digits. JSON has no NaN and no infinity, so they are texts."""
    return [[float(f"{x:.{_DIGITS}g}") if np.isfinite(x) else str(x) for x in row] for row in array.tolist()]
