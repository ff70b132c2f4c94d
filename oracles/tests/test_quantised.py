"""Quantised attention: the definition lies within the radius, simulated kernels keep their budgets, the
published losses of FP8 exceed the budgets of finer arithmetics, and what is refused.
"""

import re
from fractions import Fraction
from functools import partial

import flint
import ml_dtypes
import numpy as np
import pytest

import oracles
from oracles import Conventions
from oracles.attention_arguments import checked
from oracles.error_analysis.scores import operand
from oracles.formats import E4M3, GRIDS
from oracles.options import AttentionOptions, defaults
from oracles.tests.simulated.quantised import QuantisedKernel, added
from spec import ARB
from spec.extended.quantised import quantised_attention

RANDOM = np.random.default_rng(3)
TYPES = {"e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2", "e2m1": "float4_e2m1fn", "int8": "int8", "int4": "int4"}
SIGMAS = {"": None, "-e4m3-weights": 1.0, "-e4m3-weights-by-256": 256.0, "-e4m3-weights-by-448": 448.0}
SHAPES = [((),) * 3, ((2, 2),) * 3, ((2, 4, 3), (2, 2, 5), (2, 2, 5)), ((2, 4, 3, 2), (2, 2, 5, 2), (2, 2, 5, 3))]


def codes(grid, *shape, size=8.0):
    """Codes of a grid up to a size."""
    found = np.clip(np.rint(RANDOM.normal(size=shape) * size), -min(size, GRIDS[grid].largest), size)
    return found.astype(getattr(ml_dtypes, TYPES[grid], TYPES[grid]))


def scales(*shape):
    """Scales from 1/16 to 2 that are no powers of two."""
    return np.float32(2.0 ** RANDOM.uniform(-4, 1, shape))


@pytest.mark.parametrize("shapes", SHAPES, ids=["tensor", "head", "token", "block"])
@pytest.mark.parametrize("convention", ["multiply", "divide"])
@pytest.mark.parametrize("method", ["fast", "arb"])
def test_the_definition_is_enclosed(shapes, convention, method):
    q, k, v = codes("int8", 2, 4, 3, 4), codes("int8", 2, 2, 5, 4), codes("int8", 2, 2, 5, 6)
    given = {f"{name}_scale": scales(*shape) for name, shape in zip("qkv", shapes, strict=True)}
    found = oracles.attention(
        q, k, v, causal=True, **given, method=method, conventions=Conventions(fp8_scale=convention)
    )
    with flint.ctx.workprec(200):
        expected = quantised_attention(q, k, v, "INT8", causal=True, fp8_scale=convention, scalar=ARB, **given)
    for enclosure, exact in zip(found, expected, strict=True):
        for mid, rad, ball in zip(enclosure.mid.flat, enclosure.rad.flat, exact.flat, strict=True):
            assert not abs(ball - mid) > rad
            assert rad < 1e-8


@pytest.mark.parametrize("grid", GRIDS)
def test_arrays_of_each_type_are_read(grid):
    q, k, v = (codes(grid, 1, 3, 4, size=2.0) for _ in range(3))
    one = np.float32(1)
    found = oracles.attention(q, k, v, q_scale=one, k_scale=one, v_scale=one, arithmetic=f"bfloat16-{grid}")
    plain = oracles.attention(*(x.astype(float) for x in (q, k, v)))
    assert (abs(found[0].mid - plain[0].mid) <= found[0].rad).all()


