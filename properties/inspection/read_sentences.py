"""What a map of reads says, in sentences.

A sentence says of some rows of the output what is true of each of them: which batch or key head
they read, which keys they miss, which masked keys they read.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

import numpy as np

from properties.inspection.array import Array
from properties.inspection.places import place, placed, sentence, spanned
from properties.inspection.reads import LEAST_SHARE, Reads

__all__ = ["index_map", "sentences_of_reads"]

_MOST_RUNS = 3  # of rows that miss other keys each
_MOST_PAIRS = 4  # of indices, where no rule describes all
_NEAR = 0.01  # relative: how near two weights, or two sums of them, are the same
_EXACT = 2.0**-20  # relative: how near a weight is to 1/n

_READS, _MISSES, _IS, _GIVES = ("reads", "read"), ("misses", "miss"), ("is", "are"), ("gives", "give")


def sentences_of_reads(found: Reads) -> tuple[str, ...]:
    """Sentences about the rows that read something else than they should; () if all are right, or
    nearly.
    """
    rows = [_Row(found, int(index)) for index in np.flatnonzero(found.reading.wrong.any(1))]
    kinds = {kind: [row for row in rows if row.kind == kind] for kind in _KINDS}
    return tuple(said for kind, some in kinds.items() if some for said in _KINDS[kind](found, some))


class _Row:
    """One row of the output: what it reads, and what it should.

    index         its number among all rows
    place         its batch, head and query
    read, due     the keys that it reads and that it should read, as indices into v's rows
    heads, home   the places (batch, key head) of these keys, as indices into all heads of v
    number        n if its weights are 0 and 1/n, else 0
    """

    def __init__(self, found: Reads, index: int) -> None:
        self.index, self.n_k = index, found.columns[-1]
        self.place = tuple(int(at) for at in np.unravel_index(index, found.rows))
        self.weights, self.expected = (weights[index] for weights in found.reading[:2])
        self.strange, self.is_settled = str(found.strange[index]), bool(found.settled[index])
        self.read, self.due = (_keys(found, weights) for weights in (self.weights, self.expected))
        self.heads, self.home = (sorted({key // self.n_k for key in keys}) for keys in (self.read, self.due))
        self.number = _number_of_equal(found, self.weights)

    @property
    def kind(self) -> str:
        """What is wrong with it, a key of `_KINDS`; "rounding" for errors like roundings."""
        if self.strange in ("unwritten", "unequal"):
            return self.strange
        if not np.isfinite(self.weights).all():
            return "not finite"
        if self.strange:
            return self.strange
        if not self.read:
            return "zero"
        if not self.is_settled:
            return "unsettled"
        if not self.due:
            return "masked"
        if self.heads != self.home:
            return "elsewhere"
        if self.read != self.due:
            return "other keys"
        if self.number % len(self.due):  # a multiple is a factor of all weights
            return "number"
        is_near = np.abs(self.weights - self.expected).max() < _NEAR * np.abs(self.expected).max()
        return "rounding" if is_near else "weights"

    def differing(self, extra: bool) -> list[int]:
        """The keys within their head that it reads and should not, or should read and does not."""
        more, less = (self.read, self.due) if extra else (self.due, self.read)
        return [key % self.n_k for key in sorted(set(more).difference(less))]


_Rows = Sequence[_Row]
_Sentences = Callable[[Reads, _Rows], list[str]]
"""The sentences about rows of one kind."""


def _keys(found: Reads, weights: Array) -> list[int]:
    """The keys whose weight is not too small a share of the row's largest."""
    each = np.abs(weights / [len(keys) for keys in found.keys])
    read = np.flatnonzero(each > each.max(initial=0.0) * LEAST_SHARE)
    return sorted(int(key) for block in read for key in found.keys[block])


def _number_of_equal(found: Reads, weights: Array) -> int:
    """The whole number n if every weight is 0 or 1/n, else 0."""
    weight_of_each = weights / [len(keys) for keys in found.keys]
    largest = float(weight_of_each.max(initial=0.0))
    if not 0 < largest < np.inf:
        return 0
    number = round(1 / largest)
    is_equal = (np.abs(weight_of_each * number - (weight_of_each != 0)) < _EXACT).all()
    return number if is_equal else 0


def _said(found: Reads, rows: _Rows, verbs: tuple[str, str], rest: str) -> str:
    """A sentence about some rows."""
    return sentence(_chosen(found, rows), found.axes, verbs, rest)


def _chosen(found: Reads, rows: _Rows) -> Array:
    """Where some rows are, among all rows."""
    chosen = np.zeros(found.rows, bool)
    chosen.reshape(-1)[[row.index for row in rows]] = True
    return chosen


