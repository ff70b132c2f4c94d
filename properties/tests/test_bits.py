"""Which changes around a problem change the bits of its result."""

from dataclasses import replace

import numpy as np
import pytest

from properties.bugs.reference import REFERENCE
from properties.inspection.bits import Bits, bits, sentences_of_bits
from properties.tests.instrument_calls import FORMATS, of, probed, rounded
from properties.tests.measured_kernels import scale_of

SDPA, ATTENTION = "scaled_dot_product_attention", "attention"
NOTHING = Bits(
    repetition=False,
    batch_size=False,
    place_in_batch=False,
    padding=False,
    chunks_of_queries=False,
    is_deterministic=True,
)


def by_rows(q, k, v, mask=None, width=1):
    """Attention of one query and a few keys after the other: nothing around a problem changes a bit."""
    out = np.zeros((*q.shape[:-1], v.shape[-1]))
    for index in np.ndindex(*q.shape[:-2]):
        for row, query in enumerate(q[index]):
            visible = np.flatnonzero(np.ones(k.shape[-2]) if mask is None else mask[index][row])
            scores = [(query * key).sum() * scale_of(q) for key in k[index]]
            largest = max((scores[key] for key in visible), default=0.0)
            weights = [np.exp(scores[key] - largest) for key in visible]
            total = sum(weights)
            for start in range(0, len(visible), width):
                part = slice(start, start + width)
                out[index][row] += sum(w * v[index][key] for w, key in zip(weights[part], visible[part], strict=True))
            out[index][row] /= total
    return out


def found(function, **promises):
    return bits(*probed(of(SDPA, function, **promises)))


def test_a_kernel_of_rows_changes_no_bit():
    assert found(by_rows) == NOTHING


@pytest.mark.parametrize(
    ("field", "function"),
    [
        ("batch_size", lambda q, k, v, mask=None: by_rows(q, k, v, mask, width=8 if q.shape[:-2] == (4,) else 1)),
        (
            "place_in_batch",
            lambda q, k, v, mask=None: (
                np.stack(
                    [
                        by_rows(*problem, width=8 if place == 3 else 1)
                        for place, problem in enumerate(zip(q, k, v, strict=True))
                    ]
                )
                if q.ndim == 3
                else by_rows(q, k, v, mask)
            ),
        ),
        ("padding", lambda q, k, v, mask=None: by_rows(q, k, v, mask, width=8 if k.shape[-2] > 64 else 1)),
        ("chunks_of_queries", lambda q, k, v, mask=None: by_rows(q, k, v, mask, width=8 if q.shape[-2] < 4 else 1)),
    ],
)
def test_a_change_of_bits_is_measured(field, function):
    assert found(function) == replace(NOTHING, **{field: True})


def test_equal_calls_that_differ_are_told_of_a_kernel_that_is_declared_deterministic():
    calls = []

    def alternates(q, k, v, mask=None):
        calls.append(q)
        return by_rows(q, k, v, mask, width=1 + len(calls) % 2)

    measured = found(alternates)
    assert measured == Bits(True, None, None, None, None, True)
    said = ("Equal calls give different bits, but the implementation is declared deterministic.",)
    assert sentences_of_bits(measured) == said
    assert sentences_of_bits(found(alternates, deterministic=False)) == ()


def test_what_is_not_taken_is_not_measured():
    single = found(by_rows, supports=("no batch axes", "no masks", {"n_q": [5]}))
    assert single == Bits(False, None, None, None, None, True)


@pytest.mark.parametrize("arithmetic", FORMATS)
@pytest.mark.parametrize("operation", [SDPA, "causal_attention", "grouped_query_attention", ATTENTION])
def test_no_sentence_is_about_a_right_kernel(operation, arithmetic):
    implementation = of(operation, rounded(REFERENCE[operation], FORMATS[arithmetic]), arithmetic)
    probe, shape = probed(implementation)
    assert sentences_of_bits(bits(probe, shape)) == ()
    assert probe.calls >= 52
