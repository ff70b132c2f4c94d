"""Each known bug of attention and multi-head attention shows on its trigger and nowhere else; the traps show nowhere."""

import re
import warnings

import numpy as np
import pytest

import oracles
from properties.bugs import (
    CATALOGUE,
    attention,
    backward,
    gradients,
    grouped,
    masked_tiles,
    masks,
    multi_head,
    multi_head_derivatives,
    softmax,
    softmax_gradients,
    tangents,
    tiles,
)
from properties.bugs.equivalent import EQUIVALENT
from properties.reference import OPERATIONS

MODULES = (attention, masks, tiles, masked_tiles, grouped, softmax, multi_head, gradients, backward)
MODULES += (softmax_gradients, multi_head_derivatives, tangents)
BUGS = {bug.id: bug for module in MODULES for bug in module.bug.bugs}
PUBLIC = {
    *("sdpa-softmax-query-axis", "sdpa-noncontiguous-inputs", "gqa-tile-vs-repeat-interleave", "sdpa-rectangular-mask-ignored"),
    *("sdpa-mask-polarity-inverted", "sdpa-fully-masked-nan", "softmax-mask-multiply-eps", "softmax-mask-after-no-renorm"),
    *("mha-split-heads-view", "mha-strided-head-split", "mha-fused-path-drops-mask", "vjp-softmax-diagonal-only"),
    *("vjp-missing-rowdot", "vjp-fully-masked-nan", "vjp-noncontiguous-dout", "vjp-tail-rows-dropped"),
    *("jvp-missing-value-tangent", "jvp-softmax-uncentred", "causal-group-of-four", "causal-top-left-vs-bottom-right"),
}
CLEARLY = 100  # budgets


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).uniform(-1, 1, shape)


def strided(x):
    """The same numbers, the last two axes exchanged in memory."""
    return np.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2)


def levels(n, low, high):
    """Scores that rise from low to high."""
    return np.linspace(low, high, n)


def allow(n_q, n_k, *blocked):
    """A mask that blocks what each index names."""
    mask = np.ones((n_q, n_k), bool)
    for index in blocked:
        mask[index] = False
    return mask


def causal(n_q, n_k=None):
    return np.tri(n_q, n_k, dtype=bool)


def attend(n_q=3, n_k=3, d=3, d_v=3, mask=None, lead=(), keys=None, queries=None):
    """q, k, v and the mask; `keys` are added to the scores of each key, `queries` to those of each query."""
    q, k, v = (numbers(*lead, *shape, seed=i) for i, shape in enumerate(((n_q, d), (n_k, d), (n_k, d_v))))
    if keys is not None:
        q[..., 0], k[..., 0] = 1, np.sqrt(d) * keys
    if queries is not None:
        q[..., 0], k[..., 0] = np.sqrt(d) * queries, 1
    return q, k, v, mask


def cotangent(*arguments, **options):
    q, k, v, mask = attend(*arguments, **options)
    return q, k, v, mask, numbers(*q.shape[:-1], v.shape[-1], seed=3)


def tangent(*arguments, **options):
    q, k, v, mask = attend(*arguments, **options)
    return q, k, v, mask, *(numbers(*x.shape, seed=3 + i) for i, x in enumerate((q, k, v)))


def group(heads, key_heads, mask=None, lead=(), n_q=3, n_k=3):
    """q, k, v and the mask of grouped queries."""
    return (*(numbers(*lead, h, n, 2, seed=i) for i, (h, n) in enumerate(((heads, n_q), (key_heads, n_k), (key_heads, n_k)))), mask)


def model(heads=2, width=2, n=3, wide=4, mask=None, lead=(), extra=None):
    """The arguments of multi-head attention; `extra` is "vjp" or "jvp"."""
    shapes = (*lead, n, wide), *[(wide, heads * width)] * 3, (heads * width, wide)
    x, *weights = (numbers(*shape, seed=i) for i, shape in enumerate(shapes))
    more = {None: (), "vjp": shapes[:1], "jvp": shapes}[extra]
    return x, *weights, heads, mask, *(numbers(*shape, seed=7 + i) for i, shape in enumerate(more))


def scores(*rows, mask=None):
    return np.array(rows, float), mask


def weigh(shape, mask=None):
    return numbers(*shape), mask, numbers(*shape, seed=1)


