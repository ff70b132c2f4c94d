"""Each of the 35 declarations at its edges, over every scalar, against numbers worked out by hand.

A result over floats or mpf equals the number written here. A ball contains it and is finite, and so
do both terms of a series, whose derivative is 0: the inputs are constants.
"""

import math
from dataclasses import dataclass
from typing import Any

import flint
import mpmath
import numpy as np
import pytest

from spec import ARB, ARB_SERIES, FLOAT32, FLOAT64, SCALARS
from spec import attention as att
from spec import positional_encoding as pos
from spec.tensor_core import BroadcastTo, tensor
from spec.tests.declarations import ATTENTION, POSITIONAL

IEEE = (FLOAT64, FLOAT32)
NAN = math.nan


@dataclass(frozen=True)
class Case:
    """What a declaration gives at an edge: over ℝ, and over Float where that differs."""

    lean: str
    edge: str
    call: Any  # of the scalar
    expected: Any
    ieee: Any = None


@dataclass(frozen=True)
class Close:
    """A number that is not exact in binary: balls contain it, and floats are within `roundoffs` u
    of it, relatively.

    An operation makes 1, and exp, log, sin and cos within 4 ulp make 8.
    """

    number: Any  # of no argument, over ARB
    roundoffs: int


def equals(actual, expected, alpha):
    if isinstance(expected, Close):
        return is_close(actual, expected, alpha)
    if alpha is ARB:
        return actual.is_finite() and actual.contains(expected)
    if alpha is ARB_SERIES:
        return equals(actual[0], expected, ARB) and equals(actual[1], 0, ARB)
    return actual == expected or (actual != actual and expected != expected)


def is_close(actual, expected, alpha):
    with flint.ctx.workprec(256):
        number = expected.number()
        if alpha in (ARB, ARB_SERIES):
            ball = actual[0] if alpha is ARB_SERIES else actual
            return ball.is_finite() and ball.overlaps(number)
        unit = {np.float32: 2.0**-24, np.float64: 2.0**-53}.get(alpha.element, 2.0**-mpmath.mp.prec)
        return abs(
            flint.arb(float(actual) if alpha.element is not mpmath.mpf else actual) - number
        ) <= expected.roundoffs * unit * abs(number)


def leaves(expected):
    return [leaf for row in expected for leaf in leaves(row)] if isinstance(expected, list) else [expected]


def shape_of(expected):
    return (len(expected), *(shape_of(expected[0]) if expected else ())) if isinstance(expected, list) else ()


class Empty(tuple):
    """A tensor without entries, by its shape, which nested lists cannot tell."""


def agrees(actual, expected, alpha):
    if isinstance(expected, tuple) and not isinstance(expected, Empty):  # several results
        return len(actual) == len(expected) and all(agrees(a, e, alpha) for a, e in zip(actual, expected, strict=True))
    if isinstance(expected, BroadcastTo | type(None)):
        return actual == expected
    if not isinstance(actual, np.ndarray):
        return type(actual) is alpha.element and equals(actual, expected, alpha)
    if isinstance(expected, Empty):
        return actual.shape == tuple(expected) and actual.dtype in (alpha.dtype, np.dtype(bool))
    if actual.shape != shape_of(expected):
        return False
    if actual.dtype == bool:
        return actual.tolist() == expected
    typed = all(type(a) is alpha.element for a in actual.flat)
    return typed and all(equals(a, e, alpha) for a, e in zip(actual.flat, leaves(expected), strict=True))


# -- The inputs ------------------------------------------------------------------------------------


def t(values, alpha, *shape):
    """The tensor of these values; of this shape where it has no entries."""
    return tensor(np.array(values, np.float64).reshape(shape), alpha) if shape else tensor(values, alpha)


def ctx(alpha, Q, K, V, mask=None):
    return att.AttentionContext(t(Q, alpha), t(K, alpha), t(V, alpha), mask, scalar=alpha)


def empty_width(alpha, mask=None):
    nothing = t([], alpha, 2, 0)
    return att.AttentionContext(nothing, nothing, nothing, mask, scalar=alpha)


def mha(alpha, Wq, Wk, Wv, Wo, num_heads, head_dim):
    return att.MultiHeadAttention(
        t(Wq, alpha), t(Wk, alpha), t(Wv, alpha), t(Wo, alpha), num_heads, head_dim, scalar=alpha
    )


def no_width(alpha, d_model, num_heads, head_dim):
    """Parameters where numHeads·headDim = 0."""
    W = t([], alpha, d_model, 0)
    return att.MultiHeadAttention(W, W, W, t([], alpha, 0, d_model), num_heads, head_dim, scalar=alpha)


def no_model(alpha, num_heads, head_dim):
    """Parameters where dModel = 0."""
    width = num_heads * head_dim
    W = t([], alpha, 0, width)
    return att.MultiHeadAttention(W, W, W, t([], alpha, width, 0), num_heads, head_dim, scalar=alpha)


