"""Each law of masks, softmax, attention and grouped queries fails on a slip made for it, and holds under every convention."""

from dataclasses import replace

import numpy as np
import pytest

from oracles import Conventions
from properties import reference
from properties.implementation import Implementation
from properties.laws import LAWS, find
from properties.operations import OPERATIONS as OPERATION
from properties.reference import causal_mask, grouped_query_attention, hard_masked_softmax
from properties.reference import scaled_dot_product_attention as sdpa
from properties.verifier import check

SDPA, GQA, SOFTMAX, CAUSAL = "scaled_dot_product_attention", "grouped_query_attention", "hard_masked_softmax", "causal_attention"
OPERATIONS = {SDPA, GQA, SOFTMAX, CAUSAL, "causal_mask"}


def causal(q, k, v, shift=0):
    return sdpa(q, k, v, np.tri(q.shape[-2], k.shape[-2], shift, dtype=bool))


def keys(q, k, v, mask, n):
    """Attention to the first n keys only."""
    return sdpa(q, k[..., :n, :], v[..., :n, :], allowed(q, k, mask)[..., :n])


def allowed(q, k, mask):
    return np.broadcast_to(True if mask is None else mask, (*q.shape[:-1], k.shape[-2]))


def rows(x):
    return np.arange(x.shape[-2])[:, None]


def clamped(q, k, v, mask, most):
    return hard_masked_softmax(np.clip(reference.scores_of(q, k), -most, most), mask) @ v


def limited(q, k, v, mask=None):
    """Attention in float16 that takes NaN for an output beyond 2¹⁵."""
    out = sdpa(*(x.astype(float) for x in (q, k, v)), mask)
    return np.where(np.abs(out) > 32768, np.nan, out).astype(np.float16)