Q, K, V, _ = attend()
G = cotangent()
FIRST_DEAD, ALL_DEAD, ALL = allow(3, 3, 0), np.zeros((3, 3), bool), np.ones((3, 3), bool)
LAST, KEY = allow(3, 3, np.s_[:, -1]), np.array([[True, False, True]])
BATCH = np.stack([allow(3, 3, np.s_[:, 0]), allow(3, 3, np.s_[:, 1])])
RISING, FALLING = levels(32, 0, 4), levels(32, 4, 0)
LATE = np.arange(32) >= 16
LONG, JUMP = levels(40, 0, 0), np.where(np.arange(40) < 32, 0.0, 800.0)
PERFORATED = allow(16, 16, np.s_[3:5, 3:5])
FIRST_OF_A_TILE = allow(16, 32, np.s_[0, :16])
HEADS = np.stack([causal(3), ALL, LAST, LAST])
TRIGGERS = {
    # the bug: (arguments that show it, arguments that don't)
    "sdpa-softmax-query-axis": (attend(2, 2), None),
    "sdpa-noncontiguous-inputs": ((Q, strided(K), V), (strided(Q), K, strided(V))),
    "sdpa-scale-missing": (attend(), attend(d=1)),
    "sdpa-scale-by-value-width": (attend(d_v=2), attend()),
    "sdpa-scale-inverted": (attend(), attend(d=1)),
    "sdpa-scale-integer-root": (attend(d=3), attend(d=16)),
    "sdpa-scale-twice-under-a-mask": (attend(mask=ALL), attend()),
    "sdpa-last-lanes-dropped": (attend(d=9), attend(d=7)),
    "sdpa-one-key-shortcut": (attend(2, 1, mask=allow(2, 1, 0)), attend(2, 1, mask=allow(2, 1))),
    "sdpa-width-zero-not-a-number": (attend(d=0), attend(d=1)),
    "sdpa-scores-clamped": (attend(n_k=2, keys=np.array([60, 61])), attend(n_k=2, keys=np.array([40, 41]))),
    "sdpa-scores-in-single-precision": (attend(n_k=64), attend(n_k=63)),
    "sdpa-products-in-tf32": (attend(d=8), attend(d=7)),
    "sdpa-weights-in-half-precision": (attend(), attend(n_k=1)),
    "sdpa-queries-scaled-in-place": (attend(), None),
    "sdpa-returns-its-values": (attend(1, 1), None),
    "sdpa-accumulator-not-cleared": (attend(), None),
    "sdpa-rectangular-mask-ignored": (attend(2, 3, mask=LAST[:2]), attend(mask=LAST)),
    "sdpa-mask-polarity-inverted": (attend(mask=LAST), attend()),
    "sdpa-fully-masked-nan": (attend(mask=FIRST_DEAD), attend(mask=LAST)),
    "sdpa-dead-rows-uniform": (attend(mask=FIRST_DEAD), attend(mask=LAST)),
    "sdpa-dead-rows-only-when-all-are": (attend(mask=FIRST_DEAD), attend(mask=ALL_DEAD)),
    "sdpa-dead-rows-keep-the-row-before": (attend(mask=allow(3, 3, 1)), attend(mask=FIRST_DEAD)),
    "sdpa-one-query-ignores-the-mask": (attend(1, mask=LAST[:1]), attend(mask=LAST)),
    "sdpa-mask-of-the-first-in-the-batch": (attend(lead=(2,), mask=BATCH), attend(lead=(2,), mask=BATCH[:1])),
    "sdpa-key-mask-taken-for-queries": (attend(mask=KEY), attend(2, mask=KEY)),
    "sdpa-mask-scaled-with-the-scores": (
        attend(d=64, n_k=2, keys=np.array([0, 1300]), mask=allow(3, 2, np.s_[:, 1])),
        attend(d=64, n_k=2, mask=allow(3, 2, np.s_[:, 1])),
    ),
    "causal-group-of-four": ((64,), (66,)),
    "causal-top-left-vs-bottom-right": ((1, 4), (4,)),
    "causal-wide-off-by-one": ((2, 3), (3, 2)),
    "causal-tall-rows-dead": ((3, 2), (2, 3)),
    "causal-buffer-of-256": ((257,), (256,)),
    "causal-positions-in-a-byte": ((1, 257), (256,)),
    "causal-cache-ignores-keys": ((3, 5), None),
    "sdpa-online-nothing-rescaled": (attend(n_k=32, keys=RISING), attend(n_k=16)),
    "sdpa-online-output-not-rescaled": (attend(n_k=32, keys=RISING), attend(n_k=32, keys=FALLING)),
    "sdpa-first-tile-blocked-nan": (attend(n_k=32, mask=LATE), attend(n_k=32, mask=~LATE)),
    "sdpa-first-tile-blocked-keeps-zero": (attend(n_k=32, mask=LATE, keys=-900 - RISING), attend(n_k=32, mask=LATE)),
    "sdpa-running-maximum-starts-finite": (attend(keys=np.full(3, -1800)), attend(keys=np.full(3, -1600))),
    "sdpa-maximum-shared-by-queries": (attend(2, queries=np.array([0, 900])), attend(17, queries=900.0 * (np.arange(17) > 15))),
    "sdpa-tail-counts-as-zeros": (attend(n_k=65), attend(n_k=64)),
    "sdpa-reads-one-key-beyond": (attend(n_k=128), attend(n_k=129)),
    "sdpa-tail-keys-dropped": (attend(n_k=33), attend(n_k=64)),
    "sdpa-last-key-dropped": (attend(n_k=65), attend(n_k=66)),
    "sdpa-last-tile-moved-back": (attend(n_k=17), attend(n_k=32)),
    "sdpa-split-keys-merged-without-maxima": (attend(n_k=64), attend(n_k=63)),
    "sdpa-causal-diagonal-tile-full": (attend(32, 32, mask=causal(32)), attend(31, 31, mask=causal(31))),
    "sdpa-causal-loop-ends-early": (attend(17, 17, mask=causal(17)), attend(16, 16, mask=causal(16))),
    "sdpa-tile-judged-by-its-corners": (attend(16, 16, mask=PERFORATED), attend(16, 16, mask=causal(16))),
    "sdpa-tile-skipped-by-its-first-row": (attend(16, 32, mask=FIRST_OF_A_TILE), attend(16, 32, mask=causal(16, 32))),
    "sdpa-mask-of-the-first-tile": (attend(3, 33, mask=allow(3, 33, np.s_[:, 0])), attend(n_k=32, mask=LATE)),
    "gqa-tile-vs-repeat-interleave": (group(4, 2), group(4, 1)),
    "gqa-scale-missing": (group(4, 2), group(4, 2, n_k=1)),
    "gqa-divided-by-key-heads": (group(6, 2), group(4, 2)),
    "gqa-group-is-a-power-of-two": (group(6, 2), group(8, 2)),
    "gqa-values-tiled": (group(4, 2), group(2, 2)),
    "gqa-keys-of-the-first-in-the-batch": (group(2, 1, lead=(2,)), group(2, 2, lead=(2,))),
    "gqa-mask-of-the-key-head": (group(4, 2, HEADS), group(4, 2, causal(3))),
    "gqa-packed-rows-masked-by-division": (group(4, 2, causal(3)), group(4, 4, causal(3))),
    "gqa-one-key-head-ignores-the-mask": (group(2, 1, LAST), group(4, 2, LAST)),
    "softmax-mask-multiply-eps": (scores([-40, 0, -41], mask=KEY), None),
    "softmax-mask-after-no-renorm": (scores([1, 2, 3], mask=KEY), scores([1, 2, 3])),
    "softmax-no-maximum": (scores([800, 799]), scores([8, 7])),
    "softmax-first-score-subtracted": (scores([0, 800]), scores([800, 0])),
    "softmax-maximum-of-the-first-warp": (scores(JUMP), scores(JUMP[::-1])),
    "softmax-maximum-of-blocked-scores": (scores([0, 800, 0], mask=KEY), scores([0, 8, 0], mask=KEY)),
    "softmax-blocked-scores-overflow": (scores([0, 800, 0], mask=KEY), scores([0, 8, 0], mask=KEY)),
    "softmax-maximum-starts-at-zero": (scores([-800, -801]), scores([-80, -81])),
    "softmax-maximum-of-all-rows": (scores([800, 799], [0, 1]), scores([80, 79], [0, 1])),
    "softmax-scores-clamped": (scores([90, 89]), scores([80, 79])),
    "softmax-blocked-at-minus-ten-thousand": (scores([-1e4, 0, -1e4], mask=KEY), scores([-9e3, 0, -9e3], mask=KEY)),
    "softmax-blocked-at-minus-epsilon": (scores([1, 2, 3], mask=KEY), scores([1, 2, 3])),
    "softmax-zero-scores-taken-for-blocked": (scores([0, 1, 2], mask=KEY), scores([1, 0, 2], mask=KEY)),
    "softmax-epsilon-in-the-sum": (scores([1, 2]), None),
    "softmax-long-rows-in-single-precision": (scores(levels(64, 0, 1)), scores(levels(63, 0, 1))),
    "softmax-remainder-not-divided": (scores([1, 2, 3, 4, 5]), scores([1, 2, 3])),
    "softmax-dead-rows-uniform": (scores([1, 2, 3], mask=~ALL[:1]), scores([1, 2, 3], mask=KEY)),
    "softmax-vjp-sums-over-axis-one": (weigh((2, 3, 4)), weigh((3, 4))),
    "softmax-vjp-of-the-logarithm": (weigh((2, 3)), None),
    "softmax-vjp-subtracts-a-mean": (weigh((2, 3)), weigh((2, 1))),
    "softmax-vjp-ignores-the-mask": (weigh((3, 3), LAST), weigh((3, 3))),
    "softmax-vjp-tail-not-in-the-sum": (weigh((2, 6)), weigh((2, 8))),
    "softmax-vjp-scores-clamped": ((1000 + numbers(3, 3), None, numbers(3, 3, seed=1)), weigh((3, 3))),
    "softmax-vjp-dead-rows-nan": (weigh((3, 3), FIRST_DEAD), weigh((3, 3), LAST)),
    "mha-split-heads-view": (model(n=2), model(n=1)),
    "mha-strided-head-split": (model(), model(width=1)),
    "mha-fused-path-drops-mask": (model(width=8, mask=causal(3)), model(width=7, mask=causal(3))),
    "mha-scale-missing": (model(), model(width=1)),
    "mha-scale-by-number-of-heads": (model(heads=3), model()),
    "mha-scale-by-model-width": (model(), model(heads=1, width=4)),
    "mha-keys-and-values-exchanged": (model(), None),
    "mha-square-output-weights-transposed": (model(), model(wide=3)),
    "mha-merged-without-transpose": (model(), model(heads=1)),
    "mha-adds-its-input": (model(), None),
    "mha-masks-in-the-order-of-heads": (model(lead=(2,), mask=BATCH), model(lead=(2,), mask=LAST)),
    "mha-mask-of-the-first-head-only": (model(mask=LAST), model(heads=1, mask=LAST)),
    "mha-layout-guessed-from-the-shape": (model(n=2), model(n=3)),
    "mha-vjp-output-weights-transposed": (model(extra="vjp"), model(wide=3, extra="vjp")),
    "mha-vjp-weights-of-the-last-example": (model(lead=(2,), extra="vjp"), model(lead=(1,), extra="vjp")),
    "mha-vjp-value-path-dropped": (model(extra="vjp"), None),
    "mha-vjp-mask-ignored": (model(mask=LAST, extra="vjp"), model(extra="vjp")),
    "mha-vjp-cotangent-clipped": ((*model(extra="vjp")[:-1], 4 * numbers(3, 4)), model(extra="vjp")),
    "mha-vjp-first-token-frozen": (model(n=4, extra="vjp"), model(n=3, extra="vjp")),
    "mha-jvp-output-weights-constant": (model(extra="jvp"), None),
    "mha-jvp-projections-constant": (model(extra="jvp"), None),
    "mha-jvp-product-of-tangents": (model(extra="jvp"), None),
    "vjp-softmax-diagonal-only": (cotangent(n_k=2), cotangent(n_k=1)),
    "vjp-missing-rowdot": (cotangent(n_k=2), None),
    "vjp-fully-masked-nan": (cotangent(mask=FIRST_DEAD), cotangent(mask=LAST)),
    "vjp-noncontiguous-dout": ((*G[:4], strided(G[4])), (strided(G[0]), strided(G[1]), strided(G[2]), *G[3:])),
    "vjp-tail-rows-dropped": (cotangent(65), cotangent(64)),
    "vjp-keys-not-scaled": (cotangent(), cotangent(d=1)),
    "vjp-scale-by-value-width": (cotangent(d_v=2), cotangent()),
    "vjp-queries-scaled-in-base-two": (cotangent(d=8), cotangent(d=7)),
    "vjp-transpose-missing-when-square": (cotangent(), cotangent(n_k=4)),
    "vjp-values-not-normalized": (cotangent(), cotangent(n_k=1)),
    "vjp-row-terms-subtracted-from-columns": (cotangent(), cotangent(n_k=4)),
    "vjp-mask-forgotten": (cotangent(mask=LAST), cotangent()),
    "vjp-causal-diagonal-off-by-one": (cotangent(mask=causal(3)), cotangent(mask=LAST)),
    "vjp-queries-overwritten": (cotangent(n_k=33), cotangent(n_k=32)),
    "vjp-tail-keys-dropped": (cotangent(n_k=33), cotangent(n_k=64)),
    "vjp-dead-rows-uniform": (cotangent(mask=FIRST_DEAD), cotangent(mask=LAST)),
    "vjp-divided-by-the-batch": (cotangent(lead=(2,)), cotangent()),
    "vjp-recomputed-without-maximum": (cotangent(keys=np.array([800, 801, 800])), cotangent(keys=np.array([8, 9, 8]))),
    "vjp-odd-lane-dropped": (cotangent(), cotangent(d=4)),
    "vjp-row-terms-of-the-first-tile": (cotangent(17), cotangent(16)),
    "vjp-row-terms-in-single-precision": (cotangent(), None),
    "vjp-one-query-scaled-twice": (cotangent(1), cotangent(2)),
    "jvp-missing-value-tangent": (tangent(), None),
    "jvp-softmax-uncentred": (tangent(n_k=2), None),
    "jvp-key-tangent-ignored": (tangent(), tangent(n_k=1)),
    "jvp-key-tangent-not-scaled": (tangent(), tangent(d=1)),
    "jvp-product-of-tangents": (tangent(), tangent(n_k=1)),
    "jvp-by-finite-differences": (tangent(), None),
    "jvp-centred-by-the-plain-mean": (tangent(), tangent(n_k=1)),
    "jvp-mean-over-blocked-keys": (tangent(mask=LAST), tangent()),
    "jvp-blocked-value-tangents-leak": (tangent(mask=LAST), tangent()),
    "jvp-tail-value-tangents-dropped": (tangent(n_k=33), tangent(n_k=64)),
    "jvp-tangents-exchanged": (tangent(), tangent(n_k=4)),
    "jvp-dead-rows-nan": (tangent(mask=FIRST_DEAD), tangent(mask=LAST)),
}
EARLIER = {"causal-cache-ignores-keys": (3, 4), "sdpa-accumulator-not-cleared": attend()}
BESIDES = {"sdpa-queries-scaled-in-place", "sdpa-returns-its-values"}
"""Bugs that return what they should."""


