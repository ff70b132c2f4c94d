"""Packed sequences and keys in pages, measured as attention of one sequence."""

import re
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from oracles import Conventions
from properties.bugs.declared import under
from properties.bugs.reference import REFERENCE
from properties.contract.implementation import Implementation
from properties.contract.operations import OPERATIONS
from properties.inspection.measurements import measured
from properties.strategies.cases import Cases
from properties.strategies.domains import DOMAINS

PACKED, PAGED = "packed_attention", "paged_attention"
FEATURES = ("scale", "causal", "window", "softcap", "sink", "alibi")


def kernel(name, change=lambda options: options, factor=1.0, features=FEATURES, **conventions):
    """The reference with a changed scale or changed options."""
    declared = Conventions(**conventions)
    reference = under(declared, name, REFERENCE[name])
    function = lambda q, *arrays, **options: reference(factor * q, *arrays, **change(options))  # noqa: E731
    return Implementation("mine", {name: function}, features=features, conventions=declared)


def call(implementation, **options):
    """The arguments of a call with one sequence of three queries and seven keys, for four heads."""
    (name,) = implementation.operations
    random, rows = np.random.default_rng(0), {"q": (3, 4, 4), "k": (7, 2, 4), "v": (7, 2, 3)}
    q, k, v = (random.normal(size=shape) for shape in rows.values())
    pages = {"k_pages": np.pad(k, [(0, 1), (0, 0), (0, 0)]), "v_pages": np.pad(v, [(0, 1), (0, 0), (0, 0)])}
    given = {
        PACKED: {"q": q, "k": k, "v": v, "cu_q": np.array([0, 3], np.int32), "cu_k": np.array([0, 7], np.int32)},
        PAGED: {
            "q": q[None],
            **{page: x.reshape(2, 4, *x.shape[1:]) for page, x in pages.items()},
            "block_table": np.array([[0, 1]], np.int32),
            "lengths": np.array([7], np.int32),
        },
    }[name]
    return tuple((given | options).get(parameter) for parameter in OPERATIONS[name].parameters)


@pytest.mark.parametrize("name", [PACKED, PAGED])
def test_a_wrong_scale_is_told(name):
    wrong = kernel(name, factor=1.25)
    first, second = measured(wrong, name, call(wrong))
    assert first == "With one sequence, the scale of scores of 13 keys with head_dim 4 is 0.625, should be 0.5."
    assert second.startswith("With one sequence, with head_dim 6: the scale of scores of 19 keys")
    assert measured(wrong, name, call(wrong, sink=np.array([0.5, 1.0, 0.0, -1.0])))[0] == first


@pytest.mark.parametrize("name", [PACKED, PAGED])
def test_a_wrong_softcap_is_told(name):
    wrong = kernel(name, lambda options: options | {"softcap": options.get("softcap") and 2 * options["softcap"]})
    (said,) = measured(wrong, name, call(wrong, softcap=5.0))
    assert said == "With one sequence, with softcap=5, scores are capped as by softcap=10."


@pytest.mark.parametrize("name", [PACKED, PAGED])
@pytest.mark.parametrize(
    "promises",
    [{}, {"features": ("scale",)}, {"causal": "bottom_right"}, {"kv_heads": "tile"}, {"scale_default": "one"}],
    ids=str,
)
def test_no_sentence_is_about_a_right_kernel(name, promises):
    right = kernel(name, **promises)
    for options in ({}, {"causal": False}, {"causal": True}, {"window": (2, 0)}, {"scale": 0.25}):
        if options.keys() <= set(right.features):
            assert measured(right, name, call(right, **options)) == ()
    cases = Cases(OPERATIONS[name], DOMAINS[name]["everyday"], right)
    for seed in range(1, 9):
        assert measured(right, name, cases.draw(seed)) == ()


@pytest.mark.parametrize("name", [PACKED, PAGED])
@pytest.mark.parametrize("promises", [{"supports": "causal only"}, {"arithmetic": "bfloat16"}])
def test_a_restricted_kernel_is_measured_too(name, promises):
    promises = {"supports": (), **promises}
    wrong = kernel(name, factor=1.25)
    if "arithmetic" in promises:
        function = wrong.operations[name]
        wrong = replace(wrong, operations={name: lambda *arrays, **options: in_bfloat16(function, arrays, options)})
    wrong = replace(wrong, **promises)
    options = {"causal": True} if promises["supports"] == "causal only" else {}
    first, *_ = measured(wrong, name, call(wrong, **options))
    assert "the scale of scores of" in first
    assert re.search(r"is 0\.62\d*, should be 0\.5\.", first)


def in_bfloat16(function, arrays, options):
    """Results in bfloat16 and float32 of a function in float64."""
    wide = lambda x: np.asarray(x, np.float64) if getattr(x, "dtype", None) == ml_dtypes.bfloat16 else x  # noqa: E731
    out, lse = function(*map(wide, arrays), **{name: wide(x) for name, x in options.items()})
    return out.astype(ml_dtypes.bfloat16), lse.astype(np.float32)
