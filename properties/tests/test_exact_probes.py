"""Exact probes: covered kernels keep them, small mistakes do not, and an error of the scale is
measured."""

import numpy as np
import pytest

from oracles.formats import PRESETS, preset
from oracles.possible_attention import DEAD, possible_log_sum_exps
from oracles.possible_results import nearest
from oracles.tests.simulated.attention import Kernel
from oracles.tests.simulated.forms import any_form
from oracles.tests.simulated.rounding import rounding
from properties import Implementation
from properties.contract.operations import OPERATIONS
from properties.contract.subject import Subject
from properties.inspection.exact_calls import PROBES
from properties.inspection.exact_probes import Sizes, gradient_probe, pair_probe, scale_between
from properties.inspection.probe import Probe
from properties.inspection.shapes import Shape
from properties.laws import find
from properties.tests.probed_kernels import MISTAKES, implementation
from properties.verifier.causes import causes
from properties.verifier.verify import examine

LAW = "stored results are the only ones that rounding allows[{}]"
SDPA = "scaled_dot_product_attention"
NARROW = [a.name for a in PRESETS if a.output.unit_roundoff > 2.0**-12]
SUFFIXED = [
    f"{name}-{suffix}"
    for name in ("bfloat16", "float16-stored-gradients")
    for suffix in ("fast-exponential", "flushing", "tensor-core-flash", "stored-parts")
]
SIZES = Sizes(64, 2049, 64, 8, 0.125)


def _sizes(rows, n_k, d, d_v, causal):
    visible = np.tri(rows, n_k, n_k - rows, dtype=bool) if causal else None
    return Sizes(rows, n_k, d, d_v, d**-0.5, visible)


@pytest.mark.parametrize("name", [*NARROW, *SUFFIXED])
@pytest.mark.parametrize("sizes", [(5, 9, 8, 8, False), (64, 130, 64, 8, True), (16, 40, 128, 4, False)], ids=str)
def test_covered_kernels_keep_every_probe(name, sizes):
    a, rng, chosen = preset(name), np.random.default_rng(0), _sizes(*sizes)
    probe = pair_probe(chosen, a)
    q, k, v, scale, visible = probe.problem
    sums = possible_log_sum_exps(probe.problem, a)
    for x in (q, k, v):
        assert np.array_equal(nearest(x, a.inputs), x)
    for seed in range(2):
        kernel = Kernel(any_form(a, rng), a, scale, visible, seed)
        with np.errstate(all="ignore"):  # tiles in which no key is visible
            out, lse, *_ = kernel.forward(q, k, v)
        assert not probe.possible.excludes(rounding(a.output, a.flush_to_zero)(out)).any()
        lse = lse[:, 0] * (np.log(2) if kernel.form.base == "2" else 1.0)
        assert not sums.excludes(rounding(a.saved_lse or a.elementwise)(lse)).any()


def _attention(probe, a, scale, weights=lambda w: w, *, stored=True):
    q, k, v, *_ = probe.problem
    s = scale * q @ k.T
    e = weights(np.exp(s - s.max(-1, keepdims=True)))
    kept = nearest(e, a.weights) if stored else e
    return nearest(kept @ v / e.sum(-1, keepdims=True), a.output)


def _last(factor, number=1):
    def changed(w):
        w[:, -number:] *= factor
        return w

    return changed


def _without_the_strongest(w):
    w[np.arange(len(w)), w.argmax(-1)] = 0.0
    return w


