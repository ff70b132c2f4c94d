"""Kernels get one array twice, expanded arrays and arrays in one buffer as such."""

import numpy as np
import pytest

from properties import Implementation
from properties.bugs.reference import REFERENCE
from properties.contract.caller import Caller
from properties.contract.operations import FEATURES, OPERATIONS
from properties.laws import find
from properties.strategies.cases import Cases
from properties.strategies.domains import DOMAINS
from properties.strategies.memory import calls_in_memory
from properties.verifier.replay import call
from properties.verifier.verify import examine

SDPA = "scaled_dot_product_attention"
LAW = "arguments that share memory are read as copies"
X = np.arange(24.0).reshape(2, 3, 4)


def given(layout, arrays="numpy", **case):
    """The arrays of a call of scaled dot-product attention, as a kernel gets them."""
    implementation = Implementation("mine", {SDPA: REFERENCE[SDPA]}, arrays=arrays)
    arguments = tuple({"q": X, "k": X + 1, "v": X + 2, "mask": None, **case}.values())
    return Caller(implementation, SDPA).given(OPERATIONS[SDPA], arguments, layout)


@pytest.mark.parametrize("arrays", ["numpy", "torch"])
def test_equal_arrays_are_one_object_if_they_are_aliased(arrays):
    if arrays == "torch":
        pytest.importorskip("torch")
    q, k, v, _ = given("aliased", arrays, k=X)
    assert q is k
    assert k is not v
    q, k, *_ = given("contiguous", arrays, k=X)
    assert q is not k


@pytest.mark.parametrize("arrays", ["numpy", "torch"])
def test_arrays_of_one_shape_are_views_of_one_buffer_if_they_are_packed(arrays):
    if arrays == "torch":
        pytest.importorskip("torch")
    q, k, v, _ = given("packed", arrays)
    strides = [x.stride() if arrays == "torch" else tuple(s // x.itemsize for s in x.strides) for x in (q, k, v)]
    assert strides == [(36, 12, 1)] * 3
    assert [np.asarray(x).tolist() for x in (q, k, v)] == [X.tolist(), (X + 1).tolist(), (X + 2).tolist()]


@pytest.mark.parametrize("arrays", ["numpy", "torch"])
def test_a_repeated_axis_of_an_expanded_array_has_a_stride_of_0(arrays):
    if arrays == "torch":
        pytest.importorskip("torch")
    repeated = np.repeat(X[:1], 2, 0)
    _, k, v, _ = given("expanded k", arrays, k=repeated)
    for x, batch in ((k, 0), (v, 12)):
        stride = x.stride()[0] if arrays == "torch" else x.strides[0] // x.itemsize
        assert stride == batch
    assert np.asarray(k).tolist() == repeated.tolist()


def test_a_call_can_be_made_again_in_shared_memory():
    seen = []

    def attention(q, k, v, mask=None):
        seen.append(q is k and k is v)
        return REFERENCE[SDPA](q, k, v, mask)

    mine = Implementation("mine", {SDPA: attention}, supports=())
    call(SDPA, mine, q=X, k=X, v=X, mask=None, layout="aliased")
    call(SDPA, mine, q=X, k=X, v=X, mask=None)
    assert seen == [True, False]


def test_the_calls_share_memory_in_every_way():
    implementation = Implementation("mine", REFERENCE, features=FEATURES)
    cases = Cases(OPERATIONS[SDPA], DOMAINS[SDPA]["shared memory"], implementation)
    words = [words for words, *_ in calls_in_memory(OPERATIONS[SDPA], implementation, cases.draw(0))]
    expected = (
        *("q and k as one array", "q and v as one array", "k and v as one array", "q, k and v as one array"),
        *("arrays of one shape in one buffer", "transposed k", "reversed v", "read-only q"),
        *("k expanded along axis 0", "k expanded along axis 1"),
    )
    assert set(expected) <= set(words)


def test_a_kernel_without_layouts_gets_contiguous_arrays_only():
    def attention(q, k, v, mask=None):
        assert all(x.flags.c_contiguous and x.flags.writeable for x in (q, k, v))
        return REFERENCE[SDPA](q, k, v, mask)

    (law,) = find(f"{LAW}[{SDPA}]")
    (outcome,) = examine([law], Implementation("mine", {SDPA: attention}, layouts=()), 10, 0)
    assert outcome.status == "held", outcome.violation


def test_a_kernel_that_raises_for_one_array_is_wrong():
    def attention(q, k, v, mask=None):
        if q is k:
            raise ValueError("q and k overlap")
        return REFERENCE[SDPA](q, k, v, mask)

    (law,) = find(f"{LAW}[{SDPA}]")
    (outcome,) = examine([law], Implementation("mine", {SDPA: attention}, supports=()), 10, 0)
    assert outcome.violation.summary == "with q and k as one array, it raised ValueError: q and k overlap"
