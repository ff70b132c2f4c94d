"""Keys in pages: the drawn tables reach every border case, unused slots hold poison, and each known bug is
killed by the law that it names.
"""

from itertools import pairwise

import numpy as np
import pytest

from oracles import Conventions
from properties import verify
from properties.bugs import GROUPS
from properties.bugs.declared import under
from properties.bugs.mutants import MUTANTS
from properties.bugs.reference import REFERENCE
from properties.contract import packing, paging
from properties.contract.implementation import Implementation
from properties.contract.operations import FEATURES, OPERATIONS
from properties.contract.results import BrokenError
from properties.contract.subject import Subject
from properties.laws import LAWS
from properties.strategies.cases import Cases
from properties.strategies.domains import DOMAINS
from properties.strategies.drawn_pages import fewer
from properties.tests.kills import kills_of

PAGED = "paged_attention"
OPERATION = OPERATIONS[PAGED]
READS = next(law for law in LAWS if law.name == "each query reads the pages of its sequence")


def reference(conventions=None, features=FEATURES, **promises):
    conventions = conventions or Conventions()
    functions = {name: under(conventions, name, REFERENCE[name]) for name in (PAGED, "attention")}
    return Implementation("NumPy", functions, features=features, conventions=conventions, **promises)


def drawn(domain="everyday", number=40, **promises):
    cases = Cases(OPERATION, DOMAINS[PAGED][domain], reference(**promises))
    return [OPERATION.named(cases.draw(seed)) for seed in range(number)]


def used_pages(case):
    """The pages that each sequence uses."""
    size = case["k_pages"].shape[1]
    counts = [paging.page_count(length, size) for length in case["lengths"].tolist()]
    return [row[:count].tolist() for row, count in zip(case["block_table"], counts, strict=True)]


def garbage(case):
    """The entries of the table beyond the lengths."""
    return [
        int(entry)
        for row, used in zip(case["block_table"], used_pages(case), strict=True)
        for entry in row[len(used) :]
    ]


def all_pages(case):
    return [page for pages in used_pages(case) for page in pages]


def has_length(of_size):
    return lambda case: any(of_size(length, case["k_pages"].shape[1]) for length in case["lengths"].tolist())


EDGES = {
    "length 0": has_length(lambda length, size: length == 0),
    "length 1": has_length(lambda length, size: length == 1),
    "a full last page": has_length(lambda length, size: length > size > 1 and length % size == 0),
    "one key in the last page": has_length(lambda length, size: length > size > 1 and length % size == 1),
    "one free slot in the last page": has_length(lambda length, size: length > size > 2 and length % size == size - 1),
    "more queries than keys": lambda case: any(n_q > n_k for n_q, n_k in packing.lengths(case)),
    "a shared page": lambda case: len(set(all_pages(case))) < len(all_pages(case)),
    "all pages shared": lambda case: any(
        len(first) > 1 and first == second for first, second in pairwise(used_pages(case))
    ),
    "pages out of order": lambda case: any(pages != sorted(pages) for pages in used_pages(case)),
    "an entry of -1": lambda case: -1 in garbage(case),
    "an entry out of range": lambda case: any(entry >= len(case["k_pages"]) for entry in garbage(case)),
    "somebody else's page": lambda case: any(entry in all_pages(case) for entry in garbage(case)),
    "a page that no sequence uses": lambda case: len(set(all_pages(case))) < len(case["k_pages"]),
    "ragged queries": lambda case: case["cu_q"] is not None and len(set(np.diff(case["cu_q"]))) > 1,
    "rows behind the last sequence": lambda case: case["cu_q"] is not None and len(case["q"]) > case["cu_q"][-1],
    "not causal": lambda case: case["causal"] is False,
}  # fmt: skip


def test_the_everyday_family_reaches_every_border_case():
    cases = drawn(number=200)
    assert [edge for edge, reaches in EDGES.items() if not any(map(reaches, cases))] == []
    assert {1, 3, 16, 24, 128} <= {case["k_pages"].shape[1] for case in cases}


@pytest.mark.parametrize(("values", "poison"), [("finite", 64.0), ("unread", np.nan)])
def test_slots_that_no_sequence_reads_hold_poison(values, poison):
    held = set()
    for case in drawn(number=30, conventions=Conventions(blocked_values=values)):
        unused = paging.unused_slots(case)
        for name in ("k_pages", "v_pages"):
            held |= set(case[name][unused].ravel().tolist())
            assert np.isfinite(case[name][~unused]).all()
    assert any(x == poison or (x != x and poison != poison) for x in held)
    assert (values == "finite") == bool(np.isfinite(list(held)).all())