@pytest.mark.parametrize("stored", [True, False])
@pytest.mark.parametrize("name", ["bfloat16", "float16"])
def test_small_mistakes_leave_the_set(name, stored):
    a, scale = preset(name), 0.125
    probe = pair_probe(SIZES, a)
    right = _attention(probe, a, scale, stored=stored)
    assert not probe.possible.excludes(right).any()
    assert probe.possible.single[probe.scores == 0].all()
    for factor in (1.0001, 0.9999, (64 / 65) ** 0.5):
        assert probe.possible.excludes(_attention(probe, a, scale * factor, stored=stored)).any()
    for change in (_last(0.0, 16), _last(2.0), _without_the_strongest):
        assert probe.possible.excludes(_attention(probe, a, scale, change, stored=stored)).any()
    exact = _attention(probe, preset("float64"), scale, stored=False)
    for error in (1e-3, 5e-4, 2e-4, -2e-4):
        assert probe.possible.excludes(nearest(exact * (1 + error), a.output)).any()


@pytest.mark.parametrize("name", ["bfloat16", "float16"])
@pytest.mark.parametrize("factor", [1.0, 1.0002, 0.9998, 1.004])
def test_the_scale_is_measured(name, factor):
    a, scale = preset(name), 128**-0.5
    probe = pair_probe(Sizes(64, 300, 128, 64, scale), a)
    low, high = scale_between(probe, _attention(probe, a, scale * factor), a)
    assert low <= factor <= high
    assert high - low < 3e-4
    assert (low <= 1 <= high) == (factor == 1)


@pytest.mark.parametrize("name", [*NARROW, *SUFFIXED])
def test_covered_kernels_keep_every_probe_of_gradients(name):
    a, rng = preset(name), np.random.default_rng(0)
    for sizes in ((6, 9, 8, 8, False), (32, 70, 16, 5, True), (20, 40, 64, 4, False)):
        probe = gradient_probe(_sizes(*sizes), a)
        q, k, v, scale, visible = probe.problem
        for x in (q, k, v, probe.grad_out):
            assert np.array_equal(nearest(x, a.inputs), x)
        for seed in range(2):
            kernel = Kernel(any_form(a, rng), a, scale, visible, seed)
            with np.errstate(all="ignore"):  # tiles in which no key is visible
                _, *found = kernel.vjp(q, k, v, probe.grad_out)
            for gradient, possible in zip(found, probe.possible.values(), strict=True):
                assert not possible.excludes(gradient).any()


@pytest.mark.parametrize("name", ["bfloat16", "float16", "bfloat16-stored-gradients"])
def test_small_mistakes_of_gradients_leave_the_set(name):
    a, scale = preset(name), 0.25
    probe = gradient_probe(Sizes(64, 130, 16, 8, scale), a)
    (q, k, v, *_), g = probe.problem, probe.grad_out
    s = scale * q @ k.T
    e = np.exp(s - s.max(-1, keepdims=True))
    p, dp = e / e.sum(-1, keepdims=True), g @ v.T
    ds = scale * p * (dp - (p * dp).sum(-1, keepdims=True))
    for exact, possible in zip((ds @ k, ds.T @ q, p.T @ g), probe.possible.values(), strict=True):
        assert not possible.excludes(nearest(exact, a.output)).any()
        for error in (1e-3, 5e-4, -5e-4):
            assert possible.excludes(nearest(exact * (1 - error), a.output)).any()
    shifted = scale * p * (dp - 1.0005 * (p * dp).sum(-1, keepdims=True))
    assert probe.possible["dq"].excludes(nearest(shifted @ k, a.output)).any()


def test_rows_that_do_not_see_all_keys_count_pairs_that_they_see():
    a, visible = preset("bfloat16"), np.tri(64, dtype=bool)
    sizes = Sizes(64, 64, 64, 8, 0.125, visible)
    assert np.isfinite(pair_probe(sizes, a).possible.lower[:, 0]).mean() > 0.7
    probe = gradient_probe(sizes, a)
    assert all(np.isfinite(possible.lower).all() for possible in probe.possible.values())
    assert (probe.possible["dq"].lower[:, -2] != 0).sum() > 20


