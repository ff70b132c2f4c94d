"""Each law of gradients, of tangents and of heads catches some mistake of one line, and correct
implementations keep them all.
"""

from dataclasses import replace

import numpy as np
import pytest

import oracles
from oracles import Conventions
from properties.bugs.reference import REFERENCE, attention_weights, hard_masked_softmax, scores_of
from properties.contract import operations
from properties.contract.implementation import Implementation
from properties.laws import LAWS, gradients, multi_head, tangents
from properties.laws.commuting_squares import Square
from properties.laws.derivatives import DERIVATIVES
from properties.verifier.verify import examine

SDPA, HEADS, GQA = "scaled_dot_product_attention", "multi_head_attention", "grouped_query_attention"
VJP, JVP, SOFTMAX = f"{SDPA}_vjp", f"{SDPA}_jvp", "hard_masked_softmax_vjp"
HEADS_VJP, HEADS_JVP = f"{HEADS}_vjp", f"{HEADS}_jvp"
NAMED = {
    law.id
    for module in (gradients, tangents, multi_head)
    for law in module.law.laws
    if not isinstance(law.body, Square)
}
ROWS = {
    "repeating key heads for each query head changes nothing",
    "heads are computed independently",
    "the order of heads does not matter",
    "the order of columns within heads does not matter",
    "tokens depend on visible tokens only",
}
OURS = {
    operation: [
        law
        for law in LAWS
        if law.operation == operation and (law.id in NAMED or (law.name in ROWS and operation in (HEADS, GQA)))
    ]
    for operation in (VJP, JVP, SOFTMAX, HEADS, HEADS_VJP, HEADS_JVP, GQA)
}


def vjp(q, k, v, mask, g, dq=1.0, dk=1.0, dv=1.0):
    found = REFERENCE[VJP](q, k, v, mask, g)
    return found[0] * dq, found[1] * dk, found[2] * dv


def without_row_term(q, k, v, mask, g):
    p = attention_weights(q, k, mask)
    ds = p * (g @ v.swapaxes(-1, -2)) / np.sqrt(q.shape[-1])
    return ds @ k, ds.swapaxes(-1, -2) @ q, p.swapaxes(-1, -2) @ g


def uncentred(q, k, v, mask, dq, dk, dv):
    p = attention_weights(q, k, mask)
    return p * (scores_of(dq, k) + scores_of(q, dk)) @ v + p @ dv


def jvp(*case):
    return REFERENCE[JVP](*case)


def softmax_vjp(scores, mask, g):
    return REFERENCE[SOFTMAX](scores, mask, g)


def heads(x, wq, wk, wv, wo, num_heads, mask=None):
    return REFERENCE[HEADS](x, wq, wk, wv, wo, num_heads, mask)


def strided(x, wq, wk, wv, wo, num_heads, mask=None):
    """Heads are every so many columns."""
    order = np.arange(wq.shape[1]).reshape(-1, num_heads).T.ravel()
    return heads(x, wq[:, order], wk[:, order], wv[:, order], wo, num_heads, mask)


def heads_vjp(*case, place=0, factor=1.0):
    return tuple(x * factor if n == place else x for n, x in enumerate(REFERENCE[HEADS_VJP](*case)))


def heads_jvp(*case):
    return REFERENCE[HEADS_JVP](*case)