SLIPS = {
    (SDPA, "attention is within its budget"): lambda q, k, v, m=None: sdpa(1.001 * q, k, v, m),
    (SDPA, "attention is within its budget across tiles"): lambda q, k, v, m=None: keys(q, k, v, m, 256),
    (SDPA, "attention is within its budget at extreme logits"): lambda q, k, v, m=None: clamped(q, k, v, m, 5000),
    (SDPA, "attention is within its budget while decoding"): lambda q, k, v, m=None: keys(q, k, v, m, 512),
    (SDPA, "attention is within its budget at the widths of models"): lambda q, k, v, m=None: sdpa(q[..., :128], k[..., :128], v, m),
    (SDPA, "outputs stay within the allowed values"): lambda q, k, v, m=None: 1.01 * sdpa(q, k, v, m),
    (SDPA, "constant values come out unchanged"): lambda q, k, v, m=None: sdpa(q, k, v, m) * (1 - 1e-9),
    (SDPA, "attention is linear in the values"): lambda q, k, v, m=None: sdpa(q, k, np.clip(v, -16, 16), m),
    (SDPA, "one hot values read out the weights"): lambda q, k, v, m=None: sdpa(q, k, v, m) + 1e-30,
    (SDPA, "columns move with the values"): lambda q, k, v, m=None: sdpa(q, k, v, m) * (1 + 1e-9 * np.arange(v.shape[-1])),
    (SDPA, "zero queries take the mean"): lambda q, k, v, m=None: sdpa(q + 1e-6, k, v, m),
    (SDPA, "a dominating key wins"): lambda q, k, v, m=None: keys(q, k, v, m, max(k.shape[-2] - 1, 1)),
    (SDPA, "outputs beyond the largest number may overflow"): limited,
    (SDPA, "attention of width zero takes the mean"): lambda q, k, v, m=None: sdpa(q, k, v, m) / np.sign(q.shape[-1]),
    (SDPA, "values of width zero give no columns"): lambda q, k, v, m=None: sdpa(q, k, v, m) if v.shape[-1] else v,
    (SDPA, "key order does not matter"): lambda q, k, v, m=None: sdpa(q, k * (1 + 1e-6 * rows(k)), v, m),
    (SDPA, "outputs move with their queries"): lambda q, k, v, m=None: sdpa(q * (1 + 1e-6 * rows(q)), k, v, m),
    (SDPA, "queries do not depend on each other"): lambda q, k, v, m=None: sdpa(q + 1e-6 * q.mean(-2, keepdims=True), k, v, m),
    (SDPA, "appending queries changes nothing"): lambda q, k, v, m=None: sdpa(q * (1 + 1e-6 * q.shape[-2]), k, v, m),
    (SDPA, "duplicating every key changes nothing"): lambda q, k, v, m=None: sdpa(q * (1 + 1e-6 * k.shape[-2]), k, v, m),
    (SDPA, "scaling queries equals scaling keys"): lambda q, k, v, m=None: sdpa(np.clip(q, -8, 8), k, v, m),
    (SDPA, "an orthogonal change of basis changes nothing"): lambda q, k, v, m=None: sdpa(q * (1 + 1e-6 * np.arange(q.shape[-1])), k, v, m),
    (SDPA, "padding with zero lanes needs doubled queries"): lambda q, k, v, m=None: sdpa(q * q.shape[-1] ** 0.5, k, v, m),
    (SDPA, "adding a vector to every key changes nothing"): lambda q, k, v, m=None: clamped(q, k, v, m, 50),
    (SDPA, "blocks of keys merge by log sum exp"): lambda q, k, v, m=None: sdpa(1.01 * q, k, v, m),
    (SDPA, "a mask that allows everything is no mask"): lambda q, k, v, m=None: sdpa(q if m is None else 1.001 * q, k, v, m),
    (SDPA, "blocked keys and values do not matter"): lambda q, k, v, m=None: sdpa(q, k, v, None if m is None else ~m),
    (SDPA, "non finite blocked entries do not matter"): sdpa,
    (SDPA, "the past does not depend on the future"): lambda q, k, v, m=None: sdpa(q, k, v, m if q.shape[-2] < 16 else None),
    (SDPA, "appending blocked keys changes nothing"): lambda q, k, v, m=None: sdpa(q, k, v, m) * (1 + 1e-6 * (k.shape[-2] > 16)),
    (SDPA, "a mask broadcasts"): lambda q, k, v, m=None: sdpa(q, k, v, None if m is None or m.ndim < 2 or m.shape[-2] == 1 else m),
    (SDPA, "each of a batch has its own mask"): lambda q, k, v, m=None: sdpa(q, k, v, m if m is None or m.ndim < 3 else m[:1]),
    (SDPA, "one allowed key gives its value"): lambda q, k, v, m=None: sdpa(q, k, v, m) * (1 + 1e-9),
    (SDPA, "a query with no allowed key follows its convention"): lambda q, k, v, m=None: np.where(
        allowed(q, k, m).any(-1, keepdims=True), sdpa(q, k, v, m), v[..., :1, :] + 1
    ),
    (CAUSAL, "causal attention is within its budget"): lambda q, k, v: causal(q, k, v, 1),
    (CAUSAL, "causal attention is attention under the causal mask"): lambda q, k, v: causal(q, k, v, k.shape[-2] - q.shape[-2]),
    (CAUSAL, "the past does not depend on the future"): lambda q, k, v: causal(q, k, v, 1),
    (CAUSAL, "a chunk of queries is part of the whole"): lambda q, k, v: causal(q, k, v, k.shape[-2] - q.shape[-2]),
    ("causal_mask", "a causal mask is its definition"): lambda n_q, n_k=None: np.tri(n_q, n_k, -1, dtype=bool),
    ("causal_mask", "row i of a causal mask allows the first keys"): lambda n_q, n_k=None: np.tri(n_q, n_k, int(n_q > 64), dtype=bool),
    ("causal_mask", "a causal mask of a chunk is part of the whole"): lambda n_q, n_k=None: np.tri(
        n_q, n_k, (n_k or n_q) - n_q, dtype=bool
    ),
    (SOFTMAX, "softmax is within its budget"): lambda s, m=None: hard_masked_softmax(1.001 * s, m),
    (SOFTMAX, "softmax is within its budget across tiles"): lambda s, m=None: hard_masked_softmax(s[..., :1024], m) if m is None else s,
    (SOFTMAX, "softmax is within its budget at extreme scores"): lambda s, m=None: hard_masked_softmax(np.clip(s, -5000, 5000), m),
    (SOFTMAX, "blocked entries weigh exactly zero"): lambda s, m=None: hard_masked_softmax(s, m) + 1e-300,
    (SOFTMAX, "allowed weights sum to one"): lambda s, m=None: hard_masked_softmax(s, m) * (1 - 1e-9),
    (SOFTMAX, "adding a constant to a row changes nothing"): lambda s, m=None: hard_masked_softmax(np.clip(s, -88, 88), m),
    (SOFTMAX, "blocked scores do not matter"): lambda s, m=None: hard_masked_softmax(np.where(m, s, -1e-9 * np.abs(s))),
    (SOFTMAX, "weights move with their scores"): lambda s, m=None: hard_masked_softmax(s + 1e-6 * np.arange(s.shape[-1]), m),
    (SOFTMAX, "one allowed entry has weight one"): lambda s, m=None: hard_masked_softmax(s, m) * (1 - 1e-9),
    (SOFTMAX, "a row with no allowed entry follows its convention"): lambda s, m=None: hard_masked_softmax(
        s, m | ~m.any(-1, keepdims=True)
    ),
    (SOFTMAX, "a mask that allows everything is no mask"): lambda s, m=None: hard_masked_softmax(s if m is None else 1.001 * s, m),
    (SOFTMAX, "weights keep the order of scores"): lambda s, m=None: hard_masked_softmax(-s, m),
    (SOFTMAX, "quotients of weights are exponentials of differences"): lambda s, m=None: hard_masked_softmax(s * np.log(2), m),
    (SOFTMAX, "rows of weights do not depend on each other"): lambda s, m=None: hard_masked_softmax(s + 1e-6 * s.max() * (s > 0), m),
    (GQA, "grouped attention is within its budget"): lambda q, k, v, m=None: grouped_query_attention(1.001 * q, k, v, m),
    (GQA, "grouped attention is within its budget while decoding"): lambda q, k, v, m=None: grouped_query_attention(1.001 * q, k, v, m),
    (GQA, "grouped attention is attention with repeated heads"): lambda q, k, v, m=None: sdpa(q, *(tiled(x, q) for x in (k, v)), m),
    (GQA, "each head is attention over its own"): lambda q, k, v, m=None: sdpa(q, *(tiled(x, q) for x in (k, v)), m),
    (GQA, "one group shares its head"): lambda q, k, v, m=None: grouped_query_attention(q * (1 + 1e-6 * q.shape[-3]), k, v, m),
    (GQA, "other groups do not read a head"): lambda q, k, v, m=None: grouped_query_attention(
        q, k + 1e-6 * k.mean(-3, keepdims=True), v, m
    ),
}


