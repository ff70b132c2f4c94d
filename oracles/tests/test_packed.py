"""Packed attention: its certified values contain those of the definition, its budgets are those of
attention on each sequence, and a wrong packing is refused before any work.
"""

import re

import flint
import numpy as np
import pytest
from hypothesis import given, settings

import oracles
from oracles import Conventions
from spec import ARB
from spec.extended.packed import packed_attention, packed_attention_vjp
from spec.tensor_core import tensor
from spec.tests.cases import MODERATE
from spec.tests.extended_cases import packed

RIGHT = Conventions(causal="bottom_right")


def drawn(*shape, seed=0):
    return np.random.default_rng(seed).integers(-16, 17, shape) / 16.0


def swapped(x):
    return np.swapaxes(x, 0, 1)


def meets(enclosure, exact):
    """Whether the ball of each number, of 113 bits, meets its interval. An infinite radius contains all numbers."""
    return all(
        np.isinf(rad) or (np.isneginf(mid) and ARB.is_neg_inf(x)) or flint.arb(mid, rad).overlaps(x)
        for mid, rad, x in zip(enclosure.mid.flat, enclosure.rad.flat, exact.flat, strict=True)
    )


@given(case=packed(MODERATE, cotangents=True))
@settings(max_examples=40)
def test_certified_values_contain_the_definition_s(case):
    options = {"method": "arb" if case["causal"] else "auto", "conventions": Conventions(causal=case["alignment"])}
    exact = {name: tensor(x, ARB) if getattr(x, "dtype", None) == np.float64 else x for name, x in case.items()}
    cotangents = {name: (case.pop(name), exact.pop(name)) for name in ("grad_out", "grad_lse")}
    case.pop("alignment")
    found = oracles.packed_attention(**case, **options)
    found += oracles.packed_attention_vjp(**case, **{name: x for name, (x, _) in cotangents.items()}, **options)
    with flint.ctx.workprec(113):
        values = packed_attention(**exact, scalar=ARB)
        values += packed_attention_vjp(**exact, **{name: x for name, (_, x) in cotangents.items()}, scalar=ARB)
        for enclosure, value in zip(found, values, strict=True):
            assert (enclosure is None) == (value is None)
            assert enclosure is None or meets(enclosure, value)


@pytest.mark.parametrize("arithmetic", [None, "float32", "bfloat16-tensor-core"])
def test_sequences_of_equal_lengths_have_the_budgets_of_a_batch(arithmetic):
    q, k, v, g, of_lse = drawn(6, 4, 2), drawn(8, 2, 2), drawn(8, 2, 3), drawn(6, 4, 3), drawn(4, 6)
    options = {"causal": True, "window": (2, 1), "softcap": 2.0, "sink": drawn(4), "arithmetic": arithmetic}
    cu = [0, 3, 6], [0, 4, 8]
    batch = [np.swapaxes(x.reshape(2, -1, *x.shape[1:]), 1, 2) for x in (q, k, v, g)]
    batch_of_lse = swapped(of_lse.reshape(4, 2, 3))
    found = oracles.packed_attention(q, k, v, *cu, **options, conventions=RIGHT)
    found += oracles.packed_attention_vjp(q, k, v, *cu, g, grad_lse=of_lse, **options, conventions=RIGHT)
    expected = oracles.attention(*batch[:3], **options, conventions=RIGHT)
    expected += oracles.attention_vjp(*batch, batch_of_lse, **options, conventions=RIGHT)
    for mine, other in zip(found, [x for x in expected if x is not None], strict=True):
        of_lse_alone = mine.mid.ndim == 2
        for one, batched in ((mine.mid, other.mid), (mine.rad, other.rad)):
            rows = batched if mine.mid.ndim == 1 else np.swapaxes(batched, 1, 2).reshape(-1, *one.shape[1:])
            flat = np.swapaxes(batched, 0, 1).reshape(one.shape) if of_lse_alone else rows
            assert np.array_equal(one, flat)
        assert (mine.format, mine.vacuous, mine.judged) == (other.format, other.vacuous, other.judged)


def test_the_gradient_of_the_sinks_is_one_sum_over_all_sequences():
    """Its budget is at least that of each part, and of the roundings of a sum over all rows."""
    q, k, v, g, sink = drawn(40, 1, 2), drawn(40, 1, 2), drawn(40, 1, 2), drawn(40, 1, 2), drawn(1)
    given_all = {"sink": sink, "arithmetic": "float32"}
    *_, ragged = oracles.packed_attention_vjp(q, k, v, [0, 1, 8, 40], [0, 2, 9, 40], g, **given_all)
    parts = [
        oracles.packed_attention_vjp(q[a:b], k[c:d], v[c:d], [0, b - a], [0, d - c], g[a:b], **given_all)[3]
        for a, b, c, d in ((0, 1, 0, 2), (1, 8, 2, 9), (8, 40, 9, 40))
    ]
    assert abs(ragged.mid - sum(x.mid for x in parts)) < 1e-12
    assert ragged.rad > max(x.rad for x in parts)


