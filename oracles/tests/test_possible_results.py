"""The set of results that a kernel may store: no covered kernel leaves it, every way to round is in
it, and it is one number where the inputs are chosen so.
"""

from dataclasses import replace
from fractions import Fraction
from itertools import product

import flint
import numpy as np
import pytest

from oracles.formats import BINARY16, BRAIN16, PRESETS, preset
from oracles.possible_attention import Problem, possible_log_sum_exps, possible_outputs, possible_weights
from oracles.possible_gradients import possible_gradients
from oracles.possible_results import nearest
from oracles.tests.simulated.attention import Kernel
from oracles.tests.simulated.forms import Form, any_form
from oracles.tests.simulated.rounding import rounding

NARROW = [a.name for a in PRESETS if a.output.unit_roundoff >= BINARY16.unit_roundoff]
SUFFIXED = [
    f"{name}-{suffix}"
    for name in ("bfloat16", "float16-stored-gradients")
    for suffix in ("fast-exponential", "flushing", "tensor-core-flash")
]
SCALE = 0.125


def _pairs(a, rng, n_k=40, d=64, d_v=6):
    """Rows that count two keys: both at score 0, or one below it; the values have the format's
    bits."""
    q, k = np.zeros((8, d)), np.zeros((n_k, d))
    keys = rng.permutation(n_k)[:16].reshape(8, 2)
    q[:, :9], q[:, 9] = -64.0, 1.0
    q[np.arange(8), np.arange(8)] = 0.0
    k[:, 8] = 64.0
    k[keys.ravel(), 8] = 0.0
    k[keys, np.arange(8)[:, None]] = 64.0
    k[keys[4:, 1], 9] = nearest(-rng.uniform(1, 70, 4), a.inputs)
    return q, k, nearest(rng.standard_normal((n_k, d_v)) * 2.0 ** rng.integers(-3, 4, (n_k, d_v)), a.inputs)


@pytest.mark.parametrize("name", [*NARROW, *SUFFIXED])
def test_no_covered_kernel_leaves_the_sets(name):
    a, rng = preset(name), np.random.default_rng(0)
    for seed in range(6):
        q, k, v = _pairs(a, rng)
        g = nearest(rng.standard_normal((len(q), v.shape[1])), a.inputs)
        problem, kernel = Problem(q, k, v, SCALE), Kernel(any_form(a, rng), a, SCALE, None, seed)
        out, *gradients = kernel.vjp(q, k, v, g)
        possible = possible_outputs(problem, a)
        assert not possible.excludes(out).any()
        if name in NARROW:  # the other means are ties, which a format may round either way
            assert possible.single[:4].mean() > 0.6
        for gradient, allowed in zip(gradients, possible_gradients(problem, g, a), strict=True):
            assert not allowed.excludes(gradient).any()
        lse = kernel.forward(q, k, v).lse[:, 0] * (np.log(2) if kernel.form.base == "2" else 1.0)
        stored = rounding(a.saved_lse or a.elementwise)(lse)
        assert not possible_log_sum_exps(problem, a).excludes(stored).any()


@pytest.mark.parametrize("name", [*NARROW, *SUFFIXED])
def test_no_covered_softmax_leaves_the_set(name):
    a, rng = preset(name), np.random.default_rng(0)
    for seed in range(3):
        scores = np.full((12, 40), -160.0)
        for row in scores:
            row[rng.permutation(40)[:2]] = nearest(np.array([0.0, -rng.uniform(0, 40)]), a.inputs)
        kernel = Kernel(any_form(a, rng), a, 1.0, None, seed)
        signs = rng.choice([-1.0, 1.0], scores.shape)
        weights = kernel.attended(kernel.in_base(scores), np.eye(40), signs).out
        weights = rounding(a.output, a.flush_to_zero)(weights)
        assert not possible_weights(scores, a).excludes(weights).any()


