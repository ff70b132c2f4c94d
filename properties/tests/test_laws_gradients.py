"""Each law of gradients, of tangents and of heads catches a mistake of one line, and the reference keeps them all."""

from dataclasses import replace

import numpy as np
import pytest

import oracles
from properties.implementation import Implementation
from properties.laws import (
    find,
    gradient_masks,
    gradient_sums,
    gradient_symmetries,
    gradients,
    multi_head,
    multi_head_gradients,
    tangents,
    torch_witness,
)
from properties.laws.derivatives import DERIVATIVES
from properties.reference import OPERATIONS, attention_weights, hard_masked_softmax, scores_of
from properties.subject import Subject
from properties.verifier import check

pytestmark = pytest.mark.filterwarnings("ignore:Generating overly large repr")  # of drawn arrays

SDPA = "scaled_dot_product_attention"
VJP, JVP, SOFTMAX = f"{SDPA}_vjp", f"{SDPA}_jvp", "hard_masked_softmax_vjp"
HEADS, HEADS_VJP, HEADS_JVP = "multi_head_attention", "multi_head_attention_vjp", "multi_head_attention_jvp"
MODULES = (gradients, gradient_sums, gradient_symmetries, gradient_masks, tangents, multi_head, multi_head_gradients, torch_witness)
LAWS = {law.id: law for module in MODULES for law in module.law.laws}


def vjp(q, k, v, mask, g, dq=1.0, dk=1.0, dv=1.0):
    found = OPERATIONS[VJP](q, k, v, mask, g)
    return found[0] * dq, found[1] * dk, found[2] * dv


def attended(p, ds, q, k, g):
    ds = ds / np.sqrt(q.shape[-1])
    return ds @ k, ds.swapaxes(-1, -2) @ q, p.swapaxes(-1, -2) @ g


def without_row_term(q, k, v, mask, g):
    p = attention_weights(q, k, mask)
    return attended(p, p * (g @ v.swapaxes(-1, -2)), q, k, g)


def without_maximum(q, k, v, mask, g):
    with np.errstate(over="ignore", invalid="ignore"):
        e = np.exp(np.where(True if mask is None else mask, scores_of(q, k), -np.inf))
        p = e / e.sum(-1, keepdims=True)
        dp = g @ v.swapaxes(-1, -2)
        return attended(p, p * (dp - (p * dp).sum(-1, keepdims=True)), q, k, g)


def jvp_without_maximum(q, k, v, mask, *tangents):
    with np.errstate(over="ignore"):
        finite = np.isfinite(np.exp(scores_of(q, k))).all()
    return jvp(q, k, v, mask, *tangents) * (1.0 if finite else np.nan)


def every(x, row=0):
    """Ones, but 1/2 in one row."""
    factor = np.ones(x.shape)
    factor[..., row, :] = 0.5
    return factor


def only(n, count):
    return (np.arange(n) < count)[:, None].astype(float)


def unmasked(q, k, v, mask, g):
    return OPERATIONS[VJP](q, k, v, None, g)


def jvp(q, k, v, mask, dq, dk, dv):
    return OPERATIONS[JVP](q, k, v, mask, dq, dk, dv)


def unmasked_jvp(q, k, v, mask, *t):
    return jvp(q, k, v, None, *t)


def uncentred(q, k, v, mask, dq, dk, dv):
    p = attention_weights(q, k, mask)
    return p * (scores_of(dq, k) + scores_of(q, dk)) @ v + p @ dv


def first_keys_twice(q, k, v, mask, dq, dk, dv):
    return jvp(q, k, v, mask, dq, dk, dv * every(dv))


def softmax_vjp(scores, mask, g):
    return OPERATIONS[SOFTMAX](scores, mask, g)


def heads(x, wq, wk, wv, wo, num_heads, mask=None):
    return OPERATIONS[HEADS](x, wq, wk, wv, wo, num_heads, mask)