def ones(alpha, num_heads=1, head_dim=1):
    return mha(alpha, [[1]], [[1]], [[1]], [[1]], num_heads, head_dim)


def pe(alpha, values, *shape):
    return pos.PositionalEncodingSpec(t(values, alpha, *shape), scalar=alpha)


def mask(*rows):
    return np.array(rows, bool)


# One query, two keys with equal scores: the weights are ½ and ½. Values 10 and 20.
HALVES = ([[0]], [[1], [3]], [[10], [20]])
DEAD = mask([0, 0])
SECOND = mask([0, 1])
ONE_KEY = ([[2], [3]], [[5]], [[7]])

CASES = (
    # -- positional_encoding
    Case("PositionalEncodingSpec", "seqLen = 0", lambda a: pe(a, [], 0, 3).pos, Empty((0, 3))),
    Case("PositionalEncodingSpec", "embedDim = 0", lambda a: pe(a, [], 3, 0).pos, Empty((3, 0))),
    Case("PositionalEncodingSpec", "one position", lambda a: pe(a, [[1, 2]]).pos, [[1, 2]]),
    Case(
        "addPositionalEncodingSpec",
        "seqLen = 0",
        lambda a: pos.add_positional_encoding_spec(pe(a, [], 0, 3), t([], a, 0, 3)),
        Empty((0, 3)),
    ),
    Case(
        "addPositionalEncodingSpec",
        "embedDim = 0",
        lambda a: pos.add_positional_encoding_spec(pe(a, [], 3, 0), t([], a, 3, 0)),
        Empty((3, 0)),
    ),
    Case(
        "addPositionalEncodingSpec",
        "odd width",
        lambda a: pos.add_positional_encoding_spec(pe(a, [[1, 2, 3]]), t([[4, 5, 6]], a)),
        [[5, 7, 9]],
    ),
    Case(
        "addPositionalEncodingBackwardSpec",
        "seqLen = 0",
        lambda a: pos.add_positional_encoding_backward_spec(pe(a, [], 0, 3), t([], a, 0, 3)),
        (Empty((0, 3)), Empty((0, 3))),
    ),
    Case(
        "addPositionalEncodingBackwardSpec",
        "one position",
        lambda a: pos.add_positional_encoding_backward_spec(pe(a, [[1, 2]]), t([[4, 5]], a)),
        ([[4, 5]], [[4, 5]]),
    ),
    Case("posencFreqDenomSpec", "pair 0", lambda a: pos.posenc_freq_denom_spec(0, 5, a), 1),
    Case("posencFreqDenomSpec", "pair 0 of width 0", lambda a: pos.posenc_freq_denom_spec(0, 0, a), 1, NAN),
    Case("posencFreqDenomSpec", "pair 3 of width 0", lambda a: pos.posenc_freq_denom_spec(3, 0, a), 1, math.inf),
    Case(
        # log 10000 is within 8 u and the product within 9 u of ln 100 = 4.61, which exp turns into
        # 42 u of 100, with 8 u of its own.
        "posencFreqDenomSpec",
        "pair 1 of width 4",
        lambda a: pos.posenc_freq_denom_spec(1, 4, a),
        Close(lambda: flint.arb(100), roundoffs=50),
    ),
    Case("posencAngleSpec", "position 0", lambda a: pos.posenc_angle_spec(0, 2, 5, a), 0),
    Case("posencAngleSpec", "pair 0", lambda a: pos.posenc_angle_spec(7, 0, 5, a), 7),
    Case("posencAngleSpec", "width 0", lambda a: pos.posenc_angle_spec(7, 3, 0, a), 7, 0),
    Case(
        "sinusoidalPositionalEncodingSpec",
        "seqLen = 0",
        lambda a: pos.sinusoidal_positional_encoding_spec(0, 3, scalar=a),
        Empty((0, 3)),
    ),
    Case(
        "sinusoidalPositionalEncodingSpec",
        "embedDim = 0",
        lambda a: pos.sinusoidal_positional_encoding_spec(3, 0, scalar=a),
        Empty((3, 0)),
    ),
    Case(
        "sinusoidalPositionalEncodingSpec",
        "position 0, even width",
        lambda a: pos.sinusoidal_positional_encoding_spec(1, 4, scalar=a),
        [[0, 1, 0, 1]],
    ),
    Case(
        "sinusoidalPositionalEncodingSpec",
        "position 0, odd width",
        lambda a: pos.sinusoidal_positional_encoding_spec(1, 3, scalar=a),
        [[0, 1, 0]],
    ),
    Case(
        "sinusoidalPositionalEncodingSpec",
        "positions 2 and 3 of width 1",
        lambda a: pos.sinusoidal_positional_encoding_spec(2, 1, 2, a),
        [[Close(lambda: flint.arb(2).sin(), roundoffs=8)], [Close(lambda: flint.arb(3).sin(), roundoffs=8)]],
    ),
    Case(
        "addSinusoidalPositionalEncodingSpec",
        "seqLen = 0",
        lambda a: pos.add_sinusoidal_positional_encoding_spec(t([], a, 0, 3), 5, a),
        Empty((0, 3)),
    ),
    Case(
        "addSinusoidalPositionalEncodingSpec",
        "embedDim = 0",
        lambda a: pos.add_sinusoidal_positional_encoding_spec(t([], a, 3, 0), 5, a),
        Empty((3, 0)),
    ),
    Case(
        "addSinusoidalPositionalEncodingSpec",
        "position 0, odd width",
        lambda a: pos.add_sinusoidal_positional_encoding_spec(t([[5, 5, 5]], a)),
        [[5, 6, 5]],
    ),
    Case(
        "ropeRotatePairsLastdimSpec",
        "headDim = 0",
        lambda a: pos.rope_rotate_pairs_lastdim_spec(t([], a, 0), a),
        Empty((0,)),
    ),
    Case("ropeRotatePairsLastdimSpec", "headDim = 1", lambda a: pos.rope_rotate_pairs_lastdim_spec(t([3], a)), [3]),
    Case(
        "ropeRotatePairsLastdimSpec",
        "even",
        lambda a: pos.rope_rotate_pairs_lastdim_spec(t([1, 2, 3, 4], a)),
        [-2, 1, -4, 3],
    ),
    Case(
        "ropeRotatePairsLastdimSpec",
        "odd",
        lambda a: pos.rope_rotate_pairs_lastdim_spec(t([1, 2, 3, 4, 5], a)),
        [-2, 1, -4, 3, 5],
    ),
    Case("ropeCosLastdimSpec", "headDim = 0", lambda a: pos.rope_cos_lastdim_spec(3, 0, a), Empty((0,))),
    Case("ropeCosLastdimSpec", "position 0, odd", lambda a: pos.rope_cos_lastdim_spec(0, 3, a), [1, 1, 1]),
    Case(
        "ropeCosLastdimSpec",
        "both lanes of pair 0",
        lambda a: pos.rope_cos_lastdim_spec(2, 2, a),
        [Close(lambda: flint.arb(2).cos(), roundoffs=8)] * 2,
    ),
    Case("ropeSinLastdimSpec", "headDim = 0", lambda a: pos.rope_sin_lastdim_spec(3, 0, a), Empty((0,))),
    Case("ropeSinLastdimSpec", "position 0, odd", lambda a: pos.rope_sin_lastdim_spec(0, 3, a), [0, 0, 0]),
    Case(
        "ropeSinLastdimSpec",
        "both lanes of pair 0",
        lambda a: pos.rope_sin_lastdim_spec(2, 2, a),
        [Close(lambda: flint.arb(2).sin(), roundoffs=8)] * 2,
    ),
    Case("ropeApplySpec", "seqLen = 0", lambda a: pos.rope_apply_spec(t([], a, 0, 3), 1, a), Empty((0, 3))),
    Case("ropeApplySpec", "headDim = 0", lambda a: pos.rope_apply_spec(t([], a, 3, 0), 1, a), Empty((3, 0))),
    Case(
        "ropeApplySpec",
        "position 0 is the identity, odd lane included",
        lambda a: pos.rope_apply_spec(t([[1, 2, 3]], a)),
        [[1, 2, 3]],
    ),
    Case(
        "ropeApplySpec",
        "row 1 is turned by one radian",
        lambda a: pos.rope_apply_spec(t([[1, 0], [1, 0]], a)),
        [[1, 0], [Close(lambda: flint.arb(1).cos(), roundoffs=8), Close(lambda: flint.arb(1).sin(), roundoffs=8)]],
    ),
    Case(
        "ropeApplySpec",
        "an unpaired lane is multiplied by cos + sin",
        lambda a: pos.rope_apply_spec(t([[2]], a), 1),
        [[Close(lambda: 2 * (flint.arb(1).cos() + flint.arb(1).sin()), roundoffs=10)]],
    ),
    Case(
        "ropeApplyHeadsSpec",
        "numHeads = 0",
        lambda a: pos.rope_apply_heads_spec(t([], a, 0, 2, 3), 1, a),
        Empty((0, 2, 3)),
    ),
    Case(
        "ropeApplyHeadsSpec",
        "seqLen = 0",
        lambda a: pos.rope_apply_heads_spec(t([], a, 2, 0, 3), 1, a),
        Empty((2, 0, 3)),
    ),
    Case(
        "ropeApplyHeadsSpec",
        "headDim = 0",
        lambda a: pos.rope_apply_heads_spec(t([], a, 2, 3, 0), 1, a),
        Empty((2, 3, 0)),
    ),
    Case(
        "ropeApplyHeadsSpec",
        "position 0",
        lambda a: pos.rope_apply_heads_spec(t([[[1, 2, 3]], [[4, 5, 6]]], a)),
        [[[1, 2, 3]], [[4, 5, 6]]],
    ),
    # -- attention: masks, which are over no scalar
    Case("allTrueMask", "nQ = 0", lambda a: att.all_true_mask(0, 2), Empty((0, 2))),
    Case("allTrueMask", "nK = 0", lambda a: att.all_true_mask(2, 0), Empty((2, 0))),
    Case("allTrueMask", "a rectangle", lambda a: att.all_true_mask(1, 2), [[True, True]]),
    Case("allFalseMask", "nQ = 0", lambda a: att.all_false_mask(0, 2), Empty((0, 2))),
    Case("allFalseMask", "nK = 0", lambda a: att.all_false_mask(2, 0), Empty((2, 0))),
    Case("allFalseMask", "a rectangle", lambda a: att.all_false_mask(2, 1), [[False], [False]]),
    Case("causalMask", "n = 0", lambda a: att.causal_mask(0), Empty((0, 0))),
    Case("causalMask", "n = 1", lambda a: att.causal_mask(1), [[True]]),
    Case(
        "causalMask",
        "n = 3",
        lambda a: att.causal_mask(3),
        [[True, False, False], [True, True, False], [True, True, True]],
    ),
    Case("futureMask", "n = 0", lambda a: att.future_mask(0), Empty((0, 0))),
    Case("futureMask", "n = 1", lambda a: att.future_mask(1), [[False]]),
    Case(
        "futureMask",
        "n = 3",
        lambda a: att.future_mask(3),
        [[False, True, True], [False, False, True], [False, False, False]],
    ),
    # -- attention: the context and softmax
    Case("AttentionContext", "its parts", lambda a: (ctx(a, *HALVES).Q, ctx(a, *HALVES).K, ctx(a, *HALVES).V), HALVES),
    Case("AttentionContext", "its witness", lambda a: ctx(a, *HALVES).bc_sum_to_target, BroadcastTo((1,), (1, 2))),
    Case("AttentionContext", "no mask", lambda a: ctx(a, *HALVES).mask, None),
    Case("AttentionContext", "dModel = 0", lambda a: empty_width(a).Q, Empty((2, 0))),
    Case(
        "hardMaskedSoftmaxVecSpec",
        "n = 0",
        lambda a: att.hard_masked_softmax_vec_spec(t([], a, 0), np.ones(0, bool), a),
        Empty((0,)),
    ),
    Case(
        "hardMaskedSoftmaxVecSpec",
        "n = 1, allowed",
        lambda a: att.hard_masked_softmax_vec_spec(t([7], a), mask(1)),
        [1],
    ),
    Case(
        "hardMaskedSoftmaxVecSpec",
        "n = 1, blocked",
        lambda a: att.hard_masked_softmax_vec_spec(t([7], a), mask(0), a),
        [0],
        [NAN],
    ),
    Case(
        "hardMaskedSoftmaxVecSpec",
        "all blocked",
        lambda a: att.hard_masked_softmax_vec_spec(t([1, 2], a), mask(0, 0), a),
        [0, 0],
        [NAN, NAN],
    ),
    Case(
        "hardMaskedSoftmaxVecSpec",
        "one blocked",
        lambda a: att.hard_masked_softmax_vec_spec(t([0, 0, 9], a), mask(1, 1, 0), a),
        [0.5, 0.5, 0],
    ),
    Case(
        "hardMaskedSoftmaxSpec",
        "nQ = 0",
        lambda a: att.hard_masked_softmax_spec(t([], a, 0, 2), np.ones((0, 2), bool), a),
        Empty((0, 2)),
    ),
    Case(
        "hardMaskedSoftmaxSpec",
        "nK = 0",
        lambda a: att.hard_masked_softmax_spec(t([], a, 2, 0), np.ones((2, 0), bool), a),
        Empty((2, 0)),
    ),
    Case(
        "hardMaskedSoftmaxSpec",
        "a dead row beside live ones",
        lambda a: att.hard_masked_softmax_spec(t([[0, 0], [0, 0], [0, 0]], a), mask([1, 0], [0, 0], [1, 1]), a),
        [[1, 0], [0, 0], [0.5, 0.5]],
        [[1, 0], [NAN, NAN], [0.5, 0.5]],
    ),
    Case(
        "softmaxBackwardFromWeightsSpec",
        "a number",
        lambda a: att.softmax_backward_from_weights_spec(t(3, a), t(5, a), a),
        0,
    ),
    Case(
        "softmaxBackwardFromWeightsSpec",
        "n = 0",
        lambda a: att.softmax_backward_from_weights_spec(t([], a, 0), t([], a, 0), a),
        Empty((0,)),
    ),
    Case(
        "softmaxBackwardFromWeightsSpec",
        "n = 1",
        lambda a: att.softmax_backward_from_weights_spec(t([1], a), t([5], a)),
        [0],
    ),
    Case(
        "softmaxBackwardFromWeightsSpec",
        "a blocked entry",
        lambda a: att.softmax_backward_from_weights_spec(t([0.5, 0.5, 0], a), t([1, 0, 7], a)),
        [0.25, -0.25, 0],
    ),
    Case(
        "softmaxBackwardFromWeightsSpec",
        "a dead row",
        lambda a: att.softmax_backward_from_weights_spec(t([[0, 0]], a), t([[1, 2]], a)),
        [[0, 0]],
    ),
    Case(
        "softmaxBackwardFromWeightsSpec",
        "three axes",
        lambda a: att.softmax_backward_from_weights_spec(t([[[1, 0]], [[0.5, 0.5]]], a), t([[[4, 8]], [[4, 8]]], a)),
        [[[0, 0]], [[-1, 1]]],
    ),
    # -- attention and its derivatives
    Case(
        "scaledDotProductAttention", "equal scores", lambda a: att.scaled_dot_product_attention(ctx(a, *HALVES)), [[15]]
    ),
    Case(
        "scaledDotProductAttention", "one key", lambda a: att.scaled_dot_product_attention(ctx(a, *ONE_KEY)), [[7], [7]]
    ),
    Case(
        "scaledDotProductAttention",
        "one key allowed",
        lambda a: att.scaled_dot_product_attention(ctx(a, *HALVES, SECOND)),
        [[20]],
    ),
    Case(
        "scaledDotProductAttention",
        "no key allowed",
        lambda a: att.scaled_dot_product_attention(ctx(a, *HALVES, DEAD)),
        [[0]],
        [[NAN]],
    ),
    Case(
        "scaledDotProductAttention",
        "dModel = 0",
        lambda a: att.scaled_dot_product_attention(empty_width(a)),
        Empty((2, 0)),
    ),
    Case(
        "scaledDotProductAttention",
        "dModel = 0, masked",
        lambda a: att.scaled_dot_product_attention(empty_width(a, att.causal_mask(2))),
        Empty((2, 0)),
    ),
    Case(
        "scaledDotProductAttention",
        "odd dModel",
        lambda a: att.scaled_dot_product_attention(ctx(a, [[0] * 3], [[1, 2, 3]] * 2, [[1, 2, 3], [3, 2, 1]])),
        [[2, 2, 2]],
    ),
    Case(
        "hardMaskedScaledDotProductAttention",
        "equal scores",
        lambda a: att.hard_masked_scaled_dot_product_attention(ctx(a, *HALVES)),
        [[15]],
    ),
    Case(
        "hardMaskedScaledDotProductAttention",
        "one key allowed",
        lambda a: att.hard_masked_scaled_dot_product_attention(ctx(a, *HALVES, SECOND)),
        [[20]],
    ),
    Case(
        "hardMaskedScaledDotProductAttention",
        "no key allowed",
        lambda a: att.hard_masked_scaled_dot_product_attention(ctx(a, *HALVES, DEAD)),
        [[0]],
        [[NAN]],
    ),
    Case(
        "hardMaskedScaledDotProductAttention",
        "dModel = 0",
        lambda a: att.hard_masked_scaled_dot_product_attention(empty_width(a)),
        Empty((2, 0)),
    ),
    Case(
        # A = (½, ½), dA = (10, 20), dS = (−2½, 2½); dQ = −2½·1 + 2½·3
        "scaledDotProductAttentionBackward",
        "equal scores",
        lambda a: att.scaled_dot_product_attention_backward(ctx(a, *HALVES), t([[1]], a)),
        ([[5]], [[0], [0]], [[0.5], [0.5]]),
    ),
    Case(
        "scaledDotProductAttentionBackward",
        "one key",
        lambda a: att.scaled_dot_product_attention_backward(ctx(a, *ONE_KEY), t([[1], [2]], a)),
        ([[0], [0]], [[0]], [[3]]),
    ),
    Case(
        "scaledDotProductAttentionBackward",
        "one key allowed",
        lambda a: att.scaled_dot_product_attention_backward(ctx(a, *HALVES, SECOND), t([[1]], a)),
        ([[0]], [[0], [0]], [[0], [1]]),
    ),
    Case(
        "scaledDotProductAttentionBackward",
        "no key allowed",
        lambda a: att.scaled_dot_product_attention_backward(ctx(a, *HALVES, DEAD), t([[1]], a)),
        ([[0]], [[0], [0]], [[0], [0]]),
        ([[NAN]], [[NAN], [NAN]], [[NAN], [NAN]]),
    ),
    Case(
        "scaledDotProductAttentionBackward",
        "dModel = 0",
        lambda a: att.scaled_dot_product_attention_backward(empty_width(a), t([], a, 2, 0)),
        (Empty((2, 0)), Empty((2, 0)), Empty((2, 0))),
    ),
    Case(
        # dS = 1·K = (1, 3), Σ dS A = 2, dA = (−½, ½); −½·10 + ½·20
        "scaledDotProductAttentionJvp",
        "equal scores",
        lambda a: att.scaled_dot_product_attention_jvp(
            ctx(a, *HALVES), t([[1]], a), t([[0], [0]], a), t([[0], [0]], a)
        ),
        [[5]],
    ),
    Case(
        "scaledDotProductAttentionJvp",
        "one key",
        lambda a: att.scaled_dot_product_attention_jvp(ctx(a, *ONE_KEY), t([[1], [1]], a), t([[1]], a), t([[9]], a)),
        [[9], [9]],
    ),
    Case(
        "scaledDotProductAttentionJvp",
        "one key allowed",
        lambda a: att.scaled_dot_product_attention_jvp(
            ctx(a, *HALVES, SECOND), t([[1]], a), t([[1], [1]], a), t([[8], [9]], a)
        ),
        [[9]],
    ),
    Case(
        "scaledDotProductAttentionJvp",
        "no key allowed",
        lambda a: att.scaled_dot_product_attention_jvp(
            ctx(a, *HALVES, DEAD), t([[1]], a), t([[1], [1]], a), t([[8], [9]], a)
        ),
        [[0]],
        [[NAN]],
    ),
    Case(
        "scaledDotProductAttentionJvp",
        "dModel = 0",
        lambda a: att.scaled_dot_product_attention_jvp(empty_width(a), t([], a, 2, 0), t([], a, 2, 0), t([], a, 2, 0)),
        Empty((2, 0)),
    ),
    # -- several heads
    Case(
        "MultiHeadAttention",
        "numHeads = 0",
        lambda a: (no_width(a, 2, 0, 3).Wq, no_width(a, 2, 0, 3).Wo),
        (Empty((2, 0)), Empty((0, 2))),
    ),
    Case(
        "MultiHeadAttention",
        "headDim = 0",
        lambda a: (no_width(a, 2, 3, 0).Wq, no_width(a, 2, 3, 0).Wo),
        (Empty((2, 0)), Empty((0, 2))),
    ),
    Case(
        "MultiHeadAttention",
        "dModel = 0",
        lambda a: (no_model(a, 2, 3).Wq, no_model(a, 2, 3).Wo),
        (Empty((0, 6)), Empty((6, 0))),
    ),
    Case("MultiHeadAttention", "one head", lambda a: ones(a).Wv, [[1]]),
    Case("splitHeadsSpec", "n = 0", lambda a: att.split_heads_spec(t([], a, 0, 6), 2, 3, a), Empty((2, 0, 3))),
    Case("splitHeadsSpec", "numHeads = 0", lambda a: att.split_heads_spec(t([], a, 4, 0), 0, 3, a), Empty((0, 4, 3))),
    Case("splitHeadsSpec", "headDim = 0", lambda a: att.split_heads_spec(t([], a, 4, 0), 2, 0, a), Empty((2, 4, 0))),
    Case("splitHeadsSpec", "n = 1", lambda a: att.split_heads_spec(t([[1, 2, 3, 4]], a), 2, 2), [[[1, 2]], [[3, 4]]]),
    Case(
        "splitHeadsSpec", "one head", lambda a: att.split_heads_spec(t([[1, 2], [3, 4]], a), 1, 2), [[[1, 2], [3, 4]]]
    ),
    Case(
        "splitHeadsSpec",
        "two tokens fall into head 0 together",
        lambda a: att.split_heads_spec(t([[1, 2], [3, 4]], a), 2, 1),
        [[[1], [2]], [[3], [4]]],
    ),
    Case("concatHeadsSpec", "numHeads = 0", lambda a: att.concat_heads_spec([], (3, 2), a), Empty((3, 0))),
    Case("concatHeadsSpec", "n = 0", lambda a: att.concat_heads_spec([t([], a, 0, 2)] * 3, scalar=a), Empty((0, 6))),
    Case(
        "concatHeadsSpec", "headDim = 0", lambda a: att.concat_heads_spec([t([], a, 2, 0)] * 3, scalar=a), Empty((2, 0))
    ),
    Case("concatHeadsSpec", "one head", lambda a: att.concat_heads_spec([t([[1, 2, 3]], a)]), [[1, 2, 3]]),
    Case(
        "concatHeadsSpec",
        "side by side",
        lambda a: att.concat_heads_spec([t([[1], [2]], a), t([[3], [4]], a)]),
        [[1, 3], [2, 4]],
    ),
    Case(
        "concatHeadsSpec",
        "wider heads stay whole",
        lambda a: att.concat_heads_spec([t([[1, 2]], a), t([[3, 4]], a)]),
        [[1, 2, 3, 4]],
    ),
    Case(
        "combineHeadsSpec",
        "wider heads stay whole",
        lambda a: att.combine_heads_spec(t([[[1, 2]], [[3, 4]]], a)),
        [[1, 2, 3, 4]],
    ),
    Case("combineHeadsSpec", "numHeads = 0", lambda a: att.combine_heads_spec(t([], a, 0, 3, 2), a), Empty((3, 0))),
    Case("combineHeadsSpec", "n = 0", lambda a: att.combine_heads_spec(t([], a, 2, 0, 3), a), Empty((0, 6))),
    Case("combineHeadsSpec", "headDim = 0", lambda a: att.combine_heads_spec(t([], a, 2, 3, 0), a), Empty((3, 0))),
    Case(
        "combineHeadsSpec",
        "side by side",
        lambda a: att.combine_heads_spec(t([[[1], [2]], [[3], [4]]], a)),
        [[1, 3], [2, 4]],
    ),
    Case("buildBcProof", "n = 0", lambda a: att.build_bc_proof(0), BroadcastTo((0,), (0, 0))),
    Case("buildBcProof", "n = 1", lambda a: att.build_bc_proof(1), BroadcastTo((1,), (1, 1))),
    Case(
        "MultiHeadAttention.forward", "numHeads = 0", lambda a: no_width(a, 2, 0, 3).forward(t([[1, 2]], a)), [[0, 0]]
    ),
    Case("MultiHeadAttention.forward", "headDim = 0", lambda a: no_width(a, 2, 3, 0).forward(t([[1, 2]], a)), [[0, 0]]),
    Case(
        "MultiHeadAttention.forward", "dModel = 0", lambda a: no_model(a, 2, 3).forward(t([], a, 2, 0)), Empty((2, 0))
    ),
    Case("MultiHeadAttention.forward", "n = 1", lambda a: ones(a).forward(t([[2]], a)), [[2]]),
    Case(
        "MultiHeadAttention.forward",
        "no key allowed",
        lambda a: ones(a).forward(t([[2]], a), mask([0])),
        [[0]],
        [[NAN]],
    ),
    Case(
        # With Wq = 0 all weights are equal. Q is 0; the values 1, 2, 3, 4 split as they lie: head 0
        # holds (1, 2), head 1 holds (3, 4).
        "MultiHeadAttention.forward",
        "two heads of two tokens mix them",
        lambda a: mha(a, [[0, 0], [0, 0]], [[0, 0], [0, 0]], [[1, 0], [0, 1]], [[1, 0], [0, 1]], 2, 1).forward(
            t([[1, 2], [3, 4]], a)
        ),
        [[1.5, 3.5], [1.5, 3.5]],
    ),
    Case(
        "MultiHeadAttentionBackward",
        "numHeads = 0",
        lambda a: att.multi_head_attention_backward(no_width(a, 2, 0, 3), t([[1, 2]], a), None, t([[3, 4]], a)),
        ([[0, 0]], Empty((2, 0)), Empty((2, 0)), Empty((2, 0)), Empty((0, 2))),
    ),
    Case(
        "MultiHeadAttentionBackward",
        "headDim = 0",
        lambda a: att.multi_head_attention_backward(no_width(a, 2, 3, 0), t([[1, 2]], a), None, t([[3, 4]], a)),
        ([[0, 0]], Empty((2, 0)), Empty((2, 0)), Empty((2, 0)), Empty((0, 2))),
    ),
    Case(
        "MultiHeadAttentionBackward",
        "dModel = 0",
        lambda a: att.multi_head_attention_backward(no_model(a, 1, 2), t([], a, 2, 0), None, t([], a, 2, 0)),
        (Empty((2, 0)), Empty((0, 2)), Empty((0, 2)), Empty((0, 2)), Empty((2, 0))),
    ),
    Case(
        "MultiHeadAttentionBackward",
        "n = 1",
        lambda a: att.multi_head_attention_backward(ones(a), t([[2]], a), None, t([[1]], a)),
        ([[1]], [[0]], [[0]], [[2]], [[2]]),
    ),
    Case(
        "MultiHeadAttentionBackward",
        "no key allowed",
        lambda a: att.multi_head_attention_backward(ones(a), t([[2]], a), mask([0]), t([[1]], a)),
        ([[0]], [[0]], [[0]], [[0]], [[0]]),
        ([[NAN]], [[NAN]], [[NAN]], [[NAN]], [[NAN]]),
    ),
    Case(
        "MultiHeadAttentionJvp",
        "numHeads = 0",
        lambda a: att.multi_head_attention_jvp(
            no_width(a, 2, 0, 3), no_width(a, 2, 0, 3), t([[1, 2]], a), t([[3, 4]], a)
        ),
        [[0, 0]],
    ),
    Case(
        "MultiHeadAttentionJvp",
        "headDim = 0",
        lambda a: att.multi_head_attention_jvp(
            no_width(a, 2, 3, 0), no_width(a, 2, 3, 0), t([[1, 2]], a), t([[3, 4]], a)
        ),
        [[0, 0]],
    ),
    Case(
        "MultiHeadAttentionJvp",
        "dModel = 0",
        lambda a: att.multi_head_attention_jvp(no_model(a, 1, 2), no_model(a, 1, 2), t([], a, 2, 0), t([], a, 2, 0)),
        Empty((2, 0)),
    ),
    Case(
        # y = x·Wv·Wo at x = 2 and all weights 1: the tangent along (dWv, dWo, dx) = (3, 5, 7) is
        # 2·3 + 2·5 + 7; Wq and Wk say nothing.
        "MultiHeadAttentionJvp",
        "n = 1",
        lambda a: att.multi_head_attention_jvp(
            ones(a), mha(a, [[8]], [[9]], [[3]], [[5]], 1, 1), t([[2]], a), t([[7]], a)
        ),
        [[23]],
    ),
    Case(
        "MultiHeadAttentionJvp",
        "no key allowed",
        lambda a: att.multi_head_attention_jvp(ones(a), ones(a), t([[2]], a), t([[7]], a), mask([0])),
        [[0]],
        [[NAN]],
    ),
    # -- attention with projections
    Case(
        "selfAttention",
        "n = 1",
        lambda a: att.self_attention(t([[2]], a), *[t([[w]], a) for w in (1, 1, 3, 5)]),
        [[30]],
    ),
    Case(
        "selfAttention",
        "projDim = 0",
        lambda a: att.self_attention(t([[2]], a), *[t([], a, 1, 0)] * 3, t([], a, 0, 1), a),
        [[0]],
    ),
    Case(
        "selfAttention",
        "dModel = 0",
        lambda a: att.self_attention(t([], a, 2, 0), *[t([], a, 0, 3)] * 3, t([], a, 3, 0), a),
        Empty((2, 0)),
    ),
    Case(
        "selfAttention",
        "equal weights",
        lambda a: att.self_attention(t([[2], [4]], a), *[t([[w]], a) for w in (0, 1, 1, 1)]),
        [[3], [3]],
    ),
    Case(
        "crossAttention",
        "one key",
        lambda a: att.cross_attention(t([[1], [2]], a), t([[3]], a), t([[7]], a), *[t([[w]], a) for w in (1, 1, 2, 3)]),
        [[42], [42]],
    ),
    Case(
        "crossAttention",
        "projDim = 0",
        lambda a: att.cross_attention(
            t([[1], [2]], a), t([[3]], a), t([[7]], a), *[t([], a, 1, 0)] * 3, t([], a, 0, 1), a
        ),
        [[0], [0]],
    ),
    Case(
        "crossAttention",
        "dModel = 0",
        lambda a: att.cross_attention(
            t([], a, 1, 0), t([], a, 2, 0), t([], a, 2, 0), *[t([], a, 0, 3)] * 3, t([], a, 3, 0), a
        ),
        Empty((1, 0)),
    ),
    Case(
        "crossAttention",
        "equal scores",
        lambda a: att.cross_attention(t([[0]], a), t([[1], [2]], a), t([[10], [20]], a), *[t([[1]], a)] * 4),
        [[15]],
    ),
    Case(
        "sparseAttention",
        "n = 1",
        lambda a: att.sparse_attention(t([[2]], a), mask([1]), *[t([[w]], a) for w in (1, 1, 3, 5)]),
        [[30]],
    ),
    Case(
        "sparseAttention",
        "each attends to the other",
        lambda a: att.sparse_attention(t([[2], [4]], a), mask([0, 1], [1, 0]), *[t([[1]], a)] * 4),
        [[4], [2]],
    ),
    Case(
        "sparseAttention",
        "a row of the pattern is empty",
        lambda a: att.sparse_attention(t([[2], [4]], a), mask([0, 0], [1, 0]), *[t([[1]], a)] * 4, a),
        [[0], [2]],
        [[NAN], [2]],
    ),
    Case(
        "sparseAttention",
        "projDim = 0",
        lambda a: att.sparse_attention(t([[2]], a), mask([1]), *[t([], a, 1, 0)] * 3, t([], a, 0, 1), a),
        [[0]],
    ),
)