@pytest.mark.parametrize("rows", [1, 0], ids=["tensor", "token"])
@pytest.mark.parametrize(
    ("form", "suffix", "sigma", "bits"),
    [
        *((form, suffix, sigma, None) for form in ("operands", "sums") for suffix, sigma in SIGMAS.items()),
        ("sums", "-e4m3-weights-by-256", 256.0, 14),
        ("sums", "-e4m3-weights-by-448", 448.0, 14),
    ],
)
def test_a_simulated_kernel_keeps_its_budget(form, suffix, sigma, bits, rows):
    arrays = [codes("e4m3", 1, n, d, size=16.0) for n, d in ((5, 64), (300, 64), (300, 8))]
    given = [scales(1, n if rows == 0 else 1, 1) for n in (5, 300, 300)]
    kernel = QuantisedKernel(form, sigma, partial(added, bits=bits) if bits else QuantisedKernel.add)
    found = kernel(tuple(x[0] for x in arrays), tuple(x[0] for x in given), 0.01)
    named = dict(zip(("q_scale", "k_scale", "v_scale"), given, strict=True))
    name = f"bfloat16-e4m3{suffix}" + ("-accumulate-14-bits" if bits else "")
    for enclosure, result in zip(oracles.attention(*arrays, scale=0.01, **named, arithmetic=name), found, strict=True):
        assert enclosure.excess(result[None]).max() <= 1


def test_fourteen_bits_are_not_twenty_five():
    """Sums of 1024 products of one sign, as in the key products of a wide head."""
    q, k, v = (np.abs(codes("e4m3", 1, n, 1024, size=16.0).astype(float)) for n in (2, 8, 8))
    one = np.ones((1, 1))
    found = {
        bits: QuantisedKernel(add=partial(added, bits=bits))((q[0], k[0], v[0]), (one, one, one), 2.0**-12)[1]
        for bits in (14, 25)
    }
    budgets = {
        bits: oracles.attention(
            q, k, v, scale=2.0**-12, k_scale=np.float32(1), arithmetic=f"bfloat16-e4m3-accumulate-{bits}-bits"
        )[1]
        for bits in (14, 25)
    }
    assert budgets[14].excess(found[14][None]).max() <= 1
    assert budgets[25].excess(found[25][None]).max() <= 1
    assert budgets[25].excess(found[14][None]).max() > 10


@pytest.mark.parametrize(("suffix", "sigma"), list(SIGMAS.items())[1:])
def test_weights_below_half_a_step_are_lost(suffix, sigma):
    """One key of weight 1, and 1000 keys whose weights are below half of the smallest number of E4M3."""
    lost = 0.9 * E4M3.smallest_subnormal / 2 / sigma
    q, k = np.ones((1, 1, 1)), np.array([1.0] + [0.0] * 1000).reshape(1, -1, 1)
    v = np.array([0.0] + [8.0] * 1000).reshape(1, -1, 1)
    scale, one = float(np.float32(-np.log(lost))), np.ones((1, 1))
    out = QuantisedKernel(sigma=sigma)((q[0], k[0], v[0]), (one, one, one), scale)[0]
    exact, *others = (
        oracles.attention(q, k, v, scale=scale, v_scale=np.float32(1), arithmetic=arithmetic)[0]
        for arithmetic in (
            None,
            f"bfloat16-e4m3-e4m3-weights{suffix}",
            "bfloat16-e4m3",
            "bfloat16-e4m3-e4m3-weights-by-448",
        )
    )
    own, finer, finest = others
    assert out[0, 0] == 0 < exact.mid[0, 0, 0]
    assert own.excess(out[None]).max() <= 1 < finer.excess(out[None]).max()
    assert sigma > 1 or finest.excess(out[None]).max() > 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"k_scale": 0.0}, "k_scale has a number that is NaN, infinite or at most 0, but scales should be above 0."),
        ({"q_scale": np.nan}, "q_scale has a number that is NaN, infinite or at most 0, but scales should be above 0."),
        ({"v_scale": -1.0}, "v_scale has a number that is NaN, infinite or at most 0, but scales should be above 0."),
        ({"v_scale": 0.1}, "v_scale=0.1, but should be a binary32 number: inputs are not rounded."),
        ({"k": np.full((1, 2, 4), np.nan)}, "k has a NaN or ±∞, but codes with a scale should be finite."),
        (
            {"k_scale": np.ones(3, np.float32)},
            "k_scale has shape (3,), but should be (), (1,), (1, 2), or (1, 2) and blocks that divide 4.",
        ),
        (
            {"arithmetic": "bfloat16-int8", "k": np.full((1, 2, 4), 2.5)},
            "k[0, 0, 0]=2.5, but should be a int8 number: inputs are not rounded.",
        ),
        (
            {"arithmetic": "bfloat16-int4", "k": np.full((1, 2, 4), 8.0)},
            "k[0, 0, 0]=8.0, but should be a int4 number: inputs are not rounded.",
        ),
        (
            {"arithmetic": "bfloat16-int8", "k_scale": 2.0**-120, "q_scale": 2.0**-8},
            "The scales of q, k and v reach from 1.47e-39 to 1, with their products, but should be from 1.18e-38 to "
            "3.4e+38 for a budget.",
        ),
        (
            {"arithmetic": "bfloat16-int8-accumulate16"},
            "Budgets under bfloat16-int8-accumulate16 cover no scales of q, k and v: its accumulators are narrow.",
        ),
    ],
)
def test_a_wrong_argument_is_refused(changes, message):
    given = {"q": np.ones((1, 1, 4)), "k": np.ones((1, 2, 4)), "v": np.ones((1, 2, 4)), "k_scale": 1.0, "v_scale": 1.0}
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        oracles.attention(**(given | changes))


