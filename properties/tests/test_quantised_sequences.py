"""Codes and their scales in packed sequences and in pages: shapes, poison, smaller cases, and laws."""

from typing import Any

import numpy as np
import pytest

from oracles import Conventions
from properties import verify
from properties.bugs.declared import under
from properties.bugs.reference import REFERENCE
from properties.contract import packing
from properties.contract.caller import Caller
from properties.contract.features import QUANTISED
from properties.contract.implementation import Implementation
from properties.contract.operations import FEATURES, OPERATIONS
from properties.contract.paging import gathered, in_order, unused_slots
from properties.contract.quantising import codes_of
from properties.laws import LAWS
from properties.strategies import drawn_packings, drawn_pages
from properties.strategies.axes import along, movable
from properties.strategies.cases import Cases
from properties.strategies.domains import DOMAINS
from properties.verifier.shrinking import simpler

PACKED, PAGED = "packed_attention", "paged_attention"
BOTH = pytest.mark.parametrize("name", [PACKED, PAGED])
KINDS = ["tensor", "head", "token", "block16"]
EVERY_KIND = pytest.mark.parametrize("kind", KINDS)
Case = dict[str, Any]


def kernel(name: str, arithmetic: str, **conventions: Any) -> Implementation:
    """A kernel over sequences that takes scales, and attention that takes them too."""
    meant = Conventions(**conventions)
    functions = {each: under(meant, each, REFERENCE[each]) for each in (name, "attention")}
    return Implementation("mine", functions, arithmetic, meant, features=FEATURES, supports=())


def drawn(name: str, implementation: Implementation, seeds: range = range(1, 12)) -> list[Case]:
    cases = Cases(OPERATIONS[name], DOMAINS[name]["everyday"], implementation)
    return [OPERATIONS[name].named(cases.draw(seed)) for seed in seeds]