def tiled(q, k, v, mask=None):
    return REFERENCE[SDPA](q, *(np.concatenate([x] * (q.shape[-3] // x.shape[-3]), -3) for x in (k, v)), mask)


def nan_where_dead(x, mask, n_k):
    return (
        x if mask is None else np.where(np.broadcast_to(mask, (*x.shape[:-1], n_k)).any(-1, keepdims=True), x, np.nan)
    )


MISTAKES = {
    VJP: [
        lambda *case: vjp(*case, dq=2.0),
        lambda *case: vjp(*case, dv=2.0),
        without_row_term,
        lambda q, k, v, mask, g: vjp(q, k, v, None, g),
        lambda q, k, v, mask, g: vjp(q, k, v, mask, np.clip(g, -4, 4)),
        lambda q, k, v, mask, g: tuple(
            nan_where_dead(x, mask, k.shape[-2]) if x.shape == q.shape else x for x in vjp(q, k, v, mask, g)
        ),
    ],
    SOFTMAX: [
        lambda s, mask, g: hard_masked_softmax(s, mask) * g,
        lambda s, mask, g: g - hard_masked_softmax(s, mask) * g.sum(-1, keepdims=True),
        lambda s, mask, g: softmax_vjp(s, mask, np.clip(g, -4, 4)),
        lambda s, mask, g: softmax_vjp(s, None, g),
        lambda s, mask, g: nan_where_dead(softmax_vjp(s, mask, g), mask, s.shape[-1]),
    ],
    HEADS_VJP: [
        lambda *case: heads_vjp(*case, place=1, factor=2.0),
        lambda *case: heads_vjp(*case, place=4, factor=2.0),
        lambda *case: heads_vjp(*case[:-1], np.clip(case[-1], -4, 4)),
        lambda *case: heads_vjp(*case[:6], None, case[7]),
        lambda *case: tuple(
            x + nan_where_dead(0 * case[0], case[6], case[0].shape[-2]).sum() for x in heads_vjp(*case)
        ),
    ],
    JVP: [
        uncentred,
        lambda q, k, v, mask, *t: jvp(q, k, v, None, *t),
        lambda q, k, v, mask, dq, dk, dv: jvp(q, k, v, mask, dq, 2 * dk, 0 * dv),
        lambda q, k, v, mask, dq, dk, dv: jvp(q, k, v, mask, dq, dk, dv) + (dq**2).sum(-1, keepdims=True),
        lambda q, k, v, mask, *t: nan_where_dead(jvp(q, k, v, mask, *t), mask, k.shape[-2]),
    ],
    HEADS_JVP: [
        lambda *case: heads_jvp(*case[:8], 2 * case[8], *case[9:11], 0 * case[11]),
        lambda *case: heads_jvp(*case[:6], None, *case[7:]),
        lambda *case: heads_jvp(*case) * (1 + np.abs(case[7]).max(initial=0)),
    ],
    HEADS: [
        strided,
        lambda x, wq, *rest: heads(x, 2 * wq, *rest),
        lambda x, wq, wk, wv, wo, num_heads, mask=None: heads(
            x, wq, wk, wv, wo * (np.arange(wo.shape[0]) < 4)[:, None], num_heads, mask
        ),
        lambda *case: heads(*case[:6]),
        lambda *case: heads(*case) * (1 + 1e-7),
    ],
    GQA: [
        tiled,
        lambda q, k, v, mask=None: REFERENCE[GQA](
            q * (1 + 1e-6 * np.arange(q.shape[-3]) * k.shape[-3])[:, None, None], k, v, mask
        ),
    ],
}


@pytest.mark.parametrize("operation", MISTAKES)
def test_each_law_catches_one_of_some_mistakes(operation):
    left = list(OURS[operation])
    for mistake in MISTAKES[operation]:
        if left:
            found = examine(left, Implementation("mistaken", {**REFERENCE, operation: mistake}), 12, 0)
            left = [law for law, outcome in zip(left, found, strict=True) if outcome.status != "violated"]
    assert [law.name for law in left] == []


def correct(**reading):
    """The nearest numbers to the exact results, by other conventions."""
    conventions = Conventions(**reading)

    def function(o):
        def call(*case):
            found = tuple(x.mid for x in o.expected(case, oracles.FLOAT64, conventions))
            return found if len(found) > 1 else found[0]

        return call

    named = {
        name: function(o)
        for name, o in operations.OPERATIONS.items()
        if name in OURS or name in (SDPA, "hard_masked_softmax")
    }
    return Implementation(f"correct with {reading}", named, conventions=conventions)


PROMISES = [
    Implementation("reference", REFERENCE),
    correct(dead_rows="uniform", mask_polarity="true_blocks"),
    correct(dead_rows="nan", kv_heads="tile"),
    replace(
        Implementation("square", REFERENCE),
        batch_ranks=(0, 1),
        supports={"model_dim_minus_heads_width": lambda n: n == 0},
    ),
    replace(
        Implementation("even", REFERENCE), supports={"head_dim": lambda d: d % 8 == 0, "n_q": lambda n: n % 8 == 0}
    ),
]


@pytest.mark.parametrize("operation", OURS)
@pytest.mark.parametrize("implementation", PROMISES, ids=lambda i: i.name)
def test_what_is_correct_keeps_each_law(implementation, operation):
    outcomes = examine(OURS[operation], implementation, 2, 1)
    assert not [outcome for outcome in outcomes if outcome.status not in ("held", "not applicable")]
    assert any(outcome.status == "held" for outcome in outcomes)


def test_all_laws_apply_to_the_reference():
    for laws in OURS.values():
        assert not any(law.not_applicable(PROMISES[0]) for law in laws)


# -- Certified derivatives -------------------------------------------------------------------------


CASES = np.random.default_rng(0)
Q, K, V, DQ, DK, DV = (CASES.standard_normal(shape) for shape in 2 * ((2, 3, 2), (2, 4, 2), (2, 4, 5)))
MASK = np.arange(4) <= np.arange(1, 4)[:, None]


def test_the_derivative_of_attention_is_that_of_the_oracle():
    found = DERIVATIVES[SDPA]((Q, K, V, MASK), [DQ, DK, DV])
    expected = oracles.scaled_dot_product_attention_jvp(Q, K, V, MASK, DQ, DK, DV)
    assert (np.abs(found.mid - expected.mid) <= found.rad + expected.rad).all()
    assert found.rad.max() < 1e-15


def test_the_derivative_of_softmax_is_that_of_the_oracle_for_a_symmetric_jacobian():
    scores, direction = Q @ K.swapaxes(-1, -2), DQ @ K.swapaxes(-1, -2)
    found = DERIVATIVES["hard_masked_softmax"]((scores, MASK), [direction])
    expected = oracles.hard_masked_softmax_vjp(scores, MASK, direction)
    assert (np.abs(found.mid - expected.mid) <= found.rad + expected.rad).all()


def test_the_derivative_of_multi_head_attention_is_that_of_the_oracle():
    x, dx = CASES.standard_normal((2, 2, 3, 2))
    weights, directions = ([CASES.standard_normal(s) for s in [(2, 4)] * 3 + [(4, 2)]] for _ in range(2))
    found = DERIVATIVES[HEADS]((x, *weights, 2, None), [dx, *directions])
    expected = oracles.multi_head_attention_jvp(x, *weights, 2, None, dx, *directions)
    assert (np.abs(found.mid - expected.mid) <= found.rad + expected.rad).all()