def _saying(verbs: tuple[str, str], rest: str) -> _Sentences:
    """Return the function that says the same of all rows of a kind; {inputs} are the measured inputs."""
    return lambda found, rows: [_said(found, rows, verbs, rest.format(inputs=found.inputs))]


def _placing(words: str) -> _Sentences:
    """Return the function that says where all rows of a kind are."""
    return lambda found, rows: [placed(words, _chosen(found, rows), found.axes)]


def _elsewhere(found: Reads, rows: _Rows) -> list[str]:
    """Which batch or key head is read, for each axis that differs."""
    several = [row for row in rows if len(row.heads) > 1]
    single = [row for row in rows if len(row.heads) == 1]
    sentences = [_said(found, several, _READS, "values of more than one batch or key head")] if several else []
    for axis, name in enumerate(found.axes_of_columns[:-1] if single else ()):
        lead = found.columns[:-1]
        read, home = (
            [int(np.unravel_index(heads[0], lead)[axis]) for heads in places]
            for places in ([row.heads for row in single], [row.home for row in single])
        )
        if read != home:
            rule = index_map([row.place[axis] for row in single], read, name, lead[axis])
            sentences.append(_said(found, single, _READS, f"the values of {rule}"))
    return sentences


def index_map(own: Sequence[int], read: Sequence[int], name: str, size: int) -> str:
    """Return which index of an axis of an input each index of the output reads, by the first rule
    that is true of all, or one by one: "batch (b + 1) mod 2".
    """
    letter = name.split()[-1][0]
    for rule, index_of in _index_maps(size):
        if [index_of(index) for index in own] == list(read):
            return f"{name} {rule.format(i=letter)}"
    pairs = sorted(set(zip(own, read, strict=True)))
    shown = ", ".join(f"{index} → {other}" for index, other in pairs[:_MOST_PAIRS])
    return f"another {name}: {shown}{' …' if len(pairs) > _MOST_PAIRS else ''}"


def _index_maps(size: int) -> Iterator[tuple[str, Callable[[int], int]]]:
    """The index maps of the grammar, simplest first: a text, and the index that an index reads."""
    for constant in range(size):
        yield f"{constant}", lambda index, constant=constant: constant  # type: ignore[misc]
    yield "{i} + 1", lambda index: index + 1
    yield "{i} − 1", lambda index: index - 1
    yield f"({{i}} + 1) mod {size}", lambda index: (index + 1) % size
    yield f"({{i}} − 1) mod {size}", lambda index: (index - 1) % size
    for divisor in range(2, size + 1):
        yield f"{{i}} mod {divisor}", lambda index, divisor=divisor: index % divisor  # type: ignore[misc]
        yield f"{{i}} div {divisor}", lambda index, divisor=divisor: index // divisor  # type: ignore[misc]


def _other_keys(found: Reads, rows: _Rows) -> list[str]:
    if sentence := _always_causal(found, rows):
        return [sentence]
    sentences = []
    for extra in (False, True):
        runs = _runs([row for row in rows if row.differing(extra)], extra)
        verbs = _READS if extra else _MISSES
        sentences += [_said(found, some, verbs, text) for text, some in runs[:_MOST_RUNS]]
        if rest := [row for _, some in runs[_MOST_RUNS:] for row in some]:
            sentences.append(_said(found, rest, verbs, "masked keys" if extra else "visible keys"))
    return sentences


def _always_causal(found: Reads, rows: _Rows) -> str:
    """The sentence about queries that should read all keys, and read those up to their own position; ""
    if some do not, or if fewer than two queries show it.
    """
    n_q, n_k = found.rows[-1], found.columns[-1]
    if any(len(row.due) < n_k for row in rows) or len({row.place[-1] for row in rows}) < 2:
        return ""
    for offset, words in ((0, "top left"), (n_k - n_q, "bottom right")):
        own_positions = [offset + row.place[-1] for row in rows]
        if all(
            [key % n_k for key in row.read] == [*range(position + 1)]
            for row, position in zip(rows, own_positions, strict=True)
        ):
            aligned = "" if n_q == n_k else f", aligned at the {words}"
            sentence = (
                f"Queries read only the keys up to their own position{aligned}: they are causal in a call that is not"
            )
            return placed(sentence, _chosen(found, rows), found.axes)
    return ""


def _runs(rows: _Rows, extra: bool) -> list[tuple[str, list[_Row]]]:
    """Descriptions of the keys in which rows differ, each with the rows that it is true for: a
    description that is true for all rows, else one for each run of queries.
    """
    texts = [_descriptions(row, extra) for row in rows]
    common = [text for text in (texts[0] if texts else []) if all(text in others for others in texts)]
    if common:
        return [(common[0], list(rows))]
    ordered = sorted(zip(rows, texts, strict=True), key=lambda pair: (pair[0].place[-1], pair[0].place))
    return [(text, [row for row, _ in pairs]) for text, pairs in groupby(ordered, key=lambda pair: pair[1][0])]