def _keys_of_calls(operation, n_q, n_k, heads=1):
    """The keys that are in a pair of some call."""
    shape = Shape({"n_q": n_q, "n_k": n_k, "head_dim": 64, "value_dim": 4}, (heads,))
    probe = Probe(Subject(implementation(operation), operation), 60)
    found = set()
    for call in PROBES[operation](probe, shape):
        for pair in call.pairs:
            scores = pair.problem.scale * pair.problem.q @ pair.problem.k.T
            found |= set(np.flatnonzero((scores > -DEAD).any(0)).tolist())
    return found


@pytest.mark.parametrize(("n_q", "heads"), [(1, 16), (32, 1), (16, 2)])
def test_the_calls_have_a_key_in_each_tile_of_4096(n_q, heads):
    assert {key // 64 for key in _keys_of_calls(SDPA, n_q, 4096, heads)} == set(range(64))


def test_in_rows_of_300_keys_each_key_is_in_a_pair():
    assert _keys_of_calls(SDPA, 33, 300) == set(range(300))


@pytest.mark.parametrize("tile", [0, 17, 40, 63])
@pytest.mark.parametrize("factor", [0.0, 2.0, 0.99])
def test_a_fault_of_one_tile_of_4096_keys_leaves_the_set(tile, factor):
    a, sizes = preset("bfloat16"), Sizes(32, 4096, 64, 4, 0.125)

    def changed(w):
        w[:, 64 * tile : 64 * tile + 64] *= factor
        return w

    probes = [pair_probe(sizes, a, turn) for turn in range(2)]
    assert any(probe.possible.excludes(_attention(probe, a, 0.125, changed)).any() for probe in probes)
    assert not any(probe.possible.excludes(_attention(probe, a, 0.125)).any() for probe in probes)


@pytest.mark.parametrize("operation", list(MISTAKES))
def test_each_operation_keeps_its_probes_and_a_small_mistake_does_not(operation):
    (law,) = find(LAW.format(operation))
    (outcome,) = examine([law], implementation(operation), 1, 0)
    assert outcome.status == "held"
    for mistake in MISTAKES[operation]:
        (outcome,) = examine([law], implementation(operation, mistake), 1, 0)
        assert outcome.status == "violated", mistake


def test_each_operation_with_probes_has_a_kernel_with_mistakes():
    assert MISTAKES.keys() | {"apply_rotary_vjp"} == PROBES.keys() <= OPERATIONS.keys()


def _kernel(factor):
    def scaled_dot_product_attention(q, k, v, mask=None):
        q, k, v = (x.astype(np.float32) for x in (q, k, v))
        s = q @ np.swapaxes(k, -1, -2) * np.float32(factor / q.shape[-1] ** 0.5)
        s = s if mask is None else np.where(mask, s, -np.inf)
        e = np.exp(s - s.max(-1, keepdims=True))
        return (e @ v / e.sum(-1, keepdims=True)).astype(np.float16)

    supports = {"n_k": lambda size: size < 100}
    return Implementation("mine", {SDPA: scaled_dot_product_attention}, arithmetic="float16", supports=supports)


def test_the_law_says_which_scale_the_weights_have_and_no_known_bug_is_tried():
    law, right, wrong = find(LAW.format(SDPA))[0], _kernel(1.0), _kernel(1.0001)
    assert [outcome.status for outcome in examine([law], right, 1, 0)] == ["held"]
    (outcome,) = examine([law], wrong, 1, 0)
    assert "however a kernel in float16 rounds" in outcome.violation.summary
    assert "The weights are those of a scale between 1.00" in outcome.violation.summary
    assert causes(wrong, [(law, outcome.violation)]) == [((0,), ())]


def test_kernels_with_finer_results_are_exempt():
    law = find(LAW.format(SDPA))[0]
    implementation = Implementation("mine", {"scaled_dot_product_attention": lambda q, k, v, mask: q})
    assert law.not_applicable(implementation) == (
        "Its results have more than 16 bits: their error limits show small mistakes."
    )
