"""Paged attention: its certified values contain those of the definition, its budgets are those of
attention on gathered keys, and a wrong table is refused before any work.
"""

import re

import flint
import numpy as np
import pytest
from hypothesis import given, settings

import oracles
from oracles import Conventions
from oracles.tests.test_packed import drawn, meets, swapped
from spec import ARB
from spec.extended.paged import paged_attention
from spec.tensor_core import tensor
from spec.tests.cases import MODERATE
from spec.tests.extended_cases import paged


@given(case=paged(MODERATE))
@settings(max_examples=40)
def test_certified_values_contain_the_definition_s(case):
    exact = {name: tensor(x, ARB) if getattr(x, "dtype", None) == np.float64 else x for name, x in case.items()}
    found = oracles.paged_attention(**case, method="arb" if case["causal"] else "auto")
    with flint.ctx.workprec(113):
        values = paged_attention(**exact, scalar=ARB)
        for enclosure, value in zip(found, values, strict=True):
            assert enclosure.mid.shape == value.shape
            assert meets(enclosure, value)


SIZES = [1, 3, 16, 24]


@pytest.mark.parametrize("arithmetic", [None, "float32", "bfloat16-tensor-core"])
@pytest.mark.parametrize("size", SIZES)
def test_budgets_are_those_of_attention_on_gathered_keys(arithmetic, size):
    """The second sequence has the first page of the first one, and a length at the border of a page."""
    lengths, table = [2 * size + 1, 2 * size, 1, 0], np.array([[3, 1, 5], [3, 0, -1], [4, 9**9, 7], [-7, 0, 0]])
    q, k, v, sink = drawn(4, 2, 4, 3), drawn(6, size, 2, 3), drawn(6, size, 2, 2, seed=1), drawn(4)
    options = {"window": (5, 1), "softcap": 2.0, "sink": sink, "arithmetic": arithmetic}
    out, lse = oracles.paged_attention(q, k, v, table, lengths, **options)
    for b, length in enumerate(lengths):
        pages = table[b, : -(-length // size)]
        gathered = [swapped(x[pages].reshape(-1, *x.shape[2:])[:length]) for x in (k, v)]
        expected = oracles.attention(swapped(q[b]), *gathered, offset=length - 2, causal=True, **options)
        for mine, other, turned in zip((out, lse), expected, (swapped, np.asarray), strict=True):
            assert np.array_equal(mine.mid[b], turned(other.mid))
            assert np.array_equal(mine.rad[b], turned(other.rad))
            assert mine.format == other.format


def case():
    return {"q": drawn(2, 2, 2, 2), "k_pages": drawn(4, 3, 2, 2), "v_pages": drawn(4, 3, 2, 1),
            "block_table": [[1, 0], [3, -1]], "lengths": [5, 2]}  # fmt: skip


def tensors(given):
    return given | {"block_table": np.array(given["block_table"], np.int32)}


def test_slots_and_entries_beyond_a_length_are_never_read():
    plain, poisoned = tensors(case()), tensors(case())
    poisoned["block_table"][1, 1] = 2**31 - 1
    for name in ("k_pages", "v_pages"):
        poisoned[name][0, 2] = poisoned[name][2] = poisoned[name][3, 2] = np.nan
    for mine, other in zip(oracles.paged_attention(**plain), oracles.paged_attention(**poisoned), strict=True):
        assert np.array_equal(mine.mid, other.mid)
        assert np.array_equal(mine.rad, other.rad)


def test_ragged_queries_have_the_shapes_of_packed_sequences():
    ragged = tensors(case()) | {"q": drawn(4, 2, 2), "cu_q": [0, 1, 3]}
    out, lse = oracles.paged_attention(**ragged)
    assert (out.mid.shape, lse.mid.shape) == ((4, 2, 1), (2, 4))
    assert np.isinf(out.rad).any(axis=(1, 2)).tolist() == [False, False, False, True]
    zero = Conventions(padding_rows="zero", packed_lse="rows_first")
    out, lse = oracles.paged_attention(**ragged, conventions=zero)
    assert lse.mid.shape == (4, 2)
    assert not out.mid[3].any()
    alone, _ = oracles.paged_attention(
        **tensors(case()) | {"q": ragged["q"][None, 1:3], "block_table": np.array([[3]]), "lengths": [2]}
    )
    assert np.array_equal(out.mid[1:3], alone.mid[0])


def test_heads_may_come_before_slots_and_the_alignment_of_attention_does_not_matter():
    usual, turned = tensors(case()), tensors(case())
    for name in ("k_pages", "v_pages"):
        turned[name] = np.swapaxes(turned[name], 1, 2)
    expected = oracles.paged_attention(**usual)
    for conventions in (
        Conventions(page_layout="heads_first"),
        Conventions(page_layout="heads_first", causal="bottom_right"),
    ):
        for mine, other in zip(oracles.paged_attention(**turned, conventions=conventions), expected, strict=True):
            assert np.array_equal(mine.mid, other.mid)


def test_a_query_before_the_first_key_and_a_length_of_0_see_nothing():
    out, lse = oracles.paged_attention(**tensors(case()) | {"q": drawn(2, 3, 2, 2), "lengths": [0, 2]})
    assert np.isneginf(lse.mid[0]).all()
    assert np.isneginf(lse.mid[1]).tolist() == [[True, False, False]] * 2
    assert not out.mid[0].any()


REFUSED = {
    "q has shape (2, 2, 2), but should be (batch, n_q, H, d).": {"q": drawn(2, 2, 2)},
    "q has shape (2, 2, 2, 2), but should be (total_q, H, d).": {"cu_q": [0, 1, 2]},
    "k_pages has shape (4, 3, 2), but should be (num_pages, page_size, H_kv, d).": {"k_pages": drawn(4, 3, 2)},
    "v_pages has shape (4, 2, 2, 1), but should begin with (4, 3, 2) like k_pages.": {"v_pages": drawn(4, 2, 2, 1)},
    "q has 3 columns, but should have 2 like k_pages.": {"q": drawn(2, 2, 2, 3)},
    "q has 3 heads, but should have a multiple of k_pages's 2.": {"q": drawn(2, 2, 3, 2)},
    "q has 3 sequences, but should have 2 like lengths.": {"q": drawn(3, 2, 2, 2)},
    "cu_q has 1 sequences, but should have 2 like lengths.": {"q": drawn(2, 2, 2), "cu_q": [0, 2]},
    "cu_q[2]=1, but should be at least cu_q[1]=2.": {"q": drawn(2, 2, 2), "cu_q": [0, 2, 1]},
    "lengths has shape (2, 1), but should be (batch,).": {"lengths": np.array([[5], [2]])},
    "lengths[1]=-1, but should be at least 0.": {"lengths": [5, -1]},
    "lengths[0]=7, but should be at most 6, the slots of 2 pages.": {"lengths": [7, 2]},
    "block_table has shape (2,), but should be (2, max_pages).": {"block_table": [1, 3]},
    "block_table has shape (1, 2), but should be (2, max_pages).": {"block_table": np.array([[1, 3]])},
    "block_table[1, 0]=-1, but should be from 0 to 3.": {"block_table": np.array([[1, 0], [-1, 0]])},
    "block_table[0, 1]=4, but should be from 0 to 3.": {"block_table": np.array([[1, 4], [3, 0]])},
    "softcap=-1.0, but should be more than 0, or None.": {"softcap": -1.0},
    "sink has shape (1,), but should be (2,), one for each head of q.": {"sink": np.zeros(1)},
}


@pytest.mark.parametrize("sentence", REFUSED)
def test_a_wrong_table_is_refused_with_a_sentence(sentence):
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        oracles.paged_attention(**tensors(case()) | REFUSED[sentence])


def test_page_numbers_are_integers():
    with pytest.raises(TypeError, match=r"^block_table has element type float64, but should be an integer one\.$"):
        oracles.paged_attention(**tensors(case()) | {"block_table": np.zeros((2, 2))})
