"""Derivatives in fully masked rows under a finite fill: none where it replaces scores, those of
equal logits where it is added.
"""

import numpy as np
import pytest
import torch

import oracles
from oracles import Conventions

STOP, FLOW = (Conventions(dead_rows="uniform", dead_gradients=x) for x in ("stop", "flow"))
ATTENTION = oracles.scaled_dot_product_attention_vjp


def _case(dtype=np.float32):
    rng = np.random.default_rng(0)
    q, k, v, g = (rng.standard_normal((2, n, 3)).astype(dtype) for n in (4, 5, 5, 4))
    mask = rng.random((2, 4, 5)) < 0.6
    mask[:, 1] = False
    mask[1, 3] = False
    return q, k, v, mask, g


def _gradients(added: bool, q, k, v, mask, g):
    least = torch.finfo(torch.float32).min
    q, k, v, g = map(torch.from_numpy, (q, k, v, g))
    given, allowed = [x.requires_grad_() for x in (q, k, v)], torch.from_numpy(mask)
    scores = q @ k.mT / 3**0.5
    filled = scores + torch.where(allowed, 0.0, least) if added else torch.where(allowed, scores, least)
    return [x.numpy() for x in torch.autograd.grad(filled.softmax(-1) @ v, given, g)]


@pytest.mark.parametrize(
    ("added", "meant", "other"), [(True, FLOW, STOP), (False, STOP, FLOW)], ids=["added", "in place of scores"]
)
def test_gradients_are_those_of_how_the_fill_comes_in(added, meant, other):
    found = _gradients(added, *_case())
    for x, budget in zip(found, ATTENTION(*_case(), arithmetic="float32", conventions=meant), strict=True):
        oracles.assert_within(x, budget)
    for x, budget in zip(found[:2], ATTENTION(*_case(), arithmetic="float32", conventions=other), strict=False):
        assert not budget.contains(x).all()


def test_a_dead_row_is_worked_out_by_hand():
    q, k, v, g = np.array([[2.0]]), np.array([[3.0], [5.0]]), np.array([[1.0], [7.0]]), np.array([[1.0]])
    dq, dk, dv = ATTENTION(q, k, v, np.zeros((1, 2), bool), g, conventions=FLOW)  # weights 1/2, dS = (−3/2, 3/2)
    assert [x.mid.ravel().tolist() for x in (dq, dk, dv)] == [[3.0], [-3.0, 3.0], [0.5, 0.5]]
    out = oracles.scaled_dot_product_attention_jvp(q, k, v, np.zeros((1, 2), bool), g, 0 * k, 0 * v, conventions=FLOW)
    assert out.mid.tolist() == [[3.0]]


def _results(method):
    q, k, v, mask, g = _case(np.float64)
    tangents, options = (g, 2 * k, v - 1), {"conventions": FLOW, "method": method}
    yield from ATTENTION(q, k, v, mask, g, **options)
    yield oracles.scaled_dot_product_attention_jvp(q, k, v, mask, *tangents, **options)
    scores = np.where(mask, 1.5, 2.5) * np.arange(5)
    yield oracles.hard_masked_softmax_vjp(scores, mask, scores**2, **options)
    heads = [x[:, None] for x in (q, k, v, g)]
    features = {"mask": mask[:, None], "bias": scores[:, None], "softcap": 2.0, **options}
    for sink in (None, np.array([0.5])):
        found = oracles.attention_vjp(*heads, sink=sink, grad_lse=heads[3][..., 0], **features)
        yield from (x for x in found if x is not None)
        yield from oracles.attention_jvp(*heads[:3], *(x[:, None] for x in tangents), sink=sink, **features)
    wide = np.random.default_rng(1).standard_normal((4, 3, 3))
    x, square = q[0], np.stack([mask[0, :, :4]])[0]
    yield from oracles.multi_head_attention_vjp(x, *wide, 3, square, g[0], **options)


