"""A layer of attention: the definition's numbers, the literal layer as its special case, every order in which
a bias may be added, and what is refused."""

import re
from itertools import product

import numpy as np
import pytest

import oracles
from oracles import Conventions
from spec.extended.attention_layer import attention_layer as defined

RANDOM = np.random.default_rng(0)
BIASES = ("bq", "bk", "bv", "bo")
SIZES = [
    (3, 4, 4, 2, 2, 3),
    (1, 1, 1, 1, 1, 1),
    (2, 5, 3, 1, 2, 2),
    (0, 3, 2, 1, 2, 2),
    (3, 0, 2, 2, 2, 2),
    (2, 2, 2, 2, 1, 0),
]


def layer(n_q, n_k, heads, groups, d, d_v, format=np.float64):
    """The arrays of a layer, the number of heads, and its biases."""
    shapes = ((n_q, 5), (n_k, 6), (5, heads * d), (6, groups * d), (6, groups * d_v), (heads * d_v, 7))
    arrays = [RANDOM.normal(size=shape).astype(format).astype(np.float64) for shape in shapes]
    widths = zip(BIASES, (heads * d, groups * d, groups * d_v, 7), strict=True)
    return arrays, heads, {name: RANDOM.normal(size=n).astype(format).astype(np.float64) for name, n in widths}


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("method", ["fast", "arb"])
def test_the_numbers_are_those_of_the_definition(sizes, method):
    arrays, heads, biases = layer(*sizes)
    masks = None, RANDOM.random(sizes[:2]) < 0.5
    for given, mask, causal, scale in product(({}, biases, {"bo": biases["bo"]}), masks, (False, True), (None, 0.3)):
        options = {**given, "mask": mask, "causal": causal, "scale": scale}
        found, exact = (
            oracles.attention_layer(*arrays, heads, method=method, **options),
            defined(*arrays, heads, **options),
        )
        assert found.mid.shape == exact.shape
        assert (np.abs(found.mid - exact) <= found.rad + 1e-13 * (1 + np.abs(exact))).all()


def test_with_the_context_x_and_no_bias_it_is_the_literal_layer():
    (x, _, *_), heads, _ = layer(4, 4, 2, 2, 3, 3)
    weights = [RANDOM.normal(size=shape) for shape in ((5, 6), (5, 6), (5, 6), (6, 5))]
    found, literal = oracles.attention_layer(x, x, *weights, heads), oracles.multi_head_attention(x, *weights, heads)
    assert np.array_equal(found.mid, literal.mid)
    assert np.array_equal(found.rad, literal.rad)


def test_tiled_key_heads_are_the_consecutive_ones_in_another_order():
    arrays, heads, biases = layer(2, 3, 4, 2, 3, 2)
    order = np.array([0, 2, 1, 3])[:, None] * 3 + np.arange(3)
    rows = np.array([0, 2, 1, 3])[:, None] * 2 + np.arange(2)
    x, context, wq, wk, wv, wo = arrays
    moved = [x, context, wq[:, order.ravel()], wk, wv, wo[rows.ravel()]]
    tiled = oracles.attention_layer(*moved, heads, conventions=Conventions(kv_heads="tile"), bv=biases["bv"])
    same = oracles.attention_layer(*arrays, heads, bv=biases["bv"])
    assert (np.abs(tiled.mid - same.mid) <= tiled.rad + same.rad).all()