@pytest.mark.parametrize("alpha", SCALARS, ids=repr)
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.lean}: {case.edge}")
def test_at_its_edges_a_declaration_gives_the_number_worked_out_by_hand(case, alpha):
    expected = case.ieee if alpha in IEEE and case.ieee is not None else case.expected
    actual = case.call(alpha)
    assert agrees(actual, expected, alpha), f"{case.lean} gives {actual!r}, but should give {expected!r}."


def test_every_declaration_is_taken_to_its_edges():
    assert {case.lean for case in CASES} == {declaration.lean for declaration in POSITIONAL + ATTENTION}


@pytest.mark.parametrize("alpha", SCALARS, ids=repr)
@pytest.mark.parametrize(
    ("actual", "wrong"),
    [([[1]], [[2]]), ([[1]], [1]), ([[1, 2]], [[1], [2]]), ([[1]], [[NAN]]), ([[1]], Empty((1, 0))), ([[1]], ([[1]],))],
    ids=["value", "rank", "shape", "NaN", "empty", "several"],
)
def test_a_wrong_expectation_is_not_met(actual, wrong, alpha):
    assert agrees(t(actual, alpha), actual, alpha)
    assert not agrees(t(actual, alpha), wrong, alpha)


def test_a_ball_that_is_not_finite_or_a_derivative_that_is_not_zero_meets_no_number():
    assert not equals(flint.arb("nan"), 0, ARB)
    assert not equals(flint.arb_series([1, 1], 2), 1, ARB_SERIES)
    assert equals(flint.arb_series([1, 0], 2), 1, ARB_SERIES)