def test_rows_that_no_sequence_uses_are_not_read_and_may_hold_anything():
    q, k, v = drawn(5, 2, 2), drawn(6, 1, 2), drawn(6, 1, 2)
    bad_q, bad_k, bad_v, grad_out = q.copy(), k.copy(), v.copy(), drawn(5, 2, 2)
    used = {"cu_q": np.array([0, 2, 4], np.int32), "cu_k": [0, 3, 5], "seqused_q": [1, 2], "seqused_k": [2, 0]}
    for x in (bad_q, grad_out):
        x[[1, 4]] = np.nan
    for x in (bad_k, bad_v):
        x[[2, 3, 4, 5]] = np.nan
    out, lse = oracles.packed_attention(bad_q, bad_k, bad_v, **used)
    plain, _ = oracles.packed_attention(q, k, v, **used)
    assert np.array_equal(out.mid, plain.mid, equal_nan=True)
    assert np.isinf(out.rad).any(axis=(1, 2)).tolist() == [False, True, False, False, True]
    assert np.isinf(lse.rad).any(axis=0).tolist() == [False, True, False, False, True]
    assert out.contains(np.where(np.isinf(out.rad), 1e30, out.mid)).all()
    zero = Conventions(padding_rows="zero")
    dq, dk, dv, _ = oracles.packed_attention_vjp(bad_q, bad_k, bad_v, **used, grad_out=grad_out, conventions=zero)
    assert not dq.mid[[1, 4]].any()
    assert all(not x.mid[2:].any() and not x.rad[2:].any() for x in (dk, dv))


def test_a_log_sum_exp_may_have_its_rows_first():
    q, k, v, cu = drawn(3, 2, 2), drawn(4, 2, 2), drawn(4, 2, 2), ([0, 1, 3], [0, 2, 4])
    rows_first, of_lse = Conventions(packed_lse="rows_first"), drawn(2, 3)
    heads, rows = (oracles.packed_attention(q, k, v, *cu, conventions=c)[1] for c in (None, rows_first))
    assert np.array_equal(heads.mid, rows.mid.T)
    usual = oracles.packed_attention_vjp(q, k, v, *cu, q, grad_lse=of_lse)
    transposed = oracles.packed_attention_vjp(q, k, v, *cu, q, grad_lse=of_lse.T.copy(), conventions=rows_first)
    assert all(np.array_equal(a.mid, b.mid) for a, b in zip(usual[:3], transposed[:3], strict=True))


QKV = {"q": drawn(4, 2, 2), "k": drawn(5, 2, 2), "v": drawn(5, 2, 3), "cu_q": [0, 1, 4], "cu_k": [0, 2, 5]}
REFUSED = {
    "q has shape (4, 2), but should be (total_q, H, d).": {"q": drawn(4, 2)},
    "v has 4 rows, but should have 5 like k.": {"v": drawn(4, 2, 3)},
    "q has 3 heads, but should have a multiple of k's 2.": {"q": drawn(4, 3, 2)},
    "cu_q has shape (0,), but should be (sequences + 1,).": {"cu_q": np.zeros(0, int)},
    "cu_q[0]=1, but should be 0.": {"cu_q": [1, 1, 4]},
    "cu_q[2]=5, but should be at most 4.": {"cu_q": [0, 1, 5]},
    "cu_k[2]=1, but should be at least cu_k[1]=2.": {"cu_k": [0, 2, 1]},
    "cu_k has 1 sequences, but should have 2 like cu_q.": {"cu_k": [0, 5]},
    "seqused_k has shape (1,), but should be (2,), as cu_k says.": {"seqused_k": [1]},
    "seqused_k[0]=3, but should be at most 2, the rows of sequence 0.": {"seqused_k": [3, 1]},
    "max_seqlen_k=2, but should be at least 3, the longest sequence's rows.": {"max_seqlen_k": 2},
    "softcap=-1.0, but should be more than 0, or None.": {"softcap": -1.0},
    "sink has shape (1,), but should be (2,), one for each head of q.": {"sink": np.zeros(1)},
}


@pytest.mark.parametrize("sentence", REFUSED)
def test_a_wrong_packing_is_refused_with_a_sentence(sentence):
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        oracles.packed_attention(**QKV | REFUSED[sentence])


def test_boundaries_are_integers():
    with pytest.raises(TypeError, match=r"^cu_q has element type float64, but should be an integer one\.$"):
        oracles.packed_attention(**QKV | {"cu_q": np.array([0.0, 1.0, 4.0])})


def test_a_cotangent_has_the_shape_of_its_result():
    with pytest.raises(ValueError, match=r"^grad_lse has shape \(4, 2\), but should be \(2, 4\)\.$"):
        oracles.packed_attention_vjp(**QKV, grad_out=drawn(4, 2, 3), grad_lse=drawn(4, 2))