def _in_float32(arrays, heads, biases, ways):
    """The layer in float32, with each bias added to a stored product, first of the sum, or last."""
    single = [x.astype(np.float32) for x in arrays]
    x, context, *weights = single

    def projected(tokens, weight, name, way):
        bias = biases[name].astype(np.float32)
        if way == "stored":
            return tokens @ weight + bias
        terms = [tokens[:, c, None] * weight[c] for c in range(len(weight))]
        terms = [bias + 0 * terms[0], *terms] if way == "first" else [*terms, bias + 0 * terms[0]]
        total = terms[0]
        for term in terms[1:]:
            total = total + term
        return total

    named = zip((x, context, context), weights[:3], BIASES[:3], ways, strict=False)
    q, k, v = (projected(*one) for one in named)
    width, outs = q.shape[1] // heads, []
    groups = k.shape[1] // width
    for h in range(heads):
        g = h // (heads // groups)
        scores = q[:, h * width : (h + 1) * width] @ k[:, g * width : (g + 1) * width].T
        e = np.exp((scores - scores.max(-1, keepdims=True)) / np.float32(np.sqrt(width)))
        d_v = v.shape[1] // groups
        outs.append((e / e.sum(-1, keepdims=True)) @ v[:, g * d_v : (g + 1) * d_v])
    return projected(np.concatenate(outs, 1), weights[3], "bo", ways[3])


@pytest.mark.parametrize("ways", [*product(("stored", "first", "last"), repeat=2)], ids="-".join)
def test_a_kernel_may_add_a_bias_to_the_stored_product_first_or_last(ways):
    for _ in range(40):
        arrays, heads, biases = layer(3, 4, 4, 2, 2, 3, np.float32)
        biases = {name: bias * 2.0 ** RANDOM.integers(-8, 8) for name, bias in biases.items()}
        found = oracles.attention_layer(*arrays, heads, arithmetic="float32", **biases)
        out = _in_float32(arrays, heads, biases, (*ways, *ways))
        assert (found.excess(out.astype(np.float64)) <= 1).all()


def test_the_error_limit_of_a_large_bias_comes_from_its_rounding():
    """Tokens of 0 leave the sum of two biases alone: its rounding is within the limit, and above 1/8 of it."""
    arrays, heads, _ = layer(1, 1, 1, 1, 1, 1, np.float32)
    arrays[0][:], arrays[1][:], arrays[5][:] = 0, 0, 1
    found = oracles.attention_layer(*arrays, heads, arithmetic="float32", bv=np.ones(1), bo=np.full(7, 2.0**24))
    rounded = (np.float32(1) + np.full(7, 2.0**24, np.float32)).astype(np.float64)
    assert (found.excess(rounded[None]) <= 1).all()
    assert (np.abs(rounded - (2.0**24 + 1)) > found.rad / 8).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({0: np.ones(5)}, "x has shape (5,), but should be (…, tokens, width)."),
        ({1: np.ones((2, 3, 6))}, "context has shape (2, 3, 6), but should have the leading axes of x, ()."),
        ({2: np.ones((4, 8))}, "wq has shape (4, 8), but should have 5 rows and two axes."),
        ({2: np.ones((5, 6))}, "wq has 6 columns, but should have a multiple of num_heads=4, at least 1."),
        ({2: np.ones((5, 0))}, "wq has 0 columns, but should have a multiple of num_heads=4, at least 1."),
        ({3: np.ones((6, 6))}, "wk has 6 columns, but should have head_dim=2 for each key head, whose number divides"),
        ({4: np.ones((6, 5))}, "wv has 5 columns, but should have a multiple of the 2 key heads."),
        ({5: np.ones((11, 7))}, "wo has shape (11, 7), but should have 12 rows: num_heads · value_dim."),
        ({6: 0}, "num_heads=0"),
        ({"bq": np.ones(3)}, "bq has shape (3,), but should be (8,)."),
        ({"bo": np.ones((1, 7))}, "bo has shape (1, 7), but should be (7,)."),
        ({"causal": 1}, "causal"),
    ],
    ids=str,
)
def test_what_is_refused(change, message):
    arrays, heads, _ = layer(3, 4, 4, 2, 2, 3)
    arguments = [*arrays, heads]
    for place, value in change.items():
        if isinstance(place, int):
            arguments[place] = value
    options = {name: value for name, value in change.items() if isinstance(name, str)}
    with pytest.raises((TypeError, ValueError), match=re.escape(message)):
        oracles.attention_layer(*arguments, **options)
