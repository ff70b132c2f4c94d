"""Inputs that expose: what is planted in a float32 kernel is seen at every length, by the output, the gradients and the tangent."""

from dataclasses import replace

import numpy as np
import pytest

from oracles import preset
from oracles.formats import BINARY16, BRAIN16, PRESETS
from properties.implementation import Implementation
from properties.laws import LAWS, LONG, find
from properties.strategies.choices import rounded
from properties.strategies.dominating import LONG as LONGEST
from properties.strategies.dominating import dominated, dominated_jvp, dominated_vjp, dominating, scores_of
from properties.verifier import check, examine, plan

SDPA = "scaled_dot_product_attention"
VJP, JVP = f"{SDPA}_vjp", f"{SDPA}_jvp"
CASES = {SDPA: dominated, VJP: dominated_vjp, JVP: dominated_jvp}
SHARED = {law.operation: law for law in LAWS if law.name.startswith("few dominating keys")}


def same(x):
    return x


def ten_bits(x):
    """As TF32 holds a number."""
    return np.float32(rounded(np.float64(x), replace(BINARY16, smallest_subnormal=2.0**-136, smallest_normal=2.0**-126, largest=3e38)))


def of(target):
    return lambda x: np.float32(rounded(np.float64(x), target))


def operations(factor=1.0, operand=same, given=same, weight=same, keys=None):
    """Attention in float32 and its derivatives: with another scale, and roundings of operands, of inputs, and of weights; of some keys."""

    def product(a, b):
        return operand(a) @ operand(b)

    def weights(q, k):
        scores = product(q, k.swapaxes(-1, -2)) * np.float32(factor / np.sqrt(q.shape[-1]))
        scores[..., keys:] = -np.inf if keys is not None else scores[..., keys:]
        found = np.exp(scores - scores.max(-1, keepdims=True))
        return weight(found / found.sum(-1, keepdims=True))

    def forward(q, k, v, mask):
        q, k, v = map(given, (q, k, v))
        return product(weights(q, k), v)

    def vjp(q, k, v, mask, g):
        q, k, v, g = map(given, (q, k, v, g))
        p, d_p = weights(q, k), product(g, v.swapaxes(-1, -2))
        d_s = p * (d_p - (p * d_p).sum(-1, keepdims=True)) * np.float32(factor / np.sqrt(q.shape[-1]))
        return product(d_s, k), product(d_s.swapaxes(-1, -2), q), product(p.swapaxes(-1, -2), g)

    def jvp(q, k, v, mask, dq, dk, dv):
        q, k, v, dq, dk, dv = map(given, (q, k, v, dq, dk, dv))
        p = weights(q, k)
        d_s = (product(dq, k.swapaxes(-1, -2)) + product(q, dk.swapaxes(-1, -2))) * np.float32(factor / np.sqrt(q.shape[-1]))
        return product(p * (d_s - (p * d_s).sum(-1, keepdims=True)), v) + product(p, dv)

    return {SDPA: forward, VJP: vjp, JVP: jvp}


FAULTS = {
    "TF32 products": operations(operand=ten_bits),
    "a scale that is off by .8 %": operations(factor=1.008),
    "a missing last key": operations(keys=-1),
    "inputs of float16": operations(given=of(BINARY16)),
    "inputs of bfloat16": operations(given=of(BRAIN16)),
    "weights of float16": operations(weight=of(BINARY16)),
}


def outcome(offered, operation, keys):
    """Of the law at one length."""
    law = replace(SHARED[operation], cases=lambda i: CASES[operation](i, (keys,)), effort=0.1)
    return examine([law], Implementation("planted", {operation: offered[operation]}, arithmetic="float32"), 100, 0)[0]


@pytest.mark.parametrize("keys", [128, 1024, 8192])
@pytest.mark.parametrize("operation", CASES)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_seen_at_every_length(fault, operation, keys):
    assert outcome(FAULTS[fault], operation, keys).status == "violated"


@pytest.mark.parametrize("operation", CASES)
def test_a_correct_kernel_of_float32_holds(operation):
    found = check(SHARED[operation], Implementation("right", {operation: operations()[operation]}, arithmetic="float32"), 40, 3)
    assert found.status == "held", found
    assert 2 * found.informative > found.examples  # at scores of thousands a tangent may be lost in the rounding of its score


def test_the_long_plan_sees_a_scale_that_is_off_at_131072_keys():
    (law,) = find(f"few dominating keys of 131072 share the weight[{SDPA}]")
    planted = Implementation("planted", {SDPA: FAULTS["a scale that is off by .8 %"][SDPA]}, arithmetic="float32")
    found = examine([law], planted, 1, 0)[0]
    assert found.status == "violated"
    assert found.violation.counterexample["k"].shape[-2] in LONGEST


def test_the_long_plan_is_asked_for():
    mine = Implementation("mine", {SDPA: operations()[SDPA]}, arithmetic="float32")
    usual, long = plan(mine), plan(mine, long=True)
    assert set(long) - set(usual) == {law for law in LONG if law.operation == SDPA}
    assert plan(mine, ["few dominating keys of 131072 share the weight"]) == [law for law in LONG if law.operation == SDPA]


@pytest.mark.parametrize("arithmetic", PRESETS, ids=lambda a: a.name)
def test_inputs_are_numbers_of_the_format_and_keys_share_the_weight(arithmetic):
    for score in scores_of(arithmetic):
        q, k, v = dominating(np.random.default_rng(0), 4, 300, 16, 8, score, arithmetic.inputs)
        assert all(np.array_equal(x, rounded(x, arithmetic.inputs)) for x in (q, k, v))
        scores = q @ k.T / 4
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        assert ((weights > 1e-6).sum(-1) > 1).all()
        assert (weights[:, -1] > 1e-14).all(), "the last key has a weight that can be read out"
        assert (np.sort(weights, -1)[:, :-8] < 1e-40).all(), "the others have none"


def test_an_arithmetic_that_stores_scores_in_few_bits_is_given_small_ones():
    assert scores_of(preset("bfloat16-eager")) == [16.0]
    assert scores_of(preset("float32")) == [128.0, 1024.0, 8192.0]
