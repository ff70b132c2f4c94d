"""Strategies of attention reach their edges, draw nothing that laws do not mean, and shrink to what can be read."""

import numpy as np
import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample

from oracles import Conventions
from oracles.formats import BFLOAT16, FLOAT16, FLOAT32, FLOAT64
from properties.implementation import Implementation
from properties.reference import scaled_dot_product_attention
from properties.strategies.arrays import bits, cuts, fixed_points, live_masks, numbers, orders, rounded
from properties.strategies.attention import anywhere, attention, causal_attention, extreme_attention, softmax
from properties.strategies.masks import dead_masks, narrow_masks, padded_masks
from properties.strategies.variations import causally_masked, differing_masks, exact_attention, shifted_keys, some_queries, split_keys

OPERATIONS = {"scaled_dot_product_attention": scaled_dot_product_attention}
ANY = Implementation("any", OPERATIONS)
FLASH = Implementation(
    "flash", OPERATIONS, batch_ranks=(2,), supports={"value_dim_minus_head_dim": lambda n: n == 0, "n_k": lambda n: n % 8 == 0}
)
pytestmark = pytest.mark.filterwarnings("ignore:Generating overly large repr")  # of a case that is found, and not shrunk

LONG = settings(max_examples=3000, derandomize=True, database=None)
SIZES = st.tuples(st.integers(1, 20), st.integers(1, 20), st.sampled_from([(), (2,), (2, 3)]))


def minimal(strategy, condition=lambda *_: True):
    return find(strategy, lambda case: bool(condition(*case)), settings=LONG)


def reaches(strategy, condition):
    """The strategy draws such a case, which is not shrunk."""
    return find(strategy, lambda case: bool(condition(*case)), settings=settings(LONG, phases=[Phase.generate]))


def scores(q, k, v, mask):
    s = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    return s if mask is None else np.where(mask, s, -np.inf)


def is_causal(q, k, mask, shift):
    return mask is not None and mask.ndim == 2 and np.array_equal(mask, np.tri(q.shape[-2], k.shape[-2], shift, dtype=bool))


def test_a_large_array_shrinks_to_a_small_one_with_the_entry_that_matters():
    q, *_ = find(anywhere(ANY), lambda case: case[0].shape[-1] > 3 and case[0][..., 3].max() > 1, settings=LONG)
    assert q.shape == (1, 4)
    assert np.count_nonzero(q) == 1


def test_the_simplest_case_is_one_query_one_key_zeros_and_no_mask():
    q, k, v, mask = minimal(attention(ANY))
    assert q.shape == k.shape == v.shape == (1, 1)
    assert mask is None
    assert not np.concatenate([q, k, v]).any()


EDGES = {
    "a square beyond a tile": lambda q, k, v, mask: q.shape[-2] == k.shape[-2] > 128,
    "decoding against many keys": lambda q, k, v, mask: q.shape[-2] == 1 and k.shape[-2] > 32,
    "more queries than keys": lambda q, k, v, mask: q.shape[-2] > k.shape[-2] + 100,
    "one key and a mask": lambda q, k, v, mask: k.shape[-2] == 1 and mask is not None,
    "a width that is no multiple of 8": lambda q, k, v, mask: q.shape[-1] > 8 and q.shape[-1] % 8,
    "a wide head": lambda q, k, v, mask: q.shape[-1] == 128,
    "values wider than keys": lambda q, k, v, mask: v.shape[-1] > q.shape[-1],
    "values as wide as keys": lambda q, k, v, mask: v.shape[-1] == q.shape[-1] > 16,
    "a batch of heads": lambda q, k, v, mask: q.ndim == 4 and min(q.shape[:2]) > 1,
    "a mask for each of a batch": lambda q, k, v, mask: mask is not None and mask.ndim > 2 and (mask[0] != mask[-1]).any(),
    "a blocked first tile": lambda q, k, v, mask: mask is not None and k.shape[-2] > 32 and not mask[..., :16].any(),
    "a blocked last key": lambda q, k, v, mask: mask is not None and k.shape[-2] > 1 and not mask[..., -1].any(),
    "a causal mask beyond a tile": lambda q, k, v, mask: is_causal(q, k, mask, 0) and q.shape[-2] == k.shape[-2] > 32,
    "a causal mask aligned to the right": lambda q, k, v, mask: (
        k.shape[-2] > q.shape[-2] > 1 and is_causal(q, k, mask, k.shape[-2] - q.shape[-2])
    ),
    "a hole in a mask": lambda q, k, v, mask: mask is not None and mask.ndim == 2 and (np.diff(mask.astype(int)) != 0).sum(-1).max() > 2,
    "logits beyond a hundred": lambda q, k, v, mask: np.abs(scores(q, k, v, None)).max() > 100,
    "numbers with all their bits": lambda q, k, v, mask: (q * 2**20 % 1).any(),
}