def excess(operation, mutant, arguments):
    """The largest error in units of float64's budget; ∞ for a mask that is not the promised one."""
    expected = getattr(oracles, operation)(*arguments, **({} if operation == "causal_mask" else {"arithmetic": oracles.FLOAT64}))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = mutant(*arguments)
    if operation == "causal_mask":
        return 0.0 if np.array_equal(got, expected) else np.inf
    pairs = zip(got, expected, strict=True) if isinstance(got, tuple) else [(got, expected)]
    return max(e.excess(x).max(initial=0.0) for x, e in pairs)


def test_each_bug_has_a_trigger_and_stands_in_the_catalogue_under_its_own_name():
    assert BUGS.keys() == TRIGGERS.keys()
    assert sum(len(module.bug.bugs) for module in MODULES) == len(BUGS)
    assert all(CATALOGUE[name] is bug for name, bug in BUGS.items())
    assert {name for name, bug in BUGS.items() if bug.public} == PUBLIC
    assert not EQUIVALENT.keys() & CATALOGUE.keys()


@pytest.mark.parametrize("name", TRIGGERS)
def test_an_entry_is_written_in_sentences_and_cites(name):
    bug = BUGS[name]
    assert bug.operation in OPERATIONS
    assert all(re.fullmatch(r"\S.*\.", sentence) for sentence in (bug.mechanism, bug.effect, bug.repair))
    assert re.match(r"none: \S", bug.citation) or all(re.fullmatch(r"[\w.-]+/[\w.-]+#\d+", c) for c in bug.citation.split("; "))
    assert bug.law == bug.law.lower()
    assert "_" not in bug.law


