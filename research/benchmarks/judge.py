"""The exact values that judge enclosures: the literal `spec` over balls, one unbatched problem at a
time.

Each function takes float64 arrays and a working precision in bits, and returns arrays of
`flint.arb`. Each ball contains the value over ℝ. The module uses no code of `oracles`. Several
heads follow `spec.errata`, because the literal split of heads mixes tokens. Derivatives that
TorchLean does not define follow from its definitions: a rotation's transpose is its conjugate by J
= diag(1, −1, 1, …). A `Meaning` chooses a scale, a base and a stretch, which the spec fixes: the
module multiplies the queries and the angles, as balls.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import flint
import numpy as np
from numpy.typing import NDArray

import oracles
from oracles import Enclosure
from research.benchmarks.exact import attention, derivatives, latent, layer, packed, paged, parts, rotary
from spec import ARB, errata, tensor
from spec import attention as literal
from spec import positional_encoding as positional
from spec.context import Context
from spec.tensor_core import Array as Balls
from spec.tensor_core import stack
from spec.tensor_ops import add_spec, mul_spec

__all__ = ["SPEC", "Deviation", "Meaning", "compare", "enclosed", "evaluate"]

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

MORE, MOST_PRECISION = 6, 1 << 13
NEGLIGIBLE = flint.arb(2) ** -1200
"""Far below the smallest number of float64: a narrower ball across the edge of an interval touches
it, for all that balls can tell.
"""


@dataclass(frozen=True)
class Deviation:
    """How far the exact values of one result are from midpoints, in units of radii.

    entries    the number of judged entries: all with a finite radius
    unbounded  the number of entries with an infinite radius, which promises nothing
    outside    the number of entries that are certainly not within the radius
    touching   the number of balls that straddle the edge of their interval and are narrower than
               2⁻¹²⁰⁰: the value is on the edge. An example is a radius of 0 for a value that the
               spec reaches by exp(s)/exp(s) = 1
    undecided  the number of wider balls that still straddle the edge at the highest precision
    largest    the largest (|exact − mid| + the ball's own radius) ÷ radius, over positive radii
    """

    entries: int
    unbounded: int
    outside: int
    touching: int
    undecided: int
    largest: float


@dataclass(frozen=True)
class Meaning:
    """Choices that the spec's definitions do not leave to the caller.

    scale     the factor of attention's scores; None is 1/√d, as in the spec
    base      of the frequencies of `rope`
    stretch   the factor of these frequencies
    odd       the unpaired channel of an odd width: rotated as in the spec ("literal"), or unchanged
              ("passthrough")
    layout    of sines and cosines, as `Conventions.sinusoid_layout`
    """

    scale: float | None = None
    base: float = 10000.0
    stretch: float = 1.0
    odd: str = "literal"
    layout: str = "interleaved"


SPEC = Meaning()


def evaluate(
    operation: str, arguments: tuple[object, ...], precision: int, meaning: Meaning = SPEC
) -> tuple[Balls, ...]:
    """The exact results of an operation, as balls at a working precision in bits."""
    with flint.ctx.workprec(precision):
        if meaning.scale is not None:
            results = _scaled(operation, arguments, meaning.scale)
        elif operation in ("rope", "rope_vjp"):
            results = _OPERATIONS[operation](*arguments, _turning(meaning), meaning.odd)
        elif operation == "sinusoidal_positional_encoding":
            results = _OPERATIONS[operation](*arguments, meaning.layout)
        else:
            results = _OPERATIONS[operation](*arguments)
    return results if isinstance(results, tuple) else (results,)


def compare(
    operation: str,
    arguments: tuple[object, ...],
    intervals: list[tuple[Array, Array]],
    precision: int = 128,
    meaning: Meaning = SPEC,
) -> Deviation:
    """Whether the exact results of an operation lie in the intervals mid ± rad.

    An entry is decided when its ball is wholly inside its interval or wholly outside; where a ball
    straddles the edge, everything is evaluated again in a higher precision.
    """
    exact = evaluate(operation, arguments, precision, meaning)
    if any(balls.shape != mids.shape for balls, (mids, _) in zip(exact, intervals, strict=True)):
        shapes = [(balls.shape, mids.shape) for balls, (mids, _) in zip(exact, intervals, strict=True)]
        raise ValueError(f"Exact values and midpoints of {operation} have shapes {shapes}, but should have the same.")
    entries = [
        (ball, float(mid), float(rad))
        for balls, (mids, rads) in zip(exact, intervals, strict=True)
        for ball, mid, rad in zip(balls.ravel(), mids.ravel(), rads.ravel(), strict=True)
    ]
    bounded = [entry for entry in entries if entry[2] != np.inf]
    outside, touching, undecided, largest = 0, 0, 0, 0.0
    with flint.ctx.workprec(precision):
        for ball, mid, rad in bounded:
            if _is_special(ball, mid):
                continue
            distance = abs(ball - flint.arb(mid))  # NaN, and so outside, where mid is
            if distance.abs_upper() <= rad:
                largest = max(largest, float(distance.abs_upper()) / rad if rad else 0.0)
            elif distance.abs_lower() > rad or mid != mid:
                outside += 1
                largest = max(largest, float(distance.abs_lower()) / rad if rad else np.inf)
            elif ball.rad() < NEGLIGIBLE:
                touching += 1
            else:
                undecided += 1
    if undecided and precision < MOST_PRECISION:
        return compare(operation, arguments, intervals, MORE * precision, meaning)
    return Deviation(len(bounded), len(entries) - len(bounded), outside, touching, undecided, largest)


def _is_special(ball: flint.arb, mid: float) -> bool:
    """Whether both are −∞, as the log-sum-exp without keys, or both NaN, as a fully masked row may
    be.
    """
    return bool(ball == -flint.arb("inf") and mid == -np.inf) or (bool(ball.is_nan()) and mid != mid)


def enclosed(operation: str, given: tuple[object, ...], keywords: dict[str, Any], method: str) -> list[Enclosure]:
    """The answers of the oracle, without absent results. The oracle's name ends at the first space
    of `operation`; the rest informs the reader.
    """
    answer = getattr(oracles, operation.partition(" ")[0])(*given, **keywords, method=method)
    return [enclosure for enclosure in (answer if isinstance(answer, tuple) else (answer,)) if enclosure is not None]


def _balls(x: Array) -> Balls:
    return tensor(x, ARB)


def _context(q: Array, k: Array, v: Array, mask: Mask | None) -> literal.AttentionContext:
    return literal.AttentionContext(_balls(q), _balls(k), _balls(v), mask)


def _scaled(operation: str, arguments: tuple[Any, ...], scale: float) -> Balls | tuple[Balls, ...]:
    """Attention of the queries c·q, whose scores are scale·q·kᵀ for c = scale·√d; so the tangents
    of q are c times as large too, and dq is c times the gradient of c·q."""
    q, *others = arguments
    factor = flint.arb(scale) * flint.arb(q.shape[-1]).sqrt()
    if operation == "scaled_dot_product_attention_jvp":
        others[3] = _balls(others[3]) * factor
    results = _OPERATIONS[operation](_balls(q) * factor, *others)
    return (results[0] * factor, *results[1:]) if operation == "scaled_dot_product_attention_vjp" else results


def _turning(meaning: Meaning) -> Context:
    """Balls whose `cos` and `sin` first multiply the angle by `stretch`, and whose `log` is
    log(base) for every argument: the spec takes the logarithm of the base alone.
    """
    stretch, log_base = flint.arb(meaning.stretch), flint.arb(meaning.base).log()
    return replace(ARB, log=lambda _: log_base, cos=lambda x: (x * stretch).cos(), sin=lambda x: (x * stretch).sin())


def _attention(q: Array, k: Array, v: Array, mask: Mask | None) -> Balls:
    return literal.scaled_dot_product_attention(_context(q, k, v, mask))


def _attention_vjp(q: Array, k: Array, v: Array, mask: Mask | None, g: Array) -> tuple[Balls, ...]:
    return literal.scaled_dot_product_attention_backward(_context(q, k, v, mask), _balls(g))


def _attention_jvp(q: Array, k: Array, v: Array, mask: Mask | None, *tangents: Array) -> Balls:
    dq, dk, dv = map(_balls, tangents)
    return literal.scaled_dot_product_attention_jvp(_context(q, k, v, mask), dq, dk, dv)


def _causal(q: Array, k: Array, v: Array) -> Balls:
    return _attention(q, k, v, np.tri(len(q), len(k), dtype=bool))


def _grouped(q: Array, k: Array, v: Array, mask: Mask | None) -> Balls:
    group = len(q) // len(k)
    return np.stack(
        [
            _attention(q[head], k[head // group], v[head // group], None if mask is None else mask[head])
            for head in range(len(q))
        ]
    )


def _parameters(wq: Array, wk: Array, wv: Array, wo: Array, num_heads: int) -> literal.MultiHeadAttention:
    return literal.MultiHeadAttention(
        _balls(wq), _balls(wk), _balls(wv), _balls(wo), num_heads, wq.shape[1] // num_heads
    )


class _MultiHeadCall(NamedTuple):
    """The arguments of multi-head attention."""

    x: Array
    wq: Array
    wk: Array
    wv: Array
    wo: Array
    num_heads: int
    mask: Mask | None

    @property
    def weights(self) -> literal.MultiHeadAttention:
        """The four projections and the number of heads."""
        return _parameters(*self[1:6])


def _multi_head(*arguments: Any) -> Balls:
    call = _MultiHeadCall(*arguments)
    return errata.multi_head_attention_forward(call.weights, _balls(call.x), call.mask)


def _multi_head_vjp(*arguments: Any) -> tuple[Balls, ...]:
    *inputs, g = arguments
    call = _MultiHeadCall(*inputs)
    return errata.multi_head_attention_backward(call.weights, _balls(call.x), call.mask, _balls(g))


def _multi_head_jvp(*arguments: Any) -> Balls:
    call = _MultiHeadCall(*arguments[:7])
    dx, dwq, dwk, dwv, dwo = arguments[7:]
    tangents = _parameters(dwq, dwk, dwv, dwo, call.num_heads)
    return errata.multi_head_attention_jvp(call.weights, tangents, _balls(call.x), _balls(dx), call.mask)


def _softmax(scores: Array, mask: Mask | None) -> Balls:
    mask = np.ones(scores.shape, bool) if mask is None else mask
    return literal.hard_masked_softmax_spec(_balls(scores), mask)


def _softmax_vjp(scores: Array, mask: Mask | None, g: Array) -> Balls:
    return literal.softmax_backward_from_weights_spec(_softmax(scores, mask), _balls(g))


def _sinusoid(seq_len: int, embed_dim: int, start_pos: int, layout: str) -> Balls:
    """The spec's table; or its sines before its cosines, with the spec's exponents or with i/(d/2 −
    1).
    """
    table = positional.sinusoidal_positional_encoding_spec(seq_len, embed_dim, start_pos, ARB)
    if layout == "tensor2tensor":
        pairs = range(embed_dim // 2)
        angles = [
            [(start_pos + p) * flint.arb(10000) ** (-flint.arb(i) / (len(pairs) - 1)) for i in pairs]
            for p in range(seq_len)
        ]
        return np.array([[*(x.sin() for x in row), *(x.cos() for x in row)] for row in angles], object).reshape(
            seq_len, embed_dim
        )
    return table if layout == "interleaved" else np.concatenate([table[:, 0::2], table[:, 1::2]], axis=1)


def _add(x: Array, pos: Array) -> Balls:
    return positional.add_positional_encoding_spec(
        positional.PositionalEncodingSpec(_balls(pos), scalar=ARB), _balls(x), ARB
    )


def _learned(table: Array, seq_len: int, start_pos: int) -> Balls:
    """The rows of a table: `PositionalEncodingSpec.pos` of a chunk."""
    return positional.PositionalEncodingSpec(_balls(table[start_pos : start_pos + seq_len]), scalar=ARB).pos


def _inv_freq(head_dim: int) -> Balls:
    """The angles of position 1."""
    results: Balls = _angles(1, head_dim, 1)[0]
    return results


def _angles(seq_len: int, head_dim: int, start_pos: int) -> Balls:
    pairs = range(-(-head_dim // 2))
    rows = [[positional.posenc_angle_spec(start_pos + p, i, head_dim, ARB) for i in pairs] for p in range(seq_len)]
    return np.array(rows, object).reshape(seq_len, len(pairs))


def _tables(seq_len: int, head_dim: int, start_pos: int) -> tuple[Balls, Balls]:
    def table(row: Callable[..., Balls]) -> Balls:
        return np.stack([row(start_pos + p, head_dim, ARB) for p in range(seq_len)])

    return table(positional.rope_cos_lastdim_spec), table(positional.rope_sin_lastdim_spec)


def _rope(x: Array, start_pos: int, scalar: Context, odd: str) -> Balls:
    return _passed(positional.rope_apply_spec(_balls(x), start_pos, scalar), x, odd)


def _rope_vjp(_x: Array, g: Array, start_pos: int, scalar: Context, odd: str) -> Balls:
    """J · rope(J · g) with J = diag(1, −1, 1, …): both channels of a pair share their cosine and their sine."""
    return _passed(
        positional.rope_apply_spec(tensor(g * _signs(g), ARB), start_pos, scalar) * _signs(g).astype(object), g, odd
    )


def _passed(rotated: Balls, x: Array, odd: str) -> Balls:
    """The rotated array, with the unpaired channel of x unchanged if the convention is
    "passthrough".
    """
    passes = odd == "passthrough" and x.shape[1] % 2
    return np.concatenate([rotated[:, :-1], _balls(x)[:, -1:]], axis=1) if passes else rotated


def _signs(x: Array) -> NDArray[np.int64]:
    return np.where(np.arange(x.shape[1]) % 2, -1, 1)


def _rotary(x: Array, cos: Array, sin: Array) -> Balls:
    """The body of `rope_apply_spec` with given tables: x ⊙ cos + R(x) ⊙ sin, where R rotates each pair by π/2."""
    points, cosines, sines = _balls(x), _balls(cos), _balls(sin)
    return add_spec(mul_spec(points, cosines, ARB), mul_spec(_quarter_turn(points), sines, ARB), ARB)


def _rotary_vjp(_x: Array, cos: Array, sin: Array, g: Array) -> Balls:
    """g ⊙ cos + Rᵀ(g ⊙ sin), where Rᵀ = J · R · J."""
    points, cosines, sines = _balls(g), _balls(cos), _balls(sin)
    signs = _signs(g).astype(object)
    return add_spec(mul_spec(points, cosines, ARB), _quarter_turn(mul_spec(points, sines, ARB) * signs) * signs, ARB)


def _quarter_turn(x: Balls) -> Balls:
    return stack(x.shape, lambda p: positional.rope_rotate_pairs_lastdim_spec(x[p], ARB), ARB)


_OPERATIONS: dict[str, Callable[..., Balls | tuple[Balls, ...]]] = {
    "scaled_dot_product_attention": _attention,
    "scaled_dot_product_attention_vjp": _attention_vjp,
    "scaled_dot_product_attention_jvp": _attention_jvp,
    "causal_attention": _causal,
    "grouped_query_attention": _grouped,
    "multi_head_attention": _multi_head,
    "multi_head_attention_vjp": _multi_head_vjp,
    "multi_head_attention_jvp": _multi_head_jvp,
    "hard_masked_softmax": _softmax,
    "hard_masked_softmax_vjp": _softmax_vjp,
    "sinusoidal_positional_encoding": _sinusoid,
    "add_positional_encoding": _add,
    "learned_positional_encoding": _learned,
    "inv_freq": _inv_freq,
    "rope_angles": _angles,
    "rope_tables": _tables,
    "rope": _rope,
    "rope_vjp": _rope_vjp,
    "apply_rotary": _rotary,
    "apply_rotary_vjp": _rotary_vjp,
    "attention": attention.attention,
    "attention of codes": attention.attention,
    "attention_vjp": derivatives.attention_vjp,
    "attention_vjp by series": derivatives.vjp_by_series,
    "attention_jvp": derivatives.attention_jvp,
    "attention_jvp by series": derivatives.jvp_by_series,
    "latent_attention": latent.latent_attention,
    "attention_layer": layer.attention_layer,
    "packed_attention": packed.packed_attention,
    "packed_attention of codes": packed.packed_attention,
    "packed_attention_vjp": packed.packed_attention_vjp,
    "paged_attention": paged.paged_attention,
    "paged_attention of codes": paged.paged_attention,
    "merge_attention": parts.merge_attention,
    "alibi_slopes": parts.alibi_slopes,
    "alibi_bias": parts.alibi_bias,
    "rotary_embedding": rotary.rotary_embedding,
    "rotary_frequencies": rotary.rotary_frequencies,
    "rope at positions": rotary.rope,
    "rope_vjp at positions": rotary.rope_vjp,
    "rotary_tables": rotary.rotary_tables,
}
