"""Multi-head attention and its derivatives, each value with a rigorous enclosure.

    out = [head_0 | head_1 | …]·wo,   head_h = attention(x·wq_h, x·wk_h, x·wv_h)

where wq_h is the h-th block of columns of wq, as in PyTorch.  Everything is composed of balls: a projection is a ball
matrix product (`ball.matmul`) widened by the roundings of whoever stores it (`ball.rounded`), attention maps balls to
balls (`oracles.attend`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod, sqrt
from typing import Any

import numpy as np

from oracles import arrays, attend, ball, formats
from oracles import exact as precise
from oracles.attend import Setting
from oracles.attention import checked_flag, checked_scale
from oracles.ball import Array, Ball, exact
from oracles.conventions import Conventions
from oracles.conventions import resolve as resolve_conventions
from oracles.enclosure import Enclosure
from oracles.formats import Arithmetic, Format
from oracles.judging import Method, require_method, settle, zero_is_accepted
from oracles.scores import Mask

Given = Arithmetic | str | None


def multi_head_attention(
    x: Any,
    wq: Any,
    wk: Any,
    wv: Any,
    wo: Any,
    num_heads: int,
    mask: Any = None,
    *,
    scale: float | None = None,
    is_causal: bool = False,
    arithmetic: Given = None,
    conventions: Conventions | None = None,
    method: Method = "auto",
) -> Enclosure:
    """Multi-head self-attention of x, enclosed.

    Shapes: x (…, n, d_model); wq, wk, wv (d_model, num_heads·head_dim); wo (num_heads·head_dim, d_model); mask
    broadcasts to (…, n, n) and is shared by the heads; the result is like x. Edge cases: a token that may read no token
    is 0 (NaN, or the mean of all values times wo, by `conventions.dead_rows`). Raises ValueError and TypeError for
    shapes, types and values that do not fit.
    """
    p = _problem(x, wq, wk, wv, wo, num_heads, mask, scale, is_causal, arithmetic, conventions, method)

    def fast() -> tuple[Ball]:
        heads = attend.forward(*p.projections(), p.setting)
        return (p.expecting_nan(p.last(p.product(_side_by_side(heads), exact(p.wo)))),)

    return settle(
        fast,
        lambda: precise.multi_head_attention(*p.arguments, p.allowed(), **p.options),
        p.work,
        p.setting.arithmetic,
        method,
        zero_is_accepted,
    )[0]


def multi_head_attention_vjp(
    x: Any,
    wq: Any,
    wk: Any,
    wv: Any,
    wo: Any,
    num_heads: int,
    mask: Any,
    grad_out: Any,
    *,
    scale: float | None = None,
    is_causal: bool = False,
    arithmetic: Given = None,
    conventions: Conventions | None = None,
    method: Method = "auto",
) -> tuple[Enclosure, ...]:
    """The gradients (dx, dwq, dwk, dwv, dwo) of Σ grad_out ⊙ out, enclosed; those of the weights are summed over the
    batch.

    With dc = grad_out·woᵀ split into heads and (dq, dk, dv) the heads' VJPs side by side: dwo = concatᵀ·grad_out,
    dwq = xᵀ·dq and so on, dx = dq·wqᵀ + dk·wkᵀ + dv·wvᵀ.

    Shapes: grad_out is like x; the gradients are like x, wq, wk, wv and wo.
    Edge cases: as for attention; a dead row that is NaN leaves every entry unchecked that its dq reaches.
    Raises ValueError and TypeError for shapes, types and values that do not fit.
    """
    p = _problem(x, wq, wk, wv, wo, num_heads, mask, scale, is_causal, arithmetic, conventions, method)
    g = p.like(grad_out, "grad_out", p.x)

    def fast() -> tuple[Ball, ...]:
        q, k, v = p.projections()
        tokens, out = exact(p.x), exact(g)
        concat = _side_by_side(attend.forward(q, k, v, p.setting))
        split = p.heads(p.stored(p.product(out, _transposed(exact(p.wo)), backward=True)))
        pulled = [_side_by_side(d) for d in attend.vjp(q, k, v, split, p.setting)]
        parts = [p.last(p.product(d, _transposed(exact(w)), backward=True)) for d, w in zip(pulled, (p.wq, p.wk, p.wv), strict=True)]
        dx = p.last(p.last(parts[0] + parts[1]) + parts[2])
        pairs = [(tokens, d) for d in pulled] + [(concat, out)]
        weights = (p.product(_transposed(_tokens(a)), _tokens(b), backward=True) for a, b in pairs)
        return (dx, *(p.last(w) for w in weights))

    return settle(
        fast,
        lambda: precise.multi_head_attention_vjp(*p.arguments, p.allowed(), g, **p.options),
        3 * p.work,
        p.setting.arithmetic,
        method,
        zero_is_accepted,
    )


def multi_head_attention_jvp(
    x: Any,
    wq: Any,
    wk: Any,
    wv: Any,
    wo: Any,
    num_heads: int,
    mask: Any,
    dx: Any,
    dwq: Any,
    dwk: Any,
    dwv: Any,
    dwo: Any,
    *,
    scale: float | None = None,
    is_causal: bool = False,
    arithmetic: Given = None,
    conventions: Conventions | None = None,
    method: Method = "auto",
) -> Enclosure:
    """The derivative of multi-head attention in the direction (dx, dwq, dwk, dwv, dwo), enclosed.

    dout = [dhead_0 | …]·wo + [head_0 | …]·dwo, the heads' tangents being blocks of dx·wq + x·dwq and so on.

    Shapes: tangents like their arguments; the result is like x.
    Edge cases: a token that may read no token is 0 (NaN, or the derivative of the mean, by `conventions.dead_rows`).
    Raises ValueError and TypeError for shapes, types and values that do not fit.
    """
    p = _problem(x, wq, wk, wv, wo, num_heads, mask, scale, is_causal, arithmetic, conventions, method)
    named = ((dx, "dx", p.x), (dwq, "dwq", p.wq), (dwk, "dwk", p.wk), (dwv, "dwv", p.wv), (dwo, "dwo", p.wo))
    moves = [p.like(tangent, name, like) for tangent, name, like in named]

    def fast() -> tuple[Ball]:
        q, k, v = p.projections()
        tq, tk, tv = (
            p.heads(p.stored(p.product(exact(moves[0]), exact(w)) + p.product(exact(p.x), exact(dw))))
            for w, dw in zip((p.wq, p.wk, p.wv), moves[1:4], strict=True)
        )
        heads = _side_by_side(attend.forward(q, k, v, p.setting))
        drift = _side_by_side(attend.jvp(q, k, v, tq, tk, tv, p.setting))
        dout = p.last(p.product(drift, exact(p.wo))) + p.last(p.product(heads, exact(moves[4])))
        return (p.expecting_nan(p.last(dout)),)

    return settle(
        fast,
        lambda: precise.multi_head_attention_jvp(*p.arguments, p.allowed(), *moves, **p.options),
        3 * p.work,
        p.setting.arithmetic,
        method,
        zero_is_accepted,
    )[0]


@dataclass(frozen=True)
class _Problem:
    """Validated arguments, and the matrix products of whoever is modelled."""

    x: Array
    wq: Array
    wk: Array
    wv: Array
    wo: Array
    num_heads: int
    setting: Setting
    mask: Mask | None
    options: dict[str, Any]

    @property
    def arguments(self) -> tuple[Array, Array, Array, Array, Array, int]:
        """The arguments in their order."""
        return self.x, self.wq, self.wk, self.wv, self.wo, self.num_heads

    @property
    def work(self) -> int:
        """The multiplications in one forward pass; an exponential counts as 8."""
        tokens, n, width = prod(self.x.shape[:-1]), int(self.x.shape[-2]), int(self.wq.shape[1])
        return tokens * (4 * int(self.x.shape[-1]) * width + n * (2 * width + 8 * self.num_heads))

    def like(self, x: Any, name: str, argument: Array) -> Array:
        """A cotangent or tangent, of the shape of its argument."""
        array = arrays.float_array(x, name, arithmetic=self.setting.arithmetic)
        if array.shape != argument.shape:
            raise ValueError(f"{name} has shape {array.shape}, but should be {argument.shape}.")
        return array

    def allowed(self) -> Mask | None:
        """Which tokens each token may read, in full: (…, n, n), or None for all."""
        n = self.x.shape[-2]
        if self.setting.causal is None:
            return self.mask
        past = np.tri(n, dtype=bool)
        return np.broadcast_to(past if self.mask is None else past & self.mask, (*self.x.shape[:-1], n))

    def product(self, a: Ball, b: Ball, backward: bool = False) -> Ball:
        """A matrix product by whoever is modelled, before it is stored."""
        model = self.setting.arithmetic
        if model is None:
            return ball.matmul(a, b)
        roundoff = model.grad_accumulate if backward else model.accumulate
        underflow = model.elementwise.smallest_normal if model.flush_to_zero else model.elementwise.smallest_subnormal
        return ball.matmul(a, b, roundoff=roundoff, product=model.product, underflow=underflow)

    def stored(self, a: Ball) -> Ball:
        """A result as it enters the next product: rounded to every format that it may pass through on its way."""
        model = self.setting.arithmetic
        return a if model is None else self._rounded(a, {model.elementwise, model.output, model.inputs})

    def last(self, a: Ball) -> Ball:
        """A result as it is returned."""
        model = self.setting.arithmetic
        return a if model is None else self._rounded(a, {model.elementwise, model.output})

    def _rounded(self, a: Ball, targets: set[Format]) -> Ball:
        for target in sorted(targets, key=lambda f: f.unit_roundoff):
            a = ball.rounded(a, target, flush=self.setting.arithmetic is not None and self.setting.arithmetic.flush_to_zero)
        return a

    def heads(self, a: Ball) -> Ball:
        """(…, n, num_heads·head_dim) -> (…, num_heads, n, head_dim)."""
        return _mapped(a, lambda m: m.reshape(*m.shape[:-1], self.num_heads, m.shape[-1] // self.num_heads).swapaxes(-3, -2))

    def projections(self) -> tuple[Ball, Ball, Ball]:
        """The heads of x·wq, x·wk and x·wv."""
        x = exact(self.x)
        q, k, v = (self.heads(self.stored(self.product(x, exact(w)))) for w in (self.wq, self.wk, self.wv))
        return q, k, v

    def expecting_nan(self, out: Ball) -> Ball:
        """The output with NaN expected on the rows of tokens that may read none, if that is the convention."""
        allowed = self.allowed()
        if self.setting.conventions.dead_rows != "nan" or allowed is None or self.wq.shape[1] == 0:
            return out
        dead = ~allowed.any(axis=-1, keepdims=True)
        return Ball(np.where(dead, np.nan, out.mid), np.where(dead, 0.0, out.rad))


def _problem(
    x: Any,
    wq: Any,
    wk: Any,
    wv: Any,
    wo: Any,
    num_heads: Any,
    mask: Any,
    scale: Any,
    is_causal: Any,
    arithmetic: Given,
    conventions: Conventions | None,
    method: Method,
) -> _Problem:
    """The arguments of multi-head attention, validated."""
    require_method(method)
    a, c = formats.resolve(arithmetic), resolve_conventions(conventions)
    named = ((x, "x"), (wq, "wq"), (wk, "wk"), (wv, "wv"), (wo, "wo"))
    x, wq, wk, wv, wo = (arrays.float_array(value, name, arithmetic=a) for value, name in named)
    heads = arrays.natural(num_heads, "num_heads", 1)
    if x.ndim < 2 or x.shape[-2] == 0:
        raise ValueError(f"x has shape {x.shape}, but should be (…, n, d_model) with n at least 1.")
    n, d_model = x.shape[-2:]
    if wq.ndim != 2 or wq.shape[0] != d_model:
        raise ValueError(f"wq has shape {wq.shape}, but should be ({d_model}, num_heads·head_dim) as x has shape {x.shape}.")
    width = wq.shape[1]
    if width % heads:
        raise ValueError(f"num_heads={heads}, but should divide the {width} columns of wq.")
    for w, name, shape in ((wk, "wk", wq.shape), (wv, "wv", wq.shape), (wo, "wo", (width, d_model))):
        if w.shape != shape:
            raise ValueError(f"{name} has shape {w.shape}, but should be {shape} as wq has shape {wq.shape}.")
    given = arrays.bool_mask(mask, "mask", (*x.shape[:-1], n), c.mask_polarity)
    shared = None if given is None else np.broadcast_to(given[..., None, :, :], (*x.shape[:-2], heads, n, n))
    factor = checked_scale(scale)
    setting = Setting(
        mask=shared,
        causal=0 if checked_flag(is_causal) else None,
        positions=np.arange(n),
        scale=factor if factor is not None else 1.0 / sqrt(max(width // heads, 1)),
        arithmetic=a,
        conventions=c,
    )
    return _Problem(x, wq, wk, wv, wo, heads, setting, given, {"scale": factor, "conventions": c})


def _mapped(a: Ball, change: Callable[[Array], Array]) -> Ball:
    """A ball whose midpoint and radius are laid out anew."""
    return Ball(change(a.mid), change(a.rad))


def _transposed(a: Ball) -> Ball:
    """The last two axes exchanged."""
    return _mapped(a, lambda m: m.swapaxes(-1, -2))


def _side_by_side(a: Ball) -> Ball:
    """(…, num_heads, n, head_dim) -> (…, n, num_heads·head_dim)."""
    return _mapped(a, lambda m: m.swapaxes(-3, -2).reshape(*m.shape[:-3], m.shape[-2], m.shape[-3] * m.shape[-1]))


def _tokens(a: Ball) -> Ball:
    """(…, n, columns) -> (all tokens of the batch, columns)."""
    return _mapped(a, lambda m: m.reshape(prod(m.shape[:-1]), m.shape[-1]))
