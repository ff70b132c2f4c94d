"""Paged attention: against dense attention over all slots of all pages, under a mask written slot by
slot; and each refusal.
"""

import re

import numpy as np
import pytest
from hypothesis import given

from spec import ARB
from spec.extended.attention import attention
from spec.extended.paged import paged_attention
from spec.tensor_core import tensor
from spec.tests.cases import MODERATE
from spec.tests.extended_cases import paged


def position_of(slot, row, length, size):
    """The positions of a sequence's keys that are in a slot, (page, place): pages may occur twice in a row."""
    page, place = slot
    return [j for j in range(length) if row[j // size] == page and j % size == place]


def dense(q, k_pages, v_pages, row, length, causal, window=(None, None), alibi=None, **options):
    """One sequence: dense attention over each key of each slot, in the order of the pages. ALiBi is a
    bias.
    """
    slots = [slot for slot in np.ndindex(k_pages.shape[:2]) for _ in position_of(slot, row, length, k_pages.shape[1])]
    keys = [
        j for slot in np.ndindex(k_pages.shape[:2]) for j in position_of(slot, row, length, k_pages.shape[1])
    ]  # the position of each key
    ahead = np.array(keys, int)[None, :] - (length - len(q) + np.arange(len(q)))[:, None]
    left, right = window
    seen = (ahead <= 0) | (not causal)
    seen &= True if left is None else ahead >= -left
    seen &= True if right is None else ahead <= right
    k, v = (
        np.array([x[slot] for slot in slots], x.dtype).reshape(len(slots), *x.shape[2:]) for x in (k_pages, v_pages)
    )
    if alibi is not None:
        options["bias"] = -alibi[:, None, None] * np.abs(ahead).astype(object)
    arrays = (np.swapaxes(x, 0, 1) for x in (q, k, v))
    out, lse = attention(*arrays, mask=seen, **options, scalar=ARB)
    return np.swapaxes(out, 0, 1), lse


def overlap(first, second):
    assert first.shape == second.shape
    assert all(a.overlaps(b) or a == b for a, b in zip(first.flat, second.flat, strict=True))


@given(paged(MODERATE))
def test_pages_equal_dense_attention_over_all_slots_under_a_mask(case):
    case = {name: tensor(x, ARB) if getattr(x, "dtype", None) == np.float64 else x for name, x in case.items()}
    out, lse = paged_attention(**case, scalar=ARB)
    options = {name: case[name] for name in ("causal", "window", "softcap", "sink", "alibi") if name in case}
    pages = case["k_pages"], case["v_pages"]
    for b, (row, length) in enumerate(zip(case["block_table"], case["lengths"], strict=True)):
        rows = slice(*case["cu_q"][b : b + 2]) if "cu_q" in case else b
        dense_out, dense_lse = dense(case["q"][rows], *pages, row, length, **options)
        overlap(out[rows], dense_out)
        overlap(lse[:, rows] if "cu_q" in case else lse[b], dense_lse)


def test_slots_and_entries_beyond_a_length_are_not_read():
    q, k = np.ones((2, 1, 1, 2)), np.arange(12.0).reshape(3, 2, 1, 2)
    poisoned = k.copy()
    poisoned[0], poisoned[2, 1] = np.nan, np.nan
    plain = paged_attention(q, k, k, [[1, 0], [2, 0]], [2, 1])
    garbage = paged_attention(q, poisoned, poisoned, [[1, -1], [2, 2**31 - 1]], [2, 1])
    assert all(np.array_equal(a, b) for a, b in zip(plain, garbage, strict=True))


def test_a_query_before_the_first_key_sees_nothing():
    q, k = np.zeros((1, 3, 1, 1)), np.ones((1, 4, 1, 1))
    out, lse = paged_attention(q, k, k, [[0]], [1])
    assert out.ravel().tolist() == [0.0, 0.0, 1.0]
    assert np.isneginf(lse).ravel().tolist() == [True, True, False]


REFUSED = {
    "block_table[0] has 1 pages of 2 slots, but lengths[0]=3.": {"block_table": [[0], [1]]},
    "block_table[1]=[-1], but should name pages from 0 to 2.": {"block_table": [[0, 1], [-1, 0]]},
    "block_table[0]=[0, 3], but should name pages from 0 to 2.": {"block_table": [[0, 3], [1, 0]]},
    "block_table has shape (1, 2), but should have 2 rows, as lengths has.": {"block_table": [[0, 1]]},
    "q has shape (2, 1, 1), but should be (batch, nQ, H, d), or (totalQ, H, d) with cu_q.": {"q": np.ones((2, 1, 1))},
    "cu_q has 1 sequences and cu_k has 2, but should have as many.": {"q": np.ones((2, 1, 1)), "cu_q": [0, 2]},
}


@pytest.mark.parametrize("sentence", REFUSED)
def test_a_wrong_table_is_refused_with_a_sentence(sentence):
    right = {"q": np.ones((2, 1, 1, 1)), "block_table": [[0, 1], [1, 0]], "lengths": [3, 1]}
    pages = {"k_pages": np.ones((3, 2, 1, 1)), "v_pages": np.ones((3, 2, 1, 1))}
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        paged_attention(**right | pages | REFUSED[sentence])