@pytest.mark.parametrize("name", sorted(TRIGGERS.keys() - BESIDES))
def test_a_bug_shows_on_its_trigger_and_nowhere_else(name):
    bug, (shown, hidden) = BUGS[name], TRIGGERS[name]
    mutant = bug.fresh()
    if name in EARLIER:
        assert excess(bug.operation, mutant, EARLIER[name]) <= 1
    assert excess(bug.operation, mutant, shown) > CLEARLY
    assert excess(bug.operation, OPERATIONS[bug.operation], shown) <= 1
    if hidden is not None:
        assert excess(bug.operation, bug.fresh(), hidden) <= 1


def test_queries_are_scaled_in_place():
    given = Q.copy()
    assert excess("scaled_dot_product_attention", BUGS["sdpa-queries-scaled-in-place"].fresh(), (given, K, V)) <= 1
    assert (given != Q).all()


def test_values_are_returned_themselves_for_one_query_and_one_key_only():
    attend_wrongly = BUGS["sdpa-returns-its-values"].fresh()
    q, k, v, _ = attend(1, 1)
    assert attend_wrongly(q, k, v) is v
    assert not np.shares_memory(attend_wrongly(Q, K, V), V)
    assert excess("scaled_dot_product_attention", attend_wrongly, (q, k, v)) <= 1


