"""Packed attention: against dense attention under one mask of all sequences, written with document
numbers instead of slices; and each refusal.
"""

import re

import numpy as np
import pytest
from hypothesis import given

from spec import ARB, ARB_SERIES
from spec.extended.attention import attention
from spec.extended.attention_derivatives import attention_vjp
from spec.extended.packed import packed_attention, packed_attention_vjp
from spec.tensor_core import derivative, taylor, tensor, value
from spec.tests.cases import MODERATE
from spec.tests.extended_cases import packed

OPTIONS = ("scale", "softcap", "sink")


def labels(cu, used, total):
    """The number of the sequence that uses each row, −1 for none, and the position of the row in it."""
    numbers, positions = np.full(total, -1), np.zeros(total, int)
    for row in range(total):
        for b in range(len(cu) - 1):
            if cu[b] <= row < (cu[b + 1] if used is None else cu[b] + used[b]):
                numbers[row], positions[row] = b, row - cu[b]
    return numbers, positions


def one_mask(q, k, cu_q, cu_k, seqused_q=None, seqused_k=None, alignment="bottom_right", causal=False, window=None):
    """Which query row sees which key row; also the rows that no sequence uses, on either side, and how
    far each key is ahead of each query.
    """
    (of_q, i), (of_k, j) = labels(cu_q, seqused_q, len(q)), labels(cu_k, seqused_k, len(k))
    n_q, n_k = ([np.sum(of == b) for b in range(len(cu_q) - 1)] for of in (of_q, of_k))
    shift = np.array([n_k[b] - n_q[b] if b >= 0 and alignment == "bottom_right" else 0 for b in of_q], int)
    ahead = j - (i + shift)[:, None]
    left, right = (None, None) if window is None else window
    seen = (of_q[:, None] == of_k) & (of_q[:, None] >= 0)
    seen &= (not causal) | (ahead <= 0)
    seen &= True if left is None else ahead >= -left
    return seen & (True if right is None else ahead <= right), of_q < 0, of_k < 0, ahead


def swapped(x):
    return np.swapaxes(x, 0, 1)


def balls(case):
    return {name: tensor(x, ARB) if getattr(x, "dtype", None) == np.float64 else x for name, x in case.items()}


def dense(case, ahead):
    """The arguments of dense attention on the same rows; ALiBi is a bias."""
    options = {name: case[name] for name in OPTIONS if name in case}
    if "alibi" in case:
        options["bias"] = -case["alibi"][:, None, None] * np.abs(ahead).astype(object)
    return [swapped(case[name]) for name in "qkv"], options


def mask_of(case):
    left_out = ("q", "k", "v", "grad_out", "grad_lse", "alibi", *OPTIONS)
    return one_mask(case["q"], case["k"], **{name: x for name, x in case.items() if name not in left_out})


def overlap(first, second):
    assert first.shape == second.shape
    assert all(a.overlaps(b) or a == b for a, b in zip(first.flat, second.flat, strict=True))


@given(packed(MODERATE))
def test_packed_sequences_equal_dense_attention_under_one_mask(case):
    case = balls(case)
    seen, unused, _, ahead = mask_of(case)
    arrays, options = dense(case, ahead)
    out, lse = packed_attention(**case, scalar=ARB)
    dense_out, dense_lse = attention(*arrays, mask=seen, **options, scalar=ARB)
    overlap(out[~unused], swapped(dense_out)[~unused])
    overlap(lse[:, ~unused], dense_lse[:, ~unused])
    assert all(x == 0 for x in (*out[unused].flat, *lse[:, unused].flat))


@given(packed(MODERATE, cotangents=True))
def test_cotangents_equal_those_of_dense_attention_under_one_mask(case):
    case = balls(case)
    seen, unused, _, ahead = mask_of(case)
    arrays, options = dense(case, ahead)
    case["grad_out"][unused], case["grad_lse"][:, unused] = ARB.zero, ARB.zero
    found = packed_attention_vjp(**case, scalar=ARB)
    cotangents = swapped(case["grad_out"]), case["grad_lse"]
    expected = attention_vjp(*arrays, *cotangents, mask=seen, **options, scalar=ARB)
    for mine, other in zip(found[:3], expected[:3], strict=True):
        overlap(mine, swapped(other))
    assert (found[3] is None) == (expected[4] is None)
    if found[3] is not None:
        overlap(found[3], expected[4])


