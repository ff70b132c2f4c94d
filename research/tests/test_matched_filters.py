"""Matched filters measure a planted mistake, and correct roundings are not suspicious."""

import numpy as np
import pytest

from oracles.formats import preset
from oracles.tests.simulated.attention import Kernel
from oracles.tests.simulated.forms import any_form
from oracles.tests.simulated.rounding import rounding
from research.benchmarks.matched_filters import matched_filters

N_Q, N_K, D = 64, 256, 32


def _inputs(a, seed):
    rng = np.random.default_rng(seed)
    return [rounding(a.inputs)(rng.standard_normal((n, D))) for n in (N_Q, N_K, N_K)]


def _attention(q, k, v, a, factor=1.0, weights=None, output=1.0):
    w = np.exp(factor * D**-0.5 * q @ k.T)
    w = w if weights is None else w * weights
    return rounding(a.output)(w @ v / w.sum(-1, keepdims=True) * output)


@pytest.mark.parametrize("name", ["bfloat16", "float16"])
@pytest.mark.parametrize(
    ("direction", "change", "slope"),
    [
        ("size", {"output": 1.001}, 0.001),
        ("scale", {"factor": 1.001}, 0.001),
        ("keys 240…255", {"weights": np.arange(N_K) < N_K - 16}, -1.0),
    ],
)
def test_a_planted_mistake_is_measured(name, direction, change, slope):
    a = preset(name)
    q, k, v = _inputs(a, 0)
    found = {each.name: each for each in matched_filters(q, k, v, _attention(q, k, v, a, **change), a)}[direction]
    assert found.suspicious
    assert abs(found.slope - slope) < max(6 * found.error, 0.2 * abs(slope))


def test_a_scale_off_by_1e_4_is_five_standard_errors_from_none_in_float16():
    a = preset("float16")
    q, k, v = _inputs(a, 0)
    scale = matched_filters(q, k, v, _attention(q, k, v, a, factor=1.0001), a)[1]
    assert scale.name == "scale"
    assert abs(scale.slope) > 5 * scale.error
    assert abs(scale.slope - 1e-4) < 5 * scale.error


@pytest.mark.parametrize("name", ["bfloat16", "float16", "bfloat16-eager", "float16-tensor-core", "float32"])
def test_covered_kernels_are_not_suspicious(name):
    a, rng = preset(name), np.random.default_rng(1)
    q, k, v = (x[:n, :8] for x, n in zip(_inputs(a, 2), (16, 64, 64), strict=True))
    for seed in range(3):
        out = Kernel(any_form(a, rng), a, 8**-0.5, None, seed).output(q, k, v)
        assert not any(slope.suspicious for slope in matched_filters(q, k, v, out, a))
