"""The implementations that come with attnspec keep every law, and backends of PyTorch are twins.

The tests draw a few inputs of each, and `make verify` draws many.
"""

from dataclasses import replace

import pytest

from properties import Twin, verify
from systems import (
    numpy_frequencies,
    numpy_tiled,
    torch_attention,
    torch_features,
    torch_frequencies,
    torch_sdpa_features,
)

SDPA = "scaled_dot_product_attention"
ROTATIONS = [*torch_frequencies.IMPLEMENTATIONS, *numpy_frequencies.IMPLEMENTATIONS]
FEATURED = [i for i in (*torch_sdpa_features.IMPLEMENTATIONS, *numpy_tiled.IMPLEMENTATIONS) if not i.unavailable]


@pytest.mark.parametrize(
    ("implementation", "examples", "seed"),
    [*((i, 8, 3) for i in ROTATIONS), *((i, 5, 7) for i in FEATURED)],
    ids=lambda x: getattr(x, "name", str(x)),
)
def test_an_implementation_keeps_every_law(implementation, examples, seed):
    report = verify(implementation, max_examples=examples, seed=seed)
    assert report.ok, report


@pytest.mark.parametrize("implementation", torch_features.IMPLEMENTATIONS, ids=lambda i: i.name)
def test_attention_by_autograd_keeps_every_law_and_few_say_nothing_of_it(implementation):
    report = verify(implementation, max_examples=20, seed=7)
    assert report.ok, report
    silent = {o.law for o in report.outcomes if o.operation == "attention" and o.status != "held"}
    assert silent <= {
        "unsupported sizes are refused",
        "an empty batch gives an empty result",
        "without queries the output is empty and gradients are 0",
        "all code paths of an implementation give the same result",
    }


def by_name(name):
    return next(i for i in torch_attention.IMPLEMENTATIONS if i.name == name)


@pytest.mark.parametrize(
    ("operation", "dtype"), [(SDPA, "float64"), (SDPA, "float32"), ("causal_attention", "float16")]
)
def test_backends_of_pytorch_are_twins(operation, dtype):
    math, flash = (by_name(f"torch {name} {dtype}") for name in ("math", "flash"))
    promises = {"arithmetic": flash.arithmetic, "batch_ranks": flash.batch_ranks, "supports": flash.supports}
    twin = Twin({operation: flash.operations[operation]}, promises=promises)
    i = replace(math, operations={operation: math.operations[operation]}, twins={"flash": twin})
    assert [
        o.status
        for o in verify(i, laws=["all code paths of an implementation give the same result"], max_examples=30).outcomes
    ] == ["held"]
