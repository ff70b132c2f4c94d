"""Exact probes: covered kernels keep them, small mistakes do not, and an error of the scale is
measured."""

import numpy as np
import pytest

from oracles.formats import PRESETS, preset
from oracles.possible_results import nearest
from oracles.tests.simulated.attention import Kernel
from oracles.tests.simulated.forms import any_form
from properties import Implementation
from properties.inspection.exact_probes import gradient_probe, pair_probe, scale_between
from properties.laws import find
from properties.verifier.causes import causes
from properties.verifier.verify import examine

LAW = "stored results are the only ones that rounding allows[scaled_dot_product_attention]"
SDPA = "scaled_dot_product_attention"
NARROW = [a.name for a in PRESETS if a.output.unit_roundoff > 2.0**-12]
SIZES = (64, 2049), (64, 8)


@pytest.mark.parametrize("name", NARROW)
@pytest.mark.parametrize("sizes", [((5, 9), (8, 8)), ((64, 130), (64, 8)), ((16, 40), (128, 4))], ids=str)
def test_covered_kernels_keep_every_probe(name, sizes):
    a, rng, scale = preset(name), np.random.default_rng(0), sizes[1][0] ** -0.5
    probe = pair_probe(*sizes, a, scale)
    for x in (probe.q, probe.k, probe.v):
        assert np.array_equal(nearest(x, a.inputs), x)
    for seed in range(2):
        out = Kernel(any_form(a, rng), a, scale, None, seed).output(probe.q, probe.k, probe.v)
        assert not probe.possible.excludes(out).any()


def _attention(probe, a, scale, weights=lambda w: w, *, stored=True):
    s = scale * probe.q @ probe.k.T
    e = weights(np.exp(s - s.max(-1, keepdims=True)))
    kept = nearest(e, a.weights) if stored else e
    return nearest(kept @ probe.v / e.sum(-1, keepdims=True), a.output)


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
    probe = pair_probe(*SIZES, a, scale)
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
    probe = pair_probe((64, 300), (128, 64), a, scale)
    low, high = scale_between(probe, _attention(probe, a, scale * factor), a)
    assert low <= factor <= high
    assert high - low < 3e-4
    assert (low <= 1 <= high) == (factor == 1)


@pytest.mark.parametrize("name", NARROW)
def test_covered_kernels_keep_every_probe_of_gradients(name):
    a, rng = preset(name), np.random.default_rng(0)
    for sizes in (((5, 9), (8, 8)), ((70, 40), (24, 4))):
        scale = sizes[1][0] ** -0.5
        probe = gradient_probe(*sizes, a, scale)
        for x in (probe.q, probe.k, probe.v, probe.grad_out):
            assert np.array_equal(nearest(x, a.inputs), x)
        for seed in range(2):
            dv = Kernel(any_form(a, rng), a, scale, None, seed).vjp(probe.q, probe.k, probe.v, probe.grad_out)[3]
            assert not probe.possible.excludes(dv).any()


@pytest.mark.parametrize("name", ["bfloat16", "float16", "bfloat16-stored-gradients"])
def test_small_mistakes_of_gradients_leave_the_set(name):
    a = preset(name)
    probe = gradient_probe((64, 130), (64, 8), a, 0.125)
    s = 0.125 * probe.q @ probe.k.T
    e = np.exp(s - s.max(-1, keepdims=True))
    exact = (e / e.sum(-1, keepdims=True)).T @ probe.grad_out
    assert not probe.possible.excludes(nearest(exact, a.output)).any()
    for error in (1e-3, 5e-4):
        assert probe.possible.excludes(nearest(exact * (1 - error), a.output)).any()


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
    law, right, wrong = find(LAW)[0], _kernel(1.0), _kernel(1.0001)
    assert [outcome.status for outcome in examine([law], right, 1, 0)] == ["held"]
    (outcome,) = examine([law], wrong, 1, 0)
    assert "however a kernel in float16 rounds" in outcome.violation.summary
    assert "The weights are those of a scale between 1.00" in outcome.violation.summary
    assert causes(wrong, [(law, outcome.violation)]) == [((0,), ())]


def test_kernels_with_finer_results_are_exempt():
    law = find(LAW)[0]
    implementation = Implementation("mine", {"scaled_dot_product_attention": lambda q, k, v, mask: q})
    assert law.not_applicable(implementation) == (
        "Its results have more than 16 bits: their error limits show small mistakes."
    )