def _descriptions(row: _Row, extra: bool) -> list[str]:
    """All true descriptions of the keys in which a row differs, shortest first."""
    keys, due, query = row.differing(extra), [key % row.n_k for key in row.due], row.place[-1]
    number, is_range = len(keys), len(keys) == keys[-1] - keys[0] + 1
    count = "key" if number == 1 else f"{number} keys"
    ends = {
        "every masked key": extra and number + len(due) == row.n_k,
        "every visible key": not extra and number == len(due),
        f"the {count} after the last visible key": extra and is_range and keys[0] == due[-1] + 1,
        f"the {count} before the first visible key": extra and is_range and keys[-1] == due[0] - 1,
        f"the last {'visible key' if number == 1 else f'{number} visible keys'}": not extra and keys == due[-number:],
        f"the first {'visible key' if number == 1 else f'{number} visible keys'}": not extra and keys == due[:number],
    }
    kind = f"{'masked' if extra else 'visible'} key"
    near = [f"the keys at distances {keys[0] - query:+d} to {keys[-1] - query:+d}"] if is_range else []
    return [*(text for text, is_true in ends.items() if is_true), spanned(keys, kind), *near]


def _weights(found: Reads, rows: _Rows) -> list[str]:
    """How the weights of visible keys differ: one key's factor, their sums, or one entry."""
    factors = {row.index: factor for row in rows if (factor := _factor_of_one_key(found, row))}
    sentences = []
    if factors and len({key for key, _ in factors.values()}) == 1:
        key, some = next(iter(factors.values()))[0], [row for row in rows if row.index in factors]
        span = _span([factor for _, factor in factors.values()])
        description = f"key {key} {span} times the weight of the other visible keys"
        sentences.append(_said(found, some, _GIVES, description))
    measured = _span([float(row.weights.sum()) for row in rows])
    expected = _span([float(row.expected.sum()) for row in rows])
    if measured != expected:
        description = f"the right keys, but with {found.inputs} the weights add up to {measured}, should be {expected}"
        sentences.append(_said(found, rows, _READS, description))
    if sentences:
        return sentences
    row = rows[0]
    block = int(np.argmax(np.abs(row.weights - row.expected)))
    one = f"{place(row.place, found.axes)} gives key {found.keys[block][0] % row.n_k} the weight"
    example = f"{one} {row.weights[block]:.4g}, should be {row.expected[block]:.4g}"
    return [_said(found, rows, _READS, f"the right keys with other weights: {example}")]


def _numbers(found: Reads, rows: _Rows) -> list[str]:
    """Rows whose weights are equal, but as if they read another number of keys."""
    return [
        _said(found, [row for row in rows if (row.number, len(row.due)) == pair], _GIVES, rest)
        for pair in dict.fromkeys((row.number, len(row.due)) for row in rows)
        for rest in [f"each of the {pair[1]} visible keys the weight 1/{pair[0]}, should give 1/{pair[1]}"]
    ][:_MOST_RUNS]


def _factor_of_one_key(found: Reads, row: _Row) -> tuple[int, float] | None:
    """The only key whose weight differs from the usual weight of visible keys, and its factor."""
    weights = {
        int(keys[0]) % row.n_k: float(row.weights[block] / len(keys))
        for block, keys in enumerate(found.keys)
        if keys[0] in row.due
    }
    usual = float(np.median(list(weights.values())))
    others = [(key, weight / usual) for key, weight in weights.items() if abs(weight / usual - 1) > _NEAR]
    return others[0] if len(others) == 1 and len(weights) > 2 else None


def _span(sums: Sequence[float]) -> str:
    least, most = min(sums), max(sums)
    return f"{least:.3g}" if np.isclose(most, least, rtol=_NEAR) else f"{least:.3g} to {most:.3g}"


_KINDS: dict[str, _Sentences] = {
    "unwritten": _saying(_IS, "not written: equal calls give other results"),
    "unequal": _placing("The same call gives another result after another call"),
    "constant": _placing("Doubling v does not change the output"),
    "unlike": _placing("Doubling v does not double the output"),
    "not finite": _saying(_IS, "NaN or infinite with {inputs}"),
    "zero": _saying(_GIVES, "weight 0 to every key"),
    "unsettled": _saying(_GIVES, "wrong weights to the keys"),
    "masked": _saying(_READS, "masked keys: no key is visible there"),
    "elsewhere": _elsewhere,
    "other keys": _other_keys,
    "number": _numbers,
    "weights": _weights,
}
"""What may be wrong with a row, and the sentences about rows of that kind."""
