"""Packed sequences: the drawn lengths reach every border case, rows that no sequence uses hold poison, and
each known bug is killed by the law that it names.
"""

import numpy as np
import pytest

from oracles import FLOAT64, Conventions
from properties import verify
from properties.bugs import GROUPS
from properties.bugs.declared import under
from properties.bugs.mutants import MUTANTS
from properties.bugs.reference import REFERENCE
from properties.contract import packing
from properties.contract.implementation import Implementation
from properties.contract.operations import FEATURES, OPERATIONS
from properties.contract.results import BrokenError
from properties.contract.subject import Subject
from properties.laws import LAWS, find
from properties.strategies.cases import Cases, UnsupportedError
from properties.strategies.domains import DOMAINS
from properties.strategies.drawn_packings import fewer
from properties.tests.kills import kills_of

PACKED = ("packed_attention", "packed_attention_vjp")
AGREES = "attention over packed sequences is within its error limit"
FORWARD = OPERATIONS["packed_attention"]


def reference(conventions=None, **promises):
    conventions = conventions or Conventions()
    functions = {name: under(conventions, name, REFERENCE[name]) for name in (*PACKED, "attention")}
    return Implementation("NumPy", functions, features=FEATURES, conventions=conventions, **promises)


def drawn(domain, number=40, **promises):
    cases = Cases(FORWARD, DOMAINS["packed_attention"][domain], reference(**promises))
    return [FORWARD.named(cases.draw(seed)) for seed in range(number)]


EDGES = {
    "unequal lengths": lambda case, pairs: len(set(pairs)) > 1,
    "equal lengths": lambda case, pairs: len(pairs) > 1 and len(set(pairs)) == 1,
    "the first sequence is empty": lambda case, pairs: len(pairs) > 1 and pairs[0] == (0, 0),
    "one in the middle is empty": lambda case, pairs: (0, 0) in pairs[1:-1],
    "the last sequence is empty": lambda case, pairs: len(pairs) > 1 and pairs[-1] == (0, 0),
    "queries without keys": lambda case, pairs: any(n_q and not n_k for n_q, n_k in pairs),
    "keys without queries": lambda case, pairs: any(n_k and not n_q for n_q, n_k in pairs),
    "more queries than keys": lambda case, pairs: any(n_q > n_k > 0 for n_q, n_k in pairs),
    "rows behind the last sequence": lambda case, pairs: len(case["q"]) > case["cu_q"][-1],
    "unused keys between sequences": lambda case, pairs: (
        case["seqused_k"] is not None and (case["seqused_k"] < np.diff(case["cu_k"]))[:-1].any()
    ),
}


def test_the_everyday_family_reaches_every_border_case():
    cases = [(case, packing.lengths(case)) for case in drawn("everyday", 150)]
    assert [edge for edge, reaches in EDGES.items() if not any(reaches(*each) for each in cases)] == []
    assert sum(EDGES["unequal lengths"](*each) for each in cases) > len(cases) / 2


@pytest.mark.parametrize(("values", "poison"), [("finite", 64.0), ("unread", np.nan)])
def test_rows_that_no_sequence_uses_hold_poison(values, poison):
    held = set()
    for case in drawn("everyday", 30, conventions=Conventions(blocked_values=values)):
        unused = packing.padding(case)
        for name, axis in (("q", "total_q"), ("k", "total_k"), ("v", "total_k")):
            rows = case[name][unused[axis]]
            held |= set(rows.ravel().tolist())
            assert np.isfinite(case[name][~unused[axis]]).all()
    assert any(x == poison or (x != x and poison != poison) for x in held)
    assert (values == "finite") == bool(np.isfinite(list(held)).all())


@pytest.mark.parametrize(
    ("supports", "taken"),
    [
        ("self attention", lambda case: all(n_q == n_k for n_q, n_k in packing.lengths(case))),
        ("positive sizes", lambda case: all(min(pair) > 0 for pair in packing.lengths(case))),
        ("no padding rows", lambda case: not packing.has_padding(case)),
        ({"n_k": (4, 8)}, lambda case: all(n_k in (4, 8) for _, n_k in packing.lengths(case))),
        ({"sequences": (3,)}, lambda case: len(case["cu_q"]) == 4),
    ],
    ids=["self attention", "positive sizes", "no padding rows", "keys", "sequences"],
)
def test_lengths_are_those_that_an_adapter_declares(supports, taken):
    assert all(map(taken, drawn("everyday", 30, supports=supports)))


def test_an_adapter_without_a_length_for_a_family_has_no_case_of_it():
    with pytest.raises(UnsupportedError, match=r"^NumPy supports no lengths of sequences among \[5, 2, 9, 17\]\.$"):
        drawn("more queries than keys", supports={"n_q": (3,)})


CONVENTIONS = [
    {},
    {"causal": "bottom_right", "blocked_values": "unread", "max_seqlen": "bound"},
    {"packed_lse": "rows_first", "padding_rows": "zero", "lse_base": "2", "dead_rows": "nan"},
]


@pytest.mark.parametrize("values", CONVENTIONS, ids=str)
def test_the_reference_passes_under_conventions(values):
    implementation = reference(Conventions(**values), supports=())
    laws = [law.id for law in LAWS if law.operation in PACKED and law.operation in implementation.operations]
    report = verify(implementation, laws=laws, max_examples=12)
    assert report.ok, report
    assert {outcome.status for outcome in report.outcomes} <= {"held", "not applicable"}


