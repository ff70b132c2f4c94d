"""Presets that suffixes name: a right kernel leaves the preset without the suffix, and keeps the
preset with it.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

import oracles
from oracles.ball import Array
from oracles.formats import BINARY16, BRAIN16
from oracles.tests.simulated.attention import Kernel
from oracles.tests.simulated.forms import Form
from oracles.tests.simulated.rounding import rounding, truncated

Budgets = Callable[[str], list[tuple[oracles.Enclosure, Array]]]


def flushed_values() -> Budgets:
    """Values at the smallest normal number of float32: the product with a weight of 1/2 is flushed."""
    q, k, v = np.zeros((1, 1)), np.zeros((2, 1)), np.array([[2.0**-126], [0.0]])
    kernel = Kernel(Form(normalise="before"), oracles.preset("float32-flushing"), 1.0)
    return lambda name: [(oracles.scaled_dot_product_attention(q, k, v, arithmetic=name), kernel.output(q, k, v))]


def eager_with_sink() -> Budgets:
    """transformers' eager gpt_oss in bfloat16: logits minus their maximum, here the sink, are stored."""
    k = torch.arange(1, 500, dtype=torch.float32).mul(2.0**-7).bfloat16()[:, None, None]
    ones, sink = torch.ones_like(k), torch.full((499,), 20.0).bfloat16()
    logits = torch.cat([ones @ k.mT, sink[:, None, None]], -1)
    weights = torch.softmax(logits - logits.max(-1, keepdim=True).values, -1, dtype=torch.bfloat16)
    q, k, v, found, sinks = (x.double().numpy() for x in (ones, k, ones, weights[..., :-1] @ ones, sink))
    return lambda name: [(oracles.attention(q, k, v, sink=sinks, arithmetic=name)[0], found)]


def stored_parts() -> Budgets:
    """Two parts of 16 keys. Normalised weights, the outputs of the parts and the result are stored in
    bfloat16, and all of them are rounded up: 3 roundoffs, of which `bfloat16` states 2.
    """
    store, u = rounding(BRAIN16), BRAIN16.unit_roundoff
    p = 2.0 ** -np.arange(1, 17) * (1 + 1.01 * u)
    p[7:] = (1 - p[:7].sum()) / 9
    k = np.log(np.concatenate([p, 1.01 * p]))[:, None]
    pieces = np.hstack([first := store(k), second := store(k - first), store(k - first - second)])
    v = store(np.repeat([[1.03125], [1.03125 + 2 * u]], 16, 0))
    parts = [store((store(p)[:, None] * values).sum(0)) for values in (v[:16], v[16:])]
    found = store((parts[0] + 1.01 * parts[1]) / 2.01)[None]
    q = np.ones((1, 3))
    return lambda name: [(oracles.scaled_dot_product_attention(q, pieces, v, scale=1.0, arithmetic=name), found)]


def bias_in_binary16() -> Budgets:
    """A bias that is read in binary16, beside scores in float32."""
    rng = np.random.default_rng(0)
    bias, v = np.float32(rng.standard_normal((1, 1, 16))), np.eye(16)[None]
    e = np.exp(np.float16(bias).astype(float))
    found = np.float32((e / e.sum()) @ v)
    zeros = np.zeros((1, 1, 1)), np.zeros((1, 16, 1))
    return lambda name: [(oracles.attention(*zeros, v, bias=bias, arithmetic=name)[0], found)]


def products_of_narrow_operands(terms: int, keep: Callable[[Array], Array]) -> Budgets:
    """Products of float32 matrices as one or three products of narrower ones, each exact."""
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal(shape).astype(np.float32).astype(float) for shape in ((64, 1), (1, 1), (1, 8)))
    k = np.vstack([k, 0 * k])
    v = np.vstack([v, 0 * v])

    def product(a: Array, b: Array) -> Array:
        first, other = keep(a), keep(b)
        if terms == 1:
            return first @ other
        return first @ other + first @ keep(b - other) + keep(a - first) @ other

    e = np.exp(8 * product(q, k.T))
    found = np.float32(product(e / e.sum(1, keepdims=True), v))
    return lambda name: [(oracles.scaled_dot_product_attention(q, k, v, scale=8.0, arithmetic=name), found)]