@BOTH
@pytest.mark.parametrize("layout", ["slots_first", "heads_first"])
@EVERY_KIND
def test_scales_have_the_declared_shape_in_the_layout_of_pages(name: str, kind: str, layout: str) -> None:
    mine, operation = kernel(name, "float64-int8", scale_shape=kind, page_layout=layout), OPERATIONS[name]
    for case in drawn(name, mine):
        given = operation.named(Caller(mine, name).given(operation, tuple(case.values())))
        for scale in QUANTISED:
            codes = codes_of(given, scale)
            shapes = {
                "tensor": (),
                "head": (len(packing.lengths(case)), codes_of(case, "k").shape[-2]),
                "token": codes.shape[:-1],
                "block16": (*codes.shape[:-1], codes.shape[-1] // 16),
            }
            assert given[scale].shape == shapes[kind]
            assert mine.takes(operation, tuple(case.values()))


@pytest.mark.parametrize("kind", ["token", "block16"])
def test_scales_of_unused_slots_are_poisoned_and_codes_stay_on_their_grid(kind: str) -> None:
    cases = drawn(PAGED, kernel(PAGED, "float64-int4", scale_shape=kind, blocked_values="unread"))
    unused = [case["k_scale"][unused_slots(case)] for case in cases]
    assert any(x.size for x in unused)
    assert all(np.isnan(x).all() for x in unused)
    assert all(abs(case["k_pages"]).max(initial=0) <= 8 for case in cases)


@pytest.mark.parametrize("kind", ["token", "block16"])
def test_scales_of_unused_rows_are_poisoned_and_codes_stay_on_their_grid(kind: str) -> None:
    cases = drawn(PACKED, kernel(PACKED, "float64-int4", scale_shape=kind, blocked_values="unread"), range(1, 40))
    for side, axis in packing.AXES.items():
        unused = [case[f"{side}_scale"][packing.padding(case)[axis]] for case in cases]
        assert any(x.size for x in unused)
        assert all(np.isnan(x).all() for x in unused)
        assert all(abs(case[side]).max(initial=0) <= 8 for case in cases)


@BOTH
def test_scales_of_unused_entries_are_numbers_for_a_kernel_that_may_read_them(name: str) -> None:
    cases = drawn(name, kernel(name, "float64-e2m1", scale_shape="token"), range(1, 40))
    assert {64.0} < {float(x) for case in cases for x in case["k_scale"].ravel()}
    assert all(np.isfinite(case["k_scale"]).all() for case in cases)
    assert all(abs(codes_of(case, "k")).max(initial=0) <= 6 for case in cases)


def test_scales_of_slots_move_with_their_codes() -> None:
    for case in drawn(PAGED, kernel(PAGED, "float64-int8", scale_shape="token")):
        keys = gathered(case)
        for one, other in zip(keys, gathered(in_order(case, keys, 3)), strict=True):
            assert len(one) == 4
            assert all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


@BOTH
@EVERY_KIND
def test_smaller_cases_keep_the_scales_of_their_sequences(name: str, kind: str) -> None:
    """Of the sequences that are left, each has arrays and scales that a sequence had before."""
    mine, operation = kernel(name, "float64-int8", scale_shape=kind), OPERATIONS[name]
    for case in drawn(name, mine, range(2, 4)):
        before = [of_keys(case, b) for b in range(len(packing.lengths(case)))]
        fewer = drawn_packings.fewer(operation, case) if name == PACKED else drawn_pages.fewer(case)
        for smaller in fewer:
            assert mine.takes(operation, tuple(smaller.values()))
            for b in range(len(packing.lengths(smaller))):
                own = of_keys(smaller, b)
                assert any(is_start(own, earlier) for earlier in before)
        assert all(mine.takes(operation, tuple(each.values())) for each in simpler(operation, case, mine))
        for axis, size in movable(operation, case).items():
            along(operation, case, axis, range(size // 2))


def of_keys(case: Case, sequence: int) -> tuple[Any, Any]:
    """The codes and the scales of the keys of a sequence, with all axes, keys first."""
    arrays = packing.of_sequence(case, sequence, Conventions())
    return tuple(np.broadcast_to(arrays[name], arrays["k"].shape).swapaxes(0, 1) for name in ("k", "k_scale"))


def is_start(one: tuple[Any, Any], other: tuple[Any, Any]) -> bool:
    return all(len(a) <= len(b) and np.array_equal(a, b[: len(a)]) for a, b in zip(one, other, strict=True))


EACH_SHAPE = [
    ("float64-e4m3", {"scale_shape": "tensor", "fp8_scale": "divide"}),
    ("float64-int4", {"scale_shape": "head", "kv_heads": "tile", "blocked_values": "unread"}),
    ("float64-e4m3-cache", {"scale_shape": "token", "page_layout": "heads_first"}),
    ("float64-e2m1", {"scale_shape": "block16", "blocked_values": "unread", "fp8_scale": "divide"}),
]
COMPARED = {
    PACKED: ["sequences of equal lengths equal a batch of attention"],
    PAGED: [
        "pages give the same as attention on gathered keys",
        "a query with one key returns its value",
        "the content of unused slots does not matter",
    ],
}
"""Laws that compare with numbers or with attention, and so need the scales of a sequence."""


@BOTH
@pytest.mark.parametrize(("arithmetic", "conventions"), EACH_SHAPE)
def test_the_reference_with_codes_keeps_every_law(name: str, arithmetic: str, conventions: dict[str, Any]) -> None:
    laws = [law.id for law in LAWS if law.operation == name]
    report = verify(kernel(name, arithmetic, **conventions), laws=laws, max_examples=3, seed=1)
    assert report.ok, report
    status = {outcome.law.partition("[")[0]: outcome.status for outcome in report.outcomes}
    assert {status[law] for law in COMPARED[name]} == {"held"}
    is_of_all = conventions["scale_shape"] == "tensor"
    assert status["scales of zero codes do not matter"] == ("not applicable" if is_of_all else "held")
