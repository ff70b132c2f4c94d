"""Inputs that expose: what is planted in a float32 kernel is seen at every length, by the output,
the gradients and the tangent.
"""

from dataclasses import replace

import numpy as np
import pytest

from oracles import preset
from oracles.formats import BINARY16, BRAIN16, PRESETS
from properties.contract.implementation import Implementation
from properties.contract.operations import OPERATIONS
from properties.contract.results import BrokenError
from properties.contract.subject import Subject
from properties.laws import LONG, find
from properties.strategies.cases import Cases
from properties.strategies.choices import rounded
from properties.strategies.domains import DOMAINS
from properties.strategies.dominating import LONG as LONGEST
from properties.strategies.dominating import dominating, scores_of
from properties.verifier.plan import plan
from properties.verifier.verify import examine

SDPA = "scaled_dot_product_attention"
VJP, JVP = f"{SDPA}_vjp", f"{SDPA}_jvp"
DOMAIN, LONGER = "dominating keys", "attention is within its error limit at 131072 keys"
LAWS = {
    law.operation: law
    for name, operation in (("attention", SDPA), ("the VJP", VJP), ("the JVP", JVP))
    for law in find(f"{name} is within its error limit[{operation}]")
}


def same(x):
    return x


def ten_bits(x):
    """As TF32 holds a number."""
    return np.float32(
        rounded(np.float64(x), replace(BINARY16, smallest_subnormal=2.0**-136, smallest_normal=2.0**-126, largest=3e38))
    )


def of(target):
    return lambda x: np.float32(rounded(np.float64(x), target))


def operations(factor=1.0, operand=same, given=same, weight=same, keys=None):
    """Attention in float32 and its derivatives: with another scale, and roundings of operands, of
    inputs, and of weights; of some keys.
    """

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
        d_s = (product(dq, k.swapaxes(-1, -2)) + product(q, dk.swapaxes(-1, -2))) * np.float32(
            factor / np.sqrt(q.shape[-1])
        )
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


def is_seen(offered, operation, keys):
    """Whether one of a hundred cases of so many keys is outside its budget."""
    planted = Implementation("planted", {operation: offered[operation]}, arithmetic="float32")
    domain, law, subject = DOMAINS[operation][DOMAIN], LAWS[operation], Subject(planted, operation)
    cases = Cases(OPERATIONS[operation], replace(domain, sizes={**domain.sizes, "n_k": (keys,)}), planted)
    for seed in range(1, 101):
        subject.begin()
        try:
            law.hold(subject, law.case(cases.draw(seed), seed))
        except BrokenError:
            return subject.calls[0].arguments[1].shape[-2] == keys
    return False


@pytest.mark.parametrize("keys", [128, 1024, 8192])
@pytest.mark.parametrize("operation", LAWS)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_seen_at_every_length(fault, operation, keys):
    assert is_seen(FAULTS[fault], operation, keys)


@pytest.mark.parametrize("operation", LAWS)
def test_a_correct_kernel_of_float32_holds(operation):
    law = replace(LAWS[operation], domains=(DOMAIN,))
    (found,) = examine(
        [law], Implementation("right", {operation: operations()[operation]}, arithmetic="float32"), 100, 3
    )
    assert found.status == "held", found


def test_the_long_plan_sees_a_scale_that_is_off_at_131072_keys():
    (law,) = find(f"{LONGER}[{SDPA}]")
    planted = Implementation("planted", {SDPA: FAULTS["a scale that is off by .8 %"][SDPA]}, arithmetic="float32")
    (found,) = examine([law], planted, 1)
    assert found.status == "violated"
    assert found.violation.counterexample["k"].shape[-2] in LONGEST


def test_the_long_plan_is_asked_for():
    mine = Implementation("mine", {SDPA: operations()[SDPA]}, arithmetic="float32")
    usual, long = plan(mine), plan(mine, long=True)
    assert set(long) - set(usual) == {law for law in LONG if law.operation == SDPA}
    assert plan(mine, [LONGER]) == [law for law in LONG if law.operation == SDPA]


@pytest.mark.parametrize("arithmetic", PRESETS, ids=lambda a: a.name)
def test_inputs_are_numbers_of_the_format_and_keys_share_the_weight(arithmetic):
    for score in scores_of(arithmetic):
        q, k, v = dominating(np.random.default_rng(0), (4, 300), (16, 8), score, arithmetic.inputs)
        assert all(np.array_equal(x, rounded(x, arithmetic.inputs)) for x in (q, k, v))
        scores = q @ k.T / 4
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        assert ((weights > 1e-6).sum(-1) > 1).all()
        assert (weights[:, -1] > 1e-14).all(), "the last key has a weight that can be read out"
        assert (np.sort(weights, -1)[:, :-8] < 1e-40).all(), "the others have none"


def test_an_arithmetic_that_stores_scores_in_few_bits_is_given_small_ones():
    assert scores_of(preset("bfloat16-eager")) == [16.0]
    assert scores_of(preset("float32")) == [128.0, 1024.0, 8192.0]