def test_a_kernel_with_a_coarser_exponential_leaves_the_set():
    a, rng = preset("bfloat16"), np.random.default_rng(1)
    left = 0
    for _ in range(20):
        q, k, v = _pairs(a, rng)
        coarse = replace(a, exp=replace(a.exp, relative=2.0**-6))
        kernel = Kernel(Form(exp="values", tile=16), coarse, SCALE)
        left += possible_outputs(Problem(q, k, v, SCALE), a).excludes(kernel.output(q, k, v)).sum()
    assert left


@pytest.mark.parametrize("target", [BINARY16, BRAIN16], ids=lambda f: f.name)
def test_the_nearest_number_is_that_of_the_simulated_kernels(target):
    rng = np.random.default_rng(0)
    x = rng.standard_normal(2000) * 2.0 ** rng.uniform(-30, 30, 2000)
    assert np.array_equal(nearest(x, target), rounding(target)(x))


def _rounded(x, target):
    """The nearest number of a format to a fraction, ties to even."""
    if x == 0:
        return Fraction(0)
    exponent = abs(x.numerator).bit_length() - x.denominator.bit_length()
    exponent -= abs(x) < Fraction(2) ** exponent
    step = max(2 * Fraction(target.unit_roundoff) * Fraction(2) ** exponent, Fraction(target.smallest_subnormal))
    return round(x / step) * step


def _fraction(x):
    """A ball's midpoint, which is within 2⁻¹⁵⁰ of it."""
    mantissa, exponent = x.mid().man_exp()
    return Fraction(int(mantissa)) * Fraction(2) ** int(exponent)


def _every_way(s, values, a):
    """The outputs for two keys with scores 0 and s, for every way to store weights, to divide, and
    for the ends of the exponential's error.
    """
    with flint.ctx.workprec(200):
        e = [Fraction(1), _fraction(flint.arb(s).exp())]
    error = Fraction(a.exp.relative)
    for eta, theta, way in product((-error, 0, error), (-error, 0, error), ("no", "after", "before", "first")):
        weights = [e[0], e[1] * (1 + eta)]
        total = e[0] + e[1] * (1 + theta)
        if way == "before":
            weights = [_rounded(w / total, a.weights) * total for w in weights]
        elif way != "no":
            weights = [_rounded(e[0], a.weights), _rounded(weights[1], a.weights) if way == "after" else weights[1]]
        yield float(_rounded(sum(w * Fraction(v) for w, v in zip(weights, values, strict=True)) / total, a.output))


@pytest.mark.parametrize("name", ["bfloat16", "float16"])
def test_the_set_has_every_way_to_round_and_no_number_further_than_the_next(name):
    a, rng = preset(name), np.random.default_rng(2)
    for _ in range(40):
        s = nearest(-rng.uniform(0.01, 9, 1), a.inputs).item()
        values = nearest(rng.standard_normal(2), a.inputs)
        possible = possible_outputs(Problem(np.array([[1.0]]), np.array([[0.0], [s]]), values[:, None], 1.0), a)
        found = list(_every_way(s, values.tolist(), a))
        lower, upper = possible.lower.item(), possible.upper.item()
        assert lower <= min(found) <= max(found) <= upper
        unit = 2 * a.output.unit_roundoff * max(abs(lower), abs(upper), np.abs(values).max() * a.output.unit_roundoff)
        assert min(found) - lower <= 2 * unit
        assert upper - max(found) <= 2 * unit


def test_the_mean_of_two_values_is_one_number_even_next_to_a_boundary():
    a = preset("bfloat16-eager")
    v = np.array([[256.0], [1 + 2.0**-7]])  # the mean is a little more than half a unit above 128
    possible = possible_outputs(Problem(np.zeros((1, 4)), np.zeros((2, 4)), v, 0.5), a)
    assert possible.lower.item() == possible.upper.item() == 129.0


def test_rows_that_count_three_keys_have_the_set_of_all_numbers():
    possible = possible_outputs(Problem(np.zeros((1, 4)), np.zeros((3, 4)), np.ones((3, 2)), 0.5), preset("bfloat16"))
    assert np.isinf(possible.lower).all()
    assert not possible.excludes(np.full((1, 2), 7.0)).any()