@pytest.mark.parametrize("operation", PACKED)
def test_known_bugs_are_killed_by_the_laws_that_they_name(operation):
    own = [mutant for mutant in MUTANTS.values() if mutant.bug in GROUPS["packed"] and mutant.operation == operation]
    assert len(own) > 15
    survivors = {mutant.id for mutant in own}
    for law in LAWS:
        named = [mutant.id for mutant in own if mutant.bug.law == law.name]
        if named and law.operation == operation:
            survivors -= kills_of(law.id, named).keys()
    assert survivors == set()


def test_smaller_cases_are_packed_as_well():
    for case in drawn("used rows", 12):
        for smaller in fewer(FORWARD, case):
            for side, axis in packing.AXES.items():
                assert len(packing.rows_of(smaller, side)) <= len(packing.rows_of(case, side))
                assert smaller[f"cu_{side}"][-1] <= FORWARD.sizes(tuple(smaller.values()))[axis]
                assert smaller[f"max_seqlen_{side}"] >= max(map(len, packing.rows_of(smaller, side)), default=0)


def test_what_stands_in_rows_that_no_sequence_uses_is_not_judged():
    """Neither by agreement nor by the laws that call twice: such memory need not be written at all."""

    def leaves(name):
        def called(*arguments, **options):
            results = REFERENCE[name](*arguments, **options)
            given = FORWARD.named(FORWARD.arguments(arguments[:5], options))
            for axis, unused in packing.padding(given).items():
                for output, result in zip(OPERATIONS[name].returns, results, strict=True):
                    if axis in output.axes and result is not None:
                        result[(slice(None),) * output.axes.index(axis) + (unused,)] = next(garbage)
            return results

        return called

    garbage = iter(np.random.default_rng(0).standard_normal(10**6))
    laws = [f"{law}[{name}]" for name in PACKED for law in (AGREES, "a second call gives the same result")]

    def report(**values):
        functions = {name: leaves(name) for name in PACKED}
        mine = Implementation("mine", functions, features=FEATURES, supports=(), conventions=Conventions(**values))
        return verify(mine, laws=laws, max_examples=8)

    assert report().ok
    assert not report(padding_rows="zero").ok


def test_a_mutant_is_told_by_its_own_sentence():
    mutant = MUTANTS["packed-used-keys-ignored"].implementation()
    report = verify(mutant, laws=["rows that no sequence uses do not matter[packed_attention]"], max_examples=20)
    assert not report.ok
    assert "packed-used-keys-ignored" in str(report)


READS = {
    "packed-keys-by-the-boundaries-of-queries": (
        "Query 0 of sequence 0 misses keys 1–2. Queries 0–3 of sequence 1 read keys 1–2 of sequence 0 and miss keys "
        "2–5."
    ),
    "packed-first-key-of-the-next-sequence": "Query 0 of sequence 0 reads key 0 of sequence 1.",
    "packed-last-sequence-to-the-end-of-the-array": (
        "Queries 0–2 of sequence 1 read rows 7–8 of k, which no sequence uses."
    ),
    "packed-sequences-without-queries-removed": (
        "With n_q 2, 0, 3, 2 and n_k 3, 2, 0, 2: queries 0–2 of sequence 2 read keys 0–1 of sequence 1. "
        "Queries 0–1 of sequence 3 read no key."
    ),
    "packed-alignment-by-owned-rows": "Query 0 of sequence 0 reads masked key 2.",
    "packed-key-head-of-the-whole-grid": (
        "Queries 0–3 of sequence 1 in heads 0–1 of 4 read key head 1, should read key head 0. "
        "Queries 0–3 of sequence 1 in heads 2–3 of 4 read key head 0, should read key head 1."
    ),
    "packed-sink-of-the-first-sequence": (
        "Queries 0–3 of sequence 1 read the right keys, with weights that add up to 1, should be 0.6882."
    ),
}


@pytest.mark.parametrize("bug", READS)
def test_what_a_query_reads_is_told_by_its_sequence_and_its_place(bug):
    assert READS[bug] in readings(MUTANTS[bug].implementation())


def readings(implementation):
    """What the law of readings says at its points."""
    (law,) = find("each query of a sequence reads what it should")
    cases = Cases(FORWARD, DOMAINS["packed_attention"]["operating points"], implementation)
    said = []
    for number in range(len(cases.fixed)):
        try:
            law.hold(Subject(implementation, law.operation), law.case(cases.draw(number), 0))
        except BrokenError as broken:
            said.append(str(broken))
    return said


def test_the_reference_reads_what_it_should_at_every_point():
    assert readings(reference(supports=())) == []


def test_the_reference_is_within_the_budgets_of_float64():
    for domain in ("everyday", "decoding", "lengths far apart"):
        cases = Cases(FORWARD, DOMAINS["packed_attention"][domain], reference())
        for seed in range(6):
            arguments = cases.draw(seed)
            results = FORWARD.call(REFERENCE["packed_attention"], arguments)
            for result, enclosure in zip(results, FORWARD.expected(arguments, FLOAT64, Conventions()), strict=True):
                assert enclosure.contains(result).all()