@pytest.mark.parametrize(
    ("supports", "taken"),
    [
        ("ragged queries", lambda case: case["cu_q"] is not None),
        ("no padding rows", lambda case: not packing.has_padding(case)),
        ("valid table entries", lambda case: all(0 <= entry < len(case["k_pages"]) for entry in garbage(case))),
        ("causal only", lambda case: case["causal"] is None),
        ({"page_size": (16, 256)}, lambda case: case["k_pages"].shape[1] in (16, 256)),
        ({"n_q": (1,)}, lambda case: case["cu_q"] is None or all(n_q == 1 for n_q, _ in packing.lengths(case))),
        ({"n_k": (4, 8)}, lambda case: all(length in (4, 8) for length in case["lengths"])),
    ],
    ids=["ragged", "padding", "table", "causal", "page_size", "n_q", "n_k"],
)
def test_tables_are_those_that_an_adapter_declares(supports, taken):
    assert all(map(taken, drawn(number=30, supports=supports)))


CONVENTIONS = [
    {},
    {"page_layout": "heads_first", "blocked_values": "unread", "causal": "bottom_right", "kv_heads": "tile"},
    {"packed_lse": "rows_first", "padding_rows": "zero", "lse_base": "2", "dead_rows": "nan", "window": "count"},
]


@pytest.mark.parametrize("values", CONVENTIONS, ids=str)
def test_the_reference_passes_under_conventions(values):
    implementation = reference(Conventions(**values), supports=())
    laws = [law.id for law in LAWS if law.operation == PAGED]
    report = verify(implementation, laws=laws, max_examples=12)
    assert report.ok, report
    assert {outcome.status for outcome in report.outcomes} <= {"held", "not applicable"}


def test_known_bugs_are_killed_by_the_laws_that_they_name():
    own = [mutant for mutant in MUTANTS.values() if mutant.bug in GROUPS["paged"] and mutant.operation == PAGED]
    assert len(own) >= 26
    survivors = {mutant.id for mutant in own}
    for law in LAWS:
        named = [mutant.id for mutant in own if mutant.bug.law == law.name]
        if named and law.operation == PAGED:
            survivors -= kills_of(law.id, named).keys()
    assert survivors == set()


def test_pages_in_order_hold_the_same_keys():
    for case in drawn(number=12):
        keys = paging.gathered(case)
        for size in (1, 2, 7):
            ordered = paging.in_order(case, keys, size)
            again = paging.gathered(ordered)
            for one, other in zip(keys, again, strict=True):
                assert all(np.array_equal(x, y) for x, y in zip(one, other, strict=True))
            assert len(set(all_pages(ordered))) == len(all_pages(ordered))


def test_smaller_cases_have_tables_that_name_their_pages():
    for case in drawn(number=12):
        for smaller in fewer(case):
            packing.lengths(smaller)
            assert len(paging.gathered(smaller)) == len(smaller["lengths"])
            assert smaller["cu_q"] is not None or len(smaller["q"]) == len(smaller["lengths"])


SENTENCES = {
    "paged-last-page-read-whole": "Queries 0–1 of sequence 0 read slot 1 of its last page (beyond its length).",
    "paged-last-partial-page-is-lost": "Query 1 of sequence 0 misses key 4.",
    "paged-table-row-of-sequence-0": "Query 0 of sequence 1 reads page 4, slot 0 (of sequence 0) and page 5, slots 0–1 "
    "(of sequence 0) and misses keys 0–2.",
    "paged-empty-sequence-has-a-key": "With n_q 3, 3, 3 and n_k 2, 0, 4: queries 0–2 of sequence 1 read page 2, slot 0 "
    "(of sequence 0).",
    "paged-shared-prefix-counted-twice": "With n_q 2, 2 and n_k 4, 6: queries 0–1 of sequence 1 read the right keys, "
    "with weights from 0.1111 to 0.2222, should be from 0.1667 to 0.1667.",
    "paged-first-query-at-the-first-key": "Query 0 of sequence 0 misses keys 1–3.",
    "paged-position-below-0-is-0": "With n_q 3, 3, 3 and n_k 2, 0, 4: query 0 of sequence 0 reads masked key 0.",
}


@pytest.mark.parametrize("bug", SENTENCES)
def test_the_instrument_says_which_slots_a_query_reads(bug):
    mutant, said = MUTANTS[bug].implementation(), []
    cases = Cases(OPERATION, DOMAINS[PAGED]["operating points"], mutant)
    for seed in range(len(cases.fixed)):
        try:
            READS.hold(Subject(mutant, PAGED), READS.case(cases.draw(seed), seed))
        except BrokenError as broken:
            said.append(str(broken))
    assert any(sentences.startswith(SENTENCES[bug]) for sentences in said), said