def tiled(x, q):
    return x[..., np.arange(q.shape[-3]) % x.shape[-3], :, :]


def slipping(operation, name, slip):
    """An implementation with the slip; for two laws under the promises that make them apply."""
    i = Implementation("slip", {**reference.OPERATIONS, operation: slip})
    if "overflow" in name:
        return replace(i, operations={operation: slip}, arithmetic="float16")
    return replace(i, conventions=Conventions(blocked_values="unread")) if "non finite" in name else i


@pytest.mark.parametrize(("operation", "name"), SLIPS, ids=lambda x: x.replace(" ", "-"))
def test_a_slip_breaks_the_law(operation, name):
    (law,) = find(f"{name}[{operation}]")
    with np.errstate(all="ignore"):
        outcome = check(law, slipping(operation, name, SLIPS[operation, name]), 100, 0, shrink=False)
    assert outcome.status == "violated", outcome


def test_every_law_has_its_slip():
    assert {(law.operation, law.name) for law in LAWS if law.operation in OPERATIONS and law.body.__module__ in MODULES} == set(SLIPS)


UNMASKED = {f"properties.laws.{name}" for name in ("attention", "attention_invariance")}
MODULES = {f"properties.laws.{name}" for name in ("masks", "softmax", "attention", "attention_invariance", "attention_masks", "grouped")}