def lanes_of_heads_strided(x, wq, wk, wv, wo, num_heads, mask=None):
    order = np.arange(wq.shape[1]).reshape(-1, num_heads).T.ravel()
    return heads(x, wq[:, order], wk[:, order], wv[:, order], wo, num_heads, mask)


def heads_vjp(*case):
    return OPERATIONS[HEADS_VJP](*case)


def scaled(place, factor):
    """The reference's gradients with one of them multiplied."""
    return lambda *case: tuple(x * factor if n == place else x for n, x in enumerate(heads_vjp(*case)))


def rows_of_nan(x, mask, shape):
    return np.where(np.broadcast_to(mask, shape).any(-1, keepdims=True), x, np.nan)


PLANTED = {
    f"the vjp is within its budget[{VJP}]": lambda *case: vjp(*case, dq=1 + 1e-9),
    f"the vjp is within its budget[{SOFTMAX}]": lambda *case: softmax_vjp(*case) * (1 + 1e-9),
    f"the vjp is within its budget[{HEADS_VJP}]": scaled(2, 1 + 1e-7),
    f"the vjp is within its budget across tiles[{VJP}]": lambda q, *rest: vjp(q, *rest, dq=only(q.shape[-2], 64)),
    f"the vjp is within its budget across tiles[{SOFTMAX}]": lambda s, *rest: softmax_vjp(s, *rest) * only(s.shape[-2], 64),
    f"the vjp is within its budget across tiles[{HEADS_VJP}]": lambda x, *rest: (
        heads_vjp(x, *rest)[0] * only(x.shape[-2], 32),
        *heads_vjp(x, *rest)[1:],
    ),
    f"the vjp is within its budget at extreme logits[{VJP}]": without_maximum,
    f"the vjp is within its budget at extreme logits[{SOFTMAX}]": lambda s, m, g: softmax_vjp(np.clip(s, -600, 600), m, g),
    f"the vjp is linear[{VJP}]": lambda q, k, v, m, g: vjp(q, k, v, m, np.clip(g, -4, 4)),
    f"the vjp is linear[{SOFTMAX}]": lambda s, m, g: softmax_vjp(s, m, np.clip(g, -4, 4)),
    f"the vjp is linear[{HEADS_VJP}]": lambda *case: heads_vjp(*case[:-1], np.clip(case[-1], -4, 4)),
    f"the vjp is certified by the derivative of the forward[{VJP}]": lambda *case: vjp(*case, dk=np.sqrt(2)),
    f"the vjp is certified by the derivative of the forward[{SOFTMAX}]": lambda s, m, g: softmax_vjp(s, m, g) * 2,
    f"the vjp is certified by the derivative of the forward[{HEADS_VJP}]": scaled(4, 0.5),
    f"one hot cotangents read out the weights[{VJP}]": unmasked,
    f"gradients follow from the weights they read out[{VJP}]": lambda *case: vjp(*case, dq=2.0),
    f"key gradients sum to zero[{VJP}]": without_row_term,
    f"score gradients sum to zero[{SOFTMAX}]": lambda s, m, g: hard_masked_softmax(s, m) * g,
    f"value gradients sum to the live cotangents[{VJP}]": lambda q, k, *rest: vjp(q, k, *rest, dv=only(k.shape[-2], 64)),
    f"queries and keys turn alike[{VJP}]": lambda *case: vjp(*case, dk=1 / np.sqrt(2)),
    f"values and outputs turn alike[{VJP}]": unmasked,
    f"adding a vector to every value changes no gradient[{VJP}]": without_row_term,
    f"adding a vector to every key changes no gradient[{VJP}]": without_maximum,
    f"one hot cotangents give columns of the jacobian[{SOFTMAX}]": lambda s, m, g: hard_masked_softmax(s, m) * g,
    f"adding a constant to a row changes no gradient[{SOFTMAX}]": lambda s, m, g: softmax_vjp(np.clip(s, -600, 600), m, g),
    f"queries give separate gradients[{VJP}]": lambda q, *rest: vjp(q, *rest, dk=1.0 + (q.shape[-2] > 2)),
    f"gradients move with their keys[{VJP}]": lambda q, k, *rest: vjp(q, k, *rest, dk=every(k)),
    f"gradients move with their lanes[{VJP}]": lambda q, *rest: vjp(q, *rest, dq=np.arange(q.shape[-1]) < 4),
    f"gradients scale against their inputs[{VJP}]": lambda q, k, *rest: vjp(q, np.clip(k, -1, 1), *rest),
    f"appending blocked keys changes no gradient[{VJP}]": lambda q, k, *rest: vjp(q, k, *rest, dv=only(k.shape[-2], k.shape[-2] // 4 * 4)),
    f"gradients move with their scores[{SOFTMAX}]": lambda s, m, g: softmax_vjp(s, m, g) * every(s.swapaxes(-1, -2)).swapaxes(-1, -2),
    f"the softmax derivative is symmetric[{SOFTMAX}]": lambda s, m, g: g - hard_masked_softmax(s, m) * g.sum(-1, keepdims=True),
    f"blocked positions give and get no gradient[{VJP}]": unmasked,
    f"blocked positions give and get no gradient[{SOFTMAX}]": lambda s, m, g: softmax_vjp(s, None, g),
    f"blocked keys and values do not matter to gradients[{VJP}]": unmasked,
    f"under a causal mask keys get nothing from earlier queries[{VJP}]": unmasked,
    f"a dead query has gradients by convention[{VJP}]": without_maximum,
    f"a row with no allowed entry has its gradient by convention[{SOFTMAX}]": lambda s, m, g: rows_of_nan(softmax_vjp(s, m, g), m, s.shape),
    f"a dead token gives no gradient[{HEADS_VJP}]": lambda *case: tuple(
        x * (np.broadcast_to(case[6], (*case[0].shape[:-1], case[0].shape[-2])).any(-1).all() or np.nan) for x in heads_vjp(*case)
    ),
    f"the jvp is within its budget[{JVP}]": lambda *case: jvp(*case) * (1 + 1e-9),
    f"the jvp is within its budget[{HEADS_JVP}]": lambda *case: OPERATIONS[HEADS_JVP](*case) * (1 + 1e-7),
    f"the jvp is within its budget across tiles[{JVP}]": lambda q, *rest: jvp(q, *rest) * only(q.shape[-2], 64),
    f"the jvp is within its budget across tiles[{HEADS_JVP}]": lambda x, *rest: OPERATIONS[HEADS_JVP](x, *rest) * only(x.shape[-2], 32),
    f"the jvp is within its budget at extreme logits[{JVP}]": jvp_without_maximum,
    f"the jvp is linear[{JVP}]": lambda q, k, v, m, dq, dk, dv: jvp(q, k, v, m, dq, dk, dv) + (dq**2).sum(-1, keepdims=True),
    f"the jvp is linear[{HEADS_JVP}]": lambda *case: OPERATIONS[HEADS_JVP](*case[:-1], case[-1] * (1 + np.abs(case[7]).max(initial=0))),
    f"the jvp is certified by the derivative of the forward[{JVP}]": lambda q, k, v, m, dq, dk, dv: jvp(q, k, v, m, 0 * dq, dk, dv),
    f"the jvp is certified by the derivative of the forward[{HEADS_JVP}]": lambda *case: 2 * OPERATIONS[HEADS_JVP](*case),
    f"a tangent of the values alone is attention of it[{JVP}]": lambda q, k, v, m, dq, dk, dv: jvp(q, k, v, m, dq, dk, 0 * dv),
    f"a common tangent of all keys changes nothing[{JVP}]": uncentred,
    f"constant values have no tangent from the scores[{JVP}]": uncentred,
    f"turning queries is turning keys back[{JVP}]": lambda q, k, v, m, dq, dk, dv: jvp(q, k, v, m, dq, 2 * dk, dv),
    f"blocked tangents do not matter[{JVP}]": unmasked_jvp,
    f"the past does not move with the future[{JVP}]": unmasked_jvp,
    f"the order of keys does not matter to tangents[{JVP}]": first_keys_twice,
    f"a dead query has tangent by convention[{JVP}]": lambda q, k, v, m, *t: rows_of_nan(jvp(q, k, v, m, *t), m, scores_of(q, k).shape),
    f"vjp and jvp are adjoint[{VJP}]": lambda *case: vjp(*case, dq=2.0),
    f"vjp and jvp are adjoint[{HEADS_VJP}]": scaled(1, 2.0),
    f"multi head attention is within its budget[{HEADS}]": lambda *case: heads(*case) * (1 + 1e-7),
    f"multi head attention is within its budget across tiles[{HEADS}]": lambda x, *rest: heads(x, *rest) * only(x.shape[-2], 128),
    f"identity weights merge what they split[{HEADS}]": lanes_of_heads_strided,
    f"one allowed token gives its projection[{HEADS}]": lanes_of_heads_strided,
    f"one head is self attention[{HEADS}]": lambda x, wq, *rest: heads(x, 2 * wq, *rest),
    f"multi head attention is the sum of its heads[{HEADS}]": lanes_of_heads_strided,
    f"heads permute with the rows of wo[{HEADS}]": lambda x, wq, wk, wv, wo, *rest: heads(x, wq, wk, wv, wo * every(wo), *rest),
    f"padding heads with zero lanes needs doubled queries[{HEADS}]": lambda x, wq, *rest: heads(x, wq * np.sqrt(wq.shape[1]), *rest),
    f"the past does not depend on the future[{HEADS}]": lambda *case: heads(*case[:6]),
    f"tokens move with their outputs[{HEADS}]": lambda x, *rest: heads(x, *rest) * every(x),
    f"blocked tokens do not matter[{HEADS}]": lambda *case: heads(*case[:6]),
    f"a token with nothing to attend to follows its convention[{HEADS}]": lambda *case: heads(*case[:6]),
    f"multi head attention equals that of torch[{HEADS}]": lambda *case: heads(*case) * (1 + 1e-9),
    f"weight gradients sum over the batch[{HEADS_VJP}]": lambda x, *rest: tuple(g / len(x) for g in heads_vjp(x, *rest)),
    f"weights of a head turn alike[{HEADS_VJP}]": scaled(2, 2.0),
    f"outputs and output weights turn alike[{HEADS_VJP}]": scaled(4, 2.0),
    f"gradients move with their tokens[{HEADS_VJP}]": lambda x, *rest: (heads_vjp(x, *rest)[0] * every(x), *heads_vjp(x, *rest)[1:]),
    f"under a causal mask tokens get nothing from earlier ones[{HEADS_VJP}]": lambda *case: heads_vjp(*case[:6], None, case[7]),
    f"turning the tokens is turning the projections[{HEADS_JVP}]": lambda *case: OPERATIONS[HEADS_JVP](*case[:8], 0 * case[8], *case[9:]),
    f"tangents of values and outputs take the place of weights[{HEADS_JVP}]": lambda *case: OPERATIONS[HEADS_JVP](*case[:11], 0 * case[11]),
}  # fmt: skip


def test_every_law_has_a_planted_mistake():
    assert set(PLANTED) == set(LAWS)


def test_laws_on_cases_of_their_own_name_every_entry():
    reference = Implementation("reference", OPERATIONS)
    for law in LAWS.values():
        case = []
        check(law_that_records(law, case), reference, 1, 0)
        assert len(case[0]) == len(law.parameters), law.id


def law_that_records(law, cases):
    def record(subject, *case):
        cases.append(case)

    return replace(law, body=record)


@pytest.mark.parametrize("law", PLANTED)
def test_each_law_catches_a_planted_mistake(law):
    (chosen,) = find(law)
    found = check(chosen, Implementation("planted", {**OPERATIONS, chosen.operation: PLANTED[law]}), 100, 0, shrink=False)
    assert found.status == "violated", found


@pytest.mark.parametrize("law", LAWS)
def test_the_reference_keeps_each_law(law):
    found = check(LAWS[law], Implementation("reference", OPERATIONS), 4, 1)
    assert found.status == "held", found


def test_a_row_that_may_read_nothing_and_is_nan_shrinks_to_one_query():
    (law,) = find(f"a dead query has gradients by convention[{VJP}]")
    case = check(law, Implementation("planted", {**OPERATIONS, VJP: without_maximum}), 100, 0).violation.counterexample
    assert case["q"].shape[-2] <= 2
    assert not case["mask"].any(-1).all()


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
    weights, tangents = ([CASES.standard_normal(s) for s in [(2, 4)] * 3 + [(4, 2)]] for _ in range(2))
    found = DERIVATIVES[HEADS]((x, *weights, 2, None), [dx, *tangents])
    expected = oracles.multi_head_attention_jvp(x, *weights, 2, None, dx, *tangents)
    assert (np.abs(found.mid - expected.mid) <= found.rad + expected.rad).all()


@pytest.mark.parametrize(("reading", "share"), [("zero", 0.0), ("uniform", 0.5)])
def test_a_dead_query_gives_what_its_convention_says(reading, share):
    def uniform(q, k, v, mask, g):
        dead = ~np.broadcast_to(mask, (*q.shape[:-1], k.shape[-2])).any(-1, keepdims=True)
        dq, dk, dv = OPERATIONS[VJP](q, k, v, mask, g)
        return dq, dk, dv + share * np.where(dead, g, 0.0).sum(-2, keepdims=True)

    (law,) = find(f"a dead query has gradients by convention[{VJP}]")
    conventions = oracles.Conventions(dead_rows=reading)
    subject = Subject(Implementation("planted", {VJP: uniform}, conventions=conventions), VJP)
    law.body(subject, Q[0], K[0, :2], V[0, :2], np.array([[True, True], [False, False], [True, False]]), np.ones((3, 5)))
    assert subject.informative


def with_means(operation, average):
    """The operation in float32, of which rows that may read nothing are an average."""

    def call(*case):
        out = OPERATIONS[operation](*(x.astype(float) if isinstance(x, np.ndarray) and x.dtype != bool else x for x in case))
        mask = case[6] if operation.startswith("multi") else case[3]
        dead = ~np.broadcast_to(mask, (*out.shape[:-1], mask.shape[-1])).any(-1, keepdims=True) if mask is not None else False
        return np.where(dead, average(*case), out).astype(np.float32)

    return call


def mean_of_tangents(q, k, v, mask, dq, dk, dv):
    return dv.astype(float).mean(-2, keepdims=True)


def mean_of_projections(x, wq, wk, wv, wo, num_heads, mask):
    return x.astype(float).mean(-2, keepdims=True) @ wv.astype(float) @ wo.astype(float)


@pytest.mark.parametrize(
    ("law", "average"),
    [
        (f"a dead query has tangent by convention[{JVP}]", mean_of_tangents),
        (f"a token with nothing to attend to follows its convention[{HEADS}]", mean_of_projections),
    ],
)
def test_a_mean_over_all_keys_may_be_rounded_as_the_arithmetic_rounds(law, average):
    (chosen,) = find(law)
    promises = {"arithmetic": "float32", "conventions": oracles.Conventions(dead_rows="uniform")}

    def outcome(change):
        function = with_means(chosen.operation, lambda *case: change * average(*case))
        return check(chosen, Implementation("rounded", {chosen.operation: function}, **promises), 60, 0, shrink=False)

    assert outcome(1.0).status == "held"
    assert outcome(1.0).worst_excess > 0
    assert outcome(1.01).status == "violated"