def three_truncated_products() -> Budgets:
    """512 keys, of which one has a larger weight. The three terms of each product are added up by an
    accumulator that truncates.
    """
    keep, chop = truncated(11), truncated(23)
    v = np.random.default_rng(0).uniform(0.5, 1, (512, 1)).astype(np.float32).astype(float)
    v[0] = 520  # so that all partial sums are between 512 and 1024
    k = np.where(np.arange(512) == 0, 0, np.float32(-0.3))[:, None]
    e, total = np.exp(k), np.zeros(1)
    for weight, value in zip(e, v, strict=True):
        first, other = keep(weight), keep(value)
        for term in (first * other, first * keep(value - other), keep(weight - first) * other):
            total = chop(total + term)
    found, q = (total / e.sum())[None], np.ones((1, 1))
    return lambda name: [(oracles.scaled_dot_product_attention(q, k, v, scale=1.0, arithmetic=name), found)]


def values_accumulated_in_binary16() -> Budgets:
    """1000 equal keys, whose weights of 1 times values are added up in binary16, in order."""
    v, total = np.random.default_rng(0).uniform(0.5, 1, (1000, 1)), np.float16(0)
    v = v.astype(np.float16).astype(float)
    for value in v[:, 0].astype(np.float16):
        total += value
    q, k, found = np.zeros((1, 1)), np.zeros((1000, 1)), np.array([[float(total) / 1000]])
    return lambda name: [(oracles.scaled_dot_product_attention(q, k, v, arithmetic=name), found)]


def rotated(angles: Array, x: Array) -> Array:
    """Rows whose adjacent channels are rotated by the angles of their pairs, in float32."""
    f32, (a, b) = np.float32, (x[:, ::2], x[:, 1::2])
    c, s = np.cos(angles.astype(float)).astype(f32), np.sin(angles.astype(float)).astype(f32)
    return np.stack([a * c - b * s, b * c + a * s], -1).reshape(x.shape)


def recurrent_angles() -> Budgets:
    """llama.cpp's loop over pairs, for heads of 576 channels at a far position."""
    x = np.ones((1, 576), np.float32)
    angle, ratio, angles = np.float32(7000), np.float32(10000 ** (-2 / 576)), []
    for _ in range(288):
        angles.append(angle)
        angle *= ratio
    found = rotated(np.array([angles]), x)
    return lambda name: [(oracles.rope(x, start_pos=7000, arithmetic=name), found)]


def frequency_divisors() -> Budgets:
    """MLX's kernel, which takes periods and multiplies by their reciprocals."""
    rng = np.random.default_rng(1)
    x, f32 = np.tile(np.float32([[1, 0]]), 8192), np.float32
    frequencies = rng.uniform(1030 / 1050, 1, 8192)
    reciprocals = f32(1) / (1 / frequencies).astype(f32)
    found = rotated(f32(1050) * reciprocals[None], x)
    return lambda name: [(oracles.rope(x, start_pos=1050, inv_freq=frequencies, arithmetic=name), found)]


def fast_trig() -> Budgets:
    """Sines and cosines with the error that NVIDIA documents, in the direction of the rounding."""
    rng = np.random.default_rng(0)
    angles = np.arange(64)[:, None] * np.exp(-np.arange(32) / 32 * np.log(1e4))
    off = rng.choice([-1.0, 1.0], (2, 64, 32)) * 2.0**-20.6
    cos, sin = np.cos(angles) + off[0], np.sin(angles) + off[1]
    found = np.stack([sin, cos], -1).reshape(64, 64).astype(np.float32)
    return lambda name: [(oracles.sinusoidal_positional_encoding(64, 64, arithmetic=name), found)]