def test_both_methods_enclose_the_same():
    for fast, exact in zip(_results("fast"), _results("arb"), strict=True):
        assert (np.abs(fast.mid - exact.mid) <= fast.rad + exact.rad).all()
        assert fast.rad.max() < 1e-11


def test_what_a_dead_row_has_of_its_own_does_not_depend_on_its_scores():
    q, k, v, mask, g = _case(np.float64)
    far = np.where(mask.any(-1, keepdims=True), q, 1e30)
    (dq, _, dv), (own, _, others) = (ATTENTION(x, k, v, mask, g, conventions=FLOW) for x in (q, far))
    np.testing.assert_array_equal(dq.mid, own.mid)
    np.testing.assert_array_equal(dv.mid, others.mid)


@pytest.mark.parametrize(
    "conventions", [Conventions(dead_gradients="flow"), Conventions(dead_rows="nan", dead_gradients="flow")]
)
def test_gradients_flow_only_where_weights_are_equal(conventions):
    plain = Conventions(dead_rows=conventions.dead_rows)
    for a, b in zip(*(ATTENTION(*_case(), conventions=c) for c in (conventions, plain)), strict=True):
        np.testing.assert_array_equal(a.mid, b.mid)
        np.testing.assert_array_equal(a.rad, b.rad)


def _cancelling(rng, dtype):
    """Scores near 0 that come of products of up to 1e12, under a cap of 1, in a row that may read nothing."""
    a, b = large = np.round(rng.uniform(1e5, 1e6, 2))
    parts, rest = rng.uniform(1, 7, 4), rng.normal(size=4)
    q, k = np.array([[[*large, 1.0]]]), np.stack([b * parts, -a * parts, rest], -1)[None]
    q, k, v, g = (x.astype(dtype) for x in (q, k, rng.normal(size=(1, 4, 2)), rng.normal(size=(1, 1, 2))))
    return q, k, v, g, {"mask": np.zeros((1, 1, 4), bool), "scale": 1.0, "softcap": 1.0, "conventions": FLOW}


def test_the_slope_of_a_cap_is_as_uncertain_in_a_dead_row_as_in_any_other():
    """Logits do not matter there, but gradients are multiplied by 1 − tanh² of the score."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        q, k, v, g, told = _cancelling(rng, np.float64)
        for f, more in ((oracles.attention_vjp, (g,)), (oracles.attention_jvp, (q, -k, v))):
            fast, exact = (f(q, k, v, *more, method=method, **told) for method in ("fast", "arb"))
            for x, y in zip(fast, exact, strict=True):
                assert x is y is None or (np.abs(x.mid - y.mid) <= x.rad + y.rad).all()


def test_a_kernel_whose_capped_scores_cancel_is_within_its_budget_in_a_dead_row_too():
    rng = np.random.default_rng(1)
    for _ in range(20):
        q, k, v, g, told = _cancelling(rng, np.float32)
        given = [torch.from_numpy(x).requires_grad_() for x in (q, k, v)]
        logits = torch.tanh(given[0] @ given[1].mT) + torch.finfo(torch.float32).min
        found = torch.autograd.grad(logits.softmax(-1) @ given[2], given, torch.from_numpy(g))
        budgets = oracles.attention_vjp(q, k, v, g, arithmetic="float32", **told)
        assert all((budget.excess(x.numpy()) <= 1).all() for x, budget in zip(found, budgets, strict=False))


def test_scores_that_overflow_are_not_levelled_by_a_fill():
    """∞ + a fill is ∞ in binary16."""
    q, v, g, mask = np.full((1, 1), 256.0), np.array([[1.0], [2.0]]), np.ones((1, 1)), np.zeros((1, 2), bool)
    for key, known in ((1024.0, False), (1.0, True)):
        k = np.array([[1.0], [key]])
        found = ATTENTION(q, k, v, mask, g, arithmetic="float16-eager", conventions=FLOW)
        assert [np.isfinite(x.rad).all() for x in found] == [known] * 3
        assert [np.isfinite(x.rad).all() for x in ATTENTION(q, k, v, mask, g, conventions=FLOW)] == [True] * 3
