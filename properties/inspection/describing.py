"""What a map of reads says, in sentences.

A row reads a label where its weight is at least `LEAST_SHARE` of the row's largest.  A sentence
says of some rows what is true of each of them: which batch or key head they read, which keys they
miss, which masked keys they read.  Rows are named by ranges of their axes; where a set of rows is
no product of ranges, a sentence names one of them and their number.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

import numpy as np

from oracles.ball import Array
from properties.inspection.reads import LEAST_SHARE, Reads

__all__ = ["sentences"]

MOST_RUNS = 3


def sentences(found: Reads) -> list[str]:
    """Sentences about the rows that read something else than they should; none where all is right."""
    rows = [Row(found, index) for index in np.flatnonzero(found.wrong.any(1))]
    said = []
    for kind, say in KINDS.items():
        some = [row for row in rows if row.kind == kind]
        said += say(found, some) if some else []
    return said


class Row:
    """One row of the output: what it reads, and what it should.

    `place` is its batch, head and query; `read` and `due` are the keys, as indices into v's rows;
    `heads` are the places (batch, key head) of the keys that it reads, and `home` of those it
    should.
    """

    def __init__(self, found: Reads, index: int) -> None:
        self.place = tuple(int(i) for i in np.unravel_index(index, found.rows))
        self.weights, self.expected = found.weights[index], found.expected[index]
        self.n_k = found.columns[-1]
        self.read, self.due = self._keys(found, self.weights), self._keys(found, self.expected)
        self.heads, self.home = (sorted({key // self.n_k for key in keys}) for keys in (self.read, self.due))

    def _keys(self, found: Reads, weights: Array) -> list[int]:
        each = np.abs(weights / [len(keys) for keys in found.keys])
        most = each.max(initial=0.0)
        some = [keys for keys, weight in zip(found.keys, each, strict=True) if weight > most * LEAST_SHARE]
        return sorted(int(key) for keys in some for key in keys)

    @property
    def kind(self) -> str:
        """What is wrong with it, a key of `KINDS`."""
        if not np.isfinite(self.weights).all():
            return "not finite"
        if not self.read:
            return "nothing"
        if not self.due:
            return "something"
        if self.heads != self.home:
            return "elsewhere"
        return "other keys" if self.read != self.due else "weights"


def _not_finite(found: Reads, rows: Sequence[Row]) -> list[str]:
    return [f"{subject(found, rows)} {verb(rows, 'are')} NaN or infinite."]


def _nothing(found: Reads, rows: Sequence[Row]) -> list[str]:
    return [f"{subject(found, rows)} {verb(rows, 'read')} nothing."]


def _something(found: Reads, rows: Sequence[Row]) -> list[str]:
    return [f"{subject(found, rows)} {verb(rows, 'read')} keys, but every key is masked for them."]


def _elsewhere(found: Reads, rows: Sequence[Row]) -> list[str]:
    """Which batch or key head is read, by the first index map that is true of all rows."""
    if any(len(row.heads) != 1 for row in rows):
        some = [row for row in rows if len(row.heads) != 1]
        return [f"{subject(found, some)} {verb(some, 'read')} keys of several batches or key heads."]
    lead = found.columns[:-1]
    read, due = (
        [np.unravel_index(heads[0], lead) if lead else () for heads in pairs]
        for pairs in ([row.heads for row in rows], [row.home for row in rows])
    )
    said = []
    for axis, name in enumerate(axes_of_columns(found)[:-1]):
        got, want = ([int(x[axis]) for x in places] for places in (read, due))
        if got == want:
            continue
        own = [row.place[axis] for row in rows]
        formula = next((text for text, rule in index_maps(lead[axis]) if [rule(i) for i in own] == got), "")
        letter = name.split()[-1][0]
        if not formula:
            formula = "; ".join(f"{i} reads {j}" for i, j in sorted(set(zip(own, got, strict=True)))[:4])
        said.append(f"{subject(found, rows)} {verb(rows, 'read')} {name} {formula}".replace("{i}", letter) + ".")
    return said


def _other_keys(found: Reads, rows: Sequence[Row]) -> list[str]:
    return [
        f"{subject(found, some)} {verb(some, 'read' if extra else 'miss')} {text}."
        for extra in (False, True)
        for text, some in shortest([row for row in rows if differing(row, extra)], extra)
    ]


def _weights(found: Reads, rows: Sequence[Row]) -> list[str]:
    total = [float(row.weights.sum()) for row in rows]
    most, least = max(total), min(total)
    sums = f"{least:.4g}" if np.isclose(most, least, rtol=1e-3) else f"{least:.4g} to {most:.4g}"
    return [f"{subject(found, rows)} {verb(rows, 'read')} the right keys, with weights that add up to {sums}."]


KINDS: dict[str, Callable[[Reads, Sequence[Row]], list[str]]] = {
    "not finite": _not_finite,
    "nothing": _nothing,
    "something": _something,
    "elsewhere": _elsewhere,
    "other keys": _other_keys,
    "weights": _weights,
}
"""What may be wrong with a row, and the sentences about rows of that kind."""


def index_maps(size: int) -> Iterator[tuple[str, Callable[[int], int]]]:
    """The index maps of the grammar, simplest first: a text, and the index that an index reads."""
    for constant in range(size):
        yield f"{constant}", lambda i, c=constant: c  # type: ignore[misc]
    for step in (1, -1):
        yield f"{{i}} {'+' if step > 0 else '−'} 1", lambda i, s=step: i + s  # type: ignore[misc]
    for divisor in range(2, size + 1):
        yield f"{{i}} mod {divisor}", lambda i, m=divisor: i % m  # type: ignore[misc]
        yield f"{{i}} div {divisor}", lambda i, m=divisor: i // m  # type: ignore[misc]


def differing(row: Row, extra: bool) -> list[int]:
    """The keys within their head that a row reads and should not, or should read and does not."""
    more, less = (row.read, row.due) if extra else (row.due, row.read)
    return [key % row.n_k for key in more if key not in set(less)]


def shortest(rows: Sequence[Row], extra: bool) -> list[tuple[str, list[Row]]]:
    """Descriptions of the keys in which rows differ, each with the rows of which it is true: one
    description of all rows if there is one, else one for each run of queries.
    """
    texts = [descriptions(row, extra) for row in rows]
    common = [text for text in (texts[0] if texts else []) if all(text in others for others in texts)]
    if not rows or common:
        return [(common[0], list(rows))] if rows else []
    ordered = sorted(zip(rows, texts, strict=True), key=lambda pair: (pair[0].place[-1], pair[0].place))
    runs = [
        (text, [row for row, _ in pairs]) for text, pairs in groupby(ordered, key=lambda pair: pair[1][0])
    ]
    return runs[:MOST_RUNS]


def descriptions(row: Row, extra: bool) -> list[str]:
    """All true descriptions of the keys in which a row differs, shortest first."""
    keys, due, query = differing(row, extra), [key % row.n_k for key in row.due], row.place[-1]
    number = len(keys)
    whole = keys == list(range(keys[0], keys[0] + number))
    found = []
    if extra:
        if whole and keys[0] == due[-1] + 1:
            found.append(f"the {counted(number)} after the last that they should read")
        if whole and keys[-1] == due[0] - 1:
            found.append(f"the {counted(number)} before the first that they should read")
    else:
        if keys == due[-number:]:
            found.append(f"the last {counted(number)} that they should read")
        if keys == due[:number]:
            found.append(f"the first {counted(number)} that they should read")
    if whole:
        found.append(f"{spanned(keys, 'key')}{' although masked' if extra else ''}")
        found.append(f"the keys from query {keys[0] - query:+d} to query {keys[-1] - query:+d}")
    return found or [f"{counted(number)}, {', '.join(map(str, keys[:4]))}{' …' if number > 4 else ''}"]


def counted(number: int) -> str:
    """A number of keys in words: "key" for one, "16 keys"."""
    return "key" if number == 1 else f"{number} keys"


def subject(found: Reads, rows: Sequence[Row]) -> str:
    """Rows by the ranges of their axes, "Batch 1, heads 4–7 of 8"; or one of them and their number."""
    names = axes_of_rows(found)
    places = {row.place for row in rows}
    sets = [sorted({place[axis] for place in places}) for axis in range(len(names))]
    if len(places) == np.prod([len(indices) for indices in sets]):
        parts = [
            spanned(indices, name) + (f" of {size}" if len(indices) < size and name != "query" else "")
            for name, indices, size in zip(names, sets, found.rows, strict=True)
            if len(indices) < size
        ]
        text = ", ".join(parts) or "all rows"
    else:
        one = ", ".join(f"{name} {index}" for name, index in zip(names, min(places), strict=True))
        text = f"{len(places)} of {found.weights.shape[0]} rows, such as {one},"
    return text[0].upper() + text[1:]


def verb(rows: Sequence[Row], plural: str) -> str:
    """The verb that agrees with the subject: singular for one place of a single-row shape."""
    singular = {"are": "is", "read": "reads", "miss": "misses"}
    return singular[plural] if len(rows) == 1 else plural


def spanned(indices: Sequence[int], name: str) -> str:
    """Indices in words: "query 3", "queries 16–31", "heads 0, 2, 5"."""
    plural = {"query": "queries", "batch": "batches"}.get(name, f"{name}s")
    if len(indices) == 1:
        return f"{name} {indices[0]}"
    if list(indices) == list(range(indices[0], indices[-1] + 1)):
        return f"{plural} {indices[0]}–{indices[-1]}"
    return f"{plural} {', '.join(map(str, indices[:4]))}{' …' if len(indices) > 4 else ''}"


def axes_of_rows(found: Reads) -> list[str]:
    """The names of the output's axes but the last."""
    return ["batch"] * len(found.shape.batch) + ["head"] * ("num_heads" in found.shape.sizes) + ["query"]


def axes_of_columns(found: Reads) -> list[str]:
    """The names of v's axes but the last."""
    return ["batch"] * len(found.shape.batch) + ["key head"] * ("kv_heads" in found.shape.sizes) + ["key"]
