"""Derivatives in fully masked rows under a finite fill: none where it replaces scores, those of equal logits where it is added."""

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


@pytest.mark.parametrize(("added", "meant", "other"), [(True, FLOW, STOP), (False, STOP, FLOW)], ids=["added", "in place of scores"])
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


@pytest.mark.parametrize("conventions", [Conventions(dead_gradients="flow"), Conventions(dead_rows="nan", dead_gradients="flow")])
def test_gradients_flow_only_where_weights_are_equal(conventions):
    plain = Conventions(dead_rows=conventions.dead_rows)
    for a, b in zip(*(ATTENTION(*_case(), conventions=c) for c in (conventions, plain)), strict=True):
        np.testing.assert_array_equal(a.mid, b.mid)
        np.testing.assert_array_equal(a.rad, b.rad)
