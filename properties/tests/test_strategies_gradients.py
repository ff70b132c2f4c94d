"""Strategies of derivatives and of heads reach what laws are about, and shrink to small readable cases."""

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, find, settings
from hypothesis.errors import NoSuchExample

from oracles import Conventions
from properties.implementation import Implementation
from properties.reference import OPERATIONS
from properties.strategies import gradients, multi_head
from properties.strategies.arrays import rounded

pytestmark = pytest.mark.filterwarnings("ignore:Generating overly large repr")  # of drawn arrays, which find notes

FLOAT64 = Implementation("reference", OPERATIONS)
BFLOAT16 = Implementation("reference", OPERATIONS, arithmetic="bfloat16")
SETTINGS = settings(max_examples=1000, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
GENERATE = settings(SETTINGS, phases=[Phase.generate])


def reaches(strategy, condition):
    find(strategy, lambda case: condition(*case), settings=GENERATE)


def smallest(strategy, condition=lambda *case: True):
    return find(strategy, lambda case: condition(*case), settings=SETTINGS)


def never(strategy, condition, examples=60):
    with pytest.raises(NoSuchExample):
        find(strategy, lambda case: condition(*case), settings=settings(GENERATE, max_examples=examples))


def weights_of(q, k):
    s = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    e = np.exp(s - s.max(-1, keepdims=True))
    return s, e / e.sum(-1, keepdims=True)


def test_extreme_logits_come_with_weights_that_are_not_one_hot():
    def spread_far_from_zero(q, k, *rest):
        s, p = weights_of(q, k)
        return np.abs(s).min() > 500 and ((p > 0.1).sum(-1) > 1).any()

    reaches(gradients.extreme_vjp(FLOAT64), spread_far_from_zero)
    reaches(gradients.extreme_vjp(FLOAT64), lambda q, k, *rest: np.ptp(weights_of(q, k)[0]) > 5000)


def test_extreme_scores_share_a_number_far_from_zero():
    reaches(gradients.extreme_softmax_vjp(FLOAT64), lambda s, *rest: s.shape[-1] > 1 and s.max() < -8000 and 0 < np.ptp(s) < 10)


@pytest.mark.parametrize("kind", [FLOAT64, BFLOAT16])
def test_shifts_of_keys_and_values_are_exact(kind):
    inputs = kind.rounding.inputs
    for of_keys in (True, False):

        def inexact(q, k, v, mask, g, shift, of_keys=of_keys):
            moved = (k if of_keys else v) + shift
            return bool((rounded(moved, inputs) != moved).any())

        never(gradients.shifted_vjp(kind, of_keys), inexact)


def test_a_cut_separates_a_tile_from_its_tail():
    reaches(gradients.cut_vjp(FLOAT64), lambda q, k, v, mask, g, count: q.shape[-2] > 64 and count in (63, 64, 65))


def test_a_cut_leaves_what_is_supported():
    multiples = Implementation("reference", OPERATIONS, supports={"n_q": lambda n: n % 8 == 0})
    reaches(gradients.cut_vjp(multiples), lambda q, k, v, mask, g, count: count < q.shape[-2] and count % 8 == 0)


def test_queries_without_a_cotangent_are_the_only_ones_to_read_some_keys():
    def partly(q, k, v, mask, g):
        reads = mask & g.any(-1, keepdims=True)
        return (mask.any(-2) & ~reads.any(-2)).any() and reads.any()

    reaches(gradients.partly_vjp(FLOAT64), partly)


def test_a_row_cuts_a_causal_mask_at_every_size():
    reaches(gradients.causal_vjp(FLOAT64), lambda q, k, v, mask, g, row: q.shape[-2] > 64 < k.shape[-2] and row > 1)
    never(gradients.causal_vjp(FLOAT64), lambda q, k, v, mask, g, row: row < 1 or row >= max(2, min(q.shape[-2], k.shape[-2])))


def test_dead_queries_are_some_or_all():
    reaches(gradients.dead_vjp(FLOAT64), lambda q, k, v, mask, g: not mask.any())
    reaches(gradients.dead_vjp(FLOAT64), lambda q, k, v, mask, g: mask.any() and not mask.any(-1).all() and k.shape[-2] > 64)


def test_parts_are_entries_rows_or_columns():
    assert smallest(gradients.parts((2, 3)).map(lambda p: (p,)))[0].all()
    reaches(gradients.parts((3, 2)).map(lambda p: (p,)), lambda p: p[0].all() and not p[1:].any())
    reaches(gradients.parts((3, 2)).map(lambda p: (p,)), lambda p: p[:, 0].all() and not p[:, 1].any())


def test_directions_are_never_zero():
    found = smallest(gradients.directions((2, 2), (1,)).map(lambda t: (t,)))[0]
    assert all(x.any() for x in found)


def test_heads_have_widths_of_every_kind():
    widths = set()
    never(multi_head.multi_head(FLOAT64), lambda x, wq, wk, wv, wo, heads, mask: widths.add(wq.shape[1] // heads), 400)
    assert widths == set(multi_head.HEAD_WIDTHS)


def test_everyday_projections_make_everyday_scores():
    def moderate(x, wq, wk, *rest):
        return wq.any() and wk.any() and x.any() and np.abs((x @ wq) @ (x @ wk).swapaxes(-1, -2)).max() > 1e4

    never(multi_head.multi_head(FLOAT64, widths=(1, 2, 4), heads=(1,)), moderate)


def test_one_selecting_head_has_projections_that_are_exact_in_few_bits():
    inputs = BFLOAT16.rounding.inputs

    def inexact(x, wq, wk, wv, *rest):
        return any((rounded(x @ w, inputs) != x @ w).any() for w in (wq, wk, wv))

    never(multi_head.one_selecting_head(BFLOAT16), inexact)


def test_pointing_tokens_may_all_point_elsewhere():
    *_, mask, target = smallest(multi_head.pointing(FLOAT64), lambda *case: case[0].shape[-2] > 1 and len(set(case[-1])) > 1)
    assert (mask.argmax(-1) == target).all()
    reaches(multi_head.pointing(FLOAT64), lambda *case: len(case[-1]) > 3 and (case[-1] != np.arange(len(case[-1]))).all())


def test_permuted_heads_stay_together():
    def split(x, wq, wk, wv, wo, heads, mask, lanes, values):
        width = wq.shape[1] // heads
        return heads > 1 and any((np.ptp(order.reshape(heads, width) // width, axis=1) > 0).any() for order, _ in (lanes, values))

    never(multi_head.permuted_heads(FLOAT64), split)
    reaches(multi_head.permuted_heads(FLOAT64), lambda *case: case[5] > 1 and (case[7][0] != np.arange(case[1].shape[1])).any())


def test_square_models_are_as_wide_as_their_heads():
    square = Implementation("square", OPERATIONS, conventions=Conventions(), supports={"model_dim_minus_heads_width": lambda n: n == 0})
    x, wq, *_ = smallest(multi_head.multi_head(square), lambda x, wq, wk, wv, wo, heads, mask: heads == 3)
    assert x.shape[-1] == wq.shape[1] == 3


def test_batches_have_a_leading_axis():
    reaches(multi_head.batched_vjp(FLOAT64), lambda x, *rest: x.shape[0] == 3)
    never(multi_head.batched_vjp(FLOAT64), lambda x, *rest: x.ndim < 3)
