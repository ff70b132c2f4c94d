"""Draws how keys lie in pages: the lengths of sequences, the pages of each sequence, entries of the
table beyond a length, and the numbers in slots that no sequence reads. Also finds cases with fewer
and shorter sequences.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from properties.contract.implementation import Implementation, combined
from properties.contract.packing import rows_of
from properties.contract.paging import (
    gathered,
    in_order,
    page_arrays,
    page_count,
    queries_of,
    query_arrays,
    unused_slots,
    with_sequences,
)
from properties.strategies import drawn_codes
from properties.strategies.choices import Choices
from properties.strategies.domain import Case, Domain
from properties.strategies.sizes import UnsupportedError

__all__ = ["chosen", "fewer", "poison"]

_QUERIES = (1, 2, 1, 0, 3, 8)
_LENGTHS = (4, 1, 0, 2, 7, 17)
"""Lengths next to those at the borders of pages."""
_LONGEST = 400
_UNUSED_PAGES = (0, 1, 3)
_UNUSED_ENTRIES = (0, 1, 2, 5)
_BEHIND = (0, 0, 1, 3)
_SHARED = ("own pages", "own pages", "a prefix", "a prefix", "all pages")

Table = NDArray[np.int32]


def chosen(
    implementation: Implementation, sizes: dict[str, int], domain: Domain, options: frozenset[str], choose: Choices
) -> Case:
    """Return the table of pages, the lengths and cu_q of a case (test input). `sizes` gets the number
    of pages, and with cu_q the number of rows of queries.
    """
    count, page_size, is_ragged = sizes["sequences"], sizes["page_size"], "cu_q" in options
    query_counts = domain.sizes.get("n_q", _QUERIES) if is_ragged else (sizes["n_q"],)
    length_pairs = _pairs(implementation, page_size, query_counts, domain.sizes.get("n_k", ()))
    drawn_lengths = [choose.among(length_pairs) for _ in range(count)]
    case: Case = {}
    if is_ragged:
        cu_q = np.cumsum([0, *(n_q for n_q, _ in drawn_lengths)])
        may_pad = "no padding rows" not in implementation.support.options
        sizes["n_q"] = int(cu_q[-1]) + (choose.among(_BEHIND) if may_pad else 0)
        case["cu_q"] = cu_q.astype(np.int32)
    lengths = np.array([n_k for _, n_k in drawn_lengths], np.int32)
    sizes["n_k"] = int(lengths.max(initial=0))
    page_counts = [page_count(length, page_size) for length in lengths.tolist()]
    numbers, sizes["num_pages"] = _pages(page_counts, choose)
    block_table = _filled(implementation, numbers, sizes["num_pages"], choose)
    sizes["max_pages"] = block_table.shape[1]
    return case | {"block_table": block_table, "lengths": lengths}


def _pairs(
    implementation: Implementation, page_size: int, query_counts: Sequence[int], lengths: Sequence[int]
) -> list[tuple[int, int]]:
    """Return the supported numbers of queries and of keys: lengths at borders of pages, and others."""
    borders = [pages * page_size + e for pages in (1, 2, 3) for e in (1, 0, -1)]
    key_lengths = lengths or [n for n in (*borders, *_LENGTHS) if n <= _LONGEST]

    def is_taken(n_q: int, n_k: int) -> bool:
        return implementation.allows(**combined({"n_q": n_q, "n_k": n_k}))

    length_pairs = [(n_q, n_k) for n_q in query_counts for n_k in key_lengths if is_taken(n_q, n_k)]
    if not (length_pairs := length_pairs or [(n, n) for n in query_counts if is_taken(n, n)]):
        raise UnsupportedError(f"{implementation.name} supports no lengths of sequences among {[*key_lengths]}.")
    return length_pairs


def _pages(page_counts: Sequence[int], choose: Choices) -> tuple[list[Table], int]:
    """Return the pages of each sequence, given how many it needs, and the number of all pages. Pages
    are in any order, and sequences may share the first ones, or all.
    """
    total = sum(page_counts) + choose.among(_UNUSED_PAGES)
    order = choose.order(total) if choose.happens(0.8) else np.arange(total)
    numbers = np.split(order[: sum(page_counts)].astype(np.int32), np.cumsum(page_counts)[:-1]) if page_counts else []
    shared = choose.among(_SHARED)
    for b in range(1, len(numbers)):
        earlier_pages = numbers[choose.integer(0, b - 1)]
        most = min(len(numbers[b]), len(earlier_pages))
        if shared != "own pages" and most:
            common = most if shared == "all pages" else choose.integer(1, most)
            numbers[b][:common] = earlier_pages[:common]
    return numbers, max(total, 1)


def _filled(implementation: Implementation, numbers: Sequence[Table], num_pages: int, choose: Choices) -> Table:
    """Return the table: the pages of the sequences, and anything in the entries behind them."""
    width = max([1, *map(len, numbers)]) + choose.among(_UNUSED_ENTRIES)
    are_valid = "valid table entries" in implementation.support.options
    garbage = (0,) if are_valid else (-1, 0, num_pages, 2**31 - 1, -(2**31))
    block_table = np.full((len(numbers), width), choose.among(garbage), np.int32)
    if choose.happens(0.3):
        block_table[:] = choose.integers(0, num_pages - 1, block_table.shape)
    for table_row, of_sequence in zip(block_table, numbers, strict=True):
        table_row[: len(of_sequence)] = of_sequence
    return block_table


def poison(implementation: Implementation, case: Case, choose: Choices) -> None:
    """Fill the slots that no sequence reads, and the rows of queries that no sequence uses, with what a
    correct kernel does not read, or masks.
    """
    unused = unused_slots(case)
    for name in page_arrays(case):
        case[name][unused] = drawn_codes.unread(name, implementation, choose)
    if case["cu_q"] is not None:
        for name in query_arrays(case):
            case[name][int(case["cu_q"][-1]) :] = drawn_codes.unread(name, implementation, choose)


def fewer(case: Case) -> Iterator[Case]:
    """Yield cases (test inputs) with fewer sequences, with fewer queries, with shorter sequences, and
    with pages in order or of another size; the largest cuts come first.
    """
    batch = len(case["lengths"])
    length = batch
    while length > 1:
        length = -(-length // 2)
        for start in range(0, batch, length):
            yield with_sequences(case, [b for b in range(batch) if not start <= b < start + length])
    if case["cu_q"] is not None and len(case["q"]) > sum(map(len, rows_of(case, "q"))):
        yield with_sequences(case, range(batch))
    yield from _fewer_queries(case)
    yield from _fewer_keys(case)
    yield from _fewer_pages(case)


def _fewer_queries(case: Case) -> Iterator[Case]:
    """Yield cases without the first queries of one sequence, or of all sequences of a batch."""
    queries = [queries_of(case, b) for b in range(len(case["lengths"]))]
    is_batch = case["cu_q"] is None
    for place in range(1 if is_batch and queries else len(queries)):
        count = len(queries[place])
        for fewer_rows in dict.fromkeys(n for n in (1, count // 2, count - 1) if 0 < n < count):
            cut = [slice(-fewer_rows, None) if is_batch or b == place else slice(None) for b in range(len(queries))]
            yield with_sequences(case, range(len(queries)), cut)


def _fewer_keys(case: Case) -> Iterator[Case]:
    """Yield cases in which one sequence is shorter."""
    for b, length in enumerate(case["lengths"].tolist()):
        for shorter_length in dict.fromkeys(n for n in (0, length // 2, length - 1) if 0 <= n < length):
            lengths = case["lengths"].copy()
            lengths[b] = shorter_length
            yield case | {"lengths": lengths}


def _fewer_pages(case: Case) -> Iterator[Case]:
    """Yield cases without unused entries of the table, with pages in order, and with smaller pages."""
    page_size = case["k_pages"].shape[1]
    needed = max([1, *(page_count(length, page_size) for length in case["lengths"].tolist())])
    if case["block_table"].shape[1] > needed:
        yield case | {"block_table": case["block_table"][:, :needed]}
    keys_and_values = gathered(case)
    for smaller_size in dict.fromkeys((page_size, 1, 2, page_size // 2)):
        ordered = in_order(case, keys_and_values, smaller_size) if 0 < smaller_size <= page_size else case
        if 0 < smaller_size < page_size or ordered["k_pages"].size < case["k_pages"].size:
            yield ordered