@pytest.mark.parametrize("edge", EDGES)
def test_attention_anywhere_reaches(edge):
    reaches(anywhere(ANY), EDGES[edge])


def test_a_large_array_shrinks_to_zeros_and_the_entry_that_matters():
    x = find(numbers(ANY, (300, 1)), lambda x: np.abs(x[64:]).max() > 1, settings=LONG)
    assert np.count_nonzero(x) == 1
    assert np.abs(x).max() == 2
    assert not find(numbers(ANY, (300, 1)), lambda x: True, settings=LONG).any()


@pytest.mark.parametrize("sign", [1, -1])
def test_extreme_logits_may_all_be_far_from_zero(sign):
    reaches(extreme_attention(ANY), lambda *case: (sign * scores(*case[:3], None) > 1e3).all(-1).any() and case[1].shape[-2] > 16)
    reaches(extreme_attention(ANY), lambda *case: np.abs(scores(*case[:3], None)).max() > 1e4)


@settings(LONG, max_examples=50)
@given(anywhere(FLASH))
def test_what_is_not_supported_is_not_drawn(case):
    q, k, v, _ = case
    assert q.ndim == 4
    assert v.shape[-1] == q.shape[-1]
    assert k.shape[-2] % 8 == 0


@settings(LONG, max_examples=100)
@given(SIZES.flatmap(lambda s: live_masks(*s) | padded_masks(*s)))
def test_live_masks_leave_every_query_a_key(mask):
    assert mask.any(-1).all()


@settings(LONG, max_examples=100)
@given(SIZES.flatmap(lambda s: st.tuples(st.just(s), padded_masks(*s), dead_masks(*s), narrow_masks(*s))))
def test_masks_are_what_they_are_for(case):
    (n_q, n_k, lead), padded, dead, narrow = case
    assert n_k == 1 or not padded.reshape(-1, n_k).any(0).all()
    assert not dead.any(-1).all()
    assert dead.shape == padded.shape == (*lead, n_q, n_k)
    assert np.broadcast_to(narrow, (*lead, n_q, n_k)).any(-1).all()
    assert narrow.shape[-1] == 1 or not narrow.all()


DEAD = {
    "one of many": lambda mask: (~mask.any(-1)).sum() == 1 and mask.shape[0] > 3,
    "all": lambda mask: not mask.any(),
    "the first ones": lambda mask: mask.shape[0] > 3 and not mask[:2].any() and mask[2:].any(-1).all(),
}


@pytest.mark.parametrize("which", DEAD)
def test_dead_queries_are(which):
    reaches(st.tuples(st.integers(1, 6).flatmap(lambda n: dead_masks(n, 3))), DEAD[which])


def test_narrow_masks_have_fewer_axes_or_axes_of_size_one():
    for shape in [(3,), (1, 3), (4, 1), (2, 1, 1, 3), (1, 2, 4, 3)]:
        reaches(st.tuples(narrow_masks(4, 3, (2, 2))), lambda mask, shape=shape: mask.shape == shape)