KERNELS: dict[tuple[str, str], Callable[[], Budgets]] = {
    ("float32", "flushing"): flushed_values,
    ("bfloat16-tensor-core", "flushing"): flushed_values,
    ("bfloat16-eager", "stored-differences"): eager_with_sink,
    ("bfloat16", "stored-parts"): stored_parts,
    ("float32", "float16-bias"): bias_in_binary16,
    ("float32", "by-bfloat16"): partial(products_of_narrow_operands, 1, rounding(BRAIN16)),
    ("float32", "by-three-bfloat16"): partial(products_of_narrow_operands, 3, rounding(BRAIN16)),
    ("float32-materialized", "by-three-tf32"): three_truncated_products,
    ("float32", "accumulate16"): values_accumulated_in_binary16,
    ("float32", "recurrent-angles"): recurrent_angles,
    ("float32", "frequency-divisors"): frequency_divisors,
    ("float32", "fast-trig"): fast_trig,
}


@pytest.mark.parametrize(("name", "suffix"), KERNELS)
def test_a_right_kernel_needs_the_suffix(name: str, suffix: str) -> None:
    judged = KERNELS[name, suffix]()

    def worst(preset: str) -> float:
        return max(float(budget.excess(found).max()) for budget, found in judged(preset))

    assert worst(f"{name}-{suffix}") <= 1 < worst(name)


def test_an_accumulator_of_binary16_that_overflows_is_refused_no_result_and_leaves_scores_as_they_are() -> None:
    """70000 equal keys with values of 1: their sum is beyond binary16, and no result is wrong."""
    q, k, v = np.zeros((1, 1)), np.zeros((70000, 1)), np.ones((70000, 1))
    out = oracles.scaled_dot_product_attention(q, k, v, arithmetic="float32-accumulate16")
    assert np.isinf(out.rad).all()
    few = [x[:2] for x in (k, v)]
    narrow, fine = (
        oracles.attention(q[None], *(x[None] for x in few), arithmetic=f"float32{suffix}")[1].rad
        for suffix in ("-accumulate16", "-tensor-core-flash")
    )
    assert (narrow <= fine).all()


def test_scores_accumulated_in_binary16_overflow_beyond_it() -> None:
    arithmetic = replace(oracles.FLOAT32, name="scores in binary16", accumulate_scores=BINARY16)
    q, k, v = np.full((1, 2), 300.0), np.full((2, 2), 300.0), np.ones((2, 1))
    assert np.isinf(oracles.scaled_dot_product_attention(q, k, v, scale=1e-4, arithmetic=arithmetic).rad).all()
    assert np.isfinite(oracles.scaled_dot_product_attention(q, k, v, scale=1e-4, arithmetic="float32").rad).all()


def test_suffixes_follow_each_other_in_any_order() -> None:
    one, other = (oracles.preset(f"bfloat16-{a}-{b}") for a, b in (("flushing", "fast-exponential"),) * 2)
    assert one == other
    assert one.flush_to_zero
    assert one.exp.at_zero


def test_the_tanh_is_named_last() -> None:
    with pytest.raises(ValueError, match="should be one of"):
        oracles.preset("bfloat16-torch-tanh-fast-exponential")
    assert oracles.preset("bfloat16-fast-exponential-tanh-by-exponentials").tanh is not None


def test_a_tile_of_32_keys_has_narrower_limits_than_any_tile() -> None:
    rng = np.random.default_rng(0)
    q, k, v = rng.integers(-64, 65, (3, 2048, 8)) / 32
    any_tile, tiles = (
        oracles.scaled_dot_product_attention(q[:1], k, v, arithmetic=f"bfloat16-tensor-core{suffix}")
        for suffix in ("", "-flash")
    )
    assert (tiles.rad < any_tile.rad).all()