def test_the_most_negative_integer_of_four_bits_is_a_code():
    q, k = np.ones((1, 1, 4)), np.full((1, 2, 4), -8.0)
    out, _ = oracles.attention(q, k, k, k_scale=1.0, v_scale=1.0, arithmetic="bfloat16-int4")
    assert (out.mid == -8).all()


@pytest.mark.parametrize("size", [1.0, 2.0**-1068])
def test_dropout_divides_the_radii_of_numbers_too(size):
    """The numbers within x ± r, over 1 − p, are within the radius of the quotient, to the last bit."""
    x, radius = RANDOM.normal(size=(2, 5, 4)) * size, np.full((2, 5, 4), 0.25 * size)
    options = {**defaults(AttentionOptions), "dropout_mask": np.ones((2, 5, 5), bool), "dropout": 0.3}
    thinned = checked(x, x, x, options).thinned(operand(x, radius))
    keeps = 1 - Fraction(0.3)
    for value, rad, one, r in zip(thinned.value.flat, thinned.rad.flat, x.flat, radius.flat, strict=True):
        for number in (Fraction(one) - Fraction(r), Fraction(one) + Fraction(r)):
            assert abs(number / keeps - Fraction(value)) <= Fraction(rad)


@pytest.mark.parametrize("name", ["float32", "float32-flushing"])
@pytest.mark.parametrize("size", [1.0, 2.0**-126, 2.0**-145])
def test_the_quotients_of_kernels_with_dropout_are_within_the_radius(name, size):
    """They divide by 1 − p or multiply by its reciprocal, in float32, and flush x or the result."""
    x, p = (RANDOM.normal(size=(2, 5, 4)) * size).astype(np.float32), np.float32(0.3)
    options = {**defaults(AttentionOptions), "dropout_mask": np.ones((2, 5, 5), bool), "dropout": 0.3}
    thinned = checked(*(3 * [x.astype(float)]), options | {"arithmetic": name}).thinned(operand(x.astype(float)))

    def flushed(y):
        return np.where(np.abs(y) < 2.0**-126, np.float32(0), y) if name.endswith("flushing") else y

    one = np.float32(1)
    for found in (
        x / (one - p),
        x * (one / (one - p)),
        flushed(flushed(x) / (one - p)),
        flushed(x * (one / (one - p))),
    ):
        assert found.dtype == np.float32
        assert (np.abs(found - thinned.value) <= thinned.rad).all()