def product(first, second):
    return sum((ARB.lift(a) * ARB.lift(b) for a, b in zip(first.flat, second.flat, strict=True)), ARB.zero)


@given(packed(MODERATE, cotangents=True))
def test_cotangents_are_the_derivative_of_the_definition(case):
    _, unused, *_ = mask_of(case)
    case["grad_out"][unused], case["grad_lse"][:, unused] = 0.0, 0.0
    names = [name for name in ("q", "k", "v", "sink") if name in case]
    moves = {name: np.cos(np.arange(case[name].size)).reshape(case[name].shape) for name in names}
    forward = {name: x for name, x in case.items() if not name.startswith("grad_")}
    series = {name: taylor(tensor(forward[name], ARB), tensor(moves[name], ARB)) for name in names}
    out, lse = packed_attention(**forward | series, scalar=ARB_SERIES)
    without_key = np.array([ARB.is_neg_inf(x) for x in value(lse).flat], bool).reshape(lse.shape)
    moved = product(derivative(out), case["grad_out"])
    moved += product(derivative(lse)[~without_key], case["grad_lse"][~without_key])
    found = packed_attention_vjp(**balls(case), scalar=ARB)
    of_inputs = (product(found["qkv".find(name) if name in "qkv" else 3], moves[name]) for name in names)
    assert moved.overlaps(sum(of_inputs, ARB.zero))


def test_rows_that_no_sequence_uses_are_not_read():
    q, k, v = (np.arange(n * 2.0).reshape(n, 1, 2) / 8 for n in (5, 6, 6))
    cu = {"cu_q": [0, 2, 4], "cu_k": [0, 3, 5], "seqused_q": [1, 2], "seqused_k": [2, 2]}
    bad_q, bad_k, bad_v = q.copy(), k.copy(), v.copy()
    bad_q[[1, 4]], bad_k[[2, 5]], bad_v[[2, 5]] = np.nan, np.nan, np.nan
    plain, poisoned = packed_attention(q, k, v, **cu), packed_attention(bad_q, bad_k, bad_v, **cu)
    assert all(np.array_equal(a, b) for a, b in zip(plain, poisoned, strict=True))
    bad = np.ones((5, 1, 2))
    bad[[1, 4]] = np.nan
    gradients = packed_attention_vjp(bad_q, bad_k, bad_v, **cu, grad_out=bad)
    assert all(np.isfinite(g).all() for g in gradients if g is not None)


def test_without_sequences_nothing_is_used():
    out, lse = packed_attention(np.ones((2, 1, 1)), np.ones((3, 1, 1)), np.ones((3, 1, 1)), [0], [0])
    assert not out.any()
    assert not lse.any()


REFUSED = {
    "cu_q=[1, 2], but should begin at 0, never fall, and end at 2 rows at most.": {"cu_q": [1, 2]},
    "cu_q=[], but should begin at 0, never fall, and end at 2 rows at most.": {"cu_q": []},
    "cu_k=[0, 4], but should begin at 0, never fall, and end at 3 rows at most.": {"cu_k": [0, 4]},
    "cu_k=[0, 2, 1], but should begin at 0, never fall, and end at 3 rows at most.": {"cu_k": [0, 2, 1]},
    "seqused_k=[4], but should be at most [3], the rows that sequences own.": {"seqused_k": [4]},
    "seqused_q=[1, 1], but should be at most [2], the rows that sequences own.": {"seqused_q": [1, 1]},
    "cu_q has 2 sequences and cu_k has 1, but should have as many.": {"cu_q": [0, 1, 2]},
    "alignment='left', but should be 'bottom_right' or 'top_left'.": {"alignment": "left"},
}


@pytest.mark.parametrize("sentence", REFUSED)
def test_a_wrong_packing_is_refused_with_a_sentence(sentence):
    right = {"cu_q": [0, 2], "cu_k": [0, 3]}
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        packed_attention(np.ones((2, 1, 1)), np.ones((3, 1, 1)), np.ones((3, 1, 1)), **right | REFUSED[sentence])
