"""The exact value of every operation on softmax and attention, by ball arithmetic of any precision:
`method="arb"`.

arb (Johansson, Arb: efficient arbitrary-precision midpoint-radius interval arithmetic, IEEE Trans.
Comput. 66, 2017) proves an enclosure of the value over ℝ. The formulas below are the definitions,
row by row and head by head.  Arguments are validated float64 arrays with equal leading axes.
`allowed` is None, or a bool array of the shape of the scores that is true at visible keys. The
scale is 1/√d unless given.  Each function returns a tuple with one `Ball` (midpoint ± radius) for
each result.

Masked entries are outside the support of the weights, so their values do not matter.  An entry
whose product reads a number that is not finite is lost, even if the other factor is 0: its midpoint
is NaN and its radius ∞.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from itertools import chain
from typing import Any, Required, TypedDict, Unpack, cast

import numpy as np
from flint import arb
from numpy.typing import NDArray

from oracles.arb_matrix import PRECISION, Bools, Matrix, Rationals, enclosed, from_array, side_by_side
from oracles.ball import Array, Ball
from oracles.conventions import Conventions
from oracles.error_analysis.logits import Features
from oracles.exact.multi_head import (
    attention,
    attention_jvp,
    attention_vjp,
    generalised,
    generalised_jvp,
    generalised_vjp,
    levelled,
    lose_dead_rows,
    softmax,
    softmax_derivative,
    split_heads,
)

Results = tuple[Ball, ...]
"""A ball for each result."""

Inputs = Sequence[Array]
"""The arrays q, k and v, or their tangents; or the arrays x, wq, wk, wv and wo."""


class ExactOptions(TypedDict, total=False):
    """The options of exact attention: the scale (1/√d by default), the conventions, and the first
    precision in bits.
    """

    scale: float | None
    conventions: Required[Conventions]
    precision: int


class FeaturedOptions(ExactOptions, total=False):
    """The options of exact attention, and the features of the logits: bias, softcap and sinks."""

    features: Required[Features]


def hard_masked_softmax(
    scores: Array, allowed: Bools | None, *, conventions: Conventions, precision: int = PRECISION
) -> Results:
    """Return the softmax weights of each row: exp(scores[i, j]) / Σ_visible exp(scores[i, ·]), and
    0 at masked entries. Fully masked rows follow `conventions.dead_rows`.
    """
    visible = _allowed(scores.shape, allowed)

    def evaluate(s: Array, a: Bools) -> list[Matrix]:
        return [lose_dead_rows(softmax(from_array(s), a, conventions), a, conventions)]

    return _expecting_nan(_batched(evaluate, [scores, visible], precision), visible, conventions)


def hard_masked_softmax_vjp(
    scores: Array,
    allowed: Bools | None,
    grad_weights: Array,
    *,
    conventions: Conventions,
    precision: int = PRECISION,
) -> Results:
    """Return the gradient of the scores, dscores = w ⊙ (g − Σ_visible w ⊙ g), with the weights w
    and g = grad_weights.

    It is 0 at masked entries and in fully masked rows. Fully masked rows are unchecked if they are
    NaN by convention.
    """

    def evaluate(s: Array, a: Bools, g: Array) -> list[Matrix]:
        u, a = levelled(from_array(s), a, conventions)
        weights = softmax(u, a, conventions)
        return [lose_dead_rows(softmax_derivative(weights, a, from_array(g)), a, conventions)]

    return _batched(evaluate, [scores, _allowed(scores.shape, allowed), grad_weights], precision)


def scaled_dot_product_attention(point: Inputs, allowed: Bools | None, **options: Unpack[ExactOptions]) -> Results:
    """Return the output softmax(scale·q·kᵀ)·v over the visible keys, at the point (q, k, v)."""
    visible, scale, conventions = _visible(point, allowed), _scale(point, options), options["conventions"]

    def evaluate(*arrays: Any) -> list[Matrix]:
        *operands, mask = arrays
        return [attention(_matrices(operands), mask, scale(), conventions)]

    return _expecting_nan(_batched(evaluate, [*point, visible], _precision(options)), visible, conventions)


def scaled_dot_product_attention_vjp(
    point: Inputs, allowed: Bools | None, grad_out: Array, **options: Unpack[ExactOptions]
) -> Results:
    """Return the gradients (dq, dk, dv): with dS = scale·softmax'(grad_out·vᵀ), dq = dS·k, dk =
    dSᵀ·q and dv = weightsᵀ·grad_out.
    """
    scale, conventions = _scale(point, options), options["conventions"]

    def evaluate(*arrays: Any) -> list[Matrix]:
        *operands, mask, g = arrays
        return attention_vjp(_matrices(operands), mask, from_array(g), scale(), conventions)

    return _batched(evaluate, [*point, _visible(point, allowed), grad_out], _precision(options))


def scaled_dot_product_attention_jvp(
    point: Inputs, allowed: Bools | None, tangent: Inputs, **options: Unpack[ExactOptions]
) -> Results:
    """Return the derivative of the output in the direction (dq, dk, dv): softmax'(scale·(dq·kᵀ +
    q·dkᵀ))·v + weights·dv.
    """
    visible, scale, conventions = _visible(point, allowed), _scale(point, options), options["conventions"]

    def evaluate(*arrays: Any) -> list[Matrix]:
        q, k, v, mask, *tangents = arrays
        return [attention_jvp(_matrices((q, k, v)), _matrices(tangents), mask, scale(), conventions)]

    results = _batched(evaluate, [*point, visible, *tangent], _precision(options))
    return _expecting_nan(results, visible, conventions)


def generalised_attention(
    point: Sequence[Array | Rationals], allowed: Bools, **options: Unpack[FeaturedOptions]
) -> Results:
    """Return (out, lse) of `oracles.attention`, with the heads among the batch axes.

    The log-sum-exp lse has the shape (…, n, 1). It is −∞ in a row without a visible key and without
    a sink.
    """
    features, conventions, scale = options["features"], options["conventions"], _scale(point, options, True)

    def evaluate(*arrays: Any) -> list[Matrix]:
        q, k, v, mask, *feature_arrays = arrays
        return generalised(_matrices((q, k, v)), mask, _with(features, feature_arrays), scale(), conventions)

    out, lse = _batched(evaluate, [*point, allowed, *_given(features).values()], _precision(options))
    has_entries = _live(allowed, features)
    without_keys = ~(
        _live(allowed, features._replace(sink=None)) if conventions.lse_sink == "excluded" else has_entries
    )
    unchecked = np.inf if conventions.dead_rows == "uniform" else 0.0
    finite = Ball(np.where(without_keys, -np.inf, lse.mid), np.where(without_keys, unchecked, lse.rad))
    return *_expecting_nan((out,), has_entries, conventions), finite


def generalised_attention_vjp(
    point: Inputs, allowed: Bools, grad_out: Array, grad_lse: Array | None, **options: Unpack[FeaturedOptions]
) -> Results:
    """Return the gradients (dq, dk, dv), then with a bias the gradient of each logit's bias, and
    with sinks the gradient of each row's sink.
    """
    features, conventions, scale = options["features"], options["conventions"], _scale(point, options, True)

    def evaluate(*arrays: Any) -> list[Matrix]:
        q, k, v, mask, g, of_lse, *feature_arrays = arrays
        cotangents = from_array(g), from_array(of_lse)
        return generalised_vjp(
            _matrices((q, k, v)), mask, cotangents, _with(features, feature_arrays), scale(), conventions
        )

    of_lse = np.zeros((*point[0].shape[:-1], 1)) if grad_lse is None else grad_lse
    arrays = [*point, allowed, grad_out, of_lse, *_given(features).values()]
    return _batched(evaluate, arrays, _precision(options))


def generalised_attention_jvp(
    point: Inputs,
    allowed: Bools,
    tangent: Inputs,
    dbias: Array | None,
    dsink: Array | None,
    **options: Unpack[FeaturedOptions],
) -> Results:
    """Return the derivatives (dout, dlse) of the output and of the log-sum-exp in the direction of
    all tangents. dlse has the shape (…, n, 1) and is 0 in a fully masked row.
    """
    features, conventions, scale = options["features"], options["conventions"], _scale(point, options, True)
    rows, keys = point[0].shape[:-1], point[1].shape[-2]
    feature_tangents = [np.zeros((*rows, n)) if x is None else x for x, n in ((dbias, keys), (dsink, 1))]

    def evaluate(*arrays: Any) -> list[Matrix]:
        operands, mask, tangents, feature_arrays = arrays[:3], arrays[3], arrays[4:9], arrays[9:]
        return generalised_jvp(
            _matrices(operands), _matrices(tangents), mask, _with(features, feature_arrays), scale(), conventions
        )

    arrays = [*point, allowed, *tangent, *feature_tangents, *_given(features).values()]
    out, lse = _batched(evaluate, arrays, _precision(options))
    return *_expecting_nan((out,), _live(allowed, features), conventions), lse


def _matrices(arrays: Sequence[Array | Rationals]) -> tuple[Matrix, ...]:
    return tuple(map(from_array, arrays))


def _visible(point: Inputs, allowed: Bools | None) -> Bools:
    """Return which keys are visible to each row, as an array of the shape of all scores."""
    q, k, *_ = point
    return _allowed((*q.shape[:-1], k.shape[-2]), allowed)


def _precision(options: ExactOptions) -> int:
    return options.get("precision", PRECISION)


def _with(features: Features, parts: Sequence[Array | Bools]) -> Features:
    """Return the features with the arrays of one element of the batch."""
    return features._replace(**cast(Any, dict(zip(_given(features), parts, strict=True))))


def _live(allowed: Bools, features: Features) -> Bools:
    """Return which rows (…, n_q, 1) have a visible key or a sink."""
    has_entries = np.asarray(allowed.any(axis=-1, keepdims=True))
    return has_entries if features.sink is None else has_entries | (features.sink > -np.inf)


_ARRAYS = ("bias", "blocked", "sink", "slope", "distance", "kept")


def _given(features: Features) -> dict[str, Any]:
    """Return the arrays among the features, by name."""
    return {name: x for name in _ARRAYS if (x := getattr(features, name)) is not None}


def multi_head_attention(
    point: Inputs, num_heads: int, allowed: Bools | None, **options: Unpack[ExactOptions]
) -> Results:
    """Return the output [head_0 | head_1 | …]·wo at the point (x, wq, wk, wv, wo). Head h is
    attention of the h-th blocks of columns of x·wq, x·wk and x·wv.
    """
    return attention_layer((point[0], *point), {}, np.arange(num_heads), allowed, **options)


def attention_layer(
    point: Inputs,
    biases: Mapping[str, Array],
    key_heads: NDArray[np.int64],
    allowed: Bools | None,
    **options: Unpack[ExactOptions],
) -> Results:
    """Return the output [head_0 | head_1 | …]·wo + bo at the point (x, context, wq, wk, wv, wo). Head h is
    attention of the h-th block of columns of x·wq + bq, and of the block `key_heads[h]` of columns of
    context·wk + bk and context·wv + bv.
    """
    x, context, wq, wk, wv, wo = point
    heads, groups, conventions = len(key_heads), int(key_heads.max()) + 1, options["conventions"]
    width, visible = wq.shape[1] // heads, _allowed((*x.shape[:-1], context.shape[-2]), allowed)

    def affine(tokens: Matrix, weight: Array, bias: str) -> Matrix:
        product = tokens @ from_array(weight)
        if bias not in biases:
            return product
        rows = product.support.shape[0]
        return product + from_array(np.broadcast_to(biases[bias], (rows, weight.shape[1])))

    def evaluate(x: Array, context: Array, mask: Bools) -> list[Matrix]:
        queries = split_heads(affine(from_array(x), wq, "bq"), heads)
        tokens = from_array(context)
        keys, values = (split_heads(affine(tokens, w, bias), groups) for w, bias in ((wk, "bk"), (wv, "bv")))
        factor = _factor(options.get("scale"), width)
        outputs = [
            attention((q, keys[own], values[own]), mask, factor, conventions)
            for q, own in zip(queries, key_heads, strict=True)
        ]
        return [affine(side_by_side(outputs), wo, "bo")]

    results = _batched(evaluate, [x, context, visible], _precision(options))
    return _expecting_nan(results, visible, conventions) if width else results


def multi_head_attention_vjp(
    point: Inputs, num_heads: int, allowed: Bools | None, grad_out: Array, **options: Unpack[ExactOptions]
) -> Results:
    """Return the gradients (dx, dwq, dwk, dwv, dwo); the gradients of the weights are summed over
    the batch.

    dc = grad_out·woᵀ is split into heads. dq, dk and dv hold the heads' VJPs side by side, and
    concat holds the heads' outputs side by side. Then dwo = concatᵀ·grad_out, dwq = xᵀ·dq (dwk and
    dwv likewise), and dx = dq·wqᵀ + dk·wkᵀ + dv·wvᵀ.
    """
    x, *weights, wo = point
    conventions, width = options["conventions"], weights[0].shape[1] // num_heads

    def evaluate(x: Array, mask: Bools, g: Array) -> list[Matrix]:
        factor, tokens, projections = _factor(options.get("scale"), width), from_array(x), _matrices(weights)
        heads = _heads(tokens, projections, num_heads)
        concat = side_by_side([attention(head, mask, factor, conventions) for head in heads])
        head_cotangents = split_heads(from_array(g) @ from_array(wo).transposed, num_heads)
        head_gradients = [
            attention_vjp(head, mask, cotangent, factor, conventions)
            for head, cotangent in zip(heads, head_cotangents, strict=True)
        ]
        dq, dk, dv = (side_by_side(list(of_heads)) for of_heads in zip(*head_gradients, strict=True))
        dx = dq @ projections[0].transposed + dk @ projections[1].transposed + dv @ projections[2].transposed
        return [dx, *(tokens.transposed @ d for d in (dq, dk, dv)), concat.transposed @ from_array(g)]

    return _batched(evaluate, [x, _tokens(x, allowed), grad_out], _precision(options), summed=4)


def multi_head_attention_jvp(
    point: Inputs, num_heads: int, allowed: Bools | None, tangent: Inputs, **options: Unpack[ExactOptions]
) -> Results:
    """Return the derivative of the output, [dhead_0 | …]·wo + [head_0 | …]·dwo. dhead_h is the JVP
    of attention at the h-th blocks of dx·wq + x·dwq, dx·wk + x·dwk and dx·wv + x·dwv.
    """
    (x, *weights, wo), (dx, *weight_tangents, dwo) = point, tangent
    conventions, width, visible = options["conventions"], weights[0].shape[1] // num_heads, _tokens(x, allowed)

    def evaluate(x: Array, mask: Bools, dx: Array) -> list[Matrix]:
        factor, tokens, token_tangent = _factor(options.get("scale"), width), from_array(x), from_array(dx)
        weights_and_tangents = [(from_array(w), from_array(dw)) for w, dw in zip(weights, weight_tangents, strict=True)]
        points = _heads(tokens, [w for w, _ in weights_and_tangents], num_heads)
        blocks = (split_heads(token_tangent @ w + tokens @ dw, num_heads) for w, dw in weights_and_tangents)
        outputs = [attention(head, mask, factor, conventions) for head in points]
        output_tangents = [
            attention_jvp(head, direction, mask, factor, conventions)
            for head, direction in zip(points, zip(*blocks, strict=True), strict=True)
        ]
        return [side_by_side(output_tangents) @ from_array(wo) + side_by_side(outputs) @ from_array(dwo)]

    results = _batched(evaluate, [x, visible, dx], _precision(options))
    return _expecting_nan(results, visible, conventions) if width else results


def _tokens(x: Array, allowed: Bools | None) -> Bools:
    """Return which tokens are visible to each token, as an array of the shape of all scores."""
    return _allowed((*x.shape[:-1], x.shape[-2]), allowed)


def _heads(tokens: Matrix, projections: Sequence[Matrix], num_heads: int) -> list[tuple[Matrix, ...]]:
    """Return the query, the key and the value of each head."""
    return list(zip(*(split_heads(tokens @ w, num_heads) for w in projections), strict=True))


def _expecting_nan(results: Results, allowed: Bools, conventions: Conventions) -> Results:
    """Return the results with radius 0 in fully masked rows if these are NaN by convention, because
    NaN is then the expected value.
    """
    if conventions.dead_rows != "nan":
        return results
    fully_masked = ~allowed.any(axis=-1, keepdims=True)
    return tuple(Ball(ball.mid, np.where(fully_masked, 0.0, ball.rad)) for ball in results)


def _allowed(shape: tuple[int, ...], allowed: Bools | None) -> Bools:
    return np.ones(shape, dtype=bool) if allowed is None else np.broadcast_to(allowed, shape)


def _scale(point: Sequence[Array | Rationals], options: ExactOptions, by_convention: bool = False) -> Callable[[], arb]:
    """Return a function that gives the scale at the working precision: the given scale, else 1/√d,
    or 1 if the convention says so.
    """
    is_one = by_convention and options["conventions"].scale_default == "one"
    scale, width = options.get("scale"), point[0].shape[-1]
    return lambda: arb(1) if scale is None and is_one else _factor(scale, width)


def _factor(scale: float | None, width: int) -> arb:
    """Return the scale at the working precision: the given scale, or 1/√width; 1 for width 0."""
    return arb(scale) if scale is not None else arb(max(width, 1)).rsqrt()


def _batched(
    evaluate: Callable[..., list[Matrix]], arguments: list[Any], precision: int, *, summed: int = 0
) -> Results:
    """Return the results of `evaluate` for every element of the batch. Its last `summed` results
    are added up over the batch, the others are stacked.
    """
    if arguments[0].ndim == 1:  # a row by itself
        return tuple(
            Ball(result.mid[0], result.rad[0])
            for result in _batched(evaluate, [x[np.newaxis] for x in arguments], precision)
        )
    batch = arguments[0].shape[:-2]
    if 0 in batch:
        shapes = [
            result.support.shape for result in evaluate(*(np.zeros(x.shape[-2:], dtype=x.dtype) for x in arguments))
        ]
        stacked = len(shapes) - summed
        empty = [np.zeros((*batch, *shape) if i < stacked else shape) for i, shape in enumerate(shapes)]
        return tuple(Ball(array, array.copy()) for array in empty)

    def everything() -> list[tuple[list[arb], Bools]]:
        results = list(zip(*(evaluate(*(x[index] for x in arguments)) for index in np.ndindex(batch)), strict=True))
        stacked = len(results) - summed
        added = [(reduce(Matrix.__add__, parts),) for parts in results[stacked:]]
        entries = [
            list(chain.from_iterable(matrix.balls.entries() for matrix in parts)) for parts in results[:stacked] + added
        ]
        losses = [np.stack([matrix.lost for matrix in parts]) for parts in results[:stacked]]
        shaped = [lost.reshape(*batch, *lost.shape[1:]) for lost in losses] + [total.lost for (total,) in added]
        return list(zip(entries, shaped, strict=True))

    return enclosed(everything, precision)
