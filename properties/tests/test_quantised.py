"""Codes and scales in the calls of a kernel, and what attnspec says of a wrong scale."""

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from oracles import Conventions
from oracles.formats import GRIDS
from properties import verify
from properties.bugs.declared import under
from properties.bugs.reference import REFERENCE
from properties.contract.caller import Caller
from properties.contract.features import ATTENTION, QUANTISED
from properties.contract.implementation import Implementation
from properties.contract.operations import OPERATIONS
from properties.inspection.probe import Probe
from properties.inspection.scales import sentences_of_scales
from properties.inspection.shapes import Shape
from properties.strategies.cases import Cases
from properties.strategies.choices import Choices
from properties.strategies.domains import DOMAINS

OPERATION = OPERATIONS["attention"]
SIZES = {"num_heads": 4, "kv_heads": 2, "n_q": 3, "n_k": 5, "head_dim": 32, "value_dim": 32}
SHAPES = {
    "tensor": [(), (), ()],
    "head": [(2, 2), (2, 2), (2, 2)],
    "token": [(2, 4, 3), (2, 2, 5), (2, 2, 5)],
    "block16": [(2, 4, 3, 2), (2, 2, 5, 2), (2, 2, 5, 2)],
    "block32": [(2, 4, 3, 1), (2, 2, 5, 1), (2, 2, 5, 1)],
}
FEATURES = (*ATTENTION, *QUANTISED)
BATCH, OF_BLOCK = "batch element", "the k_scale of the block"
Change = Callable[[dict[str, Any]], dict[str, Any]]
Said = tuple[str, ...]


def quantised(arithmetic: str, change: Change = dict, name: str = "mine", **conventions: Any) -> Implementation:
    """The reference with codes, whose options are changed by a function."""
    meant = Conventions(**conventions)

    def attention(q: Any, k: Any, v: Any, **options: Any) -> Any:
        return REFERENCE["attention"](q, k, v, **change(options))

    functions = {"attention": under(meant, "attention", attention)}
    return Implementation(name, functions, arithmetic, meant, features=FEATURES, supports=())


def drawn(implementation: Implementation, seeds: range) -> list[dict[str, Any]]:
    """Everyday cases with codes, by the names of the arguments."""
    cases = Cases(OPERATION, DOMAINS["attention"]["everyday"], implementation)
    return [OPERATION.named(cases.draw(seed)) for seed in seeds]


@pytest.mark.parametrize("scale_shape", SHAPES)
@pytest.mark.parametrize("grid", ["e4m3", "int4"])
def test_codes_have_the_type_of_their_grid_and_scales_the_declared_shape(scale_shape: str, grid: str) -> None:
    kernel = quantised(f"float64-{grid}", scale_shape=scale_shape)
    cases = Cases(OPERATION, DOMAINS["attention"]["everyday"], kernel)
    arguments = cases.of_sizes(SIZES, (2,), Choices(3))
    given = OPERATION.named(Caller(kernel, "attention").given(OPERATION, arguments))
    assert [given[name].dtype.name for name in "qkv"] == [GRIDS[grid].name] * 3
    assert [given[name].shape for name in QUANTISED] == SHAPES[scale_shape]
    assert {given[name].dtype for name in QUANTISED} == {np.dtype(np.float32)}


def test_drawn_codes_and_scales_reach_their_edges() -> None:
    cases = drawn(quantised("float64-int4", scale_shape="token"), range(1, 60))
    codes = [case[name] for case in cases for name in "qkv" if case[name].size]
    assert {float(x.max()) for x in codes} >= {7.0}
    assert {float(x.min()) for x in codes} >= {-8.0}
    assert any((x == 0).all(-1).any() for x in codes)
    scales = [case[name] for case in cases for name in QUANTISED if case[name].size]
    assert all((x > 0).all() and (x.astype(np.float32) == x).all() for x in scales)
    assert max(x.max() / x.min() for x in scales) > 2.0**12
    assert any((np.frexp(x)[0] != 0.5).any() for x in scales)


