"""Which changes around a problem change the bits of its result."""

import numpy as np
import pytest

from oracles import Conventions
from properties.bugs.reference import REFERENCE
from properties.inspection.bits import Bits, bits, sentences_of_bits, with_long_sums
from properties.tests.instrument_calls import FORMATS, of, probed, rounded
from properties.tests.measured_kernels import scale_of
from properties.verifier.verify import verify

SDPA, ATTENTION = "scaled_dot_product_attention", "attention"
MEASURED = ("run to run", "batch size", "place in the batch", "padding", "chunked prefill")


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
    probe, shape = probed(of(SDPA, function, **promises))
    return bits(probe, with_long_sums(probe, shape))


def changed(measured):
    return [name for name, change in measured.changes.items() if change]


def test_a_kernel_of_rows_changes_no_bit():
    measured = found(by_rows)
    assert tuple(measured.changes) == MEASURED
    assert changed(measured) == []


@pytest.mark.parametrize(
    ("contract", "function"),
    [
        ("batch size", lambda q, k, v, mask=None: by_rows(q, k, v, mask, width=8 if q.shape[:-2] == (4,) else 1)),
        (
            "place in the batch",
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
        ("chunked prefill", lambda q, k, v, mask=None: by_rows(q, k, v, mask, width=8 if q.shape[-2] < 4 else 1)),
    ],
)
def test_a_change_of_bits_is_measured(contract, function):
    measured = found(function)
    assert changed(measured) == [contract]
    assert measured.changes[contract].differs.any()


def test_equal_calls_that_differ_are_told_of_a_kernel_that_is_declared_deterministic():
    calls = []

    def alternates(q, k, v, mask=None):
        calls.append(q)
        return by_rows(q, k, v, mask, width=1 + len(calls) % 2)

    measured = found(alternates)
    assert [*measured.changes] == changed(measured) == ["run to run"]
    said = ("Equal calls give different bits, but the implementation is declared deterministic.",)
    assert sentences_of_bits(measured) == said
    assert sentences_of_bits(found(alternates, deterministic=False)) == ()


def test_what_is_not_taken_is_not_measured():
    single = found(by_rows, supports=("no batch axes", "no masks", {"n_q": [5]}))
    assert single == Bits({"run to run": None}, is_deterministic=True)


@pytest.mark.parametrize("arithmetic", FORMATS)
@pytest.mark.parametrize("operation", [SDPA, "causal_attention", "grouped_query_attention", ATTENTION])
def test_no_sentence_is_about_a_right_kernel(operation, arithmetic):
    implementation = of(operation, rounded(REFERENCE[operation], FORMATS[arithmetic]), arithmetic)
    probe, shape = probed(implementation)
    assert sentences_of_bits(bits(probe, with_long_sums(probe, shape))) == ()
    assert probe.calls >= 52


@pytest.mark.parametrize("causal", ["top_left", "bottom_right"])
@pytest.mark.parametrize("width_of_one", [1, 8])
def test_the_last_query_alone_is_compared_with_a_causal_call(width_of_one, causal):
    """A kernel that adds up the values of one query in blocks of 8 decodes with other bits."""
    is_bottom_right = causal == "bottom_right"

    def attend(q, k, v, causal=None, offset=0, **options):
        n_q, n_k = q.shape[-2], k.shape[-2]
        first = n_k - n_q if is_bottom_right else offset
        mask = np.broadcast_to(np.arange(n_k) <= np.arange(n_q)[:, None] + first, (*q.shape[:-1], n_k))
        scores = np.where(mask, np.einsum("...id,...jd->...ij", q, k) * scale_of(q), -np.inf)
        return by_rows(q, k, v, mask, width=width_of_one if n_q == 1 else 1), np.log(np.exp(scores).sum(-1))

    probe, shape = probed(of(ATTENTION, attend, conventions=Conventions(causal=causal)))
    sizes = {"n_q": 32, "n_k": 32, "num_heads": 2, "kv_heads": 2}
    measured = bits(probe, shape.changed(probe.operation, **sizes), ["decode equals prefill"])
    assert changed(measured) == (["decode equals prefill"] if width_of_one > 1 else [])


@pytest.mark.parametrize(("declared", "fails"), [(("padding", "run to run"), False), (("padding", "batch size"), True)])
def test_a_declared_contract_is_checked_and_others_are_not(declared, fails):
    def by_batch(q, k, v, mask=None):
        return by_rows(q, k, v, mask, width=8 if q.shape[:-2] == (4,) else 1)

    verdict = verify(of(SDPA, by_batch, bits=declared), laws=["declared contracts in bits are kept"])
    assert verdict.ok is not fails
    if fails:
        said = str(verdict)
        assert ": 1 check fails: declared contracts in bits are kept\n" in said
        assert "in a batch of 4" in said
        assert "The adapter declares bits='batch size, padding'." in said


def test_no_contract_is_kept_if_equal_calls_differ():
    calls = []

    def alternates(q, k, v, mask=None):
        calls.append(q)
        return by_rows(q, k, v, mask, width=1 + len(calls) % 2)

    verdict = verify(of(SDPA, alternates, bits=["batch size"]), laws=["declared contracts in bits are kept"])
    assert not verdict.ok
    assert "in an equal call" in str(verdict)


def test_an_unknown_contract_is_refused_with_those_that_there_are():
    with pytest.raises(ValueError, match=r"Unknown contract in bits 'batch sizes'.*batch size"):
        of(SDPA, by_rows, bits=["batch sizes"])