@pytest.mark.parametrize("arithmetic", [FLOAT64, FLOAT32, FLOAT16, BFLOAT16], ids=lambda a: a.name)
def test_sums_of_fixed_points_and_of_shifted_keys_are_exact(arithmetic):
    i = Implementation("any", OPERATIONS, arithmetic=arithmetic)

    @settings(LONG, max_examples=50)
    @given(st.sampled_from([(2, 3), (40, 5)]).flatmap(lambda shape: st.tuples(fixed_points(i, shape), fixed_points(i, shape))))
    def exact(pair):
        a, b = pair
        for x in (a, b, a + b, a - b):
            assert np.array_equal(rounded(x, arithmetic.inputs), x)
        assert np.array_equal((a + b) - b, a)

    @settings(LONG, max_examples=50)
    @given(shifted_keys(i))
    def shifted(case):
        q, k, _, _, shift = case
        assert np.array_equal(rounded(q, arithmetic.inputs), q)
        assert np.array_equal(rounded(k + shift, arithmetic.inputs), k + shift)
        assert np.array_equal((k + shift) - shift, k)

    exact()
    shifted()
    reaches(exact_attention(i), lambda q, k, v, mask: np.unique(k).size > 1)


@pytest.mark.parametrize("offset", [1e4, -1e4])
def test_shifted_keys_bring_logits_to_ten_thousand(offset):
    reaches(shifted_keys(ANY), lambda q, k, v, mask, shift: (np.sign(offset) * scores(q, shift, v, None) > 9e3).any())


def test_cuts_are_supported_and_leave_what_cannot_be_cut():
    assert find(cuts(9, lambda m: m > 3), lambda m: True, settings=LONG) == 4
    assert find(cuts(9, lambda m: False), lambda m: True, settings=LONG) == 9
    assert find(cuts(300, lambda m: True), lambda m: m > 250, settings=LONG) == 255


@settings(LONG, max_examples=50)
@given(split_keys(FLASH), some_queries(ANY), causally_masked(ANY), differing_masks(ANY))
def test_variations_are_consistent(split, some, causal, differing):
    _, k, _, _, count = split
    assert count == k.shape[-2] or (count % 8 == 0 and (k.shape[-2] - count) % 8 == 0)
    q, _, _, _, start, stop = some
    assert start in (0, q.shape[-2] - (stop - start))
    q, k, _, mask, now, known = causal
    assert mask.shape == (q.shape[-2], k.shape[-2])
    assert mask.any(-1).all()
    assert not mask[:now, known:].any()
    assert mask[now - 1, :known].all()
    q, k, _, mask, problem = differing
    assert mask.shape == (*q.shape[:-1], k.shape[-2])
    assert mask[problem].shape == mask.shape[-2:]


def test_masks_of_a_batch_differ():
    reaches(differing_masks(ANY), lambda q, k, v, mask, problem: (mask != mask[problem]).any())


def test_causal_attention_has_no_dead_query():
    bottom_right = Implementation("aligned", OPERATIONS, conventions=Conventions(causal="bottom_right"))
    reaches(causal_attention(ANY), lambda q, k, v: q.shape[-2] > k.shape[-2])
    reaches(causal_attention(bottom_right), lambda q, k, v: q.shape[-2] < k.shape[-2])
    with pytest.raises(NoSuchExample):
        find(causal_attention(bottom_right), lambda case: case[0].shape[-2] > case[1].shape[-2], settings=settings(LONG, max_examples=100))


def test_the_simplest_softmax_that_blocks_an_entry_has_two():
    scores, mask = minimal(softmax(ANY), lambda scores, mask: mask is not None and not mask.all())
    assert scores.shape == mask.shape == (1, 2)
    assert not scores.any()


def test_the_simplest_order_is_the_reverse_and_the_simplest_bits_allow_all():
    assert find(orders(3), lambda order: True, settings=LONG).tolist() == [2, 1, 0]
    assert find(bits(5), lambda x: True, settings=LONG).all()
    assert find(bits(500), lambda x: True, settings=LONG).all()