@pytest.mark.parametrize(
    ("operation", "name", "size"),
    [
        (SDPA, "constant values come out unchanged", 1),
        (SDPA, "a query with no allowed key follows its convention", 1),
        (SDPA, "across tiles", 257),
    ],
)
def test_counterexamples_are_as_small_as_the_slip_allows(operation, name, size):
    (law,) = [law for law in LAWS if law.operation == operation and law.name.endswith(name)]
    found = check(law, slipping(operation, law.name, SLIPS[operation, law.name]), 100, 0).violation.counterexample
    assert found["k"].shape[-2] == size
    assert found["q"].ndim == 2


def with_dead_rows(value):
    """The operations with another value for rows that may read nothing: NaN, or the mean."""

    def softmax(scores, mask=None):
        weights = hard_masked_softmax(scores, mask)
        dead = ~np.broadcast_to(True if mask is None else mask, scores.shape).any(-1, keepdims=True)
        return np.where(dead, value / scores.shape[-1], weights)

    return {SOFTMAX: softmax, SDPA: lambda q, k, v, mask=None: softmax(reference.scores_of(q, k), mask) @ v}


CONVENTIONS = {
    "dead rows are NaN": ({"dead_rows": "nan"}, with_dead_rows(np.nan)),
    "dead rows are uniform": ({"dead_rows": "uniform"}, with_dead_rows(1.0)),
    "causal masks are aligned at the bottom right": (
        {"causal": "bottom_right"},
        {
            "causal_mask": lambda n_q, n_k=None: np.tri(n_q, n_k, (n_k or n_q) - n_q, dtype=bool),
            CAUSAL: lambda q, k, v: causal(q, k, v, k.shape[-2] - q.shape[-2]),
            SDPA: sdpa,
        },
    ),
    "true blocks": (
        {"mask_polarity": "true_blocks"},
        {
            "causal_mask": lambda n_q, n_k=None: ~causal_mask(n_q, n_k),
            SDPA: lambda q, k, v, mask=None: sdpa(q, k, v, None if mask is None else ~mask),
            SOFTMAX: lambda scores, mask=None: hard_masked_softmax(scores, None if mask is None else ~mask),
        },
    ),
    "key heads are tiled": ({"kv_heads": "tile"}, {GQA: lambda q, k, v, mask=None: sdpa(q, tiled(k, q), tiled(v, q), mask), SDPA: sdpa}),
}


@pytest.mark.parametrize("convention", CONVENTIONS)
def test_the_laws_hold_under_every_convention_that_is_followed_and_not_under_the_default(convention):
    fields, operations = CONVENTIONS[convention]
    follows = Implementation("follows", operations, conventions=Conventions(**fields))
    defaults = Implementation("defaults", operations)
    (field,) = fields
    laws = [law for law in LAWS if law.body.__module__ in MODULES - UNMASKED and field in OPERATION[law.operation].conventions]
    laws = [law for law in laws if not law.not_applicable(follows)]
    assert {law.id: check(law, follows, 10, 0).status for law in laws} == {law.id: "held" for law in laws}
    assert any(check(law, defaults, 20, 0, shrink=False).status == "violated" for law in laws if not law.agreement)