def test_queries_outside_a_grid_have_no_scale() -> None:
    kernel = quantised("float64-e4m3-cache", scale_shape="head")
    assert all(case["q_scale"] is None for case in drawn(kernel, range(1, 6)))
    assert kernel.lacks("q_scale") == "Its arithmetic has no grid for q_scale."
    assert not kernel.lacks("k_scale", "v_scale")


def test_without_a_grid_no_scale_is_passed() -> None:
    kernel = quantised("float64")
    assert {case[name] is None for case in drawn(kernel, range(1, 12)) for name in QUANTISED} == {True}
    assert kernel.lacks("k_scale") == "Its arithmetic has no grid for k_scale."


def test_a_call_outside_the_grid_or_with_scales_that_should_be_shared_is_not_taken() -> None:
    kernel = quantised("float64-int8", scale_shape="head")
    arrays = np.ones((2, 1, 4)), np.ones((2, 3, 4)), np.ones((2, 3, 4))
    scales = {name: np.full((2, 1, 1), 0.5) for name in QUANTISED}
    assert kernel.takes(OPERATION, OPERATION.arguments(arrays, scales))
    assert not kernel.takes(OPERATION, OPERATION.arguments((arrays[0] / 2, *arrays[1:]), scales))
    of_tokens = scales | {"k_scale": np.array([0.5, 0.25, 0.5]).reshape(1, 3, 1)}
    assert not kernel.takes(OPERATION, OPERATION.arguments(arrays, of_tokens))


def changed(name: str, change: Callable[[Any], Any]) -> Change:
    """The function that changes one option."""
    return lambda options: {**options, name: change(options[name])}


@pytest.mark.parametrize(
    ("scale_shape", "change", "said"),
    [
        ("head", lambda options: options, ()),
        ("tensor", changed("v_scale", np.ones_like), ("v_scale is not applied.",)),
        ("tensor", changed("k_scale", lambda x: x * x), ("k_scale is applied twice.",)),
        ("head", changed("k_scale", lambda x: 1 / x), ("k_scale is applied inversely.",)),
        ("head", changed("k_scale", lambda x: 0 * x + x[:, :1]), ("The k_scale of head 0 is used for all heads.",)),
        (
            "head",
            changed("v_scale", lambda x: 0 * x + x[:1]),
            ("The v_scale of the first batch element is used for all.",),
        ),
        ("token", changed("v_scale", lambda x: np.roll(x, 1, -1)), ("Each row has the v_scale of the row before it.",)),
        (
            "block16",
            changed("k_scale", lambda x: x[..., ::-1]),
            ("Each block has the k_scale of the block before it.",),
        ),
        (
            "head",
            lambda options: options | {"k_scale": options["v_scale"], "v_scale": options["k_scale"]},
            ("k_scale and v_scale are exchanged.",),
        ),
        ("head", changed("k_scale", lambda x: x * 1.5), ()),
    ],
)
def test_a_wrong_scale_is_named_if_it_explains_all_results(
    scale_shape: str, change: Change, said: tuple[str, ...]
) -> None:
    kernel = quantised("float64-e4m3", change, scale_shape=scale_shape)
    probe = Probe(Caller(kernel, "attention"), 5)
    assert sentences_of_scales(probe, Shape(SIZES, (2,))) == said


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("arithmetic", "conventions"),
    [
        ("float64-e4m3", {"scale_shape": "tensor", "fp8_scale": "divide"}),
        ("float64-int8", {"scale_shape": "token"}),
        ("float64-e4m3-cache", {"scale_shape": "head"}),
        ("float64-e2m1", {"scale_shape": "block16"}),
    ],
)
def test_the_reference_with_codes_keeps_every_law(arithmetic: str, conventions: dict[str, Any]) -> None:
    report = verify(quantised(arithmetic, **conventions), max_examples=10, seed=1)
    assert report.ok, report


def test_the_types_of_grids_are_those_of_ml_dtypes() -> None:
    names = [grid.name for grid in GRIDS.values() if grid.name != "int8"]
    assert all(np.dtype(getattr(ml_dtypes, name)).name == name for name in names)
