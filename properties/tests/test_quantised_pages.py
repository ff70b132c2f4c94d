"""Codes in pages and their scales in the calls of a kernel: shapes, poison, and laws."""

from typing import Any

import numpy as np
import pytest

from oracles import Conventions
from properties import verify
from properties.bugs.declared import under
from properties.bugs.reference import REFERENCE
from properties.contract.caller import Caller
from properties.contract.features import ATTENTION, PAGED, QUANTISED
from properties.contract.implementation import Implementation
from properties.contract.operations import OPERATIONS
from properties.contract.paging import gathered, in_order, unused_slots
from properties.strategies.cases import Cases
from properties.strategies.domains import DOMAINS

OPERATION = OPERATIONS["paged_attention"]
KINDS = ["tensor", "head", "token", "block16"]


def kernel(arithmetic: str, function: Any = REFERENCE["paged_attention"], **conventions: Any) -> Implementation:
    """A kernel over pages that takes scales."""
    meant = Conventions(**conventions)
    functions = {"paged_attention": under(meant, "paged_attention", function)}
    features = (*(name for name in ATTENTION if name in OPERATION.options), *PAGED, *QUANTISED)
    return Implementation("mine", functions, arithmetic, meant, features=features, supports=())


def drawn(implementation: Implementation, seeds: range = range(1, 12)) -> list[dict[str, Any]]:
    cases = Cases(OPERATION, DOMAINS["paged_attention"]["everyday"], implementation)
    return [OPERATION.named(cases.draw(seed)) for seed in seeds]


@pytest.mark.parametrize("layout", ["slots_first", "heads_first"])
@pytest.mark.parametrize("kind", KINDS)
def test_scales_have_the_declared_shape_in_the_layout_of_pages(kind: str, layout: str) -> None:
    mine = kernel("float64-int8", scale_shape=kind, page_layout=layout)
    for case in drawn(mine):
        given = OPERATION.named(Caller(mine, "paged_attention").given(OPERATION, tuple(case.values())))
        for name in QUANTISED:
            codes = given["q" if name == "q_scale" else f"{name[0]}_pages"]
            shapes = {
                "tensor": (),
                "head": (len(case["lengths"]), case["k_pages"].shape[2]),
                "token": codes.shape[:-1],
                "block16": (*codes.shape[:-1], codes.shape[-1] // 16),
            }
            assert given[name].shape == shapes[kind]
            assert mine.takes(OPERATION, tuple(case.values()))


def test_scales_of_unused_slots_are_poisoned_and_codes_stay_on_their_grid() -> None:
    cases = drawn(kernel("float64-int4", scale_shape="token", blocked_values="unread"))
    unused = [case["k_scale"][unused_slots(case)] for case in cases]
    assert any(x.size for x in unused)
    assert all(np.isnan(x).all() for x in unused)
    assert all(abs(case["k_pages"]).max(initial=0) <= 8 for case in cases)


def test_scales_of_slots_move_with_their_codes() -> None:
    for case in drawn(kernel("float64-int8", scale_shape="token")):
        keys = gathered(case)
        for one, other in zip(keys, gathered(in_order(case, keys, 3)), strict=True):
            assert len(one) == 4
            assert all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize(
    ("arithmetic", "conventions"),
    [
        ("float64-e4m3", {"scale_shape": "tensor", "fp8_scale": "divide"}),
        ("float64-int8", {"scale_shape": "head"}),
        ("float64-e4m3-cache", {"scale_shape": "token", "page_layout": "heads_first"}),
        ("float64-e2m1", {"scale_shape": "block16"}),
    ],
)
def test_the_reference_with_codes_in_pages_keeps_every_law(arithmetic: str, conventions: dict[str, Any]) -> None:
    report = verify(kernel(arithmetic, **conventions), max_examples=4, seed=1)
    assert report.ok, report