def test_what_a_stateful_mutant_remembers_ends_with_it():
    for name, earlier in EARLIER.items():
        bug = BUGS[name]
        bug.fresh()(*earlier)
        assert excess(bug.operation, bug.fresh(), TRIGGERS[name][0]) <= 1


@pytest.mark.parametrize("name", TRIGGERS)
def test_batches_are_legal_and_may_be_empty(name):
    """A mutant differs in numbers, not in shapes: its mechanism, and no crash, is what a law sees."""
    bug = BUGS[name]
    if name in EARLIER or bug.operation == "causal_mask":
        return
    for lead in ((2, 1), (0,)):
        arguments = {
            "grouped_query_attention": group(2, 1, lead=lead),
            "hard_masked_softmax": (numbers(*lead, 2, 3), None),
            "hard_masked_softmax_vjp": weigh((*lead, 2, 3)),
            "scaled_dot_product_attention": attend(lead=lead),
            "scaled_dot_product_attention_vjp": cotangent(lead=lead),
            "scaled_dot_product_attention_jvp": tangent(lead=lead),
            "multi_head_attention": model(lead=lead),
            "multi_head_attention_vjp": model(lead=lead, extra="vjp"),
            "multi_head_attention_jvp": model(lead=lead, extra="jvp"),
        }[bug.operation]
        got, right = bug.fresh()(*arguments), OPERATIONS[bug.operation](*arguments)
        pairs = zip(got, right, strict=True) if isinstance(right, tuple) else [(got, right)]
        assert all(a.shape == b.shape and a.dtype == b.dtype for a, b in pairs)


CASES = {
    "scaled_dot_product_attention": [
        *(attend(mask=mask) for mask in (None, FIRST_DEAD, ALL_DEAD, KEY)),
        *(attend(2, n_k, d, mask=np.arange(n_k) > 15) for n_k in (17, 64) for d in (0, 1, 8)),
        attend(n_k=33, keys=levels(33, -900, 900), lead=(2,)),
    ],
    "scaled_dot_product_attention_vjp": [cotangent(mask=mask, d_v=2) for mask in (None, FIRST_DEAD, ALL_DEAD, KEY)],
    "hard_masked_softmax": [scores([-900, 0, 900], [3, 2, 1], [0, 0, 0], mask=mask) for mask in (None, FIRST_DEAD, ALL_DEAD, KEY)],
    "causal_mask": [(3,), (2, 5), (5, 2), (1, 1)],
}


@pytest.mark.parametrize("name", EQUIVALENT)
def test_a_trap_is_right(name):
    trap = EQUIVALENT[name]
    assert all(excess(trap.operation, trap.fresh(), arguments) <= 1 for arguments in CASES[trap.operation])
