"""Validates the arguments of multi-head attention, and computes its projections in the modelled
arithmetic, as products of balls.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from math import prod, sqrt
from operator import add
from typing import Any

import numpy as np

from oracles import arrays, ball
from oracles.arguments import checked_flag, checked_scale
from oracles.ball import ROUNDOFF, Array, Ball, exact
from oracles.error_analysis.ball_attention import Setting
from oracles.error_analysis.grouped_heads import Shared
from oracles.error_analysis.scores import Inputs, Operand, operand
from oracles.error_analysis.visible_keys import Mask, Visible
from oracles.formats import Format
from oracles.judging import Method
from oracles.options import MultiHeadOptions, answer


@dataclass(frozen=True)
class Projections:
    """Validated arguments, and the matrix products in the modelled arithmetic."""

    x: Array
    wq: Array
    wk: Array
    wv: Array
    wo: Array
    num_heads: int
    setting: Setting
    method: Method
    mask: Mask | None
    options: dict[str, Any]

    @property
    def arguments(self) -> tuple[Array, ...]:
        """The arguments of the call, in order."""
        return self.x, self.wq, self.wk, self.wv, self.wo

    @property
    def work(self) -> int:
        """The multiplications in one forward pass; an exponential counts as 8."""
        tokens, n, width = prod(self.x.shape[:-1]), int(self.x.shape[-2]), int(self.wq.shape[1])
        return tokens * (4 * int(self.x.shape[-1]) * width + n * (2 * width + 8 * self.num_heads))

    def like(self, x: Any, name: str, argument: Array) -> Array:
        """Return a cotangent or tangent, of the shape of its argument."""
        array = arrays.float_array(x, name, arithmetic=self.setting.arithmetic)
        if array.shape != argument.shape:
            raise ValueError(f"{name} has shape {array.shape}, but should be {argument.shape}.")
        return array

    def allowed(self) -> Mask | None:
        """Return which tokens are visible to each token: (…, n, n), or None for all."""
        n = self.x.shape[-2]
        if self.setting.visible.high is None:
            return self.mask
        past = np.tri(n, dtype=bool)
        return np.broadcast_to(past if self.mask is None else past & self.mask, (*self.x.shape[:-1], n))

    def product(self, a: Ball, b: Ball, backward: bool = False) -> Ball:
        """Return a matrix product in the modelled arithmetic, before it is stored."""
        model = self.setting.arithmetic
        if model is None:
            return ball.matmul(a, b)
        work, flushed = model.elementwise, float(model.flush_to_zero)
        code = ball.ProductErrors(
            roundoff=model.grad_accumulate if backward else model.accumulate,
            product=model.product,
            underflow=work.smallest_normal if model.flush_to_zero else work.smallest_subnormal,
            operand=work.smallest_normal * (model.product + flushed),
            largest=work.largest,
        )
        return ball.matmul(a, b, code)

    def stored(self, a: Ball) -> Ball:
        """Return a result that enters the next product: rounded to every format that it may be
        stored in before.
        """
        model = self.setting.arithmetic
        return a if model is None else self._rounded(a, {model.elementwise, model.output, model.inputs})

    def kept(self, a: Ball, of: Operand, *others: Operand) -> Ball:
        """Return a result of attention, which is rounded already: radius ∞ where it overflows the
        format it is stored in.

        A kernel that multiplies masked entries by 0 spreads ∞, in rows without visible tokens too,
        as a weight of 0 times ∞ is NaN. So the radius is also ∞ in the lost columns of the summed
        operand `of`, and for a whole head if a column of `others`, of which its weights are
        computed, is lost.
        """
        model = self.setting.arithmetic
        if model is None:
            return a
        lost = np.abs(a.mid) + a.rad > min(model.elementwise.largest, model.output.largest, model.inputs.largest)
        for x in (of, *others) if self._reads_what_is_blocked else ():
            if x.unknown is not None:
                columns = x.unknown.all(axis=-2, keepdims=True)
                lost = lost | (columns if x is of else columns.any(axis=-1, keepdims=True))
        return Ball(a.mid, np.where(lost, np.inf, a.rad))

    @property
    def _reads_what_is_blocked(self) -> bool:
        """Whether a kernel may multiply what a mask blocks by a weight of 0."""
        masked = self.mask is not None or self.setting.visible.high is not None
        return masked and self.setting.arithmetic is not None and self.setting.conventions.blocked_values == "finite"

    def last(self, a: Ball) -> Ball:
        """Return a result in the output's format."""
        model = self.setting.arithmetic
        return a if model is None else self._rounded(a, {model.elementwise, model.output})

    def plus(self, a: Ball, b: Ball) -> Ball:
        """a + b. A budget counts its rounding where it is exact too, which depends on the order in
        which BLAS added up a and b.
        """
        if self.setting.arithmetic is None:
            return a + b
        with np.errstate(all="ignore"):
            mid = a.mid + b.mid
            return ball.ball(mid, (a.rad + b.rad + ROUNDOFF * np.abs(mid)) * (1 + 2.0**-50))

    def added(
        self, parts: Sequence[Ball], others: Sequence[Ball], keep: Callable[[Ball], Ball], backward: bool = False
    ) -> Ball:
        """Products of parts with others, added up: either each product is kept alone and they are
        added in any order (in reverse order, which automatic differentiation takes, a sum may
        overflow), or all are one product, as with packed projections.

        The radius is the largest of theirs about one midpoint, the midpoint of the given order. The
        others differ from the exact sum of the products' midpoints by what is in their own radii,
        this one by u·Σ|partial sums|, which is added. The packed product's radius holds for every
        order of summation, and so about this one's midpoint.
        """
        products = [keep(self.product(x, y, backward)) for x, y in zip(parts, others, strict=True)]
        if self.setting.arithmetic is None:
            return reduce(add, products)
        found, *rest = (
            reduce(lambda x, y: keep(self.plus(x, y)), products[i:] + products[:i]) for i in range(len(products))
        )
        own = (len(products) - 1) * ROUNDOFF * sum(np.abs(x.mid) for x in products)
        packed = keep(self.product(joined(parts, -1), joined(others, -2), backward))
        every = (found.rad, packed.rad, *(x.rad + own for x in rest))
        return ball.ball(found.mid, np.maximum.reduce(every) * (1 + 2.0**-50))

    def _rounded(self, a: Ball, targets: set[Format]) -> Ball:
        for target in sorted(targets, key=lambda f: f.unit_roundoff):
            a = ball.rounded(
                a, target, flush=self.setting.arithmetic is not None and self.setting.arithmetic.flush_to_zero
            )
        return a

    def heads(self, a: Ball, *given: Array) -> Operand:
        """(…, n, num_heads·head_dim) -> (…, num_heads, n, head_dim), as attention takes it.

        Where a projection of a token overflows although the token is finite, its column is unknown;
        behind a mask too, if a kernel reads masked entries, as a weight of 0 times ∞ is NaN.
        """
        if given and self._reads_what_is_blocked:
            finite = np.logical_and.reduce([np.isfinite(x).all(axis=-1, keepdims=True) for x in given])
            lost = (np.isinf(a.rad) & finite).any(axis=-2, keepdims=True)
            a = Ball(a.mid, np.where(lost, np.inf, a.rad))
        split = mapped(
            a, lambda m: m.reshape(*m.shape[:-1], self.num_heads, m.shape[-1] // self.num_heads).swapaxes(-3, -2)
        )
        return operand(split.mid, split.rad)

    def projections(self, backward: bool = False) -> Inputs:
        """Return the heads of x·wq, x·wk and x·wv. Behind a mask derivatives are products with all
        three, the output with the last alone.
        """
        q, k, v = (self.stored(self.product(exact(self.x), exact(w))) for w in (self.wq, self.wk, self.wv))
        given = (self.x,) if backward else ()
        return Inputs(self.heads(q, *given), self.heads(k, *given), self.heads(v, self.x))

    def expecting_nan(self, out: Ball) -> Ball:
        """Return the output with NaN expected on the rows of tokens that may read none, if that is
        the convention.
        """
        allowed = self.allowed()
        if self.setting.conventions.dead_rows != "nan" or allowed is None or self.wq.shape[1] == 0:
            return out
        dead = ~allowed.any(axis=-1, keepdims=True)
        return Ball(np.where(dead, np.nan, out.mid), np.where(dead, 0.0, out.rad))


def checked(inputs: Sequence[Any], num_heads: Any, mask: Any, options: MultiHeadOptions) -> Projections:
    """Return the validated call of multi-head attention on the inputs x, wq, wk, wv and wo."""
    arithmetic, conventions, method = answer(options)
    names = ("x", "wq", "wk", "wv", "wo")
    arguments = [
        arrays.float_array(given, name, arithmetic=arithmetic) for given, name in zip(inputs, names, strict=True)
    ]
    x, wq, wk, wv, wo = arguments
    heads = arrays.natural(num_heads, "num_heads", 1)
    _require_shapes(arguments, heads)
    n, width = x.shape[-2], wq.shape[1]
    if width == 0:
        heads = 1  # heads without columns add nothing, whatever their number
    given = arrays.bool_mask(mask, "mask", (*x.shape[:-1], n), conventions.mask_polarity)
    shared = None if given is None else np.broadcast_to(given[..., None, None, :, :], (*x.shape[:-2], heads, 1, n, n))
    last = 0 if checked_flag(options["is_causal"]) else None
    visible = Visible(None if shared is None else Shared(shared), np.arange(n), high=last)
    scale = checked_scale(options["scale"])
    setting = Setting(
        visible, scale if scale is not None else 1.0 / sqrt(max(width // heads, 1)), arithmetic, conventions
    )
    return Projections(x, wq, wk, wv, wo, heads, setting, method, given, {"scale": scale, "conventions": conventions})


def _require_shapes(arguments: Sequence[Array], heads: int) -> None:
    """Raise ValueError unless x has a token and the weights fit to it and to the number of heads."""
    x, wq, wk, wv, wo = arguments
    if x.ndim < 2 or x.shape[-2] == 0:
        raise ValueError(f"x has shape {x.shape}, but should be (…, n, d_model) with n at least 1.")
    d_model = x.shape[-1]
    if wq.ndim != 2 or wq.shape[0] != d_model:
        raise ValueError(
            f"wq has shape {wq.shape}, but should be ({d_model}, num_heads·head_dim) as x has shape {x.shape}."
        )
    width = wq.shape[1]
    if width % heads:
        raise ValueError(f"num_heads={heads}, but should divide the {width} columns of wq.")
    for weight, name, shape in ((wk, "wk", wq.shape), (wv, "wv", wq.shape), (wo, "wo", (width, d_model))):
        if weight.shape != shape:
            raise ValueError(f"{name} has shape {weight.shape}, but should be {shape} as wq has shape {wq.shape}.")


def joined(parts: Sequence[Ball], axis: int) -> Ball:
    """Return balls, one after the other along an axis."""
    return Ball(np.concatenate([x.mid for x in parts], axis=axis), np.concatenate([x.rad for x in parts], axis=axis))


def mapped(a: Ball, change: Callable[[Array], Array]) -> Ball:
    """Return a ball with its midpoint and radius in another layout."""
    return Ball(change(a.mid), change(a.rad))
